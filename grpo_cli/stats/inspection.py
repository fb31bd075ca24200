"""Rewards and groups before anything is computed from them: the whole result of `inspect`, as plain data and as frames.

Nothing stops for rows without a reward or for groups of one row: whoever inspects wants to see them.
"""

from __future__ import annotations

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
from grpo_cli.stats.trends import count_spanning, trend

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from grpo_cli.engine.score import Scored
    from grpo_cli.formats.interface import Kind
    from grpo_cli.read.tables import Binding, Narrow, Table

    Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
    Floats = np.ndarray[tuple[int], np.dtype[np.float64]]

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


def inspect(tables: Sequence[Table], binding: Binding, plan: Plan, view: View = View()) -> Inspection:
    """Read what is needed, and state all facts."""
    inspection = score_groups(tables, binding, plan, view)
    return replace(inspection, facts=_facts(inspection, view))


def score_groups(tables: Sequence[Table], binding: Binding, plan: Plan, view: View) -> Inspection:
    """An inspection without facts: rows, groups and advantages."""
    if plan.rewards.missing == "error":
        plan = replace(plan, rewards=replace(plan.rewards, missing="exclude"))
    columns = _columns([name for table in tables for name in table.columns()], view, binding)
    narrow = read(tables, _with_columns(binding, plan, columns, view), plan)
    missing = "exclude" if plan.rewards.missing == "propagate" else plan.rewards.missing  # NaN is for advantages
    raw_plan = Plan(unit=plan.unit, rewards=replace(plan.rewards, combine="sum", missing=missing))
    raw = score(raw_plan, narrow.table)
    scored = raw if raw_plan == plan else score(plan, narrow.table)
    groups = facts.group_facts(raw)
    if plan.rewards.combine == "normalize":  # a group teaches something where any of its components varies
        groups = groups.with_columns(facts.group_facts(scored).select("constant", "nearly"))
    groups = groups.with_columns(difficulty.solve_rates(groups))
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
    if rewards.component_missing == "zero":
        parts = [part.fill_nan(None).fill_null(0.0) for part in parts]
    combinations = encode(parts, len(rows)).codes.cast(pl.Float64)
    return rows.select(finite.then(combinations)).to_series()


