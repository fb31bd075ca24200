"""`inspect` and `report` of files: inputs, tables, rows with groups, and facts about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, InputChanged, UsageError
from grpo_cli.options.conditions import Filter
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import plan_of
from grpo_cli.read.build_table import columns_first, read
from grpo_cli.read.layout import layout
from grpo_cli.read.tables import Binding, FileTable, OverTables, Table, column_names, refuse_changed, size_of
from grpo_cli.read.token_numbers import Lists, reduced
from grpo_cli.runs.asked import OnFiles, binding_of, condition_of, draws_of, made
from grpo_cli.runs.progress import HERE, Workers
from grpo_cli.stats.inspection import Inspection, View, score_groups, what_is_read, with_facts
from grpo_cli.stats.off_policy import OffPolicy, off_policy
from grpo_cli.stats.verdicts import with_other, with_verdicts
from grpo_cli.values.paths import is_there
from grpo_cli.write.outputs import refuse_path
from grpo_cli.write.write_outputs import Phase

if TYPE_CHECKING:
    from grpo_cli.runs.rescored import Other
    from grpo_cli.stats.rescored import Rescored

# Texts are most of a file. Up to this size, reading them takes no noticeable time.
CHEAP = 32 << 20
LOGPROBS = ("token_logprobs", "old_token_logprobs", "token_entropy", "mask")


@dataclass(frozen=True, kw_only=True)
class Job(OnFiles):
    """Which files to inspect, and what to show of them."""

    plan: Plan = field(default_factory=Plan)  # whose advantages are shown beside the rewards
    view: View = field(default_factory=View)  # what to show, and the columns that it needs
    where: Filter | None = None  # only these groups
    report: Path | None = None  # the caller writes it; the path is checked before anything is read
    force: bool = False  # an existing report may be replaced
    other: Other | None = None  # where another reward of the same rollouts is
    whole: bool = True  # if `other` is given: also the facts of an inspection without it

    @classmethod
    def of(cls, given: Given, **more: Any) -> Self:
        """What options ask for; `more` are further fields."""
        other = None
        if {"rescored", "rescored_column"} & {*given}:
            from grpo_cli.runs.rescored import Other  # what few runs need is loaded when they do

            other = Other.of(given)
        return made(
            cls,
            given,
            plan=plan_of(given),
            binding=binding_of(given),
            view=view_of(given, by_steps=more.get("report") is not None, trend=True),
            where=condition_of(given, "where"),
            other=other,
            **more,
        )


def run(job: Job, phase: Phase = lambda *_: None, workers: Workers = HERE) -> Inspection:
    """Inspect the files, which the workers read; nothing is written."""
    phase("reading")
    tables, skipped = job.opened(workers.over_far)
    others = _others(job, workers)
    if job.report is not None:
        with columns_first(tables, (job.plan, job.binding)):
            refuse_path(job.report, force=job.force)
    over = workers.begin([*tables, *others], phase)
    found = looked_at(job, tables, others, size_of(tables), over=over)
    refuse_changed([*tables, *others])
    names = [table.name for table in tables]
    found = found.read_from(names, skipped)
    if job.other is None:
        return found
    two = cast("Rescored", found.beside)
    return replace(found, beside=replace(two, inputs=names, warnings=[*two.warnings, *skipped]))


def _others(job: Job, workers: Workers) -> list[FileTable]:
    """The tables with the other reward; none if it is a column of the same files."""
    other = job.other
    if other is None or not other.inputs:
        return []
    try:
        return other.opened(workers.over_far)[0]
    except DataError as error:
        if other.inputs[0] not in error.message:
            error.inside(f"--old-rewards {other.inputs[0]}")
        raise


def scored(
    tables: Sequence[Table], binding: Binding, plan: Plan, view: View, *, warn: bool = True, over: OverTables = map
) -> Inspection:
    """Let `over` read what the plan and the view need, and score it; there are no facts yet."""
    binding, plan, columns = what_is_read(column_names(tables), binding, plan, view, _stop(tables))
    narrow = read(layout(tables, binding), plan, warn=warn, over=over)
    return score_groups(narrow, narrow.plan, columns)


def _stop(tables: Sequence[Table]) -> str:
    """The column of the schema that says why a response ended, if it can be there."""
    schema = tables[0].schema
    return schema.stop if schema is not None and schema.stop and is_there(schema.stop, column_names(tables)) else ""


def view_of(given: Given, **steps: bool) -> View:
    """What an inspection shows."""
    refuse_negative_top(given)
    logprobs = {name: given[name] for name in LOGPROBS if name in given}
    if logprobs and not {*LOGPROBS[:2]} <= {*logprobs}:
        cure = "give --token-logprobs and --old-token-logprobs"
        raise UsageError("the log-probs of two policies are compared", cure)
    draws = () if "before" in given else draws_of(given) or ()
    return made(
        View, given, **steps, draws=draws, logprobs=logprobs, length=given.length_column, text=given.text_column
    )


def refuse_negative_top(given: Given) -> None:
    """Refuse to list fewer than none."""
    if given.top is not None and given.top < 0:
        raise UsageError(f"--top cannot be {given.top}", "it takes 0 or more")


def other_runs(job: OnFiles, plan: Plan) -> list[Inspection]:
    """The runs of --against, read like this one."""
    runs = []
    for path in job.earlier.values():
        tables, _ = replace(job, inputs=[path], before=()).opened()
        runs.append(scored(tables, job.binding, plan, View(), warn=False))
        refuse_changed(tables)
    return runs


def looked_at(
    job: Job, tables: Sequence[Table], others: Sequence[Table], size: float, *, over: OverTables = map
) -> Inspection:
    """Inspect these tables, which have `size` bytes; `others` have the other reward, unless it is a column of these."""
    view = with_duplicates(job.view, size)
    if job.where is not None:
        view = replace(view, named=job.where.names)
    if job.other is None:
        inspection = scored(tables, job.binding, job.plan, view, over=over)
        inspection = kept(inspection, job.where)
        return with_verdicts(described(inspection, view, over))
    from grpo_cli.runs.rescored import carrying, two_rewards

    binding = carrying(tables, others, job.other, job.binding)
    inspection = scored(tables, binding, job.plan, view, over=over)
    inspection, two = two_rewards(inspection, others, job.other, where=job.where, over=over)
    if job.whole:
        inspection = described(inspection, view, over)
        two = replace(two, warnings=[*dict.fromkeys([*two.warnings, *inspection.facts.summary.warnings])])
        return with_other(inspection, two, two.verdict, two.warnings)
    return replace(inspection, beside=two)


def kept(inspection: Inspection, where: Filter | None) -> Inspection:
    """The inspection of the groups that meet a condition."""
    if where is None:
        return inspection
    from grpo_cli.choosing.groups import only  # takes a hundredth of a second to load

    return only(inspection, where)


def described(inspection: Inspection, view: View, over: OverTables) -> Inspection:
    """The inspection with its facts; of log-probs as well, where options or the schema name both.

    What a schema names is not asked for: lists that cannot be used are a warning.
    """
    narrow = inspection.narrow
    inspection = with_facts(inspection, view)
    columns = view.logprobs
    if not columns and narrow.request.schema is not None:
        known = narrow.request.schema.logprobs
        columns = known if {*known.values()} <= {*column_names(narrow.tables)} else {}
    if not columns:
        return inspection
    first = columns["token_logprobs"]
    try:
        found = _drift(inspection, columns, over)
    except DataError as error:
        if view.logprobs or isinstance(error, InputChanged):
            raise
        warnings = [*inspection.facts.summary.warnings, f"how far off-policy the rows are is not known: {error}"]
        return inspection.warned(warnings)
    if found is None and view.logprobs:
        wrong = f"no row has log-probs other than 0 in {first}"
        raise DataError(wrong, "name other columns", place=narrow.tables[0].name)
    return inspection.telling(off_policy=found)


def _drift(inspection: Inspection, columns: Mapping[str, str], over: OverTables) -> OffPolicy | None:
    """How far apart the log-probs in these columns are, over the file, by the column of --by and by version."""
    narrow = inspection.narrow
    known = inspection.columns
    logprobs = [columns["token_logprobs"], columns["old_token_logprobs"]]
    lists = Lists(logprobs, columns.get("token_entropy", ""), columns.get("mask", ""))
    rows = np.flatnonzero(~narrow.left_out.to_numpy())
    by = {} if inspection.by is None else {known["by"]: inspection.by}
    if "version" in known:
        by[known["version"]] = narrow.carried[known["version"]]
    counted = partial(reduced, narrow=narrow, rows=rows, lists=lists, over=over)
    return off_policy(counted, columns, len(rows), inspection.scored.rows[".advantage"], by)


def with_duplicates(view: View, size: float) -> View:
    """The view with a decision on comparing texts: its own, or else yes if the files are small."""
    if view.duplicates is not None:
        return view
    return replace(view, duplicates=size <= CHEAP)
