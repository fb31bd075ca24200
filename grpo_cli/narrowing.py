"""The columns of the narrow table: what is left of the scanned ones once groups and batches are numbered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.grouping import encode
from grpo_cli.roles import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from grpo_cli.belonging import Looked
    from grpo_cli.grouping import Coded


def narrow_table(
    looked: Looked, coded: Coded, batch: Coded, rewards: Sequence[str], declared: pl.Series | None
) -> pl.DataFrame:
    """Codes of groups and batches, the rewards, and the extra columns under the names of their roles."""
    columns = [coded.codes.alias("group"), batch.codes.alias("batch")]
    columns += [_scored(looked.columns[name], declared).alias(f"reward.{k}") for k, name in enumerate(rewards)]
    for role, name in looked.roles.items():
        columns.append(_role_column(looked, coded, role, name))
    return pl.DataFrame(columns).with_columns(
        pl.lit(ROLES[role].default).alias(role) for role in ("input_length", "turns") if role not in looked.roles
    )


def _scored(reward: pl.Series, declared: pl.Series | None) -> pl.Series:
    """The reward of rows that have one."""
    if declared is None or not declared.any():
        return reward
    return pl.select(pl.when(~declared).then(reward)).to_series()


def _role_column(looked: Looked, coded: Coded, role: str, name: str) -> pl.Series:
    if role == "length" and name == "equal":
        return pl.ones(looked.rows, dtype=pl.Float64, eager=True).alias(role)
    column = looked.columns[name]
    for what, wrong in _unusable(column, role):
        if wrong.any():
            row = wrong.arg_max() or 0
            raise DataError(f"{looked.place(row)}: {name} is {what}", f"it is read as {ROLES[role].meaning}")
    if ROLES[role].kind != "key":
        return column.cast(pl.Boolean).alias(role) if role == "truncated" else column.alias(role)
    keys = [coded.codes, column] if role == "rollout" else [column]
    return encode(keys, looked.rows).codes.alias(role)


def _unusable(column: pl.Series, role: str) -> Iterator[tuple[str, pl.Series]]:
    """What an extra column must not hold: there is no number to compute with."""
    yield "null", column.is_null()
    if column.dtype == pl.Float64:
        yield "not finite", ~column.is_finite()
        if role in {"length", "input_length", "turns"}:
            yield "negative", column < 0
    if column.dtype == pl.List(pl.Float64):
        yield (
            "a list with null or NaN in it",
            column.list.eval(~pl.element().is_finite().fill_null(value=False)).list.any(),
        )
        yield "an empty list", column.list.len() == 0
