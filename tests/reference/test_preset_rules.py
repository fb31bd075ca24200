"""What presets do with rows and groups that are not like the others, worked out in plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, pstdev, stdev

import pytest

from grpo_cli.engine.plan import Plan
from grpo_cli.engine.presets import preset
from grpo_cli.engine.score import score
from grpo_cli.options.resolve import plan_of
from grpo_cli.render import plan_text
from grpo_cli.render.presets import as_dict
from grpo_cli.testing import Row, narrow

NAN = math.nan


def computed(plan: Plan, groups: dict[str, Sequence[float | None]]) -> dict[str, list[float | None]]:
    """The advantages of groups of rewards, group by group; all responses have two tokens."""
    rows = [
        Row(group=name, reward=0.0, rewards=(reward,), length=2)
        for name, rewards in groups.items() for reward in rewards
    ]  # fmt: skip
    frame = narrow(rows).drop({"rollout", "role"} - {*plan.needs})
    values = score(plan, frame).frame[".advantage"].to_list()
    return {name: [values.pop(0) for _ in rewards] for name, rewards in groups.items()}


def standardised(values: Sequence[float], epsilon: float) -> list[float]:
    """Centred, in units of the sample std plus epsilon."""
    return [(value - mean(values)) / (stdev(values) + epsilon) for value in values]


def test_a_missing_reward_enters_the_whitening_of_swift_gdpo_as_zero() -> None:
    got = computed(preset("swift-gdpo").plan, {"a": [0.0, 1.0, None, 5.0], "b": [2.0, 2.5, 4.0]})
    a, b = standardised([0.0, 1.0, 5.0], 1e-8), standardised([2.0, 2.5, 4.0], 1e-8)
    wanted = standardised([a[0], a[1], 0.0, a[2], *b], 1e-8)
    assert [*got["a"], *got["b"]] == pytest.approx(wanted)


def test_a_missing_reward_stays_out_of_the_whitening_of_trl_gdpo_and_gets_zero() -> None:
    got = computed(preset("trl-gdpo").plan, {"a": [0.0, 1.0, None, 5.0], "b": [2.0, 2.5, 4.0]})
    wanted = standardised([*standardised([0.0, 1.0, 5.0], 1e-4), *standardised([2.0, 2.5, 4.0], 1e-4)], 1e-4)
    wanted.insert(2, 0.0)
    assert [*got["a"], *got["b"]] == pytest.approx(wanted)


def test_a_singleton_stays_out_of_the_whitening_of_trl_rloo_and_gets_zero() -> None:
    got = computed(preset("trl-rloo-normalized").plan, {"a": [0.0, 1.0, 5.0], "b": [7.0], "c": [None, 3.0]})
    assert got["a"] == pytest.approx(standardised([0.0 - 3.0, 1.0 - 2.5, 5.0 - 0.5], 1e-4))
    assert got["b"] == [0.0]
    assert got["c"] == [0.0, 0.0]


# Of the others the golden tables have groups of one.
@pytest.mark.parametrize(
    ("name", "wanted"), [("openrlhf-rloo", NAN), ("openrlhf-group-norm", NAN), ("openrlhf-dr-grpo", 0.0)]
)
def test_a_group_of_one_gets_what_its_framework_gives(name: str, wanted: float) -> None:
    got = computed(preset(name).plan, {"a": [3.0], "b": [0.0, 1.0, 1.0]})["a"]
    assert got == pytest.approx([wanted], nan_ok=True)


def test_trinity_divides_a_single_reward_by_the_std_of_the_batch() -> None:
    rewards = [3.0, 0.0, 1.0, 1.0]
    got = computed(plan_of({"preset": "trinity-grpo", "scale": "batch"}), {"a": rewards[:1], "b": rewards[1:]})
    assert got["a"] == pytest.approx([3.0 / (stdev(rewards) + 1e-6)])
    assert got["b"] == pytest.approx([(r - mean(rewards[1:])) / (stdev(rewards) + 1e-6) for r in rewards[1:]])


def test_a_preset_that_divides_by_the_std_of_the_residual_can_be_left_undivided() -> None:
    plan = plan_of({"preset": "swift-reinforce-plus-plus", "scale": "none"})
    assert (plan.divisor.level, plan.divisor.of) == ("none", "reward")
    assert computed(plan, {"a": [0.0, 1.0, 5.0]})["a"] == pytest.approx([-2.0, -1.0, 3.0])


def test_the_std_of_the_residual_comes_back_with_a_scale() -> None:
    layers = preset("swift-reinforce-plus-plus").layers
    again = Plan.of(*layers, {"divisor.level": "none"}, {"divisor.level": "batch", "divisor.of": "residual"})
    assert again.divisor == preset("swift-reinforce-plus-plus").plan.divisor


def test_openrlhf_clips_what_is_left_after_the_baseline_and_not_the_reward() -> None:
    rewards = [100.0, -50.0, 20.0, 30.0]
    assert computed(preset("openrlhf-rloo").plan, {"a": rewards})["a"] == pytest.approx([10, -10, -20 / 3, 20 / 3])
    clipped = [10.0, -10.0, 10.0, 10.0]
    wanted = [(r - mean(clipped)) / pstdev(clipped) for r in clipped]
    assert computed(preset("openrlhf-reinforce").plan, {"a": rewards})["a"] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("trl-grpo", "rows without a finite reward are left out and get advantage 0"),
        ("swift-grpo", "rows without a finite reward count as reward 0"),
        ("swift-gdpo", "rows without a finite reward are left out of their group and count as 0 in whitening"),
        ("tunix-grpo", "a row without a finite reward makes its group NaN"),
        ("trinity-remax", "a row without a finite reward is NaN"),
        ("openrlhf-reinforce", "a row without a finite reward makes its batch NaN"),
    ],
)
def test_what_is_said_of_missing_rewards_is_what_happens(name: str, wanted: str) -> None:
    plan = preset(name).plan
    assert plan_text.missing(plan) == [wanted]
    got = computed(plan, {"a": [0, 1, None, 5], "b": [2, 4]})
    spoiled = [at for at, value in enumerate([*got["a"], *got["b"]]) if value is not None and math.isnan(value)]
    reach = {"is NaN": [2], "makes its group NaN": [0, 1, 2, 3], "makes its batch NaN": [0, 1, 2, 3, 4, 5]}
    assert spoiled == next((rows for said, rows in reach.items() if wanted.endswith(said)), [])


@pytest.mark.parametrize(
    ("name", "rule", "wanted"),
    [
        ("trl-grpo", "singletons", ["0"]),
        ("trl-gdpo", "singletons", ["0 before whitening"]),
        ("oat-grpo", "singletons", ["NaN"]),
        ("twinkle-grpo", "singletons", ["keep r"]),
        ("openrlhf-reinforce", "singletons", ["like any other row"]),
        ("trl-sdpo-none", "divides", ["the constant 1.0001"]),
        ("trl-rloo", "divides", ["none"]),
        ("trinity-grpo", "null rewards", ["stop the run (--missing changes that)"]),
    ],
)
def test_a_rule_of_a_preset_is_said_in_a_few_words(name: str, rule: str, wanted: list[str]) -> None:
    assert as_dict(name)["rules"][rule] == wanted
