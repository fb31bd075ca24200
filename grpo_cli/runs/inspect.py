"""`inspect` for files and for frames: from options to an Inspection."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from grpo_cli.errors import UsageError
from grpo_cli.options.resolve import binding_fields
from grpo_cli.read.open_tables import find_inputs, open_tables
from grpo_cli.read.tables import Binding, FileTable
from grpo_cli.stats.inspection import SORT, TOP, Inspection, View, inspect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from grpo_cli.engine.plan import Plan
    from grpo_cli.read.tables import Table

# Texts are most of a file: up to this size reading them costs nothing that anybody would notice.
CHEAP: Final = 32 << 20
SHOWN: Final = 3  # skipped files that a warning names


def of_files(
    names: Sequence[str],
    plan: Plan,
    given: Mapping[str, Any],
    *,
    by_steps: bool = False,
    phase: Callable[..., None] = lambda *_: None,
) -> Inspection:
    """Look at files."""
    phase("reading")
    binding = Binding(**binding_fields(given))
    inputs, skipped = find_inputs(names)
    tables = open_tables(inputs, binding, skip_broken=given.get("on_error") == "skip")
    found = of_tables(tables, plan, given, by_steps=by_steps, cheap=size_of(tables) <= CHEAP)
    for table in tables:
        table.source.check()
    told = {
        **found.facts,
        "inputs": [table.name for table in tables],
        "warnings": [*found.facts["warnings"], *of_skipped(skipped)],
    }
    return replace(found, facts=told)


def of_skipped(skipped: Sequence[str]) -> list[str]:
    """A warning of files that were passed over."""
    if not skipped:
        return []
    more = ", ..." if len(skipped) > SHOWN else ""
    return [f"skipped {len(skipped)} files (own outputs, hidden or second copies): {', '.join(skipped[:SHOWN])}{more}"]


def of_tables(
    tables: Sequence[Table], plan: Plan, given: Mapping[str, Any], *, by_steps: bool = False, cheap: bool
) -> Inspection:
    """Look at tables; texts are compared where that is cheap or asked for."""
    top = given.get("top", TOP)
    if top < 0:
        raise UsageError(f"--top cannot be {top}", "it takes 0 or more")
    view = View(
        by=given.get("by"),
        by_steps=by_steps,
        top=top,
        sort=given.get("sort", SORT),
        length=given.get("length_column"),
        text=given.get("text_column"),
        duplicates=bool(given.get("duplicates", cheap)),
    )
    return inspect(tables, Binding(**binding_fields(given)), plan, view)


def size_of(tables: Sequence[Table]) -> int:
    """Bytes of all files."""
    return sum(table.source.pin.size for table in tables if isinstance(table, FileTable))
