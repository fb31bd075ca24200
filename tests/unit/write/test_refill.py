"""Copies of surviving groups in place of dropped ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.write.refill import refill


def _codes(*codes: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    return np.array(codes, dtype=np.uint32)


def _mask(*kept: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array(kept, dtype=np.bool_)


@pytest.mark.parametrize(
    ("codes", "kept", "wanted"),
    [
        ((0, 0, 1, 1), (1, 1, 1, 1), [0, 1, 2, 3]),  # nothing is lost
        ((0, 0, 1, 1, 1), (0, 0, 1, 1, 1), [2, 3, 4, 2, 3, 4]),
        ((0, 1, 2, 2, 3), (0, 0, 1, 1, 0), [2, 3] + [2, 3] * 3),  # a copy for each lost group
        ((0, 1, 0, 1), (1, 0, 1, 0), [0, 2, 0, 2]),  # the rows of a group are not consecutive
        ((0, 0, 0, 1), (1, 0, 1, 0), [0, 2, 0, 2]),  # the survivor has lost a row
    ],
)
def test_lost_groups_are_replaced_by_the_only_survivor(
    codes: tuple[int, ...], kept: tuple[int, ...], wanted: list[int]
) -> None:
    assert refill(_codes(*codes), _mask(*kept), 0).tolist() == wanted


@pytest.mark.parametrize("codes", [(), (0, 0, 1)])
def test_nothing_kept_gives_nothing(codes: tuple[int, ...]) -> None:
    rows = refill(_codes(*codes), _mask(*(0 for _ in codes)), 0)
    assert rows.tolist() == []
    assert rows.dtype == np.int64


def test_every_survivor_is_equally_likely() -> None:
    codes = np.arange(4 + 40_000, dtype=np.uint32)
    copies = refill(codes, codes < 4, 0)[4:]
    assert np.bincount(copies) == pytest.approx([10_000] * 4, rel=0.03)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30), st.integers(0, 9))
def test_the_number_of_groups_stays_whatever_was_lost(rows: list[tuple[int, bool]], seed: int) -> None:
    codes = _codes(*(code for code, _ in rows))
    kept = _mask(*(keep for _, keep in rows))
    source = refill(codes, kept, seed)
    survivors = np.unique(codes[kept])
    lost = len(np.unique(codes)) - len(survivors)
    assert source[: kept.sum()].tolist() == np.flatnonzero(kept).tolist()
    assert set(codes[source]) <= set(survivors)
    sizes = {code: int((kept & (codes == code)).sum()) for code in survivors}
    copied = codes[source[kept.sum() :]]
    assert sum(int((copied == code).sum()) // size for code, size in sizes.items()) == (lost if sizes else 0)
