"""`grpo-adv schemas`: which layouts are known, and which one a file has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

Name = Annotated[
    Optional[str],  # noqa: UP045 - typer
    typer.Argument(metavar="[NAME|FILE]", help="Explain this schema, or how this file is matched.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="As JSON.")]


def schemas(name: Name = None, as_json: Json = False) -> None:  # noqa: FBT002 - a flag of the command line
    """List the file layouts that are known, explain one, or say which of them a file has and why."""
    from grpo_cli.cli.screen import Screen
    from grpo_cli.render import schemas as view
    from grpo_cli.schemas.table import schemas as known

    console = Screen()
    if name is not None and name not in known() and Path(name).is_file():
        told = _matched(name)
        print(json.dumps(told, indent=2)) if as_json else view.matched(told, console)
    elif as_json:
        print(json.dumps(view.all_as_dict() if name is None else view.as_dict(name), indent=2))
    elif name is None:
        view.listing(console)
    else:
        view.explain(name, console)


def _matched(name: str) -> dict[str, Any]:
    from grpo_cli.read.detect_schema import explained

    return explained(name)
