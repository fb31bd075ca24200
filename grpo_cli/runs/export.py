"""`export` of files: inputs, tables, rows with groups and advantages, the rows of a kind, their texts, one new file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Final, Literal

import numpy as np
import polars as pl

from grpo_cli.choosing.exports import Looked, Records, Scale, Wanted
from grpo_cli.choosing.groups import choose_groups
from grpo_cli.engine.group_stats import Mask
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, UsageError, Way, Written
from grpo_cli.files.atomic import refuse_unwritable
from grpo_cli.files.finished import expect
from grpo_cli.files.stores import is_url
from grpo_cli.options.export_kinds import EXPORT_KINDS, WITH_ADVANTAGES, ExportKind, kinds_that_take, listed
from grpo_cli.options.given import Given
from grpo_cli.options.needs import OF_ADVANTAGES
from grpo_cli.options.resolve import plan_of, without_idle_of_file
from grpo_cli.options.table import EVERY
from grpo_cli.read.build_table import columns_first
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.tables import Binding, FileTable, refuse_changed
from grpo_cli.runs.asked import OnFiles, binding_of, condition_of, draws_of, made, output_of
from grpo_cli.runs.export_kinds import STEPS, Kind
from grpo_cli.runs.export_targets import reads_of, refuse_moved, refuse_unread, to_know, written_form
from grpo_cli.runs.gate import Gate
from grpo_cli.runs.inspect import other_runs, scored
from grpo_cli.runs.progress import Watching
from grpo_cli.runs.select import choice_of
from grpo_cli.stats.document import ABSENT, Absent, asked_by
from grpo_cli.stats.facts import Dropped, Number, of_foreign, read_as
from grpo_cli.stats.inspection import Inspection, View
from grpo_cli.targets.table import target as trainer
from grpo_cli.values.paths import items
from grpo_cli.write.outputs import Output, Target, choose_beside, choose_target, is_folder, refuse_summary
from grpo_cli.write.records import write_records
from grpo_cli.write.write_outputs import Phase, finishing, make_folders, one_of_several, paths_of, sink

VERSION: Final = 1


@dataclass(frozen=True, kw_only=True)
class Job(OnFiles):
    """What to read, what to make of it, and where to write the result."""

    wanted: Wanted  # the kind of records, and the options of that kind
    plan: Plan = field(default_factory=Plan)  # the rewards of rows, and their advantages if the kind has them
    output: Output = field(default_factory=Output)  # where and how to write
    gate: Gate | None = None  # the condition of --fail-on, checked before anything is written

    @classmethod
    def of(cls, given: Given, **more: Any) -> Job:
        """What options ask for; `more` are further fields."""
        given = given.to_command("export")
        if not EXPORT_KINDS[str(given.to)].has_advantages:
            given = without_idle_of_file(given)
        plan = plan_of(given)
        plan.refuse_distill("an export")
        _refuse_idle(given, EXPORT_KINDS[str(given.to)])
        binding = binding_of(given)
        wanted = wanted_of(given, plan, binding)
        refuse_unread(wanted, given.output)
        reads = reads_of(wanted)
        if reads is not None and reads.pooled:  # each prompt once, whatever the groups
            wanted = replace(wanted, pool=True)
        return made(
            cls,
            given,
            wanted=wanted,
            plan=plan,
            binding=binding,
            output=output_of(given),
            gate=Gate.of(given, Exported),
            **more,
        )


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The summary of `export`; numbers of pairs with --to pairs, `solved_at` and `scale` with --to prompts."""

    NOT_SHOWN: ClassVar = frozenset({"key_note"})

    version: Literal[1]  # of the document; it changes when the meaning of a key does
    to: str  # the kind of records, as --to takes it
    inputs: Sequence[str]  # the files
    against: Sequence[str]  # the other runs, as --against gives them; empty without it
    where: str | None  # the condition that groups must meet, as given; None without one
    rows: int  # of the files, those that are no rollouts too
    groups: int  # of the input, before any are chosen
    group_key: Sequence[str]  # the columns of the key; empty if groups are blocks of rows
    reward_columns: Sequence[str]  # all columns that make the reward
    map: Mapping[str, Number]  # the reward that each text of --map stands for, None for a missing one; empty without it
    texts: str  # the columns that records are made from, in words
    # texts that are not chat messages in the file; absent for tokens and --form raw
    converted: int | None = field(default=None, metadata=asked_by("--form", "messages|turns"))
    # traces with several branches, such as a history that was rewritten, of which only the last branch is in a record
    cut_traces: int | None = field(default=None, metadata=asked_by("--form", "messages|turns"))
    # items of reasoning that are there in encrypted form alone, and are in no record; absent as above
    hidden_reasoning: int | None = field(default=None, metadata=asked_by("--form", "messages|turns"))
    target: str | None = None  # the trainer that will read the records; absent without --target
    # who reads the records, what it trains on, and what a person must set; empty if nobody is known to
    read_by: Sequence[str]
    schema: str | None  # the title of the file's schema; None if it has none
    # that made the advantages; None unless records depend on them
    plan: Plan | None = field(metadata=asked_by("--to", "|".join(WITH_ADVANTAGES)))
    records: int  # in the first output; `beside` has those of the others
    beside: Mapping[str, int]  # the records of each further output
    columns: Sequence[str]  # of a record, those of texts first
    dropped: Sequence[Dropped]  # rows that no record has, by reason
    # pairs whose margin is less than --min-margin; absent unless records are pairs
    narrow_pairs: int | None = field(default=None, metadata=asked_by("--to", "pairs"))
    # pairs beyond --max-pairs of their group; absent without that option
    pairs_over_limit: int | None = field(default=None, metadata=asked_by("--max-pairs", "N"))
    # groups with a usable row that give no pair, counted for each prompt; absent unless records are pairs
    groups_without_pair: int | None = field(default=None, metadata=asked_by("--to", "pairs"))
    # how many records are good (true) and bad (false); absent unless records are labels
    labels: Mapping[str, int] | None = field(default=None, metadata=asked_by("--to", "labels"))
    # records with the lowest reward of all rows, 0 if all are equal; absent unless records are weights
    lowest_reward_records: int | None = field(default=None, metadata=asked_by("--to", "weights"))
    # the least reward that counts as solved;
    # None without --solved-at and --pass-at, absent unless records are prompts
    solved_at: Number | Absent = field(default=ABSENT, metadata=asked_by("--to", "prompts"))
    # the rewards with solve rates 0 and 1; None with --solved-at, absent unless records are prompts
    scale: Scale | Absent | None = field(default=ABSENT, metadata=asked_by("--to", "prompts"))
    key_note: str  # the key in words, and how it was found; not in a document, whose notes have it
    notes: Sequence[str]  # how rows were read and grouped
    outputs: Sequence[str]  # the first output, then the further ones
    warnings: Sequence[str]  # about the input and the records
    seconds: float  # the whole run took
    config: str | None = None  # the file of options that was read; absent if none was


