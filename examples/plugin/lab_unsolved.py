"""The steps of `grpo-adv lab-unsolved`: from the options to a job, from the job to facts, from facts to lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from rich.console import Console

import grpo_cli


@dataclass(frozen=True)
class Unsolved:
    """What is found; `--json` prints the fields."""

    file: str
    groups: int
    unsolved: Sequence[Mapping[str, Any]]  # key and number of rollouts of each


@dataclass(frozen=True)
class Job:
    """What is asked for."""

    file: str
    reading: Mapping[str, Any]  # options of `grpo_cli.inspect`
    solved_above: float = 0.0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Job:
        """The job of the options, by their names; those that were not given are absent."""
        reading = {name: given[name] for name in ("group", "reward", "schema") if name in given}
        return cls(given["file"], reading, given.get("solved_above", 0.0))


def run(job: Job, phase: Callable[..., None]) -> Unsolved:
    """Do the job; a terminal shows the phase."""
    phase("reading")
    groups = grpo_cli.inspect(job.file, **job.reading).groups
    key = groups.columns[: groups.columns.index("size")]
    unsolved = groups.filter(pl.col("max") <= job.solved_above).select(*key, "size")
    return Unsolved(job.file, groups.height, unsolved.to_dicts())


def show(facts: Unsolved, console: Console) -> None:
    """Print the facts."""
    console.print(f"{len(facts.unsolved)} of {facts.groups} groups are unsolved")
    for row in facts.unsolved:
        *key, size = row.values()
        console.print(f"  {', '.join(map(str, key))} ({size} rollouts)", markup=False)
