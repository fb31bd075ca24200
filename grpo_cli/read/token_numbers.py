"""Lists with a number for each token, read a part at a time: each part is reduced and let go, so no list stays in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Index, Vector
from grpo_cli.errors import DataError, short
from grpo_cli.read.tables import KlField, Located, Table
from grpo_cli.values.cells import Place, as_number
from grpo_cli.values.paths import absent
from grpo_cli.values.token_lists import Bools, Ints

# Mask values of tokens that do not count: 0, false, and the label that losses ignore.
IGNORED: Final = (0, -100)
_BYTES: Final = 4 << 20  # of lists that are reduced at once
_LISTS: Final = pl.List(pl.Float64)
_NUMBERS: Final = (pl.Boolean, pl.Null, pl.Decimal)  # and what polars calls numeric


def k1(log_ratio: Vector) -> Vector:
    """Of log p/q on samples of p: the unbiased estimate of KL(p, q)."""
    return log_ratio


def k2(log_ratio: Vector) -> Vector:
    """Half of the square, which is never negative."""
    return log_ratio * log_ratio / 2


def k3(log_ratio: Vector) -> Vector:
    """q/p - 1 - log q/p, which is unbiased and never negative (http://joschu.net/blog/kl-approx.html)."""
    return np.expm1(-log_ratio) + log_ratio


ESTIMATORS: Final[Mapping[str, Callable[[Vector], Vector]]] = {"k1": k1, "k2": k2, "k3": k3}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPart:
    """Some rows, and the numbers of their tokens that count, row after row: `sizes` of them in each row."""

    rows: Index
    sizes: Ints
    values: Mapping[str, Vector]
    lengths: Ints  # tokens of each row, whether they count or not
    counting: Bools | None  # which of these tokens count; None: all
    missing: int  # rows that were left out, since they lack a list

    @property
    def starts(self) -> Ints:
        """Where the tokens of each row begin."""
        starts: Ints = np.cumsum(self.sizes) - self.sizes
        return starts

    def sums(self, values: np.ndarray) -> Vector:
        """The sum over the tokens of each row that count; 0 for a row without any."""
        some, sums = self.sizes > 0, np.zeros(len(self.sizes))
        if some.any():
            sums[some] = np.add.reduceat(values, self.starts[some], dtype=np.float64)
        return sums


def token_numbers(narrow: Located, rows: Index, columns: Sequence[str], mask: str = "") -> Iterator[TokenPart]:
    """The numbers in these columns of ascending rows of the narrow table."""
    done = 0
    for at, here in narrow.by_file(rows if narrow.rows is None else narrow.rows[rows]):
        for part in of_table(narrow.tables[at], narrow.scans[at].index, here, columns, mask):
            yield replace(part, rows=rows[done + np.searchsorted(here, part.rows)])
        done += len(here)


def of_table(table: Table, index: Any, rows: Index, columns: Sequence[str], mask: str = "") -> Iterator[TokenPart]:
    """The same for ascending rows of a table."""
    names = list(dict.fromkeys([*columns, mask] if mask else columns))
    unseen, done = {*names}, 0
    for frame in table.lists(index, rows, names):
        unseen -= {series.name for series in frame if series.null_count() < len(series)}
        for some in frame.iter_slices(max(1, len(frame) * _BYTES // max(1, int(frame.estimated_size())))):
            here = rows[done : done + len(some)]
            done += len(some)
            yield _part(some, here, columns, mask, lambda at, here=here: table.place(int(here[at])))  # type: ignore[misc]
    for name in unseen if done else ():
        if not {name, re.split(r"\[\]|\.", name)[0]} & {*table.columns()}:
            raise absent(name, table.name, table.columns())


def kl_column(field: KlField, table: Table, index: Any, height: int) -> pl.Series:
    """The column of a field; null for a row that lacks a list, and for the mean of no tokens."""
    found = np.full(height, np.nan)
    for part in of_table(table, index, np.arange(height), field.columns, field.mask):
        policy, reference = (part.values[name] for name in field.columns)
        sums = part.sums(ESTIMATORS[field.estimator](policy - reference))
        found[part.rows] = sums / np.where(part.sizes, part.sizes, np.nan) if field.mean else sums
    return pl.Series(field.name, found).fill_nan(None)


def _part(frame: pl.DataFrame, rows: Index, columns: Sequence[str], mask: str, place: Place) -> TokenPart:
    lists = {series.name: _lists(series, place) for series in frame}
    there = np.logical_and.reduce([series.is_not_null().to_numpy() for series in lists.values()])
    places = np.flatnonzero(there)
    lists = lists if there.all() else {name: series.gather(places) for name, series in lists.items()}
    lengths = _lengths(lists, lambda at: place(int(places[at])))
    flats = {name: series.explode(empty_as_null=False, keep_nulls=False) for name, series in lists.items()}
    values: dict[str, Vector] = {name: _numbers(flat) for name, flat in flats.items()}
    ends = np.cumsum(lengths)

    def refuse(name: str, wrong: Bools, cure: str) -> None:
        at = int(wrong.argmax())
        row = int(np.searchsorted(ends, at, side="right"))
        token = at - int(ends[row] - lengths[row]) + 1
        value = "null" if flats[name][at] is None else f"{values[name][at]:g}"
        raise DataError(f"{name} is {value} at token {token}", cure, place=place(int(places[row])))

    counting, sizes = None, lengths
    if mask:
        marks = values[mask]
        if np.isnan(marks).any():
            refuse(mask, np.isnan(marks), "a mask has a number for each token")
        counting = (marks != IGNORED[0]) & (marks != IGNORED[1])
        sizes = np.diff(np.append(0, np.cumsum(counting))[np.append(0, ends)])
    for name in columns:
        wrong = ~np.isfinite(values[name])
        wrong = wrong if counting is None else wrong & counting
        if wrong.any():
            cure = f"{mask} says that this token counts" if mask else ""
            refuse(
                name, wrong, cure or "if it is a token of the prompt, --mask COL names a list of the tokens that count"
            )
    found = {name: values[name] if counting is None else values[name][counting] for name in columns}
    missing = len(frame) - len(places)
    return TokenPart(rows=rows[places], sizes=sizes, values=found, lengths=lengths, counting=counting, missing=missing)


def _lengths(lists: Mapping[str, pl.Series], place: Place) -> Ints:
    """How many tokens each row has, which is the same in all columns."""
    (first, *others), sizes = lists, {name: series.list.len().cast(pl.Int64) for name, series in lists.items()}
    for name in others:
        wrong = sizes[name] != sizes[first]
        if wrong.any():
            at = wrong.arg_max() or 0
            what = f"{name} has {sizes[name][at]:,} numbers, {first} {sizes[first][at]:,}"
            raise DataError(what, "the lists must be of the same tokens", place=place(at))
    lengths: Ints = sizes[first].to_numpy()
    return lengths


def _numbers(flat: pl.Series) -> Vector:
    numbers: Vector = flat.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    return numbers


def _lists(series: pl.Series, place: Place) -> pl.Series:
    """The column as lists of numbers; null where a row has none."""
    dtype = series.dtype
    if isinstance(dtype, pl.Array):
        series, dtype = series.arr.to_list(), pl.List(dtype.inner)
    if isinstance(dtype, pl.List) and (dtype.inner.is_numeric() or isinstance(dtype.inner, _NUMBERS)):
        return series
    known = series.drop_nulls()
    if not len(known):
        return series.clear(len(series)).cast(_LISTS)
    if dtype != pl.String:
        value = known[0].to_list() if isinstance(dtype, pl.List) else known[0]
        raise _no_numbers(series.name, value, place(series.is_not_null().arg_max() or 0))
    if known.str.starts_with("[").all():
        try:
            return series.str.json_decode(_LISTS)
        except pl.exceptions.ComputeError:
            pass  # NaN, a list within the list, ...: Python says which row has it
    return pl.Series(
        series.name, [_parsed(series.name, text, at, place) for at, text in enumerate(series)], dtype=_LISTS
    )


def _parsed(name: str, text: str | None, at: int, place: Place) -> list[float | None] | None:
    """The numbers in a JSON text, which may be quoted."""
    try:
        value = None if text is None else json.loads(text)
        value = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        value = text
    if value is None:
        return None
    if not isinstance(value, list) or not all(item is None or isinstance(item, int | float) for item in value):
        raise _no_numbers(name, value, place(at))
    return list(map(as_number, value))


def _no_numbers(name: str, value: Any, place: str) -> DataError:
    item = next((item for item in value if isinstance(item, dict | list)), None) if isinstance(value, list) else None
    if item is None:
        return DataError(f"{name} is {short(value)}, expected a list of numbers", place=place)
    what = "objects" if isinstance(item, dict) else "lists"
    cure = "write a list of one number per token, that of the token that was sampled"
    return DataError(f"{name} is a list of {what}, expected a list of numbers", cure, place=place)
