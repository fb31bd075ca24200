r"""The fast reading of JSON lines: polars parses a block, and only the fields that are needed are requested.

polars parses every line completely, so that a line which is not JSON is an error here too. With a dtype it accepts
only values of that type: no word as a number, no 1.0 as an Int64, no true as a Float64. Text is requested as
categories, since for a String polars converts any other value to text: `1` and `"1"` would become the same key.
Whatever it refuses (NaN, Infinity, bytes that are not UTF-8, values of mixed types) goes to the exact reader, in a
piece of at most 256 KB. How polars differs from Python's parser, and how we notice:

* Of two fields with the same name it silently takes the first. Python therefore parses some rows of each block as
  well; these rows also show the path and the type of each field.
* A null and a missing field look the same. A watched name with any other value is an error when it is requested as
  `pl.Null`; with a null, or written with escapes (`st\u0065p`), it is found by a search in the text.
* A lone surrogate becomes the character NUL, and an integer beyond 64 bits becomes a text that begins with `Static(`: a block
  with such a key is read exactly.
* A dotted name can be reached in several ways. One way is requested, and all others are watched.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.formats.blocks import BOM, Block, BlockRows
from grpo_cli.formats.jsonl.lines import has_plain_spelling, last_braces, parsed, rows_at
from grpo_cli.values import cells
from grpo_cli.values.cells import Field, Place
from grpo_cli.values.json_text import ABSENT, SMALL, refuse_doubled, value_of
from grpo_cli.values.paths import splits, value_at
from grpo_cli.values.slices import Ints

Way = tuple[str, ...]  # the steps to a field

ColumnPart = pl.Series | DataError  # a value of another type is an error only if no later line turns out not to be JSON
PIECE = 256 << 10  # bytes for the exact reader, if polars refuses a block
_FIRST, _EVERY = 8, 1_000  # rows of a block that Python parses as well
_FIRST_BYTES = 32 << 10  # of these rows: long ones are fewer
_MOST_STEPS = 6  # most steps of a dotted path: each further step doubles the ways to read it


class _Unsure(Exception):
    """Why polars may read a block differently from Python's parser."""


_DOUBTS = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    DataError,
    UnicodeEncodeError,  # a name may have half a surrogate pair
    _Unsure,
)


class ReadPiece(NamedTuple):
    """The content of a block or a piece: a part of each column, watched names, and why it was read exactly."""

    columns: tuple[ColumnPart, ...]
    late: frozenset[str]
    why: str = ""