def describe_groups(groups: pl.DataFrame, narrow: Narrow) -> list[dict[str, Any]]:
    """These groups as plain data: key and facts of each."""
    names = [name for name in GROUP_FACTS if name in groups.columns]
    return [
        {
            "key": narrow.label(code),
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


def _facts(inspection: Inspection, view: View) -> dict[str, Any]:
    """The summary of a run without that of its advantages, and what only an inspection says."""
    groups, narrow, raw, rows = inspection.groups, inspection.narrow, inspection.raw, inspection.rows
    columns = inspection.columns
    result = {name: fact for name, fact in facts.summarize(raw, narrow, groups).items() if name not in LEFT_OUT}
    result["reward"] = _with_ends(result["reward"], rows[".reward"])
    extremes = facts.worst_and_best(result["reward"]["min"], result["reward"]["max"])
    histogram = result["reward"]["histogram"]
    compared = _compared(inspection, histogram)
    ties = difficulty.count_ties(*compared)
    length = duplicates = by = None
    if "length" in rows.columns:
        length = {"column": columns["length"], **correlations.length_and_reward(rows, extremes)}
    if view.duplicates and "text" in columns:
        texts = narrow.carried[columns["text"]]
        duplicates = {"column": columns["text"], **correlations.duplicates(raw.rows["group"], texts)}
    if "by" in columns:
        name = columns["by"]
        values = narrow.files() if name == FILE and FILE not in narrow.carried.columns else narrow.carried[name]
        by = {"column": name, "lines": trend(values, rows, groups, extremes)}
        if split := count_spanning(values, raw.rows["group"]):
            have = "group has" if split == 1 else "groups have"
            warning = f"{split} {have} rows in several values of {name}: each counts where it begins"
            result["warnings"] = [*result["warnings"], warning]
    return result | {
        "advantage_column": columns.get("advantage"),
        "combine": inspection.scored.plan.rewards.combine,
        "rewards": _by_column(inspection, result),
        "components": _components(inspection),
        "difficulty": difficulty.difficulty(groups),
        "spread": difficulty.spread(groups, raw.plan.divisor.ddof),
        "expected": difficulty.expected_zero_variance(groups, ties, compared[2]),
        "at_size": difficulty.at_other_sizes(ties),
        "live_rows": int(groups.filter(~pl.col("constant") & (pl.col("scored") > 1))["scored"].sum()),
        "effective_rows": difficulty.effective_sample_size(inspection.scored.rows[".advantage"]),
        "method": inspection.scored.plan.method,
        "length": length,
        "duplicates": duplicates,
        "listed": _most_and_least(groups, narrow, view.sort, view.top),
        "by": by,
    }


def _by_column(inspection: Inspection, result: Mapping[str, Any]) -> dict[str, Any]:
    """Each reward column by itself, without its weight, and the share of groups in which it does not vary."""
    narrow, plan = inspection.narrow, inspection.raw.plan
    names, weights = narrow.reward_names, plan.rewards.weights
    if len(names) == 1 and not plan.rewards.weights and plan.unit.take == "each":
        share = result["zero_variance"]["share"]
        facts_of_one = {"unscorable": result["unscorable"], "zero_variance_share": share, "weight": 1.0}
        return {names[0]: {**result["reward"], **facts_of_one}}
    columns = {}
    for k, name in enumerate(names):
        values = narrow.table[f"reward.{k}"]
        finite = values.is_finite().fill_null(value=False)
        known = pl.DataFrame({"group": narrow.table["group"], "value": values}).filter(finite)
        ranges = known.group_by("group").agg(n=pl.len(), low=pl.col("value").min(), high=pl.col("value").max())
        compared = ranges.filter(pl.col("n") > 1)
        share = int((compared["low"] == compared["high"]).sum()) / len(compared) if len(compared) else None
        columns[name] = {
            **_with_ends(facts.distribution(values), values),
            "unscorable": int((~finite).sum()),
            "zero_variance_share": share,
            "weight": weights[k] if weights else 1.0,
        }
    return columns


def _compared(
    inspection: Inspection, histogram: Mapping[str, Any]
) -> tuple[pl.DataFrame, pl.DataFrame, Mapping[str, Any]]:
    """Groups, rows and histogram of what makes rows equal to the plan."""
    groups, rows = inspection.groups, inspection.rows
    if inspection.scored.plan.rewards.combine == "sum":
        return groups, rows, histogram
    rows = rows.select("group", learned_from(inspection).alias(".reward")).drop_nulls()
    value = pl.col(".reward")
    of_groups = rows.group_by("group").agg(mean=value.mean(), min=value.min(), max=value.max())
    groups = groups.drop("mean", "min", "max").join(of_groups, left_on="code", right_on="group", how="left")
    return groups, rows, facts.distribution(rows[".reward"])["histogram"]


def _components(inspection: Inspection) -> dict[str, Any] | None:
    """How several reward columns go together inside groups, with each other, the length and the advantage; None for one.

    `decides` is the column that goes with the advantage most closely, None where none does.
    """
    narrow, rows = inspection.narrow, inspection.rows
    if len(narrow.reward_names) == 1:
        return None
    columns = {name: narrow.table[f"reward.{k}"] for k, name in enumerate(narrow.reward_names)}
    others = {"length": rows["length"]} if "length" in rows.columns else {}
    others["advantage"] = inspection.scored.rows[".advantage"]
    codes = narrow.table["group"].to_numpy()
    found: dict[str, Any] = {"correlation": correlations.inside_groups(codes, columns, columns)}
    for what, values in others.items():
        with_it = correlations.inside_groups(codes, columns, {what: values})
        found[what] = {name: one[what] for name, one in with_it.items()}
    closest = max(columns, key=lambda name: abs(found["advantage"][name] or 0.0))
    return {**found, "decides": closest if found["advantage"][closest] else None}


def _with_ends(distribution: Mapping[str, Any], values: pl.Series) -> dict[str, Any]:
    """A distribution with how often its smallest and its largest value occur: the spikes that a histogram may hide."""
    ends = {"at_min": distribution["min"], "at_max": distribution["max"]}
    return {**distribution, **{name: 0 if end is None else int((values == end).sum()) for name, end in ends.items()}}


def _most_and_least(groups: pl.DataFrame, narrow: Narrow, sort: str, top: int) -> dict[str, Any]:
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
        "most": describe_groups(groups[most], narrow),
        "least": describe_groups(groups[least], narrow),
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
