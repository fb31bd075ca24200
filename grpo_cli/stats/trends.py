"""The facts of a run line by line: one line for each value of a column, in the order of the values.

What is known of the values in parts of the rows can be put together, where no group is in two parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Moments
from grpo_cli.formats.cells import canonical
from grpo_cli.read.group_keys import encode
from grpo_cli.stats.facts import plain

if TYPE_CHECKING:
    from grpo_cli.stats.facts import RewardRange

    Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class RowsByValue:
    """What the rows of each value of a column show: their number, those without a score, rewards and lengths."""

    values: pl.Series
    rows: Floats
    unscorable: Floats
    rewards: Moments
    lengths: Moments | None  # None where the length is not known

    @classmethod
    def of(cls, by: pl.Series, rows: pl.DataFrame) -> RowsByValue:
        """The rows have `.reward`, `.scorable`, and `length` where it is known."""
        coded = encode([by], len(by))
        codes, size = coded.codes.to_numpy(), coded.size
        return cls(
            by.gather(coded.first),
            np.bincount(codes, minlength=size).astype(np.float64),
            np.bincount(codes[~rows[".scorable"].to_numpy()], minlength=size).astype(np.float64),
            _moments(rows[".reward"], codes, size),
            _moments(rows["length"], codes, size) if "length" in rows.columns else None,
        )

    def merge(self, other: RowsByValue) -> RowsByValue:
        """What the rows of both show."""
        values = pl.concat([self.values, other.values], how="vertical", rechunk=True)
        coded = encode([values], len(values))
        places = coded.codes.to_numpy().astype(np.int64)
        mine, theirs = places[: len(self.values)], places[len(self.values) :]

        def added(one: Floats, another: Floats) -> Floats:
            return np.bincount(places, np.concatenate([one, another]), coded.size).astype(np.float64, copy=False)

        def merged(one: Moments, another: Moments) -> Moments:
            return _spread(one, mine, coded.size).merge(_spread(another, theirs, coded.size))

        lengths = None
        if self.lengths is not None and other.lengths is not None:
            lengths = merged(self.lengths, other.lengths)
        return RowsByValue(
            values.gather(coded.first),
            added(self.rows, other.rows),
            added(self.unscorable, other.unscorable),
            merged(self.rewards, other.rewards),
            lengths,
        )


def trend(rows: RowsByValue, by: pl.Series, groups: pl.DataFrame, extremes: RewardRange) -> list[dict[str, Any]]:
    """One line for each value of a column.

    `by` is the value of the first row of each group: that is the one which the group belongs to. `mean` and `std` are
    those of the rows; `group_std` is the mean of the groups' own; the shares are of the groups that have two rewards to compare.
    """
    values, size = rows.values, len(rows.values)
    # The values are distinct, so their codes are their places.
    value_of_group = encode([pl.concat([values, by])], size + len(by)).codes.to_numpy()[size:]
    mean, std = _mean_and_std(rows.rewards)
    lengths = np.full(size, np.nan) if rows.lengths is None else _mean_and_std(rows.lengths)[0]
    worst, best = extremes
    two = (groups["scored"] > 1).to_numpy()
    constant, highest = groups["constant"].to_numpy(), groups["max"].to_numpy()
    group_counts = np.bincount(value_of_group, minlength=size)
    comparable = np.bincount(value_of_group[two], minlength=size)
    std_sums = np.bincount(value_of_group[two], weights=groups["std"].to_numpy()[two], minlength=size)
    varied = best != worst
    shares = {
        "zero_variance": np.bincount(value_of_group[constant], minlength=size),
        "all_best": np.bincount(value_of_group[constant & (highest == best) & varied], minlength=size),
        "all_worst": np.bincount(value_of_group[constant & (highest == worst) & varied], minlength=size),
    }
    return [
        {
            "value": values[i],
            "groups": int(group_counts[i]),
            "rows": int(rows.rows[i]),
            "unscorable": int(rows.unscorable[i]),
            "mean": plain(float(mean[i])),
            "std": plain(float(std[i])),
            "group_std": float(std_sums[i]) / int(comparable[i]) if comparable[i] else None,
            **{name: int(n[i]) / int(comparable[i]) if comparable[i] else None for name, n in shares.items()},
            "length": plain(float(lengths[i])),
        }
        for i in _in_order(values)
    ]


def count_spanning(by: pl.Series, groups: pl.Series) -> int:
    """How many groups have rows of several values."""
    pairs = pl.DataFrame({"group": groups, "by": encode([by], len(by)).codes}).unique()
    return len(pairs) - pairs["group"].n_unique()


def _in_order(values: pl.Series) -> list[int]:
    """Places in the order of the values: as numbers, or as text; of other kinds as their JSON text."""
    if values.dtype.is_nested():
        values = canonical(values)
    numbers = values.cast(pl.Float64, strict=False) if values.dtype == pl.String else values
    if numbers.null_count() == values.null_count():
        values = numbers
    return [int(i) for i in values.arg_sort(nulls_last=True)]


def _moments(values: pl.Series, codes: Any, size: int) -> Moments:
    """The moments of the finite values of each code, in two passes in row order."""
    finite = values.is_finite().fill_null(value=False).to_numpy()
    here, numbers = codes[finite], values.to_numpy()[finite]
    n = np.bincount(here, minlength=size).astype(np.float64)
    mean = np.bincount(here, weights=numbers, minlength=size) / np.where(n > 0, n, 1.0)
    squares = (numbers - mean[here]) ** 2
    return Moments(n, mean, np.zeros(size), np.bincount(here, weights=squares, minlength=size).astype(np.float64))


def _spread(moments: Moments, places: Any, size: int) -> Moments:
    """The same moments at these places among so many."""
    arrays = [np.zeros(size) for _ in range(4)]
    for wide, narrow in zip(arrays, (moments.weight, moments.mean, moments.low, moments.m2), strict=True):
        wide[places] = narrow
    return Moments(*arrays)


def _mean_and_std(moments: Moments) -> tuple[Any, Any]:
    """Mean and sample standard deviation of each code; NaN where there are none."""
    mean = np.where(moments.weight > 0, moments.mean + moments.low, np.nan)
    return mean, np.sqrt(moments.variance(1))
