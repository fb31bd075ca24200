"""`inspect --against` and `report --against`: earlier runs are read like the newest one, and compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self, cast

from grpo_cli.errors import DataError, UsageError
from grpo_cli.options.resolve import Given, refuse_beside
from grpo_cli.runs import inspect
from grpo_cli.runs.asked import draws_of
from grpo_cli.runs.progress import HERE, Workers
from grpo_cli.runs.rescored import same_rollouts
from grpo_cli.stats.against import Since, against
from grpo_cli.stats.inspection import Inspection
from grpo_cli.stats.runs import compared
from grpo_cli.stats.verdicts import with_other
from grpo_cli.write.write_outputs import Phase

SAME_ROLLOUTS: Final = (
    "both inputs have the same rollouts with different rewards: --old-rewards shows what that changes"
)


@dataclass(frozen=True, kw_only=True)
class Job(inspect.Job):
    """Which runs to compare, and how: several in a table, or one prompt by prompt."""

    as_table: bool
    draws: Sequence[int] = ()
    cluster: str | None = None

    @classmethod
    def of(cls, given: Given, **more: Any) -> Self:
        """What options ask for; `more` are further fields."""
        refuse_beside("before", given, "plan_by", "rescored", "rescored_column")
        of_tables = {"pass_at", "cluster", "format", "fail_on"}
        as_table = len(given["before"]) > 1 or bool(of_tables & {*given})
        job = super().of(given, as_table=as_table, draws=draws_of(given) or (), **more)
        if job.name in job.earlier and as_table:
            cure = f"give them names: --against NAME={job.earlier[job.name]}"
            raise UsageError(f"two runs are called {job.name}", cure)
        return job


def run(job: Job, phase: Phase = lambda *_: None, workers: Workers = HERE) -> Inspection:
    """Inspect the newest run, and compare the earlier ones with it."""
    now = cast("Inspection", inspect.run(job, phase, workers))
    runs = {name: _earlier(job, name, phase, workers) for name in job.earlier}
    if job.as_table:
        table = compared({**runs, job.name: now}, job.draws, job.cluster)
        table = replace(table, trends={name: earlier.facts.by for name, earlier in runs.items()})
        return with_other(now, table, table.verdict, [*now.facts.warnings, *table.warnings])
    ((name, before),) = runs.items()
    changes = against(now, before, called=(job.name, name))
    # All prompts are the same if it is the same file twice.
    if changes.same < changes.prompts and same_rollouts(now, before, changes.key):
        changes = replace(changes, warnings=[SAME_ROLLOUTS, *changes.warnings])
    return with_other(now, Since(changes, before.facts), changes.sentence, changes.warnings)


def _earlier(job: Job, name: str, phase: Phase, workers: Workers) -> Inspection:
    """An earlier run, read like the newest one."""
    path = job.earlier[name]
    try:
        return cast("Inspection", inspect.run(replace(job, inputs=[path], before=()), phase, workers))
    except DataError as error:
        if path not in error.message:
            error.inside(f"--against {name}")
        raise
