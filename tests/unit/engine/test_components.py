"""Several reward components: their sum does not depend on their order."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

from grpo_cli.engine.moments import exact_sums
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import score

# Sizes far apart and near each other, signs, ties between two doubles.
NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, 0.1, 0.2, 0.3, -0.1, 1.0, 2.0**53, -(2.0**53), 2.0**-53, 2.0**-106, 5e-324, 1e100]),
    st.floats(-2, 2),
    st.floats(-1e150, 1e150),
)
COMPONENTS = st.integers(3, 7).flatmap(lambda k: st.lists(st.lists(NUMBERS, min_size=k, max_size=k), min_size=1))


@example(rows=[[1.0, 2.0**-53, 2.0**-106], [1.0, 2.0**-53, -(2.0**-106)]])  # just above and just below a tie
@example(rows=[[2.0**53, 1.0, 2.0**-60, -(2.0**-113)]])
@given(rows=COMPONENTS)
def test_a_sum_of_components_is_the_exact_sum_rounded_once(rows: list[list[float]]) -> None:
    assert exact_sums([*np.array(rows).T]).tolist() == [math.fsum(row) for row in rows]


def test_infinite_and_missing_components_add_up_as_usual() -> None:
    inf = math.inf
    nan = math.nan
    rows = [[1.0, inf, 2.0], [inf, -inf, 1.0], [nan, 1.0, 1.0], [1e308, 1e308, 1e308]]
    assert str(exact_sums([*np.array(rows).T]).tolist()) == "[inf, nan, nan, inf]"


def table(rows: list[tuple[float | None, ...]]) -> pl.DataFrame:
    """The rows as one group."""
    zeros = pl.Series([0] * len(rows), dtype=pl.UInt32)
    columns = {f"reward.{k}": pl.Series(values, dtype=pl.Float64) for k, values in enumerate(zip(*rows, strict=True))}
    return pl.DataFrame({"group": zeros, "batch": zeros, **columns})


def test_rows_with_the_same_components_in_another_order_have_zero_variance() -> None:
    found = score(Plan.of({}), table([(0.1, 0.2, 0.3), (0.3, 0.2, 0.1), (0.2, 0.3, 0.1), (0.6, 0.0, 0.0)]))
    assert found.rows[".reward"].to_list() == [0.6] * 4
    assert found.groups[".zero_variance"].to_list() == [True]
    assert found.rows[".advantage"].to_list() == [0.0] * 4


COMPONENT = st.sampled_from([None, 0.0, 0.1, 0.7, 1.3])
WEIGHT = st.sampled_from([1.0, 0.5, 0.1, -0.3])
ROWS = st.lists(st.tuples(*[COMPONENT] * 4), min_size=1, max_size=6)
WEIGHTS = st.tuples(*[WEIGHT] * 4)


@given(rows=ROWS, weights=WEIGHTS, order=st.permutations(range(4)))
def test_advantages_do_not_depend_on_the_order_of_components(
    rows: list[tuple[float | None, ...]], weights: tuple[float, ...], order: list[int]
) -> None:
    def advantages(order: list[int]) -> list[float | None]:
        ordered, *those = [tuple(row[k] for k in order) for row in (weights, *rows)]
        plan = Plan.of({"rewards.combine": "normalize", "rewards.weights": ordered, "rewards.missing": "exclude"})
        return score(plan, table(those)).rows[".advantage"].to_list()

    assert advantages(order) == advantages([0, 1, 2, 3])


@given(rows=ROWS, weights=WEIGHTS)
def test_the_reward_is_the_exact_sum_of_the_weighted_components(
    rows: list[tuple[float | None, ...]], weights: tuple[float, ...]
) -> None:
    plan = Plan.of({"rewards.weights": weights, "rewards.missing": "exclude"})
    found = score(plan, table(rows)).rows[".reward"]
    for row, reward in zip(rows, found, strict=True):
        known = [weight * x for weight, x in zip(weights, row, strict=True) if x is not None]
        assert reward == (math.fsum(known) if known else None)
