"""What runs on Ray have in common: files are read in tasks that divide their rows, and each partition is given to a task.

    reading      a task for some files each: their narrow rows, divided by a hash of the group key
    partitions   a task for each: rows with groups, what the run makes of them, facts; again for each batch-wide quantity

Only facts come to the process that does the run, never rows. There is no arithmetic here but to merge what parts have
measured.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from grpo_cli.engine.moments import Moments
from grpo_cli.errors import DataError, UsageError
from grpo_cli.files.inputs import Section
from grpo_cli.formats.paths import absent
from grpo_cli.read.assign_groups import (
    is_one_dataset,
    refuse_only_singletons,
    refuse_unclear_batch,
    repeats_words,
    sizes_words,
)
from grpo_cli.read.build_table import choose, choose_again, none_left, refuse_empty_reward, unused_outcomes
from grpo_cli.read.group_keys import CountedError, MergeError
from grpo_cli.read.known_names import OWN_STEP
from grpo_cli.read.open_tables import STDIN
from grpo_cli.read.prompt_check import mixed_error
from grpo_cli.read.tables import without_rollouts
from grpo_cli.read.warnings import Draws
from grpo_cli.runs.partitions import Outcome, Piece, Shard, ShardFacts, Task, Whole, here, read_shard
from grpo_cli.runs.ray_cluster import connected
from grpo_cli.stats.facts import LISTED, REASONS, distribution_of_counts
from grpo_cli.stats.stream_facts import Tally
from grpo_cli.stats.value_counts import distribution_of_parts, merged_few
from grpo_cli.write.outputs import Output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from grpo_cli.engine.plan import Plan
    from grpo_cli.read.build_table import Reading
    from grpo_cli.read.tables import Binding, FileTable
    from grpo_cli.runs.ray_cluster import Cluster
    from grpo_cli.stats.stream_facts import Spread
    from grpo_cli.stats.value_counts import ValueCounts
    from grpo_cli.write.weave import Phase

ROWS: Final = 500_000  # of a partition, and of a shard at least
MOST: Final = (
    1000  # partitions, and shards: there are as many objects as the product of both, and each takes Ray 0.5 ms
)
SHARDS: Final = 64  # that are enough for few processors, and
EACH: Final = 4  # for each of many
_BYTES: Final = 256  # of a row of a file that does not say how many rows it has
_COMPARED: Final = 16  # shards in which the prompts of groups are compared


def refuse_order(plan: Plan) -> None:
    """Refuse a plan that no partition can do."""
    if not plan.estimator.order_free:
        wrong = f"{plan.method} depends on the order of the rows, and partitions have none"
        raise UsageError(wrong, "leave out --engine ray")


def refuse_stdin(inputs: Sequence[str]) -> None:
    """Refuse standard input, which no other machine can read."""
    if list(inputs) == [STDIN]:
        raise UsageError("--engine ray reads files, and this is standard input", "leave out --engine ray")


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Where a run on Ray is done: the address of a cluster, and whether Ray's own messages are shown."""

    address: str | None = None
    verbose: bool = False
    partitions: int = 0  # as many as the rows need, unless their number is given


DEFAULTS: Final = RayOptions()


def _read(task: Task, pieces: Sequence[Piece], compare_prompts: bool) -> tuple[Any, ...]:  # noqa: FBT001 - Ray passes it
    facts, parts = read_shard(task, pieces, compare_prompts=compare_prompts)
    return facts, *parts


def _below(counted: Sequence[ValueCounts], column: int, numbers: Any) -> Any:
    return counted[column].below(numbers)


def _histogram(counted: Sequence[ValueCounts], column: int, low: float, high: float) -> Any:
    return counted[column].histogram(low, high)


def _ends(counted: Sequence[ValueCounts], column: int, low: float, high: float) -> Any:
    return counted[column].ends(low, high)


