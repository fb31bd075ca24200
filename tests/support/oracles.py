"""Independent oracles: every method once more, in plain Python, written from the formulas alone.

    ORACLES["grpo"](rows)                                        the method's own defaults
    ORACLES["grpo"](rows, scale="batch", epsilon=1e-4, ddof=0)   another divisor
    ORACLES["gigpo"](rows, omega=0.5, gamma=0.5)                 parameters of the method

Notation: r reward; n, m, s rows, mean and std of the group; N, M, S the same over the batch; L length.
Every reward is finite. Lists run parallel to the rows they were made from.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import wraps
from itertools import chain, combinations
from operator import mul
from statistics import median_low
from typing import TypeAlias

from tests.support.battery import Row, Rows

# --------------------------------------------------------------------------------------------- rows


Values: TypeAlias = "list[float]"


@dataclass(frozen=True)
class Divisor:
    """What the numerators are divided by: 1, or a standard deviation plus epsilon."""

    scale: str = "none"
    epsilon: float = 1e-6
    ddof: int = 1

    def of(self, xs: Values) -> float:
        """Return std(xs) + epsilon, or 1 where nothing is to be divided."""
        return 1.0 if self.scale == "none" else std(xs, self.ddof) + self.epsilon


Oracle: TypeAlias = "Callable[..., Values]"
OfRows: TypeAlias = Callable[[Rows], Sequence[float]]

ORACLES: dict[str, Oracle] = {}
UNDIVIDED = Divisor()


def oracle(name: str, scale: str = "none", epsilon: float = 1e-6, ddof: int = 1) -> Callable[[Oracle], Oracle]:
    """Register an oracle with the defaults of its divisor."""

    def register(method: Oracle) -> Oracle:
        @wraps(method)
        def with_defaults(
            rows: Rows, *, scale: str = scale, epsilon: float = epsilon, ddof: int = ddof, **params: object
        ) -> Values:
            return method(rows, Divisor(scale, epsilon, ddof), **params)

        ORACLES[name] = with_defaults
        return method

    return register


# ------------------------------------------------------------------------------------------ numbers


def divide(x: float, by: float) -> float:
    """Divide as IEEE 754 does: x/0 is an infinity, 0/0 is NaN."""
    if by:
        return x / by
    return math.copysign(math.inf, x) * math.copysign(1.0, by) if x else math.nan


def centre(xs: Values, weights: Values | None = None) -> Values:
    """Return x - (weighted) mean for every x."""
    # Shifting by the first value keeps offsets of 1e9 exact and makes constants exactly 0.
    shifted = [x - xs[0] for x in xs]
    counts = weights or [1.0] * len(xs)
    total = math.fsum(map(mul, counts, shifted))
    middle = divide(total, math.fsum(counts))
    return [x - middle for x in shifted]


def mean(xs: Values) -> float:
    """Return sum(x)/n, the value itself where all are equal."""
    return xs[0] if max(xs) == min(xs) else math.fsum(xs) / len(xs)


def minus_mean(r: float, xs: Values) -> float:
    """Return r - mean(xs)."""
    # The differences are small where the offset is large, so the mean itself is never rounded.
    return divide(math.fsum(r - x for x in xs), len(xs))


def std(xs: Values, ddof: int) -> float:
    """Return sqrt(sum((x - mean)^2)/(n - ddof)), 0 where n <= ddof."""
    # Unlike a sum of squares, hypot neither overflows nor underflows.
    return math.hypot(*centre(xs)) / math.sqrt(len(xs) - ddof) if len(xs) > ddof else 0.0


def variance(xs: Values, ddof: int) -> float:
    """Return sum((x - mean)^2)/(n - ddof), 0 where n <= ddof."""
    return std(xs, ddof) ** 2


def others(xs: Values, i: int) -> Values:
    """Return all values but the i-th."""
    return [x for j, x in enumerate(xs) if j != i]


def minus_others(xs: Values) -> Values:
    """Return x - mean of the others, for n >= 2."""
    return [minus_mean(x, others(xs, i)) for i, x in enumerate(xs)]


def whiten(xs: Values, weights: Values) -> Values:
    """Return (x - mu)/sqrt(var1 + 1e-8), row i counting weights[i] times."""
    if not xs:
        return []
    centred = centre(xs, weights)
    total = math.fsum(weights)
    squares = [d * d for d in centred]
    var1 = math.fsum(map(mul, weights, squares)) / (total - 1) if total > 1 else 0.0
    below = math.sqrt(var1 + 1e-8)
    return [d / below for d in centred]


def log_mean_exp(xs: Values, tau: float) -> float:
    """Return tau ln mean exp(x/tau)."""
    # The factor exp(top/tau) is taken out, so that nothing overflows.
    top = max(xs)
    total = math.fsum(math.exp((x - top) / tau) for x in xs)
    return top + tau * math.log(total / len(xs))


def choose(n: int, k: int) -> int:
    """Return C(n, k), 0 where it is not defined."""
    return math.comb(n, k) if 0 <= k <= n else 0


# ------------------------------------------------------------------------------------------- groups


def rewards(rows: Rows) -> Values:
    """Return the reward column."""
    return [row.reward for row in rows]


def with_rewards(rows: Rows, values: Values) -> list[Row]:
    """Return the rows with other rewards."""
    return [replace(row, reward=value) for row, value in zip(rows, values, strict=True)]


def lengths(rows: Rows) -> Values:
    """Return the length column."""
    return [float(row.length) for row in rows]


def split(rows: Rows, key: Callable[[Row], Hashable]) -> list[list[int]]:
    """Return the places of the rows with equal keys, in order of first appearance."""
    places: defaultdict[Hashable, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        places[key(row)].append(place)
    return list(places.values())


def batches(rows: Rows) -> list[list[int]]:
    """Split into batches."""
    return split(rows, lambda row: row.batch)


def states(rows: Rows) -> list[list[int]]:
    """Split into rows of a group that are in one state."""
    return split(rows, lambda row: (row.batch, row.group, row.state))


def groups(rows: Rows) -> list[list[int]]:
    """Split into groups; a group lies inside one batch."""
    return split(rows, lambda row: (row.batch, row.group))


def of_parts(rows: Rows) -> list[Values]:
    """Return the rewards of each group."""
    return [[rows[place].reward for place in places] for places in groups(rows)]


def rollouts(rows: Rows) -> list[list[int]]:
    """Split into rollouts; a rollout lies inside one group."""
    return split(rows, lambda row: (row.batch, row.group, row.rollout))


def in_parts(rows: Rows, parts: Iterable[Sequence[int]], function: OfRows) -> Values:
    """Apply the function to every part and put its values back in the places of the rows."""
    out = [math.nan] * len(rows)
    for places in parts:
        values = function([rows[p] for p in places])
        for place, value in zip(places, values, strict=True):
            out[place] = value
    return out


def in_groups(rows: Rows, by: Divisor, numerators: OfRows, *, constant: bool = True) -> Values:
    """Divide the numerators of each group; 0 where n = 1 and (with `constant`) where all r are equal."""

    def of_batch(batch: Rows) -> Values:
        def of_group(group: Rows) -> Values:
            r = rewards(group)
            if len(r) == 1 or (constant and max(r) == min(r)):
                return [0.0] * len(r)
            divisor = by.of(rewards(batch) if by.scale == "batch" else r)
            return [divide(x, divisor) for x in numerators(group)]

        return in_parts(batch, groups(batch), of_group)

    return in_parts(rows, batches(rows), of_batch)


def in_each(
    parts: Callable[[Rows], list[list[int]]], name: str, scale: str = "none", epsilon: float = 1e-6
) -> Callable[[Oracle], Oracle]:
    """Register an oracle that is computed separately in each part: `groups` or `batches`."""

    def register(of_part: Oracle) -> Oracle:
        @oracle(name, scale, epsilon)
        def method(rows: Rows, by: Divisor, **params: object) -> Values:
            return in_parts(rows, parts(rows), lambda part: of_part(part, by, **params))

        return of_part

    return register


def in_each_group(
    name: str, scale: str = "none", *, divided: bool = True, constant: bool = True
) -> Callable[[Oracle], Oracle]:
    """Register an oracle by its numerators: a function of the rewards of a group; see `in_groups`."""

    def register(numerators: Oracle) -> Oracle:
        @oracle(name, scale)
        def method(rows: Rows, by: Divisor, **params: object) -> Values:
            def of_group(group: Rows) -> Values:
                return numerators(rewards(group), by, **params)

            return in_groups(rows, by if divided else UNDIVIDED, of_group, constant=constant)

        return numerators

    return register


# --------------------------------------------------------------------------- means and standard deviations


@oracle("grpo", "group")
@oracle("dr-grpo", "none")
@oracle("lite-ppo", "batch")
@oracle("rec", "none", ddof=0)
def minus_group_mean(rows: Rows, by: Divisor) -> Values:
    """Return (r - m)/(s + epsilon), the four differing in scale and ddof."""
    return in_groups(rows, by, lambda group: centre(rewards(group)))


@in_each_group("rloo")
def rloo(r: Values, _by: Divisor) -> Values:
    """Return r - mean of the others."""
    return minus_others(r)


@in_each_group("grpo-loo", "group", divided=False)
def grpo_loo(r: Values, by: Divisor) -> Values:
    """Return (r - b)/(sd + epsilon), b and sd of the others; undivided where the others have no spread."""
    out = minus_others(r)
    for i in range(len(r)):
        rest = others(r, i)
        if len(rest) >= 2 and max(rest) > min(rest):
            out[i] = divide(out[i], by.of(rest))
    return out


@oracle("reinforce")
@oracle("psr")
def reinforce(rows: Rows, _by: Divisor) -> Values:
    """Return r."""
    return rewards(rows)


@oracle("none")
def none(rows: Rows, _by: Divisor) -> Values:
    """Return 0."""
    return [0.0 for _ in rows]


@oracle("nsr")
def nsr(rows: Rows, _by: Divisor) -> Values:
    """Return r - 1."""
    return [r - 1 for r in rewards(rows)]


@oracle("w-reinforce")
def w_reinforce(rows: Rows, _by: Divisor, *, weight: float = 0.1) -> Values:
    """Return weight r where r = 1, r - 1 where r = 0, else r."""
    known = {1.0: weight, 0.0: -1.0}
    return [known.get(r, r) for r in rewards(rows)]


@in_each(batches, "reinforce++")
def reinforce_plus_plus(batch: Rows, _by: Divisor) -> Values:
    """Return (r - mu)/sqrt(var1 + 1e-8) over the tokens of the batch."""
    return whiten(rewards(batch), lengths(batch))


@in_each(batches, "reinforce++-baseline")
def reinforce_plus_plus_baseline(batch: Rows, by: Divisor) -> Values:
    """Return (x - mu)/sqrt(var1 + 1e-8) over the tokens of the batch, x = r - m (0 where n = 1)."""
    return whiten(minus_group_mean(batch, by), lengths(batch))


@in_each(batches, "batch-norm", "batch")
def batch_norm(batch: Rows, by: Divisor) -> Values:
    """Return (r - M)/(S + epsilon)."""
    divisor = by.of(rewards(batch))
    return [divide(x, divisor) for x in centre(rewards(batch))]


@oracle("maxrl", epsilon=0.0)
def maxrl(rows: Rows, by: Divisor, *, nonpositive: str = "zero") -> Values:
    """Return (r - m)/(m + epsilon); 0 where m <= 0, unless those groups are kept."""

    def of_group(group: Rows) -> Values:
        m = mean(rewards(group))
        if m <= 0 and nonpositive == "zero":
            return [0.0] * len(group)
        return [divide(x, m + by.epsilon) for x in centre(rewards(group))]

    # The epsilon that is given is the one beside the mean.
    return in_groups(rows, Divisor(by.scale, 1e-6, by.ddof), of_group)


@in_each_group("conditional", constant=False)
def conditional(r: Values, by: Divisor, *, baseline: float = 0.0) -> Values:
    """Return r/(m + epsilon) - baseline."""
    m = mean(r)
    return [divide(x, m + by.epsilon) - baseline for x in r]


def root(x: float) -> float:
    """Return the square root, NaN of a negative number."""
    return math.sqrt(x) if x >= 0 else math.nan


@in_each_group("one-sided", constant=False)
def one_sided(r: Values, by: Divisor) -> Values:
    """Return (r - m)/(sqrt(m) + epsilon)."""
    below = root(mean(r)) + by.epsilon
    return [x / below for x in centre(r)]


@in_each(batches, "clipped-pnorm")
def clipped_pnorm(batch: Rows, _by: Divisor, *, floor: float = 0.125) -> Values:
    """Return (r - m)/max(m, floor)/n of the batch's first group."""
    first, *_ = groups(batch)

    def of_group(group: Rows) -> Values:
        r = rewards(group)
        below = max(mean(r), floor) * len(first)
        return [x / below for x in centre(r)]

    return in_groups(batch, UNDIVIDED, of_group)


