"""--kl-from: the KL of a row is made from the log-probs of its tokens, and subtracted like that of --kl-column."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import grpo_cli
from grpo_cli.errors import UsageError
from tests.support.command import adv, ran
from tests.support.jobs import rows_of, write

LINES = """\
{"prompt_id": 0, "reward": 0.0, "s": [-0.5, -1.0, -0.25], "r": [-0.75, -0.5, -0.5], "mask": [1, 1, 0]}
{"prompt_id": 0, "reward": 1.0, "s": [-2.0], "r": [-1.0], "mask": [1]}
{"prompt_id": 1, "reward": 0.0, "s": [-0.75, -0.5], "r": [-0.5, -1.5], "mask": [0, 1]}
{"prompt_id": 1, "reward": 1.0, "s": [-1.5, -0.125], "r": [-1.0, -0.25], "mask": [1, 1]}
"""
SUM = "--kl-estimator k1 --kl-reduce sum"
OF_LISTS: Any = {"kl_from": "s,r", "kl_estimator": "k1", "kl_reduce": "sum", "kl_coef": 0.5}
FROM = "--kl-from s,r --kl-coef 0.5 --method rloo"
# The sums of s - r are 0, -1, 0.75 and -0.375; half of them are subtracted from the rewards.
K1 = [-1.5, 1.5, -1.5625, 1.5625]


@pytest.fixture(autouse=True)
def _lines(here: None) -> None:
    Path("a.jsonl").write_text(LINES)


def advantages(options: str) -> list[float | None]:
    return [row["advantage"] for row in ran(f"compute a.jsonl -o - -q {options}").rows]


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_the_kl_of_a_row_is_that_of_a_loop(estimator: str, reduce: str) -> None:
    """The first row has two tokens that count, and the second has one."""
    found = advantages(f"{FROM} --kl-estimator {estimator} --kl-reduce {reduce} --mask mask")

    def kl(s: float, r: float) -> float:
        each = {"k1": s - r, "k2": (s - r) ** 2 / 2, "k3": math.exp(r - s) - (r - s) - 1}
        return each[estimator]

    first = kl(-0.5, -0.75) + kl(-1.0, -0.5)
    if reduce == "mean":
        first /= 2
    advantage = (0.0 - 0.5 * first) - (1.0 - 0.5 * kl(-2.0, -1.0))
    assert found[:2] == pytest.approx([advantage, -advantage], abs=1e-12)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_other_formats_have_lists_too(suffix: str) -> None:
    path = write(f"a.{suffix}", rows_of("a.jsonl"))
    ran(f"compute {path} -o b.jsonl {FROM} {SUM}")
    assert [row["advantage"] for row in rows_of("b.jsonl")] == K1


@pytest.mark.parametrize("names", ["s,r", "rollouts[].s,rollouts[].r"])
def test_lists_inside_of_records_are_found_by_either_name(names: str) -> None:
    a, b, c, d = LINES.splitlines()
    Path("a.jsonl").write_text(
        f'{{"prompt_id": 0, "rollouts": [{a},{b}]}}\n{{"prompt_id": 1, "rollouts": [{c},{d}]}}\n'
    )
    done = ran(f"compute a.jsonl -o - --reward rollouts[].reward --kl-coef 0.5 --method rloo --kl-from {names} {SUM}")
    assert [rollout["advantage"] for row in done.rows for rollout in row["rollouts"]] == K1


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_columns_of_lists_have_a_list_for_each_rollout(suffix: str) -> None:
    rows = pl.read_ndjson("a.jsonl").group_by("prompt_id", maintain_order=True).all().rename({"reward": "rewards"})
    path = write(f"b.{suffix}", rows.to_dicts())
    ran(f"compute {path} -o c.jsonl {FROM} {SUM}")
    assert [row["advantage"] for row in rows_of("c.jsonl")] == [K1[:2], K1[2:]]


def test_a_frame_and_a_stream_give_the_same() -> None:
    assert grpo_cli.advantages(pl.read_ndjson("a.jsonl"), method="rloo", **OF_LISTS).to_list() == K1
    done = ran(f"compute - --stream --group prompt_id {FROM} {SUM}", stdin=LINES)
    assert [row["advantage"] for row in done.rows] == K1


def test_a_mask_is_for_the_plans_with_a_kl() -> None:
    frame = pl.read_ndjson("a.jsonl")
    plans: Any = {"0": {"method": "rloo", **OF_LISTS}, "1": {"method": "rloo"}}
    found = grpo_cli.advantages(frame, plan_by="prompt_id", plans=plans, mask="mask")
    assert found.to_list() == [-1.375, 1.375, -1.0, 1.0]
    with pytest.raises(UsageError, match="has no effect alone"):
        grpo_cli.advantages(frame, mask="mask")


def test_each_plan_may_estimate_in_its_own_way() -> None:
    Path("plans.toml").write_text("""\
