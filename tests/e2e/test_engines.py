"""`--engine ray` without Ray: what is said before anything of it is needed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import partitions
from tests.support.command import adv, process

if TYPE_CHECKING:
    from pathlib import Path

ROWS = '{"prompt_id": 1, "reward": 0}\n{"prompt_id": 1, "reward": 1}\n'


def test_without_the_package_one_line_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    (tmp_path / "ray.py").write_text("raise ImportError")  # `python -m` looks here first
    done = process("compute", "rows.jsonl", "--engine", "ray", cwd=tmp_path)
    assert (done.status, done.err) == (
        2,
        "grpo-adv: --engine ray needs the package ray; pip install ray\n",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ray-address", "auto"], "--ray-address is about a cluster; add --engine ray"),
        (["--engine", "ray", "--method", "ema"], "ema depends on the order of the rows, and partitions have none"),
        (["--engine", "ray", "-o", "-"], "--engine ray writes files from several processes"),
        (["--engine", "ray", "--explain"], "--explain looks at all groups; leave out --engine ray"),
        (["--engine", "ray", "--stream"], "--stream reads standard input"),
        (["--engine", "ray", "--on-error", "skip"], "--on-error skip keeps what is left of a file in this process"),
        (["--engine", "ray", "--zero-variance", "drop", "--duplicate"], "--duplicate draws from all groups"),
    ],
)
def test_what_partitions_cannot_do_is_a_usage_error(words: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    done = adv("compute", "rows.jsonl", *words, cwd=tmp_path)
    assert done.status == 2
    assert said in done.err


@pytest.mark.parametrize("command", ["compute", "inspect", "audit"])
def test_standard_input_stays_with_one_process(command: str, tmp_path: Path) -> None:
    done = adv(command, "-", "--engine", "ray", cwd=tmp_path, stdin=ROWS)
    assert (done.status, done.out) == (2, "")
    assert "--engine ray reads files, and this is standard input" in done.err


@pytest.mark.parametrize("words", [["--show", "1"], ["--format", "csv"], ["--against", "rows.jsonl"]])
def test_single_groups_stay_on_the_cluster(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    done = adv("inspect", "rows.jsonl", "--engine", "ray", *words, cwd=tmp_path)
    assert (done.status, done.err) == (
        2,
        f"grpo-adv: {words[0]} needs the groups with their keys, which --engine ray leaves on the cluster; leave one of them out\n",
    )


def test_an_address_without_the_engine_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    for command in ("inspect", "audit"):
        done = adv(command, "rows.jsonl", "--ray-address", "auto", cwd=tmp_path)
        assert (done.status, done.err) == (2, "grpo-adv: --ray-address is about a cluster; add --engine ray\n")


def test_select_has_one_engine(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    done = adv("select", "rows.jsonl", "--engine", "ray", cwd=tmp_path)
    assert done.status == 2
    assert "select has no option --engine; it is one of compute, inspect, audit" in done.err


def test_an_inspection_shows_the_same_of_both_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions.without_ray(monkeypatch)
    folder = partitions.shards(tmp_path / "in", partitions.rows())
    words = ("inspect", folder.name, "--group", "prompt_id", "--group-within", "input")
    for more in ((), ("--json",)):
        local, parted = (adv(*words, *more, *engine, cwd=tmp_path) for engine in ((), ("--engine", "ray")))
        assert (parted.status, parted.err) == (0, "")
        if more:
            partitions.same_facts(json.loads(local.out), json.loads(parted.out))
        else:
            assert parted.out == local.out


def test_the_progress_bar_is_gone_before_the_summary_of_a_run_on_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import contextmanager

    from grpo_cli.cli import compute as command
    from grpo_cli.runs import compute_ray

    steps = []

    @contextmanager
    def bar(_: Any) -> Any:
        yield lambda *_: None
        steps.append("gone")

    monkeypatch.setattr(command, "progress", bar)
    monkeypatch.setattr(command, "on_ray", lambda _: object())
    monkeypatch.setattr(compute_ray, "run", lambda *_: {})
    monkeypatch.setattr(command, "show", lambda *_, **__: steps.append("summary"))
    adv("compute", "in.jsonl", "--engine", "ray", cwd=tmp_path)
    assert steps == ["gone", "summary"]
