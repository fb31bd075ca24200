"""Plan + narrow table -> advantage and status of every row, facts of every group.

The arithmetic of a plan in its order: rewards, shape, estimator, divisor, selection, post operations, status. It names
columns and reads them; `frames.py` computes them. Columns that the engine adds start with a dot.

The narrow table has `group`, `batch` (dense codes in order of first appearance), `reward.0`, `reward.1`, ... and
the role columns that the plan needs.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Final, Literal, NamedTuple, get_args

import numpy as np
import polars as pl

from grpo_cli.engine import plan_parts as parts
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.estimators.terms import Terms
from grpo_cli.engine.extra_columns import LEFT_OUT, MASKED, ROLES
from grpo_cli.engine.frames import BATCH, GROUP, ROLLOUT, Frames
from grpo_cli.engine.group_stats import Segments
from grpo_cli.engine.moments import NEAREST, Index, Vector, spread
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import GrpoError, PluginError, Way
from grpo_cli.plugins import in_words

Status = Literal["scored", "unscorable", "singleton", "zero-variance", "small-group", "masked", "left-out"]
STATUSES: Final = get_args(Status)
# Columns of the result: of each row, and of its group.
OF_ROWS = (".advantage", ".status", ".kept", ".scorable", ".reward")
OF_GROUPS = (".n", ".mean", ".std", ".min", ".max", ".constant", ".zero_variance")
SMALL = 1 << 14  # rows: their arithmetic takes about as long as the queries of a plan (5 ms on one core)
TOGETHER = 1 << 8  # small tables that are computed together: 4M rows at most
NULL = pl.lit(None, dtype=pl.Float64)
NAN = float("nan")
SD_ALONE = {"zero": 0.0, "one": 1.0, "nan": NAN}  # the std of a singleton
ROUNDING = 8 * sys.float_info.epsilon  # of the std: a mean up to this is that of centred values, rounded
NO_SPREAD = 1e-8  # a std or mean up to this counts as 0 in a weight
LARGEST_STD = 1e-6  # added to the largest std of a batch, which may be 0


@dataclass(frozen=True)
class Scored:
    """The result of the engine: the narrow table with the columns of rows, and a line for each group.

    A group has its `code`, `batch` and `size` (all of its rows), its facts, whether it is `.kept`, and its `.status`.
    """

    plan: Plan
    rows: pl.DataFrame
    groups: pl.DataFrame

    @cached_property
    def frame(self) -> pl.DataFrame:
        """Everything row by row, in the order of the input."""
        left = [name for name in OF_GROUPS if name not in self.rows.columns]
        if not left:
            return self.rows
        facts = self.groups.select(left)
        return self.rows.hstack(facts[self.rows[GROUP]])


def score(plan: Plan, table: pl.DataFrame, *, intermediate: bool = False) -> Scored:
    """Compute a plan on a narrow table; `intermediate` keeps all intermediate columns.

    Rows that are left out of their groups are not computed with; their advantage is null.
    """
    if LEFT_OUT not in table.columns:
        return _scored(plan, table, intermediate=intermediate)
    counts = ~table[LEFT_OUT]
    counted = table.filter(counts).drop(LEFT_OUT)
    others = _scored(plan, counted, intermediate=intermediate)
    groups = _of_all_groups(others.groups, table)
    place = pl.when(counts).then(counts.cum_sum() - 1)
    computed = others.rows.select(pl.exclude(table.columns))
    rows = computed.select(pl.all().gather(pl.select(place).to_series()))
    lines = np.searchsorted(groups["code"].to_numpy(), table[GROUP].to_numpy())
    rows = rows.with_columns(
        pl.col(".status").fill_null(_literal("left-out")),
        pl.col(".kept").fill_null(groups[".kept"].gather(lines)),
        pl.col(".scorable").fill_null(value=False),
    )
    return Scored(plan, table.hstack(rows), groups)


def score_each(plans: Sequence[Plan], tables: Sequence[pl.DataFrame]) -> list[Scored]:
    """Each of these plans on its own table, with the bits of `score`.

    Small tables of one plan are computed together, because there a query costs more than its arithmetic. Their groups, batches
    and keys stay apart.
    """
    alike = dict[Hashable, list[int]]()
    distinct = {id(plan): plan for plan in plans}  # a thousand parts may have one
    texts = {name: str(plan) for name, plan in distinct.items()}
    for at, (plan, table) in enumerate(zip(plans, tables, strict=True)):
        together = 0 < len(table) < SMALL and not plan.estimator.spans_batches and not ESTIMATORS.origin(plan.method)
        key = (texts[id(plan)], tuple(table.schema.items())) if together else at
        alike.setdefault(key, []).append(at)
    found = dict[int, Scored]()
    for places in alike.values():
        for start in range(0, len(places), TOGETHER):
            some = places[start : start + TOGETHER]
            found |= zip(some, _score_together(plans[some[0]], [tables[at] for at in some]), strict=True)
    return [found[at] for at in range(len(tables))]


def _score_together(plan: Plan, tables: Sequence[pl.DataFrame]) -> list[Scored]:
    """The plan on each of these tables, which have the same columns."""
    if len(tables) == 1:
        return [score(plan, tables[0])]
    keys = [
        name for name in tables[0].columns if name in {GROUP, BATCH} or (name in ROLES and ROLES[name].kind == "key")
    ]
    rows = np.array([*map(len, tables)])
    starts = np.cumsum(rows) - rows
    table = pl.concat(tables, rechunk=True)
    apart = dict[str, pl.Series]()
    counts = dict[str, Index]()  # how many codes each table has
    before = dict[str, Index]()  # how many the tables before it have
    for name in keys:
        codes = table[name].to_numpy()
        counts[name] = np.maximum.reduceat(codes, starts).astype(np.int64) + 1
        before[name] = np.cumsum(counts[name]) - counts[name]
        apart[name] = pl.Series(codes + np.repeat(before[name], rows)).cast(table[name].dtype)
    both = score(plan, table.with_columns(**apart))
    computed = both.rows.select(pl.exclude(table.columns))
    groups = both.groups
    lines = counts[GROUP]
    for name, key in (("code", GROUP), ("batch", BATCH)):
        own = groups[name].to_numpy() - np.repeat(before[key], lines)
        groups = groups.with_columns(pl.Series(name, own).cast(groups[name].dtype))
    parts = list[Scored]()
    cuts = zip(tables, starts.tolist(), before[GROUP].tolist(), lines.tolist(), strict=True)
    for own_table, start, first, size in cuts:
        of_rows = own_table.hstack(computed[start : start + len(own_table)])
        parts.append(Scored(plan, of_rows, groups[first : first + size]))
    return parts


def _of_all_groups(groups: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """A line for each group of the table, which counts all of its rows; some groups may have only rows that were left out."""
    by_code = table.group_by(pl.col(GROUP).alias("code"))
    size = pl.len().cast(pl.Int64)
    every = by_code.agg(size=size, batch=pl.col(BATCH).first()).sort("code")
    facts = groups.drop("size", "batch")
    joined = every.join(facts, on="code", how="left", maintain_order="left")
    filled = joined.with_columns(
        pl.col(".n").fill_null(0),
        pl.col(".std").fill_null(NAN),
        pl.col(".constant", ".zero_variance").fill_null(value=False),
        pl.col(".kept").fill_null(value=True),
        pl.col(".status").fill_null(_literal("left-out")),
    )
    return filled.select(groups.columns)


def _scored(plan: Plan, table: pl.DataFrame, *, intermediate: bool) -> Scored:
    frames = Frames(table)
    with _named(plan):
        quantities = _quantities(frames, plan, table)
        residuals = _residuals(frames, plan, quantities)
        value = _before_post(frames, plan, quantities, residuals)
        _finish(frames, plan, value)
        of_group = frames.let(_status(plan), ".group_status")
        counts = pl.col(".scorable") | (plan.rewards.missing == "as-zero")
        status = pl.when(counts).then(of_group).otherwise(_literal("unscorable"))
        frames.let(status, ".status")
        columns = frames.select((*OF_ROWS, *frames.names) if intermediate else OF_ROWS)
    batches = pl.Series(BATCH, frames.batch_of_group)
    group_status = pl.when(pl.col(".n") == 0).then(_literal("unscorable")).otherwise(".group_status").alias(".status")
    groups = frames.groups.select("code", "size", *OF_GROUPS, ".kept", batches, group_status)
    if MASKED in table.columns:
        masked = pl.when(table[MASKED] & (columns[".status"] != "unscorable")).then(_literal("masked"))
        marked = pl.coalesce(masked, pl.col(".status"))
        columns = columns.with_columns(marked.alias(".status"))
    return Scored(plan, table.hstack(columns), groups)


class Shaped(NamedTuple):
    """A plan computed up to its estimator: plans that differ only from there on share it."""

    frames: Frames
    quantities: Mapping[str, Terms]

    @classmethod
    def of(cls, plan: Plan, table: pl.DataFrame) -> Shaped:
        """Compute it."""
        frames = Frames(table)
        return cls(frames, _quantities(frames, plan, table))

    def advantages(self, plans: Sequence[Plan]) -> list[Vector]:
        """The advantage of every row under each of these plans, see `kept_advantages`.

        They are computed together, step by step: on a sample, a query costs more than its arithmetic. Most plans share
        their residuals with others.
        """
        frames = self.frames.copy()
        quantities = {name: replace(t, frames=frames) for name, t in self.quantities.items()}
        with _named(plans[0]):
            keys = [_before_divisor(plan) for plan in plans]
            distinct = dict(zip(keys, plans, strict=True))
            residuals = dict[Hashable, Mapping[str, pl.Expr]]()
            shared = list[pl.Expr]()
            for key, plan in distinct.items():
                with frames.under(f"{len(residuals)}:"):
                    residuals[key] = _residuals(frames, plan, quantities)
                shared += residuals[key].values()
            frames.keep(shared)
            values = list[pl.Expr]()
            for at, plan in enumerate(plans):
                with frames.under(f"{at}"):
                    values.append(_before_post(frames, plan, quantities, residuals[keys[at]]))
            frames.keep(values)
            results = list[str]()
            for at, plan in enumerate(plans):
                with frames.under(f"{at}"):
                    _finish(frames, plan, values[at])
                results += f"{at}.advantage", f"{at}.kept"
            rows = frames.select(results)
        found = list[Vector]()
        for at in range(len(plans)):
            of_plan = {name: rows[f"{at}{name}"] for name in (".advantage", ".kept")}
            found.append(kept_advantages(of_plan))
        return found


def _before_divisor(plan: Plan) -> Hashable:
    """Everything in a plan that its estimator reads besides the shaped rewards, as a key."""
    epsilon = plan.divisor.epsilon if plan.method == "expression" else None  # a formula may name it
    return plan.estimator.build, str(plan.params), plan.baseline_level, plan.alone, epsilon


@contextmanager
def _named(plan: Plan) -> Iterator[None]:
    """Errors in the code of a package name the package, even its exits; what it prints is not among the data."""
    package = ESTIMATORS.origin(plan.method)
    if not package:
        yield
        return
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (GrpoError, KeyboardInterrupt):
        raise
    except BaseException as error:
        what = f"the method {plan.method} of {package} failed: {in_words(error)}"
        raise PluginError(what, ["repair the package", Way("--debug", why="shows where")]) from error


def advantages(plan: Plan, table: pl.DataFrame) -> Vector:
    """The advantage of every row, see `kept_advantages`."""
    return Shaped.of(plan, table).advantages([plan])[0]


def kept_advantages(rows: pl.DataFrame | Mapping[str, pl.Series]) -> Vector:
    """The advantage of each row; NaN if it has none or the plan drops the row."""
    values = rows[".advantage"].to_numpy()
    kept = rows[".kept"]
    return values if kept.all() else np.where(kept.to_numpy(), values, NAN)


def _quantities(frames: Frames, plan: Plan, table: pl.DataFrame) -> dict[str, Terms]:
    """From the rewards to the base quantities of each column that the estimator reads, by name."""
    components = sum(name.startswith("reward.") for name in table.columns)
    rewards(frames, plan, components)
    quantities = dict[str, Terms]()
    constant = None
    if plan.rewards.combine == "normalize":
        for k in range(components):
            name = f".component.{k}"
            shaped = _shape(frames, plan, pl.col(name))
            r = frames.let(shaped, f"{name}.r")
            quantities[name] = terms(frames, r, f"{name}.")
        # The estimator reads each column: a group is constant only if all columns with a weight are.
        of_columns = [*quantities.values()]
        counted = [t for t, weight in zip(of_columns, weights(plan, components), strict=True) if weight]
        constant = pl.all_horizontal(t.constant | (t.n == 0) for t in counted or of_columns)
    reward = _shape(frames, plan, pl.col(".reward"))
    combined = base(frames, plan, reward, constant)
    return quantities or {".reward": combined}


def _residuals(frames: Frames, plan: Plan, quantities: Mapping[str, Terms]) -> dict[str, pl.Expr]:
    """The residual of each column."""
    return {name: _residual(frames, plan, t, name) for name, t in quantities.items()}


def _before_post(
    frames: Frames, plan: Plan, quantities: Mapping[str, Terms], residuals: Mapping[str, pl.Expr]
) -> pl.Expr:
    """From the residuals to the input of the post operations."""
    scaled = [_scaled(frames, plan, t, residuals[name], name) for name, t in quantities.items()]
    value = scaled[0]
    if plan.rewards.combine == "normalize":
        value = weighted(frames, scaled, weights(plan, len(scaled)))
    if plan.weight.by != "none":
        value = value * frames.let(_weight(frames, plan), ".weight")
    value = frames.let(value)
    return frames.let(_select(frames, plan, value))


def _finish(frames: Frames, plan: Plan, value: pl.Expr) -> None:
    """The post operations and the answer: the last columns are `.advantage` and `.kept`."""
    for place, op in enumerate(plan.post):
        value = frames.let(_post(frames, op, place, value))
    _answer(frames, plan, value)


def _weight(frames: Frames, plan: Plan) -> pl.Expr:
    """The weight of the row's group."""
    rule = plan.weight
    sd = pl.col(".std")
    if rule.by in {"peak", "pass-at-k"}:
        rate = pl.col(".mean")
        if rule.solved is not None:
            rate = frames.average(pl.col(".reward") >= rule.solved)
        p = rate.clip(0.0, 1.0)
        if rule.by == "pass-at-k":
            return rule.k * (1 - p) ** (rule.k - 1)
        divergence = _share(p, rule.peak) + _share(1 - p, 1 - rule.peak)
        return (-rule.sharpness * divergence).exp()
    counted = pl.lit(value=True) if plan.groups.statistics == "all" else ~_skipped(plan)
    if rule.by == "std":
        if plan.alone.result == "keep":
            sd = pl.when(pl.col(".n") == 1).then(SD_ALONE[plan.alone.sd]).otherwise(sd)
        largest = frames.most_of_batch(pl.when(counted).then(sd))
        return sd / (largest + LARGEST_STD)
    first = frames.average(pl.when(".unit").then(pl.col(".known.0")))
    level = pl.when(first.abs() <= NO_SPREAD).then(1.0).otherwise(first)
    hardness = (-level / rule.temperature).exp()
    wide = sd > NO_SPREAD
    compared = pl.when(wide & counted).then(hardness)
    mean = frames.batch_of_groups(compared, pl.col(".n")).mean
    return pl.when(wide).then(hardness / mean).otherwise(1.0)


