"""`grpo-adv add`: insert columns from another file, unchanged."""

from __future__ import annotations

from typing import Any

from grpo_cli.cli.output import file_of, progress, show


def add(given: dict[str, Any]) -> None:
    """Insert the columns; all other bytes of the file stay the same."""
    from grpo_cli.runs.add import Job, run

    job = Job.of(given, summary=file_of(given, "summary"))
    with progress(given) as phase:
        facts = run(job, phase)
    show(given, facts, "written.add")
