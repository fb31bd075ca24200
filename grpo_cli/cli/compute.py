"""`grpo-adv compute`: rewards in, advantages out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from grpo_cli.cli.engine import refuse_engine, workers
from grpo_cli.cli.output import file_of, is_silent, job_fields, progress, screen, show
from grpo_cli.errors import GateError, UsageError
from grpo_cli.options.resolve import origin, output_fields, parts_fields, parts_of, plan_of, token_fields

if TYPE_CHECKING:
    from rich.console import Console

    from grpo_cli.runs.compute_files import Job


def compute(given: dict[str, Any]) -> None:
    """Compute advantages and write them, or explain what would be computed."""
    from grpo_cli.runs.compute_files import run

    job = _job(given)
    refuse_engine(given)
    if given.get("stream"):
        show(given, _streamed(job), _summary, aside=True)
        return
    try:
        with progress(given) as phase, workers(given) as tasks:
            done = run(job, phase, tasks)
    except GateError as error:
        if error.facts is not None:
            show(given, error.facts, _summary, aside=True)
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
        show(given, done.facts, _summary)


def _job(given: dict[str, Any]) -> Job:
    from grpo_cli.options.conditions import Filter
    from grpo_cli.read.build_table import Parts
    from grpo_cli.runs.compute_files import Job
    from grpo_cli.stats.facts import GATES
    from grpo_cli.write.outputs import Output
    from grpo_cli.write.token_lists import TokenColumns

    parts = Parts.of(**parts_fields(given)) if "plan_by" in given else None
    plans = {"": plan_of(given)} if parts is None else {name: plan for name, (plan, _) in parts.plans.items()}
    plan = max(plans.values(), key=lambda one: "length" in one.needs)
    tokens = token_fields(given, plan)
    return Job(
        **job_fields(given),
        plan=plan,
        parts=parts,
        output=Output(**output_fields(given), tokens=None if tokens is None else TokenColumns(**tokens)),
        gate=Filter.parse(given["fail_on"], GATES) if "fail_on" in given else None,
        summary=file_of(given, "summary"),
        dry_run=given.get("explain", False),
        silent=is_silent(given),
        origins={name: origin(own, plans[name]) for name, own in (parts_of(given) or {"": given}).items()},
    )


def _streamed(job: Job) -> dict[str, Any]:
    from grpo_cli.runs.compute_stream import run

    if sys.stdin is None or sys.stdout is None:
        raise UsageError("--stream needs standard input and output", "one of them is closed")
    return run(job, sys.stdin.buffer, sys.stdout.buffer)


def _summary(facts: Mapping[str, Any], console: Console) -> None:
    from grpo_cli.render import summary  # it loads rich, which a run that says nothing does without

    summary.render(facts, console)
