"""Which columns are read, and the grouping rule: decided from column names, before any column is read.

A column is named by a flag, by the schema, or found by a well-known name; some are read only for checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import Cure, UsageError, Way
from grpo_cli.read.for_checks import ForChecks, for_checks
from grpo_cli.read.known_names import LENGTHS
from grpo_cli.read.layout import Layout
from grpo_cli.read.tables import Binding
from grpo_cli.read.wanted import WantedColumn, WantedColumns, of_any
from grpo_cli.schemas.table import Schema
from grpo_cli.values.cells import Field, Kind
from grpo_cli.values.paths import PARENT, is_there, items


class Rule(NamedTuple):
    """The grouping rule: which rows are a group, and which groups are a batch.

    `within` and the parts of a batch are columns, `file` or `input`.
    """

    key: tuple[str, ...] = ()  # columns; without a key all rows of a file are one group, which is cut into blocks
    key_is_named: bool = True  # a flag names the key; otherwise suspicious groups stop the run
    within: str | None = None  # where the key is unique; None: not given
    size: int | None = None  # rows of the blocks that each key is cut into
    partial: Literal["error", "keep", "drop"] = "error"  # what to do with a shorter last block
    batch_by: str | None = None  # what divides the batches; None: not given
    logged_column: str = ""  # the column of logged advantages, if they show the size of a group

    @classmethod
    def of(cls, layout: Layout, plan: Plan) -> Rule:
        """The rule of a layout; batches only if the plan or a flag asks for them."""
        binding = layout.binding
        schema = layout.schema
        is_said = layout.key_is_named or layout.flags.group_within is not None  # one key is then one group
        return cls(
            key=layout.key,
            key_is_named=layout.key_is_named,
            within=binding.group_within,
            size=binding.group_size,
            partial=binding.partial,
            batch_by=binding.batch_by or (layout.batch if plan.uses_batch else "") or None,
            logged_column=schema.advantage if schema is not None and schema.one_size and not is_said else "",
        )

    @property
    def batch_name(self) -> str:
        """What divides the batches."""
        return self.batch_by or "input"

    @property
    def batch_parts(self) -> list[str]:
        """The columns that divide the batches, including `file`."""
        return [name for name in items(self.batch_name) if name != "input"]

    @property
    def within_columns(self) -> list[str]:
        """The column that `within` names, if any."""
        return [] if self.within in {None, "input", "file"} else [str(self.within)]

    @property
    def named_columns(self) -> list[str]:
        """Columns that `within` and `batch_by` name."""
        return [*self.within_columns, *(name for name in self.batch_parts if name != "file")]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is read: the columns that flags, the schema or their names select, and the grouping rule."""

    plan: Plan
    layout: Layout
    rule: Rule  # includes the columns of the key
    rewards: tuple[str, ...]
    roles: Mapping[str, str]  # the column of each extra quantity
    for_checks: ForChecks
    columns: Mapping[str, WantedColumn]  # all columns to read, by name
    warn: bool  # whether suspicious groups are looked for
    by: str = ""  # the column of --plan-by
    value: str = ""  # its value in the rows of this request
    of_plan: str = ""  # the name of the plan that this value has
    parts: Mapping[str, Request] = field(default_factory=dict)  # the request of each plan, if several are united here

    @property
    def binding(self) -> Binding:
        """The flags, completed by the schema."""
        return self.layout.binding

    @property
    def schema(self) -> Schema | None:
        """The schema of the files, if any."""
        return self.layout.schema

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the key."""
        return self.rule.key

    @property
    def key_words(self) -> str:
        """The key as messages name it."""
        return self.layout.key_words or ", ".join(self.key)

    @property
    def fields(self) -> list[Field]:
        """How each column is read."""
        return [column.field for column in self.columns.values()]

    @property
    def optional(self) -> set[str]:
        """The columns that a file may lack."""
        return {name for name, column in self.columns.items() if column.need != "required"}

    @property
    def sought(self) -> set[str]:
        """Those of them that a row anywhere in the file may have."""
        return {name for name, column in self.columns.items() if column.need == "sought"}

    @property
    def read_names(self) -> set[str]:
        """The columns that the arithmetic reads."""
        return {*self.key, *self.rewards, *self.roles.values()}


def choose(layout: Layout, plan: Plan, *, warn: bool = True) -> Request:
    """Choose the columns that the plan reads, and those for checks; without `warn`, suspicious groups are not looked for."""
    _check_weights(plan, layout.rewards)
    roles = columns_of_roles(layout, plan)
    rule = Rule.of(layout, plan)
    checked = for_checks(layout, roles, rule.named_columns, warn=warn)
    return Request(
        plan=plan,
        layout=layout,
        rule=rule,
        rewards=layout.rewards,
        roles=roles,
        for_checks=checked,
        columns=_wanted(layout, rule, roles, checked).columns,
        warn=warn,
    )


def _wanted(layout: Layout, rule: Rule, roles: Mapping[str, str], checked: ForChecks) -> WantedColumns:
    """All columns to read: those of the plan and of flags, those of checks and of the schema, and those for the caller."""
    binding = layout.binding
    wanted = WantedColumns(binding.made)
    wanted.require((*rule.key, *rule.named_columns), "key")
    for mark in layout.marks:
        if mark.unmet is not None:  # --rows
            wanted.seek(mark.columns, "key")
        elif mark.flag:
            wanted.require(mark.columns, "key")
    for role, name in roles.items():
        if not (role == "length" and name == "equal"):
            wanted.require([name], ROLES[role].kind)
    wanted.require(layout.rewards, "key" if binding.outcomes else "number")

    wanted.add((*checked.columns, *layout.reasons))
    derived = {PARENT} if layout.schema is None else {PARENT, *layout.schema.derive}
    for name in (*_marked_by_schema(layout), *layout.rollouts):
        wanted.add([name], "required" if name in derived else "optional")

    logged: dict[str, Kind] = {layout.logged_column: "number"} if layout.logged_column else {}
    for name, kind in {**binding.carried, **logged}.items():
        of_schema = layout.schema is not None and name == layout.schema.stop
        is_known = name in layout.names or name in logged or of_schema
        wanted.carry(name, kind, "optional" if is_known else "required")
    return wanted


def _marked_by_schema(layout: Layout) -> list[str]:
    """The columns of the schema's marks, where the files have them."""
    derived = {} if layout.schema is None else layout.schema.derive
    columns = [name for mark in layout.marks if not mark.flag for name in mark.columns]
    return [name for name in columns if is_there(name, layout.names) or name in derived]


