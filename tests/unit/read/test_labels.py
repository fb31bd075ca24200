"""Labels distinguish keys in the available width."""

from __future__ import annotations

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from grpo_cli.engine.plan import Plan
from grpo_cli.formats.frame import FRAME, FrameReader
from grpo_cli.read.build_table import read
from grpo_cli.read.layout import layout
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.tables import Binding, Table
from grpo_cli.read.texts import Labels
from grpo_cli.values.key_text import plain, shared, told_apart

TEXTS = st.lists(st.text(st.sampled_from("ab cdé日"), max_size=60), min_size=1, max_size=12)


@given(TEXTS, st.integers(1, 40))
def test_no_label_is_wider_than_its_room(texts: list[str], width: int) -> None:
    assert all(cell_len(label) <= width for label in told_apart(texts, width))


def test_a_text_that_fits_is_its_own_label() -> None:
    assert told_apart(["one", "two"], 3) == ["one", "two"]


@pytest.mark.parametrize(
    "text",
    [
        "Solve this problem and think step by step: NUMBER",
        "NUMBER is the number. Now tell me which number it was, in words.",
        "Here is a long beginning that all share, then NUMBER, and a long end that all of them share",
    ],
)
def test_different_keys_have_different_labels(text: str) -> None:
    texts = [text.replace("NUMBER", f"{n}") for n in range(20)]
    labels = told_apart(texts, 24)
    assert len({*labels}) == 20


def test_what_all_share_is_whole_words() -> None:
    assert shared(["prompt-0012 of maths", "prompt-0034 of maths"]) == ("prompt-", " of maths")
    assert shared(["alone"]) == ("", "")
    assert shared(["same", "same"]) == ("", "")


KEYS = r"""
"<|im_start|>user\nWhat is it?<|im_end|>\n<|im_start|>assistant\n" => What is it?
"<s>[INST] What is it? [/INST]" => What is it?
"[{\"content\":\"What is it?\",\"role\":\"user\"}]" => What is it?
"{\"a\":1}" => {"a":1}
"two\nlines\u001b[31m" => two lines\x1b[31m
"""


@pytest.mark.parametrize("line", KEYS.strip().splitlines())
def test_a_key_is_shown_without_the_marks_of_a_template(line: str) -> None:
    key, _, text = line.partition(" => ")
    assert plain(json.loads(key)) == text


def narrow_of(keys: list[str]) -> Narrow:
    rows = pl.DataFrame({"prompt_id": keys}).with_columns(reward=1.0)
    table = Table(FRAME, FrameReader(rows.columns, lambda *_: rows))
    return read(layout([table], Binding(group=("prompt_id",))), Plan(), warn=False, checks=())


def test_labels_leave_out_what_all_keys_share_only_if_they_have_to() -> None:
    keys = [f"Please solve this problem: what is {n} plus one, in words?" for n in range(50)]
    labels = Labels(narrow_of(keys))
    assert labels([0, 49], 80) == [keys[0], keys[49]]
    assert labels([0, 49], 8) == ["0", "49"]


def test_of_very_many_keys_only_a_sample_and_those_that_are_asked_for_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    narrow = narrow_of([f"the key with the number {n:07}" for n in range(100_000)])
    looked = list[int]()
    original = Labels._text

    def noted(labels: Labels, code: int) -> str:
        looked.append(code)
        return original(labels, code)

    monkeypatch.setattr(Labels, "_text", noted)
    labels = Labels(narrow)
    assert labels(range(5_000, 5_040), 10) == [f"{n:07}" for n in range(5_000, 5_040)]
    assert len(looked) <= 1_050
