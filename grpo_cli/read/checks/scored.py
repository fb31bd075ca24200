"""Checks after the rows have been scored: rows without a reward, and groups with one scored row."""

from __future__ import annotations

import re

import polars as pl

from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, Way
from grpo_cli.read.narrow import Narrow

LIKELY = re.compile("reward|score", re.IGNORECASE)


def refuse_unscorable(plan: Plan, scorable: pl.Series, narrow: Narrow) -> None:
    """Stop at the first row without a finite reward, if the plan says so."""
    if plan.rewards.missing != "error":
        return
    missing = ~scorable
    if not missing.any():
        return
    binding = narrow.request.binding
    by_schema = narrow.left_out
    if (none := narrow.without_reward) is not None:
        by_schema |= none
    if not binding.missing_is_error:
        missing &= ~by_schema
    elif binding.marks:  # --missing error stops for what the schema leaves out, and not for what a flag does
        missing &= ~narrow.left_out
    if not missing.any():
        return
    row = missing.arg_max() or 0
    count = missing.sum()
    shown = []
    for k, name in enumerate(narrow.reward_names):
        value = narrow.table[f"reward.{k}"][row]
        shown.append(f"{name} is {'null or missing' if value is None else value}")
    wrong = f"{', '.join(shown)}, expected a finite number"
    if by_schema[row]:
        wrong = f"a row without a reward, as {narrow.schema} marks it"
    such = f" ({count} such rows)" if count > 1 else ""
    raise DataError(
        f"{narrow.place(row)}: {wrong}{such}",
        [
            *[Way("--reward", name, "has a number there") for name in _with_numbers(narrow)[:1]],
            Way("--missing", "exclude", "leaves such rows out"),
            Way("--missing", "zero", "gives them advantage 0"),
            Way("--missing", "as-zero", "counts them as reward 0"),
        ],
    )


def _with_numbers(narrow: Narrow) -> list[str]:
    """Other columns that look like a reward and have a number where none of the first records has a reward; none if a flag names it."""
    if narrow.request.layout.flags.rewards:
        return []
    records = narrow.tables[0].sample().records
    if any(record.get(name) is not None for record in records for name in narrow.reward_names):
        return []
    likely = dict.fromkeys(name for record in records for name in record if LIKELY.search(name))
    others = [name for name in likely if name not in {*narrow.reward_names, *narrow.request.key}]
    return [name for name in others if all(type(record.get(name)) in {int, float} for record in records)]


def refuse_singletons(plan: Plan, scored: pl.Series, narrow: Narrow) -> None:
    """Stop at the first group with one scored row, if the plan says so."""
    singletons = scored == 1
    if plan.alone.result != "error" or not singletons.any():
        return
    row = singletons.arg_max() or 0
    name = narrow.label(narrow.table["group"][row])
    cure = Way("--singleton", why="decides what it gets", fill="zero|raw|unit|nan|null|drop")
    raise DataError(f"{narrow.place(row)}: the group {name} is a singleton: one row has a reward", cure)
