"""`inspect --against` with several runs: rates, differences and p values beside plain Python, enumeration and simulation."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Callable
from fractions import Fraction
from math import comb
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import polars as pl
import pytest

import grpo_cli
from grpo_cli.errors import DataError, UsageError
from grpo_cli.stats import intervals
from grpo_cli.stats.intervals import (
    OF_CHANGE,
    OF_RATE,
    Estimate,
    Rewards,
    estimate,
    holm,
    p_value,
)
from grpo_cli.stats.runs import compared
from tests.support.command import adv
from tests.support.drawn import is_nightly
from tests.support.jobs import write

T = {5: 2.571, 9: 2.262, 29: 2.045}  # Student's t by degrees of freedom, from a printed table


def run(folder: Path, name: str, prompts: dict[str, list[Any]], **more: Any) -> Path:
    return write(
        folder / name, [{"prompt_id": k, **more, "reward": r} for k, rewards in prompts.items() for r in rewards]
    )


# --- numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("freedom", T)
def test_an_interval_is_students_with_imagined_prompts(freedom: int) -> None:
    random = np.random.default_rng(freedom)
    for imagined in (OF_RATE, OF_CHANGE):
        values = random.random(freedom + 1 - len(imagined)).round(2)
        found = estimate(values, imagined)
        whole = [*values, *imagined]
        half = T[freedom] * stdev(whole) / len(whole) ** 0.5
        assert found.mean == pytest.approx(fmean(values))
        assert found.low == pytest.approx(max(fmean(whole) - half, min(imagined)), abs=1e-3)
        assert found.high == pytest.approx(min(fmean(whole) + half, 1.0), abs=1e-3)


def test_one_prompt_has_no_interval() -> None:
    assert estimate(np.array([0.5]), OF_RATE).low is None


@pytest.mark.parametrize(("up", "down"), [(0, 0), (1, 0), (5, 1), (10, 3), (40, 60)])
def test_one_rollout_a_prompt_is_mcnemars_test_the_binomial_of_changed_prompts(up: int, down: int) -> None:
    changed = up + down
    tail = sum(Fraction(comb(changed, k), 2**changed) for k in range(min(up, down) + 1))
    before = np.array([0.0] * up + [1.0] * down + [1.0])
    now = np.array([1.0] * up + [0.0] * down + [1.0])
    prompts = np.arange(changed + 1)
    found = p_value(*(Rewards.of(prompts, run, changed + 1) for run in (now, before)))
    assert found == pytest.approx(float(min(Fraction(1), 2 * tail)))


@pytest.mark.parametrize("values", [[1, 1, 0, 0, 1, 0], [1, 0.5, 0.25, 0, 1, 0.125]], ids=["solved or not", "graded"])
def test_a_p_value_is_the_share_of_all_deals_that_change_as_much(values: list[float]) -> None:
    """Two prompts: two rollouts now and one before of each; every deal is written out."""
    dealt = []
    for first in itertools.combinations(range(3), 2):
        for second in itertools.combinations(range(3, 6), 2):
            change = 0.0
            for chosen, whole in ((first, range(3)), (second, range(3, 6))):
                change += sum(values[k] for k in chosen) / 2 - sum(values[k] for k in whole if k not in chosen)
            dealt.append(change)
    seen = dealt[0]  # the first two of each are now
    exact = fmean(abs(change) >= abs(seen) - 1e-9 for change in dealt)
    now = np.array([values[k] for k in (0, 1, 3, 4)], dtype=float)
    before = np.array([values[k] for k in (2, 5)], dtype=float)
    found = p_value(Rewards.of(np.array([0, 0, 1, 1]), now, 2), Rewards.of(np.array([0, 1]), before, 2))
    assert found == pytest.approx(exact, abs=0.03)


def test_holm_allows_for_the_number_of_runs() -> None:
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": None})
    assert found == {"a": pytest.approx(0.03), "b": pytest.approx(0.06), "c": pytest.approx(0.06), "d": None}


def test_pass_at_k_and_pass_all_k_are_shares_of_all_draws(tmp_path: Path) -> None:
    prompts = {"a": [1, 0, 0], "b": [1, 1, 0, 1], "c": [0, 0, 0], "short": [1]}
    now, base = (grpo_cli.inspect(run(tmp_path, name, prompts)).inspection for name in ("now.jsonl", "base.jsonl"))
    (found,) = compared({"base": base, "now": now}, [2]).runs[0].passes
    draws = [[*itertools.combinations(rewards, 2)] for rewards in prompts.values() if len(rewards) > 1]
    assert found.left_out == 1
    assert found.pass_at is not None
    assert found.pass_all is not None
    assert found.pass_at.mean == pytest.approx(fmean(fmean(max(pair) for pair in pairs) for pairs in draws))
    assert found.pass_all.mean == pytest.approx(fmean(fmean(min(pair) for pair in pairs) for pairs in draws))


# --- simulation ---------------------------------------------------------------------------------------------------

TIMES = 4000 if is_nightly() else 600
Policy = Callable[[Any, Any], Any]
# The solve rates of prompts, and their mean.
POLICIES: dict[str, tuple[Policy, float]] = {
    "hard": (lambda _, size: np.full(size, 0.02), 0.02),
    "one rate": (lambda _, size: np.full(size, 0.3), 0.3),
    "broad": (lambda random, size: random.beta(1, 1, size), 0.5),
    "extreme": (lambda random, size: random.beta(0.3, 0.3, size), 0.5),
    "half impossible": (lambda random, size: np.where(random.random(size) < 0.5, 0, random.beta(2, 2, size)), 0.25),
    "all solved": (lambda _, size: np.ones(size), 1.0),
}
LEAST = 0.93 - 2 * (0.05 * 0.95 / TIMES) ** 0.5  # of the intervals


def holds(found: Estimate, truth: float) -> bool:
    assert found.low is not None
    assert found.high is not None
    return found.low - 1e-9 <= truth <= found.high + 1e-9


@pytest.mark.parametrize("prompts", [5, 8, 30, 100])
@pytest.mark.parametrize("rollouts", [1, 8])
@pytest.mark.parametrize(("policy", "truth"), POLICIES.values(), ids=POLICIES)
def test_the_interval_of_a_rate_holds_the_truth(policy: Policy, truth: float, rollouts: int, prompts: int) -> None:
    random = np.random.default_rng(prompts * rollouts)
    rates: Any = random.binomial(rollouts, policy(random, (TIMES, prompts))) / rollouts
    assert fmean(holds(estimate(one, OF_RATE), truth) for one in rates) >= LEAST


@pytest.mark.parametrize("prompts", [5, 8, 30, 100])
@pytest.mark.parametrize(("now", "before"), [(1, 1), (8, 8), (1, 8)])
@pytest.mark.parametrize("gain", [0.0, 0.15])
def test_the_interval_of_a_change_holds_the_truth(now: int, before: int, gain: float, prompts: int) -> None:
    for policy, mean in POLICIES.values():
        random = np.random.default_rng(prompts + now)
        p = policy(random, (TIMES, prompts))
        change: Any = random.binomial(now, p + gain * (1 - p)) / now - random.binomial(before, p) / before
        assert fmean(holds(estimate(one, OF_CHANGE), gain * (1 - mean)) for one in change) >= LEAST


@pytest.mark.parametrize("prompts", [2, 5, 250])
@pytest.mark.parametrize(("now", "before"), [(1, 1), (8, 8), (1, 8)])
def test_two_draws_of_one_policy_raise_no_alarm(
    now: int, before: int, prompts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intervals, "DEALS", 499)  # of 500 p values that are equally likely, 5 % are at most 0.05
    monkeypatch.setattr(intervals, "AT_ONCE", 499 * prompts)
    alarms = 0
    times = TIMES // 2
    for policy, _ in (POLICIES["broad"], POLICIES["extreme"]):
        random = np.random.default_rng(prompts)
        rates: Any = policy(random, (times, prompts))
        for p in rates:
            places = [np.repeat(np.arange(prompts), n) for n in (now, before)]
            drawn = [Rewards.of(at, (random.random(len(at)) < p[at]).astype(float), prompts) for at in places]
            alarms += p_value(*drawn) <= 0.05
    assert alarms / (2 * times) <= 0.05 + 2 * (0.05 * 0.95 / (2 * times)) ** 0.5


# --- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """40 prompts of 8 families: 200 solves 0.3 of each, 400 solves 0.8, 600 as 200 does; 400 lacks one prompt."""
    random = np.random.default_rng(4)
    for name, rate in (("200", 0.3), ("400", 0.8), ("600", 0.3)):
        rows = [
            {"prompt_id": f"p{k}", "reward": float(random.random() < rate)}
            for k in range(40) for _ in range(8) if (name, k) != ("400", 0)
        ]  # fmt: skip
        write(tmp_path / f"{name}.jsonl", rows)
    return tmp_path


SEVERAL = "inspect 600.jsonl --against step200=200.jsonl --against step400=400.jsonl"


def test_several_runs_are_compared_with_the_first(place: Path) -> None:
    done = adv(f"{SEVERAL} --pass-at 1,8 --json", cwd=place)
    found = json.loads(done.out)
    assert [one["name"] for one in found["runs"]] == ["step200", "step400", "600.jsonl"]
    assert [one["name"] for one in found["differences"]] == ["step400", "600.jsonl"]
    frames = {
        name: pl.read_ndjson(place / f"{name}.jsonl").group_by("prompt_id").agg(pl.col("reward").mean())
        for name in ("200", "400", "600")
    }
    for one, name in zip(found["runs"], frames, strict=True):
        assert one["solve_rate"]["mean"] == pytest.approx(frames[name]["reward"].mean())
        assert one["passes"][0]["pass_at"] == pytest.approx(one["solve_rate"])
    both = frames["200"].join(frames["400"], on="prompt_id")
    first = found["differences"][0]
    assert first["prompts"] == 39
    assert first["only_here"] == 0
    assert first["only_base"] == 1
    assert first["change"]["mean"] == pytest.approx((both["reward_right"] - both["reward"]).mean())
    assert first["p"] <= first["p_holm"] <= 0.001
    text = " ".join(adv(SEVERAL, cwd=place).out.split())
    assert f"step400 solves more of these prompts than step200: {100 * first['change']['mean']:+.1f} points" in text
    assert "600.jsonl shows no clear difference from step200 on 40 prompts" in text
    assert "prompts only in step400 0, only in step200 1" in text
    assert "80% power step400: to detect a change of" in text


def test_a_table_of_runs_is_csv_or_markdown(place: Path) -> None:
    lines = [*csv.DictReader(io.StringIO(adv(f"{SEVERAL} --format csv", cwd=place).out))]
    assert [line["run"] for line in lines] == ["step200", "step400", "600.jsonl"]
    assert lines[0]["change"] == ""
    assert float(lines[1]["change"]) > 0.3
    assert adv(f"{SEVERAL} --format md", cwd=place).out.startswith("| run | prompts | rollouts | solve_rate |")


@pytest.mark.parametrize(
    ("condition", "status"),
    [("change_high < 0", 0), ("change_high < 0.5", 3), ("pass@8 < 0", 0), ("pass_all_8 <= 1", 3), ("p_holm < 0.01", 0)],
)
def test_a_gate_asks_for_the_difference_of_the_newest_run(condition: str, status: int, place: Path) -> None:
    assert adv(f"{SEVERAL} --pass-at 8 --fail-on '{condition}'", cwd=place).status == status


def test_one_earlier_run_can_be_a_gate_too(place: Path) -> None:
    done = adv("inspect 200.jsonl --against 400.jsonl --fail-on 'change_high < 0'", cwd=place)
    assert done.status == 3
    assert "change_high is -0." in done.err


def test_a_path_that_exists_as_it_is_written_has_no_name(place: Path) -> None:
    (place / "lr=1").mkdir()
    (place / "200.jsonl").rename(place / "lr=1" / "a.jsonl")
    found = json.loads(adv("inspect 600.jsonl --against lr=1 --against 400.jsonl --json", cwd=place).out)
    assert [one["name"] for one in found["runs"]] == ["lr=1", "400.jsonl", "600.jsonl"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--against a=200.jsonl --against a=400.jsonl", "two runs are called a; give them names: --against NAME=400.jsonl"),
        ("--against 600.jsonl --pass-at 1", "two runs are called 600.jsonl; give them names: --against NAME=600.jsonl"),
        ("--against =200.jsonl", "--against '=200.jsonl' needs a name and an input; write --against step200=ckpt200/"),
        ("--against a=nothing.jsonl --against 400.jsonl", "nothing.jsonl"),
        ("--pass-at 4", "--pass-at is for the comparison of runs; add --against INPUT"),
        ("--against 200.jsonl --pass-at 4,0", "--pass-at takes integers from 1"),
        ("--against 200.jsonl --fail-on 'chnge > 0'", "no quantity named 'chnge'; did you mean 'change'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_says_why(words: str, message: str, place: Path) -> None:
    done = adv(f"inspect 600.jsonl {words}", cwd=place)
    assert done.status in (1, 2) and message in done.err, done.err


def test_python_compares_frames(place: Path) -> None:
    frames = {name: pl.read_ndjson(place / f"{name}.jsonl") for name in ("200", "400", "600")}
    look = grpo_cli.inspect(frames["600"], against={"a": frames["200"], "b": place / "400.jsonl"}, pass_at="1,8")  # noqa: S106 - no password
    line = "inspect 600.jsonl --against a=200.jsonl --against b=400.jsonl --pass-at 1,8 --json"
    printed = json.loads(adv(line, cwd=place).out)
    assert [one["name"] for one in look.runs["runs"]] == ["a", "b", "now"]
    for one, other in zip(look.runs["differences"], printed["differences"], strict=True):
        assert {**one, "name": ""} == {**other, "name": ""}
    with pytest.raises(UsageError, match="pass_at is for the comparison of runs"):
        grpo_cli.inspect(frames["600"], pass_at="1")  # noqa: S106 - no password
    with pytest.raises(UsageError, match="'now' is the frame"):
        grpo_cli.inspect(frames["600"], against={"now": frames["200"]})
    with pytest.raises(UsageError, match="nothing to compare with"):
        _ = grpo_cli.inspect(frames["600"]).runs


def test_runs_with_equal_rewards_are_refused(tmp_path: Path) -> None:
    made = [grpo_cli.inspect(run(tmp_path, f"{name}.jsonl", {"a": [7, 7]})).inspection for name in "ab"]
    with pytest.raises(DataError, match="all rewards of the runs are equal"):
        compared(dict(zip("ab", made, strict=True)))
