"""Which columns are read: those that were named, those that are found by name, and those that only serve warnings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.errors import DataError, UsageError
from grpo_cli.formats.interface import Field
from grpo_cli.read.detect_schema import nearly
from grpo_cli.read.known_names import (
    GROUP_TIERS,
    LIKELY_GROUP,
    LIKELY_REWARD,
    REWARD_TIERS,
    ROW_IDS,
    SAMPLE_IDS,
    STEP_LIKE,
)
from grpo_cli.read.prompt_check import other_texts, prompt_columns
from grpo_cli.read.tables import FileTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.engine.plan import Plan
    from grpo_cli.formats.interface import Kind
    from grpo_cli.read.apply_schema import Layout
    from grpo_cli.read.tables import Binding, Table

BY_TEXT: Final = "(found by name, no id beside it)"
LISTED: Final = 12  # columns that a message lists
NEAR: Final = 2  # schemas that a file is nearly of
ID: Final = r"(^|_)(u?u?id|idx|index)$"  # what the name of an id ends with


class Columns(NamedTuple):
    """The columns that a reading takes, and what each of them is."""

    group: tuple[str, ...]
    rewards: tuple[str, ...]
    roles: Mapping[str, str]
    steps: Sequence[str]  # step-like names
    sample: str | None  # the number of a sample inside its group
    rivals: Sequence[str]  # ids that may be the key where only a text was found
    fields: Sequence[Field]
    optional: set[str]  # nobody named them: a file may be without
    prompts: tuple[str, ...]  # texts that show whether a group is one prompt
    others: tuple[str, ...]  # texts that may be prompts, where there are none by name
    note: str  # how the key was found
    names: Sequence[str]  # what was chosen from

    @property
    def read_names(self) -> set[str]:
        """The columns that the arithmetic reads."""
        return {*self.group, *self.rewards, *self.roles.values()}


def choose_columns(layout: Layout, plan: Plan, names: Sequence[str], *, warn: bool = True) -> Columns:
    """Choose among the names that the tables have; without `warn` those that only serve warnings are left out."""
    binding = layout.binding
    group, note, rewards = _named_or_found(layout, names)
    note = f"group = {layout.key_words}" if layout.key_words else note
    _check_weights(plan, rewards)
    roles = columns_of_roles(binding, plan)
    repeats = () if layout.schema is None else layout.schema.repeats
    steps: list[str] = [name for name in STEP_LIKE if name in names and name not in repeats]
    sample: str | None = next((name for name in SAMPLE_IDS if name in names), None) if warn else None
    by_text = not binding.group and len(group) == 1 and group[0] in GROUP_TIERS[-1]
    rivals = [name for name in ROW_IDS if name in names] if by_text else []
    by_name = [*steps, *([sample] if sample else []), *rivals, *layout.beside]
    named = named_columns(binding)
    kinds: dict[str, Kind] = dict.fromkeys((*group, *by_name, *named), "key")
    kinds |= {name: ROLES[role].kind for role, name in roles.items() if not (role == "length" and name == "equal")}
    kinds |= dict.fromkeys(rewards, "key" if binding.outcomes else "number")
    # Columns that come along, and the trainer's own advantage where it says something of the groups.
    carried: dict[str, Kind] = {**binding.carried, **({layout.logged: "number"} if layout.logged else {})}
    extra = {name: kind for name, kind in carried.items() if name not in kinds}
    optional = {*by_name} - {*group, *rewards, *roles.values(), *named} | ({*extra} & {*names})
    fields = [Field(name, kind) for name, kind in {**kinds, **extra}.items()]
    # The steps of a rollout may each have a prompt of their own.
    stepwise = "rollout" in roles or (layout.schema is not None and bool(layout.schema.rollout))
    made = {} if layout.schema is None else layout.schema.derive
    texts_tell = binding.compare_prompts and not stepwise and not {*group} & {*made}
    no_prompts = () if layout.schema is None else layout.schema.no_prompts
    prompts = prompt_columns([name for name in names if name not in no_prompts], group) if texts_tell else ()
    # A key that was named, or is a known tool's, or a prompt itself, needs no text of an unknown name to be believed.
    is_found = texts_tell and warn and not binding.group and bool({*group} & {*GROUP_TIERS[0]})
    others = other_texts(layout.tables[0], kinds) if is_found and not prompts else ()
    return Columns(group, rewards, roles, steps, sample, rivals, fields, optional, prompts, others, note, names)


def named_columns(binding: Binding) -> list[str]:
    """Columns that --group-within and --batch-by name."""
    names = [binding.group_within, *binding.batch_names]
    return [name for name in names if name not in {None, "file", "input"}]


def columns_of_roles(binding: Binding, plan: Plan) -> dict[str, str]:
    """The column of each extra quantity: those that the plan needs, and the optional ones that were named."""
    roles = dict(binding.roles)
    for role in plan.needs:
        if role not in roles:
            spec = ROLES[role]
            equal = ", or --length-column equal when every response counts the same" if role == "length" else ""
            raise UsageError(
                f"{plan.reader(role)} needs {spec.meaning}", f"name the column with {spec.flag} COLUMN{equal}"
            )
    return roles


def _named_or_found(layout: Layout, names: Sequence[str]) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """The key, how it was found in words, and the rewards; one error for all that is missing."""
    binding = layout.binding
    group, note = tuple(dict.fromkeys(binding.group)), f"group = {', '.join(dict.fromkeys(binding.group))}"
    rewards = binding.rewards
    if not rewards and not any(re.search(LIKELY_REWARD, name, re.IGNORECASE) for name in names):
        keyed = group or binding.group_size is not None or {name for tier in GROUP_TIERS for name in tier} & {*names}
        more = "" if keyed else ", and the key with --group NAME"
        raise DataError(
            f"no column looks like the reward (columns: {_listed(names, LIKELY_GROUP)}){inside_of_record(layout.tables)}",
            f"name it with --reward NAME{more}; rows without one have to be scored first{_near(layout.tables)}",
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
        likely = "|".join(pattern for _, pattern in missing.values())
        what = " or ".join(what for what, _ in missing.values())
        raise DataError(
            f"no column looks like {what} (columns: {_listed(names, likely)}){inside_of_record(layout.tables)}",
            f"name {'it' if len(missing) == 1 else 'them'} with {' and '.join(missing)}{_near(layout.tables)}",
        )
    return group, note, rewards


def _listed(names: Sequence[str], likely: str) -> str:
    """Some of the columns, the likely ones first."""
    ordered = sorted(names, key=lambda name: re.search(likely, name, re.IGNORECASE) is None)
    return ", ".join(ordered[:LISTED]) + (", ..." if len(names) > LISTED else "")


def _near(tables: Sequence[Table]) -> str:
    """Which schemas the first file nearly has, and where to read more of it."""
    if not tables or not isinstance(tables[0], FileTable):
        return ""
    near = " and ".join(f"{one.schema.title} ({', '.join(one.against)})" for one in nearly(tables[0])[:NEAR])
    is_near = f"; it is nearly a {near}: grpo-adv schemas FILE tells more" if near else ""
    return is_near or "; grpo-adv schemas FILE tells which known layout a file is near"


def inside_of_record(tables: Sequence[Table]) -> str:
    """Where the rows are, if a file is one JSON record that holds a list of objects; otherwise nothing."""
    files = [one for one in tables if isinstance(one, FileTable)]
    if len(files) != 1 or not files[0].format.holds_objects or files[0].schema is not None:
        return ""
    records = files[0].format.sample(files[0].source)
    lists = {name: value for name, value in records[0].items() if _is_list_of_rows(value)} if len(records) == 1 else {}
    if not lists:
        return ""
    name, rows = max(lists.items(), key=lambda item: len(item[1]))
    likely = next((one for one in rows[0] if re.search(LIKELY_REWARD, one, re.IGNORECASE)), "NAME")
    return f"; the file is one record, and its {name} is a list of {len(rows)}: --reward '{name}[].{likely}' reads them"


def _is_list_of_rows(value: Any) -> bool:
    is_list = isinstance(value, list) and bool(value)
    return is_list and all(isinstance(one, dict) and not {"role", "from"} & {*one} for one in value)


def _by_name(what: str, tiers: Sequence[Sequence[str]], names: Sequence[str], flag: str) -> str | None:
    """The one known name in the first tier that has any, or None; ambiguity is the user's to resolve."""
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
