"""`grpo-adv presets`: what the frameworks compute, and the definitions."""

from __future__ import annotations

from grpo_cli.cli.output import listing
from grpo_cli.engine.presets import presets as known
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import unknown_preset


def presets(given: Given) -> None:
    """List all presets, or those of a framework or with a word in their names, or explain one."""
    from grpo_cli.render import presets as view

    name = given.name
    if name is None or name in known():
        listing(given, view, known())
        return
    found = view.named_like(name)
    if not found:
        raise unknown_preset(name)
    listing(given, view, known(), names=found)
