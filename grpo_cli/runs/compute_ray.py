"""`compute --engine ray`: the run over files, with its rows in partitions on the machines of a Ray cluster.

names, inputs, tables, columns   as any run over files does it, in this process
reading, computing               see `ray_stages`: rows with groups, advantages, facts
writing                          a task for the same files: the new columns are woven in
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import NOTHING_WRITTEN, DataError, UsageError
from grpo_cli.runs.compute_files import facts_of_run, prepare
from grpo_cli.runs.partitions import Writing, score_partition, write_files
from grpo_cli.runs.ray_stages import DEFAULTS, RayOptions, refuse_order, refuse_stdin, stages
from grpo_cli.stats.facts import gates
from grpo_cli.write.outputs import STDOUT, is_folder, refuse_read_columns
from grpo_cli.write.weave import make_folders

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.engine.moments import Moments
    from grpo_cli.runs.compute_files import Job, Prepared
    from grpo_cli.runs.partitions import Task, Whole
    from grpo_cli.runs.ray_stages import Stages
    from grpo_cli.write.weave import Phase


def run(job: Job, phase: Phase = lambda *_: None, ray: RayOptions = DEFAULTS) -> Mapping[str, Any]:
    """Do the job and return its facts; nothing is renamed into place before every check has passed."""
    started = time.perf_counter()
    _refuse(job)
    phase("reading")
    prepared = prepare(job)
    folders = {target.path.absolute().parent for target in prepared.targets if target.path is not None}
    with stages(ray, phase, prepared.tables, job.binding, job.plan, job.output, folders) as found:
        refuse_read_columns(found.reading.chosen.read_names, job.output)
        facts = _Run(job, found, phase, prepared).facts()
    facts["seconds"] = round(time.perf_counter() - started, 3)
    return facts


def _refuse(job: Job) -> None:
    """Refuse what partitions cannot do, before the first file is opened."""
    refuse_order(job.plan)
    refuse_stdin(job.inputs)
    whole = "leave out --engine ray"
    refusals = (
        (job.output.to == STDOUT, "--engine ray writes files from several processes", "give -o FILE or -o DIRECTORY/"),
        (job.output.duplicate, "--duplicate draws from all groups", whole),
        (job.dry_run, "--explain looks at all groups", whole),
        (job.skip_broken, "--on-error skip keeps what is left of a file in this process", whole),
    )
    for holds, message, hint in refusals:
        if holds:
            raise UsageError(message, hint)


def _score(task: Task, whole: Whole, known: Sequence[Moments], *parts: Any) -> tuple[Any, ...]:
    outcome, counted, scored = score_partition(task, whole, known, parts)
    return outcome, counted, *scored


def _write(task: Task, writing: Writing, *parts: Any) -> list[str]:
    each = len(parts) // len(writing.shards)
    return write_files(task, writing, [parts[at : at + each] for at in range(0, len(parts), each)])


@dataclass(slots=True)
class _Run:
    """One run, when its cluster is there."""

    job: Job
    stages: Stages
    phase: Phase
    prepared: Prepared

    def facts(self) -> dict[str, Any]:
        """Read, compute, judge and write; returns all there is to say of it."""
        tables, rows = self.prepared.tables, self.stages.read()
        outcomes, others = self.stages.compute(_score, rows, 2 + len(rows.parts))
        rows.parts.clear()
        summary = self.stages.summary(rows, outcomes, [references.pop(0) for references in others])
        scored = [list(of_shard) for of_shard in zip(*others, strict=True)]
        del others
        total = sum(rows.whole.lengths)
        kept = total - summary.pop("dropped_rows")
        facts = facts_of_run(self.job, summary, self.prepared.skipped, tables, rows=total, kept=kept)
        if self.job.gate is not None:
            self.job.gate.check(gates(facts), facts, ", nothing was written")
        facts["warnings"] += self._write(rows.whole, scored, outcomes[0].metadata, drops=kept < total)
        ledger = self.prepared.ledger
        facts["kept_outputs"] = 0 if ledger is None else ledger.kept
        facts["outputs"] = [target.name for target in self.prepared.targets]
        return facts

    def _write(self, whole: Whole, scored: list[list[Any]], metadata: Mapping[str, str], *, drops: bool) -> list[str]:
        """Write the files of a shard, or those of all shards that one file is in, by one task; returns notes."""
        output, ledger, targets = self.job.output, self.prepared.ledger, self.prepared.targets
        for table in whole.tables:
            table.source.check()
        if is_folder(output.to):
            make_folders(targets)
        if ledger is not None:
            ledger.begin()
        for target in targets:
            # Looked at once more before the first task writes; each task refuses one that comes later.
            owned = ledger is not None and target.path is not None and ledger.owns(target.path)
            if target.path is not None and target.path.is_file() and not (output.force or output.in_place or owned):
                raise UsageError(f"{target.path} exists", "add --force to replace it, or give another -o")
        task, writings = self.stages.task(), list[tuple[Writing, list[Any]]]()
        for _, shards in groupby(range(len(whole.shards)), key=lambda at: whole.shards[at].files[0]):
            several = list(shards)
            files = list(dict.fromkeys(file for at in several for file in whole.shards[at].files))
            own = [None if ledger is not None and ledger.holds(targets[file]) else targets[file] for file in files]
            lengths = [whole.lengths[file] for file in files]
            shard_lengths = [sum(whole.shards[at].lengths) for at in several]
            tables = [whole.tables[file] for file in files]
            writing = Writing(tables, own, lengths, shard_lengths, metadata, drops, ledger)
            if any(own):
                writings.append((writing, [reference for at in several for reference in scored[at]]))
        scored.clear()
        notes, written, total = list[str](), 0, len(targets)
        calls = ((task, writing, *references) for writing, references in writings)
        try:
            for (writing, _), (more, _) in zip(writings, self.stages.cluster.run(_write, calls), strict=True):
                written += len(writing.targets)
                notes += more
                self.phase("writing", written, total)
        except DataError as error:
            if NOTHING_WRITTEN not in error.message:
                raise
            # Several tasks were writing, and those beside it may have come to their end.
            message = error.message.replace(NOTHING_WRITTEN, "; other outputs may have been written")
            raise type(error)(message, error.hint) from error
        return notes
