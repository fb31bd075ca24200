"""The rooms of the house: each imports only from the rooms below it, and the front door stays light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from grpo_cli.formats.registry import FORMATS

PACKAGE = Path(__file__).resolve().parent.parent.parent / "grpo_cli"

# The floor plan: from which other rooms each may import. `docs/architecture.md` prints it.
RULES: dict[str, str] = {
    "errors": "",
    "parallel": "",
    "plugins": "errors",
    "values": "errors",
    "files": "errors",
    "formats": "errors parallel values files",
    "schemas": "errors plugins values",
    "targets": "errors plugins",
    "engine": "errors parallel plugins",
    "options": "errors plugins values files schemas targets engine",
    "read": "errors parallel values files formats schemas engine",
    "stats": "errors values schemas engine read",
    "choosing": "errors schemas engine options read stats",
    "write": "errors values files formats engine read",
    "runs": "errors values files formats schemas targets engine options read stats choosing write",
    "render": "errors values files formats schemas targets engine options read stats choosing write runs",
    "twinkle": "errors engine write",
    "cli": "errors plugins files schemas targets engine options read stats choosing write runs render",
    "guests": "",
    "guests/audit": "errors plugins values formats schemas engine options read stats write runs render",
    "guests/browse": "errors plugins values files engine options read stats choosing runs render cli",
    "api": "errors files formats engine options read stats choosing write runs render guests/audit",
}
# `read` asks the engine only what a plan needs, never to compute.
READ_OF_ENGINE = {"plan", "plan_parts", "extra_columns", "column_stats", "group_stats", "moments"}
# `stats` takes the tables that have been read, and the keys in them; it opens no file.
STATS_OF_READ = """\
group_keys known_names narrow texts.code_of pairs.key_texts prompt_check.SeveralPrompts request.Rule tables.Binding
token_numbers.ESTIMATORS token_numbers.TokenPart
"""
DOORS = {"__init__", "__main__"}  # they load the rooms, and nothing loads them
MODULES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    return room_of(path.relative_to(PACKAGE).with_suffix("").parts)


def room_of(module: tuple[str, ...]) -> str:
    """The room of a module: its first folder, and for a guest also its own."""
    parts = [part for part in module[: 1 + (module[0] == "guests")] if part != "__init__"]
    return "/".join(parts) or "__init__"


@cache
def imported(path: Path) -> set[tuple[str, ...]]:
    """Modules of this package that a module imports, anywhere in it, by their path below the package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {tuple(name.split(".")[1:]) for name in names if name.startswith("grpo_cli.")}
    return {name for name in found if name != ("__version__",)}


def test_every_module_has_a_room() -> None:
    assert {room(path) for path in MODULES} == {*RULES, *DOORS}


@pytest.mark.parametrize("name", RULES)
def test_a_room_imports_only_from_the_rooms_below_it(name: str) -> None:
    above = {
        f"{path.relative_to(PACKAGE)} imports {'.'.join(target)}"
        for path in MODULES
        if room(path) == name
        for target in imported(path)
        if room_of(target) not in {name, *RULES[name].split()}
    }
    assert not above


def test_the_rules_have_no_circle() -> None:
    seen: set[str] = set()
    for name, below in RULES.items():
        assert {*below.split()} <= seen
        seen.add(name)


def test_only_the_python_api_may_import_a_guest() -> None:
    """The core is understood without its guests, and a guest without the others."""
    assert {name for name, below in RULES.items() if "guests" in below} == {"api"}


def taken(name: str, other: str) -> set[tuple[str, ...]]:
    """What a room imports from another."""
    every = (target for path in MODULES if room(path) == name for target in imported(path))
    return {target[1:] for target in every if target[0] == other}


def test_reading_does_not_compute() -> None:
    assert {name[0] for name in taken("read", "engine")} <= READ_OF_ENGINE


def test_stats_opens_no_table() -> None:
    allowed = {*STATS_OF_READ.split()}
    assert not {".".join(name) for name in taken("stats", "read") if not {name[0], ".".join(name)} & allowed}


def names_a_format(node: ast.AST) -> bool:
    """Whether code looks a format up by a literal name, or compares the name of one."""
    if isinstance(node, ast.Subscript):
        return ast.unparse(node.value).endswith("FORMATS") and isinstance(node.slice, ast.Constant)
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    texts = {part.value for side in sides for part in ast.walk(side) if isinstance(part, ast.Constant)}
    named = [ast.unparse(side) for side in sides if isinstance(side, ast.Attribute) and side.attr == "name"]
    return any("format" in side or texts & {*FORMATS} for side in named)


@pytest.mark.parametrize("code", ["FORMATS['csv']", "a.format.name == b", "kind.name in {'csv', 'tsv'}"])
def test_a_format_that_is_named_is_seen(code: str) -> None:
    assert names_a_format(ast.parse(code, mode="eval").body)


def test_only_the_formats_know_each_other_by_name() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in MODULES
        if room(path) != "formats"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.Subscript, ast.Compare)) and names_a_format(node)
    }
    assert not found


def public(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """A knot of files can only be understood as one: each module is understood after those that it imports."""
    known = {public(path) for path in MODULES}
    below = {}
    for path in MODULES:
        if public(path) not in DOORS:
            names = {".".join(target[:size]) for target in imported(path) for size in (len(target) - 1, len(target))}
            below[public(path)] = names & known - {public(path)}
    TopologicalSorter(below).prepare()


def loaded_by(statement: str) -> set[str]:
    """The modules that a process has loaded after a statement."""
    script = f"import sys\n{statement}\nprint()\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {*done.stdout.splitlines()[-1].split()}


HEAVY = {"polars", "pyarrow", "numpy", "pandas", "torch"}


@pytest.mark.parametrize(
    "statement",
    [
        "import grpo_cli",
        "import grpo_cli.cli.command",
        "import grpo_cli.engine.estimators.registry, grpo_cli.engine.plan; grpo_cli.engine.plan.Plan.of({'estimator.name': 'gigpo'})",
    ],
)
def test_the_front_door_loads_nothing_heavy(statement: str) -> None:
    assert not HEAVY & loaded_by(statement)


def test_text_formats_load_no_pyarrow() -> None:
    loading = "[FORMATS[name] for name in ('jsonl', 'json', 'csv', 'tsv')]"
    statement = f"import grpo_cli.runs.compute_files; from grpo_cli.formats.registry import FORMATS; {loading}"
    assert "pyarrow" not in loaded_by(statement)


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "--version",
        "compute --help",
        "audit --help",
        "browse --help",
        "methods",
        "methods rloo",
        "methods --json",
    ],
)
def test_help_and_listings_load_nothing_heavy(words: str) -> None:
    line = f"sys.argv = ['grpo-adv', *{words.split()!r}]\nfrom grpo_cli.cli.entry import main"
    assert not HEAVY & loaded_by(f"{line}\ntry:\n    main()\nexcept SystemExit:\n    pass")


def test_the_core_knows_neither_typer_nor_rich() -> None:
    for path in MODULES:
        if room(path) in {"engine", "read", "write", "runs", "twinkle"}:
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"^\s*(import|from) (typer|rich)\b", text, re.MULTILINE), path
