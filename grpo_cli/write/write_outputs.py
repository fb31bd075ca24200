"""Write the outputs: a copy of each input with the new columns inserted and every other byte the same (`Format.weave`).

If that is not possible, the file is re-encoded or written in another format.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self, cast

import numpy as np
import polars as pl

from grpo_cli.engine.score import Scored
from grpo_cli.errors import Cure, DataError, GrpoError, UsageError, Way, Written, reason
from grpo_cli.files.atomic import folders_synced, locked, refuse_unwritable, replacing
from grpo_cli.files.compression import packing
from grpo_cli.files.finished import expect
from grpo_cli.files.stores import uploading
from grpo_cli.formats.convert import convert
from grpo_cli.formats.interface import Format, Index, Weaving
from grpo_cli.read.narrow import Narrow, RowNumbers
from grpo_cli.read.tables import FILE, FileTable
from grpo_cli.values.cells import JSON_TEXT, bare_texts, canonical
from grpo_cli.values.token_lists import Tokens, portions, with_lists
from grpo_cli.write.outputs import Output, Target, added, metadata

FOREIGN = "not-a-rollout"  # the status of a row that is none
Phase = Callable[..., None]  # called with what is being done, the number of finished files, and of all files


@dataclass(frozen=True)
class Computed:
    """Results for all rows or a part of them; `rows` are the rows of the narrow table to write, in order (None: all)."""

    narrow: Narrow
    scored: Scored
    rows: RowNumbers | None
    others: Mapping[str, Scored] = field(default_factory=dict)  # further columns by name
    tokens: Tokens | None = None  # --per-token: the tokens of each row


class _Columns(NamedTuple):
    """The new columns of the rows that are written, and the numbers of these rows in the input (None: all, in order)."""

    frame: pl.DataFrame
    rows: RowNumbers | None

    @classmethod
    def of(cls, output: Output, part: Computed) -> Self:
        """The columns of one part."""
        frame = added(part.scored, output, part.others, part.tokens)
        rows = part.rows
        read = part.narrow.rows
        if output.only:
            frame = with_keys_and_rewards(part.narrow, frame)
        if rows is None:
            return cls(frame, read)
        return cls(frame[pl.Series(rows)], rows if read is None else read[rows])

    @classmethod
    def joined(cls, output: Output, parts: Sequence[Computed]) -> Self:
        """The columns of all parts, and of the rows that are no rollouts, which are written and have no advantage."""
        each = [cls.of(output, part) for part in parts]
        foreign = parts[0].narrow.foreign
        if foreign is not None:
            each.append(cls.without_advantages(output, each[0].frame, foreign))
        joined = each[0] if len(each) == 1 else cls.in_order(output, each)
        if not output.duplicate:
            return joined
        frame, rows = joined
        copies = pl.Series(f"{output.column}_copy", rows).is_first_distinct().not_()
        return cls(frame.with_columns(copies), rows)

    @classmethod
    def without_advantages(cls, output: Output, like: pl.DataFrame, foreign: RowNumbers) -> Self:
        """The columns of rows that are no rollouts."""
        nulls = like.clear(len(foreign))
        if output.facts:
            nulls = nulls.with_columns(pl.lit(FOREIGN).alias(f"{output.column}_status"))
        return cls(nulls, foreign)

    @classmethod
    def in_order(cls, output: Output, each: Sequence[Self]) -> Self:
        """The columns of several parts, in the order of the input's rows; copies stay where they are."""
        rows = np.concatenate([columns.rows for columns in each if columns.rows is not None])
        frame = pl.concat([columns.frame for columns in each], how="diagonal")
        new = [name for name in frame.columns if name in output.names]
        others = [name for name in frame.columns if name not in new]  # also rewards that not all parts have
        order = np.arange(len(rows)) if output.duplicate else np.argsort(rows)
        return cls(frame[[*others, *new]][pl.Series(order)], rows[order])


@dataclass(frozen=True)
class Writing:
    """The results for one file; `before` counts the outputs before it."""

    table: FileTable
    target: Target
    index: Index
    weaving: Weaving
    before: int


# Writes the targets of these writings, one after the other in this process (`in_turn`) or in several; returns notes for the user.
Writer = Callable[[Output, Sequence[Target], Iterator[Writing]], list[str]]


def in_turn(
    output: Output, targets: Sequence[Target], writings: Iterator[Writing], phase: Phase = lambda *_: None
) -> list[str]:
    """Write one output after the other."""
    notes = list[str]()
    shorter = False  # whether an input has lost rows by now
    with folders_synced(paths_of(targets)):
        for writing in writings:
            if writing.before:
                phase("writing", writing.before, len(targets))
            with one_of_several(writing.before, targets, finishing(output, shorter=shorter)):
                notes += write_one(output, writing)
            shorter |= output.in_place and writing.weaving.take is not None
    return notes