def _refuse_idle(given: Given, kind: ExportKind) -> None:
    """Refuse options of other kinds, and options of advantages where a kind has none."""
    if kind.name == "labels" and "solved_at" in given and not {*OF_ADVANTAGES}.isdisjoint(given):
        raise UsageError(
            "--solved-at has no effect beside a plan: labels are the signs of its advantages", "leave out one of them"
        )
    if kind.name == "weights" and "mask" in given and not {"ratio_cap", "kl_from"} & {*given}:
        raise UsageError("--mask has no effect on --to weights alone", "add --ratio-cap or --kl-from")
    condition = condition_of(given, "where")
    draws = condition is not None and any(name.startswith("pass_at_") for name in condition.names)
    for name in given:
        kinds = kinds_that_take(name)
        if not kinds or name in kind.takes:
            continue
        if name != "solved_at":
            raise _of_other_kinds(name, kind, kinds)
        if not draws and given.best != "shortest":
            raise _of_other_kinds(name, kind, kinds, also=", pass@K in --where and --pick shortest")


def _of_other_kinds(name: str, kind: ExportKind, kinds: Sequence[str], also: str = "") -> UsageError:
    wrong = f"{EVERY[name].flag} does not apply to --to {kind.name}"
    return UsageError(wrong, f"it is for --to {listed(kinds)}{also}")


def wanted_of(given: Given, plan: Plan, binding: Binding) -> Wanted:
    """What is exported."""
    choice = choice_of(given, per_group=1 if given.per_group is None else given.per_group)
    length = binding.roles.get("length")
    if length == "equal" or ("mask" in given and "length" in plan.needs):
        length = None  # the plan reads it, and it does not count tokens
    keep = tuple(dict.fromkeys(name for item in given.keep for name in items(item) if name))
    by_sign = given.to == "labels" and not {*OF_ADVANTAGES}.isdisjoint(given)
    return made(
        Wanted,
        given,
        choice=choice,
        pick=given.best,
        pass_at=draws_of(given),
        length=length,
        keep=keep,
        by_sign=by_sign,
    )


