"""Records with lists of rollouts: a record per prompt (wide), per batch (columnar), or lists with one item.

The format of the file reads the records; here their lists become rows, and new columns become lists again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.files.inputs import Input
from grpo_cli.formats.interface import (
    ADD_LONG,
    Compared,
    Format,
    Index,
    InRecords,
    PartOfRecord,
    Record,
    Scanned,
    Weaving,
)
from grpo_cli.values import cells
from grpo_cli.values.cells import Excerpt, Field
from grpo_cli.values.chat import is_message
from grpo_cli.values.json_text import items_of
from grpo_cli.values.paths import PARENT
from grpo_cli.values.slices import Ints
from grpo_cli.values.token_lists import cut, lengths, with_lists

# Share of the records whose lists have an item per rollout, at least: if items are texts or objects, and if they are numbers.
MOST_TEXTS = 0.5
MOST_NUMBERS = 0.9
_NUMBERS = r"\[\s*-?\d"


class _Facts(NamedTuple):
    """Facts of the records: their own index, the number of rollouts of each, and which have no list of rewards."""

    base: Index
    sizes: Ints
    null: np.ndarray


@dataclass(frozen=True)
class Lists(InRecords):
    """The format of the records, the columns whose lists are the rollouts, and whether keys are in lists as well.

    Of columns in `keys`, every list has an item per rollout; another column is split if all of its lists fit.
    """

    base: Format
    items: tuple[str, ...]
    keys_too: bool
    keys: frozenset[str] = frozenset()

    @property
    def record(self) -> Record:
        return self.base.record

    def columns(self, source: Input) -> list[str]:
        return self.base.columns(source)

    def sample(self, source: Input) -> Sequence[Mapping[str, Any]]:
        return self.base.sample(source)

    def parts(self, source: Input) -> Iterator[pl.DataFrame]:
        yield self.base.read(source)

    def write_parts(self, parts: Iterator[pl.DataFrame], sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        self.base.write_parts(parts, sink, metadata)

    def compared(self, new: Input, old: Input, added: Collection[str]) -> Compared:
        return self.base.compared(new, old, added)

    def scan(self, source: Input, fields: Sequence[Field], watched: Collection[str] = ()) -> Scanned:
        wanted = {field.name: replace(field, kind="numbers") if field.kind == "number" else field for field in fields}
        wanted |= {name: Field(name, "numbers") for name in self.items}
        wanted.pop(PARENT, None)
        scanned = self.base.scan(source, list(wanted.values()), watched)
        records = scanned.frame
        sizes = self._sizes(source, records)
        if not sizes.sum():
            raise DataError(f"{source.name}: no rows", f"no record has {' or '.join(self.items)}")
        null = np.logical_and.reduce([records[name].is_null().to_numpy() for name in self.items])
        record_of = _records_of(sizes)
        columns = []
        for field in fields:
            if field.name == PARENT:
                columns.append(pl.Series(PARENT, record_of, dtype=pl.Int64))
            elif field.kind == "number":
                column = records[field.name]
                self._refuse_otherlengths(source, field.name, lengths(column), sizes, column)
                columns.append(_spread(field.name, column, sizes))
            elif field.kind == "key" and (self.keys_too or field.name in self.keys):
                columns.append(self._keys(source, field.name, records[field.name], sizes))
            else:
                columns.append(records[field.name][record_of].alias(field.name))
        index = _Facts(scanned.index, sizes, null)
        frame = pl.DataFrame(columns or None, height=len(record_of))
        empty = int((sizes == 0).sum())
        return Scanned(frame, index, scanned.late_names, empty)

    def _sizes(self, source: Input, records: pl.DataFrame) -> Ints:
        """The number of rollouts of each record: the length of its longest list of rewards; 0 if all are null."""
        sizes = np.stack([lengths(records[name]) for name in self.items])
        most: Ints = sizes.max(axis=0)
        for name, here in zip(self.items, sizes, strict=True):
            self._refuse_otherlengths(source, name, here, most, records[name])
        return most

    def _refuse_otherlengths(
        self, source: Input, name: str, here: Ints, most: Ints, column: pl.Series, *, single: bool = True
    ) -> None:
        """Refuse lists of another length than the record's; with `single` one value may count for all."""
        wrong = (here != most) & ~((here == 1) & single) & column.is_not_null().to_numpy()
        if wrong.any():
            at = int(np.argmax(wrong))
            has = f"{name} has {here[at]} values, {' or '.join(self.items)} {most[at]}"
            raise DataError(
                f"{self.base.places(source, [at])[0]}: {has}", "all lists of a record must have the same length"
            )

    def _keys(self, source: Input, name: str, column: pl.Series, sizes: Ints) -> pl.Series:
        must_fit = name in self.keys or "[]" in name
        as_is = column.gather(_records_of(sizes))
        values = []
        if isinstance(column.dtype, pl.List):
            here = lengths(column)
        elif column.dtype == cells.JSON_TEXT:
            records = [None if text is None else json.loads(text) for text in column]
            for value, size in zip(records, sizes.tolist(), strict=True):
                values.append(value if isinstance(value, list) else [value] * size)
            here = np.array(list(map(len, values)))
        else:
            return as_is
        if not must_fit and ((here != sizes) & column.is_not_null().to_numpy()).any():
            return as_is
        self._refuse_otherlengths(source, name, here, sizes, column, single=False)
        return cells.key_series(name, list(chain.from_iterable(values))) if values else _spread(name, column, sizes)

    def places(self, source: Input, rows: Sequence[int]) -> list[str]:
        """Rollouts in messages: by their record, and their number in the record."""
        sizes = self._known(source, None).sizes
        ends = np.cumsum(sizes)
        records = np.searchsorted(ends, rows, side="right")
        inside = rows - (ends - sizes)[records]
        wheres = self.base.places(source, records.tolist())
        return [f"{where}, rollout {at + 1}" for where, at in zip(wheres, inside.tolist(), strict=True)]

    def _known(self, source: Input, index: _Facts | None) -> _Facts:
        """The facts that the scan found; without a scan the file is read for them."""
        return self.scan(source, ()).index if index is None else index

    def rows(self, source: Input, wanted: Excerpt) -> Iterator[pl.DataFrame]:
        """Some columns of single rollouts: lists with an item per rollout are split, all else is repeated.

        A list of another length in such a column is not split: its rollouts have no value.
        """
        known = self._known(source, wanted.index)
        sizes = known.sizes
        if wanted.lists:
            wanted = wanted._replace(as_json=True)
        apart = self.of_rollouts(source, known, wanted.columns)
        ends = np.cumsum(sizes)
        record_of = np.searchsorted(ends, wanted.numbers, side="right")
        inside = wanted.numbers - (ends - sizes)[record_of]
        records = np.unique(record_of)
        done = 0
        for frame in self.base.rows(source, Excerpt(known.base, records, wanted.columns, as_json=True)):
            these = records[done : done + len(frame)]
            done += len(frame)
            first, last = np.searchsorted(record_of, [these[0], these[-1] + 1])
            at = np.searchsorted(these, record_of[first:last]).tolist()
            found = []
            for name in wanted.columns:
                record_cells = list[Any]()
                for record, text in zip(these, frame[name], strict=True):
                    size = int(sizes[record])
                    record_cells.append(_items(text, size) if name in apart else [text] * size)
                each = [record_cells[record][k] for record, k in zip(at, inside[first:last].tolist(), strict=True)]
                found.append(each if wanted.as_json else [None if text is None else json.loads(text) for text in each])
            yield cells.frame_of_rows(zip(*found, strict=True), wanted)

    def of_rollouts(self, source: Input, index: _Facts, columns: Sequence[str]) -> set[str]:
        fits: dict[str, list[bool]] = {name: [] for name in columns}
        done = 0
        sizes = index.sizes
        numbers = set[str]()
        for frame in self.base.rows(source, Excerpt(index.base, np.arange(len(sizes)), columns, as_json=True)):
            here = sizes[done : done + len(frame)].tolist()
            done += len(frame)
            for name in columns:
                texts = zip(frame[name], here, strict=True)
                fits[name] += [_is_item_each(text, size) for text, size in texts if text is not None and size]
            numbers |= {name for name in columns if any(re.match(_NUMBERS, text or "") for text in frame[name])}
        # A column has an item per rollout by the records whose lists have as many items: a few match by chance, and lists of
        # numbers, such as the tokens of a prompt, more often.
        least = {name: MOST_NUMBERS if name in numbers else MOST_TEXTS for name in columns}
        return {name for name, found in fits.items() if found and sum(found) >= least[name] * len(found)}

    def weave(self, source: Input, index: _Facts | None, sink: BinaryIO, weaving: Weaving) -> Sequence[str]:
        """Put the new columns into the records as lists."""
        known = self._known(source, index)
        return self.base.weave(source, known.base, sink, self.records(source, known, weaving))

    def records(self, source: Input, index: _Facts | None, weaving: Weaving) -> Weaving:
        _, sizes, null = self._known(source, index)
        take = None
        if weaving.take is not None:
            take = _whole_records(source, weaving.take, sizes)
            sizes, null = sizes[take], null[take]
        lists = [_listed(series, sizes, null) for series in with_lists(weaving.added)]
        added = pl.DataFrame(lists or None, height=len(sizes))
        return replace(weaving, added=added, take=take)

    def long(self, source: Input) -> pl.DataFrame:
        """A row per rollout: lists with the record's length are split, all else is repeated."""
        rewards = self.scan(source, [Field(name, "number") for name in self.items])
        sizes = rewards.index.sizes
        record_of = _records_of(sizes)
        records = self.base.read(source)
        apart = self.of_rollouts(source, rewards.index, records.columns)
        columns = []
        for series in records:
            lists = series.arr.to_list() if isinstance(series.dtype, pl.Array) else series
            if series.name in self.items:
                columns.append(rewards.frame[series.name])
            elif series.name in apart and isinstance(lists.dtype, pl.List):
                here = np.where(sizes, lengths(lists), 0)  # a record without rollouts has no rows
                self._refuse_otherlengths(source, series.name, here, sizes, lists, single=False)
                columns.append(_spread(series.name, lists, sizes))
            else:
                columns.append(series[record_of])
        return pl.DataFrame(columns)


