"""Sums, means and extremes of groups whose rows may be anywhere, and the order of rows by group.

A group is a number from 0, its code; `codes` has the code of every row. numpy adds the rows of a group one by one in
the order of the file: the same group gives the same bits in any layout, part or stream, and for any number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np

from grpo_cli.engine.column_stats import PIECE, over
from grpo_cli.engine.moments import Codes, Index, Vector, quiet, stable_order

if TYPE_CHECKING:
    import polars as pl


Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
Cells = TypeVar("Cells", bound=np.ndarray[tuple[int], Any])
Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]
AnyCodes = np.ndarray[Any, np.dtype[np.integer[Any]]]
_LARGE = 256  # rows of a group: with more, adding them as rows of a matrix of so few groups takes longer
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


def group_sizes(codes: Codes) -> Index:
    """The number of rows with each code; codes that never decrease are counted in a fifth of the time."""
    if not _together(codes):
        return np.bincount(codes)
    runs = Segments.of_ordered(codes)
    sizes = np.zeros(codes.max(initial=0) + 1, np.int64)
    sizes[codes[runs.starts]] = runs.sizes
    return sizes


def base_quantities(codes: Codes, values: pl.Series, sizes: Index) -> dict[str, Vector]:
    """The quantities that estimators are written with, one number per group; rows without a value do not count.

    `sizes` are the rows of each group, with a value or without.

    `n` rows, `min`, `max`, the mean `mean_d` of the distances from `min`, and the sum of `squares` of the distances from
    the mean. A shared offset costs no digits, and the distances of a constant group are exactly 0.
    A NaN affects the quantities of its own group only. A group without values has infinite extremes.
    """
    groups = len(sizes)
    if values.null_count():
        codes, values = _counted(codes, values)
        sizes = np.bincount(codes, minlength=groups)
    n = sizes.astype(np.float64)
    size = len(values) // max(1, groups)
    many = PIECE // max(1, size)  # groups at once
    # A single column is left out: numpy would not add its rows one by one.
    if 0 < size < _LARGE and groups % many != 1 and (n == size).all() and _together(codes):
        # The usual file: the rows of a group are together, and all groups have the same size.
        def of_columns(start: int, end: int) -> Matrix:
            return _of_columns(np.asarray(values[start * size : end * size]).reshape(-1, size).T)

        found = np.concatenate(over(of_columns, groups, many), axis=1)
    else:
        found = _of_rows(codes, values, n)
    names = "min", "max", "mean_d", "squares"
    return {"n": n, **dict(zip(names, found + 0.0, strict=True))}  # + 0.0 turns -0.0 into 0.0


def _of_columns(values: Matrix) -> Matrix:
    """The lowest and the highest value of groups, a column each, their mean distances and squares; added row by row."""
    with quiet():
        columns = np.array(values, order="C")
        low = columns.min(axis=0)
        high = columns.max(axis=0)
        columns -= low
        mean_d = columns.sum(axis=0) / len(columns)
        columns -= mean_d
        columns *= columns
        return np.array([low, high, mean_d, columns.sum(axis=0)])


def _of_rows(codes: Codes, values: pl.Series, n: Vector) -> Matrix:
    """The same for groups whose rows are anywhere."""
    groups = len(n)
    low, high = group_extremes(codes, values, groups)
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
    return np.array([low, high, mean_d, _added(codes, distances, groups)])


def _together(codes: Codes) -> bool:
    """Whether the rows of each group follow each other."""
    return bool((codes[1:] >= codes[:-1]).all())


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


class Segments(NamedTuple):
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
