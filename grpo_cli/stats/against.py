"""Two runs on the same prompts: how solve rates changed, and how much of that is chance.

Two samples of one policy differ, too. Two things keep that noise from being read as a change:

* Counts of prompts are shown next to their expectation if the rows of each prompt were dealt to the two runs at random.
* A prompt is called better or worse only if its change is beyond chance among all prompts (`changes`). As gained or lost it is listed
  only if changes vary by more than chance, and the change is shrunk by its share of noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Vector
from grpo_cli.errors import DataError, Way
from grpo_cli.read.pairs import key_texts
from grpo_cli.stats.changes import Changes
from grpo_cli.stats.difficulty import DIGITS
from grpo_cli.stats.facts import reward_range
from grpo_cli.stats.inspection import Inspection, prompt_columns
from grpo_cli.stats.intervals import Rewards, dealt, noise, of_two_values

ONE_SIDED = 1.6448536269514722  # standard deviations from 0 at which the sign of a number is 95 % certain
LISTED = 5  # prompts that gained or lost most
KINDS = ("better", "same", "worse")
DEALS = (20, 400)  # random deals of the rows to the two runs: at least, at most
DEALT = 20_000_000  # rows (or prompts) dealt in total
BEYOND = 3.0  # standard deviations beyond chance


@dataclass(frozen=True)
class NowAndBefore:
    """A number for each of two rewards, or for each of the inputs that have them."""

    now: int  # for the new reward, or of the input that has it
    before: int  # for the old reward, or of the input that has it


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A prompt of both runs, and how its solve rate changed."""

    key: str  # the values of the columns that name it, as this run has them
    number: int  # of its first scored group in this run; 1 is the first of all groups
    before: float  # its solve rate in the base, from 0 to 1
    before_rollouts: int  # with a finite reward, in the base
    now: float  # its solve rate in this run, from 0 to 1
    now_rollouts: int  # with a finite reward, in this run
    change: float  # `now` minus `before`
    low: float  # the lower end of the 95 % interval of the change, of this prompt alone
    high: float  # the upper end of this interval
    p: float  # how often the change is as large if the rollouts of the prompt are dealt to the two runs at random
    p_adjusted: float  # `p` after the correction for all prompts of both runs (Benjamini and Hochberg)
    # better or worse: `p_adjusted` is at most 0.05; None: the change may be chance
    beyond_chance: Literal["better", "worse"] | None
    shrunken: float  # the part of the change that is expected to last; the rest is noise of few rollouts
    cluster: str | None = None  # its value of --cluster as text; absent without it


@dataclass(frozen=True)
class Matched:
    """Two runs matched by prompt: the keys of their groups, those with a reward (a line for each prompt), and the prompts of both."""

    runs: Sequence[Inspection]  # this run, then the one it is compared with
    names: tuple[str, ...]  # the columns that name a prompt, the same in both runs
    keys: Sequence[pl.DataFrame]  # for each run a line per group: its prompt as compared (`key`) and as shown (`words`)
    # for each run a line per prompt with a reward, with the `number` of its first scored group
    scored: Sequence[pl.DataFrame]
    both: pl.DataFrame  # the lines of this run's prompts that have a reward in both runs

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
        none = f"no prompt is in both runs (matched by {', '.join(names)})"
        raise DataError(
            none,
            Way("--group", why="with a key that is the same in both, such as the prompt", fill="NAME", lead="give"),
        )
    return Matched((now, before), names, keys, scored, both)


def ends_of(runs: Sequence[Inspection]) -> tuple[float, float]:
    """The worst and the best reward of some runs."""
    worst, best = reward_range(pl.concat(run.groups.select("min", "max") for run in runs))
    if worst is None or best is None or worst == best:
        raise DataError("all rewards of the runs are equal: there is no solve rate to compare")
    return worst, best


def of_prompts(
    pair: Matched, now: Rewards, before: Rewards, found: Changes, clusters: pl.Series | None = None
) -> pl.DataFrame:
    """A line for each prompt of both, with the fields of `Prompt`; `clusters` are those of the prompts, as text."""
    prompts = pair.both.select("number", key="words")
    named = {1: "better", -1: "worse"}
    prompts = prompts.with_columns(
        before=before.rates,
        before_rollouts=before.n,
        now=now.rates,
        now_rollouts=now.n,
        change=found.change,
        low=found.low,
        high=found.high,
        p=found.p,
        p_adjusted=found.p_adjusted,
        beyond_chance=pl.Series([named.get(sign) for sign in found.sign.tolist()], dtype=pl.String),
        shrunken=_shrunken(found.change, now, before),
    )
    return prompts if clusters is None else prompts.with_columns(clusters.alias("cluster"))


def most_changed(prompts: pl.DataFrame) -> tuple[list[Prompt], list[Prompt]]:
    """The prompts that gained and lost most, without noise."""
    return _largest(prompts, pl.col("shrunken")), _largest(prompts, -pl.col("shrunken"))


