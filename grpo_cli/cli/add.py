"""`grpo-adv add`: insert columns from another file, unchanged."""

from __future__ import annotations

from typing import Any

from grpo_cli.cli.output import written


def add(given: dict[str, Any]) -> None:
    """Insert the columns; all other bytes of the file stay the same."""
    from grpo_cli.runs import add as runs

    written(given, runs, "written.add")
