"""`compute` over files: names, inputs, tables, rows with groups, advantages, facts, files.

Every file is read twice, narrow and then whole. It is pinned before the first reading and checked before
its advantages are woven in, so they can never land on other rows than those they were computed from.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.score import Scored, score
from grpo_cli.errors import DataError, GateError, UsageError
from grpo_cli.read import build_table
from grpo_cli.read.build_table import refuse_singletons, refuse_unscorable
from grpo_cli.read.open_tables import find_inputs, open_tables
from grpo_cli.read.tables import Binding, Narrow
from grpo_cli.stats import facts
from grpo_cli.write.outputs import Output, Rows, is_folder, refuse_columns, refuse_read_columns, refuse_summary, targets
from grpo_cli.write.refill import refill
from grpo_cli.write.resume import Ledger, identity
from grpo_cli.write.weave import Computed, write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.engine.plan import Plan
    from grpo_cli.options.conditions import Filter
    from grpo_cli.read.tables import FileTable
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
    plan, output = job.plan, job.output

    phase("reading")
    inputs, skipped = find_inputs(job.inputs, output.to if is_folder(output.to) else None)
    tables = open_tables(inputs, job.binding, skip_broken=job.skip_broken)

    # Whatever can refuse the run before its files are read does it here.
    if output.duplicate:
        _refuse_duplicates(plan, tables)
    ledger = None
    if output.resume and not output.in_place and is_folder(output.to):
        ledger = Ledger.of(Path(str(output.to)), identity(plan, job.binding, output, tables))
    aims = [] if job.dry_run else targets(tables, output, None if ledger is None else ledger.owns)
    if job.summary is not None:
        refuse_summary(job.summary, tables, aims, force=output.force)
    refuse_columns(tables, output)

    try:
        narrow = build_table.read(tables, job.binding, plan)
    except DataError:
        for table in tables:
            table.source.check()  # what is wrong with a file that changes meanwhile is that it changes
        raise
    refuse_read_columns(narrow, output)

    phase("computing")
    scored = score(plan, narrow.table, workings=job.dry_run)
    refuse_unscorable(plan, scored.rows[".scorable"], narrow)
    if plan.alone.result == "error":
        refuse_singletons(plan, scored.frame[".n"], narrow)
    rows = _output_rows(scored, output)

    found: dict[str, Any] = {}
    if not job.silent or job.gate is not None:
        found = _facts(job, narrow, scored, rows, skipped)
    if job.gate is not None and job.gate.holds(facts.gates(found)):
        raise _gate_error(job.gate, found)

    if aims:
        notes = write(output, Computed(narrow, scored, rows), tables, aims, ledger, phase)
        found["warnings"] = [*found.get("warnings", ()), *notes]
    found["kept_outputs"] = 0 if ledger is None else ledger.kept
    found["outputs"] = [target.name for target in aims]
    found["seconds"] = round(time.perf_counter() - started, 3)
    return Done(facts=found, scored=scored, narrow=narrow)


def _refuse_duplicates(plan: Plan, tables: Sequence[FileTable]) -> None:
    """Copies of surviving groups mean something only where groups were dropped, in one file."""
    if plan.groups.zero_variance != "drop":
        raise UsageError("--duplicate refills dropped groups, and none are dropped", "add --zero-variance drop")
    if len(tables) > 1:
        raise UsageError("--duplicate adds rows to one file, and there are several", "run it file by file")


def _output_rows(scored: Scored, output: Output) -> Rows | None:
    """Rows of the narrow table in output order, or None for all of them."""
    kept = scored.rows[".kept"]
    if kept.all() and not output.duplicate:
        return None
    chosen = kept.to_numpy()
    return refill(scored.rows["group"].to_numpy(), chosen, output.seed) if output.duplicate else np.flatnonzero(chosen)


def _facts(job: Job, narrow: Narrow, scored: Scored, rows: Rows | None, skipped: Sequence[str]) -> dict[str, Any]:
    """All that is known before anything is written."""
    found = facts.summarize(scored, narrow)
    kept = int(scored.rows[".kept"].sum())
    copied = 0 if rows is None else len(rows) - kept
    found |= {
        "preset": job.origin,
        "inputs": [table.name for table in narrow.tables],
        "advantage_column": job.output.column,
        "dropped_rows": sum(narrow.lengths) - kept,
        "copied_rows": copied,
        "outputs": [],
    }
    found["warnings"] = [*found["warnings"], *_warnings(found, skipped, narrow, job.plan)]
    return found


def _warnings(found: Mapping[str, Any], skipped: Sequence[str], narrow: Narrow, plan: Plan) -> list[str]:
    warnings = [
        f"{ROLES[role].flag} {name} is not read by this plan"
        for role, name in narrow.roles.items()
        if role not in {*plan.needs, *plan.may_read}
    ]
    if found["dropped_rows"] - found["copied_rows"] >= found["rows"]:
        warnings.append("no row is left: every group was dropped")
    if skipped:
        more = ", ..." if len(skipped) > SHOWN else ""
        warnings.append(
            f"skipped {len(skipped)} files (own outputs, empty, hidden or second copies): {', '.join(skipped[:SHOWN])}{more}"
        )
    if found["zero_variance"]["nearly"]:
        warnings.append(f"{found['zero_variance']['nearly']} groups are nearly constant: rounding, not information?")
    if found["advantage"]["nan"]:
        warnings.append(f"{found['advantage']['nan']} advantages are NaN; JSON lines hold them as null")
    if found["zero_variance"]["share"] == 1.0:
        warnings.append("every group is constant: no row carries a gradient")
    return warnings


def _gate_error(gate: Filter, found: Mapping[str, Any]) -> GateError:
    values = facts.gates(found)
    told = ", ".join(f"{name} is {values[name]:.6g}" for name in gate.names if values[name] is not None)
    error = GateError(f"the gate {gate.text!r} holds, nothing was written", told)
    error.facts = found
    return error
