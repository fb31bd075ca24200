"""What is shown of a record: who said what, in every layout that trainers write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import grpo_cli
from grpo_cli.read.texts import Reader, TextColumns, passages_of, plain_texts
from grpo_cli.runs.group_rows import report_groups, with_rows
from tests.support.command import adv
from tests.support.jobs import write
from tests.unit.guests.browse.files import browser, driven, model, model_of

# A value of JSON, and what is shown of it.
SHOWN = r"""
"plain" => response: plain
"" => response:
null =>
[] =>
7 => response: 7
{"role": "user", "content": "hi"} => user: hi
[{"from": "human", "value": "hi"}] => human: hi
"[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}]}]" => user: a\nb
"{\"a\": 1}" => response: {"a": 1}
"<think>why</think>\n\nso" => response, reasoning: why | response: so
[{"role": "assistant", "reasoning_content": "why", "content": "so"}] => assistant, reasoning: why | assistant: so
[{"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "look", "arguments": "{\"at\": 1}"}}]}] => assistant, tool call look: {\n  "at": 1\n}
{"role": "assistant", "content": "", "tool_calls": ["{\"function\": {\"name\": \"look\", \"arguments\": {\"at\": 1}}}"]} => assistant, tool call look: {\n  "at": 1\n}
{"role": "tool", "name": "look", "content": "seen"} => tool look: seen
[{"type": "reasoning", "summary": [{"type": "summary_text", "text": "why"}]}, {"type": "function_call", "name": "look", "arguments": "{}"}, {"type": "function_call_output", "output": "seen"}, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]}] => response, reasoning: why | response, tool call look: {} | tool: seen | assistant: so
"<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n" => system: be kind | user: hi | assistant:
"<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nyes" => user: hi | assistant: yes
"user\nhi\nassistant\n" => response: user\nhi\nassistant\n
"<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\nyes" => user: hi | model: yes
"""


@pytest.mark.parametrize("line", SHOWN.strip().splitlines())
def test_a_value_is_laid_out_by_who_said_it(line: str) -> None:
    value, _, shown = line.partition(" =>")
    passages = passages_of(json.loads(value), "response")
    found = " | ".join(f"{speaker}: {text}" for speaker, text in passages)
    assert found.replace("\n", "\\n").strip() == shown.strip()


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet", "rows.jsonl.gz", "rows.json", "rows.csv"])
def test_every_format_gives_the_text_of_a_row(tmp_path: Path, name: str) -> None:
    rows = list[dict[str, Any]]()
    for at in range(20):
        said = {"prompt": "ask", "completion": f"say {at}\nmore", "answer": f"{at}!"}
        rows.append({"prompt_id": "p", **said, "reward": at % 3})
    reader = Reader(model_of(tmp_path, rows, name).inspection.narrow, TextColumns())
    for at in (0, 7, 19):
        said = rows[at]
        assert reader.passages(at) == [("prompt", "ask"), ("response", said["completion"])]
        fields = reader.fields(at)
        assert fields[0] == ("answer", said["answer"])
        assert ("completion", said["completion"]) in fields


def test_an_empty_response_is_shown_and_the_turn_that_a_template_opens_is_not(tmp_path: Path) -> None:
    prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    responses: list[Any] = [[], "", "yes", [{"role": "assistant", "content": ""}]]
    rows = [{"prompt_id": "a", "prompt": prompt, "completion": said, "reward": 1} for said in responses]
    reader = Reader(model_of(tmp_path, rows).inspection.narrow, TextColumns())
    assert reader.passages(0) == [("user", "hi"), ("response", "")]
    assert reader.passages(1) == [("user", "hi"), ("response", "")]
    assert reader.passages(2) == [("user", "hi"), ("response", "yes")]
    assert reader.passages(3) == [("user", "hi"), ("assistant", "")]


def test_columns_that_flags_name_are_taken_and_a_response_needs_no_prompt(tmp_path: Path) -> None:
    rows = [{"prompt_id": "a", "q": "ask", "out": {"text": f"say {at}"}, "reward": at} for at in range(3)]
    narrow = model_of(tmp_path, rows).inspection.narrow
    assert Reader(narrow, TextColumns()).passages(1) == []
    assert Reader(narrow, TextColumns(response="out.text")).passages(1) == [("response", "say 1")]
    named = TextColumns(prompt="q", response="out.text")
    assert Reader(narrow, named).passages(1) == [("prompt", "ask"), ("response", "say 1")]


def test_files_with_other_columns_are_shown_as_they_are(tmp_path: Path) -> None:
    first = {"prompt_id": "a", "prompt": "ask", "completion": "say", "reward": 1}
    second = {"prompt_id": "b", "question": "why", "response": "so", "reward": 0}
    write("step_1.parquet", [first, first])
    write("step_2.parquet", [second, second])
    reader = Reader(model(tmp_path).inspection.narrow, TextColumns())
    assert reader.passages(0) == [("prompt", "ask"), ("response", "say")]
    assert reader.passages(2) == [("prompt", "why"), ("response", "so")]


# Two rollouts as files of conversations have them: no prompt and no response, only messages.
CONVERSATIONS = r"""
{"prompt_id": "a", "reward": 0, "messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "look"},
    {"role": "assistant", "content": "no"}]}
{"prompt_id": "a", "reward": 1, "messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "look"},
    {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "look", "arguments": "{\"at\": 1}"}}]},
    {"role": "tool", "content": "seen"}, {"role": "assistant", "content": "so"}]}
