"""Solve constants from the rows: an epsilon, a factor, a clip, weights of groups or of rewards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from grpo_cli.auditing.candidates import DDOFS, Candidate, refined
from grpo_cli.auditing.causes import INSIDE
from grpo_cli.auditing.trial import SPARE_EQUATIONS, Fit, Trial, rounded
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.group_stats import Matrix, group_means
from grpo_cli.engine.moments import Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Clip, Divisor, PostOp, Weight
from grpo_cli.engine.score import score

STEP: Final = 500.0  # one step of a constant's last digit must change the values by this many times their error
CLIPPED: Final = 6  # clipped formulas whose epsilons are tried
LARGE: Final = 1e-3  # smaller advantages depend too little on an epsilon
SAME: Final = 0.1  # relative difference of the epsilons that different stds may give
EQUAL: Final = 1e-5  # relative difference of values that were clipped to the same bound
ALONG: Final = 0.05  # a weighted sum explains the values if the smallest singular value is this share of the next
ROUNDING: Final = 1e-12  # a smaller std is rounding
NEARLY: Final = 0.01  # error of the logarithm of a group weight, as long as the epsilon is not known
DIFFERENT: Final = 2  # distinct values, or rows at a bound, at least


def without_epsilon(plan: Plan, trial: Trial) -> list[Plan]:
    """The formula without its divisor, and with epsilon 0; nothing if the rows cannot determine its epsilon."""
    open_factor = plan.uses_batch and trial.rescaled
    if plan.divisor.level not in {"group", "batch"} or plan.post or open_factor or trial.is_coarse:
        return []
    bare = [replace(plan, divisor=replace(plan.divisor, ddof=ddof, epsilon=0.0)) for ddof in DDOFS]
    return [replace(plan, divisor=Divisor(level="none")), *bare]


def with_solved_epsilon(candidate: Candidate, trial: Trial) -> Iterator[Candidate]:
    """The formula with the epsilon that the rows give: A (std + epsilon) is the residual.

    Groups with different stds must give the same epsilon. With the single std of a batch, any factor could be an epsilon: it is rounded
    to the digits that the rows determine.
    """
    plans = without_epsilon(candidate.plan, trial)
    if not plans:
        return
    trial.formulas.compute(plans)
    residual = trial.formulas.advantages(plans[0])
    for bare in plans[1:]:
        with np.errstate(all="ignore"):
            spread = residual / trial.formulas.advantages(bare)
            epsilons = residual / trial.logged - spread
        known = np.isfinite(epsilons) & (np.abs(trial.logged) > LARGE)
        epsilons, spread = epsilons[known], spread[known]
        if not len(epsilons):
            continue
        epsilon = float(np.median(epsilons))
        kinds, kind = np.unique([rounded(value) for value in spread.tolist()], return_inverse=True)
        most = kind == np.bincount(kind).argmax()
        if len(kinds) == 1:
            values = trial.logged[known]
            share = trial.tolerance.of_formula(values, solved=True).of(values).max() / np.abs(values).max()
            off = STEP * share * (float(spread[0]) + epsilon)
            digits = _determined_digits(epsilon, off) if bare.divisor.level == "batch" and epsilon > 0 else 0
        else:
            allowed = SAME * abs(epsilon) + np.median(trial.tolerance.of(trial.logged[known]) * spread)
            digits = 2 if abs(np.median(epsilons[most]) - np.median(epsilons[~most])) <= allowed else 0
        if epsilon > 0 and digits:
            divisor = replace(bare.divisor, epsilon=float(f"{epsilon:.{digits}g}"))
            plan = replace(bare, divisor=divisor)
            yield candidate.with_plan(plan, solved=True, constants=candidate.constants + 1)


def _determined_digits(value: float, least: float) -> int:
    """The digits of a number, two at most, whose last one has a step of `least` or more; 0 if there are none."""
    magnitude = np.floor(np.log10(value))
    return next((digits for digits in (2, 1) if 10.0 ** (magnitude - digits + 1) >= least), 0)


def multiplied(fits: Sequence[Fit], trial: Trial) -> list[Fit]:
    """Formulas that explain every row if they are multiplied by a number of at most three digits, solved from the rows.

    Different values must give the same number, so rows with only one value and its opposite are no evidence.
    """
    exact_fits = list[Fit]()
    tried = set()
    for fit in fits:
        formula = trial.formulas.key(fit.candidate.plan)
        if formula in tried or trial.is_coarse or (trial.rescaled and fit.candidate.plan.uses_batch):
            continue
        tried.add(formula)
        values = trial.formulas.advantages(fit.candidate.plan)
        known = np.isfinite(values) & np.isfinite(trial.logged) & (np.abs(values) > LARGE)
        sizes = np.abs(values[known])
        kinds = len(np.unique(np.round(sizes / sizes.max(initial=LARGE), 5)))
        # Minus the mean of a batch, two rewards have two values: a factor puts them on any line through the mean.
        if kinds <= (DIFFERENT if fit.candidate.plan.baseline_level == "batch" else 1):
            continue
        digits = 2 if fit.candidate.plan.uses_batch else 3  # one of the many stds of a batch would fit three by chance
        factor = float(f"{np.median(trial.logged[known] / values[known]):.{digits}g}")
        if factor in {0.0, 1.0}:
            continue
        constants = fit.candidate.constants + 1
        candidate = Candidate(fit.candidate.plan, factor=factor, solved=True, constants=constants)
        exact = trial.fits([candidate])[0]
        if not exact.mismatched and trial.has_evidence_for(candidate):
            exact_fits.append(exact)
    return exact_fits


def clipped(best: Sequence[Fit], trial: Trial) -> list[Fit]:
    """The best formulas, clipped at the lowest and highest logged values.

    It is a clip only if the formula goes beyond both bounds, and matches several distinct values between them.
    """
    finite = trial.logged[np.isfinite(trial.logged)]
    low, high = (float(f"{end:.6g}") for end in (finite.min(initial=0.0), finite.max(initial=0.0)))
    if not low < 0 < high or any(np.sum(np.abs(finite - end) <= EQUAL * abs(end)) < DIFFERENT for end in (low, high)):
        return []
    is_symmetric = abs(low + high) <= EQUAL * high
    clip_low = -high if is_symmetric else low
    allowed = trial.tolerance.of(trial.logged)
    inside = (trial.logged > low + allowed) & (trial.logged < high - allowed) & (np.abs(trial.logged) > allowed)
    fits = list[Fit]()
    for fit in best:
        candidate, values = fit.candidate, trial.values(fit.candidate)
        shown = inside & (np.abs(values - trial.logged) <= allowed)
        passed = (values < low - allowed).any() and (values > high + allowed).any()
        if passed and len({rounded(value) for value in trial.logged[shown].tolist()}) >= INSIDE:
            others = [op for op in candidate.plan.post if not _is_wider(op, clip_low, high)]
            plan = replace(candidate.plan, post=(*others, Clip(lo=clip_low, hi=high)))
            constants = candidate.constants + (1 if is_symmetric else 2)
            fits += trial.fits([candidate.with_plan(plan, constants=constants)])
    for fit in sorted(fits, key=lambda fit: fit.rank)[:CLIPPED]:
        plan = fit.candidate.plan
        plain = replace(fit.candidate, plan=replace(plan, divisor=replace(plan.divisor, of="reward")))
        fits += trial.fits([*refined(plain), *refined(fit.candidate)])
    return [fit for fit in fits if trial.has_evidence_for(fit.candidate)]


def _is_wider(op: PostOp, low: float, high: float) -> bool:
    """Whether a step is a clip that has no effect if a clip to these bounds follows."""
    return isinstance(op, Clip) and (op.lo is None or op.lo <= low) and (op.hi is None or op.hi >= high)


def weighed(fits: Sequence[Fit], trial: Trial) -> list[Fit]:
    """Formulas that explain every row with a weight for each group: by its solve rate, or relative to the groups of its batch.

    The logged values of a group are those of the formula times a factor; the weight is solved from the factors.
    """
    codes = trial.table["group"].to_numpy()
    exact_fits = list[Fit]()
    tried, families, methods = set(), set(), list(ESTIMATORS)

    def plainness(candidate: Candidate) -> tuple[bool, int]:
        plan = candidate.plan
        return plan.divisor.level != plan.estimator.scale, methods.index(plan.method)

    for candidate in sorted((fit.candidate for fit in fits), key=plainness):
        plan = candidate.plan
        has_more = plan.post or plan.shape or plan.uses_batch or plan.weight.by != "none" or candidate.factor != 1
        formula = trial.formulas.key(plan)
        family = plan.estimator.build, str(plan.params), plan.unit, plan.divisor.level, plan.divisor.of
        if formula in tried or family in families or has_more or candidate.solved or trial.is_coarse:
            continue
        tried.add(formula)
        factors = _factors(trial.formulas.advantages(plan), trial, codes)
        if factors is None:
            continue
        families.add(family)
        groups = score(plan, trial.table).frame.group_by("group").agg(
            pl.first("batch"), rate=pl.first(".mean").clip(0.0, 1.0), std=pl.first(".std"),
            mean=pl.col("reward.0").filter(pl.col("reward.0").is_finite()).mean(),
        ).sort("group")  # fmt: skip
        if not [*_weights(groups, factors)]:
            continue  # whatever its epsilon
        for same in [candidate, *refined(candidate)]:
            factors = _factors(trial.formulas.advantages(same.plan), trial, codes)
            for weight, constants in () if factors is None else _weights(groups, factors):
                solved = same.with_plan(replace(same.plan, weight=weight), solved=constants > 0, constants=constants)
                exact = trial.fits([solved])[0]
                if not exact.mismatched and trial.has_evidence_for(solved):
                    exact_fits.append(exact)
        if exact_fits and not trial.rescaled:
            break
    return exact_fits


def _factors(values: Vector, trial: Trial, codes: Index) -> Vector | None:
    """A factor for each group, NaN if all of its values are 0; None if the factors do not explain every row."""
    both = np.isfinite(values) & np.isfinite(trial.logged)
    if (np.isfinite(values) != np.isfinite(trial.logged)).any():
        return None
    size, codes, values, logged = int(codes.max(initial=0)) + 1, codes[both], values[both], trial.logged[both]
    with np.errstate(invalid="ignore", divide="ignore"):
        factors = np.bincount(codes, values * logged, size) / np.bincount(codes, values**2, size)
    off = np.abs(np.where(values == 0, 0.0, factors[codes] * values) - logged)
    return factors if (off <= trial.tolerance.of(logged)).all() and not (factors <= 0).any() else None


def _weights(groups: pl.DataFrame, factors: Vector) -> Iterator[tuple[Weight, int]]:
    """Group weights that explain these factors, each with the number of solved constants."""
    rate = groups["rate"].to_numpy()
    known = np.isfinite(factors) & (rate > 0) & (rate < 1) & (groups["std"].to_numpy() > 0)
    known &= np.isfinite(groups["mean"].to_numpy())  # of the first of several rewards
    rate, mean, std, batch = (groups[name].to_numpy()[known] for name in ("rate", "mean", "std", "batch"))
    kinds = len(np.unique(np.round(rate, 5)))
    if kinds < 1 + SPARE_EQUATIONS:
        return
    log = np.log(factors[known])
    # A weight relative to the batch has an unknown factor in common for all of its groups.
    of_batch, falls, wider = (_centred(values[:, None], batch)[:, 0] for values in (log, -mean, np.log(std)))
    if _solved([wider], of_batch) is not None:
        yield Weight(by="std"), 0
    if (slope := _solved([falls], of_batch)) is not None and slope[0] > 0:
        yield Weight(by="hard", temperature=float(f"{1 / slope[0]:.3g}")), 1
    if (power := _solved([np.log1p(-rate), np.ones(len(rate))], log)) is not None and round(power[0]) > 0:
        yield Weight(by="pass-at-k", k=1 + round(power[0])), 1
    # log w = s H(p) + s log(peak) p + s log(1 - peak) (1 - p), H the entropy of p.
    entropy = -rate * np.log(rate) - (1 - rate) * np.log1p(-rate)
    shape = _solved([entropy, rate, 1 - rate], log)
    if kinds >= 2 + SPARE_EQUATIONS and shape is not None and shape[0] > 0:
        peak = float(f"{np.exp(-np.logaddexp(0.0, (shape[2] - shape[1]) / shape[0])):.3g}")
        if 0 < peak < 1:
            yield Weight(by="peak", peak=peak, sharpness=float(f"{shape[0]:.3g}")), 2


def _solved(columns: Sequence[Vector], values: Vector) -> Vector | None:
    """The coefficients of a sum of the columns that nearly equals the values; None if there are none."""
    matrix = np.column_stack(columns)
    found = np.linalg.lstsq(matrix, values)[0]
    return np.asarray(found) if np.abs(matrix @ found - values).max() < NEARLY else None


def weights(trial: Trial, components: int) -> Iterator[tuple[float, ...]]:
    """Weights of several rewards that may explain the rows, the likeliest first.

    In each group the logged values are proportional to the weighted sum, whatever divides it, so all groups together show the ratio of the
    weights, even if each reward is divided by its own std. The weights are scaled so that the largest or the sum is 1, or as in a formula
    without a divisor.
    """
    codes = trial.table["group"].to_numpy()
    rewards = trial.table.select(f"reward.{at}" for at in range(components)).fill_null(np.nan).to_numpy()
    known = np.isfinite(rewards).all(axis=1) & np.isfinite(trial.logged)
    codes, rewards, logged = codes[known], rewards[known], _centred(trial.logged[known, None], codes[known])
    centred = _centred(rewards, codes)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.sqrt(_means(centred**2, codes))
        scaled = np.where(spread > ROUNDING, centred / spread, 0.0)
    tried = set[tuple[float, ...]]()
    for columns in (centred, scaled):
        square = _means(logged**2, codes)
        with np.errstate(invalid="ignore", divide="ignore"):
            along = np.where(square > 0, _means(columns * logged, codes) / square, 0.0)
        varied = np.ptp(columns, axis=0) > ROUNDING
        # The part of each column that is not proportional to the logged values: the weighted sum of these parts is 0.
        _, sizes, directions = np.linalg.svd((columns - along * logged)[:, varied], full_matrices=False)
        if varied.sum() < DIFFERENT or sizes[-1] > ALONG * sizes[-2]:
            continue
        found = np.ones(components)
        found[varied] = directions[-1]
        total = columns[:, varied] @ found[varied]
        size = float(total @ logged[:, 0]) / float(total @ total)
        found[varied] *= size
        for divisor in (np.abs(found[varied]).max(), np.abs(found[varied].sum()), 1.0):
            known_digits = tuple(float(f"{weight:.3g}") for weight in np.where(varied, found / divisor, 1.0).tolist())
            if known_digits not in tried and len({*known_digits}) > 1:
                tried.add(known_digits)
                yield known_digits


def _means(values: Matrix, codes: Index) -> Matrix:
    """The mean of each column in the group of each row."""
    groups = int(codes.max(initial=0)) + 1
    return np.column_stack([group_means(codes, column, groups)[codes] for column in values.T])


def _centred(values: Matrix, codes: Index) -> Matrix:
    return values - _means(values, codes)
