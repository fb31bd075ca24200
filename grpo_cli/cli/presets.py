"""`grpo-adv presets`: what the frameworks compute, and how each of it is defined."""

from __future__ import annotations

import json
from typing import Annotated, Optional

import typer

Name = Annotated[Optional[str], typer.Argument(metavar="[NAME]", help="Explain this one.", show_default=False)]  # noqa: UP045 - typer
Json = Annotated[bool, typer.Option("--json", help="As JSON.")]


def presets(name: Name = None, as_json: Json = False) -> None:  # noqa: FBT002 - a flag of the command line
    """List the presets, or explain one: formula, constants, rules, source, and the presets that are equal."""
    from grpo_cli.cli.screen import Screen
    from grpo_cli.render import presets as view

    if as_json:
        print(json.dumps(view.all_as_dict() if name is None else view.as_dict(name), indent=2))
    elif name is None:
        view.listing(Screen())
    else:
        view.explain(name, Screen())