@dataclass(frozen=True)
class Reader:
    """The fields to read, and top-level names that are only watched."""

    fields: tuple[Field, ...]
    watched: frozenset[str] = frozenset()
    piece: int = PIECE
    small: int = SMALL

    def without(self, seen: frozenset[str]) -> Reader:
        """The reader for the next block: it need not look for names that a block has had."""
        return replace(self, watched=self.watched - seen) if seen else self

    def read(self, block: Block, place: Place) -> tuple[BlockRows, list[ReadPiece]]:
        """Read a block, whole or in pieces. `place` names the line at an offset in the block."""
        data = block.read()
        braces, empty = last_braces(data)
        found = list(self._found(data, braces, place))
        small = braces.astype(np.min_scalar_type(len(data)))
        return BlockRows(len(data), small, empty), found

    def lists(self, data: bytes) -> pl.DataFrame | None:
        """The columns of a block; None if only the exact reader is sure of it."""
        found = self._tried(data, last_braces(data)[0])
        return pl.DataFrame(found.columns) if isinstance(found, ReadPiece) else None

    def _found(self, data: bytes, braces: Ints, place: Place) -> Iterator[ReadPiece]:
        if len(braces) <= self.small and len(data) <= self.piece:
            yield self.exact(data, place)
            return
        whole = self._tried(data, braces)
        if isinstance(whole, ReadPiece):
            yield whole
            return
        reader = self
        for start, piece in _cut(data, self.piece):
            tried = reader._tried(piece, last_braces(piece)[0]) if len(piece) < len(data) else whole
            found = tried if isinstance(tried, ReadPiece) else reader.exact(piece, place, start, tried)
            reader = reader.without(found.late)
            yield found

    def _tried(self, data: bytes, braces: Ints) -> ReadPiece | str:
        """The result of polars, or why it is doubtful."""
        try:
            return self._fast(data, braces)
        except _DOUBTS as error:
            return str(error).partition("\n")[0]

    def exact(self, data: bytes, place: Place, start: int = 0, why: str = "") -> ReadPiece:
        """Read lines one by one with Python's parser; the first begins at `start` in the block."""

        def line(row: int) -> str:
            return place(start + where[row])

        values: list[list[Any]] = [[] for _ in self.fields]
        wanted = [(field.name, found.append) for field, found in zip(self.fields, values, strict=True)]
        names = [field.name for field in self.fields]
        late: set[str] = set()
        where = []
        for at, row in rows_at(data, lambda at: place(start + at), partial(refuse_doubled, names=names)):
            where.append(at)
            late.update(self.watched.intersection(row))
            for name, keep in wanted:
                value = value_of(row, name)
                keep(None if value is ABSENT else value)
        pairs = zip(self.fields, values, strict=True)
        columns = tuple(_typed(field, found, line) for field, found in pairs)
        return ReadPiece(columns, frozenset(late), why)

    def _fast(self, data: bytes, braces: Ints) -> ReadPiece:
        sample = self._sample(data, braces)
        text = pl.Categorical(pl.Categories.random())  # the global categories would keep the keys of all blocks
        routes = [_Route.of(field, sample, text) for field in self.fields]
        watched = {path for route in routes for path in route.rivals()}
        watched |= {(name,) for name in self.watched - {route.path[0] for route in routes}}
        # A column missing from all lines costs polars as much as a column in all lines.
        there = watched if watched and _may_hold(data, watched) else ()
        frame = pl.read_ndjson(data.removeprefix(BOM), schema=_schema(routes, there))
        if frame.height != len(braces):
            raise _Unsure("there are more or fewer rows than lines")
        return ReadPiece(tuple(route.column(frame) for route in routes), frozenset())

    def _sample(self, data: bytes, braces: Ints) -> list[Mapping[str, Any]]:
        """Some rows as Python's parser reads them: the first few, then every thousandth."""
        sample = list[Mapping[str, Any]]()
        size = 0
        for brace in [*braces[:_FIRST].tolist(), *braces[_EVERY::_EVERY].tolist()]:
            if size > _FIRST_BYTES:
                break
            start = data.rfind(b"\n", 0, brace) + 1
            end = data.find(b"\n", brace)
            line = data[start : end if end >= 0 else len(data)]
            size += len(line)
            sample.append(parsed(line))
            refuse_doubled(sample[-1], [field.name for field in self.fields])
        if not sample:
            raise _Unsure("there is no row in it")
        return sample


def _may_hold(data: bytes, watched: Collection[Way]) -> bool:
    """Whether a watched name is in a block, at any depth or inside of a text.

    A block where one is before a null, or written with escapes, is refused: polars does not see it there.
    """
    names = {path[-1] for path in watched}
    if not all(map(has_plain_spelling, names)):
        raise _Unsure("a name is looked for that can be written in several ways")
    text = pl.Series([data], dtype=pl.Binary).cast(pl.String)
    name = rf'(?:"(?:{"|".join(map(re.escape, sorted(names)))})"|\\u00[2-7][^"]*")[ \t\r\n]*:'
    if not text.str.contains(name).any():
        return False
    if text.str.contains(rf"{name}[ \t\r\n]*null").any():
        raise _Unsure("a watched name is null, or written with escapes")
    return True


