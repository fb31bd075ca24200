"""The tool that compares what presets were read from with a checkout of today."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from grpo_cli.engine.presets import parsed, presets
from tests.support.drift import PLACE, drift, main

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from grpo_cli.engine.presets import Preset

FILE = (
    "import torch\n\n\ndef advantage(r):\n    mean = r.mean()\n    return r - mean\n\n\ndef other(r):\n    return r\n"
)


def git(place: Path, *words: str) -> str:
    named = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    done = subprocess.run(["git", *named, *words], cwd=place, capture_output=True, encoding="utf-8", check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit."""
    (tmp_path / "a.py").write_text(FILE)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def known(path: str, commit: str, *, archive: bool = False) -> Mapping[str, Preset]:
    source = f'{{ repo = "o/r", path = "{path}", commit = "{commit}", date = "2026-01-01" }}'
    about = f"framework = 'F'\nestimator = 'E'\nsource = {source}\narchive = {str(archive).lower()}"
    return parsed(f"[p]\n{about}\nplan.estimator.name = 'grpo'\n")


def verdict(checkout: Path, path: str, commit: str = "") -> str:
    [found] = drift(checkout, "O/R", known(path, commit or git(checkout, "rev-parse", "HEAD")))
    assert bool(found.differences) == (found.verdict == "changed")
    return found.verdict.partition(":")[0]


def test_a_place_is_the_same_or_changed_or_gone(checkout: Path) -> None:
    def verdicts(now: str) -> list[str]:
        (checkout / "a.py").write_text(now)
        places = ("a.py", "a.py:4-6", "a.py:advantage")
        return [verdict(checkout, path).split(",")[0] for path in places]

    assert verdicts(FILE) == ["same", "same", "same"]
    moved = f"# a head\n{FILE}"
    assert verdicts(moved) == ["same", "same", "same"]
    divided = FILE.replace("r - mean", "(r - mean) / r.std()")
    assert verdicts(divided) == ["changed", "changed", "changed"]
    elsewhere = FILE.replace("    return r\n", "    return -r\n")
    assert verdicts(elsewhere) == ["changed", "same", "same"]
    renamed = FILE.replace("advantage", "credit")
    assert verdicts(renamed) == ["changed", "changed", "gone"]


def test_a_removed_file_is_reported(checkout: Path) -> None:
    (checkout / "a.py").unlink()
    assert verdict(checkout, "a.py:4-6") == "gone"


def test_a_commit_that_was_not_fetched_is_unknown(checkout: Path) -> None:
    assert verdict(checkout, "a.py", "0" * 40) == "unknown"


def test_the_repository_is_that_of_the_remote(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(checkout)]) == 2
    git(checkout, "remote", "add", "origin", "https://github.com/huggingface/trl.git")
    assert main([str(checkout)]) == 0
    assert "trl/trainer/grpo_trainer.py:2679-2730 (trl-grpo" in capsys.readouterr().out


def test_a_repository_that_was_renamed_is_known_by_the_commit_that_a_preset_names(checkout: Path) -> None:
    first = git(checkout, "rev-parse", "HEAD")
    (checkout / "a.py").write_text(FILE.replace("r - mean", "r"))
    assert [found.verdict for found in drift(checkout, "new/name", known("a.py", first))] == ["changed"]
    assert drift(checkout, "new/name", known("a.py", first, archive=True)) == []
    assert drift(checkout, "new/name", known("a.py", "0" * 40)) == []


def test_every_preset_names_a_place_that_can_be_compared() -> None:
    assert [row.name for row in presets().values() if not PLACE.fullmatch(row.source["path"])] == []
