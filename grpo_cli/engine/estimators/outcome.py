"""Estimators without a baseline, or with a baseline computed from the solve rate."""

from __future__ import annotations

from collections.abc import Mapping
from math import lgamma
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from grpo_cli.engine.estimators.terms import Terms
    from grpo_cli.engine.moments import Moments, Vector


def raw(t: Terms, **_: object) -> pl.Expr:
    """The reward itself.

        A = r

    No baseline: unbiased, and of large variance. Also PSR (positive samples only, with rewards 0/1).
    Source: REINFORCE; PSR arXiv:2506.01347.
    """
    return t.r


def nothing(t: Terms) -> pl.Expr:
    """Rewards play no part.

        A = 0

    For what is added on each token: --distill. Source: on-policy distillation, arXiv:2306.13649.
    """
    return t.r - t.r


def failures_only(t: Terms) -> pl.Expr:
    """Only rewards below 1 are pushed away.

        A = r - 1

    Rewards 0/1: failures get -1, successes 0. Source: NSR arXiv:2506.01347.
    """
    return t.r - 1


def weighted_reinforce(t: Terms, *, weight: float) -> pl.Expr:
    """Failures at full strength, successes at a fraction of it.

        A = weight r where r = 1,  r - 1 where r = 0,  else r

    weight = 1 gives PSR + NSR, weight = 0 gives NSR. Source: W-REINFORCE arXiv:2506.01347.
    """
    import polars as pl

    success = t.r == 1
    failure = t.r == 0
    return pl.when(success).then(weight * t.r).when(failure).then(t.r - 1).otherwise(t.r)


def maxrl(t: Terms, *, epsilon: float, nonpositive: str) -> pl.Expr:
    """Centred reward relative to the group's mean: rare successes weigh most.

        A = (r - mean)/(mean + epsilon);  0 where mean <= 0, unless nonpositive=keep

    With 0/1 rewards and one success in n it gets n - 1. nonpositive=keep flips signs below 0, as two
    implementations do. Source: MaxRL arXiv:2602.02710.
    """
    import polars as pl

    value = t.centred / (t.mean + epsilon)
    if nonpositive == "keep":
        return value
    return pl.when(t.mean > 0).then(value).otherwise(t.centred * 0.0)


def relative_to_mean(t: Terms, *, epsilon: float, baseline: float) -> pl.Expr:
    """The reward relative to its group's mean, minus a constant.

        A = r/(mean + epsilon) - baseline

    Rewards 0/1: the gradient of the expectation given success, n/c for a success. baseline = 1 is MaxRL except for epsilon.
    Source: MaxRL arXiv:2602.02710, conditional_expectation and vr-cond of its repository.
    """
    # In terms of r - mean a large offset costs no digits.
    above = t.centred + t.mean * (1 - baseline) - baseline * epsilon
    return above / (t.mean + epsilon)


def virtual_best(t: Terms, *, best: float, count: int, epsilon: float) -> pl.Expr:
    """Reward measured against a group with the best possible reward added, so that a group without a success is pushed away from.

        A = (r - M)/(S + epsilon), M and S the mean and std (ddof 1) of the group's rewards and `count` times `best`

    Rewards 0/1: with best = 1 a group that always succeeds gets 0, one that never does gets about -1/sqrt(n + 1).
    Source: NGRPO arXiv:2509.18851.
    """
    below = t.mean - best
    all_of_them = t.n + count
    squares = t.squares + below**2 * t.n * count / all_of_them
    sd = (squares / (all_of_them - 1)).sqrt()
    centred = t.centred + below * count / all_of_them
    return centred / (sd + epsilon)


def virtual_best_singleton(t: Terms, *, epsilon: float, **_: object) -> pl.Expr:
    """The only row of a group, with a std of 1."""
    return t.r / (1 + epsilon)


def one_sided(t: Terms, *, epsilon: float) -> pl.Expr:
    """Centred reward relative to the root of its group's mean: between MaxRL and GRPO on rare successes.

        A = (r - mean)/(sqrt(mean) + epsilon)

    A group with a negative mean has no root: NaN.
    Source: MaxRL arXiv:2602.02710, one_sided_grpo of its repository.
    """
    return t.centred / (t.mean.sqrt() + epsilon)


