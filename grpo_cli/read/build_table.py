"""Tables to rows that know their group: which columns are read, from which files, in which row order.

Row i of the narrow table is row i of the inputs, file after file. Only what the arithmetic needs is read;
completion text never enters. What was found without being named (the key, the reward) is noted, so that
the summary can say it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import numpy as np
import polars as pl

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.errors import DataError
from grpo_cli.formats.cells import as_number, canonical
from grpo_cli.formats.interface import Field
from grpo_cli.formats.paths import Absent
from grpo_cli.read.apply_schema import apply_schema
from grpo_cli.read.assign_groups import (
    Scan,
    assign_batches,
    assign_groups,
    check_keys,
    check_sizes,
    comparable_steps,
    refuse_only_singletons,
    refuse_rivals,
    refuse_unclear_batch,
    repeated_samples,
    units,
)
from grpo_cli.read.choose_columns import choose_columns
from grpo_cli.read.group_keys import CountedError, blocks, encode, firsts
from grpo_cli.read.known_names import REWARD_TIERS, STEP_LIKE
from grpo_cli.read.memory import refuse_beyond_memory
from grpo_cli.read.prompt_check import mixed_error
from grpo_cli.read.tables import SHOWN, FileTable, Narrow, broken, without_rollouts
from grpo_cli.read.warnings import Draws, size_by_advantages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from grpo_cli.engine.plan import Plan
    from grpo_cli.read.apply_schema import Layout
    from grpo_cli.read.assign_groups import BatchCodes
    from grpo_cli.read.choose_columns import Columns
    from grpo_cli.read.group_keys import Coded
    from grpo_cli.read.tables import Binding, Table

Found = TypeVar("Found")


class OverTables(Protocol):
    """Work on each of some tables, in their order: `map`, or what does the same elsewhere."""

    def __call__(self, work: Callable[[Table], Found], tables: Iterable[Table], /) -> Iterable[Found]:
        """What the work gives for each."""


LARGEST: Final = 1e100  # of rewards: sums of squares, cubes, and what weights and shapes make of them are numbers


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read and how its rows are put together: what was named, and what was found by schema and by name."""

    plan: Plan
    layout: Layout
    chosen: Columns
    key_is_named: bool
    reward_is_named: bool
    warn: bool  # somebody looks for groups that look wrong
    may_cut: bool = True  # groups are cut where the trainer's own advantages say that they are several


def choose(tables: Sequence[Table], binding: Binding, plan: Plan, *, warn: bool = True) -> Reading:
    """Choose what is read, by the names that the tables have; without `warn` nobody looks for groups that look wrong."""
    layout = apply_schema(tables, binding, plan)
    named = bool(binding.group or binding.group_size), bool(layout.binding.rewards)
    names = list(dict.fromkeys(name for table in tables for name in table.columns()))
    if not names:
        raise DataError(f"{tables[0].name}: no rows with a column", "there is nothing to compute from")
    return Reading(plan, layout, choose_columns(layout, plan, names, warn=warn), *named, warn)


def choose_again(reading: Reading, names: Iterable[str]) -> Reading | None:
    """The same with names that reading has shown; None where nothing more is to be read.

    A step that only late lines of a file hold tells groups apart as well: it is read, too.
    """
    late = [name for name in names if name not in reading.chosen.names]
    if not {*STEP_LIKE} & {*late}:
        return None
    known = [*reading.chosen.names, *late]
    return replace(reading, chosen=choose_columns(reading.layout, reading.plan, known, warn=reading.warn))


def read(
    tables: Sequence[Table],
    binding: Binding,
    plan: Plan,
    *,
    warn: bool = True,
    whole: bool = True,
    over: OverTables = map,
) -> Narrow:
    """Read what the plan needs and say which rows belong together; without `warn` nobody looks for groups that look wrong.

    What only all rows can show is not said of tables that are not the `whole` input. `over` does the reading of each table.
    """
    reading, scan = _scan(choose(tables, binding, plan, warn=warn), over)
    layout, chosen = reading.layout, reading.chosen
    if not reading.reward_is_named:
        refuse_empty_reward(scan.tables, chosen.rewards[0], scan.columns[chosen.rewards[0]].null_count(), scan.rows)
    refuse_rivals(scan, chosen.rivals)
    check_keys(scan, layout.binding)
    made = narrow(scan, reading)
    if whole and not len(made.table):
        raise none_left(tables, scan.rows)
    return replace(made, warnings=(*made.warnings, *unused_outcomes(scan.unused))) if whole else made


def none_left(tables: Sequence[Table], rows: int) -> DataError:
    """The error for so many rows of which none is in a whole block."""
    return DataError(f"{tables[0].name}: no rows", f"{rows:,} were dropped as too few for a block")


