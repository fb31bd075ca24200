"""`compute --per-token`: the advantage on every token of the response."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pyarrow.parquet as pq
import pytest

from grpo_cli.values import token_lists
from grpo_cli.write.token_lists import TokenColumns, token_facts
from tests.support.command import adv, facts_of, files, ran
from tests.support.drawn import paired
from tests.support.jobs import rows_of, write
from tests.support.per_token import computed, lists_of

Row = dict[str, Any]
LINES = """
{"prompt_id": "a", "reward": 1.0, "n": 2, "prompt_ids": [5], "completion_ids": [7, 7], "all_ids": [5, 7, 7], "loss_mask": [0, 1, 1]}
{"prompt_id": "a", "reward": 0.0, "n": 1, "prompt_ids": [5, 5], "completion_ids": [7], "all_ids": [5, 5, 7], "loss_mask": [0, 0, 1]}
{"prompt_id": "b", "reward": 0.5, "n": 0, "prompt_ids": [5], "completion_ids": [], "all_ids": [5], "loss_mask": [0]}
{"prompt_id": "b", "reward": 1.5, "n": 3, "prompt_ids": [5], "completion_ids": [7, 7, 7], "all_ids": [5, 7, 7, 7], "loss_mask": [0, 1, 1, 1]}
"""
ROWS: list[Row] = [json.loads(line) for line in LINES.strip().splitlines()]
OF_RESPONSE = [[0.5, 0.5], [-0.5], [], [0.5, 0.5, 0.5]]
OF_ALL = [[0.0, 0.5, 0.5], [0.0, 0.0, -0.5], [0.0], [0.0, 0.5, 0.5, 0.5]]
IDS = "--per-token --tokens completion_ids --method dr-grpo"
MASK = "--per-token --mask loss_mask --method dr-grpo"
FORMATS = ("jsonl", "json", "parquet", "arrow")
TOKENS = [
    ("--tokens completion_ids", OF_RESPONSE),
    ("--length-column n", OF_RESPONSE),
    ("--tokens completion_ids --prompt-tokens prompt_ids", OF_ALL),
    ("--tokens all_ids --length-column n", OF_ALL),
    ("--mask loss_mask --tokens all_ids", OF_ALL),
]


@pytest.mark.parametrize(("tokens", "suffix"), paired(TOKENS, FORMATS))
def test_the_list_is_woven_in_and_the_rest_of_the_file_stays(tokens: tuple[str, list[Any]], suffix: str) -> None:
    options, wanted = tokens
    path = write(f"in.{suffix}", ROWS)
    assert computed(path, f"out.{suffix}", f"--per-token --method dr-grpo {options}") == wanted
    ran(f"verify out.{suffix} --against {path}")


@pytest.mark.parametrize(("suffix", "most"), [("jsonl", 2), ("json", 2), ("parquet", 3), ("arrow", 6)])
def test_lists_of_few_rows_are_in_memory_at_a_time(suffix: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few tokens, a row group, or a record batch."""
    for module in ("values.token_lists", "formats.parquet.splice"):
        monkeypatch.setattr(f"grpo_cli.{module}.AT_ONCE", 1000)
    write(f"in.{suffix}", [{"prompt_id": at // 2, "reward": at, "n": 500} for at in range(6)])
    heights: list[int] = []

    def noted(function: Callable[[pl.Series], pl.Series]) -> Callable[[pl.Series], pl.Series]:
        def called(series: pl.Series) -> pl.Series:
            heights.append(len(series))
            return function(series)

        return called

    for name in ("_lists", "json_texts"):
        monkeypatch.setattr(token_lists, name, noted(getattr(token_lists, name)))
    ran(f"compute in.{suffix} --per-token --length-column n --method dr-grpo -o out.{suffix} -q")
    assert [row["advantage"] for row in rows_of(f"out.{suffix}")] == [[-0.5] * 500, [0.5] * 500] * 3
    assert max(heights) == most


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_in_place_and_again_with_replace(suffix: str) -> None:
    path = write(f"in.{suffix}", ROWS)
    ran(f"compute {path} {MASK} --in-place -q")
    assert lists_of(path) == OF_ALL
    again = adv(f"compute {path} {MASK} --in-place -q")
    assert again.status == 1
    assert "already has a column 'advantage'" in again.err
    ran(f"compute {path} {IDS} --replace --in-place -q")
    assert lists_of(path) == OF_RESPONSE
    ran(f"compute {path} --method dr-grpo --replace -o plain.{suffix} -q")
    assert [row["advantage"] for row in rows_of(f"plain.{suffix}")] == [0.5, -0.5, -0.5, 0.5]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_row_without_advantage_has_no_list_and_needs_no_tokens(suffix: str) -> None:
    path = write(f"in.{suffix}", [*ROWS, {**ROWS[0], "reward": None, "loss_mask": None}])
    assert computed(path, f"out.{suffix}", f"{MASK} --missing exclude") == [*OF_ALL, None]


@pytest.mark.parametrize(("suffix", "to"), [*product(["jsonl", "parquet"], repeat=2)])
def test_dropped_rows_and_other_formats(suffix: str, to: str) -> None:
    path = write(f"in.{suffix}", [{**ROWS[0], "prompt_id": "c"}, *ROWS, {**ROWS[3], "prompt_id": "c", "reward": 1.0}])
    for more in ("", "--only"):
        assert computed(path, f"out.{to}", f"{MASK} --zero-variance drop {more}") == OF_ALL


def test_records_with_lists_get_a_list_for_each_rollout() -> None:
    path = write("in.jsonl", [{"prompt": "p", "rewards": [0, 1, 2], "completion_ids": [[1], [1, 2], []]}])
    assert computed(path, "out.jsonl", IDS) == [[[-1.0], [0.0, 0.0], []]]
    write("objects.jsonl", [{"rollouts": [{"correct": 0, "ids": [1, 2]}, {"correct": 1, "ids": [3]}]}])
    done = adv("compute objects.jsonl --reward rollouts[].correct --per-token --tokens ids --method dr-grpo -o - -q")
    assert [one["advantage"] for one in done.rows[0]["rollouts"]] == [[-0.5, -0.5], [0.5]]


def test_the_summary_and_the_parquet_file_say_what_the_tokens_are() -> None:
    write("in.parquet", ROWS)
    facts = facts_of(f"compute in.parquet {MASK} -o out.parquet")
    assert facts["per_token"] == {"columns": {"mask": "loss_mask"}, "tokens": 11, "response_tokens": 6}
    noted = json.loads(pq.read_metadata("out.parquet").metadata[b"grpo_adv"])
    assert noted["per_token"] == {"mask": "loss_mask"}
    said = adv("compute in.parquet --per-token --length-column n -o out.parquet --force")
    assert "on 6 of 6 tokens (length = n)" in said.out
    assert "is not read by this plan" not in said.err


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"n": 9}, "--per-token --tokens completion_ids --length-column n", "in.jsonl:2: n is 9, completion_ids has 1 tokens"),
        ({"loss_mask": None}, MASK, "in.jsonl:2: loss_mask is null, expected a list of numbers"),
        ({}, "--per-token --mask los_mask", "no column named 'los_mask'; did you mean 'loss_mask'?"),
        ({}, "--per-token", "give --tokens COL, --mask COL or --length-column COL; it could be prompt_ids, completion_ids"),
        ({}, "--per-token --mask loss_mask --length-column n", "leave one of them out"),
        ({}, "--per-token --mask loss_mask --prompt-tokens n", "leave out --prompt-tokens"),
        ({}, "--per-token --mask loss_mask --column loss_mask --replace", "'loss_mask' is read by this run"),
        ({}, "--mask loss_mask", "add --per-token"),
        ({}, f"{MASK} -o out.csv", "cannot hold lists; give -o FILE.jsonl"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_an_error_before_anything_is_written(change: Row, options: str, message: str) -> None:
    write("in.jsonl", [ROWS[0], {**ROWS[1], **change}, *ROWS[2:]])
    done = adv(f"compute in.jsonl {options}")
    assert done.status in {1, 2}
    assert message in done.err
    assert [*files()] == ["in.jsonl"]


def test_a_prompt_with_as_many_tokens_as_rollouts_is_a_prompt() -> None:
    Path("in.jsonl").write_text(
        '{"id": "a", "prompt_ids": [7, 9], "responses": [[1, 2], [3]], "rewards": [1, 0]}\n'
        '{"id": "b", "prompt_ids": [7, 9, 5], "responses": [[1, 2], [3]], "rewards": [0, 1]}\n'
    )
    options = "--group id --reward rewards --scale none --group-within input"
    lists = "--per-token --tokens responses --prompt-tokens prompt_ids"
    found = computed(Path("in.jsonl"), "out.jsonl", f"{options} {lists}")
    assert found == [[[0, 0, 0.5, 0.5], [0, 0, -0.5]], [[0, 0, 0, -0.5, -0.5], [0, 0, 0, 0.5]]]


def test_a_length_that_the_plan_reads_says_nothing_of_the_tokens_beside_a_mask() -> None:
    path = write("in.jsonl", [{**row, "n": 2} for row in ROWS])
    assert computed(path, "out.jsonl", "--per-token --mask loss_mask --method opo --length-column n") == OF_ALL
    assert computed(path, "out.jsonl", f"{MASK} --length-column equal") == OF_ALL


def test_tokens_are_counted_beyond_four_billion() -> None:
    class Lists:
        """Two rows whose lists are too long to be made."""

        list = SimpleNamespace(
            len=lambda: pl.Series([(1 << 32) - 1, 2], dtype=pl.UInt32),
            sum=lambda: pl.Series([(1 << 32) - 1, 1], dtype=pl.UInt32),
        )

    facts = token_facts(TokenColumns(tokens="a"), token_lists.Tokens(cast("pl.Series", Lists)))
    assert facts.tokens == (1 << 32) + 1
    assert facts.response_tokens == 1 << 32
