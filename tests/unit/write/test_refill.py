"""Copies of surviving groups in place of dropped ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.write.refill import refill


def test_lost_groups_are_replaced_by_the_only_survivor() -> None:
    codes = np.array([0, 1, 0, 0, 2], dtype=np.uint32)
    kept = np.array([True, False, True, False, False])  # the survivor has lost a row, too
    assert refill(codes, kept, 0).tolist() == [0, 2, 0, 2, 0, 2]


def test_nothing_kept_gives_nothing() -> None:
    rows = refill(np.array([0, 0, 1], dtype=np.uint32), np.array([False] * 3), 0)
    assert rows.tolist() == []
    assert rows.dtype == np.int64


def test_every_survivor_is_equally_likely() -> None:
    codes = np.arange(4 + 40_000, dtype=np.uint32)
    copies = refill(codes, codes < 4, 0)[4:]
    assert np.bincount(copies) == pytest.approx([10_000] * 4, rel=0.03)


@given(st.lists(st.sampled_from("aAbBcC"), max_size=30), st.integers(0, 9))
def test_the_number_of_groups_stays_whatever_was_lost(rows: list[str], seed: int) -> None:
    """Rows of the groups a, b and c; those of capital letters are kept."""
    codes = np.array(["abc".index(row.lower()) for row in rows], dtype=np.uint32)
    kept = np.array([row.isupper() for row in rows], dtype=np.bool_)
    source = refill(codes, kept, seed)
    first, copies = np.split(source, [kept.sum()])
    assert first.tolist() == np.flatnonzero(kept).tolist()
    survivors = np.unique(codes[kept])
    assert np.isin(copies, first).all()
    copied = np.bincount(codes[copies], minlength=3)[survivors]
    sizes = np.bincount(codes[kept], minlength=3)[survivors]
    lost = len(np.unique(codes)) - len(survivors)
    assert (copied // sizes).sum() == (lost if len(survivors) else 0)
