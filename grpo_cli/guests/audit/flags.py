"""The options of `compute` that give a formula, so that what an audit prints can be run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Final

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Rewards, Whiten
from grpo_cli.engine.presets import differences
from grpo_cli.guests.audit.candidates import Candidate, plain_method
from grpo_cli.read.columns import Columns
from grpo_cli.read.narrow import Narrow
from grpo_cli.render.text import exact

OPTIONS: Final = {
    "divisor.level": "--scale",
    "divisor.of": "--std-of",
    "divisor.ddof": "--ddof",
    "divisor.epsilon": "--epsilon",
    "post.whiten.level": "--whiten",
}
# What `Plan.flag` names already, and what decides only about rows and groups that say nothing of a formula.
ELSEWHERE = (
    "method",
    "params",
    "baseline_level",
    "weight.",
    "rewards.",
    "alone.",
    "groups.",
    "unit.",
    "shape.",
    "distill.",
)


def flags_of(one: Candidate) -> str:
    """The preset, or the method with every option that is not its default; a factor is no option."""
    if one.presets:
        return f"--preset {one.presets[0]}"
    if method := plain_method(one.plan):
        return f"--method {method}"
    return " ".join([one.plan.flag, *options_of(one.plan)])


def options_of(plan: Plan, *without: str) -> Iterator[str]:
    """The options of the divisor and of the steps after it in which a plan differs from its method."""
    base = Plan.of({"estimator.name": plan.method})
    changed = differences(replace(plan, rewards=Rewards()), base)
    usual = {f"post.whiten.{part.name}": part.default for part in fields(Whiten)}
    for name, (before, now) in sorted(changed.items(), key=lambda each: [*OPTIONS, each[0]].index(each[0])):
        if name in plan.unread or name.startswith((*ELSEWHERE, *without)) or now is None:
            continue
        if before is None and name not in OPTIONS and usual.get(name) == now:  # as --whiten sets it
            continue
        yield f"{OPTIONS[name]} {exact(now)}" if name in OPTIONS else f"--set {name}={exact(now)}"


def of_input(columns: Columns, narrow: Narrow, plan: Plan) -> list[str]:
    """The options that read these rows as the audit did: weights, groups, batches, marked rows, and the columns that the formula reads."""
    rule, request = narrow.rule, narrow.request
    weights = zip(narrow.reward_names, plan.rewards.weights, strict=False)
    words = [f"--reward {name}={weight:g}" for name, weight in weights]
    if rule.within not in {None, "input"}:
        words.append(f"--group-within {rule.within}")
    if rule.size is not None:
        words.append(f"--group-size {rule.size}")
    if plan.uses_batch and (rule.batch_name != "input" or narrow.carried):
        words.append(f"--batch-by {rule.batch_name}")
    if plan.alone.result == "error" and (narrow.table["group"].value_counts()["count"] == 1).any():
        words.append("--singleton zero")
    treated = request.layout.flags.masked_rows
    if columns.marked is not None and (treated or any(mark.is_open for mark in request.layout.marks)):
        words.append(f"--masked-rows {treated or ('vote' if columns.marked.of_kind('masked').any() else 'exclude')}")
    words += [f"{ROLES[role].flag} {request.roles[role]}" for role in sorted({*plan.needs} & {*request.roles})]
    return words