class _Route(NamedTuple):
    """The path to a field, and the dtype to request."""

    field: Field
    path: Way
    dtype: pl.DataType

    @classmethod
    def of(cls, field: Field, sample: Sequence[Mapping[str, Any]], text: pl.Categorical) -> _Route:
        """The path to a field, by the first row that has it."""
        ways = list(_ways(field.name))
        for row in sample:
            value = value_of(row, field.name)
            if value is not None and value is not ABSENT:
                path = next(way for way in ways if value_at(row, *way) is value)
                return cls(field, path, _dtype(field, value, text))
        absent = {"key": pl.Null(), "lists": pl.List(pl.Float64)}
        return cls(field, ways[-1], absent.get(field.kind, pl.Float64()))

    def rivals(self) -> Iterator[Way]:
        """Other paths that lead to the same name."""
        for way in _ways(self.field.name):
            shared = next((at for at, (a, b) in enumerate(zip(self.path, way, strict=False)) if a != b), None)
            if shared is not None:
                yield way[: shared + 1]

    def column(self, frame: pl.DataFrame) -> pl.Series:
        """The values, out of the structs around them."""
        found = frame[self.path[0]].alias("")
        for name in self.path[1:]:
            found = cells.field_of(found, name)
        if isinstance(self.dtype, pl.Categorical):
            found = found.cast(pl.String)
            if found.str.contains("\x00", literal=True).any():
                raise _Unsure(f"{self.field.name} has the character NUL or half a surrogate pair")
            if found.str.starts_with("Static(").any():
                raise _Unsure(f"{self.field.name} has an integer beyond 64 bits")
        return cells.typed(self.field, found, lambda _: "a line")


def _ways(name: str) -> Iterator[Way]:
    """Every way to cut a dotted name into steps, the whole name first and all steps last."""
    if name.count(".") >= _MOST_STEPS:
        raise _Unsure(f"{name} has too many steps")
    yield (name,)
    for head, rest in splits(name):
        yield from ((head, *way) for way in _ways(rest))


def _dtype(field: Field, value: Any, text: pl.Categorical) -> pl.DataType:
    match value:
        case str() if field.kind != "lists":
            return text
        case bool() if field.kind != "lists":
            return pl.Boolean()
        case int() if field.kind == "key":
            return pl.Int64()
        case int() | float() if field.kind in {"number", "numbers"}:
            return pl.Float64()
        case list() if field.kind in {"numbers", "lists"}:
            return pl.List(pl.Float64)
    raise _Unsure(f"{field.name} has {type(value).__name__} values")


def _schema(routes: Sequence[_Route], absent: Collection[Way]) -> dict[str, pl.DataType]:
    """The fields to request, and as `pl.Null` those that must not be there."""
    tree: dict[str, Any] = {}
    wanted = [(route.path, route.dtype) for route in routes]
    unwanted = [(path, pl.Null()) for path in absent]
    for path, dtype in (*wanted, *unwanted):
        top = tree
        for name in path[:-1]:
            top = top.setdefault(name, {}) if isinstance(top, dict) else None
        if not isinstance(top, dict) or top.setdefault(path[-1], dtype) != dtype:
            raise _Unsure(f"{path[-1]} is read in two ways")
    return {name: _dtype_of(inner) for name, inner in tree.items()}


def _dtype_of(inner: Any) -> pl.DataType:
    if not isinstance(inner, dict):
        return inner  # type: ignore[no-any-return]
    return pl.Struct({name: _dtype_of(deeper) for name, deeper in inner.items()})


def _typed(field: Field, values: list[Any], place: Place) -> ColumnPart:
    if field.kind == "key":
        return cells.key_series(field.name, values)
    try:
        return cells.number_series(field, values, place)
    except DataError as error:
        return error


def _cut(data: bytes, size: int) -> Iterator[tuple[int, bytes]]:
    """Pieces of whole lines, each with its start: of up to `size` bytes, or a single longer line."""
    start = 0
    while start < len(data):
        end = data.rfind(b"\n", start, start + size) + 1 or data.find(b"\n", start) + 1 or len(data)
        yield start, data[start:end]
        start = end
