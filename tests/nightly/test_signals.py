"""Signals at random moments of every kind of run: old files or new ones, the status says which; the next run cleans up.

SIGNALS is the number for each command, 200 by default. SIGNALS_SEED chooses other moments.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import pytest

from tests.nightly.test_faults import TEMPORARY
from tests.support.command import adv

COUNT: Final = int(os.environ.get("SIGNALS", "200"))
SEED: Final = int(os.environ.get("SIGNALS_SEED", "5"))
SENT: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ROWS: Final = 100_000
SECONDS: Final = re.compile(rb'"seconds": [0-9.]+')
COMMANDS: Final = """
compute in.jsonl -o out.jsonl
compute in.jsonl -o old.jsonl --force --summary s.json
compute in.parquet --in-place
compute in.jsonl --in-place
compute shards --group-within file -o out/
select in.jsonl --limit 6000 -o out.jsonl
export in.jsonl --to sft -o out.parquet
export in.jsonl --to pairs -o old.jsonl --force
report in.jsonl -o out.html
compute in.jsonl -o out.parquet
compute in.parquet -o out.arrow
compute in.parquet --zero-variance drop -o out.parquet
compare in.parquet -m grpo -m rloo --write -o out.parquet
"""


@dataclass(frozen=True)
class Ended:
    status: int
    said: str
    files: Mapping[str, bytes]


def contents(folder: Path) -> dict[str, bytes]:
    """All files; summaries without the time that the run took."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): SECONDS.sub(b"", path.read_bytes()) for path in files}


def signalled(words: Sequence[str], place: Path, number: int, seconds: float) -> Ended:
    """Run the command, and send it a signal after this many seconds."""
    command = [sys.executable, "-m", "grpo_cli", *words]
    with subprocess.Popen(
        command, cwd=place, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as running:  # fmt: skip
        try:
            running.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            running.send_signal(number)
        _, said = running.communicate(timeout=60)
    return Ended(running.returncode, said, contents(place))


def wrong(ended: Ended, number: int, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> str:
    """What is wrong with how a run ended; empty if nothing is."""
    kept = {name: raw for name, raw in ended.files.items() if not TEMPORARY.fullmatch(name.rpartition("/")[2])}
    if ended.status not in {0, 128 + number, -number}:  # the last where our own code has not begun
        return f"status {ended.status}: {ended.said}"
    if "Traceback" in ended.said or "Exception" in ended.said:
        # From the start of Python: nothing of ours is loaded yet.
        return "" if kept == before and "grpo_cli/" not in ended.said else ended.said
    if ended.status == 0 and kept != after:
        return "all is said to be done, and it is not"
    if lost := before.keys() - kept.keys():
        return f"{lost} are gone"
    strange = [name for name, raw in kept.items() if raw not in (before.get(name), after.get(name))]
    return f"neither the old nor the new one: {strange}" if strange else ""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    rows = np.arange(ROWS)
    keys = rows // 8
    frame = pl.DataFrame({"prompt_id": keys, "reward": keys % 2 * rows % 3}).with_columns(
        prompt=pl.format("prompt {}", "prompt_id"), completion=pl.format("what number {} says", pl.int_range(ROWS))
    )
    frame.write_parquet(folder / "in.parquet", row_group_size=10_000)
    frame.write_ndjson(folder / "in.jsonl")
    (folder / "shards").mkdir()
    for number in range(4):
        frame[number * 8000 : (number + 1) * 8000].write_ndjson(folder / "shards" / f"{number}.jsonl")
    (folder / "old.jsonl").write_text("old\n")
    return folder


@pytest.mark.parametrize("command", COMMANDS.strip().splitlines())
def test_a_signal_at_any_moment_leaves_old_files_or_new_ones_and_a_status_that_says_which(
    command: str, made: Path, tmp_path: Path
) -> None:
    words = [*command.split(), "-q"]
    place = tmp_path / "place"

    def fresh() -> Path:
        shutil.rmtree(place, ignore_errors=True)
        return shutil.copytree(made, place)

    before = contents(fresh())
    started = time.perf_counter()
    whole = signalled(words, place, 0, 60)
    seconds = time.perf_counter() - started
    assert whole.status == 0
    assert whole.said == ""
    drawn = np.random.default_rng([SEED, *command.encode()])
    known = before.keys() | whole.files.keys()
    problems = []
    statuses = Counter[int]()
    cleaned = 0
    for at in range(COUNT):
        number = SENT[at % len(SENT)]
        moment = drawn.uniform(0.1, 1.1) * seconds
        ended = signalled(words, fresh(), number, moment)
        statuses[ended.status] += 1
        problem = wrong(ended, number, before, whole.files)
        if ended.files.keys() - known:
            cleaned += 1
            again = adv(*words, "--replace" if "--in-place" in words else "--force", cwd=place)
            left = contents(place).keys() - known
            problem = problem or again.err or f"the next run leaves {left}" * bool(left)
        if problem:
            problems.append(f"{signal.Signals(number).name} after {moment:.3f} s: {problem}")
    print(f"{command}: {COUNT} signals, statuses {dict(statuses)}, {cleaned} temporary files left")  # noqa: T201 - for CONTRIBUTING.md
    assert not problems, "\n".join(problems)
