"""`grpo-adv inspect`: what the rewards look like, before anything is computed from them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from grpo_cli.cli.engine import on_ray
from grpo_cli.cli.output import as_json, progress, screen, show
from grpo_cli.errors import DataError, UsageError
from grpo_cli.files.inputs import MAX_LINE
from grpo_cli.options.resolve import binding_fields, plan_of, view_fields
from grpo_cli.options.table import EVERY

if TYPE_CHECKING:
    from grpo_cli.runs.inspect import Job
    from grpo_cli.runs.ray_stages import RayOptions
    from grpo_cli.stats.inspection import Inspection


def inspect(given: dict[str, Any]) -> None:
    """Look at rewards and groups, and show all of it, one group, or one table."""
    from grpo_cli.render import inspect as view
    from grpo_cli.stats.group_rows import show_group
    from grpo_cli.stats.verdicts import verdicts

    if (ray := on_ray(given)) is not None:
        _on_ray(given, ray)
        return
    if "before" in given:
        _against(given)
        return
    inspection, key = inspected(given), given.get("show")
    if "format" in given:
        _table(inspection, given)
    elif given.get("json"):
        group = {} if key is None else {"show": show_group(inspection, key)}
        print(as_json({**inspection.facts, "verdicts": verdicts(inspection.facts), **group}))
    elif key is not None:
        view.render_group(show_group(inspection, key, view.ROWS), screen())
    else:
        show(given, inspection.facts, view.render)


def _on_ray(given: dict[str, Any], ray: RayOptions) -> None:
    """Look at rewards and groups on a cluster: what all of them show together."""
    from grpo_cli.render import inspect as view
    from grpo_cli.runs import inspect_ray
    from grpo_cli.stats.verdicts import verdicts

    other = next((name for name in ("show", "format", "before") if name in given), None)
    if other is not None:
        wrong = f"{EVERY[other].flag} needs the groups with their keys, which --engine ray leaves on the cluster"
        raise UsageError(wrong, "leave one of them out")
    with progress(given) as phase:
        facts = inspect_ray.run(_job(given), phase, ray)
    if given.get("json"):
        print(as_json({**facts, "verdicts": verdicts(facts)}))
    else:
        show(given, facts, view.render)


def _against(given: dict[str, Any]) -> None:
    """Show how solve rates changed from another run to this one."""
    from grpo_cli.render import against as view

    other = next((name for name in ("show", "format", "by") if name in given), None)
    if other is not None:
        raise UsageError(f"--against and --{other} are two views", "leave one of them out")
    show(given, compared(inspected(given), given), view.render)


def compared(now: Inspection, given: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What changed from the run that --against names to this one; `more` are further fields of its job."""
    from grpo_cli.stats.against import against, verdict

    alike = {name: value for name, value in given.items() if name != "before"}
    try:
        before = inspected({**alike, "inputs": [given["before"]]}, **more)
    except DataError as error:
        if given["before"] not in error.message:
            error.message = f"--against {given['before']}: {error.message}"
        raise
    facts = against(now, before)
    return {
        **facts,
        "verdict": verdict(facts),
        "inputs": now.facts["inputs"],
        "against": before.facts["inputs"],
        "warnings": [*now.facts["warnings"], *(f"before: {line}" for line in before.facts["warnings"])],
    }


def inspected(given: dict[str, Any], **more: Any) -> Inspection:
    """Read the files and look at them; `more` are further fields of the job."""
    from grpo_cli.runs.inspect import run

    with progress(given) as phase:
        return run(_job(given, **more), phase)


def _job(given: dict[str, Any], **more: Any) -> Job:
    from grpo_cli.read.tables import Binding
    from grpo_cli.runs.inspect import Job
    from grpo_cli.stats.inspection import View

    if given.get("before") == "-" and "-" in given["inputs"]:
        raise UsageError("both runs are standard input", "one of them can be")
    return Job(
        inputs=given["inputs"],
        plan=plan_of(given),
        binding=Binding(**binding_fields(given)),
        view=View(**view_fields(given), by_steps="report" in more),
        skip_broken=given.get("on_error") == "skip",
        max_line=given.get("max_line", MAX_LINE),
        **more,
    )


def _table(inspection: Inspection, given: dict[str, Any]) -> None:
    """Write the one table that --format names to standard output."""
    from grpo_cli.render import inspect as view

    if given.get("json"):
        raise UsageError("--json and --format are two formats", "leave one of them out")
    if sys.stdout is None:
        raise UsageError("standard output is closed", "there is no place for the table")
    frame = view.table(inspection, show=given.get("show"), sort=given.get("sort"), top=given.get("top"))
    sys.stdout.write(view.WRITERS[given["format"]](frame))