def unused_outcomes(texts: Sequence[str]) -> tuple[str, ...]:
    """A warning of texts of --map that are in no row, if there are any."""
    return (f"--map names {', '.join(map(repr, texts))}, which no row has",) if texts else ()


def narrow(scan: Scan, reading: Reading, batches: BatchCodes | None = None) -> Narrow:
    """Say which of the rows that were read belong together.

    Of a part of the rows, in which all groups are whole, `batches` numbers the batches as they are numbered in all rows;
    what only all rows can show is left to the caller.
    """
    plan, layout, chosen = reading.plan, reading.layout, reading.chosen
    binding, columns = layout.binding, scan.columns
    groups, remainder = assign_groups(scan, binding)
    mixed = prompts_in_one_group(scan, groups, named=reading.key_is_named)
    logged = columns[layout.logged] if layout.logged in columns and columns[layout.logged].dtype == pl.Float64 else None
    size = None
    may_cut = reading.may_cut and not reading.key_is_named
    if layout.schema is not None and layout.schema.one_size and logged is not None and may_cut:
        size = size_by_advantages(groups, logged)
        groups, binding = (
            (groups, binding) if size is None else (blocks(groups, size), replace(binding, group_size=size))
        )
    if batches is None and binding.batch_by is None and plan.uses_batch:
        steps = {name: columns[name].n_unique() for name in comparable_steps(scan)}
        refuse_unclear_batch(steps, len(scan.tables))
    batch, batch_name = assign_batches(scan, binding, plan, groups, batches or encode)
    layout.refuse_steps(columns, groups.codes, plan)
    check_sizes(scan, binding, groups, remainder)
    if batches is None and groups.size == units(scan, plan, groups) > 1:
        refuse_only_singletons(scan.group, scan.key_words, binding, plan)
    declared_unscorable = layout.declared_unscorable(columns, chosen.rewards)
    _refuse_huge(scan, chosen.rewards)
    table = _narrow_table(scan, groups, batch, chosen.rewards, declared_unscorable)
    warnings = mixed
    if chosen.sample is not None and chosen.sample not in chosen.group:
        warnings += repeated_samples(groups, columns[chosen.sample])
    empty = [sum(one.source.empty_records) if isinstance(one, FileTable) else 0 for one in scan.tables]
    warnings += broken(scan.tables) + without_rollouts([one.name for one in scan.tables], empty)
    draws = None
    if reading.warn and not mixed and scan.group and binding.group_size is None:
        # The baseline that the trainer's own advantage was made with, where it says so plainly.
        baseline = None
        if layout.schema is not None and layout.schema.centred and logged is not None and len(binding.rewards) == 1:
            baseline = table["reward.0"] - logged
        draws = Draws.of(groups, baseline, scan.numbers)
        if batches is None:
            warnings += draws.warnings(scan.key_words or ", ".join(scan.group), scan.group, named=bool(binding.group))
    numbers = scan.numbers
    key, carried, rows = scan.key(), pl.DataFrame([columns[name] for name in binding.carried]), None
    if remainder is not None:  # the last blocks are left out, and what is left is numbered anew
        rows = np.flatnonzero(~remainder)
        table = table[rows]
        groups = encode([table["group"]], len(table))
        if batches is None:
            batch = encode([table["batch"]], len(table))
        table = table.with_columns(group=groups.codes, batch=batch.codes if batches is None else table["batch"])
        key, carried = (frame[rows] if frame.width else frame for frame in (key, carried))
        declared_unscorable = None if declared_unscorable is None else declared_unscorable[rows]
        numbers = None if numbers is None else numbers[rows]
    return Narrow(
        table=table, tables=scan.tables, lengths=scan.lengths, groups=groups,
        key=firsts(key, groups) if key.width else key, batches=batch.size,
        group_names=chosen.group, reward_names=chosen.rewards, batch_name=batch_name, roles=chosen.roles,
        warnings=warnings, rows=rows, carried=carried,
        notes=(
            *layout.notes, *([] if size is None else [f"groups are cut into blocks of {size} rows: the logged advantages of each add up to 0"]),
            chosen.note, f"reward = {' + '.join(chosen.rewards)}",
        ),
        schema=None if layout.schema is None else layout.schema.title, declared_unscorable=declared_unscorable,
        numbers=numbers, draws=draws, cut_size=size, outcomes=binding.outcomes,
    )  # fmt: skip


