"""Which weights several rewards have: in each group the logged values are proportional to the weighted sum."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from grpo_cli.guests.audit.trial import ROUNDING, Log

ALONG = 0.05  # a weighted sum explains the values if the smallest singular value is this share of the next
TWO = 2  # rewards that vary, at least


def of_rewards(log: Log, components: int) -> Iterator[tuple[float, ...]]:
    """Weights of several rewards that may explain the rows, the likeliest first.

    In each group the logged values are proportional to the weighted sum, whatever divides it, so all groups together show the ratio of the
    weights, even if each reward is divided by its own std. The weights are scaled so that the largest or the sum is 1, or as in a formula
    without a divisor.
    """
    names = [f"reward.{at}" for at in range(components)]
    each, logged = pl.col(names), pl.col("logged")
    rows = log.table.select("group", *names, logged=pl.Series(log.logged))
    rows = rows.filter(pl.all_horizontal(pl.all().is_finite()))

    def mean(of: pl.Expr) -> pl.Expr:
        return of.mean().over("group")

    centred = rows.with_columns(each - mean(each), logged - mean(logged))
    spread = each.std(ddof=0).over("group")
    divided = centred.with_columns(pl.when(spread > ROUNDING).then(each / spread).otherwise(0.0))
    # The part of each column that is not proportional to the logged values: the weighted sum of these parts is 0.
    square = mean(logged**2)
    along = pl.when(square > 0).then(mean(each * logged) / square).otherwise(0.0)
    tried = set[tuple[float, ...]]()
    for columns in (centred, divided):
        rest, rewards = columns.select(each - along * logged).to_numpy(), columns.select(names).to_numpy()
        varied = np.ptp(rewards, axis=0) > ROUNDING
        _, sizes, directions = np.linalg.svd(rest[:, varied], full_matrices=False)
        if varied.sum() < TWO or sizes[-1] > ALONG * sizes[-2]:
            continue
        found = np.ones(components)
        found[varied] = directions[-1]
        total = rewards[:, varied] @ found[varied]
        found[varied] *= float(total @ columns["logged"].to_numpy()) / float(total @ total)
        largest, whole = np.abs(found[varied]).max(), np.abs(found[varied].sum())
        for divisor in (largest, whole, 1.0):
            weights = np.where(varied, found / divisor, 1.0)
            known_digits = tuple(float(f"{weight:.3g}") for weight in weights.tolist())
            if known_digits not in tried and len({*known_digits}) > 1:
                tried.add(known_digits)
                yield known_digits
