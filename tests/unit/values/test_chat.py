"""Who speaks in a chat, wherever the answer matters: prompts that are compared, exports, lists beside lists of rewards."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from grpo_cli.formats.json_document.lists import _is_item_each
from grpo_cli.read.prompt_check import prompt_of
from grpo_cli.values.chat import is_message, responds
from grpo_cli.write.records import before_response, unwrapped

TURNS = [
    [{"role": "user", "content": "a"}, {"role": "Assistant", "content": "b"}],
    [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}],
    [{"role": None, "from": "human", "value": "a"}, {"role": None, "from": "model", "value": "b"}],
]


@pytest.mark.parametrize("turns", TURNS)
def test_the_prompt_is_everything_before_the_first_turn_of_the_model(turns: list[dict[str, Any]]) -> None:
    assert [responds(turn) for turn in turns] == [False, True]
    assert prompt_of(turns) == "a"
    assert json.loads(before_response(pl.Series("x", [json.dumps(turns)]), str)[0]) == turns[:1]


@pytest.mark.parametrize("turns", TURNS)
def test_turns_are_one_thing_and_no_list_with_an_item_for_each_rollout(turns: list[dict[str, Any]]) -> None:
    assert not _is_item_each(json.dumps(turns), len(turns))
    assert _is_item_each('[{"reward": 1}, {"reward": 2}]', 2)


@pytest.mark.parametrize("turns", TURNS)
def test_turns_that_are_kept_as_a_text_are_taken_out_of_it(turns: list[dict[str, Any]]) -> None:
    texts = pl.Series("x", [json.dumps(json.dumps(turns)), json.dumps(json.dumps([{"reward": 1}]))])
    assert json.loads(unwrapped(texts)[0]) == turns
    assert unwrapped(texts)[1] == texts[1]


@pytest.mark.parametrize("value", ["assistant", None, 1, [], {}, {"content": "b"}])
def test_what_has_no_speaker_is_no_turn(value: object) -> None:
    assert not is_message(value)
    assert not responds(value)


@pytest.mark.parametrize("speaker", ["user", "system", "", None, 7, ["assistant"]])
def test_others_are_not_the_model(speaker: object) -> None:
    assert is_message({"role": speaker})
    assert not responds({"role": speaker})
