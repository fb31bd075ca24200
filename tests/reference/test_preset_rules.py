"""What presets do with rows and groups that are not like the others, where no golden table has them, worked out in plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, pstdev, stdev

import pytest

from grpo_cli.engine.plan import Plan
from grpo_cli.engine.presets import preset
from grpo_cli.render import plan_text
from grpo_cli.render.presets import as_dict
from tests.support.jobs import of_plan

NAN = math.nan


def computed(name: str, *groups: Sequence[float | None]) -> list[float | None]:
    return of_plan(preset(name).plan, *groups)


def standardised(values: Sequence[float], epsilon: float) -> list[float]:
    """Centred, in units of the sample std plus epsilon."""
    centre = mean(values)
    spread = stdev(values) + epsilon
    return [(value - centre) / spread for value in values]


def test_a_missing_reward_enters_the_whitening_of_swift_gdpo_as_zero() -> None:
    got = computed("swift-gdpo", [0.0, 1.0, None, 5.0], [2.0, 2.5, 4.0])
    parts = standardised([0.0, 1.0, 5.0], 1e-8)
    parts.insert(2, 0.0)
    parts += standardised([2.0, 2.5, 4.0], 1e-8)
    assert got == pytest.approx(standardised(parts, 1e-8))


def test_a_missing_reward_stays_out_of_the_whitening_of_trl_gdpo_and_gets_zero() -> None:
    got = computed("trl-gdpo", [0.0, 1.0, None, 5.0], [2.0, 2.5, 4.0])
    assert got.pop(2) == 0.0
    parts = standardised([0.0, 1.0, 5.0], 1e-4) + standardised([2.0, 2.5, 4.0], 1e-4)
    assert got == pytest.approx(standardised(parts, 1e-4))


def test_a_singleton_stays_out_of_the_whitening_of_trl_rloo_and_gets_zero() -> None:
    got = computed("trl-rloo-normalized", [0.0, 1.0, 5.0], [7.0], [None, 3.0])
    assert got[:3] == pytest.approx(standardised([-3.0, -1.5, 4.5], 1e-4))
    assert got[3:] == [0.0, 0.0, 0.0]


# Of the others the golden tables have groups of one.
@pytest.mark.parametrize(
    ("name", "wanted"), [("openrlhf-rloo", NAN), ("openrlhf-group-norm", NAN), ("openrlhf-dr-grpo", 0.0)]
)
def test_a_group_of_one_gets_what_its_framework_gives(name: str, wanted: float) -> None:
    assert computed(name, [3.0], [0.0, 1.0, 1.0])[0] == pytest.approx(wanted, nan_ok=True)


def test_a_preset_that_divides_by_the_std_of_the_residual_can_be_left_undivided_and_divided_again() -> None:
    known = preset("swift-reinforce-plus-plus")
    back = {"divisor.level": "batch", "divisor.of": "residual"}
    assert Plan.of(*known.layers, {"divisor.level": "none"}, back).divisor == known.plan.divisor


def test_openrlhf_clips_what_is_left_after_the_baseline_and_not_the_reward() -> None:
    rewards = [100.0, -50.0, 20.0, 30.0]
    assert computed("openrlhf-rloo", rewards) == pytest.approx([10, -10, -20 / 3, 20 / 3])
    spread = pstdev([10, -10, 10, 10])
    above = 5 / spread
    below = -15 / spread
    assert computed("openrlhf-reinforce", rewards) == pytest.approx([above, below, above, above])


@pytest.mark.parametrize(
    ("name", "said", "spoiled"),
    [
        ("trl-grpo", "rows without a reward are left out and get advantage 0", []),
        ("swift-grpo", "rows without a reward count as reward 0", []),
        ("swift-gdpo", "rows without a reward are left out of their group and count as 0 in whitening", []),
        ("tunix-grpo", "a row without a reward makes its group NaN", [0, 1, 2, 3]),
        ("trinity-remax", "a row without a reward is NaN", [2]),
        ("openrlhf-reinforce", "a row without a reward makes its batch NaN", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_what_is_said_of_missing_rewards_is_what_happens(name: str, said: str, spoiled: list[int]) -> None:
    assert plan_text.missing(preset(name).plan) == [said]
    got = computed(name, [0, 1, None, 5], [2, 4])
    assert [at for at, value in enumerate(got) if str(value) == "nan"] == spoiled


@pytest.mark.parametrize(
    ("name", "rule", "wanted"),
    [  # the page of presets has what is said of singletons
        ("trl-sdpo-none", "divides", "the constant 1.0001"),
        ("trl-rloo", "divides", "none"),
        ("trinity-grpo", "no reward", "stop the run (--missing changes that)"),
    ],
)
def test_a_rule_of_a_preset_is_said_in_a_few_words(name: str, rule: str, wanted: str) -> None:
    assert as_dict(name)["rules"][rule] == [wanted]
