"""`grpo-adv methods`: the methods and their definitions."""

from __future__ import annotations

from grpo_cli.cli.output import listing
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import unknown_method


def methods(given: Given) -> None:
    """List the methods, or explain one."""
    from grpo_cli.render import methods as view

    name = given.name
    if name is not None and name not in ESTIMATORS:
        raise unknown_method(name)
    listing(given, view, ESTIMATORS)