def refuse_empty_reward(tables: Sequence[Table], name: str, nulls: int, rows: int) -> None:
    """Refuse a reward that was found by name and is mostly null, where another column of such a name is filled."""
    if 2 * nulls <= rows:
        return
    known = [one for tier in REWARD_TIERS for one in tier if one != name]
    there = {*known} & {one for table in tables for one in table.columns()}
    for other in (one for one in known if one in there):
        try:
            filled = sum(table.scan([Field(other, "number")])[other].count() for table in tables)
        except DataError:
            continue  # no numbers, or not in every file
        if 2 * filled > rows:
            wrong = f"{name} is null in {nulls:,} of {rows:,} rows, and {other} is filled"
            raise DataError(wrong, f"--reward={other} takes that one, --reward={name} keeps this one")


def prompts_in_one_group(scan: Scan, groups: Coded, *, named: bool) -> tuple[str, ...]:
    """A warning where groups hold several prompts; if nobody named their key it is an error."""
    mixed = scan.mixed_prompts(groups)
    if mixed is None:
        return ()
    key, label = scan.key_words or ", ".join(scan.group) or "the block size", scan.label(int(groups.first[mixed.code]))
    if not named:
        raise mixed_error(mixed, key, scan.group, label)
    return (mixed.words(key, label),)


def _scan(reading: Reading, over: OverTables) -> tuple[Reading, Scan]:
    """Read the chosen columns, and those that reading shows to be needed."""
    tables = reading.layout.tables
    while True:
        chosen = reading.chosen
        refuse_beyond_memory(tables, len(chosen.fields))
        frames = list(over(partial(columns_of, chosen=chosen), tables))
        more = choose_again(reading, dict.fromkeys(name for table in tables for name in table.columns()))
        if more is None:
            break
        reading = more
    lengths = tuple(len(frame) for frame in frames)
    if not sum(lengths):
        raise DataError(f"{tables[0].name}: no rows", "there is nothing to compute")
    columns = {one.name: joined([frame.drop_in_place(one.name) for frame in frames]) for one in chosen.fields}
    return reading, scan_of(reading, tables, lengths, columns)


def scan_of(reading: Reading, tables: Sequence[Table], lengths: tuple[int, ...], columns: dict[str, pl.Series]) -> Scan:
    """Columns that were read of these tables; rewards that are words become what they count as."""
    layout, chosen = reading.layout, reading.chosen
    scan = Scan(
        tables, lengths, columns, chosen.group, chosen.steps, chosen.roles,
        layout.key_words, chosen.prompts, chosen.others,
    )  # fmt: skip
    unused = dict.fromkeys(layout.binding.outcomes)
    if unused:
        columns |= {name: _counted(scan, name, layout.binding.outcomes, unused) for name in chosen.rewards}
    return replace(scan, unused=tuple(unused))


def _counted(scan: Scan, name: str, outcomes: Mapping[str, float], unused: dict[str, None]) -> pl.Series:
    """A reward column with numbers for its texts, which are no longer `unused`; one that is neither named nor a number is an error."""
    column = scan.columns[name]
    texts = canonical(column).str.strip_chars('"') if column.dtype != pl.String else column
    known: dict[str, float | None] = dict(outcomes)
    for text in texts.drop_nulls().unique(maintain_order=True):
        unused.pop(text, None)
        try:
            known[text] = known[text] if text in known else as_number(text)
        except ValueError:
            row = (texts == text).arg_max() or 0
            if text.startswith("["):
                wrong = f"{scan.place(row)}: {name} is the list {text[:SHOWN]}, and --map names texts"
                cure = f"write a row for each, or objects in a list: --reward '{name}[].outcome'"
                raise DataError(wrong, cure) from None
            wrong = f"{scan.place(row)}: {name} is {text[:SHOWN]!r}, which --map does not name"
            raise DataError(wrong, f"add what it counts as: --map '{text[:SHOWN]}=NUMBER'") from None
    return texts.replace_strict(list(known), list(known.values()), return_dtype=pl.Float64).alias(name)


def columns_of(table: Table, chosen: Columns) -> pl.DataFrame:
    """The chosen columns of one table; an optional one may be missing, and is null then."""
    heads = {*table.columns()}
    missing = {name for name in chosen.optional if name not in heads and name.split(".")[0] not in heads}
    while True:
        try:
            frame = table.scan([one for one in chosen.fields if one.name not in missing])
        except Absent as error:
            if error.column not in chosen.optional - missing:
                raise
            missing.add(error.column)
        else:
            return frame.with_columns(pl.lit(None).alias(name) for name in sorted(missing))


def joined(parts: Sequence[pl.Series]) -> pl.Series:
    """One column from all files; keys of different types are compared as JSON text, so 1 is not "1"."""
    if len(parts) == 1:
        return parts[0]
    dtypes = {part.dtype for part in parts if part.dtype != pl.Null}
    if len(dtypes) > 1:
        parts = [canonical(part) for part in parts]
    elif dtypes:
        parts = [part.cast(next(iter(dtypes))) if part.dtype == pl.Null else part for part in parts]
    return pl.concat(list(parts), rechunk=True)