def _share(share: pl.Expr, peak: float) -> pl.Expr:
    """A term of the KL divergence from a solve rate; 0, its limit, if the share is 0."""
    term = share * (share / peak).log()
    return pl.when(share > 0).then(term).otherwise(0.0 * share)


def weights(plan: Plan, components: int) -> tuple[float, ...]:
    """One weight per reward column; 1 by default."""
    return plan.rewards.weights or (1.0,) * components


def weighted(frames: Frames, values: Sequence[pl.Expr], weights: Sequence[float]) -> pl.Expr:
    """The weighted sum of the components that are not null; null if all are."""
    parts = [value * weight for value, weight in zip(values, weights, strict=True)]
    if len(parts) == 1:
        return parts[0]
    two = len(parts) == 2  # noqa: PLR2004 - two numbers have the same sum in either order
    total = pl.sum_horizontal(parts) if two else frames.total(parts)
    known = pl.any_horizontal(value.is_not_null() for value in values)
    return pl.when(known).then(total)


def rewards(frames: Frames, plan: Plan, components: int) -> None:
    """Name `.component.k` (null = missing), `.scorable`, `.unit` and `.reward`, the raw reward of each unit."""
    known = list[pl.Expr]()
    for k in range(components):
        raw = pl.col(f"reward.{k}")
        finite = pl.when(raw.is_finite()).then(raw)
        known.append(frames.let(finite, f".known.{k}"))
    rule = plan.rewards
    zeros = rule.component_missing == "zero" and components > 1
    filled = [value.fill_null(0.0) for value in known] if zeros else known
    total = weighted(frames, filled, weights(plan, components))
    there = pl.all_horizontal if rule.component_missing == "propagate" else pl.any_horizontal
    scorable = frames.let(there(value.is_not_null() for value in known))  # a row without any reward has none, not 0
    # Often only the last row of a rollout has the reward, which scores the others as well.
    of_rollout = scorable if plan.unit.take == "each" else scorable.any().over(ROLLOUT)
    frames.let(of_rollout, ".scorable")
    substitute = {"as-zero": pl.lit(0.0), "propagate": pl.lit(NAN)}.get(rule.missing, NULL)
    unit = frames.let(_unit(frames, plan, scorable), ".unit")

    def of_unit(value: pl.Expr) -> pl.Expr:
        complete = pl.when(scorable).then(value).otherwise(substitute)
        if plan.unit.take == "each":
            return complete
        if plan.unit.take == "mean":
            complete = complete.mean().over(ROLLOUT)
        return pl.when(unit).then(complete)

    frames.let(of_unit(total), ".reward")
    if rule.combine == "normalize":
        for k, value in enumerate(filled):
            frames.let(of_unit(value), f".component.{k}")


