"""`compute` of files: names, inputs, tables, rows with groups, advantages, facts, files.

Every file is read twice: first the few columns that matter, then the whole. It is pinned before the first reading and
checked before its advantages are inserted, so they can only land on the rows that they were computed from.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import Scored, score, score_each
from grpo_cli.errors import DataError, UsageError, Way, Written
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import Origin, origin, parts_of, plan_of
from grpo_cli.read import build_table
from grpo_cli.read.build_table import PlanBy
from grpo_cli.read.checks.scored import refuse_singletons, refuse_unscorable
from grpo_cli.read.layout import layout
from grpo_cli.read.narrow import Narrow, RowNumbers
from grpo_cli.read.request import unread_columns
from grpo_cli.read.tables import FILE, FileTable, refuse_changed
from grpo_cli.runs.asked import OnFiles, binding_of, is_silent, made, output_of, plan_by_of, tokens_of
from grpo_cli.runs.gate import Gate
from grpo_cli.runs.progress import HERE, Workers
from grpo_cli.stats.document import asked_by
from grpo_cli.stats.facts import Summary, same_everywhere
from grpo_cli.stats.small_parts import summarize_each
from grpo_cli.write.outputs import (
    Output,
    Target,
    choose_targets,
    is_folder,
    planned_targets,
    refuse_columns,
    refuse_read_columns,
    refuse_summary,
    refuse_token_lists,
)
from grpo_cli.write.refill import refill
from grpo_cli.write.token_lists import OnTokens, token_facts, tokens_of_rows
from grpo_cli.write.write_outputs import Computed, Phase, merged_keys, not_in_records, write


@dataclass(frozen=True, kw_only=True)
class Job(OnFiles):
    """What to read, what to compute, and what to write."""

    plan: Plan  # what is computed; with --plan-by only the first of the plans
    parts: PlanBy | None = None  # --plan-by: its plans replace `plan`
    output: Output = field(default_factory=Output)  # where and how to write
    gate: Gate | None = None  # the condition of --fail-on, checked before anything is written
    dry_run: bool = False  # --explain: compute with all intermediate columns, and write nothing
    silent: bool = False  # nobody sees the facts: they are computed for a gate only
    # The preset of each part's plan; "": of the plan for all rows.
    origins: Mapping[str, Origin | None] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Given) -> Job:
        """What options ask for."""
        given = given.to_command("compute")
        of_parts = parts_of(given)
        parts = plan_by_of(given, of_parts)
        plans = {"": plan_of(given)} if parts is None else {name: plan for name, (plan, _) in parts.plans.items()}
        options = of_parts or {"": given}
        return made(
            cls,
            given,
            plan=next(iter(plans.values())),
            binding=binding_of(given),
            parts=parts,
            output=output_of(given, tokens=tokens_of(given, plans.values())),
            gate=Gate.of(given, Facts if parts is None else PartOfRun),
            dry_run=bool(given.explain),
            silent=is_silent(given),
            origins={name: origin(own, plans[name]) for name, own in options.items()},
        )


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What a run would write that --explain stops."""

    outputs: Sequence[str]  # the files, or stdout; empty if their names cannot be chosen
    replaced: Sequence[str]  # those of them that exist and are written over, by --force or --in-place
    # why the run would stop before it writes, such as a file that exists; empty if nothing is in the way
    in_the_way: Sequence[str]
    columns: Mapping[str, str]  # the new columns with their types, such as f64
    only: Sequence[str] | None  # the columns of the input that --only keeps; None: all
    long: bool  # whether a record with several rollouts becomes several rows
    rows: int  # that are written, copies among them


@dataclass(frozen=True)
class Facts:
    """The summary of `compute`; `seconds` is missing if a gate stopped it."""

    INLINE: ClassVar = ("summary",)
    NOT_SHOWN: ClassVar = frozenset({"value", "key_note"})

    summary: Summary
    # that the plan comes from, and what options changed of it; None without --preset
    preset: Origin | None = field(metadata=asked_by("--preset", "NAME"))
    inputs: Sequence[str]  # the files; - is standard input
    advantage_column: str  # the name of the new column with the advantages
    more_columns: Sequence[str]  # further new columns: facts of groups, and which rows are copies
    dropped_rows: int  # rows that are not written: the plan drops their groups, or their block is incomplete
    copied_rows: int  # rows that --duplicate writes once more in place of dropped ones
    outputs: Sequence[str]  # the files that were written, or stdout; empty if nothing was
    # the tokens that get the advantages; absent without --per-token
    per_token: OnTokens | None = field(default=None, metadata=asked_by("--per-token"))
    # what would be written; absent without --explain
    planned: Planned | None = field(default=None, metadata=asked_by("--explain"))
    seconds: float | None = None  # the whole run took; absent if a gate stopped it
    config: str | None = None  # the file of options that was read; absent if none was

    def warned(self, warnings: Sequence[str]) -> Facts:
        """The facts with further warnings."""
        summary = replace(self.summary, warnings=[*self.summary.warnings, *warnings])
        return replace(self, summary=summary)


