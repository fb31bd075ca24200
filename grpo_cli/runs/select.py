"""`select` of files: inputs, tables, rows with groups, the groups and rows to keep, and files with those rows."""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import polars as pl

from grpo_cli.choosing.groups import Choice
from grpo_cli.choosing.selected import Selected, select_rows
from grpo_cli.engine.moments import Index
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, UsageError, Way, Written
from grpo_cli.files.atomic import folders_synced, refuse_unwritable
from grpo_cli.files.compression import is_packed
from grpo_cli.files.finished import expect
from grpo_cli.formats import registry
from grpo_cli.formats.convert import convert, taken
from grpo_cli.formats.interface import PartOfRecord, Scanned, Weaving
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import plan_of
from grpo_cli.read.build_table import columns_first
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.tables import FileTable, OverTables, Table, in_one_type, refuse_changed
from grpo_cli.runs.asked import OnFiles, binding_of, condition_of, is_silent, made, output_of
from grpo_cli.runs.gate import Gate
from grpo_cli.runs.inspect import other_runs, scored
from grpo_cli.runs.progress import Watching
from grpo_cli.schemas.table import NESTED
from grpo_cli.stats.inspection import View
from grpo_cli.values.cells import Field
from grpo_cli.values.paths import PARENT
from grpo_cli.write.outputs import (
    Output,
    Target,
    choose_beside,
    choose_target,
    choose_targets,
    is_folder,
    refuse_summary,
)
from grpo_cli.write.write_outputs import Phase, finishing, make_folders, merged_keys, one_of_several, paths_of, sink


@dataclass(frozen=True, kw_only=True)
class Job(OnFiles):
    """What to read, what to keep, and where to write it."""

    choice: Choice  # which groups are kept, and how many of their rows
    plan: Plan = field(default_factory=Plan)  # how columns are made into one reward, and how rows of a rollout count
    length: str | None = None  # the column of lengths, None: found by name
    output: Output = field(default_factory=Output)  # where and how to write
    gate: Gate | None = None  # the condition of --fail-on, checked before anything is written
    silent: bool = False  # nobody sees the warnings

    @classmethod
    def of(cls, given: Given) -> Job:
        """What options ask for."""
        given = given.to_command("select")
        return made(
            cls,
            given,
            choice=choice_of(given),
            plan=plan_of(given),
            binding=binding_of(given),
            length=given.length_column,
            output=output_of(given, "selected"),
            gate=Gate.of(given, Selected),
            silent=is_silent(given) and "fail_on" not in given,
        )


def choice_of(given: Given, **more: Any) -> Choice:
    """Which groups and rows are kept; `more` are further fields."""
    if "pick" in given and "per_group" not in given:
        raise UsageError("--pick says which rows --per-group keeps", Way("--per-group", fill="N", lead="add"))
    return made(
        Choice,
        given,
        runs=1 + len(given.before),
        where=condition_of(given, "where"),
        top=given.most,
        by="std" if given.most_by is None else given.most_by,
        solved_at=given.solved_at if given.solved_from is None else given.solved_from,
        **more,
    )


def run(job: Job, phase: Phase = lambda *_: None) -> Selected:
    """Write the rows that are kept; return the facts, which say why others are not."""
    started = time.perf_counter()
    phase("reading")
    tables, skipped = job.opened()
    output = job.output
    to_file = output.to is not None and not is_folder(output.to)
    joined = len(tables) > 1 and to_file
    with columns_first(tables, (job.plan, job.binding)):
        targets = [choose_target(output)] if joined else choose_targets(tables, output)
        targets += choose_beside(targets, job.choice.beside, output)
        refuse_summary(output, targets)

    watching = Watching(tables, phase)
    narrow, kept, facts = selected(job, tables, over=watching)
    of_tables = targets[:1] * len(tables) if joined else targets[: len(tables)]
    facts = replace(
        facts,
        inputs=[table.name for table in tables],
        against=job.before,
        outputs=[target.name for target in targets],
        warnings=[*facts.warnings, *skipped, *merged_keys(narrow, tables, of_tables)],
        seconds=time.perf_counter() - started,
    )
    if job.gate is not None:
        job.gate.check(facts, written=Written())

    watching.phase("writing")
    refuse_changed(tables)
    make_folders(targets)
    tables = [watching.writing(at, table) for at, table in enumerate(tables)]
    outputs = []
    for rows in kept.values():
        parts = [*map(_Part, tables, narrow.scans, narrow.lengths, _of_tables(narrow, rows))]
        outputs += [parts] if joined else [[part] for part in parts]
    notes = _write([*zip(targets, outputs, strict=True)], output)
    seconds = round(time.perf_counter() - started, 3)
    return replace(facts, warnings=[*facts.warnings, *notes], seconds=seconds)


def selected(job: Job, tables: Sequence[Table], *, over: OverTables = map) -> tuple[Narrow, dict[str, Index], Selected]:
    """The rows of these tables, those that each output keeps, and the facts."""
    view = View(length=job.length, named=job.choice.names)
    groups = scored(tables, job.binding, job.plan, view, warn=not job.silent, over=over)
    rows, facts = select_rows(groups, job.choice, other_runs(job, job.plan))
    whole = {name: _with_records(groups.narrow, kept) for name, kept in rows.items()}
    return groups.narrow, whole, facts


