"""Sums, means and extremes of groups whose rows may be anywhere, and the order of rows by group.

A group is a number from 0, its code; `codes` has the code of every row. numpy adds the rows of a group one by one in
the order of the file: the same group gives the same bits in any layout, part or stream, and for any number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from grpo_cli.engine.column_stats import over
from grpo_cli.engine.moments import Codes, Index, Vector, quiet, stable_order

if TYPE_CHECKING:
    import polars as pl


Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
Cells = TypeVar("Cells", bound=np.ndarray[tuple[int], Any])
Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]
AnyCodes = np.ndarray[Any, np.dtype[np.integer[Any]]]
_ROWS = 1 << 15  # rows that are added at once: they fit the cache of a core


def group_sums(codes: Codes, values: pl.Series, groups: int) -> Vector:
    """The sum of each group; rows without a value are left out."""
    return _added(*_counted(codes, values), groups)


def group_extremes(codes: AnyCodes, values: Vector | pl.Series, groups: int) -> tuple[Vector, Vector]:
    """The lowest and the highest value of each group; NaN if it has a NaN, infinite if it has no rows."""
    low = np.full(groups, np.inf)
    high = np.full(groups, -np.inf)
    with quiet():
        for at, some in _pieces(codes, values):
            np.minimum.at(low, at, some)
            np.maximum.at(high, at, some)
    return low, high


def group_means(codes: AnyCodes, values: Vector, groups: int) -> Vector:
    """The mean of each group, NaN if it has no rows; computed from the lowest value, so that equal values are their mean."""
    low, _ = group_extremes(codes, values, groups)
    with quiet():
        away = np.bincount(codes, weights=values - low[codes], minlength=groups)
        n = np.bincount(codes, minlength=groups)
        return np.asarray(low + away / n)


def finite_rows(codes: AnyCodes, values: pl.Series) -> tuple[AnyCodes, Vector]:
    """Codes and values of the rows whose value is finite."""
    known = values.is_finite().fill_null(value=False).to_numpy()
    return codes[known], values.to_numpy()[known]


def finite_means(codes: AnyCodes, values: pl.Series, groups: int) -> Vector:
    """The sum of the finite values of each group over their number; NaN where it has none."""
    codes, known = finite_rows(codes, values)
    with quiet():
        sums = np.bincount(codes, known, groups)
        return np.asarray(sums / np.bincount(codes, minlength=groups))


def finite_stds(codes: AnyCodes, values: pl.Series, means: Vector) -> Vector:
    """The sample standard deviation of the finite values of each group, whose means these are; NaN if there are too few."""
    codes, known = finite_rows(codes, values)
    n = np.bincount(codes, minlength=len(means))
    away = known - means[codes]
    squares = np.bincount(codes, away**2, len(means))
    variances = np.full(len(means), np.nan)
    np.divide(squares, n - 1, out=variances, where=n > 1)
    return np.asarray(np.sqrt(variances))


def base_quantities(codes: Codes, values: pl.Series, groups: int) -> dict[str, Vector]:
    """The quantities that estimators are written with, one number per group; rows without a value do not count.

    `n` rows, `min`, `max`, the mean `mean_d` of the distances from `min`, and the sum of `squares` of the distances from
    the mean. A shared offset costs no digits, and the distances of a constant group are exactly 0.
    A NaN affects the quantities of its own group only. A group without values has infinite extremes.
    """
    codes, values = _counted(codes, values)
    n = np.bincount(codes, minlength=groups).astype(np.float64)
    low, high = (ends + 0.0 for ends in group_extremes(codes, values, groups))  # + 0.0 turns -0.0 into 0.0
    distances = np.empty(len(values))

    def from_least(start: int, end: int) -> None:
        least = low.take(codes[start:end])
        with quiet():
            np.subtract(np.asarray(values[start:end]), least, out=distances[start:end])

    def squared_from_mean(start: int, end: int) -> None:
        with quiet():
            centred = distances[start:end] - mean_d.take(codes[start:end])
            np.multiply(centred, centred, out=distances[start:end])

    over(from_least, len(values))
    with quiet():
        mean_d = _added(codes, distances, groups) / n
    over(squared_from_mean, len(values))
    squares = _added(codes, distances, groups)
    return {"n": n, "min": low, "max": high, "mean_d": mean_d, "squares": squares}


def _added(codes: Codes, values: pl.Series | Vector, groups: int) -> Vector:
    """The sum of each group."""
    sums = np.zeros(groups)
    with quiet():
        for at, some in _pieces(codes, values):
            np.add.at(sums, at, some)
    return sums


def _pieces(codes: AnyCodes, values: pl.Series | Vector) -> Iterator[tuple[Index, Vector]]:
    """Codes as indices, and values, in pieces that fit the cache of a core."""
    for start in range(0, len(codes), _ROWS):
        end = start + _ROWS
        yield codes[start:end].astype(np.intp), np.asarray(values[start:end])


def _counted(codes: Codes, values: pl.Series) -> tuple[Codes, pl.Series]:
    """Codes and values of the rows that have a value."""
    if not values.null_count():
        return codes, values
    known = values.is_not_null().to_numpy()
    return codes[known], values.drop_nulls()


@dataclass(frozen=True)
class Segments:
    """Consecutive runs of rows: where each starts and how long it is."""

    starts: Index
    sizes: Index

    @classmethod
    def of_ordered(cls, codes: AnyCodes) -> Segments:
        """The runs of equal codes, which never decrease."""
        first = np.zeros(min(len(codes), 1), np.int64)
        changes = np.flatnonzero(codes[1:] != codes[:-1])
        starts = np.append(first, changes + 1)
        sizes = np.diff(starts, append=len(codes))
        return cls(starts, sizes)

    @classmethod
    def of(cls, codes: Codes) -> tuple[Segments, Index]:
        """The runs of equal codes, and the order of the rows (stable, by code) that makes them consecutive."""
        order = stable_order(codes)
        return cls.of_ordered(codes[order]), order

    def sum(self, values: Vector) -> Vector:
        """One sum per run."""
        return np.add.reduceat(values, self.starts) if len(values) else values

    def spread(self, values: Cells) -> Cells:
        """One value per run, repeated on its rows."""
        return cast("Cells", np.repeat(values, self.sizes))