def _refuse_huge(scan: Scan, rewards: Sequence[str]) -> None:
    """Refuse rewards whose squares, or sums of squares, are no numbers: each advantage of their groups would be 0 or NaN."""
    for name in rewards:
        column = scan.columns[name]
        ends: list[Any] = [column.min(), column.max()]
        if max((abs(end) for end in ends if end is not None), default=0.0) > LARGEST:
            huge = column.is_finite() & (column.abs() > LARGEST)
            if huge.any():
                row = huge.arg_max() or 0
                raise DataError(
                    f"{scan.place(row)}: {name} is {column[row]:g}, the largest reward is {LARGEST:g}",
                    "its square would be no number; is it a mark for a missing reward?",
                )


def _narrow_table(
    scan: Scan, groups: Coded, batches: Coded, rewards: Sequence[str], declared_unscorable: pl.Series | None
) -> pl.DataFrame:
    """Codes of groups and batches, the rewards, and the extra columns under the names of their roles."""
    values = [scan.columns[name].alias(f"reward.{k}") for k, name in enumerate(rewards)]
    if declared_unscorable is not None and declared_unscorable.any():
        values = pl.select(pl.when(~declared_unscorable).then(one).alias(one.name) for one in values).get_columns()
    columns = [groups.codes.alias("group"), batches.codes.alias("batch"), *values]
    columns += [_role_column(scan, groups, role, name) for role, name in scan.roles.items()]
    return pl.DataFrame(columns).with_columns(
        pl.lit(ROLES[role].default).alias(role) for role in ("input_length", "turns") if role not in scan.roles
    )


def _role_column(scan: Scan, groups: Coded, role: str, name: str) -> pl.Series:
    if role == "length" and name == "equal":
        return pl.ones(scan.rows, dtype=pl.Float64, eager=True).alias(role)
    column = scan.columns[name]
    for what, wrong in _unusable(column, role):
        if wrong.any():
            row = wrong.arg_max() or 0
            raise DataError(f"{scan.place(row)}: {name} is {what}", f"it is read as {ROLES[role].meaning}")
    if ROLES[role].kind != "key":
        return column.cast(pl.Boolean).alias(role) if role == "truncated" else column.alias(role)
    keys = [groups.codes, column] if role == "rollout" else [column]
    return encode(keys, scan.rows).codes.alias(role)


def _unusable(column: pl.Series, role: str) -> Iterator[tuple[str, pl.Series]]:
    """What an extra column must not hold: there is no number to compute with."""
    yield "null", column.is_null()
    if column.dtype == pl.Float64:
        yield "not finite", ~column.is_finite()
        if role in {"length", "input_length", "turns"}:
            yield "negative", column < 0
    if column.dtype == pl.List(pl.Float64):
        finite = pl.element().is_finite().fill_null(value=False)
        yield "a list with null or NaN in it", column.list.eval(~finite).list.any()
        yield "an empty list", column.list.len() == 0


def refuse_unscorable(plan: Plan, scorable: pl.Series, narrow: Narrow) -> None:
    """Stop at the first row without a finite reward, when the plan says so."""
    missing = ~scorable if narrow.declared_unscorable is None else ~(scorable | narrow.declared_unscorable)
    if plan.rewards.missing != "error" or not missing.any():
        return
    row, count = missing.arg_max() or 0, int(missing.sum())
    values = [narrow.table[f"reward.{k}"][row] for k in range(len(narrow.reward_names))]
    pairs = zip(narrow.reward_names, values, strict=True)
    shown = ", ".join(f"{name} is {'null' if value is None else value}" for name, value in pairs)
    raise CountedError.of(
        f"{narrow.place(row)}: {shown}, expected a finite number",
        (count,),
        such_rows,
        "--missing exclude leaves such rows out, zero gives them 0, as-zero counts them as reward 0",
    )


def such_rows(count: int) -> str:
    """How many rows there are like the one that was named, if there are more."""
    return f" ({count} such rows)" if count > 1 else ""


def refuse_singletons(plan: Plan, scored: pl.Series, narrow: Narrow) -> None:
    """Stop at the first group with one scored row, when the plan says so."""
    singletons = scored == 1
    if plan.alone.result != "error" or not singletons.any():
        return
    row = singletons.arg_max() or 0
    name = narrow.label(int(narrow.table["group"][row]))
    cure = "--singleton zero|raw|unit|nan|null|drop says what becomes of it"
    raise DataError(f"{narrow.place(row)}: the group {name} has a single scored row", cure)
