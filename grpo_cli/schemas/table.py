"""Schemas: how known tools lay out their files, as data in `schemas.toml`.

A schema says how a file is recognised, which rows form a group, what the reward is and which rows do not count. It never
says anything about arithmetic. Importing this module loads neither polars nor numpy.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, Self, get_args

from grpo_cli.errors import UnknownName, UsageError
from grpo_cli.plugins import TAKES, Registry, strict

NONE = "none"
LAYOUTS = MappingProxyType({
    "long": "one row per rollout",
    "lists-of-one": "one row per rollout, every cell in a list",
    "wide": "one record per prompt, lists of rewards",
    "columnar": "one record per batch, every column a list",
    "nested": "rollouts inside larger records",
    "aggregate": "one number per prompt",
    "prompts": "prompts without rewards",
})  # fmt: skip
LONG = "long"
NESTED = "nested"
LISTED = frozenset({"lists-of-one", "wide", "columnar"})
REFUSED = frozenset({"aggregate", "prompts"})
STATES = frozenset({"null", "filled", "true", "false", "zero"})
_NUMBER = re.compile(r"\s*([-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|nan|[-+]?inf(inity)?|true|false)\s*", re.IGNORECASE)
_WORDS = MappingProxyType({"@parent": "record", "@file": "file"})


def words(name: str) -> str:
    """A column as messages name it: by its name, or in words if no file has it."""
    return _WORDS.get(name, name)


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return _NUMBER.fullmatch(value) is not None
    return isinstance(value, (bool, int, float))


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(item is None or _is_number(item) for item in value)


# The shapes that `fields` may require of the values of a column.
SHAPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "any": lambda _: True,
    "number": _is_number,
    "float": lambda value: type(value) is float,
    "text": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool) or value in {"True", "False", "true", "false"},
    "list": lambda value: isinstance(value, list),
    "numbers": _is_numbers,
    "texts": lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
    "objects": lambda value: isinstance(value, list) and all(isinstance(item, dict) for item in value),
    "object": lambda value: isinstance(value, dict),
    "numbers-or-number": lambda value: _is_number(value) or _is_numbers(value),
    "fraction": lambda value: isinstance(value, str) and re.fullmatch(r"\d+/\d+", value) is not None,
}


@dataclass(frozen=True, kw_only=True)
class Derived:
    """A column derived from another: a part of its text, the sum of its parts, the length of its list."""

    name: str
    source: str  # the column; @path is the path of the file
    means: str  # its name in messages
    pattern: str = ""  # a regular expression, whose first group is the value
    otherwise: str | None = None  # the value if the expression does not match, or if no part has a value
    total: bool = False  # the sum of a list of numbers
    count: bool = False  # the length of a list
    value: str = ""  # in an object or a list of objects: the field that is summed
    weight: str = ""  # the field that each summed value is multiplied by
    single: bool = False  # only one part is allowed

    @classmethod
    def of(cls, schema: str, name: str, entry: Mapping[str, Any]) -> Self:
        """Read one entry of `[schema.derive]`."""
        given = {"source" if key == "from" else key: value for key, value in entry.items()}
        return strict(cls, f"derived column {name} of the schema {schema}", {"name": name, **given})


# What a mark may say of a row: it leaves its group before the mean, it counts in its group and is not trained on, or it
# is no rollout of any group, such as a judge's. See docs/masked.md.
MarkKind = Literal["left_out", "masked", "foreign"]


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Rows that a tool marks: a column in a certain state, or rows that do not meet a condition."""

    column: str = ""  # empty with a condition
    kind: MarkKind
    state: str  # one of STATES, "in", "truth" (whatever people write for it) or "unmet": the last one only by flag
    values: tuple[str, ...] = ()
    flag: str = ""  # that named it; empty if the schema did
    unmet: Any = None  # the condition (a Filter of `options`) that the rows do not meet

    @property
    def columns(self) -> Sequence[str]:
        """The columns that are read for it."""
        return [self.column] if self.unmet is None else self.unmet.names

    @property
    def words(self) -> str:
        """The mark as messages name it."""
        if self.unmet is not None:
            return f"{self.flag} {self.unmet.text}"
        values = " or ".join(value or "empty" for value in self.values)
        states = {"in": f" is {values}", "filled": "", "truth": "", "zero": " is 0", "null": " is missing"}
        return f"{self.column}{states.get(self.state, f' is {self.state}')}"

    @property
    def is_open(self) -> bool:
        """Whether --masked-rows decides what becomes of its rows; --left-out-column says it itself."""
        return self.kind == "masked" or (self.kind == "left_out" and not self.flag)

    @classmethod
    def named(cls, text: str, kind: MarkKind, flag: str) -> Self:
        """The mark that a flag names: `COL`, or `COL=VALUE`."""
        column, sign, value = text.partition("=")
        if not column:
            raise UsageError(f"{flag} {text!r} names no column", f"write {flag} COL or {flag} COL=VALUE")
        state, values = ("in", (value,)) if sign else ("truth", ())
        return cls(column=column, kind=kind, state=state, values=values, flag=flag)


