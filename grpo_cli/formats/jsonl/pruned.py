r"""The fast reading of JSON lines: polars reads a block of them, and asks only for the members that are needed.

polars parses every line as a whole (simd-json, 1.1 GB/s a core; pyarrow's reader does 0.6), so that a line which
is not JSON is an error here too. Asked for a dtype it takes only values of that type: no word as a number, no 1.0
as an Int64, no true as a Float64; numbers are rounded as Python rounds them. What it does not do as Python does,
and how it is noticed:

* NaN, Infinity, 1e400, bytes that are not UTF-8, values of other types: an error. The block is cut into smaller
  pieces, and the pieces that fail go to the exact reader.
* The first of two members of the same name wins (in Python: the last). The quoted names are counted (see
  `routes`); where there are too many, the lines that hold them are looked at, and doubtful ones are read exactly.
* A name may be spelt with escapes (`rew\u0061rd`), which no count of quoted names finds: an escape of a letter is
  counted like a name, and the line is read exactly.
* A lone surrogate at the end of a string becomes the letter NUL: keys that hold one are read exactly.
* A null and a missing member look alike: a column of nulls alone is looked for again (in `jsonl`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from io import BytesIO
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.formats import cells
from grpo_cli.formats.jsonl import alike
from grpo_cli.formats.jsonl.doubts import doubted
from grpo_cli.formats.jsonl.lines import BOM, Stretch
from grpo_cli.formats.jsonl.routes import plain, routes, schema
from grpo_cli.formats.jsonl.rows import ABSENT, rows, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from grpo_cli.formats.interface import Field
    from grpo_cli.formats.jsonl.lines import Piece
    from grpo_cli.formats.jsonl.routes import Route

    Place = Callable[[int], str]

Part = pl.Series | DataError  # a refused value is told only when no later line turns out not to be JSON
_SAMPLE: Final = 8  # rows of a block that say which types to ask for
_PIECE: Final = 256 << 10  # a piece of this size that fails is read exactly
_PIECES: Final = 16
_MOST_DOUBTED: Final = 4  # one row in so many: beyond that the exact reader takes the whole piece


@dataclass(frozen=True, slots=True)
class Found:
    """What a piece of the file holds: the parts of every column in order, the watched names that it has, its rows.

    Of whole pieces also where the rows stand.
    """

    columns: tuple[tuple[Part, ...], ...]
    late: frozenset[str]
    height: int
    stretches: tuple[Stretch, ...] = ()

    @classmethod
    def joined(cls, pieces: Iterable[Found], width: int) -> Found:
        """Put pieces that follow each other together."""
        known = list(pieces)
        columns = tuple(tuple(part for piece in known for part in piece.columns[at]) for at in range(width))
        late: frozenset[str] = frozenset().union(*(piece.late for piece in known))
        stretches = tuple(one for piece in known for one in piece.stretches)
        return cls(columns, late, sum(piece.height for piece in known), stretches)


@dataclass(frozen=True, slots=True)
class Reader:
    """Fields that are read, and names that are only watched for."""

    fields: tuple[Field, ...]
    watched: frozenset[str] = frozenset()

    def read(self, piece: Piece, place: Place) -> Found:
        """Read whole lines. `place` names the line that begins at an offset in the piece."""
        return Found.joined(self._pieces(piece, place), len(self.fields))

    def exact(self, lines: Iterable[bytes], starts: Sequence[int], place: Place) -> Found:
        """Read lines one by one; they start at `starts`."""
        values: list[list[Any]] = [[] for _ in self.fields]
        wanted = [(field.name, found.append) for field, found in zip(self.fields, values, strict=True)]
        late: set[str] = set()
        where = []
        for at, row in rows(lines, lambda at: place(starts[at])):
            where.append(starts[at])
            late.update(self.watched.intersection(row))
            for name, keep in wanted:
                value = value_of(row, name)
                keep(None if value is ABSENT else value)
        pairs = zip(self.fields, values, strict=True)
        columns = tuple((_part(field, found, lambda row: place(where[row])),) for field, found in pairs)
        return Found(columns, frozenset(late), len(where))

    def _pieces(self, piece: Piece, place: Place) -> Iterator[Found]:
        """Lines of one mould first, and all from the first other one on by the parsers."""
        with piece.open() as handle:
            begun, done = handle.tell(), 0
            for cast in alike.read(handle, piece.size, self.fields, self.watched, place):
                stretch = Stretch(cast.size, len(cast.braces), cast.braces.astype(np.uint32))
                yield Found(tuple((column,) for column in cast.columns), cast.late, stretch.rows, (stretch,))
                done += cast.size
            handle.seek(begun + done)
            block = piece.rest(handle, done)
        if block:
            found = Found.joined(self._parsed(block, _moved(place, done)), len(self.fields))
            yield replace(found, stretches=(Stretch(len(block), found.height, None),))

    def _parsed(self, block: bytes, place: Place) -> Iterator[Found]:
        names = [part for one in self.fields for part in one.name.split(".")]
        fast = all(map(plain, (*names, *self.watched)))
        whole = self._fast(block, place) if fast else None
        if whole is not None:
            yield whole
            return
        for start, part in _cut(block, max(_PIECE, len(block) // _PIECES)):
            there = _moved(place, start)
            small = self._fast(part, there) if fast and len(part) < len(block) else None
            yield self._exact(part, there) if small is None else small

    def _exact(self, block: bytes, place: Place) -> Found:
        lines = BytesIO(block).readlines()
        return self.exact(lines, _starts(lines), place)

    def _fast(self, block: bytes, place: Place) -> Found | None:
        if block.isspace():
            return None
        found = self._routes(block)
        asked = found and schema(found)
        if not found or not asked:
            return None
        try:
            frame = pl.read_ndjson(block.removeprefix(BOM), schema=asked).select(route.column() for route in found)
            columns = [cells.typed(route.field, frame[route.field.name], place) for route in found]
        except (pl.exceptions.PolarsError, DataError):
            return None
        doubts = doubted(block, frame, found, self.watched)
        if doubts is None or len(doubts) > frame.height // _MOST_DOUBTED:
            return None
        return self._patched(block, columns, doubts, place)

    def _routes(self, block: bytes) -> list[Route] | None:
        try:
            sample = [row for _, row in islice(rows(BytesIO(block), lambda _: ""), _SAMPLE)]
        except DataError:
            return None
        return routes(self.fields, sample)

    def _patched(
        self, block: bytes, columns: list[pl.Series], doubts: Sequence[tuple[int, int]], place: Place
    ) -> Found:
        """Take the doubted rows (row and line of each) from the exact reader, and all others as they are."""
        height = len(columns[0])
        if not doubts:
            return Found(tuple((column,) for column in columns), frozenset(), height)
        lines = BytesIO(block).readlines()
        starts = _starts(lines)
        pieces, done = [], 0
        for row, line in doubts:
            pieces.append(Found(tuple((column[done:row],) for column in columns), frozenset(), row - done))
            pieces.append(self.exact([lines[line]], [starts[line]], place))
            done = row + 1
        pieces.append(Found(tuple((column[done:],) for column in columns), frozenset(), height - done))
        return Found.joined(pieces, len(columns))


def _part(field: Field, values: list[Any], place: Place) -> Part:
    if field.kind == "key":
        return cells.key_series(field.name, values)
    try:
        return cells.number_series(field, values, place)
    except DataError as error:
        return error


def _starts(lines: Sequence[bytes]) -> list[int]:
    return list(accumulate(map(len, lines), initial=0))


def _moved(place: Place, start: int) -> Place:
    return lambda at: place(start + at)


def _cut(block: bytes, size: int) -> Iterator[tuple[int, bytes]]:
    """Pieces of whole lines, each with its start."""
    start = 0
    while start < len(block):
        end = block.find(b"\n", start + size - 1) + 1 or len(block)
        yield start, block[start:end]
        start = end
