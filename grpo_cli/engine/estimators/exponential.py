"""Exponentially tilted rewards: risk seeking, log-mean-exp baselines, entropic utilities."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import polars as pl

    from grpo_cli.engine.estimators.terms import Terms
    from grpo_cli.engine.group_stats import Mask, Segments
    from grpo_cli.engine.moments import Vector

HALVINGS: Final = 60


def log_mean_exp(t: Terms, *, baseline: str, tau: float) -> pl.Expr:
    """Reward minus the mean, or minus the log-mean-exp, of its group.

        A = r - mean   or, with baseline=logavgexp,   A = r - tau (logsumexp(r/tau) - ln n)

    A large tau gives the mean, a small one the maximum. Source: OPMD, Trinity-RFT opmd_advantage.py.
    """
    if baseline == "mean":
        return t.centred
    top = t.let(t.most - t.least)
    return t.d - top - tau * t.average(((t.d - top) / tau).exp()).log()


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
    return t.r if beta == 0 else ((beta * t.r).exp() - 1) / beta


def entropic(t: Terms, *, beta: float) -> pl.Expr:
    """Exponential utility relative to that of the other rows.

        A = e / mean of the others' e - 1,  e = exp(beta (r - max))

    A/beta tends to RLOO for beta -> 0. The only best row of a group gets exp(beta gap) - 1 at most.
    Source: TTT-Discover arXiv:2601.16175 (1e-12 keeps the mean above 0).
    """
    gap = t.let(t.d - t.let(t.most - t.least))
    return _against_others(t, t.let((beta * gap).exp()), gap)


def entropic_adaptive(t: Terms, *, delta: float, beta_max: float) -> pl.Expr:
    """The entropic advantage, with beta chosen in each group so that the tilted weights have a set divergence.

        beta: KL(softmax(beta r) || uniform) = delta, at most beta_max
        A = e / mean of the others' e - 1,  e = exp(beta (r - max))

    Does not depend on the scale of the rewards. With n = 2 the default delta = ln 2 is only reached as
    beta grows without bound, and the winner gets 1e12. Source: TTT-Discover arXiv:2601.16175.
    """
    gap = t.let(t.d - t.let(t.most - t.least))
    beta = t.scan(partial(_tilt, delta=delta, beta_max=beta_max), gap)
    return _against_others(t, t.let((beta * gap).exp()), gap)


def _tilt(segments: Segments, gap: Vector, *, delta: float, beta_max: float) -> Vector:
    """Bisection in all groups together; the upper end is the result, as published."""
    import numpy as np

    def short(beta: Vector) -> Mask:
        exponent = segments.spread(beta) * gap
        weight = np.exp(exponent)
        total = segments.sum(weight)
        return np.asarray(segments.sum(weight * exponent) / total - np.log(total) + np.log(segments.sizes) < delta)

    low, high = np.zeros(len(segments.sizes)), np.ones(len(segments.sizes))
    while np.any(more := short(high) & (high < beta_max)):
        low, high = np.where(more, high, low), np.where(more, 2 * high, high)
    low[:] = 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = short(middle)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return segments.spread(high)


def _against_others(t: Terms, weight: pl.Expr, gap: pl.Expr) -> pl.Expr:
    """Weight over the mean of the others' weights, minus 1.

    The best row has weight 1 and the others may be tiny: sum - weight would lose them, so for one best row the others are
    added up without it.
    """
    import polars as pl

    place = t.let(pl.int_range(pl.len()).over("group"))
    lead = t.let(place == t.over(pl.when(gap == 0).then(place).min()))
    rest = t.sum(pl.when(~lead).then(weight))
    others = pl.when(lead).then(rest).otherwise(rest - weight + 1.0) / (t.n - 1)
    return weight / (others + 1e-12) - 1
