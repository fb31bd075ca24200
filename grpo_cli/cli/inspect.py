"""`grpo-adv inspect`: what the rewards look like, before anything is computed from them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from grpo_cli.cli.output import progress, show
from grpo_cli.errors import UsageError
from grpo_cli.options.resolve import plan_of

if TYPE_CHECKING:
    from grpo_cli.stats.inspection import Inspection


def inspect(given: dict[str, Any]) -> None:
    """Look at rewards and groups, and show all of it, one group, or one table."""
    found = inspected(given)
    from grpo_cli.render import inspect as view
    from grpo_cli.stats.group_rows import shown
    from grpo_cli.stats.verdicts import verdicts

    key = given.get("show")
    if "format" in given:
        _table(found, given)
    elif given.get("json"):
        group = {} if key is None else {"show": shown(found, key)}
        show(given, {**found.facts, "verdicts": verdicts(found.facts), **group}, view.render)
    elif key is None:
        show(given, found.facts, view.render)
    else:
        show({**given, "quiet": False}, shown(found, key, view.ROWS), view.group)


def inspected(given: dict[str, Any], *, by_steps: bool = False) -> Inspection:
    """Read the files and look at them."""
    from grpo_cli.runs.inspect import of_files

    plan = plan_of(given)
    with progress(given) as phase:
        return of_files(given["inputs"], plan, given, by_steps=by_steps, phase=phase)


def _table(found: Inspection, given: dict[str, Any]) -> None:
    """Write the one table that --format asks for to standard output."""
    from grpo_cli.render import inspect as view

    if given.get("json"):
        raise UsageError("--json and --format are two formats", "leave one of them out")
    if sys.stdout is None:
        raise UsageError("standard output is closed", "there is no place for the table")
    frame = view.asked(found, show=given.get("show"), sort=given.get("sort"), top=given.get("top"))
    sys.stdout.write(view.WRITERS[given["format"]](frame))
