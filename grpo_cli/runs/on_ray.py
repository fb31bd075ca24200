"""A run whose files are read and written by tasks on a Ray cluster. In between, this process computes as in any run.

reading    a task reads some files, or a section of a large one: their narrow columns, each text once
computing  in this process
writing    a task adds the new columns to some files
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from grpo_cli.errors import DataError, Written
from grpo_cli.files.atomic import folders_synced
from grpo_cli.files.inputs import Section
from grpo_cli.formats.interface import InLines, Scanned
from grpo_cli.read.columns import ReadColumns
from grpo_cli.read.tables import FileTable, Found, Table
from grpo_cli.runs.ray_cluster import Cluster, connected
from grpo_cli.values.token_lists import has_numbers, with_lists
from grpo_cli.write.outputs import Output, Target
from grpo_cli.write.write_outputs import Phase, Writing, paths_of, write_one

Item = TypeVar("Item")

ROWS = 250_000  # rows of a task, at least; the last task may have fewer
MOST = 4_000  # tasks, at most; with more rows, each task has more of them
_BYTES = 256  # per row, in a file that does not say how many rows it has


@dataclass
class OnRay:
    """Workers on a cluster."""

    address: str | None  # of the cluster; None: RAY_ADDRESS, else a cluster on this machine
    verbose: bool  # whether Ray may print and log
    exit: ExitStack  # leaves the cluster when it is closed
    rows: int = ROWS  # of a task, at least
    most: int = MOST  # tasks of a reading, about: with more rows, each task has more of them

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster. Ray starts slowly, so this waits until the run has found its files."""
        return self.exit.enter_context(connected(self.address, verbose=self.verbose))

    def over_far(self, work: Callable[[Table], Found], tables: Iterable[Table]) -> Iterator[Found]:
        """Do a little work on each table: in tasks where it is in a store."""
        for is_far, some in groupby(tables, lambda table: not table.source.is_local):
            if is_far:
                calls = ((work, [table]) for table in some)
                yield from (unpacked(found) for (found,) in self.cluster.run(work_on, calls))
            else:
                yield from map(work, some)

    def begin(self, tables: Sequence[FileTable], phase: Phase, folders: Iterable[Path] = (), /) -> Tasks:
        """Refuse files that some machine does not see as this one does, and folders that are not shared."""
        shared = [table.source for table in tables if table.source.is_local and not _is_own(table)]
        self.cluster.refuse_unseen({source.path: source.pin for source in shared}, folders)
        return Tasks(self.cluster, phase, self.rows, self.most)


