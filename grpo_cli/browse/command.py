"""Command lines that repeat what the screen shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from grpo_cli.browse.model import ORDER
from grpo_cli.options.table import COMMANDS, EVERY, command_line

NAME: Final = "NEW_FILE"


# What the groups that are shown can be written as.
KINDS: Final = {"select": "the rows as they are in their files"} | {
    f"export --to {kind}": about
    for kind, about in (part.split(": ") for part in EVERY["to"].help.removesuffix(".").split(". "))
}


def commands(given: Mapping[str, Any], kind: str, *, where: str, sort: str, show: str | None) -> list[str]:
    """The command that opens this view, and the one that writes its groups; both include the options from --config."""
    view = {name: value for name, value in given.items() if name not in {"config", "where", "sort", "show"}}
    view |= {"where": [where]} if where else {}
    view |= {"sort": sort} if sort != ORDER else {}
    view |= {"show": show} if show is not None else {}
    lines = [command_line("browse", view)]
    if where or kind != "select":
        lines.append(command_line(*options_for(kind, given, where, NAME)))
    return lines


def options_for(kind: str, given: Mapping[str, Any], where: str, output: str) -> tuple[str, dict[str, Any]]:
    """The command that writes the groups as one of `KINDS`, with those options of the view that it accepts."""
    command, _, to = kind.partition(" --to ")
    left_out = {"config", "quiet", "debug", "where"}
    options = {name: given[name] for name in given if name in COMMANDS[command].takes and name not in left_out}
    return command, options | ({"to": to} if to else {}) | ({"where": [where]} if where else {}) | {"output": output}
