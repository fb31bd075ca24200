"""Weave JSON lines or CSV block by block: each block with its rows of the new columns, or only some of its rows.

A format says where the new text of a row goes (`BlockRows.marks`), and where a row begins and ends. Rows that are taken
become a block of their own, so a format only ever inserts into whole blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import BytesIO
from typing import BinaryIO, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.errors import InputChanged
from grpo_cli.files.compression import seekable
from grpo_cli.files.inputs import Input
from grpo_cli.formats.blocks import SIZE, Block, BlockRows
from grpo_cli.formats.interface import Weaving
from grpo_cli.parallel import ahead
from grpo_cli.values.slices import Buffer, Ints, filled

Found = Iterable[tuple[Block, BlockRows]]
Spans = Callable[[bytes, Ints], np.ndarray]
Insert = Callable[[bytes, BlockRows, pl.DataFrame], Iterable[Buffer]]


class _BlockWeaving(NamedTuple):
    """A block with its rows of the new columns, and which of its rows are taken (None: all)."""

    block: Block
    rows: BlockRows
    added: pl.DataFrame
    take: Ints | None = None


def weave_blocks(
    source: Input, found: Found, sink: BinaryIO, weaving: Weaving, *,
    marked: bytes, newline: bytes, spans: Spans, insert: Insert,
) -> None:  # fmt: skip
    """Write the blocks of a file with the new columns inserted.

    `marked` are the bytes that a mark can point to. `spans` returns where the row of each mark begins and where it ends,
    with its line ending, in two columns; a taken row without a line ending gets `newline`. `insert` puts new columns into
    all rows of a block.
    """

    def woven(part: _BlockWeaving) -> Iterable[Buffer]:
        data = part.block.read()
        rows = _wide(part.rows)
        inside = rows.marks[rows.marks < len(data)]
        there = np.frombuffer(data, np.uint8)[inside]
        if not np.isin(there, [*marked]).all():
            raise InputChanged.between_readings(source.name)
        if part.take is not None:
            starts, ends = spans(data, rows.marks)[part.take].T
            before = np.append(0, ends[:-1])
            apart = before < starts  # rows that follow each other are copied at once
            data = b"".join(filled(memoryview(data)[: ends[-1]], [(before[apart], starts[apart])], [[]]))
            data += b"" if data.endswith(b"\n") else newline
            rows = _moved(rows, part.take, starts, ends - starts)
        return insert(data, rows, part.added)

    in_order = weaving.take is None or (np.diff(weaving.take) > 0).all()
    parts = _in_order(source, found, weaving) if in_order else _in_new_order(source, found, weaving, newline, spans)
    for buffers in ahead(woven, parts):
        sink.writelines(buffers)


def _wide(rows: BlockRows) -> BlockRows:
    """The same rows with marks of 64 bits: formats keep them as the smallest integers that fit."""
    return rows._replace(marks=rows.marks.astype(np.int64))


def _moved(rows: BlockRows, take: Ints, starts: Ints, sizes: Ints) -> BlockRows:
    """These rows, which begin at `starts`, as the rows of a block that they are put into one after the other."""
    marks = rows.marks[take] - starts + np.cumsum(sizes) - sizes
    return BlockRows(int(sizes.sum()), marks, np.flatnonzero(np.isin(take, rows.empty)))


def _in_order(source: Input, found: Found, weaving: Weaving) -> Iterator[_BlockWeaving]:
    row = 0
    added = weaving.added
    take = weaving.take
    for block, rows in found:
        end = row + rows.height
        if take is None:
            InputChanged.unless_same(min(end, len(added)), end, source.name)
            yield _BlockWeaving(block, rows, added[row:end])
        else:
            first, last = np.searchsorted(take, [row, end])
            if first < last:
                yield _BlockWeaving(block, rows, added[first:last], take[first:last] - row)
        row = end
    refuse_height(source, row, weaving)


def _in_new_order(
    source: Input, found: Found, weaving: Weaving, newline: bytes, spans: Spans
) -> Iterator[_BlockWeaving]:
    """Blocks of rows in a new order, each read by itself: copies of groups, for example."""
    every = list[BlockRows]()
    places = list[np.ndarray]()
    height = 0
    take = np.asarray(weaving.take)
    for block, rows in ((block, _wide(rows)) for block, rows in found):
        places.append(spans(block.read(), rows.marks) + block.start)
        every.append(BlockRows(rows.size, rows.marks + block.start, rows.empty + height))
        height += rows.height
    refuse_height(source, height, weaving)
    whole = BlockRows(0, *(np.concatenate(parts) for parts in list(zip(*every, strict=True))[1:]))
    starts, ends = np.concatenate(places)[take].T
    cuts = np.flatnonzero(np.diff(np.cumsum(ends - starts) // SIZE)) + 1
    with source.open() as handle, seekable(handle) as plain:
        for part in np.split(np.arange(len(take)), cuts):
            raw = list[bytes]()
            for start, end in zip(starts[part].tolist(), ends[part].tolist(), strict=True):
                plain.seek(start)
                line = plain.read(end - start)
                raw.append(line if line.endswith(b"\n") else line + newline)
            rows = _moved(whole, take[part], starts[part], np.array(list(map(len, raw)), np.int64))
            block = Block(source.name, 0, rows.size, partial(BytesIO, b"".join(raw)))
            yield _BlockWeaving(block, rows, weaving.added[int(part[0]) : int(part[-1]) + 1])


def refuse_height(source: Input, height: int, weaving: Weaving) -> None:
    """Refuse a file whose number of rows is not that of the new columns."""
    if height != len(weaving.added) if weaving.take is None else weaving.take.max(initial=-1) >= height:
        raise InputChanged.between_readings(source.name)
