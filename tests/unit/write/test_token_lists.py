"""Lists with a number for each token are made for a few rows at a time."""

from __future__ import annotations

import json

import polars as pl
import pytest

from grpo_cli.errors import UsageError
from grpo_cli.write.token_lists import TokenColumns, token_advantages


@pytest.mark.parametrize(("at_once", "heights"), [(1, [1, 1, 1, 1]), (4, [2, 1, 1]), (7, [3, 1]), (100, [4])])
def test_lists_of_advantages_are_made_a_few_at_a_time(at_once: int, heights: list[int]) -> None:
    tokens = ["[7]", "[7, 7, 7]", "[7, 7, 7, 7, 7]", "[7, 7, 7, 7, 7, 7]"]
    texts = pl.DataFrame({"ids": tokens, "prompt": ['"a"', '"b"', '"c"', '"d"']})
    values = pl.Series([0.5, -1.0, 0.0, 2.0])
    frames = list(token_advantages(texts, values, TokenColumns(tokens="ids"), str, at_once))
    assert [len(frame) for frame in frames] == heights
    found = pl.concat(frames)
    assert found["prompt"].to_list() == texts["prompt"].to_list()
    lists = [json.loads(text) for text in found["advantages"]]
    assert lists == [[0.5], [-1.0] * 3, [0.0] * 5, [2.0] * 6]


@pytest.mark.parametrize("others", [{}, {"mask": "m"}, {"length": "n", "teacher_logprobs": "t"}], ids=str)
def test_the_log_probabilities_may_count_the_tokens(others: dict[str, str]) -> None:
    TokenColumns(**{"tokens": "lp", "token_logprobs": "lp", **others}).check([])


@pytest.mark.parametrize(
    "twice",
    [
        {"mask": "a"},
        {"length": "a"},
        {"prompt_tokens": "a"},
        {"teacher_logprobs": "a"},
        {"mask": "a", "token_logprobs": "lp"},
    ],
    ids=str,
)
def test_no_other_column_counts_the_tokens_twice(twice: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="are both the column 'a'"):
        TokenColumns(tokens="a", **twice).check([])
