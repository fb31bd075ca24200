"""`grpo-adv presets`: what the frameworks compute, and how each of it is defined."""

from __future__ import annotations

from typing import Any

from grpo_cli.cli.output import listing


def presets(given: dict[str, Any]) -> None:
    """List the presets, or explain one."""
    from grpo_cli.render import presets as view

    listing(given, view)
