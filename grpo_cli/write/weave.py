"""Results into files: each input's part of the new columns, woven in, rewritten or written afresh."""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
import polars as pl

from grpo_cli.errors import NOTHING_WRITTEN, DataError, UsageError
from grpo_cli.files.atomic import directories_synced, remove_abandoned, replacing
from grpo_cli.files.compression import packing
from grpo_cli.files.in_place import locked
from grpo_cli.files.stores import uploading
from grpo_cli.formats.convert import convert
from grpo_cli.formats.interface import Weaving
from grpo_cli.formats.token_lists import portions, with_lists
from grpo_cli.write.outputs import added, is_folder, metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from grpo_cli.engine.score import Scored
    from grpo_cli.read.tables import FileTable, Narrow
    from grpo_cli.write.outputs import Output, Rows, Target
    from grpo_cli.write.resume import Ledger

    Ready = Callable[[Path], None]  # a whole file, just before it gets its name
    Phase = Callable[..., None]  # what is being done, and of how many files how many are


@dataclass(frozen=True, slots=True)
class Computed:
    """What there is to write: `rows` are those of the narrow table in output order (None: all of them)."""

    narrow: Narrow
    scored: Scored
    rows: Rows | None
    others: Mapping[str, Scored] = field(default_factory=dict)  # further columns by name
    tokens: pl.Series | None = None  # of each row, for --per-token


def write(
    output: Output,
    computed: Computed,
    tables: Sequence[FileTable],
    targets: Sequence[Target],
    ledger: Ledger | None = None,
    phase: Phase = lambda *_: None,
) -> list[str]:
    """Write every output but those that the ledger says are finished; return what there is to say of them."""
    narrow = computed.narrow
    columns = added(computed.scored, output, computed.others, computed.tokens)
    if output.only:
        columns = with_keys_and_rewards(narrow, columns)
    entries = metadata(computed.scored, narrow, output, computed.others)
    total = len(targets) if len(targets) > 1 else None
    phase("writing", 0, total)
    for table in tables:
        table.source.check()
    if is_folder(output.to):
        make_folders(targets)
    if ledger is not None:
        ledger.begin()
    notes: list[str] = []
    with directories_synced() as folders:
        parts = _parts(output, computed, columns)
        for at, (table, target, (part, take)) in enumerate(zip(tables, targets, parts, strict=True)):
            if at:
                phase("writing", at, total)
            force, ready = output.force or output.in_place, None
            if ledger is not None and target.path is not None:
                if ledger.holds(target):
                    remove_abandoned(target.path.parent)  # nothing is written there, which would remove them
                    continue
                force |= ledger.owns(target.path)
                # Noted just before it gets its name: whoever is killed in between has left nothing that is not known.
                ready = partial(ledger.finished, target.path)
            weaving = Weaving(added=part, take=take, replace=output.replace, metadata=entries)
            with one_of_several(at, len(targets), noted=ledger is not None):
                notes += write_one(output, table, target, weaving, force=force, ready=ready, folders=folders)
    return notes


@contextmanager
def one_of_several(at: int, total: int, *, noted: bool = False) -> Iterator[None]:
    """Write an output behind `at` others, or behind the notes of --resume, which an error does not leave unsaid."""
    try:
        yield
    except DataError as error:
        if not (at or noted) or NOTHING_WRITTEN not in error.message:
            raise
        raise error.after_others(at, total) from error


def make_folders(targets: Sequence[Target]) -> None:
    """Make the folders of all outputs."""
    for folder in dict.fromkeys(target.path.parent for target in targets if target.path is not None):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise DataError(f"{folder}: cannot be made: {reason}", "choose another -o") from None


def with_keys_and_rewards(narrow: Narrow, columns: pl.DataFrame) -> pl.DataFrame:
    """--only: the key, the rewards and what was computed."""
    rewards = [narrow.table[f"reward.{k}"].alias(name) for k, name in enumerate(narrow.reward_names)]
    keys = narrow.key[narrow.table["group"]].get_columns() if narrow.key.width else []
    kept = [column for column in (*keys, *rewards) if column.name not in columns.columns]
    return pl.DataFrame([*kept, *columns.get_columns()])


