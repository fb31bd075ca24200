"""The same jobs as people write them by hand: `python -m benchmarks.peers JOB SOURCE TARGET`, with the columns in KEY and REWARD.

KEY may be several names with commas between them. Each job ends with an fsync of what it wrote.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import polars as pl

KEY, REWARD = os.environ.get("KEY", "prompt_id"), os.environ.get("REWARD", "reward")


def _synced(path: Path) -> None:
    with path.open("rb+") as written:
        os.fsync(written.fileno())


def _field(name: str) -> pl.Expr:
    """A column, or a field of nested ones."""
    import polars as pl

    first, *rest = name.split(".")
    found = pl.col(first)
    for one in rest:
        found = found.struct.field(one)
    return found


def _polars(source: Path, target: Path, *, varied: bool = False, good: bool = False) -> None:
    import polars as pl

    key, reward = [_field(name) for name in KEY.split(",")], _field(REWARD)
    scan = {"jsonl": pl.scan_ndjson, "csv": pl.scan_csv, "parquet": pl.scan_parquet}
    # The suffix of a packed file is that of what is in it: polars unpacks by the bytes.
    kind = source.name.split(".")[1]
    frame = scan[kind](source)  # type: ignore[operator]
    if good:
        frame = frame.filter(reward.mean().over(key) > 0.5)
    else:
        advantage = (reward - reward.mean().over(key)) / (reward.std().over(key) + 1e-6)
        frame = frame.with_columns(advantage.alias("advantage"))
    if varied:
        frame = frame.filter(reward.min().over(key) != reward.max().over(key))
    packed = {".gz": {"compression": "gzip"}, ".zst": {"compression": "zstd"}}.get(target.suffix, {})
    {"jsonl": frame.sink_ndjson, "csv": frame.sink_csv, "parquet": frame.sink_parquet}[target.name.split(".")[1]](
        target, **packed
    )
    _synced(target)


def polars(source: Path, target: Path) -> None:
    """Scan, windows, sink."""
    _polars(source, target)


def duckdb(source: Path, target: Path) -> None:
    """One statement; rows may come out in another order."""
    import duckdb

    kind = source.name.split(".")[1]
    read = {"jsonl": "read_json_auto", "csv": "read_csv_auto", "parquet": "read_parquet"}[kind]
    form = {"jsonl": "json", "csv": "csv", "parquet": "parquet"}[kind]
    advantage = f"({REWARD} - avg({REWARD}) OVER w) / (coalesce(stddev_samp({REWARD}) OVER w, 0) + 1e-6)"
    rows = f"SELECT *, {advantage} AS advantage FROM {read}('{source}') WINDOW w AS (PARTITION BY {KEY})"
    duckdb.sql("SET enable_progress_bar = false")
    duckdb.sql(f"COPY ({rows}) TO '{target}' (FORMAT {form})")
    _synced(target)


def filtered(source: Path, target: Path) -> None:
    """`select`: the rows of prompts with a mean reward above a half."""
    _polars(source, target, good=True)


def dropped(source: Path, target: Path) -> None:
    """`compute --zero-variance drop`."""
    _polars(source, target, varied=True)


def _facts(rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of the rewards of every prompt."""
    groups = defaultdict(list)
    for row in rows:
        groups[row[KEY]].append(row[REWARD])
    return {
        key: (statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else 0.0)
        for key, found in groups.items()
    }


def _advantage(row: Mapping[str, Any], facts: Mapping[str, tuple[float, float]]) -> float:
    mean, std = facts[row[KEY]]
    return float((row[REWARD] - mean) / (std + 1e-6))


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
    parts = [pq.read_table(name, columns=[KEY, REWARD]).to_pylist() for name in names]
    facts = _facts(row for part in parts for row in part)
    target.mkdir()
    for name, part in zip(names, parts, strict=True):
        column = pa.array([_advantage(row, facts) for row in part])
        temporary = target / f"{name.name}.tmp"
        pq.write_table(pq.read_table(name).append_column("advantage", column), temporary)
        _synced(temporary)
        temporary.rename(target / name.name)


def document(source: Path, target: Path) -> None:
    """A JSON array: `json.load` and back."""
    with source.open(encoding="utf-8") as handle:
        rows = json.load(handle)
    facts = _facts(rows)
    for row in rows:
        row["advantage"] = _advantage(row, facts)
    with target.open("w", encoding="utf-8") as sink:
        json.dump(rows, sink)
    _synced(target)


def cp(source: Path, target: Path) -> None:
    """Not the job, but its physical limit."""
    if source.is_dir():
        shutil.copytree(source, target)
        return
    shutil.copyfile(source, target)
    _synced(target)


JOBS = {job.__name__: job for job in (polars, duckdb, filtered, dropped, lines, tables, document, cp)}

if __name__ == "__main__":
    JOBS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
