"""Targets: what trainers read, as data in `targets.toml`.

A target says in which form a trainer takes each kind of export, what it trains on, what a person must set and what it
ignores. It never touches a number. Importing this module loads neither polars nor numpy.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from grpo_cli.errors import UnknownName, UsageError
from grpo_cli.plugins import TAKES, Registry, strict

# Conversations as one list, as prompt and completion, or as texts (one turn of the user and a text as its answer).
Form = Literal["messages", "turns", "texts"]
# When a person must know something: always, or if a record has such a thing.
When = Literal["always", "tools", "few_shot", "texts", "reasoning"]
ALWAYS: Final = "always"
WHEN: Final[Mapping[str, str]] = MappingProxyType({
    ALWAYS: "always",
    "tools": "with results of tools in the response",
    "few_shot": "with turns of the model in the prompt",
    "texts": "with plain texts",
    "reasoning": "with reasoning",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Reads:
    """How a trainer reads one kind of export."""

    by: str = ""  # the class or the door that reads it, such as SFTTrainer
    form: Form = "messages"  # of conversations
    trains_on: str = ""  # the tokens that it trains on
    names: Mapping[str, str] = field(default_factory=dict)  # what it calls columns that have another name here
    without: tuple[str, ...] = ()  # computed columns that are not written, since they would switch something on
    suffixes: tuple[str, ...] = ()  # of the files that it reads; empty: those of the target
    # arguments of tool calls: as text, as objects, or as they are in the file
    arguments: Literal["", "text", "object"] = ""
    tools: Literal["", "list", "text"] = ""  # as JSON text, also in lines; empty: a list in lines, text in Parquet
    # beside records with tools, those without have an empty list: its loader stops at a null
    tools_never_null: bool = False
    turns: Literal["", "one"] = ""  # one: each side of a pair is one message, not a list
    ignores: tuple[str, ...] = ()  # columns that change nothing
    folder: bool = False  # train.jsonl and valid.jsonl in one folder
    # groups must have one size and advantages that add up to 0: it takes stored advantages as rewards and subtracts their mean
    stored: bool = False
    pooled: bool = False  # each prompt once, whatever the groups
    know: Mapping[str, str] = field(default_factory=dict)  # what a person must know or set, by `When`
    entry: str = ""  # what the trainer's own table of data sets needs; {file} is the output
    checked: Literal["", "run", "read"] = ""  # if it differs from that of the target


@dataclass(frozen=True, kw_only=True)
class Target:
    """A trainer, by what it reads."""

    name: str  # as --target takes it
    title: str  # what people call it
    release: str  # the released version that was run or read
    source: str  # where its loaders are
    checked: Literal["run", "read"]  # whether its own loader ran on an export, or only its code was read
    suffixes: tuple[str, ...]  # of the files that it reads, the usual one first
    also: str = ""  # other trainers that read the same
    kinds: Mapping[str, Reads] = field(default_factory=dict)  # by --to
    not_read: Mapping[str, str] = field(default_factory=dict)  # by --to: why not, or what to do instead

    def suffixes_of(self, kind: str) -> tuple[str, ...]:
        """The suffixes of files of a kind that it reads."""
        return self.kinds[kind].suffixes or self.suffixes


def target(name: str) -> Target:
    """The target of that name."""
    known = targets()
    if name not in known:
        raise UnknownName.among("target", name, known, lost="grpo-adv targets lists them")
    return known[name]


def targets() -> Registry[Target]:
    """All targets by name: first the built-in ones in the order of their file, then those of plugins."""
    return _TARGETS


def readers(kind: str) -> list[str]:
    """The targets that read a kind of export."""
    return [name for name, row in targets().items() if kind in row.kinds]


@cache
def _built_in() -> Mapping[str, Target]:
    text = Path(__file__).with_name("targets.toml").read_text(encoding="utf-8")
    return MappingProxyType({name: _target(name, entry) for name, entry in tomllib.loads(text).items()})


_TARGETS = Registry(
    "target", "grpo_adv.targets", _built_in, lambda name, entries: _target(name, entries[name]), Mapping
)


def _target(name: str, entry: Mapping[str, Any]) -> Target:
    what = f"target {name}"
    kinds = entry.get("kinds", {})
    if not isinstance(kinds, Mapping) or not kinds:
        raise UsageError(
            f"kinds of the {what} cannot be {kinds!r}", f"it takes {TAKES[Mapping]} with a table for each --to"
        )
    made = {kind: strict(Reads, f"kind {kind} of the {what}", reads) for kind, reads in kinds.items()}
    for kind, reads in made.items():
        for when in reads.know:
            if when not in WHEN:
                raise UnknownName.among(f"case in know of the kind {kind} of the {what}", when, WHEN)
    return strict(Target, what, {"name": name, **entry, "kinds": made})
