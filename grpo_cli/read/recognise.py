"""One row per rollout, whatever a record is: the schema of the files, and where in a record its rollouts are.

A schema is detected from column names and a few rows; the most specific match wins. Detection is deterministic; two schemas
that fit equally well are an error, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import takewhile
from typing import Any, TypeVar

import numpy as np

from grpo_cli.errors import DataError, NoRewards, UsageError, Way
from grpo_cli.files.stores import pinned
from grpo_cli.formats import registry
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
from grpo_cli.schemas.sample import Sample, misfit, reward_names, values_of
from grpo_cli.schemas.table import LISTED, LONG, NESTED, NONE, REFUSED, SHAPES, Schema, schema, schemas
from grpo_cli.values.cells import Excerpt, Field
from grpo_cli.values.chat import is_message, responds
from grpo_cli.values.paths import PARENT

T = TypeVar("T", bound=Table)

_BY_NAME = (
    Way("--schema", lead="choose with", fill="NAME"),
    Way("--schema", "none", "finds columns by name"),
)
_FIRST = 32  # records of a typed file that are looked at
_NEAR = 3  # near matches in a message
_SCORED = frozenset({"reward", "rewards", "score", "scores", "total_reward", "advantage", "advantages"})


def recognise(files: Sequence[T], binding: Binding, over: OverTables = map) -> list[T]:
    """The tables as their schema reads them: one row per rollout, even if a record contains a list of rollouts.

    `over` looks at each file.
    """
    path = _path_of(files[0], binding)
    if path:
        tables = [_at_path(table, path, binding.rewards) for table in files]
        if files[0].format.record != "object":
            return tables
        binding = binding.inside(f"{path}.")
    else:
        tables = with_schema(files, binding.schema, over)
    schema = tables[0].schema
    if schema is None or path:
        lists = _lists_of_rewards(tables[0], binding)
        schema = schema if lists is None else replace(lists, rows=path)
    if schema is None or schema.layout not in LISTED:
        return tables
    rewards = binding.rewards or rewards_of(schema, tables[0])
    items = tuple(name for name in rewards if name not in schema.derive)
    if not items:
        raise UsageError(f"a {schema.title} needs a reward column", Way("--reward", lead="name it with"))
    if schema.layout == "wide" and (key := _key_of_items(tables[0], items[0])):
        schema = replace(schema, layout="columnar", group=(*schema.group, key))
    keys_too = schema.layout != "wide"
    # Columns that only checks read may be lists of another kind.
    keys = {name for mark in binding.marks for name in mark.columns}
    if keys_too:
        keys.update(schema.group, schema.rollout, [schema.batch], [mark.column for mark in schema.marks])
        keys.update(binding.group, [binding.group_within or "", binding.batch_by or ""])
        keys.update(binding.roles.values(), binding.carried)
    listed = partial(registry.listed, items=items, keys_too=keys_too, keys=keys)
    return [table.of_schema(schema, listed(table.format)) for table in tables]


def _path_of(table: Table, binding: Binding) -> str:
    """The path to the objects with the rewards: `rollouts[]` of `rollouts[].correct`; empty for plain columns."""
    inside = [name for name in binding.rewards if "[]" in name and name not in table.columns()]
    paths = list(dict.fromkeys(name[: name.rindex("[]") + 2] for name in inside))
    if not inside or binding.schema not in {None, NONE}:
        return ""
    if len(paths) > 1:
        wrong = f"the rewards of a row must be in one object, not in {' and '.join(paths)}"
        raise UsageError(wrong, "choose one of them")
    for name in inside:
        if name == paths[0]:
            cure = f"name a field, as {name}.reward, or a list of numbers without the brackets"
            raise UsageError(f"--reward {name!r} names the objects of a list", cure)
    return paths[0]


def _at_path(table: T, path: str, rewards: tuple[str, ...]) -> T:
    """One row per object of a list, in a typed file of the list with these rewards.

    The list of a record is the group, unless it is the only list of the file.
    """
    schema = Schema(name="path", title=f"objects at {path}", tool="", layout="wide", source="", group=(PARENT,))
    known = table.format
    if known.record == "object":
        inside = registry.nested(known, path)
        group = () if inside.is_one_list else schema.group
        return table.of_schema(replace(schema, layout=NESTED, rows=path, group=group), inside)
    if known.record != "values" or path.count("[]") > 1:
        cure = "write the records as JSON lines"
        raise DataError(f"{table.name}: {known.name} has no {path} that can be read", cure)
    return table.of_schema(schema, registry.listed(known, rewards, keys_too=False))


def _lists_of_rewards(table: Table, binding: Binding) -> Schema | None:
    """A made-up schema for a file whose records have lists of rewards; None if rewards are numbers."""
    by_name = ((name,) for tier in REWARD_TIERS for name in tier if name in table.columns())
    names = binding.rewards or next(by_name, ())
    if not names or table.format.record in {"texts", "rollout"}:
        return None
    sample = table.sample()
    for name in names:
        lists = [value for record in sample.records for value in values_of(record, name) if value is not None]
        if not lists or not all(map(SHAPES["numbers"], lists)):
            return None
    # A list with one value counts as that value; the sample of a typed file shows no lengths.
    lists_of = [table.scan([Field(name, "numbers")]).frame[name] for name in names]
    if not any((lists.list.len() > 1).any() for lists in lists_of):
        return None
    title = f"records with lists of rewards in {' and '.join(names)}"
    response = _single_response(table, names)
    if response and response not in TRUTHS and not binding.group and binding.group_size is None:
        raise DataError(
            f"{table.name}: {' and '.join(names)} has lists of rewards, but each record has one {response}",
            [
                "if they are parts of one reward, write each part to its own column",
                Way("--group", PARENT, "takes each number for a rollout"),
            ],
        )
    note = f"each record has one {response}: if its rewards are parts of one reward, write each part to its own column"
    return Schema(
        name="lists", title=title, tool="", layout="wide", source="", group=(PARENT,), reward=names,
        note=note if response else "",
    )  # fmt: skip


def _single_response(table: Table, rewards: Sequence[str]) -> str:
    """The column with the one response of each record; "" if there is none, or a list with an item per reward beside it."""
    sample = table.sample().records
    names = [name for name in table.columns() if any(isinstance(record.get(name), list) for record in sample)]
    names = [name for name in names if name not in rewards]
    reward = rewards[0]
    records = _first_records(table, (*names, *RESPONSES), reward)
    with_lists = [record for record in records if isinstance(record[reward], list)]
    for name in names:
        with_value = [record for record in with_lists if record.get(name) is not None]
        if with_value and all(_is_item_each(name, record[name], len(record[reward])) for record in with_value):
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
    repeat = {}  # the columns with an item for each reward, and whether an item occurs twice in a record
    for name in (*GROUP_TIERS[0], *(name for name in texts if name not in CONVERSATIONS)):
        kinds = (str, list) if name in PROMPT_TEXTS else (str, int)  # no tokens, and no messages of one prompt
        lists = [(record[name], record[reward]) for record in records if isinstance(record.get(name), list)]
        of_items = [isinstance(rewards, list) and len(items) == len(rewards) for items, rewards in lists]
        of_kind = [isinstance(item, kinds) for items, _ in lists for item in items]
        if lists and all(of_items) and all(of_kind):
            repeat[name] = any(len({*map(str, items)}) < len(items) for items, _ in lists)
    repeating = [name for name, repeats in repeat.items() if repeats]
    is_one = single and not {*repeat} & {*PROMPT_TEXTS}
    return next(iter(repeating if repeating or is_one else repeat), "")


def _is_one_text(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and any(map(is_message, value)))


def _first_records(table: Table, names: Collection[str], reward: str) -> Sequence[Mapping[str, Any]]:
    """The reward and those columns of the first records; the sample of a typed file shows no lengths of lists."""
    records = table.sample().records
    if table.format.record != "object" and (rows := min(_FIRST, table.row_count or 0)):
        records = [{} for _ in range(rows)]
        for name in dict.fromkeys((reward, *(name for name in names if name in table.columns()))):
            with suppress(DataError):  # a type that cannot be read has no texts
                values = table.records(Excerpt(None, np.arange(rows), [name]))
                records = [{**record, **value} for record, value in zip(records, values, strict=True)]
    return [{**record, reward: next(iter(values_of(record, reward)), None)} for record in records]


def rewards_of(schema: Schema, table: Table) -> tuple[str, ...]:
    """The reward columns of a file of this schema, where no flag names them."""
    names = schema.reward or reward_names(schema, table.sample())
    if not names:
        wrong = f"{table.name}: no column that could be the reward of a {schema.title}"
        raise DataError(wrong, Way("--reward", lead="name it with"))
    if schema.rewards is not None and schema.rewards.alone and len(names) > 1:
        several = f"{table.name}: several columns could be the reward of a {schema.title}: {', '.join(names)}"
        raise DataError(
            several,
            [
                Way("--reward", why="(NAME=-1 if lower is better)", lead="choose one with", fill="NAME"),
                "name several to add them",
            ],
        )
    return names


# --- the schema of a file --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Match:
    """How well a schema fits a file: its score, or the reasons against it."""

    schema: str  # the name of the schema
    # higher is more specific: 3 for a field (2 if of any shape) or the file name, 1 for a column it must not have
    score: int
    by: Sequence[str]  # the reasons for it
    against: Sequence[str]  # the reasons against it; empty if it fits


def with_schema(files: Sequence[T], choice: str | None, over: OverTables = map) -> list[T]:
    """The files as their common schema reads them; `choice` is the name of a schema or `none`.

    `over` looks at each file; afterwards its column names and number of rows are known.
    """
    # They are looked up here, not in a task on another machine, which may have neither the packages nor the files.
    known = [*schemas().at_hand.values()]
    if choice is not None:
        known = [] if choice == NONE else [schema(choice)]
    looked_at = list(over(partial(_looked_at, known=known, is_named=choice is not None), files))
    tables = [table for table, _ in looked_at]
    found = {None if schema_ is None else schema_.name: (table.name, schema_) for table, schema_ in looked_at}
    if len(found) > 1:
        listed = ", ".join(f"{name} is {kind or 'of no known schema'}" for kind, (name, _) in found.items())
        raise DataError(
            f"the files have different schemas: {listed}",
            ["name the files of one schema", *_BY_NAME],
        )
    ((_, schema_),) = found.values()
    if schema_ is None:
        return tables
    if schema_.layout != NESTED:
        return [table.of_schema(schema_) for table in tables]
    return [table.of_schema(schema_, registry.nested(table.format, schema_.rows)) for table in tables]


def _looked_at(table: Any, known: Sequence[Schema], *, is_named: bool) -> tuple[Any, Schema | None]:
    """A table, whose column names and number of rows are now known, and its schema."""
    if not is_named and table.format.record == "rollout":
        known = [one for one in known if one.layout == LONG]
    found = next(iter(known), None) if is_named else _schema_of(table, known)
    table.columns()
    _ = table.row_count  # the table knows both from now on
    if found is not None:
        _refuse(found, table)
    return table, found


def _schema_of(table: Table, known: Sequence[Schema]) -> Schema | None:
    if not _likely(known, table.columns()):
        return None
    sample = table.sample()
    likely = {one.name: one for one in _likely(known, sample.names)}
    best = _best([_match(one, sample) for one in likely.values()], table.name)
    return None if best is None else likely[best]


def _likely(known: Iterable[Schema], names: Collection[str]) -> list[Schema]:
    """The schemas whose top-level names all exist: for most tables there are none."""
    here = {*names}
    return [candidate for candidate in known if _heads(tuple(candidate.fields)) <= here]


@cache
def _heads(fields: tuple[str, ...]) -> frozenset[str]:
    return frozenset(re.split(r"[.\[]", field)[0] for field in fields)


def _best(candidates: Sequence[Match], name: str) -> str | None:
    """The schema that fits best, or None; a tie is an error."""
    fitting = [match for match in candidates if not match.against]
    if not fitting:
        return None
    most = max(match.score for match in fitting)
    best = [match.schema for match in fitting if match.score == most]
    if len(best) > 1:
        both = " and ".join(f"{known} ({schema(known).title})" for known in best)
        raise DataError(f"{name}: two schemas fit: {both}", _BY_NAME)
    return best[0]


def _refuse(chosen: Schema, table: Table) -> None:
    record = table.format.record
    layout = chosen.layout
    if layout != LONG and record == "rollout":
        wrong = f"a record of a {chosen.title} has several rollouts, but a frame needs one per row"
        raise UsageError(wrong, "make one row per rollout, and name the columns: group=..., reward=...")
    if layout in REFUSED:
        raise NoRewards(f"{table.name}: {chosen.title}: {chosen.refusal}", chosen.hint)
    if (layout == NESTED and record != "object") or (layout in LISTED and record == "texts"):
        wrong = f"{table.name}: the schema {chosen.name} cannot be read from {table.format.name}"
        raise DataError(wrong, Way("--schema", "none", "reads plain rows"))


@dataclass(frozen=True)
class SchemaMatch:
    """Which schema a file has, and why."""

    file: str  # as it was given
    schema: str | None  # the name of the schema that fits best; None: no schema fits
    because: Sequence[str]  # the fields that it has, and `the file name` if that fits; empty without a schema
    also: Sequence[Match]  # the other schemas that fit, less specifically, the best first
    nearly: Sequence[Match]  # at most three schemas with a single reason against them, the best first


def explained(name: str) -> SchemaMatch:
    """The schema of a file, the reasons for it, and the reasons against the nearest others."""
    source = registry.as_text(pinned(name))
    known = registry.of(source)
    sample = Table(source, known).sample()
    candidates = [_match(candidate, sample) for candidate in schemas().values()]  # a listing may import packages
    fitting = sorted((match for match in candidates if not match.against), key=lambda match: -match.score)
    best = _best(candidates, name)
    because = fitting[0].by if fitting else ()
    near = [match for match in candidates if len(match.against) == 1 and match.by]
    near.sort(key=lambda match: -match.score)
    return SchemaMatch(name, best, because, fitting[1:], near[:_NEAR])


# --- matching ----------------------------------------------------------------------------------------------


def _match(known: Schema, sample: Sample) -> Match:
    against = []
    by = []
    score = 0
    for name, shape in known.fields.items():
        why = misfit(name, shape, sample)
        if why:
            against.append(why)
        else:
            by.append(name)
            score += 2 if shape == "any" else 3
    absent = {*known.absent, *(_SCORED if known.layout in REFUSED else ())}
    against += [f"has {name}" for name in sorted(absent & sample.names)]
    score += len(known.absent)
    if known.file and re.search(known.file, sample.path):
        by.append("the file name")
        score += 3
    elif known.only_file:
        against.append("a different file name")
    # For a nested schema the sample shows the records around the rollouts.
    if not against and known.rewards is not None and known.layout != NESTED and not reward_names(known, sample):
        against.append("no column that could be a reward")
    return Match(known.name, score, by, against)
