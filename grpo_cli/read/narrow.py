"""The narrow table: rows with their group and batch, their rewards, and the other columns that the arithmetic reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from grpo_cli.engine.extra_columns import APART, LEFT_OUT, MASKED, ROLES
from grpo_cli.engine.moments import Index
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import weighted_sum
from grpo_cli.read.group_keys import Coded, encode
from grpo_cli.read.groups import Groups, rollout_note
from grpo_cli.read.marks import Marked, counts_of
from grpo_cli.read.request import Request, Rule
from grpo_cli.read.tables import FILE, Located, label
from grpo_cli.schemas.table import MarkKind, words
from grpo_cli.values.key_text import LONGEST

RowNumbers = Index


@dataclass(frozen=True, kw_only=True)
class Narrow(Located):
    """The narrow table, and where its rows come from."""

    table: pl.DataFrame
    request: Request
    rule: Rule
    height: int  # rows that were read, before groups were dropped
    groups: Coded
    key: pl.DataFrame  # one line per group: one per row would take most of the memory
    batches: int
    carried: Mapping[str, pl.Series]  # row by row like `table`
    marked: Marked | None  # rows that do not count like others
    foreign: Index | None  # rows of the tables that are no rollouts, and are not in `table`
    foreign_counts: Mapping[tuple[MarkKind, str, str], int]  # see `Marked.counts`
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, groups: Groups, warnings: tuple[str, ...] = ()) -> Narrow:
        """The narrow table of these groups, without dropped groups."""
        columns = groups.columns
        request = groups.request
        rewards = [reward.alias(f"reward.{k}") for k, reward in enumerate(columns.rewards())]
        roles = [_role(groups, role, name) for role, name in request.roles.items()]
        marks = [] if columns.marked is None else [columns.marked.of_kind(kind).alias(kind) for kind in APART]
        marks = [rows for rows in marks if rows.any()]
        group = groups.coded.codes.alias("group")
        batch = groups.batches.codes.alias("batch")
        table = pl.DataFrame([group, batch, *rewards, *roles, *marks])
        for role in ("input_length", "turns"):
            if role not in request.roles:
                table = table.with_columns(pl.lit(ROLES[role].default).alias(role))
        notes = [*request.layout.notes]
        if groups.cut_size is not None:
            blocks = f"blocks of {groups.cut_size} rows"
            notes.append(f"groups are cut into {blocks}: the logged advantages of each add up to 0")
        notes += rollout_note(groups)
        notes.append(f"group = {request.layout.key_note}")
        notes.append(f"reward = {weighted_sum(request.rewards, request.plan.rewards.weights)}")
        every = cls(
            table=table,
            request=request,
            rule=groups.rule,
            tables=columns.tables,
            lengths=columns.lengths,
            scans=columns.scans,
            height=columns.height,
            rows=columns.rows,
            groups=groups.coded,
            key=_identity(groups),
            batches=groups.batches.size,
            carried={name: columns.values[name] for name in request.binding.carried},
            marked=columns.marked,
            foreign=columns.foreign,
            foreign_counts=columns.foreign_counts,
            notes=tuple(notes),
            warnings=warnings,
        )
        if groups.dropped is None:
            return every
        dropped = groups.dropped[groups.coded.codes.to_numpy()]
        return every.at(np.flatnonzero(~dropped))

    def at(self, places: Index) -> Narrow:
        """Only the rows at these places; the remaining groups are numbered again."""
        table = self.table[places]
        groups = encode([table["group"]])
        batches = encode([table["batch"]])
        key = self.key
        if key.width:
            key = key[table["group"].gather(groups.first)]
        return replace(
            self,
            table=table.with_columns(group=groups.codes, batch=batches.codes),
            rows=self.places_of(places),
            groups=groups,
            key=key,
            batches=batches.size,
            carried={name: column[places] for name, column in self.carried.items()},
            marked=None if self.marked is None else self.marked.at(places),
        )

    def cut(self, rows: slice, request: Request, warnings: tuple[str, ...], *, marked: Marked | None) -> Narrow:
        """Only these consecutive rows, as if there were no others: no other row has a group or batch of theirs.

        The request, the warnings and the marks are theirs.
        """
        groups = self.groups.cut(rows)
        first = int(self.groups.codes[rows.start])
        batch = self.table["batch"][rows].to_numpy()
        batch = batch - batch[0]
        table = []
        for column in self.table[rows]:
            name = column.name
            if name == "group":
                table.append(groups.codes.alias(name))
            elif name == "batch":
                table.append(pl.Series(name, batch))
            elif name in ROLES and ROLES[name].kind == "key":
                table.append(encode([column]).codes.alias(name))
            elif name not in APART or column.any():
                table.append(column)
        return replace(
            self,
            table=pl.DataFrame(table),
            request=request,
            rows=self.places_of(np.arange(rows.start, rows.stop)),
            height=rows.stop - rows.start,
            groups=groups,
            key=self.key[first : first + groups.size],
            batches=int(batch.max()) + 1,
            carried={name: column[rows] for name, column in self.carried.items()},
            marked=marked,
            warnings=warnings,
        )

    @property
    def plan(self) -> Plan:
        """The plan to compute: the caller's, or a plan that counts rollouts if rows are parts of rollouts."""
        return self.request.plan

    @property
    def left_out(self) -> pl.Series:
        """The rows that are left out of their groups."""
        return self._kind(LEFT_OUT)

    @property
    def masked(self) -> pl.Series:
        """The rows that count in their groups and are not trained on."""
        return self._kind(MASKED)

    @property
    def mark_counts(self) -> Counter[tuple[MarkKind, str, str]]:
        """How many rows are marked, by kind, mark and reason; 0 for the value of a flag that no row has."""
        return counts_of(self.marked, self.foreign_counts)

    def _kind(self, name: str) -> pl.Series:
        if name in self.table.columns:
            return self.table[name]
        return pl.repeat(False, len(self.table), eager=True)  # noqa: FBT003 - a value

    @property
    def without_reward(self) -> pl.Series | None:
        """The rows without any finite reward, if the tool is known to write such rows; otherwise None."""
        if not self.request.layout.may_lack_rewards:
            return None
        rewards = pl.selectors.starts_with("reward.")
        unusable = rewards.is_null() | ~rewards.is_finite()
        return self.table.select(pl.all_horizontal(unusable)).to_series()

    @property
    def reward_names(self) -> tuple[str, ...]:
        """The columns of the rewards, in the order of `reward.0`, `reward.1`, ..."""
        return self.request.rewards

    @property
    def key_words(self) -> tuple[str, ...]:
        """The columns of the key as messages name them."""
        names = tuple(self.key.columns)
        return tuple(name if words(name) in names else words(name) for name in names)

    @property
    def schema(self) -> str | None:
        """The title of the schema."""
        return None if self.request.schema is None else self.request.schema.title

    def files(self) -> pl.Series:
        """The file name of every row."""
        return pl.Series("file", [table.name for table in self.tables]).gather(self.file)

    def spot(self, row: int) -> tuple[str, int]:
        """The file name and the number of the row in it (1 = the first), without reading the file."""
        ((file, inside),) = self.by_file(self.places_of(np.array([row])))
        return self.tables[file].name, int(inside[0]) + 1

    def label(self, code: int, width: int = LONGEST) -> str:
        """The key of a group as text on one line, nearly always in full; each of its columns in no more than `width` cells."""
        return label(self.key, code, self.groups.first[code], width)


