"""Sufficient statistics: computing, merging and finishing agree with sums done by hand."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.engine.moments import CHUNK, Moments, spread


def of(
    values: list[float], batch: list[int] | None = None, batches: int = 1, weights: list[int] | None = None
) -> Moments:
    codes = np.array(batch or [0] * len(values), np.uint32)
    counts = None if weights is None else np.array(weights, np.float64)
    return Moments.of(np.array(values, np.float64), codes, batches, counts)


def near(got: float, wanted: float, size: float = 1.0) -> bool:
    if math.isnan(wanted):
        return math.isnan(got)
    return math.isclose(got, wanted, rel_tol=1e-12, abs_tol=1e-12 * max(1.0, size))


ROWS = st.lists(st.tuples(st.floats(-50, 50), st.integers(0, 3), st.integers(0, 50)), min_size=1, max_size=60)


@given(rows=ROWS, cut=st.integers(0, 60))
def test_every_batch_has_its_own_moments_however_the_rows_are_split_and_a_weight_counts_a_value_that_many_times(
    rows: list[tuple[float, int, int]], cut: int
) -> None:
    values, batch, weights = map(list, zip(*rows, strict=True))
    later = of(values[cut:], batch[cut:], 4, weights[cut:])
    found = of(values[:cut], batch[:cut], 4, weights[:cut]).merge(later)
    of_batches: list[list[float]] = [[], [], [], []]
    for value, code, weight in rows:
        of_batches[code] += [value] * weight
    for code, own in enumerate(of_batches):
        assert found.weight[code] == len(own)
        mean = math.fsum(own) / max(1, len(own))
        assert near(float(found.mean[code]), mean, 50)
        of_all = statistics.pvariance(own) if own else math.nan
        of_sample = statistics.variance(own) if len(own) > 1 else math.nan
        assert near(float(found.variance(0)[code]), of_all, 2500)
        assert near(float(found.variance(1)[code]), of_sample, 2500)


def test_more_rows_than_a_chunk_give_the_moments_of_all_and_chunks_are_cut_from_the_first_row() -> None:
    values = np.random.default_rng(3).normal(5.0, 2.0, 2 * CHUNK + 17)
    found = Moments.of(values)
    exact = math.fsum(values) / len(values)
    squares = math.fsum((values - exact) ** 2)
    assert found.weight[0] == len(values)
    assert math.isclose(found.mean[0], exact, rel_tol=1e-14)
    assert math.isclose(found.m2[0], squares, rel_tol=1e-12)
    first, second, last = map(Moments.of, np.split(values, [CHUNK, 2 * CHUNK]))
    pieces = first.merge(second).merge(last)
    assert found.mean.tobytes() == pieces.mean.tobytes()
    assert found.m2.tobytes() == pieces.m2.tobytes()


@pytest.mark.parametrize("sizes", [(5, 1, 300, 8), (CHUNK + 7, 40, 2 * CHUNK, 3), (1, CHUNK, 1)])
@pytest.mark.parametrize("order", ["together", "interleaved"])
def test_a_batch_has_the_same_bits_beside_any_other_batches(sizes: tuple[int, ...], order: str) -> None:
    rng = np.random.default_rng(5)
    codes = np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)
    if order == "interleaved":
        rng.shuffle(codes)
    values = rng.normal(3.0, 10.0, len(codes))
    weights = rng.integers(0, 9, len(codes)).astype(np.float64)
    together = Moments.of(values, codes, len(sizes), weights)
    for batch in range(len(sizes)):
        own = codes == batch
        alone = Moments.of(values[own], codes[own] * 0, 1, weights[own])
        for name in ("weight", "mean", "low", "m2"):
            one = getattr(together, name)[batch]
            other = getattr(alone, name)[0]
            assert one.tobytes() == other.tobytes()


@given(offset=st.sampled_from([1e9, 1e12]), cut=st.integers(1, 7))
def test_merging_at_a_large_offset_loses_no_more_than_a_mean_of_that_size_can_hold(offset: float, cut: int) -> None:
    values = [offset + x for x in (0, 1, 1, 0, 2, 0, 1, 3)]
    later = of(values[cut:])
    found = of(values[:cut]).merge(later).variance(1)[0]
    assert abs(found - 8 / 7) <= 4 * math.ulp(offset)  # the squares of 0, 1, 1, 0, 2, 0, 1, 3 around 1 are 8


@given(value=st.floats(-1e9, 1e9), count=st.integers(2, 40))
def test_equal_values_have_a_spread_of_rounding_at_most(value: float, count: int) -> None:
    found = of([value] * count)
    assert found.variance(1)[0] <= (1e-15 * value) ** 2


def test_merging_with_nothing_changes_no_bit() -> None:
    some = of([0.1, 0.7, 1e9])
    nothing = of([])
    for merged in (some.merge(nothing), nothing.merge(some)):
        assert merged.mean.tobytes() == some.mean.tobytes()
        assert merged.m2.tobytes() == some.m2.tobytes()


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("cut", [0, 1, 2, 4])
def test_what_is_not_finite_stays_in_its_batch(odd: float, cut: int) -> None:
    values = [1.0, odd, 3.0, 5.0, 2.0]
    batch = [0, 1, 0, 1, 0]
    later = of(values[cut:], batch[cut:], 2)
    found = of(values[:cut], batch[:cut], 2).merge(later)
    assert found.mean[0] == 2.0
    variance = found.variance(1)
    assert variance[0] == 1.0
    assert np.isnan(variance[1])


def finished(variance: float | None, **terms: float) -> Any:
    return pl.select(spread(pl.lit(variance, pl.Float64), **terms)).item()


def test_every_spelling_of_a_divisor() -> None:
    assert finished(4.0) == 2.0
    assert finished(4.0, epsilon=0.5) == 2.5
    assert finished(4.0, inside=5.0) == 3.0
    assert finished(4.0, inside=5.0, floor=16.0, epsilon=1.0) == 5.0
    assert finished(15.0, inside=10.0, floor=16.0, epsilon=1.0) == 6.0
    assert math.isnan(finished(math.nan, floor=9.0, epsilon=1.0))
    assert finished(None, floor=1.0, epsilon=1.0) is None
