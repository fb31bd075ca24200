"""What a group's solve rate and mean absolute deviation make of an advantage, worked out in plain Python."""

from __future__ import annotations

import math
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.engine.plan import Plan
from grpo_cli.errors import UsageError
from grpo_cli.render import plan_text
from tests.support import battery
from tests.support.battery import Row
from tests.support.plans import plan_from_dict

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUPS = st.lists(st.lists(st.sampled_from([0.0, 0.0, 0.5, 1.0]), min_size=2, max_size=6), min_size=1, max_size=4)


def advantages(settings: dict[str, Any], *batches: Sequence[Sequence[float]]) -> list[float | None]:
    rows = list[Row]()
    for batch, groups in enumerate(batches):
        for at, group in enumerate(groups):
            rows += [Row(f"{batch} {at}", reward, batch=str(batch)) for reward in group]
    return battery.advantages(rows, settings)


def divergence(p: float, peak: float) -> float:
    of_solved = p * math.log(p / peak) if p else 0.0
    of_failed = (1 - p) * math.log((1 - p) / (1 - peak)) if p < 1 else 0.0
    return of_solved + of_failed


def sd(group: Sequence[float]) -> float:
    return stdev(group) if len({*group}) > 1 else 0.0


def standardised(group: Sequence[float], weight: float = 1.0) -> list[float]:
    return [weight * (r - mean(group)) / (sd(group) + 1e-6) for r in group]


@given(GROUPS, st.sampled_from([(0.5, 1.0), (0.25, 4.0), (0.5, 0.0)]))
def test_a_peak_weighs_groups_by_their_distance_from_a_solve_rate(
    groups: list[list[float]], rule: tuple[float, float]
) -> None:
    peak, sharpness = rule
    got = advantages({"weight.by": "peak", "weight.peak": peak, "weight.sharpness": sharpness}, groups)
    wanted = list[float]()
    for group in groups:
        weight = math.exp(-sharpness * divergence(mean(group), peak))
        wanted += standardised(group, weight)
    assert got == pytest.approx(wanted, abs=1e-12)


@given(GROUPS, st.integers(1, 5))
def test_the_weight_of_pass_at_k_is_the_slope_of_pass_at_k(groups: list[list[float]], k: int) -> None:
    step = 1e-6
    wanted = list[float]()
    for group in groups:
        failed = 1 - mean(group)
        rise = (failed + step) ** k - (failed - step) ** k
        wanted += standardised(group, rise / (2 * step))
    assert advantages({"weight.by": "pass-at-k", "weight.k": k}, groups) == pytest.approx(wanted, abs=1e-6)


@given(GROUPS, st.sampled_from([0.25, 0.5, 1.0, 2.0]))
def test_the_solve_rate_of_a_weight_may_be_the_share_of_rewards_that_reach_a_threshold(
    groups: list[list[float]], solved: float
) -> None:
    wanted = list[float]()
    for group in groups:
        share = mean(r >= solved for r in group)
        wanted += standardised(group, 2 * (1 - share))
    assert advantages({"weight.by": "pass-at-k", "weight.solved": solved}, groups) == pytest.approx(wanted, abs=1e-12)


def test_rows_without_a_reward_are_no_part_of_the_solve_rate_and_the_reward_is_the_one_before_it_is_shaped() -> None:
    settings = {"weight.by": "pass-at-k", "weight.k": 1, "weight.solved": 1.0, "rewards.missing": "zero"}
    assert advantages(settings, [[1.0, 0.0, math.nan]])[2] == 0.0
    halved = {"weight.by": "pass-at-k", "weight.solved": 1.0, "shape.affine.scale": 0.5, "estimator.name": "dr-grpo"}
    assert advantages(halved, [[1.0, 0.0]]) == pytest.approx([0.25, -0.25])


BATCHES = st.tuples(GROUPS, GROUPS)


