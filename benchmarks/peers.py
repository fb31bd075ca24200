"""The same job, as people write it by hand: `peers.py polars|duckdb|pandas|loop|cp SOURCE TARGET`."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections import defaultdict
from pathlib import Path


def polars(source: Path, target: Path) -> None:
    import polars as pl

    r, k = pl.col("reward"), "prompt_id"
    advantage = ((r - r.mean().over(k)) / (r.std().over(k) + 1e-6)).alias("advantage")
    if source.suffix == ".parquet":
        pl.scan_parquet(source).with_columns(advantage).collect().write_parquet(target)
    else:
        pl.scan_ndjson(source).with_columns(advantage).collect().write_ndjson(target)


def duckdb(source: Path, target: Path) -> None:
    import duckdb as db

    reader, options = (
        ("read_parquet", "format parquet, compression zstd")
        if source.suffix == ".parquet"
        else ("read_json", "format json")
    )
    over = "over (partition by prompt_id)"
    db.sql(
        f"copy (select *, (reward - avg(reward) {over}) / (stddev_samp(reward) {over} + 1e-6) as advantage "
        f"from {reader}('{source}')) to '{target}' ({options})"
    )


def pandas(source: Path, target: Path) -> None:
    import pandas as pd

    frame = pd.read_parquet(source)
    reward = frame.groupby("prompt_id")["reward"]
    frame["advantage"] = (frame["reward"] - reward.transform("mean")) / (reward.transform("std") + 1e-6)
    frame.to_parquet(target)


def loop(source: Path, target: Path) -> None:
    """The script in everybody's repository."""
    rows = [json.loads(line) for line in source.open(encoding="utf-8")]
    groups = defaultdict(list)
    for row in rows:
        groups[row["prompt_id"]].append(row["reward"])
    facts = {}
    for key, rewards in groups.items():
        mean = sum(rewards) / len(rewards)
        facts[key] = mean, math.sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))
    with target.open("w", encoding="utf-8") as handle:
        for row in rows:
            mean, std = facts[row["prompt_id"]]
            row["advantage"] = (row["reward"] - mean) / (std + 1e-6)
            handle.write(json.dumps(row) + "\n")


def cp(source: Path, target: Path) -> None:
    """Not the job, but its physical limit."""
    shutil.copyfile(source, target)


PEERS = {job.__name__: job for job in (polars, duckdb, pandas, loop, cp)}

if __name__ == "__main__":
    PEERS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
    with Path(sys.argv[3]).open("rb+") as written:
        os.fsync(written.fileno())