@dataclass(frozen=True)
class FactsOfPart:
    """The result for the rows with one value of --plan-by."""

    INLINE: ClassVar = ("facts",)
    NOT_SHOWN: ClassVar = frozenset(
        {"version", "inputs", "advantage_column", "more_columns", "outputs", "planned", "seconds", "config"}
    )

    value: str  # of the column of --plan-by
    facts: Facts


@dataclass(frozen=True)
class FactsOfParts:
    """The summary of `compute --plan-by`."""

    version: Literal[1]  # of the document; it changes when the meaning of a key does
    inputs: Sequence[str]  # the files
    advantage_column: str  # the name of the new column with the advantages of all parts
    more_columns: Sequence[str]  # further new columns: facts of groups, and which rows are copies
    outputs: Sequence[str]  # the files that were written, or stdout; empty if nothing was
    plan_by: str  # the column whose value says which plan a row has
    rows: int  # the sum of `rows` over the parts
    groups: int  # the sum of `groups` over the parts
    dropped_rows: int  # the sum of `dropped_rows` over the parts
    copied_rows: int  # always 0: --duplicate takes a single plan
    parts: Sequence[FactsOfPart]  # the result for each value of the column of --plan-by
    warnings: Sequence[str]  # about files and outputs; those about rows are in their part
    planned: Planned | None = None  # what would be written; absent without --explain
    seconds: float | None = None  # the whole run took; absent if a gate stopped it
    config: str | None = None  # the file of options that was read; absent if none was

    def warned(self, warnings: Sequence[str]) -> FactsOfParts:
        """The facts with further warnings."""
        return replace(self, warnings=[*self.warnings, *warnings])


@dataclass(frozen=True)
class PartOfRun:
    """What a gate sees with --plan-by: the facts of a part, and those of the whole run that a part does not have."""

    INLINE: ClassVar = ("part", "whole")
    GATED: ClassVar = dict.fromkeys(("warnings",))

    part: FactsOfPart
    whole: FactsOfParts

    @property
    def warnings(self) -> Sequence[str]:
        """About rows of the part, and about files and outputs."""
        return [*self.part.facts.summary.warnings, *self.whole.warnings]


class Done(NamedTuple):
    """The result of a run; `facts` are None after a silent one. A run without --plan-by has a single part."""

    facts: Facts | FactsOfParts | None  # None if nobody sees them and no gate needs them
    parts: Sequence[Computed]  # the advantages of each part, and which of its rows are written


def run(job: Job, phase: Phase = lambda *_: None, workers: Workers = HERE) -> Done:
    """Do the job; nothing is renamed into place before every check has passed. The workers read and write the files."""
    started = time.perf_counter()
    output = job.output

    phase("reading")
    tables, skipped, targets = _prepare(job, workers)
    folders = {target.path.absolute().parent for target in targets if target.path is not None}
    stages = workers.begin(tables, phase, folders)
    warn = not job.silent or job.gate is not None
    try:
        of_files: tuple[str, ...] = ()
        if job.parts is None:
            narrows = [build_table.read(layout(tables, job.binding), job.plan, warn=warn, over=stages)]
        else:
            narrows, of_files = build_table.read_parts(tables, job.parts, warn=warn, over=stages)
    except DataError:
        refuse_changed(tables)  # a file that changes during the run gets this error, not one about its content
        raise
    refuse_read_columns({name for narrow in narrows for name in narrow.request.read_names}, output)

    stages.phase("computing")
    parts = [
        _computed(job, narrow, scored)
        for narrow, scored in zip(narrows, scored_parts(narrows, dry_run=job.dry_run), strict=True)
    ]
    facts: Facts | FactsOfParts | None = None
    if warn:
        read = {role for narrow in narrows for role in (*narrow.plan.needs, *narrow.plan.may_read)}
        of_parts = [merged_keys(narrow, tables, targets, only=output.only) for narrow in narrows] if targets else []
        merged = dict.fromkeys(chain.from_iterable(of_parts))  # parts may have the same keys
        of_outputs = [*skipped, *merged]
        summaries = summarize_each([(part.scored, part.narrow) for part in parts])
        each = [_facts(job, *one, read, of_outputs) for one in zip(parts, summaries, strict=True)]
        facts = each[0] if job.parts is None else _of_parts(job.parts, each, [*of_files, *of_outputs])
        if job.dry_run:
            facts = replace(facts, planned=_planned(output, parts, tables))
        if job.gate is not None:
            _check(job.gate, facts, targets, time.perf_counter() - started)

    notes = write(output, parts, tables, targets, stages.phase, stages.write) if targets else []
    if facts is not None:
        seconds = round(time.perf_counter() - started, 3)
        outputs = [target.name for target in targets]
        facts = replace(facts.warned(notes), outputs=outputs, seconds=seconds)
    return Done(facts=facts, parts=parts)