@dataclass(frozen=True)
class Tasks:
    """The stages of a run, in tasks of at least `rows` rows; `phase` hears how many tasks are done."""

    cluster: Cluster  # that runs the tasks
    phase: Phase  # is told how many tasks are done, or how many files are written
    rows: int  # of a task, at least
    most: int  # tasks of a reading, about: with more rows, each task has more of them

    def __call__(self, work: Callable[[Table], Any], tables: Iterable[Table], /) -> Iterator[Any]:
        """Do the work on each table. Files that only this process has are read here, such as a pipe or a converted file."""
        tables = list(tables)
        rows = sum(map(_rows_of, tables))
        least = max(self.rows, rows // self.most)
        pieces = [_pieces(table, least, work) for table in tables]
        results = self._read(work, list(chain.from_iterable(pieces)), least)
        for table, some in zip(tables, pieces, strict=True):
            found = list(islice(results, len(some)))
            if not found:
                yield work(table)
            elif len(found) > 1 and isinstance(work, ReadColumns):
                yield work.joined(table, found)
            else:
                yield from found

    def _read(self, work: Callable[[Table], Any], pieces: Sequence[Table], least: int) -> Iterator[Any]:
        """What the work finds in each piece."""
        tasks = list(_together(pieces, _rows_of, least))
        work_there = self.cluster.put(work)
        results = self.cluster.run(work_on, ((work_there, task) for task in tasks))
        for done, packed in enumerate(results, 1):
            yield from map(unpacked, packed)
            self.phase("reading", done, len(tasks))

    def write(self, output: Output, targets: Sequence[Target], writings: Iterator[Writing]) -> list[str]:
        """Write outputs in tasks, and then those of files that only this process has."""
        own = []
        written = 0
        notes = list[str]()

        def shared() -> Iterator[Writing]:
            for writing in writings:
                if _is_own(writing.table):
                    own.append(writing)
                else:
                    # Other machines do not see the file that this process keeps the numbers of tokens in.
                    lists = with_lists(writing.weaving.added, has_numbers)
                    yield replace(writing, weaving=replace(writing.weaving, added=lists))

        tasks = _together(shared(), lambda writing: len(writing.weaving.added), self.rows)
        try:
            for done in self.cluster.run(write_files, ((output, task) for task in tasks)):
                written += len(done)
                notes += chain.from_iterable(done)
                self.phase("writing", written, len(targets))
            return [*notes, *chain.from_iterable(write_files(output, own))]
        except DataError as error:
            if error.written is not None and len(targets) > 1:
                error.written = Written(None)  # other tasks may have finished theirs
            raise


@contextmanager
def on_ray(address: str | None, *, verbose: bool = False) -> Iterator[OnRay]:
    """Workers on a cluster, which is left at the end."""
    with ExitStack() as stack:
        yield OnRay(address, verbose, stack)


def _is_own(table: Table) -> bool:
    """Whether only this process has the file."""
    return table.source.fd is not None


def _rows_of(table: Table) -> int:
    """The number of rows of a file, or an estimate."""
    return table.row_count or table.source.pin.size // _BYTES


def _pieces(table: Table, least: int, work: Callable[[Table], Any]) -> list[Table]:
    """What tasks read of a table: the file, or sections of a large one; nothing if only this process has it."""
    if _is_own(table):
        return []
    known = table.format
    if isinstance(work, ReadColumns) and isinstance(known, InLines) and _rows_of(table) > least:
        cuts = known.sections(table.source, least * _BYTES)
        if len(cuts) > 1:
            return [table.of_source(Section.between(table.source, *cut)) for cut in cuts]
    return [table]


def _together(items: Iterable[Item], size: Callable[[Item], int], least: int) -> Iterator[list[Item]]:
    """Consecutive items in groups of at least this size, except the last group."""
    group = []
    total = 0
    for item in items:
        group.append(item)
        total += size(item)
        if total >= least:
            yield group
            group = []
            total = 0
    if group:
        yield group


# --- tasks ---------------------------------------------------------------------------------------------


def work_on(work: Callable[[Table], Any], tables: Sequence[FileTable]) -> list[Any]:
    """What the work finds in each of some files or sections, packed."""
    done = []
    for table in tables:
        table.source.check()
        done.append(packed(work(table)))
        table.source.check()
    return done


def write_files(output: Output, writings: Sequence[Writing]) -> list[Sequence[str]]:
    """Write the outputs of some files, one after the other; return the notes for the user of each."""
    with folders_synced(paths_of([writing.target for writing in writings])):
        return [write_one(output, writing, retried=True) for writing in writings]


_TEXT = pl.Categorical(pl.Categories("grpo_adv.packed"))


def packed(found: Any) -> Any:
    """Columns that were read, with each text once; anything else as it is."""
    return _cast(found, pl.selectors.string(), _TEXT)


def unpacked(found: Any) -> Any:
    """What was packed."""
    return _cast(found, pl.selectors.by_dtype(_TEXT), pl.String())


def _cast(found: Any, columns: Any, dtype: pl.DataType) -> Any:
    """What was read, with other types for these columns."""
    if not isinstance(found, Scanned):
        return found
    return found.with_frame(found.frame.with_columns(columns.cast(dtype)))
