"""`inspect --against` with several runs: rates, differences and p values beside plain Python, enumeration and simulation."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.errors import UsageError
from grpo_cli.stats.intervals import OF_CHANGE, OF_RATE, Rewards, estimate, holm, in_a_sentence, p_value
from grpo_cli.stats.runs import compared
from tests.support.command import adv, facts_of, ran
from tests.support.drawn import is_nightly

T = {5: 2.571, 9: 2.262, 29: 2.045}  # Student's t by degrees of freedom, from a printed table


# --- numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("freedom", T)
@pytest.mark.parametrize("imagined", [OF_RATE, OF_CHANGE])
def test_an_interval_is_students_with_imagined_prompts(imagined: Any, freedom: int) -> None:
    values = np.random.default_rng(freedom).random(freedom + 1 - len(imagined)).round(2)
    found = estimate(values, imagined)
    whole = [*values, *imagined]
    middle = fmean(whole)
    half = T[freedom] * stdev(whole) / len(whole) ** 0.5
    assert found.mean == pytest.approx(fmean(values))
    assert found.low == pytest.approx(max(middle - half, min(imagined)), abs=1e-3)
    assert found.high == pytest.approx(min(middle + half, 1.0), abs=1e-3)


@pytest.mark.parametrize(("up", "down", "p"), [(0, 0, 1), (1, 0, 1), (5, 1, 7 / 32), (10, 3, 378 / 4096)])
def test_one_rollout_a_prompt_is_mcnemars_test_the_binomial_of_changed_prompts(up: int, down: int, p: float) -> None:
    now = np.array([1.0] * up + [0.0] * down + [1.0])
    before = np.array([0.0] * up + [1.0] * down + [1.0])
    prompts = np.arange(len(now))
    found = p_value(Rewards.of(prompts, now, len(now)), Rewards.of(prompts, before, len(now)))
    assert found == pytest.approx(p)


@pytest.mark.parametrize(
    ("now", "before", "share"), [([1, 1, 0, 1], [0, 0], 4 / 9), ([1, 0.5, 0, 1], [0.25, 0.125], 1 / 3)]
)
def test_a_p_value_is_the_share_of_all_deals_that_change_as_much(
    now: list[float], before: list[float], share: float
) -> None:
    """Two prompts: two rollouts now and one before of each. Each of three rewards may be the one before: 9 deals.

    With 1 1 0 and 0 1 0 the changes are -0.5 -0.5 1 and 0.5 -1 0.5: 4 of 9 sums are as far from 0 as the one seen, 1.5.
    With 1 0.5 0.25 and 0 1 0.125 they are -0.625 0.125 0.5 and 0.5625 -0.9375 0.375: 3 of 9, and 0.875 was seen.
    """
    of_now = Rewards.of(np.array([0, 0, 1, 1]), np.array(now, dtype=float), 2)
    of_before = Rewards.of(np.array([0, 1]), np.array(before, dtype=float), 2)
    assert p_value(of_now, of_before) == pytest.approx(share, abs=0.03)


def test_holm_allows_for_the_number_of_runs() -> None:
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": None})
    assert found == {"a": pytest.approx(0.03), "b": pytest.approx(0.06), "c": pytest.approx(0.06), "d": None}


# Rows of each prompt that are solved, of 8 in both runs: before, now, and what is said.
VERDICTS = """\
0 -> 8 | solves this prompt more often than base: +100.0 points (p < 0.001), and 1 prompt says nothing about other prompts.
8 -> 0 | solves this prompt less often than base: -100.0 points (p < 0.001), and 1 prompt says nothing about other prompts.
4 -> 5 | shows no clear difference from base on this prompt: +12.5 points (p = 1.00), and 1 prompt says nothing about other prompts.
0 0 -> 8 8 | solves more of these 2 prompts than base: +100.0 points (p < 0.001), and 2 prompts say nothing about other prompts.
4 4 -> 4 6 | shows no clear difference from base on these 2 prompts: +12.5 points (p = 0.72), and 2 prompts say nothing about other prompts.
0 0 0 0 -> 8 8 8 8 | solves more of these 4 prompts than base: +100.0 points (p < 0.001), which need not hold for others (95% interval -18.9 to 100.0).
8 8 8 8 -> 0 0 0 0 | solves fewer of these 4 prompts than base: -100.0 points (p < 0.001), which need not hold for others (95% interval -100.0 to 18.9).
4 4 4 4 -> 4 4 5 5 | shows no clear difference from base on 4 prompts: +6.2 points (95% interval -62.5 to 70.8, p = 0.81).
4 4 4 4 4 4 4 4 4 4 4 4 -> 8 8 8 8 8 8 8 8 8 0 0 0 | solves more of these 12 prompts than base: +25.0 points (p < 0.001), which need not hold for others (95% interval -12.0 to 54.9).
0 0 0 0 0 0 0 0 0 0 0 0 -> 8 8 8 8 8 8 8 8 8 8 8 8 | solves more of these prompts than base: +100.0 points (95% interval 54.9 to 100.0, p < 0.001).
"""


@pytest.mark.parametrize("case", VERDICTS.splitlines())
def test_a_verdict_says_what_holds_of_these_prompts_and_what_of_others(case: str) -> None:
    solved, says = case.split(" | ")
    for name, counts in zip(("base", "now"), solved.split(" -> "), strict=True):
        lines = ["prompt_id,reward"]
        lines += [f"p{at},{row < int(count):d}" for at, count in enumerate(counts.split()) for row in range(8)]
        Path(f"{name}.csv").write_text("\n".join(lines))
    verdict = facts_of("inspect now.csv --against base=base.csv")["verdict"]
    assert verdict == f"now.csv {says}"
    assert f"verdict {verdict}" in " ".join(ran("inspect now.csv --against base=base.csv").out.split())
    now, base = (pl.read_csv(f"{name}.csv") for name in ("now", "base"))
    assert grpo_cli.inspect(now, against={"base": base}).runs["verdict"] == verdict.replace("now.csv", "now")


def test_a_change_that_is_certain_for_others_and_not_for_these_may_be_one() -> None:
    """One rollout a prompt: the exact test of 16 gained and 6 lost is 0.0525, Student's interval has no 0."""
    change = np.array([1.0] * 16 + [-1.0] * 6 + [0.0] * 78)
    says = "now may solve more of these prompts than base: +10.0 points (95% interval 0.4 to 19.2, but p = 0.052)"
    assert in_a_sentence("now", "base", 100, estimate(change, OF_CHANGE), 0.0525) == says


