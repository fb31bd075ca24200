"""Runs whose files are read and written by tasks, compared with runs in one process, and files for both."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import GrpoError
from grpo_cli.guests.audit import run as audit
from grpo_cli.runs import compute_files, inspect, on_ray
from grpo_cli.runs.compute_files import Job
from grpo_cli.runs.on_ray import OnRay
from grpo_cli.runs.progress import HERE
from grpo_cli.stats.document import document
from grpo_cli.stats.inspection import Inspection
from tests.support.jobs import inspect_job, job

ROWS = 100


@dataclass
class Process:
    """A cluster that is this process: arguments and results are pickled, as on their way between machines."""

    tasks: list[Callable[..., Any]]  # that have run
    processors = 2

    def put(self, value: Any) -> Any:
        return value

    def run(self, work: Any, calls: Iterable[Sequence[Any]]) -> Iterator[Any]:
        for arguments in calls:
            self.tasks.append(work)
            yield pickle.loads(pickle.dumps(work(*pickle.loads(pickle.dumps(arguments)))))  # noqa: S301

    def refuse_unseen(self, pins: Any, folders: Any) -> None:
        pass


def without_ray(monkeypatch: pytest.MonkeyPatch) -> list[Callable[..., Any]]:
    """Run the tasks of runs on Ray in this process; return a list to which each task is added."""
    tasks = list[Any]()

    @contextmanager
    def connected(address: str | None, *, verbose: bool) -> Iterator[Process]:
        yield Process(tasks)

    monkeypatch.setattr(on_ray, "connected", connected)
    return tasks


@cache
def rows(count: int = 600, groups: int = 75, *, binary: bool = False, seed: int = 0) -> pl.DataFrame:
    """Rows in random order, with every column that some method reads; a rollout has several rows of one group."""
    draw = random.Random(seed)  # noqa: S311 - any rows do
    values = (0.0, 1.0) if binary else (0.0, 0.25, 0.5, 1.0, 0.1, 0.7)

    def some(*choices: Any) -> list[Any]:
        return draw.choices(choices, k=count)

    return pl.DataFrame(
        {
            "prompt_id": some(*(f"p{group}" for group in range(groups))),
            "reward": some(*values),
            "other": some(0.0, 0.5, 1.0, None),
            "length": some(*range(1, 41)),
            "logprob": [-draw.random() for _ in range(count)],
            "baseline": some(0.0, 0.5, 1.0),
            "references": some([0.25], [0.5, 0.1], [0.9, 0.3, 0.7], [0.6, 0.2, 0.8, 0.4]),
            "kl": [draw.random() for _ in range(count)],
            "truncated": some(*([False] * 4 + [True])),
            "rollout": some(0, 1, 2),
            "state": some("s", "t"),
            "step_reward": [draw.random() for _ in range(count)],
            "role": some("solver", "critic"),
            "input_length": some(*range(10)),
            "turns": some(1, 2, 3),
            "text": [f"response {at}" for at in range(count)],
        }
    )


def shards(folder: Path, frame: pl.DataFrame, files: int = 5, suffix: str = "parquet") -> Path:
    """The rows in several files of different lengths."""
    folder.mkdir()
    cuts = [0, *sorted(random.Random(files).sample(range(1, len(frame)), files - 1)), len(frame)]  # noqa: S311
    for at, (start, end) in enumerate(itertools.pairwise(cuts)):
        part = frame[start:end]
        path = folder / f"shard_{at}.{suffix}"
        if suffix == "parquet":
            part.write_parquet(path, row_group_size=max(1, len(part) // 2))
        else:
            part.write_ndjson(path)
    return folder


def options_of(method: str) -> dict[str, Any]:
    """The columns that a method needs, and what a batch is if it needs one."""
    plan = Plan.of({"estimator.name": method})
    columns = {ROLES[need].flag[2:].replace("-", "_"): need for need in plan.needs}
    return {**columns, "batch_by": "input"} if columns and plan.uses_batch else columns


def both(tmp_path: Path, source: Path, *, rows: int = ROWS, **options: Any) -> Mapping[str, Any]:
    """Compute in one process and with tasks of this many rows; compare outputs and facts, and return the facts."""
    local = compute_files.run(_job(source, tmp_path / "local", options)).facts
    with on_tasks(rows) as workers:
        by_tasks = compute_files.run(_job(source, tmp_path / "tasks", options), workers=workers).facts
    same_files(tmp_path / "local", tmp_path / "tasks")
    assert local is not None
    assert by_tasks is not None
    same_facts(document(local), document(by_tasks))
    return document(by_tasks)


def both_inspected(source: Path, *, rows: int = ROWS, **options: Any) -> dict[str, Any]:
    """Inspect in one process and with tasks; compare the facts, and return them."""
    given = {"group_within": "input", **options}
    job = inspect_job(source, **{name: value for name, value in given.items() if value is not None})
    with on_tasks(rows) as workers:
        local = inspect.run(job)
        by_tasks = inspect.run(job, workers=workers)
    assert isinstance(local, Inspection)
    assert isinstance(by_tasks, Inspection)
    assert local.groups.equals(by_tasks.groups)
    assert local.facts == by_tasks.facts
    return document(by_tasks.facts)


def both_audited(job: audit.Job, *, rows: int = ROWS) -> dict[str, Any]:
    """Audit in one process and with tasks; compare the facts, or the errors, and return them."""
    found = list[dict[str, Any]]()
    with on_tasks(rows) as workers:
        for own in (HERE, workers):
            try:
                found.append(document(audit.run(job, workers=own)))
            except GrpoError as error:
                found.append({"error": str(error)})
    assert found[0] == found[1]
    return found[1]


def errors(tmp_path: Path, source: Path, *, rows: int = ROWS, **options: Any) -> GrpoError:
    """The error of one process, which a run with tasks raises as well; neither writes anything."""
    with pytest.raises(GrpoError) as local:
        compute_files.run(_job(source, tmp_path / "local", options))
    with on_tasks(rows) as workers, pytest.raises(GrpoError) as by_tasks:
        compute_files.run(_job(source, tmp_path / "tasks", options), workers=workers)
    assert str(local.value) == str(by_tasks.value)
    assert type(local.value) is type(by_tasks.value)
    assert not [path for folder in ("local", "tasks") for path in (tmp_path / folder).glob("*")]
    return by_tasks.value


@contextmanager
def on_tasks(rows: int = ROWS) -> Iterator[OnRay]:
    """Workers whose tasks have at least this many rows."""
    with on_ray.on_ray(None) as workers:
        workers.rows = rows
        yield workers


def _job(source: Path, to: Path, options: Mapping[str, Any]) -> Job:
    given = {"group_within": "input", **options, "output": f"{to}/"}
    return job(source, **{name: value for name, value in given.items() if value is not None})


def same_files(one: Path, other: Path) -> None:
    """Compare names and bytes in both folders."""

    def content(top: Path) -> dict[Path, bytes]:
        paths = [path for path in top.rglob("*") if path.is_file() and path.name[0] != "."]
        return {path.relative_to(top): path.read_bytes() for path in paths}

    assert content(one)
    assert content(one) == content(other)


def same_facts(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Compare all facts except times and paths."""

    def comparable(facts: Mapping[str, Any]) -> dict[str, Any]:
        folders = {str(Path(name).parent) for name in facts["outputs"]}
        warnings = facts["warnings"]
        for folder in folders:
            warnings = [warning.replace(folder, "") for warning in warnings]
        return {**facts, "seconds": 0, "outputs": [], "warnings": warnings}

    assert comparable(one) == comparable(other)
