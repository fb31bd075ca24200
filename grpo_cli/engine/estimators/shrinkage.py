"""Group baselines that borrow strength from the rest of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from grpo_cli.engine.estimators.terms import Terms
    from grpo_cli.engine.frames import BatchMoments


def james_stein(t: Terms, *, epsilon: float) -> pl.Expr:
    """Leave-one-out baseline shrunk towards the mean reward of the other groups.

        A = r - (1 - l) loo - l M';  l = v/(v + s + epsilon)
        over the other groups: M' = mean reward, v = mean of var/n, s = variance (ddof 0) of the means

    Groups that differ a lot (s large) give RLOO. A single group in the batch has no others: NaN.
    Source: JSPO arXiv:2511.03710.
    """
    rewards, noise, means, own_noise, own_mean = _facts(t)
    groups = means.weight
    others = groups - 1
    mean_noise = (noise.mean * groups - own_noise) / others
    # Leaving one value out of a sum of squares: M2 - (x - mean)^2 g/(g - 1).
    own_square = (own_mean - means.mean) ** 2 * groups / others
    spread = (means.m2 - own_square) / others
    above = (own_mean - rewards.mean) * rewards.weight / (rewards.weight - t.n)
    return _shrink(t, mean_noise, spread, above, epsilon)


def james_stein_whole(t: Terms, *, epsilon: float) -> pl.Expr:
    """Leave-one-out baseline shrunk towards the mean reward of the batch, the group itself included.

        A = r - (1 - l) loo - l M;  l = v/(v + s + epsilon)
        over all groups: M = mean reward, v = mean of var/n, s = variance (ddof 0) of the means

    Groups that differ a lot (s large) give RLOO; a single group in the batch gives the centred reward, except for epsilon.
    Source: JSPO++ arXiv:2511.03710.
    """
    rewards, noise, means, _, own_mean = _facts(t)
    spread = means.m2 / means.weight
    return _shrink(t, noise.mean, spread, own_mean - rewards.mean, epsilon)


def _facts(t: Terms) -> tuple[BatchMoments, BatchMoments, BatchMoments, pl.Expr, pl.Expr]:
    """Moments of all rewards, of each group's var/n and of the group means; and the group's own two.

    Rewards and means are relative to the rounded mean of the batch, so that offsets cancel before they cost digits.
    """
    import polars as pl

    origin = t.batch(t.r).mean
    variance = t.squares / (t.n - 1)
    own_noise = t.let(pl.when(t.n > 1).then(variance / t.n).otherwise(0.0))
    own_mean = t.let(t.average(t.d) + (t.least - origin))
    rewards = t.batch(t.r - origin)
    return rewards, t.batch_of_groups(own_noise), t.batch_of_groups(own_mean), own_noise, own_mean


def _shrink(t: Terms, noise: pl.Expr, spread: pl.Expr, above: pl.Expr, epsilon: float) -> pl.Expr:
    """The baseline between leave-one-out and the batch; `above` is how far the group's mean lies above that of the batch."""
    import polars as pl

    spread = pl.when(spread < 0).then(0.0).otherwise(spread)
    share = t.let(noise / (noise + spread + epsilon))
    leave_one_out = t.centred * t.n / (t.n - 1)
    return (1 - share) * leave_one_out + share * (t.centred + above)
