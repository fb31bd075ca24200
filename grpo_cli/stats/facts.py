"""The summary of a computation: what its rewards, groups and advantages look like, and the quantities of --fail-on.

Everything that is returned is plain data (dicts, lists, floats or None; never NaN), so that it can be shown,
written as JSON and compared without another conversion.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import FEW, Numbers, counts, few
from grpo_cli.engine.score import STATUSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.engine.score import Scored
    from grpo_cli.read.tables import Narrow

RewardRange = tuple[float | None, float | None]  # the worst and the best reward

VERSION: Final = 1
LISTED: Final = 10  # keys that are listed for each reason
BINS: Final = FEW
NEARLY_CONSTANT: Final = 1e-9  # a spread of a billionth of the size is rounding in the reward, not information


def group_facts(scored: Scored) -> pl.DataFrame:
    """One line per group, in order of first appearance."""
    size = pl.max_horizontal(pl.col(".min").abs(), pl.col(".max").abs())
    spread = (pl.col(".max") - pl.col(".min")).fill_nan(None)  # polars has NaN <= NaN
    # Where each component is estimated by itself, their sum may be constant and none of them.
    of_sum = scored.plan.rewards.combine == "sum"
    return scored.groups.select(
        code="code",
        batch="batch",
        size="size",
        scored=pl.col(".n").cast(pl.Int64),
        mean=".mean",
        std=".std",
        min=".min",
        max=".max",
        constant=pl.col(".constant").fill_null(value=False) & (pl.col(".n") > 1),
        nearly=pl.lit(of_sum) & ~pl.col(".constant") & (spread <= NEARLY_CONSTANT * size),
        status=".status",
        kept=".kept",
        zero_variance=".zero_variance",
    )


def distribution(values: pl.Series) -> dict[str, Any]:
    """Mean, spread, quartiles and a histogram of the finite values.

    The histogram has `values` and `counts` where few values occur, else `edges` and `counts`; None without any value.
    """
    value_counts = few(values)
    if value_counts is not None:
        return distribution_of_counts(*value_counts)
    numbers = Numbers.of(values)
    moments = {"count": numbers.count, **numbers.facts()}
    finite = (values if numbers.count == len(values) else values.filter(values.is_finite())).to_numpy()
    bins, edges = equal_bins(finite, BINS)
    return {
        **moments,
        "quartiles": np.quantile(finite, [0.25, 0.5, 0.75]).tolist(),
        "histogram": {"edges": edges.tolist(), "counts": np.bincount(bins, minlength=BINS).tolist()},
    }


def distribution_of_counts(distinct: Sequence[float], counted: Sequence[int]) -> dict[str, Any]:
    """The same of values in ascending order and how often each occurs."""
    numbers = Numbers.counted(distinct, counted)
    moments = {"count": numbers.count, **numbers.facts()}
    if not numbers.count:
        return {**moments, "quartiles": [None] * 3, "histogram": None}
    return {
        **moments,
        "quartiles": _quartiles_of_counts(distinct, counted),
        "histogram": {"values": distinct, "counts": counted},
    }


def _quartiles_of_counts(values: Sequence[float], counts: Sequence[int]) -> list[float]:
    """Linear interpolation between the two nearest ranks, from values and how often each occurs."""
    ends = np.cumsum(counts)
    ranks = np.array([0.25, 0.5, 0.75]) * (ends[-1] - 1)
    low, high = (np.take(values, np.searchsorted(ends, at, side="right")) for at in (np.floor(ranks), np.ceil(ranks)))
    return [float(value) for value in low + (high - low) * (ranks - np.floor(ranks))]


def equal_bins(
    finite: np.ndarray[Any, Any], bins: int, ends: tuple[float, float] | None = None
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The bin of each number, and the edges of bins of equal width; the numbers must not all be equal.

    The edges lie between the least and the largest number unless other `ends` are given.
    """
    low, high = (float(finite.min()), float(finite.max())) if ends is None else ends
    # Scaled integers are counted faster than np.histogram searches its edges.
    places = np.minimum(((finite - low) / (high - low) * bins).astype(np.int64), bins - 1)
    return places, np.linspace(low, high, bins + 1)


def zero_variance(groups: pl.DataFrame) -> dict[str, Any]:
    """Groups that carry no gradient, split by what their rewards are.

    Best and worst are 1 and 0 where all rewards lie in 0..1, else the extremes that occur; of the rewards
    that enter the estimator, as the groups are.
    """
    constant = groups.filter("constant")
    return zero_variance_split(
        dict(constant["max"].value_counts().iter_rows()),
        reward_range(groups),
        rows=int(constant["size"].sum()),
        comparable=int((groups["scored"] > 1).sum()),
        nearly=int(groups["nearly"].sum()),
    )


def zero_variance_split(
    constants: Mapping[float | None, int], extremes: RewardRange, *, rows: int, comparable: int, nearly: int
) -> dict[str, Any]:
    """The facts of constant groups, from the rewards that they have and how many groups have each.

    `extremes` are the worst and the best reward; `comparable` counts the groups with two rewards to compare.
    """
    worst, best = extremes
    groups = sum(constants.values())
    all_best, all_worst = (constants.get(end, 0) if best != worst else 0 for end in (best, worst))
    return {
        "groups": groups,
        "rows": rows,
        "share": groups / comparable if comparable else None,
        "all_best": all_best,
        "all_worst": all_worst,
        "other": groups - all_best - all_worst,
        "nearly": nearly,
    }


def reward_range(groups: pl.DataFrame) -> RewardRange:
    """The worst and the best reward of these groups, see `worst_and_best`."""
    low: Any = groups["min"].min()
    high: Any = groups["max"].max()
    return worst_and_best(low, high)


