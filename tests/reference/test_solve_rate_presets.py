"""Presets whose numbers follow a group's solve rate: odd rows and groups that no golden table has, worked out by hand."""

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
        ("maxrl-repo-misc-maxrl", [2.0, 2.0, -2.0, -2.0]),
        ("maxrl-repo-misc-reinforce-without-baseline", [1.0, 1.0, 0.0, 0.0]),
    ],
)
def test_rewards_count_as_solved_or_not_and_a_missing_one_as_not(name: str, wanted: list[float]) -> None:
    assert computed(name, [0.6, 7.0, 0.5, NAN]) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "solved", "failed"),
    [
        ("maxrl-repo-maclaurin", 1.0, 0.0),
        ("maxrl-repo-maclaurin-baseline", 1.0, 0.0),
        ("maxrl-repo-cross-fitted-maclaurin", 1.0, 0.0),
        ("maxrl-repo-oversample-subset-vr", 0.0, -1.0),
        ("maxrl-repo-vr-cond", 0.0, -1.0),
    ],
)
def test_the_only_row_of_a_group_follows_the_formula(name: str, solved: float, failed: float) -> None:
    assert computed(name, [1.0], [0.0], [1.0, 0.0])[:2] == [solved, failed]


def test_sets_of_all_rows_are_the_share_of_the_successes() -> None:
    groups = [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0, 0.0], [0.0, 0.0]]
    found = computed("maxrl-repo-oversample-subset-vr", *groups)
    assert found == pytest.approx(computed("maxrl-repo-vr-cond", *groups))


def test_large_groups_need_no_large_numbers() -> None:
    solved, failed = computed("maxrl-repo-maclaurin-baseline", [1.0] * 30 + [0.0] * 2970)[29:31]
    # q_k is the chance that k rows fail, but for 1/C(n, k): nearly a geometric series.
    series = sum(math.comb(2970, k) / (math.comb(3000, k) - 1) for k in range(2, 17))
    assert solved == pytest.approx((1 + series) / 3000, rel=1e-12)
    assert failed == pytest.approx(series * (1 / 3000 - 1 / 2970), rel=1e-9)


def test_a_missing_reward_makes_the_batch_nan_unless_its_group_has_no_other_row() -> None:
    first, *others = computed("a-grae-grpo", [NAN], [1.0, 0.0])
    assert math.isnan(first)
    assert all(math.isfinite(one) for one in others)


def test_where_the_best_row_alone_gains_a_group_of_one_is_refused() -> None:
    assert preset("maxrl-repo-grpo-passk").plan.alone.result == "error"
