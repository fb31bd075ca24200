"""`grpo-adv methods`: what can be computed, and how each of it is defined."""

from __future__ import annotations

from typing import Any

from grpo_cli.cli.output import listing


def methods(given: dict[str, Any]) -> None:
    """List the methods, or explain one."""
    from grpo_cli.render import methods as view

    listing(given, view)