def _unit(frames: Frames, plan: Plan, scorable: pl.Expr) -> pl.Expr:
    """The row that represents its rollout; every row if rows are the unit."""
    if plan.unit.take == "each":
        return pl.lit(value=True)
    row = pl.int_range(pl.len())
    substituted = plan.rewards.missing in {"as-zero", "propagate"}
    candidate = frames.let(pl.when(scorable | substituted).then(row), ".candidate")
    chosen = candidate.max() if plan.unit.take == "last" else candidate.min()
    return (row == chosen.over(ROLLOUT)).fill_null(value=False)


def base(frames: Frames, plan: Plan, r: pl.Expr, constant: pl.Expr | None = None) -> Terms:
    """The quantities of the reward that enters the estimator, and which groups have zero variance.

    The summary shows these facts of groups; with one reward column the estimator reads them as well.
    """
    t = terms(frames, frames.let(r, ".r"), ".", constant)
    sd = _variance(t, plan.divisor.ddof).sqrt()
    sd = frames.let(pl.when(t.constant).then(0.0).otherwise(sd), ".std")
    flat = t.constant
    if plan.groups.std_threshold is not None:
        narrow = sd <= plan.groups.std_threshold
        flat = flat | narrow.fill_null(value=False)
    frames.let(flat & (t.n > 1), ".zero_variance")
    return t