def _identity(groups: Groups) -> pl.DataFrame:
    """What distinguishes groups, a row for each: the file or the column that the key is unique within, and the key."""
    columns = groups.columns
    rule = groups.rule
    first = groups.coded.first
    outer = [name for name in rule.within_columns if name not in rule.key]
    key = pl.DataFrame({name: columns.values[name] for name in (*outer, *rule.key)})
    if not key.width:
        return key
    # Copied texts do not keep those of all rows in memory.
    key = key[first].with_columns(pl.col(pl.String) + "")
    if rule.within != "file" or len(columns.tables) == 1 or FILE in key.columns:
        return key
    files = pl.Series(FILE, [table.name for table in columns.tables])
    return key.insert_column(0, files.gather(columns.file.gather(first)))


def _role(groups: Groups, role: str, name: str) -> pl.Series:
    """An extra column, named by its role; keys such as rollout ids become numbers."""
    columns = groups.columns
    if role == "length" and name == "equal":
        return pl.ones(columns.height, dtype=pl.Float64, eager=True).alias(role)
    column = columns.values[name]
    if role == "truncated":
        column = column.cast(pl.Boolean)
    elif role == "rollout" and groups.rollouts is not None:
        column = groups.rollouts.codes
    elif ROLES[role].kind == "key":
        column = encode([column]).codes
    return column.alias(role)
