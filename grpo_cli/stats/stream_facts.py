"""The facts of a stream: blocks are summed up and forgotten, so memory does not grow with the input.

What needs all rewards at once (quartiles, the histogram) is not there: it is None in the summary.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from grpo_cli.engine.compile import STATUSES
from grpo_cli.engine.moments import Moments
from grpo_cli.stats import facts

if TYPE_CHECKING:
    import polars as pl

    from grpo_cli.engine.compile import Scored
    from grpo_cli.engine.plan import Plan
    from grpo_cli.read.tables import Narrow

# Rewards that constant groups have: a handful in practice. Beyond this many they are only counted.
CONSTANTS: Final = 1000


@dataclass(slots=True)
class Spread:
    """Moments and extremes of finite values."""

    moments: Moments = field(default_factory=lambda: Moments.empty(1))
    least: float | None = None
    most: float | None = None

    def add(self, values: pl.Series) -> None:
        """Take in the finite values of a block."""
        finite = values.filter(values.is_finite()).to_numpy()
        if len(finite):
            self.moments = self.moments.merge(Moments.of(finite, np.zeros(len(finite), np.uint32), 1))
            low, high = float(finite.min()), float(finite.max())
            self.least = low if self.least is None else min(low, self.least)
            self.most = high if self.most is None else max(high, self.most)

    def facts(self) -> dict[str, float | None]:
        """Mean, standard deviation and extremes."""
        variance = facts.plain(float(self.moments.variance(1)[0]))
        mean = float(self.moments.mean[0]) if self.moments.weight[0] else None
        return {"mean": mean, "std": None if variance is None else variance**0.5, "min": self.least, "max": self.most}


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
    about: dict[str, Any] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)

    def add(self, scored: Scored, narrow: Narrow) -> None:
        """Take in one block."""
        told = facts.summarize(scored, narrow)
        groups = facts.group_facts(scored)
        kept = ("rows", "rollouts", "groups", "batches", "singletons", "unscorable", "declared_unscorable")
        self.counts.update({name: told[name] for name in kept})
        self.counts.update({f"status.{name}": told["status"][name] for name in STATUSES})
        self.counts.update({f"advantage.{name}": told["advantage"][name] for name in ("null", "nan", "zero")})
        self.counts["dropped_rows"] += sum(narrow.lengths) - int(scored.frame[".kept"].sum())
        self.counts["nearly"] += told["zero_variance"]["nearly"]
        self.counts["constant_rows"] += told["zero_variance"]["rows"]
        self.counts["comparable"] += int((groups["scored"] > 1).sum())
        self.sizes.update(groups["size"].to_list())
        for value in groups.filter("constant")["max"].to_list():
            self.constants[value if value in self.constants or len(self.constants) < CONSTANTS else None] += 1
        self.reward.add(scored.frame[".reward"])
        self.shaped.add(groups["min"])
        self.shaped.add(groups["max"])
        self.advantage.add(scored.frame[".advantage"])
        self._note(told)

    def _note(self, told: dict[str, Any]) -> None:
        self.about = {
            name: told[name] for name in ("schema", "group_key", "batch_key", "reward_columns", "role_columns", "notes")
        }
        self.warnings |= dict.fromkeys(told["warnings"])
        for one in told["skipped"]:
            seen = self.skipped.setdefault(one["reason"], {"reason": one["reason"], "groups": 0, "rows": 0, "keys": []})
            seen["groups"] += one["groups"]
            seen["rows"] += one["rows"]
            seen["keys"] = [*seen["keys"], *one["keys"]][: facts.LISTED]

    def facts(self, plan: Plan) -> dict[str, Any]:
        """The summary, with the keys that the one of a whole input has."""
        counts = self.counts
        kept = (
            "rows", "rollouts", "groups", "batches", "singletons", "unscorable", "declared_unscorable", "dropped_rows",
        )  # fmt: skip
        return {
            "version": facts.VERSION,
            **{name: counts[name] for name in kept},
            **({"batches": 1} if self.about.get("batch_key") == "input" else {}),
            "group_sizes": facts.sizes(sorted(self.sizes.items())),
            "zero_variance": self._zero_variance(),
            "reward": {
                "count": int(self.reward.moments.weight[0]),
                **self.reward.facts(),
                "quartiles": [None] * 3,
                "histogram": None,
            },
            "advantage": self.advantage.facts()
            | {name: counts[f"advantage.{name}"] for name in ("null", "nan", "zero")},
            "status": {name: counts[f"status.{name}"] for name in STATUSES},
            "skipped": list(self.skipped.values()),
            **self.about,
            "warnings": list(self.warnings),
            "plan": plan.as_dict(),
        }

    def _zero_variance(self) -> dict[str, Any]:
        worst, best = facts.worst_and_best(self.shaped.least, self.shaped.most)
        groups = sum(self.constants.values())
        all_best = self.constants[best] if best != worst else 0
        all_worst = self.constants[worst] if best != worst else 0
        return {
            "groups": groups,
            "rows": self.counts["constant_rows"],
            "share": groups / self.counts["comparable"] if self.counts["comparable"] else None,
            "all_best": all_best,
            "all_worst": all_worst,
            "other": groups - all_best - all_worst,
            "nearly": self.counts["nearly"],
        }
