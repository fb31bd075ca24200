"""A folder of very many files: each gets its own numbers, and time and memory grow with their number. MANY_FILES is how many."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.drawn import is_nightly
from tests.support.jobs import rows_of

MANY = int(os.environ.get("MANY_FILES", "20000" if is_nightly() else "400"))
START = 0.7  # seconds of processor time that a command takes to start
BYTES = 16 << 10  # of memory for each file
ROWS = """{"prompt_id": "AT 0", "reward": AT}
{"prompt_id": "AT 0", "reward": 1}
{"prompt_id": "AT 0", "reward": 1}
{"prompt_id": "AT 0", "reward": 1}
{"prompt_id": "AT 1", "reward": 0}
{"prompt_id": "AT 1", "reward": 0}
{"prompt_id": "AT 1", "reward": 0}
{"prompt_id": "AT 1", "reward": AT}
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all of the files, and one with an eighth."""
    place = tmp_path_factory.mktemp("folders")
    for name, many in (("few", MANY // 8), ("many", MANY)):
        (place / name).mkdir()
        for at in range(many):
            (place / name / f"step_{at}.jsonl").write_text(ROWS.replace("AT", f"{at}"))
    return place


def measured(line: str, cwd: Path) -> tuple[dict[str, Any], float, int]:
    """What a command says as JSON, its seconds of processor time, and the bytes of memory that it took."""
    words = [sys.executable, "-m", "grpo_cli", *line.split(), "--json"]
    with subprocess.Popen(words, cwd=cwd, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        facts = json.loads(run.stdout.read())
        _, status, used = os.wait4(run.pid, 0)
        run.returncode = status
    assert status == 0
    return facts, used.ru_utime + used.ru_stime, used.ru_maxrss << 10


@pytest.mark.parametrize("command", ["inspect {0}/", "compute {0}/ --method dr-grpo -o {0}-out/"])
def test_a_folder_of_many_files_is_right_and_takes_time_and_memory_for_each(command: str, folders: Path) -> None:
    _, few_seconds, few_bytes = measured(command.format("few"), folders)
    facts, seconds, size = measured(command.format("many"), folders)
    assert facts["rows"] == 8 * MANY
    assert facts["groups"] == 2 * MANY
    assert len(facts["inputs"]) == MANY
    assert facts["zero_variance"]["groups"] == 2  # those of 1 and 1, and of 0 and 0
    # If it grew with the square, it would take 64 times as long.
    assert seconds <= 2 * 8 * max(few_seconds - START, 0.2) + few_seconds
    assert size <= few_bytes + BYTES * MANY
    if command.startswith("inspect"):
        return
    for at in range(MANY):
        found = [row["advantage"] for row in rows_of(folders / f"many-out/step_{at}.jsonl")]
        first = (at - 1) / 4
        last = at / 4
        assert found == [3 * first, -first, -first, -first, -last, -last, -last, 3 * last]
