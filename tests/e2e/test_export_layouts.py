"""Exports of files of every layout: what leaves as a conversation is a chat, and what cannot leave is said.

`plain_exports` has the bytes that commit 354f4724, before conversations were converted, wrote of plain chats. They were made by
running the commands of `PLAIN` at that commit, in a folder with the files that `plain_files` writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.support.command import adv, here
from tests.support.schema_files import WRITERS

__all__ = ["here"]

KINDS = ("sft", "pairs", "labels", "groups", "weights", "prompts")
OF_ADVANTAGES = {"labels", "groups", "weights"}
ROLES = {"system", "developer", "user", "assistant", "tool"}
# Layouts whose small files have texts; of the others some have no text at all, some have empty conversations.
WITH_TEXTS = {
    "areal", "areal-normalized", "atropos-trajectories", "graded-completions", "harbor", "livecodebench", "ms-swift",
    "ms-swift-megatron", "ms-swift-ray", "openr1", "prime-platform", "prime-rl-branches", "prime-rl-stream", "qwen-math", "rlhflow",
    "rlhflow-answers", "roll", "simpo", "skyrl", "slime", "trl", "trl-trackio", "verl", "verl-v1", "wide",
}  # fmt: skip


def flags_of(flags: dict[str, Any], kind: str) -> str:
    """The flags that a layout needs, without those of advantages where a kind has none."""
    words = []
    for name, value in flags.items():
        if name == "column" or (name == "singleton" and kind not in OF_ADVANTAGES):
            continue
        said = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
        words.append(f"--{name.replace('_', '-')}" + ("" if value is True else f" {said}"))
    return " ".join(words)


def refuse_no_chat(messages: Any) -> None:
    """Fail unless this is a list of chat messages, whose results of tools name a call before them."""
    assert isinstance(messages, list)
    called = set[str]()
    for message in messages:
        assert message["role"] in ROLES
        content = message.get("content")
        assert content is None or isinstance(content, str) or any(part["type"] != "text" for part in content)
        for call in message.get("tool_calls") or ():
            assert isinstance(call["function"]["name"], str)
            called.add(call.get("id"))
        if "tool_call_id" in message and called:
            assert message["tool_call_id"] in called


@pytest.mark.parametrize("form", ["messages", "turns", "raw"])
@pytest.mark.parametrize("layout", WRITERS)
def test_every_kind_of_a_file_of_a_layout_is_a_chat_or_is_refused(layout: str, form: str) -> None:
    written = WRITERS[layout](Path("files"))
    for kind in KINDS:
        words = f"export {written.path} --to {kind} --form {form} {flags_of(written.flags, kind)}"
        done = adv(f"{words} -o out.jsonl --force")
        if done.status:
            assert done.status in {1, 2}
            assert "Traceback" not in done.err
            assert not Path("out.jsonl").exists()
            # of a layout with texts, only a rule of the kind leaves nothing
            assert layout not in WITH_TEXTS or (kind == "pairs" and "no record for pairs is left" in done.err), done.err
            continue
        for line in Path("out.jsonl").read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            lists = [
                record[name] for name in ("messages", "prompt", "completion", "chosen", "rejected") if name in record
            ]
            lists += record.get("responses", [])
            assert lists
            if form != "raw":
                for one in lists:
                    refuse_no_chat(one)
        Path("out.jsonl").unlink()


@pytest.mark.parametrize("layout", sorted(WITH_TEXTS))
def test_groups_of_a_layout_are_read_back(layout: str) -> None:
    """With the same rewards and advantages, in the same groups."""
    written = WRITERS[layout](Path("files"))
    done = adv(f"export {written.path} --to groups -m dr-grpo {flags_of(written.flags, 'groups')} -o out.jsonl")
    assert not done.status, done.err
    records = [json.loads(line) for line in Path("out.jsonl").read_text(encoding="utf-8").splitlines()]
    again = adv("compute out.jsonl -m dr-grpo --column again -o back.jsonl --long")
    assert not again.status, again.err
    back = [json.loads(line) for line in Path("back.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["rewards"] for row in back] == [reward for record in records for reward in record["rewards"]]
    if layout != "slime":  # a masked row of it counts in its group, and is no response of the record
        assert [row["again"] for row in back] == pytest.approx([a for record in records for a in record["advantages"]])
    inspected = json.loads(adv("inspect out.jsonl --json").out)
    assert inspected["groups"] == len(records)


# --- one conversation as each tool writes it ------------------------------------------------------------------------

TOOL = {"name": "add", "description": "adds", "parameters": {"type": "object"}}
ARGUMENTS = '{"a": 2}'
CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": ARGUMENTS}}
ASKED = [{"role": "system", "content": "Use tools."}, {"role": "user", "content": "2+3?"}]
CALLS = {"role": "assistant", "reasoning_content": "I add", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "5"}


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def chat_of(text: str) -> list[dict[str, Any]]:
    return [*ASKED, CALLS, RESULT, says(text)]


def lines(name: str, rows: list[dict[str, Any]]) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def document(name: str, value: Any) -> Path:
    Path(name).write_text(json.dumps(value), encoding="utf-8")
    return Path(name)


ANSWERS = (("5", 1.0), ("6", 0.0))


def of_nodes(text: str) -> list[dict[str, Any]]:
    """As verifiers 0.4.0 stores a trace (v1/graph.py, v1/types.py); an earlier branch answered something else."""
    call = {"id": "c", "type": "function", "name": "add", "namespace": None, "arguments": ARGUMENTS}
    tool = {"type": "function", "namespace": None, **TOOL, "strict": None}
    messages = [*ASKED, {**CALLS, "tool_calls": [call]}, {**RESULT, "name": None}]
    parents = [None, 0, 1, 2]
    nodes: list[dict[str, Any]] = [
        {"parent": at, "message": one, "token_ids": []} for at, one in zip(parents, messages, strict=True)
    ]
    nodes[0]["tools"] = [tool]
    return [*nodes, {"parent": 1, "message": says("too early")}, {"parent": 3, "sampled": True, "message": says(text)}]


def of_responses(text: str) -> list[dict[str, Any]]:
    return [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "I add"}]},
        {"type": "function_call", "call_id": "c", "name": "add", "arguments": ARGUMENTS},
        {"type": "function_call_output", "call_id": "c", "output": "5"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]},
    ]


def of_inspect(text: str) -> list[dict[str, Any]]:
    """As inspect_ai writes messages (model/_chat_message.py): reasoning is a part, a call names its function in one text."""
    call = {"id": "c", "function": "add", "arguments": json.loads(ARGUMENTS), "type": "function"}
    calls = {
        "id": "m1",
        "role": "assistant",
        "source": "generate",
        "content": [{"type": "reasoning", "reasoning": "I add"}],
        "tool_calls": [call],
    }
    return [*ASKED, calls, {**RESULT, "id": "m2", "function": "add"}, {**says(text), "id": "m3", "source": "generate"}]


def of_tau2(text: str) -> list[dict[str, Any]]:
    """As tau2 writes messages (data_model/message.py)."""
    call = {"id": "c", "name": "add", "arguments": json.loads(ARGUMENTS), "requestor": "assistant"}
    results = {"role": "tool", "id": "c", "content": "5", "requestor": "assistant", "error": False, "turn_idx": 3}
    return [*ASKED, {"role": "assistant", "content": None, "tool_calls": [call], "turn_idx": 2}, results, says(text)]


def prime_rl() -> tuple[Path, str]:
    rows = []
    for at, (text, reward) in enumerate(ANSWERS):
        trace: dict[str, Any] = {
            "agent": {"name": "solver"},
            "id": f"t{at}",
            "nodes": of_nodes(text),
            "rewards": {"correct": {"score": reward, "weight": 1.0}},
        }
        trace |= {"metrics": {}, "info": {}, "errors": [], "ok": True}
        rows.append(
            {
                "group": {"id": "g"},
                "run": {"work": {"step": 1}},
                "task": {"type": "math", "key": "k"},
                "traces": [trace],
            }
        )
    return lines("train/effective/traces.jsonl", rows), ""


def verifiers_traces() -> tuple[Path, str]:
    rows = []
    for at, (text, reward) in enumerate(ANSWERS):
        task = {"type": "T", "data": {"idx": 0}, "key": "k", "hash": "h"}
        trace = {
            "version": 1,
            "id": f"t{at}",
            "task": task,
            "agent": {"name": "agent"},
            "nodes": of_nodes(text),
            "ok": True,
        }
        trace["rewards"] = {"correct": {"score": reward, "weight": 1.0}}
        rows.append({"id": f"e{at}", "env": {"id": "x"}, "task": task, "ok": True, "errors": [], "traces": [trace]})
    return lines("traces.jsonl", rows), ""


def nemo_gym() -> tuple[Path, str]:
    asked = {"input": [ASKED[1]], "instructions": "Use tools.", "tools": [{"type": "function", **TOOL}]}
    rows = [
        {
            "responses_create_params": asked,
            "response": {"output": of_responses(text)},
            "reward": reward,
            "_ng_task_index": 0,
            "_ng_rollout_index": at,
        }
        for at, (text, reward) in enumerate(ANSWERS)
    ]
    return lines("rollouts.jsonl", rows), ""


def inspect_log() -> tuple[Path, str]:
    samples = [
        {"id": 0, "epoch": at + 1, "input": "q", "scores": {"match": {"value": reward}}, "messages": of_inspect(text)}
        for at, (text, reward) in enumerate(ANSWERS)
    ]
    log = {"version": 2, "status": "success", "eval": {"task": "t"}, "plan": {}, "samples": samples}
    return document("2025-01-01T00-00-00_task.json", log), ""


def tau2() -> tuple[Path, str]:
    simulations = [
        {"id": f"s{at}", "task_id": "0", "trial": at, "reward_info": {"reward": reward}, "messages": of_tau2(text)}
        for at, (text, reward) in enumerate(ANSWERS)
    ]
    return document("results.json", {"info": {}, "tasks": [{"id": "0"}], "simulations": simulations}), ""


def tau_bench() -> tuple[Path, str]:
    rows = [
        {"task_id": 0, "reward": reward, "info": {}, "traj": chat_of(text), "trial": at}
        for at, (text, reward) in enumerate(ANSWERS)
    ]
    return document("gpt-4o-airline.json", rows), ""


def eval_protocol() -> tuple[Path, str]:
    rows = [
        {"messages": chat_of(text), "tools": [{"type": "function", "function": TOOL}], "input_metadata": {"row_id": "r"}, "created_at": f"2025-01-0{at + 1}",
         "rollout_status": {}, "evaluation_result": {"score": reward, "is_score_valid": True, "reason": "", "metrics": {}}}
        for at, (text, reward) in enumerate(ANSWERS)
    ]  # fmt: skip
    return lines("logs.jsonl", rows), ""


def verifiers() -> tuple[Path, str]:
    """Up to verifiers 0.1 a call is JSON in a text, and tools are in `info`."""
    calls = {**CALLS, "tool_calls": [json.dumps(CALL)]}
    rows = [
        {"example_id": 0, "prompt": ASKED, "completion": [calls, RESULT, says(text)], "reward": reward, "answer": "5",
         "info": {"oai_tools": [{"type": "function", "function": TOOL}]}}
        for text, reward in ANSWERS
    ]  # fmt: skip
    return lines("outputs/evals/env--model/0a/results.jsonl", rows), ""


def art() -> tuple[Path, str]:
    """What the model said are choices of chat completions."""
    made = []
    for text, reward in ANSWERS:
        turns = [
            *ASKED,
            {"finish_reason": "tool_calls", "index": 0, "message": CALLS},
            RESULT,
            {"finish_reason": "stop", "index": 0, "message": says(text)},
        ]
        made.append(
            {"messages_and_choices": turns, "tools": [{"type": "function", "function": TOOL}], "reward": reward}
        )
    return lines(
        "0001.jsonl", [{"trajectories": made}]
    ), "--reward trajectories[].reward --messages messages_and_choices"


TRACES: dict[
    str, tuple[Callable[[], tuple[Path, str]], bool, bool]
] = {  # whether reasoning, and whether tools are in the file
    "prime-rl": (prime_rl, True, True),
    "verifiers v1": (verifiers_traces, True, True),
    "NeMo Gym": (nemo_gym, True, True),
    "Inspect": (inspect_log, True, False),
    "tau2": (tau2, False, False),
    "tau-bench": (tau_bench, True, False),
    "eval-protocol": (eval_protocol, True, True),
    "verifiers": (verifiers, True, True),
    "ART": (art, True, True),
}


def bare(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages with the fields of a chat, arguments as objects."""
    known = ("role", "reasoning_content", "content", "tool_calls", "tool_call_id")
    found = [{name: one[name] for name in known if one.get(name) is not None} for one in messages]
    for call in (call for one in found for call in one.get("tool_calls", ())):
        arguments = call["function"]["arguments"]
        call["function"] = {
            **call["function"],
            "arguments": json.loads(arguments) if isinstance(arguments, str) else arguments,
        }
    return found