@in_each(batches, "a-grae", "group")
def a_grae(batch: Rows, by: Divisor) -> Values:
    """Return x min(1, M) where x > 0, else x, of x = (1 - M) h + M d.

    d = a/(2 (sqrt(m) + epsilon)), h = a/(2 (1 - sqrt(m) + epsilon)), a = (r - m)/(s + 1e-6), M = mean of the m,
    which are 0 where n = 1.
    """
    parts = of_parts(batch)
    overall = math.fsum(mean(part) for part in parts if len(part) > 1) / len(parts)

    def of_group(group: Rows) -> Values:
        root_m = root(mean(rewards(group)))
        of_d = 2 * (root_m + by.epsilon)
        of_h = 2 * (1 - root_m + by.epsilon)
        factor = (1 - overall) / of_h + overall / of_d
        values = [factor * a for a in minus_group_mean(group, Divisor(by.scale))]
        return [x * min(1.0, overall) if x > 0 else x for x in values]

    return in_groups(batch, UNDIVIDED, of_group, constant=False)


@oracle("gdpo", "group")
def gdpo(rows: Rows, by: Divisor, *, weights: Sequence[float] = ()) -> Values:
    """Return (x - M(x))/sqrt(var1(x) + 1e-8), x = sum w_k (r_k - m_k)/(s_k + epsilon) over non-missing k."""
    sums = [0.0] * len(rows)
    for k in range(max((len(row.rewards) for row in rows), default=0) or 1):
        weight = weights[k] if weights else 1.0
        there = []
        column = []
        for place, row in enumerate(rows):
            cell = dict(enumerate(row.rewards or (row.reward,))).get(k)
            if cell is not None:
                there.append(place)
                column.append(replace(row, reward=cell))
        for place, z in zip(there, minus_group_mean(column, by), strict=True):
            sums[place] += weight * z
    x = with_rewards(rows, sums)
    return in_parts(x, batches(x), lambda batch: whiten(rewards(batch), [1.0] * len(batch)))


