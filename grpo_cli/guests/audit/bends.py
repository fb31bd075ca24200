"""What is not linear: a clip at both ends, and a weight for each group by its solve rate, both solved from the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from grpo_cli.engine.group_stats import finite_means, group_extremes
from grpo_cli.engine.moments import Vector
from grpo_cli.engine.plan_parts import Clip, Divisor, Weight
from grpo_cli.guests.audit.baselines import Known, Ruled, Start
from grpo_cli.guests.audit.candidates import DDOFS, EPSILONS
from grpo_cli.guests.audit.constants import kinds
from grpo_cli.guests.audit.divisors import with_known_constants
from grpo_cli.guests.audit.trial import SPARE_EQUATIONS, Fit, Intervals, Log

NEARLY = 0.01  # error of the logarithm of a group weight, as long as the epsilon is not known
INSIDE = 3  # distinct values between the bounds of a clip, at least
EQUAL = 1e-5  # relative difference of values that were clipped to the same bound
AT_A_BOUND = 2  # rows, at least
DIGITS_OF_BOUND = 6  # of a clip


def not_linear(known: Known) -> list[Fit]:
    """The formulas of the rungs below with a clip, or with a weight for each group."""
    return [*known.may_be_proven(clipped), *known.may_be_proven(of_groups)]


def clipped(start: Start) -> Iterator[Ruled]:
    """The rules of a start, clipped at the lowest and highest logged values.

    It is a clip only if the formula goes beyond both bounds, and matches several distinct values between them.
    """
    logged, log = start.log.logged, start.log.intervals()
    allowed = start.log.allowed
    finite = logged[np.isfinite(logged)]
    ends = finite.min(initial=0.0), finite.max(initial=0.0)
    low, high = ends
    at_low, at_high = (np.abs(logged - end) <= EQUAL * abs(end) for end in (low, high))
    if not low < 0 < high or min(at_low.sum(), at_high.sum()) < AT_A_BOUND:
        return
    beyond_low, beyond_high = np.where(at_low, -np.inf, log.low), np.where(at_high, np.inf, log.high)
    log = Intervals(beyond_low, beyond_high)
    is_symmetric = abs(low + high) <= EQUAL * high
    least, most = (_plainest(end, logged, allowed) for end in ends)
    clip = Clip(lo=-most if is_symmetric else least, hi=most)
    inside = ~at_low & ~at_high & (np.abs(logged) > allowed)
    for one, rule in (*start.itself, *with_known_constants(start, log)):
        values = start.divided(one, rule)
        shown = inside & (np.abs(values - logged) <= allowed)
        passed = (values < low - allowed).any() and (values > high + allowed).any()
        if passed and kinds(logged[shown]) >= INSIDE:
            constants = one.constants + (1 if is_symmetric else 2)
            plan = replace(one.plan, post=(*one.plan.post, clip))
            yield one.with_plan(plan, constants=constants), rule


def _plainest(end: float, logged: Vector, allowed: Vector) -> float:
    """The number of the fewest digits that was logged as this bound: to six if it was not rounded."""
    off = float(allowed[logged == end].min())
    digits = (float(f"{end:.{kept}g}") for kept in range(1, DIGITS_OF_BOUND))
    return next((number for number in digits if abs(number - end) <= off), float(f"{end:.{DIGITS_OF_BOUND}g}"))


def of_groups(start: Start) -> Iterator[Ruled]:
    """A start with a weight for each group: by its solve rate, or relative to the groups of its batch.

    The logged values of a group are those of the start times a factor: the weight over the divisor.
    """
    plan, log = start.plan, start.log
    has_more = plan.post or plan.shape or plan.uses_batch or plan.weight.by != "none" or plan.divisor.level != "none"
    if start.plain is None or "group" not in start.levels or has_more or log.is_coarse:
        return
    factors = _factors(start.values, log)
    if factors is None:
        return
    frames = log.formulas.shaped(plan).frames
    groups = frames.groups
    batch, n, squares = frames.batch_of_group, groups[".n"].to_numpy(), groups[".squares"].to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        std = np.where(squares == 0, 0.0, np.sqrt(squares / (n - 1)))
        _, largest = group_extremes(batch, np.nan_to_num(std), batch.max() + 1)
        std /= largest[batch]
    facts = {
        "batch": batch,
        "rate": groups[".mean"].clip(0.0, 1.0).to_numpy(),
        "std": std,
        "mean": finite_means(log.codes, log.table["reward.0"], len(groups)),
    }
    divided = [(start.plain.plan, np.ones(len(groups)))]
    for ddof, epsilon in product(DDOFS, EPSILONS) if "group" in plan.estimator.scales else ():
        rule = Divisor(level="group", ddof=ddof, epsilon=epsilon)
        named = (start.named_for("group") or start.plain).plan
        _, spread = group_extremes(log.codes, start.parts(rule)[1], len(groups))  # a row at the mean does not show it
        divided.append((replace(named, divisor=rule), spread + epsilon))
    for one, divisor in divided:
        for weight, constants in _weights(facts, factors * divisor, is_part=log.part_of is not None):
            weighed = replace(one, weight=weight)
            yield start.plain.with_plan(weighed, solved=constants > 0, constants=constants), None


def _factors(values: Vector, log: Log) -> Vector | None:
    """A factor for each group, NaN if all of its values are 0; None if the factors do not explain every row."""
    known = np.isfinite(values)
    if (known != np.isfinite(log.logged)).any():
        return None
    size = log.codes.max(initial=0) + 1
    codes, values, logged = log.codes[known], values[known], log.logged[known]
    along, squares = np.bincount(codes, values * logged, size), np.bincount(codes, values**2, size)
    with np.errstate(invalid="ignore", divide="ignore"):
        factors = along / squares
    weighed = np.where(values == 0, 0.0, factors[codes] * values)
    explains = (np.abs(weighed - logged) <= log.allowed[known]).all()
    return factors if explains and not (factors <= 0).any() else None


def _weights(groups: Mapping[str, Vector], factors: Vector, *, is_part: bool) -> Iterator[tuple[Weight, int]]:
    """Group weights that explain these factors, each with the number of solved constants."""
    rate = groups["rate"]
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.column_stack([np.log(factors), np.log(groups["std"]), groups["mean"]])
    known = (rate > 0) & (rate < 1) & np.isfinite(logs).all(axis=1)
    rate, batch = rate[known], groups["batch"][known]
    factor, std, mean = logs[known].T
    rates = len(np.unique(np.round(rate, 5)))
    if rates < 1 + SPARE_EQUATIONS:
        return

    def relative(values: Vector) -> Vector:
        """A weight relative to the batch has an unknown factor in common for all of its groups."""
        sizes = np.maximum(np.bincount(batch), 1)
        means = np.bincount(batch, values) / sizes
        return np.asarray(values - means[batch])

    off = relative(factor - std) if is_part else factor - std  # the largest std may not be in the part
    (slope,) = _solved([-relative(mean)], relative(factor))
    power, _ = _solved([np.log1p(-rate), np.ones(len(rate))], factor)
    if np.abs(off).max() < NEARLY:
        yield Weight(by="std"), 0
    if slope > 0:
        yield Weight(by="hard", temperature=float(f"{1 / slope:.3g}")), 1
    if round(power) > 0:
        yield Weight(by="pass-at-k", k=1 + round(power)), 1
    # log w = s H(p) + s log(peak) p + s log(1 - peak) (1 - p), H the entropy of p.
    entropy = -rate * np.log(rate) - (1 - rate) * np.log1p(-rate)
    sharpness, solved, failed = _solved([entropy, rate, 1 - rate], factor)
    if rates >= 2 + SPARE_EQUATIONS and sharpness > 0:
        exact = np.exp(-np.logaddexp(0.0, (failed - solved) / sharpness))
        peak = float(f"{exact:.3g}")
        if 0 < peak < 1:
            yield Weight(by="peak", peak=peak, sharpness=float(f"{sharpness:.3g}")), 2


def _solved(columns: Sequence[Vector], values: Vector) -> list[float]:
    """The coefficients of a sum of the columns that nearly equals the values; 0 if there are none."""
    matrix = np.column_stack(columns)
    found = np.linalg.lstsq(matrix, values)[0]
    off = np.abs(matrix @ found - values)
    return found.tolist() if off.max() < NEARLY else [0.0] * len(columns)
