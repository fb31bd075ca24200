"""The kinds of tasks of a run on several machines, as plain functions that know nothing of what calls them.

`read_shard` reads the narrow columns of some files and divides their rows by a hash of the group key, so that each group
is in one partition as a whole. `score_partition` puts the rows of a partition together by the rules of any run and
scores them, `inspect_partition` inspects them. `write_files` takes the advantages of some files out of all partitions and weaves them in.

Each gives the same for the same arguments, wherever and however often it is run. The rows of a partition are in the
order of the input, so that the sums of a group are added in the same order as by one process.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Moments
from grpo_cli.engine.score import score
from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files.atomic import directories_synced
from grpo_cli.files.inputs import Input, Section
from grpo_cli.formats.cells import JSON_TEXT, canonical
from grpo_cli.formats.interface import Weaving
from grpo_cli.read.assign_groups import assign_groups, refuse_rivals, repeats, units
from grpo_cli.read.build_table import (
    Reading,
    columns_of,
    joined,
    narrow,
    refuse_singletons,
    refuse_unscorable,
    scan_of,
)
from grpo_cli.read.choose_columns import named_columns
from grpo_cli.read.group_keys import Coded, MergeError, encode, refuse_missing, sizes
from grpo_cli.read.known_names import STEP_LIKE
from grpo_cli.read.prompt_check import mixed_prompts
from grpo_cli.read.tables import label
from grpo_cli.stats import facts
from grpo_cli.stats.inspection import RowFacts, scored_groups
from grpo_cli.stats.stream_facts import Tally
from grpo_cli.stats.value_counts import ValueCounts
from grpo_cli.write.outputs import added, metadata
from grpo_cli.write.weave import with_keys_and_rewards, write_one

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from grpo_cli.engine.frames import Merge
    from grpo_cli.engine.plan import Plan
    from grpo_cli.engine.score import Scored
    from grpo_cli.formats.interface import Field
    from grpo_cli.read.assign_groups import Scan
    from grpo_cli.read.prompt_check import Mixed
    from grpo_cli.read.tables import FileTable, Narrow
    from grpo_cli.read.warnings import Draws
    from grpo_cli.stats.inspection import View
    from grpo_cli.write.outputs import Output, Target
    from grpo_cli.write.resume import Ledger

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Keys = tuple[str | None, ...]
    Place = tuple[int, int]  # the number of a file, and of a row in it

Found = TypeVar("Found")

ROW: Final = ".row"  # the number of a row in its shard
KEY: Final = ".key"  # the line of its key


@dataclass(frozen=True, slots=True)
class Task:
    """What all tasks of a run have in common."""

    reading: Reading  # without its tables
    output: Output
    partitions: int


# --- reading -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """A file, or a section of one; `file` is its number among the inputs."""

    file: int
    table: FileTable


@dataclass(slots=True)
class ShardFacts:
    """What reading a shard shows, beside its rows."""

    lengths: list[int]  # of its pieces
    counts: list[int]  # rows of each partition
    missing: set[str]  # columns that no row has, of a section of a file
    late: set[str]  # step-like names that only some lines of a file have
    dtypes: dict[str, set[pl.DataType]]  # of the columns, without those that are null everywhere
    nulls: int  # rows without the first reward
    steps: dict[str, set[str | None]]  # the values of step-like columns
    batches: list[Keys]  # the keys of batches in order of first appearance
    mixed: tuple[Mixed, str] | None  # groups of several prompts, and one of them in words
    empty: list[int]  # records without rollouts, of its pieces


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of a shard that are in one partition; their keys once each."""

    keys: pl.DataFrame
    rows: pl.DataFrame


