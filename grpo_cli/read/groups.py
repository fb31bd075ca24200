"""Divide rows into groups and groups into batches, and find the rows that are parts of one rollout; `checks` judges the result.

A rollout may be compacted, forked, or written turn by turn. Its id is the column that a flag or the schema names. If some
rollout has several rows, `with_rollouts` adds the rollouts to the groups and makes the plan count each of them once, unless a
flag or a preset says otherwise. A column that merely has the name of a rollout id is never used: it is a reason to ask.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from grpo_cli.engine.group_stats import Mask, group_extremes
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Counting
from grpo_cli.errors import DataError
from grpo_cli.read.columns import Columns
from grpo_cli.read.group_keys import Coded, blocks, encode, parts_of_each, sizes, within
from grpo_cli.read.known_names import IDS_OF_TURNS, ROLLOUT_NUMBER
from grpo_cli.read.marks import as_number
from grpo_cli.read.prompt_check import Mixed, mixed_prompts
from grpo_cli.read.repeated_draws import size_by_advantages
from grpo_cli.read.request import Request, Rule
from grpo_cli.read.tables import Table
from grpo_cli.schemas.table import words
from grpo_cli.values.cells import canonical, where
from grpo_cli.values.paths import PARENT


@dataclass(frozen=True)
class Groups:
    """The group and the batch of every row."""

    columns: Columns
    rule: Rule
    by_key: Coded  # before each key is cut into blocks
    coded: Coded  # the groups
    batches: Coded
    cut_size: int | None = None  # the block size that the logged advantages reveal, if any
    short: Mask | None = None  # groups that are blocks with too few rows; None if no block is
    rollouts: Coded | None = None  # the rollout of every row, if some rollout has several rows

    @property
    def request(self) -> Request:
        """The request of the columns."""
        return self.columns.request

    @property
    def rollout_columns(self) -> tuple[str, ...]:
        """The columns with the id of a rollout: that of a flag, else those of the schema."""
        is_named = "rollout" in self.request.layout.flags.roles
        return (self.request.roles["rollout"],) if is_named else self.request.layout.rollouts

    @property
    def dropped(self) -> Mask | None:
        """The groups that are dropped, if any."""
        return self.short if self.rule.partial == "drop" else None

    @cached_property
    def mixed(self) -> Mixed | None:
        """Groups with several prompts, from a sample of the rows; None if none were found."""
        return self.prompts_of(self.by_key if self.cut_size else self.coded)

    def prompts_of(self, coded: Coded) -> Mixed | None:
        """The same for another grouping of the same rows."""
        texts = self.request.for_checks
        return mixed_prompts(self.columns, coded, texts.prompts, texts.other_texts)


def group(columns: Columns, rule: Rule) -> Groups:
    """Group the rows by the rule."""
    coded = columns.coded(rule.key)
    several = len(columns.tables) > 1 and not is_one_dataset(columns.tables)
    if rule.within == "file" or (rule.within != "input" and not rule.key and several):
        coded = within(coded, [columns.file])
    if rule.within_columns:
        coded = within(coded, [columns.values[name] for name in rule.within_columns])
    by_key, cut_size, short = coded, None, None
    if rule.size is not None:
        coded = blocks(by_key, rule.size)
        too_few = sizes(coded) < rule.size
        short = too_few if too_few.any() and rule.partial != "keep" else None
    elif (logged := columns.logged_advantages(rule.logged_column)) is not None:
        cut_size = size_by_advantages(by_key, logged)
        coded = by_key if cut_size is None else blocks(by_key, cut_size)
    parts = [columns.file if name == "file" else columns.values[name] for name in rule.batch_parts]
    return Groups(columns, rule, by_key, coded, encode(parts, columns.height), cut_size, short)


def is_one_dataset(tables: Sequence[Table]) -> bool:
    """Whether the files are, by name, all shards of a data set (`data-00000-of-00002.arrow`), which may be cut anywhere."""
    names = [re.fullmatch(r"(.*)-\d{5}-of-(\d{5})(\.\w+)", table.name) for table in tables]
    shards = {None if name is None else name.groups() for name in names}
    first = names[0]
    return first is not None and len(shards) == 1 and int(first[2]) == len(names)


# --- rows that are parts of one rollout: with_rollouts, and checks of it -------------------------------------------

SHOWN: Final = 3


def with_rollouts(groups: Groups) -> Groups:
    """The groups with the rollout of every row, if it is known and some rollout has several rows.

    The plan of the result counts each rollout once, unless a preset or a flag says otherwise.
    """
    request, names = groups.request, groups.rollout_columns
    is_needed = "rollout" in request.roles
    if not is_needed:
        names = tuple(name for name in names if not (name == ROLLOUT_NUMBER and _is_step(groups)))
    if not names:
        return groups
    rollouts = _numbered(groups, names)
    if is_needed:
        return replace(groups, rollouts=rollouts)
    if rollouts.size == groups.columns.height:
        return groups
    # Each part of a rollout may have its own prompt.
    roles = {**request.roles, "rollout": names[0]}
    for_checks = request.for_checks._replace(prompts=(), other_texts=())
    plan = counted(request.plan, request.binding.rollouts)
    request = replace(request, roles=roles, for_checks=for_checks, plan=plan)
    return replace(groups, columns=replace(groups.columns, request=request), rollouts=rollouts)


def _is_step(groups: Groups) -> bool:
    """Whether a rollout_id is the training step, as at the top of slime's dumps: one value in a file with several groups."""
    ids, file = groups.columns.values[ROLLOUT_NUMBER], groups.columns.file
    files = len(groups.columns.tables)
    return not ids.null_count() and encode([file, ids]).size <= files < groups.coded.size


