"""`grpo-adv select`: the groups worth training on, unchanged."""

from __future__ import annotations

from typing import Any

from grpo_cli.cli.output import is_silent, written


def select(given: dict[str, Any]) -> None:
    """Keep groups by their facts, and rows inside them."""
    from grpo_cli.runs import select as runs

    written(given, runs, "written.select", silent=is_silent(given))
