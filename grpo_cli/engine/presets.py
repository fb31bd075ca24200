"""Presets: the exact arithmetic of a framework's estimator, as data in `presets.toml`.

A preset only sets fields of the Plan. How it treats singletons, constant groups and missing rewards is read from its
Plan, not written down again. An entry may inherit from another.
"""

from __future__ import annotations

import tomllib
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import ORDERED, Counting, MaskedRows
from grpo_cli.errors import UnknownName, UsageError
from grpo_cli.plugins import Registry, filled, refuse_misfits

SOURCE = frozenset({"repo", "path", "commit", "version", "date"})
_MOST = 32  # presets that one inherits from, directly or not


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Where the arithmetic comes from, and what its tool does beside it."""

    framework: str  # the trainer, or the code of a paper
    estimator: str  # the class, function or option of the framework that computes it
    source: Mapping[str, str]  # where the code was read: repo, path with lines, commit, version and date
    # the framework's own options with the values that give this arithmetic
    options: Mapping[str, object] = field(default_factory=dict)
    unequal: str = ""  # what the tool does with groups of different sizes
    rollouts: Counting = "each"  # how rows of one rollout count in the tool
    masked_rows: MaskedRows = ""  # whether rows that are marked as masked or failed count in the tool
    kl: str = ""  # estimator and reduction of the KL that the tool subtracts from rewards: "k1 sum"
    # what may surprise in the tool, and how this differs from it, each in a sentence or two
    oddities: tuple[str, ...] = ()
    refused: str = ""  # why it cannot be computed from reward tables; empty if it can
    archive: bool = False  # whether it is an old version or the code of a paper, which only --all lists


@dataclass(frozen=True, kw_only=True)
class Entry(Facts):
    """A preset as a file has it, which may inherit from another: all but `rollouts` and `kl`."""

    inherits: str = ""
    plan: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Preset(Facts):
    """A preset, with its layers of dotted settings (weak to strong)."""

    name: str  # as --preset takes it
    layers: tuple[Mapping[str, Any], ...]  # the settings of each ancestor and then its own, by dotted name
    parents: tuple[str, ...] = ()  # the presets that it inherits from, the farthest first

    @cached_property
    def plan(self) -> Plan:
        """What it computes without flags; made once, because presets are compared with each other."""
        return Plan.of(*self.layers)


def preset(name: str) -> Preset:
    """The preset of that name; an error explains if it cannot be computed from reward tables."""
    chosen = presets()[name]
    if chosen.refused:
        raise UsageError(f"the preset {name} cannot be computed: {chosen.refused}", f"see grpo-adv presets {name}")
    return chosen


def presets() -> Registry[Preset]:
    """All presets by name: the built-in ones in the order of their file, then those of files and packages."""
    return _PRESETS


@cache
def _entries() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))


@cache
def _built_in() -> Mapping[str, Preset]:
    return _made(_entries())


def parsed(text: str) -> Mapping[str, Preset]:
    """The presets of a file; unknown keys, missing facts and unknown parents are errors."""
    return _made(tomllib.loads(text))


def _made(entries: Mapping[str, Any]) -> Mapping[str, Preset]:
    return {name: _preset(entries, name) for name in entries}


def _of_others(name: str, entries: dict[str, Any]) -> Preset:
    """A preset of a file or a package, which may inherit from built-in ones; its plan is valid."""
    row = _preset(ChainMap(entries, _entries()), name)
    if not row.refused:
        _ = row.plan
    return row


_PRESETS = Registry("preset", "grpo_adv.presets", _built_in, _of_others, Mapping)


def _preset(entries: Mapping[str, Any], name: str) -> Preset:
    chain = _chain(entries, name)
    merged: dict[str, Any] = {"source": {}, "options": {}}
    for ancestor in chain:
        own = {**entries[ancestor]}
        if "framework" in own:
            merged.pop("archive", None)  # an archived parent does not archive another framework
        for key in ("source", "options"):
            own[key] = {**merged[key], **own.get(key, {})}
        not_inherited = ("inherits", "plan") if ancestor == name else ("inherits", "plan", "rollouts", "kl")
        for key in not_inherited:
            own.pop(key, None)
        merged |= own
    if unknown := sorted({*merged["source"]} - SOURCE):
        raise UnknownName.among(f"key of the source of the preset {name}", unknown[0], sorted(SOURCE))
    missing = [f"source.{key}" for key in ("repo", "path", "date") if key not in merged["source"]]
    if missing:
        raise UsageError(f"the preset {name} has no {', '.join(map(repr, missing))}", "every preset names its source")
    plans = [entries[ancestor].get("plan", {}) for ancestor in chain]
    merged |= {"name": name, "layers": tuple(map(flat, plans)), "parents": tuple(chain[:-1])}
    return filled(Preset, f"preset {name}", merged)


def _chain(entries: Mapping[str, Any], name: str) -> list[str]:
    """The entry and its ancestors, the farthest first."""
    chain = list[str]()
    child = ""
    parent = name
    while parent:
        if parent not in entries:
            kind = f"preset that {child} inherits from"
            raise UnknownName.among(kind, parent, entries, lost="grpo-adv presets --all lists them")
        if parent in chain:
            raise UsageError(f"the preset {parent} inherits from itself", "break the cycle")
        if len(chain) > _MOST:
            wrong = f"the preset {name} has more than {_MOST} presets before it"
            raise UsageError(wrong, "let it inherit from one of the first")
        refuse_misfits(Entry, f"preset {parent}", entries[parent])
        chain.insert(0, parent)
        child, parent = parent, entries[parent].get("inherits", "")
    return chain


def flat(nested: Mapping[str, Any], prefix: str = "") -> Mapping[str, Any]:
    """Nested tables as dotted settings."""
    made: dict[str, Any] = {}
    for key, value in nested.items():
        made |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return made


def differences(plan: Plan, base: Plan) -> dict[str, tuple[Any, Any]]:
    """Fields in which a plan differs from its preset: name -> (the preset's value, the plan's)."""
    before = _fields(base.as_dict())
    after = _fields(plan.as_dict())
    found = dict[str, tuple[Any, Any]]()
    for key in (*before, *after):
        was = before.get(key)
        now = after.get(key)
        if was != now:
            found[key] = was, now
    return found


def _fields(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a plan by dotted name, with operations by their name."""
    nested = {**plain}
    for part in ORDERED:
        nested[part] = {op["op"]: {name: op[name] for name in op if name != "op"} for op in plain[part]}
    return flat(nested)
