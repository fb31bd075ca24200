"""Records that hold lists of rollouts: one record per prompt (wide), per batch (columnar), or lists of one.

The records are read by the format of the file; here their lists become rows, and new columns become lists again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np
import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.formats import cells
from grpo_cli.formats.column_types import series_of
from grpo_cli.formats.interface import PARENT, Field, Format, PartOfRecord
from grpo_cli.formats.json_text import items_of
from grpo_cli.formats.token_lists import with_lists

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.interface import Compared, Weaving

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]

_LONG: Final = "the rows of one record stay together in its own layout: add --long"


@dataclass(frozen=True)
class Lists(Format):
    """The format of the records, the columns whose lists are the rollouts, and whether keys are in lists as well."""

    base: Format
    items: tuple[str, ...]
    keys_too: bool

    nested = True

    @property
    def binary(self) -> bool:
        """As the records are written."""
        return self.base.binary

    @property
    def watches(self) -> bool:
        """As the records are read."""
        return self.base.watches

    def columns(self, source: Input) -> list[str]:
        """Names in the records."""
        return self.base.columns(source)

    def sample(self, source: Input) -> Sequence[Mapping[str, Any]]:
        """The first few records."""
        return self.base.sample(source)

    def read(self, source: Input) -> pl.DataFrame:
        """One row per record, its lists as lists."""
        return self.base.read(source)

    def write(self, frame: pl.DataFrame, sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        """Write a fresh file of the records' format."""
        self.base.write(frame, sink, metadata)

    def compared(self, new: Input, old: Input, added: Collection[str]) -> Compared:
        """Compare as the records' format does."""
        return self.base.compared(new, old, added)

    def scan(self, source: Input, fields: Sequence[Field]) -> pl.DataFrame:
        """One column per field, one row per rollout."""
        return self.scan_watching(source, fields, ())[0]

    def scan_watching(
        self, source: Input, fields: Sequence[Field], watched: Collection[str]
    ) -> tuple[pl.DataFrame, frozenset[str]]:
        """Scan, and tell which of the watched names some record holds."""
        wanted = {one.name: replace(one, kind="numbers") if one.kind == "number" else one for one in fields}
        wanted |= {name: Field(name, "numbers") for name in self.items}
        wanted.pop(PARENT, None)
        records, late = self.base.scan_watching(source, list(wanted.values()), watched)
        sizes = self._sizes(source, records)
        if not sizes.sum():
            raise DataError(f"{source.name}: no rows", f"no record has {' or '.join(self.items)}")
        source.empty_records[:] = [int((sizes == 0).sum())]
        record_of = np.repeat(np.arange(len(sizes)), sizes)
        columns = []
        for one in fields:
            if one.name == PARENT:
                columns.append(pl.Series(PARENT, record_of, dtype=pl.Int64))
            elif one.kind == "number":
                columns.append(self._numbers(source, one.name, records[one.name], sizes))
            elif one.kind == "key" and (self.keys_too or "[]" in one.name):
                columns.append(self._keys(source, one.name, records[one.name], sizes))
            else:
                columns.append(records[one.name][pl.Series(record_of)].alias(one.name))
        return pl.DataFrame(columns), late

    def _sizes(self, source: Input, records: pl.DataFrame) -> Ints:
        """How many rollouts each record has: as many as its longest list of rewards; none where all are null."""
        sizes = np.stack([_lengths(records[name]) for name in self.items])
        most: Ints = sizes.max(axis=0)
        for name, here in zip(self.items, sizes, strict=True):
            self._refuse_other_lengths(source, name, here, most, records[name])
        return most

    def _refuse_other_lengths(self, source: Input, name: str, here: Ints, most: Ints, column: pl.Series) -> None:
        wrong = (here != most) & (here != 1) & column.is_not_null().to_numpy()
        if wrong.any():
            at = int(np.argmax(wrong))
            raise self._other_length(source, at, name, here[at], most[at])

    def _other_length(self, source: Input, record: int, name: str, length: int, others: int) -> DataError:
        where = self.base.place(source, record)
        wrong = f"{where}: {name} has {length} values, {' or '.join(self.items)} {others}"
        return DataError(wrong, "the lists of one record have one length")

    def _numbers(self, source: Input, name: str, column: pl.Series, sizes: Ints) -> pl.Series:
        here = _lengths(column)
        self._refuse_other_lengths(source, name, here, sizes, column)
        flat = column.drop_nulls().explode(empty_as_null=False) if column.null_count() < len(column) else None
        return _spread(name, flat, here, sizes)

    def _keys(self, source: Input, name: str, column: pl.Series, sizes: Ints) -> pl.Series:
        values = column.to_list()
        if column.dtype == cells.JSON_TEXT:
            values = [None if text is None else json.loads(text) for text in values]
        flat: list[object] = []
        for at, (value, size) in enumerate(zip(values, sizes.tolist(), strict=True)):
            if isinstance(value, list) and len(value) != size:
                raise self._other_length(source, at, name, len(value), size)
            flat += value if isinstance(value, list) else [value] * size
        return cells.key_series(name, flat)

    def place(self, source: Input, row: int, left_out: Sequence[int] = ()) -> str:
        """How messages call a rollout: by its record, and its number in it."""
        sizes = self._sizes(source, self._rewards(source))
        record = int(np.searchsorted(np.cumsum(sizes), row, side="right"))
        inside = row - int(sizes[:record].sum())
        return f"{self.base.place(source, record, left_out)}, rollout {inside + 1}"

    def _rewards(self, source: Input) -> pl.DataFrame:
        """The lists that say how many rollouts each record has."""
        return self.base.scan(source, [Field(name, "numbers") for name in self.items])

    def json_texts(self, source: Input, rows: Ints, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The JSON texts of some columns: lists that all have an item for each rollout are taken apart, all else is repeated."""
        sizes = self._sizes(source, self._rewards(source))
        apart = self._apart(source, sizes, columns)
        ends = np.cumsum(sizes)
        record_of = np.searchsorted(ends, rows, side="right")
        inside = rows - (ends - sizes)[record_of]
        records = np.unique(record_of)
        done = 0
        for frame in self.base.json_texts(source, records, columns):
            these = records[done : done + len(frame)]
            done += len(frame)
            first, last = np.searchsorted(record_of, [these[0], these[-1] + 1])
            at = np.searchsorted(these, record_of[first:last]).tolist()
            texts = {}
            for name in columns:
                cells_of = [
                    _items(text, int(sizes[one])) if name in apart else [text] * int(sizes[one])
                    for one, text in zip(these, frame[name], strict=True)
                ]
                each = [cells_of[one][k] for one, k in zip(at, inside[first:last].tolist(), strict=True)]
                texts[name] = pl.Series(name, each, dtype=pl.String)
            yield pl.DataFrame(texts)

    def _apart(self, source: Input, sizes: Ints, columns: Sequence[str]) -> set[str]:
        """The columns that have an item for each rollout in every record: a single one may have as many by chance."""
        apart, done = {*columns}, 0
        for frame in self.base.json_texts(source, np.arange(len(sizes)), columns):
            here = sizes[done : done + len(frame)].tolist()
            done += len(frame)
            apart = {name for name in apart if all(map(_is_item_each, frame[name], here))}
        return apart

    def weave(self, source: Input, sink: BinaryIO, weaving: Weaving) -> Sequence[str]:
        """Put the new columns into the records as lists."""
        return self.base.weave(source, sink, self.records(source, weaving))

    def weave_in_place(self, source: Input, weaving: Weaving) -> Sequence[str] | None:
        """The same, in the file itself, where the records' format can do that."""
        return self.base.weave_in_place(source, self.records(source, weaving))

    def records(self, source: Input, weaving: Weaving) -> Weaving:
        """The new columns as lists, one row per record."""
        rewards = self._rewards(source)
        sizes = self._sizes(source, rewards)
        null = np.logical_and.reduce([rewards[name].is_null().to_numpy() for name in self.items])
        take = None
        if weaving.take is not None:
            take = _whole_records(source, weaving.take, sizes)
            sizes, null = sizes[take], null[take]
        lists = [_listed(series, sizes, null) for series in with_lists(weaving.added)]
        added = pl.DataFrame(lists or None, height=len(sizes))
        return replace(weaving, added=added, take=take)

    def long(self, source: Input) -> pl.DataFrame:
        """One row per rollout: lists of the record's length go one by one, all else is repeated."""
        rewards = self._rewards(source)
        sizes = self._sizes(source, rewards)
        record_of = pl.Series(np.repeat(np.arange(len(sizes)), sizes))
        return pl.DataFrame(
            self._numbers(source, series.name, rewards[series.name], sizes)
            if series.name in self.items
            else _one_by_one(series, sizes, record_of)
            for series in self.base.read(source)
        )


def _lengths(column: pl.Series) -> Ints:
    return column.list.len().fill_null(0).cast(pl.Int64).to_numpy()


def _spread(name: str, flat: pl.Series | None, here: Ints, sizes: Ints) -> pl.Series:
    """Values of lists in rows; where a record has one value it is that of all its rows, where it has none null is."""
    total = int(sizes.sum())
    if flat is None:
        return pl.Series(name, [None] * total, dtype=pl.Float64)
    starts = np.cumsum(here) - here
    record = np.repeat(np.arange(len(sizes)), sizes)
    inside = np.arange(total) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    at = starts[record] + np.where(here[record] == 1, 0, inside)
    at = np.where(here[record] == 0, -1, at)
    index = pl.Series(at).cast(pl.Int64)
    index = pl.select(pl.when(index >= 0).then(index)).to_series()
    return flat.gather(index).alias(name)


def _listed(series: pl.Series, sizes: Ints, null: np.ndarray) -> pl.Series:
    import pyarrow as pa

    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
    mask = pa.array(null) if null.any() else None
    values = series.to_arrow(compat_level=pl.CompatLevel.oldest())
    if mask is None:
        return pl.Series(series.name, pa.LargeListArray.from_arrays(offsets, values))
    return pl.Series(series.name, pa.LargeListArray.from_arrays(offsets, values, mask=mask))


def _whole_records(source: Input, take: Ints, sizes: Ints) -> Ints:
    """The records that rows make up, all of each and in order."""
    record = np.repeat(np.arange(len(sizes)), sizes)[take]
    kept = record[np.concatenate([[True], record[1:] != record[:-1]])] if len(record) else record
    starts = np.cumsum(sizes) - sizes
    whole = np.concatenate([np.arange(starts[at], starts[at] + sizes[at]) for at in kept]) if len(kept) else take
    if len(whole) != len(take) or (whole != take).any():
        raise PartOfRecord(f"{source.name}: rows are dropped from the middle of records", _LONG)
    return kept


def _is_item_each(text: str | None, size: int) -> bool:
    """Whether the JSON text of a record's cell is a list with an item for each rollout, or null."""
    is_list = text is not None and text.startswith("[")
    return text is None or (is_list and _has_one_each([json.loads(item) for item in items_of(text)], size))


def _items(text: str | None, size: int) -> Sequence[str | None]:
    """The JSON texts of a record's list, one for each of its rollouts."""
    return [None] * size if text is None else [None if item == "null" else item for item in items_of(text)]


def _one_by_one(series: pl.Series, sizes: Ints, record_of: pl.Series) -> pl.Series:
    """A column of records in rows: its lists one by one where all have their record's length, else each repeated."""
    values = series.to_list() if series.dtype.is_nested() else []
    if not values or not all(map(_has_one_each, values, sizes.tolist())):
        return series[record_of].alias(series.name)
    flat: list[object] = []
    for value, size in zip(values, sizes.tolist(), strict=True):
        flat += [None] * size if value is None else value
    return series_of(series.name, flat)


def _has_one_each(value: object, size: int) -> bool:
    """Whether a cell has an item for each rollout; the turns of a chat are one thing, however many there are."""
    if value is None:
        return True
    turns = isinstance(value, list) and any(isinstance(item, dict) and "role" in item for item in value)
    return isinstance(value, list) and len(value) == size and not turns
