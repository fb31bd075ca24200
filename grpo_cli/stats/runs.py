"""Runs on the same prompts: what each solves, and how far each is from the first, the base."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, StepsApart
from grpo_cli.stats.against import (
    BEYOND,
    LISTED,
    Matched,
    Prompt,
    counts_by_chance,
    counts_of,
    ends_of,
    listed,
    matched,
    most_changed,
    of_prompts,
    rewards_of,
)
from grpo_cli.stats.changes import changes
from grpo_cli.stats.clusters import Clusters, many
from grpo_cli.stats.difficulty import DIGITS
from grpo_cli.stats.document import asked_by
from grpo_cli.stats.inspection import Inspection
from grpo_cli.stats.intervals import (
    FEWEST_CLUSTERS,
    OF_CHANGE,
    OF_RATE,
    SURE,
    Estimate,
    detectable,
    estimate,
    holm,
    in_a_sentence,
    of_two_values,
    p_value,
    p_value_of_clusters,
)
from grpo_cli.stats.passes import ByDraws, Pass
from grpo_cli.stats.passes import of_prompts as of_draws
from grpo_cli.stats.trends import Trend
from grpo_cli.stats.verdicts import TRUNCATED, percent

POINTS = 0.02  # `prompts_for_2_points`
MANY = 3  # runs whose names are shortened


@dataclass(frozen=True)
class Run(ByDraws):
    """What a run solves, over all of its own prompts."""

    name: str  # from --against NAME=PATH, else its first input, and how many more
    inputs: Sequence[str]  # the files of the run
    prompts: int  # of this run with a reward, whether other runs have them or not
    rollouts: int  # of the run with a finite reward
    solve_rate: Estimate  # mean over prompts of their mean reward, where `worst` counts as 0 and `best` as 1
    passes: Sequence[Pass]  # one for each number of --pass-at; empty without it
    # how many values of --cluster these prompts have; absent without it
    clusters: int | None = field(default=None, metadata=asked_by("--cluster", "COL"))


@dataclass(frozen=True)
class Difference:
    """A run less the base, over the prompts that both have; `p_holm` allows for the number of runs.

    `detectable` is the smallest change that would have been found 8 times of 10, `prompts_for_2_points` how many such prompts
    find one of 0.02. `gained` and `lost` are the prompts that changed most, if prompts changed by more than chance; `changed` are
    those that --where, --sort and --top choose, whether chance explains them or not.
    """

    NOT_SHOWN: ClassVar = frozenset({"every", "graded", "cut_off"})

    name: str  # of the run that is compared with the base
    # with a reward in both runs; the other numbers are of these, except `only_here` and `only_base`
    prompts: int
    only_here: int  # prompts with a reward in this run and not in the base
    only_base: int  # prompts with a reward in the base and not in this run
    change: Estimate  # mean over prompts of this run's solve rate minus the base's
    # how often chance alone makes the mean change as large, in either direction: the rollouts of each prompt dealt to the two
    # runs at random; with --cluster, clusters that vary around 0. None if there are too few clusters
    p: float | None
    p_holm: float | None  # `p` after Holm's correction for all runs that are compared with the base
    better: int  # prompts with a higher solve rate than in the base
    worse: int  # prompts with a lower solve rate than in the base
    same: int  # prompts with the solve rate of the base
    better_by_chance: float  # expected `better` if the rows of each prompt are dealt to the two runs at random
    worse_by_chance: float  # expected `worse` if the rows of each prompt are dealt to the two runs at random
    better_beyond_chance: int  # prompts that are better by more than chance, after the correction for all prompts
    worse_beyond_chance: int  # prompts that are worse by more than chance, after the correction for all prompts
    # the smallest mean change that these prompts show 8 times of 10; None with a single prompt
    detectable: float | None
    # how many prompts like these show a change of 2 points (0.02) 8 times of 10; None with a single prompt
    prompts_for_2_points: int | None
    gained: Sequence[Prompt]  # up to 5 prompts that gained most, without noise; empty if chance explains the changes
    lost: Sequence[Prompt]  # up to 5 prompts that lost most, without noise; empty if chance explains the changes
    # of the prompts that meet --where the --top with the largest values of --sort, then those with the smallest; by default the 5 that
    # rose and the 5 that fell most
    changed: Sequence[Prompt]
    every: pl.DataFrame = field(compare=False)  # a line for each prompt that meets --where, with the fields of one
    # how many values of --cluster these prompts have; absent without it
    clusters: int | None = field(default=None, metadata=asked_by("--cluster", "COL"))
    # the shares of the responses of this run and of the base that are cut off; None if they are not known or may be equal
    cut_off: tuple[float, float] | None = None
    graded: bool = False  # whether some rewards lie between the worst and the best: nothing is solved or not


@dataclass(frozen=True)
class Runs:
    """Runs, the newest last, and the differences of the others from the first; `trends` are those of the earlier ones."""

    NOT_SHOWN: ClassVar = frozenset({"trends"})
    # A path is of the newest run: of its difference from the base, else of the run itself.
    INLINE: ClassVar = ("difference", "newest")
    GATED: ClassVar = dict.fromkeys(("difference", "newest", "base"))

    version: Literal[1]  # of the document; it changes when the meaning of a key does
    key: Sequence[str]  # the columns that name a prompt, by which runs are matched
    worst: float  # the reward with solve rate 0: 0 if all rewards of all runs are in 0..1, else the lowest
    best: float  # the reward of a solved rollout: 1 if all rewards of all runs are in 0..1, else the highest
    runs: Sequence[Run]  # the base first, the newest run last
    differences: Sequence[Difference]  # one for each run but the base, in the same order
    verdict: str  # what the differences show, as a sentence
    warnings: Sequence[str]  # of the newest run, then of the others, each after the name of its run
    cluster: str | None = None  # the column of --cluster: prompts with the same value count together; absent without it
    config: str | None = None  # the file of options that was read; absent if none was
    # by the name of an earlier run; None for one without a trend column
    trends: Mapping[str, Trend | None] = field(default_factory=dict)

    @property
    def difference(self) -> Difference:
        """The newest run less the base."""
        return self.differences[-1]

    @property
    def newest(self) -> Run:
        """The newest run."""
        return self.runs[-1]

    @property
    def base(self) -> Run:
        """The run that the others are compared with."""
        return self.runs[0]


def compared(named: Mapping[str, Inspection], draws: Sequence[int] = ()) -> Runs:
    """Compare runs by their prompts; the first is the base."""
    base, *others = named
    worst, best = ends = ends_of([*named.values()])
    pairs = {name: matched(named[name], named[base]) for name in others}
    first = pairs[others[0]]
    *earlier, newest = named
    cluster = named[newest].columns.get("cluster")
    facts = []
    clusters = {}
    for name, run in named.items():
        keys = first.keys[1] if name == base else pairs[name].keys[0]
        if cluster is not None:
            clusters[name] = _clusters(name, run, keys)
        facts.append(_run(name, run, keys, ends, draws, clusters.get(name)))
    found = {name: _difference(name, pair, ends, clusters.get(name)) for name, pair in pairs.items()}
    adjusted = holm({name: one.p for name, one in found.items()})
    differences = [replace(one, p_holm=adjusted[name]) for name, one in found.items()]
    warnings = [
        line.pooled() if isinstance(line, StepsApart) else line for line in named[newest].facts.summary.warnings
    ]
    for name in earlier:
        warnings += [
            line.pooled(f"{name}: ") if isinstance(line, StepsApart) else f"{name}: {line}"
            for line in named[name].facts.summary.warnings
        ]
    if cluster is not None:
        warnings += _of_clusters(cluster, facts, clusters, pairs)
    return Runs(
        version=1,
        key=first.names,
        worst=worst,
        best=best,
        runs=facts,
        differences=differences,
        verdict=said(base, differences, cluster),
        warnings=warnings,
        cluster=cluster,
    )


def _run(
    name: str,
    run: Inspection,
    keys: pl.DataFrame,
    ends: tuple[float, float],
    draws: Sequence[int],
    clusters: Clusters | None,
) -> Run:
    """The rates of one run over its own prompts."""
    prompts = keys.filter(run.groups["scored"] > 0)["key"].unique(maintain_order=True)
    rows = rewards_of(run, keys["key"], prompts, ends)
    solved = np.bincount(rows.prompts[rows.values >= 1], minlength=len(prompts))
    of_prompts = None if clusters is None else clusters.codes(prompts)
    return Run(
        name=name,
        inputs=run.facts.inputs,
        prompts=len(prompts),
        rollouts=int(rows.n.sum()),
        solve_rate=estimate(rows.rates, OF_RATE, clusters=of_prompts),
        passes=[of_draws(rows.n, solved, k, of_prompts) for k in draws],
        clusters=None if of_prompts is None else many(of_prompts),
    )


def _difference(name: str, pair: Matched, ends: tuple[float, float], clusters: Clusters | None) -> Difference:
    prompts = pair.both["key"]
    now, before = pair.rewards(ends)
    change = np.round(now.rates - before.rates, DIGITS)
    better, worse, same = counts_of(now.rates, before.rates)
    chance, moved = counts_by_chance(now, before)
    words = None if clusters is None else clusters.words(prompts)
    codes = None if clusters is None else clusters.codes(prompts)
    each = changes(now, before, change)
    every = of_prompts(pair, now, before, each, words)
    gained, lost = most_changed(every) if moved else ([], [])  # if not, all may be noise
    p = p_value(now, before) if codes is None else p_value_of_clusters(change, codes)
    smallest = detectable(change, codes)
    enough = None
    if smallest is not None:
        # The standard error falls with the root of the number of prompts, or of clusters like these.
        enough = math.ceil(len(prompts) * (smallest / POINTS) ** 2)
    return Difference(
        name=name,
        prompts=len(prompts),
        only_here=len(pair.scored[0]) - len(prompts),
        only_base=len(pair.scored[1]) - len(prompts),
        change=estimate(change, OF_CHANGE, clusters=codes),
        p=p,
        p_holm=None,
        better=better,
        worse=worse,
        same=same,
        better_by_chance=chance[0],
        worse_by_chance=chance[1],
        better_beyond_chance=int((each.sign > 0).sum()),
        worse_beyond_chance=int((each.sign < 0).sum()),
        detectable=smallest,
        prompts_for_2_points=enough,
        gained=gained,
        lost=lost,
        changed=listed(every, None, LISTED),
        every=every,
        clusters=None if codes is None else many(codes),
        cut_off=_cut_off(pair),
        graded=not of_two_values(now, before),
    )


def _cut_off(pair: Matched) -> tuple[float, float] | None:
    """The shares of the responses of both runs that are cut off, if these differ by more than chance over their prompts: by three standard errors."""
    shares, middles, variance = [], [], 0.0
    for run, keys in zip(pair.runs, pair.keys, strict=True):
        known = run.facts.truncated
        if known is None:
            return None
        of_prompts = pl.DataFrame({"key": keys["key"], "share": run.groups["truncated"]}).group_by("key").mean()
        each = of_prompts["share"].to_numpy()
        if len(each) < FEWEST_CLUSTERS:
            return None
        shares.append(known.share)
        middles.append(float(each.mean()))
        variance += float(each.var(ddof=1)) / len(each)
    now, before = shares
    is_much = max(shares) >= TRUNCATED and percent(now) != percent(before)
    return (now, before) if is_much and abs(middles[0] - middles[1]) > BEYOND * math.sqrt(variance) else None


# --- clusters ----------------------------------------------------------------------------------------------


def _clusters(name: str, run: Inspection, keys: pl.DataFrame) -> Clusters:
    """The clusters of a run; an error names the run."""
    try:
        return Clusters.of(run, keys)
    except DataError as error:
        error.inside(name)
        raise


def _of_clusters(
    column: str, runs: Sequence[Run], clusters: Mapping[str, Clusters], pairs: Mapping[str, Matched]
) -> list[str]:
    """Warnings of clusters that are too few, of prompts without one, or with another one in the base."""
    base, *_, newest = runs
    warnings = []
    fewest = min(run.clusters or 0 for run in runs)
    if fewest < FEWEST_CLUSTERS:
        from_on = f"intervals and p values begin with {FEWEST_CLUSTERS}"
        warnings.append(f"{fewest} values of {column} do not say how far prompts of others would vary: {from_on}")
    if newest.clusters == newest.prompts:
        warnings.append(f"no two prompts have the same value of {column}: none count together")
    for name, of_run in clusters.items():
        if of_run.without:
            warnings.append(f"{name}: {of_run.without:,} of the prompts have no {column}; these count together")
    for name, pair in pairs.items():
        prompts = pair.both["key"]
        others = clusters[name].words(prompts) != clusters[base.name].words(prompts)
        if others.any():
            what = f"another {column} in {base.name}: that of {name} counts"
            warnings.append(f"{others.sum():,} of the prompts have {what}")
    return warnings


# --- in words ----------------------------------------------------------------------------------------------


def said(base: str, differences: Sequence[Difference], cluster: str | None) -> str:
    """What the differences show, as a sentence to paste."""
    return f"{'; '.join(sentences(base, differences, cluster))}."


def sentences(base: str, differences: Sequence[Difference], cluster: str | None) -> list[str]:
    """What each difference shows, without the dot; prompts that change in both directions are not hidden in a mean that stays."""
    parts = []
    short = short_names([base, *(one.name for one in differences)])
    for one in differences:
        of_clusters = "" if cluster is None else f"{one.clusters:,} values of {cluster}"
        part = in_a_sentence(
            short[one.name],
            short[base],
            one.prompts,
            one.change,
            one.p_holm,
            of_clusters,
            graded=one.graded,
            of_both=one.only_here + one.only_base > 0,
        )
        is_mixed = one.better and one.worse and (one.gained or one.lost)
        if one.p_holm is not None and one.p_holm > SURE and is_mixed:
            part += f", but its prompts change by more than chance: {_mixed_words(one)}"
        elif other_way := _other_way(one):
            part += f", though {other_way:,} of them {'is' if other_way == 1 else 'are'} {_word(-one.change.mean)} beyond chance"
        if one.cut_off is not None:
            now, before = one.cut_off
            part += f". {percent(now)} of its responses are cut off, {percent(before)} of those of {short[base]}"
        parts.append(part)
    return parts


def short_names(names: Sequence[str]) -> dict[str, str]:
    """The names of runs; of three and more without the folders, the file and the suffix that all of them share.

    >>> short_names(["data/ckpt_100.jsonl", "data/ckpt_200.jsonl", "data/ckpt_300.jsonl"])["data/ckpt_200.jsonl"]
    'ckpt_200'
    >>> short_names(["ckpt_100/rollouts", "ckpt_200/rollouts", "ckpt_300/rollouts"])["ckpt_200/rollouts"]
    'ckpt_200'
    """
    parts = [name.split("/") for name in names]
    if len(names) < MANY:
        return dict(zip(names, names, strict=True))
    for end in (0, -1):
        while min(map(len, parts)) > 1 and len({part[end] for part in parts}) == 1:
            for part in parts:
                del part[end]
    short = ["/".join(part) for part in parts]
    suffix = re.search(r"(\.[a-z]+)*$", short[0])
    common = suffix[0] if suffix else ""
    if all(len(common) < len(name) and name.endswith(common) for name in short):
        short = [name.removesuffix(common) for name in short]
    return dict(zip(names, short, strict=True))


def sure_words(of: Difference) -> str:
    """How many prompts are better or worse beyond chance, in words; empty if none is."""
    counts = ((of.better_beyond_chance, "better"), (of.worse_beyond_chance, "worse"))
    return " and ".join(f"{many:,} {word}" for many, word in counts if many)


def _mixed_words(of: Difference) -> str:
    """What changes of prompts in both directions show beside a mean that stays."""
    sure = of.better_beyond_chance + of.worse_beyond_chance
    if not sure:
        return "their changes in both directions are larger than those of two samples of one policy"
    first = of.better_beyond_chance or of.worse_beyond_chance
    is_or_are = "is" if first == 1 else "are"
    words = sure_words(of).replace(" ", f" {is_or_are} ", 1)
    return f"{words}, {'' if sure == 1 else 'each '}beyond chance by itself"


def _other_way(of: Difference) -> int:
    """How many prompts change beyond chance against the mean."""
    return of.worse_beyond_chance if of.change.mean > 0 else of.better_beyond_chance


def _word(change: float) -> str:
    return "better" if change > 0 else "worse"
