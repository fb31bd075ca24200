"""Rewards and groups before anything is computed from them: the whole result of `inspect`, as plain data and as frames.

Nothing stops for rows without a reward or for groups of one row: whoever inspects wants to see them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import score
from grpo_cli.errors import UnknownName
from grpo_cli.read import known_names
from grpo_cli.read.build_table import read
from grpo_cli.read.group_keys import encode
from grpo_cli.stats import correlations, difficulty, facts
from grpo_cli.stats.correlations import Together
from grpo_cli.stats.stream_facts import Spread
from grpo_cli.stats.trends import RowsByValue, count_spanning, trend

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from grpo_cli.engine.frames import Merge
    from grpo_cli.engine.score import Scored
    from grpo_cli.formats.interface import Kind
    from grpo_cli.read.tables import Binding, Narrow, Table

    Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
    Floats = np.ndarray[tuple[int], np.dtype[np.float64]]

Pairs = dict[tuple[str, str], Together]

TOP: Final = 3
SORT: Final = "std"
FILE: Final = "file"
# What groups can be listed by, and what a line of the list has.
GROUP_FACTS: Final = ("size", "scored", "mean", "std", "min", "max", "solve_rate", "length")
# Parts of a run's summary that say nothing of rewards.
LEFT_OUT: Final = ("advantage", "status", "skipped", "plan", "batches", "batch_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What somebody wants to see beside what is always shown."""

    by: str | None = None
    by_steps: bool = False  # a trend over the steps where there are any
    top: int = TOP
    sort: str = SORT
    length: str | None = None
    text: str | None = None
    duplicates: bool | None = None  # whether texts are compared; None: the caller decides by their size


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What the rewards look like: `facts` as plain data, `groups` one line per group, and what they were made of.

    `raw` has the rewards as they stand in the file, `scored` the advantages of the plan.
    """

    facts: Mapping[str, Any]
    groups: pl.DataFrame
    raw: Scored
    scored: Scored
    narrow: Narrow
    columns: Mapping[str, str]  # part (length, text, prompt, by, advantage) -> the column that has it

    @property
    def rows(self) -> pl.DataFrame:
        """The rewards row by row; with the length where it is known, and then with the mean of the group."""
        # The plan's own column of lengths may say that all are equal.
        rows, length = self.raw.rows.drop("length", strict=False), _length(self.narrow, self.columns)
        if length is None:
            return rows
        return rows.with_columns(length, self.groups["mean"].gather(rows["group"]).alias(".mean"))

    @property
    def by(self) -> pl.Series | None:
        """The value of the column of the trend in every row; None without one."""
        name = self.columns.get("by")
        if name is None:
            return None
        of_file = name == FILE and FILE not in self.narrow.carried.columns
        return self.narrow.files() if of_file else self.narrow.carried[name]


def inspect(tables: Sequence[Table], binding: Binding, plan: Plan, view: View = View()) -> Inspection:
    """Read what is needed, and state all facts."""
    inspection = score_groups(tables, binding, plan, view)
    return replace(inspection, facts=_facts(inspection, view))


def score_groups(tables: Sequence[Table], binding: Binding, plan: Plan, view: View, *, warn: bool = True) -> Inspection:
    """An inspection without facts: rows, groups and advantages."""
    binding, plan, columns = what_is_read(tables, binding, plan, view)
    inspection = scored_groups(read(tables, binding, plan, warn=warn), plan, columns)
    return replace(inspection, groups=inspection.groups.with_columns(difficulty.solve_rates(inspection.groups)))


def what_is_read(
    tables: Sequence[Table], binding: Binding, plan: Plan, view: View
) -> tuple[Binding, Plan, dict[str, str]]:
    """The binding that carries along what the view shows, a plan that stops for no row, and the column of each part."""
    if plan.rewards.missing == "error":
        plan = replace(plan, rewards=replace(plan.rewards, missing="exclude"))
    columns = _columns(list(dict.fromkeys(name for table in tables for name in table.columns())), view, binding)
    return _with_columns(binding, plan, columns, view), plan, columns


def scored_groups(
    narrow: Narrow, plan: Plan, columns: Mapping[str, str], merge: Merge = lambda moments: moments
) -> Inspection:
    """The groups of rows that were read, without solve rates: those need the extremes of all groups.

    Of a part of the rows `merge` gives the moments of all rows for its own.
    """
    missing = "exclude" if plan.rewards.missing == "propagate" else plan.rewards.missing  # NaN is for advantages
    raw_plan = Plan(unit=plan.unit, rewards=replace(plan.rewards, combine="sum", missing=missing))
    raw = score(raw_plan, narrow.table)
    scored = raw if raw_plan == plan else score(plan, narrow.table, merge=merge)
    groups = facts.group_facts(raw)
    if plan.rewards.combine == "normalize":  # a group teaches something where any of its components varies
        groups = groups.with_columns(facts.group_facts(scored).select("constant", "nearly"))
    length = _length(narrow, columns)
    if length is not None:
        means = correlations.mean_by_code(raw.rows["group"].to_numpy(), length, len(groups))
        groups = groups.with_columns(length=pl.Series(means).fill_nan(None))
    return Inspection(facts={}, groups=groups, raw=raw, scored=scored, narrow=narrow, columns=columns)


def learned_from(inspection: Inspection) -> pl.Series:
    """What rows of a group must differ in to teach the plan something: their reward; null where it is not finite.

    Where each of several components is estimated by itself, it is a number for each combination of them.
    """
    rewards, rows = inspection.scored.plan.rewards, inspection.raw.rows
    finite = pl.when(pl.col(".reward").is_finite())
    if rewards.combine == "sum":
        return rows.select(finite.then(".reward")).to_series()
    every = range(len(inspection.narrow.reward_names))
    counted = [k for k in every if not rewards.weights or rewards.weights[k]]  # a weight of 0 teaches nothing
    parts = [rows[f"reward.{k}"] for k in counted or every]
    parts = [part.set(~part.is_finite().fill_null(value=False), None) for part in parts]  # all that is missing is one
    if rewards.component_missing == "zero":
        parts = [part.fill_null(0.0) for part in parts]
    elif rewards.missing == "as-zero":
        parts = [part.set(~rows[".scorable"], 0.0) for part in parts]
    combinations = encode(parts, len(rows)).codes.cast(pl.Float64)
    return rows.select(finite.then(combinations)).to_series()


def describe_groups(groups: pl.DataFrame, label: Callable[[int], str]) -> list[dict[str, Any]]:
    """These groups as plain data: the label of its code and the facts of each."""
    names = [name for name in GROUP_FACTS if name in groups.columns]
    return [
        {
            "key": label(code),
            **{n: facts.plain(v) if isinstance(v, float) else v for n, v in zip(names, values, strict=True)},
        }
        for code, *values in groups.select("code", *names).iter_rows()
    ]


def key_columns(narrow: Narrow, facts: Collection[str]) -> list[pl.Series]:
    """The columns of the key, a line for each group; `key.` stands before the name of one that is called like a fact."""
    return [key.alias(f"key.{key.name}") if key.name in facts else key for key in narrow.key.get_columns()]


# --- columns -----------------------------------------------------------------------------------------------


def _columns(names: Sequence[str], view: View, binding: Binding) -> dict[str, str]:
    """The column of each part: the one that was named, else the first of the known names that is there."""
    free = [name for name in names if name not in {*binding.group, *binding.rewards}]

    def first(known: Sequence[str], among: Sequence[str] = free) -> str | None:
        return next((name for name in known if name in among), None)

    length = view.length or binding.roles.get("length") or first(known_names.LENGTHS)
    columns = {
        "by": view.by or (first(known_names.STEP_LIKE, names) if view.by_steps else None),
        "length": None if length == "equal" else length,
        "text": view.text or first(known_names.TEXTS),
        "prompt": first(known_names.PROMPTS),
        "advantage": first(known_names.ADVANTAGES, names),
    }
    return {part: name for part, name in columns.items() if name is not None}


def _with_columns(binding: Binding, plan: Plan, columns: Mapping[str, str], view: View) -> Binding:
    """The binding that carries these columns along; the length has a role only where the arithmetic reads it."""
    carried: dict[str, Kind] = {}
    if "length" in columns:
        by_name = view.length is None and "length" not in binding.roles
        carried[columns["length"]] = "key" if by_name else "number"
    if view.duplicates and "text" in columns:
        carried[columns["text"]] = "key"
    if columns.get("by") not in {None, FILE}:
        carried[columns["by"]] = "key"
    roles = {role: name for role, name in binding.roles.items() if role != "length" or role in plan.needs}
    return replace(binding, carried=carried, roles=roles, singletons_meant=True)


def _length(narrow: Narrow, columns: Mapping[str, str]) -> pl.Series | None:
    """The length of every row; None where no column has it, or its values are no numbers."""
    values = narrow.carried[columns["length"]] if "length" in columns else None
    if values is None or not values.dtype.is_numeric():
        return None
    return values.cast(pl.Float64).alias("length")


# --- facts -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """What the groups show of a reward column by itself."""

    moments: Spread
    distribution: Mapping[str, Any] | None  # None of a part of the rows: it needs all values at once
    unscorable: int
    compared: int  # groups with two of these rewards to compare
    constant: int  # of those

    @classmethod
    def of(cls, codes: pl.Series, values: pl.Series, distribution: Mapping[str, Any] | None) -> Component:
        """The facts of the rewards in groups."""
        finite = values.is_finite().fill_null(value=False)
        known = pl.DataFrame({"group": codes, "value": values}).filter(finite)
        ranges = known.group_by("group").agg(n=pl.len(), low=pl.col("value").min(), high=pl.col("value").max())
        compared = ranges.filter(pl.col("n") > 1)
        moments = Spread()
        moments.add(values)
        return cls(
            moments=moments,
            distribution=distribution,
            unscorable=int((~finite).sum()),
            compared=len(compared),
            constant=int((compared["low"] == compared["high"]).sum()),
        )

    def merge(self, other: Component) -> Component:
        """The facts of both."""
        moments = Spread()
        moments.merge(self.moments)
        moments.merge(other.moments)
        return Component(
            moments=moments,
            distribution=None,
            unscorable=self.unscorable + other.unscorable,
            compared=self.compared + other.compared,
            constant=self.constant + other.constant,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFacts:
    """What rows show that their groups do not. Of parts of the rows, in which groups are whole, it can be put together."""

    sample_size: difficulty.SampleSize
    repeated: pl.DataFrame | None  # see `count_ties`
    components: Mapping[str, Component]  # nothing where a single reward column is all there is to the reward
    together: Pairs  # of several reward columns with each other
    beside: Pairs  # of the same with the length and the advantage
    lengths: correlations.Lengths | None
    duplicates: Counter[str]
    by: RowsByValue | None
    spanning: int  # groups with several values of that column

    @classmethod
    def of(cls, inspection: Inspection, view: View, reward: Mapping[str, Any] | None = None) -> RowFacts:
        """The facts of the rows of an inspection; `reward` is the distribution of all rewards, None of a part of the rows."""
        narrow, raw, rows, columns = inspection.narrow, inspection.raw, inspection.rows, inspection.columns
        codes = raw.rows["group"]
        rewards = {name: narrow.table[f"reward.{k}"] for k, name in enumerate(narrow.reward_names)}
        one_reward = len(rewards) == 1 and not raw.plan.rewards.weights and raw.plan.unit.take == "each"
        groups, compared_rows, histogram = compared(inspection, reward["histogram"] if reward else None)
        two_values = reward is not None and difficulty.has_two_values(groups, histogram)
        components = {
            name: Component.of(codes, values, _with_ends(facts.distribution(values), values) if reward else None)
            for name, values in ({} if one_reward else rewards).items()
        }
        together, beside = Pairs(), Pairs()
        if len(rewards) > 1:
            others = {"length": rows["length"]} if "length" in rows.columns else {}
            others["advantage"] = inspection.scored.rows[".advantage"]
            together = correlations.inside_groups(codes.to_numpy(), rewards, rewards)
            beside = correlations.inside_groups(codes.to_numpy(), rewards, others)
        duplicates = Counter[str]()
        if view.duplicates and "text" in columns:
            duplicates = correlations.duplicates(codes, narrow.carried[columns["text"]])
        values = inspection.by
        return cls(
            sample_size=difficulty.SampleSize.of(inspection.scored.rows[".advantage"]),
            repeated=None if two_values else difficulty.repeated_rewards(groups, compared_rows),
            components=components,
            together=together,
            beside=beside,
            lengths=correlations.Lengths.of(rows) if "length" in rows.columns else None,
            duplicates=duplicates,
            by=None if values is None else RowsByValue.of(values, rows),
            spanning=0 if values is None else count_spanning(values, codes),
        )

    def merge(self, other: RowFacts) -> RowFacts:
        """The facts of the rows of both."""
        repeated = [one.repeated for one in (self, other) if one.repeated is not None]
        return RowFacts(
            sample_size=self.sample_size.merge(other.sample_size),
            repeated=pl.concat(repeated) if repeated else None,
            components={name: one.merge(other.components[name]) for name, one in self.components.items()},
            together={pair: one.merge(other.together[pair]) for pair, one in self.together.items()},
            beside={pair: one.merge(other.beside[pair]) for pair, one in self.beside.items()},
            lengths=None if self.lengths is None or other.lengths is None else self.lengths.merge(other.lengths),
            duplicates=self.duplicates + other.duplicates,
            by=None if self.by is None or other.by is None else self.by.merge(other.by),
            spanning=self.spanning + other.spanning,
        )


def _facts(inspection: Inspection, view: View) -> dict[str, Any]:
    groups, narrow, raw = inspection.groups, inspection.narrow, inspection.raw
    summary = facts.summarize(raw, narrow, groups)
    summary["reward"] = _with_ends(summary["reward"], raw.rows[".reward"])
    rows = RowFacts.of(inspection, view, summary["reward"])
    if inspection.by is not None:
        groups = groups.with_columns(by=inspection.by.gather(narrow.groups.first))
    plan, alike = inspection.scored.plan, compared(inspection, summary["reward"]["histogram"])
    return all_facts(summary, rows, groups, plan, inspection.columns, view, narrow.label, (alike[0], alike[2]))


def all_facts(
    summary: Mapping[str, Any],
    rows: RowFacts,
    groups: pl.DataFrame,
    plan: Plan,
    columns: Mapping[str, str],
    view: View,
    label: Callable[[int], str],
    alike: tuple[pl.DataFrame, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The summary of a run without that of its advantages, and what only an inspection says.

    `alike` has the groups and the histogram of what makes rows equal to the plan, where that is not their reward; `groups` has a column `by`, the value of the first row of each group, where a trend is shown.
    """
    result = {name: fact for name, fact in summary.items() if name not in LEFT_OUT}
    extremes = facts.worst_and_best(result["reward"]["min"], result["reward"]["max"])
    histogram = result["reward"]["histogram"]
    alike_groups, alike_histogram = (groups, histogram) if alike is None else alike
    ties = difficulty.count_ties(alike_groups, rows.repeated, alike_histogram)
    length = duplicates = by = None
    if rows.lengths is not None:
        length = {"column": columns["length"], **rows.lengths.facts(extremes)}
    if view.duplicates and "text" in columns:
        known, same = rows.duplicates["known"], rows.duplicates["rows"]
        counts = {name: rows.duplicates[name] for name in ("groups", "all_the_same")}
        duplicates = {"column": columns["text"], "rows": same, "share": same / known if known else None, **counts}
    if rows.by is not None:
        name = columns["by"]
        by = {"column": name, "lines": trend(rows.by, groups["by"], groups, extremes)}
        if rows.spanning:
            have = "group has" if rows.spanning == 1 else "groups have"
            warning = f"{rows.spanning} {have} rows in several values of {name}: each counts where it begins"
            result["warnings"] = [*result["warnings"], warning]
    return result | {
        "advantage_column": columns.get("advantage"),
        "combine": plan.rewards.combine,
        "rewards": _by_column(rows, result, plan.rewards.weights),
        "components": _components(rows, result["reward_columns"]),
        "difficulty": difficulty.difficulty(groups),
        "spread": difficulty.spread(groups, Plan().divisor.ddof),
        "expected": difficulty.expected_zero_variance(groups, ties, alike_histogram),
        "at_size": difficulty.at_other_sizes(ties),
        "live_rows": int(groups.filter(~pl.col("constant") & (pl.col("scored") > 1))["scored"].sum()),
        "effective_rows": rows.sample_size.effective,
        "method": plan.method,
        "length": length,
        "duplicates": duplicates,
        "listed": _most_and_least(groups, label, view.sort, view.top),
        "by": by,
    }


