"""Constants are solved from the rows: a factor, a clip, the weights of rewards and of groups; few digits, and enough rows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.support.drawn import some
from tests.unit.guests.audit.logs import (
    GROUPS,
    KEY,
    MIXED,
    NO_FORMULA,
    Groups,
    causes,
    centred,
    drawn,
    found,
    match_of,
    mean,
    rows,
    said,
    solved,
    standard,
    std,
)

SECOND = drawn(40, 8, seed=1)


def test_twice_a_formula_is_named_as_such_and_not_as_a_batch() -> None:
    groups = solved(*[1, 3, 2, 6, 2, 5, 7, 1] * 8)
    match = match_of(groups, 2 * centred(groups))
    assert match["mismatched_rows"] == 0
    assert match["factor"] == 2.0
    assert match["plan"]["divisor"]["level"] == "none"


@pytest.mark.parametrize("factor", some([1.5077, 0.90145], 2))
def test_a_factor_of_many_digits_is_no_formula(factor: float) -> None:
    """One of the many stds of a batch nearly always fits with a constant of a few digits."""
    assert match_of(GROUPS, factor * centred(GROUPS), **KEY)["mismatched_rows"] > 0


@pytest.mark.parametrize("factor", some([0.37, 2.4], 2))
def test_a_value_for_each_reward_is_no_factor_of_a_batch(factor: float) -> None:
    """Two values with a mean of 0 are on a line through the mean of the batch for any formula."""
    match = match_of(MIXED, factor * (MIXED - MIXED.mean()), **KEY)
    assert match["factor"] == 1
    assert match["constants"] == 0
    assert match["verdict"] not in {"match", "noise"}


ENDS = [(-0.4, 1.8), (-1.0, 1.0), (-0.13, 0.07), (0.25, 0.5)]


@pytest.mark.parametrize(("ends", "size"), some(product(ENDS, [2, 4, 8]), 7))
def test_a_value_for_each_reward_is_no_clip(ends: tuple[float, float], size: int) -> None:
    low, high = ends
    counts = [k % (size + 1) for k in range(20)]
    groups = solved(*counts, 1, 1, 1, size=size)
    logged = np.where(groups == 1, high, low)
    facts = found(rows(groups, logged), **KEY)
    assert facts["match"]["verdict"] not in {"match", "noise"}
    assert facts["match"]["constants"] == 0
    assert "clipped" not in str(causes(facts))


@pytest.mark.parametrize("seed", some(range(6), 6))
def test_a_value_of_its_own_for_each_kind_of_group_is_no_clip(seed: int) -> None:
    draw = np.random.default_rng(seed)
    low = np.round(draw.uniform(-2, 0, 9), 2)
    high = np.round(draw.uniform(0, 2, 9), 2)
    kind = MIXED.sum(axis=1, keepdims=True).astype(int)
    logged = np.where(MIXED == 1, high[kind], low[kind])
    facts = found(rows(MIXED, logged), **KEY)
    assert facts["match"]["verdict"] in NO_FORMULA
    assert facts["headline"] is None
    assert facts["match"]["constants"] == 0


@pytest.mark.parametrize(
    ("groups", "formula", "low", "high"),
    [(GROUPS, standard, -1.5, 1.5), (MIXED, centred, -0.45, 0.45), (MIXED, centred, -0.4, 0.55)],
)
def test_a_clip_that_different_values_inside_show_is_named(
    groups: Groups, formula: Callable[[Groups], Groups], low: float, high: float
) -> None:
    match = match_of(groups, formula(groups).clip(low, high))
    assert match["verdict"] == "match"
    (clip,) = match["plan"]["post"]  # no wider one of a preset before it
    assert clip == {"op": "clip", "lo": pytest.approx(low), "hi": pytest.approx(high)}
    assert match["constants"] == (1 if low == -high else 2)
    assert match["plan"]["divisor"]["epsilon"] == 1e-4 or formula is centred


def test_two_values_between_the_ends_are_no_clip() -> None:
    """Of eighths, only -1/8 and 1/8 are between -0.2 and 0.2."""
    assert match_of(MIXED, centred(MIXED).clip(-0.2, 0.2), **KEY)["verdict"] in NO_FORMULA


@pytest.mark.parametrize(("factor", "number", "size"), [(2.0, 6, 3), (0.4, 20, 4)])
def test_a_factor_needs_three_more_equations_than_itself(factor: float, number: int, size: int) -> None:
    one_kind = solved(*[1] * number, size=size)
    assert match_of(one_kind, factor * centred(one_kind), **KEY)["factor"] == 1


WEIGHTS = [(1.0, 0.2), (0.7, 0.3), (1.0, -0.5)]


@pytest.mark.parametrize(("made", "weights"), some(product([standard, centred], WEIGHTS), 5))
def test_weights_of_two_rewards_are_solved(made: Callable[[Groups], Groups], weights: tuple[float, float]) -> None:
    summed = weights[0] * GROUPS + weights[1] * SECOND
    frame = rows(GROUPS, made(summed), second=SECOND.ravel())
    match = found(frame, reward=["reward", "second"])["match"]
    assert match["verdict"] == "match"
    first = match["weights"]["reward"]
    second = match["weights"]["second"]
    assert second / first == pytest.approx(weights[1] / weights[0], rel=1e-2)
    if made is centred:
        assert (first, second) == pytest.approx(weights)


def test_two_rewards_that_were_not_added_up_have_no_weights() -> None:
    least = np.minimum(GROUPS, SECOND)
    frame = rows(GROUPS, centred(least), second=SECOND.ravel())
    assert found(frame, reward=["reward", "second"], **KEY)["match"]["verdict"] in NO_FORMULA


def divergence(rate: Any, at: float) -> Any:
    return rate * np.log(np.maximum(rate, 1e-300) / at)


def peak(groups: Groups) -> Any:
    return np.exp(-2.5 * (divergence(mean(groups), 0.3) + divergence(1 - mean(groups), 0.7)))


def hard(groups: Groups) -> Any:
    weights = np.exp(-mean(groups) / 0.5)
    spread = weights[std(groups) > 0]
    return weights / spread.mean()


# The factor of each group, in plain numbers: of MGPO (another peak), RAGEN, DGPO, and the slope of pass@4.
WEIGHTS_OF: dict[str, Callable[[Groups], Any]] = {
    "weight.by=peak --set weight.peak=0.3 --set weight.sharpness=2.5": peak,
    "weight.by=std": lambda groups: std(groups) / (std(groups).max() + 1e-6),
    "weight.by=hard --set weight.temperature=0.5": hard,
    "weight.by=pass-at-k --set weight.k=4": lambda groups: 4 * (1 - mean(groups)) ** 3,
}


WEIGHTED = solved(*(k % 9 for k in range(45)))
LARGE = solved(*(k % 9 for k in range(520)))  # a sample of them is searched


@pytest.mark.parametrize(
    ("name", "kind", "made"),
    some(product(WEIGHTS_OF, ["zeros and ones", "decimals", "large"], ["grpo", "dr-grpo", "rloo"]), 11),
)
def test_a_weight_of_the_group_is_named_with_its_constants(name: str, kind: str, made: str) -> None:
    groups = {"zeros and ones": WEIGHTED, "decimals": GROUPS, "large": LARGE}[kind]
    logged = {"grpo": standard(groups), "dr-grpo": centred(groups), "rloo": centred(groups) * 8 / 7}[made]
    frame = rows(groups, WEIGHTS_OF[name](groups) * logged)
    assert f"match matches --method {made} --set {name}: " in said(frame, "--group prompt_id")
    claim = f"--method {made} --set {name}" + (" --epsilon 1e-4" if made == "grpo" else "")
    assert "every row matches the claim" in said(frame, f"--group prompt_id {claim}")


def test_a_weight_of_the_group_that_is_none_of_these_is_not_named() -> None:
    weights = (lambda p: 1.37 - p, lambda p: 1 + p * p, lambda p: 0.5 + np.sin(7 * p) / 4)
    for weight, groups in some(product(weights, (WEIGHTED, GROUPS)), 4):
        match = match_of(groups, weight(mean(groups)) * centred(groups), **KEY)
        assert match["verdict"] in NO_FORMULA
        assert match["plan"]["weight"]["by"] == "none" or match["preset_names"]


@pytest.mark.parametrize("reward", some([None, np.nan, np.inf], 3))
def test_a_row_without_a_reward_hides_no_weight_of_the_group(reward: float | None) -> None:
    frame = rows(WEIGHTED, peak(WEIGHTED) * centred(WEIGHTED))
    frame = pl.concat([frame, frame[-1:]])
    frame[-1, "reward"] = reward
    frame[-1, "advantage"] = None
    match = found(frame, missing="exclude", **KEY)["match"]
    assert match["mismatched_rows"] == 0
    assert match["plan"]["weight"]["by"] == "peak"


def test_a_group_of_equal_rewards_between_0_and_1_ends_no_search_for_a_weight() -> None:
    groups = np.vstack([WEIGHTED, [[0.5] * 8]])
    assert match_of(groups, peak(groups) * groups, **KEY)["verdict"] in {"match", "near", "none"}


def test_four_solve_rates_are_too_few_for_a_peak() -> None:
    few = solved(*(k % 5 for k in range(45)), size=4)
    assert match_of(few, peak(few) * centred(few), **KEY)["verdict"] in NO_FORMULA
