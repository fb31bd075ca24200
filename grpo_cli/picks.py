"""Which rows of a group are kept when not all of them are: the best, the worst, the most different, any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from grpo_cli.segments import Segments

if TYPE_CHECKING:
    from grpo_cli.moments import Codes, Vector
    from grpo_cli.segments import Index, Mask

Pick = Literal["best", "worst", "spread", "random"]


def picked(codes: Codes, rewards: Vector, most: int, how: Pick, seed: int) -> Mask:
    """Mark at most so many rows of each group; rows whose reward is not finite are never among them.

    Of equal rewards the earlier row is taken (`spread` takes from both ends). The same seed gives the same rows.
    """
    finite = np.flatnonzero(np.isfinite(rewards))
    chosen = np.zeros(len(codes), dtype=bool)
    if not len(finite):
        return chosen
    codes, rewards = codes[finite], rewards[finite]
    by = {"best": -rewards, "worst": rewards, "spread": rewards}.get(how)
    if by is None:
        by = np.random.default_rng(seed).random(len(finite))
    order = np.lexsort((by, codes))
    segments, _ = Segments.of(codes[order])
    place = np.arange(len(order)) - np.repeat(segments.starts, segments.sizes)
    if how == "spread":
        top = np.repeat(_from_the_top(segments, rewards[order], most), segments.sizes)
        kept = (place < most - top) | (place >= np.repeat(segments.sizes, segments.sizes) - top)
    else:
        kept = place < most
    chosen[finite[order[kept]]] = True
    return chosen


def _from_the_top(segments: Segments, ordered: Vector, most: int) -> Index:
    """How many of the kept rows come from the top of each group, the rest from its bottom.

    The largest variance that so many rows of a group can have is reached at its two ends; every division between them
    is tried, the even one first.
    """
    large = np.flatnonzero(segments.sizes > most)
    starts, ends = segments.starts[large], segments.starts[large] + segments.sizes[large]
    away = ordered - segments.spread(ordered[segments.starts])  # an offset that all share costs no digits
    bottom, top = _running(away, starts, 1, most), _running(away, ends - 1, -1, most)
    best = np.full(len(large), -1.0)
    share = np.full(len(large), most // 2)
    for k in sorted(range(most + 1), key=lambda k: (abs(2 * k - most), k)):
        total = bottom[0][most - k] + top[0][k]
        variance = bottom[1][most - k] + top[1][k] - total * total / most
        better = variance > best + 1e-12 * np.abs(best)
        best, share = np.where(better, variance, best), np.where(better, k, share)
    found = np.zeros(len(segments.sizes), dtype=np.int64)
    found[large] = share
    return found


def _running(values: Vector, first: Index, step: int, most: int) -> tuple[list[Vector], list[Vector]]:
    """Sums and sums of squares of the first 0, 1, ... rows from an end of each group."""
    sums, squares = [np.zeros(len(first))], [np.zeros(len(first))]
    for i in range(most):
        value = values[first + step * i]
        sums.append(sums[-1] + value)
        squares.append(squares[-1] + value * value)
    return sums, squares
