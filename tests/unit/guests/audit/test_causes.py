"""Why some groups disagree with the formula that explains the others."""

from __future__ import annotations

from itertools import product

import numpy as np
import polars as pl
import pytest

import grpo_cli
from tests.support.drawn import some
from tests.support.goldens import table
from tests.unit.guests.audit.logs import (
    GROUPS,
    KEY,
    MIXED,
    STANDARD,
    Groups,
    causes,
    found,
    keys,
    rows,
    standard,
    with_keys,
)


def of_more_rows(groups: Groups) -> Groups:
    others = np.hstack([groups, np.full((len(groups), 3), [0.9, 0.1, 0.8])])
    return standard(others)[:, :8]


@pytest.mark.parametrize(
    ("cause", "logged"),
    [
        ("order", np.roll(STANDARD, -1, axis=1)),
        ("sign", -STANDARD),
        ("split", np.hstack([standard(GROUPS[:, :4]), standard(GROUPS[:, 4:])])),
        ("other rows", of_more_rows(GROUPS)),
        ("unexplained", STANDARD + 0.1 * np.arange(8)),
    ],
)
def test_a_group_that_disagrees_is_explained(cause: str, logged: Groups) -> None:
    advantages = STANDARD.copy()
    advantages[7] = logged[7]
    facts = found(rows(GROUPS, advantages), **KEY)
    assert causes(facts) == [f"{cause}: 1, 8"]
    assert keys(facts) == ["p7"]
    assert facts["match"]["mismatched_groups"] == 1


@pytest.mark.parametrize(("second", "others"), some([(30, [20]), (7, [])], 2))
def test_a_key_that_was_sampled_twice_is_a_cause_where_blocks_do_not_explain_every_row(
    second: int, others: list[int]
) -> None:
    advantages = STANDARD.copy()
    advantages[[12, *others]] = 9 - advantages[[12, *others]]
    facts = found(with_keys(rows(GROUPS, advantages), lambda k: 6 if k == second else k))
    odd = 1 + len(others)
    assert causes(facts) == ["merged: 1, 16", f"unexplained: {odd}, {8 * odd}"]
    assert facts["groups"] == 39
    names = ["p6", "p12", *(f"p{k}" for k in others)]
    assert sorted(keys(facts)) == sorted(names)


def test_a_key_with_half_a_group_more_rows_is_not_called_sampled_twice() -> None:
    frame = with_keys(rows(GROUPS, STANDARD), lambda k: 6 if k == 39 else k)
    assert causes(found(frame[:-4])) == ["unexplained: 1, 12"]


@pytest.mark.parametrize(("value", "cause"), [(-0.0003, "rounding"), (-0.0008, "unexplained")])
def test_a_constant_group_may_be_as_far_from_0_as_float32_leaves_it(value: float, cause: str) -> None:
    groups = [*GROUPS, [0.35] * 8]
    logged = [*STANDARD, [value] * 8]
    facts = found(rows(groups, logged), **KEY)
    assert causes(facts) == [f"{cause}: 1, 8"]


NOISY = "zero_variance_mix"  # a third of its groups are constant, at numbers that float32 does not have


def noisy(case: str) -> pl.DataFrame:
    """What a framework logged in float32, with responses of one token."""
    return table("tables", NOISY).with_columns(advantage=table("expected", NOISY)[case], length=pl.lit(1))


@pytest.mark.parametrize(
    ("case", "preset"),
    some(
        [("swift.grpo[gdpo]", "swift-gdpo"), ("trl.grpo[normalize_then_sum]", "trl-gdpo"), ("verl.gdpo", "verl-gdpo")],
        2,
    ),
)
def test_noise_of_float32_that_whitening_spread_is_the_cause(case: str, preset: str) -> None:
    facts = found(noisy(case), **KEY)
    assert preset in facts["match"]["preset_names"]
    assert facts["match"]["verdict"] == "noise"
    assert facts["match"]["mismatched_rows"] == 320
    assert causes(facts) == ["float32 noise: 12, 96"]


@pytest.mark.parametrize(("constant", "change"), some(product([True, False], [1.0, 0.01]), 3))
def test_noise_of_float32_is_no_cause_where_it_does_not_explain_every_row(*, constant: bool, change: float) -> None:
    frame = noisy("swift.grpo[gdpo]")
    is_constant = frame.select((pl.col("reward").n_unique() == 1).over("prompt_id")).to_series()
    at = is_constant.to_list().index(constant)
    frame[at, "advantage"] += change
    facts = found(frame, **KEY)
    assert facts["match"]["mismatched_rows"]
    assert "float32 noise" not in str(causes(facts))


@pytest.mark.parametrize(("case", "epsilon"), [("oat.grpo", 1e-8), ("openrlhf.group_norm", 1e-9)])
def test_noise_of_constant_groups_distinguishes_epsilons_that_the_other_rows_do_not(case: str, epsilon: float) -> None:
    facts = found(noisy(case), **KEY)
    assert causes(facts) == ["rounding: 12, 96"]
    assert facts["match"]["plan"]["divisor"]["epsilon"] == epsilon


def test_values_that_stop_at_one_end_are_a_cause_and_one_value_beyond_the_end_of_a_log_is_not() -> None:
    facts = found(rows(GROUPS, np.minimum(STANDARD, 1.5)), **KEY)
    (cause,) = causes(facts)
    assert cause.startswith("clipped: ")
    assert facts["match"]["plan"]["divisor"]["epsilon"] == 1e-4
    second, largest = np.sort(STANDARD.ravel())[-2:]
    cut = np.minimum(STANDARD, (second + largest) / 2)
    facts = found(rows(GROUPS, cut), **KEY)
    assert facts["match"]["mismatched_rows"] == 1
    assert "clipped" not in str(causes(facts))


def test_a_spike_that_float32_leaves_of_equal_rewards_is_named() -> None:
    """NeMo-RL's own function gave -1852 for the 0.1, where the formula gives -0.6."""
    groups = np.vstack([MIXED, [[0.7] * 7 + [0.1]]])
    frame = rows(groups, groups).drop("advantage")
    frame = frame.with_columns(advantage=grpo_cli.advantages(frame, preset="nemo-rl-grpo"))
    assert frame[-1, "advantage"] == pytest.approx(-0.6)
    frame[-1, "advantage"] = -1852.0363
    assert causes(found(frame, **KEY)) == ["spike: 1, 8"]
    frame[-1, "advantage"] = -1.2
    assert "spike" not in str(causes(found(frame, **KEY)))


def test_causes_count_all_groups_that_differ() -> None:
    groups = np.array([[0.0, 1.0, k % 5 / 8, 0.5] for k in range(1_200)])
    logged = standard(groups)
    logged[::3] = 0
    facts = found(rows(groups, logged), **KEY)
    assert [cause.partition(",")[0] for cause in causes(facts)] == ["zeroed: 400"]
    assert facts["match"]["mismatched_groups"] == 400