@oracle("opo")
def opo(rows: Rows, by: Divisor) -> Values:
    """Return r - sum(L r)/sum(L)."""
    return in_groups(rows, by, lambda group: centre(rewards(group), lengths(group)))


@in_each(batches, "gpg")
def gpg(batch: Rows, _by: Divisor, *, f_norm: float = 1.0) -> Values:
    """Return alpha (r - m)/f_norm, alpha = N / max(1, number of nonzero rewards in the batch)."""
    nonzero = sum(r != 0 for r in rewards(batch))
    alpha = len(batch) / max(1, nonzero)
    return [alpha * x / f_norm for x in minus_group_mean(batch, UNDIVIDED)]


@in_each_group("asymre", constant=False)
def asymre(r: Values, _by: Divisor, *, shift: float = -0.1) -> Values:
    """Return r - (m + shift)."""
    return [x - shift for x in centre(r)]


@in_each_group("quantile", "group")
def quantile(r: Values, _by: Divisor, *, level: float = 0.4) -> Values:
    """Return r - Q, Q = the smallest reward such that a share `level` of the group's rewards is <= Q."""
    ranked = sorted(r)
    q = min(x for x in r if bisect_right(ranked, x) / len(r) >= level)
    return [x - q for x in r]


@in_each_group("mc-grpo")
def mc_grpo(r: Values, _by: Divisor, *, floor: float = 1e-3) -> Values:
    """Return x = (r - med)/(MAD + floor), lower medians; |x| > 1e-6: times n / number of such rows."""
    med = median_low(r)
    mad = median_low([abs(x - med) for x in r])
    scores = [divide(x - med, mad + floor) for x in r]
    far = sum(abs(x) > 1e-6 for x in scores)
    return [x * len(r) / far if abs(x) > 1e-6 else x for x in scores]


