"""Baselines that a single outlier does not move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import polars as pl

    from grpo_cli.engine.estimators.terms import Terms


MOVED: Final = 1e-6  # distance beyond which a value is off the median, as in the published code


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
    return t.d - t.over(pl.when(reached).then(t.d).min())


def median_mad(t: Terms, *, floor: float) -> pl.Expr:
    """Distance from the median in units of the median distance, enlarged where many rows sit on it.

        x = (r - median)/(MAD + floor);  A = x n / (number of |x| > 1e-6) where |x| > 1e-6

    Median and MAD are lower medians (one of the rewards). A group with MAD 0, as with most 0/1 groups,
    divides by `floor` alone: +-1000 and more; that is the published code.
    Source: MC-GRPO arXiv:2601.22582 and its repository.
    """
    import polars as pl

    distance = t.let(t.d - t.over(t.d.quantile(0.5, "lower")))
    mad = t.let(t.over(distance.abs().quantile(0.5, "lower")))
    x = t.let(distance / (mad + floor))
    moved = t.let(x.abs() > MOVED)
    return pl.when(moved).then(x * t.n / t.sum(moved)).otherwise(x)
