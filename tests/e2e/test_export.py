"""`export`: what the next training job gets, against plain Python over the same rows, from every format to every format."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev
from typing import Any, BinaryIO

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.command import Done, adv, files, ran
from tests.support.drawn import examples
from tests.support.jobs import grouped, rows_of, write
from tests.support.schema_files import WRITERS

Row = dict[str, Any]


def table(names: str, *values: tuple[Any, ...]) -> list[Row]:
    """Rows of these values under the names."""
    return [dict(zip(names.split(), row, strict=True)) for row in values]


TEXTS = "prompt_id prompt completion reward"
ROWS = table(
    TEXTS,
    ("a", "Frage »a«?", "antwort a-0 ✓\n", 0.0), ("a", "Frage »a«?", "antwort a-1 ✓\n", 1.0),
    ("a", "Frage »a«?", "antwort a-2 ✓\n", 1.0), ("a", "Frage »a«?", "antwort a-3 ✓\n", 0.5),
    ("b", 'Frage "b"?', "antwort b-0 ✓\n", 0.0), ("b", 'Frage "b"?', "antwort b-1 ✓\n", 0.0),
    ("c", "Frage c?", "antwort c-0 ✓\n", 1.0),
    ("d", "Frage d?", "antwort d-0 ✓\n", 0.25), ("d", "Frage d?", "antwort d-1 ✓\n", -1.0), ("d", "Frage d?", "antwort d-2 ✓\n", 0.75),
)  # fmt: skip
GROUPS: list[list[Row]] = [*grouped(ROWS, "prompt_id").values()]


@pytest.fixture(autouse=True)
def _rollouts(place: Path) -> None:
    write(place / "in.jsonl", ROWS)


def exported(options: str, source: str = "in.jsonl") -> list[Row]:
    done = ran(f"export {source} -o - {options}")
    return done.rows


def dropped_of(options: str) -> dict[str, int]:
    """The reasons for which rows are left out, and how many; the records are in `out.jsonl`."""
    done = ran(f"export in.jsonl -o out.jsonl --force --json {options}")
    return {one["reason"]: one["rows"] for one in json.loads(done.out)["dropped"]}


def values(rows: list[Row], *names: str) -> list[Any]:
    """The values of a column, or tuples of those of several."""
    return [row[names[0]] if len(names) == 1 else tuple(row[name] for name in names) for row in rows]


def refused(done: Done, message: str) -> None:
    assert (done.status in {1, 2}, done.err.count("\n")) == (True, 1), done
    assert message in done.err
    assert not Path("out.jsonl").exists()


# --- sft ---------------------------------------------------------------------------------------------------


def test_the_best_row_of_each_group_is_for_finetuning() -> None:
    best = [max(group, key=lambda row: row["reward"]) for group in GROUPS]
    found = exported("--to sft")
    assert [*found[0]] == ["prompt", "completion", "reward"]
    assert values(found, *found[0]) == values(best, *found[0])
    assert dropped_of("--to sft") == {"not among the best 1 of its group": 6}


def test_several_best_rows_and_a_least_reward() -> None:
    found = exported("--to sft --per-group 2 --min-reward 0.5")
    assert values(found, "completion") == [f"antwort {name} ✓\n" for name in ("a-1", "a-2", "c-0", "d-2")]


def test_all_above_the_mean_of_the_group_or_above_a_reward() -> None:
    above = [row for group in GROUPS for row in group if row["reward"] > mean(values(group, "reward"))]
    assert values(exported("--to sft --pick all-above"), "completion") == values(above, "completion")
    reaching = exported("--to sft --pick all-above --min-reward 1")
    assert values(reaching, "completion") == [row["completion"] for row in ROWS if row["reward"] >= 1]


def test_a_text_is_exported_once() -> None:
    rows = table(
        "step prompt completion reward",
        (1, "p", "x", 1.0), (1, "p", "x", 1.0), (1, "p", "y", 0.5), (2, "p", "x", 1.0), (2, "p", "z", 0.0),
    )  # fmt: skip
    write("in.jsonl", rows)
    options = "--to sft --per-group 2 --group prompt,step"
    assert values(exported(options), "completion", "reward") == [("x", 1.0), ("y", 0.5), ("z", 0.0)]
    assert values(exported(f"{options} --keep-duplicates"), "completion") == ["x", "x", "x", "z"]


def test_the_mean_of_a_group_is_that_of_the_input() -> None:
    """0.3, before duplicates and rows without a text are left out."""
    rewards = [("x", 0.0), ("x", 0.0), ("x", 0.0), (None, 0.0), ("b", 0.5), ("a", 0.6), ("c", 1.0)]
    write("in.jsonl", table(TEXTS, *((1, "p", *one) for one in rewards)))
    assert values(exported("--to sft --pick all-above"), "completion") == ["b", "a", "c"]


def test_rows_without_text_or_reward_are_left_out_and_counted() -> None:
    rewards = [(None, 1.0), ("", 0.9), ("a", None), ("b", math.nan), ("c", 0.1), ("d", 0.0)]
    write("in.jsonl", table(TEXTS, *((1, "p", *one) for one in rewards)))
    reasons = {"no finite reward": 2, "no prompt or completion": 2, "not among the best 1 of its group": 1}
    assert dropped_of("--to sft") == reasons
    assert values(rows_of("out.jsonl"), "completion") == ["c"]


@pytest.mark.parametrize("name", ["rlhflow", "rlhflow-answers", "simpo", "livecodebench", "qwen-math"])
def test_a_schema_knows_prompt_and_response_of_records_with_lists(name: str) -> None:
    found = exported("--to sft --per-group 2 --keep-duplicates", str(WRITERS[name](Path()).path))
    assert {*values(found, "completion")} >= {"x", "y"}
    assert {*values(found, "prompt")} <= {"a", "p"}


def test_only_groups_of_a_condition() -> None:
    found = exported("--to sft --where 'std > 0' --limit 1")
    assert values(found, "completion") == ["antwort a-1 ✓\n"]
    some = exported("--to sft --where 'pass@1 > 0' --solved-at 0.5")
    assert values(some, "prompt") == ["Frage »a«?", "Frage c?", "Frage d?"]


# --- pairs -------------------------------------------------------------------------------------------------


def all_pairs(margin: float) -> list[tuple[str, str]]:
    pairs = []
    for group in GROUPS:
        for one, other in combinations(sorted(group, key=lambda row: -row["reward"]), 2):
            if one["reward"] > other["reward"] and one["reward"] - other["reward"] >= margin:
                pairs.append((one["completion"], other["completion"]))
    return pairs


def test_the_extremes_of_each_group_are_a_pair() -> None:
    assert exported("--to pairs") == table(
        "prompt chosen rejected chosen_reward rejected_reward margin",
        ("Frage »a«?", "antwort a-1 ✓\n", "antwort a-0 ✓\n", 1.0, 0.0, 1.0),
        ("Frage d?", "antwort d-2 ✓\n", "antwort d-1 ✓\n", 0.75, -1.0, 1.75),
    )
    assert dropped_of("--to pairs") == {"not used in any pair": 6}  # two of a, b, c, one of d


@pytest.mark.parametrize(("options", "margin"), [("", 0.0), ("--min-margin 0.5", 0.5), ("--min-margin 0.75", 0.75)])
def test_all_pairs_and_a_least_margin(options: str, margin: float) -> None:
    found = exported(f"--to pairs --pairs all {options}")
    assert sorted(values(found, "chosen", "rejected")) == sorted(all_pairs(margin))


@pytest.mark.parametrize("options", ["--to pairs -o out.jsonl", "--to sft -o out.parquet"])
def test_a_full_temporary_directory_is_named_in_the_error(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> BinaryIO:
        return Path("/dev/full").open("w+b")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    done = adv(f"export in.jsonl {options}")
    refused(done, f"the texts of the records: no space left in {tempfile.gettempdir()}")
    assert [*files()] == ["in.jsonl"]


def test_neighbours_are_each_reward_and_the_next_lower_one() -> None:
    found = values(exported("--to pairs --pairs adjacent"), "chosen_reward", "rejected_reward")
    assert found == [(1, 0.5), (0.5, 0), (0.75, 0.25), (0.25, -1)]


def test_max_pairs_limits_the_pairs_of_each_group() -> None:
    widest = exported("--to pairs --pairs all --max-pairs 1")
    assert values(widest, "margin") == [1, 1.75]
    drawn = exported("--to pairs --pairs all --max-pairs 2 --seed 3")
    assert len(drawn) == 4
    assert exported("--to pairs --pairs all --max-pairs 2 --seed 3") == drawn


def test_rows_of_a_pair_may_be_far_apart() -> None:
    write("in.jsonl", table(TEXTS, *((p, "p", f"{p}-{k} " * 200, float(k)) for k in range(3) for p in range(500))))
    found = values(exported("--to pairs --group prompt_id"), "chosen", "rejected")
    assert found == [(f"{p}-2 " * 200, f"{p}-0 " * 200) for p in range(500)]


def test_a_pair_answers_one_prompt() -> None:
    turns = [(1, "turn one", "a", 0.0), (1, "turn two", "b", 1.0), (1, "turn two", "c", 0.0)]
    write("in.jsonl", table("uid prompt completion reward", *turns))
    done = adv("export in.jsonl --to pairs -g uid -o -")
    assert values(done.rows, "chosen", "rejected") == [("b", "c")]


# --- weights -----------------------------------------------------------------------------------------------


def test_exponential_weights_are_clipped_and_have_mean_one_in_their_group() -> None:
    found = exported("--to weights --method dr-grpo --beta 0.5 --max-weight 2")
    wanted = []
    for group in GROUPS:
        centre = mean(values(group, "reward"))
        raw = [min(math.exp((row["reward"] - centre) / 0.5), 2.0) for row in group]
        wanted += [weight * len(group) / sum(raw) for weight in raw]
    assert values(found, "weight") == pytest.approx(wanted, rel=1e-12)
    assert values(found, "completion") == values(ROWS, "completion")


def test_softmax_weights_add_up_to_one() -> None:
    found = exported("--to weights --weight softmax --method dr-grpo --beta 2")
    exponents = [math.exp(row["reward"] / 2) for row in GROUPS[0]]
    assert values(found[:4], "weight") == pytest.approx([one / sum(exponents) for one in exponents])


def test_positive_weights_are_the_positive_advantages() -> None:
    found = exported("--to weights --weight positive")
    wanted = []
    for group in GROUPS:
        rewards = values(group, "reward")
        spread = stdev(rewards) if len(rewards) > 1 else 0.0
        wanted += [(r - mean(rewards)) / (spread + 1e-6) for r in rewards if r > mean(rewards)]
    assert values(found, "weight") == pytest.approx(wanted)
    assert values(found, "weight") == values(found, "advantage")


@pytest.mark.parametrize(("options", "share"), [("", 1.0), ("--weight softmax", 0.5), ("--max-weight 1e308", 1.0)])
@pytest.mark.parametrize("beta", ["0.0001", "1e-320"])
def test_a_beta_that_is_very_small_leaves_no_group_without_weights(options: str, share: float, beta: str) -> None:
    """Every exponential of a group far below the others is 0."""
    rows = [("low", "p", "0", -5.0), ("low", "p", "1", -5.0), ("high", "p", "2", 5.0), ("high", "p", "3", 4.0)]
    write("in.jsonl", table(TEXTS, *rows))
    weights = values(exported(f"--to weights --group prompt_id --method reinforce --beta {beta} {options}"), "weight")
    assert weights[:2] == [share, share]
    assert sum(weights[2:]) == 2 * share


# --- prompts -----------------------------------------------------------------------------------------------


def test_a_prompt_has_its_solve_rate_and_its_band() -> None:
    found = exported("--to prompts")
    for row, group in zip(found, GROUPS, strict=True):
        rewards = values(group, "reward")
        assert row["prompt"] == group[0]["prompt"]
        assert (row["n"], row["best"], row["worst"]) == (len(rewards), max(rewards), min(rewards))
        assert row["mean"] == pytest.approx(mean(rewards))
        assert row["solve_rate"] == pytest.approx((mean(rewards) + 1) / 2)
        assert row["std"] == (pytest.approx(stdev(rewards)) if len(rewards) > 1 else None)
    assert values(found, "difficulty") == ["easy", "medium", "always", "medium"]


def test_a_prompt_without_a_finite_reward_has_no_rate() -> None:
    write("in.jsonl", [{**row, "reward": math.nan} for row in ROWS])
    found = exported("--to prompts --pass-at 1")
    assert values(found, "n", "solve_rate", "best", "pass@1") == [(0, None, None, None)] * 4


def test_pass_at_k_is_the_share_of_draws_with_a_solved_row() -> None:
    found = exported("--to prompts --pass-at 2,1,3,2 --solved-at 0.5")
    assert [name for name in found[0] if name.startswith("pass")] == ["pass@2", "pass@1", "pass@3"]
    for row, group in zip(found, GROUPS, strict=True):
        solved = [one["reward"] >= 0.5 for one in group]
        for k in (1, 2, 3):
            draws = [*combinations(solved, k)]
            assert row[f"pass@{k}"] == (pytest.approx(mean(map(any, draws))) if draws else None)


def test_runs_of_the_same_prompts_are_pooled() -> None:
    rewards = [(1, "x", 1), (1, "x", 0), (1, "y", 0), (2, "y", 1), (2, "x", 1), (2, "x", 1)]
    write("in.jsonl", table("step prompt reward", *rewards))
    apart = exported("--to prompts -g prompt,step")
    assert values(apart, "prompt", "n") == [("x", 2), ("y", 1), ("y", 1), ("x", 2)]
    pooled = exported("--to prompts -g prompt,step --pool")
    assert values(pooled, "prompt", "n", "solve_rate") == [("x", 4, 0.75), ("y", 2, 0.5)]
    assert values(exported("--to prompts -g prompt,step --pool -w 'solve_rate > 0.5'"), "prompt", "n") == [("x", 4)]
    done = adv("export in.jsonl --to prompts -g prompt,step --pool --where 'step == 1' -o out.jsonl")
    refused(done, "step has several values in the groups that --pool merges into one prompt; leave out --pool")


CONDITIONS: dict[str, Callable[[Row], bool]] = {
    "solve_rate < 0.7": lambda row: row["solve_rate"] < 0.7,
    "mean >= 2 or std > 1": lambda row: row["mean"] >= 2 or (row["std"] or 0) > 1,
    "size > 1": lambda row: row["n"] > 1,
    "max < 0.8": lambda row: row["best"] < 0.8,
    "pass@1 > 0": lambda row: row["pass@1"] > 0,
}


@pytest.mark.parametrize(
    ("pool", "scale", "more"),
    [("", 1.0, "--pass-at 1,2"), ("", 0.1, "--pass-at 1 --solved-at 0.3"), ("--pool", 0.1, "--pass-at 1,2")],
)
def test_a_condition_changes_no_number_that_is_exported(pool: str, scale: float, more: str) -> None:
    rewards = [(1, "x", 9.0), (1, "x", 1.0), (1, "y", 6.0), (2, "y", 7.0), (2, "x", 5.0), (2, "x", 5.0), (2, "z", 6.0)]
    write("in.jsonl", table("step prompt reward", *((*row, scale * reward) for *row, reward in rewards)))
    options = f"--to prompts -g prompt,step {pool} {more}"
    everything = exported(options)
    for condition, holds in CONDITIONS.items():
        assert exported(f"{options} --where '{condition}'") == list(filter(holds, everything)), condition
    assert exported(f"{options} --limit 2") == everything[:2]


@pytest.mark.parametrize(
    ("rewards", "options", "rate", "said"),
    [
        ((-1.0, 0.5, 1.0), "", 7 / 12, "solve rate     scaled from -1 (0) to 1 (1)"),
        ((-1.0, 0.5, 1.0), "--solved-at 1", 1 / 3, ""),
        ((0.4, 0.9), "", 0.65, ""),
        ((7.0, 7.0), "", None, "unknown: all rewards are equal"),
    ],
)
def test_the_scale_of_a_solve_rate_is_that_of_the_input_and_is_printed(
    rewards: tuple[float, ...], options: str, rate: float | None, said: str
) -> None:
    write("in.jsonl", [{"prompt": "a", "reward": reward} for reward in rewards])
    done = adv(f"export in.jsonl --to prompts {options} -o out.jsonl")
    assert said in done.out
    assert ("scaled from" in done.out) == ("scaled from" in said)
    (row,) = rows_of("out.jsonl")
    assert row["solve_rate"] == (None if rate is None else pytest.approx(rate))


@pytest.mark.parametrize("pool", ["", "--pool"])
def test_a_prompt_without_text_is_no_prompt(pool: str) -> None:
    write("in.jsonl", table("prompt_id prompt reward", ("a", "x", 1.0), ("b", None, 1.0), ("c", "", 1.0)))
    assert values(exported(f"--to prompts {pool}"), "prompt") == ["x"]


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
        ("--tokens completion_ids", 0),
        ("--length-column n", 0),
        ("--tokens completion_ids --prompt-tokens prompt_ids", 1),
        ("--tokens all_ids --length-column n", 1),
        ("--mask loss_mask", 1),
        ("--mask labels --tokens all_ids", 1),
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_every_token_of_the_response_has_the_advantage(options: str, zeros: int, suffix: str) -> None:
    write(f"in.{suffix}", TOKENS)
    found = exported(f"--to tokens --method dr-grpo {options}", f"in.{suffix}")
    for row, written in zip(TOKENS, found, strict=True):
        advantage = row["reward"] - mean(one["reward"] for one in TOKENS if one["prompt_id"] == row["prompt_id"])
        assert written["advantages"] == [0.0] * zeros * len(row["prompt_ids"]) + [advantage] * row["n"]
        assert all(written[name] == row[name] for name in written if name in row)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("column", ["prompt_ids", "m"])
def test_a_prompt_of_no_tokens_adds_no_zeros(column: str, suffix: str) -> None:
    rows = [{**row, "prompt_ids": [5] * (at % 2), "m": at % 2} for at, row in enumerate(TOKENS)]
    write(f"in.{suffix}", rows)
    found = exported(f"--to tokens --tokens completion_ids --prompt-tokens {column}", f"in.{suffix}")
    assert [len(row["advantages"]) for row in found] == [row["m"] + row["n"] for row in rows]


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ("--length-column n", {"n": 0}),
        ("--length-column n", {"n": 0.0}),
        ("--length-column n --tokens all_ids", {"n": 0}),
        ("--length-column n --prompt-tokens prompt_ids", {"n": 0}),
        ("--tokens completion_ids", {"completion_ids": []}),
        ("--tokens completion_ids --prompt-tokens prompt_ids", {"completion_ids": []}),
        ("--tokens completion_ids --prompt-tokens prompt_ids", {"prompt_ids": None}),
        ("--mask loss_mask", {"loss_mask": []}),
    ],
    ids=str,
)
def test_a_response_of_no_tokens_is_no_record(options: str, change: Row) -> None:
    write("in.jsonl", [TOKENS[0], {**TOKENS[1], **change}, *TOKENS[2:]])
    assert [*dropped_of(f"--to tokens {options}").values()] == [1]
    written = rows_of("out.jsonl")
    assert len(written) == len(TOKENS) - 1 and all(values(written, "advantages"))


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"n": 9}, "--tokens completion_ids --length-column n", "in.jsonl:2: n is 9, completion_ids has 2 tokens"),
        ({"loss_mask": [1]}, "--tokens all_ids --mask loss_mask", "in.jsonl:2: loss_mask has 1 entries, all_ids 5"),
        ({"n": -1}, "--length-column n", "in.jsonl:2: n is -1, expected a number of tokens"),
        ({"completion_ids": [[1]]}, "--tokens completion_ids", "in.jsonl:2: completion_ids is not a flat list"),
        ({"n": math.nan}, "--length-column n", "in.jsonl:2: n is NaN, expected a number of tokens"),
        ({"n": 10**400}, "--length-column n", "more than the 16,777,216 tokens that a row may have"),
        ({"loss_mask": [None, [1]]}, "--mask loss_mask", "in.jsonl:2: loss_mask is [null, [1]], expected a list"),
        ({}, "", "give --tokens COL, --mask COL or --length-column COL; it could be prompt_ids, completion_ids"),
        ({}, "--mask loss_mask --length-column n", "leave one of them out"),
    ],
)
def test_lengths_that_do_not_fit_are_an_error(change: Row, options: str, message: str) -> None:
    write("in.jsonl", [TOKENS[0], {**TOKENS[1], **change}, *TOKENS[2:]])
    refused(adv(f"export in.jsonl --to tokens -o out.jsonl {options}"), message)


def test_advantages_on_tokens_are_a_list_column() -> None:
    write("in.jsonl", TOKENS)
    ran("export in.jsonl --to tokens --tokens completion_ids -o out.parquet")
    written = [str(one.type) for one in pq.read_schema("out.parquet")]  # by no name that only some readers know
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
@pytest.mark.parametrize(
    ("options", "places"),
    [
        ("sft --per-group 3", {"completion": slice(0, 3)}),
        ("pairs --pairs adjacent", {"chosen": slice(0, 2), "rejected": slice(1, 3)}),
    ],
)
def test_only_the_field_without_a_type_becomes_text(
    arguments: list[Any], wanted: list[Any], options: str, places: dict[str, slice]
) -> None:
    answers = calling(arguments)
    write("in.jsonl", table(TEXTS, *((1, "p", one, -at) for at, one in enumerate(answers))))
    ran(f"export in.jsonl --to {options} -o out.parquet")
    frame, as_lines = pl.read_parquet("out.parquet"), exported(f"--to {options}")
    for column, some in places.items():
        assert frame[column].to_list() == calling(wanted)[some]
        assert values(as_lines, column) == answers[some]  # lines keep what the file has
    assert len({frame.schema[column] for column in places}) == 1


def chat(*turns: str) -> list[Row]:
    return [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(turns)]


def test_conversations_stay_as_they_are() -> None:
    tool = '[{"role": "user",  "content": "2+2?"}, {"role": "assistant", "content": null, "tool_calls": [{"id": 1e2}]}]'
    Path("in.jsonl").write_text(f'{{"task_id": 1, "messages": {tool}, "reward": 1.0}}\n')
    assert adv("export in.jsonl --to sft -o -").out == f'{{"messages":{tool},"reward":1.0}}\n'


def test_pairs_and_prompts_of_conversations_share_the_turns_that_are_equal() -> None:
    good, bad = (chat("q", "a", "again", last) for last in ("good", "bad"))
    write("in.jsonl", table("task_id messages reward", (1, good, 1.0), (1, bad, 0.0)))
    (pair,) = exported("--to pairs")
    assert (pair["prompt"], pair["chosen"], pair["rejected"]) == (chat("q", "a", "again"), good[3:], bad[3:])
    (row,) = exported("--to prompts")
    assert row["prompt"] == chat("q")


def test_a_text_beside_messages_becomes_a_turn_and_a_conversation_as_text_becomes_messages() -> None:
    answer = {"role": "assistant", "content": "a"}
    half = {"role": "assistant", "content": "[{not json"}
    as_text = json.dumps(chat("q"), indent=1)
    prompts, completions = [chat("q"), "q", "q", as_text], ["a", answer, "a", "[{not json"]
    write("in.jsonl", table(TEXTS, *zip(range(4), prompts, completions, [1.0] * 4, strict=True)))
    found = exported("--to sft")
    assert values(found, "prompt") == [chat("q"), chat("q"), "q", chat("q")]
    assert values(found, "completion") == [[answer], [answer], "a", [half]]


# --- formats -----------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).map(lambda text: f"t{text}")
drawn = st.lists(st.tuples(st.integers(0, 3), texts, st.sampled_from([0.0, 0.25, 1.0])), min_size=2, max_size=12)


@pytest.mark.parametrize("kind", ["sft", "pairs", "weights", "prompts"])
@given(rows=drawn)
@examples(3)
def test_every_format_gives_the_same_records(
    kind: str, rows: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("formats")
    written = table(TEXTS, *((f"p{p}", f"prompt {p}", text, reward) for p, text, reward in rows))
    first, *others = (
        exported(f"--to {kind} --group prompt_id", str(write(folder / f"in.{suffix}", written)))
        for suffix in ("jsonl", "json", "parquet", "arrow", "csv")
    )
    assert others == [first] * len(others)


@pytest.mark.parametrize("kind", ["sft", "pairs", "weights", "prompts"])
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_columnar_outputs_have_types(kind: str, suffix: str) -> None:
    ran(f"export in.jsonl --to {kind} -o out.{suffix}")
    frame = pl.read_parquet("out.parquet") if suffix == "parquet" else pl.read_ipc("out.arrow")
    assert frame.to_dicts() == exported(f"--to {kind}")
    computed = frame.drop("prompt", "completion", "chosen", "rejected", strict=False)
    assert {*computed.dtypes} <= {pl.Float64, pl.Int64, pl.String}


def test_an_export_of_nothing_has_its_columns() -> None:
    done = adv("export in.jsonl --to sft --min-reward 9 -o out.parquet")
    assert done.status == 0
    assert "no record is left" in done.out
    assert pl.read_parquet("out.parquet").columns == ["prompt", "completion", "reward"]


def test_several_files_become_one() -> None:
    write("parts/a.jsonl", ROWS[:4])
    write("parts/b.parquet", ROWS[4:])
    assert (
        exported("--to sft", "'parts/*'")
        == exported("--to sft", "parts/a.jsonl parts/b.parquet")
        == exported("--to sft")
    )


# --- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--to prompts --response x", "--response does not apply to --to prompts"),
        ("--to weights --beta 0", "--beta cannot be 0"),
        ("--to weights --weight positive --beta 1", "--weight positive has no --beta"),
        ("--to pairs --max-pairs 0", "--max-pairs cannot be 0; it takes 1 or more"),
        ("--to prompts --pass-at x", "--pass-at"),
        ("--to sft --messages m --prompt p", "leave out --prompt and --response"),
        ("--to sft --prompt prompt --response no", "in.jsonl: no row has a text in the column 'no'"),
    ],
)
def test_options_that_do_not_apply_are_refused(options: str, message: str) -> None:
    refused(adv(f"export in.jsonl -o out.jsonl {options}"), message)


def test_an_output_is_a_file_of_its_own() -> None:
    for options, said in (("", "-o is missing"), ("-o .", "is a directory"), ("-o in.jsonl --force", "is an input")):
        refused(adv(f"export in.jsonl --to sft {options}"), said)
    Path("old.jsonl").touch()
    refused(adv("export in.jsonl --to sft -o old.jsonl"), "exists")
    ran("export in.jsonl --to sft -o old.jsonl --force")


def test_an_error_asks_for_columns_that_it_does_not_find() -> None:
    write("in.jsonl", [{"prompt_id": 1, "ask": "p", "my_output": "c", "reward": 1.0}])
    done = adv("export in.jsonl --to sft -o -")
    refused(
        done,
        "no column looks like the prompt (columns: prompt_id, ask, my_output, reward); give --prompt NAME and --response NAME",
    )
    assert "my_output" in done.err


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_texts_inside_of_records_are_named_by_their_full_path_as_the_reward_is(suffix: str) -> None:
    attempts = [{"answer": f"a{j}", "score": float(j)} for j in range(3)]
    write(f"x.{suffix}", [{"case": f"c{k}", "attempts": attempts} for k in range(2)])
    options = "--to sft --reward attempts[].score --prompt case --response attempts[].answer"
    assert values(exported(options, f"x.{suffix}"), "prompt", "completion") == [("c0", "a2"), ("c1", "a2")]


@pytest.mark.parametrize("kind", ["sft", "pairs"])
def test_a_conversation_that_is_none_is_refused_with_its_row(kind: str) -> None:
    rows = [(at // 2, chat("q", f"{at}") if at != 5 else "oops", at % 2) for at in range(8)]
    write("in.jsonl", table("prompt_id messages reward", *rows))
    done = adv(f"export in.jsonl --group prompt_id --to {kind} -o out.jsonl")
    refused(done, "in.jsonl:6: a conversation is not a list of messages")


def test_prompts_that_are_all_empty_lists_name_the_flag_for_another_column() -> None:
    asked = {"responses_create_params": {"input": []}, "response": {"output": [1]}, "_ng_task_index": 0}
    write("in.jsonl", [{**asked, "_ng_rollout_index": at, "reward": float(at)} for at in range(2)])
    done = adv("export in.jsonl --to sft -o out.jsonl")
    refused(done, "no row has a text in the column 'responses_create_params.input'")
    assert "name another one with --prompt, --response or --messages" in done.err


# --- exports with nothing to learn from ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sft", "weights"])
def test_records_of_a_set_in_which_everything_failed_warn(kind: str) -> None:
    for reward, warned in ((0, True), (1, False)):
        write("in.jsonl", table(TEXTS, *((0, "p", f"c{at}", reward) for at in range(3))))
        done = adv(f"export in.jsonl --to {kind} -o out.jsonl --force")
        said = "every row has the reward 0: no record is better than another row"
        assert (said in " ".join(done.out.split())) == ("every row" in done.out) == warned


def test_groups_of_one_row_make_no_pair_and_an_empty_export_can_stop_a_pipeline() -> None:
    write("in.jsonl", table(TEXTS, (0, "p", "c", 0), (1, "p", "d", 1)))
    done = adv("export in.jsonl --to pairs -o some.jsonl")
    said = " ".join(done.out.split())
    assert "2 rows: not used in any pair" in said
    assert "no record is left" in said
    assert adv("export in.jsonl --to pairs -o out.jsonl --fail-on 'records == 0'").status == 3
    assert not Path("out.jsonl").exists()
    write("in.jsonl", table(TEXTS, (0, "p", "c", 0), (0, "p", "d", 1)))
    ran("export in.jsonl --to pairs -o out.jsonl --fail-on 'records == 0'")
    assert Path("out.jsonl").exists()


@pytest.mark.parametrize("to", ["sft", "pairs", "weights"])
def test_a_chat_of_a_record_with_several_rewards_is_nobodys_response(to: str) -> None:
    chat = [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
        {"role": "assistant", "content": "3"},
    ]
    group: dict[str, object] = {"tokens": [[1], [2]], "masks": [[1], [1]], "scores": [1.0, 0.0], "messages": chat}
    write("atropos.jsonl", [group] * 2)
    refused = adv(f"export atropos.jsonl --to {to} -o out.jsonl")
    assert refused.status == 1 and "messages has one text for all rollouts of a record" in refused.err
    assert adv("export atropos.jsonl --to prompts -o out.jsonl").status == 0
    write("chats.jsonl", [{**group, "messages": [chat[:2], [chat[0], chat[2]]]}] * 2)
    ran(f"export chats.jsonl --to {to} -o {to}.jsonl")
    same_reward = {**group, "scores": [1.0, 1.0]}
    write("equal.jsonl", [same_reward] * 2)
    ran("export equal.jsonl --to sft -o equal.out.jsonl")
