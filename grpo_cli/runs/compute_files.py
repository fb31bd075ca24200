"""The driver for whole inputs: read narrow, score, judge, weave.

Every file is read twice, narrow and then whole. It is pinned before the first reading and checked before
its advantages are woven in, so they can never land on other rows than those they were computed from.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from grpo_cli.engine.compile import Scored, score
from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.errors import DataError, GateError, UsageError
from grpo_cli.files.inputs import expand, pinned, spool
from grpo_cli.files.keys import key_of
from grpo_cli.formats import registry
from grpo_cli.formats.jsonl.broken import without_broken
from grpo_cli.read import build_table
from grpo_cli.read.apply_schema import laid_out
from grpo_cli.read.build_table import refuse_singletons, refuse_unscorable
from grpo_cli.read.tables import Binding, FileTable, Narrow
from grpo_cli.schemas.second_copies import without_copies
from grpo_cli.stats import facts
from grpo_cli.write.outputs import (
    STDOUT,
    Output,
    Rows,
    is_folder,
    refuse_columns,
    refuse_read_columns,
    refuse_summary,
    targets,
)
from grpo_cli.write.refill import refill
from grpo_cli.write.resume import Ledger, identity
from grpo_cli.write.weave import Computed, write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.engine.plan import Plan
    from grpo_cli.files.inputs import Input
    from grpo_cli.options.conditions import Filter
    from grpo_cli.write.weave import Phase

SHOWN: Final = 3  # skipped files that a warning names


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run over files: what to read, what to compute, what to write."""

    inputs: Sequence[str]
    plan: Plan
    binding: Binding = field(default_factory=Binding)
    output: Output = field(default_factory=Output)
    gate: Filter | None = None
    summary: Path | None = None
    dry_run: bool = False
    silent: bool = False  # nobody is told what was found: it is computed for a gate only
    skip_broken: bool = False  # lines that are no JSON objects are left out
    origin: Mapping[str, Any] | None = None  # the preset that the plan was made from


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a run found; `facts` is all of it as plain data (of a silent run only where it went)."""

    facts: Mapping[str, Any]
    scored: Scored
    narrow: Narrow


def run(job: Job, phase: Phase = lambda *_: None) -> Done:
    """Do the job; nothing is renamed into place before every check has passed."""
    started = time.perf_counter()
    phase("reading")
    to = job.output.to if is_folder(job.output.to) else None
    tables, skipped = opened(job.inputs, job.binding, skip_broken=job.skip_broken, to=to)
    ledger = _ledger(job, tables)
    aims = [] if job.dry_run else targets(tables, job.output, (lambda _: False) if ledger is None else ledger.owns)
    if job.summary is not None:
        refuse_summary(job.summary, tables, aims, force=job.output.force)
    refuse_columns(tables, job.output)
    _refuse_duplicates(job, tables)
    narrow = _read(tables, job)
    refuse_read_columns(narrow, job.output)
    phase("computing")
    scored = score(job.plan, narrow.table, workings=job.dry_run)
    refuse_unscorable(job.plan, scored.rows[".scorable"], narrow)
    if job.plan.alone.result == "error":
        refuse_singletons(job.plan, scored.frame[".n"], narrow)
    rows = _rows(scored, job.output)
    found = {} if job.silent and job.gate is None else _found(job, tables, narrow, scored, rows, skipped)
    if job.gate is not None and job.gate.holds(facts.gates(found)):
        raise _gate_error(job.gate, found)
    if aims:
        notes = write(job.output, Computed(narrow, scored, rows), tables, aims, ledger, phase)
        found["warnings"] = [*found.get("warnings", ()), *notes]
    found["kept_outputs"] = 0 if ledger is None else ledger.kept
    found["outputs"] = [target.name for target in aims]
    found["seconds"] = round(time.perf_counter() - started, 3)
    return Done(facts=found, scored=scored, narrow=narrow)


def _read(tables: Sequence[FileTable], job: Job) -> Narrow:
    """Read narrow; what is wrong with a file that changes meanwhile is that it changes."""
    try:
        return build_table.read(tables, job.binding, job.plan)
    except DataError:
        for table in tables:
            table.source.check()
        raise


def _found(
    job: Job, tables: Sequence[FileTable], narrow: Narrow, scored: Scored, rows: Rows | None, skipped: Sequence[str]
) -> dict[str, Any]:
    """All that is known before anything is written."""
    found = facts.summarize(scored, narrow)
    kept = int(scored.rows[".kept"].sum())
    found |= {"preset": job.origin, "inputs": [table.name for table in tables], "advantage_column": job.output.column}
    copied = 0 if rows is None else len(rows) - kept
    found |= {"dropped_rows": sum(narrow.lengths) - kept, "copied_rows": copied, "outputs": []}
    found["warnings"] = [*found["warnings"], *_warnings(found, skipped, narrow, job.plan)]
    return found


def opened(
    names: Sequence[str], binding: Binding | None = None, *, skip_broken: bool = False, to: str | None = None
) -> tuple[list[FileTable], list[str]]:
    """Pin the files that are meant, as their schema reads them, and name those that were passed over.

    Nothing in the folder `to` is meant unless it is named: it is for outputs.
    """
    binding = Binding() if binding is None else binding
    found, passed = _files(names, to)
    if binding.parquet_key is not None:
        key = key_of(binding.parquet_key)
        found = [replace(one, key=key) for one in found]
    tables = [_table(one, skip_broken=skip_broken) for one in found]
    seen = laid_out(tables, binding)
    return [one for one in seen if isinstance(one, FileTable)], passed


def _files(names: Sequence[str], to: str | None) -> tuple[list[Input], list[str]]:
    if STDOUT in names:
        if len(names) > 1:
            raise UsageError("standard input cannot be read together with files", "name it alone")
        if sys.stdin is None:
            raise UsageError("standard input is closed", "pipe something in, or name a file")
        return [spool(sys.stdin.buffer)], []
    found = expand(names)
    meant = {Path(name) for name in names}
    folder = None if to is None else Path(os.path.realpath(to))
    own = {path for path in found.files if path not in meant and (_inside(path, folder) or not path.stat().st_size)}
    if len(own) == len(found.files):
        own = set()
    files, copies = without_copies([path for path in found.files if path not in own], meant)
    return [pinned(path) for path in files], [str(path) for path in (*found.skipped, *sorted(own), *copies)]


def _inside(path: Path, folder: Path | None) -> bool:
    return folder is not None and folder in Path(os.path.realpath(path)).parents


def _table(source: Input, *, skip_broken: bool) -> FileTable:
    known = registry.of(source)
    if not skip_broken or known.name != "jsonl":
        return FileTable(source, known)
    kept, gone = without_broken(source)
    return FileTable(kept, known, gone=gone)


def _refuse_duplicates(job: Job, tables: Sequence[FileTable]) -> None:
    """Copies of surviving groups mean something only where groups were dropped, in one file."""
    if not job.output.duplicate:
        return
    if job.plan.groups.zero_variance != "drop":
        raise UsageError("--duplicate refills dropped groups, and none are dropped", "add --zero-variance drop")
    if len(tables) > 1:
        raise UsageError("--duplicate adds rows to one file, and there are several", "run it file by file")


def _gate_error(gate: Filter, found: Mapping[str, Any]) -> GateError:
    values = facts.gates(found)
    told = ", ".join(f"{name} is {values[name]:.6g}" for name in gate.names if values[name] is not None)
    error = GateError(f"the gate {gate.text!r} holds, nothing was written", told)
    error.facts = found
    return error


def _warnings(found: Mapping[str, Any], skipped: Sequence[str], narrow: Narrow, plan: Plan) -> list[str]:
    told = [
        f"{ROLES[role].flag} {name} is not read by this plan"
        for role, name in narrow.roles.items()
        if role not in {*plan.needs, *plan.may_read}
    ]
    if found["dropped_rows"] - found["copied_rows"] >= found["rows"]:
        told.append("no row is left: every group was dropped")
    if skipped:
        more = ", ..." if len(skipped) > SHOWN else ""
        told.append(
            f"skipped {len(skipped)} files (own outputs, empty, hidden or second copies): {', '.join(skipped[:SHOWN])}{more}"
        )
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
    kept = scored.rows[".kept"]
    if kept.all() and not output.duplicate:
        return None
    chosen = kept.to_numpy()
    return refill(scored.rows["group"].to_numpy(), chosen, output.seed) if output.duplicate else np.flatnonzero(chosen)


def _ledger(job: Job, tables: Sequence[FileTable]) -> Ledger | None:
    """What earlier runs have noted in the output directory, if this one is to go on."""
    output = job.output
    if not output.resume or output.in_place or not is_folder(output.to):
        return None
    return Ledger.of(Path(str(output.to)), identity(job.plan, job.binding, output, tables))
