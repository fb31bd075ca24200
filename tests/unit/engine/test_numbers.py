"""Long columns in a few numbers: pieces, few values, and what is not finite."""

from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.engine.column_stats import FEW, SAMPLE, Numbers, few

VALUES = st.lists(st.sampled_from([0.0, -0.0, 1.0, 0.25, -7.0, math.nan, math.inf, -math.inf, None]), max_size=60)


@given(values=VALUES, looked_at=st.integers(1, 5))
def test_few_values_are_counted_wherever_they_are(values: list[float | None], looked_at: int) -> None:
    found = few(pl.Series(values, dtype=pl.Float64), looked_at)
    finite = [value for value in values if value is not None and math.isfinite(value)]
    distinct = sorted({*finite})
    assert found == (distinct, [finite.count(value) for value in distinct])


@pytest.mark.parametrize("zeros", [0, SAMPLE])
def test_many_values_are_not_counted_one_by_one(zeros: int) -> None:
    late = pl.zeros(zeros, eager=True).cast(pl.Float64)
    many = pl.Series(range(FEW + 1)).cast(pl.Float64)
    assert few(late.append(many)) is None


@given(values=VALUES)
def test_numbers_of_counted_values_are_those_of_the_column(values: list[float | None]) -> None:
    column = pl.Series(values, dtype=pl.Float64)
    whole = Numbers.of(column)
    found = few(column)
    assert found is not None
    counted = Numbers.counted(*found)
    assert counted.count == whole.count
    assert counted.zero == whole.zero
    assert counted.least == whole.least
    assert counted.most == whole.most
    assert counted.facts() == pytest.approx(whole.facts())


def test_a_negative_zero_is_shown_as_zero() -> None:
    column = pl.Series([-0.0, -0.0])
    whole = Numbers.of(column)
    assert str(few(column)) == "([0.0], [2])"
    assert str([whole.least, whole.most]) == "[0.0, 0.0]"
