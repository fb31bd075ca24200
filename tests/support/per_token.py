"""`compute --per-token` in a test, and the lists that it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from tests.support.command import adv
from tests.support.jobs import rows_of


def lists_of(path: Path) -> list[Any]:
    """The advantages in a file of any format: a column of lists of numbers."""
    if path.suffix in {".parquet", ".arrow"}:
        frame = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_ipc(path)
        assert frame["advantage"].dtype == pl.List(pl.Float64)
    return [row["advantage"] for row in rows_of(path)]


def computed(path: Path, out: Path | str, options: str) -> list[Any]:
    """The lists that `compute` writes."""
    done = adv(f"compute {path} -o {out} --force -q {options}")
    assert done.status == 0, done.err
    return lists_of(Path(out))