@pytest.mark.parametrize("tool", TRACES)
def test_a_trace_becomes_the_conversation_that_it_holds(tool: str) -> None:
    write, has_reasoning, has_tools = TRACES[tool]
    path, flags = write()
    expected = [dict(one) for one in chat_of("5")]
    if not has_reasoning:
        del expected[2]["reasoning_content"]
    (record,) = adv(f"export {path} --to sft --form messages {flags} -o -").rows
    assert bare(record["messages"]) == bare(json.loads(json.dumps(expected)))
    assert record.get("tools") == ([{"type": "function", "function": TOOL}] if has_tools else None)
    assert record["reward"] == 1.0
    (pair,) = adv(f"export {path} --to pairs --form turns {flags} -o -").rows
    assert [pair[side][-1]["content"] for side in ("chosen", "rejected")] == ["5", "6"]
    (group,) = adv(f"export {path} --to groups --form turns {flags} -o -").rows
    assert bare(group["prompt"]) == ASKED
    assert [response[-1]["content"] for response in group["responses"]] == ["5", "6"]


# --- the bytes of plain chats ---------------------------------------------------------------------------------------

PLAIN = {
    "sft": "export chats.jsonl --to sft",
    "sft-all": "export chats.jsonl --to sft --pick all-above --keep-duplicates",
    "sft-conversation": "export conversations.jsonl --to sft --messages messages",
    "sft-texts": "export texts.jsonl --to sft",
    "sft-mixed": "export mixed.jsonl --to sft --pick all-above --min-reward 0",
    "sft-parquet": "export chats.parquet --to sft",
    "pairs": "export chats.jsonl --to pairs",
    "pairs-conversation": "export conversations.jsonl --to pairs --messages messages --pairs all",
    "weights": "export chats.jsonl --to weights --weight softmax",
    "weights-conversation": "export conversations.jsonl --to weights --messages messages --method rloo",
    "prompts": "export chats.jsonl --to prompts --pass-at 1,2",
    "prompts-conversation": "export conversations.jsonl --to prompts --messages messages",
}
BEFORE = Path(__file__).with_name("plain_exports")