@given(BATCHES)
def test_a_weight_may_be_the_std_beside_the_largest_one_of_the_batch(batches: tuple[list[list[float]], ...]) -> None:
    wanted = list[float]()
    for groups in batches:
        most = max(map(sd, groups)) + 1e-6
        for group in groups:
            wanted += standardised(group, sd(group) / most)
    assert advantages({"weight.by": "std"}, *batches) == pytest.approx(wanted, abs=1e-12)


@given(BATCHES, st.sampled_from([0.5, 2.0]))
def test_a_weight_may_be_a_softmax_over_the_groups_of_the_batch_that_have_a_spread(
    batches: tuple[list[list[float]], ...], temperature: float
) -> None:
    wanted = list[float]()
    for groups in batches:
        wide = [g for g in groups if sd(g)]
        total = sum(math.exp(-mean(g) / temperature) for g in wide)
        for group in groups:
            share = math.exp(-mean(group) / temperature) / (total or 1.0)
            wanted += standardised(group, len(wide) * share)
    settings = {"weight.by": "hard", "weight.temperature": temperature}
    assert advantages(settings, *batches) == pytest.approx(wanted, abs=1e-12)


def test_a_group_that_is_left_out_counts_in_the_largest_std_unless_the_kept_ones_alone_do() -> None:
    left_out = [0.0, 9.0]
    group = [0.0, 1.0, 0.0, 1.0]
    settings = {"weight.by": "std", "groups.min_size": 3}
    beside = standardised(group, sd(group) / (sd(left_out) + 1e-6))
    assert advantages(settings, [left_out, group])[2:] == pytest.approx(beside)
    kept = {**settings, "groups.statistics": "kept"}
    alone = standardised(group, sd(group) / (sd(group) + 1e-6))
    assert advantages(kept, [left_out, group])[2:] == pytest.approx(alone)


def test_a_weight_that_looks_at_the_batch_makes_the_plan_one_of_batches() -> None:
    assert Plan.of({"weight.by": "std"}).uses_batch
    assert Plan.of({"weight.by": "hard"}).nan_reach == "batch"
    assert not Plan.of({"weight.by": "peak"}).uses_batch
    assert "divisor.ddof" not in Plan.of({"weight.by": "std", "divisor.level": "none"}).unread


@given(GROUPS)
def test_a_divisor_may_be_the_mean_absolute_deviation(groups: list[list[float]]) -> None:
    wanted = list[float]()
    for group in groups:
        away = [r - mean(group) for r in group]
        divisor = mean(map(abs, away)) + 1e-6
        wanted += [one / divisor for one in away]
    assert advantages({"divisor.measure": "mad"}, groups) == pytest.approx(wanted, abs=1e-9)


def test_a_plan_says_its_weight_and_its_measure() -> None:
    plan = Plan.of({"divisor.measure": "mad", "weight.by": "peak", "weight.sharpness": 2.0})
    said = dict(plan_text.parts(plan))
    assert said["estimator"] == ["A = (r - mean) / (mad + 1e-06)"]
    assert said["divisor"] == ["mad, the mean absolute deviation of the group's rewards"]
    assert said["weight"] == ["then A * exp(-2 KL(p || 0.5)), p the mean reward of the group, from 0 to 1"]
    assert plan_from_dict(plan.as_dict()) == plan
    [rate] = dict(plan_text.parts(Plan.of({"weight.by": "pass-at-k", "weight.solved": 0.5})))["weight"]
    assert rate == "then A * 2 (1 - p)^1, p the share of the group's rewards that are 0.5 or more"


MEANINGLESS = """
divisor.measure=mad divisor.level=batch
divisor.measure=mad estimator.name=grpo-loo
divisor.measure=mad estimator.name=gigpo divisor.level=group
weight.peak=1
weight.sharpness=-1
weight.k=0
weight.temperature=0
"""


@pytest.mark.parametrize("settings", MEANINGLESS.strip().splitlines())
def test_what_means_nothing_is_refused(settings: str) -> None:
    with pytest.raises(UsageError):
        Plan.of(dict(one.split("=") for one in settings.split()))
