"""What the columns of the tables are: found once, from flags, the schema and well-known names, before any column is read.

A flag wins over the schema, and the schema over a name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from grpo_cli.engine.plan_parts import Counting
from grpo_cli.errors import DataError, UsageError, Way
from grpo_cli.read.known_names import (
    GROUP_TIERS,
    LAST_REWARDS,
    LIKELY_GROUP,
    LIKELY_REWARD,
    REASONS,
    REWARD_TIERS,
    STEP_LIKE,
)
from grpo_cli.read.marks import applied
from grpo_cli.read.recognise import rewards_of
from grpo_cli.read.tables import FILE, OWN, PATH, Binding, FileTable, Table, column_names
from grpo_cli.schemas.table import SHAPES, Mark, Schema
from grpo_cli.values.cells import are_numbers
from grpo_cli.values.chat import is_message
from grpo_cli.values.paths import PARENT, is_there, shown

BY_TEXT = "(found by name, no id beside it)"
SEVERAL = 2  # columns with "reward" in their names are parts of a reward, or rewards to choose from
LISTED = 12  # columns listed in a message
ID = r"(^|_)(u?u?id|idx|index)$"  # the name of an id ends with this


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What the columns of the tables are, and why."""

    tables: Sequence[Table]
    flags: Binding  # as given
    names: Sequence[str] = ()  # all column names
    schema: Schema | None = None
    binding: Binding  # the flags, completed by the schema
    key: tuple[str, ...] = ()  # the columns of the group key; empty for blocks of rows
    rewards: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()  # of rows that do not count like others
    reasons: tuple[str, ...] = ()  # columns that name why a row is marked, if they exist
    rollout_ids: tuple[str, ...] = ()  # the schema's columns with the rollout id, if they exist
    length: str = ""  # the schema's column of lengths, if it exists
    batch: str = ""  # what divides the batches of the schema's tool, if it exists

    @property
    def key_words(self) -> str:
        """The key as the schema describes it; empty if a flag names it."""
        schema = self.schema
        if schema is None or self.flags.group or not (schema.group or schema.blocks):
            return ""
        size = self.flags.group_size
        if schema.blocks:
            return schema.grouping.replace("--group-size", str(size))
        blocks = "" if size is None else f", in blocks of {size} rows"
        return schema.grouping + blocks

    @property
    def key_note(self) -> str:
        """The key in words, and how it was found; that it is unique in the whole input goes without saying."""
        binding = self.binding
        within = binding.group_within
        inside = "" if within in {None, "input", *binding.group} else f" within {within}"
        if self.key_words or not self.key:
            return f"{self.key_words or f'blocks of {binding.group_size} rows'}{inside}"
        note = f"{', '.join(self.key)}{inside}"
        if binding.group:
            return note
        is_text = not {*self.key}.isdisjoint(GROUP_TIERS[-1])
        has_ids = any(re.search(ID, name, re.IGNORECASE) for name in self.names)
        return f"{note} {BY_TEXT if is_text and not has_ids else '(found by name)'}"

    @property
    def notes(self) -> tuple[str, ...]:
        """How the schema reads the files."""
        schema = self.schema
        if schema is None:
            return ()
        group = self.key_words or ", ".join(self.binding.group)
        key = f"group = {group}, " if group else ""
        note = f"read as {schema.title}: {key}reward = {' + '.join(map(schema.words, self.binding.rewards))}"
        is_said = self.flags.rewards if schema.rewards is not None else self.flags.group_size
        return (note, schema.note) if schema.note and not is_said else (note,)

    @property
    def rollouts(self) -> tuple[str, ...]:
        """The schema's columns with the rollout id, unless every row is a rollout."""
        return () if self.binding.rollouts == "none" else self.rollout_ids

    @property
    def counting(self) -> Counting:
        """How rows of one rollout count if the plan does not say so; a part of a rollout never counts by itself."""
        by_parts = self.schema is not None and self.schema.parts and self.binding.rollouts == "each"
        return "once" if by_parts else self.binding.rollouts

    @property
    def logged_column(self) -> str:
        """The column of the logged advantage, if it reveals the baseline or the group size; otherwise empty."""
        schema = self.schema
        return schema.advantage if schema is not None and (schema.centred or schema.one_size) else ""

    @property
    def may_lack_rewards(self) -> bool:
        """Whether the tool writes null or NaN for rows that have no reward."""
        return self.schema is not None and self.schema.missing

    @property
    def key_is_named(self) -> bool:
        """Whether a flag names the key."""
        return bool(self.flags.group or self.flags.group_size)

    def under(self, **changed: Any) -> Layout:
        """The same under other flags, which name columns as the schema does."""
        typed = bool(changed.get("masked_rows")) or self.flags.masked_rows_typed
        flags = replace(self.flags, **changed, masked_rows_typed=typed)
        return replace(
            self,
            flags=flags,
            binding=replace(self.binding, **changed),
            key=changed.get("group", self.key),
            marks=_marks(flags, self.tables[0]),
        )


