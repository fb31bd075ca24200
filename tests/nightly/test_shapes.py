"""Files of extreme shapes, beside the same work by hand in the same run: processor time and memory of each process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from tests.support import harbor
from tests.support.command import TERMINAL

BY_HAND = """import polars as pl
advantage = pl.col('reward') - pl.col('reward').mean().over('prompt_id')
pl.read_parquet('in.parquet').with_columns(advantage=advantage).write_parquet('peer.parquet')"""


def spent(*words: str, cwd: Path) -> tuple[float, float]:
    """What a process of Python takes: seconds of all cores together, and the most memory in MB."""
    environment = {**os.environ, **TERMINAL}
    process = subprocess.Popen([sys.executable, *words], cwd=cwd, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def taken(line: str, cwd: Path) -> tuple[float, float]:
    return spent("-m", "grpo_cli", *line.split(), "-q", cwd=cwd)


def frame(rows: int) -> pl.DataFrame:
    rewards = np.random.default_rng(5).integers(0, 5, rows) / 4
    return pl.DataFrame({"prompt_id": np.arange(rows) // 8, "reward": rewards})


def test_one_row_group_of_ten_million_rows(tmp_path: Path) -> None:
    frame(10_000_000).write_parquet(tmp_path / "in.parquet", row_group_size=10_000_000)
    assert pq.read_metadata(tmp_path / "in.parquet").num_row_groups == 1
    peer_seconds, peer_memory = spent("-c", BY_HAND, cwd=tmp_path)
    seconds, memory = taken("compute in.parquet --scale none -o out.parquet", tmp_path)
    figures = f"10M rows: {seconds:.1f} s beside {peer_seconds:.1f}, {memory:.0f} MB beside {peer_memory:.0f}"
    print(figures)  # noqa: T201 - the figures of CONTRIBUTING.md
    assert seconds <= 2 * peer_seconds, figures
    assert memory <= 2 * peer_memory, figures
    found = pl.read_parquet(tmp_path / "out.parquet")["advantage"].to_numpy()
    wanted = pl.read_parquet(tmp_path / "peer.parquet")["advantage"].to_numpy()
    assert np.abs(found - wanted).max() < 1e-12


def ten_times(name: str, line: str, cwd: Path) -> None:
    """The command on `large` takes little more than ten times as long as on a tenth of it, `small`, and at most 1,200 MB."""
    tenth, _ = taken(line.format("small"), cwd)
    seconds, memory = taken(line.format("large"), cwd)
    figures = f"{name}: {seconds:.1f} s, {tenth:.1f} for a tenth, {memory:.0f} MB"
    print(figures)  # noqa: T201 - the figures of CONTRIBUTING.md
    assert seconds <= 15 * tenth, figures
    assert memory <= 1200, figures


def test_a_hundred_thousand_row_groups_of_ten_rows(tmp_path: Path) -> None:
    # Not beside pyarrow, which takes six minutes to write them: its time is quadratic.
    for name, rows in (("small", 100_000), ("large", 1_000_000)):
        pq.write_table(frame(rows).to_arrow(), tmp_path / f"{name}.parquet", row_group_size=10)
    ten_times("100k row groups", "compute {0}.parquet --scale none -o {0}.out.parquet", tmp_path)
    written = pq.read_metadata(tmp_path / "large.out.parquet")
    assert written.num_row_groups == 100_000
    assert written.num_rows == 1_000_000


def test_twenty_thousand_rewards(tmp_path: Path) -> None:
    for folder, names in (("small", 2_000), ("large", 20_000)):
        job = harbor.job(tmp_path / folder, 8)
        for at in range(8):
            rewards = {f"test_{name}": float((at + name) % 2) for name in range(names)}
            harbor.trial(job, f"task-{at // 4}", f"task-{at // 4}__{at}", rewards)
    ten_times("20,000 rewards", "compute {0} -o {0}.jsonl", tmp_path)
