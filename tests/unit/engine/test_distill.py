"""What a teacher makes of the advantage on each token, against plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.engine.distill import on_tokens
from grpo_cli.engine.plan_parts import Distill

NUMBERS = st.floats(-1e3, 1e3)
SHARES = st.floats(0, 1)


def plain(rule: Distill, a: float, gap: float) -> float:
    """The advantage of one token, as the formulas of the papers say it."""
    if rule.clamp is not None:
        gap = max(-rule.clamp, min(rule.clamp, gap))
    if rule.form == "add":
        return a + rule.coef * gap
    if rule.negative_only and a >= 0:
        return a
    likelier = math.exp(min(700.0, math.copysign(1.0, a) * gap)) if a else 1.0
    return a * ((1 - rule.coef) + rule.coef * max(1 - rule.clip, min(1 + rule.clip, likelier)))


RULES = st.builds(
    Distill,
    coef=SHARES,
    form=st.sampled_from(["add", "reweight"]),
    clamp=st.none() | st.floats(0, 50),
    clip=st.floats(0, 2),
    negative_only=st.booleans(),
)


@given(RULES, st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=8))
def test_each_token_has_the_number_of_the_formula(rule: Distill, tokens: list[tuple[float, float]]) -> None:
    advantages, gaps = map(np.array, zip(*tokens, strict=True))
    found = on_tokens(rule, advantages, gaps).tolist()
    assert found == pytest.approx([plain(rule, a, gap) for a, gap in tokens], rel=1e-12, abs=1e-300)
