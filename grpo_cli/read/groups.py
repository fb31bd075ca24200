"""Divide rows into groups and groups into batches, from a rule and the columns only; `checks` judges the result."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from grpo_cli.engine.group_stats import Mask
from grpo_cli.read.columns import Columns
from grpo_cli.read.group_keys import Coded, blocks, encode, sizes, within
from grpo_cli.read.prompt_check import Mixed, mixed_prompts
from grpo_cli.read.repeated_draws import size_by_advantages
from grpo_cli.read.request import Request, Rule
from grpo_cli.read.tables import Table


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
    def dropped(self) -> Mask | None:
        """The groups that are dropped, if any."""
        return self.short if self.rule.partial == "drop" else None

    @cached_property
    def mixed(self) -> Mixed | None:
        """Groups with several prompts, from a sample of the rows; None if none were found."""
        return self.prompts_of(self.by_key if self.cut_size else self.coded)

    def prompts_of(self, coded: Coded) -> Mixed | None:
        """The same for another grouping of the same rows."""
        columns, texts = self.columns, self.request.for_checks
        if columns.rows is not None:  # rows that were not read get a code after the last group
            codes = np.full(sum(columns.lengths), coded.size, np.uint32)
            codes[columns.rows] = coded.codes.to_numpy()
            coded = Coded(pl.Series(codes), coded.first)
        return mixed_prompts(columns, coded, texts.prompts, texts.other_texts)


def group(columns: Columns, rule: Rule) -> Groups:
    """Group the rows by the rule."""
    coded = encode([columns.values[name] for name in rule.key], columns.height)
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