def terms(frames: Frames, r: pl.Expr, prefix: str, constant: pl.Expr | None = None) -> Terms:
    """The base quantities of one reward column; everything else is computed from them."""
    named = frames.base(r, prefix)
    least = named["min"]
    most = named["max"]
    mean_d = named["mean_d"]
    if constant is None:
        equal = (least == most).fill_null(value=False)
        constant = equal & ~least.is_nan()
    d = frames.let(r - least, f"{prefix}d")
    mean = frames.let(least + mean_d, f"{prefix}mean")
    centred = frames.let(d - mean_d, f"{prefix}centred")
    constant = frames.let(constant, f"{prefix}constant")
    return Terms(
        frames=frames, r=r, d=d, n=named["n"], mean=mean, centred=centred, squares=named["squares"], least=least, most=most,
        constant=constant,
    )  # fmt: skip


def _shape(frames: Frames, plan: Plan, reward: pl.Expr) -> pl.Expr:
    """The reward after the `shape` of the plan: its operations, in their order."""
    for op in plan.shape:
        reward = frames.let(_shaped(frames, op, reward))
    return reward


def _shaped(frames: Frames, op: parts.ShapeOp, r: pl.Expr) -> pl.Expr:
    match op:
        case parts.Affine():
            return (r + op.shift) * op.scale
        case parts.Clip():
            return r.clip(op.lo, op.hi)
        case parts.Kl():
            return r - op.coef * pl.col("kl")
        case parts.Truncated():
            return pl.when(pl.col("truncated")).then(r * op.factor).otherwise(r)
        case parts.Binary():
            solved = (r > op.threshold).cast(pl.Float64)
            return pl.when(r.is_nan()).then(r).when(r.is_not_null()).then(solved)
        case parts.Overlong():
            return _overlong(op, r)
        case parts.Length():
            mean = frames.average(r)
            return r - mean * _relative_length(op, r.is_not_null())
        case parts.Rank():
            # The rank by likelihood, from 0 (least likely) to n - 1; ties in row order.
            likelihood = pl.when(r.is_not_null()).then(pl.col("logprob"))
            rank = likelihood.rank("ordinal").over(GROUP).cast(pl.Float64) - 1
            lost = op.penalty * rank / frames.sum(r.is_not_null())
            return r * (1 - lost)


