"""Inputs -> narrow table: which columns are read, from which files, in which row order.

Row i of the narrow table is row i of the inputs, file after file. Only what the arithmetic needs is read;
completion text never enters. What was found without being asked for (the key, the reward) is noted, so that
the summary can say it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from grpo_cli.belonging import Looked, batched, check_sizes, duplicates, grouped, named_columns, refuse_rivals
from grpo_cli.bound import bound, refuse_steps
from grpo_cli.errors import DataError, UsageError
from grpo_cli.formats import Field
from grpo_cli.formats.cells import canonical
from grpo_cli.formats.paths import Absent
from grpo_cli.grouping import STEP_LIKE, encode, firsts
from grpo_cli.narrow import Narrow, broken
from grpo_cli.narrowing import narrow_table
from grpo_cli.roles import ROLES
from grpo_cli.suspicions import suspicions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.bound import Bound
    from grpo_cli.formats import Kind
    from grpo_cli.narrow import Binding, Table
    from grpo_cli.plan import Plan

# Ids first; text only where there is no id. Two candidates inside a tier are an error.
GROUP_TIERS: Final = (
    (
        "prompt_id", "group_id", "uid", "prompt_uid", "task_id", "problem_id", "question_id", "example_id",
        "prompt_idx", "group_idx", "group_index", "prompt_index", "doc_id", "row_id",
    ),
    ("prompt", "input", "question", "problem", "messages"),
)  # fmt: skip
BY_TEXT: Final = "(found by name, no id beside it)"
REWARD_TIERS: Final = (
    ("reward",),
    ("rewards", "score", "total_reward", "final_reward", "reward_score"),
    ("acc", "is_correct", "correct"),
)
# Often the id of a row, sometimes that of a prompt: beside a key that is only text it has to be looked at.
ROW_IDS: Final = ("id", "uuid", "idx", "index", "qid", "sample_uid")
LISTED: Final = 12  # columns that a message lists
SAMPLE_IDS: Final = ("sample", "sample_id", "sample_idx", "rollout_idx", "completion_id", "traj_idx")


def read(tables: Sequence[Table], binding: Binding, plan: Plan) -> Narrow:
    """Read what the plan needs and say which rows belong together."""
    return _read(bound(tables, binding, plan), plan)


def _read(seen: Bound, plan: Plan) -> Narrow:
    tables, binding = seen.tables, seen.binding
    names = list(dict.fromkeys(name for table in tables for name in table.columns()))
    if not names:
        raise DataError(f"{tables[0].name}: no rows with a column", "there is nothing to compute from")
    group, note = _group_names(binding, names)
    note = f"group = {seen.words}" if seen.words else note
    rewards = binding.rewards or (_pick("reward", REWARD_TIERS, names, "--reward"),)
    _check_weights(plan, rewards)
    roles = roles_of(binding, plan)
    repeats = () if seen.schema is None else seen.schema.repeats
    steps: list[str] = [name for name in STEP_LIKE if name in names and name not in repeats]
    sample: str | None = next((name for name in SAMPLE_IDS if name in names), None)
    rivals = [name for name in ROW_IDS if name in names] if note.endswith(BY_TEXT) else []
    looked_for = [*steps, *([sample] if sample else []), *rivals, *seen.looked_for]
    asked = _fields(group, rewards, roles, [*looked_for, *named_columns(binding)])
    unasked = {*looked_for} - {*group, *rewards, *roles.values(), *named_columns(binding)}
    extra = _extra(seen, {one.name for one in asked})
    asked += extra
    unasked |= {one.name for one in extra} & {*names}
    frames = [_scanned(table, asked, unasked) for table in tables]
    if {*STEP_LIKE} & {name for table in tables for name in table.columns()} - {*names}:
        return _read(seen, plan)  # a step that only late lines hold tells groups apart as well
    lengths = tuple(len(frame) for frame in frames)
    if not sum(lengths):
        raise DataError(f"{tables[0].name}: no rows", "there is nothing to compute")
    columns = {one.name: _joined([frame.drop_in_place(one.name) for frame in frames]) for one in asked}
    looked = Looked(tables, lengths, columns, group, steps, roles, seen.words)
    refuse_rivals(looked, rivals)
    coded, partial = grouped(looked, binding)
    batch, batch_name = batched(looked, binding, plan, coded)
    refuse_steps(seen, columns, coded.codes, plan)
    warnings = duplicates(coded, columns[sample]) if sample and sample not in group else ()
    check_sizes(looked, binding, plan, coded, partial)
    declared = seen.declared(columns, rewards)
    table, rows = narrow_table(looked, coded, batch, rewards, declared), None
    warnings += broken(tables)
    warnings += suspicions(looked, binding, coded, _logged(seen, columns, table))
    beside = pl.DataFrame([columns[name] for name in binding.carried])
    key = looked.key()
    if partial is not None:
        rows = np.flatnonzero(~partial)
        table = table.filter(~partial)
        key = key.filter(~partial) if key.width else key
        beside = beside.filter(~partial) if beside.width else beside
        declared = None if declared is None else declared.filter(~partial)
        coded, batch = encode([table["group"]], len(table)), encode([table["batch"]], len(table))
        table = table.with_columns(group=coded.codes, batch=batch.codes)
    key = firsts(key, coded) if key.width else key
    own = (note, f"reward = {' + '.join(rewards)}")
    return Narrow(
        table=table, tables=tables, lengths=lengths, groups=coded, key=key, batches=batch.size,
        group_names=group, reward_names=rewards, batch_name=batch_name, roles=roles, warnings=warnings, rows=rows,
        carried=beside, notes=(*seen.notes, *own), schema=None if seen.schema is None else seen.schema.title,
        declared=declared,
    )  # fmt: skip


def _extra(seen: Bound, asked: set[str]) -> list[Field]:
    """Columns that come along, and the trainer's own advantage where it tells something of the groups."""
    kinds: dict[str, Kind] = {**seen.binding.carried, **({seen.logged: "number"} if seen.logged else {})}
    return [Field(name, kind) for name, kind in kinds.items() if name not in asked]


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