plan-by = "prompt_id"
[plan.0]
kl-estimator = "k1"
kl-from = "s,r"
kl-reduce = "sum"
kl-coef = 0.5
method = "rloo"
[plan.1]
kl-estimator = "k2"
kl-from = "s,r"
kl-reduce = "sum"
kl-coef = 0.5
method = "rloo"
""")
    assert advantages("--config plans.toml") == [-1.5, 1.5, -1.19921875, 1.19921875]


def test_a_preset_knows_how_its_tool_estimates() -> None:
    assert advantages("--preset trl-rloo --kl-from s,r --kl-coef 0.5") == K1


REFUSED = """\
--kl-coef 0.5 --preset trl-grpo --kl-from s,r | needs an estimator and a reduction; add --kl-estimator k1|k2|k3 and --kl-reduce sum|mean
--kl-coef 0.5 --kl-from s | is not two columns
--kl-coef 0.5 --kl-from s,s | is not two columns
--kl-coef 0.5 --kl-estimator k1 | --kl-estimator has no effect without --kl-from
--kl-coef 0.5 --kl-from s,r --kl-estimator k1 --kl-reduce sum --kl-column kl | cannot be combined
--kl-coef 0.5 --mask mask | --mask has no effect alone
--kl-coef 0.5 --kl-column s | expected a number; name a column of numbers
--kl-coef 0.5 --kl-from s,q --kl-estimator k1 --kl-reduce sum | no column 'q'
--kl-from s,r --kl-estimator k1 --kl-reduce sum | --kl-from has no effect without --kl-coef
"""


@pytest.mark.parametrize("case", REFUSED.splitlines())
def test_what_is_not_said_is_asked_for(case: str) -> None:
    options, said = case.split(" | ")
    done = adv(f"compute a.jsonl -o - {options}")
    assert done.status
    assert said in done.err


def test_a_log_prob_that_rounding_left_above_0_counts_as_given() -> None:
    Path("a.jsonl").write_text(
        '{"prompt_id": 0, "reward": 1, "s": [0.0078125], "r": [0]}\n{"prompt_id": 0, "reward": 0, "s": [0], "r": [0]}\n'
    )
    assert advantages(f"{FROM} {SUM}") == [0.99609375, -0.99609375]


def test_tokens_that_do_not_count_may_be_anything() -> None:
    Path("a.jsonl").write_text(LINES.replace(", -0.25]", ", true]", 1).replace("-0.5, -0.5]", "-0.5, 1.0]", 1))
    assert advantages(f"{FROM} {SUM} --mask mask")[:2] == [-1.375, 1.375]


def test_a_row_that_is_left_out_needs_no_kl() -> None:
    Path("a.jsonl").write_text(
        LINES.replace("}", ', "failed": null}')
        + '{"prompt_id": 0, "reward": 0.0, "s": [NaN, -1.0, 2.0], "r": [-0.75, false, -0.25], "failed": "oom"}\n'
        + '{"prompt_id": 0, "reward": 0.0, "s": null, "r": [-0.75, -0.5, -0.25], "failed": "oom"}\n'
    )
    assert advantages(f"{FROM} {SUM} --rows 'failed is null'") == [*K1, None, None]


LACKING = """\
"s": null, "r": [0, 0] | --kl-reduce sum | a.jsonl:5: without a list in s or r; --rows leaves such rows out
"s": [null, 0], "r": [0, 0] | --kl-reduce sum | a.jsonl:5: s is null at token 1; if it is a token of the prompt, --mask COL names a list of the tokens that count; --rows leaves such rows out
"s": [-1.0], "r": [0, 0] | --kl-reduce sum | a.jsonl:5: r has 2 numbers, s 1; the lists must be of the same tokens
"s": [0], "r": [0], "mask": [0] | --kl-reduce mean --mask mask | a.jsonl:5: mask counts none of the 1 tokens, so they have no mean; --rows leaves such rows out
"s": [], "r": [] | --kl-reduce mean | a.jsonl:5: s and r are empty, so they have no mean
"s": [0, -Infinity], "r": [0, 0] | --kl-reduce sum | a.jsonl:5: s is -inf at token 2; if it is a token of the prompt
"s": [0, 0], "r": [0, -Infinity], "mask": [1, 1] | --kl-reduce sum --mask mask | a.jsonl:5: r is -inf at token 2; mask says that this token counts
"s": [0, true], "r": [0, 0] | --kl-reduce sum | a.jsonl:5: s is true at token 2
"s": [0, 0.02], "r": [0, 0] | --kl-reduce sum | a.jsonl:5: s is 0.02 at token 2; a log-prob is 0 or less
"s": [0], "r": [0], "mask": [null] | --kl-reduce sum --mask mask | mask is null at token 1; write 0 or 1
"""


@pytest.mark.parametrize("case", LACKING.splitlines())
def test_what_a_row_lacks_is_named(case: str) -> None:
    lists, options, said = case.split(" | ")
    Path("a.jsonl").write_text(f'{LINES}{{"prompt_id": 1, "reward": 0, {lists}}}\n')
    done = adv(f"compute a.jsonl -o - {FROM} --kl-estimator k1 {options}")
    assert done.status
    assert said in done.err
