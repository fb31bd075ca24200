"""`grpo-adv presets`: what the frameworks compute, and the definitions."""

from __future__ import annotations

import json
from typing import Any

from grpo_cli.cli.output import listing, paged
from grpo_cli.engine.presets import presets as known
from grpo_cli.options.resolve import unknown_preset


def presets(given: dict[str, Any]) -> None:
    """List all presets, or those of a framework or with a word in their names, or explain one."""
    from grpo_cli.render import presets as view

    name = given.get("name")
    if name is None or name in known():
        listing(given, view, known())
        return
    found = view.named_like(name)
    if not found:
        raise unknown_preset(name)
    if given.get("json"):
        print(json.dumps([view.as_dict(preset) for preset in found], indent=2))
    else:
        with paged() as console:
            view.listing(console, found)