def _check(gate: Gate, facts: Facts | FactsOfParts, targets: Sequence[Target], seconds: float) -> None:
    """Raise a gate error if a condition holds for a part of the run, as if its outputs were written."""
    whole = replace(facts, outputs=[target.name for target in targets], seconds=seconds)
    if isinstance(whole, Facts):
        gate.check(whole, shown=facts, written=Written())
        return
    for part in whole.parts:
        place = f"{whole.plan_by} = {part.value}"
        gate.check(PartOfRun(part, whole), shown=facts, place=place, written=Written())


def _computed(job: Job, narrow: Narrow, scored: Scored) -> Computed:
    """The advantages of rows that are computed together, and which of these rows are written."""
    output = job.output
    tokens = None if output.tokens is None else tokens_of_rows(narrow, scored, output.tokens)
    rows = _output_rows(scored, output)
    return Computed(narrow, scored, rows, tokens=tokens)


def scored_parts(narrows: Sequence[Narrow], *, dry_run: bool = False) -> list[Scored]:
    """The advantages of parts; a dry run shows how one is computed, with all intermediate columns."""
    if dry_run or len(narrows) == 1:
        return [scored_unless_refused(narrow, intermediate=dry_run) for narrow in narrows]
    parts = score_each([narrow.plan for narrow in narrows], [narrow.table for narrow in narrows])
    return [_unless_refused(scored, narrow) for scored, narrow in zip(parts, narrows, strict=True)]


def scored_unless_refused(narrow: Narrow, *, intermediate: bool = False) -> Scored:
    """The advantages of these rows."""
    return _unless_refused(score(narrow.plan, narrow.table, intermediate=intermediate), narrow)


def _unless_refused(scored: Scored, narrow: Narrow) -> Scored:
    """The same advantages; the plan may refuse a row without a reward, or a group with one row."""
    plan = narrow.plan
    refuse_unscorable(plan, scored.rows[".scorable"], narrow)
    if plan.alone.result == "error":
        refuse_singletons(plan, scored.frame[".n"], narrow)
    return scored


def _prepare(job: Job, workers: Workers) -> tuple[list[FileTable], list[str], list[Target]]:
    """The input files, warnings about skipped ones, and the outputs.

    Everything that can be refused before rows are read is refused here.
    """
    output = job.output
    folder = output.to if is_folder(output.to) else None
    tables, skipped = job.opened(workers.over_far, folder)
    if output.duplicate:
        _refuse_duplicates(job, tables)
    of_tokens = () if output.tokens is None else (*output.tokens.names, *output.tokens.logprobs)
    with build_table.columns_first(tables, job.parts or (job.plan, job.binding), names=of_tokens):
        targets = [] if job.dry_run else choose_targets(tables, output)
        refuse_summary(output, targets)
    tables = refuse_columns(tables, output)
    if output.tokens is not None:
        refuse_token_lists(tables, targets, output.tokens)
    return tables, skipped, targets


def _planned(output: Output, parts: Sequence[Computed], tables: Sequence[FileTable]) -> Planned:
    """What would be written if this were no dry run."""
    targets, in_the_way = planned_targets(tables, output)
    in_the_way += [str(not_in_records(table)) for table in tables if output.long and not table.in_records]
    over = output.force or output.in_place
    narrow = parts[0].narrow
    read = dict.fromkeys(name for part in parts for name in (*part.narrow.key.columns, *part.narrow.reward_names))
    rows = [len(part.narrow.table) if part.rows is None else len(part.rows) for part in parts]
    return Planned(
        outputs=[target.name for target in targets],
        replaced=[target.name for target in targets if over and target.path is not None and target.path.is_file()],
        in_the_way=in_the_way,
        columns=output.types,
        only=[name for name in read if name not in {FILE, *output.types}] if output.only else None,
        long=output.long,
        rows=sum(rows) + (0 if narrow.foreign is None else len(narrow.foreign)),
    )


