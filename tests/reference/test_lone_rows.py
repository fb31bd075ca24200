"""The only row of a group, by methods with a formula of their own for it (`--singleton unit`), worked out by hand."""

from __future__ import annotations

import math

import pytest

from grpo_cli.options.given import Given
from grpo_cli.options.resolve import plan_of
from tests.support.jobs import of_plan


@pytest.mark.parametrize("reward", [-0.5, 0.0, 0.25, 1.0])
@pytest.mark.parametrize("beta", [-1.0, 0.5, 2.0])
def test_risk_sensitive_compares_a_lone_reward_with_a_reward_of_zero(beta: float, reward: float) -> None:
    plan = plan_of(Given(method="risk-sensitive", singleton="unit", param=[f"beta={beta}"]))
    alone, *_ = of_plan(plan, [reward], [1.0, 0.0])
    assert alone == pytest.approx((math.exp(beta * reward) - math.exp(0.0)) / beta)


def test_risk_sensitive_that_is_indifferent_gives_a_lone_reward_itself() -> None:
    plan = plan_of(Given(method="risk-sensitive", singleton="unit", param=["beta=0"]))
    assert of_plan(plan, [0.25], [1.0, 0.0]) == [0.25, 0.5, -0.5]
