"""`grpo-adv schemas`: the known layouts, and which one a file has."""

from __future__ import annotations

from pathlib import Path

from grpo_cli.cli.output import listing, show
from grpo_cli.errors import UnknownName
from grpo_cli.files.stores import is_url
from grpo_cli.options.given import Given


def schemas(given: Given) -> None:
    """List the layouts, explain one, or say which of them a file has and why."""
    from grpo_cli.render import schemas as view
    from grpo_cli.schemas.table import schemas as known

    name = given.name
    if name is None or name in known():
        listing(given, view, known())
        return
    if not (is_url(name) or Path(name).exists()):
        raise UnknownName.among("schema or file", name, known())
    from grpo_cli.read.recognise import explained

    show(given, explained(name), "grpo_cli.render.schemas:matched")
