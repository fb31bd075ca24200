"""`--engine ray` without Ray: what is refused, and tasks that run in this process."""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.cli import compute as command
from grpo_cli.files.installation import install
from tests.support import ray_runs
from tests.support.command import adv, process, ran
from tests.support.jobs import rows_of

ROWS = '{"prompt_id": 1, "reward": 0}\n{"prompt_id": 1, "reward": 1}\n'


@pytest.fixture(autouse=True)
def _rows(place: Path) -> None:
    (place / "rows.jsonl").write_text(ROWS)


def test_without_the_package_one_line_names_the_extra() -> None:
    Path("ray.py").write_text("raise ImportError")  # `python -m` looks here first
    done = process("compute rows.jsonl --engine ray")
    assert done.status == 2
    assert done.err == f"error: --engine ray needs the package ray; {install('ray')}\n"


NO_RAY = "--ray-address needs a run on Ray; add --engine ray"
NO_FILE = "--engine ray reads files, and this is standard input"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("compute rows.jsonl --ray-address auto", NO_RAY), ("inspect rows.jsonl --ray-address auto", NO_RAY),
        ("audit rows.jsonl --ray-address auto", NO_RAY), ("compute - --engine ray", NO_FILE), ("inspect - --engine ray", NO_FILE),
        ("audit - --engine ray", NO_FILE), ("inspect rows.jsonl --against - --engine ray", NO_FILE),
        ("compute rows.jsonl --engine ray -o -", "--engine ray writes files from several processes"),
        ("compute rows.jsonl --engine ray --stream", "--stream reads standard input"),
        ("compute rows.jsonl --engine ray --on-error skip", "--on-error skip reads every line in this process"),
        ("select rows.jsonl --engine ray", "no option named '--engine'; see --help-all"),
    ],
)  # fmt: skip
def test_what_tasks_cannot_do_is_a_usage_error(line: str, said: str) -> None:
    done = adv(line, stdin=ROWS)
    assert done.status == 2
    assert done.out == ""
    assert done.err.startswith(f"error: {said}")


BY_FILES = "--group prompt_id --group-within input"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are only read."""
    made = tmp_path_factory.mktemp("engines")
    ray_runs.shards(made / "in", ray_runs.rows())
    ray_runs.shards(made / "before", ray_runs.rows(seed=1))
    ran(f"compute in {BY_FILES} -o scored/", cwd=made)
    return made


@pytest.mark.parametrize(
    "line",
    [
        "inspect in", "inspect in --json", "inspect in --show p3", "inspect in --show p3 --json", "inspect in --format csv",
        "inspect in --against before", "inspect in --rescored in",
        "inspect in --reward reward --reward other --combine normalize --json",
        "compute in --explain", "compute in --method ema --batch-by input --explain", "audit scored --json",
    ],
)  # fmt: skip
def test_both_engines_show_the_same(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray_runs.without_ray(monkeypatch)
    local, by_tasks = (adv(f"{line} {BY_FILES} {engine}", cwd=folder) for engine in ("", "--engine ray"))
    assert (local.status, local.err) == (by_tasks.status, by_tasks.err) == (0, "")
    without_time = [re.sub(r'"seconds": [0-9.]+', "", one.out) for one in (local, by_tasks)]
    assert without_time[0]
    assert without_time[0] == without_time[1]


def test_what_comes_through_a_pipe_of_the_shell_is_read_by_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ray_runs.without_ray(monkeypatch)
    os.mkfifo("pipe.jsonl")
    with subprocess.Popen(["sh", "-c", "cat rows.jsonl > pipe.jsonl"]):
        done = adv("compute pipe.jsonl -o out.jsonl -q --engine ray")
    assert done.status == 0
    assert done.err == ""
    assert len(rows_of("out.jsonl")) == 2


def test_the_progress_bar_is_gone_before_the_summary_of_a_run_on_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    ray_runs.without_ray(monkeypatch)
    steps = []

    @contextmanager
    def bar(_: Any) -> Any:
        yield lambda *_: None
        steps.append("gone")

    monkeypatch.setattr(command, "progress", bar)
    monkeypatch.setattr(command, "show", lambda *_, **__: steps.append("summary"))
    adv("compute rows.jsonl --engine ray")
    assert steps == ["gone", "summary"]
