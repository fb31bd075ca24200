"""How soon the command answers."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.support.command import adv
from tests.support.jobs import samples_in

if TYPE_CHECKING:
    from pathlib import Path


# Processor seconds, so that other work on the machine does not count.
BARS = [("--help", 0.25), ("compute --help", 0.4), ("compute rewards.jsonl --force -q", 0.8)]


@pytest.mark.parametrize(("line", "seconds"), BARS)
def test_the_command_answers_at_once(line: str, seconds: float, tmp_path: Path) -> None:
    samples_in(tmp_path)

    def once() -> float:
        started = time.process_time()
        adv(line, cwd=tmp_path)
        return time.process_time() - started

    assert min(once() for _ in range(7)) < seconds


def test_a_report_of_a_million_rows_is_small_and_soon_there(tmp_path: Path) -> None:
    rows = pl.DataFrame({"at": pl.int_range(1_000_000, eager=True)}).select(
        prompt_id=pl.format("prompt {}", pl.col("at") // 8),
        reward=(pl.col("at").hash(7) % 3 == 0).cast(pl.Float64),
        step=pl.col("at") // 100_000,
        completion=pl.format("the answer of row {} ", "at").repeat_by(4).list.join(""),
    )
    rows.write_parquet(tmp_path / "a.parquet")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    assert adv("report a.parquet -o a.html", cwd=tmp_path).status == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - before < 8
    assert (tmp_path / "a.html").stat().st_size < 3_000_000