# ------------------------------------------------------------------------------------ exponentials


@in_each_group("opmd")
def opmd(r: Values, _by: Divisor, *, baseline: str = "mean", tau: float = 1.0) -> Values:
    """Return r - m, or r - tau (logsumexp(r/tau) - ln n)."""
    if baseline == "mean":
        return centre(r)
    value = log_mean_exp(r, tau)
    return [x - value for x in r]


@in_each_group("entropic")
def entropic(r: Values, _by: Divisor, *, beta: float = 2.0) -> Values:
    """Return e/(mean e of the others + 1e-12) - 1, e = exp(beta (r - max r))."""
    top = max(r)
    e = [math.exp(beta * (x - top)) for x in r]
    means = [math.fsum(others(e, i)) / (len(e) - 1) for i in range(len(e))]
    return [x / (m + 1e-12) - 1 for x, m in zip(e, means, strict=True)]


def divergence(r: Values, beta: float) -> float:
    """Return KL(softmax(beta r) || uniform) = ln n + sum p ln p."""
    logits = [beta * (x - max(r)) for x in r]
    log_total = math.log(math.fsum(map(math.exp, logits)))
    log_ps = [z - log_total for z in logits]
    return math.log(len(r)) + math.fsum(math.exp(z) * z for z in log_ps)


@in_each_group("entropic-adaptive")
def entropic_adaptive(r: Values, by: Divisor) -> Values:
    """As entropic, with beta per group such that KL(softmax(beta r) || uniform) = ln 2."""
    low = 0.0
    high = 1.0
    while divergence(r, high) < math.log(2) and high < 1e6:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if divergence(r, middle) < math.log(2):
            low = middle
        else:
            high = middle
    return entropic(r, by, beta=high)


