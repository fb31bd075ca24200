"""The sample files are what the script writes, and have what their README promises."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from statistics import fmean

import polars as pl
import pytest

from tests.support.jobs import grouped, rows_of
from tests.support.samples import SAMPLES

SPEC = spec_from_file_location("sample_data_make", SAMPLES / "make.py")
assert SPEC is not None
assert SPEC.loader is not None
make = module_from_spec(SPEC)
sys.modules[SPEC.name] = make  # dataclasses look their module up
SPEC.loader.exec_module(make)


@pytest.fixture
def rewards() -> dict[str, list[float]]:
    groups = grouped(rows_of(SAMPLES / "rewards.jsonl"), "prompt_id")
    return {key: [row["reward"] for row in rows] for (key,), rows in groups.items()}


def test_the_files_are_the_bytes_that_the_script_makes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, SAMPLES / "make.py", tmp_path], check=True)
    for name in ("rewards.jsonl", "chats.jsonl", "steps.jsonl", "two_rewards.jsonl"):
        assert (tmp_path / name).read_bytes() == (SAMPLES / name).read_bytes(), name


def test_the_parquet_file_has_the_same_rows_in_several_row_groups() -> None:
    # Its bytes name the pyarrow that wrote them, so only the rows are compared.
    frame = pl.read_parquet(SAMPLES / "rewards.parquet")
    assert frame.to_dicts() == rows_of(SAMPLES / "rewards.jsonl")
    assert frame.columns == ["prompt_id", "sample", "reward", "length", "completion"]


def test_running_the_script_twice_gives_the_same_parquet_bytes(tmp_path: Path) -> None:
    for run in ("one", "two"):
        (tmp_path / run).mkdir()
        make.main(tmp_path / run)
    assert (tmp_path / "one/rewards.parquet").read_bytes() == (tmp_path / "two/rewards.parquet").read_bytes()


def test_a_completion_ends_with_the_answer_that_its_reward_is_for() -> None:
    tasks = {task.prompt_id: task for task in make.TASKS}
    for row in rows_of(SAMPLES / "rewards.jsonl"):
        task = tasks[row["prompt_id"]]
        # The longest, for the answer "2 3 5 7" also ends the answer "1 2 3 5 7".
        answer = max((a for a in task.sampled if row["completion"].endswith(a)), key=len)
        assert row["reward"] == task.reward(answer, task.truth)
        assert row["length"] == len(row["completion"].split())
        assert "\n" not in row["completion"]


@pytest.mark.parametrize(
    ("checker", "answer", "truth", "reward"),
    [
        ("exact", "42", "42", 1.0),
        ("exact", "042", "42", 0.0),
        ("letters_in_place", "abn", "aaabnn", 0.1667),  # only the first letter, of six
        ("letters_in_place", "sralpo", "sralop", 0.6667),
        ("overlap", "2 3 5 7", "2 3 5 7 11 13 17 19", 0.5),
        ("overlap", "1 2", "2 3", 0.3333),
    ],
)
def test_the_checkers_judge_as_they_say(checker: str, answer: str, truth: str, reward: float) -> None:
    assert getattr(make, checker)(answer, truth) == reward


def test_one_group_is_all_solved_one_all_failed_and_no_other_is_constant(rewards: dict[str, list[float]]) -> None:
    constant = {key: set(values) for key, values in rewards.items() if len(values) > 1 and len(set(values)) == 1}
    assert constant == {"multiply-6-7": {1.0}, "fibonacci-50": {0.0}}


def test_one_group_is_a_singleton_and_the_others_have_three_to_eight_rows(rewards: dict[str, list[float]]) -> None:
    sizes = {key: len(values) for key, values in rewards.items()}
    assert [key for key, size in sizes.items() if size == 1] == ["hex-255"]
    assert set(sizes.values()) == {1, 3, 4, 5, 6, 7, 8}


def test_some_groups_are_binary_and_some_are_graded(rewards: dict[str, list[float]]) -> None:
    graded = [key for key, values in rewards.items() if set(values) - {0.0, 1.0}]
    assert graded == ["reverse-polars", "primes-below-20", "sort-banana"]


def test_prompt_ids_return_in_every_step_and_the_reward_rises() -> None:
    steps = grouped(rows_of(SAMPLES / "steps.jsonl"), "step")
    assert [*steps] == [(0,), (1,), (2,), (3,)]
    assert {frozenset(row["prompt_id"] for row in rows) for rows in steps.values()} == {frozenset(make.PROGRESS)}
    means = [fmean(row["reward"] for row in rows) for rows in steps.values()]
    assert means == sorted(set(means))


def test_every_step_has_groups_to_learn_from() -> None:
    groups = grouped(rows_of(SAMPLES / "steps.jsonl"), "step", "prompt_id")
    mixed = {step for (step, _), rows in groups.items() if len({row["reward"] for row in rows}) > 1}
    assert mixed == {0, 1, 2, 3}


@pytest.mark.parametrize("name", ["accuracy", "format"])
def test_each_of_two_rewards_is_null_somewhere_and_absent_elsewhere(name: str) -> None:
    rows = rows_of(SAMPLES / "two_rewards.jsonl")
    assert any(name in row and row[name] is None for row in rows)
    assert any(name not in row for row in rows)


def test_no_row_lacks_both_rewards_and_the_first_lacks_none() -> None:
    rows = rows_of(SAMPLES / "two_rewards.jsonl")
    assert all(row.get("accuracy") is not None or row.get("format") is not None for row in rows)
    assert {"accuracy", "format"} <= rows[0].keys()


def test_the_readme_counts_the_rows() -> None:
    text = (SAMPLES / "README.md").read_text(encoding="utf-8")
    for name in ("rewards.jsonl", "steps.jsonl", "two_rewards.jsonl"):
        assert f"| `{name}` | {len(rows_of(SAMPLES / name))} |" in text