""".replace("\n    ", " ").strip()


def conversations() -> list[Any]:
    return [json.loads(line) for line in CONVERSATIONS.splitlines()]


PROMPT = [("system", "be kind"), ("user", "look")]
TURNS = [("assistant, tool call look", '{\n  "at": 1\n}'), ("tool", "seen"), ("assistant", "so")]


@pytest.mark.parametrize(("name", "named"), [("rows.jsonl", {}), ("rows.parquet", {"text_column": "messages"})])
def test_inspect_report_browse_and_export_find_the_same_conversation(name: str, named: Any) -> None:
    path = write(name, conversations())
    shown = grpo_cli.inspect(str(path), **named).show("a")
    assert shown["prompt"] == "[system]\nbe kind\n\n[user]\nlook"
    assert shown["rows"][0]["text"] == "no"
    assert shown["rows"][1]["text"] == "\n\n".join(f"[{who}]\n{text}" for who, text in TURNS)
    inspection = grpo_cli.inspect(str(path), **named).inspection
    (group,) = with_rows(inspection, report_groups(inspection)).rows.values()
    assert group.said is not None
    assert group.prompt == PROMPT
    assert group.said[1] == TURNS
    screen = driven(browser(model(path), **named), size=(200, 50))
    for speaker, text in (*PROMPT, *TURNS):
        assert f"── {speaker} ─" in screen
        assert text.splitlines()[-1] in screen
    done = adv(f"export {path} --to sft -o -")
    assert [turn["content"] for turn in done.rows[0]["messages"]] == ["be kind", "look", None, "seen", "so"]


def test_a_group_of_conversations_is_printed_turn_by_turn() -> None:
    path = write("rows.jsonl", conversations())
    shown = adv(f"inspect {path} --show a").out
    assert "row 1, reward 0\n  no\n" in shown
    assert 'row 2, reward 1\n  [assistant, tool call look]\n  {\n    "at": 1\n  }\n\n  [tool]\n  seen\n' in shown


def test_messages_among_the_fields_of_a_record_are_laid_out_by_who_said_them(tmp_path: Path) -> None:
    call = {"function": {"name": "python", "arguments": json.dumps({"code": "a = 1\nprint(a)", "n": 2})}}
    said = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "yes", "tool_calls": [call]}]
    row = {"prompt_id": 1, "messages": said, "info": {"a": [1, 2]}, "reward": 1}
    narrow = grpo_cli.inspect(str(write(tmp_path / "a.jsonl", [row]))).inspection.narrow
    fields = Reader(narrow, TextColumns()).fields(0)
    assert fields == [
        ("prompt_id", "1"),
        ("messages: user", "go"),
        ("messages: assistant", "yes"),
        ("messages: assistant, tool call python", "code:\na = 1\nprint(a)\nn: 2"),
        ("info", '{\n  "a": [\n    1,\n    2\n  ]\n}'),
        ("reward", "1"),
    ]


def test_a_frame_in_memory_shows_its_conversations() -> None:
    frame = pl.read_ndjson(CONVERSATIONS.encode())
    shown = grpo_cli.inspect(frame).show("a")
    assert shown["prompt"] == "[system]\nbe kind\n\n[user]\nlook"
    assert shown["rows"][1]["text"].endswith("[tool]\nseen\n\n[assistant]\nso")


def test_a_prompt_that_its_conversation_repeats_is_shown_once(tmp_path: Path) -> None:
    rows = [{**row, "prompt": row["messages"][:2]} for row in conversations()]
    narrow = model_of(tmp_path, rows).inspection.narrow
    (said,) = Reader(narrow, TextColumns(response="messages")).said(np.array([0]))
    assert said.prompt == PROMPT
    assert said.response == [("assistant", "no")]


def test_the_texts_of_rows_in_any_order_may_be_inside_of_texts_of_json(tmp_path: Path) -> None:
    rows = [{"prompt_id": "a", "info": json.dumps({"said": f"say {at}"}), "reward": at} for at in range(3)]
    narrow = model_of(tmp_path, rows, "rows.parquet").inspection.narrow
    assert plain_texts(narrow, np.array([2, 0, 2]), "info.said") == ["say 2", "say 0", "say 2"]
    assert plain_texts(narrow, np.array([1]), "info.unsaid") == [None]
    assert plain_texts(narrow, np.array([1]), "nothing") == [None]
