"""The kinds that people write by hand: labels, whole groups, whole copies; each prompt once; and an export of nothing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.support.command import adv, here

__all__ = ["here"]

ROWS = [
    {"id": "a", "step": 1, "prompt": "p", "completion": "1", "reward": 1.0, "answer": 4},
    {"id": "a", "step": 1, "prompt": "p", "completion": "2", "reward": 0.0, "answer": 4},
    {"id": "b", "step": 1, "prompt": "q", "completion": "3", "reward": 0.5, "answer": 5},
    {"id": "b", "step": 1, "prompt": "q", "completion": "4", "reward": 0.5, "answer": 5},
    {"id": "a", "step": 2, "prompt": "p", "completion": "5", "reward": None, "answer": 4},
    {"id": "a", "step": 2, "prompt": "p", "completion": "6", "reward": 1.0, "answer": 4},
    {"id": "a", "step": 2, "prompt": "p", "completion": "7", "reward": 0.25, "answer": 4},
]
GROUPED = "-g id,step --missing exclude"


@pytest.fixture(autouse=True)
def rows() -> None:
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def exported(words: str) -> list[dict[str, Any]]:
    done = adv(f"export in.jsonl {GROUPED} {words} -o -")
    assert not done.status, done.err
    return done.rows


def facts(words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(adv(f"export in.jsonl {GROUPED} {words} -o out.jsonl --force --json").out)
    return found


@pytest.mark.parametrize(
    ("words", "good"),
    [
        ("", {"1": True, "2": False, "3": False, "4": False, "6": True, "7": False}),
        ("--solved-at 0.5", {"1": True, "2": False, "3": True, "4": True, "6": True, "7": False}),
        ("--method dr-grpo", {"1": True, "2": False, "6": True, "7": False}),
    ],
)
def test_labels_are_true_where_solved_and_with_a_plan_where_the_advantage_is_above_0(
    words: str, good: dict[str, bool]
) -> None:
    assert {row["completion"]: row["label"] for row in exported(f"--to labels {words}")} == good
    labels = Counter(good.values())
    assert facts(f"--to labels {words}")["labels"] == {"true": labels[True], "false": labels[False]}


def test_advantages_of_0_are_left_out_of_labels_and_counted() -> None:
    dropped = facts("--to labels -m dr-grpo")["dropped"]
    assert {"reason": "an advantage of 0", "rows": 2} in dropped


def test_a_group_is_one_record_that_is_read_back() -> None:
    assert exported("--to groups -m dr-grpo --keep answer") == [
        {"prompt": "p", "responses": ["1", "2"], "rewards": [1.0, 0.0], "advantages": [0.5, -0.5], "answer": [4, 4]},
        {"prompt": "q", "responses": ["3", "4"], "rewards": [0.5, 0.5], "advantages": [0.0, 0.0], "answer": [5, 5]},
        {
            "prompt": "p",
            "responses": ["6", "7"],
            "rewards": [1.0, 0.25],
            "advantages": [0.375, -0.375],
            "answer": [4, 4],
        },
    ]
    for name in ("out.jsonl", "out.parquet"):
        assert not adv(f"export in.jsonl {GROUPED} --to groups -m dr-grpo -o {name}").status
        again = adv(f"compute {name} -m dr-grpo --column again -o back.jsonl --force --long")
        assert not again.status, again.err
        back = [json.loads(line) for line in Path("back.jsonl").read_text().splitlines()]
        assert [row["again"] for row in back] == [0.5, -0.5, 0.0, 0.0, 0.375, -0.375]


def test_a_group_of_conversations_has_a_list_of_lists() -> None:
    (first, *_) = exported("--to groups --form turns")
    assert first["prompt"] == [{"role": "user", "content": "p"}]
    assert first["responses"] == [[{"role": "assistant", "content": text}] for text in ("1", "2")]


def test_rows_of_a_group_may_be_anywhere_in_the_file() -> None:
    rows = [{"id": "ab"[at % 2], "prompt": "ab"[at % 2], "completion": str(at), "reward": at} for at in range(6)]
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = adv("export in.jsonl -g id --to groups -o -").rows
    assert [row["responses"] for row in found] == [["0", "2", "4"], ["1", "3", "5"]]


def test_the_largest_weight_comes_n_times_and_the_rest_in_proportion() -> None:
    weights = {row["completion"]: row["weight"] for row in exported("--to weights")}
    largest = max(weights.values())
    drawn = []
    for seed in range(60):
        found = Counter(row["completion"] for row in exported(f"--to weights --copies 4 --seed {seed}"))
        assert all(found[text] in {int(4 * w / largest), int(4 * w / largest) + 1} for text, w in weights.items())
        assert max(found.values()) == 4
        drawn.append([found[text] for text in weights])
    expected = [4 * weight / largest for weight in weights.values()]
    assert np.allclose(np.mean(drawn, 0), expected, atol=0.25)


def test_copies_have_no_weight_and_say_how_many_have_the_lowest_reward() -> None:
    found = exported("--to weights --copies 2")
    assert "weight" not in found[0]
    lowest = sum(row["reward"] == 0 for row in found)
    assert facts("--to weights --copies 2").get("lowest_reward_records", 0) == lowest


def test_weights_say_who_reads_them() -> None:
    (line,) = facts("--to weights")["read_by"]
    assert line.startswith("a loss of your own, tinker (--target tinker); trl")
    assert "trl" in line.partition(";")[2]
    done = adv("export in.jsonl --to weights --target trl -o out.jsonl")
    assert done.status == 2
    assert "--copies N writes whole copies instead" in done.err
    assert exported("--to weights --copies 1 --target trl")[0]["prompt"] == [{"role": "user", "content": "p"}]


def test_prompts_for_a_trainer_are_there_once_each_with_what_is_kept() -> None:
    assert len(exported("--to prompts")) == 3
    found = exported("--to prompts --target verl --keep answer")
    assert [(row["prompt"][0]["content"], row["answer"], row["n"]) for row in found] == [("p", 4, 4), ("q", 5, 2)]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("-m dr-grpo", ""),
        ("-m dr-grpo --clip=-0.4:", "the advantages of 1 groups do not add up to 0"),
        ("-m reinforce", "the advantages of 3 groups do not add up to 0"),
    ],
)
def test_stored_advantages_are_those_that_trl_would_train_with(words: str, error: str) -> None:
    done = adv(f"export in.jsonl {GROUPED} --to groups --target trl {words} -o out.jsonl")
    assert done.status == bool(error)
    assert error in done.err


def test_groups_of_several_sizes_cannot_be_trained_on_by_trl() -> None:
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*ROWS, {**ROWS[0], "completion": "8"}]))
    done = adv(f"export in.jsonl {GROUPED} --to groups --target trl -o out.jsonl")
    assert done.status == 1
    assert "groups have 2 to 3 rows, and this trainer takes groups of one size" in done.err
    assert "select --per-group N --pick random" in done.err


@pytest.mark.parametrize("quiet", ["", " -q"])
def test_an_export_of_nothing_is_an_error_with_the_reasons_and_no_file(quiet: str) -> None:
    done = adv(f"export in.jsonl {GROUPED} --to pairs --min-margin 2 -o out.jsonl{quiet}")
    assert (done.status, Path("out.jsonl").exists()) == (1, False)
    assert "no record for pairs is left of 7 rows: 1 no reward; 6 not used in any pair" in done.err


def test_a_gate_on_records_is_judged_before() -> None:
    done = adv(f"export in.jsonl {GROUPED} --to pairs --min-margin 2 -o out.jsonl --fail-on 'records < 1'")
    assert (done.status, Path("out.jsonl").exists()) == (3, False)


def test_an_empty_holdout_beside_records_is_no_error() -> None:
    """Of q no pair can be made: a split that holds out q alone has none."""
    for seed in range(20):
        found = facts(f"--to pairs --holdout 0.4 --holdout-seed {seed}")
        if found["beside"] == {"holdout": 0}:
            break
    assert (found["beside"], found["records"]) == ({"holdout": 0}, 2)
    assert Path("out.holdout.jsonl").read_text() == ""


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--to weights --copies 0", "--copies"),
        ("--to sft --copies 2", "--copies does not apply to --to sft"),
        ("--to labels --solved-at 1 -m rloo", "--solved-at has no effect beside a plan"),
        ("--to groups --solved-at 1", "--solved-at does not apply to --to groups"),
    ],
)
def test_options_of_these_kinds(words: str, error: str) -> None:
    done = adv(f"export in.jsonl {words} -o out.jsonl")
    assert done.status == 2
    assert error in done.err


def test_labels_in_parquet_are_truths() -> None:
    assert not adv(f"export in.jsonl {GROUPED} --to labels -o out.parquet").status
    assert pl.read_parquet("out.parquet").schema["label"] == pl.Boolean


def test_of_equal_rewards_none_is_the_lowest() -> None:
    rows = [{"id": "a", "step": 1, "prompt": "p", "completion": str(at), "reward": 1.0} for at in range(3)]
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert facts("--to weights --method reinforce --copies 2")["lowest_reward_records"] == 0
