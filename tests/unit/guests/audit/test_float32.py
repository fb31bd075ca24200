"""Float32 noise of groups with equal rewards: none if their sum is exact, otherwise some last bits divided by epsilon."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from grpo_cli.engine.plan_parts import Divisor
from grpo_cli.guests.audit.float32 import constant_groups, noise_of

TINY = Divisor(level="group", ddof=1, epsilon=1e-8)


@pytest.mark.parametrize("value", [0.0, 1.0, -0.5, 0.75, 10.0, 4096.0, float("nan"), float("inf")])
def test_a_sum_that_float32_holds_leaves_nothing(value: float) -> None:
    assert noise_of(value, 8, TINY).tolist() == [0.0]


@pytest.mark.parametrize(
    ("value", "size", "logged"),
    # The last bit of 0.7 over epsilon alone, and that of 0.1 over its own std and epsilon.
    [(0.7, 8, 5.96046448), (0.1, 8, -0.74505806), (0.1, 8, -0.41473)],
)
def test_what_trainers_logged_is_among_the_noise(value: float, size: int, logged: float) -> None:
    assert np.abs(noise_of(value, size, TINY) - logged).min() < 1e-5


def test_a_group_with_a_missing_reward_is_not_constant() -> None:
    table = pl.DataFrame({"group": [0, 0, 1, 1], "reward.0": [0.7, None, 0.1, 0.1]})
    assert np.array_equal(constant_groups(table)[0], [np.nan, 0.1], equal_nan=True)


def test_noise_is_of_the_value_and_not_of_any_size() -> None:
    assert np.abs(noise_of(0.7, 8, TINY) - 3.0).min() > 0.1
    assert np.abs(noise_of(0.7, 8, TINY)).max() < 4.01 * 5.97
