"""Who speaks in a chat, wherever the answer matters: prompts that are compared, exports, lists beside lists of rewards."""

from __future__ import annotations

import json

import polars as pl
import pytest

from grpo_cli.formats.json_document.lists import _is_item_each
from grpo_cli.read.prompt_check import prompt_of
from grpo_cli.values.chat import is_message, responds
from grpo_cli.write.records import at_response, unwrapped

TURNS = """
[{"role": "user", "content": "a"}, {"role": "Assistant", "content": "b"}]
[{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
[{"role": null, "from": "human", "value": "a"}, {"role": null, "from": "model", "value": "b"}]
"""


@pytest.mark.parametrize("text", TURNS.strip().splitlines())
def test_the_prompt_is_everything_before_the_first_turn_of_the_model(text: str) -> None:
    turns = json.loads(text)
    assert [responds(turn) for turn in turns] == [False, True]
    assert prompt_of(turns) == "a"
    parts = at_response(pl.Series("x", [text]))
    assert [json.loads(part) for part in parts.row(0)] == [turns[:1], turns[1:]]
    assert not _is_item_each(text, 2)  # they are one thing, and not a list with an item for each rollout
    assert _is_item_each('[{"reward": 1}, {"reward": 2}]', 2)


@pytest.mark.parametrize("text", TURNS.strip().splitlines())
def test_turns_that_are_kept_as_a_text_are_taken_out_of_it(text: str) -> None:
    others = json.dumps('[{"reward": 1}]')
    found = unwrapped(pl.Series("x", [json.dumps(text), others]))
    assert json.loads(found[0]) == json.loads(text)
    assert found[1] == others


@pytest.mark.parametrize("value", ["assistant", None, 1, [], {}, {"content": "b"}])
def test_what_has_no_speaker_is_no_turn(value: object) -> None:
    assert not is_message(value)
    assert not responds(value)


@pytest.mark.parametrize("speaker", ["user", "system", "", None, 7, ["assistant"]])
def test_others_are_not_the_model(speaker: object) -> None:
    assert is_message({"role": speaker})
    assert not responds({"role": speaker})
