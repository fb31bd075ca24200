"""What an error offers if a reward or a key was not found: where the numbers are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.errors import DataError
from tests.support.jobs import look, write

# Four records of this, whose numbers are inside.
ATTEMPTS = """{"case_id": "c1", "attempts": [
    {"n_tokens": 3, "grading": {"n_correct": 2, "score": 0.0, "extracted_value": 7}},
    {"n_tokens": 3, "grading": {"n_correct": 2, "score": 0.5, "extracted_value": 7}}
]}"""
IN_ATTEMPTS = (
    "attempts[].n_tokens, attempts[].grading.n_correct, attempts[].grading.score, attempts[].grading.extracted_value"
)


def attempts() -> list[Any]:
    return [json.loads(ATTEMPTS.replace("c1", key)) for key in ("c1", "c2", "c3", "c4")]


def error_of(path: Path, **options: Any) -> DataError:
    with pytest.raises(DataError) as raised:
        look(path, **options)
    return raised.value


def numbers(error: DataError) -> str:
    """The paths of numbers that a message lists."""
    return error.hint.partition("numbers inside of records: ")[2].partition(";")[0]


@pytest.mark.parametrize(
    ("lines", "group", "paths"),
    [
        (
            """{"task": "a", "run": {"tests": {"n_tests": 4, "passed": false}}}
               {"task": "b", "run": {"tests": {"n_tests": 4, "passed": true}}}
               {"task": "b", "run": {"tests": {"n_tests": 4, "passed": true}}}""",
            "task",
            "run.tests.n_tests, run.tests.passed",
        ),
        (
            """{"case_id": "a", "ok": false}
               {"case_id": "b", "ok": true}""",
            "case_id",
            "",
        ),
        (
            """{"task": "a", "out": null}
               {"task": "b", "out": {"is_success": true}}
               {"task": "b", "out": {"is_success": true}}""",
            "task",
            "out.is_success",
        ),
        (
            r"""{"task": 1, "eval": "{\"right\": 1, \"why\": \"x\"}"}
               {"task": 2, "eval": "{\"right\": 0, \"why\": \"x\"}"}""",
            "task",
            "eval.right",
        ),
        (
            """{"task": 1, "metrics": {"is_success": [true, false], "none": []}}
               {"task": 2, "metrics": {"is_success": [true, false], "none": []}}""",
            "task",
            "metrics.is_success",
        ),
        (
            """{"task": 1, "chat": [{"role": "user", "tokens": 3}], "log": {"value": 0}}
               {"task": 2, "chat": [{"role": "user", "tokens": 3}], "log": {"value": 1}}""",
            "task",
            "log.value",
        ),
    ],
)
def test_a_file_whose_reward_was_not_found_gets_the_numbers_inside(lines: str, group: str, paths: str) -> None:
    path = Path("x.jsonl")
    path.write_text(lines)
    error = error_of(path)
    assert "no column looks like the group key or the reward" in error.message
    assert numbers(error) == paths
    if paths:
        found = look(path, group=[group], reward=paths.split(", ")[-1:], missing="exclude", singleton="zero")
        assert found.facts["groups"] == 2


def test_a_document_names_the_list_of_its_rows_and_the_numbers_in_it() -> None:
    path = Path("x.json")
    path.write_text("""{"run": 1, "problems": [
        {"task_id": "t0", "attempts": [{"success": true}, {"success": false}]},
        {"task_id": "t1", "attempts": [{"success": true}, {"success": false}]}
    ]}""")
    error = error_of(path)
    assert "its problems is a list of 2: --reward 'problems[].NAME' reads them" in error.hints[0]
    assert numbers(error) == "problems[].attempts[].success"
    assert look(path, reward=[numbers(error)]).facts["groups"] == 2


@pytest.mark.parametrize("name", ["attempts.grading.score", "score", "reward"])
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_wrong_reward_gets_the_numbers_inside_of_records(suffix: str, name: str) -> None:
    path = write(f"x.{suffix}", attempts())
    error = error_of(path)
    assert numbers(error) == IN_ATTEMPTS
    assert "the file is one record" not in error.message
    assert numbers(error_of(path, group=["case_id"], reward=[name])) == IN_ATTEMPTS
    assert look(path, reward=["attempts[].grading.score"]).facts["groups"] == 4
