r"""The fast reading of JSON lines: polars parses a block of them, and only the members that are needed are requested.

polars parses every line as a whole, so that a line which is not JSON is an error here too. With a dtype it takes
only values of that type: no word as a number, no 1.0 as an Int64, no true as a Float64. Text is requested as
categories, since polars spells any other value as text where it wants a String: `1` and `"1"` would become one key.
Whatever it refuses (NaN, Infinity, bytes that are not UTF-8, values of mixed types) goes to the exact reader, in a
piece of at most 256 KB. What polars does otherwise than Python's parser, and how it is noticed:

* Of two members of one name it takes the first, without a word. Some rows of each block are parsed for that by Python
  as well; those rows also say where each field lies and of which type it is.
* A null and a missing member look alike. A watched name that holds anything else is an error when it is requested as
  `pl.Null`; with a null, or spelt with escapes (`st\u0065p`), it is found by a search in the text.
* A lone surrogate becomes the character NUL: a block with NUL in a key is read exactly.
* A dotted name can be reached in several ways. One is requested, and all others are watched for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.formats import cells
from grpo_cli.formats.blocks import BOM
from grpo_cli.formats.json_text import ABSENT, SMALL, refuse_doubled, value_of
from grpo_cli.formats.jsonl.exact import parsed, rows_at
from grpo_cli.formats.jsonl.lines import last_braces
from grpo_cli.formats.jsonl.members import has_one_spelling

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from grpo_cli.formats.blocks import Block
    from grpo_cli.formats.interface import Field
    from grpo_cli.formats.slices import Ints

    Place = Callable[[int], str]
    Path = tuple[str, ...]

Part = pl.Series | DataError  # a value of another type is an error only if no later line turns out not to be JSON
PIECE: Final = 256 << 10  # bytes that the exact reader takes where polars refuses a block
_FIRST, _EVERY = 8, 1_000  # rows of a block that Python parses as well
_FIRST_BYTES: Final = 32 << 10
_MOST_STEPS: Final = 6  # of a dotted path: each more doubles the ways to it
_FAR: Final = 1 << 32


class _Unsure(Exception):
    """Why polars may read a block otherwise than Python's parser."""


class Rows(NamedTuple):
    """Where the rows of a block are: its bytes, how many they are, their last braces, and which are empty objects."""

    size: int
    height: int
    braces: Ints
    empty: Ints


