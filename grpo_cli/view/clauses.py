"""The parts of a plan in plain maths, each as the clauses of what it does.

A part that does nothing has no clause. Every constant appears with the digits that it was given with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from grpo_cli.estimators import outcome
from grpo_cli.parts import Affine, Binary, Clip, Kl, Length, NanToZero, Overlong, Rank, Truncated, Whiten
from grpo_cli.view.words import exact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from grpo_cli.parts import Divisor
    from grpo_cli.plan import Plan

TAKEN: Final = {
    "first": "its first row's reward",
    "last": "its last row's reward",
    "mean": "the mean of its rows",
}
MISSING: Final = {
    "exclude": "rows without a finite reward are left out",
    "zero": "rows without a finite reward are left out and get 0",
    "as-zero": "rows without a finite reward count as reward 0",
}
FILLED: Final = "rows without a finite reward are left out of their group, then count as 0"
SPOILS: Final = {
    "row": "is",
    "later": "and the later rows that build on it are",
    "group": "makes its group",
    "batch": "makes its batch",
}
COMPONENT_MISSING: Final = {
    "zero": "a missing reward of several counts as 0",
    "propagate": "a row that misses one of several rewards has none",
}
BEYOND: Final = {
    "linear": "growing on above {max}",
    "floor": "never more than {penalty}",
    "zero": "and r = 0 where L > {max}",
}
ALONE: Final = {
    "zero": "singletons 0",
    "raw": "singletons keep r",
    "nan": "singletons NaN",
    "null": "singletons null",
    "drop": "singletons are dropped",
    "error": "a singleton stops the run",
}
ALONE_BASELINE: Final = {"zero": "residual r", "formula": "like any other row"}
OWN_FORMULA: Final = "the formula with a mean of 0"
LONE_STD: Final = {"group": "std", "batch": "std of a batch of one row"}
ZERO_VARIANCE: Final = {"drop": "constant groups are dropped", "null": "constant groups get null"}
SMALL: Final = {"null": "get null", "zero": "get 0", "drop": "are dropped"}
LEVEL: Final = {"sample": "rows", "token": "tokens"}


def unit(plan: Plan) -> list[str]:
    """What counts as one reward."""
    rule = plan.unit
    return [] if rule.take == "each" else [f"one reward a rollout: {TAKEN[rule.take]}"]


def rewards(plan: Plan, names: Sequence[str] = ()) -> list[str]:
    """How several columns become one, and what a missing one means."""
    rule = plan.rewards
    summed = len(names) > 1 or rule.weights
    lines = [f"r = {weighted(plan, names, 'r')}"] if summed and rule.combine == "sum" else []
    lines += [text for key, text in COMPONENT_MISSING.items() if key == rule.component_missing]
    return lines + missing(plan)


def missing(plan: Plan) -> list[str]:
    """What becomes of a row without a reward, and of its neighbours; nothing where it stops the run."""
    rule = plan.rewards.missing
    if rule == "propagate":
        caught = plan.divisor.least is not None and plan.divisor.level in LONE_STD
        return [f"a row without a finite reward {SPOILS[plan.spoils]} {'0' if caught else 'NaN'}"]
    names = [op.name for op in plan.post]
    filled = "nan_to_zero" in names[: names.index("whiten")] if "whiten" in names else False
    if rule == "zero" and filled:
        return [FILLED]
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
    return " + ".join(name if w == 1 else f"{exact(w)} {name}" for w, name in zip(weights, named, strict=True))


# --- operations --------------------------------------------------------------------------------------------


def shape(plan: Plan) -> list[str]:
    """What is done to the reward before it enters the estimator."""
    return [_SHAPE[type(op)](op) for op in plan.shape]


def post(plan: Plan) -> list[str]:
    """What is done to the advantage in the end."""
    return [_POST[type(op)](op) for op in plan.post] + _rollout(plan)


def clipped(letter: str, op: Clip) -> str:
    """One bound or two."""
    if op.lo is not None and op.hi is not None:
        return f"{letter} clipped to [{exact(op.lo)}, {exact(op.hi)}]"
    if op.lo is not None:
        return f"{letter} not below {exact(op.lo)}"
    return f"{letter} clipped to nothing, unchanged" if op.hi is None else f"{letter} not above {exact(op.hi)}"


def _affine(op: Affine) -> str:
    shifted = f"(r {'-' if op.shift < 0 else '+'} {exact(abs(op.shift))})"
    return f"r becomes {shifted if op.shift else 'r'}" + (f" * {exact(op.scale)}" if op.scale != 1 else "")


def _overlong(op: Overlong) -> str:
    start = f"({exact(op.max)} - {exact(op.buffer)})"
    told = BEYOND[op.beyond].format(max=exact(op.max), penalty=exact(op.penalty))
    loss = f"{exact(op.penalty)} (L - {start})/{exact(op.buffer)}"
    return f"r loses {loss} where length L > {exact(op.max - op.buffer)}, {told}"


def _length(op: Length) -> str:
    parts = zip((op.output, op.input, op.turns), "LIT", strict=True)
    relative = " + ".join(f"{exact(weight)} {of}/max {of}" for weight, of in parts)
    return f"r becomes r - mean ({relative}); L output length, I input length, T turns"


def _rank(op: Rank) -> str:
    told = f"r' = r (1 - {exact(op.penalty)} rank/n), rank 0..n-1 by log-prob"
    return (
        f"{told}; group mean and std are those of r', the numerator keeps r"
        if op.numerator == "raw"
        else f"{told}; r becomes r'"
    )


def _whiten(op: Whiten) -> str:
    over = f"over the {LEVEL[op.level]} of the batch"
    if not op.divide:
        return f"then A - mu {over}"
    return f"then (A - mu)/{bracketed(spelled(op, ''))} {over}, ddof {op.ddof}"


_SHAPE: Final[Mapping[type, Callable[[Any], str]]] = {
    Affine: _affine,
    Clip: lambda op: clipped("r", op),
    Kl: lambda op: f"r becomes r {'+' if op.coef < 0 else '-'} {exact(abs(op.coef))} kl",
    Overlong: _overlong,
    Truncated: lambda op: f"r becomes {exact(op.factor)} r where the response was cut off",
    Length: _length,
    Rank: _rank,
    Binary: lambda op: f"r becomes 1 where r > {exact(op.threshold)}, else 0",
}
_POST: Final[Mapping[type, Callable[[Any], str]]] = {
    Clip: lambda op: clipped("A", op),
    Whiten: _whiten,
    NanToZero: lambda _: "NaN and null become 0",
}


def spelled(rule: Divisor | Whiten, prefix: str) -> str:
    """sqrt(max(var + inside, floor)) + epsilon, without the parts that are 0."""
    inner = f"{prefix}var + {exact(rule.inside)}" if rule.inside else f"{prefix}var"
    inner = f"max({inner}, {exact(rule.floor)})" if rule.floor else inner
    root = f"sqrt({inner})" if rule.inside or rule.floor else f"{prefix}std"
    return f"{root} + {exact(rule.epsilon)}" if rule.epsilon else root


def bracketed(term: str) -> str:
    """Brackets around a sum that something divides by."""
    whole = term.startswith("sqrt(") and term.endswith(")")
    return f"({term})" if " " in term and not whole else term


def _rollout(plan: Plan) -> list[str]:
    """What happens where a rollout has several rows."""
    rule = plan.unit
    lines = ["then copied to all rows of the rollout"] if rule.take != "each" else []
    lines += ["then divided by the rollout's number of rows"] if rule.per_step else []
    if rule.state_weight:
        step = (
            f"(G - mean G)/{bracketed(spelled(plan.divisor, '').replace('std', 'std G'))}"
            if plan.divisor.level == "group"
            else "(G - mean G)"
        )
        lines.append(
            f"then A + {exact(rule.state_weight)} {step} over steps from the same state, "
            f"G = step reward + {exact(rule.gamma)} G of the next step"
        )
    return lines


# --- singletons and groups -------------------------------------------------------------------------------


def alone(plan: Plan) -> list[str]:
    """What a group with one scorable row gets."""
    rule = plan.alone
    if rule.result != "keep":
        return [ALONE[rule.result]]
    if rule.sd == "nan" and plan.divisor.level == "group":
        return [ALONE["nan"]]
    if rule.baseline == "own":
        return [ALONE["zero"]]
    divided = f", {LONE_STD[plan.divisor.level]} taken as {rule.sd}" if plan.divisor.level in LONE_STD else ""
    own = rule.baseline == "zero" and plan.estimator.lone is not outcome.raw
    return [f"singletons: {OWN_FORMULA if own else ALONE_BASELINE[rule.baseline]}{divided}"]


def groups(plan: Plan) -> list[str]:
    """Which groups are trained on."""
    rule = plan.groups
    lines = [ZERO_VARIANCE[rule.zero_variance]] if rule.zero_variance != "keep" else []
    if rule.std_threshold is not None:
        ddof = f" (ddof {plan.divisor.ddof})"
        lines.append(f"constant: all rewards equal, or std{ddof} <= {exact(rule.std_threshold)}")
    if rule.min_size > 1:
        lines.append(f"groups of fewer than {rule.min_size} scored rows {SMALL[rule.small]}")
    return lines


def silences(plan: Plan) -> bool:
    """Whether a constant group gets exactly 0 (before the post operations): the steps of a rollout may still differ."""
    return plan.centred and not plan.unit.state_weight
