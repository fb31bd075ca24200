"""Words are found in the texts as people read them, however a file writes them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.formats import registry
from grpo_cli.guests.browse.model import Model
from grpo_cli.guests.browse.search import Search
from grpo_cli.read.texts import TextColumns
from grpo_cli.values.cells import Excerpt, Field
from tests.support.jobs import opened, write
from tests.unit.guests.browse.files import model, model_of

TEXTS = [
    "The quick brown fox", 'she said "Quick!" to C:\\dir/file', "über alles, ÜBER ALLES", "<b>bold</b> & more",
    "line one\nline two", "日本 and K", "",
]  # fmt: skip


def found(made: Model, needle: str) -> list[int]:
    search = Search(made, made.shown(""), needle, TextColumns())
    list(search.run())
    assert not search.going
    assert "100% searched" in search.says
    return search.hits


def rows() -> list[dict[str, Any]]:
    return [
        {"prompt_id": f"p{at // 2}", "prompt": "ask", "completion": text, "reward": at} for at, text in enumerate(TEXTS)
    ]


def escaped(row: dict[str, Any]) -> str:
    """A line with every letter of its texts as an escape."""
    text = "".join(f"\\u{ord(letter):04X}" for letter in row["completion"])
    return json.dumps({**row, "completion": ""}).replace('"completion": ""', f'"completion": "{text}"')


@pytest.fixture(
    scope="module", params=["plain.jsonl", "ascii.jsonl", "escaped.jsonl", "rows.jsonl.gz", "rows.json", "rows.parquet"]
)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("search") / request.param
    match request.param.split("."):
        case ["plain", _]:
            path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows()), encoding="utf-8")
        case ["escaped", _]:
            path.write_text("".join(f"{escaped(row)}\n" for row in rows()), encoding="utf-8")
        case _:
            write(path, rows())
    return model(path)


@pytest.mark.parametrize(
    "needle",
    [
        "quick", "QUICK BROWN", '"quick!"', "c:\\dir/f", "\\", "/b", "über", "Über Alles", "<b>", "& m", "日本",
        "日本 AND", "e", "ask", "nowhere", "prompt",
    ],
)  # fmt: skip
def test_a_row_is_found_by_what_its_texts_say(made: Model, needle: str) -> None:
    expected = [at for at, text in enumerate(TEXTS) if needle.lower() in f"ask\0{text}".lower()]
    assert found(made, needle) == expected


def test_words_of_messages_are_found_and_their_fields_are_not() -> None:
    Path("rows.jsonl").write_text(
        r"""
{"prompt_id": 0, "reward": 1, "messages": [{"role": "user", "content": "where"}, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look", "arguments": "{\"at\": [1, 2]}"}}]}]}
{"prompt_id": 1, "reward": 1, "messages": [{"role": "user", "content": [{"type": "text", "text": "the content of it"}]}]}
""".lstrip()
    )
    made = model("rows.jsonl")
    assert found(made, "content") == [1]
    assert found(made, "where") == [0]
    assert found(made, '"at": [') == [0]
    assert found(made, "role") == []


def test_only_the_groups_that_are_shown_are_searched(made: Model) -> None:
    search = Search(made, made.shown("mean > 3"), "e", TextColumns())
    list(search.run())
    assert search.hits == [at for at in (4, 5, 6) if "e" in TEXTS[at]]


def test_a_search_stops_at_once_and_goes_through_what_it_has() -> None:
    made = model_of(Path(), [{"prompt_id": "a", "prompt": "x" * 600_000, "completion": "y", "reward": 1}] * 20)
    search = Search(made, made.shown(""), "y", TextColumns())
    parts = search.run()
    first = next(parts)
    assert 0 < first < 20
    search.going = False
    assert list(parts) == []
    assert len(search.hits) == first
    assert [search.go(1) for _ in range(first)] == [*range(1, first), 0]


@given(
    st.lists(st.text(st.sampled_from('ab \\"\n'), max_size=12), min_size=1, max_size=30),
    st.sampled_from(["q", "qz", "z q"]),
)
def test_no_line_with_the_word_is_skipped(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], word: str
) -> None:
    """In blocks of any size, with blank lines between the rows."""
    path = tmp_path_factory.mktemp("lines") / "rows.jsonl"
    lines = [json.dumps({"prompt_id": "x", "completion": text, "reward": 1}) for text in texts]
    path.write_text("".join(f"{line}\n\n" for line in lines), encoding="utf-8")
    (table,) = opened(path)
    jsonl = replace(registry.lines(), block_size=100)
    index = jsonl.scan(table.source, [Field("reward", "number")]).index
    numbers = np.arange(len(texts))
    parts = [
        *jsonl.rows_perhaps_with(table.source, Excerpt(index, numbers, ["completion"], as_json=True), word.encode())
    ]
    assert parts[-1][0] == len(texts)
    kept: dict[int, str] = {}
    for _, numbers, frame in parts:
        if frame.width:
            kept |= zip(numbers.tolist(), map(json.loads, frame["completion"]), strict=True)
    assert kept == {at: text for at, text in enumerate(texts) if word in json.dumps(text)}