class Found(NamedTuple):
    """What a block or a piece of it holds: a part of each column, watched names, its rows; why it was read exactly."""

    columns: tuple[Part, ...]
    late: frozenset[str]
    height: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Reader:
    """Fields that are read, and names of top-level members that are only watched for."""

    fields: tuple[Field, ...]
    watched: frozenset[str] = frozenset()
    seen: set[str] = field(default_factory=set)  # watched names that a block had: the next ones need not look for them
    common: set[Path] = field(default_factory=set)  # watched members whose names are elsewhere in the lines

    def read(self, block: Block, place: Place) -> tuple[Rows, list[Found]]:
        """Read a block, as a whole or in pieces. `place` names the line that begins at an offset in the block."""
        data = block.read()
        braces, empty = last_braces(data)
        found = list(self._found(data, braces, place))
        small = braces.astype(np.uint32) if len(data) < _FAR else braces
        return Rows(len(data), sum(one.height for one in found), small, empty), found

    def _found(self, data: bytes, braces: Ints, place: Place) -> Iterator[Found]:
        if len(braces) <= SMALL and len(data) <= PIECE:
            yield self.exact(data, place)
            return
        whole = self._tried(data, braces)
        if isinstance(whole, Found):
            yield whole
            return
        for start, piece in _cut(data):
            found = self._tried(piece, last_braces(piece)[0]) if len(piece) < len(data) else whole
            yield found if isinstance(found, Found) else self.exact(piece, place, start, found)

    def _tried(self, data: bytes, braces: Ints) -> Found | str:
        """What polars reads, or why it is not sure."""
        try:
            return self._fast(data, braces)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            return str(error).partition("\n")[0]
        except (DataError, UnicodeEncodeError, _Unsure) as error:  # a name may hold half a surrogate pair
            return str(error)

    def exact(self, data: bytes, place: Place, start: int = 0, why: str = "") -> Found:
        """Read lines one by one with Python's parser; the first of them begins at `start` in the block."""

        def line(row: int) -> str:
            return place(start + where[row])

        values: list[list[Any]] = [[] for _ in self.fields]
        wanted = [(one.name, found.append) for one, found in zip(self.fields, values, strict=True)]
        names = [one.name for one in self.fields]
        late: set[str] = set()
        where: list[int] = []
        for at, row in rows_at(data, lambda at: place(start + at)):
            where.append(at)
            late.update(self.watched.intersection(row))
            refuse_doubled(row, names, lambda: line(-1))
            for name, keep in wanted:
                value = value_of(row, name)
                keep(None if value is ABSENT else value)
        self.seen.update(late)
        pairs = zip(self.fields, values, strict=True)
        columns = tuple(_typed(one, found, line) for one, found in pairs)
        return Found(columns, frozenset(late), len(where), why)

    def _fast(self, data: bytes, braces: Ints) -> Found:
        routes = self._routes(self._sample(data, braces))
        watched = {path for route in routes for path in route.rivals()}
        watched |= {(name,) for name in self.watched - self.seen - {route.path[0] for route in routes}}
        asked = watched & self.common  # other threads add to it meanwhile
        frame = pl.read_ndjson(data.removeprefix(BOM), schema=_schema(routes, asked))
        if watched and self._is_there(data, watched) and watched != asked:
            self.common.update(watched)
            frame = pl.read_ndjson(data.removeprefix(BOM), schema=_schema(routes, watched))
        if frame.height != len(braces):
            raise _Unsure("there are more or fewer rows than lines")
        return Found(tuple(route.column(frame) for route in routes), frozenset(), len(braces))

    def _is_there(self, data: bytes, watched: Collection[Path]) -> bool:
        """Tell whether a watched name may be in the block at any depth; with a null polars would not see it."""
        names = {path[-1] for path in watched}
        if not all(map(has_one_spelling, names)):
            raise _Unsure("a name is looked for that can be written in several ways")
        text = pl.Series([data], dtype=pl.Binary).cast(pl.String)
        member = rf'(?:"(?:{"|".join(map(re.escape, sorted(names)))})"|\\u00[2-7][^"]*")[ \t\r\n]*:'
        if not text.str.contains(member).any():
            return False
        if text.str.contains(rf"{member}[ \t\r\n]*null").any():
            raise _Unsure("a watched name is null, or written with escapes")
        return True

    def _sample(self, data: bytes, braces: Ints) -> list[Mapping[str, Any]]:
        """Some rows as Python's parser reads them: the first few, and after that one of a thousand."""
        sample, size = list[Mapping[str, Any]](), 0
        for brace in [*braces[:_FIRST].tolist(), *braces[_EVERY::_EVERY].tolist()]:
            if size > _FIRST_BYTES:
                break
            start, end = data.rfind(b"\n", 0, brace) + 1, data.find(b"\n", brace)
            line = data[start : end if end >= 0 else len(data)]
            size += len(line)
            sample.append(parsed(line.removeprefix(BOM), lambda _: "a line", 0))
            refuse_doubled(sample[-1], [one.name for one in self.fields], lambda: "a line")
        if not sample:
            raise _Unsure("there is no row in it")
        return sample

    def _routes(self, sample: Sequence[Mapping[str, Any]]) -> list[_Route]:
        text = pl.Categorical(pl.Categories.random())  # not the global ones, which would keep the keys of all blocks
        return [_Route.of(one, sample, text) for one in self.fields]