@dataclass(slots=True)
class Stages:
    """One run, when its columns are chosen and its cluster is there."""

    cluster: Cluster
    phase: Phase
    tables: Sequence[FileTable]
    reading: Reading
    partitions: int
    output: Output

    def task(self) -> Any:
        """A reference to what all tasks have in common."""
        layout = replace(self.reading.layout, tables=())
        return self.cluster.put(Task(replace(self.reading, layout=layout), self.output, self.partitions))

    def read(self) -> Rows:
        """Read all files, and refuse what only all rows can show."""
        rows = [table.row_count() or table.source.pin.size // _BYTES for table in self.tables]
        self.partitions = self.partitions or min(MOST, -(-max(1, sum(rows)) // ROWS))
        if not self.reading.chosen.group and is_one_dataset(self.tables):
            self.partitions = 1  # blocks of rows go on from file to file
        shards = shards_of(self.tables, rows, self.cluster.processors)
        found, parts = self._read(shards)
        warnings = _checked(self.reading, self.tables, shards, found)
        filled = [at for at in range(self.partitions) if any(one.counts[at] for one in found)]
        are_mixed = any(one.mixed is not None for one in found)
        return Rows(_whole(self.tables, shards, found), filled, parts, warnings, are_mixed)

    def _read(self, shards: Sequence[Sequence[Piece]]) -> tuple[list[ShardFacts], list[list[Any]]]:
        """The facts of each shard, and references to its parts."""
        compared = {len(shards) * at // _COMPARED for at in range(_COMPARED)}
        while True:
            task, found, parts = self.task(), list[ShardFacts](), list[list[Any]]()
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

    def compute(
        self, work: Callable[..., tuple[Any, ...]], rows: Rows, returns: int, *given: Any
    ) -> tuple[list[Outcome], list[list[Any]]]:
        """Of each partition that has rows the outcome of the work, and references to what else it returns; `given` is for the work."""
        everything = self.cluster.put(rows.whole)
        known = list[Moments]()
        while True:
            task = self.task()
            outcomes, others = list[Outcome](), list[list[Any]]()
            calls = (
                (task, everything, known, *given, *(of_shard[at] for of_shard in rows.parts)) for at in rows.filled
            )
            for outcome, references in self.cluster.run(work, calls, returns=returns):
                outcomes.append(outcome)
                others.append(references)
                self.phase("computing", len(outcomes), len(rows.filled))
            _raise_first(outcomes, self.reading.chosen.steps)
            cuts = {one.cut_size for one in outcomes if one.cut_size is not None}
            if cuts and any({one.cut_size, one.one_size}.isdisjoint(cuts) for one in outcomes) | (len(cuts) > 1):
                # What some partitions say of their groups the others deny, so it is not so.
                self.reading = replace(self.reading, may_cut=False)
                known.clear()
                continue
            waiting = [one.moments for one in outcomes if one.moments is not None]
            if not waiting:
                return outcomes, others
            known.append(reduce(Moments.merge, waiting))

    def summary(self, rows: Rows, outcomes: Sequence[Outcome], counted: Sequence[Any]) -> dict[str, Any]:
        """The summary of all partitions; `counted` are references to the values of the rewards."""
        reading = self.reading
        tally, counts = Tally(), Counter[str]()
        for one in outcomes:
            tally.merge(one.tally)
            counts += one.counts
        if not tally.counts["rows"]:
            raise none_left(self.tables, sum(rows.whole.lengths))
        summary = tally.facts(reading.plan)
        if summary["groups"] == counts["units"] > 1:
            refuse_only_singletons(reading.chosen.group, reading.layout.key_words, reading.layout.binding, reading.plan)
        summary["batches"] = max(1, len(rows.whole.batches))
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
        draws = [one.draws for one in outcomes if one.draws is not None]
        if draws and not rows.are_mixed:
            key, named = reading.layout.key_words or ", ".join(reading.chosen.group), bool(reading.layout.binding.group)
            summary["warnings"] += reduce(Draws.merge, draws).warnings(key, reading.chosen.group, named=named)
        unused = [text for text in outcomes[0].unused if all(text in one.unused for one in outcomes)]
        summary["warnings"] += unused_outcomes(unused)
        summary["reward"] = self.distribution(tally.reward, outcomes, counted)
        summary["warnings"] = [*rows.warnings, *summary["warnings"]]
        return summary

    def distribution(
        self, spread: Spread, outcomes: Sequence[Outcome], counted: Sequence[Any], column: int = 0
    ) -> dict[str, Any]:
        """How the values of a column are distributed: by their counts where they are few, else by what all partitions count.

        `counted` are references to the values of each partition, `spread` is that of all values.
        """
        few = [one.few[column] for one in outcomes]
        known = merged_few([one for one in few if one is not None]) if None not in few else None
        if known is not None:
            return distribution_of_counts(*known)
        below, histogram = (partial(self._added, counted, work, column) for work in (_below, _histogram))
        return distribution_of_parts(spread.facts(), int(spread.moments.weight[0]), below, histogram)

    def at_ends(self, distribution: Mapping[str, Any], counted: Sequence[Any], column: int) -> dict[str, int]:
        """How often the least and the largest value of a column occur."""
        if not distribution["count"]:
            return {"at_min": 0, "at_max": 0}
        low, high = self._added(counted, _ends, column, distribution["min"], distribution["max"])
        return {"at_min": int(low), "at_max": int(high)}

    def _added(self, counted: Sequence[Any], work: Any, *arguments: Any) -> Any:
        return sum(found for found, _ in self.cluster.run(work, ((one, *arguments) for one in counted)))


@dataclass(slots=True)
class Rows:
    """All rows, when they have been read: what is known of them, which partitions have some, and references to them."""

    whole: Whole
    filled: list[int]
    parts: list[list[Any]]  # of each shard those of all partitions
    warnings: list[str]
    are_mixed: bool  # some groups hold several prompts


@contextmanager
def stages(
    ray: RayOptions,
    phase: Phase,
    tables: Sequence[FileTable],
    binding: Binding,
    plan: Plan,
    output: Output | None = None,
    folders: Iterable[Path] = (),
) -> Iterator[Stages]:
    """The stages of a run over these tables, on a cluster whose machines all see them and these folders."""
    refuse_own(tables)
    reading = choose(tables, binding, plan)
    with seeing(ray, tables, folders) as cluster:
        yield Stages(cluster, phase, tables, reading, ray.partitions, output or Output())


@contextmanager
def seeing(ray: RayOptions, tables: Sequence[FileTable], folders: Iterable[Path] = ()) -> Iterator[Cluster]:
    """A cluster whose machines all see these files and folders."""
    with connected(ray.address, verbose=ray.verbose) as cluster:
        cluster.refuse_unseen({one.source.path: one.source.pin for one in tables if one.source.is_local}, folders)
        yield cluster


def refuse_own(tables: Sequence[FileTable]) -> None:
    """Refuse files of which this process alone has what is read."""
    for table in tables:
        if table.source.fd is not None or table.left_out:
            raise UsageError(f"{table.name} is kept in this process alone", "name files, or leave out --engine ray")


def over_tables(cluster: Cluster, work: Callable[[FileTable], Any], tables: Iterable[FileTable]) -> Iterator[Any]:
    """Work on each table in a task; names that only some rows have, and empty records, are known here afterwards."""
    tables = list(tables)
    done = cluster.run(_on_table, ((work, one) for one in tables))
    for table, ((found, late, empty), _) in zip(tables, done, strict=True):
        table.add_names(late)
        table.source.empty_records[:] = empty
        yield found


def _on_table(work: Callable[[FileTable], Any], table: FileTable) -> tuple[Any, list[str], list[int]]:
    own = here(table)
    own.source.check()
    known = {*table.columns()}
    found = work(own)
    own.source.check()
    return found, [name for name in own.columns() if name not in known], own.source.empty_records


def shards_of(tables: Sequence[FileTable], rows: Sequence[int], processors: int) -> list[list[Piece]]:
    """The files of each task: several small ones, one, or a section of a large one."""
    most = min(MOST, max(SHARDS, EACH * processors))
    least = max(ROWS // 2, -(-sum(rows) // most))
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
    empty = [0] * len(tables)
    for pieces, one in zip(shards, found, strict=True):
        for piece, records in zip(pieces, one.empty, strict=True):
            empty[piece.file] += records
    return [*warnings, *without_rollouts([table.name for table in tables], empty)]


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
