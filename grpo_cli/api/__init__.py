"""The Python API: frames or paths in, a series like the frame or a whole result out; notebooks render an inspection.

import grpo_cli
grpo_cli.advantages(frame, method="rloo")
look = grpo_cli.inspect(frame, by="step")
look.facts["zero_variance"], look.groups.filter("constant"), look.chart("solve_rates")
alive = grpo_cli.select(frame, where="0.1 <= mean <= 0.9 and std > 0").frame
pairs = grpo_cli.export(frame, to="pairs").frame
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast, overload

import numpy as np
import polars as pl

from grpo_cli.api.calls import in_keywords, plain, takes, warn
from grpo_cli.api.notebook import cell, counted, line, preformatted, printed, table, warned
from grpo_cli.api.notebook import frame as shown_frame
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.presets import presets
from grpo_cli.errors import DataError, GrpoError, UnknownName, UsageError
from grpo_cli.formats.frame import EXPLODE, FRAME, FrameReader
from grpo_cli.options.commands import COMMANDS
from grpo_cli.options.given import Given
from grpo_cli.options.keywords import (
    AddKeywords,
    AuditKeywords,
    ComputeKeywords,
    ExportKeywords,
    ExportTo,
    InspectKeywords,
    SelectKeywords,
)
from grpo_cli.options.meant import unknown_option
from grpo_cli.options.resolve import normalized, plan_of, refuse_twice, refuse_without_effect, weights_of, with_shared
from grpo_cli.options.table import BY_VALUE, COMPUTED, OF_PART, ON_FRAMES, OPTIONS
from grpo_cli.read.build_table import read, read_parts
from grpo_cli.read.layout import layout
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.open_tables import find_inputs, open_tables
from grpo_cli.read.recognise import recognise
from grpo_cli.read.tables import Binding, FileTable, Table, column_names, refuse_changed, whole
from grpo_cli.render.compare import render as render_comparison
from grpo_cli.render.figures import figures
from grpo_cli.runs import export as exports
from grpo_cli.runs import select as selects
from grpo_cli.runs.asked import binding_of, draws_of, plan_by_of, tokens_of
from grpo_cli.runs.compute_files import scored_parts, warnings_of
from grpo_cli.runs.group_rows import show_group
from grpo_cli.runs.inspect import Job, looked_at, run
from grpo_cli.stats.compare import Comparison as Compared
from grpo_cli.stats.document import document
from grpo_cli.stats.facts import group_facts
from grpo_cli.stats.inspection import Inspection, key_columns
from grpo_cli.stats.rescored import Rescored
from grpo_cli.stats.runs import Runs
from grpo_cli.stats.runs import compared as compared_runs
from grpo_cli.stats.small_parts import summarize_each
from grpo_cli.write.outputs import in_memory, refuse_path
from grpo_cli.write.token_lists import tokens_of_rows
from grpo_cli.write.write_outputs import FOREIGN

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from rich.console import Console

    from grpo_cli.guests.audit.facts import Audited
    from grpo_cli.runs.compare import Contender

Series = TypeVar("Series")
Frame = TypeVar("Frame")
Name = str | os.PathLike[str]


def _keywords_of(command: str, *, without: Collection[str] = ()) -> tuple[str, ...]:
    """The options of a command that its Python function takes: all that are not about files and messages."""
    of_files = {*OPTIONS} - {*ON_FRAMES, "seed"}
    return tuple(name for name in COMMANDS[command].options if name not in {*of_files, *without})


INSPECTED = _keywords_of("inspect", without={"where", "show", "format", "full", "before", "rescored"})
# Keywords of `inspect` that are spelled like their flags.
INSPECT_KEYWORDS = {"old_rewards_column": "rescored_column"}
# Keywords of `select` spelled like its flags; other commands have options of these names.
SELECT_KEYWORDS = {"top": "most", "by": "most_by", "solved_at": "solved_from", "against": "before"}
EXPORT_KEYWORDS = {"pick": "best", "against": "before"}
EXPORTED = _keywords_of("export")
ADD_KEYWORDS = {"column": "chosen"}
ADDED = ("chosen", "on", "take", "by_position", "schema", "in_place", "force", "replace", "fail_on")
SELECTED = _keywords_of("select")
WIDTH = 100  # characters of a line of a repr
LINES = 30  # a longer repr is cut
PATH = (str, os.PathLike)
NEWEST = "now"  # the name of the frame among the runs of `against`
HEAD = 20  # rows of a pandas frame whose values show the type of a column


# --- advantages ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, repr=False)
class Result(Generic[Series]):
    """Advantages and statuses row by row, facts of each group, and the plan that made them.

    `advantages` and `status` are series like the frame that came in (polars, pandas or pyarrow); rows of
    dropped groups have null. `groups` is a polars frame with one line per group. With `plan_by` each value has its plan in `plans`.
    `warnings` are those that Python gave.
    """

    advantages: Series
    status: Series
    groups: pl.DataFrame
    plans: Mapping[str, Plan]  # keys are the values of `plan_by`; without it the only key is ""
    warnings: Sequence[str] = ()

    @property
    def plan(self) -> Plan:
        """The plan of all rows."""
        if "" not in self.plans:
            raise UsageError("each value of --plan-by has a plan of its own", "they are in .plans")
        return self.plans[""]

    def __repr__(self) -> str:
        return line("Result", *self._parts(), warnings=self.warnings)

    def _repr_html_(self) -> str:
        """What was computed, the warnings, and the groups."""
        return cell(", ".join(self._parts()), shown_frame(self.groups), warnings=self.warnings)

    def _parts(self) -> list[str]:
        compared = self.groups.filter(pl.col("scored") > 1)
        constant = int(compared["constant"].sum())
        methods = dict.fromkeys(plan.method for plan in self.plans.values())
        size = len(cast("Any", self.status))
        rows = f"{counted(size, 'row')} in {counted(len(self.groups), 'group')}"
        return [rows, " and ".join(methods), f"{constant:,} of {len(compared):,} groups without a gradient"]


@overload
def compute(
    frame: pl.DataFrame | pl.LazyFrame | Name,
    plan: Plan | None = None,
    **options: Unpack[ComputeKeywords],
) -> Result[pl.Series]: ...
@overload
def compute(
    frame: pd.DataFrame, plan: Plan | None = None, **options: Unpack[ComputeKeywords]
) -> Result[pd.Series[Any]]: ...
@overload  # pyarrow and datasets
def compute(frame: Any, plan: Plan | None = None, **options: Unpack[ComputeKeywords]) -> Result[pa.Array]: ...
@takes(COMPUTED)
def compute(frame: Any, plan: Plan | None = None, **options: Unpack[ComputeKeywords]) -> Result[Any]:
    """Compute advantages of a frame.

    Parameters
    ----------
    frame:
        A polars (lazy too), pandas or pyarrow table, a Hugging Face dataset, or a path. Of a lazy frame only the columns
        that are read are collected.
    plan:
        The whole arithmetic; the options may then only say which columns play which part.
    options:
        The options of `grpo-adv compute` without the dashes in front: method="rloo", scale="batch",
        group=["prompt_id", "step"], reward=["accuracy=1", "format=0.5"], param={"k": 4}.
        plan_by="env_name", plans={"math": {"preset": "trl-grpo"}, "default": {"method": "rloo"}} computes each value by a plan.

    Example
    -------
    grpo_cli.compute(frame, preset="verl-grpo").groups.filter("constant")

    """
    if plan is not None and not isinstance(plan, Plan):
        raise UsageError(f"a plan cannot be {plan!r}", "options have names: method='rloo', scale='batch'")
    given = _checked("compute", options, COMPUTED)
    if plan is not None:
        _refuse_arithmetic(given)
        refuse_without_effect(given, plan)
    parts = plan_by_of(given)
    whole_plan = plan or (plan_of(given) if parts is None else Plan())
    binding = binding_of(given)
    if plan is not None:
        binding = replace(binding, rollouts="each")
    tokens = tokens_of(given, [whole_plan] if parts is None else [own for own, _ in parts.plans.values()])
    tables, like_frame = opened(frame, binding)
    of_files: Sequence[str] = ()
    if parts is None:
        narrows = [read(layout(tables, binding), whole_plan)]
    else:
        narrows, of_files = read_parts(tables, parts)
    refuse_changed(tables)
    if tokens is not None:
        tokens.check(tables)
    values = []
    statuses = []
    groups = []
    warnings = [*of_files]
    needed = {role for narrow in narrows for role in (*narrow.plan.needs, *narrow.plan.may_read)}
    scored_each = scored_parts(narrows)
    summaries = summarize_each([*zip(scored_each, narrows, strict=True)])
    for narrow, scored, summary in zip(narrows, scored_each, summaries, strict=True):
        on_tokens = None if tokens is None else tokens_of_rows(narrow, scored, tokens)
        value = in_memory(scored, on_tokens)
        values.append(pl.select(pl.when(scored.frame[".kept"]).then(value)).to_series())
        statuses.append(scored.frame[".status"].cast(pl.String))
        facts = group_facts(scored)
        groups.append(_with_keys(narrow, facts.drop("code", "batch", "zero_variance")))
        odd = warnings_of(summary, scored, needed, () if tokens is None else (tokens.length,))
        warnings += summary.warned(odd).warnings
    status = _on_all_rows(narrows, statuses)
    if narrows[0].foreign is not None:
        status = status.scatter(narrows[0].foreign, FOREIGN)
    return Result(
        advantages=like_frame(_on_all_rows(narrows, values).alias("advantage")),
        status=like_frame(status.alias("status")),
        groups=pl.concat(groups, how="diagonal_relaxed"),
        plans={narrow.request.value: narrow.plan for narrow in narrows},
        warnings=warn(warnings),
    )


@overload
def advantages(
    frame: pl.DataFrame | pl.LazyFrame | Name,
    plan: Plan | None = None,
    **options: Unpack[ComputeKeywords],
) -> pl.Series: ...
@overload
def advantages(frame: pd.DataFrame, plan: Plan | None = None, **options: Unpack[ComputeKeywords]) -> pd.Series[Any]: ...
@overload
def advantages(frame: Any, plan: Plan | None = None, **options: Unpack[ComputeKeywords]) -> pa.Array: ...
@takes(COMPUTED)
def advantages(frame: Any, plan: Plan | None = None, **options: Unpack[ComputeKeywords]) -> Any:
    """One advantage per row, as a series like the frame.

    Parameters
    ----------
    frame:
        As for `compute`.
    plan:
        The whole arithmetic, as for `compute`.
    options:
        The options of `grpo-adv compute` without the dashes in front.

    Example
    -------
    frame.with_columns(grpo_cli.advantages(frame, method="rloo").alias("advantage"))

    """
    return compute(frame, plan, **options).advantages


def _checked(
    command: str, options: Mapping[str, Any], known: Collection[str], keywords: Mapping[str, str] = {}
) -> Given:
    """Options with values as the command line would give them; None counts as not given. `keywords` have names of their own."""
    spelled = {name: keyword for keyword, name in keywords.items()}
    allowed = [spelled.get(name, name) for name in known]
    for name, value in options.items():
        if name not in allowed:
            raise unknown_option("option", name, allowed)
        if isinstance(value, str) and not value:
            raise UsageError(f"{name} is empty", "leave it out, or give it a value")
    options = {keywords.get(name, name): value for name, value in options.items()}
    before = options.get("before")
    runs = before if isinstance(before, (list, tuple)) else [before]
    if not all(run is None or isinstance(run, PATH) for run in runs):
        raise UsageError("against takes paths", "write the other run to a file, such as before.parquet")
    given = Given(normalized(name, value) for name, value in options.items() if value is not None)
    refuse_twice(given)
    return given.to_command(command)


def _refuse_arithmetic(given: Given) -> None:
    """A plan is complete: an option that would change it is refused rather than ignored."""
    arithmetic = {*OF_PART, *BY_VALUE, "map", "presets"} - {"reward", "kl_from", "kl_estimator", "kl_reduce"}
    changing = [name for name in given if name in arithmetic]
    if weights_of(given):
        changing.append("a reward's weight")
    if changing:
        cure = ["make it part of the plan", "leave the plan out"]
        raise UsageError(f"the plan and {changing[0]} are both given", cure)


def _on_all_rows(narrows: Sequence[Narrow], values: Sequence[pl.Series]) -> pl.Series:
    """Values for all rows of the frame; rows of a dropped remainder have null."""
    if narrows[0].rows is None:
        return values[0]
    rows = np.concatenate([narrow.rows for narrow in narrows if narrow.rows is not None])
    nowhere = pl.repeat(None, sum(narrows[0].lengths), dtype=pl.Int64, eager=True)
    places = nowhere.scatter(rows, np.arange(len(rows)))
    return pl.concat(values).gather(places)


def _with_keys(narrow: Narrow, facts: pl.DataFrame) -> pl.DataFrame:
    """The key columns of groups and their facts; with `plan_by` first its value, unless a column has its name."""
    request = narrow.request
    frame = pl.DataFrame([*key_columns(narrow, facts.columns), *facts])
    if not request.by or request.by in frame.columns:
        return frame
    return frame.select(pl.lit(request.value).alias(request.by), pl.all())


# --- audit and compare -----------------------------------------------------------------------------------------


class Audit(dict[str, Any]):
    """The facts of `grpo-adv audit --json`, which a prompt and a notebook show as the answer."""

    def __init__(self, found: Audited) -> None:
        super().__init__(plain(found))
        self._found = found

    def __repr__(self) -> str:
        match = self["match"]
        of_rows = f"{match['mismatched_rows']:,} of {counted(self['rows'], 'row')} differ"
        return line("Audit", match["verdict"], match["name"], of_rows, warnings=self["warnings"])

    def _repr_html_(self) -> str:
        """What the command prints."""
        from grpo_cli.guests.audit.text import render

        return in_keywords(preformatted(printed(partial(render, self._found))))


@takes(ON_FRAMES)
def audit(frame: Any, column: str | None = None, plan: Plan | None = None, **options: Unpack[AuditKeywords]) -> Audit:
    """Which formula made the advantages of a frame: the facts of `grpo-adv audit --json`, as plain data.

    Parameters
    ----------
    frame:
        As for `compute`.
    column:
        The logged advantages; by default the column that a schema or its name says.
    plan:
        A claim that is checked.
    options:
        The options of `grpo-adv audit`; those of a plan are a claim as well: preset="trl-grpo".

    Returns
    -------
    The match, the rows and groups that disagree, ties and likely causes.

    Example
    -------
    grpo_cli.audit(frame, preset="trl-grpo")["match"]

    """
    from grpo_cli.guests.audit import run as audits

    given = _checked("audit", options, ON_FRAMES)
    job = audits.Job.of(given, column=column)
    if plan is not None:
        job = replace(job, said=job.said._replace(claim=plan))
    tables, _ = opened(frame, job.binding)
    found = audits.audited(job, tables)
    refuse_changed(tables)
    warn(found.warnings)
    return Audit(found)


@takes(ON_FRAMES)
def compare(
    frame: Any, plans: Sequence[str] | Mapping[str, Plan | str | Mapping[str, Any]], **options: Unpack[AuditKeywords]
) -> Comparison:
    """Compare several plans on the same rows; the others are compared with the first.

    Parameters
    ----------
    frame:
        As for `compute`.
    plans:
        Methods and presets as on the command line, ["grpo", "trl-grpo,scale=batch"], or by names of your own:
        {"ours": "grpo", "theirs": {"preset": "trl-grpo"}, "new": Plan.of({"divisor.level": "none"})}.
    options:
        The options of `grpo-adv compare` that say which columns play which part, and options for every plan that is no `Plan`.

    Returns
    -------
    `facts`, plain data, and `scored`, the rows of each plan by its name.

    Example
    -------
    grpo_cli.compare(frame, ["grpo", "rloo"]).facts

    """
    from grpo_cli.runs import compare as runs

    given = _checked("compare", options, ON_FRAMES)
    contenders = _contenders(plans, given)
    job = runs.Job(plans=contenders, binding=binding_of(given))
    tables, _ = opened(frame, job.binding)
    found = runs.compared(job, tables)
    refuse_changed(tables)
    warn(found.compared.warnings)
    return Comparison(scored=found.scored, narrow=found.narrow, compared=found.compared)


def _contenders(plans: Any, given: Given) -> dict[str, Contender]:
    """The plans that are compared, by their names; options for all of them count for those that are given in words."""
    from grpo_cli.runs.compare import Contender, contenders

    hint = "give methods and presets: ['grpo', 'trl-grpo'], or plans by their names: {'ours': {'method': 'rloo'}}"
    if isinstance(plans, (list, tuple)) and all(isinstance(plan, str) for plan in plans):
        named = dict(zip(plans, plans, strict=True))
        if len(named) < len(plans):
            raise UsageError("a plan is named twice", "append options to tell them apart: 'grpo,scale=batch'")
        plans = named
    if not isinstance(plans, Mapping) or not all(isinstance(plan, (Plan, str, Mapping)) for plan in plans.values()):
        raise UsageError(f"plans cannot be {plans!r}", hint)
    if len(plans) < 2:  # noqa: PLR2004 - two are a comparison
        raise UsageError("a comparison needs two plans", hint)
    whole = {str(name): plan for name, plan in plans.items() if isinstance(plan, Plan)}
    if whole:
        _refuse_arithmetic(given)
        refuse_without_effect(given, *whole.values())
    in_words = {str(name): _in_words(str(name), plan) for name, plan in plans.items() if not isinstance(plan, Plan)}
    made = contenders(with_shared(given.among(OPTIONS), in_words))
    return {name: Contender(whole[name]) if name in whole else made[name] for name in map(str, plans)}


def _in_words(name: str, plan: str | Mapping[str, Any]) -> Given:
    """The options of a plan, from `rloo,scale=batch` or from keywords."""
    from grpo_cli.runs.compare import plan_in_keywords, plan_in_words

    if not isinstance(plan, str):
        return plan_in_keywords(name, plan)
    first = plan.partition(",")[0].strip()
    return plan_in_words("preset" if first in presets() else "method", plan)


class Comparison(Compared):
    """Several plans on the same rows, as a prompt and a notebook show them."""

    @property
    def warnings(self) -> list[str]:
        """The warnings that Python gave."""
        return [*map(in_keywords, self.compared.warnings)]

    def __repr__(self) -> str:
        first, *others = (plan.name for plan in self.compared.plans)
        changed = [f"{each.changed:,} rows change in {each.name}" for each in self.compared.differences]
        return line("Comparison", f"{first} with {', '.join(others)}", *changed, warnings=self.warnings)

    def _repr_html_(self) -> str:
        """What the command prints."""
        return in_keywords(preformatted(printed(partial(render_comparison, self.compared))))


# --- inspect and select ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """What the rewards of a frame look like; `inspection` is all that was found."""

    inspection: Inspection
    compared: Runs | None = None

    @property
    def runs(self) -> dict[str, Any]:
        """The runs of `against` and their differences, as `grpo-adv inspect --against --json` has them."""
        if self.compared is None:
            raise UsageError("there is nothing to compare with", "give earlier runs: against={'step200': before}")
        return document(self.compared)

    @property
    def changes(self) -> pl.DataFrame:
        """Each prompt of `against`: its solve rates, the change with its interval, and whether it is beyond chance."""
        from grpo_cli.render.runs import table_of_prompts

        if self.compared is None:
            raise UsageError("there is nothing to compare with", "give earlier runs: against={'step200': before}")
        return table_of_prompts(self.compared, None)

    @property
    def facts(self) -> Mapping[str, Any]:
        """The facts of `grpo-adv inspect --json`."""
        found = self.inspection.facts
        facts = plain(found, *([] if found.inputs else ["inputs"]))
        if isinstance(self.inspection.beside, Rescored):
            facts["rescored"] = plain(self.inspection.beside)
        return facts

    @property
    def verdicts(self) -> list[str]:
        """The findings, in plain words."""
        return [*map(in_keywords, self.inspection.facts.verdicts)]

    @property
    def groups(self) -> pl.DataFrame:
        """One line per group: its key and its facts."""
        left_out = ("code", "batch", "status", "kept", "zero_variance")
        return _with_keys(self.inspection.narrow, self.inspection.groups.drop(left_out))

    @takes(())
    def show(self, key: str) -> dict[str, Any]:
        """One group with its rows: rewards, advantages and texts."""
        return document(show_group(self.inspection, key))

    @takes(())
    def chart(self, name: str) -> Any:
        """One figure of the report as an altair chart (extra `report`)."""
        from grpo_cli.render.report.charts import chart

        known = {figure.name: figure for figure in figures(self.inspection)}
        if name not in known:
            raise UnknownName.among("figure", name, known)
        return chart(known[name]).properties(title=known[name].title)

    def __str__(self) -> str:
        return self._printed().export_text()

    def _repr_html_(self) -> str:
        """Verdict, warnings, numbers, two figures and the groups; without the extra `report`, the text."""
        try:
            from grpo_cli.render.report.page import cell as page_cell

            return in_keywords(page_cell(self.inspection, warned(self.warnings), shown_frame(self.groups)))
        except ImportError:
            return preformatted(self._printed())

    @property
    def warnings(self) -> list[str]:
        """The warnings that Python gave."""
        return [*map(in_keywords, self.inspection.facts.summary.warnings)]

    def __repr__(self) -> str:
        """The findings and the warnings in at most 30 lines; `print` shows all."""
        facts = self.inspection.facts
        summary = facts.summary
        lines = [f"{summary.rows} rows in {summary.groups} groups by {', '.join(summary.group_key)}"]
        warnings = [f"warning: {sentence}" for sentence in self.warnings]
        for finding in (*self.verdicts, *warnings):
            lines += wrap(finding, WIDTH, initial_indent="* ", subsequent_indent="  ")
        return "\n".join([*lines[: LINES - 1], "print() shows all; .facts, .groups, .show(key), .chart(name)"])

    def _printed(self) -> Console:
        from grpo_cli.render.inspect import render

        return printed(lambda console: render(self.inspection.facts, console, asked=("by", "full")))


@takes(INSPECTED, INSPECT_KEYWORDS)
def inspect(
    frame: Any,
    *,
    old_rewards: Any = None,
    rescored: Any = None,
    rescored_column: str | None = None,
    against: Mapping[str, Any] | None = None,
    **options: Unpack[InspectKeywords],
) -> Look:
    """Look at a frame; a notebook shows what is found.

    Parameters
    ----------
    frame:
        As for `compute`. Texts are compared where it is small and in memory, or with duplicates=True.
    old_rewards:
        The same rollouts with their old rewards (old_rewards_column="old": of the same frame); the facts have what changed
        under "rescored".
    rescored:
        Another name of `old_rewards`.
    rescored_column:
        Another name of `old_rewards_column`.
    against:
        Earlier runs by their names, the base first: {"step200": before}. What changed is in `runs`, and each prompt in
        `changes`; `sort` and `top` choose the prompts of `runs`.
    options:
        The options of `grpo-adv inspect`.

    Example
    -------
    grpo_cli.inspect(frame, by="step").verdicts

    """
    if against is not None and not isinstance(against, Mapping):
        raise UsageError("against takes runs by their names", "give them as against={'step200': before}")
    given = _checked("inspect", _renamed(options, rescored_column), INSPECTED, INSPECT_KEYWORDS)
    old_rewards = _either(old_rewards, rescored)
    if "cluster" in given and against is None:
        raise UsageError("cluster is for the comparison of runs", "give earlier ones with against={'step200': before}")
    if against is None:
        found = _inspected(frame, given, old_rewards)
        warn(found.facts.summary.warnings)
        return Look(found)
    from grpo_cli.runs.against import OF_PROMPTS, Chosen, with_same_rollouts

    chosen = Chosen.of(given)
    given = given.without(OF_PROMPTS)
    found = _inspected(frame, given, old_rewards)
    earlier = {name: _inspected(run, given) for name, run in against.items()}
    if NEWEST in earlier or not earlier:
        raise UsageError(f"against has {[*earlier]}", ["give earlier runs by their names", f"{NEWEST!r} is the frame"])
    runs = compared_runs({**earlier, NEWEST: found}, draws_of(given) or ())
    runs = chosen.among(runs, column_names(found.narrow.tables))
    runs = with_same_rollouts(runs, found, earlier)
    warn(runs.warnings)
    return Look(found, runs)


def _either(old_rewards: Any, rescored: Any) -> Any:
    """The old rewards under one of their two names."""
    if old_rewards is not None and rescored is not None:
        raise UsageError("old_rewards and rescored are the same", "leave one of them out")
    return rescored if old_rewards is None else old_rewards


def _renamed(options: Mapping[str, Any], rescored_column: str | None) -> Mapping[str, Any]:
    """The options, with the column of the old rewards under its name."""
    if rescored_column is None:
        return options
    if options.get("old_rewards_column") is not None:
        raise UsageError("old_rewards_column and rescored_column are the same", "leave one of them out")
    return {**options, "old_rewards_column": rescored_column}


def _inspected(frame: Any, given: Given, rescored: Any = None, target: Path | None = None) -> Inspection:
    """Inspect a frame or files, with another reward or without; the `target` of a report is not read as an input."""
    of_files = rescored is None or isinstance(rescored, PATH)
    if rescored is not None:
        given = Given(given, rescored=str(rescored) if of_files else "a frame")
    inputs = [str(frame)] if isinstance(frame, PATH) else []
    job = Job.of(given, inputs=inputs, report=target, force=True)
    if inputs and of_files:
        return run(job)
    tables, _ = opened(frame, job.binding)
    others = [] if rescored is None or job.other is None else opened(rescored, job.other.binding)[0]
    found = looked_at(job, tables, others, _size(frame))
    refuse_changed([*tables, *others])
    return found


def _size(frame: Any) -> float:
    """Bytes of a frame in memory; infinite if unknown, as for a lazy one."""
    if isinstance(frame, pl.DataFrame):
        return frame.estimated_size()
    if hasattr(frame, "memory_usage"):
        return float(frame.memory_usage(index=False, deep=True).sum())
    return float(getattr(frame, "nbytes", "inf"))


@dataclass(frozen=True, repr=False)
class Selection(Generic[Frame]):
    """The rows that are kept, as a frame of the kind that came in (lazy ones are collected), and the facts of the choice."""

    frame: Frame
    facts: Mapping[str, Any]
    beside: Mapping[str, Frame] = field(default_factory=dict)  # the frame of each further output: control, holdout

    @property
    def warnings(self) -> Sequence[str]:
        """The warnings that Python gave."""
        warnings: Sequence[str] = self.facts["warnings"]
        return warnings

    def __repr__(self) -> str:
        return line("Selection", *self._parts(), warnings=self.warnings)

    def _repr_html_(self) -> str:
        """What was kept, what was left out and why, and the frame."""
        left_out = [[f"{one['rows']:,}", one["reason"]] for one in self.facts["dropped"]]
        dropped = table(["rows left out", "because"], left_out)
        return cell(", ".join(self._parts()), dropped, shown_frame(self.frame), warnings=self.warnings)

    def _parts(self) -> list[str]:
        facts = self.facts
        if "to" in facts:
            parts = [f"{counted(facts['records'], 'record')} ({facts['to']})"]
            parts.append(f"of {counted(facts['rows'], 'row')} in {counted(facts['groups'], 'group')}")
        else:
            parts = [f"{facts['kept_rows']:,} of {counted(facts['rows'], 'row')}"]
            parts.append(f"{facts['kept_groups']:,} of {counted(facts['groups'], 'group')}")
        sizes = ((name, len(cast("Any", other))) for name, other in self.beside.items())
        return [*parts, *(f"{name}: {counted(size, 'row')}" for name, size in sizes)]


@overload
def select(frame: pl.LazyFrame | Name, **options: Unpack[SelectKeywords]) -> Selection[pl.DataFrame]: ...
@overload
def select(frame: Frame, **options: Unpack[SelectKeywords]) -> Selection[Frame]: ...
@takes(SELECTED, SELECT_KEYWORDS)
def select(frame: Any, **options: Unpack[SelectKeywords]) -> Selection[Any]:
    """Keep groups of a frame, and rows inside them.

    Parameters
    ----------
    frame:
        As for `compute`.
    options:
        The options of `grpo-adv select` by their names.

    Example
    -------
    grpo_cli.select(frame, where="0.1 <= mean <= 0.9 and std > 0", per_group=4).frame

    """
    job = selects.Job.of(_checked("select", options, SELECTED, SELECT_KEYWORDS))
    tables, _ = opened(frame, job.binding)
    _, chosen, facts = selects.selected(job, tables)
    frames = {name: _taken(frame, tables, rows) for name, rows in chosen.items()}
    refuse_changed(tables)
    warn(facts.warnings)
    return Selection(frames.pop(""), plain(facts, "inputs", "outputs", "seconds"), frames)


def _taken(frame: Any, tables: Sequence[Table], rows: Any) -> Any:
    """These rows of a frame, as a frame of its kind; of files as a polars frame."""
    if isinstance(frame, PATH):
        frame = whole(cast("Sequence[FileTable]", tables))
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, pl.DataFrame):
        return frame[pl.Series(rows)]
    if hasattr(frame, "iloc"):
        return frame.iloc[rows]
    return frame.select(rows) if _is_dataset(frame) else frame.take(rows)


# --- export and report -------------------------------------------------------------------------------------------


@takes(EXPORTED, EXPORT_KEYWORDS)
def export(frame: Any, to: ExportTo, **options: Unpack[ExportKeywords]) -> Selection[pl.DataFrame]:
    """The records of the next training job as a polars frame.

    Parameters
    ----------
    frame:
        As for `compute`. It is written to a temporary file first, since texts are read from files.
    to:
        The kind of records.
    options:
        The options of `grpo-adv export` by their names.

    Example
    -------
    grpo_cli.export(frame, to="pairs", min_margin=0.5).frame

    """
    given = _checked("export", {"to": to, **options}, EXPORTED, EXPORT_KEYWORDS)
    job = exports.Job.of(given, inputs=[str(frame)])
    if isinstance(frame, PATH):
        return _exported(*exports.records(job))
    table, _ = _reader(frame)
    (found,) = recognise([Table(FRAME, table)], job.binding)
    schema = found.schema
    binding = job.binding if schema is None else replace(job.binding, schema=schema.name)
    with TemporaryDirectory(prefix="grpo-adv.") as folder:
        copy = Path(folder) / "frame.parquet"
        if isinstance(frame, pl.LazyFrame):
            frame.sink_parquet(copy)
        else:
            table.take(list(table.names), None).write_parquet(copy)
        try:
            records, facts = exports.records(replace(job, inputs=[str(copy)], binding=binding))
        except GrpoError as error:
            error.names = {str(copy): "frame"}
            raise
    return _exported(records, replace(facts, inputs=["frame"]))


def _exported(frames: Sequence[pl.DataFrame], facts: exports.Exported) -> Selection[pl.DataFrame]:
    frame, *others = frames
    beside = dict(zip(facts.beside, others, strict=True))
    warn(facts.warnings)
    return Selection(frame, plain(facts, "outputs"), beside)


@dataclass(frozen=True, repr=False)
class Page:
    """A report that a notebook shows; `html` is the page."""

    html: str
    headline: str = ""
    warnings: Sequence[str] = ()

    def __repr__(self) -> str:
        return line("Page", self.headline, f"{len(self.html) // 1000:,} kB of HTML", warnings=self.warnings)

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html)}" style="width: 100%; height: 900px; border: 0"></iframe>'


@overload
def report(
    frame: Any,
    path: None = None,
    *,
    old_rewards: Any = None,
    rescored: Any = None,
    rescored_column: str | None = None,
    **options: Unpack[InspectKeywords],
) -> Page: ...
@overload
def report(
    frame: Any,
    path: Name,
    *,
    force: bool = False,
    old_rewards: Any = None,
    rescored: Any = None,
    rescored_column: str | None = None,
    **options: Unpack[InspectKeywords],
) -> Path: ...
@takes(INSPECTED, INSPECT_KEYWORDS)
def report(
    frame: Any,
    path: Name | None = None,
    *,
    force: bool = False,
    old_rewards: Any = None,
    rescored: Any = None,
    rescored_column: str | None = None,
    **options: Unpack[InspectKeywords],
) -> Path | Page:
    """Plot what `inspect` finds, with its options (extra `report`).

    Parameters
    ----------
    frame:
        A polars, pandas or pyarrow table, a dataset, or a path.
    path:
        A page (.html) or an image (.png, .svg, .pdf). Without it, the result is a page that a notebook shows.
    force:
        Replace a file that exists.
    old_rewards:
        The same rollouts with their old rewards, as for `inspect`.
    rescored:
        Another name of `old_rewards`.
    rescored_column:
        Another name of `old_rewards_column`.
    options:
        The options of `grpo-adv report`.

    Example
    -------
    grpo_cli.report(frame, "report.html", by="step")

    """
    from grpo_cli.render.report import kind_of, page_of, write_report

    given = _checked("report", _renamed(options, rescored_column), INSPECTED, INSPECT_KEYWORDS)
    old_rewards = _either(old_rewards, rescored)
    if path is None:
        found = _inspected(frame, given, old_rewards)
        summary = found.facts.summary
        rows = f"{counted(summary.rows, 'row')} in {counted(summary.groups, 'group')}"
        return Page(page_of(found), rows, warn(summary.warnings))
    target = Path(path)
    kind_of(target)
    refuse_path(target, force=force)
    found = _inspected(frame, given, old_rewards, target)
    write_report(found, target, force=force)
    warn(found.facts.summary.warnings)
    return target


@takes(ADDED, ADD_KEYWORDS)
def add_columns(
    path: Name,
    frame: Any,
    out: Name | None = None,
    **options: Unpack[AddKeywords],
) -> str:
    """Insert the columns of a frame into a file, whose other bytes stay the same, and return the name of the output.

    Parameters
    ----------
    path:
        The file.
    frame:
        The columns, or a path to them. Row i belongs to row i of the file, or with on="rollout_id" (or {"here": "there"}) to the rows
        with its key.
    out:
        The output; without it the name is chosen.
    options:
        The options of `grpo-adv add`; `column` names the columns to insert, if not all, and their names in the output:
        {"score": "judge_score"}.

    Example
    -------
    grpo_cli.add_columns("rollouts.jsonl", scores, on="rollout_id")

    """
    from grpo_cli.runs import add

    given = _checked("add", options, ADDED, ADD_KEYWORDS)
    given.update(source=os.fspath(frame) if isinstance(frame, PATH) else "a frame")
    if out is not None:
        given.update(output=str(out))
    job = add.Job.of(given, file=str(path))
    if not isinstance(frame, PATH):
        job = replace(job, columns=_reader(frame)[0])
    facts = add.run(job)
    warn(facts.warnings)
    (target,) = facts.outputs
    return target


# --- kinds of frames ---------------------------------------------------------------------------------------------


def opened(frame: Any, binding: Binding) -> tuple[Sequence[Table], Callable[[pl.Series], Any]]:
    """A frame, or the files at a path, as tables with their schema; and a function that turns a series into one of its kind."""
    if isinstance(frame, PATH):
        inputs, _ = find_inputs([str(frame)])
        return open_tables(inputs, binding), lambda series: series
    columns, like_frame = _reader(frame)
    for name, named in (("reward", binding.rewards), ("group", binding.group)):
        for column in named:
            if "[]" in column:
                raise UsageError(f"{name}={column!r} is a path into lists, and a frame has one reward per row", EXPLODE)
    return recognise([Table(FRAME, columns)], binding), like_frame


def _reader(frame: Any) -> tuple[FrameReader, Callable[[pl.Series], Any]]:
    """The frame as a table, and a function that turns a series into one of its kind; imports neither pandas nor pyarrow."""
    home = type(frame).__module__.partition(".")[0]
    if isinstance(frame, (pl.DataFrame, pl.LazyFrame)):
        lazy = frame.lazy()
        types = lazy.collect_schema()
        texts = frame.select(pl.col(pl.String)).columns if isinstance(frame, pl.DataFrame) else ()

        def taken(names: Sequence[str], rows: int | None) -> pl.DataFrame:
            some = lazy if rows is None else lazy.head(rows)
            return some.select(pl.selectors.by_name(names)).collect()

        return FrameReader(types.names(), taken, in_memory=texts, types=types), lambda series: series
    if home == "pandas" and hasattr(frame, "columns"):
        named = frame.set_axis([str(name) for name in frame.columns], axis=1)
        texts = [name for name, kind in named.dtypes.items() if str(kind) in {"object", "str", "string"}]
        table = FrameReader(
            list(named.columns),
            lambda names, rows: _from_pandas(named[names].iloc[:rows]),
            in_memory=texts,
            types=_types_of_pandas(named),
        )
        return table, partial(_as_pandas, frame)
    if home == "pyarrow" and hasattr(frame, "column_names"):
        # Of two columns with one name, which nothing may read, one.
        places = {name: at for at, name in enumerate(frame.column_names)}
        first = frame[:0].select([*places.values()])
        texts = [one.name for one in frame.schema if str(one.type) in {"string", "large_string", "string_view"}]
        table = FrameReader(
            frame.column_names,
            lambda names, rows: pl.DataFrame(frame.select(names)[:rows]),
            in_memory=texts,
            types=pl.DataFrame(first).schema,
        )
        return table, _as_arrow
    if _is_dataset(frame):
        # Not its table: selected or shuffled rows are only indices into it.
        arrow = frame.with_format("arrow")
        table = FrameReader(
            frame.column_names,
            lambda names, rows: pl.DataFrame(arrow.select_columns(names)[:rows]),
            types=pl.DataFrame(arrow[:1]).schema,
        )
        return table, _as_arrow
    if home == "datasets" and isinstance(frame, dict):
        raise UsageError(f"a {type(frame).__name__} has several splits", f"give one of them: {', '.join(frame)}")
    cure = "give a polars, pandas or pyarrow table, a dataset, or a path"
    raise UsageError(f"cannot read a {type(frame).__name__}", cure)


def _types_of_pandas(frame: Any) -> dict[str, Any]:
    """The types of the first rows; columns of mixed types, which may not be needed, are left out."""
    types: dict[str, Any] = {}
    for name in frame.columns if frame.columns.is_unique else ():
        with suppress(DataError):
            types |= _from_pandas(frame[[name]].head(HEAD)).schema
    return types


def _is_dataset(frame: Any) -> bool:
    """Whether it is a Hugging Face Dataset (a streamed one has no number of rows)."""
    home = type(frame).__module__.partition(".")[0]
    return home == "datasets" and hasattr(frame, "num_rows") and not isinstance(frame, dict)


def _from_pandas(frame: pd.DataFrame) -> pl.DataFrame:
    try:
        return pl.from_pandas(frame)
    except (TypeError, ValueError) as error:  # pyarrow's errors are among them
        reason = str(error).splitlines()[0]
        raise DataError(f"a column has values of several types ({reason})", "make it one type first") from None


def _as_arrow(series: pl.Series) -> Any:
    return series.to_arrow(compat_level=pl.CompatLevel.oldest())


def _as_pandas(frame: Any, series: pl.Series) -> Any:
    values = series.to_numpy() if series.dtype.is_float() else series.to_list()
    pandas_series = type(frame.iloc[:, 0])
    return pandas_series(values, index=frame.index, name=series.name)
