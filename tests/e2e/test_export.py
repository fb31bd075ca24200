"""`export`: what the next training job gets, against plain Python over the same rows, from every format to every format."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev
from typing import Any, BinaryIO

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.command import adv
from tests.support.drawn import examples
from tests.support.jobs import grouped, rows_of, write
from tests.support.schema_files import WRITERS

Row = dict[str, Any]
ROWS: list[Row] = [
    {"prompt_id": p, "prompt": f'Frage {p} über "x"?', "completion": f"antwort {p}-{k} ✓\n", "reward": r}
    for p, rewards in {"a": (0.0, 1.0, 1.0, 0.5), "b": (0.0, 0.0), "c": (1.0,), "d": (0.25, -1.0, 0.75)}.items()
    for k, r in enumerate(rewards)
]  # fmt: skip
GROUPS: list[list[Row]] = [*grouped(ROWS, "prompt_id").values()]


def exported(path: Path, *options: str) -> list[Row]:
    done = adv("export", str(path), "-o", "-", *options)
    assert done.status == 0, done.err
    return done.rows


def dropped_of(path: Path, *options: str) -> dict[str, int]:
    """The reasons for which rows are left out, and how many; the records are in `o.jsonl` beside the file."""
    done = adv("export", str(path), "-o", str(path.with_name("o.jsonl")), "--json", *options)
    assert done.status == 0, done.err
    return {one["reason"]: one["rows"] for one in json.loads(done.out)["dropped"]}


def texts_of(row: Row) -> Row:
    return {"prompt": row["prompt"], "completion": row["completion"]}


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    return write(tmp_path / "rollouts.jsonl", ROWS)


# --- sft ---------------------------------------------------------------------------------------------------


def test_the_best_row_of_each_group_is_for_finetuning(rollouts: Path) -> None:
    best = [max(group, key=lambda row: row["reward"]) for group in GROUPS]
    assert exported(rollouts, "--to", "sft") == [{**texts_of(row), "reward": row["reward"]} for row in best]


def test_several_best_rows_and_a_least_reward(rollouts: Path) -> None:
    found = exported(rollouts, "--to", "sft", "--per-group", "2", "--min-reward", "0.5")
    wanted = [row for group in GROUPS for row in group if row["reward"] >= 0.5][:2]
    assert found[:2] == [{**texts_of(row), "reward": row["reward"]} for row in wanted]
    assert [row["reward"] for row in found] == [1.0, 1.0, 1.0, 0.75]


def test_all_above_the_mean_of_the_group_or_above_a_reward(rollouts: Path) -> None:
    above = exported(rollouts, "--to", "sft", "--pick", "all-above")
    wanted = [row for group in GROUPS for row in group if row["reward"] > mean(r["reward"] for r in group)]
    assert [row["completion"] for row in above] == [row["completion"] for row in wanted]
    reaching = exported(rollouts, "--to", "sft", "--pick", "all-above", "--min-reward", "1")
    assert [row["completion"] for row in reaching] == [row["completion"] for row in ROWS if row["reward"] >= 1]


def test_a_text_is_exported_once(tmp_path: Path) -> None:
    rows = [
        {"step": s, "prompt": "p", "completion": c, "reward": r}
        for s, c, r in ((1, "x", 0.0), (1, "x", 1.0), (1, "y", 0.5), (2, "x", 1.0), (2, "z", 0.0))
    ]
    path = write(tmp_path / "steps.jsonl", rows)
    options = ("--to", "sft", "--per-group", "2", "--group", "prompt,step")
    once = [(row["completion"], row["reward"]) for row in exported(path, *options)]
    assert once == [("x", 1.0), ("y", 0.5), ("z", 0.0)]
    everything = exported(path, *options, "--keep-duplicates")
    assert [row["completion"] for row in everything] == ["x", "y", "x", "z"]


def test_the_mean_of_a_group_is_that_of_the_input(tmp_path: Path) -> None:
    """0.3, before duplicates and rows without a text are left out."""
    rows: list[Row] = [
        {"prompt_id": 1, "prompt": "p", "completion": c, "reward": r}
        for c, r in (("x", 0.0), ("x", 0.0), ("x", 0.0), (None, 0.0), ("b", 0.5), ("a", 0.6), ("c", 1.0))
    ]
    found = exported(write(tmp_path / "in.jsonl", rows), "--to", "sft", "--pick", "all-above")
    assert [row["completion"] for row in found] == ["b", "a", "c"]


def test_rows_without_text_or_reward_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [
        {"prompt_id": 1, "prompt": "p", "completion": c, "reward": r}
        for c, r in ((None, 1.0), ("", 0.9), ("a", None), ("b", float("nan")), ("c", 0.1), ("d", 0.0))
    ]
    reasons = {"no finite reward": 2, "no prompt or completion": 2, "not among the best 1 of its group": 1}
    assert dropped_of(write(tmp_path / "odd.jsonl", rows), "--to", "sft") == reasons
    assert [row["completion"] for row in rows_of(tmp_path / "o.jsonl")] == ["c"]


@pytest.mark.parametrize("name", ["rlhflow", "rlhflow-answers", "simpo", "livecodebench", "qwen-math"])
def test_a_schema_knows_prompt_and_response_of_records_with_lists(name: str, tmp_path: Path) -> None:
    found = exported(WRITERS[name](tmp_path).path, "--to", "sft", "--per-group", "2", "--keep-duplicates")
    assert {row["completion"] for row in found} >= {"x", "y"}
    assert {row["prompt"] for row in found} <= {"a", "p"}


def test_ties_for_the_best_reward_are_reported(rollouts: Path) -> None:
    (reason,) = dropped_of(rollouts, "--to", "sft")
    ties = "in 2 groups others have the same reward: the first in the file is taken"
    assert reason == f"not among the best 1 of its group ({ties})"


def test_only_groups_of_a_condition(rollouts: Path) -> None:
    found = exported(rollouts, "--to", "sft", "--where", "std > 0", "--limit", "1")
    assert [row["completion"] for row in found] == ["antwort a-1 ✓\n"]


# --- pairs -------------------------------------------------------------------------------------------------


def all_pairs(margin: float = 0.0) -> list[tuple[str, str]]:
    pairs = []
    for group in GROUPS:
        for one, other in combinations(sorted(group, key=lambda row: -row["reward"]), 2):
            if one["reward"] > other["reward"] and one["reward"] - other["reward"] >= margin:
                pairs.append((one["completion"], other["completion"]))
    return pairs


def pairs_in(found: Sequence[Row]) -> list[tuple[str, str]]:
    return [(row["chosen"], row["rejected"]) for row in found]


def test_the_extremes_of_each_group_are_a_pair(rollouts: Path) -> None:
    found = exported(rollouts, "--to", "pairs")
    assert [*found[0]] == ["prompt", "chosen", "rejected", "chosen_reward", "rejected_reward", "margin"]
    assert pairs_in(found) == [("antwort a-1 ✓\n", "antwort a-0 ✓\n"), ("antwort d-2 ✓\n", "antwort d-1 ✓\n")]
    rewards = [(row["chosen_reward"], row["rejected_reward"], row["margin"]) for row in found]
    assert rewards == [(1, 0, 1), (0.75, -1, 1.75)]
    assert [row["prompt"] for row in found] == ['Frage a über "x"?', 'Frage d über "x"?']
    assert dropped_of(rollouts, "--to", "pairs") == {
        "in groups whose rewards are all equal, which make no pair": 2,  # b
        "the only row of its group, which makes no pair": 1,  # c
        "not used in any pair": 3,  # two of a, one of d
    }


def test_all_pairs_and_a_least_margin(rollouts: Path) -> None:
    assert sorted(pairs_in(exported(rollouts, "--to", "pairs", "--pairs", "all"))) == sorted(all_pairs())
    wide = exported(rollouts, "--to", "pairs", "--pairs", "all", "--min-margin", "0.75")
    assert sorted(pairs_in(wide)) == sorted(all_pairs(0.75))


def test_more_pairs_than_fit_into_memory_are_refused_before_they_are_built(
    rollouts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_cli.choosing.exports.available_memory", lambda: 600)
    done = adv("export", str(rollouts), "--to", "pairs", "--pairs", "all", "-o", str(tmp_path / "o.jsonl"))
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert "10 pairs take 0.0 GB of memory, and 0.0 GB are available; use --pairs adjacent" in done.err
    assert not (tmp_path / "o.jsonl").exists()


def test_a_full_temporary_directory_is_named_in_the_error(
    rollouts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> BinaryIO:
        return Path("/dev/full").open("w+b")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    for options in (("--to", "pairs", "-o", "o.jsonl"), ("--to", "sft", "-o", "o.parquet")):
        done = adv("export", rollouts.name, *options, cwd=tmp_path)
        assert (done.status, done.err.count("\n")) == (1, 1)
        assert f"the texts of the records: no space left in {tempfile.gettempdir()}" in done.err
        assert [path.name for path in tmp_path.iterdir()] == [rollouts.name]


def test_neighbours_are_each_reward_and_the_next_lower_one(rollouts: Path) -> None:
    found = exported(rollouts, "--to", "pairs", "--pairs", "adjacent")
    rewards = [(row["chosen_reward"], row["rejected_reward"]) for row in found]
    assert rewards == [(1, 0.5), (0.5, 0), (0.75, 0.25), (0.25, -1)]


def test_max_pairs_limits_the_pairs_of_each_group(rollouts: Path) -> None:
    widest = exported(rollouts, "--to", "pairs", "--pairs", "all", "--max-pairs", "1")
    assert [row["margin"] for row in widest] == [1, 1.75]
    drawn = [exported(rollouts, "--to", "pairs", "--pairs", "all", "--max-pairs", "2", "--seed", "3") for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 4


def test_rows_of_a_pair_may_be_far_apart(tmp_path: Path) -> None:
    rows = [
        {"prompt_id": p, "prompt": f"p{p}", "completion": f"{p}-{k} " * 200, "reward": float(k)}
        for k in range(3) for p in range(500)
    ]  # fmt: skip
    found = exported(write(tmp_path / "far.jsonl", rows), "--to", "pairs")
    assert pairs_in(found) == [(f"{p}-2 " * 200, f"{p}-0 " * 200) for p in range(500)]


def test_a_pair_answers_one_prompt(tmp_path: Path) -> None:
    rows = [
        {"uid": 1, "prompt": p, "completion": c, "reward": r}
        for p, c, r in (("turn one", "a", 0.0), ("turn two", "b", 1.0), ("turn two", "c", 0.0))
    ]
    done = adv("export", str(write(tmp_path / "turns.jsonl", rows)), "--to", "pairs", "-g", "uid", "-o", "-")
    assert pairs_in(done.rows) == [("b", "c")]
    assert "1 more prompts than groups" in done.err


# --- weights -----------------------------------------------------------------------------------------------


def test_exponential_weights_are_clipped_and_have_mean_one_in_their_group(rollouts: Path) -> None:
    options = ("--method", "dr-grpo", "--beta", "0.5", "--max-weight", "2")
    found = exported(rollouts, "--to", "weights", *options)
    at = 0
    for group in GROUPS:
        centre = mean(row["reward"] for row in group)
        raw = [min(math.exp((row["reward"] - centre) / 0.5), 2.0) for row in group]
        wanted = [weight * len(group) / sum(raw) for weight in raw]
        here = found[at : at + len(group)]
        assert [row["weight"] for row in here] == pytest.approx(wanted, rel=1e-12)
        assert [row["completion"] for row in here] == [row["completion"] for row in group]
        at += len(group)
    assert at == len(found)


def test_softmax_weights_add_up_to_one(rollouts: Path) -> None:
    found = exported(rollouts, "--to", "weights", "--weight", "softmax", "--method", "dr-grpo", "--beta", "2")
    exponents = [math.exp(row["reward"] / 2) for row in ROWS[:4]]
    assert [row["weight"] for row in found[:4]] == pytest.approx([one / sum(exponents) for one in exponents])


def test_positive_weights_are_the_positive_advantages(rollouts: Path) -> None:
    found = exported(rollouts, "--to", "weights", "--weight", "positive")
    wanted = []
    for group in GROUPS:
        rewards = [row["reward"] for row in group]
        spread = stdev(rewards) if len(rewards) > 1 else 0.0
        wanted += [(r - mean(rewards)) / (spread + 1e-6) for r in rewards if r > mean(rewards)]
    assert [row["weight"] for row in found] == pytest.approx(wanted)
    assert [row["weight"] for row in found] == [row["advantage"] for row in found]


@pytest.mark.parametrize("options", [(), ("--weight", "softmax"), ("--max-weight", "1e308")], ids=str)
@pytest.mark.parametrize("beta", ["0.0001", "1e-320"])
def test_a_beta_that_is_very_small_leaves_no_group_without_weights(
    options: tuple[str, ...], beta: str, tmp_path: Path
) -> None:
    """Every exponential of a group far below the others is 0."""
    rows = [
        {"prompt_id": p, "prompt": p, "completion": f"{p}{k}", "reward": r}
        for p, rewards in {"low": (-5.0, -5.0), "high": (5.0, 4.0)}.items()
        for k, r in enumerate(rewards)
    ]
    plan = ("--method", "reinforce", "--beta", beta)
    found = exported(write(tmp_path / "in.jsonl", rows), "--to", "weights", *plan, *options)
    share = 0.5 if "softmax" in options else 1.0
    assert [(row["completion"], row["weight"]) for row in found[:2]] == [("low0", share), ("low1", share)]
    assert sum(row["weight"] for row in found[2:]) == 2 * share


# --- prompts -----------------------------------------------------------------------------------------------


def test_a_prompt_has_its_solve_rate_and_its_band(rollouts: Path) -> None:
    found = exported(rollouts, "--to", "prompts")
    for row, group in zip(found, GROUPS, strict=True):
        rewards = [one["reward"] for one in group]
        assert (row["prompt"], row["n"], row["best"], row["worst"]) == (
            group[0]["prompt"], len(rewards), max(rewards), min(rewards),
        )  # fmt: skip
        assert row["mean"] == pytest.approx(mean(rewards))
        assert row["solve_rate"] == pytest.approx((mean(rewards) + 1) / 2)
        assert row["std"] == (pytest.approx(stdev(rewards)) if len(rewards) > 1 else None)
    assert [row["difficulty"] for row in found] == ["easy", "medium", "always", "medium"]


def test_a_prompt_without_a_finite_reward_has_no_rate(tmp_path: Path) -> None:
    path = write(tmp_path / "nan.jsonl", [{**row, "reward": math.nan} for row in ROWS])
    found = exported(path, "--to", "prompts", "--pass-at", "1")
    assert [(row["n"], row["solve_rate"], row["best"], row["pass@1"]) for row in found] == [(0, None, None, None)] * 4


def test_pass_at_k_is_the_share_of_draws_with_a_solved_row(rollouts: Path) -> None:
    found = exported(rollouts, "--to", "prompts", "--pass-at", "1,2,3", "--solved-at", "0.5")
    for row, group in zip(found, GROUPS, strict=True):
        solved = [one["reward"] >= 0.5 for one in group]
        for k in (1, 2, 3):
            draws = [*combinations(solved, k)]
            assert row[f"pass@{k}"] == (pytest.approx(mean(map(any, draws))) if draws else None)


def test_solved_at_is_for_a_condition_of_any_kind(rollouts: Path) -> None:
    solved = [group for group in GROUPS if any(row["reward"] >= 0.5 for row in group)]
    found = exported(rollouts, "--to", "sft", "--where", "pass@1 > 0", "--solved-at", "0.5")
    assert len(found) == len(solved) < len(GROUPS)


def test_runs_of_the_same_prompts_are_pooled(tmp_path: Path) -> None:
    rows = [
        {"step": s, "prompt": p, "completion": "c", "reward": float(r)}
        for s, p, r in ((1, "x", 1), (1, "x", 0), (1, "y", 0), (2, "y", 1), (2, "x", 1), (2, "x", 1))
    ]
    path = write(tmp_path / "steps.jsonl", rows)
    apart = exported(path, "--to", "prompts", "-g", "prompt,step")
    assert [(row["prompt"], row["n"]) for row in apart] == [("x", 2), ("y", 1), ("y", 1), ("x", 2)]
    pooled = exported(path, "--to", "prompts", "-g", "prompt,step", "--pool")
    assert [(row["prompt"], row["n"], row["solve_rate"]) for row in pooled] == [("x", 4, 0.75), ("y", 2, 0.5)]


WIDE: list[Row] = [
    {"step": s, "prompt": p, "completion": "c", "reward": r}
    for s, p, r in (
        (1, "x", 5.0), (1, "x", -3.0), (1, "y", 2.0), (2, "y", 3.0), (2, "x", 1.0), (2, "x", 1.0), (2, "z", 2.0),
    )
]  # fmt: skip


@pytest.mark.parametrize("pool", [(), ("--pool",)], ids=["apart", "pooled"])
@pytest.mark.parametrize("scale", [1.0, 0.1], ids=["wide", "within 0..1"])
@pytest.mark.parametrize("more", [(), ("--pass-at", "1,2"), ("--solved-at", "0.3")], ids=str)
def test_a_condition_changes_no_number_that_is_exported(
    pool: tuple[str, ...], scale: float, more: tuple[str, ...], tmp_path: Path
) -> None:
    rows = [{**row, "reward": scale * (float(row["reward"]) + (4 if scale < 1 else 0))} for row in WIDE]
    path = write(tmp_path / "in.jsonl", rows)
    options = ("--to", "prompts", "-g", "prompt,step", *pool, *more)
    everything = exported(path, *options)
    conditions: dict[str, Callable[[Row], bool]] = {
        "solve_rate < 0.7": lambda row: row["solve_rate"] < 0.7,
        "mean >= 2 or std > 1": lambda row: row["mean"] >= 2 or (row["std"] or 0) > 1,
        "size > 1": lambda row: row["n"] > 1,
        "max < 0.8": lambda row: row["best"] < 0.8,
        "pass@1 > 0": lambda row: row.get("pass@1", 1) > 0,
    }
    for condition, holds in conditions.items():
        if "pass@" not in condition or more == ("--pass-at", "1,2"):
            chosen = [row for row in everything if holds(row)]
            assert exported(path, *options, "--where", condition) == chosen, condition
    assert exported(path, *options, "--limit", "2") == everything[:2]


def test_pooled_runs_count_together_in_a_condition(tmp_path: Path) -> None:
    rows = [
        {"step": s, "prompt": p, "reward": float(p == "a" or s == 1)} for s in (1, 2) for p in "abc" for _ in range(2)
    ]
    path = write(tmp_path / "steps.jsonl", rows)
    options = ("--to", "prompts", "-g", "prompt,step", "--pool", "--where", "solve_rate == 1")
    assert [(row["prompt"], row["n"]) for row in exported(path, *options)] == [("a", 4)]
    done = adv("export", str(path), *options[:-1], "step == 1", "-o", str(tmp_path / "o.jsonl"))
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "step has several values in the groups that --pool merges into one prompt; leave out --pool" in done.err


def test_the_scale_of_a_solve_rate_is_that_of_the_input_and_is_printed(rollouts: Path, tmp_path: Path) -> None:
    wide = adv("export", str(rollouts), "--to", "prompts", "-o", str(tmp_path / "o.jsonl"))
    assert "solve rate     scaled from -1 (0) to 1 (1)" in wide.err + wide.out
    path = write(tmp_path / "in.jsonl", [{"prompt": "a", "reward": r} for r in (0.4, 0.9)])
    (row,) = exported(path, "--to", "prompts")
    assert row["solve_rate"] == 0.65
    narrow = adv("export", str(path), "--to", "prompts", "-o", str(tmp_path / "p.jsonl"))
    assert "scaled from" not in narrow.err + narrow.out
    shares = adv("export", str(rollouts), "--to", "prompts", "--solved-at", "1", "-o", str(tmp_path / "q.jsonl"))
    assert "scaled from" not in shares.err + shares.out
    equal = write(tmp_path / "equal.jsonl", [{"prompt": "a", "reward": 7.0}] * 2)
    done = adv("export", str(equal), "--to", "prompts", "-o", str(tmp_path / "r.jsonl"))
    assert "unknown: all rewards are equal" in done.out + done.err


def test_a_number_of_draws_that_is_given_twice_is_one_column(rollouts: Path) -> None:
    (first, *_) = exported(rollouts, "--to", "prompts", "--pass-at", "2,1,2")
    assert [name for name in first if name.startswith("pass")] == ["pass@2", "pass@1"]


@pytest.mark.parametrize("pool", [(), ("--pool",)], ids=["apart", "pooled"])
def test_a_prompt_without_text_is_no_prompt(pool: tuple[str, ...], tmp_path: Path) -> None:
    rows = [{"prompt_id": p, "prompt": text, "reward": 1.0} for p, text in (("a", "x"), ("b", None), ("c", ""))]
    path = write(tmp_path / "in.jsonl", rows)
    assert [row["prompt"] for row in exported(path, "--to", "prompts", *pool)] == ["x"]


# --- tokens ------------------------------------------------------------------------------------------------

TOKENS: list[Row] = [
    {
        "prompt_id": at // 2, "reward": float(at % 2), "prompt_ids": [5] * (at + 1), "completion_ids": [7] * at,
        "all_ids": [5] * (at + 1) + [7] * at, "n": at, "loss_mask": [0] * (at + 1) + [1] * at,
        "labels": [-100] * (at + 1) + [7] * at,
    }
    for at in range(1, 7)
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "zeros"),
    [
        (("--tokens", "completion_ids"), False),
        (("--length-column", "n"), False),
        (("--tokens", "completion_ids", "--prompt-tokens", "prompt_ids"), True),
        (("--tokens", "all_ids", "--length-column", "n"), True),
        (("--mask", "loss_mask"), True),
        (("--mask", "labels", "--tokens", "all_ids"), True),
    ],
    ids=str,
)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_every_token_of_the_response_has_the_advantage(
    options: tuple[str, ...], *, zeros: bool, suffix: str, tmp_path: Path
) -> None:
    found = exported(write(tmp_path / f"in.{suffix}", TOKENS), "--to", "tokens", "--method", "dr-grpo", *options)
    assert len(found) == len(TOKENS)
    for row, written in zip(TOKENS, found, strict=True):
        group = [one["reward"] for one in TOKENS if one["prompt_id"] == row["prompt_id"]]
        value = row["reward"] - mean(group)
        before = len(row["prompt_ids"]) if zeros else 0
        assert written["advantages"] == [0.0] * before + [value] * row["n"]
        assert all(written[name] == row[name] for name in written if name in row)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_prompt_of_no_tokens_adds_no_zeros(suffix: str, tmp_path: Path) -> None:
    rows = [{**row, "prompt_ids": [] if at % 2 else [5], "m": at % 2} for at, row in enumerate(TOKENS)]
    write(tmp_path / f"in.{suffix}", rows)
    for column in ("prompt_ids", "m"):
        options = ("--tokens", "completion_ids", "--prompt-tokens", column, "--method", "dr-grpo")
        found = exported(tmp_path / f"in.{suffix}", "--to", "tokens", *options)
        before = [len(row["prompt_ids"]) if column == "prompt_ids" else row["m"] for row in rows]
        assert [len(row["advantages"]) for row in found] == [n + row["n"] for n, row in zip(before, rows, strict=True)]


@pytest.mark.parametrize(
    ("options", "change"),
    [
        (("--length-column", "n"), {"n": 0}),
        (("--length-column", "n"), {"n": 0.0}),
        (("--length-column", "n", "--tokens", "all_ids"), {"n": 0}),
        (("--length-column", "n", "--prompt-tokens", "prompt_ids"), {"n": 0}),
        (("--tokens", "completion_ids"), {"completion_ids": []}),
        (("--tokens", "completion_ids", "--prompt-tokens", "prompt_ids"), {"completion_ids": []}),
        (("--tokens", "completion_ids", "--prompt-tokens", "prompt_ids"), {"prompt_ids": None}),
        (("--mask", "loss_mask"), {"loss_mask": []}),
    ],
    ids=str,
)
def test_a_response_of_no_tokens_is_no_record(options: tuple[str, ...], change: Row, tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", [TOKENS[0], {**TOKENS[1], **change}, *TOKENS[2:]])
    assert [*dropped_of(path, "--to", "tokens", *options).values()] == [1]
    written = rows_of(tmp_path / "o.jsonl")
    assert len(written) == len(TOKENS) - 1 and all(row["advantages"] for row in written)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"n": 9}, ("--tokens", "completion_ids", "--length-column", "n"), "rows.jsonl:2: n is 9, completion_ids has 2 tokens"),
        ({"loss_mask": [1]}, ("--tokens", "all_ids", "--mask", "loss_mask"), "rows.jsonl:2: loss_mask has 1 entries, all_ids 5"),
        ({"n": -1}, ("--length-column", "n"), "rows.jsonl:2: n is -1, expected a number of tokens"),
        ({"completion_ids": [[1]]}, ("--tokens", "completion_ids"), "rows.jsonl:2: completion_ids is not a flat list"),
        ({"n": float("nan")}, ("--length-column", "n"), "rows.jsonl:2: n is NaN, expected a number of tokens"),
        ({"n": 10**400}, ("--length-column", "n"), "more than the 16,777,216 tokens that a row may have"),
        ({"loss_mask": [None, [1]]}, ("--mask", "loss_mask"), "rows.jsonl:2: loss_mask is [null, [1]], expected a list"),
        ({}, (), "give --tokens COL, --mask COL or --length-column COL; it could be prompt_ids, completion_ids"),
        ({}, ("--mask", "loss_mask", "--length-column", "n"), "leave one of them out"),
    ],
)  # fmt: skip
def test_lengths_that_do_not_fit_are_an_error(
    change: Row, options: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "rows.jsonl", [TOKENS[0], {**TOKENS[1], **change}, *TOKENS[2:]])
    done = adv("export", str(path), "--to", "tokens", "-o", str(tmp_path / "out.jsonl"), *options)
    assert done.status in {1, 2}
    assert message in done.err
    assert not (tmp_path / "out.jsonl").exists()


def test_advantages_on_tokens_are_a_list_column(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    path = write(tmp_path / "rows.jsonl", TOKENS)
    assert adv("export", str(path), "--to", "tokens", "--tokens", "completion_ids", "-o", str(out)).status == 0
    assert pl.read_parquet_schema(out)["advantages"] == pl.List(pl.Float64)
    written = [str(one.type) for one in pq.read_schema(out)]  # by no name that only some readers know
    assert written == ["list<element: int64>", "list<element: double>", "double", "double"]


# --- messages ----------------------------------------------------------------------------------------------


def calling(every: list[Any]) -> list[list[Row]]:
    """An answer with a call for each of these arguments."""
    calls = [{"id": "x", "function": {"name": "f", "arguments": arguments}} for arguments in every]
    return [[{"role": "assistant", "content": f"ü{at}", "tool_calls": [call]}] for at, call in enumerate(calls)]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([{"a": 1}, {"a": 2}, {"b": "x"}], [{"a": 1, "b": None}, {"a": 2, "b": None}, {"a": None, "b": "x"}]),
        ([{}, {"a": 1}, '{"a": 2}'], ["{}", '{"a": 1}', '{"a": 2}']),
        ([{}, {}, {}], ["{}", "{}", "{}"]),
        ([{"a": 1}, {"a": "é"}, None], [{"a": "1"}, {"a": "é"}, None]),
    ],
    ids=["one-type", "texts-and-objects", "empty", "inside"],
)
@pytest.mark.parametrize("kind", ["sft", "pairs"])
def test_only_the_field_without_a_type_becomes_text(
    arguments: list[Any], wanted: list[Any], kind: str, tmp_path: Path
) -> None:
    answers, typed = calling(arguments), calling(wanted)
    rows = [{"prompt_id": 1, "prompt": "p", "completion": one, "reward": -at} for at, one in enumerate(answers)]
    path, out = write(tmp_path / "in.jsonl", rows), tmp_path / "out.parquet"
    options = ("--per-group", "3") if kind == "sft" else ("--pairs", "adjacent")
    assert adv("export", str(path), "--to", kind, *options, "-o", str(out)).status == 0
    frame, as_lines = pl.read_parquet(out), exported(path, "--to", kind, *options)
    places = {"completion": slice(0, 3)} if kind == "sft" else {"chosen": slice(0, 2), "rejected": slice(1, 3)}
    for column, some in places.items():
        assert frame[column].to_list() == typed[some]
        assert [row[column] for row in as_lines] == answers[some]  # lines keep what the file has
    assert len({frame.schema[column] for column in places}) == 1


def chat(*turns: str) -> list[Row]:
    return [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(turns)]


def test_conversations_stay_as_they_are(tmp_path: Path) -> None:
    tool = '[{"role": "user",  "content": "2+2?"}, {"role": "assistant", "content": null, "tool_calls": [{"id": 1e2}]}]'
    path = tmp_path / "chat.jsonl"
    path.write_text(f'{{"task_id": 1, "messages": {tool}, "reward": 1.0}}\n')
    out = adv("export", str(path), "--to", "sft", "-o", "-").out
    assert out == f'{{"messages":{tool},"reward":1.0}}\n'


def test_pairs_of_conversations_share_the_turns_that_are_equal(tmp_path: Path) -> None:
    good, bad = (chat("q", "a", "again", last) for last in ("good", "bad"))
    rows = [{"task_id": 1, "messages": one, "reward": reward} for one, reward in ((good, 1.0), (bad, 0.0))]
    (pair,) = exported(write(tmp_path / "chat.jsonl", rows), "--to", "pairs")
    assert (pair["prompt"], pair["chosen"], pair["rejected"]) == (chat("q", "a", "again"), good[3:], bad[3:])


def test_the_prompt_of_a_conversation_ends_before_the_response(tmp_path: Path) -> None:
    rows = [{"task_id": 1, "messages": chat("q", "a", "b", "c"), "reward": 1.0}]
    (row,) = exported(write(tmp_path / "chat.jsonl", rows), "--to", "prompts")
    assert row["prompt"] == chat("q")


def test_a_text_beside_messages_becomes_a_turn(tmp_path: Path) -> None:
    rows = [
        {"prompt_id": 1, "prompt": chat("q"), "completion": "a", "reward": 1.0},
        {"prompt_id": 2, "prompt": "q", "completion": {"role": "assistant", "content": "a"}, "reward": 1.0},
        {"prompt_id": 3, "prompt": "q", "completion": "a", "reward": 1.0},
    ]
    found = exported(write(tmp_path / "mixed.jsonl", rows), "--to", "sft")
    assert [row["prompt"] for row in found] == [chat("q"), chat("q"), "q"]
    assert [row["completion"] for row in found] == [[{"role": "assistant", "content": "a"}]] * 2 + ["a"]


def test_messages_that_are_kept_as_text_become_messages(tmp_path: Path) -> None:
    rows = [{"prompt_id": 1, "prompt": json.dumps(chat("q"), indent=1), "completion": "[{not json", "reward": 1.0}]
    (row,) = exported(write(tmp_path / "text.jsonl", rows), "--to", "sft")
    assert row["prompt"] == chat("q")
    assert row["completion"] == [{"role": "assistant", "content": "[{not json"}]


# --- formats -----------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).map(lambda text: f"t{text}")
drawn = st.lists(st.tuples(st.integers(0, 3), texts, st.sampled_from([0.0, 0.25, 1.0])), min_size=2, max_size=12)


@pytest.mark.parametrize("kind", ["sft", "pairs", "weights", "prompts"])
@given(rows=drawn)
@examples(5)
def test_every_format_gives_the_same_records(
    kind: str, rows: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("formats")
    table = [{"prompt_id": f"p{p}", "prompt": f"prompt {p}", "completion": c, "reward": r} for p, c, r in rows]
    first, *others = (
        exported(write(folder / f"in.{suffix}", table), "--to", kind, "--group", "prompt_id")
        for suffix in ("jsonl", "json", "parquet", "arrow", "csv")
    )
    assert others == [first] * len(others)
    if kind == "pairs":
        rewards = {p: {r for q, _, r in rows if q == p} for p, _, _ in rows}
        # Of a response that occurs twice the better reward counts, so there may be fewer pairs.
        assert len(first) <= sum(len(different) > 1 for different in rewards.values())


@pytest.mark.parametrize("kind", ["sft", "pairs", "weights", "prompts"])
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_columnar_outputs_have_types(kind: str, suffix: str, rollouts: Path, tmp_path: Path) -> None:
    out = tmp_path / f"out.{suffix}"
    assert adv("export", str(rollouts), "--to", kind, "-o", str(out)).status == 0
    frame = pl.read_parquet(out) if suffix == "parquet" else pl.read_ipc(out)
    assert frame.to_dicts() == exported(rollouts, "--to", kind)
    texts = {"prompt", "completion", "chosen", "rejected"}
    computed = {dtype for name, dtype in frame.schema.items() if name not in texts}
    assert computed <= {pl.Float64, pl.Int64, pl.String}


def test_nested_messages_are_nested_in_parquet(tmp_path: Path) -> None:
    rows = [{"task_id": p, "messages": chat("q", str(k)), "reward": float(k)} for p in range(2) for k in range(2)]
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pl.DataFrame(rows).write_parquet(source)
    assert adv("export", str(source), "--to", "pairs", "-o", str(out)).status == 0
    frame = pl.read_parquet(out)
    turn = pl.List(pl.Struct({"role": pl.String, "content": pl.String}))
    assert [frame.schema[name] for name in ("prompt", "chosen", "rejected")] == [turn] * 3
    assert frame["chosen"].to_list() == [chat("q", "1")[1:]] * 2


def test_an_export_of_nothing_has_its_columns(rollouts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    done = adv("export", str(rollouts), "--to", "sft", "--min-reward", "9", "-o", str(out))
    assert done.status == 0
    assert "no record is left" in done.out
    assert pl.read_parquet(out).columns == ["prompt", "completion", "reward"]


def test_several_files_become_one(tmp_path: Path) -> None:
    for name, part in (("a", ROWS[:4]), ("b", ROWS[4:])):
        write(tmp_path / f"{name}.jsonl", part)
    pl.DataFrame(ROWS[4:]).write_parquet(tmp_path / "c.parquet")
    whole = exported(tmp_path / "*.jsonl", "--to", "sft")
    done = adv("export", str(tmp_path / "a.jsonl"), str(tmp_path / "c.parquet"), "--to", "sft", "-o", "-")
    assert whole == done.rows
    assert len(whole) == 4


# --- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--to", "prompts", "--response", "x"), "--response does not apply to --to prompts"),
        (("--to", "weights", "--beta", "0"), "--beta cannot be 0"),
        (("--to", "weights", "--weight", "positive", "--beta", "1"), "--weight positive has no --beta"),
        (("--to", "pairs", "--max-pairs", "0"), "--max-pairs cannot be 0; it takes 1 or more"),
        (("--to", "prompts", "--pass-at", "x"), "--pass-at"),
        (("--to", "sft", "--messages", "m", "--prompt", "p"), "leave out --prompt and --response"),
    ],
)  # fmt: skip
def test_options_that_do_not_apply_are_refused(
    options: tuple[str, ...], message: str, rollouts: Path, tmp_path: Path
) -> None:
    done = adv("export", str(rollouts), "-o", str(tmp_path / "out.jsonl"), *options)
    assert done.status in {1, 2}
    assert message in done.err
    assert not (tmp_path / "out.jsonl").exists()


def test_an_output_is_a_file_of_its_own(rollouts: Path, tmp_path: Path) -> None:
    assert "-o is missing" in adv("export", str(rollouts), "--to", "sft").err
    assert "is a directory" in adv("export", str(rollouts), "--to", "sft", "-o", str(tmp_path)).err
    assert "is an input" in adv("export", str(rollouts), "--to", "sft", "-o", str(rollouts), "--force").err
    out = write(tmp_path / "out.jsonl", [])
    assert "exists" in adv("export", str(rollouts), "--to", "sft", "-o", str(out)).err
    assert adv("export", str(rollouts), "--to", "sft", "-o", str(out), "--force").status == 0


def test_an_error_asks_for_columns_that_it_does_not_find(tmp_path: Path) -> None:
    path = write(tmp_path / "odd.jsonl", [{"prompt_id": 1, "ask": "p", "my_output": "c", "reward": 1.0}])
    done = adv("export", str(path), "--to", "sft", "-o", "-")
    assert done.status == 1
    assert "no column looks like the prompt; give --prompt NAME and --response NAME" in done.err
    assert "my_output" in done.err


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_texts_inside_of_records_are_named_by_their_full_path_as_the_reward_is(suffix: str, tmp_path: Path) -> None:
    attempts = [{"answer": f"a{j}", "score": float(j)} for j in range(3)]
    path = write(tmp_path / f"x.{suffix}", [{"case": f"c{k}", "attempts": attempts} for k in range(2)])
    options = ("--reward", "attempts[].score", "--prompt", "case", "--response", "attempts[].answer")
    made = exported(path, "--to", "sft", *options)
    assert [texts_of(row) for row in made] == [{"prompt": f"c{k}", "completion": "a2"} for k in range(2)]


@pytest.mark.parametrize("kind", ["sft", "pairs"])
def test_a_conversation_that_is_none_is_refused_with_its_row(kind: str, tmp_path: Path) -> None:
    rows: list[Row] = [
        {"prompt_id": at // 2, "messages": chat("q", f"{at}") if at != 5 else "oops", "reward": float(at % 2)}
        for at in range(8)
    ]
    path = write(tmp_path / "x.jsonl", rows)
    words = ("export", str(path), "--group", "prompt_id", "--to", kind, "-o", str(tmp_path / "out.jsonl"))
    done = adv(*words)
    assert done.status == 1
    assert f"{path}:6: a conversation is not a list of messages" in done.err
    missing = adv(*words, "--prompt", "prompt_id", "--response", "no")
    assert f"{path}: no row has a text in the column 'no'" in missing.err
    assert "name another one with --prompt, --response or --messages" in missing.err


def test_prompts_that_are_all_empty_lists_name_the_flag_for_another_column(tmp_path: Path) -> None:
    asked = {"responses_create_params": {"input": []}, "response": {"output": [1]}, "_ng_task_index": 0}
    write(tmp_path / "in.jsonl", [{**asked, "_ng_rollout_index": at, "reward": float(at)} for at in range(2)])
    done = adv("export", "in.jsonl", "--to", "sft", "-o", "out.jsonl", cwd=tmp_path)
    assert "no row has a text in the column 'responses_create_params.input'" in done.err
    assert "name another one with --prompt, " in done.err


# --- exports with nothing to learn from ----------------------------------------------------------------------------


def rows_with(*rewards: float, alone: bool = False) -> str:
    """Rows of one group, or of a group each."""
    rows = [
        {"prompt_id": i if alone else 0, "prompt": "p", "completion": f"c{i}", "reward": r}
        for i, r in enumerate(rewards)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("kind", ["sft", "weights"])
def test_records_of_a_set_in_which_everything_failed_warn(kind: str, tmp_path: Path) -> None:
    failed = adv("export", "-", "--to", kind, "-o", str(tmp_path / "out.jsonl"), stdin=rows_with(0, 0, 0))
    assert "every row has the reward 0: no record is better than another row" in " ".join(failed.out.split())
    solved = adv("export", "-", "--to", kind, "-o", str(tmp_path / "ok.jsonl"), stdin=rows_with(1, 1, 1))
    assert "every row" not in solved.out


def test_groups_of_one_row_make_no_pair_and_are_called_so(tmp_path: Path) -> None:
    done = adv("export", "-", "--to", "pairs", "-o", str(tmp_path / "out.jsonl"), stdin=rows_with(0, 1, alone=True))
    said = " ".join(done.out.split())
    assert "2 rows: the only row of its group, which makes no pair" in said
    assert "rewards are all equal" not in said
    assert "no record is left" in said


def test_an_empty_export_can_stop_a_pipeline_and_writes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    gate = ("--to", "pairs", "-o", str(target), "--fail-on", "records == 0")
    assert adv("export", "-", *gate, stdin=rows_with(0, 1, alone=True)).status == 3
    assert not target.exists()
    assert adv("export", "-", *gate, stdin=rows_with(0, 1)).status == 0
    assert target.exists()
