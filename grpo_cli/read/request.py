"""What is read from the files, and the grouping rule: decided by column names, before anything is read.

Columns are those that were named, those found by name, and those that only serve warnings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, UsageError
from grpo_cli.read.apply_schema import Filled, apply_schema
from grpo_cli.read.detect_schema import nearly
from grpo_cli.read.hints import flags_of_likely, inside_of_record, log_of_steps, refuse_absent
from grpo_cli.read.known_names import (
    GROUP_TIERS,
    LIKELY_GROUP,
    LIKELY_REWARD,
    REWARD_TIERS,
    ROLLOUT_IDS,
    ROW_IDS,
    SAMPLE_IDS,
    STEPS,
    TIME,
)
from grpo_cli.read.prompt_check import other_texts, prompt_columns
from grpo_cli.read.tables import Binding, FileTable, Table, column_names
from grpo_cli.schemas.table import Schema
from grpo_cli.values.cells import Field, Kind
from grpo_cli.values.paths import PARENT

BY_TEXT: Final = "(found by name, no id beside it)"
LISTED: Final = 12  # columns that a message lists
NEAR: Final = 2  # schemas that nearly fit a file
ID: Final = r"(^|_)(u?u?id|idx|index)$"  # what the name of an id ends with


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The grouping rule: which rows are a group, and which groups are a batch.

    `within` and the parts of a batch are columns, `file` or `input`.
    """

    key: tuple[str, ...] = ()  # columns; without a key the rows of a file are a single group, to be cut into blocks
    key_is_named: bool = True  # a flag names the key; otherwise suspicious groups stop the run
    within: str | None = None  # where the key is unique; None: not given
    size: int | None = None  # of the blocks of rows that each key is cut into
    partial: Literal["error", "keep", "drop"] = "error"  # what to do with a last block that has fewer rows
    batch_by: str | None = None  # what divides the batches; None: not given
    logged_column: str = ""  # the column of logged advantages, if they show the size of a group

    @property
    def batch_name(self) -> str:
        """What divides the batches."""
        return self.batch_by or "input"

    @property
    def batch_parts(self) -> list[str]:
        """The columns that divide the batches, including `file`."""
        return [name for name in map(str.strip, self.batch_name.split(",")) if name != "input"]

    @property
    def named_columns(self) -> list[str]:
        """Columns that `within` and `batch_by` name."""
        within = [] if self.within in {None, "input"} else [str(self.within)]
        return [name for name in (*within, *self.batch_parts) if name != "file"]