def _refuse_duplicates(job: Job, tables: Sequence[FileTable]) -> None:
    """Refuse --duplicate unless groups are dropped, in one file: otherwise its copies mean nothing."""
    if job.parts is not None:
        raise UsageError("--duplicate refills the rows of one plan, and --plan-by has several", "leave out one of them")
    if job.plan.groups.zero_variance != "drop":
        raise UsageError(
            "--duplicate refills dropped groups, and none are dropped", Way("--zero-variance", "drop", lead="add")
        )
    if len(tables) > 1:
        raise UsageError("--duplicate adds rows to one file, and there are several", "run it on one file at a time")


def _output_rows(scored: Scored, output: Output) -> RowNumbers | None:
    """Rows of the narrow table in output order, or None for all of them."""
    kept = scored.rows[".kept"]
    if kept.all() and not output.duplicate:
        return None
    chosen = kept.to_numpy()
    if output.duplicate:
        return refill(scored.rows["group"].to_numpy(), chosen, output.seed)
    return np.flatnonzero(chosen)


def _facts(job: Job, part: Computed, summary: Summary, read: Collection[str], of_files: Sequence[str]) -> Facts:
    """The summary and warnings before anything is written; `read` are the roles that plans read, `of_files` warn about files."""
    narrow = part.narrow
    scored = part.scored
    output = job.output
    kept = int(scored.rows[".kept"].sum())
    of_tokens = () if output.tokens is None else (output.tokens.length,)
    warnings = warnings_of(summary, scored, read, of_tokens, of_files if job.parts is None else ())
    tokens = None if part.tokens is None or output.tokens is None else token_facts(output.tokens, part.tokens)
    return Facts(
        summary=summary.warned(warnings),
        preset=job.origins.get(narrow.request.of_plan),
        inputs=[table.name for table in narrow.tables],
        advantage_column=output.column,
        more_columns=output.names[1:],
        dropped_rows=narrow.height - kept,
        copied_rows=0 if part.rows is None else len(part.rows) - kept,
        outputs=(),
        per_token=tokens,
    )


def warnings_of(
    summary: Summary,
    scored: Scored,
    read: Collection[str],
    of_tokens: Collection[str] = (),
    of_files: Collection[str] = (),
) -> list[str]:
    """What is odd about a computation, beside what the summary says of its rows.

    `read` are the roles that plans read, `of_tokens` columns that count tokens, `of_files` warnings of files.
    """
    named = {role: name for role, name in summary.role_columns.items() if name not in of_tokens}
    warnings = [*unread_columns(named, read)]
    if not scored.rows[".kept"].any():
        warnings.append("no row is left: every group was dropped")
    warnings += of_files
    if nearly := summary.zero_variance.nearly:
        groups = "group is" if nearly == 1 else "groups are"
        warnings.append(f"{nearly} {groups} nearly without a gradient: is their spread only rounding noise?")
    if nan := summary.advantage.nan:
        warnings.append(f"{nan} advantages are NaN; JSON lines write them as null")
    if infinite := int(scored.rows[".advantage"].is_infinite().sum()):
        warnings.append(f"{infinite} advantages are infinite: the formula divides by 0; JSON lines write them as null")
    if summary.zero_variance.share == 1.0:
        everywhere = same_everywhere(summary.reward)
        why = f", as {everywhere}" if everywhere else ": the rewards of each are equal"
        warnings.append(f"no group has a gradient{why}")
    return warnings


def _of_parts(parts: PlanBy, each: Sequence[Facts], warnings: Sequence[str]) -> FactsOfParts:
    """The facts of a run with --plan-by: those of each part, and those that all parts share."""
    first = each[0]
    return FactsOfParts(
        version=first.summary.version,
        inputs=first.inputs,
        advantage_column=first.advantage_column,
        more_columns=first.more_columns,
        outputs=first.outputs,
        plan_by=parts.column,
        rows=sum(facts.summary.rows for facts in each),
        groups=sum(facts.summary.groups for facts in each),
        dropped_rows=sum(facts.dropped_rows for facts in each),
        copied_rows=sum(facts.copied_rows for facts in each),
        parts=[FactsOfPart(facts.summary.value, replace(facts, inputs=())) for facts in each],
        warnings=warnings,
    )
