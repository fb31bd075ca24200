"""`inspect --against` and `report --against`: earlier runs are read like the newest one, and compared with it.

The same rollouts with another reward are no other run: their texts show it, and a warning names `--old-rewards`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import polars as pl

from grpo_cli.choosing.groups import holding
from grpo_cli.errors import DataError, UnknownName, UsageError, Way
from grpo_cli.options.conditions import Filter
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import refuse_beside
from grpo_cli.read.tables import column_names
from grpo_cli.read.texts import plain_texts
from grpo_cli.runs import inspect
from grpo_cli.runs.asked import condition_of, draws_of, made
from grpo_cli.runs.progress import HERE, Workers
from grpo_cli.stats.against import LISTED, listed, matched
from grpo_cli.stats.inspection import Inspection
from grpo_cli.stats.runs import Difference, Runs, compared
from grpo_cli.stats.verdicts import with_other
from grpo_cli.values.paths import is_there
from grpo_cli.write.write_outputs import Phase

COMPARED = 32  # prompts whose texts are compared
MOST = 2_000  # rows of them
LONG = 20  # characters of a text that is not equal in two runs by chance, as a letter or a number may be
FEWEST = 4  # such texts
ALIKE = 0.9  # of them, if the rollouts are the same
OF_PROMPTS = ("where", "sort", "top")  # options that choose prompts where runs are compared, and groups elsewhere


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Which of the prompts that both runs have are listed."""

    where: Filter | None = None  # only those whose change meets it
    sort: str | None = None  # the fact that they are ordered by; None: the change, without those that have none
    top: int = LISTED  # how many at either end

    @classmethod
    def of(cls, given: Given) -> Self:
        """What options ask for."""
        inspect.refuse_negative_top(given)
        return made(cls, given, where=condition_of(given, "where"))

    def among(self, table: Runs, columns: Collection[str]) -> Runs:
        """The runs with the prompts that are chosen of each difference; an error knows the `columns` of rows."""
        return replace(table, differences=[self._of(one, columns) for one in table.differences])

    def _of(self, difference: Difference, columns: Collection[str]) -> Difference:
        every = difference.every
        numeric = [fact.name for fact in every if fact.dtype.is_numeric()]
        if self.sort is not None and self.sort not in numeric:
            raise UnknownName.among("fact of a change", self.sort, numeric)
        if self.where is not None:
            for name in self.where.names:
                if name not in every.columns:
                    raise _unknown(name, every.columns, columns)
            every = every.filter(pl.Series(holding(every, self.where)))
        if self.sort is not None:
            every = every.sort(self.sort, descending=True, nulls_last=True, maintain_order=True)
        return replace(difference, every=every, changed=listed(every, self.sort, self.top))


def _unknown(name: str, known: Collection[str], columns: Collection[str]) -> UnknownName:
    """The error for a name that is no fact of a change."""
    if name in columns:
        cure = Way("--rows", lead="a condition on rows, such as this one, is", fill="'CONDITION'")
        return UnknownName(f"{name} is a column of rows, and --where is about the changes of prompts", cure)
    return UnknownName.among("fact of a change", name, known)


@dataclass(frozen=True, kw_only=True)
class Job(inspect.Job):
    """Which runs to compare, and how."""

    draws: Sequence[int] = ()  # the numbers of --pass-at: rollouts drawn from each prompt
    chosen: Chosen = field(default_factory=Chosen)  # which prompts are listed

    @classmethod
    def of(cls, given: Given, **more: Any) -> Self:
        """What options ask for; `more` are further fields."""
        refuse_beside("before", given, "rescored", "rescored_column")
        chosen = Chosen.of(given)
        job = super().of(given.without(OF_PROMPTS), draws=draws_of(given) or (), chosen=chosen, **more)
        if job.name in job.earlier:
            cure = f"give them names: --against NAME={job.earlier[job.name]}"
            raise UsageError(f"two runs are called {job.name}", cure)
        return job


def run(job: Job, phase: Phase = lambda *_: None, workers: Workers = HERE) -> Inspection:
    """Inspect the newest run, and compare the earlier ones with it."""
    now = inspect.run(job, phase, workers)
    runs = {name: _earlier(job, name, phase, workers) for name in job.earlier}
    table = compared({**runs, job.name: now}, job.draws)
    table = job.chosen.among(table, column_names(now.narrow.tables))
    table = with_same_rollouts(table, now, runs)
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


def with_same_rollouts(table: Runs, now: Inspection, earlier: Mapping[str, Inspection]) -> Runs:
    """The runs, with a warning for each earlier one whose rollouts are those of the newest run."""
    warnings = []
    for name, before in earlier.items():
        same, known = _same_texts(now, before)
        if known >= FEWEST and same >= ALIKE * known:
            what = f"{name} has the same responses as {table.newest.name} ({same:,} of {known:,} that were compared)"
            warnings.append(f"{what}: two rewards of the same rollouts are compared by --old-rewards")
    return replace(table, warnings=[*table.warnings, *warnings])


def _same_texts(now: Inspection, before: Inspection) -> tuple[int, int]:
    """How many long texts of some prompts the same prompt of the other run has as well, and how many there are."""
    column = now.columns.get("text", "")
    if not column or not all(is_there(column, table.columns()) for run in (now, before) for table in run.narrow.tables):
        return 0, 0
    pair = matched(now, before)
    prompts = pair.both["key"].head(COMPARED)  # not one here and one there: all of a large file would be read
    texts = []
    for run, keys in zip(pair.runs, pair.keys, strict=True):
        of_rows = keys["key"].gather(run.narrow.table["group"])
        rows = np.flatnonzero(of_rows.is_in(prompts.implode()).to_numpy())[:MOST]
        texts.append([*zip(of_rows.gather(rows), plain_texts(run.narrow, rows, column), strict=True)])
    long = [each for each in texts[0] if len(each[1] or "") >= LONG]
    there = {*texts[1]}
    return sum(each in there for each in long), len(long)
