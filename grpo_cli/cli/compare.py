"""`grpo-adv compare`: several plans on the same rows."""

from __future__ import annotations

from typing import Any

from grpo_cli.cli.output import show


def compare(given: dict[str, Any]) -> None:
    """Compute the plans, show where they differ, and write their columns with --write."""
    from grpo_cli.runs.compare import Job, run

    show(given, run(Job.of(given)), "compare.render")
