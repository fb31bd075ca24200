"""What the rewards, the groups and the advantages look like: the numbers that summaries and gates speak of.

Everything here is plain data (dicts, lists, floats or None; never NaN), so that it can be shown, written as
JSON and compared without another conversion.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.engine import STATUSES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grpo_cli.engine import Scored
    from grpo_cli.narrow import Narrow

VERSION: Final = 1
LISTED: Final = 10
BINS: Final = 20
# A spread of a billionth of the size is rounding in the reward, not information.
NEARLY: Final = 1e-9


def group_facts(scored: Scored) -> pl.DataFrame:
    """One line per group, in order of first appearance."""
    first = scored.frame.filter(pl.col("group").is_first_distinct())
    sizes = np.bincount(scored.frame["group"].to_numpy(), minlength=len(first))
    size = pl.max_horizontal(pl.col(".min").abs(), pl.col(".max").abs())
    return first.sort("group").select(
        code="group",
        batch="batch",
        size=pl.Series(sizes, dtype=pl.Int64),
        scored=pl.col(".n").cast(pl.Int64),
        mean=".mean",
        std=".std",
        min=".min",
        max=".max",
        constant=pl.col(".constant").fill_null(value=False) & (pl.col(".n") > 1),
        nearly=~pl.col(".constant") & ((pl.col(".max") - pl.col(".min")) <= NEARLY * size),
        status=".status",
        kept=".kept",
        degenerate=".degenerate",
    )


def distribution(values: pl.Series) -> dict[str, Any]:
    """Mean, spread, quartiles and a histogram of the finite values."""
    finite = values.filter(values.is_finite())
    if not len(finite):
        return {
            "count": 0,
            "mean": None,
            "std": None,
            "min": None,
            "max": None,
            "quartiles": [None] * 3,
            "histogram": None,
        }
    quartiles = [finite.quantile(q, "linear") for q in (0.25, 0.5, 0.75)]
    return {
        "count": len(finite),
        "mean": finite.mean(),
        "std": finite.std() if len(finite) > 1 else None,
        "min": finite.min(),
        "max": finite.max(),
        "quartiles": quartiles,
        "histogram": _histogram(finite),
    }


def _histogram(finite: pl.Series) -> dict[str, Any]:
    """Few values get a bar each; else bins of equal width."""
    counts = finite.value_counts().sort(finite.name) if finite.n_unique() <= BINS else None
    if counts is not None:
        return {"values": counts[finite.name].to_list(), "counts": counts["count"].to_list()}
    numbers, edges = np.histogram(finite.to_numpy(), bins=BINS)
    return {"edges": edges.tolist(), "counts": numbers.tolist()}


def zero_variance(groups: pl.DataFrame) -> dict[str, Any]:
    """Groups that carry no gradient, split by what their rewards are.

    Best and worst are 1 and 0 where all rewards lie in 0..1, else the extremes that were seen; of the rewards
    that enter the estimator, as the groups are.
    """
    low: Any = groups["min"].min()
    high: Any = groups["max"].max()
    inside = low is not None and low >= 0 and high <= 1
    worst, best = (0.0, 1.0) if inside else (low, high)
    constant = groups.filter("constant")
    all_best = int((constant["max"] == best).sum()) if best != worst else 0
    all_worst = int((constant["max"] == worst).sum()) if best != worst else 0
    comparable = int((groups["scored"] > 1).sum())
    return {
        "groups": len(constant),
        "rows": int(constant["size"].sum()),
        "share": len(constant) / comparable if comparable else None,
        "all_best": all_best,
        "all_worst": all_worst,
        "other": len(constant) - all_best - all_worst,
        "nearly": int(groups["nearly"].sum()),
    }


def sizes(groups: pl.DataFrame) -> dict[str, Any]:
    """How large the groups are."""
    counts = groups["size"].value_counts().sort("size")
    return {
        "min": groups["size"].min(),
        "median": groups["size"].median(),
        "max": groups["size"].max(),
        "counts": {str(size): count for size, count in counts.iter_rows()},
    }


def skipped(groups: pl.DataFrame, narrow: Narrow) -> list[dict[str, Any]]:
    """Groups without an advantage of their own, by reason, with the first keys and their reward."""
    reasons = {
        "zero-variance": pl.col("degenerate"),
        "singleton": (pl.col("scored") == 1) & (pl.col("size") >= 1),
        "small-group": pl.col("status") == "small-group",
        "unscorable": pl.col("scored") == 0,
    }
    found = []
    for reason, condition in reasons.items():
        those = groups.filter(condition)
        if len(those):
            shown = those.head(LISTED)
            keys = [
                {"key": narrow.label(code), "reward": plain(mean)}
                for code, mean in shown.select("code", "mean").iter_rows()
            ]
            found.append({"reason": reason, "groups": len(those), "rows": int(those["size"].sum()), "keys": keys})
    return found


def summarize(scored: Scored, narrow: Narrow) -> dict[str, Any]:
    """All that is said of one computation; the command adds what it wrote."""
    frame = scored.frame
    groups = group_facts(scored)
    rewards = distribution(frame[".reward"])
    value = frame[".advantage"]
    return {
        "version": VERSION,
        "rows": len(frame),
        "rollouts": frame["rollout"].n_unique() if "rollout" in frame.columns else len(frame),
        "groups": len(groups),
        "batches": narrow.batches,
        "group_sizes": sizes(groups),
        "singletons": int((groups["scored"] == 1).sum()),
        "unscorable": int((~frame[".scorable"]).sum()),
        "zero_variance": zero_variance(groups),
        "reward": rewards,
        "advantage": {
            **{key: fact for key, fact in distribution(value).items() if key in {"mean", "std", "min", "max"}},
            "null": value.null_count(),
            "nan": int(value.is_nan().sum()),
            "zero": int((value == 0).sum()),
        },
        "status": {name: int((frame[".status"] == name).sum()) for name in STATUSES},
        "skipped": skipped(groups, narrow),
        "schema": None,
        "group_key": list(narrow.group_names),
        "batch_key": narrow.batch_name,
        "reward_columns": list(narrow.reward_names),
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
    """The quantities that --fail-on may name."""
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
    """A number as JSON can hold it: NaN and infinities are None."""
    return value if value is not None and math.isfinite(value) else None
