"""One real group with all steps of its arithmetic, so that somebody can follow them by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from grpo_cli.engine.compile import compile_plan
from grpo_cli.engine.estimators.terms import Round
from grpo_cli.engine.moments import Moments
from grpo_cli.engine.plan_parts import Whiten

if TYPE_CHECKING:
    from grpo_cli.engine.compile import Scored
    from grpo_cli.engine.plan import Plan
    from grpo_cli.read.tables import Narrow


@dataclass(frozen=True, slots=True)
class Example:
    """A group and its batch with all columns of the computation; the places of its first rows in the input."""

    plan: Plan
    group: pl.DataFrame
    batch: pl.DataFrame
    key: str
    places: list[str]
    reward_names: tuple[str, ...]
    whitenings: list[tuple[Whiten, float, float]]  # what each whitening subtracts and divides by in this batch


def worked_example(plan: Plan, scored: Scored, narrow: Narrow, places: int) -> Example:
    """The first group with something to compare and a row that moves; else the first one."""
    frame = scored.frame
    moved = pl.any_horizontal(pl.col("^.*\\.residual$") != 0).fill_null(value=False)
    telling = frame.filter((pl.col(".n") > 1) & ~pl.col(".constant").fill_null(value=True) & moved)
    code = int((telling if len(telling) else frame)["group"][0])
    group = frame.with_row_index(".row").filter(pl.col("group") == code)
    batch = frame.filter(pl.col("batch") == group["batch"][0])
    first_places = [narrow.place(row) for row in group[".row"].head(places).to_list()]
    whitenings = _whitenings(plan, batch, narrow)
    return Example(plan, group, batch, narrow.label(code), first_places, narrow.reward_names, whitenings)


def _whitenings(plan: Plan, batch: pl.DataFrame, narrow: Narrow) -> list[tuple[Whiten, float, float]]:
    """Mean and divisor of every whitening: the rounds of the program after the scaling."""
    ops = [op for op in plan.post if isinstance(op, Whiten)]
    if not ops:
        return []
    program = compile_plan(plan, len(narrow.reward_names), frozenset(narrow.table.columns))
    last = max(i for i, step in enumerate(program.steps) if step.name.endswith(".scaled"))
    rounds = [step for step in program.steps[last:] if isinstance(step, Round)]
    whitenings = []
    for op, step in zip(ops, rounds, strict=True):
        weight = pl.lit(1.0) if step.weight is None else step.weight.cast(pl.Float64)
        rows = batch.select(x=step.value, w=weight).drop_nulls("x")
        moments = Moments.of(rows["x"].to_numpy(), np.zeros(len(rows), np.uint32), 1, rows["w"].to_numpy())
        divisor = math.sqrt(max(float(moments.variance(op.ddof)[0]) + op.inside, op.floor)) + op.epsilon
        whitenings.append((op, float(moments.mean[0]), divisor))
    return whitenings
