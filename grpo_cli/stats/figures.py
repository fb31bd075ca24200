"""The figures of a report, already counted: each has hundreds of numbers at most, whatever the number of rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import FEW
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import weighted_sum
from grpo_cli.engine.score import score
from grpo_cli.errors import UnknownName, UsageError
from grpo_cli.stats.facts import equal_bins, reward_range

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.stats.inspection import Inspection

METHODS: Final = ("grpo", "rloo", "dr-grpo")
# What becomes of a group, and so of its rows; in the order in which they are stacked.
OUTCOMES: Final = ("varies", "always solved", "never solved", "equal at another reward", "singleton or unscored")
BINS: Final = 40
TILES: Final = (32, 20)
RUNS: Final = ("before", "now")
POINTS: Final = 200  # of a trend

Lines = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure: what kind, what it says, and its numbers."""

    name: str
    kind: str
    title: str
    caption: str
    lines: Lines
    axes: Mapping[str, str]


def figures(inspection: Inspection, advantages: Mapping[str, pl.Series]) -> list[Figure]:
    """All figures that this data has numbers for; `advantages` are columns by method."""
    drawn = [*_changes(inspection), _rewards(inspection), _solve_rates(inspection), _sizes(inspection)]
    drawn += [*_advantages(inspection, advantages), *_trends(inspection)]
    drawn += [_lengths(inspection), _other_sizes(inspection), _expected(inspection)]
    return [figure for figure in drawn if figure is not None and figure.lines]


def advantages_by_method(inspection: Inspection, methods: Sequence[str] = METHODS) -> dict[str, pl.Series]:
    """The advantages of these methods, first those of the run's own plan, by name."""
    own = inspection.scored.plan
    columns = {own.method: inspection.scored.rows[".advantage"]}
    for name in methods:
        if name not in ESTIMATORS:
            raise UnknownName.among("method", name, ESTIMATORS)
        if name not in columns:
            plan = Plan.of({"estimator.name": name})
            take = own.unit.take if plan.unit.take == "each" else plan.unit.take
            plan = replace(plan, rewards=own.rewards, unit=replace(plan.unit, take=take))
            for need in plan.needs:
                if need not in inspection.narrow.table.columns:
                    raise UsageError(
                        f"{name} needs {ROLES[need].meaning}", f"name the column with {ROLES[need].flag} COLUMN"
                    )
            columns[name] = score(plan, inspection.narrow.table).rows[".advantage"]
    return columns


# --- counting ----------------------------------------------------------------------------------------------


def _group_outcomes(inspection: Inspection) -> np.ndarray[Any, np.dtype[np.int8]]:
    """The place in OUTCOMES of every group."""
    groups = inspection.groups
    worst, best = reward_range(groups)
    constant, highest = groups["constant"].to_numpy(), groups["max"].to_numpy()
    outcome = np.where(constant, 3, 0)
    if worst != best:
        outcome = np.where(constant & (highest == best), 1, np.where(constant & (highest == worst), 2, outcome))
    return np.where(groups["scored"].to_numpy() > 1, outcome, 4).astype(np.int8)


def _row_outcomes(inspection: Inspection) -> np.ndarray[Any, np.dtype[np.int8]]:
    """The place in OUTCOMES of the group of every row."""
    return _group_outcomes(inspection).take(inspection.raw.rows["group"].to_numpy())


def count_by_kind(values: pl.Series, places: Any, kinds: Sequence[str] = OUTCOMES) -> Lines:
    """Counts of values, or of bins where the values are many, for each kind; `places` has that of each value in `kinds`."""
    known = values.is_finite().fill_null(value=False).to_numpy()
    numbers, places = values.to_numpy()[known], places[known]
    if not len(numbers):
        return []
    across, bins = _bins(numbers)
    counts = np.bincount(across * len(kinds) + places, minlength=len(bins) * len(kinds)).reshape(len(bins), -1)
    return [
        {**one, "kind": kind, "count": int(counts[i, k])}
        for i, one in enumerate(bins) for k, kind in enumerate(kinds) if counts[i, k]
    ]  # fmt: skip


