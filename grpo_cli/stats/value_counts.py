"""The distribution of a column that lies in parts: each part counts its values, and only counts are put together.

Quartiles are found exactly, in rounds: doubles are ordered as whole numbers, and each round counts how many values lie
below some of these numbers, which fixes 16 more bits of a quartile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from grpo_cli.engine.column_stats import FEW, few
from grpo_cli.stats.facts import BINS, equal_bins

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Words = np.ndarray[tuple[int], np.dtype[np.uint64]]
    Floats = np.ndarray[tuple[int], np.dtype[np.float64]]

_BITS: Final = 16  # of a number that a round finds
_SIGN: Final = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class ValueCounts:
    """The distinct finite values of a column in ascending order, and how often each occurs."""

    values: Floats
    counts: Ints

    @classmethod
    def of(cls, column: pl.Series) -> ValueCounts:
        """Count the values of a column."""
        counted = few(column)
        if counted is not None:
            return cls(np.array(counted[0], np.float64), np.array(counted[1], np.int64))
        finite = column.filter(column.is_finite()).to_numpy() + 0.0  # -0.0 is 0.0
        values, counts = np.unique(finite, return_counts=True)
        return cls(values, counts)

    @property
    def are_few(self) -> bool:
        """Whether they are counted one by one in a summary."""
        return len(self.values) <= FEW

    def below(self, numbers: Words) -> Ints:
        """How many values lie below each of some ascending numbers, in the order of `_as_numbers`."""
        totals = np.concatenate([[0], np.cumsum(self.counts)])
        return np.asarray(totals[np.searchsorted(_as_numbers(self.values), numbers)])

    def ends(self, low: float, high: float) -> Ints:
        """How many values are equal to the least and to the largest value of all parts."""
        return np.array([int(self.counts[self.values == end].sum()) for end in (low, high)])

    def histogram(self, low: float, high: float) -> Ints:
        """How many values lie in each of the bins between the least and the largest value of all parts."""
        bins, _ = equal_bins(self.values, BINS, (low, high))
        return np.bincount(bins, weights=self.counts, minlength=BINS).astype(np.int64)


def merged_few(parts: Sequence[ValueCounts]) -> tuple[list[float], list[int]] | None:
    """The values of all parts and how often each occurs; None where they are many."""
    if not all(part.are_few for part in parts):
        return None
    values = np.concatenate([part.values for part in parts])
    distinct, at = np.unique(values, return_inverse=True)
    counts = np.bincount(at, weights=np.concatenate([part.counts for part in parts])).astype(np.int64)
    return (distinct.tolist(), counts.tolist()) if len(distinct) <= FEW else None


def quartiles(total: int, below: Callable[[Words], Ints]) -> list[float]:
    """The quartiles of so many values, linear between the two nearest ranks; `below` counts those of all parts."""
    ranks = np.array([0.25, 0.5, 0.75]) * (total - 1)
    places = np.unique(np.concatenate([np.floor(ranks), np.ceil(ranks)]).astype(np.int64))
    numbers = np.zeros(len(places), np.uint64)  # the first bits of the value at each place
    for shift in range(64 - _BITS, -1, -_BITS):
        steps = np.arange(1, 1 << _BITS, dtype=np.uint64) << np.uint64(shift)
        starts = np.unique(numbers)
        counts = below((starts[:, None] + steps).ravel()).reshape(len(starts), -1)
        of_place = counts[np.searchsorted(starts, numbers)]
        numbers += (of_place <= places[:, None]).sum(axis=1).astype(np.uint64) << np.uint64(shift)
    values = dict(zip(places.tolist(), _as_values(numbers).tolist(), strict=True))
    low, high = (np.array([values[int(at)] for at in ends]) for ends in (np.floor(ranks), np.ceil(ranks)))
    return [float(value) for value in low + (high - low) * (ranks - np.floor(ranks))]


def distribution_of_parts(
    moments: dict[str, Any], total: int, below: Callable[[Words], Ints], histogram: Callable[[float, float], Ints]
) -> dict[str, Any]:
    """What `facts.distribution` says of a column of many values, of which `moments` has mean, spread and extremes."""
    low, high = moments["min"], moments["max"]
    edges = np.linspace(low, high, BINS + 1).tolist()
    return {
        "count": total,
        **moments,
        "quartiles": quartiles(total, below),
        "histogram": {"edges": edges, "counts": histogram(low, high).tolist()},
    }


def _as_numbers(values: Floats) -> Words:
    """Whole numbers in the same order as the doubles."""
    bits = (values + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _as_values(numbers: Words) -> Floats:
    return np.where(numbers & _SIGN, numbers ^ _SIGN, ~numbers).view(np.float64)
