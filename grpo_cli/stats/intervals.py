"""Means over prompts with 95 % intervals, p values of a change, and the sentence that says whether it is clear.

The interval is Student's, after imagined prompts are added: two that are never and two that are always solved for a rate, one
that changed by +1 and one by -1 for a change. Without them a run that solves none of 5 prompts would be known to solve 0.
Simulated with twelve kinds of policies, 1 to 16 rollouts and 5 to 500 prompts, 4,000 times each, the interval holds the truth
in 93 to 100 % of the runs, where Student's alone does in 10 to 93 %.

Prompts of a cluster, such as a template, may change together: then a cluster counts as one, with the sum of its prompts.
Simulated with 400 prompts in 8, 20 and 80 clusters of equal and very unequal size, 4,000 times each, whose changes are normal,
uniform or not shared at all, the interval holds the truth in 94 to 99 % of the runs. If prompts are taken to be independent and
are not, it does so in 25 to 87 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Self

import numpy as np

from grpo_cli.engine.moments import Index, Vector

Z = 1.959963984540054  # the normal quantile of an interval of 95 %
# Student's t quantile by degrees of freedom, where the series in `student` is too coarse.
T = {1: 12.7062, 2: 4.30265, 3: 3.18245, 4: 2.77645}
OF_RATE = (0.0, 0.0, 1.0, 1.0)
OF_CHANGE = (1.0, -1.0)
DETECTED = 0.8416212335729143  # standard errors that let 8 of 10 runs find a difference
DEALS = 4_000  # the smallest p value is 1 / 4001
FEWEST_DEALS = 400  # however many rollouts: the smallest p value is 1 / 401
SORTED = 4_000_000  # rollouts in all deals of graded rewards: half a second
AT_ONCE = 100_000  # prompts dealt at once
MANY = 200  # prompts from which a sum is normal
FEWEST_CLUSTERS = 8  # from here on the simulation holds; of fewer, the variance between them is hardly known
SURE = 0.05  # the p value below which a difference is said
HALVINGS = 50  # of an interval that holds a quantile: its digits are then those of a float
EQUAL = 1e-9  # sums that differ by less differ by rounding


@dataclass(frozen=True)
class Estimate:
    """A mean over prompts with its 95 % interval; null if there are too few prompts for one."""

    mean: float  # over the prompts; each counts once, unless `estimate` gets sizes
    # the lower end of the 95 % interval for prompts like these; None if these are too few to say anything
    low: float | None
    # the upper end of the 95 % interval for prompts like these; None if these are too few to say anything
    high: float | None


def student(freedom: int) -> float:
    """The quantile of Student's t for an interval of 95 %."""
    series = ((Z**3 + Z) / 4, (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96, (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384)
    near = Z + sum(term / freedom**power for power, term in enumerate(series, 1))
    return float(T.get(freedom, near))


def estimate(
    values: Vector, imagined: tuple[float, ...], sizes: Vector | None = None, clusters: Index | None = None
) -> Estimate:
    """The mean of these values, one for each prompt; prompts of a cluster count together.

    If prompts count differently, the values are their parts of the sum, and `sizes` how much each counts: 1 on average.
    """
    error = standard_error(values, imagined, sizes, clusters)
    mean = float(values.mean())
    if error is None:
        return Estimate(mean, None, None)
    centre, size, freedom = error
    half = student(freedom) * size
    least, most = min(imagined), max(imagined)
    if centre - half <= least and centre + half >= most:  # a change of two prompts: it may be any
        return Estimate(mean, None, None)
    return Estimate(mean, max(centre - half, least), min(centre + half, most))


def standard_error(
    values: Vector, imagined: tuple[float, ...], sizes: Vector | None = None, clusters: Index | None = None
) -> tuple[float, float, int] | None:
    """The centre of the interval, the standard error by leaving out one prompt or cluster after the other, and its degrees of freedom.

    If they count differently there are fewer degrees: those of as many equal ones as weigh the same (Kish). None if there are
    too few, or if one has nearly all of the weight.
    """
    fewest = 2  # a single prompt does not vary
    sizes = np.ones(len(values)) if sizes is None else sizes
    if clusters is not None:
        fewest = FEWEST_CLUSTERS
        sizes = np.bincount(clusters, sizes).astype(np.float64)
        values = np.bincount(clusters, values).astype(np.float64)
    if len(values) < fewest:
        return None
    sums = np.concatenate([values, imagined])
    sizes = np.concatenate([sizes, np.ones(len(imagined))])
    total = sizes.sum()
    centre = float(sums.sum() / total)
    without = (sums.sum() - sums) / (total - sizes)
    squares = ((without - centre) ** 2).sum()
    error = math.sqrt((len(sums) - 1) / len(sums) * squares)
    freedom = int(total**2 / (sizes**2).sum() + EQUAL) - 1
    return (centre, error, freedom) if freedom else None


def detectable(values: Vector, clusters: Index | None = None) -> float | None:
    """The smallest change that these prompts would show 8 times of 10."""
    found = standard_error(values, OF_CHANGE, clusters=clusters)
    if found is None:
        return None
    _, error, freedom = found
    return (student(freedom) + DETECTED) * error


# --- is it chance? -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rewards:
    """The scored rows of a run in the order of the prompts, with rewards from 0 (worst) to 1 (best)."""

    prompts: Index  # the number of the prompt of each row, from 0 and ascending
    values: Vector  # the reward of each row, scaled to 0 (worst) .. 1 (best)
    n: Index  # rows of each prompt
    sums: Vector  # of their values

    @classmethod
    def of(cls, prompts: Index, values: Vector, prompt_count: int) -> Self:
        """The rows with the counts and sums of each prompt."""
        sums = np.bincount(prompts, values, prompt_count).astype(np.float64)
        rows = np.bincount(prompts, minlength=prompt_count)
        return cls(prompts, values, rows, sums)

    @property
    def rates(self) -> Vector:
        """The solve rate of each prompt."""
        return self.sums / self.n


def of_two_values(now: Rewards, before: Rewards) -> bool:
    """Whether every row is solved or not, and nothing between."""
    return all(np.isin(run.values, (0, 1)).all() for run in (now, before))


def noise(now: Rewards, before: Rewards) -> Vector:
    """The variance of the change of each prompt if its rows are dealt to the two runs at random."""
    rows = now.n + before.n
    mean = (now.sums + before.sums) / rows
    squares = np.zeros(len(rows))
    for run in (now, before):
        away = run.values - mean[run.prompts]
        squares += np.bincount(run.prompts, away**2, len(rows))
    of_row = squares / np.maximum(rows - 1, 1)
    variance: Vector = of_row * (1 / now.n + 1 / before.n)
    return variance


def dealt(now: Rewards, before: Rewards) -> Iterator[tuple[Vector, Vector]]:
    """The solve rates of both runs, again and again, if the rows of each prompt are dealt to them at random."""
    random = np.random.default_rng(0)
    n = now.n
    other = before.n
    if of_two_values(now, before):
        solved = np.round(now.sums + before.sums).astype(np.int64)
        deals = max(1, AT_ONCE // len(n))
        while True:
            drawn = random.hypergeometric(solved, n + other - solved, n, (deals, len(n)))
            yield from zip(drawn / n, (solved - drawn) / other, strict=True)
    prompts = np.concatenate([now.prompts, before.prompts])
    values = np.concatenate([now.values, before.values])
    order = np.argsort(prompts, kind="stable")
    prompts, values = prompts[order], values[order]
    to_now = order < len(now.prompts)
    while True:
        within_prompts = np.argsort(prompts + random.random(len(prompts)))
        shuffled = values[within_prompts]
        mine, theirs = (np.bincount(prompts[to], shuffled[to], len(n)) for to in (to_now, ~to_now))
        yield mine / n, theirs / other


def p_value(now: Rewards, before: Rewards) -> float:
    """How often a change of the mean is as large as this if the rows of each prompt are dealt to the two runs at random.

    With one row of each prompt in both runs this is McNemar's exact test.
    """
    change = now.rates - before.rates
    if (now.n == 1).all() and (before.n == 1).all() and of_two_values(now, before):
        return mcnemar((change > 0).sum(), (change < 0).sum())
    variance = float(noise(now, before).sum())
    total = abs(float(change.sum()))
    if variance <= EQUAL**2 or total <= EQUAL:
        return 1.0
    if len(change) >= MANY:
        return math.erfc(total / math.sqrt(2 * variance))
    deals = DEALS
    if not of_two_values(now, before):
        rows = len(now.values) + len(before.values)
        deals = max(FEWEST_DEALS, min(DEALS, SORTED // rows))
    as_far = 0
    for mine, theirs in islice(dealt(now, before), deals):
        as_far += abs(float((mine - theirs).sum())) >= total - EQUAL
    return (1 + as_far) / (1 + deals)


def p_value_of_clusters(change: Vector, clusters: Index) -> float | None:
    """How often a mean change is as far from 0 as this if clusters vary around 0 as much as they do here.

    It is below 0.05 where the interval does not include 0; None where there is no interval.
    """
    found = standard_error(change, OF_CHANGE, clusters=clusters)
    if found is None:
        return None
    centre, error, freedom = found
    return beyond(abs(centre) / error, freedom)


def beyond(t: float, freedom: int) -> float:
    """The chance that Student's t is farther from 0 than this: a finite series (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    series = 0.0
    for k in range(odd + 1, freedom, 2):
        series += term
        term *= cosine**2 * k / (k + 1)
    within = math.sin(angle) * series
    if odd:
        within = (angle + within) * 2 / math.pi
    return max(1.0 - within, 0.0)


@lru_cache
def quantile(chance: float, freedom: int) -> float:
    """The value from which Student's t is farther from 0 with this chance."""
    low, high = 0.0, 1.0
    while beyond(high, freedom) > chance:
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle, freedom) > chance else (low, middle)
    return high


def mcnemar(up: int, down: int) -> float:
    """The exact two-sided p value of this many prompts that were gained and lost."""
    changed = up + down
    terms = []
    for k in range(min(up, down) + 1):
        log_ways = math.lgamma(changed + 1) - math.lgamma(k + 1) - math.lgamma(changed - k + 1)
        terms.append(math.exp(log_ways + changed * math.log(0.5)))
    return min(1.0, 2 * math.fsum(terms))


def holm(p_values: Mapping[str, float | None]) -> dict[str, float | None]:
    """The p values for several comparisons at once, by Holm's method."""
    known = sorted((p, name) for name, p in p_values.items() if p is not None)
    adjusted = dict.fromkeys(p_values)
    largest = 0.0
    for at, (p, name) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - at)))
        adjusted[name] = largest
    return adjusted


# --- in words ----------------------------------------------------------------------------------------------


def in_a_sentence(
    run: str,
    base: str,
    prompts: int,
    change: Estimate,
    p: float | None,
    clusters: str = "",
    *,
    graded: bool = False,
    of_both: bool = False,
) -> str:
    """What a run solves beside the base. `p` is about these prompts, the interval about others like them.

    On few prompts, or where prompts change in both directions, the first may be certain and the second is not. Of `clusters`, such
    as "12 values of family", both are about others. Nothing is solved where rewards are `graded`. `of_both`: a run has prompts that
    the other lacks, so the rates of the whole runs are other ones.
    """
    is_up = change.mean > 0
    more = "more" if is_up else "fewer"
    mean = f"a {'higher' if is_up else 'lower'} mean reward on"
    counted = f"the {prompts:,} prompts of both" if of_both else f"these {prompts:,} prompts"
    these = counted
    short = counted if of_both else "these prompts"
    of_others = f"{prompts:,} prompts say nothing about other prompts"
    solves = f"{run} has {mean} {these} than {base}" if graded else f"{run} solves {more} of {these} than {base}"
    if prompts == 1:
        these = "the prompt of both" if of_both else "this prompt"
        often = "more often" if is_up else "less often"
        of_others = "1 prompt says nothing about other prompts"
        solves = f"{run} has {mean} {these} than {base}" if graded else f"{run} solves {these} {often} than {base}"
    seen = f"{100 * change.mean:+.1f} points"
    chance = in_words(p)
    is_sure = p is not None and p <= SURE
    if clusters and (change.low is None or p is None):
        return f"{solves}: {seen}, and {clusters} cannot tell whether that is chance"
    if change.low is None or change.high is None:
        if not is_sure:
            solves = f"{run} shows no clear difference from {base} on {these}"
        return f"{solves}: {seen} ({chance}), and {of_others}"
    over = f" over {clusters}" if clusters else ""
    interval = f"95% interval{over} {100 * change.low:.1f} to {100 * change.high:.1f}"
    is_sure_of_others = not change.low <= 0 <= change.high
    if is_sure and is_sure_of_others:
        surely = f"has {mean}" if graded else f"solves {more} of"
        return f"{run} {surely} {short} than {base}: {seen} ({interval}, {chance})"
    if is_sure:
        return f"{solves}: {seen} ({chance}), which need not hold for others ({interval})"
    if is_sure_of_others:
        perhaps = f"may have {mean}" if graded else f"may solve {more} of"
        return f"{run} {perhaps} {short} than {base}: {seen} ({interval}, but {chance})"
    on = counted if of_both else f"{prompts:,} prompts"
    return f"{run} shows no clear difference from {base} on {on}: {seen} ({interval}, {chance})"


def in_words(p: float | None) -> str:
    """A p value as papers write it."""
    if p is None:
        return "p unknown"
    if p < 0.001:  # noqa: PLR2004 - digits that matter
        return "p < 0.001"
    return f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"  # noqa: PLR2004


def renumbered(clusters: Index) -> Index:
    """The clusters of some of the prompts, as numbers from 0 without gaps."""
    return np.unique(clusters, return_inverse=True)[1]
