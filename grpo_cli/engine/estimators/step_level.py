"""Advantages of single steps, for trainers that log one row a step."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from grpo_cli.engine.frames import Frames
    from grpo_cli.engine.group_stats import Segments
    from grpo_cli.engine.moments import Vector


def same_state(frames: Frames, *, gamma: float, ddof: int, sd: Callable[[pl.Expr], pl.Expr] | None) -> pl.Expr:
    """Compare steps that start from the same state of the same prompt (the step part of GiGPO).

        A = (G - mean G) [/ sd],  G = step_reward + gamma G' inside the rollout, rows in file order

    A state that occurs once has nothing to be compared with: 0. Source: GiGPO arXiv:2505.10978.
    """
    import polars as pl

    from grpo_cli.engine.frames import GROUP, ROLLOUT

    def over(value: pl.Expr) -> pl.Expr:
        return value.over(GROUP, "state")

    returns = frames.scan(partial(_returns, gamma=gamma), ROLLOUT, pl.col("step_reward"))
    above = frames.let(returns - over(returns.min()))
    centred = frames.let(above - over(above.mean()))
    if sd is None:
        return centred
    count = over(returns.count())
    variance = frames.let(over((centred**2).sum()) / (count - ddof))
    return pl.when(count > 1).then(centred / sd(variance)).otherwise(centred)


def _returns(segments: Segments, reward: Vector, *, gamma: float) -> Vector:
    import numpy as np

    out = np.empty_like(reward)
    for start, size in zip(segments.starts.tolist(), segments.sizes.tolist(), strict=True):
        rest = 0.0
        for i in range(start + size - 1, start - 1, -1):
            rest = out[i] = reward[i] + gamma * rest
    return out
