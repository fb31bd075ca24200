"""`grpo-adv export`: a file for the next training job, from rows and their rewards."""

from __future__ import annotations

from typing import Any

from grpo_cli.cli.output import written


def export(given: dict[str, Any]) -> None:
    """Write records for supervised finetuning, preferences, a weighted loss, or a table of prompts."""
    from grpo_cli.runs import export as runs

    written(given, runs, "written.export")
