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
    def within_columns(self) -> list[str]:
        """The column that `within` names, if it names one."""
        return [] if self.within in {None, "input", "file"} else [str(self.within)]

    @property
    def named_columns(self) -> list[str]:
        """Columns that `within` and `batch_by` name."""
        return [*self.within_columns, *(name for name in self.batch_parts if name != "file")]


class Chosen(NamedTuple):
    """The columns to read, and the part of each."""

    group: tuple[str, ...]
    rewards: tuple[str, ...]
    roles: Mapping[str, str]
    steps: Sequence[str]  # step-like names
    sample: str | None  # the column that numbers the samples of a group
    rivals: Sequence[str]  # ids that may be the key where only a text was found
    fields: Sequence[Field]
    optional: set[str]  # not named by the user: a file may lack them
    prompts: tuple[str, ...]  # texts that show whether a group is a single prompt
    others: tuple[str, ...]  # texts that may be prompts, if no column has the name of a prompt
    rollouts: Sequence[str]  # names of rollout ids, where neither a flag nor a schema names one
    note: str  # how the key was found
    names: Sequence[str]  # the names to choose from

    @property
    def read_names(self) -> set[str]:
        """The columns that the arithmetic reads."""
        return {*self.group, *self.rewards, *self.roles.values()}


@dataclass(frozen=True, slots=True)
class Request:
    """What is read, and why: named by flags, or found by schema or by name."""

    plan: Plan
    flags: Binding  # the flags
    filled: Filled  # the flags as the schema completes them
    chosen: Chosen
    rule: Rule
    warn: bool  # whether suspicious groups are looked for
    by: str = ""  # the column of --plan-by
    value: str = ""  # of it in the rows of this request, if they are a part of all
    parts: Mapping[str, Request] = field(default_factory=dict)  # of each plan, if it unites several

    @property
    def binding(self) -> Binding:
        """The flags as the schema completes them."""
        return self.filled.binding

    @property
    def key_words(self) -> str:
        """The key in the words of messages."""
        return self.filled.key_words or ", ".join(self.chosen.group)


def choose(
    tables: Sequence[Table], binding: Binding, plan: Plan, *, warn: bool = True, names: Sequence[str] = ()
) -> Request:
    """Choose what is read, among `names` (default: the columns of the tables).

    Without `warn` suspicious groups are not looked for.
    """
    filled = apply_schema(tables, binding, plan)
    names = names or column_names(tables)
    if not names:
        raise DataError(f"{tables[0].name}: no rows with a column", "there is nothing to compute from")
    schema, found, key_is_named = filled.schema, filled.binding, bool(binding.group or binding.group_size)
    rule = Rule(
        key_is_named=key_is_named,
        within=found.group_within,
        size=found.group_size,
        partial=found.partial,
        batch_by=found.batch_by,
        logged_column=schema.advantage if schema is not None and schema.one_size and not key_is_named else "",
    )
    chosen = choose_columns(filled, plan, names, rule.named_columns, warn=warn)
    return Request(plan, binding, filled, chosen, replace(rule, key=chosen.group), warn)


def united(parts: Mapping[str, Request], by: str) -> Request:
    """One request for all that several plans read and the column that divides their rows; what only some of them read may be missing."""
    first = next(iter(parts.values()))
    kinds: dict[str, Kind] = {by: "key"}
    for field_ in (field_ for request in parts.values() for field_ in request.chosen.fields):
        if kinds.setdefault(field_.name, field_.kind) == "key":
            kinds[field_.name] = field_.kind
    for_all = {*kinds} - {by}
    for request in parts.values():
        for_all &= {one.name for one in request.chosen.fields} - request.chosen.optional
    chosen = first.chosen._replace(
        rewards=tuple(dict.fromkeys(name for request in parts.values() for name in request.chosen.rewards)),
        fields=[Field(name, kind) for name, kind in kinds.items()],
        optional={*kinds} - for_all - {by},
    )
    return replace(first, chosen=chosen, by=by, parts=parts)


# --- columns ----------------------------------------------------------------------------------------------------


def choose_columns(filled: Filled, plan: Plan, names: Sequence[str], named: Sequence[str], *, warn: bool) -> Chosen:
    """Choose among the columns of the tables; `named` are those that divide groups and batches by flag.

    Without `warn`, columns that only serve warnings are left out.
    """
    binding = filled.binding
    group, note, rewards = _named_or_found(filled, names)
    if filled.key_words:
        note = f"group = {filled.key_words}{_within(binding)}"
    _check_weights(plan, rewards)
    roles = columns_of_roles(binding, plan)
    repeats = () if filled.schema is None else filled.schema.repeats
    steps: list[str] = [name for name in STEPS if name in names and name not in repeats]
    if TIME in steps and TIME not in (*group, *named) and _differs_in_every_row(filled.tables[0], TIME):
        steps.remove(TIME)  # it would be read for nothing
    sample: str | None = next((name for name in SAMPLE_IDS if name in names), None) if warn else None
    by_text = not binding.group and len(group) == 1 and group[0] in GROUP_TIERS[-1]
    rivals = [name for name in ROW_IDS if name in names] if by_text else []
    is_open = filled.schema is None and "rollout" not in roles and binding.rollouts != "none"
    rollouts = [name for name in ROLLOUT_IDS if is_open and name in names and name not in {*group, *rewards, *named}]
    by_name = [
        *steps,
        *([sample] if sample else []),
        *rivals,
        *rollouts,
        *(mark.column for mark in filled.marks),
        *filled.rollouts,
    ]
    kinds: dict[str, Kind] = dict.fromkeys((*group, *by_name, *named), "key")
    kinds |= {name: ROLES[role].kind for role, name in roles.items() if not (role == "length" and name == "equal")}
    kinds |= dict.fromkeys(rewards, "key" if binding.outcomes else "number")
    # Columns that are carried along, and the logged advantage if it says something about the groups.
    carried: dict[str, Kind] = {**binding.carried, **({filled.logged_column: "number"} if filled.logged_column else {})}
    extra = {name: kind for name, kind in carried.items() if name not in kinds}
    made = {} if filled.schema is None else filled.schema.derive
    always = {name for name in filled.rollouts if name in made or name == PARENT}
    optional = {*by_name} - {*group, *rewards, *roles.values(), *named, *always} | ({*extra} & {*names})
    fields = [Field(name, kind) for name, kind in {**kinds, **extra}.items()]
    # The steps of a rollout may each have a prompt of their own.
    texts_tell = binding.compare_prompts and "rollout" not in roles and not {*group} & {*made}
    no_prompts = () if filled.schema is None else filled.schema.no_prompts
    prompts = prompt_columns([name for name in names if name not in no_prompts], group) if texts_tell else ()
    # A key that was named, that a known tool writes, or that is a prompt itself, is trusted without other texts.
    is_found = texts_tell and warn and not binding.group and bool({*group} & {*GROUP_TIERS[0]})
    others = other_texts(filled.tables[0], kinds) if is_found and not prompts else ()
    return Chosen(
        group, rewards, roles, steps, sample, rivals, fields, optional, prompts, others, rollouts, note, names
    )


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
    group, inside = tuple(dict.fromkeys(binding.group)), _within(binding)
    note = f"group = {', '.join(group)}{inside}"
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
