"""What a log leaves open is said: where an epsilon lies, what would tell formulas apart, and that a part of a batch is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import grpo_cli
from tests.unit.guests.audit.test_solve import centred, log_of

RNG = np.random.default_rng(7)
RATES = RNG.uniform(0.2, 0.8, (48, 1))
REWARDS = RNG.binomial(1, RATES, (48, 8)).astype(float)  # a line for each group


def audited(advantages: Any, rewards: Any = REWARDS, **columns: Any) -> dict[str, Any]:
    return grpo_cli.audit(log_of(rewards, advantages, **columns), group="prompt_id")


def divided(rewards: Any, epsilon: float) -> Any:
    return centred(rewards) / (rewards.std(axis=1, ddof=1, keepdims=True) + epsilon)


@pytest.mark.parametrize(
    ("stored", "words"), [(np.float64, "float64"), (np.float32, "float32"), (np.float16, "float16")]
)
def test_an_epsilon_lies_where_the_intervals_of_all_rows_meet(stored: Any, words: str) -> None:
    logged = divided(REWARDS, 1e-6).astype(stored)
    if words == "float16":
        logged = logged.astype(np.float32)
    interval = audited(logged)["match"]["epsilon"]
    assert interval["read_as"] == words
    assert interval["low"] <= 1e-6 <= interval["high"]
    # A value near 1 is read to 1e-6, 2e-5 or half of the last of 11 bits; the smallest std is 0.35.
    read_to = {"float64": 1e-6, "float32": 2e-5, "float16": 5e-4}[words]
    assert interval["high"] < read_to * 0.6 + 1e-6
    is_open = words != "float64"  # which leaves no other usual number
    assert interval["says"].startswith("epsilon 0 to ") == is_open
    assert interval["says"].endswith(f": {words} cannot say more") == is_open


def test_nothing_is_said_of_an_epsilon_that_only_one_usual_number_can_be() -> None:
    interval = audited(divided(REWARDS, 1e-4))["match"]["epsilon"]
    assert interval["low"] <= 1e-4 <= interval["high"]
    assert interval["says"] == ""
    assert audited(centred(REWARDS))["match"]["epsilon"] is None


def test_groups_of_one_row_say_nothing_of_an_epsilon() -> None:
    alone = pl.DataFrame({"prompt_id": [100], "reward": [0.7], "advantage": [0.0]})
    frame = pl.concat([log_of(REWARDS, divided(REWARDS, 1e-4)), alone])
    interval = grpo_cli.audit(frame, group="prompt_id")["match"]["epsilon"]
    assert interval["high"] == pytest.approx(1e-4, abs=2e-6)


def told_apart(facts: Any) -> dict[str, str]:
    return {tie["names"][0]: tie["told_apart_by"] for tie in facts["ties"]}


def test_what_would_tell_formulas_apart_is_found_by_computing_both() -> None:
    """Groups of eight: n/(n - 1) is 8/7 in all of them."""
    told = told_apart(audited(2 * centred(REWARDS)))
    assert told["1.75 x --method rloo"] == "one group of unequal size"
    assert "grpo" not in told


def test_what_would_tell_formulas_apart_lies_between_the_rewards_of_the_log() -> None:
    """A threshold and a factor of four do the same to rewards of -1 and 1."""
    rewards = 2 * REWARDS - 1
    told = told_apart(audited(2 * centred(rewards), rewards))
    assert told["4 x --method dr-grpo"] == "rewards between the lowest and the highest"


def test_steps_that_are_divided_by_the_std_of_more_rows_are_a_part_of_a_batch() -> None:
    steps = np.repeat([0, 1, 2], 16 * 8)
    stds = list[float]()
    for step in range(3):
        missing = np.arange(40) % (step + 2) == 0
        whole = np.r_[REWARDS[16 * step : 16 * step + 16].ravel(), missing]
        stds += [whole.std()] * 16
    logged = centred(REWARDS) / np.array(stds)[:, None]
    facts = audited(logged, step=steps)
    assert facts["headline"].startswith(
        "part of each batch is missing: in every file or step the advantages are those of "
    )
    assert [cause["cause"] for cause in facts["causes"]] == ["partial batch"]
    whole = centred(REWARDS) / 0.4713
    assert audited(whole, step=steps)["headline"] is None
