"""`grpo-adv compute`: rewards in, advantages out."""

from __future__ import annotations

import sys
from typing import Any

from grpo_cli.cli.engine import refuse_engine, workers
from grpo_cli.cli.output import file_of, is_silent, progress, screen, show
from grpo_cli.errors import GateError, UsageError
from grpo_cli.runs.compute_files import Job, run


def compute(given: dict[str, Any]) -> None:
    """Compute advantages and write them, or explain what would be computed."""
    job = Job.of(given, summary=file_of(given, "summary"), silent=is_silent(given))
    refuse_engine(given)
    if given.get("stream"):
        show(given, _streamed(job), "summary.render", aside=True)
        return
    try:
        with progress(given) as phase, workers(given) as tasks:
            done = run(job, phase, tasks)
    except GateError as error:
        if error.facts is not None:
            show(given, error.facts, "summary.render", aside=True)
        raise
    if job.dry_run and not given.get("json"):
        from grpo_cli.render import explain
        from grpo_cli.render.text import Sheet

        console = screen()
        for part, facts in zip(done.parts, done.facts.get("parts", [done.facts]), strict=True):
            if "value" in facts:
                if part is not done.parts[0]:
                    console.print()
                Sheet(console).part(done.facts["plan_by"], facts["value"])
            explain.render(part.narrow.plan, {**done.facts, **facts}, part.scored, part.narrow, console)
    else:
        show(given, done.facts, "summary.render")


def _streamed(job: Job) -> dict[str, Any]:
    from grpo_cli.runs import compute_stream

    if sys.stdin is None or sys.stdout is None:
        raise UsageError("--stream needs standard input and output", "one of them is closed")
    return compute_stream.run(job, sys.stdin.buffer, sys.stdout.buffer)