def finishing(output: Output, *, shorter: bool = False) -> Cure:
    """How a run that stopped between two outputs is finished: by writing all of them again, since groups may span files."""
    if shorter:
        return "rows of dropped groups are gone from the files that were written: restore them before you run it again"
    if output.replace or (output.force and not output.in_place):
        return "when that is put right, run the same command again"
    return Way(
        "--replace" if output.in_place else "--force",
        lead="when that is put right, add",
        why="to write all of them again",
    )


def write(
    output: Output,
    parts: Sequence[Computed],
    tables: Sequence[FileTable],
    targets: Sequence[Target],
    phase: Phase = lambda *_: None,
    writer: Writer = in_turn,
) -> list[str]:
    """Write every output; return the notes of the writers.

    The parts have the same tables; each row is in at most one part. What can be known before is checked by now: after the first
    rename nothing may fail that is no fault of the disk.
    """
    narrow = parts[0].narrow
    columns = _Columns.joined(output, parts)
    entries = metadata([(part.scored, part.narrow) for part in parts], output, parts[0].others)
    phase("writing", 0, len(targets) if len(targets) > 1 else None)
    for table in tables:
        table.source.check()
    make_folders(targets)
    _refuse_unwritable(output, tables, targets)
    expect(len(paths_of(targets)))

    def writings() -> Iterator[Writing]:
        each = zip(tables, targets, narrow.scans, _of_files(columns, narrow.lengths), strict=True)
        for at, (table, target, scanned, (part, take)) in enumerate(each):
            weaving = Weaving(added=part, take=take, replace=output.replace, metadata=entries)
            yield Writing(table, target, scanned.index, weaving, at)

    return writer(output, targets, writings())


def _refuse_unwritable(output: Output, tables: Sequence[FileTable], targets: Sequence[Target]) -> None:
    """Refuse what no output could be renamed to, before the first one is."""
    if output.in_place:
        for table in tables:
            with locked(table.source):
                pass
    refuse_unwritable(paths_of(targets), in_place=output.in_place)


def merged_keys(
    narrow: Narrow, tables: Sequence[FileTable], targets: Sequence[Target], *, only: bool = False
) -> list[str]:
    """Warnings of keys of a file that a conversion may write as one text: `1` and `"1"` become one group for whoever reads it.

    `only`: --only writes the keys, and lines of JSON keep their types whatever the format of the input.
    """
    warnings = []
    for column in narrow.key:
        warnings += _empty_keys(column, tables, targets)
        if column.dtype != JSON_TEXT:  # all keys have one type
            continue
        of_groups = column.alias("")  # polars takes a name such as ^a$ for a pattern
        for at, (table, target) in enumerate(zip(tables, targets, strict=True)):
            if target.format.record == "object" if only else target.format.same_as(table.format):
                continue
            rows, _ = narrow.rows_of(at)
            keys = of_groups.gather(narrow.table["group"].gather(rows)).unique()
            texts = bare_texts(keys)
            # 1.0 and "1.0": how a number is written differs between formats.
            numbers = texts.cast(pl.Float64, strict=False).cast(pl.String)
            same = pl.select(pl.coalesce(numbers, texts)).to_series()
            is_text = canonical(keys).str.starts_with('"')
            both = texts.filter(~is_text & same.is_in(same.filter(is_text).to_list()))
            if len(both):
                merged = (
                    f"{target.name}: {column.name} is text there, and {both[0]} may be one group with the same text"
                )
                warnings.append(f"{merged}; the format of the input keeps them apart")
            elif only and target.format.record == "values" and not is_text.all():
                why = "so keys that are no texts do not join; lines of JSON keep their types"
                warnings.append(f"{target.name}: {column.name} is text there, {why}")
    return warnings


def _empty_keys(column: pl.Series, tables: Sequence[FileTable], targets: Sequence[Target]) -> list[str]:
    """Warnings of a conversion that makes an empty text null, as an empty cell is read."""
    files = zip(tables, targets, strict=True)
    cells = [target for table, target in files if target.format.record == "texts" != table.format.record]
    if not cells or not (bare_texts(column.alias("")) == "").any():
        return []
    empty = f"{cells[0].name}: {column.name} is an empty text in some rows, and an empty cell is read as null"
    return [f"{empty}; the format of the input keeps it"]


@contextmanager
def one_of_several(at: int, targets: Sequence[Target], then: Cure) -> Iterator[None]:
    """Around the writing of one output: an error names the outputs that were written before it, and what finishes the others."""
    try:
        yield
    except (GrpoError, OSError) as error:
        if not at:
            raise
        found = error if isinstance(error, GrpoError) else DataError(reason(error), place=error.filename or "")
        found.written = Written(at, len(targets), [target.name for target in targets[:at]])
        found.cures = [*found.cures, then]
        raise found from error.__cause__


def paths_of(targets: Sequence[Target]) -> list[Path]:
    """The paths of the outputs that are files."""
    return [target.path for target in targets if target.path is not None]


