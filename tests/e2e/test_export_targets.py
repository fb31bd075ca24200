"""`export --target`: the file is what the trainer reads, and what it does not read is refused before anything is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from grpo_cli.options.export_kinds import EXPORT_KINDS
from grpo_cli.targets.table import targets
from tests.support.command import adv, here

__all__ = ["here"]

USER = {"role": "user", "content": "2+3?"}
CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
CALLS = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "5"}
ANSWER = {"role": "assistant", "content": "5"}
WRONG = {"role": "assistant", "content": "6"}


def given(*rows: dict[str, Any]) -> None:
    Path("in.jsonl").write_text("".join(json.dumps({"task_id": 1, **row}) + "\n" for row in rows))


def chats(prompt: Any = (USER,), answer: tuple[Any, ...] = (ANSWER,)) -> None:
    given(
        {"prompt": prompt, "completion": [*answer], "reward": 1.0},
        {"prompt": prompt, "completion": [WRONG], "reward": 0.0},
    )


def read_by(words: str) -> list[str]:
    lines: list[str] = json.loads(adv(f"export in.jsonl {words} --json --force").out)["read_by"]
    return lines


def test_verl_gets_one_list_in_parquet() -> None:
    chats()
    assert adv("export in.jsonl --to sft --target verl -o train.parquet").status == 0
    frame = pl.read_parquet("train.parquet")
    assert frame.columns == ["messages", "reward"]
    assert frame["messages"].to_list() == [[USER, ANSWER]]


def test_trl_gets_pairs_without_the_margin_that_would_change_the_loss() -> None:
    chats()
    (record,) = adv("export in.jsonl --to pairs --target trl -o -").rows
    assert record == {
        "prompt": [USER], "chosen": [ANSWER], "rejected": [WRONG], "chosen_reward": 1.0, "rejected_reward": 0.0,
    }  # fmt: skip


def test_mlx_gets_a_folder_and_never_reads_the_hold_out_of_another_export() -> None:
    rows = [{"task_id": at, "prompt": [USER], "completion": [ANSWER], "reward": 1.0} for at in range(20)]
    given(*rows)
    assert adv("export in.jsonl --to sft --target mlx-lm -o data/ --holdout 0.4").status == 0
    assert {path.name for path in Path("data").iterdir()} == {"train.jsonl", "valid.jsonl"}
    done = adv("export in.jsonl --to sft --target mlx-lm -o data/ --force")
    assert done.status == 2
    assert "data/valid.jsonl is of another export, and the trainer reads it beside the new one" in done.err
    assert "--holdout SHARE writes both; remove data/valid.jsonl" in done.err
    assert adv("export in.jsonl --to sft --target mlx-lm -o data/ --holdout 0.5 --force").status == 0
    Path("data/valid.jsonl").unlink()
    assert adv("export in.jsonl --to sft --target mlx-lm -o data/ --force").status == 0
    assert {path.name for path in Path("data").iterdir()} == {"train.jsonl"}


def test_plain_texts_become_turns_for_a_trainer_that_would_apply_no_template() -> None:
    given({"prompt": "q", "completion": "a", "reward": 1.0})
    (record,) = adv("export in.jsonl --to sft --target trl -o -").rows
    assert record["prompt"] == [{"role": "user", "content": "q"}]


def test_verl_gets_tools_as_structs_if_all_records_have_the_same() -> None:
    """As JSON text its template refuses them; structs of two kinds would get each other's arguments."""
    tool, other = ({"type": "function", "function": {"name": name, "parameters": {name: 1}}} for name in "ab")
    rows = [{"task_id": at, "prompt": [USER], "completion": [ANSWER], "reward": 1, "answer": at} for at in range(2)]
    rows[1]["completion"] = [WRONG]
    given(*({**row, "tools": [tool]} for row in rows))
    assert not adv("export in.jsonl --to sft --target verl -o a.parquet").status
    assert pl.read_parquet("a.parquet")["tools"].to_list() == [[tool]] * 2
    given({**rows[0], "tools": [tool]}, rows[1])
    assert not adv("export in.jsonl --to sft --target verl -o c.parquet").status
    assert pl.read_parquet("c.parquet")["tools"].to_list() == [[tool], []]  # a null would stop its template
    given(*({**row, "tools": [one]} for row, one in zip(rows, (tool, other), strict=True)))
    done = adv("export in.jsonl --to sft --target verl -o b.parquet")
    assert (done.status, Path("b.parquet").exists()) == (1, False)
    assert "records have different tools" in done.err


def test_beside_records_with_tools_slime_gets_an_empty_list_for_a_null_at_which_its_loader_stops() -> None:
    tool = {"type": "function", "function": {"name": "a", "parameters": {}}}
    rows = [{"task_id": at, "prompt": [USER], "completion": [ANSWER], "reward": 1} for at in range(2)]
    given({**rows[0], "tools": [tool]}, rows[1])
    assert [row["tools"] for row in adv("export in.jsonl --to sft --target slime -o -").rows] == [[tool], []]
    assert not adv("export in.jsonl --to prompts --target slime -o a.parquet").status
    assert [json.loads(text) for text in pl.read_parquet("a.parquet")["tools"]] == [[tool], []]
    given(*rows)
    assert "tools" not in adv("export in.jsonl --to sft --target slime -o -").rows[0]


