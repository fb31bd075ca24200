"""Tables with named columns, those that a schema derives among them, and the binding, which says which column is used for what."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Index
from grpo_cli.engine.plan_parts import Counting, MaskedRows
from grpo_cli.errors import DataError, GrpoError, InputChanged, UsageError, Way
from grpo_cli.files.inputs import MAX_LINE, Input
from grpo_cli.formats.interface import Format, InLines, Reader, Scanned
from grpo_cli.read.known_names import STEPS
from grpo_cli.schemas.sample import Sample
from grpo_cli.schemas.table import LONG, Derived, Mark, Schema
from grpo_cli.values.cells import (
    Excerpt,
    Field,
    Kind,
    Place,
    as_number,
    canonical,
    key_series,
    number_series,
    where,
    words,
)
from grpo_cli.values.json_text import ABSENT, value_of
from grpo_cli.values.key_text import cut, plain
from grpo_cli.values.paths import Absent, splits

Found = TypeVar("Found")

SHOWN = 60  # characters of a key in a message


@dataclass(frozen=True)
class KlField(Field):
    """The KL of each row, estimated from two lists: the log-probs of its policy and of a reference."""

    columns: tuple[str, ...]
    estimator: str
    mean: bool  # over the tokens; otherwise their sum
    mask: str


@dataclass(frozen=True, kw_only=True)
class Binding:
    """Which column is the key, the reward and so on: everything that flags set, except the arithmetic."""

    group: tuple[str, ...] = ()
    group_size: int | None = None
    partial: Literal["error", "keep", "drop"] = "error"
    expect_size: int | None = None
    group_within: str | None = None
    # whether a prompt that recurs in several steps is a group in each of them, if no flag says what it is: to look at it
    steps_apart: bool = False
    batch_by: str | None = None
    rewards: tuple[str, ...] = ()
    # Numbers for texts as rewards (--map), None for a missing one.
    outcomes: Mapping[str, float | None] = field(default_factory=dict)
    of_several: tuple[str, ...] = ()  # flags about several rewards, which have no effect where a single one is found
    roles: Mapping[str, str] = field(default_factory=dict)
    made: tuple[KlField, ...] = ()  # columns that are made from lists: that of the role kl
    carried: Mapping[str, Kind] = field(default_factory=dict)  # further columns to keep
    singletons_meant: bool = False
    missing_is_error: bool = False  # even for rows that the schema declares to have no reward
    schema: str | None = None  # the name of a schema, or "none"; None: detect it
    marks: tuple[Mark, ...] = ()  # rows that are masked or left out, by flag
    masked_rows: MaskedRows = ""  # by flag
    # Whether a flag says so, and no file of options, which is for other inputs, too: an error where nothing marks rows.
    masked_rows_typed: bool = False
    masked_by_preset: MaskedRows = ""
    rollouts: Counting = "once"  # how rows of one rollout count if the plan does not say so
    compare_prompts: bool = True  # off for streams, which would compare them in every portion
    skip_broken: bool = False  # leave out lines that are not JSON objects
    max_line: int = MAX_LINE  # bytes

    def inside(self, path: str) -> Binding:
        """The same with names relative to the objects at a path."""

        def within(name: str) -> str:
            return name.removeprefix(path)

        return replace(
            self,
            group=tuple(map(within, self.group)),
            rewards=tuple(map(within, self.rewards)),
            roles={role: within(name) for role, name in self.roles.items()},
            group_within=self.group_within and within(self.group_within),
            batch_by=self.batch_by and within(self.batch_by),
        )


class OverTables(Protocol):
    """Apply a task to each table, in order: `map`, or the same in other processes.

    The task depends only on the table: it may run anywhere, and again if a machine is lost.
    """

    def __call__(self, work: Callable[[Table], Found], tables: Iterable[Table], /) -> Iterable[Found]:
        """The results of the task."""


@dataclass(frozen=True)
class Table:
    """A source with named columns, what reads it, and its schema once detected."""

    source: Input
    format: Reader
    schema: Schema | None = None
    late: tuple[str, ...] = ()  # further column names that a scan found
    refused: tuple[str, ...] = ()  # names that no row may have: columns of the output

    @property
    def name(self) -> str:
        """The source as the user named it."""
        return self.source.name

    @property
    def prefix(self) -> str:
        """What the full names of columns begin with if rows are inside records."""
        return f"{self.schema.rows}." if self.schema is not None and self.schema.rows else ""

    @property
    def in_records(self) -> bool:
        """Whether a record may have several rollouts."""
        return self.schema is not None and self.schema.layout != LONG

    @property
    def typed(self) -> bool:
        """Whether 1 and the text 1 differ."""
        return self.format.record != "texts"

    def place(self, row: int) -> str:
        """The name of a row in messages."""
        return self.places([row])[0]

    def places(self, rows: Sequence[int]) -> list[str]:
        """Rows (0 = the first) in messages: in a file of lines, by their lines, for which the file is read once."""
        return self.format.places(self.source, rows)

    @cached_property
    def row_count(self) -> int | None:
        """The number of rows; None if only a scan could tell."""
        return self.format.row_count(self.source)

    @cached_property
    def _head(self) -> dict[str, None]:
        return dict.fromkeys(self.format.columns(self.source))

    def sample(self) -> Sample:
        """A few records, to recognise the schema by."""
        records = self.format.sample(self.source)
        names = frozenset(self.columns()).union(*records)
        return Sample(self.name, names, records)

    def columns(self) -> list[str]:
        """All top-level names; for JSON lines, those of some rows."""
        return list(dict.fromkeys((*self._head, *self.late)))

    def rows(self, wanted: Excerpt) -> Iterator[pl.DataFrame]:
        """The wanted cells; Absent if the file lacks a column, InputChanged if it lacks a row."""
        frames = self.format.rows(self.source, wanted)
        return self._every(frames, len(wanted.numbers))

    def lists(self, wanted: Excerpt) -> Iterator[pl.DataFrame]:
        """The wanted cells as lists of numbers, or as JSON texts where the file has no lists."""
        inside = wanted._replace(columns=[name.removeprefix(self.prefix) for name in wanted.columns], lists=True)
        frames = self.format.rows(self.source, inside)
        for frame in self._every(frames, len(wanted.numbers)):
            frame.columns = [*wanted.columns]
            yield frame

    def rows_perhaps_with(self, wanted: Excerpt, word: bytes) -> Iterator[tuple[int, Index, pl.DataFrame]]:
        """The wanted cells, perhaps without rows that lack an ASCII word in any case and any escaping.

        Part by part: how many of the rows have been searched so far, the rows in the part, and their cells.
        """
        if isinstance(self.format, InLines) and not self.source.deferred:  # lines that have the texts themselves
            yield from self.format.rows_perhaps_with(self.source, wanted, word)
            return
        passed = 0
        for frame in self.format.rows(self.source, wanted):
            part = wanted.numbers[passed : passed + len(frame)]
            passed += len(frame)
            yield passed, part, frame

    def records(self, wanted: Excerpt) -> list[dict[str, Any]]:
        """The wanted cells as a dictionary for each row, without the columns that the file lacks; derived values take a scan."""
        if not wanted.columns:
            return [{} for _ in wanted.numbers]
        try:
            return [row for frame in self.rows(wanted) for row in frame.to_dicts()]
        except Absent as error:
            lost = error.column
        others = [name for name in wanted.columns if name != lost]
        found = self.records(wanted._replace(columns=others))
        if not wanted.as_json:
            with suppress(GrpoError):
                derived = self.scan([Field(lost, "key")]).frame[lost]
                values = derived.gather(wanted.numbers)
                return [{**row, lost: value} for row, value in zip(found, values, strict=True)]
        return found

    def _every(self, frames: Iterator[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
        for frame in frames:
            rows -= len(frame)
            yield frame
        if rows:
            raise InputChanged.between_readings(self.name)

    def scan(self, fields: Sequence[Field]) -> Scanned:
        """The columns of these fields, in row order; the schema may derive some from others."""
        if self.schema is None:
            return self._scanned(fields)
        return DerivedColumns(self.schema, self.name, self.place).scan(self._scanned, fields)

    def of_schema(self, schema: Schema, format_: Reader | None = None) -> Self:
        """The source as a schema reads it, perhaps in another way."""
        if format_ is None or format_ == self.format:  # known facts are not read again
            return self._like(schema=schema)
        return replace(self, schema=schema, format=format_)

    def of_source(self, source: Input) -> Self:
        """The same table from another source, such as a section of the file."""
        return self._like(source=source)

    def knowing(self, late: Collection[str]) -> Self:
        """The table with further column names that a scan found."""
        return self._like(late=(*self.late, *sorted(late))) if late else self

    def refusing(self, names: Collection[str]) -> Self:
        """The table, which now refuses these column names, in its head and in scans."""
        outer = self.format.outer_columns(self.source)
        self._refuse([name for name in names if name in self._head and name not in outer])
        return self._like(refused=(*self.refused, *names))

    def _refuse(self, there: Sequence[str]) -> None:
        if there:
            raise DataError(
                f"{self.name} already has a column {there[0]!r}",
                [Way("--replace", why="overwrites it"), Way("--column", why="gives another name", fill="NAME")],
            )

    def _like(self, **changes: Any) -> Self:
        """A changed table with the same names: what is known of its file is not read again."""
        made = replace(self, **changes)
        known = {"_head"} if "source" in changes else {"_head", "row_count"}
        for name in known & vars(self).keys():
            vars(made)[name] = vars(self)[name]
        return made

    def _scanned(self, fields: Sequence[Field]) -> Scanned:
        try:
            return self._scanned_as_is(fields)
        except Absent as error:
            head = next((head for head, _ in splits(error.column) if head in self._head), None)
            if head is None:
                raise
            texts = self._scanned_as_is([Field(head, "key")])
            wanted = next(field for field in fields if field.name == error.column)
            column = inside_of_texts(wanted, head, texts.frame[head], self.place)
            if column is None:
                raise
            others = self._scanned([field for field in fields if field is not wanted])
            columns = [column if field is wanted else others.frame[field.name] for field in fields]
            return others.with_frame(pl.DataFrame(columns), texts)

    def _scanned_as_is(self, fields: Sequence[Field]) -> Scanned:
        marks = () if self.schema is None else self.schema.marks  # only some rows may have them
        top_level = [mark.column for mark in marks if "." not in mark.column]
        watched = {*STEPS, *self.refused, *top_level}
        watched.difference_update(self.columns(), [field.name for field in fields])
        scanned = self.format.scan(self.source, fields, watched)
        self._refuse([name for name in self.refused if name in scanned.late_names])
        return scanned


@dataclass(frozen=True)
class FileTable(Table):
    """A table whose rows can also be written: the source is a pinned file."""

    format: Format


@dataclass(frozen=True, kw_only=True)
class Located:
    """Rows of tables, and where each of them came from."""

    tables: Sequence[Table]
    lengths: tuple[int, ...]  # rows of each table
    scans: Sequence[Scanned]  # the other results of reading each table
    rows: Index | None = None  # which rows of the tables, if not all
    over: OverTables = map  # fetches texts of prompts

    @cached_property
    def ends(self) -> Index:
        """Where the rows of each table end."""
        return np.cumsum(self.lengths)

    @cached_property
    def file(self) -> pl.Series:
        """The number of the file of every row."""
        if self.rows is not None:  # few of many, if a value of --plan-by has them
            return pl.Series("file", np.searchsorted(self.ends, self.rows, side="right").astype(np.uint32))
        return pl.Series("file", np.repeat(np.arange(len(self.tables), dtype=np.uint32), self.lengths))

    def place(self, row: int) -> str:
        """File and row, counted from 1."""
        return self.places([row])[0]

    def places(self, rows: Sequence[int]) -> list[str]:
        """The same of several rows; each file is read at most once for them."""
        spots, which = np.unique(self.places_of(np.array(rows, np.int64)), return_inverse=True)
        found = []
        for at, here in self.by_file(spots):
            found += self.tables[at].places(here.tolist())
        return [found[at] for at in which.tolist()]

    def places_of(self, rows: Index) -> Index:
        """The numbers of these rows among all rows of the tables."""
        return (rows if self.rows is None else self.rows[rows]).astype(np.int64, copy=False)

    def rows_of(self, file: int) -> tuple[Index, Index]:
        """The rows of a file: their numbers here, and in the file."""
        end = self.ends[file]
        start = end - self.lengths[file]
        span = (start, end) if self.rows is None else np.searchsorted(self.rows, [start, end])
        rows = np.arange(*span)
        return rows, self.places_of(rows) - start

    def by_file(self, places: Index) -> Iterator[tuple[int, Index]]:
        """For ascending rows of all tables: the number of each file that has some, and their numbers in it."""
        cuts = np.searchsorted(places, [0, *self.ends])
        for at in np.flatnonzero(np.diff(cuts)).tolist():
            start = self.ends[at] - self.lengths[at]
            yield at, places[cuts[at] : cuts[at + 1]] - start

    def texts_at(self, rows: Index, columns: Sequence[str], *, as_json: bool = True) -> Iterator[pl.DataFrame]:
        """The JSON texts, or the values, of columns at ascending rows, a few rows at a time.

        A line of JSON that lacks one has null; a Parquet file that lacks one is an error.
        """
        for at, here in self.by_file(self.places_of(rows)):
            wanted = Excerpt(self.scans[at].index, here, columns, as_json)
            yield from self.tables[at].rows(wanted)

    def records(self, rows: Index, columns: Sequence[str], *, as_json: bool = False) -> list[dict[str, Any]]:
        """The values, or the JSON texts, of columns at rows in any order; a record lacks the columns that its file lacks."""
        places, which = np.unique(self.places_of(rows), return_inverse=True)
        wanted = {}
        tables = []
        for at, here in self.by_file(places):
            tables.append(self.tables[at])
            wanted[self.tables[at].name] = Excerpt(self.scans[at].index, here, columns, as_json)
        parts = self.over(partial(_records, wanted=wanted), tables)
        found = [record for part in parts for record in part]
        return [found[at] for at in which.tolist()]

    @property
    def typed(self) -> bool:
        """Whether 1 and the text 1 differ in all files."""
        return all(table.typed for table in self.tables)


def _records(table: Table, wanted: Mapping[str, Excerpt]) -> list[dict[str, Any]]:
    return table.records(wanted[table.name])


def refuse_changed(tables: Sequence[Table]) -> None:
    """Stop if a file is no longer the one that was read."""
    for table in tables:
        table.source.check()


def whole(tables: Sequence[FileTable]) -> pl.DataFrame:
    """The files as one frame; its row i is row i of the narrow table."""
    schema = tables[0].schema
    if schema is not None and schema.layout != LONG:
        wrong = f"a record of a {schema.title} has several rollouts, but a frame needs one per row"
        raise UsageError(wrong, "grpo-adv writes them to a file")
    frames = [table.format.read(table.source) for table in tables]
    alike = in_one_type(frames, "give the files one by one", wide=True)
    return pl.concat(alike, how="diagonal_relaxed")


def in_one_type(frames: Sequence[pl.DataFrame], cure: str, *, wide: bool) -> list[pl.DataFrame]:
    """The frames with numeric columns of different types cast to a common type that keeps all values, or an error.

    `wide` allows integers of 128 bits, which no file has.
    """
    made = [*frames]
    for name in dict.fromkeys(name for frame in frames for name in frame.columns):
        parts = [frame[name] for frame in frames if name in frame.columns]
        found = {part.dtype for part in parts} - {pl.Null()}
        if len(found) < 2 or not all(dtype.is_numeric() for dtype in found):  # noqa: PLR2004 - two types differ
            continue
        common = _common_type(parts, wide=wide)
        if common is None:
            types = " and ".join(sorted(map(str, found)))
            what = f"{name} is {types} in different inputs"
            raise DataError(f"{what}, and no type of number holds all its values", cure)
        made = [frame.with_columns(frame[name].cast(common)) if name in frame.columns else frame for frame in made]
    return made


def _common_type(parts: Sequence[pl.Series], *, wide: bool) -> pl.DataType | None:
    without_rows = [part.clear().to_frame() for part in parts]
    common = pl.concat(without_rows, how="vertical_relaxed").to_series().dtype
    is_in_files = common not in {pl.Int128, pl.UInt128}
    for dtype in [common] if wide or is_in_files else [pl.Int64(), pl.UInt64()]:
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
    return sum(table.source.pin.size for table in tables)


def column_names(tables: Sequence[Table]) -> list[str]:
    """The column names of all tables."""
    return list(dict.fromkeys(name for table in tables for name in table.columns()))


# --- columns that a schema derives ---------------------------------------------------------------------------------

Scan = Callable[[Sequence[Field]], Scanned]

FILE = "@file"
PATH = "@path"
OWN = frozenset({FILE, PATH})


class DerivedColumns(NamedTuple):
    """The columns of a table, plus those that its schema derives from them."""

    schema: Schema
    path: str
    place: Place

    def scan(self, scan: Scan, fields: Sequence[Field]) -> Scanned:
        """The columns of these fields, including derived ones; `scan` reads columns of the file."""
        ways = [self._way(field) for field in fields]
        parts = _distinct([source for source, _ in ways if source.name not in OWN])
        scans = [scan(part) for part in parts]
        read = dict[Field, pl.Series]()
        for part, found in zip(parts, scans, strict=True):
            read |= {source: found.frame[source.name] for source in part}
        height = scans[0].frame.height
        columns = []
        for wanted, (source, made) in zip(fields, ways, strict=True):
            is_path = source.name in OWN
            values = pl.repeat(self.path, height, dtype=pl.String, eager=True) if is_path else read[source]
            columns.append(made(values).alias(wanted.name))
        frame = pl.DataFrame(columns or None, height=height)
        return scans[0].with_frame(frame, *scans)

    def _way(self, field: Field) -> tuple[Field, Callable[[pl.Series], pl.Series]]:
        """The column that is read for a column, and how the column is made of it."""
        derived = self.schema.derive.get(field.name)
        if derived is None:
            name = field.name.removeprefix(f"{self.schema.rows}.") if self.schema.rows else field.name
            if field.kind == "number" and self.schema.letters:
                return Field(name, "key"), lambda values: self._each(field.name, values, self._number)
            return Field(name, field.kind), lambda values: values
        if derived.total:
            return Field(derived.source, "numbers"), _totals
        source = Field(derived.source, "key")
        if derived.count:
            return source, lambda values: self._each(field.name, values, lambda value: float(len(value)))
        if not derived.value:
            return source, lambda texts: self._matched(derived, texts)
        as_is = derived.single and field.kind == "key"  # --map says which number it is
        of_parts = partial(self._of_parts, derived, as_is=as_is)
        return source, lambda values: self._each(derived.source, values, of_parts, as_is=as_is)

    def _number(self, value: Any) -> float | None:
        letter = self.schema.letters.get(value) if isinstance(value, str) else None
        return as_number(value) if letter is None else letter

    def _of_parts(self, made: Derived, value: Any, *, as_is: bool) -> Any:
        """The sum over the parts with a value, or the value of the only part; what the schema says, or None, if no part has one."""
        named = value if isinstance(value, dict) else dict(enumerate(value))
        if made.single and len(named) > 1:
            names = ", ".join(map(str, named))
            cure = f"choose one with --reward {made.source}.NAME.{made.value}"
            raise DataError(f"several could be the reward: {names}", cure)
        parts = [part if isinstance(part, dict) else {made.value: part} for part in named.values()]
        if as_is:
            return next((part.get(made.value) for part in parts), None)
        known = []
        for part in parts:
            number = self._number(part.get(made.value))
            if number is not None:
                weight = as_number(part.get(made.weight)) if made.weight else None
                known.append(number if weight is None else number * weight)
        return sum(known) if known else as_number(made.otherwise)

    def _each(self, name: str, column: pl.Series, number: Callable[[Any], Any], *, as_is: bool = False) -> pl.Series:
        """A number, or what it is read from, for every value that is not null."""
        is_json = isinstance(column.dtype, pl.Categorical)  # nested values, and values of several types
        numbers = []
        for row, stored in enumerate(column.to_list()):
            value = json.loads(stored) if is_json and stored is not None else stored
            try:
                numbers.append(None if value is None else number(value))
            except DataError as error:
                error.inside(self.place(row))
                raise
            except (ValueError, TypeError, AttributeError):
                wrong = f"{name} is {str(value)[:40]}, which the schema {self.schema.name} does not expect"
                cure = "name the column with --reward, or read the file without it: --schema none"
                raise DataError(wrong, cure, place=self.place(row)) from None
        return key_series(name, numbers) if as_is else pl.Series(name, numbers, dtype=pl.Float64)

    def _matched(self, made: Derived, column: pl.Series) -> pl.Series:
        """The part of each text that the pattern of the schema extracts."""
        text = column if column.dtype == pl.String else canonical(column)
        part = text.str.extract(made.pattern)
        if made.otherwise is not None:
            return part.fill_null(made.otherwise)
        unmatched = part.is_null() & text.is_not_null()
        if unmatched.any():
            row = unmatched.arg_max() or 0
            wrong = f"{made.source} is {text[row]!r}, which has no {made.means}"
            cure = "name the key with --group, or read the file without a schema: --schema none"
            raise DataError(wrong, cure, place=self.place(row))
        return part


def _totals(lists: pl.Series) -> pl.Series:
    """The sum of each list; null for lists that are null, empty or contain nulls."""
    length = lists.list.len()
    known = lists.list.drop_nulls().list.len()
    sums = where((length > 0) & (length == known), lists.list.sum())
    return sums.cast(pl.Float64)


def inside_of_texts(field: Field, head: str, texts: pl.Series, place: Place) -> pl.Series | None:
    """The column at a dotted path into texts that are JSON objects; None if no text has the field."""
    if texts.dtype != pl.String:
        return None
    parsed = {text: _parsed(text) for text in texts.drop_nulls().unique(maintain_order=True)}
    path = field.name.removeprefix(f"{head}.")
    found = {text: value_of(value, path) for text, value in parsed.items() if isinstance(value, dict)}
    if all(value is ABSENT for value in found.values()):
        return None
    if others := [text for text in parsed if text not in found]:
        wrong = f"{head} is {others[0][:40]!r}, expected a JSON object"
        row = (texts == others[0]).arg_max() or 0
        raise DataError(wrong, place=place(row))
    values = [None if (value := found.get(text)) is ABSENT else value for text in texts]
    if field.kind == "key":
        return key_series(field.name, values)
    return number_series(field, values, place)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except ValueError:
        return None


def _distinct(fields: Sequence[Field]) -> list[list[Field]]:
    """Divide the fields among scans, in each of which a name occurs once: a column read as two kinds takes two scans."""
    parts: dict[int, list[Field]] = {0: []}
    scans = Counter[str]()  # of each name
    for wanted in dict.fromkeys(fields):
        parts.setdefault(scans[wanted.name], []).append(wanted)
        scans[wanted.name] += 1
    return list(parts.values())
