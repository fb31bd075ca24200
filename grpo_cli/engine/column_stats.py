"""Statistics of long columns, computed on several cores in pieces that fit the cache and merged in row order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Self, TypedDict, TypeVar

import numpy as np

from grpo_cli.engine.moments import Moments
from grpo_cli.parallel import ahead

if TYPE_CHECKING:
    import polars as pl

Words = np.ndarray[tuple[int], np.dtype[np.uint64]]
T = TypeVar("T")

PIECE = 1 << 17  # rows of a piece of a long column
FEW = 20  # the most distinct values that are counted one by one
_NOT_FINITE = 4  # distinct values that are not finite: null, NaN and both infinities
SAMPLE = 4096  # leading rows that show whether a column has few distinct values


def over(work: Callable[[int, int], T], rows: int, piece: int = 0) -> list[T]:
    """The results of `work(start, end)` for consecutive pieces, in order; the cuts do not depend on the number of threads."""
    piece = piece or PIECE

    def on(start: int) -> T:
        return work(start, min(start + piece, rows))

    at_once = ahead if rows > piece else map
    return list(at_once(on, range(0, rows, piece)))


def each(work: Callable[[pl.Series], T], values: pl.Series) -> list[T]:
    """The results of work on the pieces of a column, in order."""
    return over(lambda start, end: work(values[start:end]), len(values))


class Statistics(TypedDict):
    """What is said of a column of numbers: fields of several facts."""

    mean: float | None
    std: float | None
    min: float | None
    max: float | None


@dataclass(frozen=True)
class Numbers:
    """Counts of the NaN and zero values of a column; moments and extremes of the finite ones."""

    nan: int = 0
    zero: int = 0
    moments: Moments = field(default_factory=Moments.none)
    least: float = math.inf
    most: float = -math.inf

    @classmethod
    def of(cls, values: pl.Series) -> Self:
        """The numbers of a whole column; nulls are left out."""
        return reduce(cls.merge, each(cls._of_piece, values), cls())

    @classmethod
    def counted(cls, values: Sequence[float], counts: Sequence[int]) -> Self:
        """The numbers of a column with these finite values, in ascending order, and how often each occurs."""
        if not values:
            return cls()
        zero = sum(count for value, count in zip(values, counts, strict=True) if value == 0)
        weights = np.array(counts, np.float64)
        moments = Moments.of(np.array(values), weights=weights)
        return cls(0, zero, moments, values[0], values[-1])

    @classmethod
    def _of_piece(cls, values: pl.Series) -> Self:
        numbers = values.drop_nulls().to_numpy()
        finite = np.isfinite(numbers)
        nan = 0
        if not finite.all():
            nan = int(np.isnan(numbers).sum())
            numbers = numbers[finite]
        if not len(numbers):
            return cls(nan)
        zero = len(numbers) - int(np.count_nonzero(numbers != 0))  # counts bools, which is faster than counting numbers
        least = float(numbers.min()) + 0.0  # turns -0.0 into 0.0
        most = float(numbers.max()) + 0.0
        return cls(nan, zero, Moments.of(numbers), least, most)

    def merge(self, other: Self) -> Self:
        """The numbers of both columns together."""
        nan = self.nan + other.nan
        zero = self.zero + other.zero
        moments = self.moments.merge(other.moments)
        least = min(self.least, other.least)
        most = max(self.most, other.most)
        return type(self)(nan, zero, moments, least, most)

    @property
    def count(self) -> int:
        """How many values are finite."""
        return int(self.moments.weight[0])

    def facts(self) -> Statistics:
        """Mean, standard deviation and extremes; None without values and for a fact that overflows."""
        if not self.count:
            return {"mean": None, "std": None, "min": None, "max": None}
        mean = float(self.moments.mean[0])  # plus `low`, 3 of 10 would be 0.29999999999999993
        std = math.sqrt(self.moments.variance(ddof=1)[0])
        return {"mean": _finite(mean), "std": _finite(std), "min": _finite(self.least), "max": _finite(self.most)}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def counts(values: pl.Series, known: Sequence[object]) -> list[int]:
    """How often each of the known values occurs."""

    def of_piece(piece: pl.Series) -> list[int]:
        left = len(piece) - piece.null_count()
        times = []
        for value in known:  # usually one or two of them fill the whole piece
            count = int((piece == value).sum()) if left else 0
            times.append(count)
            left -= count
        return times

    of_pieces = each(of_piece, values)
    return [sum(times) for times in zip([0] * len(known), *of_pieces, strict=True)]


def few(values: pl.Series, sample: int = SAMPLE) -> tuple[list[float], list[int]] | None:
    """The distinct finite values in ascending order and how often each occurs; None if there are many."""
    if len(values) <= sample:
        numbers = values.drop_nulls().to_numpy()
        numbers = numbers[np.isfinite(numbers)] + 0.0  # turns -0.0 into 0.0
        distinct, often = np.unique(numbers, return_counts=True)
        return (distinct.tolist(), often.tolist()) if len(distinct) <= FEW else None
    counted = _known(values, values[:sample])
    if counted is None:
        return counted
    _, times = counted
    if sum(times) == len(values) - values.null_count() or sum(times) == values.is_finite().sum():
        return counted
    # Some values are not among the first rows.
    return _known(values, values) if values.n_unique() <= FEW + _NOT_FINITE else None


def _known(values: pl.Series, shown: pl.Series) -> tuple[list[float], list[int]] | None:
    """The distinct finite values of the rows `shown`, and how often each occurs in all rows; None if there are many."""
    distinct = shown.filter(shown.is_finite()).unique().sort()
    if len(distinct) > FEW:
        return None
    known = (distinct.to_numpy() + 0.0).tolist()  # + 0.0 turns -0.0 into 0.0
    return known, counts(values, known)
