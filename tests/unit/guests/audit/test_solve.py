"""What is solved from a log: the divisor of each row lies in an interval, and a constant is where the intervals meet."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest

import grpo_cli
from grpo_cli.guests.audit.constants import shortest
from grpo_cli.guests.audit.trial import Intervals, Log
from tests.support.drawn import some

SIZE = 8


def drawn(groups: int, seed: int, kinds: int = 2) -> Any:
    """Rewards with a line for each group: 0 and 1, or more kinds between them."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.1, 0.9, (groups, 1))
    return rng.binomial(kinds - 1, rates, (groups, SIZE)) / (kinds - 1)


def centred(rewards: Any) -> Any:
    return rewards - rewards.mean(axis=1, keepdims=True)


def bfloat16(values: Any) -> Any:
    bits = values.astype(np.float32).view(np.uint32)
    half = 0x7FFF + ((bits >> 16) & 1)
    return ((bits + half) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def log_of(rewards: Any, logged: Any, **columns: Any) -> pl.DataFrame:
    keys = np.repeat(np.arange(len(rewards)), SIZE)
    return pl.DataFrame({"prompt_id": keys, "reward": rewards.ravel(), "advantage": logged.ravel(), **columns})


def match(rewards: Any, logged: Any, **columns: Any) -> Any:
    return grpo_cli.audit(log_of(rewards, logged, **columns), group="prompt_id")["match"]


def test_a_row_gives_an_interval_for_its_divisor() -> None:
    low = np.array([0.9, -2.1, -0.1, 0.4, np.nan])
    high = np.array([1.1, -1.9, 0.1, 0.6, np.nan])
    log = Intervals(low, high)
    divisors = log.divisors(np.array([1.0, -4.0, 0.0, 0.0, np.nan]))
    # 1 / 1.1 to 1 / 0.9; 4 / 2.1 to 4 / 1.9; any that divides 0; none that makes 0.5 of 0; any without an advantage.
    assert divisors.low == pytest.approx([1 / 1.1, 4 / 2.1, 0.0, np.inf, 0.0])
    assert divisors.high == pytest.approx([1 / 0.9, 4 / 1.9, np.inf, 0.0, np.inf])


def test_a_constant_has_few_digits_for_its_interval() -> None:
    assert shortest(1.999999, 2.000001, 3) == 2.0
    assert shortest(1.749995, 1.750005, 3) == 1.75
    assert shortest(1.9, 2.1, 3) is None
    assert shortest(1.2344999, 1.2345001, 3) is None
    assert shortest(0.0, 1.0, 3) is None


@pytest.mark.parametrize("constant", some([0.4713, 0.4702, 0.50431, 0.38122, 0.61017, 0.4966], 6))
def test_what_is_left_beside_a_std_is_no_epsilon_unless_it_is_a_usual_one(constant: float) -> None:
    rewards = drawn(30, 1)
    for rounded in (np.float32, np.float16):
        logged = (centred(rewards) / constant).astype(rounded).astype(np.float32)
        assert match(rewards, logged)["verdict"] not in {"match", "noise"}


@pytest.mark.parametrize("seed", some(range(6), 6))
def test_eighths_are_exact_and_not_rounded_to_16_bits(seed: int) -> None:
    rewards = drawn(30, seed, kinds=5)
    logged = np.random.default_rng(seed).integers(-8, 9, rewards.shape) / 8
    found = match(rewards, logged)
    assert found["verdict"] == "none"
    assert found["tolerance"] == 2e-5


def beyond_two_values(third: float) -> float:
    table = pl.DataFrame({"group": [0, 0, 1, 0, 1], "reward.0": [0.0, 1.0, 0.0, 1.0, 1.0]})
    return Log.of(table, np.array([0.0, 1.0, 7.0, third, 8.0])).beyond_two_values


def test_values_that_rounding_may_have_told_apart_are_one() -> None:
    assert beyond_two_values(0.5) == 0.2
    assert beyond_two_values(1 + 2e-5) == 0
    assert beyond_two_values(np.nan) == 0


def float16(values: Any) -> Any:
    return values.astype(np.float16).astype(np.float32)


AXES = {"group": 1, "batch": None}


@pytest.mark.parametrize(("level", "ddof", "rounded"), some(product(AXES, [0, 1], [float16, bfloat16]), 3))
def test_zeros_and_ones_are_enough_to_name_a_log_of_16_bits(level: str, ddof: int, rounded: Any) -> None:
    rewards = drawn(9, 3)
    std = rewards.std(axis=AXES[level], ddof=ddof, keepdims=True)
    found = match(rewards, rounded(centred(rewards) / (std + 1e-6)))
    assert found["verdict"] == "match"
    assert found["factor"] == 1
    assert found["plan"]["divisor"]["level"] == level
    assert found["plan"]["divisor"]["ddof"] == ddof
    assert found["plan"]["divisor"]["of"] == "reward"


def test_the_std_of_a_large_batch_is_named_beside_lengths_that_other_methods_read() -> None:
    """REINFORCE++ with a baseline begins as GRPO does, and has no scale of the batch."""
    rewards = drawn(520, 5, kinds=1000)
    logged = bfloat16(centred(rewards) / (rewards.std(ddof=1) + 1e-4))
    found = match(rewards, logged, length=np.random.default_rng(6).integers(20, 900, rewards.size))
    assert found["verdict"] == "match"
    assert found["plan"]["divisor"]["level"] == "batch"


@pytest.mark.parametrize(("groups", "kinds"), [(520, 2), (520, 1_000)])
def test_facts_of_a_large_log_are_those_of_all_its_rows(groups: int, kinds: int) -> None:
    """Of zeros and ones, a group of each kind is computed; of many rewards, formulas are solved on some groups only."""
    rewards = drawn(groups, 4, kinds)
    given = centred(rewards) / (rewards.std(axis=1, ddof=1, keepdims=True) + 1e-4)
    found = match(rewards, given)
    assert found["verdict"] == "match"
    assert found["name"] == "trl-grpo"
    assert found["mismatched_rows"] == 0
    wrong = given.copy()
    wrong[[5, 6, 7, groups - 1]] += 0.01
    found = match(rewards, wrong)
    assert found["mismatched_rows"] == 4 * SIZE
    assert found["mismatched_groups"] == 4


def test_a_large_log_of_a_method_that_reads_the_order_of_rows_is_measured_on_all_of_them() -> None:
    """A running mean of the rewards of its group before it: groups of the same rewards have other advantages."""
    rewards = drawn(600, 8)
    frame = log_of(rewards, rewards).drop("advantage")
    options: Any = {"method": "kalman", "group": "prompt_id"}
    frame = frame.with_columns(advantage=grpo_cli.advantages(frame, **options))
    facts = grpo_cli.audit(frame, **options)
    assert facts["claim"]["mismatched_rows"] == 0
    assert facts["match"]["mismatched_rows"] == 0
    turned = np.r_[0 : 400 * SIZE, 401 * SIZE - 1 : 400 * SIZE - 1 : -1, 401 * SIZE : len(frame)]
    logged = frame[turned]
    right = grpo_cli.advantages(logged.drop("advantage"), **options)
    off = (right - logged["advantage"]).abs() > 1e-6
    assert off.any()
    assert grpo_cli.audit(logged, **options)["claim"]["mismatched_rows"] == off.sum()
