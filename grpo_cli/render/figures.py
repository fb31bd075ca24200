"""The figures of a report as counts: at most hundreds of numbers each, for any number of rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import FEW
from grpo_cli.engine.plan_parts import weighted_sum
from grpo_cli.read.known_names import CUT_OFF
from grpo_cli.stats.difficulty import AtSize
from grpo_cli.stats.facts import BARS, Lines, Number, ValueCounts, at_ends, bins_of, count_by_kind, reward_range
from grpo_cli.stats.inspection import Inspection, RewardColumn
from grpo_cli.stats.intervals import Estimate, estimate
from grpo_cli.stats.rescored import Rescored
from grpo_cli.stats.runs import Runs
from grpo_cli.stats.trends import Trend, TrendLine, ends, over_steps, thinned
from grpo_cli.stats.verdicts import EQUAL_AT, course, percent, three
from grpo_cli.values.key_text import cut, labels_of

# Outcomes of a group and its rows, in stacking order.
OUTCOMES: Final = ("varies", *EQUAL_AT, "singleton or unscored")
TILES: Final = (32, 20)  # bins of the length and of the reward
LABEL: Final = 34  # characters of a key on an axis
POINTS: Final = 200  # points in a trend
KIND: Final = {True: ("lines", "over"), False: ("bars", "by")}  # of a figure over steps, or by categories
SLIGHT: Final = 0.1  # correlations below this are not worth a word


@dataclass(frozen=True, slots=True)
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
        *_components(inspection),
        _lengths(inspection),
    ]
    details = [_rewards(inspection), _sizes(inspection), _advantages(inspection), _other_sizes(inspection)]
    rest = [replace(figure, more=True) for figure in details if figure is not None]
    return [figure for figure in (*main, *rest) if figure is not None and figure.lines]


# --- counting ----------------------------------------------------------------------------------------------


def _group_outcomes(inspection: Inspection) -> np.ndarray[Any, np.dtype[np.int8]]:
    """The place in OUTCOMES of every group."""
    groups = inspection.groups
    several, constant = (groups["scored"] > 1).to_numpy(), groups["constant"].to_numpy()
    worst, best = at_ends(groups["max"].to_numpy(), reward_range(groups))
    return np.select([~several, ~constant, best, worst], [4, 0, 1, 2], 3).astype(np.int8)


def _row_outcomes(inspection: Inspection) -> np.ndarray[Any, np.dtype[np.int8]]:
    """The place in OUTCOMES of the group of every row."""
    return _group_outcomes(inspection).take(inspection.raw.rows["group"].to_numpy())


# --- one function for each figure --------------------------------------------------------------------------


def _rewards(inspection: Inspection) -> Figure:
    lines = count_by_kind(inspection.raw.rows[".reward"], _row_outcomes(inspection), OUTCOMES)
    facts, size = inspection.facts, inspection.facts.group_sizes
    units, every = f"{facts.unit}s", facts.rows if facts.unit == "row" else facts.rollouts
    same = f" Every group has {size.max:,} {units}." if size.min == size.max else ""
    caption = f"{facts.live_rows:,} of {every:,} {units} are in groups with a gradient.{same}"
    return Figure(
        "rewards",
        "stacked",
        "Rewards",
        caption,
        lines,
        x=weighted_sum(inspection.narrow.reward_names, inspection.raw.plan.rewards.weights),
        y="rows",
    )


def _components(inspection: Inspection) -> list[Figure]:
    """A figure for each of several reward columns."""
    names = inspection.narrow.reward_names
    if len(names) < 2:  # noqa: PLR2004 - a single one is the reward
        return []
    outcomes = _row_outcomes(inspection)
    return [
        Figure(
            f"component_{k}",
            "stacked",
            f"Rewards, {name}",
            _component_says(name, inspection.facts.rewards[name]),
            count_by_kind(inspection.narrow.table[f"reward.{k}"].cast(pl.Float64), outcomes, OUTCOMES),
            x=name,
            y="rows",
        )
        for k, name in enumerate(names)
    ]


def _component_says(name: str, column: RewardColumn) -> str:
    mean, share = column.mean, column.zero_variance_share
    same = "" if share is None else f" It is the same within {percent(share)} of the groups."
    return f"{name} alone, mean {three(mean)}.{same}" if mean is not None else f"{name} alone."


def _solve_rates(inspection: Inspection) -> Figure | None:
    rates = inspection.facts.difficulty
    if rates is None:
        return None
    between, spread = rates.between, ""
    if isinstance(between, ValueCounts):
        names = [f"{value:.4g}" for value in between.values]
        step, digits = 1 / (len(names) + 1), len(str(len(names) + 1))  # enough to say which of the steps
        ends = [(f"{value - step / 2:.{digits}f}", f"{value + step / 2:.{digits}f}") for value in between.values]
        where = [f"{low} < solve_rate < {high}" for low, high in ends]
    else:
        names = [f"{low:g} to {high:g}" for low, high in pairwise(between.edges)]
        where = [f"{low:g} {'<=' if low else '<'} solve_rate < {high:g}" for low, high in pairwise(between.edges)]
        spread = " Groups of different sizes are smoothed across bars."
    kinds = [OUTCOMES[2], *[OUTCOMES[0]] * len(names), OUTCOMES[1]]
    sizes = [rates.never, *between.counts, rates.always]
    bars = (["never", *names, "always"], kinds, sizes, ["solve_rate == 0", *where, "solve_rate == 1"])
    lines = [{"value": n, "kind": k, "count": c, "where": w} for n, k, c, w in zip(*bars, strict=True)]
    caption = f"{rates.useful:,} of {rates.groups:,} groups have a solve rate of 20% to 80%, {rates.never:,} are never solved, {rates.always:,} always.{spread}"
    return Figure(
        "solve_rates",
        "stacked",
        "Solve rates",
        caption,
        lines,
        x="mean reward of a group, from worst to best",
        y="groups",
    )


def _sizes(inspection: Inspection) -> Figure | None:
    size = inspection.facts.group_sizes
    if size.min == size.max:
        return None  # a single bar: the caption of the rewards says it
    usual, many = max(size.counts.items(), key=itemgetter(1))
    lines = count_by_kind(inspection.groups["size"].cast(pl.Float64), _group_outcomes(inspection), OUTCOMES)
    lines = [{**line, "where": f"size == {line['value']:g}"} if "value" in line else line for line in lines]
    return Figure(
        "sizes",
        "stacked",
        "Group sizes",
        f"Groups have {size.min:,} to {size.max:,} {inspection.facts.unit}s; {percent(many / inspection.facts.groups)} have {int(usual):,}.",
        lines,
        x="group size",
        y="groups",
    )


def _advantages(inspection: Inspection) -> Figure:
    values = inspection.scored.rows[".advantage"]
    return Figure(
        "advantages",
        "stacked",
        f"Advantages, {inspection.scored.plan.method}",
        _advantages_say(values),
        count_by_kind(values, _row_outcomes(inspection), OUTCOMES),
        x="advantage",
        y="rows",
    )


def _advantages_say(values: pl.Series) -> str:
    known = values.filter(values.is_finite() & (values != 0)).to_numpy()
    zero = f"{percent(np.mean(values.to_numpy() == 0))} of the rows have the advantage 0 and no gradient"
    return zero + (f"; the others have {three(known.min())} to {three(known.max())}." if len(known) else ".")


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
    by, is_ordered = trend.column, over_steps(trend.lines)
    if is_ordered:
        lines = thinned(trend.lines, POINTS)
    else:
        lines = sorted(trend.lines, key=lambda line: -(line.zero_variance or 0.0))[:BARS]
    runs = _runs_over(inspection, by, trend.lines if is_ordered else lines)
    reward = _over("mean_reward", by, runs, "mean", ("Mean reward", "The mean reward", "mean reward"))
    bands = _bands(inspection, {str(line.value) for line in lines})
    band = " With the 95% interval, by groups." if bands else ""
    own = next(iter(runs))
    means = [
        {**line, **bands.get(str(line["value"]), {})} if line.get("kind", "") == own else line for line in reward.lines
    ]
    words = ("Groups without a gradient", "The share of groups without a gradient", "share of groups")
    shares = _over("zero_variance", by, runs, "zero_variance", words, shown=percent)
    spread = ("Spread within groups", "The standard deviation within groups", "mean std of a group")
    left_out = len(trend.lines) - len(lines)
    most = f" {left_out:,} values with smaller shares without a gradient are not drawn."
    drawn = [
        replace(reward, caption=reward.caption + band, lines=means),
        shares,
        _over("length_over", by, runs, "length", ("Length", "The mean length", "mean length")),
        _over("spread_over", by, runs, "group_std", spread, more=" Groups at 0 have no gradient."),
        _ended(inspection, by, lines),
    ]
    if not is_ordered and left_out:
        drawn = [replace(one, caption=one.caption + most) for one in drawn]
    where = {str(line.value): f"{by} == {line.value!r}" for line in lines if type(line.value) in {int, str}}
    for line in (line for figure in drawn for line in figure.lines):
        condition = where.get(str(line["value"]), "")
        if condition and by.isidentifier() and "\\" not in condition:  # the page reads no escapes
            line["where"] = condition
    return drawn


def _runs_over(inspection: Inspection, by: str, lines: Sequence[TrendLine]) -> dict[str, Sequence[TrendLine]]:
    """These lines, and those of the runs beside them, by the names of the runs; without others there is no name."""
    beside = inspection.beside
    own, others = "", dict[str, Trend | None]()
    if isinstance(beside, Runs):
        own, others = beside.runs[-1].name, {**beside.trends}
    known = {name: trend.lines for name, trend in others.items() if trend is not None and trend.column == by}
    if not known:
        return {"": lines}
    if not over_steps(lines):
        values = [line.value for line in lines]
        known = {name: [line for line in some if line.value in values] for name, some in known.items()}
    return {own: lines, **known}


def _over(
    name: str, by: str, runs: Mapping[str, Sequence[Any]], fact: str, words: tuple[str, str, str],
    *, more: str = "", shown: Callable[[float], str] = three,
) -> Figure:  # fmt: skip
    """A fact of each run over the values of a column; the words are its title, what it is and its axis."""
    title, what, axis = words
    field = "share" if shown is percent else "mean"
    lines = [
        {"value": _axis_value(line.value), field: number, **({"kind": run} if run else {})}
        for run, some in runs.items() for line in thinned(some, POINTS) if (number := getattr(line, fact)) is not None
    ]  # fmt: skip
    courses = [
        f"{run}: {said}" if at else f"{what} {said}"
        for at, (run, some) in enumerate(runs.items()) if (said := _course(some, fact, shown))
    ]  # fmt: skip
    caption = "; ".join(courses) + "." * bool(courses) + more
    kind, over = KIND[over_steps(next(iter(runs.values()), ()))]
    return Figure(name, kind, f"{title} {over} {by}", caption, lines, x=by, y=axis)


def _course(lines: Sequence[Any], name: str, shown: Callable[[float], str]) -> str:
    """How a number goes from the first fifth of the lines to the last, or between which categories it lies."""
    if over_steps(lines):
        pair = ends(lines, name)
        return "" if pair is None else course(pair, shown)
    known = [(value, line.value) for line in lines if (value := getattr(line, name)) is not None]
    known.sort(key=itemgetter(0))
    said = [f"{shown(value)} ({cut(str(of), LABEL)})" for value, of in (*known[:1], *known[-1:])]
    return f"is between {' and '.join(said)}" if said else ""


def _off_policy(inspection: Inspection) -> list[Figure]:
    """How the policy drifts from the one that sampled, by step and by version."""
    known = inspection.facts.off_policy
    words = ("Off-policy", "KL(old, new) of a token", "KL (k3) of a token")
    return [
        _over("off_policy" + "_" * at, by.column, {"": by.lines}, "k3", words)
        for at, by in enumerate(() if known is None else known.by)
        if len(by.lines) > 1
    ]


def _bands(inspection: Inspection, shown: Collection[str]) -> dict[str, dict[str, Number]]:
    """The 95 % interval of the mean reward at these values of the trend: rows of a group are alike, so groups are the sample."""
    ends, first = inspection.facts.reward, inspection.narrow.groups.first
    if inspection.by is None or ends.min is None or ends.max is None:
        return {}
    value = pl.Series("value", map(str, inspection.by.gather(first)), pl.String)
    known = (
        inspection.groups.select("mean", "scored")
        .with_columns(value)
        .filter(pl.col("mean").is_finite() & (pl.col("scored") > 0) & pl.col("value").is_in([*shown]))
    )
    bands = {}
    for (at,), groups in known.group_by("value"):
        rows = groups["scored"].to_numpy()
        sizes = rows / rows.mean()
        imagined = (ends.min, ends.min, ends.max, ends.max)
        found = estimate(groups["mean"].to_numpy() * sizes, imagined, sizes=sizes)
        if found.low is not None:
            bands[str(at)] = {"low": found.low, "high": found.high}
    return bands


def _ended(inspection: Inspection, by: str, lines: Sequence[TrendLine]) -> Figure:
    """The shares of responses that were cut off, and of rows without a reward, if there are any."""
    shares = {"without a reward": {str(line.value): line.unscorable / line.rows for line in lines}}
    if "stop" in inspection.columns and inspection.by is not None:
        stops = inspection.narrow.carried[inspection.columns["stop"]].cast(pl.String).str.to_lowercase()
        cut_off = stops.is_in([*CUT_OFF]).fill_null(value=False)
        of_values = pl.DataFrame({"value": inspection.by, "cut_off": cut_off}).group_by("value").mean()
        shares["truncated"] = {str(value): share for value, share in of_values.iter_rows()}
    kinds = {
        kind: [SimpleNamespace(value=line.value, rows=line.rows, share=of[str(line.value)]) for line in lines]
        for kind, of in shares.items() if any(of.values())
    }  # fmt: skip
    words = ("Truncated or failed", f"The share {next(iter(kinds), '')}", "share of rows")
    return _over("ended", by, kinds, "share", words, shown=percent)


def _axis_value(value: Any) -> Any:
    """A value of a trend as an axis takes it: a number or a text."""
    return value if isinstance(value, (int, float, str)) and not isinstance(value, bool) else str(value)


def _lengths(inspection: Inspection) -> Figure | None:
    length = inspection.facts.length
    if length is None:
        return None
    known = inspection.rows.filter(pl.col(".reward").is_finite() & pl.col("length").is_finite())
    if not len(known):
        return None
    (across, columns), (up, levels) = (
        bins_of(known[name].to_numpy(), bins, FEW) for name, bins in zip(("length", ".reward"), TILES, strict=True)
    )
    counts = np.bincount(across * len(levels) + up, minlength=len(columns) * len(levels))
    lines = []
    for i in np.flatnonzero(counts):
        x, y = columns[i // len(levels)], levels[i % len(levels)]
        lines.append({**{f"x_{name}": value for name, value in x.items()}, **y, "count": int(counts[i])})
    caption = _length_says(length.within_groups)
    return Figure("lengths", "tiles", "Reward and length", caption, lines, x=length.column, y="reward")


def _length_says(within: float | None) -> str:
    if within is None:
        return "Whether longer responses get higher rewards cannot be said: no group has two lengths and two rewards."
    get = "do not get higher" if abs(within) < SLIGHT else "get higher" if within > 0 else "get lower"
    return f"Longer responses {get} rewards (r = {within:+z.2f} within groups).".replace("+0.00", "0.00")


def _other_sizes(inspection: Inspection) -> Figure:
    words = {"sample": "subsampled from the groups", "model": "fitted solve rates", "bound": "lower bound"}
    sizes = inspection.facts.at_size
    lines: Lines = [{"value": at.size, "share": at.alive, "kind": words[at.found]} for at in sizes]
    for line, at in zip(lines, sizes, strict=True):
        if at.low is not None:
            line |= {"low": at.low, "high": at.high}
    seen = ", ".join(f"{_alive(at)} at {at.size}" for at in sizes[:: max(len(sizes) - 1, 1)])
    interval = " A bar is the 95% interval." if any("low" in line for line in lines) else ""
    return Figure(
        "other_sizes",
        "lines",
        "Other group sizes",
        f"The share of groups that would have a gradient with another number of rows: {seen}.{interval}",
        lines,
        x="group size",
        y="share of groups",
    )


def _alive(at: AtSize) -> str:
    share = percent(at.alive)
    if at.low is not None and at.high is not None:
        return f"{percent(at.low)} to {percent(at.high)}"
    return f">={share}" if at.found == "bound" and 0 < at.alive < 1 and share[0].isdigit() else share


def _beside(other: object) -> list[Figure]:
    """What differs in another run, in several, or with another reward, if there are any."""
    if isinstance(other, Runs):
        return _of_runs(other)
    return [_rescored(other)] if isinstance(other, Rescored) else []


def _of_runs(compared: Runs) -> list[Figure]:
    """What several runs solve, and how far they are from the first."""
    runs, differences = compared.runs, compared.differences
    rates = []
    for run in runs:
        shown: dict[str, Estimate | None] = {"solve rate": run.solve_rate}
        shown |= {f"pass@{one.k}": one.pass_at for one in run.passes}
        shown |= {f"pass^{one.k}": one.pass_all for one in run.passes}
        rates += [_estimate(run.name, kind, found) for kind, found in shown.items() if found is not None]
    change = f"change from {runs[0].name}"
    apart = [_estimate(one.name, change, one.change) for one in differences]
    caption = "The change over the prompts of both runs, with its 95% interval. If the interval includes 0, the change may be chance."
    for one in differences:
        for word, prompts in (("gained", one.gained), ("lost", one.lost)):
            labels = labels_of([prompt.key for prompt in prompts], LABEL)
            changes = ", ".join(f"{key} ({it.shrunken:+.2f})" for key, it in zip(labels, prompts, strict=True))
            caption += f" {one.name} {word} most on {changes}." if prompts else ""
    return [
        Figure(
            "run_rates",
            "estimates",
            "Solve rates of the runs",
            "The mean over the prompts of each run, with its 95% interval.",
            rates,
            x="",
            y="share of prompts",
        ),
        Figure(
            "run_changes",
            "estimates",
            f"Difference from {runs[0].name}",
            caption,
            apart,
            x="",
            y="change",
        ),
    ]


def _estimate(run: str, kind: str, found: Estimate) -> dict[str, Any]:
    return {"value": _axis_value(run), "kind": kind, "share": found.mean, "low": found.low, "high": found.high}


def _rescored(said: Rescored) -> Figure:
    """How another reward of the same rollouts differs."""
    up, down = said.reward.up, said.reward.down
    return Figure(
        "rescored",
        "stacked",
        "Reward before, and what became of it",
        f"{up:,} rewards are higher now (better), {down:,} lower (worse); {said.agreement.share:.1%} are the same.",
        [*said.reward.changes],
        x="reward before",
        y="rollouts",
    )
