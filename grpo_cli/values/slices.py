"""Parts of a block's bytes as a column of text, and texts inserted into a block, without needless copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl

if TYPE_CHECKING:
    import pyarrow as pa

Ints = np.ndarray[tuple[int], np.dtype[np.integer[Any]]]
Buffer = bytes | memoryview
T = TypeVar("T")
Gap = tuple[Ints, Ints]  # where it begins and ends in each row
Text = Sequence[str | pl.Series]  # its parts, which follow each other: the same for all rows, or one for each

LONG = 1_024  # bytes: rows are long if the mean of a block is more
FEW = 2_048  # with fewer rows, loading pyarrow costs more than it saves


def within(blocks: Iterable[T], numbers: Ints, height: Callable[[Any], int] = len) -> Iterator[tuple[T, Ints]]:
    """The blocks that have some of these ascending rows, and their numbers there; no block after the last row is asked for."""
    first = done = 0
    for block in blocks:
        after = first + height(block)
        end = int(np.searchsorted(numbers, after))
        if end > done:
            yield block, numbers[done:end] - first
        if end == len(numbers):
            return
        first = after
        done = end


def between(data: Buffer, starts: Ints, ends: Ints) -> pl.Series:
    """The bytes between these offsets, a text each; offsets never decrease.

    They need not be UTF-8 if they are only joined again.
    """
    import pyarrow as pa

    apart = (starts[1:] != ends[:-1]).any()  # the bytes between them become texts as well, which are dropped
    cuts = np.column_stack([starts, ends]).ravel() if apart else np.append(starts, ends[-1:])
    cuts = cuts.astype(np.int64)
    texts = pa.LargeStringArray.from_buffers(max(0, len(cuts) - 1), pa.py_buffer(cuts), pa.py_buffer(data))
    found = pl.Series(Exported(texts))
    return found.gather_every(2) if apart else found


def joined(parts: Text) -> memoryview:
    """The bytes of all rows, their texts joined row by row."""
    cells = [pl.lit(part) if isinstance(part, str) else part for part in parts]
    texts = pl.select(pl.concat_str(cells)).to_series().to_arrow(compat_level=pl.CompatLevel.oldest())
    _, ends, data = texts.buffers()
    if data is None:
        return memoryview(b"")
    first, last = np.frombuffer(ends, np.int64)[[texts.offset, texts.offset + len(texts)]]
    return memoryview(data)[first:last]


def filled(data: Buffer, gaps: Sequence[Gap], texts: Sequence[Text], few: int = FEW) -> list[Buffer]:
    """The block with its gaps filled by texts; a text without parts is empty. All rows have the same number of gaps."""
    height = len(gaps[0][0]) if gaps else 0
    if not height:
        return [data]
    starts = np.column_stack([start for start, _ in gaps]).ravel()
    ends = np.column_stack([end for _, end in gaps]).ravel()
    before = np.append(0, ends[:-1])
    rest = memoryview(data)[ends[-1] :]
    if height < few or len(data) > LONG * height:  # slices of the block, not copies
        view = memoryview(data)
        parts: list[Buffer] = [rest] * (2 * len(starts) + 1)
        spans = zip(before.tolist(), starts.tolist(), strict=True)
        parts[:-1:2] = [view[start:end] for start, end in spans]
        for at, text in enumerate(texts):
            cells = [repeat(part, height) if isinstance(part, str) else part.to_list() for part in text or [""]]
            parts[2 * at + 1 :: 2 * len(gaps)] = ["".join(row).encode() for row in zip(*cells, strict=True)]
        return parts
    unchanged = between(data, before, starts)
    rows = [part for at, text in enumerate(texts) for part in (unchanged.gather_every(len(gaps), at), *text)]
    return [joined(rows), rest]


@dataclass(frozen=True)
class Exported:
    """An array with Arrow's protocol only: for one of pyarrow's own, polars would load pyarrow.compute, which is slow."""

    array: pa.Array  # of pyarrow, which polars reads through the protocol alone

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        capsules: tuple[object, object] = self.array.__arrow_c_array__(requested_schema)
        return capsules
