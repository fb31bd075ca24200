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
from typing import NamedTuple

import numpy as np
import polars as pl

from grpo_cli.engine.group_stats import Mask
from grpo_cli.engine.moments import Index
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Counting
from grpo_cli.read.columns import Columns
from grpo_cli.read.group_keys import Coded, are_coded, blocks, encode, sizes, usual, within
from grpo_cli.read.known_names import ROLLOUT_NUMBER
from grpo_cli.read.prompt_check import Mixed, mixed_prompts
from grpo_cli.read.request import Request, Rule
from grpo_cli.read.tables import Table
from grpo_cli.schemas.table import words
from grpo_cli.values.cells import canonical, where
from grpo_cli.values.paths import PARENT

ROUNDED = 1e-4  # advantages of a block whose mean is nearer to 0 add up to 0, up to rounding


@dataclass(frozen=True)
class Groups:
    """The group and the batch of every row."""

    columns: Columns  # of all rows that were read
    rule: Rule  # which rows are a group, and which groups are a batch
    by_key: Coded  # before each key is cut into blocks
    coded: Coded  # the groups
    batches: Coded  # the batch of every row
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
        request = self.request
        if "rollout" in request.layout.flags.roles:
            return (request.roles["rollout"],)
        return request.layout.rollouts

    @property
    def found_rollouts(self) -> Coded | None:
        """The rollout of every row, unless a flag names the column."""
        return None if "rollout" in self.request.layout.flags.roles else self.rollouts

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


class Numbers(NamedTuple):
    """The key and the batch of every row as numbers."""

    keys: Coded
    batches: Coded

    def at(self, places: Index) -> Numbers:
        """The same for some of the rows."""
        return Numbers(self.keys.at(places), self.batches.at(places))


def numbers(columns: Columns, rule: Rule, known: tuple[pl.DataFrame, Coded] | None = None) -> Numbers:
    """Number the rows by the rule. `known` are the keys and the codes of another input, which may have the same rows."""
    keys = {name: columns.values[name] for name in rule.key}
    coded = known[1] if known is not None and are_coded(pl.DataFrame(keys), *known) else columns.coded(rule.key)
    several = len(columns.tables) > 1 and not is_one_dataset(columns.tables)
    if rule.within == "file" or (rule.within != "input" and not rule.key and several):
        coded = within(coded, [columns.file])
    if rule.within_columns:
        coded = within(coded, [columns.values[name] for name in rule.within_columns])
    parts = [columns.file if name == "file" else columns.values[name] for name in rule.batch_parts]
    return Numbers(coded, encode(parts, columns.height))


def group(columns: Columns, rule: Rule, numbered: Numbers | None = None) -> Groups:
    """Group the rows by the rule; `numbered` is what `numbers` gives, if it is known."""
    by_key, batches = numbered or numbers(columns, rule)
    coded = by_key
    cut_size = None
    short = None
    if rule.size is not None:
        coded = blocks(by_key, rule.size)
        too_few = sizes(coded) < rule.size
        short = too_few if too_few.any() and rule.partial != "keep" else None
    elif (logged := columns.logged_advantages(rule.logged_column)) is not None:
        cut_size = _size_by_advantages(by_key, logged)
        coded = by_key if cut_size is None else blocks(by_key, cut_size)
    return Groups(columns, rule, by_key, coded, batches, cut_size, short)


def _size_by_advantages(coded: Coded, advantages: pl.Series) -> int | None:
    """The size of all groups, if the logged advantages show that some groups merge several of that size.

    The advantages of a group add up to zero; if those of each block do, the prompt was drawn several times.
    """
    _, lengths = coded.runs()
    # All runs of a key are multiples of the size; the last run may be cut short.
    is_cut = len(lengths) > 1 and lengths[-1] < lengths[:-1].min()
    size = int(np.gcd.reduce(lengths[:-1] if is_cut else lengths))
    rows = sizes(coded)
    usual_size, _ = usual(coded)
    if size <= 1 or usual_size != size or rows.max() == size or (rows % size).any():
        return None
    cut = blocks(coded, size)
    values = advantages.fill_nan(None).fill_null(0.0).to_numpy()
    sums = np.bincount(cut.codes.to_numpy(), weights=values, minlength=cut.size)
    near = ROUNDED * size * max(1.0, np.abs(values).max())
    add_up = np.isfinite(sums).all() and (np.abs(sums) <= near).all()
    return size if add_up and values.any() else None


