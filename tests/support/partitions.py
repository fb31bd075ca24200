"""Runs in partitions beside runs of one process, and the shards that both read."""

from __future__ import annotations

import itertools
import json
import pickle
import random
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from grpo_cli.engine.plan import Plan
from grpo_cli.errors import GrpoError
from grpo_cli.runs import compute_files, compute_ray, inspect, inspect_ray, ray_stages
from grpo_cli.runs.ray_stages import RayOptions
from tests.support.jobs import inspect_job, job

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from grpo_cli.runs.compute_files import Job

ROLES = (
    "length", "logprob", "baseline", "references", "kl", "truncated", "rollout", "state", "step_reward", "role",
    "input_length", "turns",
)  # fmt: skip


class Process:
    """A cluster that is this process: arguments and results are pickled, as on their way between machines."""

    processors = 2

    def put(self, value: Any) -> Any:
        return value

    def run(self, work: Any, calls: Iterable[Sequence[Any]], returns: int = 1) -> Iterator[tuple[Any, list[Any]]]:
        for arguments in calls:
            found = pickle.loads(pickle.dumps(work(*pickle.loads(pickle.dumps(arguments)))))  # noqa: S301
            if returns == 1:
                yield found, []
            else:
                assert len(found) == returns
                yield found[0], list(found[1:])

    def refuse_unseen(self, pins: Any, folders: Any) -> None:
        pass


