"""The rooms of the house: each imports only from rooms above it, and the front door stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "grpo_cli"

# From the ground up; a module may import from its own row and from the rows before it.
ROOMS = [
    ["errors"],
    ["moments", "typed", "filters", "roles", "schemas", "ahead"],
    ["copies", "segments", "numbers"],
    ["grouped"],
    ["estimators"],
    ["parts"],
    ["plan"],
    ["presets"],
    ["options"],
    ["settings"],
    ["io"],
    ["formats"],
    ["grouping"],
    ["derived"],
    ["narrow"],
    ["sight"],
    ["detect"],
    ["bound"],
    ["belonging"],
    ["asked", "narrowing", "suspicions"],
    ["sources"],
    ["shaping"],
    ["scaling"],
    ["stages"],
    ["running"],
    ["engine"],
    ["refill"],
    ["facts"],
    ["curriculum", "likeness", "trends", "verdicts"],
    ["ends"],
    ["inspection"],
    ["excerpts"],
    ["shown"],
    ["candidates", "causes"],
    ["search"],
    ["auditing", "comparing"],
    ["outputs"],
    ["resume", "tally"],
    ["weaving", "verify"],
    ["drivers"],
    ["picks", "selection"],
    ["looking"],
    ["choosing", "figures", "sampled"],
    ["api", "twinkle"],
    ["view"],
    ["notebook"],
    ["cli"],
    ["__init__", "__main__"],
]
FLOOR = {room: floor for floor, rooms in enumerate(ROOMS) for room in rooms}
MODULES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Rooms of this package that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "grpo_cli" else [f"grpo_cli.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("grpo_cli.")}
    return {name for name in found if name in FLOOR}


def test_every_module_has_a_room() -> None:
    assert {room(path) for path in MODULES} == set(FLOOR)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_only_from_rooms_before_it(path: Path) -> None:
    own = room(path)
    if own == "__init__":
        return
    above = {name for name in imported(path) if FLOOR[name] > FLOOR[own]}
    assert not above


def loaded_by(statement: str) -> set[str]:
    script = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}


HEAVY = {"polars", "pyarrow", "numpy", "pandas", "torch"}


@pytest.mark.parametrize(
    "statement",
    [
        "import grpo_cli",
        "import grpo_cli.cli.app",
        "import grpo_cli.estimators.table, grpo_cli.plan; grpo_cli.plan.Plan.of({'estimator.name': 'gigpo'})",
    ],
)
def test_the_front_door_loads_nothing_heavy(statement: str) -> None:
    assert not HEAVY & loaded_by(statement)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["compute", "--help"], ["methods"], ["methods", "rloo"]]
)
def test_help_and_listings_load_nothing_heavy(arguments: list[str]) -> None:
    statement = f"import sys; sys.argv = ['grpo-adv', *{arguments!r}]\nfrom grpo_cli.cli.app import app\ntry:\n    app(standalone_mode=False)\nexcept SystemExit:\n    pass\n"
    script = statement + "print()\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not HEAVY & {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}


@pytest.mark.parametrize("room_name", ["engine", "api", "drivers", "sources", "twinkle"])
def test_the_core_knows_neither_typer_nor_rich(room_name: str) -> None:
    names = [path for path in MODULES if room(path) == room_name]
    for path in names:
        text = path.read_text(encoding="utf-8")
        assert "import typer" not in text
        assert "rich" not in {
            node.module.split(".")[0]
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ImportFrom) and node.module
        }
