"""From reward columns to the one reward of each unit, and its shape: the first three parts of a Plan."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import polars as pl

from grpo_cli.estimators.terms import GROUP, ROLLOUT
from grpo_cli.parts import Affine, Binary, Clip, Kl, Length, Overlong, Rank, ShapeOp, Truncated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_cli.estimators.terms import Program
    from grpo_cli.plan import Plan

NULL: Final = pl.lit(None, dtype=pl.Float64)
NAN: Final = float("nan")
MOST: Final = sys.float_info.max


def weights(plan: Plan, components: int) -> tuple[float, ...]:
    """One weight per reward column; all 1 unless said."""
    return plan.rewards.weights or (1.0,) * components


def weighted(values: Sequence[pl.Expr], weights: Sequence[float]) -> pl.Expr:
    """Weighted sum over the components that are there; null where none is."""
    if len(values) == 1:
        return values[0] * weights[0]
    total = pl.sum_horizontal(value * weight for value, weight in zip(values, weights, strict=True))
    return pl.when(pl.any_horizontal(value.is_not_null() for value in values)).then(total)


def rewards(program: Program, plan: Plan, components: int) -> None:
    """`.component.k` (null = missing), `.scorable`, `.unit` and `.reward`, the raw reward of each unit."""
    raw = [pl.col(f"reward.{k}") for k in range(components)]
    # `is_finite` takes twice as long, a pass of 10M rows 14 ms.
    known = [
        program.let(pl.when(value.is_between(-MOST, MOST)).then(value), f".known.{k}") for k, value in enumerate(raw)
    ]
    rule = plan.rewards
    zeros = rule.component_missing == "zero" and components > 1
    filled = [value.fill_null(0.0) for value in known] if zeros else known
    total = weighted(filled, weights(plan, components))
    there = pl.all_horizontal if rule.component_missing == "propagate" else pl.any_horizontal
    scorable = program.let(there(value.is_not_null() for value in filled), ".scorable")
    substitute = {"as-zero": pl.lit(0.0), "propagate": pl.lit(NAN)}.get(rule.missing, NULL)
    unit = program.let(_unit(program, plan, scorable, rule.missing), ".unit")

    def of_unit(value: pl.Expr) -> pl.Expr:
        complete = pl.when(scorable).then(value).otherwise(substitute)
        return pl.when(unit).then(_taken(plan, complete))

    program.let(of_unit(total), ".reward")
    if rule.combine == "normalize":
        for k, value in enumerate(filled):
            program.let(of_unit(value), f".component.{k}")


def _unit(program: Program, plan: Plan, scorable: pl.Expr, missing: str) -> pl.Expr:
    """Which row of a rollout stands for it: every row when rows are the unit."""
    if plan.unit.take == "each":
        return pl.lit(value=True)
    row = pl.int_range(pl.len())
    candidate = program.let(pl.when(scorable | (missing in {"as-zero", "propagate"})).then(row), ".candidate")
    chosen = candidate.max() if plan.unit.take == "last" else candidate.min()
    return (row == chosen.over(ROLLOUT)).fill_null(value=False)


def _taken(plan: Plan, value: pl.Expr) -> pl.Expr:
    return value.mean().over(ROLLOUT) if plan.unit.take == "mean" else value


# --- shape ---------------------------------------------------------------------------------------------


def shape(program: Program, plan: Plan, reward: pl.Expr) -> pl.Expr:
    """The reward after the operations of the plan, in their order."""
    for op in plan.shape:
        reward = program.let(_shaped(op, reward))
    return reward


def _shaped(op: ShapeOp, r: pl.Expr) -> pl.Expr:
    match op:
        case Affine():
            return (r + op.shift) * op.scale
        case Clip():
            return r.clip(op.lo, op.hi)
        case Kl():
            return r - op.coef * pl.col("kl")
        case Truncated():
            return pl.when(pl.col("truncated")).then(r * op.factor).otherwise(r)
        case Binary():
            return pl.when(r.is_nan()).then(r).when(r.is_not_null()).then((r > op.threshold).cast(pl.Float64))
        case Overlong():
            return _overlong(op, r)
        case Length():
            return r - r.mean().over(GROUP) * _relative_length(op, r.is_not_null())
        case Rank():
            return r * (1 - op.penalty * _place(r) / r.count().over(GROUP))


def _overlong(op: Overlong, r: pl.Expr) -> pl.Expr:
    length = pl.col("length")
    penalty = (-(length - (op.max - op.buffer)) / op.buffer * op.penalty).clip(upper_bound=0.0)
    if op.beyond == "floor":
        penalty = penalty.clip(lower_bound=-op.penalty)
    return pl.when(length > op.max).then(0.0).otherwise(r + penalty) if op.beyond == "zero" else r + penalty


def _relative_length(op: Length, counts: pl.Expr) -> pl.Expr:
    def relative(role: str) -> pl.Expr:
        longest = pl.when(counts).then(pl.col(role)).max().over(GROUP)
        return pl.col(role) / longest.clip(lower_bound=1.0)

    return op.output * relative("length") + op.input * relative("input_length") + op.turns * relative("turns")


def _place(r: pl.Expr) -> pl.Expr:
    """0 for the least likely row of the group, n - 1 for the likeliest; ties in row order."""
    return pl.when(r.is_not_null()).then(pl.col("logprob")).rank("ordinal").over(GROUP).cast(pl.Float64) - 1
