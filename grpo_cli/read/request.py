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
from grpo_cli.formats.frame import FrameReader
from grpo_cli.read.known_names import (
    GROUP_TIERS,
    IDS_OF_TURNS,
    KNOWN_MARKS,
    LENGTHS,
    MOST_SOURCES,
    ROLLOUT_IDS,
    ROW_IDS,
    SAMPLE_IDS,
    SOURCES,
    STEPS,
    TIME,
    TURNS,
)
from grpo_cli.read.layout import Layout
from grpo_cli.read.prompt_check import other_texts, prompts_by_name
from grpo_cli.read.tables import Binding, Table
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


class ForChecks(NamedTuple):
    """Columns that are read only for the checks, where the files have them."""

    steps: Sequence[str]  # training or sampling steps: a key that occurs in several of them may be several groups
    sample: str  # the number of a sample in its group: repeated if rows were written twice; "" if there is none
    ids: Sequence[str]  # candidates for the key where only a text was found by name
    rollouts: Sequence[str]  # rollout ids that neither a flag nor the schema names: several rows may be one rollout
    turn: str  # the number of a turn, which shows that rows are turns of rollouts; "" if there is none
    sources: Sequence[str]  # the model, the data set and the like that a row is from, read for warnings
    prompts: Sequence[str]  # texts that differ within a group if it merges several prompts
    other_texts: Sequence[str]  # texts that may be prompts, if no column has the name of a prompt
    marks: Sequence[str]  # columns that may mark rows, if nothing says which rows are marked

    @property
    def columns(self) -> list[str]:
        """The columns to read in full; of the texts, the check fetches a few rows."""
        return [
            *self.steps,
            *self.ids,
            *self.rollouts,
            *self.sources,
            *self.marks,
            *filter(None, [self.sample, self.turn]),
        ]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is read: the columns that flags, the schema or their names select, and the grouping rule."""

    plan: Plan
    layout: Layout
    rule: Rule  # includes the columns of the key
    rewards: tuple[str, ...]
    roles: Mapping[str, str]  # the column of each extra quantity
    for_checks: ForChecks
    fields: Sequence[Field]  # all columns to read
    optional: set[str]  # columns that a file may lack
    sought: set[str]  # those of them that a row anywhere in the file may have
    warn: bool  # whether suspicious groups are looked for
    by: str = ""  # the column of --plan-by
    value: str = ""  # its value in the rows of this request
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
    def read_names(self) -> set[str]:
        """The columns that the arithmetic reads."""
        return {*self.key, *self.rewards, *self.roles.values()}


def choose(layout: Layout, plan: Plan, *, warn: bool = True) -> Request:
    """Choose the columns that the plan reads, and those for checks; without `warn`, suspicious groups are not looked for."""
    binding = layout.binding
    schema = layout.schema
    names = layout.names
    key = layout.key
    rewards = layout.rewards
    derived = {} if schema is None else schema.derive
    _check_weights(plan, rewards)
    roles = columns_of_roles(layout, plan)
    is_said = layout.key_is_named or layout.flags.group_within is not None  # one key is then one group
    rule = Rule(
        key=key,
        key_is_named=layout.key_is_named,
        within=binding.group_within,
        size=binding.group_size,
        partial=binding.partial,
        batch_by=binding.batch_by or (layout.batch if plan.uses_batch else "") or None,
        logged_column=schema.advantage if schema is not None and schema.one_size and not is_said else "",
    )
    named = rule.named_columns
    required = {*key, *rewards, *roles.values(), *named}
    for_checks = _for_checks(layout, rule, roles, warn=warn)
    required |= {name for name in layout.rollouts if name in derived or name == PARENT}
    kinds: dict[str, Kind] = dict.fromkeys((*key, *named), "key")
    marked = []
    sought = set[str]()
    for mark in layout.marks:
        marked += [name for name in mark.columns if is_there(name, names) or name in derived]
        if mark.flag:
            kinds |= dict.fromkeys(mark.columns, "key")
        if mark.unmet is not None:
            sought.update(mark.columns)
        else:
            required.update(name for name in mark.columns if mark.flag or name in derived)
    for role, name in roles.items():
        if not (role == "length" and name == "equal"):
            kinds[name] = ROLES[role].kind
    kinds |= dict.fromkeys(rewards, "key" if binding.outcomes else "number")
    # The logged advantage is read if it reveals the groups.
    logged: dict[str, Kind] = {layout.logged_column: "number"} if layout.logged_column else {}
    extra = {name: kind for name, kind in {**binding.carried, **logged}.items() if name not in kinds}
    by_name = [*for_checks.columns, *marked, *layout.reasons, *layout.rollouts]
    kinds |= {name: "key" for name in by_name if name not in kinds and name not in extra}
    sought -= required
    optional = {*by_name, *logged} - required | ({*extra} & {*names}) | sought
    made = {field_.name: field_ for field_ in binding.made}
    return Request(
        plan=plan,
        layout=layout,
        rule=rule,
        rewards=rewards,
        roles=roles,
        for_checks=for_checks,
        fields=[made.get(name) or Field(name, kind) for name, kind in {**kinds, **extra}.items()],
        optional=optional,
        sought=sought,
        warn=warn,
    )


def united(parts: Mapping[str, Request], by: str) -> Request:
    """One request for the columns of several plans and of --plan-by; columns that only some plans read may be missing."""
    kinds: dict[str, Kind] = {by: "key"}
    made = dict[str, Field]()
    rewards = list[str]()
    needed = []
    for request in parts.values():
        for field_ in request.fields:
            if kinds.setdefault(field_.name, field_.kind) == "key":
                kinds[field_.name] = field_.kind
        made |= {field_.name: field_ for field_ in request.binding.made}
        rewards += request.rewards
        needed.append({field_.name for field_ in request.fields} - request.optional)
    for_all = set.intersection(*needed)
    return replace(
        next(iter(parts.values())),
        rewards=tuple(dict.fromkeys(rewards)),
        fields=[made.get(name) or Field(name, kind) for name, kind in kinds.items()],
        optional={*kinds} - for_all - {by},
        by=by,
        parts=parts,
    )


def _for_checks(layout: Layout, rule: Rule, roles: Mapping[str, str], *, warn: bool) -> ForChecks:
    """The columns that only the checks read; without `warn`, not those that are read only for warnings."""
    binding = layout.binding
    schema = layout.schema
    names = layout.names
    rewards = layout.rewards
    key = rule.key
    named = rule.named_columns
    repeats = () if schema is None else schema.repeats
    steps = [name for name in STEPS if name in names and name not in repeats]
    if TIME in steps and TIME not in (*key, *named) and _differs_in_every_row(layout.tables[0], TIME):
        steps.remove(TIME)  # it is the time of each row, and separates nothing
    sample = next((name for name in SAMPLE_IDS if warn and name in names), "")
    by_text = not binding.group and len(key) == 1 and key[0] in GROUP_TIERS[-1]
    ids = [name for name in ROW_IDS if by_text and name in names]
    is_open = schema is None and "rollout" not in roles and binding.rollouts != "none"
    others = {*names} - {*key, *rewards, *named}
    readable = others.difference(*(one.format.untyped for one in layout.tables if isinstance(one.format, FrameReader)))
    turn = next((name for name in TURNS if is_open and name in readable), "")
    rollouts = [name for name in ROLLOUT_IDS if is_open and name in others]
    rollouts += [name for name in IDS_OF_TURNS if turn and name in readable]
    sources = [name for name in SOURCES if warn and name in readable - {*repeats}][:MOST_SOURCES]
    marked = [name for mark in layout.marks for name in mark.columns]
    unread = readable - {*roles.values(), *layout.reasons, *marked}
    is_said = any(mark.unmet is None for mark in layout.marks)
    marks = [name for name in KNOWN_MARKS if warn and not is_said and name in unread]
    found = ForChecks(steps, sample, ids, rollouts, turn if rollouts else "", sources, (), (), marks)
    derived, no_prompts = ((), ()) if schema is None else (schema.derive, schema.no_prompts)
    if not binding.compare_prompts or "rollout" in roles or {*key} & {*derived}:
        return found  # each step of a rollout may have its own prompt
    if prompts := prompts_by_name([name for name in names if name not in no_prompts], key):
        return found._replace(prompts=prompts)
    # Other texts are not compared if the key was named, comes from a known tool, or is a prompt itself.
    if not warn or binding.group or not {*key} & {*GROUP_TIERS[0]}:
        return found
    taken = {*key, *rewards, *roles.values(), *named, *found.columns, *marked, *layout.rollouts}
    return found._replace(other_texts=other_texts(layout.tables[0], taken))


def _differs_in_every_row(table: Table, name: str) -> bool:
    """Whether no value repeats in the first rows of a file of text."""
    records = table.sample().records
    return 1 < len(records) == len({str(record.get(name)) for record in records})


def columns_of_roles(layout: Layout, *plans: Plan) -> dict[str, str]:
    """The column of each extra quantity: those that the plans need, and optional ones that were named."""
    needed = dict.fromkeys(role for plan in plans for role in plan.needs)
    by_schema = {"length": layout.length, "rollout": next(iter(layout.rollouts), "")}
    found = {role: name for role, name in by_schema.items() if name and role in needed}
    roles = {**found, **layout.binding.roles}
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
