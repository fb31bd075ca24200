"""Float32 noise of constant groups, and whether it explains advantages that were whitened afterwards.

The float32 mean of equal values is often off by a few last bits. Divided by a tiny epsilon, the error becomes as large as an advantage, and
whitening spreads it over the whole batch. How many bits depends on the order in which a trainer adds, so a few are tried.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, product
from typing import Final

import numpy as np
import polars as pl

from grpo_cli.engine.group_stats import Mask, group_extremes, group_means
from grpo_cli.engine.moments import Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Divisor, Whiten
from grpo_cli.engine.score import advantages, weights

ULPS: Final = 4  # the largest error of a float32 mean, in last bits
BITS: Final = 24  # bits of a float32 mantissa: a sum that needs no more is exact
SUMS: Final = 20_000  # combinations of the noise of several columns that are tried at most
PLAIN: Final = 3  # rows without noise in a batch, at least, to fit its factor and offset


def noise_of(value: float, size: int, divisor: Divisor) -> Vector:
    """The advantages that float32 may give to a group of equal rewards, including 0."""
    single = np.float32(value)
    if not np.isfinite(single) or single == 0:
        return np.zeros(1)
    mantissa = int(abs(np.frexp(single)[0]) * (1 << BITS))
    bits = BITS - ((mantissa & -mantissa).bit_length() - 1)
    if bits + (size - 1).bit_length() <= BITS:
        return np.zeros(1)
    off = np.arange(1, ULPS + 1) * float(np.spacing(abs(single)))
    # The std is taken around the same mean, or computed with more digits.
    stds = off * np.sqrt(size / max(size - divisor.ddof, 1)), 0 * off
    with np.errstate(divide="ignore"):  # without an epsilon it is infinite
        noise = [off / (np.sqrt(np.maximum(std**2 + divisor.inside, divisor.floor)) + divisor.epsilon) for std in stds]
    return np.concatenate([np.zeros(1), *noise, *(-values for values in noise)])


def constant_groups(table: pl.DataFrame) -> list[Vector]:
    """For each reward column, the value of every group that is constant in it; NaN for the other groups."""
    codes = table["group"].to_numpy()
    values = []
    for name in (name for name in table.columns if name.startswith("reward.")):
        reward = table[name].fill_null(float("nan")).to_numpy()
        low, high = group_extremes(codes, reward, int(codes.max()) + 1)  # a group with a NaN is not constant
        values.append(np.where(low == high, low, np.nan))
    return values


def noisy_groups(
    plan: Plan,
    table: pl.DataFrame,
    logged: Vector,
    tolerance: Vector,
    *,
    sampled: bool = False,
) -> Mask | None:
    """The groups whose float32 noise explains the logged values; None if it does not explain every row.

    Groups without noise show the factor and the offset of the whitening. What remains of the other groups must be noise that float32 can
    produce; with it, the formula must explain every row. `sampled`: the batches have further rows, so the whitening itself
    cannot be computed.
    """
    is_whitened = any(isinstance(op, Whiten) for op in plan.post)
    several = plan.rewards.combine != "normalize" and "reward.1" in table.columns
    if not is_whitened or several or plan.shape or plan.divisor.level != "group" or not np.isfinite(logged).all():
        return None
    codes, batches = (table[name].to_numpy().astype(np.int64) for name in ("group", "batch"))
    possible = _possible_noise(plan, table, np.bincount(codes))
    may_be = np.array([len(noise) > 1 for noise in possible])
    bare = advantages(replace(plan, post=()), table)
    plain = ~may_be[codes]
    if not may_be.any() or not np.isfinite(bare).all():
        return None
    noise = np.zeros(len(bare))
    for batch in np.unique(batches):
        here = batches == batch
        fit = here & plain
        if fit.sum() < PLAIN or np.ptp(bare[fit]) == 0:
            return None
        slope, offset = np.polyfit(bare[fit], logged[fit], 1)
        if slope <= 0 or (np.abs(slope * bare[fit] + offset - logged[fit]) > tolerance[fit]).any():
            return None
        noise[here] = (logged[here] - offset) / slope - bare[here]
    noise_of_group = group_means(codes, noise, len(possible))
    noise_of_group = np.array(
        [each[np.abs(each - seen).argmin()] for seen, each in zip(noise_of_group, possible, strict=True)]
    )
    noisy = np.asarray(noise_of_group != 0)
    if sampled:
        return noisy
    with_noise = table.select(name for name in table.columns if not name.startswith("reward."))
    with_noise = with_noise.with_columns(pl.Series("reward.0", bare + noise_of_group[codes]))
    whitened = advantages(replace(Plan.of({"estimator.name": "reinforce"}), post=plan.post), with_noise)
    same = np.abs(whitened - logged) <= tolerance
    return noisy if noisy.any() and same.all() else None


def _possible_noise(plan: Plan, table: pl.DataFrame, sizes: Index) -> list[Vector]:
    """All sums of the noise that the constant columns of each group may have."""
    columns = constant_groups(table)
    shares = weights(plan, len(columns))
    known: dict[tuple[float | None, ...], Vector] = {}
    possible = []
    for values, size in zip(np.stack(columns, axis=1).tolist(), sizes.tolist(), strict=True):
        key = (*(None if np.isnan(value) else value for value in values), size)
        if key not in known:
            parts = [share * noise_of(value, size, plan.divisor) for share, value in zip(shares, values, strict=True)]
            known[key] = np.array([sum(each) for each in islice(product(*parts), SUMS)])
        possible.append(known[key])
    return possible