def _of_tables(narrow: Narrow, rows: Index) -> list[Index]:
    """The rows of each table, counted from its first row."""
    parts = np.split(rows, np.searchsorted(rows, narrow.ends[:-1]))
    return [part - end + length for part, end, length in zip(parts, narrow.ends, narrow.lengths, strict=True)]


def _with_records(narrow: Narrow, kept: Index) -> Index:
    """The kept rows with those of the same records that are no rollouts, such as a judge's: records stay whole."""
    if narrow.foreign is None:
        return kept
    whole = [kept]
    for at, foreign in narrow.by_file(narrow.foreign):
        table = narrow.tables[at]
        if table.schema is not None and table.schema.layout == NESTED:
            records = table.scan([Field(PARENT, "key")]).frame[PARENT].to_numpy()
            kept_here = _of_tables(narrow, kept)[at]
            own = np.isin(records[foreign], records[kept_here])
            start = narrow.ends[at] - narrow.lengths[at]
            whole.append(foreign[own] + start)
    return np.sort(np.concatenate(whole))


class _Part(NamedTuple):
    """Rows of an input, which has so many."""

    table: FileTable
    scanned: Scanned
    length: int
    rows: Index


def _write(outputs: Sequence[tuple[Target, Sequence[_Part]]], output: Output) -> list[str]:
    """Write each output from its parts; return notes for the user.

    Rows of one input are written as they are, those of several as lines or as a frame with the columns of all.
    """
    notes = list[str]()
    targets = [target for target, _ in outputs]
    refuse_unwritable(paths_of(targets))
    expect(len(paths_of(targets)))
    with folders_synced(paths_of(targets)):
        for at, (target, parts) in enumerate(outputs):
            if _loses_empty_records(target, parts):
                notes.append(f"{parts[0].table.name}: records without rollouts are not written")
            whole = _is_copied(target, parts)
            to = target._replace(packing="") if whole else target
            with (
                one_of_several(at, targets, finishing(output)),
                sink(to, force=output.force, sync_folder=False) as handle,
            ):
                if whole:
                    with parts[0].table.source.open() as source:
                        shutil.copyfileobj(source, handle)
                elif len(parts) == 1:
                    notes += _write_rows(parts[0], target, handle)
                elif target.format.same_as(registry.lines()):
                    notes += _write_lines(parts, target, handle)
                else:
                    each = (taken(part.table.source, part.table.format, part.rows) for part in parts)
                    frame = _one_frame([pl.concat(some) for some in each])
                    target.format.write_parts(iter([frame]), handle, {})
                refuse_changed([part.table for part in parts])
    return notes


def _loses_empty_records(target: Target, parts: Sequence[_Part]) -> bool:
    """Whether a single input has records without rollouts, which its rows in this format leave out."""
    table = parts[0].table
    keeps = target.format.same_as(table.format) and registry.keeps_empty_records(table.format)
    return len(parts) == 1 and parts[0].scanned.empty > 0 and not keeps


def _is_copied(target: Target, parts: Sequence[_Part]) -> bool:
    """Whether the output is the file as it is: all rows of a single input are kept, and its texts are not elsewhere."""
    if len(parts) > 1 or _loses_empty_records(target, parts):
        return False
    table, _, length, rows = parts[0]
    same = target.format.same_as(table.format) and is_packed(table.source) == bool(target.packing)
    return same and len(rows) == length and not table.source.deferred


def _write_lines(parts: Sequence[_Part], target: Target, handle: BinaryIO) -> list[str]:
    """Write the rows of several inputs as lines, each on its own."""
    notes = list[str]()
    lines = _Lines(handle)
    for part in parts:
        if lines.last != b"\n":
            lines.write(b"\n")
        notes += _write_rows(part, target, cast("BinaryIO", lines))
    return notes


def _one_frame(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The rows of all frames; a column may have several types of number, other differences are errors."""
    cure = "give -o FILE.jsonl, or -o DIRECTORY/ for one file per input"
    frames = in_one_type(frames, cure, wide=False)
    types: dict[str, set[pl.DataType]] = {}
    for frame in frames:
        for name, dtype in frame.schema.items():
            types.setdefault(name, set()).update({dtype} - {pl.Null()})
    for name, found in types.items():
        if len(found) > 1:
            both = " and ".join(sorted(map(str, found)))
            raise DataError(f"{name} is {both} in different inputs", cure)
    return pl.concat(frames, how="diagonal_relaxed")


class _Lines(io.RawIOBase):
    """A sink that knows whether its last line is complete: a file may end without a newline."""

    def __init__(self, sink: BinaryIO) -> None:
        self.sink = sink
        self.last = b"\n"

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.last = bytes(memoryview(data).cast("B")[-1:]) or self.last
        return self.sink.write(data)


def _write_rows(part: _Part, target: Target, handle: BinaryIO) -> Sequence[str]:
    """Write rows as their file has them, or a line per row if a record cannot be divided."""
    table = part.table
    index = part.scanned.index
    weaving = Weaving(added=pl.DataFrame(height=len(part.rows)), take=part.rows)
    notes: Sequence[str] = ()
    if target.format.same_as(table.format):
        try:
            return table.format.weave(table.source, index, handle, weaving)
        except PartOfRecord:
            notes = [f"{table.name}: records that lose some of their rows are written as one line per row"]
    convert(table.source, table.format, handle, target.format, weaving, long=True, index=index)
    return notes
