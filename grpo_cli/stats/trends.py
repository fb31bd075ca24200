"""The facts of a run line by line: one for each value of a column, in the order of the values."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from grpo_cli.formats.cells import canonical
from grpo_cli.read.group_keys import encode
from grpo_cli.stats.facts import plain

# What a line says, in the order of its columns.
COLUMNS: Final = (
    "value", "groups", "rows", "unscorable", "mean", "std", "group_std", "zero_variance", "all_best", "all_worst", "length",
)  # fmt: skip


def trend(
    by: pl.Series, rows: pl.DataFrame, groups: pl.DataFrame, ends: tuple[float | None, float | None]
) -> list[dict[str, Any]]:
    """One line for each value of `by`.

    `rows` has `group`, `.reward`, `.scorable`, and `length` where it is known; `groups` is one line per group in the order of
    their codes. A group belongs to the value of its first row. `mean` and `std` are those of the rows; `group_std` is the mean
    of the groups' own; the shares are of the groups that have two rewards to compare.
    """
    coded = encode([by], len(by))
    order = _ordered(by.gather(coded.first))
    codes, reward = coded.codes.to_numpy(), rows[".reward"]
    size = len(order)
    finite = reward.is_finite().fill_null(value=False).to_numpy()
    unscorable = np.bincount(codes[~rows[".scorable"].to_numpy()], minlength=size)
    mean, std = _moments(reward.to_numpy()[finite], codes[finite], size)
    owner = codes[_first_rows(rows["group"], len(groups))]
    told = _of_groups(groups, owner, size, ends)
    length = _mean(rows["length"], codes, size) if "length" in rows.columns else [None] * size
    counted = np.bincount(codes, minlength=size)
    values = by.gather(coded.first).to_list()
    return [
        {
            "value": values[i],
            "groups": told["groups"][i],
            "rows": int(counted[i]),
            "unscorable": int(unscorable[i]),
            "mean": plain(float(mean[i])),
            "std": plain(float(std[i])),
            **{name: told[name][i] for name in ("group_std", "zero_variance", "all_best", "all_worst")},
            "length": length[i],
        }
        for i in order
    ]


def spanning(by: pl.Series, groups: pl.Series) -> int:
    """How many groups have rows of several values."""
    pairs = pl.DataFrame({"group": groups, "by": encode([by], len(by)).codes}).unique()
    return len(pairs) - pairs["group"].n_unique()


def _ordered(values: pl.Series) -> list[int]:
    """Codes in the order of their values: as numbers, or as text; of other kinds as their JSON text."""
    if values.dtype.is_nested():
        values = canonical(values)
    numbers = values.cast(pl.Float64, strict=False) if values.dtype == pl.String else values
    if numbers.null_count() == values.null_count():
        values = numbers
    return [int(i) for i in values.arg_sort(nulls_last=True)]


def _first_rows(codes: pl.Series, groups: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The first row of each group; codes are dense and in order of first appearance."""
    first = np.full(groups, -1, dtype=np.int64)
    found = codes.to_numpy()
    first[found[::-1]] = np.arange(len(found) - 1, -1, -1)
    return first


def _moments(values: Any, codes: Any, size: int) -> tuple[Any, Any]:
    """Mean and sample standard deviation of each code, in two passes in row order."""
    n = np.bincount(codes, minlength=size).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(codes, weights=values, minlength=size) / n
        away = (values - mean[codes]) ** 2
        std = np.sqrt(np.bincount(codes, weights=away, minlength=size) / (n - 1))
    return mean, np.where(n > 1, std, np.nan)


def _mean(values: pl.Series, codes: Any, size: int) -> list[float | None]:
    known = values.is_finite().fill_null(value=False).to_numpy()
    n = np.bincount(codes[known], minlength=size)
    total = np.bincount(codes[known], weights=values.to_numpy()[known], minlength=size)
    return [float(t) / int(k) if k else None for t, k in zip(total, n, strict=True)]


def _of_groups(
    groups: pl.DataFrame, owner: Any, size: int, ends: tuple[float | None, float | None]
) -> dict[str, list[Any]]:
    worst, best = ends
    two = (groups["scored"] > 1).to_numpy()
    constant = groups["constant"].to_numpy()
    high = groups["max"].to_numpy()
    comparable = np.bincount(owner[two], minlength=size)

    def share(those: Any) -> list[float | None]:
        found = np.bincount(owner[those], minlength=size)
        return [int(f) / int(n) if n else None for f, n in zip(found, comparable, strict=True)]

    std = np.bincount(owner[two], weights=groups["std"].to_numpy()[two], minlength=size)
    return {
        "groups": np.bincount(owner, minlength=size).tolist(),
        "group_std": [float(s) / int(n) if n else None for s, n in zip(std, comparable, strict=True)],
        "zero_variance": share(constant),
        "all_best": share(constant & (high == best) & (best != worst)),
        "all_worst": share(constant & (high == worst) & (best != worst)),
    }
