"""The jobs of `shapes_files.py` as people write them by hand: `peers_files.py lines|tables|document|filtered|dropped SOURCE TARGET`."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def _facts(rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of the rewards of every prompt."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["prompt_id"]].append(row["reward"])
    return {
        key: (statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else 0.0)
        for key, found in groups.items()
    }


def _advantage(row: Mapping[str, Any], facts: Mapping[str, tuple[float, float]]) -> float:
    mean, std = facts[row["prompt_id"]]
    return (row["reward"] - mean) / (std + 1e-6)


def _synced(path: Path) -> None:
    with path.open("rb+") as written:
        os.fsync(written.fileno())


def lines(source: Path, target: Path) -> None:
    """A folder of JSON lines."""
    names = sorted(source.glob("*.jsonl"))
    parts = [[json.loads(line) for line in name.open(encoding="utf-8")] for name in names]
    facts = _facts(row for part in parts for row in part)
    target.mkdir()
    for name, part in zip(names, parts, strict=True):
        temporary = target / f"{name.name}.tmp"
        with temporary.open("w", encoding="utf-8") as sink:
            for row in part:
                row["advantage"] = _advantage(row, facts)
                sink.write(json.dumps(row) + "\n")
            sink.flush()
            os.fsync(sink.fileno())
        temporary.rename(target / name.name)


def tables(source: Path, target: Path) -> None:
    """A folder of Parquet: two columns are read of each file, then the whole of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = sorted(source.glob("*.parquet"))
    parts = [pq.read_table(name, columns=["prompt_id", "reward"]).to_pylist() for name in names]
    facts = _facts(row for part in parts for row in part)
    target.mkdir()
    for name, part in zip(names, parts, strict=True):
        column = pa.array([_advantage(row, facts) for row in part])
        temporary = target / f"{name.name}.tmp"
        pq.write_table(pq.read_table(name).append_column("advantage", column), temporary)
        _synced(temporary)
        temporary.rename(target / name.name)


def document(source: Path, target: Path) -> None:
    """A JSON array."""
    with source.open(encoding="utf-8") as handle:
        rows = json.load(handle)
    facts = _facts(rows)
    for row in rows:
        row["advantage"] = _advantage(row, facts)
    with target.open("w", encoding="utf-8") as sink:
        json.dump(rows, sink)
    _synced(target)


def filtered(source: Path, target: Path) -> None:
    """`select`, by polars: the rows of prompts with a mean reward above a half."""
    import polars as pl

    kept = pl.col("reward").mean().over("prompt_id") > 0.5
    pl.scan_parquet(source).filter(kept).sink_parquet(target)
    _synced(target)


def dropped(source: Path, target: Path) -> None:
    """`compute --zero-variance drop`, by polars."""
    import polars as pl

    reward, key = pl.col("reward"), "prompt_id"
    advantage = (reward - reward.mean().over(key)) / (reward.std().over(key) + 1e-6)
    varied = reward.min().over(key) != reward.max().over(key)
    pl.scan_parquet(source).with_columns(advantage=advantage).filter(varied).sink_parquet(target)
    _synced(target)


PEERS = {job.__name__: job for job in (lines, tables, document, filtered, dropped)}

if __name__ == "__main__":
    PEERS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
