"""Conversations of every form leave as chat messages, with their tools and the columns that are kept."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from grpo_cli.write import chat
from tests.support.command import adv, here
from tests.support.jobs import write

__all__ = ["here"]

USER = {"role": "user", "content": "2+3?"}
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
OF_CHAT = {"type": "function", "function": {name: TOOL[name] for name in ("name", "parameters")}}
CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
CHAT = [
    {"role": "assistant", "reasoning_content": "I add", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "5"},
    {"role": "assistant", "content": "it is 5"},
]


def items(answer: str) -> list[dict[str, Any]]:
    return [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "I add"}]},
        {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 2}'},
        {"type": "function_call_output", "call_id": "c", "output": "5"},
        {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": answer}]},
    ]


NUMBERS = count()


def gym(answer: str, reward: float, task: int = 0, **more: Any) -> dict[str, Any]:
    asked = {"input": [USER], "tools": [TOOL], "instructions": "Use tools."}
    row = {"responses_create_params": asked, "response": {"output": items(answer)}, "reward": reward}
    return {**row, "_ng_task_index": task, "_ng_rollout_index": next(NUMBERS), **more}


def given(*rows: dict[str, Any], name: str = "in.jsonl") -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


SYSTEM = {"role": "system", "content": "Use tools."}


def test_a_rollout_of_nemo_gym_is_a_chat_with_its_instructions_and_tools() -> None:
    given(gym("it is 5", 1.0), gym("it is 6", 0.0))
    (record,) = adv("export in.jsonl --to sft -o -").rows
    assert record == {"prompt": [SYSTEM, USER], "completion": CHAT, "tools": [OF_CHAT], "reward": 1.0}


def test_a_pair_of_nemo_gym_has_two_different_sides() -> None:
    given(gym("it is 5", 1.0), gym("it is 6", 0.0))
    (record,) = adv("export in.jsonl --to pairs -o -").rows
    assert (record["prompt"], record["chosen"], record["tools"]) == ([SYSTEM, USER], CHAT, [OF_CHAT])
    assert record["rejected"] == [*CHAT[:2], {"role": "assistant", "content": "it is 6"}]


@pytest.mark.parametrize(
    ("to", "form", "texts"),
    [
        ("sft", "messages", {"messages": [SYSTEM, USER, *CHAT]}),
        ("sft", "turns", {"prompt": [SYSTEM, USER], "completion": CHAT}),
        ("sft", "raw", {"prompt": [USER], "completion": items("it is 5")}),
        ("prompts", "messages", {"prompt": [SYSTEM, USER]}),
    ],
)
def test_the_form_of_a_conversation(to: str, form: str, texts: dict[str, Any]) -> None:
    given(gym("it is 5", 1.0), gym("it is 6", 0.0))
    record = adv(f"export in.jsonl --to {to} --form {form} -o -").rows[0]
    assert {name: record[name] for name in record if name in {"prompt", "completion", "messages"}} == texts


def test_a_pair_as_one_list_begins_with_the_prompt_on_both_sides() -> None:
    rows = [
        {"prompt": "2+3?", "completion": text, "reward": reward, "id": "p"} for text, reward in (("5", 1), ("6", 0))
    ]
    given(*rows)
    (record,) = adv("export in.jsonl --to pairs --form messages -g id -o -").rows
    assert "prompt" not in record
    assert record["chosen"] == [USER, {"role": "assistant", "content": "5"}]
    assert record["rejected"] == [USER, {"role": "assistant", "content": "6"}]


def test_a_conversation_as_turns_is_cut_where_the_model_first_speaks() -> None:
    given({"task_id": 1, "messages": [USER, *CHAT], "reward": 1.0})
    (record,) = adv("export in.jsonl --to sft --form turns -o -").rows
    assert record == {"prompt": [USER], "completion": CHAT, "reward": 1.0}


def test_texts_become_turns_where_a_form_is_named_and_stay_texts_where_none_is() -> None:
    given({"task_id": 1, "prompt": "q", "completion": "a", "reward": 1.0})
    assert adv("export in.jsonl --to sft -o -").rows == [{"prompt": "q", "completion": "a", "reward": 1.0}]
    (record,) = adv("export in.jsonl --to sft --form messages -o -").rows
    assert record["messages"] == [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


def test_tools_of_two_kinds_keep_their_own_arguments_in_parquet() -> None:
    other = {"type": "function", "function": {"name": "sub", "parameters": {"properties": {"x": {"type": "string"}}}}}
    rows = [{"task_id": at, "prompt": [USER], "completion": [*CHAT, {"role": "user", "content": str(at)}], "reward": 1, "tools": tools}
            for at, tools in enumerate(([OF_CHAT], [other], None))]  # fmt: skip
    given(*rows)
    assert adv("export in.jsonl --to sft -o out.parquet").status == 0
    tools = pl.read_parquet("out.parquet")["tools"].to_list()
    assert [None if text is None else json.loads(text) for text in tools] == [[OF_CHAT], [other], None]
    assert [row["tools"] for row in adv("export in.jsonl --to sft -o -").rows] == [[OF_CHAT], [other], None]


def test_tools_that_no_record_has_make_no_column() -> None:
    row = gym("it is 5", 1.0)
    row["responses_create_params"]["tools"] = []
    given(row)
    assert "tools" not in adv("export in.jsonl --to sft -o -").rows[0]
    given(gym("it is 5", 1.0))
    assert "tools" not in adv("export in.jsonl --to sft --tools none -o -").rows[0]


def test_tools_that_are_no_list_stop_with_the_row_and_a_way_out() -> None:
    given({"task_id": 1, "prompt": "q", "completion": "a", "reward": 1.0, "tools": {"add": 1}})
    done = adv("export in.jsonl --to sft -o -")
    assert done.status == 1
    assert 'in.jsonl:1: tools are no list of objects: {"add": 1}; --tools none leaves them out' in done.err


def searched(answer: str, reward: float, task: int) -> dict[str, Any]:
    row = gym(answer, reward, task)
    row["response"]["output"].insert(0, {"type": "web_search_call", "id": "w"})
    return row


def test_items_without_a_chat_form_stop_with_their_counts_over_all_files() -> None:
    given(searched("a", 1.0, 0), gym("b", 0.0, 0), name="a.jsonl")
    given(searched("c", 1.0, 1), gym("d", 1.0, 2), name="b.jsonl")
    done = adv("export a.jsonl b.jsonl --to sft -o out.jsonl --group-within file")
    assert (done.status, Path("out.jsonl").exists()) == (1, False)
    assert "items of 2 rows have no form as chat messages: web_search_call 2" in done.err
    assert "--on-error skip" in done.err
    assert "--form raw" in done.err


def test_rows_with_such_items_are_left_out_before_rows_are_chosen() -> None:
    given(searched("a", 1.0, 0), gym("b", 0.5, 0), gym("c", 1.0, 1))
    done = adv("export in.jsonl --to sft --on-error skip -o - --summary facts.json")
    assert [record["reward"] for record in done.rows] == [0.5, 1.0]
    dropped = json.loads(Path("facts.json").read_text())["dropped"]
    assert dropped == [{"reason": "items without a form as chat messages (web_search_call 1)", "rows": 1}]
    raw = adv("export in.jsonl --to sft --form raw -o -").rows
    assert raw[0]["completion"][0]["type"] == "web_search_call"


def test_a_row_that_is_not_exported_stops_nothing() -> None:
    given(searched("a", 0.0, 0), gym("b", 1.0, 0))
    assert adv("export in.jsonl --to sft -o -").status == 0


def test_a_conversation_without_an_answer_is_left_out_and_counted() -> None:
    silent = [[{"role": "assistant", "content": ""}], [{"role": "tool", "content": "5"}]]
    rows = [{"task_id": 0, "prompt": [USER], "completion": text, "reward": 1} for text in (*silent, CHAT)]
    given(*rows)
    done = adv("export in.jsonl --to sft --pick all-above --min-reward 1 -o - --summary facts.json")
    assert [record["completion"] for record in done.rows] == [CHAT]
    assert json.loads(Path("facts.json").read_text())["dropped"] == [
        {"reason": "without an answer of the model", "rows": 2}
    ]


def test_a_conversation_that_ends_with_the_result_of_a_tool_is_kept() -> None:
    """Its calls were sampled; a limit of turns ended it."""
    given({"task_id": 0, "prompt": [USER], "completion": CHAT[:2], "reward": 1})
    assert [record["completion"] for record in adv("export in.jsonl --to sft -o -").rows] == [CHAT[:2]]


def test_with_a_target_the_way_out_is_one_that_works() -> None:
    """A trainer reads no form but its own: --form raw is refused beside --target."""
    given(searched("a", 1.0, 0))
    done = adv("export in.jsonl --to sft --target trl -o out.jsonl")
    assert (done.status, "--on-error skip" in done.err, "--form raw" in done.err) == (1, True, False)
    given({"task_id": 0, "prompt": [USER], "completion": [{"content": "a"}], "reward": 1})
    done = adv("export in.jsonl --to sft --target trl -o out.jsonl")
    assert (done.status, "--rows CONDITION" in done.err, "--form raw" in done.err) == (1, True, False)


def test_an_item_without_a_role_stops_with_its_row() -> None:
    given({"task_id": 0, "prompt": [USER], "completion": [{"content": "a"}], "reward": 1})
    done = adv("export in.jsonl --to sft -o out.jsonl")
    assert done.status == 1
    assert 'in.jsonl:1: an item of the conversation has no role: {"content": "a"}' in done.err


def test_columns_are_kept_in_every_record() -> None:
    given(gym("a", 1.0, info={"answer": 5}, source="x"), gym("b", 0.0, info={"answer": 5}, source="x"))
    for to in ("sft", "pairs", "prompts"):
        (record,) = adv(f"export in.jsonl --to {to} --keep source,info.answer -o -").rows
        assert (record["source"], record["info.answer"]) == ("x", 5)


@pytest.mark.parametrize(("to", "what"), [("pairs", "a pair"), ("prompts", "a prompt")])
def test_a_record_of_several_rows_keeps_only_what_they_share(to: str, what: str) -> None:
    given(gym("a", 1.0, source="x"), gym("b", 0.0, source="y"))
    done = adv(f"export in.jsonl --to {to} --keep source -o -")
    assert done.status == 1
    assert f'the rows of {what} have two values of source: "x" (in.jsonl:1) and "y" (in.jsonl:2)' in done.err


@pytest.mark.parametrize(
    ("words", "status", "error"),
    [
        ("--keep sourc", 1, "no column 'sourc'; did you mean 'source'?"),
        ("--keep reward", 2, "--keep reward: records have a column of that name"),
        ("--tools tool", 1, "no column 'tool'"),
    ],
)
def test_columns_that_cannot_be_kept(words: str, status: int, error: str) -> None:
    given(gym("a", 1.0, source="x"))
    done = adv(f"export in.jsonl --to sft {words} -o -")
    assert done.status == status
    assert error in done.err


def test_files_of_which_one_has_no_tools() -> None:
    frame = {"task_id": [1], "prompt": ["q"], "completion": ["a"], "reward": [1.0]}
    pl.DataFrame({**frame, "tools": [json.dumps([OF_CHAT])]}).write_parquet("a.parquet")
    pl.DataFrame({**frame, "task_id": [2], "completion": ["b"]}).write_parquet("b.parquet")
    done = adv("export a.parquet b.parquet --to sft --form turns -o -")
    assert [record["tools"] for record in done.rows] == [[OF_CHAT], None]


def test_encrypted_reasoning_is_counted() -> None:
    row = gym("a", 1.0)
    row["response"]["output"][0] = {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
    given(row)
    done = adv("export in.jsonl --to sft -o out.jsonl --json")
    assert json.loads(done.out)["hidden_reasoning"] == 1
    assert "reasoning" not in Path("out.jsonl").read_text()


def test_each_conversation_is_converted_once_however_often_it_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of all rows write the conversation of a row several times."""
    read = list[str]()
    turns = chat._Turns.read

    def counted(self: chat._Turns, text: str) -> None:
        read.append(text)
        turns(self, text)

    monkeypatch.setattr(chat._Turns, "read", counted)
    given(*(gym(f"it is {at}", at / 3) for at in range(4)))
    pairs = adv("export in.jsonl --to pairs --pairs all -o -").rows
    assert len(pairs) == 6
    assert {pair["chosen"][-1]["content"] for pair in pairs} == {"it is 1", "it is 2", "it is 3"}
    assert len(read) == 4


