"""`grpo-adv select`: the groups worth training on, unchanged."""

from __future__ import annotations

from typing import Any

from grpo_cli.cli.output import file_of, is_silent, progress, show


def select(given: dict[str, Any]) -> None:
    """Keep groups by their facts, and rows inside them."""
    from grpo_cli.runs.select import Job, run

    job = Job.of(given, summary=file_of(given, "summary"), silent=is_silent(given))
    with progress(given) as phase:
        facts = run(job, phase)
    show(given, facts, "written.select")
