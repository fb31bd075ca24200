"""`grpo-adv inspect`: what the rewards look like before anything is computed from them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from grpo_cli.cli.engine import workers
from grpo_cli.cli.output import as_json, progress, screen, show
from grpo_cli.errors import DataError, UsageError
from grpo_cli.options.conditions import Filter
from grpo_cli.options.resolve import refuse_beside
from grpo_cli.options.table import COMMANDS, command_line
from grpo_cli.runs.inspect import Job, run
from grpo_cli.stats.inspection import Inspection, Parted

if TYPE_CHECKING:
    from grpo_cli.stats.against import Against

SAME_ROLLOUTS: Final = (
    "both inputs have the same rollouts with different rewards: --old-rewards shows what that changes"
)


def inspect(given: dict[str, Any]) -> None:
    """Look at rewards and groups, and show all of it, one group, or one table."""
    from grpo_cli.stats.facts import REWARD_GATES, reward_gates

    if "before" in given:
        _against(given)
        return
    rescored = next((name for name in ("rescored", "rescored_column") if name in given), "")
    if rescored:
        refuse_beside(rescored, given, "show", "sort")
        if given.get("format") == "csv":
            cure = "--format md and --json have all of them"
            raise UsageError("--old-rewards has several tables, and CSV has one", cure)
    gate = Filter.parse(given["fail_on"], REWARD_GATES) if "fail_on" in given else None
    facts = _rescored(given, whole=gate is not None) if rescored else _shown(given)
    if gate is not None:
        gate.check(reward_gates, facts)


def _shown(given: dict[str, Any]) -> Mapping[str, Any]:
    """Show what is found, and return the facts."""
    from grpo_cli.runs.group_rows import show_group
    from grpo_cli.stats.verdicts import with_verdicts

    found, key = looked_at(given), given.get("show")
    if "format" in given:
        _table(found if key is None else found.holding(key), given)
    elif given.get("json"):
        group = {} if key is None else {"show": show_group(found.holding(key), key)}
        config = {"config": given["config"]} if "config" in given else {}
        print(as_json({**with_verdicts(found.facts), **config, **group}))
    elif key is not None:
        from grpo_cli.render import inspect as view

        view.render_group(show_group(found.holding(key), key, view.ROWS), screen())
    else:
        show(given, found.facts, "inspect.render", browse=_browse(given, found.facts), by="by" in given)
    return found.facts


def _browse(given: dict[str, Any], facts: Mapping[str, Any]) -> str:
    """The command that shows the texts of these groups; empty for standard input and for parts."""
    if "-" in given["inputs"] or "plan_by" in given:
        return ""
    here = {"by", "config", "debug", "quiet", "sort"}
    same = {name: value for name, value in given.items() if name in COMMANDS["browse"].takes and name not in here}
    listed = [*facts["listed"]["most"], *facts["listed"]["least"]]
    if listed and "where" not in given:  # --where changes the numbers of groups
        same["show"] = f"#{listed[0]['number']}"
    return command_line("browse", {**same, "inputs": given["inputs"] if len(given["inputs"]) == 1 else ["FILES"]})


def looked_at(given: dict[str, Any], **more: Any) -> Inspection | Parted:
    """Read the files and look at them, at each part with --plan-by; `more` are further fields of the job."""
    if "-" in {given.get("before"), given.get("rescored")} and "-" in given["inputs"]:
        raise UsageError("both runs are read from standard input", "only one of them can be")
    if "before" in given:
        refuse_beside("before", given, "plan_by", "rescored", "rescored_column")
    job = Job.of(given, **more)
    with progress(given) as phase, workers(given) as tasks:
        return run(job, phase, tasks)


def _inspected(given: dict[str, Any], **more: Any) -> Inspection:
    """As `looked_at`, for options that cannot be combined with --plan-by."""
    return cast("Inspection", looked_at(given, **more))


def _against(given: dict[str, Any]) -> None:
    """Show how solve rates changed from another run to this one."""
    refuse_beside("before", given, "show", "format", "by", "where", "fail_on")
    show(given, compared(_inspected(given), given)[0], "against.render")


def _rescored(given: dict[str, Any], *, whole: bool) -> Mapping[str, Any]:
    """Show what another reward of the same rollouts changes; return the facts, with those of an inspection if `whole`."""
    facts = _inspected(given, whole=whole).facts
    said = {**facts["rescored"], **{name: facts[name] for name in ("inputs", "warnings")}}
    if "format" in given:
        refuse_beside("format", given, "json")
        from grpo_cli.render.rescored import markdown

        print(markdown(said), end="")
    else:
        show(given, said, "rescored.render")
    return facts


def compared(now: Inspection, given: dict[str, Any], **more: Any) -> tuple[Against, Inspection]:
    """What changed from the run that --against names to this one, and that run; `more` are further fields of its job."""
    from grpo_cli.runs.rescored import same_rollouts
    from grpo_cli.stats.against import against

    shared = {name: value for name, value in given.items() if name != "before"}
    try:
        before = _inspected({**shared, "inputs": [given["before"]]}, **more)
    except DataError as error:
        if given["before"] not in error.message:
            error.inside(f"--against {given['before']}")
        raise
    facts = against(now, before)
    changed = facts.same < facts.prompts  # otherwise it may be the same file twice
    hint = [SAME_ROLLOUTS] if changed and same_rollouts(now, before, facts.key) else []
    changes = replace(
        facts,
        inputs=now.facts["inputs"],
        against=before.facts["inputs"],
        warnings=[*hint, *now.facts["warnings"], *(f"before: {line}" for line in before.facts["warnings"])],
    )
    return changes, before


def _table(found: Inspection | Parted, given: dict[str, Any]) -> None:
    """Write the one table that --format names to standard output."""
    from grpo_cli.render import inspect as view

    if given.get("json"):
        raise UsageError("--json and --format cannot be combined", "leave one of them out")
    if sys.stdout is None:
        raise UsageError("standard output is closed", "the table has nowhere to go")
    frame = view.table(found, show=given.get("show"), by=given.get("by"), sort=given.get("sort"), top=given.get("top"))
    sys.stdout.write(view.WRITERS[given["format"]](frame))
