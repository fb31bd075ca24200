"""Checks of groups and batches that may merge several: keys in several steps or files, several prompts, several draws."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import PurePath

from grpo_cli.errors import Cure, Cures, DataError, Way
from grpo_cli.read.checks.check import Check
from grpo_cli.read.columns import Columns
from grpo_cli.read.group_keys import SHOWN, spanning, usual, within
from grpo_cli.read.groups import Groups, is_one_dataset
from grpo_cli.read.known_names import DRAW_LIKE, OWN_STEP, TIME
from grpo_cli.read.prompt_check import mixed_error
from grpo_cli.read.repeated_draws import (
    Draws,
    Suspicion,
    by_baselines,
    is_several_rows_a_rollout,
    numberings,
    shows_no_draws,
    size_by_samples,
)
from grpo_cli.values.paths import as_list

TWO = 2  # files or folders may be two runs
_ONE_BATCH = Way("--batch-by", "input", "takes all rows as one batch")


def _merges_nothing(groups: Groups) -> bool:
    """Whether no key has rows in several steps of any kind, or in several files."""
    columns = groups.columns
    rule = groups.rule
    if rule.within is not None or not rule.key:
        return True
    steps = [columns.values[name] for name in groups.request.for_checks.steps if name not in rule.key]
    apart = [*steps, columns.file] if len(columns.tables) > 1 else steps
    return not any(spanning(groups.by_key, column) for column in apart)


@partial(Check, idle=_merges_nothing)
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
            key = as_list(*rule.key, name)
            what = "prompts recur in several steps: "
            cures = [
                Way("--group", key, "makes a group of a prompt in each step, also if ids restart"),
                Way("--group-within", "input", f"if {name} does not separate groups"),
            ]
            if groups.prompts_of(by_key) is not None:
                what = ""
                cures = [Way("--group", key, f": ids restart, {several}")]
            raise _merge_error(columns, f"values of {name!r}", rows, cures, what)
    several_files = len(columns.tables) > 1 and not is_one_dataset(columns.tables)
    if several_files and (rows := spanning(by_key, columns.file)):
        of_files: list[Cure] = [
            Way("--group-within", "file", "if ids restart in each"),
            Way("--group-within", "input", "if they are shards of one sampling round"),
        ]
        if groups.prompts_of(by_key) is not None:
            of_files = [Way("--group-within", "file", f": ids restart in each, {several}")]
        if TWO in {len(columns.tables), len({PurePath(table.name).parent for table in columns.tables})}:
            of_files.append("two runs of the same prompts are compared by grpo-adv inspect NEW --against OLD")
        raise _merge_error(columns, "files", rows, of_files)


def _merge_error(columns: Columns, what: str, rows: Sequence[int], cures: Cures, likely: str = "") -> DataError:
    """The error for keys that occur in several files, steps or batches; `rows` has a row of each key, `likely` is what it likely is."""
    shown = ", ".join(columns.label(row) for row in rows[:SHOWN])
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    keys, have = (f"{len(rows)} group keys", "have") if len(rows) > 1 else ("a group key", "has")
    return DataError(f"{likely}{keys} ({shown}{more}) {have} rows in several {what}", cures)


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


def _has_no_texts(groups: Groups) -> bool:
    """Whether there are no texts that could differ inside a group."""
    texts = groups.request.for_checks
    return not (texts.prompts or texts.other_texts)


@partial(Check, idle=_has_no_texts)
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


def _are_alike(groups: Groups) -> bool:
    """Whether all groups have the same number of rows, which follow each other, and nothing else says what a draw is."""
    request = groups.request
    if not request.warn or groups.rule.size is not None:
        return True
    schema = request.schema
    sources = (groups.columns.values[name] for name in request.for_checks.sources)
    if (schema is not None and schema.centred) or any(spanning(groups.coded, column) for column in sources):
        return False
    return shows_no_draws(groups.coded)


@partial(Check, idle=_are_alike)
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


def _is_one_batch_each(groups: Groups) -> bool:
    """Whether no batch, and so no part, has rows of several steps or files."""
    columns = groups.columns
    if groups.rule.batch_by is not None or not groups.request.plan.uses_batch:
        return True
    apart = [*(columns.values[name] for name in groups.request.for_checks.steps), columns.file]
    return not any(spanning(groups.batches, column) for column in apart)


@partial(Check, idle=_is_one_batch_each)
def unclear_batch(groups: Groups) -> None:
    """Refuse a plan that needs a batch, if it is unclear which steps or files are normalised together."""
    columns = groups.columns
    if groups.rule.batch_by is None and columns.request.plan.uses_batch:
        for name in comparable_steps(columns):
            count = columns.values[name].n_unique()
            raise DataError(f"the plan needs a batch, but the rows have {count} values of {name!r}", _batches(name))
        files = len(columns.tables) if columns.rows is None else columns.file.n_unique()
        if files > 1:
            raise DataError(f"the plan needs a batch, but there are {files} files", _batches("file"))


def _batches(each: str) -> list[Way]:
    return [Way("--batch-by", each, "normalises each separately"), _ONE_BATCH]


@partial(Check, one_by_one=True)
def divided_groups(groups: Groups) -> None:
    """Refuse a group with rows in several batches."""
    by = groups.rule.batch_name
    if not groups.request.plan.estimator.spans_batches and (rows := spanning(groups.coded, groups.batches.codes)):
        cures = f"a group belongs to one batch: add {by} to --group", _ONE_BATCH
        raise _merge_error(groups.columns, f"batches of {by!r}", rows, cures)


def one_part_each(groups: Groups) -> None:
    """Refuse a group with several values of --plan-by: two plans would each see a part of it, or two keys are the same."""
    columns = groups.columns
    by = groups.request.by
    if rows := spanning(groups.coded, columns.values[by]):
        separate = Way("--group", as_list(by, *groups.rule.key), "makes a group of each")
        cures = separate, "--plan-by takes a column that is the same in all rows of a group"
        raise _merge_error(columns, f"values of {by!r}", rows, cures)
