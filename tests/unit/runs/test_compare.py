"""A comparison says where plans differ, measured with plain Python, and can write all of their columns."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl
import pytest

import grpo_cli
from tests.support.command import adv, facts_of, ran

LINES = """\
{"prompt_id": "a", "reward": 0.0}
{"prompt_id": "a", "reward": 1.0}
{"prompt_id": "a", "reward": 0.5}
{"prompt_id": "b", "reward": 1.0}
{"prompt_id": "b", "reward": 1.0}
{"prompt_id": "c", "reward": 0.0}
{"prompt_id": "c", "reward": 0.0}
{"prompt_id": "c", "reward": 0.25}
{"prompt_id": "c", "reward": 1.0}
"""
CENTRED = [-0.5, 0.5, 0.0, 0.0, 0.0, -0.3125, -0.3125, -0.0625, 0.6875]
SPREAD = [0.5] * 3 + [0.0] * 2 + [math.sqrt(0.671875 / 3)] * 4


@pytest.fixture(autouse=True)
def _source(here: None) -> None:
    Path("r.jsonl").write_text(LINES)


def facts(words: str) -> Any:
    return facts_of(f"compare r.jsonl {words}")


def difference(words: str) -> Any:
    (one,) = facts(words)["differences"]
    return one


def test_columns_that_only_one_of_the_plans_reads_are_found_by_the_schema() -> None:
    line = '{{"split": "train", "iteration": 1, "group_idx": {}, "traj_idx": {}, "total_reward": {}, "steps": [{{"ac_len": {}}}]}}\n'
    rows = [line.format(k // 4, k % 4, k % 2, 3 + k % 4) for k in range(12)]
    Path("x_rollout_summaries.jsonl").write_text("".join(rows))
    command = "compare x_rollout_summaries.jsonl --method opo --method rloo"
    opo = facts_of(command)["plans"][0]
    assert opo["name"] == "opo"
    assert opo in facts_of(f"{command} --method batch-norm")["plans"]


def test_columns_that_the_plans_lack_are_named_at_once() -> None:
    done = adv("compare r.jsonl --method remax --method opo")
    assert done.err.endswith("name the columns with --baseline-column COLUMN and --length-column COLUMN\n")
    assert "the plan needs reward of the greedy answer, or another baseline; response length in tokens;" in done.err


def test_the_differences_are_those_of_plain_python() -> None:
    shown = facts("--method dr-grpo --preset trl-grpo")
    (one,) = shown["differences"]
    assert shown["against"] == "trl-grpo"
    first = [a / (s + 1e-4) for a, s in zip(CENTRED, SPREAD, strict=True)]
    changes = [abs(x - y) for x, y in zip(first, CENTRED, strict=True)]
    assert one["changed"] == 6
    assert one["sign_flips"] == 0
    assert one["scale_ratio"] == pytest.approx(math.hypot(*CENTRED) / math.hypot(*first))
    assert one["mean_change"] == pytest.approx(fmean(changes))
    assert one["largest"][0]["key"] == "c"
    assert [(part["size"], part["changed"]) for part in one["by_size"]] == [(2, 0), (3, 2), (4, 4)]
    assert [part["solve_rate"] for part in one["by_solve_rate"]] == ["0.25..0.5", "1"]


def test_signs_and_ranks_that_turn_around_are_counted_and_a_plan_like_itself_shows_no_difference() -> None:
    one = difference("--method dr-grpo --method dr-grpo,reward-scale=-1")
    assert one["sign_flips"] == 6
    assert one["rank_correlation"] == pytest.approx(-1.0)
    assert one["scale_ratio"] == pytest.approx(1.0)
    one = difference("--method dr-grpo --method grpo,scale=none")
    assert one["changed"] == 0
    assert one["largest"] == []
    assert one["rank_correlation"] == pytest.approx(1.0)


def test_common_options_hold_for_every_plan_and_several_parameters_may_follow_one_name() -> None:
    grpo, trl = facts("--method grpo --preset trl-grpo --epsilon 0.5")["plans"]
    assert grpo["plan"]["divisor"]["epsilon"] == 0.5
    assert trl["plan"]["divisor"]["epsilon"] == 0.5
    of_all, own = facts("--set divisor.epsilon=2 --method grpo,epsilon=1 --preset trl-grpo")["plans"]
    assert own["plan"]["divisor"]["epsilon"] == 1.0
    assert of_all["plan"]["divisor"]["epsilon"] == 2.0
    passk, _ = facts("--method passk,param=k=3,param=epsilon=0.5 --method grpo")["plans"]
    assert passk["plan"]["params"] == {"k": 3, "epsilon": 0.5}


def test_rows_that_only_one_plan_gives_a_number_are_counted_and_said() -> None:
    Path("r.jsonl").write_text(LINES + '{"prompt_id": "a", "reward": null}\n')
    plans = "--preset trl-grpo --preset verl-grpo"
    one = difference(plans)
    assert one["lost"] == 4
    assert one["rows"] == 6
    assert "4 rows have an advantage in only one" in ran(f"compare r.jsonl {plans}").out


def test_the_reward_that_is_shown_is_that_of_the_plan() -> None:
    Path("r.jsonl").write_text('{"prompt_id": "a", "acc": 0, "fmt": 0.0}\n{"prompt_id": "a", "acc": 1, "fmt": 0.5}\n')
    one = difference("--reward acc --reward fmt --method grpo --method rloo")
    assert {row["reward"] for row in one["largest"]} == {0.0, 1.5}


def test_all_columns_are_woven_in() -> None:
    ran("compare r.jsonl --preset trl-grpo --method rloo --write -o out.jsonl")
    lines = Path("out.jsonl").read_text().splitlines()
    for line, before in zip(lines, LINES.splitlines(), strict=True):
        assert line.startswith(before[:-1])
    trl, rloo = list(json.loads(lines[0]).items())[2:]
    assert trl == ("advantage_trl_grpo", pytest.approx(-0.5 / 0.5001))
    assert rloo == ("advantage_rloo", -0.75)


def test_all_columns_are_spliced_into_parquet() -> None:
    pl.read_ndjson("r.jsonl").write_parquet("r.parquet")
    ran("compare r.parquet --method grpo --method rloo --write -o out.parquet --column adv")
    assert pl.read_parquet("out.parquet").columns == ["prompt_id", "reward", "adv_grpo", "adv_rloo"]
    ran("verify out.parquet --against r.parquet")


MEANINGLESS = """\
--method grpo | a comparison needs two plans
--method grpo --method grpo | 'grpo' is named twice
--method grpo --method rloo -o x.jsonl | none is written
--method grpo --method rloo,scal=batch | 'scal'
--method grpo --preset trl-gropo | trl-grpo
--method grpo --method rloo,reward=accuracy=2 | no option of a plan named 'reward'
--method grpo --method rloo,method=grpo | no option of a plan named 'method'
--method grpo --method grpo,rloo | 'rloo' after the name of a plan is no option; write OPTION=X for an option, repeat the flag
"""


@pytest.mark.parametrize("case", MEANINGLESS.splitlines())
def test_what_means_nothing_is_said_in_one_line(case: str) -> None:
    plans, said = case.split(" | ")
    done = adv(f"compare r.jsonl {plans}")
    assert done.status == 2
    assert said in done.err
    assert len((done.out + done.err).strip().splitlines()) == 1


def test_the_table_fits_a_narrow_terminal() -> None:
    text = ran("compare r.jsonl --method grpo --method rloo").out
    assert "rank corr." in text
    assert max(map(len, text.splitlines())) <= 80


def test_plans_are_compared_in_python() -> None:
    of = grpo_cli.Plan.of
    plans = {"centred": of({"estimator.name": "dr-grpo"}), "twice": of({"shape.affine.scale": 2.0})}
    found = grpo_cli.compare(pl.read_ndjson("r.jsonl"), plans)
    assert found.scored["centred"].frame[".advantage"].to_list() == pytest.approx(CENTRED)
    assert found.facts["differences"][0]["sign_flips"] == 0


def test_the_reward_that_is_shown_of_a_row_is_that_of_its_rollout() -> None:
    Path("r.jsonl").write_text("""\
{"prompt_id": "p", "trajectory_id": 0, "reward": null}
{"prompt_id": "p", "trajectory_id": 0, "reward": 0.0}
{"prompt_id": "p", "trajectory_id": 1, "reward": null}
{"prompt_id": "p", "trajectory_id": 1, "reward": 0.5}
{"prompt_id": "p", "trajectory_id": 2, "reward": null}
{"prompt_id": "p", "trajectory_id": 2, "reward": 1.0}
""")
    largest = difference("--method grpo --method rloo --rollout trajectory_id --missing exclude")["largest"]
    assert {(change["reward"], change["first"] > 0) for change in largest} <= {(0.0, False), (1.0, True)}
