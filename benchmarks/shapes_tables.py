"""Narrow Parquet in many orders of rows: a shape is a function from a number of rows to blocks of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from benchmarks.shapes_files import Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Ints = np.ndarray[tuple[int], np.dtype[np.integer[Any]]]

SEED = 7
GROUP = 8
BLOCK = 1_000_000


def table(group: Ints, key: Callable[[pl.Expr], list[pl.Expr]], rng: np.random.Generator) -> Iterator[pl.DataFrame]:
    """Rows of these groups: the key columns, the place of the row in the file as a sample id, and a reward."""
    for start in range(0, len(group), BLOCK):
        codes = group[start : start + BLOCK]
        frame = pl.DataFrame(
            {
                "group": codes,
                "sample": np.arange(start, start + len(codes)),
                "reward": rng.integers(0, 5, len(codes)) / 4,
            }
        )
        yield frame.select(*key(pl.col("group")), "sample", "reward")


def text_key(group: pl.Expr) -> list[pl.Expr]:
    """`prompt-000000042`."""
    return [pl.format("prompt-{}", group.cast(pl.String).str.zfill(9)).alias("prompt_id")]


def integer_key(group: pl.Expr) -> list[pl.Expr]:
    """Nine digits, spread over their range as hashes are."""
    return [(group.cast(pl.Int64) * 387_420_489 % 1_000_000_007).alias("prompt_id")]


def composite_key(group: pl.Expr) -> list[pl.Expr]:
    """A prompt that comes again in each of four steps."""
    return [*text_key(group // 4), (group % 4).cast(pl.Int64).alias("step")]


def together(rows: int) -> Iterator[pl.DataFrame]:
    """Groups of eight, one after the other: what a trainer writes."""
    return table(np.arange(rows) // GROUP, text_key, np.random.default_rng(SEED))


def scored_again(rows: int) -> Iterator[pl.DataFrame]:
    """The rows of `together` with other rewards."""
    return table(np.arange(rows) // GROUP, text_key, np.random.default_rng(SEED + 1))


def at_random(rows: int) -> Iterator[pl.DataFrame]:
    """Groups of eight, in no order: what many workers write into one file."""
    rng = np.random.default_rng(SEED)
    return table(rng.permutation(np.arange(rows) // GROUP), text_key, rng)


def round_robin(rows: int) -> Iterator[pl.DataFrame]:
    """Sample by sample: the first of every prompt, then the second of every prompt."""
    return table(np.arange(rows) % (rows // GROUP), text_key, np.random.default_rng(SEED))


def integers(rows: int) -> Iterator[pl.DataFrame]:
    """Groups of eight in no order, with integers as keys."""
    rng = np.random.default_rng(SEED)
    return table(rng.permutation(np.arange(rows) // GROUP), integer_key, rng)


def composite(rows: int) -> Iterator[pl.DataFrame]:
    """Groups of eight in no order, with two columns as their key."""
    rng = np.random.default_rng(SEED)
    return table(rng.permutation(np.arange(rows) // GROUP), composite_key, rng)


def giant(rows: int) -> Iterator[pl.DataFrame]:
    """All rows in one group."""
    return table(np.zeros(rows, np.int64), text_key, np.random.default_rng(SEED))


def pairs(rows: int) -> Iterator[pl.DataFrame]:
    """Groups of two, in no order."""
    rng = np.random.default_rng(SEED)
    return table(rng.permutation(np.arange(rows) // 2), text_key, rng)


def _writer(shape: Callable[[int], Iterator[pl.DataFrame]]) -> Callable[[Path, int], None]:
    """A function that writes a file of this many rows."""

    def write(path: Path, rows: int) -> None:
        blocks = shape(rows)
        first = next(blocks).to_arrow()
        with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
            writer.write_table(first)
            for block in blocks:
                writer.write_table(block.to_arrow())

    return write


SHAPES = {
    "together": Shape(10_000_000, _writer(together), ".parquet"),
    "scored-again": Shape(10_000_000, _writer(scored_again), ".parquet"),
    "random": Shape(8_000_000, _writer(at_random), ".parquet"),
    "round-robin": Shape(8_000_000, _writer(round_robin), ".parquet"),
    "integers": Shape(8_000_000, _writer(integers), ".parquet"),
    "composite": Shape(8_000_000, _writer(composite), ".parquet", "prompt_id,step"),
    "giant": Shape(8_000_000, _writer(giant), ".parquet"),
    "pairs": Shape(8_000_000, _writer(pairs), ".parquet"),
    "large": Shape(50_000_000, _writer(together), ".parquet"),
}
