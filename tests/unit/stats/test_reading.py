"""Estimates against the truth: policies with known solve rates, group sizes and seeds.

What is shown, what it claims, and the test of the claim:

    inspect, report   mean reward, solve rate (mean, never, always)     unbiased, chance               test_facts_are_unbiased
                      useful, alive, zero variance (share and split)    chance                         test_facts_are_unbiased
                      solve rate histogram                              level where difficulty is      test_inspection.py
                      other sizes, not larger than the groups           unbiased                       test_other_sizes_are_what_they_would_be
                      other sizes, larger                               within 3 points                test_other_sizes_are_what_they_would_be
                      the intervals of all sizes                        95 %, of prompts like these    test_the_interval_at_any_size_holds_the_truth
                      other sizes, several rewards ("at least")         a lower bound                  test_a_bound_is_no_more_than_the_truth
                      spread within groups                              that of the rows               test_inspection.py
                      length: correlation inside groups                 0 where there is none          test_difficulty_makes_no_correlation_inside_groups
                      verdict on length                                 1 % by chance                  test_chance_does_not_raise_the_verdict_on_length
    inspect --against change of the solve rate                          unbiased; 95 % intervals       test_runs.py
                      better, worse "by chance"                         chance                         test_two_samples_of_one_policy_are_no_change
                      gained, lost; the verdict                         no more than chance            test_two_samples_of_one_policy_are_no_change
                      shrunken change                                   calibrated                     test_a_shrunken_change_is_what_a_third_run_shows
    select, export    pass@K                                            the share of all draws         test_runs.py
                      solve_rate, mean of a prompt                      as in inspect                  tests/e2e/test_export.py

The rest of what these commands show are counts and extremes of the rows themselves (sizes, rows, quartiles, min and max, duplicates),
differences of two formulas on the same rows (`compare`), or sums over them (effective sample size): nothing is estimated. The standard
deviation of rewards is the usual one, whose square is unbiased.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

import grpo_cli
from grpo_cli.stats import against as changes
from grpo_cli.stats import intervals
from grpo_cli.stats.difficulty import Ties, count_ties, other_sizes
from grpo_cli.stats.document import document
from grpo_cli.stats.inspection import Inspection
from grpo_cli.stats.runs import compared
from tests.support.drawn import is_nightly

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


def said_of(now: Inspection, before: Inspection) -> dict[str, Any]:
    """What is said of two runs, and of the change from one to the other."""
    found = document(compared({"before": before, "now": now}))
    return {**found, **found["differences"][0]}


def policy(seed: int, prompts: int, a: float = 0.7, b: float = 0.9) -> Floats:
    """How often each prompt is solved."""
    return np.random.default_rng(seed).beta(a, b, prompts)


def drawn(rates: Floats, sizes: int | Any, seed: int) -> pl.DataFrame:
    """A group of each prompt."""
    random = np.random.default_rng(seed)
    prompt = np.repeat(np.arange(len(rates)), sizes)
    solved = random.random(len(prompt)) < rates[prompt]
    return pl.DataFrame({"prompt_id": prompt, "reward": solved.astype(float)})


def facts(rates: Floats, sizes: int | Any, seed: int) -> dict[str, Any]:
    return dict(grpo_cli.inspect(drawn(rates, sizes, seed)).facts)


def close(values: Any, truth: Any, deviations: float = 4.0) -> bool:
    """Whether the mean of simulated numbers lies as near to the truth as its own error lets it."""
    values = np.asarray(values, dtype=float)
    return bool(abs(values.mean() - truth) <= deviations * values.std(ddof=1) / len(values) ** 0.5 + 1e-9)


RUNS = 16
SIZES = {"8": 8, "16": 16, "4 to 12": np.random.default_rng(9).integers(4, 13, 400)}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_facts_are_unbiased(sizes: Any) -> None:
    p = policy(1, 400)
    n = np.broadcast_to(sizes, len(p))
    never = (1 - p) ** n
    always = p**n
    alive = 1 - never - always
    truth = {
        "difficulty mean": p.mean(),
        "difficulty never": never.sum(),
        "difficulty always": always.sum(),
        "difficulty alive": alive.sum(),
        "reward mean": (p * n).sum() / n.sum(),
        "zero_variance share": (never + always).mean(),
        "zero_variance all_best": always.sum(),
    }
    found = [facts(p, sizes, seed) for seed in range(RUNS)]
    for name, value in truth.items():
        part, fact = name.split()
        assert close([one[part][fact] for one in found], value), name
    assert close([one["live_rows"] for one in found], (n * alive).sum())


# The solve rates of 1,000 prompts.
RANDOM = np.random.default_rng(1000)
POLICIES = {
    "one rate": np.full(1000, 0.3),
    "hard": np.full(1000, 0.02),
    "broad": RANDOM.beta(1.0, 1.0, 1000),
    "extreme": RANDOM.beta(0.3, 0.3, 1000),
    "half impossible": np.append(np.zeros(500), RANDOM.beta(2.0, 2.0, 500)),
    "a third always solved": np.append(np.ones(300), RANDOM.beta(1.0, 3.0, 700)),
    "two kinds": np.repeat([0.03, 0.6], 500),
}


@pytest.mark.parametrize("p", POLICIES.values(), ids=POLICIES)
def test_other_sizes_are_what_they_would_be(p: Floats) -> None:
    """1,000 prompts: within 3 points on average, and in the interval 9 times of 10."""
    found = [facts(p, 8, seed)["at_size"] for seed in range(RUNS)]
    for size, *lines in zip((2, 4, 8, 16), *found, strict=True):
        truth = (1 - p**size - (1 - p) ** size).mean()
        assert {line["size"] for line in lines} == {size}
        alive = np.array([line["alive"] for line in lines])
        if size <= 8:
            assert lines[0]["found"] == "sample"
            assert close(alive, truth), size
        else:
            assert np.abs(alive - truth).mean() < 0.03
            inside = [line["low"] <= truth <= line["high"] for line in lines]
            assert sum(inside) >= 14


TIMES = 400 if is_nightly() else 40
LEAST = 0.93 - 3 * (0.05 * 0.95 / TIMES) ** 0.5  # of the intervals
Law = Callable[[np.random.Generator, int], Floats]
# How the solve rates of prompts are distributed.
LAWS: dict[str, Law] = {
    "one rate": lambda _, size: np.full(size, 0.3),
    "hard": lambda _, size: np.full(size, 0.02),
    "very hard": lambda _, size: np.full(size, 0.004),
    "never": lambda _, size: np.zeros(size),
    "broad": lambda random, size: random.beta(1, 1, size),
    "extreme": lambda random, size: random.beta(0.3, 0.3, size),
    "skewed": lambda random, size: random.beta(0.2, 2, size),
    "half impossible": lambda random, size: np.where(random.random(size) < 0.5, 0.0, random.beta(2, 2, size)),
    "nearly all impossible": lambda random, size: np.where(random.random(size) < 0.95, 0.0, random.beta(2, 2, size)),
    "a third always solved": lambda random, size: np.where(random.random(size) < 0.3, 1.0, random.beta(1, 3, size)),
    "two kinds": lambda random, size: random.choice(np.array([0.03, 0.6]), size),
}
SHAPES = [(8, 30), (4, 100), (2, 60), (16, 60), (8, 400)]  # rows of a group, and groups


@pytest.mark.parametrize(("rows", "groups"), SHAPES if is_nightly() else SHAPES[:2])
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_the_interval_at_any_size_holds_the_truth(law: Law, rows: int, groups: int) -> None:
    """Prompts and their rollouts are drawn again and again; the truth is that of all prompts of the law, of 200,000."""
    random = np.random.default_rng(rows * groups)
    every = law(random, 200_000)
    held = dict[int, list[bool]]()
    for _ in range(TIMES):
        solved = random.binomial(rows, law(random, groups))
        for at in other_sizes(_ties(rows, solved)):
            truth = float((1 - every**at.size - (1 - every) ** at.size).mean())
            assert at.low is not None
            assert at.high is not None
            held.setdefault(at.size, []).append(at.low - 1e-9 <= truth <= at.high + 1e-9)
    for size, holds in held.items():
        assert np.mean(holds) >= LEAST, size
    if every.any():  # if all rewards are equal, nothing is said of larger groups
        assert max(held) == 2 * rows


def _ties(rows: int, solved: Any) -> Ties:
    """Groups of so many rows, of which so many are solved."""
    means = solved / rows
    facts = {"code": np.arange(len(solved)), "scored": rows, "mean": means, "constant": (means == 0) | (means == 1)}
    of_groups = pl.DataFrame(facts).with_columns(min=(means == 1) * 1.0, max=(means > 0) * 1.0)
    rewards = (np.arange(rows) < solved[:, None]).astype(float).ravel()
    group = np.repeat(np.arange(len(solved), dtype=np.uint32), rows)
    return count_ties(of_groups, pl.DataFrame({"group": group, ".reward": rewards}))


def test_a_bound_is_no_more_than_the_truth() -> None:
    """Rewards of 0, 0.5 and 1: prompts that seem constant vary more often in larger groups."""
    random = np.random.default_rng(6)
    shares = random.dirichlet([0.3, 0.3, 0.3], 1000)
    prompt = np.repeat(np.arange(1000), 4)
    draws = random.random((len(prompt), 1))
    level = (draws > shares.cumsum(axis=1)[prompt]).sum(axis=1)
    found = grpo_cli.inspect(pl.DataFrame({"prompt_id": prompt, "reward": level / 2})).facts["at_size"]
    for at in found:
        truth = 1 - (shares ** at["size"]).sum(axis=1).mean()
        if at["found"] == "sample":
            assert at["alive"] == pytest.approx(truth, abs=0.04)
        else:
            assert at["alive"] <= truth + 0.02


def test_difficulty_makes_no_correlation_inside_groups() -> None:
    """Hard prompts have long responses, and no response is worse for its length."""
    p = policy(8, 400)
    seen = []
    for seed in range(RUNS):
        rows = drawn(p, 8, seed)
        noise = np.random.default_rng(seed).normal(size=len(rows))
        length = 600 - 500 * p.repeat(8) + 30 * noise
        found = grpo_cli.inspect(rows.with_columns(length=length)).facts["length"]
        assert found["correlation"] < -0.3
        seen.append(found["within_groups"])
    assert close(seen, 0.0)


@pytest.mark.parametrize("taught", [False, True])
def test_chance_does_not_raise_the_verdict_on_length(*, taught: bool) -> None:
    """Many files of a few groups have a correlation of 0.3 by chance."""
    said = 0
    large = 0
    for seed in range(60):
        rows = drawn(np.full(8, 0.5), 4, seed)
        noise = np.random.default_rng(seed + 500).normal(size=len(rows))
        length = 100 + 10 * (noise + 3 * taught * rows["reward"].to_numpy())
        look = grpo_cli.inspect(rows.with_columns(length=length))
        large += abs(look.facts["length"]["within_groups"] or 0) >= 0.3
        said += any("is length being rewarded" in line for line in look.verdicts)
    if taught:
        assert said >= 57
    else:
        assert large >= 6
        assert said <= 2


# --- two runs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("now", "before", "graded"), [(8, 8, False), (4, 12, True)], ids=["solved or not", "graded"])
def test_two_samples_of_one_policy_are_no_change(
    now: int, before: int, *, graded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the verdict, in each count, in the change and in the prompts that are listed."""
    monkeypatch.setattr(changes, "DEALS", (60, 60))
    monkeypatch.setattr(intervals, "DEALS", 999)
    monkeypatch.setattr(intervals, "AT_ONCE", 999 * 60)
    times = 60 if is_nightly() else 30
    seen = list[dict[str, Any]]()
    listed = 0
    for seed in range(times):
        p = policy(100 + seed, 60, 0.5, 0.5)
        random = np.random.default_rng(seed)
        runs = []
        for k, size in ((1, now), (2, before)):
            rows = drawn(p, size, 1000 * k + seed)
            if graded:
                rows = rows.with_columns(pl.col("reward") * 0.75 + pl.Series(random.integers(0, 3, len(rows)) / 8))
            runs.append(grpo_cli.inspect(rows).inspection)
        found = said_of(*runs)
        seen.append(found)
        listed += bool(found["gained"] or found["lost"])
    unclear = ["shows no clear difference" in one["verdict"] for one in seen]
    assert sum(unclear) >= 0.85 * times  # of 60 with 5 % each: 57 +- 5
    assert listed <= 0.05 * times
    for name in ("better", "worse"):
        beyond = [one[name] - one[f"{name}_by_chance"] for one in seen]
        assert close(beyond, 0.0), name
    changes_seen = [one["change"] for one in seen]
    assert close([one["mean"] for one in changes_seen], 0.0)
    inside = [one["low"] <= 0 <= one["high"] for one in changes_seen]
    assert np.mean(inside) >= 0.88  # 60 of them: 95 % +- 7


def test_a_shrunken_change_is_what_a_third_run_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the listed prompts, a third run shows the shrunken change on average."""
    monkeypatch.setattr(changes, "DEALS", (40, 40))
    promised = []
    came = []
    for seed in range(8):
        random = np.random.default_rng(seed)
        p = random.beta(1, 1, 200)
        q = np.clip(p + random.normal(0, 0.25, 200), 0, 1)
        now = grpo_cli.inspect(drawn(q, 12, seed)).inspection
        before = grpo_cli.inspect(drawn(p, 12, 50 + seed)).inspection
        found = said_of(now, before)
        listed = found["gained"] + found["lost"]
        assert listed
        for one in listed:
            promised.append(one["shrunken"])
            came.append((q - p)[int(one["key"])])
    slope = np.dot(promised, came) / np.dot(promised, promised)
    assert 0.8 <= slope <= 1.2
