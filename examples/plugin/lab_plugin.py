"""A plugin of grpo-adv: a method, a preset that uses it, the schema of a log, and a trainer. Its command is in `lab_command.py`, its tests are beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo_cli import Estimator

if TYPE_CHECKING:
    import polars as pl

    from grpo_cli import Terms


def midrange(t: Terms) -> pl.Expr:
    """Reward minus the middle between the smallest and the largest reward of its group.

        A = r - (min + max)/2

    A constant group gives 0. Source: this template.
    """
    return t.d - (t.most - t.least) / 2  # d is r - min


# What is declared here (centred, in any order, ...) must be true: runs and audits rely on it.
MIDRANGE = Estimator(name="lab-midrange", build=midrange, scale="none", scales=("none", "group", "batch"))

# The keys of grpo_cli/engine/presets.toml.
TRAINER = {
    "framework": "Lab trainer",
    "estimator": "midrange",
    "options": {"normalize": True},
    "source": {"repo": "lab/trainer", "path": "trainer/advantages.py:12-20", "date": "2026-11-01"},
    "plan": {"estimator": {"name": "lab-midrange"}, "divisor": {"level": "group", "epsilon": 1e-4, "ddof": 0}},
}

# The keys of grpo_cli/schemas/schemas.toml.
LOG = {
    "title": "lab log",
    "tool": "Lab trainer",
    "layout": "long",
    "source": "lab/trainer trainer/log.py",
    "fields": {"question": "text", "points": "number", "round": "number"},
    "group": ["round", "question"],
    "batch": "round",
    "reward": ["points"],
}

# The keys of grpo_cli/targets/targets.toml.
TUNER = {
    "title": "Lab tuner",
    "release": "lab-tuner 1.0",
    "source": "lab/trainer trainer/data.py",
    "checked": "read",
    "suffixes": [".jsonl"],
    "kinds": {
        "sft": {"by": "ChatFile", "form": "messages", "trains_on": "every turn of the model", "without": ["reward"]}
    },
    "not_read": {"pairs": "it trains on single conversations"},
}
