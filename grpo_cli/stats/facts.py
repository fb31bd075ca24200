"""What the rewards, the groups and the advantages look like: the numbers that summaries and gates speak of.

Everything here is plain data (dicts, lists, floats or None; never NaN), so that it can be shown, written as
JSON and compared without another conversion.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import FEW, Numbers, counts, few
from grpo_cli.engine.compile import STATUSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.engine.compile import Scored
    from grpo_cli.read.tables import Narrow

VERSION: Final = 1
LISTED: Final = 10
BINS: Final = FEW
# A spread of a billionth of the size is rounding in the reward, not information.
NEARLY: Final = 1e-9


def group_facts(scored: Scored) -> pl.DataFrame:
    """One line per group, in order of first appearance."""
    lines = scored.heads.hstack(scored.groups)
    size = pl.max_horizontal(pl.col(".min").abs(), pl.col(".max").abs())
    return lines.select(
        code="code",
        batch="batch",
        size="size",
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


def spread_of(values: pl.Series) -> dict[str, float | None]:
    """Mean, standard deviation and extremes of finite values."""
    return Numbers.of(values).facts()


def distribution(values: pl.Series) -> dict[str, Any]:
    """Mean, spread, quartiles and a histogram of the finite values."""
    found = few(values)
    numbers = Numbers.of(values) if found is None else Numbers.counted(*found)
    seen = {"count": numbers.count, **numbers.facts()}
    if not numbers.count:
        return {**seen, "quartiles": [None] * 3, "histogram": None}
    if found is not None:
        return {
            **seen,
            "quartiles": _quartiles(*found),
            "histogram": dict(zip(("values", "counts"), found, strict=True)),
        }
    finite = values if numbers.count == len(values) else values.filter(values.is_finite())
    quartiles = np.quantile(finite.to_numpy(), [0.25, 0.5, 0.75])
    return {**seen, "quartiles": quartiles.tolist(), "histogram": _histogram(finite)}


def _quartiles(values: Sequence[float], counts: Sequence[int]) -> list[float]:
    """Linear interpolation between the two nearest ranks, from values and how often each occurs."""
    ends = np.cumsum(counts)
    places = np.array([0.25, 0.5, 0.75]) * (ends[-1] - 1)
    low, high = (np.take(values, np.searchsorted(ends, at, side="right")) for at in (np.floor(places), np.ceil(places)))
    return [float(value) for value in low + (high - low) * (places - np.floor(places))]


def _histogram(finite: pl.Series) -> dict[str, Any]:
    """Bins of equal width; few values have had a bar each."""
    numbers = finite.to_numpy()
    low, high = float(numbers.min()), float(numbers.max())
    # Counting scaled integers takes a fifth of the time of np.histogram's search for edges.
    places = np.minimum(((numbers - low) / (high - low) * BINS).astype(np.int64), BINS - 1)
    return {
        "edges": np.linspace(low, high, BINS + 1).tolist(),
        "counts": np.bincount(places, minlength=BINS).tolist(),
    }


def zero_variance(groups: pl.DataFrame) -> dict[str, Any]:
    """Groups that carry no gradient, split by what their rewards are.

    Best and worst are 1 and 0 where all rewards lie in 0..1, else the extremes that were seen; of the rewards
    that enter the estimator, as the groups are.
    """
    low: Any = groups["min"].min()
    high: Any = groups["max"].max()
    worst, best = worst_and_best(low, high)
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


def worst_and_best(low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """The rewards that "all worst" and "all best" mean, from the extremes that were seen."""
    return (0.0, 1.0) if low is not None and high is not None and low >= 0 and high <= 1 else (low, high)


def _counted(sizes: pl.Series) -> list[tuple[int, int]]:
    """The sizes that there are, in ascending order, and how many groups have each."""
    numbers, groups = np.unique(sizes.to_numpy(), return_counts=True)
    return list(zip(numbers.tolist(), groups.tolist(), strict=True))


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


def summarize(scored: Scored, narrow: Narrow, groups: pl.DataFrame | None = None) -> dict[str, Any]:
    """All that is said of one computation; the command adds what it wrote. `groups` are its facts, where known."""
    frame = scored.rows
    groups = group_facts(scored) if groups is None else groups
    rewards = distribution(frame[".reward"])
    value = frame[".advantage"]
    numbers = Numbers.of(value)
    return {
        "version": VERSION,
        "rows": len(frame),
        "rollouts": frame["rollout"].n_unique() if "rollout" in frame.columns else len(frame),
        "groups": len(groups),
        "batches": narrow.batches,
        "group_sizes": sizes(_counted(groups["size"])),
        "singletons": int((groups["scored"] == 1).sum()),
        "unscorable": len(frame) - int(frame[".scorable"].sum()),
        "declared_unscorable": 0 if narrow.declared_unscorable is None else int(narrow.declared_unscorable.sum()),
        "zero_variance": zero_variance(groups),
        "reward": rewards,
        "advantage": {
            **numbers.facts(),
            "null": value.null_count(),
            "nan": numbers.nan,
            "zero": numbers.zero,
        },
        "status": dict(zip(STATUSES, counts(frame[".status"].to_physical(), range(len(STATUSES))), strict=True)),
        "skipped": skipped(groups, narrow),
        "schema": narrow.schema,
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
