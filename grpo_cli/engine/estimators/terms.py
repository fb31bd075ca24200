"""What an estimator may read: the reward, facts of its group, facts of its batch.

An estimator is one expression. It names with `let` what it needs more than once or reads inside a window: polars
evaluates a window inside a window group by group, hundreds of times slower than one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from grpo_cli.engine.frames import GROUP, BatchMoments, Frames
from grpo_cli.engine.moments import Moments, Vector


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The quantities of one reward column, as columns of the frames.

    `r` is null if a row does not count. `d` is r minus the smallest reward of its group: everything that does not depend
    on an offset is computed from `d`, so 1e9 + {0, 1} gives the numbers of {0, 1} and a constant group exactly 0. `mean`,
    `n` and `centred` are those of the baseline's level; `squares` is the sum of squared distances from the group's mean.
    """

    frames: Frames
    r: pl.Expr
    d: pl.Expr
    n: pl.Expr
    mean: pl.Expr
    centred: pl.Expr
    squares: pl.Expr
    least: pl.Expr
    most: pl.Expr
    constant: pl.Expr

    def let(self, value: pl.Expr, name: str = "") -> pl.Expr:
        """Name an intermediate column."""
        return self.frames.let(value, name)

    def sum(self, value: pl.Expr) -> pl.Expr:
        """The sum over the row's group, added up in the order of the rows; nulls are left out."""
        return self.frames.sum(value)

    def average(self, value: pl.Expr) -> pl.Expr:
        """The mean over the row's group; nulls are left out."""
        return self.frames.average(value)

    def over(self, value: pl.Expr) -> pl.Expr:
        """Another aggregate of the row's group (an extreme, a rank, a quantile), on every row of it."""
        return value.over(GROUP)

    def batch(self, value: pl.Expr) -> BatchMoments:
        """Moments over the rows of the batch; nulls are left out."""
        return self.frames.batch(value)

    def batch_of_groups(self, value: pl.Expr) -> BatchMoments:
        """Moments of a fact over the groups of the batch, each counting once."""
        return self.frames.batch_of_groups(value, self.n)

    def fit(self, value: pl.Expr, finish: Callable[[Moments], Mapping[str, Vector]]) -> Mapping[str, pl.Expr]:
        """What a function computes from these moments, once for each batch."""
        return self.frames.fit(value, self.n, finish)

    def of_groups(self, function: Callable[..., Iterable[pl.Series]], *facts: pl.Expr) -> list[pl.Expr]:
        """Facts that a function computes from facts: columns with a line for each group."""
        return self.frames.of_groups(function, *facts)

    def scan(self, function: Callable[..., Vector], *values: pl.Expr) -> pl.Expr:
        """A numpy function of (segments, *arrays): a recursion over the rows of each group that count."""
        return self.frames.scan(function, GROUP, *values)

    def role(self, name: str) -> pl.Expr:
        """An extra column that the method declares in `needs`."""
        return pl.col(name)
