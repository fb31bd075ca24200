"""Insert new fields before the last brace of every row, a block of lines at a time, by offsets alone.

Long lines are written as slices of the block, so that only the system copies their bytes; polars joins short lines.
Fields to be replaced are cut off if they are last in the row, as this tool writes them; a block with such a field
elsewhere is processed line by line.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from io import BytesIO
from itertools import chain
from typing import BinaryIO, Final, NamedTuple, cast

import numpy as np
import polars as pl

from grpo_cli.errors import InputChanged
from grpo_cli.files.inputs import Input
from grpo_cli.formats.blocks import BOM, Block, again, blocks, ending, in_new_order, raw_lines
from grpo_cli.formats.interface import Weaving
from grpo_cli.formats.jsonl.lines import is_blank, last_braces, line_ends
from grpo_cli.formats.jsonl.members import Spot
from grpo_cli.formats.jsonl.reading import BlockRows
from grpo_cli.parallel import ahead
from grpo_cli.values.json_text import column_texts, row_texts
from grpo_cli.values.slices import Buffer, Gap, Ints, Text, between, filled
from grpo_cli.values.token_lists import is_on_tokens

_CLOSE: Final = ord("}")


class _BlockToWeave(NamedTuple):
    """A block with its part of the new fields, and the rows that they belong to (None: all)."""

    block: Block
    rows: BlockRows
    added: pl.DataFrame
    take: Ints | None
    newline: bytes


def weave(
    source: Input, index: Sequence[BlockRows] | None, sink: BinaryIO, weaving: Weaving, size: int, small: int
) -> None:
    """Copy the file with the new fields inserted; with `take` only the lines of these rows, in its order.

    Without an index the file is read in blocks of about `size` bytes.
    """
    if index is None:
        found: Iterable[tuple[Block, BlockRows]] = ahead(_counted, blocks(source, size))
    else:
        _refuse_height(source, sum(block.height for block in index), weaving)
        found = zip(again(source, [block.size for block in index]), index, strict=True)
    if weaving.take is not None:
        first = next(raw_lines(source))
        sink.write(BOM if first.startswith(BOM) else b"")
    newline = b"" if weaving.take is None else ending(first) or b"\n"
    spot = Spot.of(weaving.added.columns) if weaving.replace else None
    has_order = weaving.take is None or (np.diff(weaving.take) > 0).all()
    jobs = (_jobs if has_order else _jobs_in_new_order)(source, found, weaving, newline)

    def woven(job: _BlockToWeave) -> Iterable[Buffer]:
        return _woven(job, spot, small)

    for parts in ahead(woven, jobs):
        sink.writelines(parts)


def _counted(block: Block) -> tuple[Block, BlockRows]:
    """The block with its bytes, which are read once, and its rows."""
    data = block.read()
    braces, empty = last_braces(data)
    return block._replace(open=partial(BytesIO, data)), BlockRows(block.size, braces, empty)


def _refuse_height(source: Input, height: int, weaving: Weaving) -> None:
    """Refuse a file whose number of rows is not that of the new fields."""
    if height != len(weaving.added) if weaving.take is None else weaving.take.max(initial=-1) >= height:
        raise InputChanged.between_readings(source.name)


def _jobs(
    source: Input, found: Iterable[tuple[Block, BlockRows]], weaving: Weaving, newline: bytes
) -> Iterator[_BlockToWeave]:
    row, added, take = 0, weaving.added, weaving.take
    for block, rows in found:
        end = row + rows.height
        if take is None:
            if end > len(added):
                raise InputChanged.between_readings(source.name)
            yield _BlockToWeave(block, rows, added[row:end], None, newline)
        else:
            first, last = np.searchsorted(take, [row, end]).tolist()
            if first < last:
                yield _BlockToWeave(block, rows, added[first:last], take[first:last] - row, newline)
        row = end
    _refuse_height(source, row, weaving)


def _jobs_in_new_order(
    source: Input, found: Iterable[tuple[Block, BlockRows]], weaving: Weaving, newline: bytes
) -> Iterator[_BlockToWeave]:
    """Blocks of lines that are fetched one by one: for copies of groups, for example."""
    spans = [_spans(np.frombuffer(block.read(), np.uint8), rows.braces) + block.start for block, rows in found]
    lines, row = np.concatenate(spans), 0
    _refuse_height(source, len(lines), weaving)
    for fetched, height in in_new_order(source, lines, cast("Ints", weaving.take), newline):
        block, rows = _counted(fetched)
        yield _BlockToWeave(block, rows, weaving.added[row : row + height], None, newline)
        row += height


def _woven(job: _BlockToWeave, spot: Spot | None, small: int) -> Iterable[Buffer]:
    """The bytes of a block with the new fields inserted."""
    block, rows, added, take, newline = job
    data, braces, empty = block.read(), rows.braces, rows.empty
    here = np.frombuffer(data, np.uint8)
    if not (np.take(here, braces, mode="clip") == _CLOSE).all():
        raise InputChanged.between_readings(block.name)
    if not len(braces):
        return [data]
    gaps: list[Gap] = []
    texts: list[Text] = []
    end, behind = len(data), b""
    # The bytes after a brace go with the next row, unless rows are left out.
    starts: Ints = np.append(0, braces[:-1])
    if take is not None:
        braces, empty = braces[take], np.flatnonzero(np.isin(take, empty))
        starts, stops = _spans(here, braces).T
        gaps, texts, end = [(np.append(0, stops[:-1]), starts)], [[]], int(stops[-1])
        behind = b"" if end < len(data) or data.endswith(b"\n") else newline
    cuts: Ints = braces
    if spot is not None:
        heads = None if len(braces) <= small else without_last(data, starts, braces, spot)
        if heads is None:
            lines = BytesIO(data) if take is None else [data[a:b] for a, b in zip(starts, stops, strict=True)]
            return chain(_line_by_line(lines, spot, added), [behind])
        cuts = starts + heads.str.len_bytes().to_numpy()
    if any(map(is_on_tokens, added)):
        ends, rest = (braces, memoryview(data)[braces[-1] :]) if take is None else (stops, behind)
        spans = np.column_stack([starts, cuts, braces, ends]).tolist()
        return chain(_with_lists(memoryview(data), spans, added, frozenset(empty.tolist())), [rest])
    if added.width:
        gaps, texts = [*gaps, (cuts, braces)], [*texts, _cells(added, empty)]
    return [*filled(memoryview(data)[:end], gaps, texts), behind]


def _spans(here: np.ndarray, braces: Ints) -> np.ndarray:
    """Where the lines with these braces start, after a byte order mark, and end, including their line feeds."""
    feeds = line_ends(here)
    at = np.searchsorted(feeds, braces)
    starts = np.where(at, feeds[at - 1] + 1, 0)
    marked = np.all([np.take(here, starts + k, mode="clip") == byte for k, byte in enumerate(BOM)], axis=0)
    return np.column_stack([starts + len(BOM) * marked, np.minimum(feeds[at] + 1, len(here))])


def _with_lists(
    data: memoryview, spans: Iterable[tuple[int, int, int, int]], added: pl.DataFrame, empty: Collection[int]
) -> Iterator[Buffer]:
    """The bytes of rows with long lists as new fields, which are rendered only when they are written."""
    names = [json.dumps(name) for name in added.columns]
    for row, ((start, cut, brace, end), texts) in enumerate(zip(spans, row_texts(added), strict=True)):
        new = ",".join([f"{name}:{text}" for name, text in zip(names, texts, strict=True)])
        yield data[start:cut]
        yield (new if row in empty else f",{new}").encode()
        yield data[brace:end]


def _line_by_line(lines: Iterable[bytes], spot: Spot, added: pl.DataFrame) -> Iterator[bytes]:
    values = row_texts(added)
    return (line if is_blank(line) else spot.put(line, next(values)) for line in lines)


def without_last(data: bytes, starts: Ints, braces: Ints, spot: Spot) -> pl.Series | None:
    """The objects up to their last braces, without trailing fields of these names.

    None if the names may be elsewhere, if they can be written in many ways, or if not everything is text.
    """
    if spot.last is None or spot.anywhere is None:
        return None
    try:
        _ = data.isascii() or data.decode()
    except UnicodeDecodeError:
        return None
    found = between(data, starts, braces).str.replace(spot.last, "")
    return None if found.str.contains(spot.anywhere).any() else found


def _cells(added: pl.DataFrame, empty: Ints) -> list[str | pl.Series]:
    """The new fields as text: each name before its values, after a comma unless it is the first of an empty object."""
    cells: list[str | pl.Series] = []
    for column in added:
        cells += [f",{json.dumps(column.name)}:", column_texts(column)]
    if len(empty):
        name = f",{json.dumps(added.columns[0])}:"
        cells[0] = pl.Series([name]).new_from_index(0, len(added)).scatter(empty, name[1:])
    return cells