@dataclass(frozen=True)
class Opened:
    """The inputs, the columns that records are made from, and the outputs: what can be refused before any row is read."""

    tables: Sequence[FileTable]
    skipped: Sequence[str]  # warnings of files that are not read
    columns: Any  # as the kind has them
    targets: Sequence[Target]


@dataclass(frozen=True)
class Recorded:
    """The records, of all outputs and of each, and what is read from the files for them."""

    records: Records
    outputs: Mapping[str, Records]  # those of each output; the first has no name
    columns: Any  # as the kind has them, in the form that the records need
    names: Sequence[str]  # of what is read from the files
    looked: Looked | None  # what their texts are; None if the kind has none

    @property
    def height(self) -> int:
        """How many records the first output has."""
        return len(self.outputs[""].columns)


def run(job: Job, phase: Phase = lambda *_: None) -> Exported:
    """Write the records; return the facts, which say how many rows were left out, and why."""
    started = time.perf_counter()
    wanted, steps = job.wanted, STEPS[job.wanted.to]
    phase("reading")
    opened = _opened(job, steps)
    watching = Watching(opened.tables, phase)
    where = wanted.choice.where
    view = View(named=() if where is None else where.names)
    inspection = scored(opened.tables, job.binding, job.plan, view, over=watching)

    phase("comparing texts")
    prepared = steps.prepared(inspection, opened.columns, wanted)
    groups, dropped = choose_groups(prepared, wanted.choice, other_runs(job, job.plan))
    recorded = _recorded(steps, prepared, opened.columns, groups, wanted)
    facts = _facts(job, opened, prepared, recorded, dropped, groups=len(inspection.groups), started=started)
    if job.gate is not None:
        job.gate.check(facts, written=Written())
    if not facts.records:
        raise _nothing_left(wanted.to, facts.rows, facts.dropped)

    watching.phase("writing")
    _write(job, opened, prepared.narrow, recorded, watching)
    return replace(facts, seconds=round(time.perf_counter() - started, 3))


def _opened(job: Job, steps: Kind[Any]) -> Opened:
    tables, skipped = job.opened()
    columns = steps.columns(tables, job.wanted)
    with columns_first(tables, (job.plan, job.binding), names=getattr(columns, "read", ())):
        targets = _outputs(job)
        refuse_summary(job.output, targets)
    return Opened(tables, skipped, columns, targets)


def _recorded(
    steps: Kind[Any], inspection: Inspection, columns: Any, groups: Mapping[str, Mask], wanted: Wanted
) -> Recorded:
    """The records of these groups, which are those of each output."""
    rollouts = steps.rollouts(inspection, columns, np.logical_or.reduce([*groups.values()]))
    records = steps.records(rollouts, inspection, columns, wanted)
    columns = steps.settled(columns, rollouts.looked, records, inspection.narrow)
    refuse_moved(reads_of(wanted), records)
    names = steps.names(columns)
    refuse_written(names, records.columns.columns, wanted.keep)
    codes = inspection.narrow.table["group"].to_numpy()[next(iter(records.rows.values()))]
    outputs = {name: records.at(mask[codes]) for name, mask in groups.items()}
    return Recorded(records, outputs, columns, names, rollouts.looked)


def _facts(
    job: Job,
    opened: Opened,
    inspection: Inspection,
    recorded: Recorded,
    dropped: Sequence[Dropped],
    *,
    groups: int,
    started: float,
) -> Exported:
    """What is found and will be written; `groups` is their number before any are merged or chosen."""
    wanted, narrow, records, looked = job.wanted, inspection.narrow, recorded.records, recorded.looked
    where, chosen = wanted.choice.where, records.all_rows
    left_out = [Dropped(reason=reason, rows=rows) for reason, rows in records.left_out if rows]
    form = written_form(recorded.names, looked, chosen, recorded.columns)
    without = _not_written(wanted)
    return Exported(
        version=VERSION,
        to=wanted.to,
        inputs=[table.name for table in opened.tables],
        against=job.before,
        where=where.text if where else None,
        rows=sum(narrow.lengths),
        groups=groups,
        **read_as(narrow),
        texts=recorded.columns.words,
        converted=None if looked is None else int(looked.changed[looked.of(chosen)].sum()),
        cut_traces=None if looked is None else int((looked.branches[looked.of(chosen)] > 0).sum()),
        hidden_reasoning=None if looked is None else int(looked.hidden[looked.of(chosen)].sum()),
        target=wanted.target,
        read_by=[*to_know(wanted, looked, chosen, form, opened.targets[0])],
        plan=inspection.scored.plan if _has_plan(wanted) else None,
        records=recorded.height,
        beside={name: len(part.columns) for name, part in recorded.outputs.items() if name},
        columns=[*recorded.names, *(name for name in records.columns.columns if name not in without)],
        dropped=[*dropped, *left_out, *of_foreign(narrow)],
        **records.facts,
        outputs=[target.name for target in opened.targets],
        warnings=[*narrow.warnings, *records.warnings, *opened.skipped],
        seconds=time.perf_counter() - started,
    )


