"""`select` for files: from options to files with fewer rows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_cli.drivers.local import opened
from grpo_cli.filters import Filter
from grpo_cli.inspection import Asked, gathered
from grpo_cli.looking import of_skipped
from grpo_cli.narrow import Binding, FileTable
from grpo_cli.outputs import Output, refuse_summary, targets
from grpo_cli.plan import Plan
from grpo_cli.selection import Chosen, Wanted, choose, summary_of, write
from grpo_cli.settings import binding_fields, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from grpo_cli.narrow import Table

DIRECT = ("limit", "per_group", "pick", "seed")


def wanted_of(given: Mapping[str, Any]) -> Wanted:
    """What to keep, from options by their names."""
    where = Filter.parse(given["where"]) if "where" in given else None
    return Wanted(where=where, **{name: given[name] for name in DIRECT if name in given})


def chosen_of(tables: Sequence[Table], given: Mapping[str, Any], wanted: Wanted) -> tuple[Chosen, Sequence[Table]]:
    """Choose among the rows of tables, and give the tables as they were read."""
    asked = Asked(length=given.get("length_column"))
    found = gathered(tables, Binding(**binding_fields(given)), Plan.of(settings(given)), asked)
    return choose(found, wanted), found.narrow.tables


def run(
    names: Sequence[str], given: Mapping[str, Any], phase: Callable[..., None] = lambda *_: None
) -> Mapping[str, Any]:
    """Write the rows that are kept, and say why the others are not."""
    started = time.perf_counter()
    wanted = wanted_of(given)
    phase("reading")
    tables, skipped = opened(names, Binding(**binding_fields(given)), skip_broken=given.get("on_error") == "skip")
    output = Output(to=given.get("output"), force=given.get("force", False), word="selected")
    aims = targets(tables, output)
    if "summary" in given:
        refuse_summary(Path(given["summary"]), tables, aims, force=output.force)
    chosen, read = chosen_of(tables, given, wanted)
    phase("writing")
    files = [one for one in read if isinstance(one, FileTable)]
    notes = write(files, chosen.lengths, aims, chosen.rows, force=output.force)
    told = summary_of(chosen, aims, [*of_skipped(skipped), *notes])
    return {"inputs": [table.name for table in tables], **told, "seconds": round(time.perf_counter() - started, 3)}
