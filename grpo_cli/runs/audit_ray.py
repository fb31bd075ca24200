"""`audit --engine ray`: tasks read the files, and this process tries the formulas on the columns that they return."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from grpo_cli.read.open_tables import find_inputs, open_tables
from grpo_cli.runs.audit import audited
from grpo_cli.runs.ray_stages import DEFAULTS, RayOptions, over_tables, refuse_own, refuse_stdin, seeing

if TYPE_CHECKING:
    from grpo_cli.runs.audit import Job
    from grpo_cli.write.weave import Phase


def run(job: Job, phase: Phase = lambda *_: None, ray: RayOptions = DEFAULTS) -> dict[str, Any]:
    """The facts of the audit; a gate error holds them as well."""
    refuse_stdin(job.inputs)
    phase("reading")
    inputs, _ = find_inputs(job.inputs)
    tables = open_tables(inputs, job.binding)
    refuse_own(tables)
    with seeing(ray, tables) as cluster:
        return audited(job, tables, phase, partial(over_tables, cluster))
