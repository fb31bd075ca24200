"""The facts of a run line by line: one line for each value of a column, in the order of the values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from grpo_cli.formats.cells import canonical
from grpo_cli.read.group_keys import encode
from grpo_cli.stats.correlations import mean_by_code
from grpo_cli.stats.facts import plain

if TYPE_CHECKING:
    from grpo_cli.stats.facts import RewardRange


def trend(by: pl.Series, rows: pl.DataFrame, groups: pl.DataFrame, extremes: RewardRange) -> list[dict[str, Any]]:
    """One line for each value of `by`.

    `rows` has `group`, `.reward`, `.scorable`, and `length` where it is known; `groups` is one line per group in the order of
    their codes. A group belongs to the value of its first row. `mean` and `std` are those of the rows; `group_std` is the mean
    of the groups' own; the shares are of the groups that have two rewards to compare.
    """
    coded = encode([by], len(by))
    values = by.gather(coded.first)
    codes, size = coded.codes.to_numpy(), len(values)

    reward = rows[".reward"]
    finite = reward.is_finite().fill_null(value=False).to_numpy()
    mean, std = _mean_and_std(reward.to_numpy()[finite], codes[finite], size)
    lengths = mean_by_code(codes, rows["length"], size) if "length" in rows.columns else np.full(size, np.nan)
    row_counts = np.bincount(codes, minlength=size)
    unscorable = np.bincount(codes[~rows[".scorable"].to_numpy()], minlength=size)

    worst, best = extremes
    # Codes of groups are dense and in order of first appearance: written backwards, the first row of each stays.
    row_groups = rows["group"].to_numpy()
    first_rows = np.empty(len(groups), dtype=np.int64)
    first_rows[row_groups[::-1]] = np.arange(len(row_groups) - 1, -1, -1)
    value_of_group = codes[first_rows]
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
            "rows": int(row_counts[i]),
            "unscorable": int(unscorable[i]),
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


def _mean_and_std(values: Any, codes: Any, size: int) -> tuple[Any, Any]:
    """Mean and sample standard deviation of each code, in two passes in row order; NaN where there are none."""
    n = np.bincount(codes, minlength=size).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(codes, weights=values, minlength=size) / n
        squares = (values - mean[codes]) ** 2
        std = np.sqrt(np.bincount(codes, weights=squares, minlength=size) / (n - 1))
    return mean, np.where(n > 1, std, np.nan)