@in_each_group("risk-sensitive")
def risk_sensitive(r: Values, _by: Divisor, *, beta: float = 2.0) -> Values:
    """Return (exp(beta r)/mean exp(beta r) - 1)/beta; r - m where beta = 0."""
    if beta == 0:
        return centre(r)
    # No exponent is positive, so nothing overflows; expm1 keeps e_i - e_j exact where beta is tiny.
    top = max(r) if beta > 0 else min(r)
    e_minus_1 = [math.expm1(beta * (x - top)) for x in r]
    mean_e = 1 + math.fsum(e_minus_1) / len(r)
    return [x / mean_e / beta for x in centre(e_minus_1)]


# ------------------------------------------------------------------------------- counts of successes


@in_each_group("passk", constant=False)
def passk(r: Values, by: Divisor, *, k: int = 2) -> Values:
    """Return (1 - R)/(sg + epsilon) where r = 1, (1 - R - Q)/(sg + epsilon) where r = 0, else r.

    R = 1 - C(n-c,k)/C(n,k), sg = sqrt(R (1 - R)), Q = C(n-c-1,k-1)/C(n-1,k-1), c = rows with r = 1.
    """
    n = len(r)
    c = sum(x == 1 for x in r)
    if n < k:
        # Only the rows that need C(n, k) are lost; the authors' code lets the others pass through.
        return [math.nan if x in (0, 1) else x for x in r]
    fail = Fraction(choose(n - c, k), choose(n, k))
    sg = math.sqrt((1 - fail) * fail)
    right = float(fail)
    wrong = float(fail - Fraction(choose(n - c - 1, k - 1), choose(n - 1, k - 1)))
    gain = {1.0: divide(right, sg + by.epsilon), 0.0: divide(wrong, sg + by.epsilon)}
    # A numerator of 0 stays 0 whatever the divisor: nobody or everybody passes.
    return [gain.get(x, x) if sg > 0 or x not in gain else 0.0 for x in r]


@in_each(groups, "passk-or-rate")
def passk_or_rate(group: Rows, by: Divisor, *, k: int = 4) -> Values:
    """Return the advantage that sets of k rows give a success (r > 0.5) and a failure; below k rows the solve rate."""
    hits = [r > 0.5 for r in rewards(group)]
    n = len(hits)
    c = sum(hits)
    if c == 0:
        return [-1 / by.epsilon] * n
    fail = Fraction(n - c, n)
    lost = Fraction(0)
    if n >= k:
        fail = Fraction(choose(n - c, k), choose(n, k))
        lost = Fraction(choose(n - c - 1, k - 1), choose(n - 1, k - 1))
    sg = math.sqrt((1 - fail) * fail) + by.epsilon
    return [float(fail if hit else fail - lost) / sg for hit in hits]


@in_each_group("max-at-k")
def max_at_k(r: Values, _by: Divisor, *, k: int = 2) -> Values:
    """Return u - mean u, u_i = the largest r of each set of k rows with i in it, added up over C(n, k)."""
    n = len(r)
    sets = list(combinations(range(n), min(k, n)))
    worth = [Fraction(0)] * n
    for chosen in sets:
        # Which of equal rewards is the largest of a set does not matter here: the largest value is counted.
        largest = Fraction(max(r[i] for i in chosen)) / len(sets)
        for i in chosen:
            worth[i] += largest
    middle = sum(worth) / n
    return [float(u - middle) for u in worth]


@in_each_group("passk-best", "group")
def passk_best(r: Values, _by: Divisor) -> Values:
    """Return r_max - r_second for the first row with the largest r, others 0."""
    best = r.index(max(r))
    out = [0.0] * len(r)
    out[best] = r[best] - max(others(r, best))
    return out


@in_each_group("pkpo", constant=False)
def pkpo(r: Values, _by: Divisor, *, k: int = 2) -> Values:
    """Return (n w - sum w)/(n - 1), w = q C(n-c,k-1)/C(n-1,k-1), q = r rounded half to even, c = sum q."""
    q = [round(x) for x in r]
    n = len(q)
    c = sum(q)
    if n < k:
        return [math.nan] * n
    share = Fraction(choose(n - c, k - 1), choose(n - 1, k - 1))
    return [float((n * x - c) * share / (n - 1)) for x in q]


def in_binary_groups(rows: Rows, of_counts: Callable[[int, int, bool], Fraction]) -> Values:
    """Return for every row what its group's size and failures give a success or a failure; r > 0.5 is a success."""

    def of_group(group: Rows) -> Values:
        right = [r > 0.5 for r in rewards(group)]
        f = right.count(False)
        return [float(of_counts(len(right), f, one)) for one in right]

    return in_groups(rows, UNDIVIDED, of_group, constant=False)