def worst_and_best(low: float | None, high: float | None) -> RewardRange:
    """The rewards that "all worst" and "all best" mean, from the extremes that occur; None where there are none."""
    return (0.0, 1.0) if low is not None and high is not None and low >= 0 and high <= 1 else (low, high)


def sizes(counts: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """How large the groups are, from (size, number of groups) in ascending order."""
    numbers, groups = [size for size, _ in counts], np.cumsum([count for _, count in counts])
    middle = [
        numbers[int(np.searchsorted(groups, place, side="right"))] for place in ((groups[-1] - 1) // 2, groups[-1] // 2)
    ]
    return {
        "min": numbers[0],
        "median": sum(middle) / 2,
        "max": numbers[-1],
        "counts": {str(size): count for size, count in counts},
    }


REASONS: Final = ("zero-variance", "singleton", "small-group", "unscorable")


def skipped_groups(groups: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Groups without an advantage of their own, by reason."""
    conditions = (
        pl.col("zero_variance"),
        (pl.col("scored") == 1) & (pl.col("size") >= 1),
        pl.col("status") == "small-group",
        pl.col("scored") == 0,
    )
    affected = {reason: groups.filter(condition) for reason, condition in zip(REASONS, conditions, strict=True)}
    return {reason: found for reason, found in affected.items() if len(found)}


def skipped(groups: pl.DataFrame, narrow: Narrow) -> list[dict[str, Any]]:
    """The same as numbers, with the first keys and their reward."""
    skips = []
    for reason, affected in skipped_groups(groups).items():
        first = affected.select("code", "mean").head(LISTED)
        keys = [{"key": narrow.label(code), "reward": plain(mean)} for code, mean in first.iter_rows()]
        skips.append({"reason": reason, "groups": len(affected), "rows": int(affected["size"].sum()), "keys": keys})
    return skips


def summarize(scored: Scored, narrow: Narrow, groups: pl.DataFrame | None = None) -> dict[str, Any]:
    """The summary of one computation; the command adds what it wrote.

    `groups` are the facts of its groups where the caller has them already.
    """
    frame = scored.rows
    groups = group_facts(scored) if groups is None else groups
    advantages = frame[".advantage"]
    numbers = Numbers.of(advantages)
    group_sizes, occurrences = np.unique(groups["size"].to_numpy(), return_counts=True)
    return {
        "version": VERSION,
        "rows": len(frame),
        "rollouts": frame["rollout"].n_unique() if "rollout" in frame.columns else len(frame),
        "groups": len(groups),
        "batches": narrow.batches,
        "group_sizes": sizes(list(zip(group_sizes.tolist(), occurrences.tolist(), strict=True))),
        "singletons": int((groups["scored"] == 1).sum()),
        "unscorable": len(frame) - int(frame[".scorable"].sum()),
        "declared_unscorable": 0 if narrow.declared_unscorable is None else int(narrow.declared_unscorable.sum()),
        "zero_variance": zero_variance(groups),
        "reward": distribution(frame[".reward"]),
        "advantage": {
            **numbers.facts(),
            "null": advantages.null_count(),
            "nan": numbers.nan,
            "zero": numbers.zero,
        },
        "status": dict(zip(STATUSES, counts(frame[".status"].to_physical(), range(len(STATUSES))), strict=True)),
        "skipped": skipped(groups, narrow),
        "schema": narrow.schema,
        "group_key": list(narrow.key_words),
        "batch_key": narrow.batch_name,
        "reward_columns": list(narrow.reward_names),
        "map": dict(narrow.outcomes),
        "role_columns": dict(narrow.roles),
        "notes": list(narrow.notes),
        "warnings": list(narrow.warnings),
        "plan": scored.plan.as_dict(),
    }


GATES: Final = (
    "rows", "rollouts", "groups", "batches", "singletons", "unscorable", "zero_variance_groups", "zero_variance_share",
    "nearly_constant_groups", "all_best", "all_worst", "skipped_rows", "dropped_rows", "group_size_min", "group_size_max", "reward_mean",
    "reward_std", "reward_min", "reward_max", "advantage_mean", "advantage_std", "advantage_min", "advantage_max",
    "null_advantages", "nan_advantages", "zero_share",
)  # fmt: skip


def gates(facts: Mapping[str, Any]) -> dict[str, float | None]:
    """The quantities that --fail-on may name; None where there is nothing to measure."""
    constant, size = facts["zero_variance"], facts["group_sizes"]
    flat = {
        **{name: facts[name] for name in ("rows", "rollouts", "groups", "batches", "singletons", "unscorable")},
        "zero_variance_groups": constant["groups"],
        "zero_variance_share": constant["share"],
        "nearly_constant_groups": constant["nearly"],
        "all_best": constant["all_best"],
        "all_worst": constant["all_worst"],
        "skipped_rows": facts["rows"] - facts["status"]["scored"],
        "dropped_rows": facts.get("dropped_rows", 0),
        "group_size_min": size["min"],
        "group_size_max": size["max"],
        "null_advantages": facts["advantage"]["null"],
        "nan_advantages": facts["advantage"]["nan"],
        "zero_share": facts["advantage"]["zero"] / facts["rows"],
    }
    for part in ("reward", "advantage"):
        flat |= {f"{part}_{name}": facts[part][name] for name in ("mean", "std", "min", "max")}
    return {name: flat[name] for name in GATES}


def plain(value: float | None) -> float | None:
    """The number if it is finite, else None: JSON has neither NaN nor infinities."""
    return value if value is not None and math.isfinite(value) else None
