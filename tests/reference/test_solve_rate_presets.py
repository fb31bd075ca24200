"""Presets whose numbers follow a group's solve rate: odd rows and groups that no golden table has, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from grpo_cli.engine.presets import preset
from tests.support.jobs import of_plan


def computed(name: str, *groups: str) -> Any:
    """What the preset gives some groups of rewards, one after the other."""
    rewards = [[*map(float, group.split())] for group in groups]
    return of_plan(preset(name).plan, *rewards)


def numbers(text: str, rel: float = 1e-5) -> Any:
    return pytest.approx([*map(float, text.split())], rel=rel, nan_ok=True)


def test_a_row_without_a_reward_counts_in_the_size_of_the_first_group() -> None:
    got = computed("maxrl-repo-clipped-pnorm", "nan 1 0 1", "1 0")
    assert got == numbers("nan nan nan nan 0.25 -0.25", 1e-6)


def test_a_negative_mean_has_no_root() -> None:
    got = computed("maxrl-repo-one-sided-grpo", "-1 -1", "-1 0", "0 0", "4 4", "0 2")
    assert got == numbers("nan nan nan nan 0 0 0 0 -1 1")


def test_rewards_count_as_solved_or_not_and_a_missing_one_as_not() -> None:
    group = "0.6 7 0.5 nan"
    assert computed("maxrl-repo-vr-cond", group) == numbers("0.25 0.25 -0.25 -0.25")
    assert computed("maxrl-repo-misc-maxrl", group) == numbers("2 2 -2 -2")
    assert computed("maxrl-repo-misc-reinforce-without-baseline", group) == numbers("1 1 0 0")


@pytest.mark.parametrize(
    ("names", "wanted"),
    [("maclaurin maclaurin-baseline cross-fitted-maclaurin", [1, 0]), ("oversample-subset-vr vr-cond", [0, -1])],
)
def test_the_only_row_of_a_group_follows_the_formula(names: str, wanted: list[float]) -> None:
    for name in names.split():
        assert computed(f"maxrl-repo-{name}", "1", "0", "1 0")[:2] == wanted, name


def test_sets_of_all_rows_are_the_share_of_the_successes() -> None:
    groups = ("1 0 0", "1 1 0 1 0", "0 0")
    found = computed("maxrl-repo-oversample-subset-vr", *groups)
    assert found == pytest.approx(computed("maxrl-repo-vr-cond", *groups))


def test_large_groups_need_no_large_numbers() -> None:
    solved, *_, failed = computed("maxrl-repo-maclaurin-baseline", "1 " * 30 + "0 " * 2970)
    # q_k is the chance that k rows fail, but for 1/C(n, k): nearly a geometric series.
    series = sum(math.comb(2970, k) / (math.comb(3000, k) - 1) for k in range(2, 17))
    assert solved == pytest.approx((1 + series) / 3000, rel=1e-12)
    assert failed == pytest.approx(series * (1 / 3000 - 1 / 2970), rel=1e-9)


def test_a_missing_reward_makes_the_batch_nan_unless_its_group_has_no_other_row() -> None:
    missing, solved, failed = computed("a-grae-grpo", "nan", "1 0")
    assert math.isnan(missing)
    assert math.isfinite(solved)
    assert math.isfinite(failed)


def test_where_the_best_row_alone_gains_a_group_of_one_is_refused() -> None:
    assert preset("maxrl-repo-grpo-passk").plan.alone.result == "error"
