"""`grpo-adv inspect`: what the rewards look like before anything is computed from them."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from grpo_cli.cli.engine import workers
from grpo_cli.cli.output import emit, progress, screen, show
from grpo_cli.errors import UsageError, Way
from grpo_cli.options.commands import COMMANDS, command_line
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import refuse_beside, refuse_without_effect
from grpo_cli.runs.gate import Gate
from grpo_cli.runs.inspect import Job, run

# Numbers that are compared with those of other days, and rollouts that are paired one to one.
FOR_PROGRAMS = frozenset({"fail_on", "json", "format", "pass_at", "rescored"})
AnyJob = TypeVar("AnyJob", bound=Job)

if TYPE_CHECKING:
    from grpo_cli.stats.inspection import Inspection
    from grpo_cli.stats.rescored import Rescored


def inspect(given: Given) -> None:
    """Look at rewards and groups, and show all of it, one group, or one table."""
    _refuse(given)
    if "before" in given:
        _against(given)
    elif {"rescored", "rescored_column"} & {*given}:
        _rescored(given)
    else:
        _shown(given)


def _refuse(given: Given) -> None:
    """Refuse what cannot be shown together, before a file is read."""
    refuse_without_runs(given)
    if "before" in given:
        refuse_beside("before", given, "show", "by", "token_logprobs")
    of_rescored = [name for name in ("rescored", "rescored_column") if name in given]
    for name in of_rescored:
        refuse_beside(name, given, "show", "by", "sort", "top")
    kind = given.format
    if "full" in given:
        refuse_beside("full", given, "show", "format", "before", "rescored", "rescored_column")
    if kind is None:
        return
    if given.json:
        raise UsageError("--json and --format cannot be combined", "leave one of them out")
    if of_rescored and kind == "csv":
        cure = Way("--format", "md", "and --json have all of them")
        raise UsageError("--old-rewards has several tables, and CSV has one", cure)
    if "token_logprobs" in given and "by" not in given:
        raise UsageError(
            "the table of groups has no log-probs", [Way("--by", fill="COL", lead="add"), "leave out --format"]
        )
    if sys.stdout is None:
        raise UsageError("standard output is closed", "the table has nowhere to go")


def _shown(given: Given) -> None:
    """Show what is found."""
    from grpo_cli.runs.group_rows import show_group
    from grpo_cli.stats.inspection import Inspected

    gate = Gate.of(given, Inspected)
    found = looked_at(given)
    key = given.show
    kind = given.format
    if kind is not None:
        from grpo_cli.render import inspect as view

        if given.by is not None and found.facts.off_policy is None:
            refuse_without_effect(given, drift_by_line=False)
        frame = view.table(found, show=key, by=given.by, sort=given.sort, top=given.top)
        emit(view.table_text(frame, kind, escaped=sys.stdout.isatty()))
    elif given.json:
        group = None if key is None else show_group(found, key)
        show(given, replace(found.facts, show=group), "grpo_cli.render.inspect:render")
    elif key is not None and not given.quiet:
        from grpo_cli.render import inspect as view

        view.render_group(show_group(found, key, view.ROWS), screen(given))
    else:
        show(given, found.facts, "grpo_cli.render.inspect:render", browse=_browse(given), asked=given)
    if gate is not None:
        group = None if key is None else show_group(found, key)
        gate.check(replace(found.facts, show=group))


def _browse(given: Given) -> str:
    """The command that shows the texts of these rows; empty for standard input."""
    inputs = given.inputs
    if "-" in inputs:
        return ""
    shared = COMMANDS["browse"].takes.keys() - {"by", "color", "config", "debug", "quiet", "sort"}
    return command_line("browse", Given(given.among(shared), inputs=inputs if len(inputs) == 1 else ["FILES"]))


def looked_at(given: Given, **more: Any) -> Inspection:
    """Read the files and look at them; `more` are further fields of the job."""
    if given.rescored == "-" in given.inputs:
        raise UsageError("both runs are read from standard input", "only one of them can be")
    if "before" in given:
        return compared(given, **more)
    job = _to_look_at(given, Job.of(given, **more))
    with progress(given) as phase, workers(given) as tasks:
        return run(job, phase, tasks)


def _to_look_at(given: Given, job: AnyJob) -> AnyJob:
    """The job of a person who looks, who sees the steps of a run apart; programs and gates are told that a flag must say so."""
    return job.apart if given.keys().isdisjoint(FOR_PROGRAMS) else job


def compared(given: Given, **more: Any) -> Inspection:
    """Read the files and those of earlier runs, and compare them; `more` are further fields of the job."""
    from grpo_cli.runs import against

    job = _to_look_at(given, against.Job.of(given, **more))
    with progress(given) as phase, workers(given) as tasks:
        return against.run(job, phase, tasks)


def _against(given: Given) -> None:
    """Show how solve rates changed from earlier runs to this one."""
    from grpo_cli.runs.against import OF_PROMPTS
    from grpo_cli.stats.runs import Runs

    gate = Gate.of(given, Runs)
    table = cast("Runs", compared(given).beside)
    kind = given.format
    if kind is not None:
        from grpo_cli.render import runs as view
        from grpo_cli.render.inspect import table_text

        # Options that choose prompts ask for their table.
        frame = view.table(table) if given.keys().isdisjoint(OF_PROMPTS) else view.table_of_prompts(table, given.top)
        emit(table_text(frame, kind, escaped=sys.stdout.isatty()))
    else:
        show(given, table, "grpo_cli.render.runs:render")
    if gate is not None:
        gate.check(table)


def refuse_without_runs(given: Given) -> None:
    """Refuse what only a comparison of runs has."""
    if "cluster" in given and "before" not in given:
        way = Way("--against", fill="INPUT", lead="add")
        raise UsageError("--cluster is for the comparison of runs", way)


def _rescored(given: Given) -> None:
    """Show what another reward of the same rollouts changes."""
    from grpo_cli.stats.rescored import InspectedTwice

    gate = Gate.of(given, InspectedTwice)
    found = looked_at(given, whole=gate is not None)
    said = cast("Rescored", found.beside)
    if "format" in given:
        from grpo_cli.render.rescored import markdown

        emit(markdown(said))
    else:
        show(given, said, "grpo_cli.render.rescored:render")
    if gate is not None:
        gate.check(InspectedTwice(found.facts, said))
