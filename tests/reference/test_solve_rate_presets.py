"""Presets whose numbers follow a group's solve rate: odd rows and groups, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from grpo_cli.engine.presets import preset
from tests.support.jobs import of_plan

NAN = math.nan


def computed(name: str, *groups: list[float]) -> list[Any]:
    """What the preset gives the rewards of some groups, one after the other."""
    return of_plan(preset(name).plan, *groups)


def test_a_row_without_a_reward_counts_in_the_size_of_the_first_group() -> None:
    got = computed("maxrl-repo-clipped-pnorm", [NAN, 1.0, 0.0, 1.0], [1.0, 0.0])
    assert got == pytest.approx([NAN] * 4 + [0.25, -0.25], nan_ok=True)


def test_a_negative_mean_has_no_root() -> None:
    got = computed("maxrl-repo-one-sided-grpo", [-1.0, -1.0], [-1.0, 0.0], [0.0, 0.0], [4.0, 4.0], [0.0, 2.0])
    assert got == pytest.approx([NAN] * 4 + [0.0] * 4 + [-1, 1], nan_ok=True, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("maxrl-repo-vr-cond", [0.25, 0.25, -0.25, -0.25]),
        ("maxrl-repo-misc-grpo", [1.0, 1.0, -1.0, -1.0]),
        ("maxrl-repo-misc-maxrl", [2.0, 2.0, -2.0, -2.0]),
        ("maxrl-repo-misc-reinforce-without-baseline", [1.0, 1.0, 0.0, 0.0]),
        ("maxrl-repo-misc-reinforce-with-baseline", [0.5, 0.5, -0.5, -0.5]),
        ("maxrl-repo-misc-reinforce-with-p-normalization", [1.0, 1.0, -1.0, -1.0]),
        ("maxrl-repo-misc-conditional-expectation", [2.0, 2.0, 0.0, 0.0]),
        ("maxrl-repo-misc-vr-cond", [1.0, 1.0, -1.0, -1.0]),
    ],
)
def test_rewards_count_as_solved_or_not_and_a_missing_one_as_not(name: str, wanted: list[float]) -> None:
    assert computed(name, [0.6, 7.0, 0.5, NAN]) == pytest.approx(wanted, rel=1e-5)


def test_large_groups_need_no_large_numbers() -> None:
    solved, failed = computed("maxrl-repo-maclaurin-baseline", [1.0] * 30 + [0.0] * 2970)[29:31]
    # q_k is the chance that k rows fail, but for 1/C(n, k): nearly a geometric series.
    series = sum(math.comb(2970, k) / (math.comb(3000, k) - 1) for k in range(2, 17))
    assert solved == pytest.approx((1 + series) / 3000, rel=1e-12)
    assert failed == pytest.approx(series * (1 / 3000 - 1 / 2970), rel=1e-9)


def test_a_missing_reward_makes_the_batch_nan_unless_its_group_has_no_other_row() -> None:
    assert all(math.isnan(value) for value in computed("a-grae-grpo", [1.0, NAN], [1.0, 0.0]))
    assert [math.isnan(value) for value in computed("a-grae-grpo", [NAN], [1.0, 0.0])] == [True, False, False]


def test_rewards_that_are_neither_0_nor_1_pass_through_sets_of_k() -> None:
    # Two rows of four are right: R = 1 - 1/6; the others count as wrong in C(n - c, k).
    got = computed("passk-training-analytical", [1.0, 1.0, 0.4, NAN], [7.0], [1.0])
    gain = (1 / 6) / math.sqrt(5 / 36)
    assert got == pytest.approx([gain, gain, 0.4, NAN, 7.0, NAN], nan_ok=True, rel=1e-5)


def test_the_best_row_alone_gains_and_a_group_of_one_is_refused() -> None:
    assert computed("maxrl-repo-grpo-passk", [3.0, 1.0, 3.0, 0.0], [2.0, 5.0]) == pytest.approx(
        [0.0, 0.0, 0.0, 0.0, 0.0, 3 / math.sqrt(4.5)], rel=1e-5
    )
    assert preset("maxrl-repo-grpo-passk").plan.alone.result == "error"