def _parts(output: Output, computed: Computed, columns: pl.DataFrame) -> Iterator[tuple[pl.DataFrame, Rows | None]]:
    """For every file its columns, and its rows that they belong to (None: all)."""
    rows, read, ends = computed.rows, computed.narrow.rows, computed.narrow.ends
    if rows is None and read is None:
        for length, end in zip(computed.narrow.lengths, ends, strict=True):
            yield columns[int(end) - length : int(end)], None
        return
    rows = np.arange(len(columns)) if rows is None else rows
    source = rows if read is None else read[rows]
    files = np.searchsorted(ends, source, side="right")
    order = np.argsort(files, kind="stable")
    bounds = np.searchsorted(files[order], np.arange(len(ends) + 1))
    for at, (length, end) in enumerate(zip(computed.narrow.lengths, ends, strict=True)):
        here = order[bounds[at] : bounds[at + 1]]
        part = columns[pl.Series(rows[here])]
        if output.duplicate:
            part = part.with_columns(pl.Series(f"{output.column}_copy", rows[here]).is_first_distinct().not_())
        yield part, source[here] - (int(end) - length)


def write_one(
    output: Output,
    table: FileTable,
    target: Target,
    weaving: Weaving,
    *,
    force: bool,
    ready: Ready | None,
    folders: set[Path],
    retried: bool = False,
) -> Sequence[str]:
    """Write the output of one file, if it is still the file that was read; return what there is to say of it.

    `retried`: it may have been written by the same work before, see `replacing`.
    """
    table.source.check()
    if output.long and not table.format.nested:
        raise DataError(f"{table.name}: every row is one rollout already", "leave out --long")
    if output.in_place and weaving.take is None:
        in_place = table.format.weave_in_place(table.source, weaving)
        if in_place is not None:
            return in_place
    notes: Sequence[str] = ()
    lock = locked(table.source) if output.in_place else nullcontext()
    with lock, sink(target, force=force, ready=ready, folders=folders, retried=retried) as handle:
        if output.only:
            target.format.write_parts(map(with_lists, portions(weaving.added)), handle, weaving.metadata)
        elif output.long or not target.format.same_as(table.format):
            convert(table.source, table.format, handle, target.format, weaving, long=output.long)
        else:
            notes = table.format.weave(table.source, handle, weaving)
        table.source.check()
    return notes


@contextmanager
def sink(
    target: Target,
    *,
    force: bool,
    ready: Ready | None = None,
    folders: set[Path] | None = None,
    retried: bool = False,
) -> Iterator[BinaryIO]:
    """Where an output is written: a file that appears when it is whole, or standard output; packed as its name says.

    `ready` is called with the whole file just before it gets its name. The directory is synced with the file, or added
    to `folders`.
    """
    if target.url:
        with (
            uploading(target.url, force=force or retried) as upload,
            packing(upload, target.packing) as packed,
            _kept(packed) as kept,
        ):
            yield kept
        return
    if target.path is None:
        if sys.stdout is None:
            raise UsageError("standard output is closed", "give -o FILE")
        if target.format.binary and sys.stdout.isatty():
            raise UsageError(f"{target.format.name} is not for a terminal", "give -o FILE, or pipe it on")
        with packing(sys.stdout.buffer, target.packing) as packed, _kept(packed) as kept:
            yield kept
        sys.stdout.buffer.flush()
        return
    with (
        replacing(target.path, force=force, retried=retried, ready=ready, unsynced=folders) as handle,
        packing(handle, target.packing) as packed,
        _kept(packed) as kept,
    ):
        yield kept


@contextmanager
def _kept(sink: BinaryIO) -> Iterator[BinaryIO]:
    """The same sink, at whose end the error is raised that the system gave: polars says it without its number, or swallows it."""
    watched = _KeepsError(sink)
    try:
        yield cast("BinaryIO", watched)
    finally:
        if watched.error is not None:
            raise watched.error


class _KeepsError:
    """A sink that keeps what the system refused."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Write, and keep an error."""
        try:
            return self._sink.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        """Flush, and keep an error: short outputs are first written here."""
        try:
            self._sink.flush()
        except OSError as error:
            self.error = error
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)
