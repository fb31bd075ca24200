"""`compute --per-token`: the advantage on every token, against lists that plain Python makes of the same rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pyarrow.parquet as pq
import pytest

from grpo_cli.values import token_lists
from grpo_cli.write.token_lists import TokenColumns, token_facts
from tests.support.command import adv
from tests.support.jobs import write
from tests.support.per_token import computed, lists_of

Row = dict[str, Any]
ROWS: list[Row] = [
    {
        "prompt_id": at // 2, "reward": at * at / 4, "prompt_ids": [5] * (at + 1), "completion_ids": [7] * at,
        "all_ids": [5] * (at + 1) + [7] * at, "n": at, "loss_mask": [0] * (at + 1) + [1] * at,
    }
    for at in range(6)
]  # fmt: skip
MASK = ("--per-token", "--mask", "loss_mask", "--method", "dr-grpo")
FORMATS = ("jsonl", "json", "parquet", "arrow")


def advantage(row: Row) -> float:
    return float(row["reward"] - mean(one["reward"] for one in ROWS if one["prompt_id"] == row["prompt_id"]))


def on_mask(row: Row) -> list[float]:
    return [advantage(row) if one else 0.0 for one in row["loss_mask"]]


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    ("options", "zeros"),
    [
        (("--tokens", "completion_ids"), False),
        (("--length-column", "n"), False),
        (("--tokens", "completion_ids", "--prompt-tokens", "prompt_ids"), True),
        (("--tokens", "all_ids", "--length-column", "n"), True),
        (("--mask", "loss_mask", "--tokens", "all_ids"), True),
    ],
    ids=str,
)
def test_the_list_is_woven_in_and_the_rest_of_the_file_stays(
    options: tuple[str, ...], *, zeros: bool, suffix: str, tmp_path: Path
) -> None:
    path, out = write(tmp_path / f"in.{suffix}", ROWS), tmp_path / f"out.{suffix}"
    found = computed(path, out, "--per-token", "--method", "dr-grpo", *options)
    assert found == [[0.0] * (zeros * len(row["prompt_ids"])) + [advantage(row)] * row["n"] for row in ROWS]
    assert adv("verify", str(out), "--against", str(path)).status == 0


@pytest.mark.parametrize("suffix", FORMATS)
def test_lists_of_few_rows_are_in_memory_at_a_time(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = token_lists.AT_ONCE // 2
    path = write(tmp_path / f"in.{suffix}", [{"prompt_id": at // 2, "reward": at, "n": many} for at in range(6)])
    heights: list[int] = []

    def noted(function: Callable[[pl.Series], pl.Series]) -> Callable[[pl.Series], pl.Series]:
        def called(series: pl.Series) -> pl.Series:
            heights.append(len(series))
            return function(series)

        return called

    for name in ("_lists", "json_texts"):
        monkeypatch.setattr(token_lists, name, noted(getattr(token_lists, name)))
    out = tmp_path / f"out.{suffix}"
    options = ("--per-token", "--length-column", "n", "--method", "dr-grpo", "-o", str(out), "-q")
    assert adv("compute", str(path), *options).status == 0
    read: dict[str, Callable[[Path], pl.DataFrame]] = {
        "arrow": pl.read_ipc, "json": pl.read_json, "jsonl": pl.read_ndjson, "parquet": pl.read_parquet
    }  # fmt: skip
    lists = read[suffix](out)["advantage"].list
    assert lists.len().to_list() == [many] * 6
    assert lists.min().to_list() == lists.max().to_list() == [-0.5, 0.5] * 3
    assert max(heights) == {"arrow": 6, "parquet": 3}.get(suffix, 2)  # a record batch, a row group, or a few tokens


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_in_place_and_again_with_replace(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"in.{suffix}", ROWS)
    assert adv("compute", str(path), *MASK, "--in-place", "-q").status == 0
    assert lists_of(path) == list(map(on_mask, ROWS))
    again = adv("compute", str(path), *MASK, "--in-place", "-q")
    assert (again.status, "already has a column 'advantage'" in again.err) == (1, True)
    options = ("--per-token", "--tokens", "completion_ids", "--method", "dr-grpo", "--replace", "--in-place", "-q")
    assert adv("compute", str(path), *options).status == 0
    assert lists_of(path) == [[advantage(row)] * row["n"] for row in ROWS]
    plain = tmp_path / f"plain.{suffix}"
    assert adv("compute", str(path), "--method", "dr-grpo", "--replace", "-o", str(plain), "-q").status == 0
    numbers = pl.read_parquet(plain) if suffix == "parquet" else pl.read_ndjson(plain)
    assert numbers["advantage"].to_list() == list(map(advantage, ROWS))


def test_many_rows_whose_list_is_replaced_keep_every_other_byte(tmp_path: Path) -> None:
    rows = [{"prompt_id": at // 4, "reward": at % 3, "n": at % 5, "é": "ü\\"} for at in range(200)]
    path, once, twice = tmp_path / "in.jsonl", tmp_path / "once.jsonl", tmp_path / "twice.jsonl"
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
    options = ("--per-token", "--length-column", "n")
    first = computed(path, once, *options)
    assert [len(one) for one in first] == [row["n"] for row in rows]
    assert computed(once, twice, *options, "--replace") == first
    assert twice.read_bytes() == once.read_bytes()


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_row_without_advantage_has_no_list_and_needs_no_tokens(suffix: str, tmp_path: Path) -> None:
    rows = [*ROWS, {**ROWS[0], "reward": None, "loss_mask": None}]
    path = write(tmp_path / f"in.{suffix}", rows)
    found = computed(path, tmp_path / f"out.{suffix}", *MASK, "--missing", "exclude")
    assert found == [*map(on_mask, ROWS), None]


def test_dropped_rows_and_other_formats(tmp_path: Path) -> None:
    rows = [{**row, "reward": row["reward"] if row["prompt_id"] != 1 else 1.0} for row in ROWS]
    kept = [row for row in ROWS if row["prompt_id"] != 1]
    for suffix in ("jsonl", "parquet"):
        path = write(tmp_path / f"in.{suffix}", rows)
        for to in ("jsonl", "parquet"):
            found = computed(path, tmp_path / f"out.{to}", *MASK, "--zero-variance", "drop")
            assert found == list(map(on_mask, kept))
            only = computed(path, tmp_path / f"only.{to}", *MASK, "--zero-variance", "drop", "--only")
            assert only == found


def test_records_with_lists_get_a_list_for_each_rollout(tmp_path: Path) -> None:
    path, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    path.write_text('{"prompt": "p", "rewards": [0, 1, 2], "completion_ids": [[1], [1, 2], []]}\n')
    options = ("--per-token", "--tokens", "completion_ids", "--method", "dr-grpo")
    assert computed(path, out, *options) == [[[-1.0], [0.0, 0.0], []]]
    objects = tmp_path / "objects.jsonl"
    objects.write_text('{"rollouts": [{"correct": 0, "ids": [1, 2]}, {"correct": 1, "ids": [3]}]}\n')
    done = adv(
        "compute", str(objects), "--reward", "rollouts[].correct", "--per-token", "--tokens", "ids",
        "--method", "dr-grpo", "-o", "-", "-q",
    )  # fmt: skip
    assert [one["advantage"] for one in done.rows[0]["rollouts"]] == [[-0.5, -0.5], [0.5]]


def test_a_stream_gets_its_lists_group_by_group() -> None:
    lines = "".join(f"{json.dumps(row)}\n" for row in ROWS)
    done = adv("compute", "-", "--stream", "--group", "prompt_id", *MASK, "-q", stdin=lines)
    assert done.status == 0, done.err
    assert [row["advantage"] for row in done.rows] == list(map(on_mask, ROWS))


def test_the_summary_and_the_parquet_file_say_what_the_tokens_are(tmp_path: Path) -> None:
    path, out = write(tmp_path / "in.parquet", ROWS), tmp_path / "out.parquet"
    facts = json.loads(adv("compute", str(path), *MASK, "-o", str(out), "--json").out)
    assert facts["per_token"] == {"columns": {"mask": "loss_mask"}, "tokens": 36, "response_tokens": 15}
    noted = json.loads(pq.read_metadata(out).metadata[b"grpo_adv"])
    assert noted["per_token"] == {"mask": "loss_mask"}
    said = adv("compute", str(path), "--per-token", "--length-column", "n", "-o", str(out), "--force")
    assert "on 15 of 15 tokens (length = n)" in said.err + said.out
    assert "is not read by this plan" not in said.err


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"n": 9}, ("--tokens", "completion_ids", "--length-column", "n"), "rows.jsonl:2: n is 9, completion_ids has 1 tokens"),
        ({"loss_mask": None}, ("--mask", "loss_mask"), "rows.jsonl:2: loss_mask is null, expected a list of numbers"),
        ({}, ("--mask", "los_mask"), "no column named 'los_mask'; did you mean 'loss_mask'?"),
        ({}, (), "give --tokens COL, --mask COL or --length-column COL; it could be prompt_ids, completion_ids"),
        ({}, ("--mask", "loss_mask", "--length-column", "n"), "leave one of them out"),
        ({}, ("--mask", "loss_mask", "--prompt-tokens", "n"), "leave out --prompt-tokens"),
        ({}, ("--mask", "loss_mask", "--column", "loss_mask", "--replace"), "'loss_mask' is read by this run"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_an_error_before_anything_is_write(
    change: Row, options: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "rows.jsonl", [ROWS[0], {**ROWS[1], **change}, *ROWS[2:]])
    done = adv("compute", str(path), "--per-token", "-o", str(tmp_path / "out.jsonl"), *options)
    assert done.status in {1, 2}
    assert message in done.err
    assert not (tmp_path / "out.jsonl").exists()


def test_tokens_without_per_token_and_csv_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", ROWS)
    alone = adv("compute", str(path), "--mask", "loss_mask", "-o", str(tmp_path / "out.jsonl"))
    assert (alone.status, "add --per-token" in alone.err) == (2, True)
    csv = adv("compute", str(path), *MASK, "-o", str(tmp_path / "out.csv"))
    assert (csv.status, "cannot hold lists; give -o FILE.jsonl" in csv.err) == (2, True)


def test_a_prompt_with_as_many_tokens_as_rollouts_is_a_prompt(tmp_path: Path) -> None:
    lines = [
        {"id": "a", "prompt_ids": [7, 9], "responses": [[1, 2], [3]], "rewards": [1, 0]},
        {"id": "b", "prompt_ids": [7, 9, 5], "responses": [[1, 2], [3]], "rewards": [0, 1]},
    ]
    path = write(tmp_path / "in.jsonl", lines)
    options = ("--group", "id", "--reward", "rewards", "--scale", "none", "--group-within", "input")
    per_token = ("--per-token", "--tokens", "responses", "--prompt-tokens", "prompt_ids")
    lists = computed(path, tmp_path / "out.jsonl", *options, *per_token)
    assert lists == [[[0, 0, 0.5, 0.5], [0, 0, -0.5]], [[0, 0, 0, -0.5, -0.5], [0, 0, 0, 0.5]]]


def test_a_length_that_the_plan_reads_says_nothing_of_the_tokens_beside_a_mask(tmp_path: Path) -> None:
    path, out = write(tmp_path / "in.jsonl", ROWS), tmp_path / "out.jsonl"
    alone = adv("compute", str(path), "--method", "opo", "--length-column", "n", "-o", "-")
    lists = computed(path, out, *MASK[:3], "--method", "opo", "--length-column", "n")
    masked = zip(alone.rows, ROWS, strict=True)
    assert lists == [[row["advantage"] if one else 0.0 for one in known["loss_mask"]] for row, known in masked]
    assert computed(path, out, *MASK, "--length-column", "equal") == computed(path, out, *MASK)


def test_tokens_are_counted_beyond_four_billion() -> None:
    class Lists:
        """Two rows whose lists are too long to be made."""

        list = SimpleNamespace(
            len=lambda: pl.Series([(1 << 32) - 1, 2], dtype=pl.UInt32),
            sum=lambda: pl.Series([(1 << 32) - 1, 1], dtype=pl.UInt32),
        )

    facts = token_facts(TokenColumns(tokens="a"), token_lists.Tokens(cast("pl.Series", Lists)))
    assert (facts.tokens, facts.response_tokens) == ((1 << 32) + 1, 1 << 32)
