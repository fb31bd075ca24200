"""A plan in words: its formula with its constants, and its rules for special rows and groups.

The numerator comes from the docstring of the method's function, which never mentions the plan's divisor; the divisor
comes from the plan. So it is never named twice. The method's own text (`about`) describes its defaults and is shown by
`grpo-adv methods`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from grpo_cli.engine.estimators import outcome
from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import (
    Affine,
    Clip,
    Discount,
    Divisor,
    Length,
    Overlong,
    Rank,
    Whiten,
    weighted_sum,
)
from grpo_cli.render.text import clean, exact

LISTS = " --per-token --token-logprobs STUDENT --teacher-logprobs TEACHER"
STATES = {"group": "", "batch": " anywhere in the batch"}
ROLLOUT_REWARD = {
    "first": "the reward of its first row",
    "last": "the reward of its last row",
    "mean": "the mean reward of its rows",
}
MISSING = {
    "exclude": "rows without a reward are left out",
    "zero": "rows without a reward are left out and get advantage 0",
    "as-zero": "rows without a reward count as reward 0",
}
PROPAGATES = {
    "row": "is",
    "later": "and the later rows that build on it are",
    "group": "makes its group",
    "batch": "makes its batch",
}
COMPONENT_MISSING = {
    "zero": "if one of several rewards is missing, it counts as 0",
    "propagate": "if one of several rewards is missing, the row has no reward",
}
BEYOND = {
    "linear": "and keeps growing above {max}",
    "floor": "at most {penalty}",
    "zero": "and r = 0 where L > {max}",
}
OF_ONE = "a group of one row"
SINGLETONS = {
    "zero": f"{OF_ONE} gets 0",
    "raw": f"{OF_ONE} keeps r",
    "nan": f"{OF_ONE} gets NaN",
    "null": f"{OF_ONE} gets null",
    "drop": f"{OF_ONE} is dropped",
    "error": f"{OF_ONE} stops the run",
}
SINGLETON_BASELINE = {"zero": "residual r", "formula": "like any other row"}
STD_TAKEN = {"zero": "0", "one": "1", "nan": "NaN"}
STD_OF_SINGLETON = {"group": "std", "batch": "std of a batch of one row"}
ZERO_VARIANCE = {"drop": "groups without a gradient are dropped", "null": "groups without a gradient get null"}
SMALL = {"null": "get null", "zero": "get 0", "drop": "are dropped"}
# A formula with a single term after "A =", which can be divided on the same line.
ONE_TERM = re.compile(r"A = ([^=;,]+)")
OF_BATCH = {"mean": "batch mean", "sum": "batch sum", "n": "N"}
DIVISOR_OF = {
    ("group", "reward"): "std of the group's rewards",
    ("group", "residual"): "std of the group's residuals (reward - baseline)",
    ("group", "others"): "std of the group's other rewards",
    ("batch", "reward"): "std of the batch's rewards",
    ("batch", "residual"): "std of the batch's residuals (reward - baseline)",
}


def describe(plan: Plan, rewards: Sequence[str] = ()) -> list[str]:
    """What the plan computes, one line per operation, in the order of the arithmetic."""
    return [line for _, lines in parts(plan, rewards) for line in lines]


def decided(plan: Plan, without_effect: Sequence[str]) -> list[str]:
    """The same for rows on which these fields have no effect, without the lines about them or about unread fields."""
    about = {
        "rewards.missing": missing(plan),
        "rewards.component_missing": component_missing(plan),
        "alone.result": singletons(plan),
        "groups.zero_variance": [*ZERO_VARIANCE.values()],
    }
    omitted = _without_effect(plan)
    for field in without_effect:
        omitted += about.get(field, ())
    return [line for line in describe(plan) if line not in omitted]


def parts(plan: Plan, rewards: Sequence[str] = ()) -> list[tuple[str, list[str]]]:
    """The same by part; a part that changes nothing has no lines."""
    unit = []
    if plan.unit.take != "each":
        unit = [f"one reward per rollout: {ROLLOUT_REWARD[plan.unit.take]}"]
    post = [_POST[op.name](op) for op in plan.post]
    return [
        ("unit", unit),
        ("rewards", _rewards(plan, rewards)),
        ("shape", [_SHAPE[op.name](op) for op in plan.shape]),
        ("estimator", _estimator(plan, rewards)),
        ("divisor", _divides(plan)),
        ("alone", singletons(plan)),
        ("groups", _groups(plan)),
        ("weight", _weight(plan)),
        ("post", post + _rollout(plan)),
        ("distill", distilled(plan)),
        ("not used", _without_effect(plan)),
    ]


def columns(plan: Plan) -> list[str]:
    """The columns that the plan reads, each with its option."""
    lines = [f"{ROLES[need].flag} COLUMN: {ROLES[need].meaning}" for need in plan.needs]
    if plan.distill.coef:
        lines.append(f"lists of log-probabilities:{LISTS}")
    return lines or ["the reward and the group key only"]


def of_constant_groups(plan: Plan) -> str:
    """The advantage of a zero-variance group, as a sentence."""
    if not plan.gives_equal_rewards_0:
        return "a group of equal rewards may get an advantage other than 0"
    # Shaping that reads other columns can make equal rewards differ.
    shaped = "group whose shaped rewards are equal" if any(op.needs for op in plan.shape) else "group of equal rewards"
    return f"a {shaped} gets 0{before_whitening(plan)}"


def before_whitening(plan: Plan) -> str:
    """The words to add to a value that whitening changes later; empty without whitening."""
    return " before whitening" if any(op.name == "whiten" for op in plan.post) else ""


# --- what counts as a reward ------------------------------------------------------------------------------


def _rewards(plan: Plan, names: Sequence[str]) -> list[str]:
    """How several reward columns become one, and what happens to missing rewards."""
    rule = plan.rewards
    several = len(names) > 1 or rule.weights
    lines = [f"r = {weighted(plan, names, 'r')}"] if several and rule.combine == "sum" else []
    return [*lines, *component_missing(plan), *missing(plan)]


def component_missing(plan: Plan) -> list[str]:
    """What happens if one of several rewards is missing; nothing if it is skipped."""
    rule = plan.rewards.component_missing
    return [COMPONENT_MISSING[rule]] if rule in COMPONENT_MISSING else []


def missing(plan: Plan) -> list[str]:
    """What happens to rows without a reward, and to their neighbours; nothing if they stop the run."""
    rule = plan.rewards.missing
    if rule == "propagate":
        zeroed = plan.divisor.least is not None and plan.divisor.level in STD_OF_SINGLETON
        value = "0" if zeroed else "NaN"
        return [f"a row without a reward {PROPAGATES[plan.nan_reach]} {value}"]
    names = [op.name for op in plan.post]
    if rule == "zero" and "whiten" in names:
        before = names[: names.index("whiten")]
        if "nan_to_zero" in before:
            return ["rows without a reward are left out of their group and count as 0 in whitening"]
    return [MISSING[rule]] if rule in MISSING else []


def weighted(plan: Plan, names: Sequence[str], letter: str) -> str:
    """The columns and their weights: `accuracy + 0.5 format`, or `r1 + 0.5 r2` without names."""
    weights = plan.rewards.weights or (1.0,) * len(names)
    if not weights:
        return f"sum of the columns' {letter}"
    if len(names) != len(weights):
        named = [f"{letter}{k}" for k in range(1, len(weights) + 1)]
    else:
        named = [name if letter == "r" else f"{letter}({name})" for name in names]
    return weighted_sum(named, weights)


# --- operations --------------------------------------------------------------------------------------------


def _clipped(letter: str, op: Clip) -> str:
    """In words, with one bound or two."""
    if op.lo is None and op.hi is None:
        return f"{letter} unchanged (no bounds)"
    if op.hi is None:
        return f"{letter} clipped from below at {exact(op.lo)}"
    if op.lo is None:
        return f"{letter} clipped from above at {exact(op.hi)}"
    return f"{letter} clipped to [{exact(op.lo)}, {exact(op.hi)}]"


def _affine(op: Affine) -> str:
    shaped = f"(r {_sign(op.shift)} {exact(abs(op.shift))})" if op.shift else "r"
    if op.scale != 1:
        shaped += f" * {exact(op.scale)}"
    return f"r becomes {shaped}"


def _sign(value: float) -> str:
    return "-" if value < 0 else "+"


def _overlong(op: Overlong) -> str:
    most = exact(op.max)
    buffer = exact(op.buffer)
    penalty = exact(op.penalty)
    beyond = BEYOND[op.beyond].format(max=most, penalty=penalty)
    loss = f"{penalty} (L - ({most} - {buffer}))/{buffer}"
    return f"r is reduced by {loss} where length L > {exact(op.max - op.buffer)}, {beyond}"


def _length(op: Length) -> str:
    parts = zip((op.output, op.input, op.turns), "LIT", strict=True)
    relative = " + ".join(f"{exact(weight)} {of}/max {of}" for weight, of in parts)
    return f"r becomes r - mean ({relative}); L output length, I input length, T turns"


def _rank(op: Rank) -> str:
    shaped = f"r' = r (1 - {exact(op.penalty)} rank/n), rank 0..n-1 by log-prob"
    use = "group mean and std use r', the numerator uses r" if op.numerator == "raw" else "r becomes r'"
    return f"{shaped}; {use}"


def _whiten(op: Whiten) -> str:
    masked = {"count": ", masked rows count", "skip": ", masked rows do not count"}.get(op.masked, "")
    samples = "rows" if op.level == "sample" else "tokens"
    over = f"over the {samples} of the batch{masked}"
    if not op.divide:
        return f"then A - mu {over}"
    divisor = _bracketed(_root(op))
    return f"then (A - mu)/{divisor} {over}, ddof {op.ddof}"


def _discount(op: Discount) -> str:
    times = "" if op.gamma == 1 else f"{exact(op.gamma)} times "
    return f"then, from the last row of a rollout to its first: A + {times}the A of the next row"


_SHAPE: Final[Mapping[str, Callable[[Any], str]]] = {
    "affine": _affine,
    "clip": lambda op: _clipped("r", op),
    "kl": lambda op: f"r becomes r {'+' if op.coef < 0 else '-'} {exact(abs(op.coef))} kl",
    "overlong": _overlong,
    "truncated": lambda op: f"r becomes {exact(op.factor)} r where the response was cut off",
    "length": _length,
    "rank": _rank,
    "binary": lambda op: f"r becomes 1 where r > {exact(op.threshold)}, else 0",
}
_POST: Final[Mapping[str, Callable[[Any], str]]] = {
    "length": lambda op: f"then A * L/{exact(op.max)}, L the length of the response",
    "clip": lambda op: _clipped("A", op),
    "whiten": _whiten,
    "discount": _discount,
    "nan_to_zero": lambda _: "NaN and null become 0",
}


def distilled(plan: Plan) -> list[str]:
    """What is done on each token."""
    rule = plan.distill
    if not rule.coef:
        return []
    far = "d = teacher - student log-probability"
    if rule.clamp is not None:
        far += f", cut to [-{exact(rule.clamp)}, {exact(rule.clamp)}]"
    factor = "" if abs(rule.coef) == 1 else f"{exact(abs(rule.coef))} "
    change = f"A {_sign(rule.coef)} {factor}d"
    if rule.form == "reweight":
        coef = exact(rule.coef)
        clip = exact(rule.clip)
        change = f"A (1 - {coef} + {coef} clip(exp(sign(A) d), 1 - {clip}, 1 + {clip}))"
        if rule.negative_only:
            change += ", where A < 0"
    return [f"then on each token (--per-token) {change}; {far}"]


def _weight(plan: Plan) -> list[str]:
    """The factor of a group."""
    rule = plan.weight
    rate = "p the mean reward of the group, from 0 to 1"
    if rule.solved is not None:
        rate = f"p the share of the group's rewards that are {exact(rule.solved)} or more"
    first = "m the mean of the first reward column (1 where that mean is 0)"
    hardness = f"e = exp(-m/{exact(rule.temperature)}), {first}"
    factors = {
        "peak": f"exp(-{exact(rule.sharpness)} KL(p || {exact(rule.peak)})), {rate}",
        "pass-at-k": f"{rule.k} (1 - p)^{rule.k - 1}, {rate}",
        "std": "std / (the largest std of a group in the batch + 1e-06)",
        "hard": f"e / mean e over the groups of the batch with a spread, {hardness}",
    }
    return [f"then A * {factors[rule.by]}"] if rule.by in factors else []


def _root(rule: Divisor | Whiten, prefix: str = "") -> str:
    """sqrt(max(var + inside, floor)) + epsilon, without the parts that are 0."""
    root = f"{prefix}std"
    if isinstance(rule, Divisor) and rule.measure == "mad":
        root = "mad"
    elif rule.inside or rule.floor:
        inner = f"{prefix}var"
        if rule.inside:
            inner += f" + {exact(rule.inside)}"
        if rule.floor:
            inner = f"max({inner}, {exact(rule.floor)})"
        root = f"sqrt({inner})"
    return f"{root} + {exact(rule.epsilon)}" if rule.epsilon else root


def _bracketed(term: str) -> str:
    """Brackets around a sum that something divides by."""
    whole = term.startswith("sqrt(") and term.endswith(")")
    return f"({term})" if " " in term and not whole else term


def _rollout(plan: Plan) -> list[str]:
    """What happens where a rollout has several rows."""
    rule = plan.unit
    divisor = plan.divisor
    lines = []
    if rule.take != "each":
        lines.append("then copied to every row of the rollout")
    if rule.per_step:
        lines.append("then divided by the number of rows of the rollout")
    if rule.state_weight:
        step = "(G - mean G)"
        if divisor.level == "group":
            step += f"/{_bracketed(_root(divisor).replace('std', 'std G'))}"
        elif divisor.level == "constant":
            step += f"/{exact(divisor.constant)}"
        gain = f"{exact(rule.state_weight)} {step} over steps from the same state{STATES[rule.states]}"
        lines.append(f"then A + {gain}, G = step reward + {exact(rule.gamma)} G of the next step")
    return lines


# --- singletons and groups -------------------------------------------------------------------------------


def singletons(plan: Plan) -> list[str]:
    """What a group with one scorable row gets."""
    rule = plan.alone
    if rule.result != "keep":
        return [SINGLETONS[rule.result]]
    if rule.sd == "nan" and plan.divisor.level == "group":
        return [SINGLETONS["nan"]]
    if rule.baseline == "own":
        return [SINGLETONS["zero"]]
    value = SINGLETON_BASELINE[rule.baseline]
    if rule.baseline == "zero" and plan.estimator.singleton is not outcome.raw:
        value = "the formula with a mean of 0"
    if plan.divisor.level in STD_OF_SINGLETON:
        value += f", {STD_OF_SINGLETON[plan.divisor.level]} taken as {STD_TAKEN[rule.sd]}"
    return [f"{OF_ONE}: {value}"]


def _groups(plan: Plan) -> list[str]:
    """Which groups are trained on."""
    rule = plan.groups
    lines = []
    if rule.zero_variance != "keep":
        lines.append(ZERO_VARIANCE[rule.zero_variance])
    if rule.std_threshold is not None:
        ddof = f" (ddof {plan.divisor.ddof})"
        lines.append(f"no gradient: all rewards equal, or std{ddof} <= {exact(rule.std_threshold)}")
    if rule.min_size > 1:
        lines.append(f"groups with fewer than {rule.min_size} scored rows {SMALL[rule.small]}")
    return lines


# --- estimator and divisor ---------------------------------------------------------------------------------


def quotient(plan: Plan) -> list[str]:
    """Numerator over divisor: on one line where the numerator is one term."""
    lines = _numerator(plan)
    rule = plan.divisor
    if rule.level == "none":
        return lines
    divisor = exact(rule.constant)
    if rule.level != "constant":
        divisor = _bracketed(_root(rule, "batch " if rule.level == "batch" else ""))
    term = ONE_TERM.fullmatch(lines[0]) if len(lines) == 1 else None
    if term:
        return [f"A = {_bracketed(term[1])} / {divisor}"]
    numerator = [re.sub(r"\bA\b", "x", line) for line in lines]
    return [*numerator, f"A = x / {divisor}"]


def _numerator(plan: Plan) -> list[str]:
    """The formula of the method's function, with the batch's quantities where that is the level."""
    if plan.method == "expression":
        return [f"A = {clean(plan.params['sql'])}"]
    doc = inspect.cleandoc(plan.estimator.build.__doc__ or "")
    lines = [line.strip() for line in doc.splitlines() if line.startswith("    ")]
    if plan.baseline_level == "group":
        return lines
    return [re.sub(r"\b(mean|sum|n)\b", lambda match: OF_BATCH[match[0]], line) for line in lines]


def _estimator(plan: Plan, rewards: Sequence[str]) -> list[str]:
    lines = quotient(plan)
    if plan.rewards.combine == "normalize":
        formula = "\n".join(lines)
        for letter, of_column in (("x", "y"), ("A", "z")):
            formula = re.sub(rf"\b{letter}\b", of_column, formula)
        lines = ["for each reward column:", *formula.split("\n"), f"A = {weighted(plan, rewards, 'z')}"]
    if plan.method == "expression":
        epsilon = exact(plan.divisor.epsilon)
        return [*lines, f"constants: epsilon {epsilon}, std with ddof {plan.divisor.ddof}"]
    constants = [f"{name} = {exact(value)}" for name, value in plan.params.items()]
    return [*lines, f"with {', '.join(constants)}"] if constants else lines


def _divides(plan: Plan) -> list[str]:
    rule = plan.divisor
    lines = []
    if (rule.level, rule.of) in DIVISOR_OF:
        lines.append(_spread(plan))
        if rule.least is not None:
            lines.append(f"A = 0 where that std is NaN or <= {exact(rule.least)}")
    elif rule.level == "none" and rule.ddof != 1 and plan.method != "expression":
        lines.append(f"none; the reported std has ddof {rule.ddof}")
    if rule.only_positive and rule.level != "none":
        least = f"<= {exact(rule.epsilon)}" if rule.epsilon else "0"
        lines.append(f"not divided where the divisor is {least}")
    return lines


def _spread(plan: Plan) -> str:
    """The measure of spread that divides, and of what."""
    rule = plan.divisor
    word = "var" if rule.inside or rule.floor else "std"
    if rule.measure == "mad":
        word = "mad, the mean absolute deviation"
    line = word + DIVISOR_OF[rule.level, rule.of].removeprefix("std")
    if rule.measure == "std":
        line += f", ddof {rule.ddof}"
    if plan.raw_rank is not None and (rule.level, rule.of) == ("batch", "reward"):
        line += ", before the rank penalty"
    if rule.level == "batch" and plan.groups.statistics == "kept":
        line += ", without skipped groups"
    return line


# --- settings that do nothing ------------------------------------------------------------------------------


def _without_effect(plan: Plan) -> list[str]:
    """Fields that were changed but that no part of the plan reads."""
    parts = [(name, getattr(plan, name)) for name in ("unit", "divisor", "alone", "groups", "weight", "distill")]
    parts += [(f"post.{op.name}", op) for op in plan.post]
    unread = plan.unread
    unused = []
    for part, rule in parts:
        for field in fields(rule):
            name = f"{part}.{field.name}"
            value = getattr(rule, field.name)
            # The divisor's own line already names a changed ddof of the reported std.
            named = name == "divisor.ddof" and plan.divisor.level == "none"
            if name in unread and value != field.default and not named:
                unused.append(f"{name} {exact(value)}")
    return [f"without effect: {', '.join(unused)}"] if unused else []