def read_shard(task: Task, pieces: Sequence[Piece], *, compare_prompts: bool) -> tuple[ShardFacts, list[Part]]:
    """Read some files and divide their rows; there is a part for each partition."""
    reading = task.reading
    chosen = reading.chosen
    frames, missing, late, mixed, empty = list[pl.DataFrame](), set[str](), set[str](), None, list[int]()
    for piece in pieces:
        table = here(piece.table)
        with _located(table.source):
            table.source.check()
            is_section = isinstance(table.source, Section)
            optional = {one.name for one in chosen.fields} if is_section else chosen.optional
            frame = columns_of(table, chosen._replace(optional=optional))
            table.source.check()
            for name in (*chosen.group, *named_columns(reading.layout.binding)):
                refuse_missing(name, frame[name], table.place)
        if is_section:
            missing |= {name for name in frame.columns if frame[name].dtype == pl.Null and name not in table.columns()}
        late |= {name for name in table.columns() if name in STEP_LIKE}
        if compare_prompts and mixed is None:
            mixed = _mixed(reading, table, frame)
        frames.append(frame)
        empty.append(sum(table.source.empty_records))
    lengths = [len(frame) for frame in frames]
    dtypes, columns = dict[str, set[pl.DataType]](), dict[str, pl.Series]()
    for one in chosen.fields:
        parts = [frame.drop_in_place(one.name) for frame in frames]
        dtypes[one.name] = {part.dtype for part in parts if part.dtype != pl.Null}
        columns[one.name] = _joined(parts, are_mixed=len(dtypes[one.name]) > 1)
    facts_there = ShardFacts(
        lengths=lengths, counts=[], missing=missing, late=late, dtypes=dtypes,
        nulls=columns[chosen.rewards[0]].null_count(),
        steps={name: {*canonical(columns[name].unique()).to_list()} for name in chosen.steps},
        batches=_batch_keys(reading, columns, [piece.file for piece in pieces], lengths),
        mixed=mixed, empty=empty,
    )  # fmt: skip
    parts_there = _divided(columns, chosen.group, task.partitions, [piece.file for piece in pieces], lengths)
    facts_there.counts = [len(part.rows) for part in parts_there]
    return facts_there, parts_there


def here(table: FileTable) -> FileTable:
    """The table as this machine sees its file: a shared file system has another device number on each of them."""
    source = table.source
    whole = source.whole if isinstance(source, Section) and source.whole is not None else source
    if not whole.is_local:
        return table
    try:
        device = Input.at(whole.path).pin.device
    except DataError:
        raise InputChanged.between_readings(source.name) from None
    whole = replace(whole, pin=replace(whole.pin, device=device), blocks=[], empty_records=[])
    return table.of_source(
        replace(source, whole=whole, blocks=[], empty_records=[]) if isinstance(source, Section) else whole
    )


@contextmanager
def _located(source: Input) -> Iterator[None]:
    """Count lines from the beginning of the file, not of its section."""
    try:
        yield
    except DataError as error:
        if not isinstance(source, Section) or not source.start or source.whole is None:
            raise
        start = re.compile(rf"{re.escape(source.name)}:(\d+)")
        if not start.match(error.message):
            raise
        left, before = source.start, 0
        with source.whole.open() as handle:
            while left and (data := handle.read(min(left, 1 << 20))):
                left -= len(data)
                before += data.count(b"\n")
        message = start.sub(lambda at: f"{source.name}:{int(at[1]) + before}", error.message, count=1)
        raise type(error)(message, error.hint) from None


def _mixed(reading: Reading, table: FileTable, frame: pl.DataFrame) -> tuple[Mixed, str] | None:
    """Groups of several prompts inside this file."""
    chosen = reading.chosen
    if not (chosen.prompts or chosen.others) or not len(frame):
        return None
    scan = scan_of(reading, [table], (len(frame),), {one.name: one for one in frame})
    with suppress(DataError):  # it is said with all of its groups later on
        groups, _ = assign_groups(replace(scan, prompts=(), others=()), reading.layout.binding)
        found = mixed_prompts(chosen.prompts, chosen.others, [table], scan.lengths, groups)
        return None if found is None else (found, scan.label(int(groups.first[found.code])))
    return None


def _joined(parts: list[pl.Series], *, are_mixed: bool) -> pl.Series:
    """A column of several parts; of several types as JSON text, in a dtype that says so."""
    if are_mixed:
        return pl.concat([canonical(part) for part in parts]).cast(JSON_TEXT)
    return joined(parts)


def _batch_keys(
    reading: Reading, columns: Mapping[str, pl.Series], files: Sequence[int], lengths: Sequence[int]
) -> list[Keys]:
    names = [name for name in reading.layout.binding.batch_names if name != "input"]
    if not names:
        return []
    file = pl.Series("file", np.repeat(np.array(files, np.uint32), lengths))
    return _lines([file if name == "file" else columns[name] for name in names], sum(lengths))[1]


