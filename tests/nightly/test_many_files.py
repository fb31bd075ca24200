"""Thousands of small files: the work of a run grows with their number, and not with its square."""

from __future__ import annotations

import time
from pathlib import Path

import polars as pl

from grpo_cli.engine.plan import Plan
from grpo_cli.runs.compute_files import Job, run
from grpo_cli.write.outputs import Output

FEW, MANY = 300, 2400


def processor_seconds(folder: Path, count: int) -> float:
    """Write and rewrite the outputs: outputs that exist are compared with the inputs."""
    paths = [str(path) for path in sorted(folder.glob("*.parquet"))[:count]]
    output = Output(to=f"{folder}/out{count}/", force=True)
    started = time.process_time()
    for _ in range(2):
        done = run(Job(inputs=paths, plan=Plan(), output=output))
    assert done.facts is not None
    assert len(list((folder / f"out{count}").iterdir())) == count == len(done.facts.outputs)
    return time.process_time() - started


def test_eight_times_as_many_files_take_eight_times_as_long(tmp_path: Path) -> None:
    for at in range(MANY):
        pl.DataFrame({"prompt_id": [f"{at}-{row // 4}" for row in range(8)], "reward": [0.0, 1.0] * 4}).write_parquet(
            tmp_path / f"step_{at:04}.parquet"
        )
    processor_seconds(tmp_path, 2)  # what is loaded once
    few, many = processor_seconds(tmp_path, FEW), processor_seconds(tmp_path, MANY)
    assert many <= 2 * few * MANY / FEW
