"""Correlations of rewards with the response length and with each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from grpo_cli.engine.group_stats import finite_means
from grpo_cli.engine.moments import Vector
from grpo_cli.stats.facts import Number, RewardRange, at_ends, plain


@dataclass(frozen=True)
class Lengths:
    """How rewards correlate with lengths, over all rows and within groups, where prompt difficulty cancels.

    `best` and `worst` are the mean lengths of rows with these rewards.
    """

    column: str  # that has the lengths
    rows: int  # with a finite reward and a finite length; the other fields are of these
    mean: Number  # of the lengths; None without such rows
    correlation: Number  # Pearson's of reward and length over all of these rows; None if one of them is constant
    # Pearson's of both after subtracting the means of the group; None if one of them is then constant
    within_groups: Number
    best: Number  # the mean length of rows with the best reward; None without any, or if the best is also the worst
    worst: Number  # the mean length of rows with the worst reward; None without any, or if the worst is also the best


def correlation(x: Vector, y: Vector) -> float | None:
    """Pearson's correlation; None if one of the columns does not vary."""
    if len(x) < 2 or x.min() == x.max() or y.min() == y.max():  # noqa: PLR2004 - two points make a line
        return None
    x, y = x - x.mean(), y - y.mean()
    size = math.sqrt((x * x).sum()) * math.sqrt((y * y).sum())
    if not size:
        return None
    r = float((x * y).sum()) / size
    return plain(min(1.0, max(-1.0, r)))


def with_lengths(column: str, rows: pl.DataFrame, extremes: RewardRange) -> Lengths:
    """The correlation of rewards with lengths; `rows` have `.reward`, `.mean` (of the group) and `length`."""
    known = rows.filter(pl.col(".reward").is_finite(), pl.col("length").is_finite())
    reward, length, codes = (known[name].to_numpy() for name in (".reward", "length", "group"))
    of_groups = finite_means(codes, known["length"], codes.max(initial=0) + 1)
    longer = length - of_groups[codes]
    better = reward - known[".mean"].to_numpy()
    worst, best = at_ends(reward, extremes)
    return Lengths(
        column=column,
        rows=len(known),
        mean=plain(_mean(length)),
        correlation=correlation(reward, length),
        within_groups=correlation(better, longer),
        best=_mean(length[best]),
        worst=_mean(length[worst]),
    )


def _mean(numbers: Vector) -> float | None:
    return float(numbers.mean()) if len(numbers) else None


def within_groups(
    codes: Any, columns: Mapping[str, pl.Series], others: Mapping[str, pl.Series]
) -> dict[str, dict[str, float | None]]:
    """The correlation of each column with each of the others, after subtracting group means from both."""
    size = codes.max(initial=0) + 1

    def of_pair(column: pl.Series, other: pl.Series) -> float | None:
        known = column.is_finite() & other.is_finite()
        here = codes[known.fill_null(value=False).to_numpy()]

        def centred(values: pl.Series) -> Vector:
            part = values.filter(known)
            away: Vector = part.to_numpy() - finite_means(here, part, size)[here]
            return away

        return correlation(centred(column), centred(other))

    return {name: {what: of_pair(column, other) for what, other in others.items()} for name, column in columns.items()}
