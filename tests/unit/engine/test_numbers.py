"""Long columns in a few numbers: pieces, few values, and what is not finite."""

from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.engine.column_stats import FEW, SAMPLE, Numbers, few, over

VALUES = st.lists(st.sampled_from([0.0, -0.0, 1.0, 0.25, -7.0, math.nan, math.inf, -math.inf, None]), max_size=60)


@given(values=VALUES, looked_at=st.integers(1, 5))
def test_few_values_are_counted_wherever_they_are(values: list[float | None], looked_at: int) -> None:
    found = few(pl.Series(values, dtype=pl.Float64), looked_at)
    finite = [value for value in values if value is not None and math.isfinite(value)]
    assert found == (sorted({*finite}), [finite.count(value) for value in sorted({*finite})])


@pytest.mark.parametrize("late", [False, True])
def test_many_values_are_not_counted_one_by_one(late: bool) -> None:  # noqa: FBT001 - a parameter of the test
    many = [float(i) for i in range(FEW + 1)]
    assert few(pl.Series([0.0] * (SAMPLE if late else 0) + many)) is None


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
    found = few(column)
    assert found is not None
    for number in (*found[0], Numbers.of(column).least, Numbers.of(column).most):
        assert math.copysign(1.0, number) == 1.0


@given(rows=st.integers(0, 40), piece=st.integers(1, 7))
def test_pieces_are_all_rows_once_in_order(rows: int, piece: int) -> None:
    spans = over(lambda start, end: (start, end), rows, piece)
    assert [at for start, end in spans for at in range(start, end)] == list(range(rows))