def listed(prompts: pl.DataFrame, sort: str | None, top: int) -> list[Prompt]:
    """The `top` prompts with the largest value of a fact, and those with the smallest, the smallest last.

    By default those that rose and those that fell most: prompts that did not change are neither.
    """
    by = sort or "change"
    changed = prompts.filter(pl.col("change") != 0) if sort is None else prompts.drop_nulls(sort)
    others = len(changed) - top if sort else int((changed["change"] < 0).sum())
    most = changed.sort(by, descending=True, maintain_order=True).head(top if sort else min(top, len(changed) - others))
    least = changed.sort(by, maintain_order=True).head(max(min(top, others), 0)).reverse()
    return [Prompt(**line) for line in pl.concat([most, least]).iter_rows(named=True)]


def _scored_prompts(of_groups: pl.DataFrame, run: Inspection) -> pl.DataFrame:
    """The prompts with a reward, each with the number of its first group."""
    numbered = of_groups.with_row_index("number", 1).filter(run.groups["scored"] > 0)
    return numbered.unique("key", keep="first", maintain_order=True)


def _prompt_columns(now: Inspection, before: Inspection) -> tuple[str, ...]:
    """The columns of the key except step-like columns; they must be the same in both runs."""
    kept = [prompt_columns(run.narrow) for run in (now, before)]
    if not kept[0] or kept[0] != kept[1]:
        raise DataError("the two runs have different group keys", Way("--group", lead="name the prompt with"))
    return kept[0]


def rewards_of(run: Inspection, keys: pl.Series, prompts: pl.Series, ends: tuple[float, float]) -> Rewards:
    """The rows of these prompts; `keys` are the keys of the groups."""
    places = pl.DataFrame({"key": prompts, "place": np.arange(len(prompts))})
    of_groups = keys.to_frame("key").join(places, on="key", how="left", maintain_order="left")["place"]
    rows = run.raw.rows.select(place=of_groups.gather(run.raw.rows["group"]), reward=".reward")
    rows = rows.filter(pl.col("reward").is_finite(), pl.col("place").is_not_null())
    rows = rows.sort("place", maintain_order=True)
    worst, best = ends
    values = np.clip((rows["reward"].to_numpy() - worst) / (best - worst), 0.0, 1.0)
    return Rewards.of(rows["place"].to_numpy(), values, len(prompts))


def counts_of(rates: Vector, before: Vector) -> list[int]:
    """How many prompts are better, worse and the same."""
    change = np.round(rates - before, DIGITS)
    return [int(prompts.sum()) for prompts in (change > 0, change < 0, change == 0)]


def counts_by_chance(now: Rewards, before: Rewards) -> tuple[list[float], bool]:
    """The mean counts if the rows of each prompt are dealt to the runs at random, and whether the runs differ by more.

    Two samples of one policy are such a random deal, whatever the rewards and however many rows each run has.
    """
    drawn = len(now.n)
    if not of_two_values(now, before):
        drawn = len(now.values) + len(before.values)
    least, most = DEALS
    deals = max(least, min(most, DEALT // drawn))
    counts = []
    squares = []
    for rates, rates_before in islice(dealt(now, before), deals):
        counts.append(counts_of(rates, rates_before))
        squares.append(((rates - rates_before) ** 2).sum())
    seen = float(((now.rates - before.rates) ** 2).sum())
    by_chance = float(np.mean(squares) + BEYOND * np.std(squares))
    return np.mean(counts, axis=0).tolist(), seen > by_chance + 10.0**-DIGITS


def _shrunken(change: Vector, now: Rewards, before: Rewards) -> Vector:
    """The part of each change that is expected to last; the rest is noise, larger with few rows or varying rewards.

    For a change d with noise variance v the part is d t/(t + v), where t is the mean square of the true changes: that of
    d minus v. Its variance is t v/(t + v); 0 where its sign is uncertain.
    """
    rows = now.n + before.n
    variance = noise(now, before)
    enough = rows > 2  # noqa: PLR2004 - two rows show only their difference
    squares = (change**2 - variance) * (rows - 1) / np.maximum(rows - 2, 1)
    true = squares[enough]
    size = max(float(true.mean()), 0.0) if len(true) else 0.0
    changed = change != 0
    whole = np.where(changed, size + variance, 1.0)
    share = np.where(changed, size / whole, 0.0)
    sure = change**2 * share > ONE_SIDED**2 * variance
    return np.where(sure, change * share, 0.0)


def _largest(prompts: pl.DataFrame, size: pl.Expr) -> list[Prompt]:
    """The prompts with the largest positive sizes."""
    changed = prompts.filter(size > 0).sort(size, descending=True, maintain_order=True)
    return [Prompt(**line) for line in changed.head(LISTED).iter_rows(named=True)]
