"""`compute --per-token` in a test, and the lists that it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from tests.support.command import adv
from tests.support.jobs import rows_of


def lists_of(path: Path, column: str = "advantage") -> list[Any]:
    """A column of lists of numbers in a file of any format."""
    if path.suffix == ".jsonl":
        return [row[column] for row in rows_of(path)]
    if path.suffix == ".json":
        return [row[column] for row in json.loads(path.read_text())]
    frame = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_ipc(path)
    assert frame[column].dtype == pl.List(pl.Float64)
    return frame[column].to_list()


def computed(path: Path, out: Path, *options: str) -> list[Any]:
    """The lists that `compute` writes."""
    done = adv("compute", str(path), *options, "-o", str(out), "--force", "-q")
    assert done.status == 0, done.err
    return lists_of(out)