@dataclass(frozen=True, kw_only=True)
class Copies:
    r"""Files without rows, or whose rows are also in files that match `beside`; `\g<name>` in it is a part of their name."""

    skip: str
    beside: str = ""


@dataclass(frozen=True, kw_only=True)
class RewardNames:
    """Reward columns without fixed names: all columns of a shape, or those that a column lists."""

    shape: str = ""
    named: str = ""
    excluded: tuple[str, ...] = ()
    named_in: str = ""
    first: str = ""  # if this column exists, it is the reward and the others are its parts
    alone: bool = False  # if there are several, the user must choose: their sum has no meaning


@dataclass(frozen=True, kw_only=True)
class Schema:
    """A schema: how a tool's file is recognised and read."""

    name: str  # as --schema takes it
    title: str  # what messages call a file of it
    tool: str  # that writes such files, with the option that makes it do so
    layout: str  # what a record is: a key of `LAYOUTS`
    source: str  # the repository, the commit and the file where the layout was read
    # the columns that a file must have, each with the shape of its values, a key of `SHAPES`
    fields: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()  # columns that a file must not have
    file: str = ""  # a regular expression for the path of the file
    only_file: bool = False  # files with other paths do not have this schema
    rows: str = ""  # nested: the path to the rollouts
    # columns of the group key, the outer ones first; of these a file may lack some, not the last
    group: tuple[str, ...] = ()
    within: str = ""  # where a key is unique, as in --group-within
    batch: str = ""  # the column whose values are the batches, or `file` or `input`; empty: the schema does not say
    blocks: bool = False  # groups are blocks of --group-size rows
    reward: tuple[str, ...] = ()  # columns that add up to the reward; empty if `rewards` finds them
    rewards: RewardNames | None = None  # how reward columns without fixed names are found; None: `reward` names them
    # the number for each text that stands for one, such as C for correct
    letters: Mapping[str, float] = field(default_factory=dict)
    derive: Mapping[str, Derived] = field(default_factory=dict)  # columns that are made from others, by name
    prompt: str = ""  # the column of the prompt: a text or messages
    response: str = ""  # the column of the response
    messages: str = ""  # instead of both: a conversation that ends with the response
    instructions: str = ""  # a text that is the turn of the system before the prompt
    tools: str = ""  # the column of the tools that the model may call
    advantage: str = ""  # the column with the advantages that the tool computed; empty: it writes none
    updates: str = ""  # the column with the id of a row in files that say more about rows, in a folder beside a stream
    centred: bool = False  # the logged advantage is reward - baseline, undivided
    one_size: bool = False  # all groups have the same size, and the logged advantages of each add up to zero
    length: str = ""  # the column with the length of the response; empty: none is known
    stop: str = ""  # the column that says why a response ended, such as at its longest length; empty: one found by name
    logprobs: Mapping[str, str] = field(default_factory=dict)  # lists of log-probs of tokens, by option of `inspect`
    rollout: tuple[str, ...] = ()  # ids of the rollout that a row is part of: the first that is not null counts
    parts: bool = False  # a row is a part of a rollout, which no preset counts by itself
    ids: tuple[str, ...] = ()  # ids of a row that the tool keeps when it scores the row again
    no_prompts: tuple[str, ...] = ()  # columns that are prompts by name only, such as the input of a judge
    repeats: tuple[str, ...] = ()  # step-like columns that count rollouts and do not separate groups
    left_out: tuple[Mark, ...] = ()  # what marks rows that leave their group before the mean
    masked: tuple[Mark, ...] = ()  # what marks rows that count in their group and are not trained on
    foreign: tuple[Mark, ...] = ()  # what marks rows that are no rollouts, such as a judge's
    reasons: tuple[str, ...] = ()  # columns that name why a row was marked: the first that is not empty counts
    missing: bool = False  # a null or NaN reward means that the row is unscorable
    copies: tuple[Copies, ...] = ()  # files in a folder that are passed over
    refusal: str = ""  # why such a file has no rollouts to compute from; empty if it has
    hint: tuple[str, ...] = ()  # what to do instead, beside `refusal`; a single text is one of them
    note: str = ""  # what a reader of such a file is told, unless a flag settles it

    @property
    def marks(self) -> tuple[Mark, ...]:
        """All marks of rows that do not count like others."""
        return (*self.left_out, *self.masked, *self.foreign)

    def words(self, name: str) -> str:
        """A column of this schema as messages name it."""
        return self.derive[name].means if name in self.derive else words(name)

    @property
    def grouping(self) -> str:
        """The key in words: the last column within the others."""
        if self.blocks:
            return " within ".join(["blocks of --group-size rows", *map(self.words, self.group)])
        *outer, last = map(self.words, self.group)
        return f"{last} within {', '.join(outer)}" if outer else last


