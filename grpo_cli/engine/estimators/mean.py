"""Baselines computed from the mean of the group."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from grpo_cli.engine.estimators.terms import Terms


def centred(t: Terms) -> pl.Expr:
    """Reward minus the mean of its group.

        A = r - mean

    A constant group gives 0. Divided by the group's std this is GRPO, undivided it is Dr. GRPO.
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

    A constant group gives -shift: with the default every row is pushed up a little.
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
    return t.centred * _nonzero_share(t) / f_norm


def nonzero_singleton(t: Terms, *, f_norm: float) -> pl.Expr:
    """The same for a group of one row, compared with 0."""
    return t.r * _nonzero_share(t) / f_norm


def _nonzero_share(t: Terms) -> pl.Expr:
    """Rows of the batch per row with a reward other than 0."""
    nonzero = t.batch((t.r != 0).cast(float))
    return nonzero.weight / (nonzero.mean * nonzero.weight).clip(lower_bound=1.0)


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
    lot = t.let(pl.struct(place, t.mean.alias("mean"), t.squares.alias("squares")).hash(seed))
    drawn = t.let(pl.when(below).then(lot).rank("ordinal").over("group"))
    stays = t.let(~below | (drawn <= t.sum(~below)))
    kept = t.sum(pl.when(stays).then(t.d)) / t.sum(stays)
    return pl.when(stays).then(t.d - kept).otherwise(pl.when(t.r.is_not_null()).then(0.0))
