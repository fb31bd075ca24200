"""`grpo-adv export`: the next training job's file, made of the rows and their rewards."""

from __future__ import annotations

from typing import Any

from grpo_cli.cli.output import file_of, job_fields, progress, show
from grpo_cli.options.resolve import export_fields, output_fields, plan_of


def export(given: dict[str, Any]) -> None:
    """Write records for supervised finetuning, preferences, a weighted loss, or a table of prompts."""
    from grpo_cli.choosing.exports import Wanted
    from grpo_cli.render import written
    from grpo_cli.runs.export import Job, run
    from grpo_cli.write.outputs import Output

    job = Job(
        **job_fields(given),
        wanted=Wanted(**export_fields(given)),
        plan=plan_of({name: value for name, value in given.items() if name != "seed"}),  # which is for choosing
        output=Output(**output_fields(given)),
        summary=file_of(given, "summary"),
    )
    with progress(given) as phase:
        facts = run(job, phase)
    show(given, facts, written.export)
