"""A JSON Schema for every `--json`, made from the types of the documents; the site has them in schemas/."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, TypedDict, Union, get_args, get_origin, get_type_hints, is_typeddict

from grpo_cli.auditing.facts import Audited
from grpo_cli.choosing.groups import Selected
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Counting
from grpo_cli.read.recognise import SchemaMatch
from grpo_cli.runs.add import Added
from grpo_cli.runs.compute_files import Facts, FactsOfParts
from grpo_cli.runs.export import Exported
from grpo_cli.stats.compare import Compared
from grpo_cli.stats.document import members
from grpo_cli.stats.inspection import Inspected
from grpo_cli.stats.rescored import Rescored
from grpo_cli.stats.runs import Runs

Scalar = str | int | float | bool | None


# The listings, whose documents are made from the rows of tables, and what `verify` prints.


class Need(TypedDict):
    """A column that a plan reads, and its flag."""

    column: str
    flag: str


class NeedInWords(Need):
    """The same with the meaning of the column."""

    meaning: str


class Parameter(TypedDict):
    """A parameter of a method."""

    name: str
    type: Literal["number", "whole number", "text", "true or false", "choice"]
    default: Scalar
    help: str
    field: str
    least: float | None
    above: float | None
    most: float | None
    choices: list[Scalar]


class Method(TypedDict):
    """A method; `origin` is `built in`, or the package that provides it."""

    name: str
    origin: str
    summary: str
    formula: str
    doc: str
    source: str
    scale: str
    min_group: int
    scales: list[str]
    levels: list[str]
    needs: list[NeedInWords]
    params: list[Parameter]
    sets: dict[str, Any]
    computes: list[str]
    centred: bool
    order_free: bool
    uses_batch: bool
    spans_batches: bool


class Preset(TypedDict):
    """A preset; a refused preset has no plan. `origin` is `built in`, a file, or a package."""

    name: str
    origin: str
    framework: str
    estimator: str
    options: dict[str, Any]
    source: dict[str, str]
    unequal_groups: str
    rollouts: Counting
    oddities: list[str]
    refused: str | None
    archive: bool
    formula: NotRequired[list[str]]
    rules: NotRequired[dict[str, list[str]]]
    needs: NotRequired[list[Need]]
    equal: NotRequired[list[str]]
    plan: NotRequired[Plan]


class Schema(
    TypedDict(
        "Phrases",
        {
            "written by": str,
            "read as": str,
            "no reward": list[str],
            "left out": NotRequired[list[str]],
            "no rollouts": NotRequired[list[str]],
            "passed over": list[str],
        },
    )
):
    """A schema; `origin` is `built in`, or the package that provides it."""

    name: str
    masked: NotRequired[list[str]]
    origin: str
    title: str
    tool: str
    layout: str
    recognised: list[str]
    batch: str
    rollout: str
    length: str
    logged: str
    note: str
    source: str


class VerifyDocument(TypedDict):
    """The result of `verify`."""

    file: str
    against: str
    columns: list[str]
    compared_by: Literal["bytes", "values"]


# The documents of each command with --json, each by the name of its schema.
DOCUMENTS: Mapping[str, Mapping[str, Any]] = {
    "compute": {"compute": Facts, "compute-parts": FactsOfParts},
    "inspect": {
        "inspect": Inspected,
        "inspect-runs": Runs, "inspect-rescored": Rescored,
    },
    "select": {"select": Selected},
    "export": {"export": Exported},
    "audit": {"audit": Audited},
    "compare": {"compare": Compared},
    "methods": {"methods": list[Method], "methods-one": Method},
    "presets": {"presets": list[Preset], "presets-one": Preset},
    "schemas": {"schemas": list[Schema], "schemas-one": Schema, "schemas-file": SchemaMatch},
    "verify": {"verify": VerifyDocument},
    "add": {"add": Added},
}  # fmt: skip

DIALECT = "https://json-schema.org/draft/2020-12/schema"
PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def schemas() -> dict[str, str]:
    """The text of each schema by its name."""
    return {
        name: json.dumps(schema_of(kind, f"grpo-adv {command} --json"), indent=2) + "\n"
        for command, kinds in DOCUMENTS.items()
        for name, kind in kinds.items()
    }


def schema_of(kind: Any, title: str) -> dict[str, Any]:
    """The schema of a type; each named type is defined once."""
    named: dict[str, Any] = {}
    whole = _schema(kind, named)
    return {"$schema": DIALECT, "title": title, **whole, "$defs": dict(sorted(named.items()))}


def _schema(kind: Any, named: dict[str, Any]) -> dict[str, Any]:
    origin = get_origin(kind)
    inner = get_args(kind)
    if kind is Any:
        return {}
    if kind in PLAIN:
        return {"type": PLAIN[kind]}
    if origin is Literal:
        return {"enum": [*inner]}
    if origin in {list, tuple, Sequence}:
        return {"type": "array", "items": _schema(inner[0], named)}
    if origin in {dict, Mapping}:
        keys = {} if inner[0] is str else {"propertyNames": _schema(inner[0], named)}
        return {"type": "object", "additionalProperties": _schema(inner[1], named), **keys}
    if origin in {Union, UnionType}:
        return _any_of([_schema(one, named) for one in inner])
    if kind.__name__ not in named:
        named[kind.__name__] = {}  # it may stand in itself
        named[kind.__name__] = _object(kind, named)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    plain = [one["type"] for one in schemas if [*one] == ["type"]]
    others = [one for one in schemas if [*one] != ["type"]]
    if not others:
        return {"type": plain}
    return {"anyOf": [*others, *({"type": one} for one in plain)]}


def _object(kind: Any, named: dict[str, Any]) -> dict[str, Any]:
    """A class of facts, a part of a plan as `Plan.as_dict` shows it, or a typed dictionary."""
    hints = get_type_hints(kind, include_extras=True)
    optional = set[str]()
    if is_typeddict(kind):
        keys = {name: get_args(hint)[0] if get_origin(hint) is NotRequired else hint for name, hint in hints.items()}
        optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
    elif kind is Plan:  # as its `as_dict` shows it
        keys = {one.name: hints[one.name] for one in fields(kind)} | {"package": str}
        optional = {"package"}  # of a method that is not built in
    elif kind.__module__ == "grpo_cli.engine.plan_parts":
        operation = getattr(kind, "name", None)  # what a step of `shape` and `post` does
        keys = {} if operation is None else {"op": Literal[operation]}
        keys |= {one.name: hints[one.name] for one in fields(kind)}
    elif is_dataclass(kind):
        shown = members(kind)
        optional = {name for name, one in shown.items() if one.default is not MISSING}
        keys = {name: _without(type(one.default), hints[one.name]) for name, one in shown.items()}
    else:
        raise TypeError(f"no schema for {kind}")
    return {
        "description": (kind.__doc__ or "").partition("\n")[0],
        "type": "object",
        "properties": {name: _schema(hint, named) for name, hint in keys.items()},
        "required": [name for name in keys if name not in optional],
        "additionalProperties": False,
    }


def _without(default: type, hint: Any) -> Any:
    """The type of a field where it does not have its default."""
    if get_origin(hint) not in {Union, UnionType}:
        return hint
    return Union[tuple(one for one in get_args(hint) if one is not default)]  # noqa: UP007 - of as many as there are