def layout(tables: Sequence[Table], flags: Binding) -> Layout:
    """Find out what the columns of these tables are; one error lists everything that is missing."""
    schema = tables[0].schema
    marks = _marks(flags, tables[0])
    names = column_names(tables)
    reasons = tuple(name for name in REASONS if marks and name in names)
    draft = Layout(tables=tables, flags=flags, binding=flags, marks=marks, reasons=reasons)
    if schema is not None:
        draft = _by_schema(schema, draft)
    if not names:
        raise DataError(f"{tables[0].name}: no rows with columns", "there is nothing to compute from")
    return with_names(draft, names)


def _by_schema(schema: Schema, draft: Layout) -> Layout:
    """What the schema says, where no flag says otherwise."""
    tables = draft.tables
    names = {*tables[0].columns()}
    asked = draft.flags.inside(tables[0].prefix)
    if asked.group_within is not None:
        schema = replace(schema, group=_key_within(schema))
    rewards = asked.rewards or rewards_of(schema, tables[0])
    group = asked.group or _group(schema, asked, names, alone=len(tables) == 1)
    within = asked.group_within
    if within is None and not asked.group:
        within = schema.within or None
    there = partial(_there, schema, names)
    has_batch = schema.batch in {"file", "input"} or there(schema.batch)
    return replace(
        draft,
        schema=schema,
        binding=replace(asked, group=group, rewards=rewards, group_within=within),
        reasons=tuple(filter(there, schema.reasons)),
        rollout_ids=tuple(filter(there, schema.rollout)),
        length=schema.length if there(schema.length) else "",
        batch=schema.batch if has_batch else "",
    )


def with_names(draft: Layout, names: Sequence[str]) -> Layout:
    """The layout with a key and rewards from these column names, where neither a flag nor the schema names them."""
    group = tuple(dict.fromkeys(draft.binding.group))
    missing = {}
    if not group and draft.binding.group_size is None:
        group = _by_name("group key", GROUP_TIERS, names, "--group")
        if not group:
            missing["--group NAME"] = ("the group key", LIKELY_GROUP)
    rewards = draft.binding.rewards or _by_name("reward", REWARD_TIERS, names, "--reward")
    if not rewards:
        rewards = _by_name("reward", [_with_numbers(LAST_REWARDS, draft.tables, names)], names, "--reward")
    if not rewards:
        missing["--reward NAME"] = ("the reward", LIKELY_REWARD)
    if missing:
        likely = "|".join(pattern for _, pattern in missing.values())
        what = " or ".join(what for what, _ in missing.values())
        cures = inside_of_record(draft.tables)
        parts = "" if rewards else _parts(draft.tables, names)
        if parts:
            cures.append(parts)
            del missing["--reward NAME"]
        if missing:
            named = "the group key" if parts else "it" if len(missing) == 1 else "them"
            cures.append(f"name {named} with {' and '.join(missing)}")
        if not rewards and not parts:
            cures += [*numbers_inside(draft.tables), "rows without a reward must be scored first"]
        if isinstance(draft.tables[0], FileTable):  # a frame has no file to look at
            cures.append("grpo-adv schemas FILE shows what known layouts miss")
        raise DataError(f"no column looks like {what} (columns: {_listed(names, likely)})", cures)
    if len(rewards) == 1 and draft.flags.of_several:
        raise of_single_reward(draft.flags.of_several[0], rewards[0])
    return replace(draft, names=names, key=group, rewards=rewards)


def of_single_reward(flag: str, reward: str) -> UsageError:
    """The error of an option about several rewards where one was found."""
    wrong = f"{flag} has no effect with one reward, {reward}"
    return UsageError(wrong, [Way("--reward", lead="name several with"), "leave it out"])


def _parts(tables: Sequence[Table], names: Sequence[str]) -> str:
    """Which columns of numbers are called a reward of something, such as format_reward, and how to name them; empty without several."""
    parts = _with_numbers([name for name in names if "reward" in name.lower()], tables, names)
    if len(parts) < SEVERAL:
        return ""
    could = f"{len(parts)} columns could be rewards ({_listed(parts, LIKELY_REWARD)})"
    return f"{could}: name those that count with --reward NAME, once for each"


def _listed(names: Sequence[str], likely: str) -> str:
    """The first columns, likely columns before others."""
    ordered = sorted(names, key=lambda name: re.search(likely, name, re.IGNORECASE) is None)
    first = ", ".join(map(shown, ordered[:LISTED]))
    return f"{first}, ..." if len(names) > LISTED else first


def _by_name(what: str, tiers: Sequence[Sequence[str]], names: Sequence[str], flag: str) -> tuple[str, ...]:
    """The first tier's known name, if there is one; two known names in one tier are an error."""
    for tier in tiers:
        candidates = tuple(name for name in tier if name in names)
        if len(candidates) > 1:
            raise DataError(
                f"several columns could be the {what}: {', '.join(candidates)}",
                Way(flag, lead="choose with", fill="NAME"),
            )
        if candidates:
            return candidates
    return ()