class _Route(NamedTuple):
    """The names that lead to a field, and the dtype that is requested."""

    field: Field
    path: Path
    dtype: pl.DataType

    @classmethod
    def of(cls, one: Field, sample: Sequence[Mapping[str, Any]], text: pl.Categorical) -> _Route:
        """The way to a field, by the first row that has it."""
        ways = list(_ways(one.name))
        for row in sample:
            value = value_of(row, one.name)
            if value is not None and value is not ABSENT:
                path = next(way for way in ways if _follow(row, way) is value)
                return cls(one, path, _dtype(one, value, text))
        return cls(one, ways[-1], pl.Null() if one.kind == "key" else pl.Float64())

    def rivals(self) -> Iterator[Path]:
        """Members that would lead to the same name in another way."""
        for way in _ways(self.field.name):
            shared = next((at for at, (a, b) in enumerate(zip(self.path, way, strict=False)) if a != b), None)
            if shared is not None:
                yield way[: shared + 1]

    def column(self, frame: pl.DataFrame) -> pl.Series:
        """The values, out of the structs around them."""
        found = frame[self.path[0]]
        for name in self.path[1:]:
            found = found.struct.field(name)
        if isinstance(self.dtype, pl.Categorical):
            found = found.cast(pl.String)
            if found.str.contains("\x00", literal=True).any():
                raise _Unsure(f"{self.field.name} holds the character NUL or half a surrogate pair")
        return cells.typed(self.field, found, lambda _: "a line")


def _ways(name: str) -> Iterator[Path]:
    """Every way to cut a dotted name into steps, the whole name first and all steps last."""
    if name.count(".") >= _MOST_STEPS:
        raise _Unsure(f"{name} has too many steps")
    yield (name,)
    for at in reversed([at for at, letter in enumerate(name) if letter == "." and at]):
        yield from ((name[:at], *rest) for rest in _ways(name[at + 1 :]))


def _follow(row: Any, way: Path) -> Any:
    for name in way:
        row = row.get(name) if isinstance(row, dict) else None
    return row


def _dtype(one: Field, value: Any, text: pl.Categorical) -> pl.DataType:
    match value:
        case str():
            return text
        case bool():
            return pl.Boolean()
        case int() if one.kind == "key":
            return pl.Int64()
        case int() | float() if one.kind != "key":
            return pl.Float64()
        case list() if one.kind == "numbers":
            return pl.List(pl.Float64)
    raise _Unsure(f"{one.name} holds {type(value).__name__} values")


def _schema(routes: Sequence[_Route], absent: Collection[Path]) -> dict[str, pl.DataType]:
    """The members that are requested, and those that must not be there as `pl.Null`."""
    tree: dict[str, Any] = {}
    for path, dtype in [*((one.path, one.dtype) for one in routes), *((path, pl.Null()) for path in absent)]:
        top: Any = tree
        for name in path[:-1]:
            top = top.setdefault(name, {}) if isinstance(top, dict) else None
        if not isinstance(top, dict) or top.setdefault(path[-1], dtype) != dtype:
            raise _Unsure(f"{path[-1]} is read in two ways")
    return {name: _dtype_of(inner) for name, inner in tree.items()}


def _dtype_of(inner: Any) -> pl.DataType:
    if not isinstance(inner, dict):
        return inner  # type: ignore[no-any-return]
    return pl.Struct({name: _dtype_of(deeper) for name, deeper in inner.items()})


def _typed(one: Field, values: list[Any], place: Place) -> Part:
    if one.kind == "key":
        return cells.key_series(one.name, values)
    try:
        return cells.number_series(one, values, place)
    except DataError as error:
        return error


def _cut(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Pieces of whole lines, each with its start: as large as allowed, or one longer line."""
    start = 0
    while start < len(data):
        end = data.rfind(b"\n", start, start + PIECE) + 1 or data.find(b"\n", start) + 1 or len(data)
        yield start, data[start:end]
        start = end
