"""The formula that a plan computes, with its constants.

One rule keeps a divisor from being told twice: the numerator is the formula of the method's *function* (its
docstring never divides by what the plan divides by), the divisor is the plan's. The method's own words
(`about`) speak of its defaults, and are left to `grpo-adv methods`.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from grpo_cli.parts import ORDERED, PARTS, Whiten
from grpo_cli.plan import Plan
from grpo_cli.view import clauses
from grpo_cli.view.clauses import bracketed, spelled, weighted
from grpo_cli.view.words import clean, exact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# A formula that is one term after "A =", so that it can be divided on the same line.
ONE_TERM: Final = re.compile(r"A = ([^=;,]+)")
OF_BATCH: Final = {"mean": "batch mean", "sum": "batch sum", "n": "N"}
DIVIDES: Final = {
    ("group", "reward"): "std of the group's rewards",
    ("group", "residual"): "std of what is left of the group's rewards after the baseline",
    ("group", "others"): "std of the other rewards of the group",
    ("batch", "reward"): "std of the batch's rewards",
    ("batch", "residual"): "std of what is left of the batch's rewards after the baseline",
}

Clauses = list[str]


def describe(plan: Plan, rewards: Sequence[str] = ()) -> Clauses:
    """What the plan computes, one line per thing that it does, in the order of the arithmetic."""
    return [line for _, lines in parts(plan, rewards) for line in lines]


def parts(plan: Plan, rewards: Sequence[str] = ()) -> list[tuple[str, Clauses]]:
    """The same, part by part; a part that does nothing has no lines."""
    return [(name, clauses_of(plan, rewards)) for name, (clauses_of, _) in _PARTS.items()]


def full(plan: Plan, rewards: Sequence[str] = ()) -> list[tuple[str, Clauses]]:
    """The same, where a part that does nothing says so."""
    told = [(name, lines or [_PARTS[name][1]]) for name, lines in parts(plan, rewards)]
    return [(name, lines) for name, lines in told if lines != [""]]


def restored(told: Mapping[str, Any]) -> Plan:
    """The plan that `Plan.as_dict` gave, as facts and files carry it."""
    made: dict[str, Any] = {key: value for key, value in told.items() if key not in PARTS and key not in ORDERED}
    for part, kind in PARTS.items():
        made[part] = kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in told[part].items()})
    for part, kinds in ORDERED.items():
        given = [(op["op"], {k: v for k, v in op.items() if k != "op"}) for op in told[part]]
        made[part] = tuple(kinds[name](**values) for name, values in given)
    return Plan(**made)


# --- estimator and divisor ---------------------------------------------------------------------------------


def quotient(plan: Plan) -> Clauses:
    """Numerator over divisor: on one line where the numerator is one term."""
    lines = numerator(plan)
    divisor = _divisor(plan)
    if not divisor:
        return lines
    term = ONE_TERM.fullmatch(lines[0]) if len(lines) == 1 else None
    if term:
        return [f"A = {bracketed(term[1])} / {divisor}"]
    return [re.sub(r"\bA\b", "x", line) for line in lines] + [f"A = x / {divisor}"]


def numerator(plan: Plan) -> Clauses:
    """The formula of the method's function, with the batch's quantities where that is the level."""
    if plan.method == "expression":
        return [f"A = {clean(plan.params['sql'])}"]
    doc = inspect.cleandoc(plan.estimator.build.__doc__ or "")
    lines = [line.strip() for line in doc.splitlines() if line.startswith("    ")]
    if plan.baseline_level == "group":
        return lines
    return [re.sub(r"\b(mean|sum|n)\b", lambda found: OF_BATCH[found[0]], line) for line in lines]


def _divisor(plan: Plan) -> str:
    rule = plan.divisor
    if rule.level in {"none", "constant"}:
        return "" if rule.level == "none" else exact(rule.constant)
    return bracketed(spelled(rule, "batch " if rule.level == "batch" else ""))


def _estimator(plan: Plan, rewards: Sequence[str]) -> Clauses:
    lines = quotient(plan)
    if plan.rewards.combine == "normalize":
        lines = [re.sub(r"\bA\b", "z", re.sub(r"\bx\b", "y", line)) for line in lines]
        lines = ["for each reward column:", *lines, f"A = {weighted(plan, rewards, 'z')}"]
    if plan.method == "expression":
        constants = f"epsilon {exact(plan.divisor.epsilon)}, std with ddof {plan.divisor.ddof}"
        return [*lines, f"where named: {constants}"]
    constants = ", ".join(f"{name} = {exact(value)}" for name, value in plan.params.items())
    return [*lines, f"with {constants}"] if constants else lines


def _divides(plan: Plan, _: Sequence[str]) -> Clauses:
    rule = plan.divisor
    if (rule.level, rule.of) not in DIVIDES:
        reported = rule.level == "none" and rule.ddof != 1 and plan.method != "expression"
        lines = [f"nothing divides; the std that is reported has ddof {rule.ddof}"] if reported else []
        return lines + ([_undivided(plan)] if rule.level == "constant" and rule.only_positive else [])
    word = "var" if rule.inside or rule.floor else "std"
    told = f"{word}{DIVIDES[rule.level, rule.of].removeprefix('std')}, ddof {rule.ddof}"
    if plan.raw_rank is not None and (rule.level, rule.of) == ("batch", "reward"):
        told += ", before the rank penalty"
    if rule.level == "batch" and plan.groups.statistics == "kept":
        told += ", groups that are skipped left out"
    flat = [] if rule.least is None else [f"A = 0 where that std is not above {exact(rule.least)}, or NaN"]
    return [told, *flat, *([_undivided(plan)] if rule.only_positive else [])]


def _undivided(plan: Plan) -> str:
    least = f"not above {exact(plan.divisor.epsilon)}" if plan.divisor.epsilon else "0"
    return f"not divided where the divisor is {least}"


# --- settings that do nothing ------------------------------------------------------------------------------


def _idle(plan: Plan, _: Sequence[str]) -> Clauses:
    """Fields that were changed and that nothing reads: whoever set them should know."""
    idle = [
        f"{part}.{field.name} {exact(getattr(rule, field.name))}"
        for part, rule, unread in _unread(plan)
        for field in fields(rule)
        if field.name in unread and getattr(rule, field.name) != field.default
    ]
    return [f"without effect: {', '.join(idle)}"] if idle else []


def _unread(plan: Plan) -> list[tuple[str, Any, frozenset[str]]]:
    skips = plan.groups.zero_variance != "keep" or plan.groups.min_size > 1
    alone = {"sd"} if plan.alone.result != "keep" or plan.divisor.level not in clauses.LONE_STD else set()
    counted = plan.divisor.level == "batch" and plan.divisor.of == "residual"
    alone |= {"baseline"} if plan.alone.result != "keep" and not counted else set()
    groups = {"small"} if plan.groups.min_size == 1 else set()
    groups |= set() if skips and plan.divisor.level == "batch" else {"statistics"}
    whitening = frozenset({"ddof", "inside", "floor", "epsilon"})
    return [
        ("unit", plan.unit, frozenset() if plan.unit.state_weight else frozenset({"gamma"})),
        ("divisor", plan.divisor, _unread_of_divisor(plan)),
        ("alone", plan.alone, frozenset(alone)),
        ("groups", plan.groups, frozenset(groups)),
        *((f"post.{op.name}", op, whitening) for op in plan.post if isinstance(op, Whiten) and not op.divide),
    ]


def _unread_of_divisor(plan: Plan) -> frozenset[str]:
    if plan.divisor.level in {"group", "batch"}:
        return frozenset({"constant"})
    named = {"epsilon"} if plan.method == "expression" or plan.divisor.only_positive else set()
    constant = {"constant", "only_positive"} if plan.divisor.level == "constant" else set()
    ddof = {"ddof"} if plan.divisor.level == "none" else set()
    return frozenset(
        {"of", "ddof", "inside", "floor", "epsilon", "only_positive", "least", "constant"} - named - constant - ddof
    )


_PARTS: Final[Mapping[str, tuple[Callable[[Plan, Sequence[str]], Clauses], str]]] = {
    "unit": (lambda plan, _: clauses.unit(plan), "every row is one reward"),
    "rewards": (clauses.rewards, "a row without a finite reward stops the run"),
    "shape": (lambda plan, _: clauses.shape(plan), "rewards are taken as they are"),
    "estimator": (_estimator, ""),
    "divisor": (_divides, "nothing divides"),
    "alone": (lambda plan, _: clauses.alone(plan), ""),
    "groups": (lambda plan, _: clauses.groups(plan), "constant groups are kept"),
    "post": (lambda plan, _: clauses.post(plan), "nothing is done to the advantages"),
    "not used": (_idle, ""),
}