def test_records_without_any_computed_column() -> None:
    chats()
    assert adv("export in.jsonl --to sft --target chat -o -").rows == [{"messages": [USER, ANSWER]}]


def test_what_a_person_must_know_is_said_where_it_matters() -> None:
    chats()
    line = "TRL SFTTrainer: trains on the whole completion"
    assert read_by("--to sft --target trl -o out.jsonl") == [line]
    chats(answer=(CALLS, RESULT, ANSWER))
    set_this = "set assistant_only_loss=True, or results of tools are trained on"
    assert read_by("--to sft --target trl -o out.jsonl") == [line, set_this]
    chats(prompt=[USER, ANSWER, USER])
    assert "turns of the model in the prompt are trained on, too" in read_by("--to sft --target verl -o out.parquet")


def test_without_a_target_the_trainers_that_read_the_file_as_it_is_are_named() -> None:
    chats()
    (line,) = read_by("--to sft -o out.jsonl")
    named = line.partition(" as it is; --target NAME writes the form of another")[0].split(", ")
    assert "trl" in named
    assert "verl" not in named
    assert "ms-swift" in read_by("--to sft --form messages -o out.parquet")[0]
    assert (
        read_by("--to pairs --form messages -o out.jsonl") == []
    )  # nobody reads both sides as one list by these names
    assert read_by("--to prompts -o out.jsonl") == []  # each group's, which may be a prompt several times
    assert "slime" in read_by("--to prompts --pool -o out.jsonl")[0]


def test_a_trainer_that_makes_something_else_of_a_part_of_the_records_does_not_read_them_as_they_are() -> None:
    chats(answer=(CALLS, RESULT, ANSWER))
    first = "with results of tools in the response, see grpo-adv targets NAME first"
    assert read_by("--to sft -o out.jsonl") == [f"trl, openrlhf; {first}"]
    as_it_is, differ = read_by("--to sft --form messages -o again.jsonl")
    assert "axolotl" in as_it_is
    assert differ == f"tinker, nemo-rl, slime too; {first}"


def test_hosted_finetuning_is_told_of_turns_of_the_model_in_the_prompt() -> None:
    chats(prompt=[USER, ANSWER, USER])
    few_shot = "turns of the model in the prompt are trained on, too"
    assert read_by("--to sft --target chat -o out.jsonl") == [
        "hosted finetuning: trains on every turn of the model",
        few_shot,
    ]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--to sft --target trll -o a.jsonl", "no target named 'trll'; did you mean 'trl'?"),
        ("--to pairs --target verl -o a.parquet", "--target verl reads no --to pairs: no trainer of it reads pairs"),
        ("--to weights --target trl -o a.jsonl", "--target trl reads no --to weights: SFTTrainer ignores the weight"),
        ("--to sft --target verl -o a.jsonl", "--target verl reads .parquet files; -o a.parquet"),
        ("--to sft --target verl -o -", "--target verl reads .parquet files; -o train.parquet"),
        ("--to sft --target trl -o a.jsonl.gz", "--target trl reads .jsonl or .parquet files; -o a.jsonl"),
        ("--to sft --target trl --form messages -o a.jsonl", "--form messages is not what --target trl reads"),
    ],
)
def test_what_the_trainer_does_not_read_is_refused_before_anything_is_read(words: str, error: str) -> None:
    done = adv(f"export absent.jsonl {words}")
    assert done.status == 2
    assert error in done.err


def test_every_target_says_of_every_kind_whether_it_reads_it() -> None:
    for name, row in targets().items():
        assert {*row.kinds} | {*row.not_read} <= {*EXPORT_KINDS}, name
        assert not {*row.kinds} & {*row.not_read}, name


def test_targets_are_listed_and_explained() -> None:
    assert "verl-project/verl" in adv("targets verl").out
    listed = {row["name"]: row for row in json.loads(adv("targets --json").out)}
    assert {*listed} == {*targets()}
    assert listed["verl"]["kinds"]["sft"]["form"] == "messages"
    assert adv("targets ver").status == 2


@pytest.mark.parametrize("target", ["axolotl", "llama-factory"])
@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ((CALLS, RESULT, ANSWER), "the chosen response has 3 turns, and this trainer reads one"),
        ((CALLS,), "the chosen response calls a tool, and this trainer reads its text alone"),
    ],
)
def test_a_side_of_a_pair_that_a_trainer_would_cut_is_refused(target: str, answer: tuple[Any, ...], wrong: str) -> None:
    chats(answer=answer)
    done = adv(f"export in.jsonl --to pairs --target {target} -o out.jsonl")
    assert (done.status, Path("out.jsonl").exists()) == (1, False)
    assert wrong in done.err
