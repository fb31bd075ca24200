"""`--engine ray` without Ray: what is said before anything of it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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


def test_standard_input_stays_with_one_process(tmp_path: Path) -> None:
    done = adv("compute", "-", "--engine", "ray", cwd=tmp_path, stdin=ROWS)
    assert (done.status, done.out) == (2, "")
    assert "--engine ray reads files, and this is standard input" in done.err


def test_inspect_has_one_engine(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    done = adv("inspect", "rows.jsonl", "--engine", "ray", cwd=tmp_path)
    assert (done.status, done.err) == (2, "grpo-adv: inspect has no option --engine; it is one of compute\n")