def _lines(keys: Sequence[pl.Series], rows: int) -> tuple[Coded, list[Keys]]:
    """Codes of keys, and their JSON texts in order of first appearance."""
    coded = encode(keys, rows)
    texts = [canonical(key.gather(coded.first)).to_list() for key in keys]
    return coded, list(zip(*texts, strict=True))


def _divided(
    columns: dict[str, pl.Series], group: Sequence[str], partitions: int, files: Sequence[int], lengths: Sequence[int]
) -> list[Part]:
    """The rows by the hash of their key. Without a key the groups are blocks of rows: a file stays together."""
    rows = sum(lengths)
    if group:
        coded = encode([columns[name] for name in group], rows)
        keys = pl.DataFrame([columns.pop(name).gather(coded.first) for name in group])
        texts = pl.select(pl.concat_str([canonical(key) for key in keys], separator="\0")).to_series()
        of_key = np.array([zlib.crc32(text) % partitions for text in texts.cast(pl.Binary).to_list()], np.uint16)
        codes = coded.codes.to_numpy()
        place = of_key[codes]
    else:
        keys, codes, of_key = pl.DataFrame(), np.zeros(rows, np.uint32), np.zeros(0, np.uint16)
        hashes = [zlib.crc32(str(file).encode()) % partitions for file in files]
        place = np.repeat(np.array(hashes, np.uint16), lengths)
    order = np.argsort(place, kind="stable").astype(np.uint32)
    ends = np.cumsum(np.bincount(place, minlength=partitions)).tolist()
    table = pl.DataFrame([pl.Series(ROW, np.arange(rows, dtype=np.uint32)), pl.Series(KEY, codes), *columns.values()])
    lines, start, parts = np.zeros(len(of_key), np.uint32), 0, []
    for number, end in enumerate(ends):
        own = np.flatnonzero(of_key == number)
        lines[own] = np.arange(len(own), dtype=np.uint32)
        part = table[pl.Series(order[start:end])]
        if keys.width:
            part = part.with_columns(pl.Series(KEY, lines[part[KEY].to_numpy()]))
        parts.append(Part(keys[own] if keys.width else keys, part))
        start = end
    return parts


# --- scoring -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shard:
    """Which rows the parts of a shard are of: files, how many rows of each, and how many rows of the first stand before."""

    files: tuple[int, ...]
    lengths: tuple[int, ...]
    before: int = 0


@dataclass(frozen=True, slots=True)
class Whole:
    """What is known of all rows when they have been read."""

    tables: Sequence[FileTable]
    lengths: Sequence[int]  # rows of each file
    shards: Sequence[Shard]
    dtypes: Mapping[str, set[pl.DataType]]
    batches: Mapping[Keys, int]


@dataclass(slots=True)
class Outcome:
    """What scoring a partition shows: why it cannot be, moments that all partitions need, or the facts of its groups."""

    error: tuple[Place, DataError] | None = None
    moments: Moments | None = None
    tally: Tally = field(default_factory=Tally)
    first: dict[str, list[int]] = field(default_factory=dict)  # the numbers of the first rows of its skipped keys
    few: list[ValueCounts | None] = field(default_factory=list)  # the values of rewards; None where they are many
    counts: Counter[str] = field(default_factory=Counter)
    unused: Sequence[str] = ()  # see Scan
    draws: Draws | None = None  # see Narrow
    cut_size: int | None = None  # see Narrow
    one_size: int | None = None  # of all groups, if they have one
    metadata: dict[str, str] = field(default_factory=dict)
    groups: pl.DataFrame = field(default_factory=pl.DataFrame)  # of an inspection: one line each, and its first row
    rows: RowFacts | None = None  # of an inspection

    def count(self, columns: Sequence[pl.Series]) -> list[ValueCounts]:
        """Count the values of columns; few of them are kept."""
        counted = [ValueCounts.of(column) for column in columns]
        self.few = [one if one.are_few else None for one in counted]
        return counted


@dataclass(frozen=True, slots=True)
class ScoredPart:
    """The new columns of some rows of a shard; of those that are left out there is none."""

    rows: pl.Series
    columns: pl.DataFrame