def clipped_mean(t: Terms, *, floor: float) -> pl.Expr:
    """Centred reward relative to the mean of its group, clipped at a floor, and to the size of a group.

        A = (r - mean)/(n1 max(mean, floor)), n1 = size of the batch's first group

    Groups of other sizes are divided by the size of the first one, too, as in the published code.
    Source: MaxRL arXiv:2602.02710, clipped_pnorm of its repository.
    """
    first_size = t.let(t.n.filter(t.n > 0).first().over("batch"))
    return t.centred / t.mean.clip(lower_bound=floor) / first_size


def asymmetric(t: Terms, *, epsilon: float) -> pl.Expr:
    """Centred reward, with hard prompts weighing most in a batch that is solved, easy ones in one that is not.

        A = w (r - mean), times min(1, M) where it is above 0
        w = M/(2 (root + epsilon)) + (1 - M)/(2 (1 - root + epsilon)), root = sqrt(mean)
        M = mean of the batch's group means, a singleton's counting as 0

    Made for rewards 0..1: a negative mean has no root (NaN), means above 1 turn signs.
    Source: A-GRAE github.com/Yu7-code/A-GRAE.
    """
    import polars as pl

    mean = t.let(pl.when(t.n == 1).then(0.0).otherwise(t.mean))
    batch = t.batch_of_groups(mean).mean
    root = t.let(mean.sqrt())
    of_hard = batch / (2 * (root + epsilon))
    of_easy = (1 - batch) / (2 * (1 - root + epsilon))
    value = t.let((of_hard + of_easy) * t.centred)
    return pl.when(value > 0).then(value * batch.clip(upper_bound=1.0)).otherwise(value)


def beta_normalised(t: Terms, *, min: float, max: float) -> pl.Expr:  # noqa: A002 - the published names
    """Centred 0..1 reward divided by a Beta density fitted to the batch's solve rates.

        A = min(1/BetaPDF(p; alpha, beta), 1e6) (x - p),  x = (r - min)/(max - min),  p = mean x
        over groups: c = pm (1 - pm)/pv - 1, alpha = max(1, 1 + c pm/3), beta = max(1, 1 + c (1 - pm)/3)

    Uninformative solve rates (alpha = beta = 1) give the centred reward. One group, or groups that all have the same
    rate, cannot be fitted: NaN. Source: BNPO arXiv:2506.02864.
    """
    return _inverse_density(t, min, max) * t.centred / (max - min)


def beta_normalised_singleton(t: Terms, *, min: float, max: float) -> pl.Expr:  # noqa: A002 - the published names
    """The only row of a group, compared with a rate of 0."""
    return _inverse_density(t, min, max) * (t.r - min) / (max - min)


def _inverse_density(t: Terms, low: float, high: float) -> pl.Expr:
    """1/BetaPDF at each group's rate, at most 1e6; rates outside 0..1 have no density. A singleton's rate is 0."""
    import polars as pl

    mean = (t.mean - low) / (high - low)
    rate = t.let(pl.when(t.n == 1).then(0.0).otherwise(mean))
    fitted = t.fit(rate, _fit_beta)
    alpha, beta, log_b = (fitted[name] for name in ("alpha", "beta", "log_b"))
    # An exponent of 0 needs no logarithm: 0 ** 0 = 1. Without logarithms a sharp density overflows.
    solved = pl.when(alpha == 1).then(0.0).otherwise((alpha - 1) * rate.log())
    failed = pl.when(beta == 1).then(0.0).otherwise((beta - 1) * (-rate).log1p())
    inverse = (log_b - solved - failed).exp().clip(upper_bound=1e6)
    return pl.when(rate.is_between(0.0, 1.0)).then(inverse).otherwise(float("nan"))


def _fit_beta(moments: Moments) -> Mapping[str, Vector]:
    """The method of moments in each batch, divided by 3 and at least 1 as published."""
    import numpy as np

    mean = moments.mean
    variance = moments.variance(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        concentration = mean * (1 - mean) / variance - 1
        c = np.where(variance > 0, concentration, np.nan)
    alpha = np.maximum(1.0, 1 + c * mean / 3)
    beta = np.maximum(1.0, 1 + c * (1 - mean) / 3)
    log_b = [lgamma(a) + lgamma(b) - lgamma(a + b) for a, b in zip(alpha, beta, strict=True)]
    return {"alpha": alpha, "beta": beta, "log_b": np.array(log_b)}
