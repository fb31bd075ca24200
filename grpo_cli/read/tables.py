"""Tables with named columns, the narrow table made of them, and the binding that says how."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, Protocol

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, UnknownName
from grpo_cli.formats.cells import typed
from grpo_cli.formats.interface import Field
from grpo_cli.formats.paths import Absent, splits
from grpo_cli.read.derived_columns import DerivedColumns, inside_of_texts
from grpo_cli.read.known_names import STEP_LIKE
from grpo_cli.schemas.sample import values_of
from grpo_cli.schemas.table import words

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.interface import Format, Kind
    from grpo_cli.read.group_keys import Coded
    from grpo_cli.read.warnings import Draws
    from grpo_cli.schemas.table import Schema

SHOWN: Final = 40  # characters of a key in a message
EXPLODE: Final = "make a row of each item first (frame.explode), and name the column of the record with group="


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Which columns play which part; what a user says with flags, without a word of arithmetic."""

    group: tuple[str, ...] = ()
    group_size: int | None = None
    partial: Literal["error", "keep", "drop"] = "error"
    expect_size: int | None = None
    group_within: str | None = None
    batch_by: str | None = None
    rewards: tuple[str, ...] = ()
    outcomes: Mapping[str, float] = field(default_factory=dict)  # what texts in the place of a reward count as
    roles: Mapping[str, str] = field(default_factory=dict)
    carried: Mapping[str, Kind] = field(default_factory=dict)  # columns that come along, without a part to play
    singletons_meant: bool = False
    schema: str | None = None  # the name of one, or "none"; without it detected
    compare_prompts: bool = True  # a stream would do so for every block

    @property
    def batch_names(self) -> list[str]:
        """The parts of --batch-by: columns, `file` or `input`."""
        return [] if self.batch_by is None else [name.strip() for name in self.batch_by.split(",")]


class Table(Protocol):
    """Anything with named columns and rows: a file or a frame."""

    @property
    def name(self) -> str:
        """How messages call it."""

    def columns(self) -> list[str]:
        """All top-level names."""

    def scan(self, fields: Sequence[Field]) -> pl.DataFrame:
        """The columns of these fields, row i being row i."""

    def place(self, row: int) -> str:
        """How messages call a row."""


