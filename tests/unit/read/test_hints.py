"""What an error offers if a reward or a key was not found: flags that work when they are copied."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from grpo_cli.errors import DataError
from tests.support.jobs import look, write

if TYPE_CHECKING:
    from collections.abc import Sequence

Rows = list[dict[str, Any]]


def error_of(path: Path, **options: Any) -> DataError:
    with pytest.raises(DataError) as raised:
        look(path, **options)
    return raised.value


def flags(text: str) -> dict[str, list[str]]:
    """The first ready flag of each kind in a message, as options of a run."""
    words = re.findall(r"--(group|reward) ('[^']+'|[\w.]+)", text)
    found: dict[str, list[str]] = {}
    for name, value in words:
        if value != "NAME":
            found.setdefault(name, shlex.split(value))
    return found


def attempts(count: int = 4) -> Rows:
    return [
        {
            "case_id": f"c{k}",
            "attempts": [{"n_tokens": 3, "grading": {"n_correct": 2, "score": j / 2, "extracted_value": 7}} for j in range(3)],
        }
        for k in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "group", "reward"),
    [
        (attempts(), "case_id", "attempts[].grading.score"),
        ([{"task": f"c{k // 2}", "run": {"tests": {"n_tests": 4, "passed": k % 2 > 0}}} for k in range(8)], "task", "run.tests.passed"),
        ([{"case_id": f"c{k // 2}", "passed": bool(k % 2)} for k in range(8)], "case_id", "passed"),
        ([{"case_id": f"c{k // 2}", "tests_passed": k % 2} for k in range(8)], "case_id", "tests_passed"),
        ([{"task": f"c{k % 2}", "out": None if k < 3 else {"is_success": True}} for k in range(6)], "task", "out.is_success"),
        ([{"meta": {"task_id": k // 2}, "eval": json.dumps({"num_correct": 1, "correct": k % 2})} for k in range(8)], "meta.task_id", "eval.correct"),
        ([{"task": k, "metrics": {"score": 0.5, "is_success": [True, False]}} for k in range(4)], "task", "metrics.is_success"),
        ([{"task": k // 2, "log": {"frac_score": 1, "score_std": 1, "value": 2, "solved": k % 2}} for k in range(4)], "task", "log.solved"),
    ],
)  # fmt: skip
def test_a_file_whose_reward_was_not_found_gets_flags_that_work(rows: Rows, group: str, reward: str) -> None:
    path = write("x.jsonl", rows)
    found = flags(error_of(path).hint)
    assert found == {"group": [group], "reward": [reward]}
    assert look(path, **found, missing="exclude").facts["groups"] > 1


@pytest.mark.parametrize(
    "name", ["n_correct", "num_passed", "reward_std", "std", "extracted_value", "frac_reward_zero_std"]
)
def test_counts_and_deviations_are_no_rewards(name: str) -> None:
    assert "such as" not in error_of(write("x.jsonl", [{"a": {name: 1.0}}] * 2)).hint
    Path("x.json").write_text(json.dumps({"results": [{name: 1.0, "is_ok_score": 1}] * 3}))
    assert "--reward 'results[].is_ok_score' reads them" in error_of(Path("x.json")).message


def test_a_document_names_the_reward_that_is_two_levels_inside() -> None:
    problems = [{"task_id": f"t{k}", "attempts": [{"success": True}, {"success": False}]} for k in range(3)]
    Path("x.json").write_text(json.dumps({"run": 1, "problems": problems}, indent=1))
    message = error_of(Path("x.json")).message
    assert "its problems is a list of 3: --reward 'problems[].attempts[].success' reads them" in message
    assert look("x.json", **flags(message)).facts["groups"] == 3


@pytest.mark.parametrize(
    "name", ["attempts.grading.score", "score", "attempts.score", "attempts[].grade.score", "reward"]
)
def test_a_wrong_reward_gets_the_numbers_inside_of_records(name: str) -> None:
    path = write("x.jsonl", attempts())
    error = error_of(path, reward=[name])
    assert error.hint.startswith("did you mean --reward 'attempts[].grading.score'")
    assert look(path, reward=flags(error.hint)["reward"]).facts["groups"] == 4


def test_a_wrong_reward_is_found_inside_of_parquet_as_well() -> None:
    pl.DataFrame(attempts()).write_parquet("x.parquet")
    error = error_of(Path("x.parquet"), reward=["score"])
    assert error.hint.startswith("did you mean --reward 'attempts[].grading.score'")
    assert "the file is one record" not in error_of(Path("x.parquet")).message


@pytest.mark.parametrize(
    ("group", "meant"), [("task", "did you mean --group metadata.task_id?"), ("infos", "did you mean 'info'?")]
)
def test_a_wrong_key_gets_its_likes(group: str, meant: str) -> None:
    rows = [{"metadata": {"task_id": at // 2}, "info": "x", "reward": at % 2} for at in range(8)]
    assert meant in error_of(write("x.jsonl", rows), group=[group]).hint


@pytest.mark.parametrize("as_document", [False, True])
def test_a_log_of_training_steps_is_said_to_be_one(as_document: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter of the test
    steps: Sequence[Any] = [
        {"step": k, "loss": 0.1, "reward": 0.4, "reward_std": 0.2, "learning_rate": 1e-6} for k in range(5)
    ]
    path = tmp_path / ("trainer_state.json" if as_document else "metrics.jsonl")
    if as_document:
        path.write_text(json.dumps({"log_history": steps}, indent=1))
    else:
        write(path, steps)
    error = error_of(path)
    assert error.hint.endswith("(loss, learning_rate, reward_std): advantages need the rollouts behind their means")
    assert not flags(str(error))