class _Waiting(Exception):
    """The moments of all partitions are needed to go on."""

    def __init__(self, moments: Moments) -> None:
        super().__init__()
        self.moments = moments


@dataclass(frozen=True, slots=True)
class _PartOfTable:
    """Some rows of a file. It notes which of them were named, for of several errors the first row's is to be said."""

    table: FileTable
    file: int
    rows: Ints
    named: list[Place]

    @property
    def name(self) -> str:
        return self.table.name

    def columns(self) -> list[str]:
        return self.table.columns()

    def scan(self, fields: Sequence[Field]) -> pl.DataFrame:
        return self.table.scan(fields)[self.rows]

    def place(self, row: int) -> str:
        self.named.append((self.file, int(self.rows[row])))
        return here(self.table).place(int(self.rows[row]))


def score_partition(
    task: Task, whole: Whole, known: Sequence[Moments], parts: Sequence[Part]
) -> tuple[Outcome, list[ValueCounts], list[ScoredPart]]:
    """Score the rows of a partition, which are given shard by shard; `known` are the merged moments of earlier rounds.

    The values of the rewards are returned beside the outcome: they may be as many as the rows.
    """
    outcome, found = _grouped(task, whole, known, parts, partial(_scored, task, parts))
    nothing = ScoredPart(pl.Series([], dtype=pl.UInt32), pl.DataFrame())
    return outcome, *(([], [nothing] * len(parts)) if found is None else found)


@dataclass(frozen=True, slots=True)
class _Grouped:
    """The rows of a partition that know their groups; `merge` gives the moments of all rows for those of this partition."""

    scan: Scan
    table: Narrow
    merge: Merge
    outcome: Outcome


def _grouped(
    task: Task, whole: Whole, known: Sequence[Moments], parts: Sequence[Part], work: Callable[[_Grouped], Found]
) -> tuple[Outcome, Found | None]:
    """Put the rows of a partition together, and do some work on them.

    Without a result of the work the outcome says why: an error, or moments that all partitions need.
    """
    reading, named = task.reading, list[tuple[int, int]]()
    chosen = reading.chosen
    tables, lengths = _tables(whole, parts, named)
    outcome, rounds = Outcome(), iter(known)

    def merge(moments: Moments) -> Moments:
        merged = next(rounds, None)
        if merged is None:
            raise _Waiting(moments)
        return merged

    try:
        columns = {one.name: _gathered(one.name, parts, chosen.group, whole.dtypes[one.name]) for one in chosen.fields}
        starts = np.cumsum([0, *whole.lengths])
        numbers = np.concatenate([one.rows + start for one, start in zip(tables, starts[:-1], strict=True)])
        scan = replace(scan_of(reading, tables, lengths, columns), prompts=(), others=(), numbers=numbers)
        refuse_rivals(scan, chosen.rivals)
        sample = chosen.sample if chosen.sample not in chosen.group else None
        batches = partial(_batch_codes, whole.batches)
        table = narrow(scan, replace(reading, chosen=chosen._replace(sample=None)), batches)
        group_sizes = sizes(table.groups)
        outcome.unused = scan.unused
        outcome.cut_size, outcome.draws = table.cut_size, table.draws
        if len(group_sizes) and (group_sizes == group_sizes[0]).all():
            outcome.one_size = int(group_sizes[0])
        outcome.counts["groups"] = table.groups.size
        left = scan
        if table.rows is not None:  # the groups are those of the rows that are left
            left = replace(
                scan, lengths=(len(table.rows),), columns={name: one[table.rows] for name, one in columns.items()}
            )
        outcome.counts["units"] = units(left, reading.plan, table.groups)
        if sample is not None:
            outcome.counts["repeats"] = repeats(table.groups, left.columns[sample])
        return outcome, work(_Grouped(scan, table, merge, outcome))
    except _Waiting as waiting:
        own = waiting.moments
        short = max(1, len(whole.batches)) - len(own.weight)
        arrays = (own.weight, own.mean, own.low, own.m2)
        outcome.moments = Moments(*(np.pad(one, (0, short)) for one in arrays))
    except MergeError as error:
        ends = np.cumsum(lengths)
        files = np.searchsorted(ends, error.rows, side="right").tolist()
        error.rows = [
            (file, int(tables[file].rows[row - (int(ends[file - 1]) if file else 0)]))
            for file, row in zip(files, error.rows, strict=True)
        ]
        outcome.error = (-1, -1), error
    except DataError as error:
        outcome.error = named[-1] if named else (0, 0), error
    return outcome, None


