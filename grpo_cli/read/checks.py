"""Checks of rows and groups. A check is a function that takes the groups and raises an error or returns warnings.

`CHECKS` lists them in order: the first error wins. Checks that need scored rows are at the end of this file.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.group_stats import Mask, finite_rows, group_extremes, group_means
from grpo_cli.engine.moments import Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Alone
from grpo_cli.errors import DataError, UsageError
from grpo_cli.read.columns import Columns
from grpo_cli.read.group_keys import (
    SHOWN,
    Coded,
    parts_of_each,
    refuse_missing,
    repeats,
    sizes,
    spanning,
    usual,
    within,
)
from grpo_cli.read.groups import Groups, group, id_words, in_rows, is_one_dataset, rollouts_by, with_rollouts
from grpo_cli.read.known_names import (
    CONVERSATIONS,
    DRAW_LIKE,
    IDS_OF_TURNS,
    OWN_STEP,
    PROMPT_TEXTS,
    ROLLOUT_NUMBER,
    TEXTS,
    TIME,
)
from grpo_cli.read.layout import inside_of_record
from grpo_cli.read.marks import as_number, none_left, unread, useless
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.prompt_check import is_empty, mixed_error, prompt_of
from grpo_cli.read.repeated_draws import (
    Draws,
    Suspicion,
    by_baselines,
    is_several_rows_a_rollout,
    numberings,
    size_by_samples,
)
from grpo_cli.read.tables import column_names
from grpo_cli.values.cells import JSON_TEXT, canonical
from grpo_cli.values.chat import responds
from grpo_cli.values.paths import absent, as_value

Check = Callable[[Groups], Sequence[str] | None]
AT_LIMIT = ("is_truncated", "finish_reason")  # marks of responses that reached the longest length
FOLLOWED = 4096  # groups that are looked at, at most: whose logged advantages follow the rewards, whose keys end with an answer
# Distance of logged advantages from a line in the reward, relative to the largest: float32 leaves less.
LINEAR = 1e-3
PROMPT_ID_OR_BLOCKS = (
    "name the column of the prompt's id with --group; give --group-size N if the samples of a prompt are consecutive"
)
LARGEST = 1e100  # reward: up to here sums of squares and cubes stay finite, even after weights and shaping


def check(groups: Groups, checks: Sequence[Check]) -> tuple[str, ...]:
    """The warnings of all checks, in their order.

    They look at the rows that meet --rows, as if the input had no others; those that ask whether marks or groups are of any use at all
    look at all rows.
    """
    marked = groups.columns.marked
    others = groups
    if marked is not None and not marked.met.all():
        checks = sorted(checks, key=lambda function: function is not useless_marks)
        if marked.met.any() and groups.rule.size is None:  # blocks are cut from all rows
            met = groups.columns.at(marked.met.arg_true().to_numpy())
            others = with_rollouts(group(met, groups.rule))
    warnings = list[str]()
    for function in checks:
        looks_at_all = function in {useless_marks, only_singletons}
        warnings += function(groups if looks_at_all else others) or ()
    return tuple(warnings)


# --- keys --------------------------------------------------------------------------------------------------


def ids_beside_a_text(groups: Groups) -> None:
    """Refuse a text as the key if an id beside it groups the rows differently: equal texts may be different prompts."""
    columns = groups.columns
    request = groups.request
    for name in request.for_checks.ids:
        by_id = columns.coded([name])
        by_text = columns.coded(request.key)
        if by_id.size < columns.height and not by_id.codes.equals(by_text.codes):
            names = ", ".join((*request.key, name))
            raise DataError(f"several columns could be the group key: {names}", "choose with --group NAME")


def missing_keys(groups: Groups) -> None:
    """Refuse rows without a key, or without a value in a column that divides groups or batches."""
    for name in (*groups.rule.key, *groups.rule.named_columns):
        refuse_missing(name, groups.columns.values[name], groups.columns.place)


def one_record(groups: Groups) -> None:
    """Refuse a single row whose key is a list or an object that is no chat: usually a document with the rows inside."""
    columns = groups.columns
    for name in groups.rule.key if columns.height == 1 else ():
        key = columns.values[name]
        value = json.loads(key[0]) if key.dtype == JSON_TEXT else key.to_list()[0]
        of_objects = isinstance(value, list) and any(isinstance(item, dict) for item in value)
        is_chat = prompt_of(value) is not None and (of_objects or isinstance(value, dict))
        if isinstance(value, (list, dict)) and not is_chat:
            what = "a list of objects" if of_objects else "a list"
            if isinstance(value, dict):
                what = "an object"
            hint = "the rows may be inside the record: write each on its own line; name another key with --group"
            wrong = f"{columns.place(0)}: the file has one row, and its key {name} is {what}"
            raise DataError(wrong, [*inside_of_record(columns.tables), hint])


def empty_keys(groups: Groups) -> None:
    """Refuse a prompt as the key if it is empty in every row."""
    columns = groups.columns
    rule = groups.rule
    prompts = [name for name in rule.key if name.partition(".")[0] in PROMPT_TEXTS]
    if rule.key_is_named or not prompts or groups.by_key.size == columns.height:
        return
    first = groups.by_key.first
    for rows in (first.head(1), first):  # usually the first key is not empty, and settles it
        for name in prompts:
            texts = canonical(columns.values[name].gather(rows))
            if not all(map(is_empty, texts)):
                return
    wrong = f"{', '.join(prompts)} is empty in all {columns.height:,} rows: nothing distinguishes the prompts"
    raise DataError(wrong, PROMPT_ID_OR_BLOCKS, place=columns.place(0))


# --- groups that merge several ------------------------------------------------------------------------


def answers_in_key(groups: Groups) -> None:
    """Refuse a conversation that was found as the key if it ends with the answer: rows of a prompt with other answers are other groups.

    Beside a column of responses, the last turn is the beginning of the answer, which all rows share.
    """
    columns = groups.columns
    rule = groups.rule
    plan = columns.request.plan
    has_other_responses = {*TEXTS} & {*column_names(columns.tables)}
    compares = plan.estimator.min_group > 1 and plan.baseline_level == "group"
    if rule.key_is_named or columns.request.schema is not None or has_other_responses or not compares:
        return
    if groups.by_key.size == columns.height:  # `only_singletons` says so
        return
    for name in {*rule.key} & {*CONVERSATIONS}:
        keys = canonical(columns.values[name].gather(groups.by_key.first.head(FOLLOWED)))
        if all(map(_ends_with_answer, keys)):
            wrong = f"{name} ends with the answer in every row, so only rows with the same answer are in one group"
            raise DataError(wrong, PROMPT_ID_OR_BLOCKS, place=columns.place(0))


def _ends_with_answer(text: str | None) -> bool:
    """Whether these messages end with a turn of the model."""
    try:
        turns = json.loads(text or "")
    except ValueError:
        return False
    return isinstance(turns, list) and bool(turns) and responds(turns[-1])


def silent_merge(groups: Groups) -> None:
    """Refuse a key that occurs in several steps or files, which may be several prompts, unless a flag decides."""
    columns = groups.columns
    rule = groups.rule
    by_key = groups.by_key
    if rule.within is not None or not rule.key:
        return
    several = "since one has several prompts"
    for name in comparable_steps(columns):
        if name not in rule.key and (rows := spanning(by_key, columns.values[name])):
            separate = f"--group {as_value(*rule.key, name)}"
            cures = f"{separate} if ids restart; --group-within input if {name} does not separate groups"
            if groups.prompts_of(by_key) is not None:
                cures = f"{separate}: ids restart, {several}"
            raise _merge_error(columns, f"values of {name!r}", rows, cures)
    several_files = len(columns.tables) > 1 and not is_one_dataset(columns.tables)
    if several_files and (rows := spanning(by_key, columns.file)):
        cures = (
            "--group-within file if ids restart in each; --group-within input if they are shards of one sampling round"
        )
        if groups.prompts_of(by_key) is not None:
            cures = f"--group-within file: ids restart in each, {several}"
        raise _merge_error(columns, "files", rows, cures)


def _merge_error(columns: Columns, what: str, rows: Sequence[int], cures: str) -> DataError:
    """The error for keys that occur in several files, steps or batches; `rows` has a row of each key."""
    shown = ", ".join(columns.label(row) for row in rows[:SHOWN])
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    keys, have = (f"{len(rows)} group keys", "have") if len(rows) > 1 else ("a group key", "has")
    return DataError(f"{keys} ({shown}{more}) {have} rows in several {what}", cures)


def comparable_steps(columns: Columns) -> list[str]:
    """Step-like columns that separate training steps; a `step` that varies inside rollouts counts their own steps."""
    request = columns.request
    rollout = request.roles.get("rollout")
    varying = []
    for name in request.for_checks.steps:
        varies = columns.values[name].n_unique() > 1
        if varies and (name not in DRAW_LIKE or _separates_draws(columns, name)):
            varying.append(name)
    if rollout is not None and OWN_STEP in varying:
        coded = columns.coded([*request.key, rollout])
        if spanning(coded, columns.values[OWN_STEP]):
            varying.remove(OWN_STEP)
    return varying


def _separates_draws(columns: Columns, name: str) -> bool:
    """Whether cutting by this column leaves group sizes at least as uniform, and not single rows.

    Otherwise the column numbers the rows of a draw, or says when each was written. A time may also be that of a part of
    a draw: it counts only if the rows of a group are not consecutive.
    """
    coded = columns.coded([key for key in columns.request.key if key != name])
    if name == TIME and coded.together:
        return False
    _, before = usual(coded)
    size, after = usual(within(coded, [columns.values[name]]))
    return size > 1 and after >= max(before, 1 / 2)


def several_prompts(groups: Groups) -> Sequence[str]:
    """Groups with several prompts: an error if the key was not named, otherwise a warning."""
    mixed = groups.mixed
    if mixed is None:
        return ()
    columns = groups.columns
    coded = groups.by_key if groups.cut_size else groups.coded
    key = columns.request.key_words or "the block size"
    label = columns.label(coded.first[mixed.code])
    if not groups.rule.key_is_named:
        raise mixed_error(mixed, key, groups.rule.key, label)
    return (mixed.words(key, label),)


def several_draws(groups: Groups) -> Sequence[str]:
    """Warn of groups that may be several draws of a prompt, by their sizes, their order or the logged advantages."""
    columns = groups.columns
    rule = groups.rule
    request = columns.request
    schema = request.schema
    coded = groups.coded
    by_key = rule.key and rule.size is None and not groups.cut_size
    if not request.warn or groups.mixed is not None or not by_key:
        return ()
    if groups.rollouts is not None and groups.rollouts.size < columns.height:
        return ()  # sizes and order of rows reveal nothing about draws
    for name in request.for_checks.sources:
        if (rows := spanning(coded, columns.values[name])) and _separates_draws(columns, name):
            some = "a group has" if len(rows) == 1 else f"{len(rows):,} groups have"
            key = ",".join((*request.key, name))
            return [f"{some} rows of several values of {name}: --group {key} makes a group of each"]
    draws = Draws(coded)
    suspicion = None
    # The logged advantages may reveal their baseline.
    if schema is not None and schema.centred and len(request.binding.rewards) == 1:
        logged = columns.logged_advantages(schema.advantage)
        suspicion = None if logged is None else by_baselines(coded, columns.rewards()[0] - logged)
    suspicion = suspicion or draws.suspicion()
    if suspicion is None:
        same = f"all {columns.height:,} rows are one group: is {request.key_words} the same everywhere?"
        return [f"{same} --group names another key"] if draws.is_one_group else []
    if not suspicion.is_proven:
        for name, kind in numberings(columns).items():
            numbers = columns.read(name)
            if is_several_rows_a_rollout(coded, suspicion.size, numbers, kind):
                return []
            if kind == "sample" and (size := size_by_samples(coded, numbers)):
                reason = f"{suspicion.reason}, and {name} restarts after {size}"
                suspicion = Suspicion(reason, size, is_proven=True)
    return [suspicion.words(request.key, draws.sizes, named=bool(request.binding.group))]


# --- rollouts of several rows -----------------------------------------------------------------------------


def unequal_siblings(groups: Groups) -> None:
    """Refuse rows of one rollout with unequal rewards, unless something says which of them counts."""
    request = groups.request
    if groups.rollouts is None or request.plan.unit.take == "each" or request.layout.counting != "once":
        return
    rewards = groups.columns.rewards()
    unequal = _vary(groups.rollouts, rewards) | _divided(groups.rollouts, rewards)
    several = np.flatnonzero(unequal)
    if not len(several):
        return
    each = [(groups.rollouts.codes == code).arg_true() for code in several[:SHOWN].tolist()]
    places = groups.columns.places([rows[0] for rows in each])
    shown = []
    for rows, place in zip(each, places, strict=True):
        values = []
        for row in rows[:4]:
            parts = [f"{reward[row]:g}" if reward[row] is not None else "null" for reward in rewards]
            values.append(" + ".join(parts))
        more = ", ..." if len(rows) > len(values) else ""
        shown.append(f"{place}: {', '.join(values)}{more}")
    many = "1 rollout has" if len(several) == 1 else f"{len(several):,} rollouts have"
    raise DataError(
        f"{many} rows with unequal rewards ({id_words(groups)}): {'; '.join(shown)}",
        "--rollout-reward last, first or mean chooses the reward of a rollout; --rollout none treats rows as rollouts",
    )


def rows_counted(groups: Groups) -> Sequence[str]:
    """Warn if a preset counts rows and the file shows that several of them are one rollout."""
    request = groups.request
    found = groups.found_rollouts
    if found is None or request.plan.unit.take != "each" or request.layout.counting != "each":
        return ()
    what = f"{in_rows(groups, found)} (by {id_words(groups)}), and this plan counts every row"
    return [f"{what}: --rollout-reward last counts each rollout once"]


def lone_rollouts(groups: Groups) -> Sequence[str]:
    """Warn if no group has a second rollout: the rows of a rollout are then compared only with each other."""
    rollouts = groups.rollouts
    if rollouts is None or groups.request.plan.unit.take != "each" or groups.coded.size < 2:  # noqa: PLR2004 - a single group may be a single rollout
        return ()
    if parts_of_each(groups.coded, rollouts).max() > 1 or rollouts.size == groups.columns.height:
        return ()
    what = f"each group has the rows of one rollout (by {id_words(groups)}), compared only with each other"
    return [f"{what}: name the prompt with --group"]


def turns_in_order(groups: Groups) -> None:
    """Refuse rollouts whose turns do not ascend, if the estimator takes the rows below a turn for what follows it."""
    request = groups.request
    columns = groups.columns
    name = request.roles.get("state")
    if groups.rollouts is None or name is None or not request.plan.estimator.rising_state:
        return
    numbers = as_number(columns.values[name], typed=False)
    if numbers.null_count() > columns.values[name].null_count():  # names of turns have no order
        return
    turns = pl.DataFrame({"rollout": groups.rollouts.codes, "turn": numbers})
    before = turns.select(pl.col("turn").shift(1).over("rollout")).to_series()
    wrong = (numbers <= before).fill_null(value=False)
    if wrong.any():
        row = wrong.arg_max() or 0
        order = f"{name} is {numbers[row]:g} after {before[row]:g} of the same rollout"
        raise DataError(
            f"{columns.place(row)}: {order} ({wrong.sum():,} such rows)",
            "sort the rows of each rollout by turn, and remove duplicate turns",
        )


def unnamed_rollouts(groups: Groups) -> Sequence[str]:
    """Ask about a column with the name of a rollout id whose values repeat: its rows may be parts of rollouts.

    It is an error only if rows with the same id always have equal rewards while rewards within groups differ, and neither
    a flag nor a preset says what counts: the id of a worker or a judge has rows with different rewards.
    """
    columns = groups.columns
    request = groups.request
    rewards = columns.rewards()
    warnings = []
    for name in request.for_checks.rollouts:
        rollouts = rollouts_by(groups, [name])
        if rollouts.size == columns.height:
            continue
        of_group = parts_of_each(groups.coded, rollouts)
        if not _are_in_turns(groups, rollouts):
            if name in IDS_OF_TURNS:
                continue
            restarts = columns.coded([name]).size < rollouts.size
            if name == ROLLOUT_NUMBER and (of_group.min() < 2 or restarts):  # noqa: PLR2004 - a group has two
                continue  # the number of a training step, of a group or of a row within it
        if of_group.max() < 2:  # noqa: PLR2004 - nothing to compare: the id of the group
            continue
        cures = f"--rollout {as_value(name)} counts each rollout once; --rollout none treats rows as rollouts"
        equal = not _vary(rollouts, rewards).any() and _vary(groups.coded, rewards).any()
        if equal and request.layout.counting == "once":
            wrong = f"{in_rows(groups, rollouts)}, if {name} is what its name says:"
            raise DataError(f"{wrong} it repeats inside groups, always with the same reward", cures)
        warnings.append(f"several rows of a group share one {name}: {cures}")
    return warnings if request.warn else ()


def _are_in_turns(groups: Groups, rollouts: Coded) -> bool:
    """Whether a number rises inside all of these rollouts, from the same first value."""
    if not (name := groups.request.for_checks.turn):
        return False
    numbers = as_number(groups.columns.values[name], typed=False)
    turns = pl.DataFrame({"rollout": rollouts.codes, "turn": numbers})
    now = pl.col("turn")
    before = now.shift(1).over("rollout")
    rises = pl.when(before.is_null()).then(now == now.min()).otherwise(now > before)
    return bool(turns.select(rises.fill_null(value=False).all()).item())


def _vary(coded: Coded, rewards: Sequence[pl.Series]) -> Mask:
    """Which codes have different finite values of some reward."""
    vary = np.zeros(coded.size, dtype=bool)
    for reward in rewards:
        codes, values = finite_rows(coded.codes.to_numpy(), reward)
        low, high = group_extremes(codes, values, coded.size)
        vary |= low < high
    return vary


def _divided(rollouts: Coded, rewards: Sequence[pl.Series]) -> Mask:
    """Which rollouts have some of several rewards only in rows that do not count: the last row with a reward counts."""
    divided = np.zeros(rollouts.size, dtype=bool)
    if len(rewards) > 1:
        known = pl.exclude("rollout")
        rows = _known(rewards).with_columns(rollout=rollouts.codes).filter(pl.any_horizontal(known))
        lost = known.any() & ~known.last()
        found = rows.group_by("rollout").agg(lost).filter(pl.any_horizontal(known))
        divided[found["rollout"].to_numpy()] = True
    return divided


def _known(rewards: Sequence[pl.Series]) -> pl.DataFrame:
    """Which rows have which of the rewards."""
    return pl.DataFrame(reward.is_finite().fill_null(value=False).alias(f"{at}") for at, reward in enumerate(rewards))


# --- blocks and sizes --------------------------------------------------------------------------------------


def size_of_blocks(groups: Groups) -> None:
    """Refuse blocks without rows."""
    if groups.rule.size is not None and groups.rule.size < 1:
        raise UsageError(f"a block cannot have {groups.rule.size} rows", "--group-size takes 1 or more")


def last_blocks(groups: Groups) -> None:
    """Refuse a last block with too few rows, unless --partial decides."""
    if groups.short is not None and groups.dropped is None:
        code = int(np.argmax(groups.short))
        rows = sizes(groups.coded)[code]
        place = groups.columns.place(groups.coded.first[code])
        plural = "" if rows == 1 else "s"
        raise DataError(
            f"{place}: the last block has {rows} row{plural}, not {groups.rule.size}",
            "--partial keep takes it as a group; --partial drop leaves it out",
        )


def other_sizes(groups: Groups) -> None:
    """Refuse groups whose size is not --expect-size."""
    columns = groups.columns
    coded = groups.coded
    expected = groups.request.binding.expect_size
    if expected is None:
        return
    counts = sizes(coded)
    unit = "row"
    if groups.rollouts is not None and columns.request.plan.unit.take != "each":
        counts = parts_of_each(coded, groups.rollouts)
        unit = "rollout"
    unexpected = counts != expected
    if groups.dropped is not None:
        unexpected &= ~groups.dropped
    wrong = np.flatnonzero(unexpected).tolist()
    if wrong:
        first = coded.first[wrong[0]]
        count = counts[wrong[0]]
        size = f"{count} {unit}{'' if count == 1 else 's'}"
        such = f"{len(wrong)} such {'group' if len(wrong) == 1 else 'groups'} of {coded.size}"
        raise DataError(
            f"{columns.place(first)}: {columns.label(first)} has {size}, not {expected} ({such})",
            "the sampler may have stopped early; omit --expect-size to continue",
        )


def only_singletons(groups: Groups) -> None:
    """Refuse a key whose groups all have a single row, if the plan compares the rows of a group."""
    request = groups.request
    plan = request.plan
    key_words = request.layout.key_words
    group = request.key
    of_groups = plan.estimator.min_group > 1 and plan.baseline_level == "group"
    compares = of_groups and plan.alone == Alone()
    by_row = plan.unit.take == "each"
    rewards = groups.columns.height if by_row or groups.rollouts is None else groups.rollouts.size
    if not compares or request.binding.singletons_meant or groups.coded.size != rewards:
        return
    unit = "row" if by_row else "rollout"
    what = f"every group has a single {unit}" if groups.coded.size > 1 else f"there is a single {unit}"
    key = ", ".join(group) or "the block size"
    if {*group} & {*CONVERSATIONS}:
        why = f"{key} may contain the responses as well as the prompts"
        cure = PROMPT_ID_OR_BLOCKS
    elif key_words or {*group} & {*PROMPT_TEXTS}:
        why = f"{key_words or key} has one sample per prompt, nothing to compare"
        cure = "several samples of a prompt make a group; --singleton zero continues anyway; --group NAME takes another key"
    else:
        why = f"{key} may be an id of the rollout, not of the prompt"
        cure = "name the prompt's column with --group; give --singleton zero if there is one sample per prompt"
    raise DataError(f"{what}: {why}", cure)


# --- batches -----------------------------------------------------------------------------------------------


def unclear_batch(groups: Groups) -> None:
    """Refuse a plan that needs a batch, if it is unclear which steps or files are normalised together."""
    columns = groups.columns
    if groups.rule.batch_by is None and columns.request.plan.uses_batch:
        cure = "--batch-by {0} normalises each separately; --batch-by input takes all rows as one batch"
        for name in comparable_steps(columns):
            count = columns.values[name].n_unique()
            raise DataError(f"the plan needs a batch, but the rows have {count} values of {name!r}", cure.format(name))
        files = len(columns.tables) if columns.rows is None else columns.file.n_unique()
        if files > 1:
            raise DataError(f"the plan needs a batch, but there are {files} files", cure.format("file"))


def divided_groups(groups: Groups) -> None:
    """Refuse a group with rows in several batches."""
    by = groups.rule.batch_name
    if not groups.request.plan.estimator.spans_batches and (rows := spanning(groups.coded, groups.batches.codes)):
        cure = f"a group belongs to one batch: add {by} to --group; --batch-by input takes all rows as one batch"
        raise _merge_error(groups.columns, f"batches of {by!r}", rows, cure)


# --- parts -------------------------------------------------------------------------------------------------


def one_part_each(groups: Groups) -> None:
    """Refuse a group with several values of --plan-by: two plans would each see a part of it, or two keys are the same."""
    columns = groups.columns
    by = groups.request.by
    if rows := spanning(groups.coded, columns.values[by]):
        separate = f"--group {as_value(by, *groups.rule.key)} makes a group of each"
        cures = f"{separate}; --plan-by takes a column that is the same in all rows of a group"
        raise _merge_error(columns, f"values of {by!r}", rows, cures)


# --- rows --------------------------------------------------------------------------------------------------


def huge_rewards(groups: Groups) -> None:
    """Refuse rewards whose squares overflow: all advantages of their groups would be 0 or NaN."""
    columns = groups.columns
    for name, column in zip(columns.request.rewards, columns.rewards(), strict=True):
        huge = column.is_finite() & ~column.is_between(-LARGEST, LARGEST)
        if huge.any():
            row = huge.arg_max() or 0
            raise DataError(
                f"{columns.place(row)}: {name} is {column[row]:g}, the largest reward is {LARGEST:g}",
                "its square would overflow; is it a marker for a missing reward?",
            )


def unusable_values(groups: Groups) -> None:
    """Refuse an extra column of the plan that has no usable value in some row that counts."""
    columns = groups.columns
    left_out = columns.left_out
    made = [field.name for field in columns.request.binding.made]
    for role, name in columns.request.roles.items():
        own = role == "rollout" and name in columns.request.layout.rollouts  # a row without an id is a rollout
        if own or (role == "length" and name == "equal"):
            continue
        for what, wrong in _unusable(columns.values[name], role):
            counted = wrong if left_out is None else wrong & ~left_out
            if counted.any():
                row = counted.arg_max() or 0
                cure = f"it is read as {ROLES[role].meaning}"
                if what == "null" and name in made:
                    why = "a list of log-probs or a number in it is missing, or no token counts"
                    cure = f"{why}: --mask COL names a list of the tokens that count; --rows leaves such rows out"
                raise DataError(f"{columns.place(row)}: {name} is {what}", cure)


def _unusable(column: pl.Series, role: str) -> Iterator[tuple[str, pl.Series]]:
    yield "null", column.is_null()
    if column.dtype == pl.Float64:
        yield "not finite", ~column.is_finite()
        if role in {"length", "input_length", "turns"}:
            yield "negative", column < 0
    if column.dtype == pl.List(pl.Float64):
        finite = pl.element().is_finite().fill_null(value=False)
        yield "a list with null or NaN in it", column.list.eval(~finite).list.any()
        yield "an empty list", column.list.len() == 0


def no_rewards_at_the_end(groups: Groups) -> None:
    """Refuse number columns that a layout takes for rewards if the logged advantages follow the columns before them."""
    columns = groups.columns
    request = groups.request
    logged = columns.logged_advantages(request.layout.logged_column)
    if request.layout.flags.rewards or len(request.rewards) == 1 or logged is None:
        return
    rows = (groups.coded.codes < FOLLOWED).arg_true()
    some_rewards = [reward.gather(rows).fill_null(0.0).fill_nan(0.0).to_numpy() for reward in columns.rewards()]
    totals = np.cumsum(some_rewards, axis=0)
    codes = groups.coded.codes.gather(rows).to_numpy()
    values = logged.gather(rows).to_numpy()
    every = len(totals)
    following = (count for count in range(every, 0, -1) if _follow(codes, totals[count - 1], values))
    if (count := next(following, every)) < every:
        rewards = request.rewards[:count]
        others = request.rewards[count:]
        flags = " ".join(f"--reward {name}" for name in rewards)
        raise DataError(
            f"the logged {request.layout.logged_column} follows {' + '.join(rewards)}, without {', '.join(others)}",
            f"name the rewards: {flags}",
            place=columns.tables[0].name,
        )


def _follow(codes: np.ndarray[Any, Any], total: Vector, logged: Vector) -> bool:
    """Whether advantages rise linearly with a reward in each group, as those of every scale and baseline do."""
    known = np.isfinite(logged)
    codes = codes[known]
    x = total[known]
    y = logged[known]
    size = int(codes.max(initial=0)) + 1
    x = x - group_means(codes, x, size)[codes]
    y = y - group_means(codes, y, size)[codes]
    squares = np.bincount(codes, x * x, size)
    products = np.bincount(codes, x * y, size)
    slope = np.divide(products, squares, out=np.zeros(size), where=squares > 0)
    most = np.abs(y).max(initial=0.0)
    if most == 0 or (slope < 0).any():
        return False
    away = np.abs(y - slope[codes] * x)
    return bool(away.max() <= LINEAR * most)


def repeated_samples(groups: Groups) -> Sequence[str]:
    """Warn if a group repeats a sample: rollouts may have been written twice."""
    columns = groups.columns
    sample = groups.request.for_checks.sample
    if not sample or sample in {*columns.request.key, columns.request.roles.get("rollout")}:
        return ()
    twice = repeats(groups.coded.codes, columns.values[sample])
    words = f"{twice:,} rows repeat a {sample} inside their group: rollouts may have been written twice"
    return (words,) if twice else ()


# --- files -------------------------------------------------------------------------------------------------


def broken_lines(groups: Groups) -> Sequence[str]:
    """Warn of lines that were left out because they are not JSON objects."""
    warnings = []
    for table in groups.columns.tables:
        gone = table.source.left_out
        if gone:
            lines = "line that is not a JSON object" if len(gone) == 1 else "lines that are not JSON objects"
            numbers = ", ".join(map(str, gone[:3]))
            more = ", ..." if len(gone) > 3 else ""  # noqa: PLR2004
            warnings.append(f"{table.name}: left out {len(gone)} {lines} (line {numbers}{more})")
    return warnings


def empty_records(groups: Groups) -> Sequence[str]:
    """Warn of records without rollouts: an empty list, null, or a missing field."""
    warnings = []
    for table, scanned in zip(groups.columns.tables, groups.columns.scans, strict=True):
        if scanned.empty:
            records = "record has" if scanned.empty == 1 else "records have"
            warnings.append(f"{table.name}: {scanned.empty:,} {records} no rollouts")
    return warnings


def nothing_left(groups: Groups) -> None:
    """Refuse a run if every row was dropped because its block was too short."""
    if groups.dropped is not None and groups.dropped.all():
        columns = groups.columns
        raise DataError(f"{columns.tables[0].name}: no rows", f"{columns.height:,} dropped: incomplete last block")


def missing_components(groups: Groups) -> Sequence[str]:
    """Warn of rows with only some of several rewards, unless the tool that wrote them is known to leave some out."""
    columns = groups.columns
    rule = groups.request.plan.rewards
    request = columns.request
    if len(request.rewards) == 1 or request.layout.may_lack_rewards or rule.component_missing == "propagate":
        return ()
    some = pl.any_horizontal(pl.all())
    whole = pl.all_horizontal(pl.all())
    partial = _known(columns.rewards()).filter(some & ~whole)
    if partial.is_empty():
        return ()
    what = "counts as 0" if rule.component_missing == "zero" else "is skipped"
    return [f"rows with only some of the rewards: {len(partial):,}; a missing one {what}"]


def useless_marks(groups: Groups) -> Sequence[str]:
    """Refuse marks of flags that hold for every row, one or several together, and warn of a value that no row has."""
    columns = groups.columns
    tables = columns.tables
    for name in columns.lacking:
        raise absent(name, tables[0].name, column_names(tables))
    layout = groups.request.layout
    warnings = useless(layout.marks, columns.values, typed=columns.typed)
    left_out = columns.left_out
    if left_out is not None and left_out.all():
        warnings.append(none_left(layout.marks, columns.values, layout.flags.masked_rows, typed=columns.typed))
    return warnings


def unread_marks(groups: Groups) -> Sequence[str]:
    """Name a column that seems to mark failed or masked rows, if nothing says what such rows are."""
    columns = groups.columns
    names = groups.request.for_checks.marks
    # A known tool that cuts responses off counts them like others, unless its schema says so.
    names = [name for name in names if columns.request.schema is None or name not in AT_LIMIT]
    found = unread({name: columns.values[name] for name in names})
    if found is None:
        return ()
    mark, rows = found
    flagged = f"{mark.column}={mark.values[0]}" if mark.values else mark.column
    named = shlex.quote(flagged)
    cures = f"--left-out-column {named} leaves them out of their groups; --masked-column {named} marks them as not trained on"
    return [f"{mark.words} in {rows:,} of {columns.height:,} rows, which count like all others: {cures}"]


def unused_outcomes(groups: Groups) -> Sequence[str]:
    """Warn of texts of --map that no row has."""
    texts = ", ".join(map(repr, groups.columns.unused))
    return [f"--map names {texts}, which no row has"] if texts else []


CHECKS: Final[tuple[Check, ...]] = (
    # The key: is it the right column, and does every row have one?
    ids_beside_a_text,
    missing_keys,
    one_record,
    empty_keys,
    answers_in_key,
    # Groups that merge several, or parts of one rollout.
    silent_merge,
    size_of_blocks,
    last_blocks,
    unnamed_rollouts,
    several_prompts,
    # Batches.
    unclear_batch,
    divided_groups,
    # Rollouts of several rows.
    unequal_siblings,
    rows_counted,
    lone_rollouts,
    turns_in_order,
    # Sizes.
    other_sizes,
    only_singletons,
    # Values of rows.
    huge_rewards,
    unusable_values,
    no_rewards_at_the_end,
    repeated_samples,
    # Files, and what only warns.
    broken_lines,
    empty_records,
    several_draws,
    missing_components,
    nothing_left,
    unused_outcomes,
    useless_marks,
    unread_marks,
)
# With --plan-by these run once for all rows, the others for each part.
CHECKS_OF_FILES: Final[tuple[Check, ...]] = (broken_lines, empty_records, unused_outcomes, useless_marks, unread_marks)
CHECKS_OF_PARTS = tuple(check_ for check_ in CHECKS if check_ not in {*CHECKS_OF_FILES, only_singletons})
# In a part of a stream all rows may be dropped, and texts of --map may be missing.
CHECKS_OF_STREAM = tuple(
    check_ for check_ in CHECKS if check_ not in {nothing_left, unused_outcomes, useless_marks, unread_marks}
)


# --- after the rows have been scored --------------------------------------------------------------------------


def refuse_unscorable(plan: Plan, scorable: pl.Series, narrow: Narrow) -> None:
    """Stop at the first row without a finite reward, if the plan says so."""
    if plan.rewards.missing != "error":
        return
    missing = ~scorable
    binding = narrow.request.binding
    by_schema = narrow.left_out
    if (none := narrow.without_reward) is not None:
        by_schema |= none
    if not binding.missing_is_error:
        missing &= ~by_schema
    elif binding.marks:  # --missing error stops for what the schema leaves out, and not for what a flag does
        missing &= ~narrow.left_out
    if not missing.any():
        return
    row = missing.arg_max() or 0
    count = missing.sum()
    shown = []
    for k, name in enumerate(narrow.reward_names):
        value = narrow.table[f"reward.{k}"][row]
        shown.append(f"{name} is {'null or missing' if value is None else value}")
    wrong = f"{', '.join(shown)}, expected a finite number"
    if by_schema[row]:
        wrong = f"a row without a reward, as {narrow.schema} marks it"
    such = f" ({count} such rows)" if count > 1 else ""
    raise DataError(
        f"{narrow.place(row)}: {wrong}{such}",
        "--missing exclude leaves such rows out; --missing zero gives them advantage 0; --missing as-zero counts them as reward 0",
    )


def refuse_singletons(plan: Plan, scored: pl.Series, narrow: Narrow) -> None:
    """Stop at the first group with one scored row, if the plan says so."""
    singletons = scored == 1
    if plan.alone.result != "error" or not singletons.any():
        return
    row = singletons.arg_max() or 0
    name = narrow.label(narrow.table["group"][row])
    cure = "--singleton zero|raw|unit|nan|null|drop decides what it gets"
    raise DataError(f"{narrow.place(row)}: the group {name} has a single scored row", cure)
