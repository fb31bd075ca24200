"""Which columns are read: those that were named, those that are found by name, and those that only serve warnings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.errors import DataError, UsageError
from grpo_cli.formats.interface import Field
from grpo_cli.read.known_names import (
    GROUP_TIERS,
    LIKELY_GROUP,
    LIKELY_REWARD,
    REWARD_TIERS,
    ROW_IDS,
    SAMPLE_IDS,
    STEP_LIKE,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.engine.plan import Plan
    from grpo_cli.formats.interface import Kind
    from grpo_cli.read.apply_schema import Layout
    from grpo_cli.read.tables import Binding

BY_TEXT: Final = "(found by name, no id beside it)"
LISTED: Final = 12  # columns that a message lists


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
    note: str  # how the key was found


def choose_columns(layout: Layout, plan: Plan, names: Sequence[str]) -> Columns:
    """Choose among the names that the tables have."""
    binding = layout.binding
    group, note, rewards = _named_or_found(binding, names)
    note = f"group = {layout.key_words}" if layout.key_words else note
    _check_weights(plan, rewards)
    roles = columns_of_roles(binding, plan)
    repeats = () if layout.schema is None else layout.schema.repeats
    steps: list[str] = [name for name in STEP_LIKE if name in names and name not in repeats]
    sample: str | None = next((name for name in SAMPLE_IDS if name in names), None)
    rivals = [name for name in ROW_IDS if name in names] if note.endswith(BY_TEXT) else []
    by_name = [*steps, *([sample] if sample else []), *rivals, *layout.beside]
    named = named_columns(binding)
    kinds: dict[str, Kind] = dict.fromkeys((*group, *by_name, *named), "key")
    kinds |= {name: ROLES[role].kind for role, name in roles.items() if not (role == "length" and name == "equal")}
    kinds |= dict.fromkeys(rewards, "number")
    # Columns that come along, and the trainer's own advantage where it says something of the groups.
    carried: dict[str, Kind] = {**binding.carried, **({layout.logged: "number"} if layout.logged else {})}
    extra = {name: kind for name, kind in carried.items() if name not in kinds}
    optional = {*by_name} - {*group, *rewards, *roles.values(), *named} | ({*extra} & {*names})
    fields = [Field(name, kind) for name, kind in {**kinds, **extra}.items()]
    return Columns(group, rewards, roles, steps, sample, rivals, fields, optional, note)


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


def _named_or_found(binding: Binding, names: Sequence[str]) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """The key, how it was found in words, and the rewards; one error for all that is missing."""
    group, note = tuple(dict.fromkeys(binding.group)), f"group = {', '.join(dict.fromkeys(binding.group))}"
    rewards = binding.rewards
    missing = {}
    if not group and binding.group_size is not None:
        note = f"group = blocks of {binding.group_size} rows"
    elif not group and (key := _by_name("group key", GROUP_TIERS, names, "--group")):
        group, note = (key,), f"group = {key} {BY_TEXT if key in GROUP_TIERS[-1] else '(found by name)'}"
    elif not group:
        missing["--group NAME"] = ("the group key", LIKELY_GROUP)
    if not rewards and (name := _by_name("reward", REWARD_TIERS, names, "--reward")):
        rewards = (name,)
    elif not rewards:
        missing["--reward NAME"] = ("the reward", LIKELY_REWARD)
    if missing:
        likely = "|".join(pattern for _, pattern in missing.values())
        ordered = sorted(names, key=lambda name: re.search(likely, name, re.IGNORECASE) is None)
        shown = ", ".join(ordered[:LISTED]) + (", ..." if len(names) > LISTED else "")
        raise DataError(
            f"no column looks like {' or '.join(what for what, _ in missing.values())} (columns: {shown})",
            f"name {'it' if len(missing) == 1 else 'them'} with {' and '.join(missing)}"
            "; grpo-adv schemas FILE tells which known layout a file is near",
        )
    return group, note, rewards


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
