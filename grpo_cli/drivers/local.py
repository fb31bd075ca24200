"""The driver for whole inputs: read narrow, score, judge, weave.

Every file is read twice, narrow and then whole. It is pinned before the first reading and checked before
its advantages are woven in, so they can never land on other rows than those they were computed from.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
import polars as pl

from grpo_cli import facts, formats, sources
from grpo_cli.engine import Scored, score
from grpo_cli.errors import DataError, GateError, UsageError
from grpo_cli.formats import Weaving
from grpo_cli.io.atomic import replacing
from grpo_cli.io.local import expand
from grpo_cli.io.spool import pinned, spool
from grpo_cli.narrow import Binding, FileTable, Narrow
from grpo_cli.outputs import STDOUT, Output, Rows, Target, added, metadata, refuse_columns, targets
from grpo_cli.refill import refill
from grpo_cli.sources import refuse_unscorable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from grpo_cli.filters import Filter
    from grpo_cli.plan import Plan

SHOWN: Final = 3  # skipped files that a warning names
Phase = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run over files: what to read, what to compute, what to write."""

    inputs: Sequence[str]
    plan: Plan
    binding: Binding = field(default_factory=Binding)
    output: Output = field(default_factory=Output)
    gate: Filter | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a run found; `facts` is all of it as plain data."""

    facts: Mapping[str, Any]
    scored: Scored
    narrow: Narrow


def run(job: Job, phase: Phase = lambda _: None) -> Done:
    """Do the job; nothing is renamed into place before every check has passed."""
    started = time.perf_counter()
    phase("reading")
    tables, skipped = _tables(job.inputs)
    aims = [] if job.dry_run else targets(tables, job.output)
    refuse_columns(tables, job.output)
    _refuse_duplicates(job, tables)
    narrow = sources.read(tables, job.binding, job.plan)
    phase("computing")
    scored = score(job.plan, narrow.table, workings=job.dry_run)
    refuse_unscorable(job.plan, scored.frame[".scorable"], narrow)
    found = facts.summarize(scored, narrow)
    rows = _rows(scored, job.output)
    found |= {"inputs": [table.name for table in tables], "advantage_column": job.output.column}
    found["dropped_rows"] = int((~scored.frame[".kept"]).sum())
    found["warnings"] = [*found["warnings"], *_warnings(found, skipped)]
    if job.gate is not None and job.gate.holds(facts.gates(found)):
        raise GateError(f"the gate {job.gate.text!r} holds, nothing was written", _gate_values(job.gate, found))
    if aims:
        phase("writing")
        _write(job, tables, aims, narrow, scored, rows)
    found["outputs"] = [target.name for target in aims]
    found["seconds"] = round(time.perf_counter() - started, 3)
    return Done(facts=found, scored=scored, narrow=narrow)


def _tables(names: Sequence[str]) -> tuple[list[FileTable], list[str]]:
    if STDOUT in names:
        if len(names) > 1:
            raise UsageError("standard input cannot be read together with files", "name it alone")
        source = spool(sys.stdin.buffer)
        return [FileTable(source, formats.of(source))], []
    found = expand(names)
    inputs = [pinned(path) for path in found.files]
    return [FileTable(one, formats.of(one)) for one in inputs], [str(path) for path in found.skipped]


def _refuse_duplicates(job: Job, tables: Sequence[FileTable]) -> None:
    """Copies of surviving groups mean something only where groups were dropped, in one file."""
    if not job.output.duplicate:
        return
    if job.plan.groups.zero_variance != "drop":
        raise UsageError("--duplicate refills dropped groups, and none are dropped", "add --zero-variance drop")
    if len(tables) > 1:
        raise UsageError("--duplicate adds rows to one file, and there are several", "run it file by file")


def _gate_values(gate: Filter, found: Mapping[str, Any]) -> str:
    values = facts.gates(found)
    return ", ".join(f"{name} is {values[name]:.6g}" for name in gate.names if values[name] is not None)


def _warnings(found: Mapping[str, Any], skipped: Sequence[str]) -> list[str]:
    told = []
    if skipped:
        more = ", ..." if len(skipped) > SHOWN else ""
        told.append(f"skipped {len(skipped)} files (own outputs or hidden): {', '.join(skipped[:SHOWN])}{more}")
    if found["zero_variance"]["nearly"]:
        told.append(f"{found['zero_variance']['nearly']} groups are nearly constant: rounding, not information?")
    if found["advantage"]["nan"]:
        told.append(f"{found['advantage']['nan']} advantages are NaN; JSON lines hold them as null")
    if found["zero_variance"]["share"] == 1.0:
        told.append("every group is constant: no row carries a gradient")
    return told


# --- rows and writing --------------------------------------------------------------------------------------


def _rows(scored: Scored, output: Output) -> Rows | None:
    """Rows of the narrow table in output order, or None for all of them."""
    kept = scored.frame[".kept"].to_numpy()
    if output.duplicate:
        return refill(scored.frame["group"].to_numpy(), kept, output.seed)
    return None if kept.all() else np.flatnonzero(kept)


def _write(
    job: Job, tables: Sequence[FileTable], aims: Sequence[Target], narrow: Narrow, scored: Scored, rows: Rows | None
) -> None:
    columns = added(scored, job.output)
    if job.output.only:
        columns = _narrow_columns(narrow, columns)
    told = metadata(scored, narrow, job.output)
    for table in tables:
        table.source.check()
    start = 0
    for table, target, length in zip(tables, aims, narrow.lengths, strict=True):
        piece = _piece(narrow, columns, rows, start, length, copies=job.output.duplicate and job.output.column)
        _write_one(job, table, target, piece, told)
        start += length


@dataclass(frozen=True, slots=True)
class _Piece:
    """The part of the result that belongs to one file."""

    columns: pl.DataFrame
    take: Rows | None


def _piece(
    narrow: Narrow, columns: pl.DataFrame, rows: Rows | None, start: int, length: int, *, copies: str | bool
) -> _Piece:
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


def _narrow_columns(narrow: Narrow, columns: pl.DataFrame) -> pl.DataFrame:
    """--only: the key, the rewards and what was computed."""
    rewards = [narrow.table[f"reward.{k}"].alias(name) for k, name in enumerate(narrow.reward_names)]
    kept = [one for one in (*narrow.key.get_columns(), *rewards) if one.name not in columns.columns]
    return pl.DataFrame([*kept, *columns.get_columns()])


def _write_one(job: Job, table: FileTable, target: Target, piece: _Piece, told: Mapping[str, str]) -> None:
    table.source.check()
    with _sink(target, force=job.output.force) as sink:
        if job.output.only:
            target.format.write(piece.columns, sink, told)
        elif target.format is table.format:
            weaving = Weaving(added=piece.columns, take=piece.take, replace=job.output.replace, metadata=told)
            table.format.weave(table.source, sink, weaving)
        else:
            target.format.write(_converted(table, piece), sink, told)
        table.source.check()


def _converted(table: FileTable, piece: _Piece) -> pl.DataFrame:
    whole = table.format.read(table.source)
    return (whole if piece.take is None else whole[pl.Series(piece.take)]).with_columns(piece.columns.get_columns())


@contextmanager
def _sink(target: Target, *, force: bool) -> Iterator[BinaryIO]:
    if target.path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        target.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        told = (error.strerror or str(error)).lower()
        raise DataError(f"{target.path.parent}: cannot be made: {told}", "choose another -o") from None
    with replacing(target.path, force=force) as handle:
        yield handle
