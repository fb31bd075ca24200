"""A Program executed on parts of a table: in polars, on all cores, with the same bits for any number of threads."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final, TypeVar

import polars as pl

from grpo_cli.ahead import ahead
from grpo_cli.estimators.terms import BATCH, Let, Program, Round
from grpo_cli.moments import Moments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from polars._typing import EngineType

T = TypeVar("T")
# One engine by name: its windows are bit-stable whatever the number of threads; group_by().agg is not.
POLARS_ENGINE: Final = "in-memory"
SMALL: Final = 1 << 15  # rows below which polars' streaming engine takes longer to start than to run


def run(program: Program, parts: Sequence[pl.DataFrame], batches: int, keep: Iterable[str]) -> list[pl.DataFrame]:
    """Execute the steps and return the columns in `keep`.

    Moments are collected in every part and merged in the order of the parts. Between two rounds only the
    columns that a later step reads are held.
    """
    return run_each(program, parts, batches, keep, lambda _, frame: frame)


def run_each(
    program: Program,
    parts: Sequence[pl.DataFrame],
    batches: int,
    keep: Iterable[str],
    done: Callable[[int, pl.DataFrame], T],
) -> list[T]:
    """The same; of the number of a part and its columns only what is `done` with them is held."""
    frames, wanted, how = [part.lazy() for part in parts], set(keep), _polars_engine(program, parts)
    there = set(parts[0].columns)
    for at, step in enumerate(program.steps):
        if isinstance(step, Let):
            frames = [frame.with_columns(step.value.alias(step.name)) for frame in frames]
            there.add(step.name)
        else:
            there &= wanted | {BATCH} | program.read_from(at)
            collected = _collected([frame.select(sorted(there)) for frame in frames], how, lambda _, frame: frame)
            frames, new = _round(step, collected, batches)
            there |= new
    return _collected([frame.select(sorted(there & wanted)) for frame in frames], how, done)


def _polars_engine(program: Program, parts: Sequence[pl.DataFrame]) -> EngineType:
    """What goes row by row goes in small pieces, three times as fast and on all cores; windows have one engine."""
    windows = any(".over(" in str(step.value) for step in program.steps)
    return POLARS_ENGINE if windows or max(map(len, parts)) < SMALL else "streaming"


def _collected(frames: Sequence[pl.LazyFrame], how: EngineType, done: Callable[[int, pl.DataFrame], T]) -> list[T]:
    def collected(numbered: tuple[int, pl.LazyFrame]) -> T:
        return done(numbered[0], numbered[1].collect(engine=how))

    # In the in-memory engine only one thread runs at a time.
    several = len(frames) > 1 and how != POLARS_ENGINE
    return list((ahead if several else map)(collected, enumerate(frames)))


def _round(step: Round, collected: Sequence[pl.DataFrame], batches: int) -> tuple[list[pl.LazyFrame], set[str]]:
    found = step.finish(reduce(Moments.merge, (_moments(step, frame, batches) for frame in collected)))

    def column(frame: pl.DataFrame, key: str) -> pl.Expr:
        values = found[key]
        spread_out = pl.lit(float(values[0])) if batches == 1 else pl.lit(pl.Series(values[frame[BATCH].to_numpy()]))
        return spread_out.alias(f"{step.name}.{key}")

    attached = [frame.lazy().with_columns(column(frame, key) for key in found) for frame in collected]
    return attached, {f"{step.name}.{key}" for key in found}


def _moments(step: Round, frame: pl.DataFrame, batches: int) -> Moments:
    weight = pl.lit(1.0) if step.weight is None else step.weight.cast(pl.Float64)
    rows = frame.select(batch=pl.col(BATCH), value=step.value.cast(pl.Float64), weight=weight).drop_nulls("value")
    arrays = (rows["value"].to_numpy(), rows["batch"].to_numpy(), batches)
    return Moments.of(*arrays) if step.weight is None else Moments.of(*arrays, rows["weight"].to_numpy())
