"""Advantages of single steps, for trainers that log a row for each step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import polars as pl

from grpo_cli.engine.frames import ROLLOUT, Frames
from grpo_cli.engine.group_stats import Segments
from grpo_cli.engine.moments import NEAREST, Vector


def same_state(
    frames: Frames,
    keys: tuple[str, ...],
    *,
    gamma: float,
    ddof: int,
    sd: Callable[[pl.Expr], pl.Expr] | None,
    least: float | None,
) -> pl.Expr:
    """Compare steps that start from the same state, with all keys equal (the step part of GiGPO).

        A = (G - mean G) [/ sd],  G = step_reward + gamma G' inside the rollout, rows in file order

    A state that occurs once gives 0, and so does one whose sd is not above `least`.
    Source: GiGPO arXiv:2505.10978.
    """

    def over(value: pl.Expr) -> pl.Expr:
        return value.over(keys)

    gain = frames.scan(partial(returns, gamma=gamma), ROLLOUT, pl.col("step_reward"))
    above = frames.let(gain - over(gain.min()))
    centred = frames.let(above - over(above.mean()))
    if sd is None:
        return centred
    count = over(gain.count())
    variance = frames.let(over((centred**2).sum()) / (count - ddof))
    divisor = frames.let(sd(variance))
    narrow = divisor < NEAREST if least is None else (divisor <= least) | divisor.is_nan()
    return pl.when(count > 1).then(pl.when(narrow).then(0.0).otherwise(centred / divisor)).otherwise(centred)


def returns(segments: Segments, reward: Vector, *, gamma: float) -> Vector:
    """The discounted return of each step: its reward, and gamma times the return of the next one."""
    out = np.empty_like(reward)
    for start, size in zip(segments.starts.tolist(), segments.sizes.tolist(), strict=True):
        rest = 0.0
        for i in range(start + size - 1, start - 1, -1):
            rest = out[i] = reward[i] + gamma * rest
    return out