def _bins(numbers: Any, most: int = BINS) -> tuple[Any, Lines]:
    """The bin of each number, and what the bins are: a value each where there are few."""
    distinct = pl.Series(numbers).unique().sort()
    if len(distinct) <= FEW:
        values = distinct.to_numpy()
        return np.searchsorted(values, numbers), [{"value": float(value)} for value in values]
    places, edges = equal_bins(numbers, most)
    return places, [{"from": float(edges[i]), "to": float(edges[i + 1])} for i in range(most)]


# --- one function for each figure --------------------------------------------------------------------------


def _rewards(inspection: Inspection) -> Figure:
    lines = count_by_kind(inspection.raw.rows[".reward"], _row_outcomes(inspection))
    caption = "How many rows have which reward, by what became of their group. Only groups that vary carry a gradient."
    return Figure(name="rewards", kind="stacked", title="Rewards", caption=caption, lines=lines,
                  axes={"x": weighted_sum(inspection.narrow.reward_names, inspection.raw.plan.rewards.weights), "y": "rows"})  # fmt: skip


def _solve_rates(inspection: Inspection) -> Figure | None:
    rates = inspection.facts["difficulty"]
    if rates is None:
        return None
    names = ["never", *(f"{i / 10:g} to <{(i + 1) / 10:g}" for i in range(10)), "always"]
    kinds = [OUTCOMES[2], *[OUTCOMES[0]] * 10, OUTCOMES[1]]
    sizes = [rates["never"], *rates["bins"], rates["always"]]
    lines = [{"value": n, "kind": k, "count": c} for n, k, c in zip(names, kinds, sizes, strict=True)]
    caption = f"How hard the prompts are: {rates['useful']:,} of {rates['groups']:,} groups lie from 0.2 to 0.8, both included."
    return Figure(name="solve_rates", kind="stacked", title="Solve rates", caption=caption, lines=lines,
                  axes={"x": "mean reward of a group, from worst to best", "y": "groups"})  # fmt: skip


def _sizes(inspection: Inspection) -> Figure:
    lines = count_by_kind(inspection.groups["size"].cast(pl.Float64), _group_outcomes(inspection))
    return Figure(name="sizes", kind="stacked", title="Group sizes", caption="How many rows the groups have.",
                  lines=lines, axes={"x": "rows of a group", "y": "groups"})  # fmt: skip


def _advantages(inspection: Inspection, advantages: Mapping[str, pl.Series]) -> list[Figure]:
    outcomes = _row_outcomes(inspection)
    drawn = []
    for name, values in advantages.items():
        zero = int((values == 0).sum())
        caption = f"What each row would be pushed by with {name}; {zero:,} of {len(values):,} are exactly 0."
        drawn.append(Figure(name=f"advantages_{name}", kind="stacked", title=f"Advantages, {name}", caption=caption,
                            lines=count_by_kind(values, outcomes), axes={"x": "advantage", "y": "rows"}))  # fmt: skip
    return drawn


def _trends(inspection: Inspection) -> list[Figure]:
    if inspection.facts["by"] is None:
        return []
    by, lines = inspection.facts["by"]["column"], inspection.facts["by"]["lines"]
    if len(lines) < 2:  # noqa: PLR2004 - a line needs two points
        return []
    lines = [lines[i] for i in sorted({round(k * (len(lines) - 1) / (POINTS - 1)) for k in range(POINTS)})]
    shares = []
    for line in lines:
        total, best, worst = (line[name] or 0.0 for name in ("zero_variance", "all_best", "all_worst"))
        for kind, share in zip(OUTCOMES[1:4], (best, worst, max(total - best - worst, 0.0)), strict=True):
            shares.append({"value": _axis_value(line["value"]), "kind": kind, "share": share})
    means = [{"value": _axis_value(line["value"]), "mean": line["mean"]} for line in lines if line["mean"] is not None]
    return [
        Figure(name="zero_variance", kind="shares", title=f"Zero variance over {by}", lines=shares,
               caption="The share of groups that carry no gradient, by why.", axes={"x": by, "y": "share of groups"}),
        Figure(name="mean_reward", kind="line", title=f"Mean reward over {by}", lines=means,
               caption="The mean of all rows.", axes={"x": by, "y": "mean reward"}),
    ]  # fmt: skip


def _axis_value(value: Any) -> Any:
    """A value of a trend as an axis can have it: a number or a text."""
    value = value if isinstance(value, (int, float, str)) and not isinstance(value, bool) else str(value)
    return f"{value}\N{ZERO WIDTH SPACE}" if value in _OF_EVERY_OBJECT else value