def make_folders(targets: Sequence[Target]) -> None:
    """Make the folders of all outputs."""
    for folder in dict.fromkeys(path.parent for path in paths_of(targets)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"cannot be created: {reason(error)}", "choose another -o", place=folder) from None


def with_keys_and_rewards(narrow: Narrow, columns: pl.DataFrame) -> pl.DataFrame:
    """The columns of --only: the key, the rewards and what was computed."""
    rewards = [narrow.table[f"reward.{k}"].alias(name) for k, name in enumerate(narrow.reward_names)]
    of_groups = narrow.key.drop(FILE, strict=False)  # the output is of that file
    keys = of_groups[narrow.table["group"]] if of_groups.width else of_groups
    kept = [column for column in (*keys, *rewards) if column.name not in columns.columns]
    return pl.DataFrame([*kept, *columns])


def _of_files(columns: _Columns, lengths: Sequence[int]) -> Iterator[tuple[pl.DataFrame, RowNumbers | None]]:
    """For every file, the new columns and the rows that they belong to (None: all rows, in order)."""
    frame, rows = columns
    ends = np.cumsum(lengths)
    # Rows are in the order of the input; those with copies are all of one file.
    cuts = np.append(0, ends) if rows is None else np.searchsorted(rows, [0, *ends])
    for at, length in enumerate(lengths):
        here = slice(*cuts[at : at + 2].tolist())
        taken = None if rows is None else rows[here] - (ends[at] - length)
        # A file that loses no row keeps its bytes, even if other files lose some.
        yield frame[here], None if taken is None or np.array_equal(taken, np.arange(length)) else taken


def write_one(output: Output, writing: Writing, *, retried: bool = False) -> Sequence[str]:
    """Write the output of a file, or replace the file by it (--in-place); return notes for the user.

    Its folder has to be synced afterwards. `retried`: an earlier attempt may have written it already, see `replacing`.
    """
    source = writing.table.source
    alone = replace(writing.weaving, exact=True)
    source.check()
    if not output.in_place:
        return _write_one(output, writing, retried=retried)
    with locked(source) as fd:
        forced = replace(output, force=True)
        notes = [*_write_one(forced, replace(writing, weaving=alone), retried=retried, over=fd)]
        old = os.fstat(fd)
    if old.st_nlink:
        notes.append(f"{source.name}: other names of the file (hard links) keep the old content")
    return notes


def _write_one(output: Output, writing: Writing, *, retried: bool, over: int | None = None) -> Sequence[str]:
    """Write the output of a file, if the file does not change meanwhile; `over` as in `replacing`."""
    table = writing.table
    target = writing.target
    index = writing.index
    weaving = writing.weaving
    if output.long and not table.in_records:
        raise not_in_records(table)
    notes: Sequence[str] = ()
    with sink(target, force=output.force, retried=retried, over=over, sync_folder=False) as handle:
        if output.only:
            target.format.write_parts(map(with_lists, portions(weaving.added)), handle, weaving.metadata)
        elif output.long or not target.format.same_as(table.format):
            convert(table.source, table.format, handle, target.format, weaving, long=output.long, index=index)
        else:
            notes = table.format.weave(table.source, index, handle, weaving)
        table.source.check()
    return notes


def not_in_records(table: FileTable) -> DataError:
    """The error of --long where no record has several rollouts."""
    return DataError("every row is already one rollout", "leave out --long", place=table.name)


@contextmanager
def sink(
    target: Target,
    *,
    force: bool,
    sync_folder: bool = True,
    retried: bool = False,
    over: int | None = None,
) -> Iterator[BinaryIO]:
    """Open an output: a file that appears when it is complete, or standard output; compressed as its name says.

    Its directory is synced with it, unless the caller does that.
    """
    if target.url:
        opened = uploading(target.url, force=force or retried)
    elif target.path is not None:
        opened = replacing(target.path, force=force, retried=retried, over=over, sync_folder=sync_folder)
    else:
        opened = _standard_output(target.format)
    with opened as plain, packing(plain, target.packing) as packed, _KeepsError(packed) as kept:
        yield cast("BinaryIO", kept)


@contextmanager
def _standard_output(format_: Format) -> Iterator[BinaryIO]:
    if sys.stdout is None:
        raise UsageError("standard output is closed", "give -o FILE")
    if format_.record == "values" and sys.stdout.isatty():
        wrong = f"{format_.name} cannot be shown on a terminal"
        raise UsageError(wrong, ["give -o FILE", "pipe it to another program"])
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


class _KeepsError:
    """A sink that raises the system's error again at its end: polars loses the error number, or the whole error."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._error: OSError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._error is not None:
            raise self._error

    def write(self, data: bytes) -> int:
        """Write, and keep an error."""
        try:
            return self._sink.write(data)
        except OSError as error:
            self._error = error
            raise

    def flush(self) -> None:
        """Flush, and keep an error: short outputs are first written here."""
        try:
            self._sink.flush()
        except OSError as error:
            self._error = error
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)
