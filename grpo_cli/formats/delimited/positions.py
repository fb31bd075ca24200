"""Where the records and cells of CSV and TSV are: read exactly, record by record, or found for a whole block at once.

The exact reading defines the meaning of a file. That of whole blocks goes by the marks outside of quotes. It is correct if
quotes are only around whole cells and doubled inside, as every program writes them; a block with other quotes, or with a
record of another width, is left to the exact reading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from io import BytesIO
from itertools import accumulate
from typing import BinaryIO, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.files.inputs import Input
from grpo_cli.formats.blocks import BOM, Block, BlockRows, ending, offsets_of
from grpo_cli.values.slices import Ints, between

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]

_LF, _CR, _QUOTE = b'\n\r"'
_NONE = np.zeros(0, np.int64)
QUOTE = b'"'


def records(
    lines: Iterable[bytes],
    separator: bytes,
    name: str,
    row: int,
    refuse_long: Callable[[int], None] = lambda _: None,
) -> Iterator[tuple[bytes, list[bytes]]]:
    """Raw records and their raw cells; a blank line is a record without cells.

    `row` is the number of the first record, for the message about a cell that is never closed: 0 is the header, which may
    begin with a byte order mark. `refuse_long` is called with the size of a record as it grows.
    """
    buffered: list[bytes] = []  # the lines of a record whose quoted cell is open
    size = 0
    mark = b"" if row else BOM
    for line in lines:
        if not buffered and not bare(line).removeprefix(mark):
            yield line, []
            mark = b""
            continue
        buffered.append(line)
        size += len(line)
        refuse_long(size)
        if len(buffered) > 1 and QUOTE not in line:
            continue  # only a line with a quote can close it
        record = b"".join(buffered)
        raw = cells_of(bare(record).removeprefix(mark), separator)
        if raw is not None:
            buffered.clear()
            mark = b""
            row, size = row + 1, 0
            yield record, raw
    if buffered:
        raise DataError("a quoted cell is never closed", "is the file cut short?", place=f"{name} row {row}")


def bare(record: bytes) -> bytes:
    """A record without its ending."""
    return record[: len(record) - len(ending(record))]


def stops_of(record: bytes, raw: Sequence[bytes], start: int = 0) -> list[int]:
    """The offset before the first of the raw cells of a record that begins at `start`, and the end of each cell."""
    sizes = [len(cell) + 1 for cell in raw]
    return list(
        accumulate(sizes, initial=start + len(bare(record)) - sum(sizes))
    )  # a byte order mark may be before them


def _cell(separator: bytes) -> re.Pattern[bytes]:
    mark = re.escape(separator)
    # The possessive loop keeps an unclosed quote from being tried again at every byte.
    return re.compile(rb'("(?:[^"]++|"")*+"[^%b]*|(?!")[^%b]*)(%b|\Z)' % (mark, mark, mark))


_CELL = {mark: _cell(mark) for mark in (b",", b"\t")}
_QUOTED = re.compile(rb'"((?:[^"]++|"")*+)"(.*)', re.DOTALL)


def cells_of(record: bytes, separator: bytes) -> list[bytes] | None:
    """The raw cells of a record without its ending; None when a quoted cell is still open."""
    if QUOTE not in record:
        return record.split(separator)
    found: list[bytes] = []
    at = 0
    while (match := _CELL[separator].match(record, at)) is not None:
        found.append(match[1])
        if not match[2]:
            return found
        at = match.end()
    return None


def text_of(cell: bytes) -> str:
    """The text of a raw cell, which counts as null if it is empty; bytes that are not UTF-8 stay apart from each other as escapes."""
    match = _QUOTED.fullmatch(cell)
    if match is not None:
        cell = match[1].replace(b'""', QUOTE) + match[2]
    return cell.decode("utf-8", "backslashreplace")


# --- all records of a block ------------------------------------------------------------------------------------------------


class Unsure(Exception):
    """The block has to be read exactly."""


class Positions(NamedTuple):
    """The records of a block: the offsets before their first cells, and where their first cells end, their second ones, ..."""

    data: bytes
    stops: Sequence[Ints]
    quotes: Ints = _NONE
    is_utf8: bool = False

    @property
    def ends(self) -> Ints:
        """Where each record ends, without its line ending."""
        return self.stops[-1]

    def rows(self) -> BlockRows:
        """The records, each marked before its line ending."""
        size = len(self.data)
        return BlockRows(size, self.ends.astype(np.min_scalar_type(size)))

    def cell(self, at: int) -> tuple[Ints, Ints]:
        """Where a cell of each record begins and ends."""
        return self.stops[at] + 1, self.stops[at + 1]

    def texts(self, at: int) -> pl.Series:
        """The texts of a cell of each record; null if empty, also between quotes."""
        starts, ends = self.cell(at)
        escaped = _NONE
        if len(self.quotes):
            found = np.frombuffer(self.data, np.uint8)
            quoted = (np.take(found, starts, mode="clip") == _QUOTE) & (starts < ends)
            if (found[ends[quoted] - 1] != _QUOTE).any():
                raise Unsure
            starts, ends = starts + quoted, ends - quoted
            inside = np.searchsorted(self.quotes, starts) < np.searchsorted(self.quotes, ends)
            escaped = np.flatnonzero(inside)
        empty = np.flatnonzero(starts == ends)
        texts = between(self.data, starts, ends)
        # Through bytes, polars checks that they are UTF-8, which for each cell of a row takes as long as for the block.
        texts = texts if self.is_utf8 else texts.cast(pl.Binary).cast(pl.String)
        if len(escaped):
            texts = texts.scatter(escaped, texts.gather(escaped).str.replace_all('""', '"', literal=True))
        return texts.scatter(empty, None) if len(empty) else texts


def positions(data: bytes, separator: bytes, width: int) -> Positions:
    """Find the records of a block and their cells; each record must have `width` cells."""
    found = np.frombuffer(data, np.uint8)
    quotes = offsets_of(found, _QUOTE) if QUOTE in data else _NONE
    if len(quotes) % 2 or not _is_usual(found, quotes, separator):
        raise Unsure
    feeds = _outside(quotes, offsets_of(found, _LF))
    stops = feeds + 1 if data.endswith(b"\n") else np.append(feeds + 1, len(data))
    starts = np.append(0, stops[:-1])
    after_cr = np.take(found, feeds - 1, mode="clip") == _CR
    is_empty = feeds == starts[: len(feeds)]
    ends = stops.copy()
    ends[: len(feeds)] = feeds - (after_cr & ~is_empty)
    if (starts == ends).any():  # blank lines are not records
        filled = starts < ends
        starts, ends = starts[filled], ends[filled]
    separators = _outside(quotes, offsets_of(found, separator[0]))
    if len(separators) != len(starts) * (width - 1):
        raise Unsure
    marks = separators.reshape(len(starts), width - 1)
    if width > 1:
        before = marks[:, 0] < starts
        after = marks[:, -1] >= ends
        if before.any() or after.any():
            raise Unsure
    return Positions(data, [starts - 1, *marks.T, ends], quotes, _is_utf8(data))


def exactly(data: bytes, separator: bytes, width: int, name: str, row: int) -> Positions:
    """The same, record by record; `row` counts those before. A record of another width is refused."""
    stops = list[list[int]]()
    at = 0
    for record, raw in records(BytesIO(data), separator, name, row + 1):
        if raw and len(raw) != width:
            hint = "a cell that contains the separator needs quotes"
            if len(raw) < width:
                whole = ending(record)  # only the last record of a file may lack it
                hint = "a row needs all its cells, even empty cells" if whole else "is the file cut short?"
            place = f"{name} row {row + len(stops) + 1}"
            raise DataError(f"{place}: expected {width} cells as in the header, found {len(raw)}", hint)
        if raw:
            stops.append(stops_of(record, raw, at))
        at += len(record)
    return Positions(data, [*np.array(stops, np.int64).reshape(-1, width + 1).T])


def _is_utf8(data: bytes) -> bool:
    with suppress(pl.exceptions.PolarsError):
        return data.isascii() or len(pl.Series([data], dtype=pl.Binary).cast(pl.String)) == 1
    return False


def _outside(quotes: Ints, marks: Ints) -> Ints:
    """The marks with an even number of quotes before them."""
    return marks[np.searchsorted(quotes, marks) % 2 == 0] if len(quotes) else marks


def _is_usual(found: Bytes, quotes: Ints, separator: bytes) -> bool:
    """Whether each opening quote is at the start of a cell, or right after a closing quote: a doubled quote."""
    opening = quotes[::2]
    opening = opening[opening > 0]
    before = found[opening - 1]
    return bool(((before == _LF) | (before == _QUOTE) | (before == separator[0])).all())


# --- blocks of whole records --------------------------------------------------------------------------------


def blocks(source: Input, handle: BinaryIO, separator: bytes, start: int, size: int) -> Iterator[Block]:
    """The rest of an open file in blocks of about `size` bytes, cut at the ends of records."""
    rest = b""
    # Larger reads where a record is longer than a block, so that it is not copied once per block.
    while more := handle.read(max(size, len(rest))):
        data = rest + more
        cut = _cut(data, separator)
        if cut:
            yield Block(source.name, start, cut, partial(BytesIO, data[:cut]))
        start, rest = start + cut, data[cut:]
        source.refuse_long_line(len(rest))
    if rest:
        yield Block(source.name, start, len(rest), partial(BytesIO, rest))


def _cut(data: bytes, separator: bytes) -> int:
    """Where the last complete record ends; 0 if there is none."""
    found = np.frombuffer(data, np.uint8)
    quotes = offsets_of(found, _QUOTE) if QUOTE in data else _NONE
    if not _is_usual(found, quotes, separator):
        return _exact_cut(data, separator)
    at = data.rfind(b"\n")
    while at >= 0 and (before := int(np.searchsorted(quotes, at))) % 2:
        at = data.rfind(b"\n", 0, quotes[before - 1])  # before the cell that this line feed is in
    return at + 1


def _exact_cut(data: bytes, separator: bytes) -> int:
    at = 0
    with suppress(DataError):  # the last cell continues in the next block
        for record, _ in records(BytesIO(data), separator, "", 1):
            at += len(record) if record.endswith(b"\n") else 0
    return at
