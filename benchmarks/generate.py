"""Inputs for the benchmarks: `generate.py PATH ROWS TEXT_BYTES`. Eight rows a prompt, string keys, rewards 0 or 1.

With `mixed` in its name the file has keys of different lengths, and rewards of up to 18 digits that are all different.
A PATH without a suffix is a folder, and ROWS is then the number of Parquet files in it, of 64 rows each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

GROUP = 8
BLOCK = 1_000_000
SMALL = 64


def words(count: int, size: int, rng: np.random.Generator) -> list[str]:
    """Distinct texts that compress about as badly as prose."""
    letters = np.frombuffer(b"etaoin shrdlu cmfwyp vbgkq jxz.,'\"\\", dtype=np.uint8)
    flat = letters[rng.integers(0, len(letters), count * size)].tobytes().decode()
    return [flat[i * size : (i + 1) * size] for i in range(count)]


def block(start: int, rows: int, text: int, rng: np.random.Generator, *, mixed: bool = False) -> pl.DataFrame:
    """Rows `start`.. of the table."""
    place = np.arange(start, start + rows)
    reward = rng.random(rows) if mixed else rng.integers(0, 2, rows).astype(float)
    frame = pl.DataFrame({"sample": place % GROUP, "reward": reward, "group": place // GROUP})
    number = pl.col("group").cast(pl.String)
    key = pl.format("prompt-{}", number if mixed else number.str.zfill(9)).alias("prompt_id")
    frame = frame.select(key, "sample", "reward")
    return frame.with_columns(completion=pl.Series(words(rows, text, rng))) if text else frame


def main() -> None:
    """Write the file in blocks."""
    path, rows, text = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    rng = np.random.default_rng(7)
    if not path.suffix:
        path.mkdir()
        for at in range(rows):
            block(at * SMALL, SMALL, text, rng).write_parquet(path / f"step_{at:05}.parquet")
        return
    size = BLOCK if not text else 20_000
    mixed = "mixed" in path.name
    blocks = (block(start, min(size, rows - start), text, rng, mixed=mixed) for start in range(0, rows, size))
    if path.suffix == ".parquet":
        first = next(blocks)
        with pq.ParquetWriter(path, first.to_arrow().schema, compression="zstd") as writer:
            writer.write_table(first.to_arrow())
            for one in blocks:
                writer.write_table(one.to_arrow())
        return
    with path.open("w", encoding="utf-8") as handle:
        for one in blocks:
            handle.writelines(f"{json.dumps(row)}\n" for row in one.iter_rows(named=True))


if __name__ == "__main__":
    main()
