"""What an error offers if a reward or a key was not found: where the numbers are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from grpo_cli.errors import DataError
from tests.support.jobs import look, write

Rows = list[dict[str, Any]]


def error_of(path: Path, **options: Any) -> DataError:
    with pytest.raises(DataError) as raised:
        look(path, **options)
    return raised.value


def numbers(text: str) -> list[str]:
    """The paths of numbers that a message lists."""
    _, found, listed = text.partition("numbers inside of records: ")
    return listed.partition(";")[0].split(", ") if found else []


def attempts(count: int = 4) -> Rows:
    return [
        {
            "case_id": f"c{k}",
            "attempts": [{"n_tokens": 3, "grading": {"n_correct": 2, "score": j / 2, "extracted_value": 7}} for j in range(3)],
        }
        for k in range(count)
    ]  # fmt: skip


ATTEMPTS = [
    "attempts[].n_tokens", "attempts[].grading.n_correct", "attempts[].grading.score", "attempts[].grading.extracted_value",
]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "group", "paths"),
    [
        (attempts(), "case_id", ATTEMPTS),
        ([{"task": f"c{k // 2}", "run": {"tests": {"n_tests": 4, "passed": k % 2 > 0}}} for k in range(8)], "task", ["run.tests.n_tests", "run.tests.passed"]),
        ([{"case_id": f"c{k // 2}", "passed": bool(k % 2)} for k in range(8)], "case_id", []),
        ([{"task": f"c{k % 2}", "out": None if k < 3 else {"is_success": True}} for k in range(6)], "task", ["out.is_success"]),
        ([{"task": k // 2, "eval": json.dumps({"right": k % 2, "why": "x"})} for k in range(8)], "task", ["eval.right"]),
        ([{"task": k, "metrics": {"is_success": [True, False], "none": []}} for k in range(4)], "task", ["metrics.is_success"]),
        ([{"task": k // 2, "chat": [{"role": "user", "tokens": 3}], "log": {"value": k % 2}} for k in range(4)], "task", ["log.value"]),
    ],
)  # fmt: skip
def test_a_file_whose_reward_was_not_found_gets_the_numbers_inside(rows: Rows, group: str, paths: list[str]) -> None:
    path = write("x.jsonl", rows)
    error = error_of(path)
    assert "no column looks like the group key or the reward" in error.message
    assert numbers(error.hint) == paths
    for reward in paths[-1:]:
        assert look(path, group=[group], reward=[reward], missing="exclude").facts["groups"] > 1


def test_a_document_names_the_list_of_its_rows_and_the_numbers_in_it() -> None:
    problems = [{"task_id": f"t{k}", "attempts": [{"success": True}, {"success": False}]} for k in range(3)]
    Path("x.json").write_text(json.dumps({"run": 1, "problems": problems}, indent=1))
    error = error_of(Path("x.json"))
    assert "its problems is a list of 3: --reward 'problems[].NAME' reads them" in error.message
    assert numbers(error.hint) == ["problems[].attempts[].success"]
    assert look("x.json", reward=numbers(error.hint)).facts["groups"] == 3


@pytest.mark.parametrize("name", ["attempts.grading.score", "score", "reward"])
def test_a_wrong_reward_gets_the_numbers_inside_of_records(name: str) -> None:
    path = write("x.jsonl", attempts())
    error = error_of(path, group=["case_id"], reward=[name])
    assert numbers(error.hint) == ATTEMPTS
    assert look(path, reward=["attempts[].grading.score"]).facts["groups"] == 4


def test_a_wrong_reward_is_found_inside_of_parquet_as_well() -> None:
    pl.DataFrame(attempts()).write_parquet("x.parquet")
    assert numbers(error_of(Path("x.parquet"), group=["case_id"], reward=["score"]).hint) == ATTEMPTS
    assert "the file is one record" not in error_of(Path("x.parquet")).message


def test_a_wrong_key_gets_its_like() -> None:
    rows = [{"metadata": {"task_id": at // 2}, "info": "x", "reward": at % 2} for at in range(8)]
    assert "did you mean 'info'?" in error_of(write("x.jsonl", rows), group=["infos"]).hint
