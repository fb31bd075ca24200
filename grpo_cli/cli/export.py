"""`grpo-adv export`: a file for the next training job, from rows and their rewards."""

from __future__ import annotations

from typing import Any

from grpo_cli.cli.output import file_of, progress, show


def export(given: dict[str, Any]) -> None:
    """Write records for supervised finetuning, preferences, a weighted loss, or a table of prompts."""
    from grpo_cli.runs.export import Job, run

    job = Job.of(given, summary=file_of(given, "summary"))
    with progress(given) as phase:
        facts = run(job, phase)
    show(given, facts, "written.export")
