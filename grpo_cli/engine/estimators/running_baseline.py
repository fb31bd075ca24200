"""Moving baselines: the only estimators that depend on the order of the file."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from grpo_cli.engine.estimators.terms import Terms
    from grpo_cli.engine.group_stats import Segments
    from grpo_cli.engine.moments import Vector


def moving_average(t: Terms, *, decay: float, start: float) -> pl.Expr:
    """Reward minus an exponential moving average of the earlier rewards.

        A = r - b;  then b <- decay b + (1 - decay) r,  b = start at first

    Groups follow each other in order of first appearance, the rows of a group in file order. Every batch, and every role
    if there is a role column, has its own average. Source: RAE (SPIRAL) arXiv:2506.24119.
    """
    import polars as pl

    role = t.role("role") if t.frames.has("role") else pl.lit(0)
    stream = t.let(pl.struct("batch", role.alias("role")).rank("dense"))
    moving = partial(_moving, decay=decay, start=start)
    return t.scan(moving, t.r, stream)


def _moving(_: Segments, reward: Vector, stream: Vector, *, decay: float, start: float) -> Vector:
    import numpy as np

    level: dict[float, float] = {}
    out = np.empty_like(reward)
    for i, (r, key) in enumerate(zip(reward.tolist(), stream.tolist(), strict=True)):
        before = level.get(key, start)
        out[i] = r - before
        level[key] = decay * before + (1 - decay) * r
    return out


def kalman(t: Terms, *, process: float, noise: float, variance: float, epsilon: float) -> pl.Expr:
    """Distance from a Kalman filter's level, which has just seen the reward, in units of its own uncertainty.

        A = (r - x)/(sqrt(P) + epsilon), after  x <- x + K (r - x),  P <- (1 - K) P'
        K = P'/(P' + noise), P' = P + process; x = 0 and P = variance before the first row

    The rows of a group count in file order; the level starts uncertain, so the first row almost sets it.
    Source: KRPO arXiv:2505.07527.
    """
    filtered = partial(_filtered, process=process, noise=noise, variance=variance, epsilon=epsilon)
    return t.scan(filtered, t.r)


def _filtered(
    segments: Segments, reward: Vector, *, process: float, noise: float, variance: float, epsilon: float
) -> Vector:
    """Gain and uncertainty depend only on the place in the group: they are computed once."""
    import numpy as np

    places = []
    for _ in range(segments.sizes.max(initial=0)):
        before = variance + process
        gain = before / (before + noise)
        variance = (1 - gain) * before
        width = variance**0.5 + epsilon
        places.append((gain, width))
    values = reward.tolist()
    out = []
    for start, size in zip(segments.starts.tolist(), segments.sizes.tolist(), strict=True):
        level = 0.0
        for r, (gain, width) in zip(values[start : start + size], places, strict=False):
            level += gain * (r - level)
            out.append((r - level) / width)
    return np.array(out, np.float64)


def success_tracker(t: Terms, *, rho: float, prior: float) -> pl.Expr:
    """Reward minus the solve rate that the prompt's earlier batches suggest.

        A = r - a/(a + b);  after each batch, for its rows:  a <- rho a + r,  b <- rho b + 1 - r

    Both counts start at `prior`, so a prompt's first batch is compared with 1/2. Groups may span batches: give
    the prompt as --group and the step as --batch-by. Source: SPO arXiv:2509.13232 (with a fixed rho).
    """
    import polars as pl

    return t.scan(partial(_tracked, rho=rho, prior=prior), t.r, pl.col("batch"))


def _tracked(segments: Segments, reward: Vector, batch: Vector, *, rho: float, prior: float) -> Vector:
    """Batches in the order of the file, which is that of their codes; all rows of a batch get the same counts."""
    import numpy as np

    values = reward.tolist()
    out = np.empty_like(reward)
    batch_of = batch.tolist().__getitem__
    for start, size in zip(segments.starts.tolist(), segments.sizes.tolist(), strict=True):
        won = prior
        lost = prior
        in_order = sorted(range(start, start + size), key=batch_of)
        for _, rows in groupby(in_order, key=batch_of):
            rate = won / (won + lost)
            for i in rows:
                out[i] = values[i] - rate
                won = rho * won + values[i]
                lost = rho * lost + 1 - values[i]
    return out
