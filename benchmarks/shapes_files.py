"""Thousands of small files, whole documents and wide tables."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SEED: Final = 7
GROUP: Final = 8
_SMALL: Final = 64  # rows of a small Parquet file
_ROW_GROUP: Final = 20_000
_PROSE: Final = (
    "the of and to in is that it was for on are as with his they at be this from have or by one had not but what all "
    "were when we there can an your which their said if do will each about how up out them then she many some so"
)


def rows(count: int, size: int, *, metrics: bool = False) -> Iterator[dict[str, Any]]:
    """Rollouts, eight a prompt, with a text of about this many bytes that needs escapes now and then."""
    rng, words = random.Random(SEED), _PROSE.split()
    for at in range(count):
        text = " ".join(rng.choices(words, k=size // 5))
        row: dict[str, Any] = {
            "prompt_id": f"prompt-{at // GROUP:07}",
            "sample": at % GROUP,
            "completion": f'She said "{text}"\n',
            "reward": rng.randrange(5) / 4,
        }
        if metrics:
            row["metrics"] = {"tokens": rng.randrange(10, 4000), "format": rng.random(), "stop": rng.random() < 0.9}
        yield row


def parts(rollouts: Iterator[dict[str, Any]], size: int) -> Iterator[pa.Table]:
    """Tables of this many rows."""
    while part := list(islice(rollouts, size)):
        yield pa.Table.from_pylist(part)


def episodes(folder: Path, count: int) -> None:
    """One file of one line for each rollout, as evaluation tools write them."""
    folder.mkdir()
    for at, row in enumerate(rows(count, 4000)):
        (folder / f"episode_{at:06}.jsonl").write_text(f"{json.dumps(row)}\n", encoding="utf-8")


def small_tables(folder: Path, count: int) -> None:
    """Small Parquet files: those of a trainer that writes one a step."""
    folder.mkdir()
    for at, part in enumerate(parts(rows(count, 100), _SMALL)):
        pq.write_table(part, folder / f"step_{at:06}.parquet")


def array(path: Path, count: int) -> None:
    """A JSON document: one array with all rollouts."""
    path.write_text(json.dumps(list(rows(count, 1500, metrics=True))), encoding="utf-8")


def wide_table(path: Path, count: int) -> None:
    """Parquet with long texts."""
    rng = random.Random(SEED)
    # Texts that compress as prose does, to about a third; chosen words would compress to a tenth.
    long = ({**row, "completion": rng.randbytes(550).hex() * 2 + row["completion"]} for row in rows(count, 1800))
    found = parts(long, _ROW_GROUP)
    first = next(found)
    with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
        for part in chain([first], found):
            writer.write_table(part)


@dataclass(frozen=True)
class Shape:
    """An input: how many rows it has, what writes it, and the names that matter."""

    rows: int
    write: Callable[[Path, int], None]
    suffix: str  # nothing: a folder
    key: str = "prompt_id"
    reward: str = "reward"


SHAPES: Final = {
    "episodes": Shape(3_000, episodes, ""),
    "small-parquet": Shape(3_000 * _SMALL, small_tables, ""),
    "array": Shape(111_000, array, ".json"),
    "wide-parquet": Shape(200_000, wide_table, ".parquet"),
}