def _overlong(op: parts.Overlong, r: pl.Expr) -> pl.Expr:
    length = pl.col("length")
    excess = length - (op.max - op.buffer)
    penalty = (-excess / op.buffer * op.penalty).clip(upper_bound=0.0)
    if op.beyond == "floor":
        penalty = penalty.clip(lower_bound=-op.penalty)
    if op.beyond == "zero":
        return pl.when(length > op.max).then(0.0).otherwise(r + penalty)
    return r + penalty


def _relative_length(op: parts.Length, counts: pl.Expr) -> pl.Expr:
    def relative(role: str) -> pl.Expr:
        longest = pl.when(counts).then(pl.col(role)).max().over(GROUP)
        return pl.col(role) / longest.clip(lower_bound=1.0)

    output = op.output * relative("length")
    prompt = op.input * relative("input_length")
    turns = op.turns * relative("turns")
    return output + prompt + turns


def _of_batch(t: Terms) -> Terms:
    """The same quantities with size and mean of the batch instead of the group."""
    moments = t.batch(t.r)
    return replace(t, n=moments.weight, mean=moments.mean, centred=moments.above(t.r))


def _variance(t: Terms, ddof: int) -> pl.Expr:
    """The variance of the group; NaN if there are too few rows."""
    return pl.when(t.n > ddof).then(t.squares / (t.n - ddof)).otherwise(NAN)


