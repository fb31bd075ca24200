"""Which columns a reading looks for: those that were named, those that are found by name, and those that warn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.errors import DataError, UsageError
from grpo_cli.formats.interface import Field
from grpo_cli.read.assign_groups import named_columns
from grpo_cli.read.group_keys import STEP_LIKE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from grpo_cli.engine.plan import Plan
    from grpo_cli.formats.interface import Kind
    from grpo_cli.read.apply_schema import Bound
    from grpo_cli.read.tables import Binding

# Ids first; text only where there is no id. Two candidates inside a tier are an error.
GROUP_TIERS: Final = (
    (
        "prompt_id", "group_id", "uid", "prompt_uid", "task_id", "problem_id", "question_id", "example_id",
        "prompt_idx", "group_idx", "group_index", "prompt_index", "doc_id", "row_id",
    ),
    ("prompt", "input", "question", "problem", "messages"),
)  # fmt: skip
BY_TEXT: Final = "(found by name, no id beside it)"
REWARD_TIERS: Final = (
    ("reward",),
    ("rewards", "score", "total_reward", "final_reward", "reward_score"),
    ("acc", "is_correct", "correct"),
)
# Often the id of a row, sometimes that of a prompt: beside a key that is only text it has to be looked at.
ROW_IDS: Final = ("id", "uuid", "idx", "index", "qid", "sample_uid")
LISTED: Final = 12  # columns that a message lists
SAMPLE_IDS: Final = ("sample", "sample_id", "sample_idx", "rollout_idx", "completion_id", "traj_idx")


class Asked(NamedTuple):
    """The columns that a reading looks for, and what each of them is."""

    group: tuple[str, ...]
    rewards: tuple[str, ...]
    roles: Mapping[str, str]
    steps: Sequence[str]
    sample: str | None
    rivals: Sequence[str]
    fields: Sequence[Field]
    unasked: set[str]  # nobody named them: a file may be without
    note: str

    @classmethod
    def of(cls, seen: Bound, plan: Plan, names: Sequence[str]) -> Self:
        """Look for them among the names that the files have."""
        binding = seen.binding
        group, note = _group_names(binding, names)
        note = f"group = {seen.words}" if seen.words else note
        rewards = binding.rewards or (_pick("reward", REWARD_TIERS, names, "--reward"),)
        _check_weights(plan, rewards)
        roles = roles_of(binding, plan)
        repeats = () if seen.schema is None else seen.schema.repeats
        steps: list[str] = [name for name in STEP_LIKE if name in names and name not in repeats]
        sample: str | None = next((name for name in SAMPLE_IDS if name in names), None)
        rivals = [name for name in ROW_IDS if name in names] if note.endswith(BY_TEXT) else []
        looked_for = [*steps, *([sample] if sample else []), *rivals, *seen.looked_for]
        fields = _fields(group, rewards, roles, [*looked_for, *named_columns(binding)])
        unasked = {*looked_for} - {*group, *rewards, *roles.values(), *named_columns(binding)}
        extra = _extra(seen, {one.name for one in fields})
        unasked |= {one.name for one in extra} & {*names}
        return cls(group, rewards, roles, steps, sample, rivals, [*fields, *extra], unasked, note)


def _group_names(binding: Binding, names: Sequence[str]) -> tuple[tuple[str, ...], str]:
    if binding.group:
        group = tuple(dict.fromkeys(binding.group))
        return group, f"group = {', '.join(group)}"
    if binding.group_size is not None:
        return (), f"group = blocks of {binding.group_size} rows"
    found = _pick("group key", GROUP_TIERS, names, "--group")
    return (found,), f"group = {found} {BY_TEXT if found in GROUP_TIERS[-1] else '(found by name)'}"


def _pick(what: str, tiers: Sequence[Sequence[str]], names: Sequence[str], flag: str) -> str:
    """The one known name in the first tier that has any; ambiguity is the user's to resolve."""
    for tier in tiers:
        found = [name for name in tier if name in names]
        if len(found) > 1:
            raise DataError(f"several columns could be the {what}: {', '.join(found)}", f"choose with {flag} NAME")
        if found:
            return found[0]
    shown = ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "")
    raise DataError(f"no column looks like the {what} (columns: {shown})", f"name it with {flag} NAME")


def roles_of(binding: Binding, plan: Plan) -> dict[str, str]:
    """Column of each extra quantity: those that the plan needs, and the optional ones that were named."""
    bound = dict(binding.roles)
    for role in plan.needs:
        if role in bound:
            continue
        spec = ROLES[role]
        equal = ", or --length-column equal when every response counts the same" if role == "length" else ""
        raise UsageError(f"{plan.reader(role)} needs {spec.meaning}", f"name the column with {spec.flag} COLUMN{equal}")
    return bound


def _check_weights(plan: Plan, rewards: Sequence[str]) -> None:
    weights = plan.rewards.weights
    twice = [name for name in rewards if rewards.count(name) > 1]
    if twice:
        raise UsageError(f"the reward column {twice[0]!r} is named twice", "give each column once, with its weight")
    if weights and len(weights) != len(rewards):
        raise UsageError(
            f"{len(weights)} reward weights for {len(rewards)} reward columns", "give --reward COLUMN=WEIGHT for each"
        )


def _fields(group: Sequence[str], rewards: Sequence[str], roles: Mapping[str, str], keys: Sequence[str]) -> list[Field]:
    wanted: dict[str, Kind] = dict.fromkeys((*group, *keys), "key")
    wanted |= {name: ROLES[role].kind for role, name in roles.items() if not (role == "length" and name == "equal")}
    wanted |= dict.fromkeys(rewards, "number")
    return [Field(name, kind) for name, kind in wanted.items()]


def _extra(seen: Bound, asked: set[str]) -> list[Field]:
    """Columns that come along, and the trainer's own advantage where it tells something of the groups."""
    kinds: dict[str, Kind] = {**seen.binding.carried, **({seen.logged: "number"} if seen.logged else {})}
    return [Field(name, kind) for name, kind in kinds.items() if name not in asked]
