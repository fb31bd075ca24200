"""One reward column through the estimator and its divisor, with the rule for a group of one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from grpo_cli.estimators import outcome
from grpo_cli.estimators.terms import GROUP, Terms
from grpo_cli.moments import spread
from grpo_cli.shaping import NAN, NULL

if TYPE_CHECKING:
    from grpo_cli.estimators.terms import Program
    from grpo_cli.plan import Plan


def base(program: Program, plan: Plan, r: pl.Expr, columns: frozenset[str], constant: pl.Expr | None = None) -> Terms:
    """The quantities of the reward that enters the estimator, and what makes its groups degenerate.

    They are the facts that the summary tells of a group; with one reward column the estimator uses them too.
    """
    program.let(r, ".r")
    t = terms(program, pl.col(".r"), columns, ".", constant)
    program.fact(pl.when(t.constant).then(0.0).otherwise(_variance(t, plan.divisor.ddof).sqrt()), ".std")
    threshold = plan.groups.std_threshold
    flat = t.constant if threshold is None else t.constant | (pl.col(".std") <= threshold).fill_null(value=False)
    program.fact(flat & (t.n > 1), ".degenerate")
    return t


def terms(program: Program, r: pl.Expr, columns: frozenset[str], prefix: str, constant: pl.Expr | None = None) -> Terms:
    """Name the base quantities of one reward column once; everything else is written with them."""
    base = program.base(r.meta.output_name(), prefix)
    least, most = base["min"], base["max"]
    constant = (least == most).fill_null(value=False) & ~least.is_nan() if constant is None else constant
    return Terms(
        program=program, r=r, d=base["d"], n=base["n"], mean=base["mean"], centred=base["centred"],
        squares=base["squares"], least=least, most=most, constant=program.fact(constant, f"{prefix}constant"),
        columns=columns,
    )  # fmt: skip


def _of_batch(t: Terms) -> Terms:
    """The same quantities with the batch's size and mean in the place of the group's."""
    whole = t.program.batch(t.r)
    return replace(t, n=whole.weight, mean=whole.mean, centred=whole.above(t.r))


def _variance(t: Terms, ddof: int) -> pl.Expr:
    """Variance of the group, NaN where there are too few rows."""
    return pl.when(t.n > ddof).then(t.squares / (t.n - ddof)).otherwise(NAN)


def estimate(program: Program, plan: Plan, own: Terms, raw: pl.Expr, name: str) -> pl.Expr:
    """The scaled advantage of one reward column, before the post operations.

    `own` speaks of the shaped reward, `raw` is the column before it was shaped.
    """
    t = own if plan.baseline_level == "group" else _of_batch(own)
    residual = plan.estimator.build(t, **_arguments(plan))
    if plan.raw_rank is not None:
        residual = residual + (raw - own.r)
    if plan.centred and not residual.meta.eq(own.centred):  # the distances of equal rewards are 0 as they are
        residual = pl.when(program.fact(own.constant & (own.n > 1))).then(0.0 * own.r).otherwise(residual)
    if plan.alone.baseline != "formula":
        lone = _lone(plan, own) if plan.alone.baseline == "zero" else 0.0 * raw
        residual = pl.when(program.fact(own.n == 1)).then(lone).otherwise(residual)
    residual = program.let(residual, f"{name}.residual")
    divisor = program.fact(_divisor(program, plan, own, residual, raw), f"{name}.divisor")
    return program.let(_lone_result(plan, own, raw, _divided(plan, residual, divisor)), f"{name}.scaled")


def _lone(plan: Plan, t: Terms) -> pl.Expr:
    """The only row of a group, measured against 0."""
    build = plan.estimator.lone
    value: pl.Expr = build(t) if build is outcome.raw else build(t, **_arguments(plan))
    return value


def _arguments(plan: Plan) -> dict[str, object]:
    """The method's parameters; a formula of one's own may also name constants of the divisor."""
    if plan.method == "expression":
        return {**plan.params, "ddof": plan.divisor.ddof, "epsilon": plan.divisor.epsilon}
    return dict(plan.params)


def _divisor(program: Program, plan: Plan, t: Terms, residual: pl.Expr, raw: pl.Expr) -> pl.Expr:
    rule = plan.divisor
    if rule.level == "none":
        return pl.lit(1.0)
    if rule.level == "constant":
        return pl.lit(rule.constant)
    spelled = partial(spread, inside=rule.inside, floor=rule.floor, epsilon=rule.epsilon)
    lone = {"zero": 0.0, "one": 1.0, "nan": NAN}[plan.alone.sd] + rule.epsilon
    if rule.level == "batch":
        # Trinity's rank penalty leaves the std of the batch alone: it is that of the rewards before it.
        reward = t.r if plan.raw_rank is None else raw
        counted = residual if rule.of == "residual" else reward
        kept = counted if plan.groups.statistics == "all" else pl.when(~skipped(plan)).then(counted)
        batch = program.batch(kept)
        return pl.when(batch.weight == 1).then(lone).otherwise(spelled(batch.variance(rule.ddof)))
    return pl.when(t.n == 1).then(lone).otherwise(spelled(_group_variance(program, plan, t, residual)))


def _group_variance(program: Program, plan: Plan, t: Terms, residual: pl.Expr) -> pl.Expr:
    rule = plan.divisor
    if rule.of == "reward":
        return _variance(t, rule.ddof)
    if rule.of == "residual":
        mean = program.let(residual.mean().over(GROUP))
        squares = program.let(((residual - mean) ** 2).sum().over(GROUP))
        return pl.when(t.n > rule.ddof).then(squares / (t.n - rule.ddof)).otherwise(NAN)
    return pl.when(_others_equal(t)).then(0.0).otherwise(_without_itself(t) / (t.n - 1 - rule.ddof))


def _without_itself(t: Terms) -> pl.Expr:
    """Sum of squared deviations of the other rewards.

    Taking a far-off row out of the group's sum would leave rounding where its neighbours' spread should be. At most
    one row is that far off: it is left out of the sums from the start.
    """
    away = t.let(t.d - t.over(t.d.quantile(0.5, "lower")))
    place = t.let(pl.int_range(pl.len()).over(GROUP))
    far = t.let(away.abs() == t.over(away.abs().max()))
    lead = t.let(place == t.over(pl.when(far).then(place).min()))
    first = t.let(t.over(pl.when(~lead).then(away).sum()))
    second = t.let(t.over(pl.when(~lead).then(away**2).sum()))
    leading = t.let(t.over(pl.when(lead).then(away).max()))
    linear = pl.when(lead).then(first).otherwise(first - away + leading)
    square = pl.when(lead).then(second).otherwise(second - away**2 + leading**2)
    return square - linear**2 / (t.n - 1)


def _others_equal(t: Terms) -> pl.Expr:
    """Whether the other rewards of the group are all the same (or fewer than two)."""
    lowest = t.let((t.r == t.least).sum().over(GROUP))
    highest = t.let((t.r == t.most).sum().over(GROUP))
    odd_one = ((t.r == t.most) & (lowest == t.n - 1)) | ((t.r == t.least) & (highest == t.n - 1))
    return t.constant | odd_one | (t.n - 1 <= 1)


def _divided(plan: Plan, residual: pl.Expr, divisor: pl.Expr) -> pl.Expr:
    if plan.divisor.level == "none":
        return residual
    quotient = residual / divisor
    if plan.divisor.least is not None and plan.divisor.level != "constant":
        wide = (divisor > plan.divisor.least + plan.divisor.epsilon) & divisor.is_not_nan()
        return pl.when(wide).then(quotient).when(residual.is_not_null()).then(0.0)
    if plan.divisor.only_positive:
        return pl.when(divisor > plan.divisor.epsilon).then(quotient).otherwise(residual)
    # 0 / 0 with epsilon 0: a constant group stays at 0.
    return (
        pl.when((residual == 0) & (divisor == 0)).then(0.0 * residual).otherwise(quotient)
        if plan.divisor.epsilon == 0
        else quotient
    )


def _lone_result(plan: Plan, t: Terms, raw: pl.Expr, value: pl.Expr) -> pl.Expr:
    results = {"raw": raw, "zero": 0.0 * raw, "nan": NAN + raw, "null": NULL, "drop": NULL}
    if plan.alone.result not in results:
        return value
    return pl.when(t.fact(t.n == 1)).then(results[plan.alone.result]).otherwise(value)


def skipped(plan: Plan) -> pl.Expr:
    """Rows of groups that are not trained on."""
    small = pl.col(".n") < plan.groups.min_size
    return small if plan.groups.zero_variance == "keep" else small | pl.col(".degenerate")
