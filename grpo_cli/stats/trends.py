"""The facts of a run by the value of a column such as the step, in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Vector
from grpo_cli.stats.facts import Number
from grpo_cli.values.cells import JSON_TEXT, canonical

Line = TypeVar("Line")

Z = 1.959963984540054  # the normal quantile of an interval of 95 %
RARE = 1.32  # from an interval of 95 % to one of 99 %: a page tells several trends
FEWEST = 5  # values whose distances from a line say what chance does; fewer hide a rise that everybody sees
# Student's t quantile by degrees of freedom, where the series in `student` is too coarse.
T = {1: 12.7062, 2: 4.30265, 3: 3.18245, 4: 2.77645}


@dataclass(frozen=True)
class TrendLine:
    """The rows and groups with one value of a column.

    `mean` and `std` are of the rows, `group_std` is the mean std of the groups, and the shares are of groups with two rewards
    to compare.
    """

    value: Any  # of the column; None for rows without one
    groups: int  # whose first row has this value
    rows: int  # that have this value, scored or not
    unscorable: int  # rows with this value that have no reward that counts
    mean: Number  # of the finite rewards of these rows; None without any
    std: Number  # sample std (divided by n - 1) of the rewards of these rows; None with fewer than two
    group_std: Number  # the mean of the sample stds of the groups with at least two rewards; None without such groups
    # the share of groups whose rewards are equal, among those with at least two; None without such groups
    zero_variance: Number
    # the share of groups whose rewards are all the best, among those with at least two; None without such groups
    all_best: Number
    # the share of groups whose rewards are all the worst, among those with at least two; None without such groups
    all_worst: Number
    length: Number  # the mean response length of these rows; None if it is not known


@dataclass(frozen=True)
class Trend:
    """The facts of a run by the values of a column."""

    column: str  # whose values have a line each
    lines: Sequence[TrendLine]  # in the order of the values: as numbers if all of them are, else as text


def student(freedom: int) -> float:
    """The quantile of Student's t for an interval of 95 %."""
    series = ((Z**3 + Z) / 4, (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96, (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384)
    near = Z + sum(term / freedom**power for power, term in enumerate(series, 1))
    return float(T.get(freedom, near))


def over_steps(lines: Sequence[Any]) -> bool:
    """Whether the values are several numbers, in whose order something may rise or fall."""
    return len(lines) > 1 and all(isinstance(line.value, (int, float)) for line in lines)


class Ends(NamedTuple):
    """The mean of a fact over the first fifth of the values, the last fifth and all, and whether it rises or falls beyond chance."""

    first: float
    last: float
    mean: float
    differ: bool


def ends(lines: Sequence[Any], fact: str) -> Ends | None:
    """The ends of a trend, each value with its rows; None if one end is unknown."""
    many = max(1, len(lines) // 5)
    means = []
    for part in (lines[:many], lines[-many:], lines):
        known = [(value, line.rows) for line in part if (value := getattr(line, fact)) is not None]
        if not known:
            return None
        values, rows = map(np.array, zip(*known, strict=True))
        means.append(float(values @ rows / rows.sum()))
    first, last, mean = means
    return Ends(first, last, mean, differ=len(values) < FEWEST or _has_slope(values))


def _has_slope(values: Vector) -> bool:
    """Whether the line through these values rises or falls by more than their distances from it would by chance (Student's t test)."""
    size = len(values)
    at = np.arange(size) - (size - 1) / 2
    slope = at @ values / (at @ at)
    away = values - values.mean() - slope * at
    error = math.sqrt(away @ away / (size - 2) / (at @ at))
    return bool(abs(slope) > RARE * student(size - 2) * error)


def in_order(values: pl.Series) -> list[int]:
    """The places of the values in order: as numbers if possible, else as text or JSON text."""
    if values.dtype.is_nested() or values.dtype == JSON_TEXT:
        values = canonical(values)
    numbers = values.cast(pl.Float64, strict=False) if values.dtype == pl.String else values
    if numbers.null_count() == values.null_count():
        values = numbers
    return values.arg_sort(nulls_last=True).to_list()


def thinned(lines: Sequence[Line], most: int) -> list[Line]:
    """At most this many lines, evenly spread, including the first and the last."""
    if len(lines) <= most:
        return [*lines]
    places = {round(k * (len(lines) - 1) / (most - 1)) for k in range(most)}
    return [lines[place] for place in sorted(places)]
