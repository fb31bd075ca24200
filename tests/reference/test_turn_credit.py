"""Credit of turns against the gradient of a policy that decides after each turn whether it goes on, by all of its groups."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod

import pytest

from tests.support.battery import Row, advantages

EARNED = (0.5, 1.0, -2.0)  # by each turn, whoever gets there
OUTCOMES = (0.0, 3.0, 1.0)  # by the number of turns
GOES_ON = (0.6, 0.3)  # the chance after the first and the second turn
ROLLOUTS = 3
LENGTHS = range(1, len(EARNED) + 1)


def chance(length: int) -> float:
    stops = 1 - GOES_ON[length - 1] if length < len(EARNED) else 1.0
    return prod(GOES_ON[: length - 1]) * stops


def push(turn: int, length: int) -> float:
    """The derivative of the log-probability of what was decided after a turn, by the logit of going on."""
    return (1 if length > turn else 0) - GOES_ON[turn - 1]


def gradient(turn: int, earned: Callable[[int], float]) -> float:
    """The derivative, by the logit, of the expected earnings of a rollout that reaches the turn."""
    total = gained = 0.0
    for length in range(turn, len(EARNED) + 1):
        total += chance(length)
        gained += chance(length) * push(turn, length) * earned(length)
    return gained / total


def estimated(turn: int, group: tuple[int, ...]) -> float:
    """What `mt-grpo` pushes the logit by, when these are the numbers of turns of the rollouts."""
    rows = []
    pushes = []
    for rollout, length in zip("xyz", group, strict=True):
        for number, earned in enumerate(EARNED[:length], 1):
            rows.append(Row("a", OUTCOMES[length - 1], rollout=rollout, state=str(number), step_reward=earned))
            pushes.append(push(turn, length) if number == turn else 0.0)
    values = advantages(rows, {"estimator.name": "mt-grpo"})
    return sum((value or 0.0) * pushed for value, pushed in zip(values, pushes, strict=True))


@pytest.mark.parametrize("turn", [1, 2])
def test_the_mean_of_what_mt_grpo_pushes_is_the_gradient(turn: int) -> None:
    pushed = of_turn = of_outcome = 0.0
    for group in product(LENGTHS, repeat=ROLLOUTS):
        weight = prod(map(chance, group))
        pushed += weight * estimated(turn, group)
        reached = sum(length >= turn for length in group)
        of_turn += weight * max(reached - 1, 0)  # a row is a part of its own mean, and the outcome one of that of all
        of_outcome += weight * reached * (ROLLOUTS - 1) / ROLLOUTS
    still = gradient(turn, lambda length: sum(EARNED[turn - 1 : length]))
    assert still != pytest.approx(0.0, abs=0.01)
    outcome = gradient(turn, lambda length: OUTCOMES[length - 1])
    assert pushed == pytest.approx(of_turn * still + of_outcome * outcome)