def _residual(frames: Frames, plan: Plan, shaped: Terms, name: str) -> pl.Expr:
    """The residual of one reward column; `shaped` has the quantities of the shaped reward, `name` is the column before shaping."""
    raw = pl.col(name)
    t = shaped if plan.baseline_level == "group" else _of_batch(shaped)
    residual = plan.estimator.build(t, **_arguments(plan))
    if ESTIMATORS.origin(plan.method):
        residual = _numbers(frames, residual)
    if plan.raw_rank is not None:
        residual = residual + (raw - shaped.r)
    if plan.centred and not residual.meta.eq(shaped.centred):  # centred equal rewards are 0 already
        constant = frames.let(shaped.constant & (shaped.n > 1))
        residual = pl.when(constant).then(0.0 * shaped.r).otherwise(residual)
    if plan.alone.baseline != "formula":
        alone = shaped.n == 1
        singleton = 0.0 * raw
        if plan.alone.baseline == "zero":
            mean = pl.when(alone).then(0.0).otherwise(shaped.mean)
            beside_zero = replace(shaped, centred=shaped.r, mean=mean)
            singleton = plan.estimator.singleton(beside_zero, **_arguments(plan))
        residual = pl.when(frames.let(alone)).then(singleton).otherwise(residual)
    return frames.let(residual, f"{name}.residual")


def _numbers(frames: Frames, value: pl.Expr) -> pl.Expr:
    """The column that the method of a package returns, which must be one of numbers."""
    if not isinstance(value, pl.Expr):
        raise TypeError(f"it returns {value!r:.40}, not an expression of polars")
    value = frames.let(value)
    frames.keep([value])
    column = frames.select([value.meta.output_name()])
    kind = column.to_series().dtype
    if not kind.is_numeric() and kind != pl.Null:
        raise TypeError(f"it returns a column of the type {kind}, not numbers")
    return value


def _scaled(frames: Frames, plan: Plan, t: Terms, residual: pl.Expr, name: str) -> pl.Expr:
    """The residual of a column divided, before the post operations."""
    raw = pl.col(name)
    divisor = frames.let(_divisor(frames, plan, t, residual, raw), f"{name}.divisor")
    divided = _divided(plan, residual, divisor)
    result = _singleton_result(plan, t, raw, divided)
    return frames.let(result, f"{name}.scaled")


def _arguments(plan: Plan) -> Mapping[str, object]:
    """The parameters of the method; a formula may also name constants of the divisor."""
    if plan.method == "expression":
        return {**plan.params, "ddof": plan.divisor.ddof, "epsilon": plan.divisor.epsilon}
    return plan.params


def _divisor(frames: Frames, plan: Plan, t: Terms, residual: pl.Expr, raw: pl.Expr) -> pl.Expr:
    rule = plan.divisor
    if rule.level == "none":
        return pl.lit(1.0)
    if rule.level == "constant":
        return pl.lit(rule.constant)
    n = t.n
    if rule.level == "batch":
        # The rank penalty of Trinity does not change the std of the batch: it is that of the rewards before it.
        reward = t.r if plan.raw_rank is None else raw
        counted = residual if rule.of == "residual" else reward
        if plan.groups.statistics != "all":
            counted = pl.when(~_skipped(plan)).then(counted)
        batch = frames.batch(counted)
        n = batch.weight
        sd = _sd(rule, batch.variance(rule.ddof))
    elif rule.measure == "mad":
        away = t.centred if rule.of == "reward" else residual - frames.average(residual)
        sd = frames.average(away.abs()) + rule.epsilon
    else:
        variance = _group_variance(frames, plan, t, residual)
        sd = _sd(rule, variance)
    alone = SD_ALONE[plan.alone.sd] + rule.epsilon
    return pl.when(n == 1).then(alone).otherwise(sd)


def _sd(rule: parts.Divisor | parts.Whiten, variance: pl.Expr) -> pl.Expr:
    """What a divisor or a whitening divides by."""
    return spread(variance, inside=rule.inside, floor=rule.floor, epsilon=rule.epsilon)


def _group_variance(frames: Frames, plan: Plan, t: Terms, residual: pl.Expr) -> pl.Expr:
    rule = plan.divisor
    if rule.of == "reward":
        return _variance(t, rule.ddof)
    if rule.of == "residual":
        away = residual - frames.average(residual)
        squares = frames.sum(away**2)
        return _variance(replace(t, squares=squares), rule.ddof)
    equal = _others_equal(t)
    variance = _without_itself(t) / (t.n - 1 - rule.ddof)
    return pl.when(equal).then(0.0).otherwise(variance)