def _by_column(rows: RowFacts, result: Mapping[str, Any], weights: Sequence[float]) -> dict[str, Any]:
    """Each reward column by itself, without its weight, and the share of groups in which it does not vary."""
    if not rows.components:
        share = result["zero_variance"]["share"]
        (name,) = result["reward_columns"]
        return {
            name: {**result["reward"], "unscorable": result["unscorable"], "zero_variance_share": share, "weight": 1.0}
        }
    return {
        name: {
            **(one.distribution or {}),
            "unscorable": one.unscorable,
            "zero_variance_share": one.constant / one.compared if one.compared else None,
            "weight": weights[k] if weights else 1.0,
        }
        for k, (name, one) in enumerate(rows.components.items())
    }


def compared(inspection: Inspection, histogram: Mapping[str, Any] | None) -> tuple[pl.DataFrame, pl.DataFrame, Any]:
    """Groups, rows and histogram of what makes rows equal to the plan."""
    groups, rows = inspection.groups, inspection.rows
    if inspection.scored.plan.rewards.combine == "sum":
        return groups, rows, histogram
    rows = rows.select("group", learned_from(inspection).alias(".reward")).drop_nulls()
    value = pl.col(".reward")
    of_groups = rows.group_by("group").agg(mean=value.mean(), min=value.min(), max=value.max())
    groups = groups.drop("mean", "min", "max").join(of_groups, left_on="code", right_on="group", how="left")
    return groups, rows, facts.distribution(rows[".reward"])["histogram"]


