"""Which columns are read, and the grouping rule: decided from column names, before any column is read.

A column is named by a flag, by the schema, or found by a well-known name; some are read only for checks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

import polars as pl

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, UsageError
from grpo_cli.read.apply_schema import Filled, apply_schema
from grpo_cli.read.detect_schema import nearly
from grpo_cli.read.hints import flags_of_likely, inside_of_record, log_of_steps, refuse_absent, refuse_other_separator
from grpo_cli.read.known_names import (
    GROUP_TIERS,
    IDS_OF_TURNS,
    KNOWN_MARKS,
    LENGTHS,
    LIKELY_GROUP,
    LIKELY_REWARD,
    MOST_SOURCES,
    REWARD_TIERS,
    ROLLOUT_IDS,
    ROW_IDS,
    SAMPLE_IDS,
    SOURCES,
    STEPS,
    TIME,
    TURNS,
)
from grpo_cli.read.prompt_check import other_texts, prompt_columns
from grpo_cli.read.tables import Binding, FileTable, FrameTable, Table, column_names
from grpo_cli.schemas.table import Schema, items
from grpo_cli.values.cells import Field, Kind
from grpo_cli.values.paths import PARENT, shown

BY_TEXT: Final = "(found by name, no id beside it)"
LISTED: Final = 12  # columns listed in a message
NEAR: Final = 2  # near matches of a schema in a message
ID: Final = r"(^|_)(u?u?id|idx|index)$"  # the name of an id ends with this


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is read: the columns that flags, the schema or their names select, and the grouping rule."""

    plan: Plan
    flags: Binding  # the flags as given
    filled: Filled  # the flags, completed by the schema
    names: Sequence[str]  # all column names
    rule: Rule  # includes the columns of the key
    rewards: tuple[str, ...]
    roles: Mapping[str, str]  # the column of each extra quantity
    for_checks: ForChecks
    fields: Sequence[Field]  # all columns to read
    optional: set[str]  # columns that a file may lack
    note: str  # how the key was found
    warn: bool  # whether suspicious groups are looked for
    by: str = ""  # the column of --plan-by
    value: str = ""  # its value in the rows of this request
    parts: Mapping[str, Request] = field(default_factory=dict)  # the request of each plan, if several are united here

    @property
    def binding(self) -> Binding:
        """The flags, completed by the schema."""
        return self.filled.binding

    @property
    def schema(self) -> Schema | None:
        """The schema of the files, if any."""
        return self.filled.schema

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the key."""
        return self.rule.key

    @property
    def key_words(self) -> str:
        """The key as messages name it."""
        return self.filled.key_words or ", ".join(self.key)

    @property
    def read_names(self) -> set[str]:
        """The columns that the arithmetic reads."""
        return {*self.key, *self.rewards, *self.roles.values()}


def choose(
    tables: Sequence[Table], flags: Binding, plan: Plan, *, warn: bool = True, names: Sequence[str] = ()
) -> Request:
    """Choose what is read from the columns in `names` (default: all columns of the tables).

    Without `warn`, suspicious groups are not looked for.
    """
    filled = apply_schema(tables, flags, plan)
    names = names or column_names(tables)
    if not names:
        raise DataError(f"{tables[0].name}: no rows with columns", "there is nothing to compute from")
    return choose_among(names, filled, flags, plan, warn=warn)


def choose_among(names: Sequence[str], filled: Filled, flags: Binding, plan: Plan, *, warn: bool) -> Request:
    """Choose the key, the rewards, the other columns of the plan, and those for checks."""
    binding, schema = filled.binding, filled.schema
    key, note, rewards = _named_or_found(filled, names)
    _check_weights(plan, rewards)
    roles = columns_of_roles(binding, plan, names=names)
    key_is_named = bool(flags.group or flags.group_size)
    is_said = key_is_named or flags.group_within is not None  # one key is then one group
    rule = Rule(
        key=key,
        key_is_named=key_is_named,
        within=binding.group_within,
        size=binding.group_size,
        partial=binding.partial,
        batch_by=binding.batch_by,
        logged_column=schema.advantage if schema is not None and schema.one_size and not is_said else "",
    )
    named = rule.named_columns
    required = {*key, *rewards, *roles.values(), *named}
    for_checks = _for_checks(names, filled, rule, rewards, roles, warn=warn)
    derived = {} if schema is None else schema.derive
    marks = [mark.column for mark in filled.marks]
    marks = [name for name in marks if {name, name.split(".")[0]} & {*names} or name in derived]
    by_name = [*for_checks.columns, *marks, *filled.reasons, *filled.rollouts]
    kinds: dict[str, Kind] = dict.fromkeys((*key, *named), "key")
    kinds |= {mark.column: "key" for mark in filled.marks if mark.flag}
    kinds |= {name: ROLES[role].kind for role, name in roles.items() if not (role == "length" and name == "equal")}
    kinds |= dict.fromkeys(rewards, "key" if binding.outcomes else "number")
    # The logged advantage is read if it reveals the groups.
    logged: dict[str, Kind] = {filled.logged_column: "number"} if filled.logged_column else {}
    extra = {name: kind for name, kind in {**binding.carried, **logged}.items() if name not in kinds}
    kinds |= {name: "key" for name in by_name if name not in kinds and name not in extra}
    required |= {name for name in filled.rollouts if name in derived or name == PARENT}
    required |= {mark.column for mark in filled.marks if mark.flag or mark.column in derived}
    return Request(
        plan=plan,
        flags=flags,
        filled=filled,
        names=names,
        rule=rule,
        rewards=rewards,
        roles=roles,
        for_checks=for_checks,
        fields=[Field(name, kind) for name, kind in {**kinds, **extra}.items()],
        optional={*by_name, *logged} - required | ({*extra} & {*names}),
        note=f"group = {filled.key_words}{_within(filled.binding)}" if filled.key_words else note,
        warn=warn,
    )


def united(parts: Mapping[str, Request], by: str) -> Request:
    """One request for the columns of several plans and of --plan-by; columns that only some plans read may be missing."""
    kinds: dict[str, Kind] = {by: "key"}
    for field_ in (field_ for request in parts.values() for field_ in request.fields):
        if kinds.setdefault(field_.name, field_.kind) == "key":
            kinds[field_.name] = field_.kind
    for_all = set.intersection(
        *({read.name for read in request.fields} - request.optional for request in parts.values())
    )
    return replace(
        next(iter(parts.values())),
        rewards=tuple(dict.fromkeys(name for request in parts.values() for name in request.rewards)),
        fields=[Field(name, kind) for name, kind in kinds.items()],
        optional={*kinds} - for_all - {by},
        by=by,
        parts=parts,
    )


def _for_checks(
    names: Sequence[str], filled: Filled, rule: Rule, rewards: Sequence[str], roles: Mapping[str, str], *, warn: bool
) -> ForChecks:
    """The columns that only the checks read; without `warn`, not those that are read only for warnings."""
    binding, schema, key, named = filled.binding, filled.schema, rule.key, rule.named_columns
    repeats = () if schema is None else schema.repeats
    steps = [name for name in STEPS if name in names and name not in repeats]
    if TIME in steps and TIME not in (*key, *named) and _differs_in_every_row(filled.tables[0], TIME):
        steps.remove(TIME)  # it is the time of each row, and separates nothing
    sample = next((name for name in SAMPLE_IDS if warn and name in names), "")
    by_text = not binding.group and len(key) == 1 and key[0] in GROUP_TIERS[-1]
    ids = [name for name in ROW_IDS if by_text and name in names]
    is_open = schema is None and "rollout" not in roles and binding.rollouts != "none"
    others = {*names} - {*key, *rewards, *named}
    readable = others - _of_python_objects(filled.tables)
    turn = next((name for name in TURNS if is_open and name in readable), "")
    rollouts: list[str] = [name for name in ROLLOUT_IDS if is_open and name in others]
    rollouts += [name for name in IDS_OF_TURNS if turn and name in readable]
    sources = [name for name in SOURCES if warn and name in readable - {*repeats}][:MOST_SOURCES]
    unread = readable - {*roles.values(), *filled.reasons}
    marks = [name for name in KNOWN_MARKS if warn and not filled.marks and name in unread]
    found = ForChecks(steps, sample, ids, rollouts, turn if rollouts else "", sources, (), (), marks)
    derived, no_prompts = ((), ()) if schema is None else (schema.derive, schema.no_prompts)
    if not binding.compare_prompts or "rollout" in roles or {*key} & {*derived}:
        return found  # each step of a rollout may have its own prompt
    if prompts := prompt_columns([name for name in names if name not in no_prompts], key):
        return found._replace(prompts=prompts)
    # Other texts are not compared if the key was named, comes from a known tool, or is a prompt itself.
    if not warn or binding.group or not {*key} & {*GROUP_TIERS[0]}:
        return found
    marked = [mark.column for mark in filled.marks]
    taken = {*key, *rewards, *roles.values(), *named, *found.columns, *marked, *filled.rollouts}
    return found._replace(other_texts=other_texts(filled.tables[0], taken))


def _of_python_objects(tables: Sequence[Table]) -> set[str]:
    """The columns of frames that are of no type, or of several, so that they may not be readable."""
    frames = (table for table in tables if isinstance(table, FrameTable))
    return {name for table in frames for name in table.names if table.types.get(name, pl.Object) == pl.Object}


def _differs_in_every_row(table: Table, name: str) -> bool:
    """Whether no value repeats in the first rows of a file of text."""
    records = table.format.sample(table.source) if isinstance(table, FileTable) else ()
    return 1 < len(records) == len({str(record.get(name)) for record in records})


def columns_of_roles(binding: Binding, *plans: Plan, names: Sequence[str] = ()) -> dict[str, str]:
    """The column of each extra quantity: those that the plans need, and optional ones that were named.

    An error suggests one of `names` for the length.
    """
    missing = {role: plan.reader(role) for plan in plans for role in plan.needs if role not in binding.roles}
    if missing:
        what = "; ".join(f"{reader} needs {ROLES[role].meaning}" for role, reader in missing.items())
        likely = {"length": next((name for name in LENGTHS if name in names), "COLUMN")}
        flags = " and ".join(f"{ROLES[role].flag} {likely.get(role, 'COLUMN')}" for role in missing)
        equal = ", or --length-column equal when every response counts the same" if [*missing] == ["length"] else ""
        raise UsageError(what, f"name the {'column' if len(missing) == 1 else 'columns'} with {flags}{equal}")
    return dict(binding.roles)


def _named_or_found(filled: Filled, names: Sequence[str]) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """The key, a note on how it was found, and the rewards; one error lists everything that is missing."""
    binding = filled.binding
    group, inside = tuple(dict.fromkeys(binding.group)), _within(binding)
    note = f"group = {', '.join(group)}{inside}"
    rewards = binding.rewards
    if not {*rewards} & {*names}:
        refuse_other_separator(filled.tables, names)
    if not rewards and not any(re.search(LIKELY_REWARD, name, re.IGNORECASE) for name in names):
        keyed = group or binding.group_size is not None or {name for tier in GROUP_TIERS for name in tier} & {*names}
        more = "" if keyed else ", and the key with --group NAME"
        raise DataError(
            f"no column looks like the reward (columns: {_listed(names, LIKELY_GROUP)}){inside_of_record(filled.tables)}",
            f"name it with --reward NAME{more}{flags_of_likely(filled.tables, group=not keyed, reward=True)}; "
            f"rows without a reward must be scored first{_near(filled.tables)}",
        )
    missing = {}
    if not group and binding.group_size is not None:
        note = f"group = blocks of {binding.group_size} rows{inside}"
    elif not group and (key := _by_name("group key", GROUP_TIERS, names, "--group")):
        beside = key in GROUP_TIERS[-1] and not any(re.search(ID, name, re.IGNORECASE) for name in names)
        group, note = (key,), f"group = {key}{inside} {BY_TEXT if beside else '(found by name)'}"
    elif not group:
        missing["--group NAME"] = ("the group key", LIKELY_GROUP)
    if not rewards and (name := _by_name("reward", REWARD_TIERS, names, "--reward")):
        rewards = (name,)
    elif not rewards:
        missing["--reward NAME"] = ("the reward", LIKELY_REWARD)
    if missing:
        refuse_absent(rewards, filled.tables)
        likely = "|".join(pattern for _, pattern in missing.values())
        what = " or ".join(what for what, _ in missing.values())
        likely_flags = flags_of_likely(
            filled.tables, group="--group NAME" in missing, reward="--reward NAME" in missing
        )
        raise DataError(
            f"no column looks like {what} (columns: {_listed(names, likely)}){inside_of_record(filled.tables)}",
            f"name {'it' if len(missing) == 1 else 'them'} with {' and '.join(missing)}{likely_flags}{_near(filled.tables)}",
        )
    return group, note, rewards


def _within(binding: Binding) -> str:
    """Where the key is unique, in words; the whole input goes without saying."""
    return "" if binding.group_within in {None, "input", *binding.group} else f" within {binding.group_within}"


def _listed(names: Sequence[str], likely: str) -> str:
    """The first columns, likely columns before others."""
    ordered = sorted(names, key=lambda name: re.search(likely, name, re.IGNORECASE) is None)
    return ", ".join(map(shown, ordered[:LISTED])) + (", ..." if len(names) > LISTED else "")


def _near(tables: Sequence[Table]) -> str:
    """A hint: which schemas nearly match the first file, and where to read more."""
    if log := log_of_steps(tables):
        return f"; {log}"
    if not tables or not isinstance(tables[0], FileTable):
        return ""
    near = " and ".join(f"{match.schema.title} ({', '.join(match.against)})" for match in nearly(tables[0])[:NEAR])
    is_near = f"; its layout is close to {near}: grpo-adv schemas FILE shows more" if near else ""
    return is_near or "; grpo-adv schemas FILE shows the nearest known layout"


def _by_name(what: str, tiers: Sequence[Sequence[str]], names: Sequence[str], flag: str) -> str | None:
    """The first tier's known name, or None; two known names in one tier are an error."""
    for tier in tiers:
        candidates = [name for name in tier if name in names]
        if len(candidates) > 1:
            raise DataError(f"several columns could be the {what}: {', '.join(candidates)}", f"choose with {flag} NAME")
        if candidates:
            return candidates[0]
    return None


def _check_weights(plan: Plan, rewards: Sequence[str]) -> None:
    weights = plan.rewards.weights
    twice = [name for name, count in Counter(rewards).items() if count > 1]
    if twice:
        raise UsageError(f"the reward column {twice[0]!r} is named twice", "give each column once, with its weight")
    if weights and len(weights) != len(rewards):
        raise UsageError(
            f"{len(weights)} reward weights for {len(rewards)} reward columns", "give --reward COLUMN=WEIGHT for each"
        )
