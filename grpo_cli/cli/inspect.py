"""`grpo-adv inspect`: what the rewards look like, before anything is computed from them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from grpo_cli.cli.output import as_json, progress, show
from grpo_cli.errors import UsageError
from grpo_cli.options.resolve import plan_of

if TYPE_CHECKING:
    from grpo_cli.stats.inspection import Inspection


def inspect(given: dict[str, Any]) -> None:
    """Look at rewards and groups, and show all of it, one group, or one table."""
    from grpo_cli.cli.screen import Screen
    from grpo_cli.render import inspect as view
    from grpo_cli.stats.group_rows import show_group
    from grpo_cli.stats.verdicts import verdicts

    found, key = inspected(given), given.get("show")
    if "format" in given:
        _table(found, given)
    elif given.get("json"):
        group = {} if key is None else {"show": show_group(found, key)}
        print(as_json({**found.facts, "verdicts": verdicts(found.facts), **group}))
    elif key is not None:
        view.render_group(show_group(found, key, view.ROWS), Screen())
    else:
        show(given, found.facts, view.render)


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
    frame = view.table(found, show=given.get("show"), sort=given.get("sort"), top=given.get("top"))
    sys.stdout.write(view.WRITERS[given["format"]](frame))
