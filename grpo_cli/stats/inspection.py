"""Looking at rewards before anything is computed from them: the whole result of `inspect`, as plain data and as frames.

Nothing stops for rows without a reward or for groups of one row: whoever looks wants to see them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from grpo_cli.engine.compile import score
from grpo_cli.engine.plan import Plan
from grpo_cli.read.build_table import read
from grpo_cli.read.known_names import STEP_LIKE
from grpo_cli.stats import correlations, difficulty, facts
from grpo_cli.stats.extremes import listed
from grpo_cli.stats.trends import spanning, trend

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.engine.compile import Scored
    from grpo_cli.formats.interface import Kind
    from grpo_cli.read.tables import Binding, Narrow, Table

TOP: Final = 3
SORT: Final = "std"
FILE: Final = "file"
UNSAID: Final = ("advantage", "status", "skipped", "plan", "batches", "batch_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody wants to see beside what is always shown."""

    by: str | None = None
    by_steps: bool = False  # a trend over the steps where there are any
    top: int = TOP
    sort: str = SORT
    length: str | None = None
    text: str | None = None
    duplicates: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What the rewards look like: `facts` as plain data, `groups` one line per group, and what they were made of.

    `seen` has the rewards as they stand in the file, `scored` the advantages of the plan.
    """

    facts: Mapping[str, Any]
    groups: pl.DataFrame
    seen: Scored
    scored: Scored
    narrow: Narrow
    columns: Mapping[str, str]  # the columns of length, text, prompt and trend that were found

    @property
    def rows(self) -> pl.DataFrame:
        """The rewards row by row; with the length where it is known, and then with the mean of the group."""
        rows, length = self.seen.rows, _length(self.narrow, self.columns)
        if length is None:
            return rows
        return rows.with_columns(length, self.groups["mean"].gather(rows["group"]).alias(".mean"))


def look(tables: Sequence[Table], binding: Binding, plan: Plan, asked: Asked = Asked()) -> Inspection:
    """Read what is needed and say all there is to say."""
    made = gathered(tables, binding, plan, asked)
    return replace(made, facts=_facts(made, asked))


def gathered(tables: Sequence[Table], binding: Binding, plan: Plan, asked: Asked) -> Inspection:
    """Rows, groups and advantages, before anything is said of them."""
    plan = replace(plan, rewards=replace(plan.rewards, missing=_never_stopping(plan)))
    columns = _columns([name for table in tables for name in table.columns()], asked, binding)
    narrow = read(tables, _carrying(binding, plan, columns, asked), plan)
    own = Plan(unit=plan.unit, rewards=replace(plan.rewards, combine="sum"))
    seen = score(own, narrow.table)
    scored = seen if own == plan else score(plan, narrow.table)
    groups = _groups(seen, narrow, columns)
    return Inspection(facts={}, groups=groups, seen=seen, scored=scored, narrow=narrow, columns=columns)


def _never_stopping(plan: Plan) -> Any:
    return "exclude" if plan.rewards.missing == "error" else plan.rewards.missing


# --- columns -----------------------------------------------------------------------------------------------


def _columns(names: Sequence[str], asked: Asked, binding: Binding) -> dict[str, str]:
    """Which columns are looked at: the named ones, else the first known name."""
    taken = {*binding.group, *binding.rewards}
    free = [name for name in names if name not in taken]
    steps = next((name for name in STEP_LIKE if name in names), None) if asked.by_steps else None
    named = {"length": asked.length or binding.roles.get("length"), "text": asked.text, "by": asked.by or steps}
    known = {"length": correlations.LENGTHS, "text": correlations.TEXTS, "prompt": correlations.PROMPTS}
    found = {part: next((name for name in known.get(part, ()) if name in free), None) for part in ("by", *known)}
    chosen = {part: named.get(part) or found[part] for part in found}
    chosen["advantage"] = next((name for name in correlations.ADVANTAGES if name in names), None)
    return {part: name for part, name in chosen.items() if name not in {None, "equal"}}


def _carrying(binding: Binding, plan: Plan, columns: Mapping[str, str], asked: Asked) -> Binding:
    """The columns that come along, and the length no longer a part of the arithmetic that does not read it."""
    by_name = asked.length is None and "length" not in binding.roles
    wanted: dict[str, Kind] = {}
    if "length" in columns:
        wanted[columns["length"]] = "key" if by_name else "number"
    if asked.duplicates and "text" in columns:
        wanted[columns["text"]] = "key"
    if columns.get("by") not in {None, FILE}:
        wanted[columns["by"]] = "key"
    roles = {role: name for role, name in binding.roles.items() if role != "length" or role in plan.needs}
    return replace(binding, carried=wanted, roles=roles, singletons_meant=True)


def _length(narrow: Narrow, columns: Mapping[str, str]) -> pl.Series | None:
    return correlations.as_lengths(narrow.carried[columns["length"]]) if "length" in columns else None


# --- groups ------------------------------------------------------------------------------------------------


def _groups(seen: Scored, narrow: Narrow, columns: Mapping[str, str]) -> pl.DataFrame:
    """One line per group: facts, how often it is solved, and its mean length."""
    groups = facts.group_facts(seen)
    groups = groups.with_columns(difficulty.solve_rates(groups))
    length = _length(narrow, columns)
    if length is None:
        return groups
    return groups.with_columns(length=correlations.group_means(seen.rows["group"], length, len(groups)))


# --- facts -------------------------------------------------------------------------------------------------


def _facts(made: Inspection, asked: Asked) -> dict[str, Any]:
    """The shared facts of a run without those of its advantages, and what only a look gives."""
    groups, narrow, rows = made.groups, made.narrow, made.rows
    told = {name: fact for name, fact in facts.summarize(made.seen, narrow, groups).items() if name not in UNSAID}
    ends = facts.worst_and_best(told["reward"]["min"], told["reward"]["max"])
    told["reward"] = with_ends(told["reward"], rows[".reward"])
    tied = difficulty.ties(groups, rows, told["reward"]["histogram"])
    length = made.columns.get("length") if "length" in rows.columns else None
    told |= {
        "advantage_column": made.columns.get("advantage"),
        "rewards": _by_column(made, told),
        "difficulty": difficulty.difficulty(groups),
        "spread": difficulty.spread(groups, made.seen.plan.divisor.ddof),
        "expected": difficulty.expected(groups, tied, told["reward"]["histogram"]),
        "at_size": difficulty.by_size(tied),
        "live_rows": int(groups.filter(~pl.col("constant") & (pl.col("scored") > 1))["scored"].sum()),
        "effective_rows": difficulty.effective(made.scored.rows[".advantage"]),
        "method": made.scored.plan.method,
        "length": None if length is None else {"column": length, **correlations.with_length(rows, ends)},
        "duplicates": _duplicates(made, asked),
        "listed": listed(groups, narrow, asked.sort, asked.top),
        "by": _trend(made, ends),
    }
    told["warnings"] = [*told["warnings"], *_warnings(made)]
    return told


def _by_column(made: Inspection, told: Mapping[str, Any]) -> dict[str, Any]:
    """Each reward column by itself, without its weight, and the share of groups in which it does not vary."""
    names = made.narrow.reward_names
    if len(names) == 1 and not made.seen.plan.rewards.weights and made.seen.plan.unit.take == "each":
        share = told["zero_variance"]["share"]
        return {names[0]: {**told["reward"], "unscorable": told["unscorable"], "zero_variance_share": share}}
    columns = {name: made.narrow.table[f"reward.{k}"] for k, name in enumerate(names)}
    return {name: _column_facts(made.narrow.table["group"], column) for name, column in columns.items()}


def _column_facts(codes: pl.Series, column: pl.Series) -> dict[str, Any]:
    finite = column.is_finite().fill_null(value=False)
    known = pl.DataFrame({"group": codes, "value": column}).filter(finite)
    ends = known.group_by("group").agg(n=pl.len(), low=pl.col("value").min(), high=pl.col("value").max())
    compared = ends.filter(pl.col("n") > 1)
    share = int((compared["low"] == compared["high"]).sum()) / len(compared) if len(compared) else None
    missing = int((~finite).sum())
    return {**with_ends(facts.distribution(column), column), "unscorable": missing, "zero_variance_share": share}


def with_ends(seen: Mapping[str, Any], values: pl.Series) -> dict[str, Any]:
    """A distribution with how often its smallest and its largest value occur: the spikes that a histogram may hide."""
    ends = {"at_min": seen["min"], "at_max": seen["max"]}
    return {**seen, **{name: 0 if end is None else int((values == end).sum()) for name, end in ends.items()}}


def _duplicates(made: Inspection, asked: Asked) -> dict[str, Any] | None:
    if not asked.duplicates or "text" not in made.columns:
        return None
    column = made.columns["text"]
    return {"column": column, **correlations.duplicates(made.seen.rows["group"], made.narrow.carried[column])}


def by_values(made: Inspection) -> pl.Series | None:
    """The column of the trend, row by row."""
    column = made.columns.get("by")
    if column is None:
        return None
    if column == FILE and FILE not in made.narrow.carried.columns:
        return made.narrow.files()
    return made.narrow.carried[column]


def _trend(made: Inspection, ends: tuple[float | None, float | None]) -> dict[str, Any] | None:
    by = by_values(made)
    if by is None:
        return None
    return {"column": made.columns["by"], "lines": trend(by, made.rows, made.groups, ends)}


def _warnings(made: Inspection) -> list[str]:
    by = by_values(made)
    split = 0 if by is None else spanning(by, made.seen.rows["group"])
    if not split:
        return []
    return [f"{split} groups have rows in several values of {made.columns['by']}: each counts where it begins"]
