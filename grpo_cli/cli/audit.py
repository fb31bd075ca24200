"""`grpo-adv audit`: which formula made the advantages of a file."""

from __future__ import annotations

from grpo_cli.cli.engine import workers
from grpo_cli.cli.output import progress, show
from grpo_cli.errors import GateError
from grpo_cli.options.given import Given


def audit(given: Given) -> None:
    """Find the formula of the advantages, or check a claim."""
    from grpo_cli.runs.audit import Job, run

    job = Job.of(given)
    try:
        with progress(given) as phase, workers(given) as tasks:
            facts = run(job, phase, tasks)
    except GateError as error:
        show(given, error.facts, "audit.render")
        raise
    show(given, facts, "audit.render")