@given(counts=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12))
def test_no_verdict_denies_its_p_value_or_its_interval(counts: list[tuple[int, int]]) -> None:
    runs = []
    for solved in zip(*counts, strict=True):
        prompts = np.repeat(np.arange(len(counts)), 6)
        values = np.concatenate([np.arange(6) < each for each in solved]).astype(float)
        runs.append(Rewards.of(prompts, values, len(counts)))
    p = p_value(*runs)
    change = estimate(runs[0].rates - runs[1].rates, OF_CHANGE)
    says = in_a_sentence("now", "base", len(counts), change, p)
    assert ("no clear difference" in says) == (p > 0.05 and "may solve" not in says)
    assert (change.low is None) == ("nothing about other prompts" in says)
    if len(counts) <= 2:
        assert change.low is None
    if change.low is not None and change.high is not None and not change.low <= 0 <= change.high:
        assert "no clear difference" not in says
        assert "need not hold" not in says


def test_pass_at_k_and_pass_all_k_are_shares_of_all_draws() -> None:
    """Of the three pairs of a, two have a solved row; of b's six all have one, and three are of two; c has none."""
    rows = pl.DataFrame({"prompt_id": [*"aaabbbbcccd"], "reward": [1, 0, 0, 1, 1, 0, 1, 0, 0, 0, 1]})
    made = grpo_cli.inspect(rows).inspection
    (found,) = compared({"base": made, "now": made}, [2]).runs[0].passes
    assert found.left_out == 1
    assert found.pass_at is not None
    assert found.pass_at.mean == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert found.pass_all is not None
    assert found.pass_all.mean == pytest.approx((0 + 3 / 6 + 0) / 3)


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


def share_that_holds(values: Any, imagined: Any, truth: float) -> float:
    holds = 0
    for one in values:
        found: Any = estimate(one, imagined)
        holds += found.low - 1e-9 <= truth <= found.high + 1e-9
    return holds / len(values)


@pytest.mark.parametrize("prompts", [5, 8, 30, 100])
@pytest.mark.parametrize("rollouts", [1, 8])
@pytest.mark.parametrize(("policy", "truth"), POLICIES.values(), ids=POLICIES)
def test_the_interval_of_a_rate_holds_the_truth(policy: Policy, truth: float, rollouts: int, prompts: int) -> None:
    random = np.random.default_rng(prompts * rollouts)
    rates: Any = random.binomial(rollouts, policy(random, (TIMES, prompts))) / rollouts
    assert share_that_holds(rates, OF_RATE, truth) >= LEAST


@pytest.mark.parametrize("prompts", [5, 8, 30, 100])
@pytest.mark.parametrize(("now", "before"), [(1, 1), (8, 8), (1, 8)])
@pytest.mark.parametrize("gain", [0.0, 0.15])
def test_the_interval_of_a_change_holds_the_truth(now: int, before: int, gain: float, prompts: int) -> None:
    for policy, mean in POLICIES.values():
        random = np.random.default_rng(prompts + now)
        p = policy(random, (TIMES, prompts))
        rates: Any = random.binomial(now, p + gain * (1 - p)) / now
        rates_before: Any = random.binomial(before, p) / before
        assert share_that_holds(rates - rates_before, OF_CHANGE, gain * (1 - mean)) >= LEAST


