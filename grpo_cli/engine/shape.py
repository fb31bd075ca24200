"""The operations on rewards before the estimator: the plan's `shape`."""

from __future__ import annotations

import polars as pl

from grpo_cli.engine.frames import GROUP, Frames
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Affine, Binary, Clip, Kl, Length, Overlong, Rank, ShapeOp, Truncated


def shape(frames: Frames, plan: Plan, reward: pl.Expr) -> pl.Expr:
    """The reward after the operations of the plan, in their order."""
    for op in plan.shape:
        reward = frames.let(_shaped(frames, op, reward))
    return reward


def _shaped(frames: Frames, op: ShapeOp, r: pl.Expr) -> pl.Expr:
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
            return r - frames.average(r) * _relative_length(op, r.is_not_null())
        case Rank():
            return r * (1 - op.penalty * _place(r) / frames.sum(r.is_not_null()))


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
    """The rank by likelihood, from 0 (least likely) to n - 1; ties in row order."""
    return pl.when(r.is_not_null()).then(pl.col("logprob")).rank("ordinal").over(GROUP).cast(pl.Float64) - 1
