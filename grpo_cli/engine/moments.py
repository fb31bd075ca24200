"""Sufficient statistics of a batch, and every spelling of a standard deviation.

A batch-wide mean or spread is never computed in one go. It is `of` a part and `merge` of two parts, as a stream needs
it. `of` itself works on fixed chunks of rows merged in row order: the same input gives the same bits for any thread
count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import polars as pl

CHUNK: Final = 65_536
NEAREST: Final = 1e-150  # a smaller spread has squares with few digits, or none

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]
Index = np.ndarray[tuple[int], np.dtype[np.int64]]
Codes = np.ndarray[tuple[int], np.dtype[np.uint32]]


@dataclass(frozen=True, slots=True)
class Moments:
    """Weight, mean and sum of squared deviations; one entry per batch.

    The mean is `mean + low`: beside 1e9 a double has seven digits left, and the mean of 1e9 + {0, 1, 1} needs more.
    """

    weight: Vector
    mean: Vector
    low: Vector
    m2: Vector

    @classmethod
    def empty(cls, batches: int) -> Moments:
        """The moments of no rows at all."""
        return cls(*(np.zeros(batches) for _ in range(4)))

    @classmethod
    def of(cls, values: Vector, batch: Codes, batches: int, weights: Vector | None = None) -> Moments:
        """Collect the moments of `values`, row i belonging to batch `batch[i]`."""
        weights = np.ones_like(values) if weights is None else weights
        total = cls.empty(batches)
        for start in range(0, len(values), CHUNK):
            part = slice(start, start + CHUNK)
            total = total.merge(_of_chunk(values[part], batch[part], batches, weights[part]))
        return total

    def merge(self, other: Moments) -> Moments:
        """Join the moments of two disjoint parts (Chan's update)."""
        weight = self.weight + other.weight
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            share = np.where(weight > 0, other.weight / weight, 0.0)
            delta = (other.mean - self.mean) + (other.low - self.low)
            step = delta * share
            mean = self.mean + step
            # What the addition rounded away.
            lost = step - (mean - self.mean)
            cross = np.where((self.weight > 0) & (other.weight > 0), delta * delta * self.weight * share, 0.0)
        first = self.weight > 0
        return Moments(
            weight,
            np.where(first, mean, other.mean),
            np.where(first, self.low + lost, other.low),
            self.m2 + other.m2 + cross,
        )

    def variance(self, ddof: int) -> Vector:
        """Finish: the variance with `ddof`; NaN where there are too few rows."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.weight > ddof, self.m2 / (self.weight - ddof), np.nan)


def _of_chunk(values: Vector, batch: Codes, batches: int, weights: Vector) -> Moments:
    """Two passes over one chunk: what the first left of the mean is kept, so large offsets cost no digits."""

    def total(x: Vector) -> Vector:
        if batches == 1:  # pairwise summation, and much faster than counting bins
            return np.array([x.sum()])
        return np.bincount(batch, weights=x, minlength=batches).astype(np.float64)

    # The squares of quantities that are squares themselves may overflow: their m2 is infinite then.
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        weight = total(weights)
        safe = np.where(weight > 0, weight, 1.0)
        mean = total(weights * values) / safe
        low = total(weights * (values - mean[batch])) / safe
        return Moments(weight, mean, low, total(weights * ((values - mean[batch]) - low[batch]) ** 2))


def spread(variance: pl.Expr, *, inside: float = 0.0, floor: float = 0.0, epsilon: float = 0.0) -> pl.Expr:
    """Every spelling of a divisor: sqrt(max(var + inside, floor)) + epsilon.

    verl's whitening adds 1e-8 inside the root, OpenRLHF clamps the variance at 1e-8, the group estimators
    add their epsilon to the root. A NaN variance stays NaN (`clip` would turn it into the floor).
    """
    inner = variance + inside if inside else variance
    root = (inner.clip(lower_bound=floor) if floor else inner).sqrt()
    return root + epsilon if epsilon else root
