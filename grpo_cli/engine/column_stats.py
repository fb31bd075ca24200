"""Statistics of long columns, computed on all cores in pieces that fit the cache and merged in row order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final, Self, TypeVar

import numpy as np

from grpo_cli.parallel import ahead

if TYPE_CHECKING:
    import polars as pl

Words = np.ndarray[tuple[int], np.dtype[np.uint64]]
T = TypeVar("T")

PIECE: Final = 1 << 17  # rows of a piece of a long column
FEW: Final = 20  # the most distinct values that are counted one by one
_NOT_FINITE: Final = 4  # distinct values that are not finite: null, NaN and both infinities
SAMPLE: Final = 4096  # leading rows that show whether a column has few distinct values


def over(work: Callable[[int, int], T], rows: int, piece: int = PIECE) -> list[T]:
    """The results of `work(start, end)` for consecutive pieces, in order; the cuts do not depend on the number of threads."""

    def on(start: int) -> T:
        return work(start, min(start + piece, rows))

    return list((ahead if rows > piece else map)(on, range(0, rows, piece)))


def each(work: Callable[[pl.Series], T], values: pl.Series) -> list[T]:
    """The results of work on the pieces of a column, in order."""
    return over(lambda start, end: work(values[start:end]), len(values))


@dataclass(frozen=True, slots=True)
class Numbers:
    """Counts of the finite, NaN and zero values of a column; mean, squared deviations and extremes of the finite ones.

    They are for display; the arithmetic needs the exact means of `Moments`.
    """

    count: int = 0
    nan: int = 0
    zero: int = 0
    mean: float = 0.0
    squares: float = 0.0
    least: float = math.inf
    most: float = -math.inf

    @classmethod
    def of(cls, values: pl.Series) -> Self:
        """The numbers of a whole column; nulls are left out."""
        return reduce(cls.merge, each(cls._of_piece, values), cls())

    @classmethod
    def counted(cls, values: Sequence[float], counts: Sequence[int]) -> Self:
        """The numbers of a column with these finite values, in ascending order, and how often each occurs."""
        many, weights = np.array(values), np.array(counts)
        count = int(weights.sum())
        if not count:
            return cls()
        mean = math.fsum(many * weights) / count
        squares = math.fsum((many - mean) ** 2 * weights)
        zero = int(weights[many == 0].sum())
        return cls(count, 0, zero, mean, squares, float(values[0]), float(values[-1]))

    @classmethod
    def _of_piece(cls, values: pl.Series) -> Self:
        numbers = values.drop_nulls().to_numpy()
        finite = np.isfinite(numbers)
        nan = 0
        if not finite.all():
            nan = int(np.isnan(numbers).sum())
            numbers = numbers[finite]
        if not len(numbers):
            return cls(nan=nan)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(numbers.mean())
            away = numbers - mean
            away *= away  # not `away @ away`: OpenBLAS would start threads of its own
        zero = len(numbers) - int(np.count_nonzero(numbers != 0))  # counts bools, which is faster than counting numbers
        least, most = float(numbers.min()) + 0.0, float(numbers.max()) + 0.0  # + 0.0 turns -0.0 into 0.0
        return cls(len(numbers), nan, zero, mean, float(away.sum()), least, most)

    def merge(self, other: Self) -> Self:
        """The numbers of both columns together."""
        count = self.count + other.count
        share = other.count / count if count else 0.0
        delta = other.mean - self.mean
        return type(self)(
            count,
            self.nan + other.nan,
            self.zero + other.zero,
            self.mean + delta * share,
            self.squares + other.squares + delta * delta * self.count * share,
            min(self.least, other.least),
            max(self.most, other.most),
        )

    def facts(self) -> dict[str, float | None]:
        """Mean, standard deviation and extremes; None without values and for a fact that overflows."""
        if not self.count:
            return dict.fromkeys(("mean", "std", "min", "max"))
        std = math.sqrt(self.squares / (self.count - 1)) if self.count > 1 else None
        facts = {"mean": self.mean, "std": std, "min": self.least, "max": self.most}
        return {name: fact if fact is not None and math.isfinite(fact) else None for name, fact in facts.items()}


def counts(values: pl.Series, known: Sequence[object]) -> list[int]:
    """How often each of the known values occurs."""

    def of_piece(piece: pl.Series) -> list[int]:
        left, times = len(piece) - piece.null_count(), []
        for value in known:  # usually one or two of them fill the whole piece
            times.append(int((piece == value).sum()) if left else 0)
            left -= times[-1]
        return times

    return [sum(column) for column in zip([0] * len(known), *each(of_piece, values), strict=True)]


def few(values: pl.Series, sample: int = SAMPLE) -> tuple[list[float], list[int]] | None:
    """The distinct finite values in ascending order and how often each occurs; None if there are many."""
    counted = _known(values, values[:sample])
    if counted is None or sum(counted[1]) == len(values) - values.null_count():
        return counted
    if sum(counted[1]) == int(values.is_finite().sum()):
        return counted
    # Some values are not among the first rows.
    return _known(values, values) if values.n_unique() <= FEW + _NOT_FINITE else None


def _known(values: pl.Series, shown: pl.Series) -> tuple[list[float], list[int]] | None:
    """The distinct finite values of the rows `shown`, and how often each occurs in all rows; None if there are many."""
    known = (shown.filter(shown.is_finite()).unique().sort().to_numpy() + 0.0).tolist()  # + 0.0 turns -0.0 into 0.0
    return (known, counts(values, known)) if len(known) <= FEW else None