def _components(rows: RowFacts, names: Sequence[str]) -> dict[str, Any] | None:
    """How several reward columns go together inside groups, with each other, the length and the advantage; None for one.

    `decides` is the column that goes with the advantage most closely, None where none does.
    """
    if not rows.together:
        return None
    others = dict.fromkeys(what for _, what in rows.beside)
    found: dict[str, Any] = {
        "correlation": {name: {other: rows.together[name, other].correlation for other in names} for name in names},
        **{what: {name: rows.beside[name, what].correlation for name in names} for what in others},
    }
    closest = max(names, key=lambda name: abs(found["advantage"][name] or 0.0))
    return {**found, "decides": closest if found["advantage"][closest] else None}


def _with_ends(distribution: Mapping[str, Any], values: pl.Series) -> dict[str, Any]:
    """A distribution with how often its smallest and its largest value occur: the spikes that a histogram may hide."""
    ends = {"at_min": distribution["min"], "at_max": distribution["max"]}
    return {**distribution, **{name: 0 if end is None else int((values == end).sum()) for name, end in ends.items()}}


def _most_and_least(groups: pl.DataFrame, label: Callable[[int], str], sort: str, top: int) -> dict[str, Any]:
    """The groups with the most and with the least of a fact, among those with two rewards to compare."""
    known = [name for name in GROUP_FACTS if name in groups.columns]
    if sort not in known:
        raise UnknownName.among("fact of a group", sort, known)
    groups = difficulty.comparable(groups).filter(pl.col(sort).is_not_null())
    keys = [groups[name].cast(pl.Float64).to_numpy() for name in (sort, "scored")]
    places = np.arange(len(groups))
    most = _first_by(places, [-key for key in keys], top)
    least = _first_by(places[::-1], keys, max(min(top, len(groups) - top), 0))[::-1]
    return {
        "sort": sort,
        "most": describe_groups(groups[most], label),
        "least": describe_groups(groups[least], label),
    }


def _first_by(places: Rows, keys: Sequence[Floats], number: int) -> Rows:
    """The first so many places by these keys, in order, as if all had been sorted: of millions only a few are."""
    if not keys:
        return places[:number]

    def in_order(some: Rows) -> Rows:
        return some[np.lexsort([key[some] for key in reversed(keys)])]

    if len(places) <= number:
        return in_order(places)
    values = keys[0][places]
    last = np.partition(values, number - 1)[number - 1] if number else -np.inf
    before, equal = places[values < last], places[values == last]
    return np.concatenate([in_order(before), _first_by(equal, keys[1:], number - len(before))])
