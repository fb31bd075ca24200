"""`compare` over files: inputs, tables, the advantages of every plan, and files with one column for each of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from grpo_cli.auditing.compare import compare
from grpo_cli.errors import UsageError
from grpo_cli.read.open_tables import find_inputs, open_tables
from grpo_cli.read.tables import Binding
from grpo_cli.write.outputs import choose_targets, refuse_columns, refuse_read_columns
from grpo_cli.write.weave import Computed, write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.engine.plan import Plan
    from grpo_cli.write.outputs import Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Plans by their names, the first being what the others are measured against, and where their columns go.

    The column of the output is what the names of the columns begin with; without an output nothing is written.
    """

    inputs: Sequence[str]
    plans: Mapping[str, Plan]
    binding: Binding = field(default_factory=Binding)
    output: Output | None = None


def run(job: Job) -> dict[str, Any]:
    """The facts of the comparison, and what was written."""
    inputs, _ = find_inputs(job.inputs)
    tables = open_tables(inputs, job.binding)
    if job.output is None:
        return dict(compare(tables, job.binding, job.plans).facts)

    columns = {_column_name(job.output.column, name): name for name in job.plans}
    if len(columns) < len(job.plans):
        raise UsageError("two of the plans would have one column", "give them options that differ in words")
    first, *others = columns
    output = replace(job.output, column=first, also=tuple(others))
    targets = choose_targets(tables, output)
    refuse_columns(tables, output)

    comparison = compare(tables, job.binding, job.plans)
    refuse_read_columns(comparison.narrow.read_names, output)
    scored = {column: comparison.scored[name] for column, name in columns.items()}
    computed = Computed(comparison.narrow, scored.pop(first), None, scored)
    notes = write(output, computed, tables, targets)
    return {
        **comparison.facts,
        "columns": {name: column for column, name in columns.items()},
        "outputs": [target.name for target in targets],
        "warnings": [*comparison.facts["warnings"], *notes],
    }


def _column_name(prefix: str, plan: str) -> str:
    return f"{prefix}_{re.sub(r'[^A-Za-z0-9]+', '_', plan).strip('_')}"