@in_each_group("ngrpo", constant=False)
def ngrpo(r: Values, _by: Divisor) -> Values:
    """Return (r - mean)/(std + 1e-6) of the group's rewards and a 1."""
    with_best = [*r, 1.0]
    below = std(with_best, 1) + 1e-6
    return [minus_mean(x, with_best) / below for x in r]


@oracle("vr-cond")
def vr_cond(rows: Rows, _by: Divisor) -> Values:
    """Return f/(c n) where r > 0.5, else -1/n."""
    return in_binary_groups(rows, lambda n, f, right: Fraction(f, (n - f) * n) if right else Fraction(-1, n))


def over_sets(order: int, baseline: Callable[[int, int, int, int], Fraction]) -> Callable[[int, int, bool], Fraction]:
    """Return success/n - sum over k = 2..order of sum over the sets I of k rows with this row of (F - b)/(k C(n, k)).

    F is whether all of I fail, b = baseline(n, f, k, t) its baseline, t the failures among its rows.
    """

    def of_counts(n: int, f: int, right: bool) -> Fraction:  # noqa: FBT001
        total = Fraction(right, n)
        for k in range(2, min(order, n) + 1):
            for t in range(k + 1):
                wrong = 0 if right else 1
                sets = choose(f - wrong, t - wrong) * choose(n - f - right, k - t - right)
                total -= sets * (Fraction(t == k) - baseline(n, f, k, t)) / (k * choose(n, k))
        return total

    return of_counts


@oracle("maclaurin")
def maclaurin(rows: Rows, _by: Divisor, *, order: int = 16) -> Values:
    """Return the sums over sets without a baseline."""
    return in_binary_groups(rows, over_sets(order, lambda _n, _f, _k, _t: Fraction(0)))


@oracle("maclaurin-loo")
def maclaurin_loo(rows: Rows, _by: Divisor, *, order: int = 16) -> Values:
    """Return the sums over sets, a set's baseline being the mean of the other sets of its size."""

    def baseline(n: int, f: int, k: int, t: int) -> Fraction:
        return Fraction(choose(f, k) - (t == k), choose(n, k) - 1) if k < n else Fraction(0)

    return in_binary_groups(rows, over_sets(order, baseline))


@oracle("maclaurin-cross")
def maclaurin_cross(rows: Rows, _by: Divisor, *, order: int = 16) -> Values:
    """Return the sums over sets, a set's baseline being the mean of the sets of its size among the other rows."""

    def baseline(n: int, f: int, k: int, t: int) -> Fraction:
        return Fraction(choose(f - t, k), choose(n - k, k)) if 2 * k <= n else Fraction(0)

    return in_binary_groups(rows, over_sets(order, baseline))


@oracle("oversample-subset")
def oversample_subset(rows: Rows, _by: Divisor, *, order: int = 16) -> Values:
    """Return sum over k of C(c-1,k-1) C(f,T-k)/(k C(n,T)) - 1/n where r > 0.5, else -1/n, T = min(order, n)."""

    def of_counts(n: int, f: int, right: bool) -> Fraction:  # noqa: FBT001
        size = min(order, n)
        total = Fraction(0)
        for k in range(1, size + 1):
            sets = choose(n - f - 1, k - 1) * choose(f, size - k)
            total += Fraction(sets, k * choose(n, size))
        return total * right - Fraction(1, n)

    return in_binary_groups(rows, of_counts)


# ------------------------------------------------------------------------------------ shaped rewards


def rank_shaped(group: Rows) -> Values:
    """Return r' = r (1 - 0.25 rank/n), rank 0..n-1 ascending by logprob, ties in row order."""
    order = sorted(range(len(group)), key=lambda i: group[i].logprob)
    out = rewards(group)
    for rank, place in enumerate(order):
        out[place] *= 1 - 0.25 * rank / len(group)
    return out


@oracle("rank-penalty", "group")
def rank_penalty(rows: Rows, by: Divisor) -> Values:
    """Return (r - mean r')/(s(r') + epsilon)."""

    def of_group(group: Rows) -> Values:
        shaped = rank_shaped(group)
        below = by.of(shaped)
        return [divide(minus_mean(r, shaped), below) for r in rewards(group)]

    return in_groups(rows, UNDIVIDED, of_group, constant=False)


@oracle("unlikeliness", "group")
def unlikeliness(rows: Rows, by: Divisor) -> Values:
    """Return (r' - mean r')/(s(r') + epsilon)."""
    shaped = in_parts(rows, groups(rows), rank_shaped)
    return minus_group_mean(with_rewards(rows, shaped), by)