def is_one_dataset(tables: Sequence[Table]) -> bool:
    """Whether the files are, by name, all shards of a data set (`data-00000-of-00002.arrow`), which may be cut anywhere."""
    names = [re.fullmatch(r"(.*)-\d{5}-of-(\d{5})(\.\w+)", table.name) for table in tables]
    shards = {None if name is None else name.groups() for name in names}
    first = names[0]
    return first is not None and len(shards) == 1 and int(first[2]) == len(names)


# --- rows that are parts of one rollout ----------------------------------------------------------------------------


def with_rollouts(groups: Groups) -> Groups:
    """The groups with the rollout of every row, if it is known and some rollout has several rows.

    The plan of the result counts each rollout once, unless a preset or a flag says otherwise.
    """
    request = groups.request
    names = groups.rollout_columns
    is_needed = "rollout" in request.roles
    if not is_needed:
        names = tuple(name for name in names if not (name == ROLLOUT_NUMBER and _is_step(groups)))
    if not names:
        return groups
    rollouts = rollouts_by(groups, names)
    if is_needed:
        return replace(groups, rollouts=rollouts)
    if rollouts.size == groups.columns.height:
        return groups
    # Each part of a rollout may have its own prompt.
    roles = {**request.roles, "rollout": names[0]}
    for_checks = request.for_checks._replace(prompts=(), other_texts=())
    plan = counted(request.plan, request.layout.counting)
    request = replace(request, roles=roles, for_checks=for_checks, plan=plan)
    columns = replace(groups.columns, request=request)
    return replace(groups, columns=columns, rollouts=rollouts)


def _is_step(groups: Groups) -> bool:
    """Whether a rollout_id is the training step, as at the top of slime's dumps: one value in a file with several groups."""
    columns = groups.columns
    ids = columns.values[ROLLOUT_NUMBER]
    files = len(columns.tables)
    return not ids.null_count() and encode([columns.file, ids]).size <= files < groups.coded.size


def counted(plan: Plan, how: Counting) -> Plan:
    """The plan with a rule for rollouts of several rows, unless it has one already."""
    if plan.unit.take != "each" or how == "none":
        return plan
    # Once: all of its rows have the same reward.
    unit = replace(plan.unit, take="last" if how == "once" else how)
    return replace(plan, unit=unit)


def rollouts_by(groups: Groups, names: Sequence[str]) -> Coded:
    """The rollout of every row, by the first of these ids that is not null.

    An id is unique within its group, and a row without an id is its own rollout.
    """
    columns = groups.columns
    filled = [name for name in names if columns.values[name].null_count() < columns.height] or names
    ids, *others = (columns.values[name] for name in filled)
    if ids.null_count() and others:  # their types may differ
        texts = map(canonical, [ids, *others])
        ids = pl.select(pl.coalesce(texts)).to_series()
    keys = [groups.coded.codes, ids]
    if filled[0] == PARENT and len(columns.tables) > 1:
        keys.append(columns.file)  # records are numbered in each file
    if ids.null_count():
        own = pl.int_range(len(ids), eager=True)
        keys.append(where(ids.is_null(), own))
    return encode(keys)


# --- words --------------------------------------------------------------------------------------------------


def rollout_note(groups: Groups) -> list[str]:
    """How rollouts were found; empty if a flag names their column."""
    rollouts = groups.found_rollouts
    return [] if rollouts is None else [f"rollouts by {id_words(groups)}: {in_rows(groups, rollouts)}"]


def id_words(groups: Groups) -> str:
    """The ids as messages name them."""
    schema = groups.request.schema
    return ", else ".join(words(name) if schema is None else schema.words(name) for name in groups.rollout_columns)


def in_rows(groups: Groups, rollouts: Coded) -> str:
    """How many rollouts these are, in how many rows."""
    unit = "rollout" if rollouts.size == 1 else "rollouts"
    return f"{rollouts.size:,} {unit} in {groups.columns.height:,} rows"