def united(parts: Mapping[str, Request], by: str) -> Request:
    """One request for the columns of several plans and of --plan-by; columns that only some plans read may be missing."""
    rewards = [name for request in parts.values() for name in request.rewards]
    columns = {by: WantedColumn(Field(by, "key"), "required")}
    columns |= of_any([request.columns for request in parts.values()])
    columns[by] = replace(columns[by], need="required")
    return replace(
        next(iter(parts.values())),
        rewards=tuple(dict.fromkeys(rewards)),
        columns=columns,
        by=by,
        parts=parts,
    )


def columns_of_roles(layout: Layout, *plans: Plan) -> dict[str, str]:
    """The column of each extra quantity: those that the plans need, and optional ones that were named."""
    needed = dict.fromkeys(role for plan in plans for role in plan.needs)
    by_schema = {"length": layout.length, "rollout": next(iter(layout.rollouts), "")}
    of_schema = {role: name for role, name in by_schema.items() if name and role in needed}
    roles = {**of_schema, **layout.binding.roles}
    missing = [role for role in needed if role not in roles]
    if missing:
        what = f"the plan needs {'; '.join(ROLES[role].meaning for role in missing)}"
        likely = {"length": next((name for name in LENGTHS if name in layout.names), "COLUMN")}
        flags = " and ".join(f"{ROLES[role].flag} {likely.get(role, 'COLUMN')}" for role in missing)
        cures: list[Cure] = [f"name the {'column' if len(missing) == 1 else 'columns'} with {flags}"]
        if missing == ["length"]:
            cures.append(Way("--length-column", "equal", "counts every response the same"))
        raise UsageError(what, cures)
    return roles


def unread_columns(roles: Mapping[str, str], read: Collection[str], by: str = "this plan") -> list[str]:
    """Warnings about columns of quantities that are named and not read."""
    unread = {role: name for role, name in roles.items() if role not in read}
    return [f"{ROLES[role].flag} {name} is not read by {by}" for role, name in unread.items()]


def _check_weights(plan: Plan, rewards: Sequence[str]) -> None:
    weights = plan.rewards.weights
    twice = [name for name, count in Counter(rewards).items() if count > 1]
    if twice:
        raise UsageError(f"the reward column {twice[0]!r} is named twice", "give each column once, with its weight")
    if weights and len(weights) != len(rewards):
        raise UsageError(
            f"{len(weights)} reward weights for {len(rewards)} reward columns",
            Way("--reward", why="for each", lead="give", fill="COLUMN=WEIGHT"),
        )
