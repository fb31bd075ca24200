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

    column: str
    rows: int
    mean: Number
    correlation: Number
    within_groups: Number
    best: Number
    worst: Number


def correlation(x: Vector, y: Vector) -> float | None:
    """Pearson's correlation; None if one of the columns does not vary."""
    if len(x) < 2 or x.min() == x.max() or y.min() == y.max():  # noqa: PLR2004 - two points make a line
        return None
    x, y = x - float(x.mean()), y - float(y.mean())
    size = math.sqrt(float((x * x).sum())) * math.sqrt(float((y * y).sum()))
    return plain(min(1.0, max(-1.0, float((x * y).sum()) / size))) if size else None


def with_lengths(column: str, rows: pl.DataFrame, extremes: RewardRange) -> Lengths:
    """The correlation of rewards with lengths; `rows` have `.reward`, `.mean` (of the group) and `length`."""
    known = rows.filter(pl.col(".reward").is_finite() & pl.col("length").is_finite())
    reward, length, codes = (known[name].to_numpy() for name in (".reward", "length", "group"))
    group_length = finite_means(codes, known["length"], int(codes.max(initial=0)) + 1)
    worst, best = (float(length[here].mean()) if here.any() else None for here in at_ends(reward, extremes))
    return Lengths(
        column=column,
        rows=len(known),
        mean=plain(float(length.mean())) if len(known) else None,
        correlation=correlation(reward, length),
        within_groups=correlation(reward - known[".mean"].to_numpy(), length - group_length[codes]),
        best=best,
        worst=worst,
    )


def within_groups(
    codes: Any, columns: Mapping[str, pl.Series], others: Mapping[str, pl.Series]
) -> dict[str, dict[str, float | None]]:
    """The correlation of each column with each of the others, after subtracting group means from both."""
    size = int(codes.max(initial=0)) + 1

    def of_pair(column: pl.Series, other: pl.Series) -> float | None:
        known = column.is_finite() & other.is_finite()
        here, parts = codes[known.fill_null(value=False).to_numpy()], (column.filter(known), other.filter(known))
        return correlation(*(part.to_numpy() - finite_means(here, part, size)[here] for part in parts))

    return {name: {what: of_pair(column, other) for what, other in others.items()} for name, column in columns.items()}