class ForChecks(NamedTuple):
    """Columns that only the checks look at, as far as the files have them."""

    steps: Sequence[str]  # of training or sampling: a key with several values of them may be several groups
    sample: str  # the number of a sample in its group, which repeats where rows were written twice; "" if there is none
    ids: Sequence[str]  # they may be the key where only a text was found by name
    rollouts: Sequence[str]  # ids of rollouts that neither a flag nor the schema names: rows may be parts of them
    prompts: Sequence[str]  # texts that differ inside a group that merges several prompts
    other_texts: Sequence[str]  # texts that may be prompts, if no column has the name of a prompt

    @property
    def columns(self) -> list[str]:
        """The columns to read; of the texts only a few rows are fetched, by the check."""
        return [*self.steps, *filter(None, [self.sample]), *self.ids, *self.rollouts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is read, and why: named by flags, or found by schema or by name."""

    plan: Plan
    flags: Binding  # the flags
    filled: Filled  # the flags as the schema completes them
    names: Sequence[str]  # the names to choose from
    rule: Rule  # with the columns of the key
    rewards: tuple[str, ...]
    roles: Mapping[str, str]  # the column of each extra quantity
    for_checks: ForChecks
    fields: Sequence[Field]  # all columns to read
    optional: set[str]  # not named by the user: a file may lack them
    note: str  # how the key was found
    warn: bool  # whether suspicious groups are looked for
    by: str = ""  # the column of --plan-by
    value: str = ""  # of it in the rows of this request, if they are a part of all
    parts: Mapping[str, Request] = field(default_factory=dict)  # of each plan, if it unites several

    @property
    def binding(self) -> Binding:
        """The flags as the schema completes them."""
        return self.filled.binding

    @property
    def schema(self) -> Schema | None:
        """The schema of the files, if they have one."""
        return self.filled.schema

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the key."""
        return self.rule.key

    @property
    def key_words(self) -> str:
        """The key in the words of messages."""
        return self.filled.key_words or ", ".join(self.key)

    @property
    def read_names(self) -> set[str]:
        """The columns that the arithmetic reads."""
        return {*self.key, *self.rewards, *self.roles.values()}


def choose(
    tables: Sequence[Table], flags: Binding, plan: Plan, *, warn: bool = True, names: Sequence[str] = ()
) -> Request:
    """Choose what is read, among `names` (default: the columns of the tables).

    Without `warn` suspicious groups are not looked for.
    """
    filled = apply_schema(tables, flags, plan)
    names = names or column_names(tables)
    if not names:
        raise DataError(f"{tables[0].name}: no rows with a column", "there is nothing to compute from")
    return choose_among(names, filled, flags, plan, warn=warn)


def choose_among(names: Sequence[str], filled: Filled, flags: Binding, plan: Plan, *, warn: bool) -> Request:
    """Choose among the columns of these names: the key, the rewards, what else the plan reads, and what checks look at."""
    binding, schema = filled.binding, filled.schema
    key, note, rewards = _named_or_found(filled, names)
    _check_weights(plan, rewards)
    roles = columns_of_roles(binding, plan)
    key_is_named = bool(flags.group or flags.group_size)
    rule = Rule(
        key=key,
        key_is_named=key_is_named,
        within=binding.group_within,
        size=binding.group_size,
        partial=binding.partial,
        batch_by=binding.batch_by,
        logged_column=schema.advantage if schema is not None and schema.one_size and not key_is_named else "",
    )
    named = rule.named_columns
    required = {*key, *rewards, *roles.values(), *named}
    for_checks = _for_checks(names, filled, rule, rewards, roles, warn=warn)
    by_name = [*for_checks.columns, *(mark.column for mark in filled.marks), *filled.rollouts]
    kinds: dict[str, Kind] = dict.fromkeys((*key, *by_name, *named), "key")
    kinds |= {name: ROLES[role].kind for role, name in roles.items() if not (role == "length" and name == "equal")}
    kinds |= dict.fromkeys(rewards, "key" if binding.outcomes else "number")
    # The logged advantage is read if it says something about the groups.
    logged: dict[str, Kind] = {filled.logged_column: "number"} if filled.logged_column else {}
    extra = {name: kind for name, kind in {**binding.carried, **logged}.items() if name not in kinds}
    derived = {} if schema is None else schema.derive
    required |= {name for name in filled.rollouts if name in derived or name == PARENT}
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
        optional={*by_name} - required | ({*extra} & {*names}),
        note=f"group = {filled.key_words}" if filled.key_words else note,
        warn=warn,
    )


def united(parts: Mapping[str, Request], by: str) -> Request:
    """One request for all that several plans read and the column that divides their rows; what only some of them read may be missing."""
    kinds: dict[str, Kind] = {by: "key"}
    for field_ in (field_ for request in parts.values() for field_ in request.fields):
        if kinds.setdefault(field_.name, field_.kind) == "key":
            kinds[field_.name] = field_.kind
    for_all = set.intersection(*({read.name for read in one.fields} - one.optional for one in parts.values()))
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
    """The columns that only the checks look at; without `warn` those that only serve warnings are left out."""
    binding, schema, key, named = filled.binding, filled.schema, rule.key, rule.named_columns
    repeats = () if schema is None else schema.repeats
    steps = [name for name in STEPS if name in names and name not in repeats]
    if TIME in steps and TIME not in (*key, *named) and _differs_in_every_row(filled.tables[0], TIME):
        steps.remove(TIME)  # it would be read for nothing
    sample = next((name for name in SAMPLE_IDS if warn and name in names), "")
    by_text = not binding.group and len(key) == 1 and key[0] in GROUP_TIERS[-1]
    ids = [name for name in ROW_IDS if by_text and name in names]
    is_open = schema is None and "rollout" not in roles and binding.rollouts != "none"
    rollouts = [name for name in ROLLOUT_IDS if is_open and name in names and name not in {*key, *rewards, *named}]
    found = ForChecks(steps, sample, ids, rollouts, (), ())
    derived, no_prompts = ((), ()) if schema is None else (schema.derive, schema.no_prompts)
    if not binding.compare_prompts or "rollout" in roles or {*key} & {*derived}:
        return found  # the steps of a rollout may each have a prompt of their own
    if prompts := prompt_columns([name for name in names if name not in no_prompts], key):
        return found._replace(prompts=prompts)
    # A key that was named, that a known tool writes, or that is a prompt itself, is trusted without other texts.
    if not warn or binding.group or not {*key} & {*GROUP_TIERS[0]}:
        return found
    marks = [mark.column for mark in filled.marks]
    taken = {*key, *rewards, *roles.values(), *named, *found.columns, *marks, *filled.rollouts}
    return found._replace(other_texts=other_texts(filled.tables[0], taken))


