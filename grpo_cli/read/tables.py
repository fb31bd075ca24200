"""Tables with named columns, and the binding, which says which column is used for what."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final, Literal, Protocol, TypeVar

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Index
from grpo_cli.engine.plan_parts import Counting, MaskedRows
from grpo_cli.errors import DataError, InputChanged, UnknownName, UsageError
from grpo_cli.files.inputs import MAX_LINE, Input
from grpo_cli.formats.interface import Format, Scanned
from grpo_cli.read.derived_columns import DerivedColumns, inside_of_texts
from grpo_cli.read.known_names import STEPS
from grpo_cli.schemas.sample import Sample, values_of
from grpo_cli.schemas.table import LONG, Mark, Schema
from grpo_cli.values.cells import Field, Kind, field_of, typed, words
from grpo_cli.values.key_text import cut, plain
from grpo_cli.values.paths import Absent, refuse_doubled, splits

Found = TypeVar("Found")

FIRST: Final = 4096  # rows of a frame that are cheap to compute
SHOWN: Final = 60  # characters of a key in a message
EXPLODE: Final = "make a row of each item first (frame.explode), and name the column of the record with group="


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Which column is the key, the reward and so on: everything that flags set, except the arithmetic."""

    group: tuple[str, ...] = ()
    group_size: int | None = None
    partial: Literal["error", "keep", "drop"] = "error"
    expect_size: int | None = None
    group_within: str | None = None
    batch_by: str | None = None
    rewards: tuple[str, ...] = ()
    outcomes: Mapping[str, float | None] = field(
        default_factory=dict
    )  # numbers for texts as rewards (--map), None for a missing one
    roles: Mapping[str, str] = field(default_factory=dict)
    carried: Mapping[str, Kind] = field(default_factory=dict)  # further columns to keep
    singletons_meant: bool = False
    missing_is_error: bool = False  # even for rows that the schema declares to have no reward
    schema: str | None = None  # the name of a schema, or "none"; None: detect it
    marks: tuple[Mark, ...] = ()  # rows that are masked or left out, by flag
    masked_rows: MaskedRows = ""  # by flag
    masked_by_preset: MaskedRows = ""
    rollouts: Counting = "once"  # how rows of one rollout count if the plan does not say so
    compare_prompts: bool = True  # off for streams, which would compare them in every portion
    skip_broken: bool = False  # leave out lines that are not JSON objects
    max_line: int = MAX_LINE  # bytes

    @property
    def columns(self) -> list[str]:
        """The columns that flags name."""
        by = [*(self.batch_by or "").split(","), self.group_within or ""]
        named = (
            *self.group,
            *self.rewards,
            *self.roles.values(),
            *(mark.column for mark in self.marks),
            *map(str.strip, by),
        )
        return [name for name in named if name]


class _Table(ABC):
    """What files and frames have in common: named columns, and rows that messages can name."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in messages."""

    @property
    @abstractmethod
    def schema(self) -> Schema | None:
        """Its layout, once detected."""

    @abstractmethod
    def places(self, rows: Sequence[int]) -> list[str]:
        """Rows (0 = the first) in messages."""

    @abstractmethod
    def _scanned(self, fields: Sequence[Field]) -> Scanned: ...

    def place(self, row: int) -> str:
        """The name of a row in messages."""
        return self.places([row])[0]

    def scan(self, fields: Sequence[Field]) -> Scanned:
        """The columns of these fields, in row order; the schema may derive some from others."""
        if self.schema is None:
            return self._scanned(fields)
        return DerivedColumns(self.schema, self.name, self.place).scan(self._scanned, fields)


class OverTables(Protocol):
    """Apply a task to each table, in order: `map`, or the same in other processes.

    The task depends only on the table: it may run anywhere, and again if a machine is lost.
    """

    def __call__(self, work: Callable[[Table], Found], tables: Iterable[Table], /) -> Iterable[Found]:
        """The results of the task."""