# --- names ---------------------------------------------------------------------------------------------


def _group_names(binding: Binding, names: Sequence[str]) -> tuple[tuple[str, ...], str]:
    if binding.group:
        group = tuple(dict.fromkeys(binding.group))
        return group, f"group = {', '.join(group)}"
    if binding.group_size is not None:
        return (), f"group = blocks of {binding.group_size} rows"
    found = _pick("group key", GROUP_TIERS, names, "--group")
    return (found,), f"group = {found} {BY_TEXT if found in GROUP_TIERS[-1] else '(found by name)'}"


def _pick(what: str, tiers: Sequence[Sequence[str]], names: Sequence[str], flag: str) -> str:
    """The one known name in the first tier that has any; ambiguity is the user's to resolve."""
    for tier in tiers:
        found = [name for name in tier if name in names]
        if len(found) > 1:
            raise DataError(f"several columns could be the {what}: {', '.join(found)}", f"choose with {flag} NAME")
        if found:
            return found[0]
    shown = ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "")
    raise DataError(f"no column looks like the {what} (columns: {shown})", f"name it with {flag} NAME")


def roles_of(binding: Binding, plan: Plan) -> dict[str, str]:
    """Column of each extra quantity: those that the plan needs, and the optional ones that were named."""
    bound = dict(binding.roles)
    for role in plan.needs:
        if role in bound:
            continue
        spec = ROLES[role]
        equal = ", or --length-column equal when every response counts the same" if role == "length" else ""
        raise UsageError(f"{plan.reader(role)} needs {spec.meaning}", f"name the column with {spec.flag} COLUMN{equal}")
    return bound


def _check_weights(plan: Plan, rewards: Sequence[str]) -> None:
    weights = plan.rewards.weights
    twice = [name for name in rewards if rewards.count(name) > 1]
    if twice:
        raise UsageError(f"the reward column {twice[0]!r} is named twice", "give each column once, with its weight")
    if weights and len(weights) != len(rewards):
        raise UsageError(
            f"{len(weights)} reward weights for {len(rewards)} reward columns", "give --reward COLUMN=WEIGHT for each"
        )


def _fields(group: Sequence[str], rewards: Sequence[str], roles: Mapping[str, str], keys: Sequence[str]) -> list[Field]:
    wanted: dict[str, Kind] = dict.fromkeys((*group, *keys), "key")
    wanted |= {name: ROLES[role].kind for role, name in roles.items() if not (role == "length" and name == "equal")}
    wanted |= dict.fromkeys(rewards, "number")
    return [Field(name, kind) for name, kind in wanted.items()]


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