def _spread(name: str, lists: pl.Series, sizes: Ints) -> pl.Series:
    """Values of lists as rows; a single value of a record is repeated in all its rows, a missing value is null."""
    here = lengths(lists)
    length = np.repeat(here, sizes)
    start = np.repeat(np.cumsum(here) - here, sizes)
    inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    at = pl.Series(start + np.where(length == 1, 0, inside))
    at = cells.where(pl.Series(length > 0), at)
    return lists.drop_nulls().explode(empty_as_null=False).gather(at).alias(name)


def _listed(series: pl.Series, sizes: Ints, null: np.ndarray) -> pl.Series:
    lists = cut(series.to_arrow(compat_level=pl.CompatLevel.oldest()), sizes)
    return cells.where(pl.Series(~null), lists).alias(series.name)


def _records_of(sizes: Ints) -> Ints:
    """The record of each rollout."""
    return np.repeat(np.arange(len(sizes)), sizes)


def _whole_records(source: Input, take: Ints, sizes: Ints) -> Ints:
    """The records of these rows, which have to be complete and in order."""
    record = _records_of(sizes)[take]
    records: Ints = record[np.diff(record, prepend=-1) != 0]
    starts = np.cumsum(sizes) - sizes
    whole = [take[:0], *(np.arange(starts[at], starts[at] + sizes[at]) for at in records)]
    if not np.array_equal(np.concatenate(whole), take):
        raise PartOfRecord(f"{source.name}: rows are dropped from the middle of records", ADD_LONG)
    return records


def _is_item_each(text: str, size: int) -> bool:
    """Whether the JSON text of a cell has an item per rollout; a chat is a single value, however many turns it has."""
    if not text.startswith("["):
        return False
    items = [json.loads(item) for item in items_of(text)]
    return len(items) == size and not any(map(is_message, items))


def _items(text: str | None, size: int) -> Sequence[str | None]:
    """The JSON texts of the items of a record's list, one per rollout; all None if it has another number of items."""
    items = items_of(text) if text is not None and text.startswith("[") else []
    return [None if item == "null" else item for item in items] if len(items) == size else [None] * size