@dataclass(frozen=True)
class FileTable(_Table):
    """A pinned file, the format that reads it, and its schema once detected."""

    source: Input
    format: Format
    schema: Schema | None = None
    left_out: tuple[int, ...] = ()  # numbers of lines that were left out before reading
    late: tuple[str, ...] = ()  # further column names that a scan found
    refused: tuple[str, ...] = ()  # names that no row may have: columns of the output

    @property
    def name(self) -> str:
        """The file as the user named it."""
        return self.source.name

    def places(self, rows: Sequence[int]) -> list[str]:
        """Rows (0 = the first) in messages: in a file of lines, by their lines, for which the file is read once."""
        return self.format.places(self.source, rows, self.left_out)

    @cached_property
    def row_count(self) -> int | None:
        """The number of rows; None if only a scan could tell."""
        return self.format.row_count(self.source)

    @cached_property
    def _head(self) -> dict[str, None]:
        return dict.fromkeys(self.format.columns(self.source))

    def rows(
        self, index: Any, numbers: Index, columns: Sequence[str], *, as_json: bool = False
    ) -> Iterator[pl.DataFrame]:
        """Some columns at ascending rows, as values or as JSON texts; Absent if the file lacks one, InputChanged if it lacks a row."""
        count = 0
        for frame in self.format.rows(self.source, index, numbers, columns, as_json=as_json):
            count += len(frame)
            yield frame
        if count != len(numbers):
            raise InputChanged.between_readings(self.name)

    def cheap_rows(self, index: Any, height: int) -> range | Index:
        """The rows that the format fetches without reading much of the file."""
        return self.format.cheap_rows(self.source, index, height)

    def of_schema(self, schema: Schema, format_: Format) -> FileTable:
        """The file as a schema reads it."""
        made = replace(self, schema=schema, format=format_)
        if format_ == self.format:  # known facts are not read again
            vars(made).update({name: known for name, known in vars(self).items() if name in {"_head", "row_count"}})
        return made

    def of_source(self, source: Input) -> FileTable:
        """The same table from another source, such as a section of the file."""
        return self._like(source=source)

    def knowing(self, late: Collection[str]) -> FileTable:
        """The table with further column names that a scan found."""
        return self._like(late=(*self.late, *sorted(late)))

    def refusing(self, names: Collection[str]) -> FileTable:
        """The table, which now refuses these column names, in its head and in scans."""
        outer = self.format.outer_columns(self.source)
        self._refuse([name for name in names if name in self._head and name not in outer])
        return self._like(refused=(*self.refused, *names))

    def _refuse(self, there: Sequence[str]) -> None:
        if there:
            raise DataError(
                f"{self.name} already has a column {there[0]!r}",
                "--replace overwrites it, --column gives another name",
            )

    def _like(self, **changes: Any) -> FileTable:
        """A changed table with the same names: its head is not read again."""
        made = replace(self, **changes)
        vars(made)["_head"] = self._head
        return made

    def sample(self) -> Sample:
        """A few records, to recognise the schema by."""
        return Sample.of(self.source, self.format, self.columns())

    def columns(self) -> list[str]:
        """All top-level names; for JSON lines, those of some rows."""
        return list({**self._head, **dict.fromkeys(self.late)})

    def _scanned(self, fields: Sequence[Field]) -> Scanned:
        try:
            return self._scanned_as_is(fields)
        except Absent as error:
            head, rest = next((cut for cut in splits(error.column) if cut[0] in self._head), ("", ""))
            if not head:
                raise
            path = f"{head}[].{rest}"
            if any(True for record in self.format.sample(self.source) for _ in values_of(record, path)):
                cure = f"{head} is a list of objects: write '{path}'"
                raise Absent.of(error.column, error.place, cure) from None
            texts = self._scanned_as_is([Field(head, "key")])
            wanted = next(field for field in fields if field.name == error.column)
            column = inside_of_texts(wanted, head, texts.frame[head], self.place)
            if column is None:
                raise
            others = self._scanned([field for field in fields if field is not wanted])
            frame = pl.DataFrame([column if field is wanted else others.frame[field.name] for field in fields])
            return others.with_frame(frame, texts)

    @property
    def _marks(self) -> set[str]:
        """Columns that mark rows, which only some rows may have."""
        return set() if self.schema is None else {mark.column for mark in self.schema.marks if "." not in mark.column}

    def _scanned_as_is(self, fields: Sequence[Field]) -> Scanned:
        watched = {*STEPS, *self._marks, *self.refused} - {*self.columns(), *(field.name for field in fields)}
        scanned = self.format.scan(self.source, fields, watched)
        self._refuse([name for name in self.refused if name in scanned.late_names])
        return scanned


