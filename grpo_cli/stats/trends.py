"""The facts of a run by the value of a column such as the step, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import polars as pl

from grpo_cli.stats.courses import Course, course
from grpo_cli.stats.facts import Number
from grpo_cli.values.cells import JSON_TEXT, canonical

Line = TypeVar("Line")
WHOLE = r"^-?(?:0|[1-9]\d{0,17})$"  # 007 is a text
DECIMAL = r"^-?(?:0|[1-9]\d*)(?:\.\d+)?$"


@dataclass(frozen=True)
class TrendLine:
    """The rows and groups with one value of a column.

    `mean` and `std` are of the rows, `group_std` is the mean std of the groups, and the shares are of groups with two rewards
    to compare; these are None where more than a few groups have rows of several values.
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
    truncated: Number  # the share of these rows whose response was cut off; None if no column says so
    # how the mean reward of these rows goes over the steps; absent from a step, and without steps
    course: Course | None = None


@dataclass(frozen=True)
class Trend:
    """The facts of a run by the values of a column."""

    column: str  # whose values have a line each
    lines: Sequence[TrendLine]  # in the order of the values: as numbers if all of them are, else as text
    # how each fact of a line goes over the values, if they are numbers: what is beyond chance, and its ends
    courses: Mapping[str, Course]


def over_steps(lines: Sequence[Any]) -> bool:
    """Whether the values are several numbers, in whose order something may rise or fall; false and true are no order."""
    values = [line.value for line in lines]
    return len(values) > 1 and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def courses_of_lines(lines: Sequence[Any], facts: Sequence[str]) -> dict[str, Course]:
    """How these facts go over the lines, each with its rows; nothing of categories, or of facts that no line has."""
    found = {}
    if over_steps(lines):
        named = [line.value for line in lines]
        rows = np.array([line.rows for line in lines], np.float64)
        for fact in facts:
            values = np.array([getattr(line, fact) for line in lines], np.float64)  # NaN for None
            if (one := course(np.arange(len(lines)), values, named, rows=rows)) is not None:
                found[fact] = one
    return found


def as_numbers(values: pl.Series, *, typed: bool) -> pl.Series:
    """The values of a column; of a file without types as numbers, if all of them are written as such."""
    if typed or values.dtype != pl.String:
        return values
    known = values.drop_nulls()
    for pattern, kind in ((WHOLE, pl.Int64), (DECIMAL, pl.Float64)):
        if len(known) and known.str.contains(pattern).all():
            return values.cast(kind, strict=False)
    return values


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
