"""A folder of very many files: each gets its own numbers, and time and memory grow with their number. MANY_FILES is how many."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from tests.support.drawn import is_nightly
from tests.support.jobs import rows_of, write

MANY = int(os.environ.get("MANY_FILES", "20000" if is_nightly() else "400"))
START = 0.7  # seconds of processor time that a command takes to start
BYTES = 16 << 10  # of memory for each file


def rewards(at: int) -> list[float]:
    """Those of the two prompts of a file, four each."""
    return [float((at * 7 + row * row) % 3 == 0) for row in range(8)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all of the files, and one with an eighth."""
    place = tmp_path_factory.mktemp("folders")
    for name, many in (("few", MANY // 8), ("many", MANY)):
        for at in range(many):
            rows = [{"prompt_id": f"{at} {row // 4}", "reward": reward} for row, reward in enumerate(rewards(at))]
            write(place / name / f"step_{at}.jsonl", rows)
    return place


def measured(line: str, cwd: Path) -> tuple[dict[str, Any], float, int]:
    """What a command says as JSON, its seconds of processor time, and the bytes of memory that it took."""
    with subprocess.Popen(
        [sys.executable, "-m", "grpo_cli", *line.split(), "--json"], cwd=cwd, stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        facts = json.loads(run.stdout.read())
        _, status, used = os.wait4(run.pid, 0)
        run.returncode = status
    assert status == 0
    return facts, used.ru_utime + used.ru_stime, used.ru_maxrss << 10


@pytest.mark.parametrize("command", ["inspect {0}/", "compute {0}/ -o {0}-out/"])
def test_a_folder_of_many_files_is_right_and_takes_time_and_memory_for_each(command: str, folders: Path) -> None:
    _, few_seconds, few_bytes = measured(command.format("few"), folders)
    facts, seconds, size = measured(command.format("many"), folders)
    assert (facts["rows"], facts["groups"], len(facts["inputs"])) == (8 * MANY, 2 * MANY, MANY)
    solved = [sum(rewards(at)[part : part + 4]) for at in range(MANY) for part in (0, 4)]
    assert facts["zero_variance"]["groups"] == sum(count in {0, 4} for count in solved)
    assert (
        seconds <= 2 * 8 * max(few_seconds - START, 0.2) + few_seconds
    )  # if it grew with the square, 64 times as long
    assert size <= few_bytes + BYTES * MANY
    for at in range(MANY) if command.startswith("compute") else ():
        written = rows_of(folders / f"many-out/step_{at}.jsonl")
        for part in (0, 4):
            group = rewards(at)[part : part + 4]
            wanted = [(one - fmean(group)) / (stdev(group) + 1e-6) for one in group]
            assert [row["advantage"] for row in written[part : part + 4]] == pytest.approx(wanted, abs=1e-9)