def _tables(whole: Whole, parts: Sequence[Part], named: list[Place]) -> tuple[list[_PartOfTable], tuple[int, ...]]:
    """The rows of each file that are in this partition."""
    rows: list[list[Ints]] = [[] for _ in whole.tables]
    for shard, part in zip(whole.shards, parts, strict=True):
        here_rows = part.rows[ROW].to_numpy().astype(np.int64)
        starts = np.cumsum([0, *shard.lengths])
        bounds = np.searchsorted(here_rows, starts)
        for at, file in enumerate(shard.files):
            offset = int(starts[at]) - (shard.before if at == 0 else 0)
            rows[file].append(here_rows[bounds[at] : bounds[at + 1]] - offset)
    none = np.zeros(0, np.int64)
    tables = [
        _PartOfTable(table, file, np.concatenate(found) if found else none, named)
        for file, (table, found) in enumerate(zip(whole.tables, rows, strict=True))
    ]
    return tables, tuple(len(one.rows) for one in tables)


def _scored(task: Task, parts: Sequence[Part], rows: _Grouped) -> tuple[list[ValueCounts], list[ScoredPart]]:
    plan, output, table, outcome = task.reading.plan, task.output, rows.table, rows.outcome
    scored = score(plan, table.table, merge=rows.merge)
    refuse_unscorable(plan, scored.rows[".scorable"], table)
    if plan.alone.result == "error":
        refuse_singletons(plan, scored.frame[".n"], table)
    outcome.tally.add(scored, table)
    outcome.first = _first_rows(scored, table)
    outcome.metadata = metadata(scored, table, output)
    counted = outcome.count([scored.rows[".reward"]])
    new = added(scored, output)
    if output.only:
        new = with_keys_and_rewards(table, new)
    kept = np.flatnonzero(scored.rows[".kept"].to_numpy())
    of_partition = kept if table.rows is None else table.rows[kept]
    new = new if len(kept) == len(new) else new[kept]
    starts = np.cumsum([0, *(len(part.rows) for part in parts)]).tolist()
    bounds = np.searchsorted(of_partition, starts).tolist()
    found = []
    for at, part in enumerate(parts):
        first, last = bounds[at], bounds[at + 1]
        found.append(ScoredPart(part.rows[ROW].gather(of_partition[first:last] - starts[at]), new[first:last]))
    return counted, found


def _gathered(name: str, parts: Sequence[Part], group: Sequence[str], dtypes: set[pl.DataType]) -> pl.Series:
    """A column of all parts, of the type that it has in all rows."""
    columns = [(part.keys if name in group else part.rows)[name] for part in parts]
    if len(dtypes) > 1:
        column = pl.concat([canonical(one) for one in columns], rechunk=True)
    else:
        dtype = next(iter(dtypes), pl.Null())
        column = pl.concat([one.cast(dtype) if one.dtype == pl.Null else one for one in columns], rechunk=True)
    if name not in group:
        return column
    starts = np.cumsum([0, *map(len, columns)]).tolist()
    return column.gather(pl.concat([part.rows[KEY] + start for part, start in zip(parts, starts[:-1], strict=True)]))


def _batch_codes(batches: Mapping[Keys, int], keys: Sequence[pl.Series], rows: int) -> Coded:
    """The codes that batches have among all rows."""
    if not keys:
        return encode(keys, rows)
    coded, lines = _lines(keys, rows)
    numbers = np.array([batches[line] for line in lines], np.uint32)
    return Coded(pl.Series(numbers[coded.codes.to_numpy()]), coded.first)


def _first_rows(scored: Scored, table: Narrow) -> dict[str, list[int]]:
    """By reason the first rows of the first groups without an advantage of their own."""
    groups = facts.skipped_groups(facts.group_facts(scored))
    return {
        reason: _numbers(table)[affected["code"].head(facts.LISTED)].tolist() for reason, affected in groups.items()
    }