def _without_itself(t: Terms) -> pl.Expr:
    """The sum of squared deviations of the other rewards.

    Subtracting an outlier from the sums of the group would leave only rounding of the others. At most one row is so far
    off: it is left out of the sums from the start.
    """
    away = t.let(t.d - t.over(t.d.quantile(0.5, "lower")))
    place = t.let(pl.int_range(pl.len()).over(GROUP))
    far = t.let(away.abs() == t.over(away.abs().max()))
    first_far = pl.when(far).then(place).min()
    lead = t.let(place == t.over(first_far))
    first = t.sum(pl.when(~lead).then(away))
    second = t.sum(pl.when(~lead).then(away**2))
    of_lead = pl.when(lead).then(away).max()
    leading = t.let(t.over(of_lead))
    linear = pl.when(lead).then(first).otherwise(first - away + leading)
    square = pl.when(lead).then(second).otherwise(second - away**2 + leading**2)
    return square - linear**2 / (t.n - 1)


def _others_equal(t: Terms) -> pl.Expr:
    """Whether the other rewards of the group are all equal (or fewer than two)."""
    others = t.n - 1
    lowest = t.r == t.least
    highest = t.r == t.most
    above_others = highest & (t.sum(lowest) == others)
    below_others = lowest & (t.sum(highest) == others)
    return t.constant | above_others | below_others | (others <= 1)


def _divided(plan: Plan, residual: pl.Expr, divisor: pl.Expr) -> pl.Expr:
    rule = plan.divisor
    if rule.level == "none":
        return residual
    quotient = residual / divisor
    if rule.least is not None and rule.level != "constant":
        wide = (divisor > rule.least + rule.epsilon) & divisor.is_not_nan()
        return pl.when(wide).then(quotient).when(residual.is_not_null()).then(0.0)
    if rule.only_positive:
        return pl.when(divisor > rule.epsilon).then(quotient).otherwise(residual)
    if rule.epsilon != 0:
        return quotient
    # A row without a spread to divide by gets 0, as in constant groups.
    return pl.when(divisor < NEAREST).then(0.0 * residual).otherwise(quotient)


def _singleton_result(plan: Plan, t: Terms, raw: pl.Expr, value: pl.Expr) -> pl.Expr:
    results = {"raw": raw, "zero": 0.0 * raw, "nan": NAN + raw, "null": NULL, "drop": NULL}
    if plan.alone.result not in results:
        return value
    return pl.when(t.let(t.n == 1)).then(results[plan.alone.result]).otherwise(value)


# --- selection, post, status -----------------------------------------------------------------------------


def _special(plan: Plan) -> dict[str, tuple[pl.Expr, str]]:
    """The special groups: their status, their rows, and the rule of the plan for them; the first that applies counts."""
    kinds = {
        "small-group": (pl.col(".n") < plan.groups.min_size, plan.groups.small),
        "singleton": (pl.col(".n") == 1, plan.alone.result),
        "zero-variance": (pl.col(".zero_variance"), plan.groups.zero_variance),
    }
    return {status: (rows, rule) for status, (rows, rule) in kinds.items() if rule != "keep"}


def _skipped(plan: Plan) -> pl.Expr:
    """Rows of groups that are not trained on."""
    return pl.any_horizontal(rows for status, (rows, _) in _special(plan).items() if status != "singleton")


def _select(frames: Frames, plan: Plan, value: pl.Expr) -> pl.Expr:
    if plan.groups.small == "zero":
        small, _ = _special(plan)["small-group"]
        value = pl.when(small).then(0.0 * value).otherwise(value)
        if plan.groups.zero_variance == "keep":
            return value
        return pl.when(~pl.col(".zero_variance")).then(value)
    trained = frames.let(~_skipped(plan))
    return pl.when(trained).then(value)


def _post(frames: Frames, op: parts.PostOp, place: int, value: pl.Expr) -> pl.Expr:
    match op:
        case parts.ByLength():
            return value * pl.col("length") / op.max
        case parts.Discount():
            returns = partial(_returns, gamma=op.gamma)
            return frames.scan(returns, ROLLOUT, value)
        case parts.Clip():
            return value.clip(op.lo, op.hi)
        case parts.NanToZero():
            return pl.when(value.is_finite()).then(value).when(pl.col(".unit")).then(0.0)
        case parts.Whiten():
            return _whitened(frames, op, f".post.{place}", value)