# Vega keeps the values of an axis as names of a JavaScript object, where these have a meaning already.
_OF_EVERY_OBJECT: Final = frozenset({
    "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__", "__proto__", "constructor",
    "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf",
})  # fmt: skip


def _lengths(inspection: Inspection) -> Figure | None:
    length = inspection.facts["length"]
    if length is None:
        return None
    known = inspection.rows.filter(pl.col(".reward").is_finite() & pl.col("length").is_finite())
    if not len(known):
        return None
    (across, columns), (up, levels) = (
        _bins(known[name].to_numpy(), bins) for name, bins in zip(("length", ".reward"), TILES, strict=True)
    )
    counts = np.bincount(across * len(levels) + up, minlength=len(columns) * len(levels))
    lines = []
    for i in np.flatnonzero(counts):
        x, y = columns[i // len(levels)], levels[i % len(levels)]
        lines.append({**{f"x_{name}": value for name, value in x.items()}, **y, "count": int(counts[i])})
    inside = "unknown" if length["within_groups"] is None else f"{length['within_groups']:+.2f}"
    caption = f"Whether long responses are rewarded; the correlation inside groups is {inside}."
    return Figure(name="lengths", kind="tiles", title="Reward and length", caption=caption, lines=lines,
                  axes={"x": length["column"], "y": "reward"})  # fmt: skip


def _other_sizes(inspection: Inspection) -> Figure:
    words = {"sample": "drawn from the groups", "model": "by a Beta distribution", "bound": "at least"}
    sizes = inspection.facts["at_size"]
    lines = [{"size": at["size"], "share": at["alive"], "kind": words[at["found"]]} for at in sizes]
    return Figure(name="other_sizes", kind="curve", title="Other group sizes", lines=lines,
                  caption="The share of groups that would vary if they had so many rows.",
                  axes={"x": "rows of a group", "y": "share of groups"})  # fmt: skip


def _expected(inspection: Inspection) -> Figure | None:
    expected = inspection.facts["expected"]
    if expected is None or expected["own_rates"] is None:
        return None
    words = {
        "observed": "observed",
        "own_rates": "expected from each group's rate",
        "one_rate": "if all were equally hard",
    }
    lines = [{"value": word, "share": expected[name]} for name, word in words.items()]
    return Figure(name="expected", kind="bars", title="Zero variance, expected and observed", lines=lines,
                  caption="Constant groups beside what luck alone would bring: far above it, prompts differ in difficulty.",
                  axes={"x": "", "y": "share of groups"})  # fmt: skip


def _changes(inspection: Inspection) -> list[Figure]:
    """How solve rates changed from another run, where there is one."""
    if "against" not in inspection.facts:
        return []
    changes = inspection.facts["against"]
    better, worse, same = (changes[name] for name in ("better", "worse", "same"))
    bands = [
        {"value": line["difficulty"], "kind": run, "share": line[run], "prompts": line["prompts"]}
        for line in changes["by_difficulty"] for run in RUNS
    ]  # fmt: skip
    moved = [
        {"value": _axis_value(one["key"]), "kind": kind, **{name: one[name] for name in (*RUNS, "change")}}
        for kind, prompts in (("gained", changes["gained"]), ("lost", changes["lost"][::-1])) for one in prompts
    ]  # fmt: skip
    first, no_more = changes["solved_first"], changes["solved_no_more"]
    return [
        Figure(name="changes", kind="stacked", title="Change by prompt", lines=changes["changes"],
               caption=f"The solve rate now minus before: {better:,} prompts are better, {worse:,} worse, {same:,} the same.",
               axes={"x": "change of the solve rate", "y": "prompts"}),
        Figure(name="by_difficulty", kind="runs", title="Change by difficulty", lines=bands,
               caption="Mean solve rates of the prompts that were never, seldom, sometimes, mostly and always solved before.",
               axes={"x": "solved before", "y": "solve rate"}),
        Figure(name="gained_and_lost", kind="moves", title="Gained and lost", lines=moved,
               caption=f"The prompts that changed most, from a hollow point (before) to a full one (now). {first:,} are solved that never were, {no_more:,} are solved no more.",
               axes={"x": "solve rate", "y": ""}),
    ]  # fmt: skip