def counted(plan: Plan, how: Counting) -> Plan:
    """The plan with a rule for rollouts of several rows, unless it has one already."""
    if plan.unit.take != "each" or how == "none":
        return plan
    # Once: all of its rows have the same reward.
    return replace(plan, unit=replace(plan.unit, take="last" if how == "once" else how))


def _numbered(groups: Groups, names: Sequence[str]) -> Coded:
    """The rollout of every row, by the first of these ids that is not null.

    An id is unique within its group, and a row without an id is its own rollout.
    """
    columns = groups.columns
    found = [name for name in names if columns.values[name].null_count() < columns.height] or names
    ids, *others = (columns.values[name] for name in found)
    if ids.null_count() and others:  # their types may differ
        ids = pl.select(pl.coalesce(map(canonical, [ids, *others]))).to_series()
    keys = [groups.coded.codes, ids]
    if found[0] == PARENT and len(columns.tables) > 1:
        keys.append(columns.file)  # records are numbered in each file
    if ids.null_count():
        keys.append(where(ids.is_null(), pl.int_range(len(ids), eager=True)))
    return encode(keys)


# --- words --------------------------------------------------------------------------------------------------


def note(groups: Groups) -> list[str]:
    """How rollouts were found; empty if a flag names their column."""
    if groups.rollouts is None or "rollout" in groups.request.layout.flags.roles:
        return []
    return [f"rollouts by {_shown(groups)}: {_in_rows(groups, groups.rollouts)}"]


def _shown(groups: Groups) -> str:
    """The ids as messages name them."""
    schema = groups.request.schema
    return ", else ".join(words(name) if schema is None else schema.words(name) for name in groups.rollout_columns)


def _in_rows(groups: Groups, rollouts: Coded) -> str:
    return f"{rollouts.size:,} {'rollout' if rollouts.size == 1 else 'rollouts'} in {groups.columns.height:,} rows"


# --- checks ------------------------------------------------------------------------------------------------


def unequal_siblings(groups: Groups) -> None:
    """Refuse rows of one rollout with unequal rewards, unless something says which of them counts."""
    request = groups.request
    if groups.rollouts is None or request.plan.unit.take == "each" or request.binding.rollouts != "once":
        return
    rewards = groups.columns.rewards()
    several = np.flatnonzero(_vary(groups.rollouts, rewards) | _divided(groups.rollouts, rewards))
    if not len(several):
        return
    columns, codes = groups.columns, groups.rollouts.codes
    shown = []
    each = [(codes == code).arg_true() for code in several[:SHOWN].tolist()]
    for rows, place in zip(each, columns.places([int(rows[0]) for rows in each]), strict=True):
        values = [
            " + ".join(f"{reward[row]:g}" if reward[row] is not None else "null" for reward in rewards)
            for row in rows[:4]
        ]
        shown.append(f"{place}: {', '.join(values)}{', ...' if len(rows) > len(values) else ''}")
    many = "1 rollout has" if len(several) == 1 else f"{len(several):,} rollouts have"
    raise DataError(
        f"{many} rows with unequal rewards ({_shown(groups)}): {'; '.join(shown)}",
        "--rollout-reward last, first or mean chooses the reward of a rollout, --rollout none treats rows as rollouts",
    )


def rows_counted(groups: Groups) -> Sequence[str]:
    """Warn if a preset counts rows and the file shows that several of them are one rollout."""
    request = groups.request
    if groups.rollouts is None or request.plan.unit.take != "each" or request.binding.rollouts != "each":
        return ()
    if "rollout" in request.layout.flags.roles:
        return ()
    what = f"{_in_rows(groups, groups.rollouts)} (by {_shown(groups)}), and this plan counts every row"
    return [f"{what}: --rollout-reward last counts each rollout once"]


