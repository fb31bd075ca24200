"""The figures of a report as counts: at most hundreds of numbers each, for any number of rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl

from grpo_cli.engine.plan_parts import weighted_sum
from grpo_cli.render.inspect import solved_words
from grpo_cli.runs.group_rows import solved_or_not
from grpo_cli.stats.courses import Course
from grpo_cli.stats.difficulty import AtSize
from grpo_cli.stats.facts import BARS, Lines, Number, ValueCounts, at_ends, count_by_kind, reward_range
from grpo_cli.stats.inspection import Inspection, RewardColumn, truncated
from grpo_cli.stats.intervals import Estimate, estimate
from grpo_cli.stats.rescored import Rescored
from grpo_cli.stats.runs import Runs
from grpo_cli.stats.trends import Trend, courses_of_lines, over_steps, thinned
from grpo_cli.stats.verdicts import EQUAL_AT, course, listed, percent, steps_named, three
from grpo_cli.values.key_text import cut, labels_of

# Outcomes of a group and its rows, in stacking order.
OUTCOMES = ("varies", *EQUAL_AT, "singleton or no reward")
RANGES = 8  # of lengths, with as many rollouts each
FINISHED = "finished"
TRUNCATED = "truncated"
LABEL = 34  # characters of a key on an axis
POINTS = 200  # points in a trend
CATEGORIES = 6  # whose way over the steps a caption tells
KIND = {True: ("lines", "over"), False: ("bars", "by")}  # of a figure over steps, or by categories
OF_ONE_RUN = ("solve_rates", "lengths", "rewards", "sizes", "advantages", "other_sizes")
SLIGHT = 0.1  # correlations below this are not worth a word


@dataclass(frozen=True)
class Figure:
    """One figure: its kind, its words and its numbers."""

    name: str
    kind: str
    title: str
    caption: str
    lines: Lines  # a line's `where` is the condition of the groups that it counts
    x: str  # what the axes mean
    y: str
    more: bool = False  # whether it is a detail


def figures(inspection: Inspection) -> list[Figure]:
    """All figures for which there is data."""
    main = [
        *_beside(inspection.beside),
        *_course_of_run(inspection),
        *_trends(inspection),
        *_off_policy(inspection),
        _solve_rates(inspection),
        _passes(inspection),
        *_components(inspection),
        _lengths(inspection),
    ]
    details = [_rewards(inspection), _sizes(inspection), _advantages(inspection), _other_sizes(inspection)]
    rest = [replace(figure, more=True) for figure in details if figure]
    drawn = [figure for figure in (*main, *rest) if figure and figure.lines]
    beside = inspection.beside
    if not isinstance(beside, Runs):
        return drawn
    of = beside.runs[-1].name  # the others show each run
    return [replace(one, title=f"{one.title} of {of}") if one.name in OF_ONE_RUN else one for one in drawn]


# --- counting ----------------------------------------------------------------------------------------------


def _group_outcomes(inspection: Inspection) -> np.ndarray:
    """The place in OUTCOMES of every group."""
    groups = inspection.groups
    several = (groups["scored"] > 1).to_numpy()
    constant = groups["constant"].to_numpy()
    worst, best = at_ends(groups["max"].to_numpy(), reward_range(groups))
    places = np.select([~several, ~constant, best, worst], [4, 0, 1, 2], 3)
    return places.astype(np.int8)


def _row_outcomes(inspection: Inspection) -> np.ndarray:
    """The place in OUTCOMES of the group of every row."""
    return _group_outcomes(inspection).take(inspection.raw.rows["group"].to_numpy())


# --- one function for each figure --------------------------------------------------------------------------


def _rewards(inspection: Inspection) -> Figure:
    facts = inspection.facts
    summary = facts.summary
    raw = inspection.raw
    size = summary.group_sizes
    units = f"{summary.unit}s"
    every = summary.rows if summary.unit == "row" else summary.rollouts
    caption = f"{facts.live_rows:,} of {every:,} {units} are in groups with a gradient."
    if size.min == size.max:
        caption += f" Every group has {size.max:,} {units}."
    lines = count_by_kind(raw.rows[".reward"], _row_outcomes(inspection), OUTCOMES)
    axis = weighted_sum(inspection.narrow.reward_names, raw.plan.rewards.weights)
    return Figure("rewards", "stacked", "Rewards", caption, lines, x=axis, y="rows")


def _components(inspection: Inspection) -> list[Figure]:
    """A figure for each of several reward columns."""
    names = inspection.narrow.reward_names
    if len(names) < 2:  # noqa: PLR2004 - a single one is the reward
        return []
    outcomes = _row_outcomes(inspection)
    drawn = []
    for k, name in enumerate(names):
        rewards = inspection.narrow.table[f"reward.{k}"].cast(pl.Float64)
        lines = count_by_kind(rewards, outcomes, OUTCOMES)
        caption = _component_says(name, inspection.facts.rewards[name])
        drawn.append(Figure(f"component_{k}", "stacked", f"Rewards, {name}", caption, lines, x=name, y="rows"))
    return drawn


def _component_says(name: str, column: RewardColumn) -> str:
    mean = column.values.mean
    share = column.zero_variance_share
    if mean is None:
        return f"{name} alone."
    same = "" if share is None else f" It is the same within {percent(share)} of the groups."
    return f"{name} alone, mean {three(mean)}.{same}"


def _solve_rates(inspection: Inspection) -> Figure | None:
    rates = inspection.facts.difficulty
    if rates is None:
        return None
    between = rates.between
    spread = ""
    names = ["never"]
    where = ["solve_rate == 0"]
    if isinstance(between, ValueCounts):
        steps = len(between.values) + 1
        half, digits = 1 / steps / 2, len(str(steps))  # enough to say which of the steps
        for value in between.values:
            low = value - half
            high = value + half
            names.append(f"{value:.4g}")
            where.append(f"{low:.{digits}f} < solve_rate < {high:.{digits}f}")
    else:
        for low, high in pairwise(between.edges):
            names.append(f"{low:g} to {high:g}")
            where.append(f"{low:g} {'<=' if low else '<'} solve_rate < {high:g}")
        of = inspection.facts.summary.group_sizes
        spread = " Groups of different sizes are smoothed across bars." if of.min < of.max else ""
    varies, always, never, *_ = OUTCOMES
    kinds = [never, *[varies] * (len(names) - 1), always]
    sizes = [rates.never, *between.counts, rates.always]
    bars = zip([*names, "always"], kinds, sizes, [*where, "solve_rate == 1"], strict=True)
    fields = ("value", "kind", "count", "where")
    lines = [dict(zip(fields, bar, strict=True)) for bar in bars]
    useful = f"{rates.useful:,} of {rates.groups:,} groups" if rates.groups > 1 else f"{rates.useful} of 1 group"
    caption = (
        f"Solve rate of 20% to 80%: {useful}; never solved: {rates.never:,}; always solved: {rates.always:,}.{spread}"
    )
    if not solved_or_not(inspection):
        caption += " A solve rate is the mean reward of a group, from the worst reward (0) to the best (1)."
    axis = "solve rate of a group"
    return Figure("solve_rates", "stacked", "Solve rates", caption, lines, x=axis, y="groups")


def _passes(inspection: Inspection) -> Figure | None:
    """What k rollouts of each group solve, where --pass-at asks."""
    draws = inspection.facts.draws
    if draws is None:
        return None
    lines = []
    for kind, found in (("at least one is solved", draws.pass_at), ("all are solved", draws.pass_all)):
        lines += [_estimate(f"k = {k}", kind, one) for k, one in found.items() if one is not None]
    solved = solved_words(inspection.facts)
    split = f"{draws.always:,} groups always solved{solved}, {draws.sometimes:,} sometimes, {draws.never:,} never"
    caption = f"The mean over groups with k rollouts or more, with its 95% interval. {split}."
    return Figure("passes", "estimates", "Of k rollouts of a group", caption, lines, x="", y="share of groups")


def _sizes(inspection: Inspection) -> Figure | None:
    summary = inspection.facts.summary
    size = summary.group_sizes
    if size.min == size.max:
        return None  # a single bar: the caption of the rewards says it
    usual, many = max(size.counts.items(), key=itemgetter(1))
    lines = count_by_kind(inspection.groups["size"].cast(pl.Float64), _group_outcomes(inspection), OUTCOMES)
    for line in lines:
        if "value" in line:
            line["where"] = f"size == {line['value']:g}"
    sizes = f"Groups have {size.min:,} to {size.max:,} {summary.unit}s"
    share = percent(many / summary.groups)
    caption = f"{sizes}; {share} have {int(usual):,}."
    return Figure("sizes", "stacked", "Group sizes", caption, lines, x="group size", y="groups")


def _advantages(inspection: Inspection) -> Figure:
    values = inspection.scored.rows[".advantage"]
    lines = count_by_kind(values, _row_outcomes(inspection), OUTCOMES)
    title = f"Advantages, {inspection.scored.plan.method}"
    return Figure("advantages", "stacked", title, _advantages_say(values), lines, x="advantage", y="rows")


def _advantages_say(values: pl.Series) -> str:
    share = percent(np.mean(values.to_numpy() == 0))
    zero = f"{share} of the rows have the advantage 0 and no gradient"
    others = values.filter(values.is_finite() & (values != 0)).to_numpy()
    if not len(others):
        return f"{zero}."
    return f"{zero}; the others have {three(others.min())} to {three(others.max())}."


def _course_of_run(inspection: Inspection) -> list[Figure]:
    """The facts over the steps, where those over another column were asked for."""
    steps = inspection.facts.steps
    if steps is None:
        return []
    over = {**inspection.columns, "by": steps.column}
    run = replace(inspection.telling(by=steps), columns=over)
    return [replace(figure, name=f"{figure.name}_steps") for figure in _trends(run)]


def _trends(inspection: Inspection) -> list[Figure]:
    """The facts over the steps, or by categories: of these the ones with the largest shares without a gradient."""
    trend = inspection.facts.by
    if trend is None or len(trend.lines) < 2:  # noqa: PLR2004 - a line needs two points
        return []
    by = trend.column
    is_ordered = over_steps(trend.lines)
    if is_ordered:
        lines = thinned(trend.lines, POINTS)
    else:
        lines = sorted(trend.lines, key=lambda line: -(line.zero_variance or 0.0))[:BARS]
    runs = _runs_over(inspection, trend if is_ordered else replace(trend, lines=lines))
    bands = _bands(inspection, {str(line.value) for line in lines})
    band = (
        f" {'Band' if is_ordered else 'Line'}: 95% interval over the groups of a {'step' if is_ordered else 'bar'}."
        if bands
        else ""
    )
    words = ("Mean reward", "The mean reward", "mean reward")
    reward = _over_runs("mean_reward", runs, "mean", words, more=band)
    own = next(iter(runs))
    for line in reward.lines:
        if line.get("kind", "") == own:
            line.update(bands.get(str(line["value"]), {}))
    if not is_ordered:
        reward = replace(reward, caption=reward.caption + _over_steps(lines))
    words = ("Groups without a gradient", "The share of groups without a gradient", "share of groups")
    shares = _over_runs("zero_variance", runs, "zero_variance", words, shown=percent)
    words = ("Length", "The mean length", "mean length")
    lengths = _over_runs("length_over", runs, "length", words)
    words = ("Spread within groups", "The standard deviation within groups", "mean std of a group")
    spread = _over_runs("spread_over", runs, "group_std", words, more=" Groups at 0 have no gradient.")
    drawn = [reward, shares, lengths, spread, _ended(inspection, replace(trend, lines=lines))]
    left_out = len(trend.lines) - len(lines)
    if not is_ordered and left_out:
        most = f" {left_out:,} values with smaller shares without a gradient are not drawn."
        drawn = [replace(one, caption=one.caption + most) for one in drawn]
    if by.isidentifier():
        where = {str(line.value): f"{by} == {line.value!r}" for line in lines if type(line.value) in {int, str}}
        for figure in drawn:
            for line in figure.lines:
                condition = where.get(str(line["value"]), "")
                if condition and "\\" not in condition:  # the page reads no escapes
                    line["where"] = condition
    return drawn


def _over_steps(lines: Sequence[Any]) -> str:
    """How the mean reward of each category goes over the steps, of the first few; empty without steps."""
    known = [f"{cut(str(line.value), LABEL)} {course(line.course, three)}" for line in lines if line.course is not None]
    more = [f"{len(known) - CATEGORIES} more"] if len(known) > CATEGORIES else []
    return f" Over the steps {listed([*known[:CATEGORIES], *more])}." if known else ""


def _runs_over(inspection: Inspection, own: Trend) -> dict[str, Trend]:
    """The trend, and those of the runs beside it, by the names of the runs; without others there is no name."""
    beside = inspection.beside
    if not isinstance(beside, Runs):
        return {"": own}
    known = {name: one for name, one in beside.trends.items() if one is not None and one.column == own.column}
    if not known:
        return {"": own}
    if not over_steps(own.lines):
        values = [line.value for line in own.lines]
        for name, one in known.items():
            known[name] = replace(one, lines=[line for line in one.lines if line.value in values])
    return {beside.runs[-1].name: own, **known}


def _over_runs(
    name: str, runs: Mapping[str, Trend], fact: str, words: tuple[str, str, str],
    *, more: str = "", shown: Callable[[float], str] = three,
) -> Figure:  # fmt: skip
    """A fact of the trend of each run."""
    lines = {run: one.lines for run, one in runs.items()}
    courses = {run: one.courses.get(fact) for run, one in runs.items()}
    by = next(iter(runs.values())).column
    return _over(name, by, lines, fact, words, courses, more=more, shown=shown)


def _over(
    name: str, by: str, runs: Mapping[str, Sequence[Any]], fact: str, words: tuple[str, str, str], courses: Mapping[str, Course | None],
    *, more: str = "", shown: Callable[[float], str] = three,
) -> Figure:  # fmt: skip
    """A fact of each run over the values of a column; the words are its title, what it is and its axis."""
    title, what, axis = words
    field = "share" if shown is percent else "mean"
    drawn = []
    said = []
    for at, (run, lines) in enumerate(runs.items()):
        kind = {"kind": run} if run else {}
        for line in thinned(lines, POINTS):
            number = getattr(line, fact)
            if number is not None:
                drawn.append({"value": _axis_value(line.value), field: number, **kind})
        of_run = courses.get(run)
        goes = _between(lines, fact, shown) if of_run is None else course(of_run, shown, steps_named(by))
        if goes:
            said.append(f"{run}: {goes}" if at else f"{what} {goes}")
    caption = "; ".join(said) + "." * bool(said) + more
    drawn_as, over = KIND[over_steps(next(iter(runs.values()), ()))]
    return Figure(name, drawn_as, f"{title} {over} {by}", caption, drawn, x=by, y=axis)


def _between(lines: Sequence[Any], name: str, shown: Callable[[float], str]) -> str:
    """Between which categories a number lies."""
    known = [(value, line.value) for line in lines if (value := getattr(line, name)) is not None]
    if not known or over_steps(lines):
        return ""
    known.sort(key=itemgetter(0))
    (least, low), (most, high) = known[0], known[-1]
    return f"is between {shown(least)} ({cut(str(low), LABEL)}) and {shown(most)} ({cut(str(high), LABEL)})"


def _off_policy(inspection: Inspection) -> list[Figure]:
    """How the policy drifts from the one that sampled, by step and by version."""
    known = inspection.facts.off_policy
    if known is None:
        return []
    words = ("Off-policy", "KL(old, new) of a token", "KL (k3) of a token")
    return [
        _over("off_policy" + "_" * at, by.column, {"": by.lines}, "k3", words, {"": courses_of_lines(by.lines, ["k3"]).get("k3")})
        for at, by in enumerate(known.by) if len(by.lines) > 1
    ]  # fmt: skip


def _bands(inspection: Inspection, shown: Collection[str]) -> dict[str, dict[str, Number]]:
    """The 95 % interval of the mean reward at these values of the trend: rows of a group are alike, so groups are the sample."""
    ends = inspection.facts.summary.reward
    first = inspection.narrow.groups.first
    if inspection.by is None or ends.min is None or ends.max is None:
        return {}
    value = pl.Series("value", map(str, inspection.by.gather(first)), pl.String)
    means = inspection.groups.select("mean", "scored").with_columns(value)
    has_mean = pl.col("mean").is_finite() & (pl.col("scored") > 0)
    imagined = (ends.min, ends.min, ends.max, ends.max)
    bands = {}
    for (at,), groups in means.filter(has_mean, pl.col("value").is_in([*shown])).group_by("value"):
        rows = groups["scored"].to_numpy()
        sizes = rows / rows.mean()
        found = estimate(groups["mean"].to_numpy() * sizes, imagined, sizes)
        if found.low is not None:
            bands[at] = {"low": found.low, "high": found.high}
    return bands


def _ended(inspection: Inspection, trend: Trend) -> Figure:
    """The shares of responses that were cut off, and of rows without a reward, if there are any."""
    shares = {"without a reward": [line.unscorable / line.rows for line in trend.lines]}
    if "stop" in inspection.columns:
        shares["truncated"] = [line.truncated or 0.0 for line in trend.lines]
    kinds = {}
    courses: dict[str, Course | None] = {}
    for kind, of in shares.items():
        if any(of):
            lines = zip(trend.lines, of, strict=True)
            kinds[kind] = [SimpleNamespace(value=line.value, rows=line.rows, share=share) for line, share in lines]
            courses[kind] = courses_of_lines(kinds[kind], ["share"]).get("share")
    if "truncated" in courses:
        courses["truncated"] = trend.courses.get("truncated")
    words = ("Truncated or failed", f"The share {next(iter(kinds), '')}", "share of rows")
    return _over("ended", trend.column, kinds, "share", words, courses, shown=percent)


def _axis_value(value: Any) -> Any:
    """A value of a trend as an axis takes it: a number or a text."""
    return value if type(value) in {int, float, str} else str(value)


def _lengths(inspection: Inspection) -> Figure | None:
    """The mean reward of rollouts of similar length, and of those that were cut off."""
    length = inspection.facts.length
    if length is None:
        return None
    cut_off = truncated(inspection)
    rows = inspection.rows.with_columns(cut=pl.lit(0.0) if cut_off is None else pl.Series(cut_off))
    known = rows.filter(pl.col(".reward").is_finite(), pl.col("length").is_finite())
    if not len(known):
        return None
    ended = known.filter(pl.col("cut") == 0)
    lengths = ended["length"].to_numpy()
    shares = np.linspace(0, 1, RANGES + 1)
    edges = np.unique(np.quantile(lengths, shares, method="nearest")) if len(ended) else lengths
    of = np.searchsorted(edges[1:-1], lengths, side="right")
    lines = [_of_range(inspection, ended.filter(pl.Series(of == at)), FINISHED) for at in range(max(len(edges) - 1, 1))]
    lines.append(_of_range(inspection, known.filter(pl.col("cut") > 0), TRUNCATED))
    caption = _length_says(length.within_groups)
    is_rate = solved_or_not(inspection) and reward_range(inspection.groups) == (0.0, 1.0)
    title, axis = ("Solve rate by length", "solve rate") if is_rate else ("Mean reward by length", "mean reward")
    if any(line.get("low") is not None for line in lines if line):
        caption += " A bar is the 95% interval, over groups."
    return Figure("lengths", "ranges", title, caption, [line for line in lines if line], x=length.column, y=axis)


def _of_range(inspection: Inspection, rows: pl.DataFrame, kind: str) -> dict[str, Any]:
    """The mean reward of these rows with its interval, in which rows of a group count together; nothing without rows."""
    if not len(rows):
        return {}
    lengths = rows["length"]
    line = {"from": lengths.min(), "to": lengths.max(), "at": lengths.median(), "mean": rows[".reward"].mean()}
    line |= {"count": len(rows), "kind": kind, "low": None, "high": None}
    ends = inspection.facts.summary.reward
    if ends.min is not None and ends.max is not None:
        groups = rows.group_by("group", maintain_order=True).agg(sum=pl.col(".reward").sum(), rows=pl.len())
        each = groups["rows"].to_numpy()
        imagined = (ends.min, ends.min, ends.max, ends.max)
        found = estimate(groups["sum"].to_numpy() / each.mean(), imagined, each / each.mean())
        line |= {"low": found.low, "high": found.high}
    return line


def _length_says(within: float | None) -> str:
    if within is None:
        return "Whether longer responses get higher rewards cannot be said: no group has two lengths and two rewards."
    get = "get higher" if within > 0 else "get lower"
    if abs(within) < SLIGHT:
        get = "do not get higher"
    return f"Longer responses {get} rewards (r = {within:+z.2f} within groups).".replace("+0.00", "0.00")


def _other_sizes(inspection: Inspection) -> Figure:
    words = {"sample": "subsampled from the groups", "model": "fitted solve rates", "bound": "lower bound"}
    sizes = inspection.facts.at_size
    interval = ""
    lines = []
    for at in sizes:
        line = {"value": at.size, "share": at.alive, "kind": words[at.found]}
        if at.low is not None:
            line |= {"low": at.low, "high": 1.0 if at.high is None else at.high}
            interval = " A bar is the 95% interval."
        lines.append(line)
    ends = sizes[:: max(len(sizes) - 1, 1)]
    seen = ", ".join(f"{_alive(at)} at {at.size}" for at in ends)
    caption = f"The share of groups that would have a gradient with another number of rows: {seen}.{interval}"
    return Figure("other_sizes", "lines", "Other group sizes", caption, lines, x="group size", y="share of groups")


def _alive(at: AtSize) -> str:
    share = percent(at.alive)
    is_bound = at.found == "bound" and 0 < at.alive < 1 and share[0].isdigit()
    return f">={share}" if is_bound else share


def _beside(other: object) -> list[Figure]:
    """What differs in another run, in several, or with another reward, if there are any."""
    if isinstance(other, Runs):
        return _of_runs(other)
    return [_rescored(other)] if isinstance(other, Rescored) else []


def _of_runs(compared: Runs) -> list[Figure]:
    """What several runs solve, and how far they are from the first."""
    runs = compared.runs
    differences = compared.differences
    rates = []
    for run in runs:
        shown: dict[str, Estimate | None] = {"solve rate": run.solve_rate}
        shown |= {f"pass@{one.k}": one.pass_at for one in run.passes}
        shown |= {f"pass^{one.k}": one.pass_all for one in run.passes}
        rates += [_estimate(run.name, kind, found) for kind, found in shown.items() if found is not None]
    together = f" Prompts with the same {compared.cluster} count together." if compared.cluster else ""
    said = f"The mean over the prompts of each run, with its 95% interval.{together}"
    solved = Figure("run_rates", "estimates", "Solve rates of the runs", said, rates, x="", y="share of prompts")
    base = runs[0].name
    apart = [_estimate(one.name, f"change from {base}", one.change) for one in differences]
    said = "The change over the prompts of both runs, with its 95% interval. If it includes 0, other prompts may not change that way."
    said += together
    for one in differences:
        for word, prompts in (("gained", one.gained), ("lost", one.lost)):
            if prompts:
                labels = labels_of([prompt.key for prompt in prompts], LABEL)
                labelled = zip(labels, prompts, strict=True)
                changes = [f"{label} ({prompt.shrunken:+.2f})" for label, prompt in labelled]
                said += f" {one.name} {word} most on {', '.join(changes)}."
    return [solved, Figure("run_changes", "estimates", f"Difference from {base}", said, apart, x="", y="change")]


def _estimate(run: str, kind: str, found: Estimate) -> dict[str, Any]:
    return {"value": run, "kind": kind, "share": found.mean, "low": found.low, "high": found.high}


def _rescored(said: Rescored) -> Figure:
    """How another reward of the same rollouts differs."""
    up = said.reward.up
    down = said.reward.down
    same = said.agreement.share
    title = "Reward before, and what became of it"
    caption = f"{up:,} rewards are higher now (better), {down:,} lower (worse); {same:.1%} are the same."
    return Figure("rescored", "stacked", title, caption, [*said.reward.changes], x="reward before", y="rollouts")
