"""`inspect --against` and `report --against`: earlier runs are read like the newest one, and compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from grpo_cli.errors import DataError, UsageError
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import refuse_beside
from grpo_cli.runs import inspect
from grpo_cli.runs.asked import draws_of
from grpo_cli.runs.progress import HERE, Workers
from grpo_cli.stats.inspection import Inspection
from grpo_cli.stats.runs import compared
from grpo_cli.stats.verdicts import with_other
from grpo_cli.write.write_outputs import Phase


@dataclass(frozen=True, kw_only=True)
class Job(inspect.Job):
    """Which runs to compare, and how."""

    draws: Sequence[int] = ()  # the numbers of --pass-at: rollouts drawn from each prompt

    @classmethod
    def of(cls, given: Given, **more: Any) -> Self:
        """What options ask for; `more` are further fields."""
        refuse_beside("before", given, "rescored", "rescored_column")
        job = super().of(given, draws=draws_of(given) or (), **more)
        if job.name in job.earlier:
            cure = f"give them names: --against NAME={job.earlier[job.name]}"
            raise UsageError(f"two runs are called {job.name}", cure)
        return job


def run(job: Job, phase: Phase = lambda *_: None, workers: Workers = HERE) -> Inspection:
    """Inspect the newest run, and compare the earlier ones with it."""
    now = inspect.run(job, phase, workers)
    runs = {name: _earlier(job, name, phase, workers) for name in job.earlier}
    table = compared({**runs, job.name: now}, job.draws)
    table = replace(table, trends={name: earlier.facts.by for name, earlier in runs.items()})
    return with_other(now, table, table.verdict, table.warnings)


def _earlier(job: Job, name: str, phase: Phase, workers: Workers) -> Inspection:
    """An earlier run, read like the newest one."""
    path = job.earlier[name]
    try:
        return inspect.run(replace(job, inputs=[path], before=()), phase, workers)
    except DataError as error:
        if path not in error.message:
            error.inside(f"--against {name}")
        raise