@dataclass(frozen=True)
class FrameTable(_Table):
    """A frame in memory: its names, and how to take columns from it."""

    names: Sequence[str]
    take: Callable[[list[str], int | None], pl.DataFrame]  # some columns, of all rows or only of the first
    name: str = "frame"
    texts: Sequence[str] = ()  # text columns in memory, whose first rows cost nothing
    types: Mapping[str, pl.DataType] = field(default_factory=dict)  # of the columns, as far as known without reading
    schema: Schema | None = None

    def columns(self) -> list[str]:
        """The frame's columns."""
        return list(self.names)

    def sample(self) -> Sample:
        """A made-up row from the types: no value is read."""
        from grpo_cli.formats.columnar import row_of  # imports pyarrow, which files of lines do not need

        return Sample("", frozenset(self.names), [row_of(pl.DataFrame(schema=self.types).to_arrow().schema)])

    def rows(self, index: Any, numbers: Index, columns: Sequence[str]) -> Iterator[pl.DataFrame]:  # noqa: ARG002 - only files have an index
        """Some columns at ascending rows; rows after the last of them are not computed."""
        yield self._scanned([Field(name, "key") for name in columns], int(numbers[-1]) + 1).frame[numbers]

    def cheap_rows(self, index: Any, height: int) -> range:  # noqa: ARG002 - as above
        """The first rows."""
        return range(min(height, FIRST))

    def _scanned(self, fields: Sequence[Field], rows: int | None = None) -> Scanned:
        """The columns of these fields; dotted paths lead into structs."""
        heads = {
            wanted.name: wanted.name if wanted.name in self.names else wanted.name.split(".")[0] for wanted in fields
        }
        for name, head in heads.items():
            if head not in self.names:
                raise UnknownName.among("column", name, self.names)
        refuse_doubled(heads.values(), self.names, self.name)
        frame = self.take(list(dict.fromkeys(heads.values())), rows)
        columns = [(wanted, self._reach(frame, wanted.name, heads[wanted.name])) for wanted in fields]
        for wanted, series in columns:
            if wanted.kind == "number" and isinstance(series.dtype, (pl.List, pl.Array)):
                raise DataError(f"{wanted.name} has lists, but a frame needs one number per row", EXPLODE)
        return Scanned(pl.DataFrame([typed(wanted, series, self.place) for wanted, series in columns]))

    def _reach(self, frame: pl.DataFrame, name: str, head: str) -> pl.Series:
        series = frame[head].alias("")
        for part in name.removeprefix(head).split(".")[1:]:
            try:
                series = field_of(series, part)
            except pl.exceptions.PolarsError:
                found = inside_of_texts(Field(name, "key"), head, frame[head], self.place)
                if found is not None:
                    return found
                raise DataError(f"{self.name} has no field {name!r}", f"{head} is {series.dtype}") from None
        return series

    def places(self, rows: Sequence[int]) -> list[str]:
        """Rows in messages."""
        return [f"{self.name} row {row + 1}" for row in rows]


Table = FileTable | FrameTable


class Excerpts:
    """What the check of prompts has fetched: `audit` groups the same rows several times, and each grouping is checked."""

    def __init__(self) -> None:
        self.texts: dict[str, dict[int, Any]] = {}  # column -> row -> value
        # The number of the first row of some files, and rows that are cheap to read.
        self.cheap: list[tuple[int, range | Index]] = []


