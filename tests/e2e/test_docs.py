"""The README tells the truth: its generated parts are fresh, and its code blocks run."""

from __future__ import annotations

import re
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.options.table import OPTIONS
from tests.support.readme import README, ROOT, regenerated, samples_in, shell

if TYPE_CHECKING:
    from pathlib import Path

TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(sh|python|toml)\n(.*?)```", TEXT, re.DOTALL)
# Both start by making a venv and installing the project: `.ci/run` and the wheel check run them.
COMMANDS = [body.strip() for kind, body in BLOCKS if kind == "sh" and "pip install" not in body]
SCRIPTS = [body for kind, body in BLOCKS if kind == "python"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    samples_in(tmp_path / "sample_data")
    return tmp_path


def test_the_generated_parts_are_what_the_tool_says() -> None:
    assert regenerated(TEXT) == TEXT, "run: python -m tests.readme"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_runs(command: str, place: Path) -> None:
    done = shell(command, place)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=range(len(SCRIPTS)))
def test_a_python_block_of_the_readme_runs(script: str, place: Path) -> None:
    (place / "block.py").write_text(script, encoding="utf-8")
    done = shell(f"{sys.executable} block.py", place)
    assert done.returncode == 0, done.stderr


def test_the_configuration_of_the_readme_is_read(place: Path) -> None:
    (block,) = [body for kind, body in BLOCKS if kind == "toml"]
    assert tomllib.loads(block)
    (place / "grpo.toml").write_text(block, encoding="utf-8")
    done = shell("grpo-adv compute sample_data/two_rewards.jsonl --config grpo.toml --json", place)
    assert done.returncode == 0, done.stderr
    assert '"method": "gdpo"' in done.stdout


def test_both_installing_commands_stand_in_the_readme_as_agreed() -> None:
    install = "python3 -m venv .venv && .venv/bin/pip install"
    main = ". && .venv/bin/grpo-adv compute sample_data/rewards.jsonl --method rloo --scale batch"
    assert f"```sh\n{install} {main}\n```" in TEXT
    assert f"```sh\n{install} -e '.[test]' && .venv/bin/pytest\n```" in TEXT


def test_every_method_and_option_is_documented() -> None:
    for name in ESTIMATORS:
        assert f"| `{name}` |" in TEXT
    for option in OPTIONS.values():
        assert f"`{option.flag}`" in TEXT


@pytest.mark.parametrize("row", ESTIMATORS.values(), ids=lambda row: row.name)
def test_every_method_has_a_sentence_a_formula_and_a_source(row: object) -> None:
    summary, formula, source = row.summary, row.formula, row.source  # type: ignore[attr-defined]
    assert summary.endswith((".", ":")) or summary[0].isupper()
    assert "=" in formula
    assert source


def test_the_changelog_names_the_version() -> None:
    from grpo_cli import __version__

    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_toy_learns_through_a_real_pipe(tmp_path: Path) -> None:
    done = shell(f"{sys.executable} {ROOT / 'examples' / 'toy.py'}", tmp_path)
    assert done.returncode == 0, done.stderr
    means = [float(line.split()[1]) for line in done.stdout.splitlines() if line.split()[0].isdigit()]
    assert means[-1] > 2 * means[0]
    assert means[-1] > 0.8