def _differs_in_every_row(table: Table, name: str) -> bool:
    """Whether no value repeats in the first rows of a file of text."""
    records = table.format.sample(table.source) if isinstance(table, FileTable) else ()
    return 1 < len(records) == len({str(record.get(name)) for record in records})


def columns_of_roles(binding: Binding, *plans: Plan) -> dict[str, str]:
    """The column of each extra quantity: all that the plans need, and optional ones that were named."""
    missing = {role: plan.reader(role) for plan in plans for role in plan.needs if role not in binding.roles}
    if missing:
        what = "; ".join(f"{reader} needs {ROLES[role].meaning}" for role, reader in missing.items())
        flags = " and ".join(f"{ROLES[role].flag} COLUMN" for role in missing)
        equal = ", or --length-column equal when every response counts the same" if [*missing] == ["length"] else ""
        raise UsageError(what, f"name the {'column' if len(missing) == 1 else 'columns'} with {flags}{equal}")
    return dict(binding.roles)


def _named_or_found(filled: Filled, names: Sequence[str]) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """The key, words on how it was found, and the rewards; a single error lists all that is missing."""
    binding = filled.binding
    group, note = tuple(dict.fromkeys(binding.group)), f"group = {', '.join(dict.fromkeys(binding.group))}"
    rewards = binding.rewards
    if not rewards and not any(re.search(LIKELY_REWARD, name, re.IGNORECASE) for name in names):
        keyed = group or binding.group_size is not None or {name for tier in GROUP_TIERS for name in tier} & {*names}
        more = "" if keyed else ", and the key with --group NAME"
        raise DataError(
            f"no column looks like the reward (columns: {_listed(names, LIKELY_GROUP)}){inside_of_record(filled.tables)}",
            f"name it with --reward NAME{more}{flags_of_likely(filled.tables, group=not keyed, reward=True)}; "
            f"rows without one have to be scored first{_near(filled.tables)}",
        )
    missing = {}
    if not group and binding.group_size is not None:
        note = f"group = blocks of {binding.group_size} rows"
    elif not group and (key := _by_name("group key", GROUP_TIERS, names, "--group")):
        beside = key in GROUP_TIERS[-1] and not any(re.search(ID, name, re.IGNORECASE) for name in names)
        group, note = (key,), f"group = {key} {BY_TEXT if beside else '(found by name)'}"
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


def _listed(names: Sequence[str], likely: str) -> str:
    """Some of the columns, likely ones first."""
    ordered = sorted(names, key=lambda name: re.search(likely, name, re.IGNORECASE) is None)
    return ", ".join(ordered[:LISTED]) + (", ..." if len(names) > LISTED else "")


def _near(tables: Sequence[Table]) -> str:
    """A hint: which schemas nearly fit the first file, and where to read more."""
    if log := log_of_steps(tables):
        return f"; {log}"
    if not tables or not isinstance(tables[0], FileTable):
        return ""
    near = " and ".join(f"{match.schema.title} ({', '.join(match.against)})" for match in nearly(tables[0])[:NEAR])
    is_near = f"; it is nearly a {near}: grpo-adv schemas FILE tells more" if near else ""
    return is_near or "; grpo-adv schemas FILE tells which known layout a file is near"


def _by_name(what: str, tiers: Sequence[Sequence[str]], names: Sequence[str], flag: str) -> str | None:
    """The known name in the first tier that has any, or None; several names in a tier are an error."""
    for tier in tiers:
        candidates = [name for name in tier if name in names]
        if len(candidates) > 1:
            raise DataError(f"several columns could be the {what}: {', '.join(candidates)}", f"choose with {flag} NAME")
        if candidates:
            return candidates[0]
    return None


def _check_weights(plan: Plan, rewards: Sequence[str]) -> None:
    weights = plan.rewards.weights
    twice = [name for name in rewards if rewards.count(name) > 1]
    if twice:
        raise UsageError(f"the reward column {twice[0]!r} is named twice", "give each column once, with its weight")
    if weights and len(weights) != len(rewards):
        raise UsageError(
            f"{len(weights)} reward weights for {len(rewards)} reward columns", "give --reward COLUMN=WEIGHT for each"
        )