def schema(name: str) -> Schema:
    """The schema of that name."""
    known = schemas()
    if name not in known:
        raise UnknownName.among("schema", name, [*known, NONE], lost="grpo-adv schemas lists them")
    return known[name]


def schemas() -> Registry[Schema]:
    """All schemas by name: first the built-in ones in the order of their file, then those of plugins."""
    return _SCHEMAS


@cache
def _built_in() -> Mapping[str, Schema]:
    return parsed(Path(__file__).with_name("schemas.toml").read_text(encoding="utf-8"))


def parsed(text: str) -> Mapping[str, Schema]:
    """Read the text of a file of schemas; unknown and missing keys are errors."""
    return MappingProxyType({name: _schema(name, entry) for name, entry in tomllib.loads(text).items()})


_SCHEMAS = Registry(
    "schema", "grpo_adv.schemas", _built_in, lambda name, entries: _schema(name, entries[name]), Mapping
)


def _schema(name: str, entry: Mapping[str, Any]) -> Schema:
    what = f"schema {name}"
    for key, kind in (("derive", Mapping), ("copies", list), *((kind, Mapping) for kind in get_args(MarkKind))):
        if key in entry and not isinstance(entry[key], kind):
            raise UsageError(f"{key} of the {what} cannot be {entry[key]!r}", f"it takes {TAKES[kind]}")
    made = {"name": name, **entry}
    if isinstance(entry.get("hint"), str):
        made["hint"] = (entry["hint"],)
    made["derive"] = {key: Derived.of(name, key, given) for key, given in entry.get("derive", {}).items()}
    for kind in get_args(MarkKind):
        made[kind] = tuple(_mark(what, kind, column, state) for column, state in entry.get(kind, {}).items())
    made["copies"] = tuple(strict(Copies, f"copies of the {what}", copy) for copy in entry.get("copies", ()))
    if "rewards" in entry:
        made["rewards"] = strict(RewardNames, f"rewards of the {what}", entry["rewards"])
    row = strict(Schema, what, made)
    _check(row)
    return row


def _mark(what: str, kind: MarkKind, column: str, state: Any) -> Mark:
    if isinstance(state, list):
        if not all(isinstance(value, str) for value in state):
            raise UsageError(f"{kind} of the {what} cannot be {state!r}", f"it takes {TAKES[tuple]}")
        return Mark(column=column, kind=kind, state="in", values=tuple(state))
    if str(state) not in STATES:
        raise UnknownName.among(f"state of {column} in the {what}", str(state), sorted(STATES))
    return Mark(column=column, kind=kind, state=state)


def _check(made: Schema) -> None:
    """Refuse a schema that could never match or lacks something."""
    if made.layout not in LAYOUTS:
        raise UnknownName.among(f"layout of the schema {made.name}", made.layout, LAYOUTS)
    for shape in made.fields.values():
        if shape not in SHAPES:
            raise UnknownName.among(f"shape in the schema {made.name}", shape, sorted(SHAPES))
    for pattern in (made.file, *(each.pattern for each in made.derive.values()), *(each.skip for each in made.copies)):
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(f"an expression of the schema {made.name} is invalid: {pattern!r}", str(error)) from None
    needs: dict[str, object] = {"fields": made.fields}
    if made.layout in REFUSED:
        needs["refusal"] = made.refusal
    else:
        needs |= {"group": made.group or made.blocks, "reward": made.reward or made.rewards}
        needs |= {"rows": made.rows} if made.layout == NESTED else {}
    for key, value in needs.items():
        if not value:
            raise UsageError(f"the schema {made.name} has no {key!r}", "see grpo_cli/schemas/table.py")
