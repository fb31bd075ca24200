"""`grpo-adv compute`: rewards in, advantages out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from grpo_cli.cli.engine import refuse_engine, workers
from grpo_cli.cli.output import progress, screen, show
from grpo_cli.errors import GateError, UsageError
from grpo_cli.options.given import Given
from grpo_cli.runs.compute_files import Facts, FactsOfParts, Job, run
from grpo_cli.write.write_outputs import Computed


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
    if job.dry_run and not given.json:
        _explain(given, done.facts, done.parts)
    else:
        show(given, done.facts, "grpo_cli.render.summary:render")


def _explain(given: Given, facts: Facts | FactsOfParts, parts: Sequence[Computed]) -> None:
    """Show how the numbers of each part come about."""
    from grpo_cli.render import explain
    from grpo_cli.render.text import Sheet

    console = screen(given)
    each = [part.facts for part in facts.parts] if isinstance(facts, FactsOfParts) else [facts]
    for part, own in zip(parts, each, strict=True):
        if isinstance(facts, FactsOfParts):
            if part is not parts[0]:
                console.print()
            Sheet(console).part(facts.plan_by, own.summary.value)
        explain.render(replace(own, inputs=facts.inputs), part.scored, part.narrow, console)


def _streamed(job: Job) -> Facts:
    from grpo_cli.runs import compute_stream

    if sys.stdin is None or sys.stdout is None:
        raise UsageError("--stream needs standard input and output", "one of them is closed")
    return compute_stream.run(job, sys.stdin.buffer, sys.stdout.buffer)
