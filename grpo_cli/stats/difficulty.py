"""How hard the prompts of a run are, and what another group size would change.

Everything is computed from one line per group. The rewards of a group are equal by luck, or because the prompt is too
easy or too hard. How often they would be equal at another group size is estimated from the values of each group:

* n' <= n: the chance that n' rows drawn from the group without replacement are equal, sum over its values of
  C(c, n') / C(n, n'). It is an unbiased estimate of what a group of n' rows would do.
* n' > n: a group that varies still varies. If two rewards occur, a constant group stays constant as often as the solve
  rates say that fit the groups best (any distribution of rates, so also prompts that are never solved). This is shown to
  twice the size, with its interval. With other rewards, smaller groups than n' count as they are: a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import few
from grpo_cli.engine.group_stats import AnyCodes
from grpo_cli.engine.moments import Index, Vector
from grpo_cli.read.group_keys import encode
from grpo_cli.stats.facts import BinCounts, Histogram, Number, ValueCounts, extremes, plain, reward_range
from grpo_cli.stats.intervals import OF_RATE, Estimate, estimate

OTHER_SIZES = (2, 4, 8, 16, 32, 64)
BINS = 10  # tenths, where groups have other possible rates than each other
STEPS = 64  # with at most this many possible solve rates, each has its own bar
FINER = 8  # the most steps per solved row, if rewards are graded
DIGITS = 12  # decimals of a solve rate; further ones are rounding errors
USEFUL = (0.2, 0.8)  # the solve rates that filters for difficulty keep (asuzukosi/post-training-experiments, issue 8)
Level = Literal["never", "hard", "medium", "easy", "always"]  # solved; hard and easy are outside USEFUL
BANDS: Final[tuple[Level, ...]] = get_args(Level)
# How the solve rates of larger groups are found. Twelve kinds of policies were simulated, 60 times each, in groups of 2 to
# 16 rows: at twice the size the mean error is at most 2.3 points with 1,000 groups, and at four times the size two standard
# errors and a point hold the truth in 67 to 97 % of the runs. The intervals are simulated in tests/unit/stats/test_reading.py.
RATES = np.sin(np.linspace(0.0, math.pi / 2, 65)) ** 2  # closer together near 0 and 1
FITTING_STEPS = 300  # of the fit
REDRAWS = 40  # of the groups, for the interval
FEWEST_GROUPS = 30  # as the simulation says
FARTHEST = 2  # times the size
BIAS = 0.01  # the point beyond two standard errors


@dataclass(frozen=True)
class Difficulty:
    """How many groups are never or always solved, and the solve rates of the others.

    A group `between` 0 and 1 may still have equal rewards; `alive` counts the groups that vary.
    """

    worst: float  # the reward that is solve rate 0: 0 if all rewards are in 0..1, else the lowest
    best: float  # the reward that is solve rate 1: 1 if all rewards are in 0..1, else the highest
    groups: int  # with at least two rewards; the other numbers of groups are of these
    mean: float  # of the solve rates of these groups, each group counting once
    never: int  # groups with a solve rate of 0: all rewards are the worst
    always: int  # groups with a solve rate of 1: all rewards are the best
    # the solve rates above 0 and below 1, by rate if all groups have the same possible rates, else in tenths
    between: Histogram
    useful: int  # groups with a solve rate from 0.2 to 0.8, both included
    alive: int  # groups whose rewards differ


@dataclass(frozen=True)
class Spread:
    """The spread of the rewards within groups and between them, and the share of the latter in the variance."""

    # population std of the rewards around the means of their groups, over all scored rows; None without any
    within: Number
    between: Number  # population std of the group means, each counting with its scored rows; None without any
    between_share: Number  # the variance between groups over that of all scored rows; None if they do not vary


Found = Literal["sample", "model", "bound"]


@dataclass(frozen=True)
class AtSize:
    """The share of groups that would vary at another size, with a 95 % interval for prompts like these."""

    size: int  # rows of a group
    alive: float  # the share of groups whose rewards would differ, among those with at least two rewards now
    # "sample": draws from the rows of each group; "model": from fitted solve rates; "bound": a lower bound, which takes
    # groups of equal rewards with fewer rows as they are
    found: Found
    low: Number  # the lower end of the 95 % interval of alive; None for a single group
    high: Number  # the upper end of the 95 % interval of alive; None for a single group, and of a bound


def pass_at(n: Sequence[int], solved: Sequence[int], k: int) -> list[float | None]:
    """The chance that k of the n rows include a solved one, 1 - C(n - c, k) / C(n, k); None if n < k."""

    @cache
    def chance(rows: int, right: int) -> float | None:
        if rows < k:
            return None
        all_wrong = math.comb(rows - right, k) / math.comb(rows, k)
        return 1.0 - all_wrong

    return [*map(chance, n, solved)]


def solved_counts(codes: AnyCodes, rewards: Vector, bar: float, groups: int) -> Index:
    """The rows of each group whose reward is at least this."""
    return np.bincount(codes[rewards >= bar], minlength=groups)


def comparable(groups: pl.DataFrame) -> pl.DataFrame:
    """The groups with two rewards to compare."""
    return groups.filter(pl.col("scored") > 1)


def solve_rates(groups: pl.DataFrame) -> pl.Series:
    """The mean of each group, rescaled to 0 (worst reward) ... 1 (best reward); null if these are equal or missing."""
    worst, best = reward_range(groups)
    if worst is None or best is None or worst == best:
        return pl.repeat(None, len(groups), dtype=pl.Float64, eager=True).alias("solve_rate")
    rate = ((pl.col("mean") - worst) / (best - worst)).clip(0.0, 1.0)
    return groups.select(solve_rate=pl.when(pl.col("scored") > 0).then(rate)).to_series()


def bands(rates: Vector) -> Index:
    """The place in BANDS of each solve rate."""
    low, high = USEFUL
    rates = np.round(rates, DIGITS)
    below = [rates == 0, rates < low, rates <= high, rates < 1]
    return np.select(below, [0, 1, 2, 3], 4)


def difficulty(groups: pl.DataFrame) -> Difficulty | None:
    """The solve rates of the groups; None without any."""
    worst, best = reward_range(groups)
    rated = comparable(groups)
    rates = rated["solve_rate"].drop_nulls().round(DIGITS).to_numpy()
    if worst is None or best is None or not len(rates):
        return None
    low, high = USEFUL
    useful = (rates >= low) & (rates <= high)
    return Difficulty(
        worst=worst,
        best=best,
        groups=len(rates),
        mean=float(rates.mean()),
        never=int((rates == 0).sum()),
        always=int((rates == 1).sum()),
        between=_between(rates, rated["scored"].to_numpy()),
        useful=int(useful.sum()),
        alive=int((~rated["constant"]).sum()),
    )


def _between(rates: Vector, sizes: Index) -> Histogram:
    """A histogram of the rates between 0 and 1 without artefacts of the group sizes.

    The rate of a group of n rows is one of n + 1 steps, k/n (more if rewards are graded). If all groups have the same
    steps, each step has a bar. Otherwise step k covers the k-th of n - 1 equal parts of 0..1 and is spread over its bins:
    otherwise 1/8 to 7/8 would count 1, 1, 1, 0, 1 ... times in tenths.
    """
    kinds = pl.DataFrame({"rate": rates, "size": sizes}).group_by("rate", "size").len().sort("rate", "size")
    rate, size, times = (kinds[name].to_numpy() for name in ("rate", "size", "len"))
    steps = _steps(rate, size)
    inside = (rate > 0) & (rate < 1)
    if 0 < steps.min() == steps.max() <= STEPS:
        places = np.round(rate * steps).astype(np.int64)[inside]
        counts = np.bincount(places, times[inside], steps[0])[1:]
        values = np.arange(1, steps[0]) / steps[0]
        return ValueCounts(values.tolist(), counts.astype(np.int64).tolist())
    rate, steps, times = rate[inside], steps[inside], times[inside]
    parts = np.maximum(steps - 1, 1)
    starts = np.where(steps > 0, np.round(rate * steps - 1) / parts, rate)
    widths = np.where(steps > 0, 1 / parts, 1e-12)
    edges = [k / BINS for k in range(BINS + 1)]
    below = []
    for edge in edges:
        shares = np.clip((edge - starts) / widths, 0.0, 1.0)
        below.append(float((times * shares).sum()))
    return BinCounts(edges, _whole(np.diff(below)).tolist())


def _steps(rate: Vector, size: Index) -> Index:
    """In how many equal steps the possible rates of a group of each size divide 0..1; 0 if there are too many to matter."""
    steps = np.zeros(len(rate), np.int64)
    for n in np.unique(size).tolist():
        of_size = size == n
        for fine in range(n, n * FINER + 1, n):
            in_steps = rate[of_size] * fine
            if np.allclose(in_steps, np.round(in_steps), rtol=0, atol=1e-9 * fine):
                steps[of_size] = fine
                break
    return steps


def _whole(counts: Vector) -> Index:
    """Counts rounded to integers with the same sum; the largest remainders are rounded up."""
    whole = np.floor(counts + 1e-9).astype(np.int64)
    missing = round(counts.sum()) - whole.sum()
    by_remainder = np.argsort(whole - counts, kind="stable")
    whole[by_remainder[:missing]] += 1
    return whole


def spread(groups: pl.DataFrame, ddof: int) -> Spread:
    """The spread of the rewards, split into that within groups and that of the group means.

    The variances are sums over scored rows divided by their number, so they add up to that of all rows. All are None
    if no row is scored.
    """
    scored = groups.filter(pl.col("scored") > 0)
    n, mean, std = (scored[name].to_numpy() for name in ("scored", "mean", "std"))
    rows = int(n.sum())
    if not rows:
        return Spread(None, None, None)
    # A group of one row has no spread, even if its sample variance is undefined.
    squares = np.where(n > 1, std**2 * (n - ddof), 0.0)
    within = float(squares.sum()) / rows
    above = mean - mean.min()
    centre = (n * above).sum() / rows
    between = float((n * (above - centre) ** 2).sum()) / rows
    total = within + between
    share = plain(between / total) if total else None
    return Spread(plain(within**0.5), plain(between**0.5), share)


def effective_rows(advantages: pl.Series) -> float | None:
    """Kish's effective sample size, (sum |A|)^2 / sum A^2: the number of rows of equal weight with the same effect.

    None without a finite advantage. Advantages are divided by the largest |A| first, so that no square overflows.
    """
    sizes = np.abs(advantages.filter(advantages.is_finite()).to_numpy())
    if not len(sizes):
        return None
    largest = float(sizes.max())
    if largest == 0.0:
        return largest
    sizes /= largest
    squares = float((sizes * sizes).sum())
    return plain(float(sizes.sum()) ** 2 / squares)


# --- equal by luck -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ties:
    """The comparable groups, and how often their rewards would be equal at other sizes: lines of like groups."""

    n: Vector  # scored rows of a group
    times: Vector  # how many groups are like this
    equal: Mapping[int, Vector]  # for each size: the chance that so many rows of such a group have equal rewards
    # lines of `n`, `c` and `times`, where c rows have the better reward; None unless exactly two values occur
    solved: pl.DataFrame | None


def count_ties(groups: pl.DataFrame, rows: pl.DataFrame, sizes: Sequence[int] = OTHER_SIZES) -> Ties:
    """Count equal rewards; `rows` has `group` and `.reward`."""
    compared = comparable(groups)
    found = few(rows[".reward"])
    if found is not None and (*found[0],) == extremes(compared):
        low, high = found[0]
        return _ties_of_two_values(compared, low, high, sizes)
    constant = compared.filter("constant")["scored"].value_counts().sort("scored")
    varying = compared.filter(~pl.col("constant"))
    of_varying = varying["code"].to_numpy()
    n = pl.concat([constant["scored"], varying["scored"]]).cast(pl.Float64).to_numpy()
    times = np.concatenate([constant["count"].to_numpy(), np.ones(len(varying))])
    repeated = _equal_in_varying(groups, rows, sizes)
    ones = np.ones(len(constant))
    equal = {size: np.concatenate([ones, of_groups[of_varying]]) for size, of_groups in repeated.items()}
    return Ties(n, times, equal, None)


def _ties_of_two_values(groups: pl.DataFrame, low: float, high: float, sizes: Sequence[int]) -> Ties:
    """The ties of groups in which only these two rewards occur: their means say how often."""
    rates = (groups["mean"] - low) / (high - low)
    best = (rates * groups["scored"]).round()
    counts = pl.DataFrame({"n": groups["scored"], "c": best}).cast(pl.Int64)
    solved = counts.group_by("n", "c").agg(times=pl.len().cast(pl.Int64)).sort("n", "c")
    n, c, times = _columns(solved)
    return Ties(n, times, {size: _equal(n, c, size) + _equal(n, n - c, size) for size in sizes}, solved)


def _equal_in_varying(groups: pl.DataFrame, rows: pl.DataFrame, sizes: Sequence[int]) -> dict[int, Vector]:
    """For each size and group, the chance that so many of its rows have equal rewards; 0 for a group without so many."""
    known = rows.filter(pl.col(".reward").is_finite())
    codes = known["group"].to_numpy()
    rewards = known[".reward"]
    scored = groups["scored"].cast(pl.Float64).to_numpy()
    equal = {size: np.zeros(len(groups)) for size in sizes}

    def add(of_groups: Index, times: Index) -> None:
        """Add the chances of a reward that occurs so many times in these groups."""
        for size in sizes:
            often = times >= size
            of_size = of_groups[often]
            chances = _equal(scored[of_size], times[often].astype(np.float64), size)
            equal[size] += np.bincount(of_size, chances, len(groups))

    found = few(rewards)
    if found and found[0]:  # a pass for each value takes half the time of numbering pairs
        for value in found[0]:
            times = np.bincount(codes[(rewards == value).to_numpy()], minlength=len(groups))
            repeated = np.flatnonzero(times > 1)
            add(repeated, times[repeated])
        return equal
    pairs = encode([known["group"], rewards])
    add(codes.take(pairs.first.to_numpy()), np.bincount(pairs.codes.to_numpy()))
    return equal


def _columns(lines: pl.DataFrame) -> tuple[Vector, Vector, Vector]:
    n, c, times = (lines[name].cast(pl.Float64).to_numpy() for name in ("n", "c", "times"))
    return n, c, times


def other_sizes(ties: Ties) -> list[AtSize]:
    """The share of groups that would have unequal rewards at other sizes, how it was found, and its 95 % interval.

    A larger group varies at least as often, so that the ends of an interval do not fall from one size to the next.
    """
    if not len(ties.n):
        return []
    lines = list[AtSize]()
    usual = np.median(np.repeat(ties.n, ties.times.astype(int)))
    fitted = _fitted(ties.solved) if ties.solved is not None else None
    for size in ties.equal:
        found: Found = "sample"
        seen = _seen(ties, size)
        if not (ties.n >= size).all():
            if fitted is not None and size <= FARTHEST * usual:
                found = "model"
                seen = fitted.alive(size)
            elif size <= usual:
                found = "bound"
                seen = Estimate(seen.mean, seen.low, None)
            else:
                break
        low, high = seen.low, seen.high
        if lines and low is not None and lines[-1].low is not None:
            low = max(low, lines[-1].low)
        if lines and high is not None and lines[-1].high is not None:
            high = max(high, lines[-1].high)
        lines.append(AtSize(size, seen.mean, found, low, high))
    return lines


def _seen(ties: Ties, size: int) -> Estimate:
    """The share of groups that vary, if those that are smaller than this and constant stay so; the mean over groups."""
    return estimate(np.repeat(1.0 - ties.equal[size], ties.times.astype(int)), OF_RATE)


def _equal(n: Vector, c: Vector, size: int) -> Vector:
    """The chance that `size` rows of a group all have the value of c of its n rows: C(c, size) / C(n, size)."""
    chance = np.where(c == n, 1.0, 0.0)
    drawn = n >= size
    equal = np.ones(drawn.sum())
    for i in range(size):
        equal = equal * np.maximum(c[drawn] - i, 0.0) / (n[drawn] - i)
    chance[drawn] = equal
    return chance


class _Fitted(NamedTuple):
    """The distribution of solve rates that makes these groups most likely, and those of groups drawn again from them."""

    n: Vector  # scored rows of a group, a line for each pair with c
    c: Vector  # how many of them have the better reward
    times: Any  # a column for the groups, and one for each redraw
    weights: Any  # of RATES, likewise

    def alive(self, size: int) -> Estimate:
        """The share of groups that vary, and its interval.

        Where hardly any groups vary, or nearly all do, redraws of these groups say so as well. The interval is therefore that of a
        share after two imagined groups that vary and two that do not, and at least as wide as if the groups had this size.
        """
        never = self.c == 0
        always = self.c == self.n
        solved = _equal(self.n, self.c, size)
        unsolved = _equal(self.n, self.n - self.c, size)
        chance = np.repeat((solved + unsolved)[:, None], self.times.shape[1], axis=1)
        for constant, rates in ((never, 1 - RATES), (always, RATES)):
            stays = rates**size @ self.weights
            for at in np.flatnonzero(constant & (self.n < size)):
                chance[at] = stays / (rates ** self.n[at] @ self.weights)
        equal = (self.times * chance).sum(axis=0)
        alive = 1 - equal / self.times.sum(axis=0)
        groups = float(self.times[:, 0].sum())
        share = float(alive[0])
        centre = (share * groups + 2) / (groups + 4)
        error = math.sqrt(centre * (1 - centre) / (groups + 4))
        margin = 2 * max(float(alive[1:].std()), error) + BIAS
        return Estimate(share, max(centre - margin, 0.0), min(centre + margin, 1.0))


def _fitted(solved: pl.DataFrame) -> _Fitted | None:
    """Fit a distribution over RATES by expectation and maximisation; None if there are too few groups."""
    n, c, times = _columns(solved)
    small = n < OTHER_SIZES[-1]  # larger groups answer for themselves
    if times[small].sum() < FEWEST_GROUPS:
        return None
    groups = int(times.sum())
    again = np.random.default_rng(0).multinomial(groups, times / groups, REDRAWS)
    counts = np.column_stack([times, again.T])
    right = c[small, None]
    wrong = (n - c)[small, None]
    chances = RATES**right * (1 - RATES) ** wrong
    weights = np.full((len(RATES), counts.shape[1]), 1 / len(RATES))
    for _ in range(FITTING_STEPS):
        likely = np.maximum(chances @ weights, np.finfo(float).tiny)
        weights *= chances.T @ (counts[small] / likely)
        weights /= weights.sum(axis=0)
    return _Fitted(n, c, counts, weights)
