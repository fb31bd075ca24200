"""Inputs -> narrow table: which columns are read, from which files, in which row order.

Row i of the narrow table is row i of the inputs, file after file. Only what the arithmetic needs is read;
completion text never enters. What was found without being asked for (the key, the reward) is noted, so that
the summary can say it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, UsageError
from grpo_cli.formats import Field
from grpo_cli.formats.cells import canonical
from grpo_cli.grouping import STEP_LIKE, Coded, blocks, encode, refuse_merge, refuse_nulls, sizes, spanning, within
from grpo_cli.narrow import Narrow, label
from grpo_cli.parts import Alone
from grpo_cli.roles import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
OWN_STEP: Final = "step"  # the one step-like name that may also count the steps of a rollout
SAMPLE_IDS: Final = ("sample", "sample_id", "sample_idx", "rollout_idx", "completion_id", "traj_idx")


def read(tables: Sequence[Table], binding: Binding, plan: Plan) -> Narrow:
    """Read what the plan needs and say which rows belong together."""
    names = list(dict.fromkeys(name for table in tables for name in table.columns()))
    group, note = _group_names(binding, names)
    rewards = binding.rewards or (_pick("reward", REWARD_TIERS, names, "--reward"),)
    _check_weights(plan, rewards)
    roles = _roles(binding, plan)
    steps: list[str] = [name for name in STEP_LIKE if name in names]
    sample: str | None = next((name for name in SAMPLE_IDS if name in names), None)
    rivals = [name for name in ROW_IDS if name in names] if note.endswith(BY_TEXT) else []
    looked_for = [*steps, *([sample] if sample else []), *rivals]
    asked = _fields(group, rewards, roles, [*looked_for, *_named_columns(binding)])
    unasked = {*looked_for} - {*group, *rewards, *roles.values(), *_named_columns(binding)}
    frames = [_scanned(table, asked, unasked) for table in tables]
    if {*STEP_LIKE} & {name for table in tables for name in table.columns()} - {*names}:
        return read(tables, binding, plan)  # a step that only late lines hold tells groups apart as well
    lengths = tuple(len(frame) for frame in frames)
    if not sum(lengths):
        raise DataError(f"{tables[0].name}: no rows", "there is nothing to compute")
    columns = {one.name: _joined([frame[one.name] for frame in frames]) for one in asked}
    file = pl.Series("file", np.repeat(np.arange(len(tables), dtype=np.uint32), lengths))
    looked = _Looked(tables, lengths, columns, file, group, steps, roles)
    _refuse_rivals(looked, rivals)
    coded, partial = _grouped(looked, binding)
    batch, batch_name = _batched(looked, binding, plan, coded)
    warnings = _duplicates(coded, columns[sample]) if sample and sample not in group else ()
    _check_sizes(looked, binding, plan, coded, partial)
    table, rows = _narrow(looked, coded, batch, rewards), None
    key = looked.key()
    if partial is not None:
        rows = np.flatnonzero(~partial)
        table = table.filter(~partial)
        key = key.filter(~partial) if key.width else key
        coded, batch = encode([table["group"]], len(table)), encode([table["batch"]], len(table))
        table = table.with_columns(group=coded.codes, batch=batch.codes)
    key = key[coded.first] if key.width else key
    return Narrow(
        table=table, tables=tables, lengths=lengths, groups=coded, key=key, batches=batch.size,
        group_names=group, reward_names=rewards, batch_name=batch_name, roles=roles, warnings=warnings, rows=rows,
        notes=(note, f"reward = {' + '.join(rewards)}"),
    )  # fmt: skip


def _refuse_rivals(looked: _Looked, rivals: Sequence[str]) -> None:
    """A text is the key only if no id beside it repeats: equal texts need not be one prompt."""
    for name in rivals:
        if encode([looked.columns[name]], looked.rows).size < looked.rows:
            told = ", ".join((*looked.group, name))
            raise DataError(f"several columns could be the group key: {told}", "choose with --group NAME")


def _scanned(table: Table, asked: Sequence[Field], unasked: set[str]) -> pl.DataFrame:
    """The asked columns; one that only we look for may be missing in some of the files."""
    missing = unasked - set(table.columns())
    found = table.scan([one for one in asked if one.name not in missing])
    return found.with_columns(pl.lit(None).alias(name) for name in sorted(missing))


@dataclass(frozen=True, slots=True)
class _Looked:
    """What the scan of all files brought, and the names it goes by."""

    tables: Sequence[Table]
    lengths: tuple[int, ...]
    columns: Mapping[str, pl.Series]
    file: pl.Series
    group: tuple[str, ...]
    steps: Sequence[str]
    roles: Mapping[str, str]

    @property
    def rows(self) -> int:
        return len(self.file)

    def key(self) -> pl.DataFrame:
        return pl.DataFrame([self.columns[name] for name in self.group])

    def labels(self, coded: Coded, codes: Sequence[int]) -> list[str]:
        return [self.label(int(coded.first[code])) for code in codes[:3]]

    def label(self, row: int) -> str:
        return label(self.key(), row, row)

    def place(self, row: int) -> str:
        ends = np.cumsum(self.lengths)
        file = int(np.searchsorted(ends, row, side="right"))
        return self.tables[file].place(row - (int(ends[file - 1]) if file else 0))


def refuse_unscorable(plan: Plan, scorable: pl.Series, narrow: Narrow) -> None:
    """Stop at the first row without a finite reward, when the plan says so."""
    missing = ~scorable
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


def _roles(binding: Binding, plan: Plan) -> dict[str, str]:
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


def _named_columns(binding: Binding) -> list[str]:
    """Columns that --group-within and --batch-by name."""
    given = [binding.group_within, *_batch_names(binding)]
    return [name for name in given if name not in {None, "file", "input"}]


def _batch_names(binding: Binding) -> list[str]:
    return [] if binding.batch_by is None else [name.strip() for name in binding.batch_by.split(",")]


def _fields(group: Sequence[str], rewards: Sequence[str], roles: Mapping[str, str], keys: Sequence[str]) -> list[Field]:
    wanted: dict[str, Kind] = dict.fromkeys((*group, *keys), "key")
    wanted |= {name: ROLES[role].kind for role, name in roles.items() if not (role == "length" and name == "equal")}
    wanted |= dict.fromkeys(rewards, "number")
    return [Field(name, kind) for name, kind in wanted.items()]


def _joined(parts: Sequence[pl.Series]) -> pl.Series:
    """One column from all files; keys of different types are compared as JSON text, so 1 is not "1"."""
    dtypes = {part.dtype for part in parts if part.dtype != pl.Null}
    if len(dtypes) > 1:
        parts = [canonical(part) for part in parts]
    elif dtypes:
        parts = [part.cast(next(iter(dtypes))) if part.dtype == pl.Null else part for part in parts]
    return pl.concat(list(parts), rechunk=True)


# --- groups and batches ----------------------------------------------------------------------------------


def _grouped(looked: _Looked, binding: Binding) -> tuple[Coded, np.ndarray[tuple[int], np.dtype[np.bool_]] | None]:
    for name in (*looked.group, *_named_columns(binding)):
        null = looked.columns[name].is_null().arg_max() or 0
        refuse_nulls(name, looked.columns[name], looked.place(null))
    coded = encode([looked.columns[name] for name in looked.group], looked.rows)
    if binding.group_within == "file" or (not looked.group and len(looked.tables) > 1):
        coded = within(coded, [looked.file])
    elif binding.group_within not in {None, "input"}:
        coded = within(coded, [looked.columns[str(binding.group_within)]])
    if binding.group_within is None and looked.group:
        _refuse_silent_merge(looked, coded)
    if binding.group_size is None:
        return coded, None
    if binding.group_size < 1:
        raise UsageError(f"a block cannot have {binding.group_size} rows", "--group-size takes 1 or more")
    cut = blocks(coded, binding.group_size)
    return cut, _partial(looked, cut, binding)


def _refuse_silent_merge(looked: _Looked, coded: Coded) -> None:
    key = ",".join(looked.group)
    for name in _comparable_steps(looked):
        if name not in looked.group and (codes := spanning(coded, looked.columns[name])):
            cures = f"--group {key},{name} if ids restart, --group-within input if {name} does not separate groups"
            raise refuse_merge(f"values of {name!r}", codes, looked.labels(coded, codes), cures)
    if len(looked.tables) > 1 and (codes := spanning(coded, looked.file)):
        cures = (
            "--group-within file if ids restart in each, --group-within input if they are shards of one sampling round"
        )
        raise refuse_merge("files", codes, looked.labels(coded, codes), cures)


def _comparable_steps(looked: _Looked) -> list[str]:
    """Step-like columns that tell training steps apart; a `step` that varies inside rollouts counts their own."""
    rollout = looked.roles.get("rollout")
    varying = [name for name in looked.steps if looked.columns[name].n_unique() > 1]
    if rollout is None or OWN_STEP not in varying:
        return varying
    coded = encode([looked.columns[name] for name in (*looked.group, rollout)], looked.rows)
    own = spanning(coded, looked.columns[OWN_STEP])
    return [name for name in varying if name != OWN_STEP or not own]


def _partial(looked: _Looked, coded: Coded, binding: Binding) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
    short = sizes(coded) < (binding.group_size or 0)
    if not short.any() or binding.partial == "keep":
        return None
    if binding.partial == "drop":
        return np.asarray(short[coded.codes.to_numpy()])
    code = int(np.argmax(short))
    row = int(coded.first[code])
    raise DataError(
        f"{looked.place(row)}: the last block has {sizes(coded)[code]} rows, not {binding.group_size}",
        "--partial keep or --partial drop says what to do with it",
    )


def _batched(looked: _Looked, binding: Binding, plan: Plan, coded: Coded) -> tuple[Coded, str]:
    if binding.batch_by is None and plan.uses_batch:
        _refuse_unclear_batch(looked)
    by = binding.batch_by or "input"
    names = [name for name in _batch_names(binding) if name != "input"]
    keys = [looked.file if name == "file" else looked.columns[name] for name in names]
    batch = encode(keys, looked.rows)
    if not plan.estimator.spans_batches and (codes := spanning(coded, batch.codes)):
        cure = f"a group belongs to one batch: add {by} to --group, or use --batch-by input"
        raise refuse_merge(f"batches of {by!r}", codes, looked.labels(coded, codes), cure)
    return batch, by


def _refuse_unclear_batch(looked: _Looked) -> None:
    cure = "--batch-by {0} normalises each on its own, --batch-by input takes all rows as one batch"
    for name in _comparable_steps(looked):
        count = looked.columns[name].n_unique()
        raise DataError(f"the plan needs a batch, and the rows have {count} values of {name!r}", cure.format(name))
    if len(looked.tables) > 1:
        raise DataError(f"the plan needs a batch, and there are {len(looked.tables)} files", cure.format("file"))


def _check_sizes(
    looked: _Looked,
    binding: Binding,
    plan: Plan,
    coded: Coded,
    partial: np.ndarray[tuple[int], np.dtype[np.bool_]] | None,
) -> None:
    if binding.expect_size is not None:
        _refuse_other_sizes(looked, binding, coded, partial)
    lone = coded.size == _units(looked, plan, coded) > 1 and plan.estimator.min_group > 1
    if lone and plan.baseline_level == "group" and not binding.singletons_meant and plan.alone == Alone():
        key = ", ".join(looked.group) or "the block size"
        raise DataError(
            f"every group has a single {'row' if plan.unit.take == 'each' else 'rollout'}: "
            f"{key} may be an id of the rollout, not of the prompt",
            "name the prompt's column with --group, or say --singleton zero if there is one sample a prompt",
        )


def _refuse_other_sizes(
    looked: _Looked, binding: Binding, coded: Coded, partial: np.ndarray[tuple[int], np.dtype[np.bool_]] | None
) -> None:
    counts = sizes(coded)
    dropped = (counts < (binding.group_size or 0)) if partial is not None else np.zeros(len(counts), dtype=bool)
    wrong = np.flatnonzero((counts != binding.expect_size) & ~dropped)
    if len(wrong):
        first = int(coded.first[int(wrong[0])])
        raise DataError(
            f"{looked.place(first)}: {looked.label(first)} has {counts[wrong[0]]} rows, not {binding.expect_size} "
            f"({len(wrong)} such groups of {coded.size})",
            "the sampler may have stopped early; leave out --expect-size to go on",
        )


def _units(looked: _Looked, plan: Plan, coded: Coded) -> int:
    """How many rewards there are to compare: rows, or rollouts where they count once."""
    rollout = looked.roles.get("rollout")
    if plan.unit.take == "each" or rollout is None:
        return looked.rows
    return encode([coded.codes, looked.columns[rollout]], looked.rows).size


def _duplicates(coded: Coded, sample: pl.Series) -> tuple[str, ...]:
    known = sample.is_not_null()
    codes, samples = coded.codes.filter(known), sample.filter(known)
    if not samples.dtype.is_integer():
        samples = canonical(samples).cast(pl.Categorical).to_physical()
    # One number per pair: numbering pairs of columns took seven times as long.
    pairs = codes.cast(pl.UInt64) * 4_294_967_296 + (samples.cast(pl.Int64) % 4_294_967_296).cast(pl.UInt64)
    twice = len(pairs) - pairs.n_unique()
    if not twice:
        return ()
    return (f"{twice:,} rows repeat a {sample.name} inside their group: rollouts may have been written twice",)


# --- the table -------------------------------------------------------------------------------------------


def _narrow(looked: _Looked, coded: Coded, batch: Coded, rewards: Sequence[str]) -> pl.DataFrame:
    columns = [coded.codes.alias("group"), batch.codes.alias("batch")]
    columns += [looked.columns[name].alias(f"reward.{k}") for k, name in enumerate(rewards)]
    for role, name in looked.roles.items():
        columns.append(_role_column(looked, coded, role, name))
    return pl.DataFrame(columns).with_columns(
        pl.lit(ROLES[role].default).alias(role) for role in ("input_length", "turns") if role not in looked.roles
    )


def _role_column(looked: _Looked, coded: Coded, role: str, name: str) -> pl.Series:
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