@dataclass(frozen=True)
class FileTable:
    """A pinned file and the format that reads it; its schema, once that has been detected."""

    source: Input
    format: Format
    schema: Schema | None = None
    left_out: tuple[int, ...] = ()  # lines of the file that were left out before it was read

    @property
    def name(self) -> str:
        """The file as the user named it."""
        return self.source.name

    def row_count(self) -> int | None:
        """How many rows the file has; None when only a scan would tell."""
        return self.format.row_count(self.source)

    def place(self, row: int) -> str:
        """A row (0 = the first) as a person finds it: by its line in a file of lines."""
        return self.format.place(self.source, row, self.left_out)

    @cached_property
    def _columns(self) -> dict[str, None]:
        return dict.fromkeys(self.format.columns(self.source))

    @cached_property
    def _refused(self) -> set[str]:
        return set()

    def of_schema(self, schema: Schema, format_: Format) -> FileTable:
        """The file as a schema reads it; what no row may hold stays refused."""
        made = replace(self, schema=schema, format=format_)
        made.refuse(self._refused)
        return made

    def of_source(self, source: Input) -> FileTable:
        """The same table where the file, or a section of it, is read by other means; its columns are known."""
        made = replace(self, source=source)
        vars(made).update(_columns=dict(self._columns), _refused={*self._refused})
        return made

    def columns(self) -> list[str]:
        """All top-level names; of JSON lines those that some rows show, and after a scan each that was watched for."""
        return list(self._columns)

    def refuse(self, names: Collection[str]) -> None:
        """Let no row hold one of these names, neither those that are known by now nor those that a scan finds."""
        outer = self.format.outer_columns(self.source)
        there = [name for name in names if name in self._columns and name not in outer]
        if there:
            raise DataError(
                f"{self.name} already has a column {there[0]!r}",
                "--replace computes it anew, --column NAME writes another one",
            )
        self._refused.update(names)

    def scan(self, fields: Sequence[Field]) -> pl.DataFrame:
        """The columns of these fields; the schema may make some of them of others."""
        if self.schema is None:
            return self._scanned(fields)
        return DerivedColumns(self.schema, self.name, self.place).scan(self._scanned, fields)

    def _scanned(self, fields: Sequence[Field]) -> pl.DataFrame:
        try:
            return self._scanned_as_is(fields)
        except Absent as error:
            head, rest = next((cut for cut in splits(error.column) if cut[0] in self._columns), ("", ""))
            if not head:
                raise
            path = f"{head}[].{rest}"
            if any(True for record in self.format.sample(self.source) for _ in values_of(record, path)):
                error.hint = f"{head} is a list of objects: write '{path}'"
                raise
            texts = self._scanned_as_is([Field(head, "key")])[head]
            wanted = next(one for one in fields if one.name == error.column)
            column = inside_of_texts(wanted, head, texts, self.place)
            if column is None:
                raise
            others = self._scanned([one for one in fields if one is not wanted])
            return pl.DataFrame([column if one is wanted else others[one.name] for one in fields])

    def _scanned_as_is(self, fields: Sequence[Field]) -> pl.DataFrame:
        watched = {*STEP_LIKE, *self._refused} - {*self._columns, *(field.name for field in fields)}
        frame, late = self.format.scan_watching(self.source, fields, watched)
        self.add_names(sorted(late))
        self.refuse(self._refused)
        return frame

    def add_names(self, names: Iterable[str]) -> None:
        """Names that some rows have turned out to hold."""
        self._columns.update(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class FrameTable:
    """A frame that is already in memory: its names, and how to take some of its columns."""

    names: Sequence[str]
    take: Callable[[list[str]], pl.DataFrame]
    name: str = "frame"
    head: Callable[[str, int], pl.DataFrame] | None = None  # the first values of a column, without reading the others
    texts: Sequence[str] = ()  # columns of text that are there already, so that their head costs nothing

    def columns(self) -> list[str]:
        """The frame's columns."""
        return list(self.names)

    def scan(self, fields: Sequence[Field]) -> pl.DataFrame:
        """The columns of these fields, dotted paths reaching into structs."""
        heads = {one.name: one.name if one.name in self.names else one.name.split(".")[0] for one in fields}
        for name, head in heads.items():
            if head not in self.names:
                raise UnknownName.among("column", name, self.names)
        frame = self.take(list(dict.fromkeys(heads.values())))
        columns = [(one, self._reach(frame, one.name, heads[one.name])) for one in fields]
        for one, series in columns:
            if one.kind == "number" and isinstance(series.dtype, (pl.List, pl.Array)):
                raise DataError(f"{one.name} holds lists, and a frame has one number a row", EXPLODE)
        return pl.DataFrame([typed(one, series, self.place) for one, series in columns])

    def _reach(self, frame: pl.DataFrame, name: str, head: str) -> pl.Series:
        series = frame[head]
        for part in name.removeprefix(head).split(".")[1:]:
            try:
                series = series.struct.field(part)
            except pl.exceptions.PolarsError:
                found = inside_of_texts(Field(name, "key"), head, frame[head], self.place)
                if found is not None:
                    return found
                raise DataError(f"{self.name} has no field {name!r}", f"{head} is {series.dtype}") from None
        return series

    def place(self, row: int) -> str:
        """How messages call a row."""
        return f"{self.name} row {row + 1}"


@dataclass(frozen=True, kw_only=True)
class Narrow:
    """The narrow table, and how it was made. `rows` are its rows in the input, where some were left out."""

    table: pl.DataFrame
    tables: Sequence[Table]
    lengths: tuple[int, ...]
    groups: Coded
    key: pl.DataFrame  # one line per group: of millions of rows the text of a key is the largest part
    batches: int
    group_names: tuple[str, ...]
    reward_names: tuple[str, ...]
    batch_name: str
    roles: Mapping[str, str]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    rows: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None
    carried: pl.DataFrame = field(default_factory=pl.DataFrame)  # row by row as `table`
    schema: str | None = None  # its title
    declared_unscorable: pl.Series | None = None  # rows of which the schema says that they have no reward
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None  # of the rows, where these are a part of all rows
    draws: Draws | None = None  # what shows whether groups are several in one, where that is looked for
    cut_size: int | None = None  # of the blocks that groups were cut into since the logged advantages say so
    outcomes: Mapping[str, float] = field(default_factory=dict)  # what texts in the place of a reward count as

    @property
    def read_names(self) -> set[str]:
        """The columns that the arithmetic reads."""
        return {*self.group_names, *self.reward_names, *self.roles.values()}

    @property
    def key_words(self) -> tuple[str, ...]:
        """The columns of the key as messages call them."""
        return tuple(map(words, self.group_names))

    @cached_property
    def ends(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Where each file's rows end."""
        return np.cumsum(self.lengths)

    def files(self) -> pl.Series:
        """The name of the file of every row."""
        names = pl.Series("file", [one.name for one in self.tables])
        names = names.gather(np.repeat(np.arange(len(self.tables)), self.lengths))
        return names if self.rows is None else names.gather(self.rows)

    def place(self, row: int) -> str:
        """File and row as a person counts them."""
        file, inside = self.within(row)
        return self.tables[file].place(inside)

    def spot(self, row: int) -> tuple[str, int]:
        """The name of the file and the number of the row in it (1 = the first), which costs no reading."""
        file, inside = self.within(row)
        return self.tables[file].name, inside + 1

    def within(self, row: int) -> tuple[int, int]:
        """The number of the file, and of the row in it (0 = the first)."""
        row = row if self.rows is None else int(self.rows[row])
        file = int(np.searchsorted(self.ends, row, side="right"))
        return file, row - (int(self.ends[file - 1]) if file else 0)

    def label(self, code: int) -> str:
        """A group's key in words."""
        row = int(self.groups.first[code])
        return label(self.key, code, row if self.numbers is None else int(self.numbers[row]))


def broken(tables: Sequence[Table]) -> tuple[str, ...]:
    """A warning for each file of which lines were left out."""
    return tuple(
        f"{one.name}: {len(one.left_out)} {'line is' if len(one.left_out) == 1 else 'lines are'} no JSON object and left out "
        f"(line {', '.join(map(str, one.left_out[:3]))}{', ...' if len(one.left_out) > 3 else ''})"  # noqa: PLR2004
        for one in tables
        if isinstance(one, FileTable) and one.left_out
    )


def without_rollouts(names: Sequence[str], counts: Sequence[int]) -> tuple[str, ...]:
    """A warning for each file with so many records that have no rollouts: an empty list, null, or no such member."""
    pairs = zip(names, counts, strict=True)
    return tuple(f"{name}: {n:,} {'record has' if n == 1 else 'records have'} no rollouts" for name, n in pairs if n)


def label(key: pl.DataFrame, at: int, row: int) -> str:
    """A line of keys in words, short enough for a message; a block without a key is called by its first row."""
    texts = [str(value) for value in key.row(at)] if key.width else [f"block at row {row + 1}"]
    return ", ".join(text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..." for text in texts)
