"""Every form of a conversation becomes chat messages; what is one already keeps every byte."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from grpo_cli.write.chat import NoMessage, chats, have_tools, joined, kinds, tools, unanswered, with_instructions

USER = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": "a"}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "3"}


def chat(items: list[Any]) -> list[dict[str, Any]]:
    found = chats(pl.Series([json.dumps(items)]))
    assert not found.formless
    assert not found.wrong
    messages: list[dict[str, Any]] = json.loads(found.texts[0])
    return messages


@pytest.mark.parametrize(
    "text",
    [
        '[{"role": "user",  "content":"q"} , {"content":"a","role":"assistant","extra":1.10}]',
        '[{"role":"assistant","content":null,"tool_calls":[{"type":"function","function":{"name":"f","arguments":"{\\"type\\": 1}"}}]}]',
        '[{"role":"assistant","tool_calls":[]},{"role":"tool","tool_call_id":"c","content":"r"}]',
        '[{"role":"assistant","content":null,"tool_calls":[{"id": 1e2}]}]',
        '[{"role":"user","content":"it says \\"type\\": \\"message\\" and \\"from\\": 1"}]',
        '[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"u"}}]}]',
        "[]",
    ],
)
def test_what_is_a_chat_already_does_not_change_by_a_byte(text: str) -> None:
    found = chats(pl.Series([text, None]))
    assert found.texts.to_list() == [text, None]
    assert not found.changed


def test_items_of_responses_become_turns() -> None:
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "short"}], "content": []},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}', "status": "completed"},
        {"type": "function_call_output", "call_id": "c1", "output": "3"},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "long"}], "summary": [{"text": "short"}]},
        {"type": "message", "role": "assistant", "id": "m", "content": [{"type": "output_text", "text": "a", "annotations": []}]},
    ]  # fmt: skip
    assert chat(items) == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "reasoning_content": "short", "content": None, "tool_calls": [CALL]},
        RESULT,
        {"role": "assistant", "reasoning_content": "long", "content": "a"},
    ]


def test_calls_that_follow_each_other_are_one_turn_and_a_text_after_them_is_another() -> None:
    calls = [{"type": "function_call", "call_id": name, "name": name, "arguments": "{}"} for name in ("f", "g")]
    text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
    first, second, *more = chat([{**text, "content": "I call"}, *calls, text])
    assert (first["content"], [call["id"] for call in first["tool_calls"]]) == ("I call", ["f", "g"])
    assert (second, more) == ({"role": "assistant", "content": "done"}, [])


def test_a_refusal_is_a_text() -> None:
    items = [{"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}]
    assert chat(items) == [{"role": "assistant", "content": "no"}]


def test_reasoning_in_encrypted_form_alone_is_dropped_and_counted() -> None:
    items = [{"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}, {**ANSWER, "type": "message"}]
    found = chats(pl.Series([json.dumps(items)]))
    assert (json.loads(found.texts[0]), found.hidden) == ([ANSWER], {0: 1})


def test_reasoning_before_a_plain_turn_becomes_its_field_and_its_bytes_stay() -> None:
    text = '[{"type":"reasoning","summary":[{"text":"hm"}]}, {"role":"assistant",  "content":"a"}]'
    assert chats(pl.Series([text])).texts[0] == '[{"reasoning_content":"hm","role":"assistant",  "content":"a"}]'


def test_messages_beside_a_converted_one_keep_their_bytes() -> None:
    text = '[{"role":"user",  "content":"q","n":1.0},{"type":"function_call","name":"f","call_id":"c","arguments":"{"}]'
    assert chats(pl.Series([text])).texts[0].startswith('[{"role":"user",  "content":"q","n":1.0},{')


def test_arguments_that_are_no_json_stay_text() -> None:
    ((turn),) = chat([{"type": "function_call", "name": "f", "call_id": "c", "arguments": "{'a': 1"}])
    assert turn["tool_calls"][0]["function"]["arguments"] == "{'a': 1"


def test_parts_of_text_become_one_text_and_pictures_stay_parts() -> None:
    picture = {"type": "input_image", "image_url": "u"}
    assert chat([{"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]}]) == [
        {"role": "user", "content": "a b"}
    ]
    (seen,) = chat([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "see"}, picture]}])
    assert seen["content"] == [{"type": "text", "text": "see"}, picture]


def test_blocks_of_anthropic_become_turns() -> None:
    items = [
        USER,
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "I add"},
            {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "3"}]}]},
        ANSWER,
    ]  # fmt: skip
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    turn = {"role": "assistant", "reasoning_content": "hm", "content": "I add", "tool_calls": [call]}
    assert chat(items) == [USER, turn, RESULT, ANSWER]


@pytest.mark.parametrize(
    ("form", "items"),
    [
        ("ShareGPT", [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]),
        ("choices of ART", [USER, {"finish_reason": "stop", "index": 0, "message": ANSWER, "logprobs": None}]),
    ],
)
def test_other_forms_of_two_turns(form: str, items: list[Any]) -> None:
    assert chat(items) == [USER, ANSWER]


@pytest.mark.parametrize(
    ("trace", "call"),
    [
        ("tau2", {"id": "c1", "name": "add", "arguments": '{"a": 1}', "requestor": "assistant"}),
        ("Inspect", {"id": "c1", "function": "add", "arguments": '{"a": 1}', "type": "function"}),
        ("verifiers", json.dumps(CALL)),
    ],
)
def test_calls_of_traces(trace: str, call: Any) -> None:
    assert chat([{"role": "assistant", "content": None, "tool_calls": [call]}, RESULT]) == [CALLS, RESULT]


def test_results_of_tau2_name_their_call() -> None:
    results = {"role": "tool", "tool_messages": [{"role": "tool", "id": "c1", "content": "3"}]}
    assert chat([{"role": "tool", "id": "c1", "content": "3"}]) == chat([results]) == [RESULT]


def test_items_without_a_chat_form_are_counted_by_type() -> None:
    texts = [[{"type": "web_search_call"}, {"type": "web_search_call"}, ANSWER], [USER], [{"type": "mcp_call"}]]
    found = chats(pl.Series([json.dumps(items) for items in texts]))
    assert {at: dict(types) for at, types in found.formless.items()} == {0: {"web_search_call": 2}, 2: {"mcp_call": 1}}
    assert kinds(found.formless.values()) == "web_search_call 2, mcp_call 1"


@pytest.mark.parametrize(
    ("items", "wrong"),
    [
        ([{"content": "a"}], 'an item of the conversation has no role: {"content": "a"}'),
        ([{"type": "reasoning"}, 7], "an item of the conversation is no message: 7"),
        ([{"role": "assistant", "tool_calls": ["f"]}], 'a tool call is no object: "f"'),
    ],
)
def test_what_is_no_message_is_said(items: list[Any], wrong: str) -> None:
    assert chats(pl.Series([None, json.dumps(items)])).wrong == {1: wrong}


def test_half_a_surrogate_stays_an_escape() -> None:
    text = r'[{"role":"assistant","content":[{"type":"text","text":"\ud800é"}]}]'
    assert chats(pl.Series([text])).texts[0] == r'[{"role": "assistant", "content": "\ud800\u00e9"}]'


def test_an_answer_is_a_text_or_a_call() -> None:
    silent = [[USER], [{**ANSWER, "content": ""}], [USER, {**ANSWER, "content": None}]]
    texts = [json.dumps(items) for items in ([USER, ANSWER], [CALLS], [{"from": "gpt", "value": "a"}], *silent)]
    assert unanswered(pl.Series([*texts, '"a text"', None])).to_list() == [False] * 3 + [True] * 3 + [False] * 2


def test_instructions_are_the_first_turn_unless_there_is_one() -> None:
    prompts = [
        '[{"role":"user","content":"q"}]',
        "[]",
        '[{"role":"system","content":"s"}]',
        '[{"role":"user","content":"q"}]',
    ]
    found = with_instructions(pl.Series("prompt", prompts), pl.Series(['"be brief"', '"be brief"', '"be brief"', None]))
    assert [json.loads(text) for text in found] == [
        [{"role": "system", "content": "be brief"}, USER],
        [{"role": "system", "content": "be brief"}],
        [{"role": "system", "content": "s"}],
        [USER],
    ]


def test_a_prompt_and_what_follows_are_one_list() -> None:
    first = pl.Series(["[1, 2 ]", "[]", "[ ]", "[1]"])
    assert joined(first, pl.Series(["[3]", "[3]", "[]", "[ ]"])).to_list() == ["[1, 2,3]", "[3]", "[]", "[1]"]


def test_tools_of_every_form_are_those_of_a_chat() -> None:
    schema = {"type": "object", "properties": {}}
    chat_form = [{"type": "function", "function": {"name": "add", "parameters": schema}}]
    responses = [{"type": "function", "name": "add", "parameters": schema}]
    anthropic = [{"name": "add", "input_schema": schema}]
    for form in (chat_form, responses, anthropic, json.dumps(responses)):
        found = tools(json.dumps(form))
        assert found is not None
        assert json.loads(found) == chat_form
    assert tools('[{"type":"function",  "function":{}}]') == '[{"type":"function",  "function":{}}]'
    assert [tools(text) for text in ("null", "[]", '""', None)] == [None] * 4


@pytest.mark.parametrize("text", ['{"name":"f"}', "7", '["f"]', '"f"'])
def test_tools_that_are_no_list_are_said(text: str) -> None:
    with pytest.raises(NoMessage, match="tools are no list of objects"):
        tools(text)


def test_of_a_trace_with_branches_the_last_is_the_conversation() -> None:
    """As `Trace.messages` of verifiers 0.4.0 has it: the harness threw the second answer away and asked again."""
    said = [USER, {**ANSWER, "content": "first"}, {**USER, "content": "more"}, {**ANSWER, "content": "second"}, ANSWER]
    nodes = [{"message": one, "parent": at} for one, at in zip(said, (None, 0, 1, 2, 2), strict=True)]
    assert chat(nodes) == [*said[:3], ANSWER]
    traces = [nodes, nodes[:4], [{"message": one} for one in said]]
    assert chats(pl.Series([json.dumps(trace) for trace in traces])).branches == {0: 1}
    assert chat([{"message": one} for one in said]) == said


@pytest.mark.parametrize("parent", [1, 7, -1, "0"])
def test_a_trace_whose_parents_lead_nowhere_is_said(parent: Any) -> None:
    nodes = [{"message": USER, "parent": None}, {"message": ANSWER, "parent": parent}]
    found = chats(pl.Series([json.dumps(nodes)]))
    assert found.wrong[0].startswith("the parent of a node of the trace is none of the nodes before it")


def test_tools_of_a_trace_are_those_of_the_root_of_its_last_branch() -> None:
    roots = [
        {"message": USER, "parent": None, "tools": [{"type": "function", "name": name, "strict": None}]}
        for name in "ab"
    ]
    traced = [json.dumps(roots), json.dumps([{"message": USER, "parent": None}]), "[]", None]
    assert have_tools(pl.Series(traced)).to_list() == [True, False, False, False]
    assert json.loads(str(tools(traced[0]))) == [{"type": "function", "function": {"name": "b"}}]
    assert tools(traced[1]) is None