@dataclass(frozen=True, kw_only=True)
class Located:
    """Rows of tables, and where each of them came from."""

    tables: Sequence[Table]
    lengths: tuple[int, ...]  # rows of each table
    scans: Sequence[Scanned]  # the other results of reading each table
    rows: Index | None = None  # which rows of the tables, if not all
    over: OverTables = map  # fetches texts of prompts
    fetched: Excerpts = field(default_factory=Excerpts)

    @cached_property
    def ends(self) -> Index:
        """Where the rows of each table end."""
        return np.cumsum(self.lengths)

    @cached_property
    def file(self) -> pl.Series:
        """The number of the file of every row."""
        files = np.repeat(np.arange(len(self.tables), dtype=np.uint32), self.lengths)
        return pl.Series("file", files if self.rows is None else files[self.rows])

    def place(self, row: int) -> str:
        """File and row, counted from 1."""
        return self.places([row])[0]

    def places(self, rows: Sequence[int]) -> list[str]:
        """The same of several rows; each file is read at most once for them."""
        spots, found = [self.within(row) for row in rows], dict[tuple[int, int], str]()
        for file in {file for file, _ in spots}:
            here = [spot for spot in spots if spot[0] == file]
            found |= zip(here, self.tables[file].places([inside for _, inside in here]), strict=True)
        return [found[spot] for spot in spots]

    def within(self, row: int) -> tuple[int, int]:
        """The number of the file, and of the row in it (both from 0)."""
        row = row if self.rows is None else int(self.rows[row])
        file = int(np.searchsorted(self.ends, row, side="right"))
        return file, row - (int(self.ends[file - 1]) if file else 0)

    def by_file(self, places: Index) -> Iterator[tuple[int, Index]]:
        """For ascending rows of all tables: the number of each file that has some, and their numbers in it."""
        cuts = np.searchsorted(places, [0, *self.ends])
        for at in np.flatnonzero(np.diff(cuts)).tolist():
            yield at, places[cuts[at] : cuts[at + 1]] - (int(self.ends[at]) - self.lengths[at])


def refuse_changed(tables: Sequence[Table]) -> None:
    """Stop if a file is no longer the one that was read."""
    for table in tables:
        if isinstance(table, FileTable):
            table.source.check()


def whole(tables: Sequence[Table]) -> pl.DataFrame:
    """The files as one frame; its row i is row i of the narrow table."""
    files = [table for table in tables if isinstance(table, FileTable)]
    schema = files[0].schema
    if schema is not None and schema.layout != LONG:
        wrong = f"a record of a {schema.title} has several rollouts, but a frame needs one per row"
        raise UsageError(wrong, "grpo-adv writes them to a file")
    frames = in_one_type([table.format.read(table.source) for table in files], "give the files one by one", wide=True)
    return pl.concat(frames, how="diagonal_relaxed")


def in_one_type(frames: Sequence[pl.DataFrame], cure: str, *, wide: bool) -> list[pl.DataFrame]:
    """The frames with numeric columns of different types cast to a common type that keeps all values, or an error.

    `wide` allows integers of 128 bits, which no file has.
    """
    made = [*frames]
    types: dict[str, set[pl.DataType]] = {}
    for name, dtype in chain.from_iterable(frame.schema.items() for frame in frames):
        types.setdefault(name, set()).update({dtype} - {pl.Null()})
    for name, found in types.items():
        if len(found) < 2 or not all(dtype.is_numeric() for dtype in found):  # noqa: PLR2004 - two types differ
            continue
        common = _common_type([frame[name] for frame in frames if name in frame.columns], wide=wide)
        if common is None:
            what = f"{name} is {' and '.join(sorted(map(str, found)))} in different inputs"
            raise DataError(f"{what}, and no type of number holds all its values", cure)
        made = [frame.with_columns(frame[name].cast(common)) if name in frame.columns else frame for frame in made]
    return made


def _common_type(parts: Sequence[pl.Series], *, wide: bool) -> pl.DataType | None:
    common = pl.concat([part.clear().to_frame() for part in parts], how="vertical_relaxed").to_series().dtype
    for dtype in [common] if wide or common not in {pl.Int128, pl.UInt128} else [pl.Int64(), pl.UInt64()]:
        back = [part.cast(dtype, strict=False).cast(part.dtype, strict=False) for part in parts]
        if not any(part.ne_missing(values).any() for part, values in zip(parts, back, strict=True)):
            return dtype
    return None


def label(key: pl.DataFrame, at: int, row: int, width: int = SHOWN) -> str:
    """A key as text on one line, short enough for a message; a block without a key is named by its first row."""
    if not key.width:
        return f"block at row {row + 1}"
    return ", ".join(cut(plain(words(column[at : at + 1])), width) for column in key)


def size_of(tables: Sequence[Table]) -> int:
    """The size of all files in bytes."""
    return sum(table.source.pin.size for table in tables if isinstance(table, FileTable))


def column_names(tables: Sequence[Table]) -> list[str]:
    """The column names of all tables."""
    return list(dict.fromkeys(name for table in tables for name in table.columns()))