def _numbers(table: Narrow) -> Ints:
    """The number among all rows of the first row of each group."""
    numbers: Ints = np.asarray(table.numbers, np.int64)[table.groups.first.to_numpy()]
    return numbers


# --- inspecting ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """What an inspection shows, and the column of each part of it."""

    view: View
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupNames:
    """The keys of the groups of a partition, and the number of the first row of each among all rows."""

    keys: pl.DataFrame
    numbers: Ints

    def label(self, code: int) -> str:
        """The key of a group in words."""
        return label(self.keys, code, int(self.numbers[code]))


def inspect_partition(
    task: Task, whole: Whole, known: Sequence[Moments], parts: Sequence[Part], look: Look
) -> tuple[Outcome, GroupNames | None, list[ValueCounts]]:
    """Inspect the rows of a partition; names and values are returned beside the outcome: they may be as many as the rows."""
    outcome, found = _grouped(task, whole, known, parts, partial(_inspected, task.reading.plan, look))
    return outcome, *((None, []) if found is None else found)


def _inspected(plan: Plan, look: Look, rows: _Grouped) -> tuple[GroupNames, list[ValueCounts]]:
    table, outcome = rows.table, rows.outcome
    inspection = scored_groups(table, plan, look.columns, rows.merge)
    outcome.tally.add(inspection.raw, table)
    outcome.rows = RowFacts.of(inspection, look.view)
    names = GroupNames(table.key, _numbers(table))
    outcome.groups = inspection.groups.drop("batch", "status", "kept", "zero_variance")
    outcome.groups = outcome.groups.with_columns(first=pl.Series(names.numbers))
    if inspection.by is not None:
        outcome.groups = outcome.groups.with_columns(by=inspection.by.gather(table.groups.first))
    components = [table.table[f"reward.{table.reward_names.index(name)}"] for name in outcome.rows.components]
    return names, outcome.count([inspection.raw.rows[".reward"], *components])


# --- writing -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Writing:
    """Files that are written by one task, one after the other, and the lengths of the shards that they are in."""

    tables: Sequence[FileTable]
    targets: Sequence[Target | None]  # None: it is there already
    lengths: Sequence[int]  # rows of each file
    shards: Sequence[int]  # rows of each shard
    metadata: Mapping[str, str]
    drops: bool  # rows are left out, of these files or others
    ledger: Ledger | None


def write_files(task: Task, writing: Writing, parts: Sequence[Sequence[ScoredPart]]) -> list[str]:
    """Weave the new columns into files; `parts` are those of each shard out of all partitions. Returns notes."""
    starts = np.cumsum([0, *writing.shards])
    rows = np.concatenate(
        [
            part.rows.to_numpy().astype(np.int64) + start
            for start, of_shard in zip(starts[:-1], parts, strict=True)
            for part in of_shard
        ]
    )
    columns = pl.concat([part.columns for of_shard in parts for part in of_shard if part.columns.width])
    place = np.full(starts[-1], -1, np.int64)
    place[rows] = np.arange(len(rows))
    rows = np.flatnonzero(place >= 0)
    columns = columns[place[rows]]
    ends = np.cumsum([0, *writing.lengths])
    bounds = np.searchsorted(rows, ends).tolist()
    notes = list[str]()
    with directories_synced() as folders:
        for at, (table, target) in enumerate(zip(writing.tables, writing.targets, strict=True)):
            first, last = bounds[at], bounds[at + 1]
            if target is None:
                continue
            take = rows[first:last] - int(ends[at]) if writing.drops else None
            if take is None and last - first != writing.lengths[at]:
                raise DataError(f"{table.name}: {last - first} of {writing.lengths[at]} rows came back from the tasks")
            weaving = Weaving(
                added=columns[first:last], take=take, replace=task.output.replace, metadata=writing.metadata
            )
            force, ready = task.output.force or task.output.in_place, None
            if writing.ledger is not None and target.path is not None:
                force |= writing.ledger.owns(target.path)
                ready = partial(writing.ledger.finished, target.path)
            own = here(table)
            notes += write_one(
                task.output, own, target, weaving, force=force, ready=ready, folders=folders, retried=True
            )
    return notes
