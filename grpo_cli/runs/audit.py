"""`audit` over files: inputs, tables, the formula that made their advantages, and a gate that may fail the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from grpo_cli.auditing.audit import audit, gates
from grpo_cli.read.open_tables import find_inputs, open_tables
from grpo_cli.read.tables import Binding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grpo_cli.engine.plan import Plan
    from grpo_cli.engine.plan_parts import ShapeOp
    from grpo_cli.options.conditions import Filter
    from grpo_cli.read.build_table import OverTables
    from grpo_cli.read.tables import FileTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to audit: the column of advantages (None: found by name), and the plan that is said to have made it.

    `shape` is what was done to the rewards, whatever the formula.
    """

    inputs: Sequence[str]
    binding: Binding = field(default_factory=Binding)
    column: str | None = None
    weights: Sequence[float] = ()
    claim: Plan | None = None
    shape: Sequence[ShapeOp] = ()
    gate: Filter | None = None


def run(job: Job, phase: Callable[..., None] = lambda *_: None) -> dict[str, Any]:
    """The facts of the audit; a gate error holds them as well."""
    phase("reading")
    inputs, _ = find_inputs(job.inputs)
    return audited(job, open_tables(inputs, job.binding), phase)


def audited(
    job: Job, tables: Sequence[FileTable], phase: Callable[..., None], over: OverTables = map
) -> dict[str, Any]:
    """The facts of these tables, which `over` reads, when the gate lets them pass."""
    facts = audit(tables, job.binding, job.column, job.weights, job.claim, job.shape, phase, over)
    if job.gate is not None:
        job.gate.check(gates(facts), facts)
    return facts
