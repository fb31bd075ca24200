"""Exponentially tilted rewards: risk seeking, log-mean-exp baselines, entropic utilities."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from grpo_cli.engine.estimators.terms import Terms
    from grpo_cli.engine.group_stats import Mask, Segments
    from grpo_cli.engine.moments import Vector

HALVINGS = 60  # of an interval: 2^-60 of it is less than the last digit of a double


def log_mean_exp(t: Terms, *, baseline: str, tau: float) -> pl.Expr:
    """Reward minus the mean, or minus the log-mean-exp, of its group.

        A = r - mean   or, with baseline=logavgexp,   A = r - tau (logsumexp(r/tau) - ln n)

    A large tau gives the mean, a small one the maximum. Source: OPMD, Trinity-RFT opmd_advantage.py.
    """
    if baseline == "mean":
        return t.centred
    top = t.let(t.most - t.least)
    gap = t.d - top
    mean = t.average((gap / tau).exp())
    return gap - tau * mean.log()


def risk_sensitive(t: Terms, *, beta: float) -> pl.Expr:
    """Relative excess of the exponential utility; beta > 0 seeks the best rows, beta < 0 flees the worst.

        A = (exp(beta r) / mean(exp(beta r)) - 1) / beta

    beta = 0 is the centred reward. Source: RS-GRPO arXiv:2509.24261.
    """
    if beta == 0:
        return t.centred
    # An offset cancels in the ratio: relative to the top (or bottom) of the group nothing overflows.
    top = t.let(t.most - t.least) if beta > 0 else 0.0
    utility = t.let((beta * (t.d - top)).exp())
    return (utility / t.average(utility) - 1) / beta


def utility_singleton(t: Terms, *, beta: float) -> pl.Expr:
    """The exponential utility of the only row of a group, compared with that of a reward of 0."""
    if beta == 0:
        return t.r
    utility = (beta * t.r).exp()
    return (utility - 1) / beta


def entropic(t: Terms, *, beta: float) -> pl.Expr:
    """Exponential utility relative to that of the other rows.

        A = e / mean of the others' e - 1,  e = exp(beta (r - max))

    A/beta tends to RLOO for beta -> 0. The only best row of a group gets exp(beta gap) - 1 at most.
    Source: TTT-Discover arXiv:2601.16175 (1e-12 keeps the mean above 0).
    """
    return _against_others(t, beta, _below_best(t))


def entropic_adaptive(t: Terms, *, delta: float, beta_max: float) -> pl.Expr:
    """The entropic advantage, with beta chosen in each group so that the tilted weights have a set divergence.

        beta: KL(softmax(beta r) || uniform) = delta, at most beta_max
        A = e / mean of the others' e - 1,  e = exp(beta (r - max))

    Does not depend on the scale of the rewards. With n = 2 the default delta = ln 2 is only reached as
    beta grows without bound, and the winner gets 1e12. Source: TTT-Discover arXiv:2601.16175.
    """
    gap = _below_best(t)
    tilt = partial(_tilt, delta=delta, beta_max=beta_max)
    return _against_others(t, t.scan(tilt, gap), gap)


def _below_best(t: Terms) -> pl.Expr:
    """Reward minus the best one of its group."""
    top = t.let(t.most - t.least)
    return t.let(t.d - top)


def _tilt(segments: Segments, gap: Vector, *, delta: float, beta_max: float) -> Vector:
    """Bisection in all groups together; the upper end is the result, as published."""
    import numpy as np

    def short(beta: Vector) -> Mask:
        exponent = segments.spread(beta) * gap
        weight = np.exp(exponent)
        total = segments.sum(weight)
        mean = segments.sum(weight * exponent) / total
        divergence = mean - np.log(total) + np.log(segments.sizes)
        return divergence < delta

    high = np.ones(len(segments.sizes))
    while np.any(more := short(high) & (high < beta_max)):
        high = np.where(more, 2 * high, high)
    low = np.zeros(len(high))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = short(middle)
        low = np.where(below, middle, low)
        high = np.where(below, high, middle)
    return segments.spread(high)


def _against_others(t: Terms, beta: pl.Expr | float, gap: pl.Expr) -> pl.Expr:
    """The weight exp(beta gap) over the mean of the others' weights, minus 1.

    The best row has weight 1 and the others may be tiny: sum - weight would lose them, so for one best row the others are
    added up without it.
    """
    import polars as pl

    weight = t.let((beta * gap).exp())
    place = t.let(pl.int_range(pl.len()).over("group"))
    first_best = pl.when(gap == 0).then(place).min()
    lead = t.let(place == t.over(first_best))
    rest = t.sum(pl.when(~lead).then(weight))
    total = pl.when(lead).then(rest).otherwise(rest - weight + 1.0)
    mean = total / (t.n - 1)
    return weight / (mean + 1e-12) - 1
