"""Float32 noise of constant groups, and whether it explains advantages that were whitened afterwards.

The float32 mean of equal values is often off by a few last bits. Divided by a tiny epsilon, the error becomes as large as an advantage, and
whitening spreads it over the whole batch. How many bits depends on the order in which a trainer adds, so a few are tried.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import islice, product

import numpy as np
import polars as pl

from grpo_cli.engine.group_stats import Mask, group_extremes, group_means
from grpo_cli.engine.moments import Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Divisor, Whiten
from grpo_cli.engine.score import advantages, weights
from grpo_cli.guests.audit.trial import Log, slopes

ULPS = 4  # the largest error of a float32 mean, in last bits
BITS = 24  # bits of a float32 mantissa: a sum that needs no more is exact
SUMS = 20_000  # combinations of the noise of several columns that are tried at most
PLAIN = 3  # rows without noise in a batch, at least, to fit its factor and offset


def noise_of(value: float, size: int, divisor: Divisor) -> Vector:
    """The advantages that float32 may give to a group of equal rewards, including 0."""
    single = np.float32(value)
    if not np.isfinite(single) or single == 0:
        return np.zeros(1)
    mantissa = int(abs(np.frexp(single)[0]) * (1 << BITS))
    bits = BITS - ((mantissa & -mantissa).bit_length() - 1)
    if bits + (size - 1).bit_length() <= BITS:
        return np.zeros(1)
    off = np.arange(1, ULPS + 1) * np.spacing(abs(single))
    # The std is taken around the same mean, or computed with more digits.
    same_mean = off * np.sqrt(size / max(size - divisor.ddof, 1))
    std = np.concatenate([same_mean, 0 * off])
    variance = np.maximum(std**2 + divisor.inside, divisor.floor)
    with np.errstate(divide="ignore"):  # without an epsilon it is infinite
        noise = np.tile(off, 2) / (np.sqrt(variance) + divisor.epsilon)
    return np.concatenate([np.zeros(1), noise, -noise])


def constant_groups(table: pl.DataFrame) -> list[Vector]:
    """For each reward column, the value of every group that is constant in it; NaN for the other groups."""
    codes = table["group"].to_numpy()
    values = []
    for name in (name for name in table.columns if name.startswith("reward.")):
        reward = table[name].fill_null(np.nan).to_numpy()
        low, high = group_extremes(codes, reward, codes.max() + 1)  # a group with a NaN is not constant
        values.append(np.where(low == high, low, np.nan))
    return values


def noisy_groups(plan: Plan, log: Log) -> Mask | None:
    """The groups whose float32 noise explains the logged values; None if it does not explain every row.

    Groups without noise show the line of the whitening. What remains of the other groups must be noise that float32 can produce; with it,
    the formula must explain every row, which a part of a batch cannot show.
    """
    table, logged, allowed = log.table, log.logged, log.allowed
    is_whitened = any(isinstance(op, Whiten) for op in plan.post)
    several = plan.rewards.combine != "normalize" and "reward.1" in table.columns
    if not is_whitened or several or plan.shape or plan.divisor.level != "group" or not np.isfinite(logged).all():
        return None
    codes, batches = log.codes, table["batch"].to_numpy()
    possible = _possible_noise(plan, table, np.bincount(codes))
    may_be = np.array([len(noise) > 1 for noise in possible])[codes]
    if not may_be.any():
        return None
    bare = log.formulas.advantages(replace(plan, post=()))
    if not np.isfinite(bare).all():
        return None
    slope, offset = slopes(bare, np.where(may_be, np.nan, logged), batches)
    is_shown = (slope > 0)[batches].all() and (np.bincount(batches, ~may_be) >= PLAIN).all()
    slope, offset = slope[batches], offset[batches]
    off = np.abs(slope * bare + offset - logged)
    if not is_shown or (off > allowed)[~may_be].any():
        return None
    seen = group_means(codes, (logged - offset) / slope - bare, len(possible))
    nearest = [each[np.abs(each - one).argmin()] for one, each in zip(seen, possible, strict=True)]
    noise = np.array(nearest)
    noisy = np.asarray(noise != 0)
    if log.part_of is not None:
        return noisy
    rest = table.select(name for name in table.columns if not name.startswith("reward."))
    with_noise = rest.with_columns(pl.Series("reward.0", bare + noise[codes]))
    whitening = replace(Plan.of({"estimator.name": "reinforce"}), post=plan.post)
    left = np.abs(advantages(whitening, with_noise) - logged)
    return noisy if noisy.any() and (left <= allowed).all() else None


def _possible_noise(plan: Plan, table: pl.DataFrame, sizes: Index) -> list[Vector]:
    """All sums of the noise that the constant columns of each group may have."""
    columns = constant_groups(table)
    shares = weights(plan, len(columns))

    @cache
    def possible(size: int, *values: float) -> Vector:
        parts = [share * noise_of(value, size, plan.divisor) for share, value in zip(shares, values, strict=True)]
        return np.array([sum(each) for each in islice(product(*parts), SUMS)])

    values = [np.nan_to_num(column).tolist() for column in columns]
    return [possible(*one) for one in zip(sizes.tolist(), *values, strict=True)]
