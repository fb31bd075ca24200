"""`grpo-adv compute`: rewards in, advantages out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from grpo_cli.cli.command import takes
from grpo_cli.errors import DataError, GateError, UsageError
from grpo_cli.options.resolve import binding_fields, origin, output_fields, plan_of, with_config
from grpo_cli.options.table import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grpo_cli.runs.compute_files import Done, Job


@takes(*OPTIONS)
def compute(typed: dict[str, Any]) -> None:
    """Compute advantages and weave them into the file as one more column.

    grpo-adv compute rewards.jsonl --method rloo --scale batch
    """
    given = with_config(typed)
    job = _job(given, plan_of(given))
    if given.get("stream"):
        _tell(given, job, _streamed(job), sys.stderr)
        return
    try:
        done = _run(given, job)
    except GateError as error:
        if error.facts is not None:
            _tell(given, job, error.facts, sys.stderr)
        raise
    if job.dry_run and not given.get("json"):
        _explain(job, done)
    else:
        _tell(given, job, done.facts, sys.stderr if "stdout" in done.facts["outputs"] else sys.stdout)


def save(path: Path, text: str) -> None:
    """Write a summary to its file."""
    from grpo_cli.files.atomic import replacing

    try:
        with replacing(path, force=True) as handle:
            handle.write(f"{text}\n".encode())
    except (DataError, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        why = (cause.strerror or str(cause)).lower() if isinstance(cause, OSError) else str(error)
        raise DataError(f"--summary {path} cannot be written: {why}", "all other outputs are there") from None


def _job(given: dict[str, Any], plan: Any) -> Job:
    from grpo_cli.options.conditions import Filter
    from grpo_cli.read.tables import Binding
    from grpo_cli.runs.compute_files import Job
    from grpo_cli.stats.facts import GATES
    from grpo_cli.write.outputs import Output

    return Job(
        inputs=given["inputs"],
        plan=plan,
        binding=Binding(**binding_fields(given)),
        output=Output(**output_fields(given)),
        gate=Filter.parse(given["fail_on"], GATES) if "fail_on" in given else None,
        summary=Path(given["summary"]) if "summary" in given else None,
        dry_run=given.get("explain", False),
        silent="quiet" in given and not {"json", "summary", "explain"} & {*given},
        skip_broken=given.get("on_error") == "skip",
        origin=origin(given, plan),
    )


def _run(given: dict[str, Any], job: Job) -> Done:
    from grpo_cli.runs.compute_files import run

    if given.get("quiet") or sys.stderr is None or not sys.stderr.isatty():
        return run(job)  # nobody to show progress to: rich need not be loaded
    from rich.console import Console

    from grpo_cli.render.progress import phases

    with phases(Console(stderr=True)) as phase:
        return run(job, phase)


def _streamed(job: Job) -> dict[str, Any]:
    from grpo_cli.runs.compute_stream import run

    if sys.stdin is None or sys.stdout is None:
        raise UsageError("--stream needs standard input and output", "one of them is closed")
    return run(job, sys.stdin.buffer, sys.stdout.buffer)


def _tell(given: dict[str, Any], job: Job, facts: Mapping[str, Any], stream: TextIO) -> None:
    """The summary goes to stdout unless data goes there."""
    text = json.dumps(dict(facts), indent=2, default=str, allow_nan=False)
    if job.summary is not None:
        save(job.summary, text)
    if given.get("json"):
        print(text, file=stream)
    elif not given.get("quiet"):
        from grpo_cli.cli.screen import Screen
        from grpo_cli.render import summary

        summary.render(facts, Screen(stream))


def _explain(job: Job, done: Done) -> None:
    from grpo_cli.cli.screen import Screen
    from grpo_cli.render import explain

    explain.render(job.plan, done.facts, done.scored, done.narrow, Screen())
