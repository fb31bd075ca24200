"""`compute --per-token`: the advantage on every token, against lists that plain Python makes of the same rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from statistics import mean
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

Row = dict[str, Any]
ROWS: list[Row] = [
    {
        "prompt_id": at // 2, "reward": at * at / 4, "prompt_ids": [5] * (at + 1), "completion_ids": [7] * at,
        "all_ids": [5] * (at + 1) + [7] * at, "n": at, "loss_mask": [0] * (at + 1) + [1] * at,
    }
    for at in range(6)
]  # fmt: skip
IDS = "--per-token --tokens completion_ids --method dr-grpo"
MASK = "--per-token --mask loss_mask --method dr-grpo"
FORMATS = ("jsonl", "json", "parquet", "arrow")


def advantage(row: Row) -> float:
    return float(row["reward"] - mean(one["reward"] for one in ROWS if one["prompt_id"] == row["prompt_id"]))


def on_mask(row: Row) -> list[float]:
    return [advantage(row) if one else 0.0 for one in row["loss_mask"]]


def lists_of(path: Path) -> list[Any]:
    """The advantages in a file of any format: a column of lists of numbers."""
    if path.suffix in {".parquet", ".arrow"}:
        frame = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_ipc(path)
        assert frame["advantage"].dtype == pl.List(pl.Float64)
    return [row["advantage"] for row in rows_of(path)]


def computed(path: Path, out: str, options: str) -> list[Any]:
    """The lists that `compute` writes."""
    ran(f"compute {path} -o {out} --force -q {options}")
    return lists_of(Path(out))


# Which tokens are of the response, and whether zeros for those of the prompt come before them.
TOKENS = [
    ("--tokens completion_ids", 0),
    ("--length-column n", 0),
    ("--tokens completion_ids --prompt-tokens prompt_ids", 1),
    ("--tokens all_ids --length-column n", 1),
    ("--mask loss_mask --tokens all_ids", 1),
]


@pytest.mark.parametrize(("tokens", "suffix"), paired(TOKENS, FORMATS))
def test_the_list_is_woven_in_and_the_rest_of_the_file_stays(tokens: tuple[str, int], suffix: str) -> None:
    options, zeros = tokens
    path = write(f"in.{suffix}", ROWS)
    found = computed(path, f"out.{suffix}", f"--per-token --method dr-grpo {options}")
    assert found == [[0.0] * zeros * len(row["prompt_ids"]) + [advantage(row)] * row["n"] for row in ROWS]
    ran(f"verify out.{suffix} --against {path}")


@pytest.mark.parametrize("suffix", FORMATS)
def test_lists_of_few_rows_are_in_memory_at_a_time(suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("values.token_lists", "formats.parquet.splice"):
        monkeypatch.setattr(f"grpo_cli.{module}.AT_ONCE", 1000)
    write(f"in.{suffix}", [{"prompt_id": at // 2, "reward": at, "n": 500} for at in range(6)])
    heights = []

    def noted(function: Callable[[pl.Series], pl.Series]) -> Callable[[pl.Series], pl.Series]:
        def called(series: pl.Series) -> pl.Series:
            heights.append(len(series))
            return function(series)

        return called

    for name in ("_lists", "json_texts"):
        monkeypatch.setattr(token_lists, name, noted(getattr(token_lists, name)))
    ran(f"compute in.{suffix} --per-token --length-column n --method dr-grpo -o out.{suffix} -q")
    assert [row["advantage"] for row in rows_of(f"out.{suffix}")] == [[-0.5] * 500, [0.5] * 500] * 3
    assert max(heights) == {"arrow": 6, "parquet": 3}.get(suffix, 2)  # a record batch, a row group, or a few tokens


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_in_place_and_again_with_replace(suffix: str) -> None:
    path = write(f"in.{suffix}", ROWS)
    ran(f"compute {path} {MASK} --in-place -q")
    assert lists_of(path) == list(map(on_mask, ROWS))
    again = adv(f"compute {path} {MASK} --in-place -q")
    assert again.status == 1
    assert "already has a column 'advantage'" in again.err
    ran(f"compute {path} {IDS} --replace --in-place -q")
    assert lists_of(path) == [[advantage(row)] * row["n"] for row in ROWS]
    ran(f"compute {path} --method dr-grpo --replace -o plain.{suffix} -q")
    assert [row["advantage"] for row in rows_of(f"plain.{suffix}")] == list(map(advantage, ROWS))


def test_many_rows_whose_list_is_replaced_keep_every_other_byte() -> None:
    rows = [{"prompt_id": at // 4, "reward": at % 3, "n": at % 5, "é": "ü\\"} for at in range(200)]
    Path("in.jsonl").write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
    first = computed(Path("in.jsonl"), "once.jsonl", "--per-token --length-column n")
    assert [len(one) for one in first] == [row["n"] for row in rows]
    assert computed(Path("once.jsonl"), "twice.jsonl", "--per-token --length-column n --replace") == first
    assert Path("twice.jsonl").read_bytes() == Path("once.jsonl").read_bytes()


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_row_without_advantage_has_no_list_and_needs_no_tokens(suffix: str) -> None:
    path = write(f"in.{suffix}", [*ROWS, {**ROWS[0], "reward": None, "loss_mask": None}])
    assert computed(path, f"out.{suffix}", f"{MASK} --missing exclude") == [*map(on_mask, ROWS), None]


@pytest.mark.parametrize(("suffix", "to"), [*product(["jsonl", "parquet"], repeat=2)])
def test_dropped_rows_and_other_formats(suffix: str, to: str) -> None:
    path = write(f"in.{suffix}", [{**row, "reward": 1.0} if row["prompt_id"] == 1 else row for row in ROWS])
    wanted = [on_mask(row) for row in ROWS if row["prompt_id"] != 1]
    for more in ("", "--only"):
        assert computed(path, f"out.{to}", f"{MASK} --zero-variance drop {more}") == wanted


def test_records_with_lists_get_a_list_for_each_rollout() -> None:
    path = write("in.jsonl", [{"prompt": "p", "rewards": [0, 1, 2], "completion_ids": [[1], [1, 2], []]}])
    assert computed(path, "out.jsonl", IDS) == [[[-1.0], [0.0, 0.0], []]]
    write("objects.jsonl", [{"rollouts": [{"correct": 0, "ids": [1, 2]}, {"correct": 1, "ids": [3]}]}])
    done = adv("compute objects.jsonl --reward rollouts[].correct --per-token --tokens ids --method dr-grpo -o - -q")
    assert [one["advantage"] for one in done.rows[0]["rollouts"]] == [[-0.5, -0.5], [0.5]]


def test_the_summary_and_the_parquet_file_say_what_the_tokens_are() -> None:
    write("in.parquet", ROWS)
    facts = facts_of(f"compute in.parquet {MASK} -o out.parquet")
    assert facts["per_token"] == {"columns": {"mask": "loss_mask"}, "tokens": 36, "response_tokens": 15}
    noted = json.loads(pq.read_metadata("out.parquet").metadata[b"grpo_adv"])
    assert noted["per_token"] == {"mask": "loss_mask"}
    said = adv("compute in.parquet --per-token --length-column n -o out.parquet --force")
    assert "on 15 of 15 tokens (length = n)" in said.out
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
    assert (done.status in {1, 2}, message in done.err) == (True, True), done
    assert [*files()] == ["in.jsonl"]


def test_a_prompt_with_as_many_tokens_as_rollouts_is_a_prompt() -> None:
    lines = [
        {"id": "a", "prompt_ids": [7, 9], "responses": [[1, 2], [3]], "rewards": [1, 0]},
        {"id": "b", "prompt_ids": [7, 9, 5], "responses": [[1, 2], [3]], "rewards": [0, 1]},
    ]
    options = "--group id --reward rewards --scale none --group-within input"
    lists = "--per-token --tokens responses --prompt-tokens prompt_ids"
    found = computed(write("in.jsonl", lines), "out.jsonl", f"{options} {lists}")
    assert found == [[[0, 0, 0.5, 0.5], [0, 0, -0.5]], [[0, 0, 0, -0.5, -0.5], [0, 0, 0, 0.5]]]


def test_a_length_that_the_plan_reads_says_nothing_of_the_tokens_beside_a_mask() -> None:
    path = write("in.jsonl", ROWS)
    alone = adv("compute in.jsonl --method opo --length-column n -o -")
    lists = computed(path, "out.jsonl", "--per-token --mask loss_mask --method opo --length-column n")
    masked = zip(alone.rows, ROWS, strict=True)
    assert lists == [[row["advantage"] if one else 0.0 for one in known["loss_mask"]] for row, known in masked]
    assert computed(path, "out.jsonl", f"{MASK} --length-column equal") == list(map(on_mask, ROWS))


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


@pytest.mark.parametrize(("suffix", "seed"), paired(["jsonl", "parquet", "arrow"], range(20)))
def test_shuffled_rows_of_groups_over_several_files_each_get_the_list_of_their_own_mask(suffix: str, seed: int) -> None:
    """Beside a loop over the same rows; the mask has gaps, and lists of no token, and some rows do not count."""
    drawn = Random(seed)  # noqa: S311 - rows of a test
    rows: list[Row] = [
        {"prompt_id": at // 5, "reward": drawn.choice([0, 0.25, 1]), "at": at, "failed": drawn.random() < 0.2,
         "loss_mask": [drawn.choice([0, 1, -100]) for _ in range(drawn.randrange(6))]}
        for at in range(60)
    ]  # fmt: skip
    drawn.shuffle(rows)
    cuts = sorted(drawn.sample(range(1, 60), 3))
    parts = [rows[low:high] for low, high in zip([0, *cuts], [*cuts, 60], strict=True)]
    for number, part in enumerate(parts):
        write(f"in/{number}.{suffix}", part)
    ran(f"compute in --group-within input -o out/ -q {MASK} --left-out-column failed")
    for number, part in enumerate(parts):
        found = rows_of(f"out/{number}.{suffix}")
        assert [row["at"] for row in found] == [row["at"] for row in part]
        for row in found:
            votes = [one["reward"] for one in rows if one["prompt_id"] == row["prompt_id"] and not one["failed"]]
            if row["failed"]:
                assert row["advantage"] is None
            else:
                own = row["reward"] - mean(votes) if len(votes) > 1 else 0.0
                wanted = [own if one not in {0, -100} else 0.0 for one in row["loss_mask"]]
                assert row["advantage"] == pytest.approx(wanted, abs=1e-12)
