"""`grpo-adv inspect`: what the rewards look like, before anything is computed from them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from grpo_cli.cli.command import takes
from grpo_cli.errors import UsageError
from grpo_cli.options.resolve import plan_of, with_config
from grpo_cli.options.table import INSPECT

if TYPE_CHECKING:
    from grpo_cli.stats.inspection import Inspection


@takes(*INSPECT)
def inspect(typed: dict[str, Any]) -> None:
    """Look at rewards and groups: spread, solve rates, what carries no gradient, and what would.

    grpo-adv inspect rewards.jsonl --by step
    """
    given = with_config(typed)
    found = looked(given)
    if "format" in given:
        _table(found, given)
    elif given.get("json"):
        print(json.dumps(_told(found, given), indent=2, default=str, allow_nan=False))
    elif "show" in given:
        _group(found, given["show"])
    elif not given.get("quiet"):
        from grpo_cli.cli.screen import Screen
        from grpo_cli.render import inspect as view

        view.render(found.facts, Screen())


def looked(given: dict[str, Any], *, by_steps: bool = False) -> Inspection:
    """Read the files and look."""
    from rich.console import Console

    from grpo_cli.render.progress import phases
    from grpo_cli.runs.inspect import of_files

    plan = plan_of(given)
    with phases(Console(stderr=True, quiet=given.get("quiet", False))) as phase:
        return of_files(given["inputs"], plan, given, by_steps=by_steps, phase=phase)


def _told(found: Inspection, given: dict[str, Any]) -> dict[str, Any]:
    from grpo_cli.stats.group_rows import show_group
    from grpo_cli.stats.verdicts import verdicts

    told = {**found.facts, "verdicts": verdicts(found.facts)}
    return told | ({"show": show_group(found, given["show"])} if "show" in given else {})


def _group(found: Inspection, key: str) -> None:
    from grpo_cli.cli.screen import Screen
    from grpo_cli.render import inspect
    from grpo_cli.stats.group_rows import show_group

    inspect.render_group(show_group(found, key, inspect.ROWS), Screen())


def _table(found: Inspection, given: dict[str, Any]) -> None:
    """The one table that was asked for, on standard output."""
    from grpo_cli.render import inspect

    if given.get("json"):
        raise UsageError("--json and --format are two formats", "leave one of them out")
    if sys.stdout is None:
        raise UsageError("standard output is closed", "there is no place for the table")
    frame = inspect.table(found, show=given.get("show"), sort=given.get("sort"), top=given.get("top"))
    sys.stdout.write(inspect.WRITERS[given["format"]](frame))