@oracle("length-penalty")
def length_penalty(rows: Rows, by: Divisor) -> Values:
    """Return (r' - mean r')/(s(r') + epsilon), r' = r - m (0.25 L/max L + 0.1 in/max in + 0.1 turns/max turns)."""

    def shaped(group: Rows) -> Values:
        out = rewards(group)
        m = mean(out)
        for name, weight in (("length", 0.25), ("input_length", 0.1), ("turns", 0.1)):
            column = [getattr(row, name) for row in group]
            most = max(1, *column)
            out = [x - m * weight * y / most for x, y in zip(out, column, strict=True)]
        return out

    return minus_group_mean(with_rewards(rows, in_parts(rows, groups(rows), shaped)), by)


# ------------------------------------------------------------------------------ other groups of the batch


def stein(rows: Rows, epsilon: float, *, leave_own_out: bool) -> Values:
    """Return r - b, b = (1 - l) mean of the others + l M', l = v/(v + s + epsilon)."""

    def of_batch(batch: Rows) -> Values:
        def of_group(group: Rows) -> Values:
            pool = of_parts([row for row in batch if row.group != group[0].group or not leave_own_out])
            if not pool:
                return [math.nan] * len(group)
            every = [*chain(*pool)]
            big_m = math.fsum(every) / len(every)
            v = math.fsum(variance(part, 1) / len(part) for part in pool) / len(pool)
            s = variance([mean(part) for part in pool], 0)
            shrink = divide(v, v + s + epsilon)
            r = rewards(group)
            return [(1 - shrink) * x + shrink * (y - big_m) for x, y in zip(minus_others(r), r, strict=True)]

        return in_groups(batch, UNDIVIDED, of_group, constant=False)

    return in_parts(rows, batches(rows), of_batch)


@oracle("james-stein")
def james_stein(rows: Rows, by: Divisor) -> Values:
    """Return r - b, b = (1 - l) mean of the others + l M', M' and l from the other groups of the batch."""
    return stein(rows, by.epsilon, leave_own_out=True)


@oracle("james-stein++")
def james_stein_plus_plus(rows: Rows, by: Divisor) -> Values:
    """Return r - b, b = (1 - l) mean of the others + l M', M' and l from all groups of the batch."""
    return stein(rows, by.epsilon, leave_own_out=False)


def inverse_beta_pdf(p: float, alpha: float, beta: float) -> float:
    """Return min(1/BetaPDF(p; alpha, beta), 1e6) for alpha, beta >= 1; NaN where p is outside 0..1."""
    if not 0 <= p <= 1:
        return math.nan
    if (p == 0 and alpha > 1) or (p == 1 and beta > 1):
        return 1e6
    # An exponent of 0 takes no logarithm: 0 ** 0 = 1.
    log_p = (alpha - 1) * math.log(p) if alpha > 1 else 0.0
    log_q = (beta - 1) * math.log1p(-p) if beta > 1 else 0.0
    log_pdf = math.lgamma(alpha + beta) - math.lgamma(alpha) - math.lgamma(beta) + log_p + log_q
    return math.exp(min(-log_pdf, math.log(1e6)))


@in_each(batches, "bnpo")
def bnpo(batch: Rows, _by: Divisor, **bounds: float) -> Values:
    """Return (x - p) min(1/BetaPDF(p; alpha, beta), 1e6), x = (r - min)/(max - min), p = mean x."""
    # By name from a dict, since min and max as parameters would hide the builtins.
    low = bounds.get("min", 0.0)
    high = bounds.get("max", 1.0)
    x = with_rewards(batch, [(r - low) / (high - low) for r in rewards(batch)])
    # From the means of the rewards: those of x, rounded row by row, may differ between groups of one rate.
    ps = [(mean(part) - low) / (high - low) if len(part) > 1 else 0.0 for part in of_parts(batch)]
    pm = mean(ps)
    pv = variance(ps, 1)
    c = pm * (1 - pm) / pv - 1 if pv else math.nan

    def of_group(group: Rows) -> Values:
        if not pv:
            return [math.nan] * len(group)
        alpha = max(1.0, 1 + c * pm / 3)
        beta = max(1.0, 1 + c * (1 - pm) / 3)
        weight = inverse_beta_pdf(mean(rewards(group)), alpha, beta)
        return [weight * d for d in centre(rewards(group))]

    return in_groups(x, UNDIVIDED, of_group, constant=False)


# ------------------------------------------------------------------------------- baselines from elsewhere