def test_a_message_that_is_no_list_is_converted_like_a_list_of_one() -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]}
    given({"task_id": 1, "prompt": item, "completion": [CHAT[-1]], "reward": 1.0})
    (record,) = adv("export in.jsonl --to sft -o -").rows
    assert record["prompt"] == [{"role": "user", "content": "q"}]


def test_what_is_no_message_stops_before_anything_is_written_and_only_if_it_is_exported() -> None:
    rows = [{"task_id": 0, "prompt": [USER], "completion": [one], "reward": reward} for one, reward in ((CHAT[-1], 1), ({"a": 1}, 0))]  # fmt: skip
    given(*rows)
    assert adv("export in.jsonl --to sft -o -").status == 0
    done = adv("export in.jsonl --to pairs -o out.jsonl")
    assert (done.status, Path("out.jsonl").exists()) == (1, False)
    assert "in.jsonl:2: an item of the conversation has no role" in done.err


def test_traces_of_which_a_branch_is_in_no_record_are_counted() -> None:
    """The harness threw an answer away and asked again, as verifiers 0.4.0 writes it."""
    branches = [
        {"message": USER},
        {"message": {"role": "assistant", "content": "first"}, "parent": 0},
        {"message": {"role": "assistant", "content": "second"}, "parent": 0},
    ]
    one = [{"message": USER}, {"message": {"role": "assistant", "content": "third"}, "parent": 0}]
    write("in.jsonl", [{"task_id": 1, "reward": at, "nodes": nodes} for at, nodes in enumerate((one, branches))])
    done = adv("export in.jsonl --to sft --messages nodes -o out.jsonl")
    assert "1 trace with several branches: the last one is taken" in done.out
    assert json.loads(Path("out.jsonl").read_text())["messages"][-1] == {"role": "assistant", "content": "second"}


@pytest.mark.parametrize("columns", ["two lists", "one list"])
def test_the_same_turns_with_other_tools_are_another_prompt(columns: str) -> None:
    """A pair has one list of tools, and its worse side must not be trained on with the tools of the better."""
    ask, say, wrong = (
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "w"},
    )
    tools = {name: [{"type": "function", "function": {"name": name}}] for name in ("add", "look")}
    rows = []
    for name, answer, reward in (("add", say, 1), ("look", wrong, 0), ("add", wrong, 0)):
        texts = {"prompt": [ask], "completion": [answer]} if columns == "two lists" else {"messages": [ask, answer]}
        rows.append({"task_id": 1, "reward": reward, **texts, "tools": tools[name]})
    write("in.jsonl", rows[:2])
    assert "no record for pairs" in adv("export in.jsonl --to pairs -o out.jsonl").err
    write("in.jsonl", rows)
    (pair,) = adv("export in.jsonl --to pairs -o -").rows
    assert [tool["function"]["name"] for tool in pair["tools"]] == ["add"]
    groups = adv("export in.jsonl --to groups -o -").rows
    assert [(group["tools"][0]["function"]["name"], group["rewards"]) for group in groups] == [
        ("add", [1, 0]),
        ("look", [0]),
    ]