def _write(job: Job, opened: Opened, narrow: Narrow, recorded: Recorded, watching: Watching) -> None:
    """Write each output, if the inputs are still the files that were read."""
    steps = STEPS[job.wanted.to]
    refuse_changed(opened.tables)
    make_folders(opened.targets)
    refuse_unwritable(paths_of(opened.targets))
    expect(len(paths_of(opened.targets)))
    outputs = zip(opened.targets, recorded.outputs.values(), strict=True)
    reads = reads_of(job.wanted)
    for at, (target, part) in enumerate(outputs):
        with one_of_several(at, opened.targets, finishing(job.output)), sink(target, force=job.output.force) as handle:
            pieces = steps.texts(narrow, recorded.columns, part)
            counted = _counted(pieces, len(recorded.records.columns), watching)
            without = _not_written(job.wanted)
            lists = reads is not None and reads.tools == "list"
            write_records(counted, recorded.names, part.columns, handle, target.format, without, tools_as_lists=lists)
            refuse_changed(opened.tables)


def _not_written(wanted: Wanted) -> Sequence[str]:
    """The columns that the records of a target lack."""
    reads = reads_of(wanted)
    return reads.without if reads else ()


def records(job: Job) -> tuple[list[pl.DataFrame], Exported]:
    """The records of each output as a frame, and the facts."""
    with TemporaryDirectory(prefix="grpo-adv.") as folder:
        made = str(Path(folder) / "records.parquet")
        facts = run(replace(job, output=Output(to=made)))
        return [pl.read_parquet(name) for name in facts.outputs], facts


def _outputs(job: Job) -> list[Target]:
    """The outputs, checked before anything is read; a trainer may want them in a folder, by its own names."""
    reads = reads_of(job.wanted)
    beside = job.wanted.choice.beside
    if reads is None or not reads.folder or not is_folder(job.output.to):
        first = choose_target(job.output)
        return [first, *choose_beside([first], beside, job.output)]
    names = {"": "train", "holdout": "valid"}
    folder = str(job.output.to).rstrip("/")
    suffix = trainer(str(job.wanted.target)).suffixes_of(job.wanted.to)[0]
    words = ("", *beside)
    stale = Path(f"{folder}/{names['holdout']}{suffix}")
    if "holdout" not in words and not is_url(folder) and stale.exists():
        wrong = f"{stale} is of another export, and the trainer reads it beside the new one"
        raise UsageError(wrong, [Way("--holdout", why="writes both", fill="SHARE"), f"remove {stale}"])
    outputs = [replace(job.output, to=f"{folder}/{names.get(word, word)}{suffix}") for word in words]
    return [choose_target(output, makes_folders=True) for output in outputs]


def _has_plan(wanted: Wanted) -> bool:
    """Whether records depend on advantages."""
    return EXPORT_KINDS[wanted.to].has_advantages and (wanted.to != "labels" or wanted.by_sign)


def _nothing_left(kind: str, rows: int, dropped: Sequence[Dropped]) -> DataError:
    """The error for an export of nothing: a trainer would stop at an empty file with less to say."""
    reasons = [f"{one.rows:,} {one.reason}" for one in dropped]
    why = f": {'; '.join(reasons)}" if reasons else ""
    cure = "other options of --to, or of the choice of groups, keep more"
    return DataError(f"no record for {kind} is left of {rows:,} rows{why}", cure, written=Written())


def refuse_written(names: Sequence[str], computed: Sequence[str], keep: Sequence[str]) -> None:
    """Refuse to keep a column that has the name of one that records have anyway."""
    written = [*names[: len(names) - len(keep)], *computed] if keep else []
    for name in keep:
        if name in written:
            raise UsageError(f"--keep {name}: records have a column of that name", "leave it out")


def _counted(pieces: Iterator[pl.DataFrame], records: int, watching: Watching) -> Iterator[pl.DataFrame]:
    """The pieces; each counts as written when the next is requested."""
    done = 0
    for piece in pieces:
        yield piece
        done += len(piece)
        watching.wrote(done / records)
