"""Several reward components: their sum does not depend on their order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.engine.moments import exact_sums
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import Scored, score

# Sizes far apart and near each other, signs, ties between two doubles.
# Powers of two around the last bit of 1, and of the last bit of that.
TIES = "9007199254740992 -9007199254740992 1.1102230246251565e-16 1.232595164407831e-32"
NUMBERS = [*map(float, f"0 -0 0.1 0.2 0.3 -0.1 1 5e-324 1e100 {TIES}".split())]
COMPONENT = st.sampled_from(NUMBERS) | st.floats(-2, 2) | st.floats(-1e150, 1e150)
COMPONENTS = st.integers(3, 7).flatmap(lambda k: st.lists(st.tuples(*[COMPONENT] * k), min_size=1))
HALF_AN_ULP = 2.0**-53
LITTLE = 2.0**-106


def sums(rows: Any) -> list[float]:
    components = np.array(rows, np.float64).T
    found: list[float] = exact_sums([*components]).tolist()
    return found


@example(rows=[(1.0, HALF_AN_ULP, LITTLE), (1.0, HALF_AN_ULP, -LITTLE)])  # just above and just below a tie
@example(rows=[(2.0**53, 1.0, LITTLE)])
@given(rows=COMPONENTS)
def test_a_sum_of_components_is_the_exact_sum_rounded_once(rows: list[tuple[float, ...]]) -> None:
    assert sums(rows) == [*map(math.fsum, rows)]


def test_infinite_and_missing_components_add_up_as_usual() -> None:
    rows = [["1", "inf", "2"], ["inf", "-inf", "1"], ["nan", "1", "1"], ["1e308", "1e308", "1e308"]]
    assert str(sums(rows)) == "[inf, nan, nan, inf]"


def scored(rows: Sequence[tuple[float | None, ...]], settings: dict[str, Any]) -> Scored:
    """The rows as one group."""
    names = [f"reward.{k}" for k in range(len(rows[0]))]
    rewards = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Float64), orient="row")
    zero = pl.lit(0, pl.UInt32)
    return score(Plan.of(settings), rewards.with_columns(group=zero, batch=zero))


def test_rows_with_the_same_components_in_another_order_have_zero_variance() -> None:
    found = scored([(0.1, 0.2, 0.3), (0.3, 0.2, 0.1), (0.2, 0.3, 0.1), (0.6, 0.0, 0.0)], {})
    assert found.rows[".reward"].to_list() == [0.6] * 4
    assert found.groups[".zero_variance"].to_list() == [True]
    assert found.rows[".advantage"].to_list() == [0.0] * 4


COMPONENTS_OF_A_ROW = st.tuples(*[st.sampled_from([None, 0.0, 0.1, 0.7, 1.3])] * 4)
WEIGHTS = st.tuples(*[st.sampled_from([1.0, 0.5, 0.1, -0.3])] * 4)


ROWS = st.lists(COMPONENTS_OF_A_ROW, min_size=1, max_size=6)


@given(rows=ROWS, weights=WEIGHTS, order=st.permutations(range(4)))
def test_advantages_do_not_depend_on_the_order_of_components(rows: Any, weights: Any, order: list[int]) -> None:
    def normalized(order: Sequence[int]) -> list[float | None]:
        turned = [tuple(row[k] for k in order) for row in rows]
        of_each = [weights[k] for k in order]
        settings = {"rewards.combine": "normalize", "rewards.weights": of_each, "rewards.missing": "exclude"}
        return scored(turned, settings).rows[".advantage"].to_list()

    assert normalized(order) == normalized(range(4))


@given(rows=ROWS, weights=WEIGHTS)
def test_the_reward_is_the_exact_sum_of_the_weighted_components(rows: Any, weights: Any) -> None:
    found = scored(rows, {"rewards.weights": weights, "rewards.missing": "exclude"}).rows[".reward"]
    for row, reward in zip(rows, found, strict=True):
        known = [weight * x for weight, x in zip(weights, row, strict=True) if x is not None]
        assert reward == (math.fsum(known) if known else None)


def test_a_column_without_a_value_in_a_group_does_not_make_the_group_vary() -> None:
    data = pl.read_csv(b"prompt_id,a,b\np,1,\np,1,\nq,1,0\nq,0,1\n")
    groups = grpo_cli.compute(data, reward=["a", "b"], combine="normalize").groups
    assert groups["constant"].to_list() == [True, False]
