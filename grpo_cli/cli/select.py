"""`grpo-adv select`: the groups worth training on, as they stand in the file."""

from __future__ import annotations

from typing import Any

from grpo_cli.cli.output import progress, show


def select(given: dict[str, Any]) -> None:
    """Keep groups by their facts, and rows inside them."""
    from grpo_cli.render import select as view
    from grpo_cli.runs.select import run

    with progress(given) as phase:
        facts = run(given["inputs"], given, phase)
    show(given, facts, view.render)
