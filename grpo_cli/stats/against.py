"""Two runs on the same prompts: how solve rates changed, and how much of that is chance.

Two samples of one policy differ, too. Three things keep that noise from being read as a change:

* Counts of prompts are shown next to their expectation if the rows of each prompt were dealt to the two runs at random.
* Prompts are divided into bands by their rate in both runs together. By the earlier rate, prompts that were lucky then
  would seem to have got worse.
* Prompts are listed only if changes vary by more than chance, and each change is shrunk by its share of noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal, Self

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Vector
from grpo_cli.errors import DataError
from grpo_cli.read.known_names import STEPS
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.pairs import key_texts
from grpo_cli.stats.difficulty import BANDS, DIGITS, Level, bands
from grpo_cli.stats.facts import Change, count_by_kind, reward_range
from grpo_cli.stats.inspection import Inspected, Inspection
from grpo_cli.stats.intervals import (
    OF_CHANGE,
    Estimate,
    Rewards,
    dealt,
    detectable,
    estimate,
    is_sure,
    noise,
    of_two_values,
    p_value,
    solves_more,
)
from grpo_cli.stats.verdicts import percent
from grpo_cli.values.paths import PARENT

VERSION: Final = 2
LEVEL: Final = 0.95  # of the interval of the change
ONE_SIDED: Final = 1.6448536269514722  # standard deviations from 0 at which the sign of a number is 95 % certain
LISTED: Final = 5
KINDS: Final = ("better", "same", "worse")
COUNTED: Final = ("better", "worse", "same", "solved_first", "solved_no_more", "flips")
HALF: Final = 0.5
DEALS: Final = (20, 400)  # random deals of the rows to the two runs: at least, at most
DEALT: Final = 20_000_000  # rows (or prompts) dealt in total
BEYOND: Final = 3.0  # standard deviations beyond chance


@dataclass(frozen=True)
class Only:
    """Prompts of one run only, the first of them by their keys."""

    prompts: int
    keys: Sequence[str]

    @classmethod
    def of(cls, mine: pl.DataFrame, theirs: pl.DataFrame) -> Self:
        """The prompts of the first that the second lacks."""
        words = mine.join(theirs, "key", how="anti", maintain_order="left")["words"]
        return cls(len(words), words.head(LISTED).to_list())


@dataclass(frozen=True)
class NowAndBefore:
    """A number for each run."""

    now: int
    before: int


@dataclass(frozen=True)
class Interval:
    """The solve rates of both runs, and an interval of the change; null for one prompt."""

    now: float
    before: float
    change: float
    low: float | None
    high: float | None
    level: float


@dataclass(frozen=True)
class UpAndDown:
    """Prompts whose solve rate reached 0.5, and those that lost it."""

    up: float
    down: float


@dataclass(frozen=True)
class Chance:
    """The same counts if chance alone assigned the rows to the runs."""

    better: float
    worse: float
    same: float
    solved_first: float
    solved_no_more: float
    flips: UpAndDown
    deals: int


@dataclass(frozen=True)
class Band:
    """Prompts of a difficulty, by their solve rates in both runs."""

    difficulty: Level
    prompts: int
    before: float
    now: float
    change: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Prompt:
    """A prompt that changed by more than chance; `shrunken` is the change without its share of noise."""

    key: str
    number: int
    before: float
    now: float
    change: float
    shrunken: float


@dataclass(frozen=True)
class Against:
    """How solve rates changed from another run: the result of `inspect --against`."""

    version: Literal[2]
    key: Sequence[str]
    worst: float
    best: float
    prompts: int
    only_now: Only
    only_before: Only
    rows: NowAndBefore
    solve_rate: Interval
    p: float
    detectable: float | None
    changes: Sequence[Change]
    better: int
    worse: int
    same: int
    solved_first: int
    solved_no_more: int
    flips: UpAndDown
    chance: Chance
    beyond_chance: bool
    by_difficulty: Sequence[Band]
    gained: Sequence[Prompt]
    lost: Sequence[Prompt]
    verdict: str
    inputs: Sequence[str]
    against: Sequence[str]
    warnings: Sequence[str]
    config: str | None = None

    @property
    def sentence(self) -> str:
        """The change of the solve rate, its interval, and what these show."""
        rate, interval = self.solve_rate, ""
        if rate.low is not None:
            interval = f"; {percent(rate.level)} interval {rate.low:+.4f} to {rate.high:+.4f}"
        return (
            f"On the {self.prompts:,} prompts that are also in {', '.join(self.against)}, the solve rate went from {rate.before:.4g} to {rate.now:.4g} "
            f"({rate.change:+.4f}{interval}). {self.verdict}"
        )


@dataclass(frozen=True)
class Since:
    """Another run: how solve rates changed from it, and its facts."""

    against: Against
    before: Inspected


@dataclass(frozen=True, slots=True)
class Matched:
    """Two runs matched by prompt: the keys of their groups, those with a reward (a line for each prompt), and the prompts of both."""

    runs: Sequence[Inspection]
    names: tuple[str, ...]
    keys: Sequence[pl.DataFrame]
    scored: Sequence[pl.DataFrame]
    both: pl.DataFrame

    def rewards(self, ends: tuple[float, float]) -> list[Rewards]:
        """The rewards of both runs for the prompts of both."""
        keyed = zip(self.runs, self.keys, strict=True)
        return [rewards_of(run, keys["key"], self.both["key"], ends) for run, keys in keyed]


def matched(now: Inspection, before: Inspection) -> Matched:
    """Match the prompts of two runs; groups whose keys differ only in the step are one prompt."""
    names = _prompt_columns(now, before)
    for which, run in (("this run", now), ("the other run", before)):
        if not (run.groups["scored"] > 0).any():
            raise DataError(f"no row of {which} has a finite reward: there is no solve rate to compare")
    keys = key_texts(now.narrow, before.narrow, names)
    scored = [_scored_prompts(*each) for each in zip(keys, (now, before), strict=True)]
    both = scored[0].join(scored[1], "key", how="semi", maintain_order="left")
    if not len(both):
        raise DataError(
            f"no prompt is in both runs (matched by {', '.join(names)})",
            "give --group NAME with a key that is the same in both, such as the prompt",
        )
    return Matched((now, before), names, keys, scored, both)


def ends_of(runs: Sequence[Inspection]) -> tuple[float, float]:
    """The worst and the best reward of some runs."""
    worst, best = reward_range(pl.concat(run.groups.select("min", "max") for run in runs))
    if worst is None or best is None or worst == best:
        raise DataError("all rewards of the runs are equal: there is no solve rate to compare")
    return worst, best


def against(now: Inspection, before: Inspection, *, called: tuple[str, str] = ("This run", "the other")) -> Against:
    """What changed from `before` to `now`, by prompt; groups whose keys differ only in the step are one prompt."""
    pair = matched(now, before)
    worst, best = ends_of((now, before))
    scored, both = pair.scored, pair.both
    now_run, before_run = pair.rewards((worst, best))
    rates, rates_before = now_run.rates, before_run.rates
    change = np.round(rates - rates_before, DIGITS)  # or rounding in a mean would count as a change
    together = (now_run.sums + before_run.sums) / (now_run.n + before_run.n)
    chance, moved = counts_by_chance(now_run, before_run)
    shrunken = _shrunken(change, now_run, before_run) * moved  # if not, all changes may be noise
    prompts = both.select(key="words", number="number").with_columns(
        before=rates_before, now=rates, change=change, shrunken=shrunken
    )
    seen, p = estimate(change, OF_CHANGE), p_value(now_run, before_run)
    return Against(
        version=VERSION,
        key=pair.names,
        worst=worst,
        best=best,
        prompts=len(both),
        only_now=Only.of(*scored),
        only_before=Only.of(*scored[::-1]),
        rows=NowAndBefore(int(now_run.n.sum()), int(before_run.n.sum())),
        solve_rate=Interval(float(rates.mean()), float(rates_before.mean()), seen.mean, seen.low, seen.high, LEVEL),
        p=p,
        detectable=detectable(change, None),
        changes=count_by_kind(pl.Series(change), 1 - np.sign(change).astype(np.int8), KINDS),
        **named(counts_of(rates, rates_before)),
        chance=chance,
        beyond_chance=moved,
        by_difficulty=_by_difficulty(rates, rates_before, change, together),
        gained=_largest(prompts, pl.col("shrunken")),
        lost=_largest(prompts, -pl.col("shrunken")),
        verdict=_verdict(seen, p, *called, beyond_chance=moved),
        inputs=now.facts.inputs,
        against=before.facts.inputs,
        warnings=[*now.facts.warnings, *(f"before: {line}" for line in before.facts.warnings)],
    )


def _scored_prompts(of_groups: pl.DataFrame, run: Inspection) -> pl.DataFrame:
    """The prompts with a reward, each with the number of its first group."""
    numbered = of_groups.with_row_index("number", 1).filter(run.groups["scored"] > 0)
    return numbered.unique("key", keep="first", maintain_order=True)


def _prompt_columns(now: Inspection, before: Inspection) -> tuple[str, ...]:
    """The columns of the key except step-like columns; they must be the same in both runs."""
    kept = [prompt_columns(run.narrow) for run in (now, before)]
    if not kept[0] or kept[0] != kept[1]:
        raise DataError("the two runs have different group keys", "name the prompt with --group")
    return kept[0]


def prompt_columns(narrow: Narrow) -> tuple[str, ...]:
    """The columns of the key that name the prompt: all but steps, places, and those that only say where the key is unique."""
    rule, places = narrow.rule, {*STEPS, PARENT}
    if narrow.rule.within not in rule.key:
        places.add(rule.within or "")
    names = [name for name in narrow.key.columns if name not in places and not name.startswith("@")]
    return tuple(names or narrow.request.layout.flags.group)  # a key whose only name is like that of a step


def rewards_of(run: Inspection, keys: pl.Series, prompts: pl.Series, ends: tuple[float, float]) -> Rewards:
    """The rows of these prompts; `keys` are the keys of the groups."""
    places = pl.DataFrame({"key": prompts, "place": np.arange(len(prompts))})
    of_groups = keys.to_frame("key").join(places, on="key", how="left", maintain_order="left")["place"]
    rows = run.raw.rows.select(place=of_groups.gather(run.raw.rows["group"]), reward=".reward")
    rows = rows.filter(pl.col("reward").is_finite() & pl.col("place").is_not_null()).sort("place", maintain_order=True)
    values = np.clip((rows["reward"].to_numpy() - ends[0]) / (ends[1] - ends[0]), 0.0, 1.0)
    return Rewards.of(rows["place"].to_numpy(), values, len(prompts))


def named(counts: Sequence[Any]) -> dict[str, Any]:
    """What `counts_of` counts, by its names; the last two are flips up and down."""
    *others, up, down = counts
    return dict(zip(COUNTED, [*others, UpAndDown(up, down)], strict=True))


def counts_of(rates: Vector, before: Vector) -> list[int]:
    """How many prompts changed, and how: in the order of COUNTED, flips up and down apart."""
    change = np.round(rates - before, DIGITS)
    changed = [
        change > 0, change < 0, change == 0, (rates > 0) & (before == 0), (rates == 0) & (before > 0),
        (rates >= HALF) & (before < HALF), (rates < HALF) & (before >= HALF),
    ]  # fmt: skip
    return [int(prompts.sum()) for prompts in changed]


def counts_by_chance(now: Rewards, before: Rewards) -> tuple[Chance, bool]:
    """The mean counts if the rows of each prompt are dealt to the runs at random, and whether the runs differ by more.

    Two samples of one policy are such a random deal, whatever the rewards and however many rows each run has.
    """
    rows = len(now.values) + len(before.values)
    drawn = len(now.n) if of_two_values(now, before) else rows
    least, most = DEALS
    counts, squares = list[list[int]](), list[float]()
    for rates, rates_before in islice(dealt(now, before), max(least, min(most, DEALT // drawn))):
        counts.append(counts_of(rates, rates_before))
        squares.append(float(((rates - rates_before) ** 2).sum()))
    seen = float(((now.rates - before.rates) ** 2).sum())
    moved = seen > float(np.mean(squares)) + BEYOND * float(np.std(squares)) + 10.0**-DIGITS
    return Chance(**named(np.mean(counts, axis=0).tolist()), deals=len(counts)), moved


def _shrunken(change: Vector, now: Rewards, before: Rewards) -> Vector:
    """The part of each change that is expected to last; the rest is noise, larger with few rows or varying rewards.

    For a change d with noise variance v the part is d t/(t + v), where t is the mean square of the true changes: that of
    d minus v. Its variance is t v/(t + v); 0 where its sign is uncertain.
    """
    rows, variance = now.n + before.n, noise(now, before)
    enough = rows > 2  # noqa: PLR2004 - two rows show only their difference
    true = ((change**2 - variance) * (rows - 1) / np.maximum(rows - 2, 1))[enough]
    size = max(float(true.mean()), 0.0) if len(true) else 0.0
    share = np.where(change != 0, size / np.where(change != 0, size + variance, 1.0), 0.0)
    sure = change**2 * share > ONE_SIDED**2 * variance
    return np.where(sure, change * share, 0.0)


def _by_difficulty(rates: Vector, before: Vector, change: Vector, together: Vector) -> list[Band]:
    """The mean rates of prompts by difficulty: their solve rate in both runs together."""
    places, lines = bands(together), []
    for place, band in enumerate(BANDS):
        here = places == place
        if here.any():
            mean, mean_before = float(rates[here].mean()), float(before[here].mean())
            seen = estimate(change[here], OF_CHANGE)
            lines.append(Band(band, int(here.sum()), mean_before, mean, mean - mean_before, seen.low, seen.high))
    return lines


def _largest(prompts: pl.DataFrame, size: pl.Expr) -> list[Prompt]:
    """The prompts with the largest positive sizes."""
    changed = prompts.filter(size > 0).sort(size, descending=True, maintain_order=True)
    return [Prompt(**line) for line in changed.head(LISTED).iter_rows(named=True)]


def _verdict(change: Estimate, p: float, now: str, before: str, *, beyond_chance: bool) -> str:
    """What the interval and the changes of the prompts show."""
    if is_sure(change, p):
        return f"{solves_more(now, before, change, p)}."
    if beyond_chance:
        return "No clear change of the mean, but some prompts got better and others worse, by more than chance."
    return "No clear change: two samples of one policy would differ as much."
