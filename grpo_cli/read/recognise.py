"""One row per rollout, whatever a record is: the schema of the files, and where in a record its rollouts are."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any, Final, TypeVar

import numpy as np

from grpo_cli.errors import DataError, UsageError
from grpo_cli.formats import registry
from grpo_cli.read.detect_schema import with_schema
from grpo_cli.read.known_names import (
    CONVERSATIONS,
    GROUP_TIERS,
    LIKELY_REWARD,
    PROMPT_TEXTS,
    RESPONSES,
    REWARD_TIERS,
    TRUTHS,
)
from grpo_cli.read.tables import Binding, OverTables, Table
from grpo_cli.schemas.sample import reward_names, values_of
from grpo_cli.schemas.table import LISTED, NESTED, NONE, SHAPES, Schema
from grpo_cli.values.cells import Field
from grpo_cli.values.chat import is_message, responds
from grpo_cli.values.paths import PARENT

T = TypeVar("T", bound=Table)

SHOWN: Final = 40  # characters of a value in a message
_FIRST: Final = 32  # records of a typed file that are looked at


def recognise(files: Sequence[T], binding: Binding, over: OverTables = map) -> list[T]:
    """The tables as their schema reads them: one row per rollout, even if a record contains a list of rollouts.

    `over` looks at each file.
    """
    path = _path_of(files[0], binding)
    if path and not files[0].format.holds_objects:
        return [_list_columns(table, path, binding.rewards) for table in files]
    tables = [_at_path(table, path) for table in files] if path else with_schema(files, binding.schema, over)
    schema = tables[0].schema
    if schema is None or path:
        binding = binding.inside(f"{path}.") if path else binding
        lists = _lists_of_rewards(tables[0], binding)
        schema = schema if lists is None else replace(lists, rows=path)
    if schema is None or schema.layout not in LISTED:
        return tables
    rewards = binding.rewards or rewards_of(schema, tables[0])
    items = tuple(name for name in rewards if name not in schema.derive)
    if not items:
        raise UsageError(f"a {schema.title} needs a reward column", "name it with --reward")
    if schema.layout == "wide" and (key := _key_of_items(tables[0], items[0])):
        schema = replace(schema, layout="columnar", group=(*schema.group, key))
    keys_too = schema.layout != "wide"
    # Columns that only checks read may be lists of another kind.
    marks = {name for mark in binding.marks for name in mark.columns}
    needed = {*schema.group, schema.batch, *schema.rollout, *(mark.column for mark in schema.marks), *marks}
    needed |= {*binding.group, binding.group_within or "", binding.batch_by or ""}
    needed |= {*binding.roles.values(), *binding.carried}
    listed = partial(registry.listed, items=items, keys_too=keys_too, keys=needed if keys_too else marks)
    return [table.of_schema(schema, listed(table.format)) for table in tables]


def _path_of(table: Table, binding: Binding) -> str:
    """The path to the objects with the rewards: `rollouts[]` of `rollouts[].correct`; empty for plain columns."""
    inside = [name for name in binding.rewards if "[]" in name and name not in table.columns()]
    paths = list(dict.fromkeys(name[: name.rindex("[]") + 2] for name in inside))
    if not inside or binding.schema not in {None, NONE}:
        return ""
    if len(paths) > 1:
        raise UsageError(
            f"the rewards of a row must be in one object, not in {' and '.join(paths)}", "choose one of them"
        )
    for name in inside:
        if name == paths[0]:
            cure = f"name a field, as {name}.reward, or a list of numbers without the brackets"
            raise UsageError(f"--reward {name!r} names the objects of a list", cure)
    return paths[0]


def _list_columns(table: T, path: str, rewards: tuple[str, ...]) -> T:
    """A typed file with a list of objects per record: one row per object, grouped by record."""
    if not table.format.holds_lists or path.count("[]") > 1:
        cure = "write the records as JSON lines"
        raise DataError(f"{table.name}: {table.format.name} has no {path} that can be read", cure)
    schema = Schema(name="path", title=f"objects at {path}", tool="", layout="wide", source="", group=(PARENT,))
    return table.of_schema(schema, registry.listed(table.format, rewards, keys_too=False))


def _at_path(table: T, path: str) -> T:
    """JSON with one row per object of a list. The list is the group, unless it is the only list of the file."""
    inside = registry.nested(table.format, path)
    schema = Schema(
        name="path", title=f"objects at {path}", tool="", layout=NESTED, source="",
        rows=path, group=() if inside.is_one_list else (PARENT,),
    )  # fmt: skip
    return table.of_schema(schema, inside)


def _lists_of_rewards(table: Table, binding: Binding) -> Schema | None:
    """A made-up schema for a file whose records have lists of rewards; None if rewards are numbers."""
    names = binding.rewards or next(((name,) for tier in REWARD_TIERS for name in tier if name in table.columns()), ())
    if not names or not table.format.holds_lists:
        return None
    sample = table.sample()
    for name in names:
        lists = [
            (row, value)
            for row, record in enumerate(sample.records)
            for value in values_of(record, name)
            if value is not None
        ]
        other = next((pair for pair in lists if not SHAPES["numbers"](pair[1])), None)
        # A list with one value counts as that value, so it may be among numbers.
        if other is not None and SHAPES["numbers"](lists[0][1]) and len(lists[0][1]) > 1:
            where, value = table.format.place(table.source, other[0]), json.dumps(other[1])[:SHOWN]
            cure = "the first record has a list of rewards, so every record needs one"
            raise DataError(f"{where}: {name} is {value}, expected a list of numbers", cure)
        if not lists or other is not None:
            return None
    # A list with one value counts as that value; the sample of a typed file shows no lengths.
    lengths = [table.scan([Field(name, "numbers")]).frame[name].list.len() for name in names]
    if not any((counts > 1).any() for counts in lengths):
        return None
    title = f"records with lists of rewards in {' and '.join(names)}"
    response = _single_response(table, names)
    if response and response not in TRUTHS and not binding.group and binding.group_size is None:
        raise DataError(
            f"{table.name}: {' and '.join(names)} has lists of rewards, but each record has one {response}",
            f"if they are parts of one reward, write each part to its own column; --group {PARENT} takes each number for a rollout",
        )
    note = f"each record has one {response}: if its rewards are parts of one reward, write each part to its own column"
    return Schema(
        name="lists", title=title, tool="", layout="wide", source="", group=(PARENT,), reward=tuple(names),
        note=note if response else "",
    )  # fmt: skip


def _single_response(table: Table, rewards: Sequence[str]) -> str:
    """The column with the one response of each record; "" if there is none, or a list with an item per reward beside it."""
    sample = table.sample().records
    names = [name for name in table.columns() if any(isinstance(record.get(name), list) for record in sample)]
    names = [name for name in names if name not in rewards]
    records = _first_records(table, (*names, *RESPONSES), rewards[0])
    known = [record for record in records if isinstance(record[rewards[0]], list)]
    for name in names:
        values = [(record.get(name), len(record[rewards[0]])) for record in known if record.get(name) is not None]
        if values and all(_is_item_each(name, value, size) for value, size in values):
            return ""
    return next((name for name in RESPONSES if any(_is_one_text(record.get(name)) for record in records)), "")


def _is_item_each(name: str, value: object, size: int) -> bool:
    """Whether a list has an item per rollout. The turns of a chat are none, and texts beside rewards may be their names."""
    if not isinstance(value, list) or len(value) != size:
        return False
    if any(map(is_message, value)):
        return all(map(responds, value))
    return not (re.search(LIKELY_REWARD, name) and all(isinstance(item, str) for item in value))


def _key_of_items(table: Table, reward: str) -> str:
    """The column with an id or a prompt for each reward of a record, which is then a batch of groups; "" if there is none.

    If a record has one prompt, ids that never repeat are those of its rollouts.
    """
    names = (*GROUP_TIERS[0], *PROMPT_TEXTS)
    if not any(isinstance(record.get(name), list) for record in table.sample().records for name in names):
        return ""
    records = _first_records(table, names, reward)
    single = {name for record in records for name in PROMPT_TEXTS if _is_one_text(record.get(name))}
    texts = takewhile(lambda name: name not in single, PROMPT_TEXTS)
    found = {}
    for name in (*GROUP_TIERS[0], *(name for name in texts if name not in CONVERSATIONS)):
        kinds = (str, list) if name in PROMPT_TEXTS else (str, int)  # no tokens, and no messages of one prompt
        lists = [(record[name], record[reward]) for record in records if isinstance(record.get(name), list)]
        if lists and all(
            isinstance(rewards, list) and len(items) == len(rewards) and all(isinstance(item, kinds) for item in items)
            for items, rewards in lists
        ):
            found[name] = any(len({*map(str, items)}) < len(items) for items, _ in lists)
    repeated = [name for name, repeats in found.items() if repeats]
    is_one = bool(single) and not {*found} & {*PROMPT_TEXTS}
    return next(iter(repeated if repeated or is_one else found), "")


def _is_one_text(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and any(map(is_message, value)))


def _first_records(table: Table, names: Collection[str], reward: str) -> Sequence[Mapping[str, Any]]:
    """The reward and those columns of the first records; the sample of a typed file shows no lengths of lists."""
    records = table.sample().records
    if not table.format.holds_objects and (rows := min(_FIRST, table.row_count or 0)):
        columns: dict[str, list[Any]] = {}
        for name in dict.fromkeys((reward, *(name for name in names if name in table.columns()))):
            with suppress(DataError):  # a type that cannot be read has no texts
                frames = list(table.rows(None, np.arange(rows), [name], as_json=True))
                columns[name] = [text and json.loads(text) for frame in frames for text in frame[name]]
        records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [{**record, reward: next(iter(values_of(record, reward)), None)} for record in records]


def rewards_of(schema: Schema, table: Table) -> tuple[str, ...]:
    """The reward columns of a file of this schema, where no flag names them."""
    names = schema.reward or reward_names(schema, table.sample())
    if not names:
        raise DataError(
            f"{table.name}: no column that could be the reward of a {schema.title}", "name it with --reward"
        )
    if schema.rewards is not None and schema.rewards.alone and len(names) > 1:
        several = f"{table.name}: several columns could be the reward of a {schema.title}: {', '.join(names)}"
        raise DataError(
            several, "choose one with --reward NAME (NAME=-1 if lower is better), or name several to add them"
        )
    return names
