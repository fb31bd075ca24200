"""How a number goes over the steps of a run: whether it rises, falls, turns or ends apart by more than chance would make it.

Rows of a step share a policy and a batch, and what shifts one step may shift the next. So the steps are the sample, not the
rows, and their distances from the tested shape say what chance does. These distances may be correlated from step to step:
their lag-1 correlation is estimated without its bias, and the error and the degrees of freedom follow from it.

`python -m tests.support.trend_runs` simulates runs and counts what is told of them; CONTRIBUTING.md has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Index, Table, Vector
from grpo_cli.stats.facts import Number
from grpo_cli.stats.intervals import beyond, quantile

Shape = Literal["line", "turn", "end", "none", "few"]

FEWEST = 10  # steps from which the simulation holds; of fewer the ends are named, and nothing is claimed
MOST = 100  # steps that are tested one by one; of more, the means of this many blocks
PARTS = 5  # the first and the last fifth are the ends, and one of the others is where a run turns
# The chance of each claim without a trend, if steps were independent. The last fifth of a gentle turn is no collapse, which is far beyond it.
OF_LINE = 0.01
OF_TURN = 0.005
OF_BENT = 0.003
OF_END = 0.001
CORRELATIONS = tuple(k / 20 for k in range(19))  # of a step and the next one, that are tried: 0 to 0.9
# Steps are compared on the same prompts if the weakest link between them has at least this part of the rows of a step.
LINKED = 0.1
FEWEST_APART = 2  # a run may end apart in one or two steps, however short it is
TENTHS = 10  # of a longer run, in up to a tenth of the steps
JUMPS = 50  # places where a jump is looked for
AT_ONCE = 4_096  # prompts in a matrix
ROUNDING = 1e-9  # a smaller difference, as a part of the largest value
DIGITS = 9  # of a number that are told, beside the range of the values; below them may be rounding


@dataclass(frozen=True, kw_only=True)
class Course:
    """How a number goes over the steps."""

    # what is beyond chance: a line, a turn, a jump after which the last steps are apart (end) or nothing (none);
    # few: so few steps cannot tell, because there are fewer than 10, or the interval of the change is wider than all that is possible
    shape: Shape
    first: float  # mean over the rows of the first fifth of the steps; at least one step
    first_from: Any  # the value of the first step that is in `first`
    first_to: Any  # the value of the last step that is in `first`
    last: float  # mean over the rows of the last fifth of the steps; of the steps that end apart, if some do
    mean: float  # over the rows of all steps
    # whether steps are compared on the same prompts: each is then the mean plus the effect of the step beside those of prompts
    same_prompts: bool
    # mean of the fifth of the steps where it turns, or before a jump that follows a line; None for other shapes. Before a jump without a
    # line, `first` is the mean of all steps before it
    turn: Number
    turn_from: Any  # the value of the first of these steps; None without them
    turn_to: Any  # the value of the last of these steps; None without them
    end_steps: int  # how many of the last steps end apart; 0 for other shapes
    # the lower end of the 99 % interval of the change over the run, along a line, within what is possible if nothing is beyond chance;
    # None below 10 steps
    change_low: Number
    change_high: Number  # the upper end of this interval; None below 10 steps


def course(
    steps: Index, values: Vector, named: Sequence[Any], prompts: Index | None = None, rows: Vector | None = None
) -> Course | None:
    """The course of these values; `steps` has the place of each among those that are `named`, in order. None without values.

    With `prompts`, the prompt of each value, steps are compared on the same prompts, if prompts recur often enough. A value is the mean
    of its `rows`, whose range is not known; without them of one.
    """
    are_means = rows is not None
    rows = np.ones(len(values)) if rows is None else rows
    known = np.isfinite(values) & (rows > 0)
    if not known.all():
        steps, values, rows = steps[known], values[known], rows[known]
        prompts = None if prompts is None else prompts[known]
    seen, places = np.unique(steps, return_inverse=True)
    many = len(seen)
    if not many:
        return None
    blocks = np.arange(many) if many <= MOST else np.arange(many) * MOST // many
    firsts = np.append(np.flatnonzero(np.diff(blocks, prepend=-1)), many)  # the first step of each block
    of_values = blocks[places]
    weights = np.bincount(of_values, rows)
    means = np.bincount(of_values, values * rows) / weights
    effects = None
    if prompts is not None and many >= FEWEST:
        effects = step_effects(of_values, values, prompts, rows)
    if effects is not None:
        means = effects + weights @ (means - effects) / weights.sum()

    least, most = float(values.min()), float(values.max())

    def mean_of(part: slice) -> float:
        # The effects of steps are no means of values, and may lead out of their range: to -4e-16, or a share of -2 %.
        mean = float(means[part] @ weights[part] / weights[part].sum())
        return mean if effects is None else min(max(rounded(mean, most - least), least), most)

    found = possible(shape_of(means), math.inf if are_means else most - least)
    edges = fifths(len(means))
    first = slice(0, edges[1])
    last = slice(edges[-2], None)
    if found.end:
        last = slice(-found.end, None)
        first = first if found.turn is not None else slice(0, len(means) - found.end)
    turn = turn_from = turn_to = None
    if found.turn is not None:
        steps_there = seen[firsts[found.turn.start] : firsts[found.turn.stop]]
        turn = mean_of(found.turn)
        turn_from, turn_to = named[steps_there[0]], named[steps_there[-1]]
    return Course(
        shape=found.shape,
        first=mean_of(first),
        first_from=named[seen[0]],
        first_to=named[seen[firsts[first.stop] - 1]],
        last=mean_of(last),
        mean=mean_of(slice(None)),
        same_prompts=effects is not None,
        turn=turn,
        turn_from=turn_from,
        turn_to=turn_to,
        end_steps=many - int(firsts[len(means) - found.end]),
        change_low=found.low,
        change_high=found.high,
    )


def rounded(value: float, span: float) -> float:
    """A computed number without the digits that are rounding beside the range of what it was computed from.

    >>> rounded(-3.9e-16, 1.0), rounded(0.06249999999999994, 1.0), rounded(1512.345678901234, 1000.0)
    (0.0, 0.0625, 1512.345679)
    """
    if not 0 < span < math.inf:
        return value
    return round(value, DIGITS - math.ceil(math.log10(span))) + 0.0  # no -0


def fifths(steps: int) -> list[int]:
    """Where the fifths of the steps begin, and where the last one ends; each has at least one step of five or more."""
    if steps < PARTS:
        return [0, 1, steps - 1, steps]
    return [round(k * steps / PARTS) for k in range(PARTS + 1)]


# --- the same prompts ----------------------------------------------------------------------------------------


def step_effects(steps: Index, values: Vector, prompts: Index, rows: Vector) -> Vector | None:
    """The effect of each step beside those of the prompts, by least squares over rows: value = prompt + step.

    None if too few prompts recur for it: steps that no prompt links cannot be compared.
    """
    cells = pl.DataFrame({"prompt": prompts, "step": steps, "n": rows, "sum": values * rows})
    cells = cells.group_by("prompt", "step", maintain_order=True).sum()
    recurs = cells["prompt"].is_duplicated()
    many = int(steps.max()) + 1
    if recurs.sum() * 2 < len(cells):
        return None
    cells = cells.filter(recurs).sort("prompt", "step")
    of_prompt = cells["prompt"].rle_id().to_numpy().astype(np.int64)
    of_step = cells["step"].to_numpy()
    n = cells["n"].to_numpy()
    sums = cells["sum"].to_numpy()
    of_prompts = np.bincount(of_prompt, n)
    mean_of_prompt = np.bincount(of_prompt, sums) / of_prompts
    away = np.bincount(of_step, sums - n * mean_of_prompt[of_prompt], many)
    links: Table = np.diag(np.bincount(of_step, n, many))
    for start in range(0, len(of_prompts), AT_ONCE):
        first, after = np.searchsorted(of_prompt, [start, start + AT_ONCE])
        there = slice(first, after)
        table = np.zeros((min(AT_ONCE, len(of_prompts) - start), many))
        table[of_prompt[there] - start, of_step[there]] = n[there]
        links = links - table.T @ (table / of_prompts[start : start + AT_ONCE, None])
    strength, ways = np.linalg.eigh(links)  # the first is 0: all steps may move together
    if strength[1] < LINKED * rows.sum() / many:
        return None
    effects: Vector = ways[:, 1:] @ (away @ ways[:, 1:] / strength[1:])
    return effects


# --- shapes --------------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """The shape of a series, and where it turns."""

    shape: Shape
    low: Number = None  # the interval of the change along a line
    high: Number = None
    turn: slice | None = None
    end: int = 0  # values that end apart


def shape_of(series: Vector) -> Found:
    """What is beyond chance in a series, of which one value follows the other: the most that can be said of it."""
    steps = len(series)
    if steps < FEWEST:
        return Found("few")
    line = _fitted(series, "line")
    change, error = line.estimate(np.array([0.0, 1.0]))
    half = quantile(OF_LINE, line.freedom) * error
    low, high = change - half, change + half
    end, end_p = _end(series, range(1, _most_apart(steps) + 1))
    turn, turn_p = _turn(series)
    if end_p < OF_END and end_p < turn_p:
        before = series[:-end]
        after_line = slice(fifths(len(before))[-2], len(before))
        return Found("end", low, high, after_line if _has_line(before) else None, end)
    if turn_p < OF_TURN:
        return Found("turn", low, high, turn)
    if _has_line(series):
        return Found("line", low, high)
    # A jump in the middle is neither.
    end, end_p = _end(series, range(1, steps - 1, -(-steps // JUMPS)))
    return Found("end", low, high, end=end) if end_p < OF_END else Found("none", low, high)


def possible(found: Found, span: float) -> Found:
    """What is found; where nothing is, with a change of at most the span of the values, or as unknown if its interval is wider than that."""
    if found.shape != "none" or found.low is None or found.high is None:
        return found
    low, high = rounded(found.low, span), rounded(found.high, span)
    is_unknown = high - low > span > 0
    low, high = max(-span, min(low, span)), max(-span, min(high, span))
    return found._replace(shape="few" if is_unknown else "none", low=low, high=high)


def _has_line(series: Vector) -> bool:
    """Whether a series rises or falls beyond chance; its ends, which are told, must differ in the same direction.

    A run that rises and then stays is far from a line. So its ends are compared as well, along a line that may bend.
    """
    slope = np.array([0.0, 1.0])
    line = _fitted(series, "line")
    change, _ = line.estimate(slope)
    edges = fifths(len(series))
    ends = series[edges[-2] :].mean() - series[: edges[1]].mean()
    first, *_, last = _mean_of_fifths(len(series))
    bent = _fitted(series, "bent")
    is_bent = bent.p(last - first) < OF_BENT and ends * bent.estimate(last - first)[0] > 0
    return bool(is_bent or (line.p(slope) < OF_LINE and ends * change > 0))


def _turn(series: Vector) -> tuple[slice, float]:
    """The fifth that is farthest above or below both ends, of those beyond chance, and the chance of its distance from an end."""
    edges = fifths(len(series))
    bent = _fitted(series, "bent")
    first, *others, last = _mean_of_fifths(len(series))
    found = [(False, 0.0, 1.0, slice(0, 0))]
    for at, part in enumerate(others, 1):
        seen = [series[edges[k] : edges[k + 1]].mean() for k in (0, at, PARTS - 1)]
        ways = [part - first, part - last]
        above = [bent.estimate(way)[0] > 0 for way in ways] + [seen[1] > seen[0], seen[1] > seen[2]]
        if all(above) or not any(above):
            p = max(map(bent.p, ways))
            distance = min(abs(bent.estimate(way)[0]) for way in ways)
            found.append((p < OF_TURN, distance, p, slice(edges[at], edges[at + 1])))
    _, _, p, fifth = max(found, key=itemgetter(0, 1))
    return fifth, p


def _mean_of_fifths(steps: int) -> list[Vector]:
    """The mean of each fifth of a line that may bend, as sums of its coefficients."""
    columns = _bent(steps, 0)
    return [columns[start:end].mean(axis=0) for start, end in pairwise(fifths(steps))]


def _end(series: Vector, tried: Sequence[int]) -> tuple[int, float]:
    """How many of the last values are farthest from a line through the others, of these numbers, and the chance of that."""
    apart = np.array([0.0, 0.0, 1.0])
    p, last = min((_fitted(series, "end", last).p(apart) if _holds(series, last) else 1.0, last) for last in tried)
    return last, min(1.0, len(tried) * p)


def _holds(series: Vector, last: int) -> bool:
    """Whether the last values are apart without the farthest of them, too: one odd step is no level of the steps beside it.

    Each value of a short end is at least half as far as their mean. In a longer end some may be near by chance.
    """
    if last == 1:
        return True
    columns = _line(len(series), 0)
    coefficients = np.linalg.lstsq(columns[:-last], series[:-last], rcond=None)[0]
    away = (series - columns @ coefficients)[-last:]
    mean = away.mean()
    away = np.sort(away * np.sign(mean))
    others = away[0] if last <= _most_apart(len(series)) else away[:-1].mean()
    return bool(others >= abs(mean) / 2)


def _most_apart(steps: int) -> int:
    """How many steps are a short end, whether the run rises before it or not."""
    return max(FEWEST_APART, steps // TENTHS)


class Design(NamedTuple):
    """What is fitted to a series, and what its noise does to the fit, for each of CORRELATIONS."""

    columns: Table  # whose weighted sum is fitted
    fit: Table  # from the series to these weights, the coefficients
    lag_1: Vector  # the expected lag-1 correlation of the distances; ascending
    squares: Vector  # the expected sum of their squares, of noise with the variance 1
    freedom: Vector  # of this sum
    spread: np.ndarray[tuple[int, int, int], np.dtype[np.float64]]  # the covariance of the coefficients, of such noise


class Fit(NamedTuple):
    """The coefficients of a design, with their covariance."""

    coefficients: Vector
    covariance: Table
    freedom: int
    size: float  # of the largest value

    def estimate(self, contrast: Vector) -> tuple[float, float]:
        """A sum of coefficients and its standard error."""
        return float(contrast @ self.coefficients), float(np.sqrt(contrast @ self.covariance @ contrast))

    def p(self, contrast: Vector) -> float:
        """The chance that noise alone makes a sum of coefficients as far from 0."""
        value, error = self.estimate(contrast)
        if abs(value) <= ROUNDING * self.size:
            return 1.0
        return beyond(abs(value) / max(error, ROUNDING**2 * self.size), self.freedom)


def _fitted(series: Vector, kind: Literal["line", "bent", "end"], last: int = 0) -> Fit:
    """A shape that is fitted to a series, with the errors of noise that is as correlated as the distances from it."""
    design = _design(kind, len(series), last)
    coefficients = design.fit @ series
    away = series - design.columns @ coefficients
    squares = float(away @ away)
    size = float(np.abs(series).max())
    at = 0
    if squares > (ROUNDING * size) ** 2:
        at = int(np.searchsorted(design.lag_1, away[1:] @ away[:-1] / squares))
    at = min(at, len(CORRELATIONS) - 1)
    covariance = design.spread[at] * squares / design.squares[at]
    return Fit(coefficients, covariance, max(1, int(design.freedom[at])), size)


@lru_cache(maxsize=128)
def _design(kind: str, steps: int, last: int) -> Design:
    columns = COLUMNS[kind](steps, last)
    fit: Any = np.linalg.pinv(columns)
    found = []
    for noise in _noises(steps):
        of_fit = fit @ noise
        half = noise - columns @ of_fit  # what is not explained, times the noise
        shown = half - (half @ fit.T) @ columns.T  # the covariance of what is not explained
        squares = np.trace(shown)
        found.append((np.trace(shown, 1) / squares, squares, squares**2 / np.sum(half * half.T), of_fit @ fit.T))
    lag_1, of_noise, freedom, spread = zip(*found, strict=True)
    return Design(columns, fit, np.array(lag_1), np.array(of_noise), np.array(freedom), np.array(spread))


@lru_cache(maxsize=4)
def _noises(steps: int) -> list[Table]:
    """The covariance of noise with each of CORRELATIONS."""
    apart = np.abs(np.subtract.outer(np.arange(steps), np.arange(steps)))
    return [correlation**apart for correlation in CORRELATIONS]


def _line(steps: int, _last: int) -> Table:
    """A level, and a change of 1 over the steps."""
    return np.column_stack([np.ones(steps), np.linspace(-0.5, 0.5, steps)])


def _bent(steps: int, last: int) -> Table:
    """A line that may bend in the middle of each fifth between the ends."""
    at = np.arange(steps)
    bends = [np.maximum(0, at - (start + end - 1) / 2) / steps for start, end in pairwise(fifths(steps)[1:-1])]
    return np.column_stack([_line(steps, last), *bends])


def _ending(steps: int, last: int) -> Table:
    """A line, and a level of their own for the last steps."""
    return np.column_stack([_line(steps, last), np.arange(steps) >= steps - last])


COLUMNS: dict[str, Callable[[int, int], Table]] = {"line": _line, "bent": _bent, "end": _ending}