def lone_rollouts(groups: Groups) -> Sequence[str]:
    """Warn if no group has a second rollout: the rows of a rollout are then compared only with each other."""
    if groups.rollouts is None or groups.request.plan.unit.take != "each" or groups.coded.size < 2:  # noqa: PLR2004
        return ()
    if parts_of_each(groups.coded, groups.rollouts).max() > 1 or groups.rollouts.size == len(groups.coded.codes):
        return ()
    what = f"each group has the rows of one rollout (by {_shown(groups)}), compared only with each other"
    return [f"{what}: name the prompt with --group"]


def turns_in_order(groups: Groups) -> None:
    """Refuse rollouts whose turns do not ascend, if the estimator takes the rows below a turn for what follows it."""
    request, columns = groups.request, groups.columns
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
        raise DataError(
            f"{columns.place(row)}: {name} is {numbers[row]:g} after {before[row]:g} of the same rollout ({int(wrong.sum()):,} such rows)",
            "sort the rows of each rollout by turn, and remove duplicate turns",
        )


def unnamed_rollouts(groups: Groups) -> Sequence[str]:
    """Ask about a column with the name of a rollout id whose values repeat: its rows may be parts of rollouts.

    It is an error only if rows with the same id always have equal rewards while rewards within groups differ, and neither
    a flag nor a preset says what counts: the id of a worker or a judge has rows with different rewards.
    """
    columns, request = groups.columns, groups.request
    rewards, warnings = columns.rewards(), []
    for name in request.for_checks.rollouts:
        rollouts = _numbered(groups, [name])
        if rollouts.size == columns.height:
            continue
        of_group = parts_of_each(groups.coded, rollouts)
        if not _are_in_turns(groups, rollouts):
            if name in IDS_OF_TURNS:
                continue
            if name == ROLLOUT_NUMBER and (of_group.min() < 2 or columns.coded([name]).size < rollouts.size):  # noqa: PLR2004 - a group has two
                continue  # the number of a training step, of a group or of a row within it
        if of_group.max() < 2:  # noqa: PLR2004 - nothing to compare: the id of the group
            continue
        cures = f"--rollout {name} counts each rollout once, --rollout none treats rows as rollouts"
        equal = not _vary(rollouts, rewards).any() and _vary(groups.coded, rewards).any()
        if equal and request.binding.rollouts == "once":
            wrong = f"{_in_rows(groups, rollouts)}, if {name} is what its name says:"
            raise DataError(f"{wrong} it repeats inside groups, always with the same reward", cures)
        warnings.append(f"several rows of a group share one {name}: {cures}")
    return warnings if request.warn else ()


def _are_in_turns(groups: Groups, rollouts: Coded) -> bool:
    """Whether a number rises inside all of these rollouts, from the same first value."""
    if not (name := groups.request.for_checks.turn):
        return False
    turns = pl.DataFrame({"rollout": rollouts.codes, "turn": as_number(groups.columns.values[name], typed=False)})
    before, now = pl.col("turn").shift(1).over("rollout"), pl.col("turn")
    rises = pl.when(before.is_null()).then(now == now.min()).otherwise(now > before)
    return bool(turns.select(rises.fill_null(value=False).all()).item())


def _vary(coded: Coded, rewards: Sequence[pl.Series]) -> Mask:
    """Which codes have different finite values of some reward."""
    vary = np.zeros(coded.size, dtype=bool)
    for reward in rewards:
        finite = reward.is_finite().fill_null(value=False)
        codes, values = coded.codes.filter(finite), reward.filter(finite)
        low, high = group_extremes(codes.to_numpy(), values, coded.size)
        vary |= low < high
    return vary


def _divided(rollouts: Coded, rewards: Sequence[pl.Series]) -> Mask:
    """Which rollouts have some of several rewards only in rows that do not count: the last row with a reward counts."""
    divided = np.zeros(rollouts.size, dtype=bool)
    if len(rewards) > 1:
        known = [reward.is_finite().fill_null(value=False).alias(f"{at}") for at, reward in enumerate(rewards)]
        rows = pl.DataFrame([rollouts.codes.alias("rollout"), *known]).filter(pl.any_horizontal(pl.exclude("rollout")))
        lost = pl.exclude("rollout").any() & ~pl.exclude("rollout").last()
        found = rows.group_by("rollout").agg(lost).filter(pl.any_horizontal(pl.exclude("rollout")))
        divided[found["rollout"].to_numpy()] = True
    return divided