def _with_numbers(known: Sequence[str], tables: Sequence[Table], names: Sequence[str]) -> list[str]:
    """Those of the known names whose values, in the first records of the first file, are numbers or truths."""
    there = [name for name in known if name in names]
    if not there:
        return []
    records = tables[0].sample().records
    return [name for name in there if are_numbers(record.get(name) for record in records)]


def _marks(binding: Binding, table: Table) -> tuple[Mark, ...]:
    """The marks of the schema and of flags, with the meaning that flags, the preset or the schema give them."""
    schema = table.schema
    names = {*table.columns()}
    prefix = table.prefix
    named = [
        replace(mark, column=mark.column.removeprefix(prefix), unmet=mark.unmet and mark.unmet.inside(prefix))
        for mark in binding.marks
    ]
    of_schema = () if schema is None else schema.marks
    if binding.masked_rows_typed and not any(mark.is_open for mark in (*of_schema, *named)):
        cure = Way("--masked-column", why="names the column that marks them", fill="COL")
        raise UsageError("--masked-rows says how masked rows count, and nothing marks any", cure)
    # A mark may first occur late in a file of lines: a scan finds it.
    there = [
        mark
        for mark in of_schema
        if schema is None or mark.column not in schema.derive or _there(schema, names, mark.column)
    ]
    return applied(there, named, binding.masked_rows, binding.masked_by_preset)


def _group(schema: Schema, binding: Binding, names: Collection[str], *, alone: bool) -> tuple[str, ...]:
    """The existing columns of the key; the last must exist. A single file needs no file column."""
    if schema.blocks and binding.group_size is None:
        cure = Way("--group-size", why=", the number of rollouts of a prompt", lead="give", fill="N")
        raise DataError(f"a {schema.title} names no prompt: groups are blocks of rows", cure)
    *outer, last = [name for name in schema.group if not (alone and name == FILE)] or [""]
    there = filter(partial(_there, schema, names), outer)
    return (*there, last) if last else tuple(there)


def _key_within(schema: Schema) -> tuple[str, ...]:
    """The key without what else says where it is unique, which --group-within replaces: steps, runs, files and records.

    A record that is a group stays one.
    """
    outer, last = (schema.group, ()) if schema.blocks else (schema.group[:-1], schema.group[-1:])
    if last == (PARENT,):
        return schema.group
    places = {*STEP_LIKE, "eval_id", schema.batch, FILE, PARENT}
    places |= {name for name, derived in schema.derive.items() if derived.source == PATH}
    return (*(name for name in outer if name not in places), *last)


def _there(schema: Schema, names: Collection[str], name: str) -> bool:
    """Whether the files have a column, or the column it is derived from."""
    derived = schema.derive.get(name)
    source = name if derived is None else derived.source
    return source in OWN or source == PARENT or is_there(source, names)


# --- hints ---------------------------------------------------------------------------------------------------------

_LEVELS = 2  # levels of nested objects that are searched
_ITEMS = 8  # items of a list of objects that are searched


def inside_of_record(tables: Sequence[Table]) -> list[str]:
    """A hint at the rows if the file is a single JSON record with a list of objects."""
    records = _records(tables)
    is_document = len(tables) == len(records) == 1 and tables[0].format.record == "object"
    if not is_document or tables[0].schema is not None:
        return []
    lists = {name: value for name, value in records[0].items() if _is_list_of_rows(value)}
    if not lists:
        return []
    name, rows = max(lists.items(), key=lambda item: len(item[1]))
    return [f"the file is one record, and its {name} is a list of {len(rows)}: --reward '{name}[].NAME' reads them"]


def numbers_inside(tables: Sequence[Table]) -> list[str]:
    """A hint with the paths of numbers inside the first records, in their order, if there are any."""
    found = [path for record in _records(tables) for path in _number_paths(record, "", _LEVELS)]
    inside = [path for path in dict.fromkeys(found) if "." in path and path not in tables[0].columns()]
    if not inside:
        return []
    more = ", ..." if len(inside) > LISTED else ""
    shown_paths = [f"{tables[0].prefix}{path}" for path in inside[:LISTED]]
    return [f"numbers inside of records: {', '.join(shown_paths)}{more}"]


def _records(tables: Sequence[Table]) -> Sequence[Mapping[str, Any]]:
    return tables[0].sample().records if tables and tables[0].format.record != "rollout" else ()


def _number_paths(value: Any, path: str, levels: int) -> Iterator[str]:
    """The paths from here to numbers and to lists of numbers; conversations are not searched."""
    if isinstance(value, str) and value[:1] == "{":
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if isinstance(value, dict):
        for name, inner in value.items() if levels >= 0 else ():
            yield from _number_paths(inner, f"{path}.{name}" if path else name, levels - 1)
    elif _is_list_of_rows(value):
        for item in value[:_ITEMS]:
            yield from _number_paths(item, f"{path}[]", levels)
    elif SHAPES["number"](value) or (value and SHAPES["numbers"](value)):
        yield path


def _is_list_of_rows(value: Any) -> bool:
    is_list = isinstance(value, list) and bool(value)
    return is_list and all(isinstance(item, dict) and not is_message(item) for item in value)