@oracle("remax")
def remax(rows: Rows, _by: Divisor) -> Values:
    """Return r - baseline."""
    return [row.reward - row.baseline for row in rows]


@oracle("reference")
def reference(rows: Rows, _by: Divisor) -> Values:
    """Return r - mean(references of the row), NaN where there are none."""
    return [minus_mean(row.reward, [*row.references]) for row in rows]


@oracle("a-star-po")
def a_star_po(rows: Rows, _by: Divisor, *, beta: float = 0.5) -> Values:
    """Return r - beta ln mean exp(references/beta), the plain mean where beta = 0."""

    out = []
    for row in rows:
        references = [*row.references]
        value = log_mean_exp(references, beta) if beta else mean(references)
        out.append(row.reward - value)
    return out


@in_each(batches, "ema")
def ema(batch: Rows, _by: Divisor, *, decay: float = 0.95, start: float = 0.0) -> Values:
    """Return r - b, then b <- decay b + (1 - decay) r; groups by first appearance, then rows in order."""
    out = [math.nan] * len(batch)
    b: defaultdict[str, float] = defaultdict(lambda: start)
    for places in groups(batch):
        for place in places:
            row = batch[place]
            out[place] = row.reward - b[row.role]
            b[row.role] = decay * b[row.role] + (1 - decay) * row.reward
    return out


@in_each(groups, "kalman", epsilon=1e-8)
def kalman(group: Rows, by: Divisor, *, process: float = 1e-5, noise: float = 1e-2, variance: float = 1.0) -> Values:
    """Return (r - x)/(sqrt(P) + epsilon), x and P the posterior of a random walk seen through noise."""
    level = 0.0
    spread = variance
    out = []
    for r in rewards(group):
        # Precisions add up; the level is the mean of what was known and what is seen, weighted by them.
        known = 1 / (spread + process)
        seen = 1 / noise
        level, spread = (known * level + seen * r) / (known + seen), 1 / (known + seen)
        out.append((r - level) / (math.sqrt(spread) + by.epsilon))
    return out


@oracle("spo", "batch", epsilon=1e-8)
def spo(rows: Rows, by: Divisor, *, rho: float = 0.96, prior: float = 0.5) -> Values:
    """Return (x - mean x)/(S(x) + epsilon), x = r - a/(a + b); then a <- rho a + r, b <- rho b + 1 - r."""
    a: defaultdict[str, float] = defaultdict(lambda: prior)
    b: defaultdict[str, float] = defaultdict(lambda: prior)

    def of_batch(batch: Rows) -> Values:
        x = [row.reward - divide(a[row.group], a[row.group] + b[row.group]) for row in batch]
        for row in batch:
            a[row.group] = rho * a[row.group] + row.reward
            b[row.group] = rho * b[row.group] + 1 - row.reward
        divisor = by.of(x)
        return [divide(value, divisor) for value in centre(x)]

    return in_parts(rows, batches(rows), of_batch)


# ------------------------------------------------------------------------------------ several steps


@oracle("step-wise", "group")
def step_wise(rows: Rows, by: Divisor) -> Values:
    """Return (r - m)/(s + epsilon) over the last rows of the rollouts, copied to their other rows."""
    runs = rollouts(rows)
    values = minus_group_mean([rows[run[-1]] for run in runs], by)
    out = [math.nan] * len(rows)
    for run, value in zip(runs, values, strict=True):
        for place in run:
            out[place] = value
    return out


def returns_to_go(rows: Rows, gamma: float) -> Values:
    """Return G = step_reward + gamma G of the next row of the rollout."""

    def of_rollout(run: Rows) -> Values:
        out: Values = []
        for row in reversed(run):
            out.append(row.step_reward + gamma * (out[-1] if out else 0.0))
        return out[::-1]

    return in_parts(rows, rollouts(rows), of_rollout)


@oracle("gigpo")
def gigpo(rows: Rows, by: Divisor, *, omega: float = 1.0, gamma: float = 0.95) -> Values:
    """Return (r - mean r of the rollouts) + omega (G - mean G of the rows in the same state)."""
    # All rows of a rollout have its reward.
    steps = with_rewards(rows, returns_to_go(rows, gamma))
    of_steps = in_parts(steps, states(rows), lambda same: minus_group_mean(same, by))
    return [outcome + omega * step for outcome, step in zip(step_wise(rows, by), of_steps, strict=True)]


@oracle("mt-grpo")
def mt_grpo(rows: Rows, by: Divisor, *, omega: float = 1.0, gamma: float = 1.0) -> Values:
    """Return (r - mean r of the rollouts' last turns) + omega (G - mean G of the rows of this turn)."""
    return gigpo(rows, by, omega=omega, gamma=gamma)
