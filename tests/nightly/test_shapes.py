"""Files of extreme shapes, beside the same work by hand in the same run: processor time and memory of each process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from tests.support import harbor
from tests.support.command import TERMINAL

ADVANTAGE: Final = "(pl.col('reward') - pl.col('reward').mean().over('prompt_id')).alias('advantage')"


@dataclass(frozen=True)
class Spent:
    """Seconds of all cores together, and the most memory in MB."""

    seconds: float
    memory: float


def spent(*words: str, cwd: Path) -> Spent:
    """What a process of Python takes."""
    process = subprocess.Popen(
        [sys.executable, *words], cwd=cwd, env={**os.environ, **TERMINAL}, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return Spent(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def beside(name: str, line: str, peer: str, cwd: Path, *, slower: float, larger: float) -> None:
    """The command takes at most so many times what the peer does."""
    by_hand, tool = spent("-c", peer, cwd=cwd), spent("-m", "grpo_cli", *line.split(), cwd=cwd)
    figures = (
        f"{name}: {tool.seconds:.1f} s beside {by_hand.seconds:.1f}, {tool.memory:.0f} MB beside {by_hand.memory:.0f}"
    )
    print(figures)  # noqa: T201 - the figures of CONTRIBUTING.md
    assert tool.seconds <= slower * by_hand.seconds, figures
    assert tool.memory <= larger * by_hand.memory, figures


def frame(rows: int) -> pl.DataFrame:
    drawn = np.random.default_rng(5)
    return pl.DataFrame({"prompt_id": np.arange(rows) // 8, "reward": drawn.integers(0, 5, rows) / 4})


def test_one_row_group_of_ten_million_rows(tmp_path: Path) -> None:
    frame(10_000_000).write_parquet(tmp_path / "in.parquet", row_group_size=10_000_000)
    assert pq.read_metadata(tmp_path / "in.parquet").num_row_groups == 1
    peer = f"import polars as pl; pl.read_parquet('in.parquet').with_columns({ADVANTAGE}).write_parquet('peer.parquet')"
    line = "compute in.parquet --scale none -o out.parquet -q"
    beside("10M rows", line, peer, tmp_path, slower=2, larger=2)
    found = pl.read_parquet(tmp_path / "out.parquet")["advantage"]
    assert (found - pl.read_parquet(tmp_path / "peer.parquet")["advantage"]).abs().max() < 1e-12  # type: ignore[operator]


def ten_times(name: str, small: str, large: str, cwd: Path, memory: float) -> None:
    """The command on a file of ten times the size takes little more than ten times as long, and at most so many MB."""
    tenth, whole = (spent("-m", "grpo_cli", *line.split(), cwd=cwd) for line in (small, large))
    figures = f"{name}: {whole.seconds:.1f} s, {tenth.seconds:.1f} for a tenth, {whole.memory:.0f} MB"
    print(figures)  # noqa: T201 - the figures of CONTRIBUTING.md
    assert whole.seconds <= 15 * tenth.seconds, figures
    assert whole.memory <= memory, figures


def test_a_hundred_thousand_row_groups_of_ten_rows(tmp_path: Path) -> None:
    # Not beside pyarrow, which takes six minutes to write them: its time is quadratic.
    for name, rows in (("small", 100_000), ("large", 1_000_000)):
        pq.write_table(frame(rows).to_arrow(), tmp_path / f"{name}.parquet", row_group_size=10)
    line = "compute {0}.parquet --scale none -o {0}.out.parquet -q"
    ten_times("100k row groups", line.format("small"), line.format("large"), tmp_path, memory=1200)
    written = pq.read_metadata(tmp_path / "large.out.parquet")
    assert (written.num_row_groups, written.num_rows) == (100_000, 1_000_000)


def test_twenty_thousand_rewards(tmp_path: Path) -> None:
    for folder, names in (("small", 2_000), ("large", 20_000)):
        job = harbor.job(tmp_path / folder, 8)
        for at in range(8):
            rewards = {f"test_{name}": float((at + name) % 2) for name in range(names)}
            harbor.trial(job, f"task-{at // 4}", f"task-{at // 4}__{at}", rewards)
    line = "compute {0} -o {0}.jsonl -q"
    ten_times("20,000 rewards", line.format("small"), line.format("large"), tmp_path, memory=1200)
