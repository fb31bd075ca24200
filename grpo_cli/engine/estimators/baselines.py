"""Baselines: the mean of the group, its median or a quantile, or a column of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from grpo_cli.engine.estimators.terms import Terms

MOVED = 1e-6  # distance beyond which a value is off the median, as in the published code


def centred(t: Terms) -> pl.Expr:
    """Reward minus the mean of its group.

        A = r - mean

    A group of equal rewards gives 0. Divided by the group's std this is GRPO, undivided it is Dr. GRPO.
    Source: GRPO arXiv:2402.03300, Dr. GRPO arXiv:2503.20783.
    """
    return t.centred


def leave_one_out(t: Terms) -> pl.Expr:
    """Reward minus the mean of the other rewards of its group.

        A = r - (sum - r)/(n - 1) = n/(n - 1) (r - mean)

    Undefined for n = 1. With n = 2 it is r1 - r2; for large n it is the centred reward.
    Source: RLOO arXiv:2402.14740.
    """
    return t.centred * t.n / (t.n - 1)


def shifted_mean(t: Terms, *, shift: float) -> pl.Expr:
    """Reward minus a mean that is shifted by a constant.

        A = r - (mean + shift)

    A group of equal rewards gives -shift: with the default every row is pushed up a little.
    shift = 0 is the centred reward. Source: AsymRE, Trinity-RFT asymre_advantage.py.
    """
    return t.centred - shift


def length_weighted(t: Terms) -> pl.Expr:
    """Reward minus the length-weighted mean of its group, the baseline of least gradient variance.

        A = r - sum(L r) / sum(L)

    Equal lengths give the centred reward. A group whose lengths are all 0 has no weights: NaN.
    Source: OPO arXiv:2505.23585.
    """
    length = t.role("length")
    counted = t.r.is_not_null().cast(float) * length
    return t.d - t.sum(length * t.d) / t.sum(counted)


def nonzero_rescaled(t: Terms, *, f_norm: float) -> pl.Expr:
    """Centred reward, enlarged by the share of the batch's rewards that are not 0.

        A = alpha (r - mean) / f_norm,  alpha = N / max(1, nonzero rewards of the batch)

    A batch without zeros gives the centred reward over f_norm. Source: GPG arXiv:2504.02546.
    """
    nonzero = t.batch((t.r != 0).cast(float))
    share = nonzero.weight / (nonzero.mean * nonzero.weight).clip(lower_bound=1.0)
    return t.centred * share / f_norm


def balanced(t: Terms, *, drop: str, seed: int) -> pl.Expr:
    """Centred reward; with drop=balance a group's surplus of failures is left out.

        A = r - mean;  balance: rows below the mean beyond the number of rows at or above it get 0,
        and the mean is that of the rows that stay

    A group without a surplus gives the centred reward. `seed` decides which failures stay (the framework resamples each
    time).
    Source: REC, Trinity-RFT rec_advantage.py.
    """
    if drop == "none":
        return t.centred
    import polars as pl

    below = t.let(t.centred < 0)
    place = pl.int_range(pl.len()).over("group")
    # The choice depends on the group only, not on other rows of the file.
    of_group = pl.struct(place, t.mean.alias("mean"), t.squares.alias("squares"))
    lot = t.let(of_group.hash(seed))
    drawn = t.let(pl.when(below).then(lot).rank("ordinal").over("group"))
    stays = t.let(~below | (drawn <= t.sum(~below)))
    mean = t.sum(pl.when(stays).then(t.d)) / t.sum(stays)
    left_out = pl.when(t.r.is_not_null()).then(0.0)
    return pl.when(stays).then(t.d - mean).otherwise(left_out)


# --- baselines that a single outlier does not move -----------------------------------------------------------


def quantile(t: Terms, *, level: float) -> pl.Expr:
    """Reward minus a quantile of its group.

        A = r - Q,  Q = the smallest reward with a share >= level of the group at or below it

    With 0/1 rewards the baseline is 0 while the solve rate is at most 1 - level, else 1: hard prompts
    learn from successes only, easy ones from failures only. Source: QAE arXiv:2509.22611.
    """
    import polars as pl

    below = t.let(t.over(t.d.rank("max")))
    # A share such as 0.4 has no exact float: 5 * 0.4 must count as 2 rows.
    reached = below >= level * t.n - 1e-9
    smallest = pl.when(reached).then(t.d).min()
    return t.d - t.over(smallest)


def median_mad(t: Terms, *, floor: float) -> pl.Expr:
    """Distance from the median in units of the median distance, enlarged where many rows sit on it.

        x = (r - median)/(MAD + floor);  A = x n / (number of |x| > 1e-6) where |x| > 1e-6

    Median and MAD are lower medians (one of the rewards). A group with MAD 0, as with most 0/1 groups,
    divides by `floor` alone: +-1000 and more; that is the published code.
    Source: MC-GRPO arXiv:2601.22582 and its repository.
    """
    import polars as pl

    median = t.over(t.d.quantile(0.5, "lower"))
    distance = t.let(t.d - median)
    mad = t.let(t.over(distance.abs().quantile(0.5, "lower")))
    x = t.let(distance / (mad + floor))
    moved = t.let(x.abs() > MOVED)
    enlarged = x * t.n / t.sum(moved)
    return pl.when(moved).then(enlarged).otherwise(x)


# --- baselines that are columns of the file ------------------------------------------------------------------


def given(t: Terms) -> pl.Expr:
    """Reward minus the reward of the greedy answer (or any other baseline in the file).

        A = r - baseline

    A row that does as well as the greedy answer gets 0; without a baseline a row has no advantage.
    Source: ReMax arXiv:2310.10505.
    """
    return t.r - t.role("baseline")


def reference_mean(t: Terms) -> pl.Expr:
    """Reward minus the mean of rewards that a reference policy got on the same prompt.

        A = r - mean(references)

    With one reference it is remax; an empty list of references gives no advantage.
    Source: PVPO arXiv:2508.21104.
    """
    return t.r - t.role("references").list.mean()


def reference_value(t: Terms, *, beta: float) -> pl.Expr:
    """Reward minus the optimal value under a KL penalty, estimated from reference rewards.

        A = r - V,  V = beta ln mean exp(references/beta);  beta = 0: their mean

    A large beta gives the mean, a small one the best reference. Source: A*-PO arXiv:2505.20686.
    """
    if beta == 0:
        return reference_mean(t)
    import polars as pl

    references = t.role("references")
    top = t.let(references.list.max() if beta > 0 else references.list.min())
    scaled = references.list.eval(pl.element() / beta)
    excess = scaled - top / beta
    tilted = excess.list.eval(pl.element().exp()).list.mean()
    return t.r - top - beta * tilted.log()
