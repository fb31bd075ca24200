"""Inputs -> narrow table: which columns are read, from which files, in which row order.

Row i of the narrow table is row i of the inputs, file after file. Only what the arithmetic needs is read;
completion text never enters. What was found without being asked for (the key, the reward) is noted, so that
the summary can say it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.errors import DataError
from grpo_cli.formats.cells import canonical
from grpo_cli.formats.paths import Absent
from grpo_cli.read.apply_schema import bound, refuse_steps
from grpo_cli.read.assign_groups import Looked, batched, check_sizes, duplicates, grouped, refuse_rivals
from grpo_cli.read.choose_columns import Asked
from grpo_cli.read.group_keys import STEP_LIKE, encode, firsts
from grpo_cli.read.tables import Narrow, broken
from grpo_cli.read.warnings import suspicions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Self

    from grpo_cli.engine.plan import Plan
    from grpo_cli.formats.interface import Field
    from grpo_cli.read.apply_schema import Bound
    from grpo_cli.read.group_keys import Coded
    from grpo_cli.read.tables import Binding, Table


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


def read(tables: Sequence[Table], binding: Binding, plan: Plan) -> Narrow:
    """Read what the plan needs and say which rows belong together."""
    return _read(bound(tables, binding, plan), plan)


def _read(seen: Bound, plan: Plan) -> Narrow:
    tables = seen.tables
    names = list(dict.fromkeys(name for table in tables for name in table.columns()))
    if not names:
        raise DataError(f"{tables[0].name}: no rows with a column", "there is nothing to compute from")
    asked = Asked.of(seen, plan, names)
    frames = [_scanned(table, asked.fields, asked.unasked) for table in tables]
    if {*STEP_LIKE} & {name for table in tables for name in table.columns()} - {*names}:
        return _read(seen, plan)  # a step that only late lines hold tells groups apart as well
    lengths = tuple(len(frame) for frame in frames)
    if not sum(lengths):
        raise DataError(f"{tables[0].name}: no rows", "there is nothing to compute")
    columns = {one.name: _joined([frame.drop_in_place(one.name) for frame in frames]) for one in asked.fields}
    looked = Looked(tables, lengths, columns, asked.group, asked.steps, asked.roles, seen.words)
    return _narrow(seen, plan, asked, looked)


def _narrow(seen: Bound, plan: Plan, asked: Asked, looked: Looked) -> Narrow:
    """Say which rows belong together, and leave out what stands alone where that was asked for."""
    binding, columns = seen.binding, looked.columns
    refuse_rivals(looked, asked.rivals)
    coded, partial = grouped(looked, binding)
    batch, batch_name = batched(looked, binding, plan, coded)
    refuse_steps(seen, columns, coded.codes, plan)
    warnings = duplicates(coded, columns[asked.sample]) if asked.sample and asked.sample not in asked.group else ()
    check_sizes(looked, binding, plan, coded, partial)
    declared = seen.declared(columns, asked.rewards)
    table = narrow_table(looked, coded, batch, asked.rewards, declared)
    warnings += broken(looked.tables)
    warnings += suspicions(looked, binding, coded, _logged(seen, columns, table))
    beside = pl.DataFrame([columns[name] for name in binding.carried])
    rows = _Rows(table, looked.key(), beside, declared, coded, batch)
    kept = None if partial is None else np.flatnonzero(~partial)
    if kept is not None:
        rows = rows.at(kept)
    return Narrow(
        table=rows.table, tables=looked.tables, lengths=looked.lengths, groups=rows.groups,
        key=firsts(rows.key, rows.groups) if rows.key.width else rows.key, batches=rows.batches.size,
        group_names=asked.group, reward_names=asked.rewards, batch_name=batch_name, roles=asked.roles,
        warnings=warnings, rows=kept, carried=rows.carried,
        notes=(*seen.notes, asked.note, f"reward = {' + '.join(asked.rewards)}"),
        schema=None if seen.schema is None else seen.schema.title, declared=rows.declared,
    )  # fmt: skip


class _Rows(NamedTuple):
    """What was read, row by row, and how the rows are numbered."""

    table: pl.DataFrame
    key: pl.DataFrame
    carried: pl.DataFrame
    declared: pl.Series | None
    groups: Coded
    batches: Coded

    def at(self, kept: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Self:
        """Some of the rows, numbered anew."""
        table = self.table[kept]
        groups, batches = encode([table["group"]], len(table)), encode([table["batch"]], len(table))
        return self._replace(
            table=table.with_columns(group=groups.codes, batch=batches.codes),
            key=self.key[kept] if self.key.width else self.key,
            carried=self.carried[kept] if self.carried.width else self.carried,
            declared=None if self.declared is None else self.declared[kept],
            groups=groups,
            batches=batches,
        )


def _logged(seen: Bound, columns: Mapping[str, pl.Series], table: pl.DataFrame) -> pl.Series | None:
    """The baseline that the trainer's own advantage was made with, where it says so plainly."""
    known = seen.logged in columns and columns[seen.logged].dtype == pl.Float64 and len(seen.binding.rewards) == 1
    return table["reward.0"] - columns[seen.logged] if known else None


def _scanned(table: Table, asked: Sequence[Field], unasked: set[str]) -> pl.DataFrame:
    """The asked columns; one that only we look for may be missing in some of the files."""
    heads = {*table.columns()}
    missing = {name for name in unasked if name not in heads and name.split(".")[0] not in heads}
    while True:
        try:
            found = table.scan([one for one in asked if one.name not in missing])
        except Absent as error:
            if error.column not in unasked - missing:
                raise
            missing.add(error.column)
        else:
            return found.with_columns(pl.lit(None).alias(name) for name in sorted(missing))


def refuse_unscorable(plan: Plan, scorable: pl.Series, narrow: Narrow) -> None:
    """Stop at the first row without a finite reward, when the plan says so."""
    missing = ~scorable if narrow.declared is None else ~(scorable | narrow.declared)
    if plan.rewards.missing != "error" or not missing.any():
        return
    row, count = missing.arg_max() or 0, int(missing.sum())
    values = [narrow.table[f"reward.{k}"][row] for k in range(len(narrow.reward_names))]
    pairs = zip(narrow.reward_names, values, strict=True)
    told = ", ".join(f"{name} is {'null' if value is None else value}" for name, value in pairs)
    more = f" ({count} such rows)" if count > 1 else ""
    raise DataError(
        f"{narrow.place(row)}: {told}, expected a finite number{more}",
        "--missing exclude leaves such rows out, zero gives them 0, as-zero counts them as reward 0",
    )


def refuse_singletons(plan: Plan, scored: pl.Series, narrow: Narrow) -> None:
    """Stop at the first group with one scored row, when the plan says so."""
    lone = scored == 1
    if plan.alone.result != "error" or not lone.any():
        return
    row = lone.arg_max() or 0
    name = narrow.label(int(narrow.table["group"][row]))
    cure = "--singleton zero|raw|unit|nan|null|drop says what becomes of it"
    raise DataError(f"{narrow.place(row)}: the group {name} has a single scored row", cure)


def _joined(parts: Sequence[pl.Series]) -> pl.Series:
    """One column from all files; keys of different types are compared as JSON text, so 1 is not "1"."""
    if len(parts) == 1:
        return parts[0]
    dtypes = {part.dtype for part in parts if part.dtype != pl.Null}
    if len(dtypes) > 1:
        parts = [canonical(part) for part in parts]
    elif dtypes:
        parts = [part.cast(next(iter(dtypes))) if part.dtype == pl.Null else part for part in parts]
    return pl.concat(list(parts), rechunk=True)
