"""What rewards go together with: the length of the response; and which responses of a group are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from grpo_cli.read.group_keys import encode
from grpo_cli.stats.facts import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grpo_cli.stats.facts import RewardRange


def length_and_reward(rows: pl.DataFrame, extremes: RewardRange) -> dict[str, Any]:
    """How the reward goes with the length, over all rows and inside the groups, where hard prompts count for nothing.

    `rows` has `.reward`, `.mean` (of the group) and `length`. The mean lengths are those of rows with the best and the
    worst reward; both are None where such rewards do not occur.
    """
    known = rows.filter(pl.col(".reward").is_finite() & pl.col("length").is_finite())
    reward, length = known[".reward"].to_numpy(), known["length"].to_numpy()
    codes = known["group"].to_numpy()
    group_length = mean_by_code(codes, known["length"], int(codes.max(initial=0)) + 1)
    worst, best = extremes

    def mean_where(rewarded: float | None) -> float | None:
        here = length[reward == rewarded]
        return float(here.mean()) if len(here) and best != worst else None

    return {
        "rows": len(known),
        "mean": plain(float(length.mean())) if len(length) else None,
        "correlation": correlation(reward, length),
        "within_groups": correlation(reward - known[".mean"].to_numpy(), length - group_length[codes]),
        "best": mean_where(best),
        "worst": mean_where(worst),
    }


def inside_groups(
    codes: Any, columns: Mapping[str, pl.Series], others: Mapping[str, pl.Series]
) -> dict[str, dict[str, float | None]]:
    """The correlation of each column with each of the others, of what is left when each group has its mean taken off."""
    size = int(codes.max(initial=0)) + 1

    def one_pair(one: pl.Series, other: pl.Series) -> float | None:
        known = (one.is_finite() & other.is_finite()).fill_null(value=False).to_numpy()
        here = codes[known]
        values = (pl.Series(series.to_numpy()[known]) for series in (one, other))
        x, y = (series.to_numpy() - mean_by_code(here, series, size)[here] for series in values)
        return correlation(x, y)

    return {name: {what: one_pair(values, other) for what, other in others.items()} for name, values in columns.items()}


def correlation(one: Any, other: Any) -> float | None:
    """Pearson's correlation; None where one of them does not vary."""
    if len(one) < 2 or one.min() == one.max() or other.min() == other.max():  # noqa: PLR2004 - two points make a line
        return None
    x, y = one - one.mean(), other - other.mean()
    size = float(np.sqrt((x * x).sum())) * float(np.sqrt((y * y).sum()))
    return plain(min(1.0, max(-1.0, float((x * y).sum()) / size))) if size else None


def mean_by_code(codes: Any, values: pl.Series, size: int) -> Any:
    """The mean of the finite values of each of `size` codes; NaN where a code has none."""
    known = values.is_finite().fill_null(value=False).to_numpy()
    codes = codes[known]
    with np.errstate(invalid="ignore"):
        return np.bincount(codes, weights=values.to_numpy()[known], minlength=size) / np.bincount(codes, minlength=size)


def duplicates(codes: pl.Series, texts: pl.Series) -> dict[str, Any]:
    """How many responses repeat an earlier one of their group, in how many groups; a missing text is like no other."""
    known = texts.is_not_null()
    codes, texts = codes.filter(known), texts.filter(known)
    distinct = encode([codes, texts], len(codes))
    distinct_texts = np.bincount(codes.gather(distinct.first).to_numpy())
    sizes = np.bincount(codes.to_numpy())
    return {
        "rows": int(len(codes) - distinct.size),
        "share": (len(codes) - distinct.size) / len(codes) if len(codes) else None,
        "groups": int((sizes > distinct_texts).sum()),
        "all_the_same": int(((distinct_texts == 1) & (sizes > 1)).sum()),
    }
