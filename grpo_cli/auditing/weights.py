"""Solve weights from the rows: of groups, by their solve rate, and of several rewards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

import numpy as np
import polars as pl

from grpo_cli.auditing.candidates import DDOFS, EPSILONS, Candidate
from grpo_cli.auditing.solve import Start
from grpo_cli.auditing.trial import SPARE_EQUATIONS, Trial
from grpo_cli.engine.group_stats import Matrix, group_extremes, group_means
from grpo_cli.engine.moments import Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Divisor, Weight
from grpo_cli.engine.score import score

ALONG: Final = 0.05  # a weighted sum explains the values if the smallest singular value is this share of the next
ROUNDING: Final = 1e-12  # a smaller std is rounding
NEARLY: Final = 0.01  # error of the logarithm of a group weight, as long as the epsilon is not known
DIFFERENT: Final = 2  # rewards that vary, at least


def of_groups(start: Start) -> Iterator[Candidate]:
    """A start with a weight for each group: by its solve rate, or relative to the groups of its batch.

    The logged values of a group are those of the start times a factor: the weight over the divisor.
    """
    plan, trial = start.plan, start.log.part
    has_more = plan.post or plan.shape or plan.uses_batch or plan.weight.by != "none" or plan.divisor.level != "none"
    if start.plain is None or "group" not in start.levels or has_more or trial.tolerance.is_coarse:
        return
    codes = trial.table["group"].to_numpy()
    factors = _factors(start.values, trial, codes)
    if factors is None:
        return
    groups = score(plan, trial.table).frame.group_by("group").agg(
        pl.first("batch"), rate=pl.first(".mean").clip(0.0, 1.0), std=pl.first(".std"),
        mean=pl.col("reward.0").filter(pl.col("reward.0").is_finite()).mean(),
    ).sort("group")  # fmt: skip
    divided: list[tuple[Plan, Vector]] = [(start.plain.plan, np.ones(len(groups)))]
    for ddof, epsilon in product(DDOFS, EPSILONS) if "group" in plan.estimator.scales else ():
        rule = Divisor(level="group", ddof=ddof, epsilon=epsilon)
        named = (start.named_for("group") or start.plain).plan
        _, spread = group_extremes(codes, start.parts(rule)[1], len(groups))  # a row at the mean does not show it
        divided.append((replace(named, divisor=rule), spread + epsilon))
    for one, divisor in divided:
        for weight, constants in _weights(groups, factors * divisor):
            weighed = replace(one, weight=weight)
            yield start.plain.with_plan(weighed, solved=constants > 0, constants=constants)


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
    known = (factors > 0) & (rate > 0) & (rate < 1) & (groups["std"].to_numpy() > 0)
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


def of_rewards(trial: Trial, components: int) -> Iterator[tuple[float, ...]]:
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