# --- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """40 prompts of 8 rows: 200 solves 0.3 of each, 400 solves 0.8, 600 as 200 does; 400 lacks one prompt."""
    random = np.random.default_rng(4)
    prompt = np.repeat(np.arange(40), 8)
    for name, rate in (("200", 0.3), ("400", 0.8), ("600", 0.3)):
        solved = random.random(320) < rate
        rows = pl.DataFrame({"prompt_id": prompt, "reward": solved.astype(float)})
        rows[8 if name == "400" else 0 :].write_ndjson(tmp_path / f"{name}.jsonl")
    return tmp_path


SEVERAL = "inspect 600.jsonl --against step200=200.jsonl --against step400=400.jsonl"


def test_several_runs_are_compared_with_the_first(place: Path) -> None:
    found = facts_of(f"{SEVERAL} --pass-at 1,8", cwd=place)
    assert [one["name"] for one in found["runs"]] == ["step200", "step400", "600.jsonl"]
    assert [one["name"] for one in found["differences"]] == ["step400", "600.jsonl"]
    rewards = [pl.read_ndjson(place / f"{name}.jsonl")["reward"] for name in ("200", "400", "600")]
    for one, values in zip(found["runs"], rewards, strict=True):
        assert one["solve_rate"]["mean"] == pytest.approx(values.mean())
        assert one["passes"][0]["pass_at"] == pytest.approx(one["solve_rate"])
    change: Any = (rewards[1] - rewards[0][8:]).mean()
    first = found["differences"][0]
    assert first["prompts"] == 39
    assert first["only_here"] == 0
    assert first["only_base"] == 1
    assert first["change"]["mean"] == pytest.approx(change)
    assert first["p"] <= first["p_holm"] <= 0.001
    text = " ".join(ran(SEVERAL, cwd=place).out.split())
    assert f"step400 solves more of the 39 prompts of both than step200: {100 * change:+.1f} points" in text
    assert "600.jsonl shows no clear difference from step200 on 40 prompts" in text
    assert "prompts only in step400 0, only in step200 1" in text
    assert "80% power step400: to detect a change of" in text


def test_a_table_of_runs_is_csv_or_markdown(place: Path) -> None:
    first, second, third = csv.DictReader(ran(f"{SEVERAL} --format csv", cwd=place).out.splitlines())
    assert [first["run"], second["run"], third["run"]] == ["step200", "step400", "600.jsonl"]
    assert first["change"] == ""
    assert float(second["change"]) > 0.3
    assert ran(f"{SEVERAL} --format md", cwd=place).out.startswith("| run | prompts | rollouts | solve_rate |")


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
    found = facts_of("inspect 600.jsonl --against lr=1 --against 400.jsonl", cwd=place)
    assert [one["name"] for one in found["runs"]] == ["lr=1", "400.jsonl", "600.jsonl"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--against a=200.jsonl --against a=400.jsonl", "two runs are called a; give them names: --against NAME=400.jsonl"),
        ("--against 600.jsonl --pass-at 1", "two runs are called 600.jsonl; give them names: --against NAME=600.jsonl"),
        ("--against =200.jsonl", "--against '=200.jsonl' needs a name and an input; write --against step200=ckpt200/"),
        ("--against a=nothing.jsonl --against 400.jsonl", "nothing.jsonl"),
        ("--against 200.jsonl --pass-at 4,0", "--pass-at takes integers from 1"),
        ("--against 200.jsonl --fail-on 'chnge > 0'", "no quantity named 'chnge'; did you mean 'change'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_says_why(words: str, message: str, place: Path) -> None:
    done = adv(f"inspect 600.jsonl {words}", cwd=place)
    assert done.status in {1, 2}
    assert message in done.err


def test_python_compares_frames(place: Path) -> None:
    old = pl.read_ndjson(place / "200.jsonl")
    new = pl.read_ndjson(place / "600.jsonl")
    look = grpo_cli.inspect(new, against={"a": old, "b": place / "400.jsonl"}, pass_at="1,8")  # noqa: S106 - no password
    line = "inspect 600.jsonl --against a=200.jsonl --against b=400.jsonl --pass-at 1,8"
    printed = facts_of(line, cwd=place)["differences"]
    assert [one["name"] for one in look.runs["runs"]] == ["a", "b", "now"]
    for one, other in zip(look.runs["differences"], printed, strict=True):
        assert {**one, "name": ""} == {**other, "name": ""}
    with pytest.raises(UsageError, match="'now' is the frame"):
        grpo_cli.inspect(new, against={"now": old})
    with pytest.raises(UsageError, match="nothing to compare with"):
        _ = grpo_cli.inspect(new).runs
