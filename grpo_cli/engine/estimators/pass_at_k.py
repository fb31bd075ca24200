"""The value of sets: what the best of k samples is worth."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from grpo_cli.engine.estimators.terms import Terms
    from grpo_cli.engine.group_stats import Segments
    from grpo_cli.engine.moments import Vector


def pass_at_k(t: Terms, *, k: int, epsilon: float) -> pl.Expr:
    """The advantage of a row averaged over all sets of k rows that it can be in, in closed form.

        R = 1 - C(n-c, k)/C(n, k), s = sqrt(R (1 - R)), c = rows with r = 1
        A = (1 - R)/(s + epsilon) where r = 1,  (1 - R - C(n-c-1, k-1)/C(n-1, k-1))/(s + epsilon) where r = 0,  else r

    k = 1 is GRPO with ddof 0 on 0/1 rewards. Every set solved (R = 1): 0. In a group of fewer than k rows: NaN.
    A row that is neither 0 nor 1 keeps r in all of these cases, and counts as a failure for the others.
    Source: pass@k training arXiv:2508.10751.
    """
    import polars as pl

    _, wrong, solved, missed = _of_sets(t, k)
    solved = t.let(solved)
    scale = (solved * (1 - solved)).sqrt() + epsilon
    success = (1 - solved) / scale
    failure = (1 - solved - missed) / scale
    value = pl.when(t.r == 1).then(success).when(t.r == 0).then(failure).otherwise(t.r)
    counted = t.r.is_in([0.0, 1.0])
    too_few = counted & (t.n < k)
    all_solved = counted & (wrong < k)
    return pl.when(too_few).then(float("nan")).when(all_solved).then(0.0).otherwise(value)


def pass_at_k_or_rate(t: Terms, *, k: int, epsilon: float) -> pl.Expr:
    """The same as passk for rewards 0/1, with the solve rate where there are fewer than k rows.

        R = 1 - C(n-c, k)/C(n, k), c/n where n < k;  s = sqrt(R (1 - R)),  c = rows with r = 1
        A = (1 - R)/(s + epsilon) where r = 1,  (1 - R - C(n-c-1, k-1)/C(n-1, k-1))/(s + epsilon) where r = 0

    Where n < k the C are 0, so failures get what successes get. Without a success: -1/epsilon on every row.
    Every set solved: 0. Source: XTuner passk.py.
    """
    import polars as pl

    correct, _, solved, missed = _of_sets(t, k)
    too_few = t.n < k
    solved = t.let(pl.when(too_few).then(correct / t.n).otherwise(solved))
    missed = pl.when(too_few | (t.r == 1)).then(0.0).otherwise(missed)
    scale = (solved * (1 - solved)).sqrt() + epsilon
    value = (1 - solved - missed) / scale
    value = pl.when(correct == 0).then(-1 / epsilon).otherwise(value)
    return pl.when(t.r.is_nan()).then(t.r).when(t.r.is_not_null()).then(value)


def _of_sets(t: Terms, k: int) -> tuple[pl.Expr, pl.Expr, pl.Expr, pl.Expr]:
    """How many rows are right and wrong, the share of the sets with a right one, and of those of a wrong row without one."""
    correct = t.sum(t.r == 1)
    wrong = t.let(t.n - correct)
    solved = 1 - choose(t, wrong, k) / choose(t, t.n, k)
    missed = choose(t, wrong - 1, k - 1) / choose(t, t.n - 1, k - 1)
    return correct, wrong, solved, missed


def best_only(t: Terms) -> pl.Expr:
    """The best row gets its lead over the second best; no other row gets anything.

        A = r_max - r_second on the first best row, 0 elsewhere

    A tie at the top gives 0 everywhere. Source: pass@k policy optimisation arXiv:2503.19595.
    """
    import polars as pl

    place = t.let(t.over((-t.r).rank("ordinal")))
    first = place == 1
    second = t.over(pl.when(~first).then(t.d).max())
    lead = t.d - second
    return pl.when(first).then(lead).when(t.r.is_not_null()).then(0.0 * t.r)


def pkpo(t: Terms, *, k: int) -> pl.Expr:
    """Leave-one-out advantage of the unbiased pass@k estimate, for rewards 0/1.

        w = q C(n-c, k-1)/C(n-1, k-1),  q = r rounded, c = sum q;  A = (n w - sum w)/(n - 1)

    k = 1 is RLOO. Fewer than k rows: NaN. Source: PKPO arXiv:2505.15201.
    """
    import polars as pl

    rounded = t.let(t.r.round(0, mode="half_to_even"))
    wrong = t.n - t.sum(rounded)
    solved_alone = rounded * choose(t, wrong, k - 1)
    weight = t.let(solved_alone / choose(t, t.n - 1, k - 1))
    value = (t.n * weight - t.sum(weight)) / (t.n - 1)
    return pl.when(t.n < k).then(float("nan")).otherwise(value)


def max_at_k(t: Terms, *, k: int) -> pl.Expr:
    """What a row is worth to the best of k: the largest rewards of all sets of k rows that it is in, for any rewards.

        u_i = sum over the sets of k rows with i of their largest r, over C(n, k);  A = u - mean u

    Rows of equal rewards share. k counts as at most n, where every set is the whole group: 0. k = 1 is the centred
    reward over n. Source: PKPO arXiv:2505.15201, rLLM pull request 743.
    """
    worth = t.scan(partial(_worth, k=k), t.d)
    return worth - t.average(worth)


def _worth(segments: Segments, values: Vector, *, k: int) -> Vector:
    """All groups of one size together, each a sorted line of a matrix."""
    import numpy as np

    out = np.empty_like(values)
    for n in np.unique(segments.sizes).tolist():
        starts = segments.starts[segments.sizes == n]
        at = starts[:, None] + np.arange(n)
        ascending = np.argsort(values[at], axis=1, kind="stable")
        order = np.take_along_axis(at, ascending, axis=1)
        line = values[order]
        largest, beside = _shares(n, min(k, n))
        of_larger = (beside * line)[:, ::-1]
        from_here = np.cumsum(of_larger, axis=1)[:, ::-1]
        above = np.append(from_here[:, 1:], np.zeros((len(at), 1)), axis=1)
        worth = (largest * line + above).ravel()
        new = np.ones(line.shape, bool)
        new[:, 1:] = line[:, 1:] != line[:, :-1]
        equal = np.flatnonzero(new.ravel())
        sizes = np.diff(equal, append=worth.size)
        shared = np.add.reduceat(worth, equal) / sizes
        out[order.ravel()] = np.repeat(shared, sizes)
    return out


def _shares(n: int, k: int) -> tuple[Vector, Vector]:
    """C(p, k-1)/C(n, k) and C(p-1, k-2)/C(n, k) for the p-th row from below: factor by factor, without overflow."""
    import numpy as np

    largest = np.zeros(n)
    beside = np.zeros(n)
    largest[n - 1] = k / n
    if k > 1:
        beside[n - 1] = k * (k - 1) / (n * (n - 1))
    for p in range(n - 1, 0, -1):
        fewer = p - k + 1
        largest[p - 1] = largest[p] * fewer / p
        if p > 1:
            beside[p - 1] = beside[p] * fewer / (p - 1)
    return largest, beside


def choose(t: Terms, n: pl.Expr, k: int) -> pl.Expr:
    """The binomial coefficient C(n, k) of a fact of the groups; 0 where n < k. Any k takes as long as the largest group."""
    return t.of_groups(partial(_choose, k), n)[0]


def _choose(k: int, n: pl.Series) -> list[pl.Series]:
    import numpy as np
    import polars as pl

    sizes = n.to_numpy()
    value = np.ones(len(sizes))
    factors = k if (sizes >= k).any() else 0
    with np.errstate(over="ignore", invalid="ignore"):
        for i in range(factors):
            value = value * (sizes - i) / (i + 1)
    coefficient = np.where(sizes < k, 0.0, value)
    return [pl.Series(coefficient)]