def plain_files() -> None:
    """Chats as trainers write them: blanks, escapes, scripts, tool calls, and fields that no chat has."""
    call = '{"id": "c", "type": "function", "function": {"name": "add", "arguments": "{\\"a\\": 2, \\"type\\": \\"from\\"}"}}'
    chats, conversations, texts, mixed = [], [], [], []
    for at in range(12):
        group, reward = at // 4, (at * 5 % 4) / 4
        asked = f'[{{"role": "system",  "content":"s"}} , {{"content":"q{group} \\u00e9 é \\"from\\": 1","role":"user","n":1.10}}]'
        answered = f'[{{"role":"assistant","content":null,"tool_calls":[{call}]}},{{"role":"tool","tool_call_id":"c","content":"5"}},{{"role": "assistant", "content": "a{at} 👩‍🔬", "extra": {{"type": null}}}}]'
        chats.append(f'{{"id": "p{group}", "prompt": {asked}, "completion": {answered}, "reward": {reward}}}')
        conversations.append(f'{{"id":"p{group}","reward":{reward},"messages":{asked[:-1]}, {answered[1:]}}}')
        texts.append(f'{{"id": "p{group}", "prompt": "q{group}\\n", "completion": "a{at}", "reward": {reward}}}')
        mixed.append(
            f'{{"id": "p{group}", "prompt": "q{group}", "completion": [{{"role": "assistant", "content": "a{at}"}}], "reward": {reward}}}'
        )
    for name, rows in (("chats", chats), ("conversations", conversations), ("texts", texts), ("mixed", mixed)):
        Path(f"{name}.jsonl").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    frame = pl.DataFrame([json.loads(row) for row in chats])
    frame.write_parquet("chats.parquet")


@pytest.mark.parametrize("case", PLAIN)
def test_plain_chats_are_exported_byte_for_byte_as_before(case: str) -> None:
    plain_files()
    done = adv(f"{PLAIN[case]} -g id -o out.jsonl")
    assert not done.status, done.err
    assert Path("out.jsonl").read_bytes() == (BEFORE / f"{case}.jsonl").read_bytes()
