"""`grpo-adv targets`: the trainers that read an export."""

from __future__ import annotations

from grpo_cli.cli.output import listing
from grpo_cli.errors import UnknownName
from grpo_cli.options.given import Given


def targets(given: Given) -> None:
    """List the targets, or explain one."""
    from grpo_cli.render import targets as view
    from grpo_cli.targets.table import targets as known

    if given.name is not None and given.name not in known():
        raise UnknownName.among("target", given.name, known(), lost="grpo-adv targets lists them")
    listing(given, view, known())
