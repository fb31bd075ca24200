"""Weights that depend only on the numbers of successes and failures of a group, such as series of the likelihood."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from grpo_cli.engine.estimators.terms import Terms

Weights = Callable[[int, int], tuple[float, float]]

_COUNTED = 2**53  # the largest number up to which doubles have every integer


def conditional_weights(t: Terms) -> pl.Expr:
    """One over the successes of the group, minus one over its rows: MaxRL divided by the size of the group.

        A = 1/c - 1/n where r = 1,  -1/n where r = 0,  c = successes

    Rewards above 0.5 are successes. Where there is none, every row gets -1/n.
    Source: MaxRL arXiv:2602.02710, vr_cond of its repository.
    """
    return _by_counts(t, _conditional)


def maclaurin(t: Terms, *, order: int) -> pl.Expr:
    """Gradient of the log solve rate as a series in the chance to fail, cut after some terms.

        A = 1/n where r = 1,  -(g_2 + ... + g_T)/f where r = 0
        g_k = C(f, k)/C(n, k), f = failures, T = order

    Rewards above 0.5 are successes. Where there is none, every row gets -(min(T, n) - 1)/n.
    Source: MaxRL arXiv:2602.02710, maclaurin of its repository.
    """
    return _by_counts(t, partial(_maclaurin, order=order))


def maclaurin_others(t: Terms, *, order: int) -> pl.Expr:
    """The series with a baseline: every set of rows is measured against the other sets of its size.

        A = 1/n + sum q_k/n where r = 1,  sum q_k (1/n - 1/f) where r = 0
        q_k = C(f, k)/(C(n, k) - 1), k from 2 to min(T, n - 1)
        f = failures, T = order

    Rewards above 0.5 are successes. Where there is none, every row gets -1/n if T >= n, else 0.
    Source: MaxRL arXiv:2602.02710, maclaurin_baseline of its repository.
    """
    return _by_counts(t, partial(_maclaurin_others, order=order))


def maclaurin_disjoint(t: Terms, *, order: int) -> pl.Expr:
    """The series with a baseline: every set of rows is measured against the sets that share no row with it.

        A = 1/n + sum g_k h_k where r = 1,  sum g_k ((f - k) h_k - 1)/f where r = 0
        g_k = C(f, k)/C(n, k), h_k = 1/(n - k) where 2k <= n, else 0
        k from 2 to T = order, f = failures

    Rewards above 0.5 are successes. Terms of more than n/2 rows have no disjoint sets, and no baseline.
    Source: MaxRL arXiv:2602.02710, cross_fitted_maclaurin of its repository.
    """
    return _by_counts(t, partial(_maclaurin_disjoint, order=order))


def subset_weights(t: Terms, *, order: int) -> pl.Expr:
    """The likelihood's gradient in sets of T rows, averaged over all such sets of the group.

        A = R/c - 1/n where r = 1,  -1/n where r = 0
        R = 1 - C(f, T)/C(n, T), T = min(order, n), c successes, f failures

    Rewards above 0.5 are successes. T = n is vr-cond. Where there is no success, every row gets -1/n.
    Source: MaxRL arXiv:2602.02710, oversample_subset_vr of its repository.
    """
    return _by_counts(t, partial(_subset, order=order))


# --- one group -------------------------------------------------------------------------------------------


def _conditional(n: int, c: int) -> tuple[float, float]:
    success = (n - c) / (c * n) if c else 0.0
    return success, -1 / n


def _maclaurin(n: int, c: int, *, order: int) -> tuple[float, float]:
    f = n - c
    total = sum(g for _, g in _failing(n, f, order))
    return 1 / n, -total / max(f, 1)


def _maclaurin_others(n: int, c: int, *, order: int) -> tuple[float, float]:
    f = n - c
    sets = dict(_sets(n))  # of larger numbers, leaving out one set makes no difference
    terms = list[float]()
    for k, g in _failing(n, f, min(order, n - 1)):
        count = sets.get(min(k, n - k))
        terms.append(g / (1 - 1 / count) if count else g)
    total = sum(terms)
    last = 1 / n if f == n and 1 < n <= order else 0.0
    success = 1 / n + total / n
    failure = -total * (1 / max(f, 1) - 1 / n) - last
    return success, failure


def _maclaurin_disjoint(n: int, c: int, *, order: int) -> tuple[float, float]:
    f = n - c
    success = 1 / n
    failure = 0.0
    for k, g in _failing(n, f, order):
        disjoint = 1 / (n - k) if 2 * k <= n else 0.0
        success += g * disjoint
        others = (f - k) * disjoint
        failure += g * (others - 1) / f
    return success, failure


def _subset(n: int, c: int, *, order: int) -> tuple[float, float]:
    from math import comb

    size = min(order, n)
    missed = comb(n - c, size) / comb(n, size)
    share = (1 - missed) / c if c else 0.0
    return share - 1 / n, -1 / n


def _failing(n: int, f: int, order: int) -> Iterator[tuple[int, float]]:
    """The share of the sets of k rows in which all fail, for k = 2 .. order, while there are such sets."""
    share = f / n
    for k in range(2, min(order, f) + 1):
        share *= (f - k + 1) / (n - k + 1)
        yield k, share


def _sets(n: int) -> Iterator[tuple[int, int]]:
    """The numbers of sets of 1, 2, ... of n rows, up to half of the rows or until a double cannot count them."""
    number = 1
    for k in range(1, n // 2 + 1):
        number = number * (n - k + 1) // k
        yield k, number
        if number > _COUNTED:
            return


# --- all groups ------------------------------------------------------------------------------------------


def _by_counts(t: Terms, weights: Weights) -> pl.Expr:
    """The weight of each row, computed once for every pair of group size and successes."""
    import polars as pl

    success = t.let(t.r == 1)
    # A group with a NaN has no count.
    c = t.let(t.sum(success) + 0.0 * t.mean)
    won, lost = t.of_groups(partial(_looked_up, weights), t.n, c)
    weight = pl.when(success).then(won).otherwise(lost)
    return pl.when(t.r.is_not_null()).then(weight + 0.0 * c)


def _looked_up(weights: Weights, n: pl.Series, c: pl.Series) -> tuple[pl.Series, pl.Series]:
    """The weights of a success and of a failure in each group; NaN without a count."""
    import polars as pl

    pairs = pl.DataFrame({"n": n, "c": c})
    has_count = pl.col("c").is_finite() & (pl.col("n") > 0)
    counted = pairs.unique().filter(has_count)
    weighed = [weights(int(n), int(c)) for n, c in counted.iter_rows()]
    schema = dict.fromkeys(("won", "lost"), pl.Float64)
    of_counts = counted.hstack(pl.DataFrame(weighed, schema, orient="row"))
    joined = pairs.join(of_counts, on=["n", "c"], how="left", maintain_order="left")
    of_groups = joined.fill_null(float("nan"))
    return of_groups["won"], of_groups["lost"]
