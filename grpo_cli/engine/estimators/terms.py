"""What an estimator may speak of: the reward, aggregates over its group, facts of its batch.

An estimator is written as one expression. Where it needs an intermediate quantity more than once, or an
aggregate of an aggregate, it `let`s it: polars evaluates a window inside a window group by group, which
is hundreds of times slower than two plain ones in a row. A `batch` quantity ends a stage: drivers collect
its moments in every part, merge them, and attach the result before the next stage starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from grpo_cli.engine.group_stats import NAMES, Segments
from grpo_cli.engine.moments import Moments, Vector

GROUP: Final = "group"
BATCH: Final = "batch"
ROLLOUT: Final = "rollout"

Finish = Callable[[Moments], Mapping[str, Vector]]


@dataclass(frozen=True, slots=True)
class Let:
    """A column computed from earlier ones, inside one part.

    A `fact` is one value per group wherever all that it reads is: it is computed once a group and spread when a row
    needs it. Of 10M rows in groups of 8 that is an eighth of the work.
    """

    name: str
    value: pl.Expr
    fact: bool = False

    def makes(self) -> list[str]:
        """The name of its column."""
        return [self.name]

    @property
    def reads(self) -> set[str]:
        """The columns that it needs."""
        return set(self.value.meta.root_names())


@dataclass(frozen=True, slots=True)
class Base:
    """The base quantities of a column's groups, as columns whose names start with `name`."""

    name: str
    column: str

    @property
    def reads(self) -> set[str]:
        """The columns that it needs."""
        return {self.column}

    def makes(self, quantities: Iterable[str] = NAMES) -> list[str]:
        """The names of these of its columns."""
        return [f"{self.name}{one}" for one in quantities]


@dataclass(frozen=True, slots=True)
class Round:
    """Moments of a column over each batch; `finish` turns them into columns `name.key`."""

    name: str
    value: pl.Expr
    weight: pl.Expr | None
    finish: Finish

    @property
    def reads(self) -> set[str]:
        """The columns that it needs."""
        return {name for value in (self.value, self.weight) if value is not None for name in value.meta.root_names()}


@dataclass(slots=True)
class Program:
    """The steps that a Plan compiles to, in order."""

    steps: list[Let | Base | Round] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The columns that it computes."""
        return [name for step in self.steps if not isinstance(step, Round) for name in step.makes()]

    def let(self, value: pl.Expr, name: str = "") -> pl.Expr:
        """Name a column; without a name it gets a fresh one."""
        name = name or f".{len(self.steps)}"
        self.steps.append(Let(name, value))
        return pl.col(name)

    def fact(self, value: pl.Expr, name: str = "") -> pl.Expr:
        """Name a column that is made of facts of the group and constants, each row by itself."""
        name = name or f".{len(self.steps)}"
        self.steps.append(Let(name, value, fact=True))
        return pl.col(name)

    def base(self, column: str, prefix: str) -> dict[str, pl.Expr]:
        """The base quantities of a column's groups."""
        self.steps.append(Base(prefix, column))
        return {name: pl.col(f"{prefix}{name}") for name in NAMES}

    def batch(self, value: pl.Expr, weight: pl.Expr | None = None) -> BatchMoments:
        """The moments of a value (nulls left out) over the batch."""
        name = f".{len(self.steps)}"
        self.steps.append(Round(name, value, weight, _plain))
        return BatchMoments(*(pl.col(f"{name}.{key}") for key in ("weight", "mean", "low", "m2")))

    def batch_facts(self, value: pl.Expr, finish: Finish, *keys: str) -> tuple[pl.Expr, ...]:
        """Like `batch`, with the estimator's own last step, computed once for each batch."""
        name = f".{len(self.steps)}"
        self.steps.append(Round(name, value, None, finish))
        return tuple(pl.col(f"{name}.{key}") for key in keys)


