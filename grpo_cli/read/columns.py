"""Read the columns: row i of each is row i of the inputs, file after file. Completions are never read here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Index
from grpo_cli.errors import DataError
from grpo_cli.files.inputs import Section
from grpo_cli.formats.interface import Scanned
from grpo_cli.read.group_keys import Coded, encode
from grpo_cli.read.known_names import STEPS
from grpo_cli.read.layout import numbers_inside, with_names
from grpo_cli.read.marks import Marked, marked
from grpo_cli.read.memory import refuse_beyond_memory
from grpo_cli.read.request import Request, choose, united
from grpo_cli.read.tables import SHOWN, KlField, Located, OverTables, Table, column_names, label
from grpo_cli.read.token_numbers import kl_column
from grpo_cli.schemas.table import MarkKind
from grpo_cli.values.cells import Field, as_number, bare_texts, joined_keys, where
from grpo_cli.values.paths import Absent, absent, is_there


class Texts:
    """Texts of some rows, read once for many parts of the rows: a file of text is read to its end for each reading.

    A column is read when the first part asks for it.
    """

    def __init__(self, read: Located, rows: Index) -> None:
        self._read = read
        self._rows = np.unique(rows)
        self._by_column = dict[str, dict[int, dict[str, Any]]]()

    def records(self, places: Index, column: str) -> list[dict[str, Any]]:
        """A record with the value for each of these rows of the tables."""
        if column not in self._by_column:
            records = self._read.records(self._rows, [column])
            places_read = self._read.places_of(self._rows).tolist()
            self._by_column[column] = dict(zip(places_read, records, strict=True))
        known = self._by_column[column]
        return [known[place] for place in places.tolist()]


@dataclass(frozen=True, kw_only=True)
class Columns(Located):
    """The columns that were read, and the request."""

    request: Request
    values: Mapping[str, pl.Series]  # without their names, which polars may take for patterns
    unused: Sequence[str] = ()  # texts of --map that no row has
    lacking: Sequence[str] = ()  # columns of a condition that no row has
    foreign: Index | None = None  # the rows of the tables that are no rollouts
    foreign_counts: Mapping[tuple[MarkKind, str, str], int] = field(default_factory=dict)  # see `Marked.counts`
    texts: Texts | None = None  # of the rows in which prompts are compared, if these are one of many parts

    def records(self, rows: Index, columns: Sequence[str], *, as_json: bool = False) -> list[dict[str, Any]]:
        """As of all located rows; texts that are known are not read again."""
        if self.texts is None or as_json or len(columns) > 1:
            return super().records(rows, columns, as_json=as_json)
        return self.texts.records(self.places_of(rows), columns[0])

    @property
    def height(self) -> int:
        """How many rows were read."""
        return sum(self.lengths) if self.rows is None else len(self.rows)

    @cached_property
    def marked(self) -> Marked | None:
        """The rows that do not count like others; None if all do."""
        layout = self.request.layout
        return marked(layout.marks, layout.reasons, self.values, typed=self.typed)

    @property
    def left_out(self) -> pl.Series | None:
        """The rows that are left out of their groups; None if there are none."""
        if self.marked is None or not (rows := self.marked.of_kind("left_out")).any():
            return None
        return rows

    def rewards(self) -> list[pl.Series]:
        """The reward columns; null in rows that are left out of their groups."""
        rewards = [self.values[name] for name in self.request.rewards]
        left_out = self.left_out
        if left_out is None:
            return rewards
        return [where(~left_out, reward) for reward in rewards]

    def coded(self, names: Sequence[str]) -> Coded:
        """The rows numbered by these columns."""
        return encode([self.values[name] for name in names], self.height)

    def without_foreign(self) -> Columns:
        """The columns of rollouts: rows that are none, such as those of a judge, are in no group."""
        if self.marked is None or not (foreign := self.marked.of_kind("foreign")).any():
            return self
        places = foreign.arg_true().to_numpy()
        others = self.marked.at(places).counts()
        if foreign.all():
            why = ", ".join(f"{mark} in {rows:,}" for (_, mark, _), rows in others.items())
            cure = "--schema none with --group and --reward reads every row"
            raise DataError(f"{self.tables[0].name}: no row is a rollout: {why}", cure)
        rollouts = self.at((~foreign).arg_true().to_numpy())
        return replace(rollouts, foreign=places, foreign_counts=others)

    def at(self, places: Index) -> Columns:
        """Only the rows at these places."""
        values = {name: column.gather(places) for name, column in self.values.items()}
        return replace(self, values=values, rows=self.places_of(places))

    def cut(self, rows: slice) -> Columns:
        """Only these consecutive rows; nothing is copied."""
        values = {name: column[rows] for name, column in self.values.items()}
        return replace(self, values=values, rows=self.places_of(np.arange(rows.start, rows.stop)))

    def logged_advantages(self, name: str) -> pl.Series | None:
        """The logged advantages; None if there are none or they are not plain numbers."""
        logged = self.values.get(name)
        return logged if logged is not None and logged.dtype == pl.Float64 else None

    def under(self, **changed: Any) -> Columns:
        """The same columns under other flags, which must not need further columns."""
        old = self.request
        return replace(self, request=choose(old.layout.under(**changed), old.plan, warn=old.warn))

    def read(self, name: str) -> pl.Series:
        """A further key column, read now if it was not; null where a file lacks it."""
        if name in self.values:
            return self.values[name]
        task = ReadColumns([Field(name, "key")], {name})
        tables = [scanned.frame.to_dict() for scanned in self.over(task, self.tables)]
        column = _taken(tables, name, self.lengths)
        return column if self.rows is None else column.gather(self.rows)

    def label(self, row: int) -> str:
        """The key of a row, for messages."""
        names = dict.fromkeys((*self.request.rule.within_columns, *self.request.key))
        return label(pl.DataFrame({name: self.values[name] for name in names}), row, row)


def read_columns(request: Request, over: OverTables = map) -> Columns:
    """Read the columns of a request; `over` reads each table.

    Step-like columns also separate groups if they first occur late in a file: if the scan finds such a column, all is read again.
    """
    tables = request.layout.tables
    refuse_beyond_memory(tables, len(request.fields))
    task = ReadColumns(request.fields, request.optional, request.sought)
    try:
        scans = list(over(task, tables))
    except Absent as error:
        having = [table.name for table in tables if error.column in table.columns()]
        if having:
            cure = f"it is in {len(having):,} of {len(tables):,} files, such as {having[0]}: give only these"
            raise Absent.of(error.column, error.place, [cure]) from None
        if error.column in request.rewards:
            raise Absent.of(error.column, error.place, [*error.cures, *numbers_inside(tables)]) from None
        raise
    frames = [scanned.frame for scanned in scans]
    lengths = tuple(map(len, frames))
    tables = [table.knowing(scanned.late_names) for table, scanned in zip(tables, scans, strict=True)]
    late = with_late_names(request, column_names(tables))
    if late is not None:
        known = replace(late.layout, tables=tables)
        return read_columns(replace(late, layout=known), over)
    if not sum(lengths):
        raise DataError(f"{tables[0].name}: no rows", "there is nothing to compute")
    by_name = [frame.to_dict() for frame in frames]
    lacking = [name for name in request.sought if not any(name in table for table in by_name)]
    scans = [replace(scanned, frame=pl.DataFrame()) for scanned in scans]
    del frames  # a column is freed when it has been joined: only one is in memory twice
    values = {field.name: _taken(by_name, field.name, lengths) for field in request.fields}
    columns = Columns(
        request=request, tables=tables, lengths=lengths, values=values, scans=scans, over=over, lacking=lacking
    )
    return _with_outcomes(columns).without_foreign()


def with_late_names(request: Request, names: Iterable[str]) -> Request | None:
    """The request with the names that the scan found; None if there is nothing more to read."""
    known = dict.fromkeys(request.layout.names)
    late = [name for name in names if name not in known]
    marks = {name for mark in request.layout.marks for name in mark.columns}
    if not {*STEPS, *marks} & {*late}:
        return None
    if request.parts:
        parts = {name: with_late_names(part, names) or part for name, part in request.parts.items()}
        return united(parts, request.by)
    return choose(with_names(request.layout, [*known, *late]), request.plan, warn=request.warn)


@dataclass(frozen=True)
class ReadColumns:
    """A task that reads columns of a table, or of a section of its file."""

    fields: Sequence[Field]
    optional: Collection[str]  # a table may lack these
    sought: Collection[str] = ()  # of these, those that may be in any row

    def __call__(self, table: Table) -> Scanned:
        """Read the columns; in a section, missing columns are null."""
        made = [field for field in self.fields if isinstance(field, KlField)]
        fields = [field for field in self.fields if field not in made]
        is_part = isinstance(table.source, Section)
        optional = {field.name for field in fields} if is_part else {*self.optional}
        scanned = self._scanned(table, fields, optional)
        frame = scanned.frame
        frame = frame.with_columns(kl_column(field, table, scanned.index, frame.height) for field in made)
        if is_part:
            missing = [field.name for field in self.fields if field.name not in frame.columns]
            frame = frame.with_columns(pl.lit(None).alias(name) for name in missing)
        return scanned.with_frame(frame)

    def _scanned(self, table: Table, fields: Sequence[Field], optional: set[str]) -> Scanned:
        """The fields without `optional` ones that are missing: those that no head shows, unless they are `sought`."""
        heads = {*table.columns(), *self.sought}
        missing = {name for name in optional if not is_there(name, heads)}
        while True:
            try:
                return table.scan([field for field in fields if field.name not in missing])
            except Absent as error:
                if error.column not in optional - missing:
                    raise
                missing.add(error.column)

    def joined(self, table: Table, parts: Sequence[Scanned]) -> Scanned:
        """Join the sections of a file; a column that no section has is an error unless it is optional."""
        columns = []
        for wanted in self.fields:
            name = wanted.name
            found = [part.frame[name] for part in parts]
            if all(part.dtype == pl.Null for part in found) and name not in table.columns():
                if name not in self.optional:
                    raise absent(name, table.name, table.columns())
                continue
            column = joined_keys(name, found)
            columns.append(column if wanted.kind == "key" else column.rechunk())
        index = list(chain.from_iterable(part.index for part in parts))
        late_names = frozenset[str]().union(*(part.late_names for part in parts))
        empty = sum(part.empty for part in parts)
        return Scanned(pl.DataFrame(columns), index, late_names, empty)


def _taken(tables: Sequence[dict[str, pl.Series]], name: str, lengths: Sequence[int]) -> pl.Series:
    """Take a column out of all tables, which may have it in different types; null where a table lacks it."""
    parts = []
    for table, length in zip(tables, lengths, strict=True):
        if name in table:
            parts.append(table.pop(name))
        else:
            parts.append(pl.Series([None] * length, dtype=pl.Null))
    column = parts[0] if len(parts) == 1 else joined_keys(name, parts).rechunk()
    return column.alias("")


def _with_outcomes(columns: Columns) -> Columns:
    """The columns with texts as rewards converted to numbers by --map; an unknown text is an error."""
    outcomes = columns.request.binding.outcomes
    if not outcomes:
        return columns
    numbers = {_float(text): text for text in outcomes}
    counted = {}
    used = set()
    for name in columns.request.rewards:
        column = columns.values[name]
        rewards = dict(outcomes)  # of every text that is there
        texts = bare_texts(column)
        for text in texts.drop_nulls().unique(maintain_order=True):
            number = _float(text)
            bare = text.strip()
            named = text if text in outcomes else bare if number is None else numbers.get(number, text)  # 1.0 is 1
            used.add(named)
            try:
                rewards[text] = outcomes[named] if named in outcomes else as_number(text)
            except ValueError:
                row = (texts == text).arg_max() or 0
                shown = text[:SHOWN]
                wrong = f"{columns.place(row)}: {name} is {shown!r}, which --map does not name"
                pair = f'"{shown}=NUMBER"' if "," in text else f"{shown}=NUMBER"
                raise DataError(wrong, f"add its value: --map '{pair}', nan for no reward") from None
        counted[name] = texts.replace_strict(rewards, return_dtype=pl.Float64)
    unused = tuple(text for text in outcomes if text not in used)
    return replace(columns, values={**columns.values, **counted}, unused=unused)


def _float(text: str) -> float | None:
    try:
        return None if "_" in text or not text.isascii() else float(text)
    except ValueError:
        return None
