"""Copies of surviving groups in place of dropped ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.write.refill import refill


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
