"""Runs of the tool on files and frames, with options by the names that the command line knows."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import grpo_cli
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import Scored, score
from grpo_cli.errors import DataError
from grpo_cli.files.kept import keeping
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import normalized
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.open_tables import find_inputs, open_tables
from grpo_cli.read.tables import Binding, FileTable
from grpo_cli.runs import compute_files, inspect, select
from grpo_cli.runs.compute_files import Job, run
from grpo_cli.stats.document import document
from grpo_cli.stats.inspection import Inspection
from grpo_cli.write.write_outputs import Computed
from tests.support.bad_files import zst
from tests.support.battery import Row, narrow

NAN = float("nan")
ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_data"


def given(options: Mapping[str, Any]) -> Given:
    return Given(normalized(name, value) for name, value in options.items())


def job(*inputs: Path | str, **options: Any) -> Job:
    return Job.of(Given(given(options), inputs=[*map(str, inputs)]))


@dataclass(frozen=True)
class Seen:
    """What a run has done: its facts as a document, and its parts; without --plan-by there is one."""

    facts: dict[str, Any]
    parts: Sequence[Computed]

    @property
    def scored(self) -> Scored:
        return self.parts[0].scored

    @property
    def narrow(self) -> Narrow:
        return self.parts[0].narrow


def compute(*inputs: Path | str, phase: Callable[..., None] = lambda *_: None, **options: Any) -> Seen:
    with keeping():
        done = run(job(*inputs, **options), phase)
    return Seen(facts={} if done.facts is None else document(done.facts), parts=done.parts)


def look(*inputs: Path | str, **options: Any) -> Seen:
    """What `compute` would do, without writing."""
    return compute(*inputs, explain=True, **options)


def refused(*inputs: Path | str, **options: Any) -> str:
    """What is said of inputs with which no run begins."""
    with pytest.raises(DataError) as raised:
        look(*inputs, **options)
    return str(raised.value)


def inspect_job(*inputs: Path | str, by_steps: bool = False, **options: Any) -> inspect.Job:
    job = inspect.Job.of(given(options).to_command("inspect"), inputs=[str(path) for path in inputs])
    return replace(job, view=replace(job.view, by_steps=by_steps))


def inspected(path: Path | str, **options: Any) -> Inspection:
    """What `inspect` knows of a file."""
    return inspect.run(inspect_job(path, **options))


def selected(path: Path | str, **options: Any) -> dict[str, Any]:
    """What `select` says of a file."""
    with keeping():
        return document(select.run(select.Job.of(Given(given(options), inputs=[str(path)]))))


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], module: ModuleType = compute_files, step: str = "score"
) -> None:
    """Do something between the two readings of a run."""
    before = module.__dict__[step]

    def stepped(*args: Any, **more: Any) -> Any:
        act()
        return before(*args, **more)

    monkeypatch.setattr(module, step, stepped)


def samples_in(folder: Path) -> None:
    """Copy the sample data as it is in the repository, without what somebody computed beside it."""
    shutil.copytree(SAMPLES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.advantages.*", "__*"))


def write(path: Path | str, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows in the format of the suffix: Parquet in row groups of three, lines of JSON for any other suffix."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as handle:  # polars knows no name that is not UTF-8
        match path.suffix:
            case ".json":
                handle.write(json.dumps(rows).encode())
            case ".csv" | ".tsv":
                texts = [{name: json.dumps(v) if isinstance(v, list) else v for name, v in row.items()} for row in rows]
                pl.DataFrame(texts).write_csv(handle, separator="," if path.suffix == ".csv" else "\t")
            case ".parquet":
                pl.DataFrame(rows).write_parquet(handle, row_group_size=3)
            case ".arrow":
                pl.DataFrame(rows).write_ipc(handle)
            case suffix:
                lines = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
                handle.write(gzip.compress(lines) if suffix == ".gz" else zst(lines) if suffix == ".zst" else lines)
    return path


def opened(*paths: Path | str) -> list[FileTable]:
    """The tables of files; their columns have not been read yet."""
    return open_tables(find_inputs([str(path) for path in paths])[0], Binding())


def rows_of(path: Path | str, columns: list[str] | None = None) -> list[dict[str, Any]]:
    """The rows of a file in the format of its suffix, by readers that are not ours.

    A column of CSV is of numbers if all of its cells are. A table may have columns of types that Python does not have,
    and is read without them if `columns` does not name them.
    """
    path = Path(path)
    match path.suffix:
        case ".json":
            rows: list[dict[str, Any]] = json.loads(path.read_bytes())
        case ".csv" | ".tsv":
            separator = "," if path.suffix == ".csv" else "\t"
            rows = pl.read_csv(path, separator=separator, infer_schema_length=None).to_dicts()
        case ".parquet":
            rows = pq.read_table(path, columns=columns).to_pylist()
        case ".arrow":
            rows = feather.read_table(path, columns=columns).to_pylist()
        case _:
            rows = [json.loads(line) for line in pa.input_stream(str(path), compression="detect").read().splitlines()]
    return rows


def grouped(rows: Sequence[Any], *keys: str) -> dict[tuple[Any, ...], list[Any]]:
    """The rows of each group, in order of first appearance."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def frame(rewards: Sequence[Any], groups: Sequence[Any] | None = None, **columns: Sequence[Any]) -> pl.DataFrame:
    keys = pl.Series("prompt_id", groups if groups is not None else [0] * len(rewards))
    return pl.DataFrame([keys, pl.Series("reward", rewards), *(pl.Series(name, v) for name, v in columns.items())])


def advantages(rewards: Sequence[Any], groups: Sequence[Any] | None = None, **options: Any) -> list[float | None]:
    """The advantages of rewards in these groups (default: one group)."""
    return list(grpo_cli.advantages(frame(rewards, groups), **options))


def of_plan(plan: Plan, *groups: Sequence[float | None]) -> list[float | None]:
    """The advantages of groups of rewards, one group after the other; all responses have two tokens."""
    rows = [
        Row(group=f"{at}", reward=0.0, rewards=(reward,), length=2)
        for at, group in enumerate(groups)
        for reward in group
    ]
    table = narrow(rows).drop({"rollout", "role"} - {*plan.needs})
    return score(plan, table).frame[".advantage"].to_list()


def near(wanted: Sequence[float | None]) -> list[Any]:
    """Equal up to rounding; None only to None, NaN only to NaN."""
    return [one if one is None else pytest.approx(one, rel=1e-12, abs=1e-12, nan_ok=True) for one in wanted]
