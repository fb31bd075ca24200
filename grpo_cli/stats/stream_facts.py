"""The facts of a stream, or of parts of the rows: they are summed up and forgotten, so memory does not grow with the input.

What needs all rewards at once (quartiles, the histogram) is None in the summary.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from grpo_cli.engine.moments import Moments
from grpo_cli.engine.score import STATUSES
from grpo_cli.stats import facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from grpo_cli.engine.plan import Plan
    from grpo_cli.engine.score import Scored
    from grpo_cli.read.tables import Narrow

# Distinct rewards of constant groups: a handful in practice. Those beyond this many are only counted.
CONSTANTS: Final = 1000
SUMS: Final = ("rows", "rollouts", "groups", "batches", "singletons", "unscorable", "declared_unscorable")
UNUSUAL_ADVANTAGES: Final = ("null", "nan", "zero")
# The same for every block.
SETTINGS: Final = ("schema", "group_key", "batch_key", "reward_columns", "map", "role_columns", "notes")


@dataclass(slots=True)
class Spread:
    """Moments and extremes of finite values."""

    moments: Moments = field(default_factory=lambda: Moments.empty(1))
    low: float | None = None
    high: float | None = None

    def add(self, values: pl.Series) -> None:
        """Take in the finite values of a block."""
        finite = values.filter(values.is_finite()).to_numpy()
        if len(finite):
            self.moments = self.moments.merge(Moments.of(finite, np.zeros(len(finite), np.uint32), 1))
            low, high = float(finite.min()), float(finite.max())
            self.low = low if self.low is None else min(low, self.low)
            self.high = high if self.high is None else max(high, self.high)

    def merge(self, other: Spread) -> None:
        """Take in what another one has taken in."""
        self.moments = self.moments.merge(other.moments)
        self.low = min((one for one in (self.low, other.low) if one is not None), default=None)
        self.high = max((one for one in (self.high, other.high) if one is not None), default=None)

    def facts(self) -> dict[str, float | None]:
        """Mean, standard deviation and extremes; None where there are no values."""
        variance = facts.plain(float(self.moments.variance(1)[0]))
        mean = float(self.moments.mean[0]) if self.moments.weight[0] else None
        return {"mean": mean, "std": None if variance is None else variance**0.5, "min": self.low, "max": self.high}


@dataclass(slots=True)
class Tally:
    """Sums over the blocks of a stream."""

    counts: Counter[str] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)
    constants: Counter[float | None] = field(default_factory=Counter)
    reward: Spread = field(default_factory=Spread)
    shaped: Spread = field(default_factory=Spread)
    advantage: Spread = field(default_factory=Spread)
    skipped: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)

    def add(self, scored: Scored, narrow: Narrow) -> None:
        """Take in one block."""
        if not len(narrow.table):  # all of its rows were dropped
            self.counts["dropped_rows"] += sum(narrow.lengths)
            return
        groups = facts.group_facts(scored)
        block = facts.summarize(scored, narrow, groups)
        self.counts.update({name: block[name] for name in SUMS})
        self.counts.update({f"status.{name}": block["status"][name] for name in STATUSES})
        self.counts.update({f"advantage.{name}": block["advantage"][name] for name in UNUSUAL_ADVANTAGES})
        self.counts["dropped_rows"] += sum(narrow.lengths) - int(scored.rows[".kept"].sum())
        self.counts["nearly"] += block["zero_variance"]["nearly"]
        self.counts["constant_rows"] += block["zero_variance"]["rows"]
        self.counts["comparable"] += int((groups["scored"] > 1).sum())
        self.sizes.update(groups["size"].to_list())
        for value in groups.filter("constant")["max"].to_list():
            self._count_constant(value, 1)
        self.reward.add(scored.rows[".reward"])
        self.shaped.add(groups["min"])
        self.shaped.add(groups["max"])
        self.advantage.add(scored.rows[".advantage"])
        self.settings = {name: block[name] for name in SETTINGS}
        self.warnings |= dict.fromkeys(block["warnings"])
        for skip in block["skipped"]:
            self._count_skipped(skip)

    def merge(self, other: Tally) -> None:
        """Take in what another tally has counted of other groups."""
        self.counts.update(other.counts)
        self.sizes.update(other.sizes)
        for value, count in other.constants.items():
            self._count_constant(value, count)
        self.reward.merge(other.reward)
        self.shaped.merge(other.shaped)
        self.advantage.merge(other.advantage)
        self.settings = other.settings or self.settings
        self.warnings |= other.warnings
        for skip in other.skipped.values():
            self._count_skipped(skip)

    def _count_constant(self, value: float | None, count: int) -> None:
        self.constants[value if value in self.constants or len(self.constants) < CONSTANTS else None] += count

    def _count_skipped(self, skip: Mapping[str, Any]) -> None:
        reason = skip["reason"]
        total = self.skipped.setdefault(reason, {"reason": reason, "groups": 0, "rows": 0, "keys": []})
        total["groups"] += skip["groups"]
        total["rows"] += skip["rows"]
        total["keys"] = [*total["keys"], *skip["keys"]][: facts.LISTED]

    def facts(self, plan: Plan) -> dict[str, Any]:
        """The summary, with the keys that the one of a whole input has."""
        counts = self.counts
        return {
            "version": facts.VERSION,
            **{name: counts[name] for name in (*SUMS, "dropped_rows")},
            **({"batches": 1} if self.settings.get("batch_key") == "input" else {}),
            "group_sizes": facts.sizes(sorted(self.sizes.items())),
            "zero_variance": facts.zero_variance_split(
                self.constants,
                facts.worst_and_best(self.shaped.low, self.shaped.high),
                rows=counts["constant_rows"],
                comparable=counts["comparable"],
                nearly=counts["nearly"],
            ),
            "reward": {
                "count": int(self.reward.moments.weight[0]),
                **self.reward.facts(),
                "quartiles": [None] * 3,
                "histogram": None,
            },
            "advantage": self.advantage.facts() | {name: counts[f"advantage.{name}"] for name in UNUSUAL_ADVANTAGES},
            "status": {name: counts[f"status.{name}"] for name in STATUSES},
            "skipped": list(self.skipped.values()),
            **self.settings,
            "warnings": list(self.warnings),
            "plan": plan.as_dict(),
        }