def _plain(moments: Moments) -> Mapping[str, Vector]:
    return {"weight": moments.weight, "mean": moments.mean, "low": moments.low, "m2": moments.m2}


@dataclass(frozen=True, slots=True)
class BatchMoments:
    """Weight, mean and squared deviations of a batch, as columns."""

    weight: pl.Expr
    mean: pl.Expr
    low: pl.Expr
    m2: pl.Expr

    def above(self, value: pl.Expr) -> pl.Expr:
        """How far a value lies above the mean, with all digits of the mean."""
        return (value - self.mean) - self.low

    def variance(self, ddof: int) -> pl.Expr:
        """The variance with `ddof`; 0 where there are too few rows to differ."""
        return pl.when(self.weight > ddof).then(self.m2 / (self.weight - ddof)).otherwise(0.0 * self.mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The quantities of one reward column, as columns of the frame.

    `r` is null where a row does not count. `d` is r above the smallest reward of its group: everything that
    does not care about an offset is computed from `d`, so 1e9 + {0, 1} has the numbers of {0, 1} and a
    constant group is exactly 0. `mean`, `n` and `centred` are those of the baseline's level; `squares` is the
    group's sum of squared distances from its own mean.
    """

    program: Program
    r: pl.Expr
    d: pl.Expr
    n: pl.Expr
    mean: pl.Expr
    centred: pl.Expr
    squares: pl.Expr
    least: pl.Expr
    most: pl.Expr
    constant: pl.Expr
    columns: frozenset[str]

    def over(self, value: pl.Expr) -> pl.Expr:
        """An aggregate of the row's group, on every row of it."""
        return value.over(GROUP)

    def let(self, value: pl.Expr, name: str = "") -> pl.Expr:
        """Name an intermediate column."""
        return self.program.let(value, name)

    def fact(self, value: pl.Expr) -> pl.Expr:
        """Name a column made of facts of the group and constants."""
        return self.program.fact(value)

    def batch(self, value: pl.Expr) -> BatchMoments:
        """Moments over the rows of the batch; nulls are left out."""
        return self.program.batch(value)

    def per_group(self, value: pl.Expr) -> pl.Expr:
        """The value on one row of each group (its first that counts), null elsewhere: for moments over groups."""
        first = self.let(self.over(pl.when(self.r.is_not_null()).then(pl.int_range(pl.len())).min()))
        here = pl.int_range(pl.len()).over(GROUP)
        return pl.when((first == here) & self.r.is_not_null()).then(value)

    def apply(self, function: Callable[..., Vector], *values: pl.Expr) -> pl.Expr:
        """A recursion or bisection over the group's rows that count; see `scan`."""
        return scan(function, GROUP, *values)

    def role(self, name: str) -> pl.Expr:
        """An extra column that the method's row in the table declares."""
        return pl.col(name)


def scan(function: Callable[..., Vector], key: str, *values: pl.Expr) -> pl.Expr:
    """A numpy function of (segments, *arrays) for what no window can say.

    It sees the rows without a null, laid out key by key in order of first appearance.
    """
    packed = pl.struct(pl.col(key).alias("key"), *(v.alias(str(i)) for i, v in enumerate(values)))
    return packed.map_batches(partial(_applied, function), return_dtype=pl.Float64)


def _applied(function: Callable[..., Vector], packed: pl.Series) -> pl.Series:
    """Call `function` and put its values back on the rows they came from."""
    frame = packed.struct.unnest().with_row_index(".row").drop_nulls()
    segments, order = Segments.of(frame["key"].to_numpy())
    arrays = [frame[name].cast(pl.Float64).to_numpy()[order] for name in frame.columns[2:]]
    out = np.full(len(packed), np.nan)
    rows = frame[".row"].to_numpy()[order]
    out[rows] = function(segments, *arrays)
    seen = np.zeros(len(packed), dtype=bool)
    seen[rows] = True
    return pl.select(pl.when(pl.Series(seen)).then(pl.Series(out))).to_series()
