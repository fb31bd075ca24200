"""Results into files: each input's piece of the new columns, woven in, rewritten or written afresh."""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, UsageError
from grpo_cli.files.atomic import directories_synced, replacing
from grpo_cli.files.compression import packing
from grpo_cli.files.in_place import locked
from grpo_cli.formats.convert import convert
from grpo_cli.formats.interface import Weaving
from grpo_cli.write.outputs import added, is_folder, metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from grpo_cli.engine.compile import Scored
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


def write(
    output: Output,
    computed: Computed,
    tables: Sequence[FileTable],
    aims: Sequence[Target],
    ledger: Ledger | None,
    phase: Phase,
) -> list[str]:
    """Write every output and return what there is to say of them."""
    narrow, scored, rows = computed.narrow, computed.scored, computed.rows
    columns = added(scored, output, computed.others)
    if output.only:
        columns = _narrow_columns(narrow, columns)
    told = metadata(scored, narrow, output, computed.others)
    total = len(aims) if len(aims) > 1 else None
    phase("writing", 0, total)
    for table in tables:
        table.source.check()
    if is_folder(output.to):
        _make_folders(aims)
    if ledger is not None:
        ledger.begin()
    start = 0
    notes: list[str] = []
    with directories_synced() as folders:
        for at, (table, target, length) in enumerate(zip(tables, aims, narrow.lengths, strict=True)):
            if at:
                phase("writing", at, total)
            if ledger is None or target.path is None or not ledger.holds(target.path):
                piece = _piece(narrow, columns, rows, start, length, copies=output.column if output.duplicate else "")
                owned = ledger is not None and target.path is not None and ledger.owns(target.path)
                # Noted just before it gets its name: whoever is killed in between has left nothing that is not known.
                ready: Ready = (
                    _nothing if ledger is None or target.path is None else partial(ledger.finished, target.path)
                )
                notes += _write_one(
                    replace(output, force=output.force or owned), table, target, piece, told, ready, folders
                )
            start += length
    return notes


def _nothing(_: Path) -> None:
    pass


@dataclass(frozen=True, slots=True)
class _Piece:
    """The part of the result that belongs to one file."""

    columns: pl.DataFrame
    take: Rows | None


def _piece(narrow: Narrow, columns: pl.DataFrame, rows: Rows | None, start: int, length: int, *, copies: str) -> _Piece:
    """Rows `start`.. of all inputs are the rows 0.. of this file."""
    if rows is None and narrow.rows is None:
        return _Piece(columns[start : start + length], None)
    rows = np.arange(len(columns)) if rows is None else rows
    source = rows if narrow.rows is None else narrow.rows[rows]
    here = (source >= start) & (source < start + length)
    piece = columns[pl.Series(rows[here])]
    if copies:
        repeated = pl.Series(f"{copies}_copy", rows[here]).is_first_distinct().not_()
        piece = piece.with_columns(repeated)
    return _Piece(piece, source[here] - start)


def _make_folders(aims: Sequence[Target]) -> None:
    for folder in dict.fromkeys(aim.path.parent for aim in aims if aim.path is not None):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            told = (error.strerror or str(error)).lower()
            raise DataError(f"{folder}: cannot be made: {told}", "choose another -o") from None


def _narrow_columns(narrow: Narrow, columns: pl.DataFrame) -> pl.DataFrame:
    """--only: the key, the rewards and what was computed."""
    rewards = [narrow.table[f"reward.{k}"].alias(name) for k, name in enumerate(narrow.reward_names)]
    keys = narrow.key[narrow.table["group"]].get_columns() if narrow.key.width else []
    kept = [one for one in (*keys, *rewards) if one.name not in columns.columns]
    return pl.DataFrame([*kept, *columns.get_columns()])


def _write_one(
    output: Output,
    table: FileTable,
    target: Target,
    piece: _Piece,
    told: Mapping[str, str],
    ready: Ready,
    folders: set[Path],
) -> Sequence[str]:
    table.source.check()
    weaving = Weaving(added=piece.columns, take=piece.take, replace=output.replace, metadata=told)
    if output.long and not table.format.nested:
        raise DataError(f"{table.name}: every row is one rollout already", "leave out --long")
    if output.in_place and piece.take is None:
        in_place = table.format.weave_in_place(table.source, weaving)
        if in_place is not None:
            return in_place
    notes: Sequence[str] = ()
    lock = locked(table.source) if output.in_place else nullcontext()
    with lock, sink(target, force=output.force or output.in_place, ready=ready, folders=folders) as handle:
        if output.only:
            target.format.write(piece.columns, handle, told)
        elif output.long or not target.format.same_as(table.format):
            convert(table.source, table.format, handle, target.format, weaving, long=output.long)
        else:
            notes = table.format.weave(table.source, handle, weaving)
        table.source.check()
    return notes


@contextmanager
def sink(
    target: Target, *, force: bool, ready: Ready = _nothing, folders: set[Path] | None = None
) -> Iterator[BinaryIO]:
    """Where an output is written: a file that appears when it is whole, or standard output; packed if it is to be.

    The directory is synced with the file, or added to `folders`.
    """
    if target.path is None:
        if sys.stdout is None:
            raise UsageError("standard output is closed", "give -o FILE")
        if target.format.binary and sys.stdout.isatty():
            raise UsageError(f"{target.format.name} is not for a terminal", "give -o FILE, or pipe it on")
        with packing(sys.stdout.buffer, target.packing) as packed:
            yield packed
        sys.stdout.buffer.flush()
        return
    with (
        replacing(target.path, force=force, ready=ready, unsynced=folders) as handle,
        packing(handle, target.packing) as packed,
    ):
        yield packed