def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs on Ray do their tasks in this process."""

    @contextmanager
    def connected(address: str | None, *, verbose: bool) -> Iterator[Process]:
        yield Process()

    monkeypatch.setattr(ray_stages, "connected", connected)


@cache
def rows(count: int = 600, groups: int = 75, *, binary: bool = False, seed: int = 0) -> pl.DataFrame:
    """Rows in any order, with all that some method reads; rollouts of three rows lie inside of their group."""
    draw = random.Random(seed)  # noqa: S311 - any rows do
    of = [draw.randrange(groups) for _ in range(count)]
    values = (0.0, 1.0) if binary else (0.0, 0.25, 0.5, 1.0, 0.1, 0.7)
    return pl.DataFrame(
        {
            "prompt_id": [f"p{one}" for one in of],
            "reward": [draw.choice(values) for _ in of],
            "other": [draw.choice([0.0, 0.5, 1.0, None]) for _ in of],
            "length": [draw.randint(1, 40) for _ in of],
            "logprob": [-draw.random() for _ in of],
            "baseline": [draw.choice([0.0, 0.5, 1.0]) for _ in of],
            "references": [[draw.random() for _ in range(draw.randint(1, 4))] for _ in of],
            "kl": [draw.random() for _ in of],
            "truncated": [draw.random() < 0.2 for _ in of],
            "rollout": [draw.randrange(3) for _ in of],
            "state": [draw.choice("st") for _ in of],
            "step_reward": [draw.random() for _ in of],
            "role": [draw.choice(["solver", "critic"]) for _ in of],
            "input_length": [draw.randint(0, 9) for _ in of],
            "turns": [draw.randint(1, 3) for _ in of],
            "text": [f"response {at}" for at in range(count)],
        }
    )


def shards(folder: Path, frame: pl.DataFrame, files: int = 5, suffix: str = "parquet") -> Path:
    """The rows in several files of different lengths."""
    folder.mkdir()
    cuts = [0, *sorted(random.Random(files).sample(range(1, len(frame)), files - 1)), len(frame)]  # noqa: S311
    for at, (start, end) in enumerate(itertools.pairwise(cuts)):
        part, path = frame[start:end], folder / f"shard_{at}.{suffix}"
        if suffix == "parquet":
            part.write_parquet(path, row_group_size=max(1, len(part) // 2))
        elif suffix == "jsonl":
            part.write_ndjson(path)
        else:
            part.select(name for name in part.columns if name != "references").write_csv(path)
    return folder


def options_of(method: str) -> dict[str, Any]:
    """The columns that a method needs."""
    needs = {*Plan.of({"estimator.name": method}).needs}
    flags = {"references": "reference_column", "rollout": "rollout"}
    return {flags.get(name, f"{name}_column"): name for name in ROLES if name in needs}


def both(
    tmp_path: Path,
    source: Path,
    *,
    partitions: int = 4,
    exact: bool = True,
    warnings_differ: bool = False,
    **options: Any,
) -> Mapping[str, Any]:
    """Compute with one process and in partitions; compare outputs and summaries, and return the summary of the latter."""
    local = compute_files.run(_job(source, tmp_path / "local", options)).facts
    parted = compute_ray.run(_job(source, tmp_path / "parted", options), ray=RayOptions(partitions=partitions))
    same_files(tmp_path / "local", tmp_path / "parted", exact=exact)
    same_facts(local, parted, "warnings" if warnings_differ else "seconds")
    return parted


def both_inspected(source: Path, *, partitions: int = 4, **options: Any) -> dict[str, Any]:
    """Inspect in one process and in partitions; compare the facts, and return those of the latter."""
    given = {"group_within": "input", **options}
    job = inspect_job(source, **{name: value for name, value in given.items() if value is not None})
    local = dict(inspect.run(job).facts)
    parted = inspect_ray.run(job, ray=RayOptions(partitions=partitions))
    same_facts(local, parted)
    return parted


def errors(tmp_path: Path, source: Path, *, partitions: int = 4, **options: Any) -> tuple[GrpoError, GrpoError]:
    """What one process says of files that it refuses, and what the run in partitions says."""
    with pytest.raises(GrpoError) as local:
        compute_files.run(_job(source, tmp_path / "local", options))
    with pytest.raises(GrpoError) as parted:
        compute_ray.run(_job(source, tmp_path / "parted", options), ray=RayOptions(partitions=partitions))
    return local.value, parted.value


def _job(source: Path, to: Path, options: Mapping[str, Any]) -> Job:
    given = {"group_within": "input", **options, "output": f"{to}/"}
    return job(source, **{name: value for name, value in given.items() if value is not None})


def same_files(one: Path, other: Path, *, exact: bool = True) -> None:
    names = sorted(str(path.relative_to(one)) for path in one.rglob("*") if path.is_file() and path.name[0] != ".")
    assert names
    assert names == sorted(
        str(path.relative_to(other)) for path in other.rglob("*") if path.is_file() and path.name[0] != "."
    )
    for name in names:
        if exact:
            assert (one / name).read_bytes() == (other / name).read_bytes(), name
        else:
            first, second = (_advantages(folder / name) for folder in (one, other))
            assert len(first) == len(second)
            both_nan = np.isnan(first) & np.isnan(second)
            assert (both_nan | (np.abs(first - second) <= 1e-12 * np.maximum(1, np.abs(first)))).all(), name


def _advantages(path: Path) -> Any:
    if path.suffix == ".parquet":
        column = pl.read_parquet(path)["advantage"]
    else:
        column = pl.Series([json.loads(line)["advantage"] for line in path.read_text().splitlines()], dtype=pl.Float64)
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()


def same_facts(one: Mapping[str, Any], other: Mapping[str, Any], *but: str) -> None:
    """All facts but times and paths; floats to 1e-12."""
    assert {*one} == {*other}
    for name in one:
        if name not in {"seconds", "outputs", *but}:
            _same(name, one[name], other[name])


def _same(name: str, one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert {*one} == {*other}, name
        for key in one:
            _same(f"{name}.{key}", one[key], other[key])
    elif isinstance(one, list) and isinstance(other, list):
        assert len(one) == len(other), (name, one, other)
        for at, (first, second) in enumerate(zip(one, other, strict=True)):
            _same(f"{name}[{at}]", first, second)
    elif isinstance(one, float) and isinstance(other, float):
        assert abs(one - other) <= 1e-12 * max(1.0, abs(one)), (name, one, other)
    else:
        assert one == other, (name, one, other)
