"""`grpo-adv compute`: rewards in, advantages out."""

from __future__ import annotations

import sys

from grpo_cli.cli.engine import refuse_engine, workers
from grpo_cli.cli.output import progress, show
from grpo_cli.errors import GateError, UsageError
from grpo_cli.options.given import Given
from grpo_cli.runs.compute_files import Facts, Job, run


def compute(given: Given) -> None:
    """Compute advantages and write them, or explain what would be computed."""
    job = Job.of(given)
    refuse_engine(given)
    if given.stream:
        show(given, _streamed(job), "grpo_cli.render.summary:render", aside=True)
        return
    try:
        with progress(given) as phase, workers(given) as tasks:
            done = run(job, phase, tasks)
    except GateError as error:
        if error.facts is not None:
            show(given, error.facts, "grpo_cli.render.summary:render", aside=True)
        raise
    if done.facts is None:
        return
    if job.dry_run:  # as a line with --quiet shows it, too
        show(given.without({"quiet"}), done.facts, "grpo_cli.render.explain:whole", parts=done.parts)
    else:
        show(given, done.facts, "grpo_cli.render.summary:render")


def _streamed(job: Job) -> Facts:
    from grpo_cli.runs import compute_stream

    if sys.stdin is None or sys.stdout is None:
        raise UsageError("--stream needs standard input and output", "one of them is closed")
    return compute_stream.run(job, sys.stdin.buffer, sys.stdout.buffer)
