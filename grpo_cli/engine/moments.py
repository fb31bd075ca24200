"""Mergeable moments of a batch, and the standard deviations of all frameworks.

The rows of a batch are summed in chunks of fixed size, merged in row order: a batch gets the same bits for any number of
threads and with any other batches in the file.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

CHUNK = 65_536  # rows of a batch that are added up at once
_BLOCK = 1 << 14  # rows whose intermediate arrays stay in the cache
_WORD = 16  # numpy sorts 16-bit integers in linear time
NEAREST = 1e-150  # the squares of a smaller spread lose digits or underflow

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]
Index = np.ndarray[tuple[int], np.dtype[np.int64]]
Codes = np.ndarray[tuple[int], np.dtype[np.uint32]]
Table = np.ndarray[tuple[int, int], np.dtype[np.float64]]


def quiet() -> np.errstate:
    """NaN, infinities and groups without values are expected; numpy needs this in each thread."""
    return np.errstate(invalid="ignore", divide="ignore", over="ignore")


class Moments(NamedTuple):
    """Weight, mean and sum of squared deviations; one entry per batch.

    The mean is `mean + low`: at 1e9 a double has seven decimals, and the mean of 1e9 + {0, 1, 1} needs more.
    """

    weight: Vector
    mean: Vector
    low: Vector
    m2: Vector

    @classmethod
    def of(cls, values: Vector, batch: Codes | None = None, batches: int = 1, weights: Vector | None = None) -> Moments:
        """The moments of `values`; `batch` has the batch of each row, None puts all rows into one."""
        if batch is not None and (batch[1:] < batch[:-1]).any():
            order = stable_order(batch)
            values, batch = values[order], batch[order]
            weights = None if weights is None else weights[order]
        each = np.arange(batches)
        ends = np.array([len(values)]) if batch is None else np.searchsorted(batch, each, side="right")
        rows = np.diff(ends, prepend=0)
        chunks = -(-rows // CHUNK)
        first = np.cumsum(chunks) - chunks
        owner = np.repeat(each, chunks)
        place = np.arange(len(owner)) - first[owner]
        starts = (ends - rows)[owner] + CHUNK * place
        parts = _of_chunks(values, starts, weights)
        total = cls.none(batches)
        for nth in range(chunks.max(initial=0)):
            has_it = chunks > nth
            at = np.where(has_it, first + nth, 0)
            part = np.where(has_it, parts[:, at], 0.0)
            total = total.merge(cls(*part))
        return total

    @classmethod
    def none(cls, batches: int = 1) -> Moments:
        """The moments of batches without rows."""
        return cls(*np.zeros((4, batches)))

    def merge(self, other: Moments) -> Moments:
        """The moments of two disjoint parts together (Chan's update)."""
        weight = self.weight + other.weight
        with quiet():
            first = self.weight > 0
            both = first & (other.weight > 0)
            share = np.where(weight > 0, other.weight / weight, 0.0)
            delta = (other.mean - self.mean) + (other.low - self.low)
            step = delta * share
            mean = self.mean + step
            lost = step - (mean - self.mean)  # to rounding
            cross = np.where(both, delta * delta * self.weight * share, 0.0)
        return Moments(
            weight,
            np.where(first, mean, other.mean),
            np.where(first, self.low + lost, other.low),
            self.m2 + other.m2 + cross,
        )

    def variance(self, ddof: int) -> Vector:
        """The variance with `ddof`; NaN if there are too few rows."""
        with quiet():
            variance = self.m2 / (self.weight - ddof)
            return np.where(self.weight > ddof, variance, np.nan)


def stable_order(codes: Codes) -> Index:
    """The stable order of rows by code, as `np.argsort`; each half of the bits is sorted in linear time."""
    if (codes[1:] >= codes[:-1]).all():
        return np.arange(len(codes))
    by_low = np.argsort(codes.astype(np.uint16), kind="stable")
    high = (codes >> _WORD).astype(np.uint16)
    if not high.any():
        return by_low
    by_high = np.argsort(high[by_low], kind="stable")
    return by_low[by_high]


def _of_chunks(values: Vector, starts: Index, weights: Vector | None) -> Table:
    """Weight, mean, low and m2 of the chunks that begin at `starts`, a piece that fits the cache at a time."""
    ends = np.append(starts[1:], len(values))
    found = [np.zeros((4, 0))]
    done = 0
    while done < len(starts):
        begin = starts[done]
        after = np.searchsorted(ends, begin + CHUNK, side="right")
        piece = slice(begin, ends[after - 1])
        weights_there = None if weights is None else weights[piece]
        moments = _of_piece(values[piece], starts[done:after] - begin, weights_there)
        found.append(moments)
        done = after
    return np.concatenate(found, axis=1)


def _of_piece(values: Vector, starts: Index, weights: Vector | None) -> Table:
    """Two passes over the rows: the second finds what the first lost of the mean, so large offsets cost no digits."""
    lengths = np.diff(starts, append=len(values))

    def total(x: Vector) -> Vector:
        return np.add.reduceat(x if weights is None else weights * x, starts)

    # Squares of squares may overflow; m2 is infinite then.
    with quiet():
        weight = lengths.astype(np.float64) if weights is None else np.add.reduceat(weights, starts)
        safe = np.where(weight > 0, weight, 1.0)
        mean = total(values) / safe
        away = values - np.repeat(mean, lengths)
        low = total(away) / safe
        away -= np.repeat(low, lengths)
        away *= away
        return np.array([weight, mean, low, total(away)])


def exact_sums(columns: Sequence[Vector]) -> Vector:
    """The sum of each row, rounded once, as `math.fsum` gives it: the same in any order of the columns."""
    sums = list[Vector]()
    for start in range(0, max(len(columns[0]), 1), _BLOCK):
        block = [column[start : start + _BLOCK] for column in columns]
        sums.append(_exact_sums(block))
    return np.concatenate(sums)


def _exact_sums(columns: Sequence[Vector]) -> Vector:
    with quiet():
        total, lost = _added(columns)
        rest, lost_again = _added(lost)
        doubt = np.abs(lost_again).sum(axis=0)
        # More than what `rest` lacks, and than the rounding of the two bounds.
        margin = 2 * doubt + 2.0**-51 * np.abs(rest)
        lowest = total + (rest - margin)
        highest = total + (rest + margin)
        unsure = (doubt > 0) & (lowest != highest)
        sums = np.where(np.isfinite(total), total + rest, total)
    for row in np.flatnonzero(unsure).tolist():
        sums[row] = math.fsum(column[row] for column in columns)
    return sums


def _added(columns: Sequence[Vector]) -> tuple[Vector, list[Vector]]:
    """The columns added one by one, and what each addition lost to rounding, exactly (Knuth's two-sum)."""
    total = columns[0]
    lost = []
    for column in columns[1:]:
        more = total + column
        part = more - total
        lost_of_total = total - (more - part)
        lost.append(lost_of_total + (column - part))
        total = more
    return total, lost


def spread(variance: pl.Expr, *, inside: float = 0.0, floor: float = 0.0, epsilon: float = 0.0) -> pl.Expr:
    """The divisor of every framework: sqrt(max(var + inside, floor)) + epsilon.

    verl's whitening adds 1e-8 inside the root, OpenRLHF clamps the variance at 1e-8, group estimators add their epsilon to
    the root. A NaN variance stays NaN.
    """
    if inside:
        variance = variance + inside
    if floor:
        variance = variance.clip(lower_bound=floor)
    root = variance.sqrt()
    return root + epsilon if epsilon else root