def _whitened(frames: Frames, op: parts.Whiten, name: str, value: pl.Expr) -> pl.Expr:
    """The whitened value; `--explain` shows the columns with a name."""
    counted = value
    if op.skips_masked and frames.has(MASKED):
        counted = pl.when(~pl.col(MASKED)).then(value)
    tokens = pl.col("length") if op.level == "token" else None
    moments = frames.batch(counted, tokens)
    frames.let(moments.mean, f"{name}.mean")
    variance = moments.variance(op.ddof)
    sd = frames.let(_sd(op, variance), f"{name}.sd")
    # Centred values have a mean of 0 up to rounding, which must not move values of exactly 0.
    rounding = moments.mean.abs() < ROUNDING * variance.sqrt()
    centred = pl.when(rounding).then(value).otherwise(moments.above(value))
    if not op.divide:
        return centred
    # A batch of equal values has no spread to divide by.
    return pl.when(sd < NEAREST).then(0.0 * centred).otherwise(centred / sd)


def _answer(frames: Frames, plan: Plan, value: pl.Expr) -> None:
    """Copy the value of a rollout to its rows, and add the step part."""
    if plan.unit.take != "each":
        value = frames.let(value.max().over(ROLLOUT))
    if plan.unit.per_step:
        value = frames.let(value / pl.len().over(ROLLOUT))
    if plan.unit.state_weight:
        value = value + plan.unit.state_weight * _step_part(frames, plan)
    if plan.rewards.missing == "zero":
        # A preset may count missing rewards as 0 before it whitens: they keep the value that they get.
        counted_as_zero = pl.col(".unit") & value.is_not_null()
        value = pl.when(pl.col(".scorable") | counted_as_zero).then(value).otherwise(0.0)
    without_reward = value if plan.rewards.missing in {"zero", "as-zero", "propagate"} else NULL
    answer = pl.when(pl.col(".scorable")).then(value).otherwise(without_reward)
    answer = pl.when(answer == 0).then(0.0).otherwise(answer)  # no row gets -0.0; polars drops `+ 0.0`
    frames.let(answer, ".advantage")
    frames.let(_kept(plan), ".kept")


def _step_part(frames: Frames, plan: Plan) -> pl.Expr:
    """Each step compared with the steps from the same state (the step part of GiGPO).

        A = (G - mean G) [/ sd],  G = step_reward + gamma G' inside the rollout, rows in file order

    A state that occurs once gives 0, and so does one whose sd is not above `least`. Source: GiGPO arXiv:2505.10978.
    """
    rule = plan.divisor
    within = GROUP if plan.unit.states == "group" else BATCH

    def over(value: pl.Expr) -> pl.Expr:
        return value.over(within, "state")

    returns = partial(_returns, gamma=plan.unit.gamma)
    gain = frames.scan(returns, ROLLOUT, pl.col("step_reward"))
    above = frames.let(gain - over(gain.min()))
    centred = frames.let(above - over(above.mean()))
    if rule.level == "constant":
        return centred / rule.constant
    if rule.level != "group":
        return centred
    count = over(gain.count())
    squares = over((centred**2).sum())
    variance = frames.let(squares / (count - rule.ddof))
    sd = frames.let(_sd(rule, variance))
    narrow = sd < NEAREST
    if rule.least is not None:
        narrow = (sd <= rule.least + rule.epsilon) | sd.is_nan()
    divided = pl.when(narrow).then(0.0).otherwise(centred / sd)
    return pl.when(count > 1).then(divided).otherwise(centred)


def _returns(segments: Segments, reward: Vector, *, gamma: float) -> Vector:
    """The discounted return of each step: its reward, and gamma times the return of the next one."""
    out = np.empty_like(reward)
    for start, size in zip(segments.starts.tolist(), segments.sizes.tolist(), strict=True):
        rest = 0.0
        for i in range(start + size - 1, start - 1, -1):
            rest = out[i] = reward[i] + gamma * rest
    return out


@cache
def _literal(status: str) -> pl.Expr:
    """A status as a constant."""
    return pl.lit(status, pl.Enum(STATUSES))


def _status(plan: Plan) -> pl.Expr:
    """The first reason why a row with a reward gets no advantage of its own."""
    special = _special(plan).items()
    reasons = [pl.when(rows).then(_literal(status)) for status, (rows, _) in special]
    return pl.coalesce(*reasons, _literal("scored"))


def _kept(plan: Plan) -> pl.Expr:
    """Whether the row is written at all."""
    dropped = [rows for rows, rule in _special(plan).values() if rule == "drop"]
    return ~pl.any_horizontal(pl.lit(value=False), *dropped)
