"""`compute --engine ray`: the run over files, with its rows in partitions on the machines of a Ray cluster.

    names, inputs, tables, columns   as any run over files does it, in this process
    reading      a task for some files each: their narrow rows, divided by a hash of the group key
    computing    a task for each partition: rows with groups, advantages, facts; again for each batch-wide quantity
    writing      a task for the same files: the new columns are woven in

Only facts come to this process, never rows. There is no arithmetic here but to merge what parts have measured.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from grpo_cli.engine.moments import Moments
from grpo_cli.errors import NOTHING_WRITTEN, DataError, UsageError
from grpo_cli.files.inputs import Section
from grpo_cli.formats.paths import absent
from grpo_cli.read.assign_groups import (
    is_one_dataset,
    refuse_only_singletons,
    refuse_unclear_batch,
    repeats_words,
    sizes_words,
)
from grpo_cli.read.build_table import choose, choose_again, refuse_empty_reward
from grpo_cli.read.group_keys import CountedError, MergeError
from grpo_cli.read.known_names import OWN_STEP
from grpo_cli.read.prompt_check import mixed_error
from grpo_cli.read.warnings import GIANT, giant_group
from grpo_cli.runs.compute_files import facts_of_run, prepare
from grpo_cli.runs.partitions import (
    Outcome,
    Piece,
    Shard,
    ShardFacts,
    Task,
    Whole,
    Writing,
    read_shard,
    score_partition,
    write_files,
)
from grpo_cli.runs.ray_cluster import connected
from grpo_cli.stats.facts import LISTED, REASONS, distribution_of_counts, gates
from grpo_cli.stats.stream_facts import Tally
from grpo_cli.stats.value_counts import distribution_of_parts, merged_few
from grpo_cli.write.outputs import STDOUT, is_folder, refuse_read_columns
from grpo_cli.write.weave import make_folders

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.read.build_table import Reading
    from grpo_cli.read.tables import FileTable
    from grpo_cli.runs.compute_files import Job, Prepared
    from grpo_cli.runs.ray_cluster import Cluster
    from grpo_cli.stats.value_counts import ValueCounts
    from grpo_cli.write.weave import Phase

ROWS: Final = 500_000  # of a partition, and of a shard at least
MOST: Final = 1000  # partitions, and shards: there are as many objects as the product of both
_BYTES: Final = 256  # of a row of a file that does not say how many rows it has
_COMPARED: Final = 16  # shards in which the prompts of groups are compared


def run(
    job: Job, phase: Phase = lambda *_: None, *, address: str | None = None, verbose: bool = False, partitions: int = 0
) -> Mapping[str, Any]:
    """Do the job and return its facts; nothing is renamed into place before every check has passed.

    `partitions` are as many as the rows need unless their number is given.
    """
    started = time.perf_counter()
    _refuse(job)
    phase("reading")
    prepared = prepare(job)
    for table in prepared.tables:
        if table.source.fd is not None or table.left_out:
            raise UsageError(f"{table.name} is kept in this process alone", "name files, or leave out --engine ray")
    reading = choose(prepared.tables, job.binding, job.plan)
    with connected(address, verbose=verbose) as cluster:
        local = {one.source.path: one.source.pin for one in prepared.tables if one.source.is_local}
        folders = {target.path.absolute().parent for target in prepared.targets if target.path is not None}
        cluster.refuse_unseen(local, folders)
        facts = _Run(job, cluster, phase, prepared, reading, partitions).facts()
    facts["seconds"] = round(time.perf_counter() - started, 3)
    return facts


def _refuse(job: Job) -> None:
    """Refuse what partitions cannot do, before the first file is opened."""
    plan, output = job.plan, job.output
    whole = "leave out --engine ray"
    refusals = (
        (
            not plan.estimator.order_free,
            f"{plan.method} depends on the order of the rows, and partitions have none",
            whole,
        ),
        (list(job.inputs) == [STDOUT], "--engine ray reads files, and this is standard input", whole),
        (output.to == STDOUT, "--engine ray writes files from several processes", "give -o FILE or -o DIRECTORY/"),
        (output.duplicate, "--duplicate draws from all groups", whole),
        (job.dry_run, "--explain looks at all groups", whole),
        (job.skip_broken, "--on-error skip keeps what is left of a file in this process", whole),
    )
    for holds, message, hint in refusals:
        if holds:
            raise UsageError(message, hint)


def _read(task: Task, pieces: Sequence[Piece], compare_prompts: bool) -> tuple[Any, ...]:  # noqa: FBT001 - Ray passes it
    facts, parts = read_shard(task, pieces, compare_prompts=compare_prompts)
    return facts, *parts


def _score(task: Task, whole: Whole, known: Sequence[Moments], *parts: Any) -> tuple[Any, ...]:
    outcome, rewards, scored = score_partition(task, whole, known, parts)
    return outcome, rewards, *scored


def _below(rewards: ValueCounts, numbers: Any) -> Any:
    return rewards.below(numbers)


def _histogram(rewards: ValueCounts, low: float, high: float) -> Any:
    return rewards.histogram(low, high)


def _write(task: Task, writing: Writing, *parts: Any) -> list[str]:
    each = len(parts) // len(writing.shards)
    return write_files(task, writing, [parts[at : at + each] for at in range(0, len(parts), each)])


@dataclass(slots=True)
class _Run:
    """One run, when its columns are chosen and its cluster is there."""

    job: Job
    cluster: Cluster
    phase: Phase
    prepared: Prepared
    reading: Reading
    partitions: int

    def facts(self) -> dict[str, Any]:
        """Read, compute, judge and write; returns all there is to say of it."""
        tables = self.prepared.tables
        rows = [table.row_count() or table.source.pin.size // _BYTES for table in tables]
        self.partitions = self.partitions or min(MOST, -(-max(1, sum(rows)) // ROWS))
        if not self.reading.chosen.group and is_one_dataset(tables):
            self.partitions = 1  # blocks of rows go on from file to file
        shards = _shards(tables, rows)
        found, parts = self._read(shards)
        total = sum(sum(one.lengths) for one in found)
        warnings = _checked(self.reading, tables, shards, found)
        whole = _whole(tables, shards, found)
        outcomes, rewards, scored = self._score(whole, found, parts)
        del parts
        summary = _summary(self.reading, whole, outcomes)
        summary["reward"] = self._distribution(summary["reward"], outcomes, rewards)
        del rewards
        kept = total - summary.pop("dropped_rows")
        summary["warnings"] = [*warnings, *summary["warnings"]]
        facts = facts_of_run(self.job, summary, self.prepared.skipped, tables, rows=total, kept=kept)
        if self.job.gate is not None:
            self.job.gate.check(gates(facts), facts, ", nothing was written")
        facts["warnings"] += self._write(whole, scored, outcomes[0].metadata, drops=kept < total)
        ledger = self.prepared.ledger
        facts["kept_outputs"] = 0 if ledger is None else ledger.kept
        facts["outputs"] = [target.name for target in self.prepared.targets]
        return facts

    def _task(self) -> Any:
        layout = replace(self.reading.layout, tables=())
        return self.cluster.put(Task(replace(self.reading, layout=layout), self.job.output, self.partitions))

    def _read(self, shards: Sequence[Sequence[Piece]]) -> tuple[list[ShardFacts], list[list[Any]]]:
        """The facts of each shard, and references to its parts."""
        compared = {len(shards) * at // _COMPARED for at in range(_COMPARED)}
        while True:
            refuse_read_columns(self.reading.chosen.read_names, self.job.output)
            task, found, parts = self._task(), list[ShardFacts](), list[list[Any]]()
            calls = ((task, shard, at in compared) for at, shard in enumerate(shards))
            for facts, references in self.cluster.run(_read, calls, returns=1 + self.partitions):
                found.append(facts)
                parts.append(references)
                self.phase("reading", len(found), len(shards))
            late = [sorted(one.late) for one in found]
            for shard, names in zip(shards, late, strict=True):
                for piece in shard:
                    piece.table.add_names(names)  # one that has none of them is read without
            more = choose_again(self.reading, dict.fromkeys(name for names in late for name in names))
            if more is None:
                return found, parts
            self.reading = more

    def _score(
        self, whole: Whole, found: Sequence[ShardFacts], parts: Sequence[Sequence[Any]]
    ) -> tuple[list[Outcome], list[Any], list[list[Any]]]:
        """Of each partition that has rows the outcome and a reference to its rewards; for each shard its scored parts."""
        everything = self.cluster.put(whole)
        filled = [at for at in range(self.partitions) if any(one.counts[at] for one in found)]
        known = list[Moments]()
        while True:
            task = self._task()
            outcomes, rewards, scored = list[Outcome](), list[Any](), list[list[Any]]()
            calls = ((task, everything, known, *(of_shard[at] for of_shard in parts)) for at in filled)
            for outcome, references in self.cluster.run(_score, calls, returns=2 + len(parts)):
                outcomes.append(outcome)
                rewards.append(references[0])
                scored.append(references[1:])
                self.phase("computing", len(outcomes), len(filled))
            _raise_first(outcomes, self.reading.chosen.steps)
            cuts = {one.cut_size for one in outcomes if one.cut_size is not None}
            if cuts and any({one.cut_size, one.one_size}.isdisjoint(cuts) for one in outcomes) | (len(cuts) > 1):
                # What some partitions say of their groups the others deny, so it is not so.
                self.reading = replace(self.reading, may_cut=False)
                known.clear()
                continue
            waiting = [one.moments for one in outcomes if one.moments is not None]
            if not waiting:
                return outcomes, rewards, [list(of_shard) for of_shard in zip(*scored, strict=True)]
            known.append(reduce(Moments.merge, waiting))

    def _distribution(
        self, moments: dict[str, Any], outcomes: Sequence[Outcome], rewards: Sequence[Any]
    ) -> dict[str, Any]:
        """How the rewards are distributed: by their counts where they are few, else by what all partitions count."""
        few = [one.rewards for one in outcomes if one.rewards is not None]
        known = merged_few(few) if len(few) == len(outcomes) else None
        if known is not None:
            return distribution_of_counts(*known)

        def added(work: Any, *arguments: Any) -> Any:
            calls = ((one, *arguments) for one in rewards)
            return sum(found for found, _ in self.cluster.run(work, calls))

        spread = {name: moments[name] for name in ("mean", "std", "min", "max")}
        return distribution_of_parts(spread, moments["count"], partial(added, _below), partial(added, _histogram))

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
            # Looked at once more, and replaced by the tasks: one that is run again may find what it has written.
            owned = ledger is not None and target.path is not None and ledger.owns(target.path)
            if target.path is not None and target.path.is_file() and not (output.force or output.in_place or owned):
                raise UsageError(f"{target.path} exists", "add --force to replace it, or give another -o")
        task, writings = self._task(), list[tuple[Writing, list[Any]]]()
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
            for (writing, _), (more, _) in zip(writings, self.cluster.run(_write, calls), strict=True):
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


def _shards(tables: Sequence[FileTable], rows: Sequence[int]) -> list[list[Piece]]:
    """The files of each task: several small ones, one, or a section of a large one."""
    least = max(ROWS // 2, -(-sum(rows) // MOST))
    shards, gathered, size = list[list[Piece]](), list[Piece](), 0
    for file, (table, height) in enumerate(zip(tables, rows, strict=True)):
        cuts = table.format.sections(table.source, least * _BYTES) if height > least else []
        if len(cuts) > 1:
            sections = [table.of_source(Section.between(table.source, *cut)) for cut in cuts]
            shards += [*([gathered] if gathered else []), *([Piece(file, one)] for one in sections)]
            gathered, size = [], 0
            continue
        gathered.append(Piece(file, table))
        size += height
        if size >= least:
            shards.append(gathered)
            gathered, size = [], 0
    return [*shards, *([gathered] if gathered else [])]


def _whole(tables: Sequence[FileTable], shards: Sequence[Sequence[Piece]], found: Sequence[ShardFacts]) -> Whole:
    """What the facts of all shards say together."""
    before = Counter[int]()
    rows = list[Shard]()
    for pieces, one in zip(shards, found, strict=True):
        files = tuple(piece.file for piece in pieces)
        rows.append(Shard(files, tuple(one.lengths), before[files[0]]))
        before.update(dict(zip(files, one.lengths, strict=True)))
    dtypes = {name: set[Any]().union(*(one.dtypes[name] for one in found)) for name in found[0].dtypes}
    batches = dict.fromkeys(key for one in found for key in one.batches)
    lengths = [before[file] for file in range(len(tables))]
    return Whole(tables, lengths, rows, dtypes, {key: number for number, key in enumerate(batches)})


def _checked(
    reading: Reading, tables: Sequence[FileTable], shards: Sequence[Sequence[Piece]], found: Sequence[ShardFacts]
) -> list[str]:
    """Refuse what only all rows can show, by the facts of their shards; returns warnings."""
    chosen, rows = reading.chosen, sum(sum(one.lengths) for one in found)
    if not rows:
        raise DataError(f"{tables[0].name}: no rows", "there is nothing to compute")
    for file, of_file in groupby(zip(shards, found, strict=True), key=lambda pair: pair[0][0].file):
        missing = set.intersection(*(one.missing for _, one in of_file)) - chosen.optional
        for name in sorted(missing):
            raise absent(name, tables[file].source, tables[file].columns())
    if not reading.reward_is_named:
        refuse_empty_reward(tables, chosen.rewards[0], sum(one.nulls for one in found), rows)
    warnings = list[str]()
    key = reading.layout.key_words or ", ".join(chosen.group) or "the block size"
    for mixed, label in (one.mixed for one in found if one.mixed is not None):
        if not reading.key_is_named:
            raise mixed_error(mixed, key, chosen.group, label)
        warnings = [mixed.words(key, label)]
        break
    if reading.layout.binding.batch_by is None and reading.plan.uses_batch:
        values = {name: len(set[Any]().union(*(one.steps[name] for one in found))) for name in chosen.steps}
        # A step inside of rollouts counts their own steps.
        own = {OWN_STEP} if "rollout" in chosen.roles else set()
        varying = {name: count for name, count in values.items() if count > 1 and name not in own}
        refuse_unclear_batch(varying, len(tables))
    return warnings


def _raise_first(outcomes: Sequence[Outcome], steps: Sequence[str]) -> None:
    """Raise what one process would have raised: first of keys that must not be merged, then that of the first row."""
    errors = [one.error for one in outcomes if one.error is not None]
    merges = [error for _, error in errors if isinstance(error, MergeError)]
    if merges:
        order = [*(f"values of {name!r}" for name in steps), "files"]
        what = min((one.what for one in merges), key=lambda one: order.index(one) if one in order else len(order))
        same = [one for one in merges if one.what == what]
        first = sorted(pair for one in same for pair in zip(one.rows, one.names, strict=True))
        rows, names = zip(*first, strict=True)
        raise MergeError.of(what, sum(one.count for one in same), rows, names, same[0].cures)
    if not errors:
        return
    error = min(errors, key=lambda pair: pair[0])[1]
    if isinstance(error, CountedError):
        alike = [one for _, one in errors if isinstance(one, CountedError) and one.words is error.words]
        counts = [sum(several) for several in zip(*(one.counts for one in alike), strict=True)]
        if error.words is sizes_words:  # of all groups, also those of the other partitions
            counts[1] += sum(one.counts["groups"] for one in outcomes)
        raise CountedError.of(error.first, counts, error.words, error.hint)
    raise error


def _summary(reading: Reading, whole: Whole, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The summary of all partitions."""
    tally, counts = Tally(), Counter[str]()
    for one in outcomes:
        tally.merge(one.tally)
        counts += one.counts
    summary = tally.facts(reading.plan)
    if summary["groups"] == counts["units"] > 1:
        refuse_only_singletons(reading.chosen.group, reading.layout.key_words, reading.layout.binding, reading.plan)
    summary["batches"] = max(1, len(whole.batches))
    for skip in summary["skipped"]:
        found = [
            (place, key)
            for one in outcomes
            if skip["reason"] in one.first
            for place, key in zip(one.first[skip["reason"]], one.tally.skipped[skip["reason"]]["keys"], strict=True)
        ]
        skip["keys"] = [key for _, key in sorted(found, key=lambda pair: pair[0])[:LISTED]]
    summary["skipped"].sort(key=lambda skip: REASONS.index(skip["reason"]))
    if counts["repeats"]:
        summary["warnings"].append(repeats_words(counts["repeats"], str(reading.chosen.sample)))
    if summary["groups"] == 1 and summary["rows"] >= GIANT and reading.warn and reading.chosen.group:
        summary["warnings"] += giant_group(summary["rows"], reading.layout.key_words or ", ".join(reading.chosen.group))
    return summary
