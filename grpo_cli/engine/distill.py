"""What a teacher makes of the advantage on each token."""

from __future__ import annotations

import numpy as np

from grpo_cli.engine.moments import Vector
from grpo_cli.engine.plan_parts import Distill


def on_tokens(rule: Distill, advantages: Vector, gaps: Vector) -> Vector:
    """The advantage of each token; a gap is its log-probability by the teacher minus that by the student."""
    if not rule.coef:
        return advantages
    if rule.clamp is not None:
        gaps = np.clip(gaps, -rule.clamp, rule.clamp)
    if rule.form == "add":
        return advantages + rule.coef * gaps
    with np.errstate(over="ignore"):  # infinity is cut to 1 + clip
        ratios = np.exp(np.sign(advantages) * gaps)
    clipped = np.clip(ratios, 1 - rule.clip, 1 + rule.clip)
    weights = 1 - rule.coef + rule.coef * clipped
    if rule.negative_only:
        weights = np.where(advantages < 0, weights, 1.0)
    return advantages * weights
