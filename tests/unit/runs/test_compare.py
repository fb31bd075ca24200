"""A comparison says where plans differ, measured with plain Python, and can write all of their columns."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import polars as pl
import pytest

import grpo_cli
from tests.support.command import Done, adv
from tests.support.jobs import rows_of, write

GROUPS = {"a": [0.0, 1.0, 0.5], "b": [1.0, 1.0], "c": [0.0, 0.0, 0.25, 1.0]}
ROWS = [{"prompt_id": key, "reward": r} for key, group in GROUPS.items() for r in group]


def run(line: str) -> Done:
    return adv(f"compare {line}")


def facts(path: Path, words: str) -> Any:
    done = run(f"{path} {words} --json")
    assert done.status == 0, done.err
    return json.loads(done.out)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "r.jsonl", ROWS)


def centred() -> list[float]:
    return [r - fmean(group) for group in GROUPS.values() for r in group]


def spread() -> list[float]:
    return [stdev(group) for group in GROUPS.values() for _ in group]


def test_columns_that_only_one_of_the_plans_reads_are_found_by_the_schema() -> None:
    rows = [
        {"split": "train", "iteration": 1, "group_idx": g, "traj_idx": t, "total_reward": (g + t) % 2, "steps": [{"ac_len": 3 + t}]}
        for g in range(3) for t in range(4)
    ]  # fmt: skip
    path = write("x_rollout_summaries.jsonl", rows)
    methods = "--method batch-norm --method opo --method rloo"
    of_three = {plan["name"]: plan["advantage"] for plan in facts(path, methods)["plans"]}
    assert of_three["opo"] == facts(path, "--method opo --method rloo")["plans"][0]["advantage"]


def test_columns_that_the_plans_lack_are_named_at_once(source: Path) -> None:
    done = run(f"{source} --method remax --method opo")
    assert done.err.endswith("name the columns with --baseline-column COLUMN and --length-column COLUMN\n")
    assert "the plan needs reward of the greedy answer, or another baseline; response length in tokens;" in done.err


def test_the_differences_are_those_of_plain_python(source: Path) -> None:
    shown = facts(source, "--method dr-grpo --preset trl-grpo")
    (one,) = shown["differences"]
    first = [a / (s + 1e-4) if a else 0.0 for a, s in zip(centred(), spread(), strict=True)]
    other = centred()
    assert shown["against"] == "trl-grpo"
    assert one["changed"] == sum(abs(x - y) > 1e-12 for x, y in zip(first, other, strict=True))
    assert one["sign_flips"] == 0
    rms = [(sum(a * a for a in values) / len(values)) ** 0.5 for values in (first, other)]
    assert one["scale_ratio"] == pytest.approx(rms[1] / rms[0])
    assert one["mean_change"] == pytest.approx(fmean(abs(x - y) for x, y in zip(first, other, strict=True)))
    assert one["largest"][0]["key"] == "c"
    assert [part["size"] for part in one["by_size"]] == [2, 3, 4]
    assert sum(part["changed"] for part in one["by_size"]) == one["changed"]
    assert [part["solve_rate"] for part in one["by_solve_rate"]] == ["0.25..0.5", "1"]


def test_signs_and_ranks_that_turn_around_are_counted(source: Path) -> None:
    (one,) = facts(source, "--method dr-grpo --method dr-grpo,reward-scale=-1")["differences"]
    assert one["sign_flips"] == sum(a != 0 for a in centred())
    assert one["rank_correlation"] == pytest.approx(-1.0)
    assert one["scale_ratio"] == pytest.approx(1.0)


def test_a_plan_like_itself_shows_no_difference(source: Path) -> None:
    (one,) = facts(source, "--method dr-grpo --method grpo,scale=none")["differences"]
    assert one["changed"] == 0
    assert one["largest"] == []
    assert one["rank_correlation"] == pytest.approx(1.0)


def test_common_options_hold_for_every_plan(source: Path) -> None:
    shown = facts(source, "--method grpo --preset trl-grpo --epsilon 0.5")
    assert [plan["plan"]["divisor"]["epsilon"] for plan in shown["plans"]] == [0.5, 0.5]


def test_several_parameters_may_follow_one_name(source: Path) -> None:
    shown = facts(source, "--method passk,param=k=3,param=epsilon=0.5 --method grpo")
    assert shown["plans"][0]["plan"]["params"] == {"k": 3, "epsilon": 0.5}


def test_rows_that_only_one_plan_gives_a_number_are_counted_and_said() -> None:
    source = write("r.jsonl", [*ROWS, {"prompt_id": "a", "reward": None}])
    args = "--preset trl-grpo --preset verl-grpo"
    (one,) = facts(source, args)["differences"]
    assert one["lost"] == 4
    assert one["rows"] == 6
    shown = run(f"{source} {args}").out
    assert "4 rows have an advantage in only one" in shown


def test_the_reward_that_is_shown_is_that_of_the_plan() -> None:
    rows = [{"prompt_id": "a", "acc": at, "fmt": 0.5 * at} for at in (0, 1)]
    source = write("x.jsonl", rows)
    (one,) = facts(source, "--reward acc --reward fmt --method grpo --method rloo")["differences"]
    assert {row["reward"] for row in one["largest"]} == {0.0, 1.5}


def test_all_columns_are_woven_in(source: Path) -> None:
    out = Path("out.jsonl")
    done = run(f"{source} --preset trl-grpo --method rloo --write -o {out}")
    assert done.status == 0, done.err
    assert [{name: row[name] for name in ROWS[0]} for row in rows_of(out)] == ROWS
    assert [row["advantage_rloo"] for row in rows_of(out)][:3] == pytest.approx([-0.75, 0.75, 0.0])
    assert {*rows_of(out)[0]} == {*ROWS[0], "advantage_trl_grpo", "advantage_rloo"}


def test_all_columns_are_spliced_into_parquet() -> None:
    source = Path("r.parquet")
    out = Path("out.parquet")
    pl.DataFrame(ROWS).write_parquet(source)
    done = run(f"{source} --method grpo --method rloo --write -o {out} --column adv")
    assert done.status == 0, done.err
    assert pl.read_parquet(out).columns == ["prompt_id", "reward", "adv_grpo", "adv_rloo"]
    checked = adv(f"verify {out} --against {source}")
    assert checked.status == 0, checked.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("--method grpo", "a comparison needs two plans"),
        ("--method grpo --method grpo", "'grpo' is named twice"),
        ("--method grpo --method rloo -o x.jsonl", "none is written"),
        ("--method grpo --method rloo,scal=batch", "'scal'"),
        ("--method grpo --method rloo,scale", "'scale' has no value"),
        ("--method grpo --preset trl-gropo", "trl-grpo"),
        ("--method grpo --method opo", "--length-column"),
        ("--method grpo --method rloo,reward=accuracy=2", "no option of a plan named 'reward'"),
        (
            "--method grpo,rloo",
            "'rloo' after the name of a plan is no option; write OPTION=X for an option, repeat the flag",
        ),
        ("--method grpo --method rloo,method=grpo", "no option of a plan named 'method'"),
        ("--method grpo --method rloo,scale=none,scale=batch", "scale is given twice"),
    ],
)
def test_what_means_nothing_is_said_in_one_line(source: Path, args: str, said: str) -> None:
    done = run(f"{source} {args}")
    assert done.status == 2
    assert said in done.err
    assert len((done.out + done.err).strip().splitlines()) == 1


def test_the_table_fits_a_narrow_terminal(source: Path) -> None:
    done = run(f"{source} --method grpo --method rloo")
    assert done.status == 0
    assert "rank corr." in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_plans_are_compared_in_python() -> None:
    plans = {
        "centred": grpo_cli.Plan.of({"estimator.name": "dr-grpo"}),
        "twice": grpo_cli.Plan.of({"shape.affine.scale": 2.0}),
    }
    facts = grpo_cli.compare(pl.DataFrame(ROWS), plans)
    assert facts.scored["centred"].frame[".advantage"].to_list() == pytest.approx(centred())
    assert facts.facts["differences"][0]["sign_flips"] == 0


def test_the_reward_that_is_shown_of_a_row_is_that_of_its_rollout() -> None:
    rows = [
        {"prompt_id": "p", "trajectory_id": k, "reward": reward if last else None}
        for k, reward in enumerate([0.0, 0.5, 1.0]) for last in (False, True)
    ]  # fmt: skip
    path = write("a.jsonl", rows)
    of_rollouts = "--rollout trajectory_id --missing exclude"
    largest = facts(path, f"--method grpo --method rloo {of_rollouts}")["differences"][0]["largest"]
    assert {(change["reward"], change["first"] > 0) for change in largest} <= {(0.0, False), (1.0, True)}
