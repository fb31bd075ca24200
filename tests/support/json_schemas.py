"""A JSON Schema for every `--json`, made from the types of the documents; the site has them in schemas/."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from inspect import getsource
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, TypedDict, Union, get_args, get_origin, get_type_hints, is_typeddict

from grpo_cli.choosing.selected import Selected
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Counting
from grpo_cli.guests.audit.facts import Audited
from grpo_cli.read.recognise import SchemaMatch
from grpo_cli.runs.add import Added
from grpo_cli.runs.compute_files import Facts, FactsOfParts
from grpo_cli.runs.export import Exported
from grpo_cli.stats.compare import Compared
from grpo_cli.stats.document import Member, members
from grpo_cli.stats.inspection import Inspected
from grpo_cli.stats.rescored import Rescored
from grpo_cli.stats.runs import Runs
from grpo_cli.write.verify import VerifyDocument

Scalar = str | int | float | bool | None


# The listings, whose documents are made from the rows of tables.


class Need(TypedDict):
    """A column that a plan reads, and its flag."""

    column: str  # the role of the column, such as `length`; its name in the file is given by the flag
    flag: str  # the option that names the column of the file


class NeedInWords(TypedDict):
    """The same with the meaning of the column."""

    column: str  # the role of the column, such as `length`; its name in the file is given by the flag
    flag: str  # the option that names the column of the file
    meaning: str  # what the column must contain, in words


class Parameter(TypedDict):
    """A parameter of a method."""

    name: str  # as in --param NAME=VALUE
    type: Literal["number", "whole number", "text", "true or false", "choice"]  # of its value; choice: one of `choices`
    default: Scalar  # its value if it is not given
    help: str  # what it does in the formula, in a few words
    field: str  # the field of the plan that it sets; empty: it is a parameter of the formula itself
    least: float | None  # the smallest value that is allowed; null: no such bound
    above: float | None  # the value must be larger than this; null: no such bound
    most: float | None  # the largest value that is allowed; null: no such bound
    choices: list[Scalar]  # the values that are allowed; empty unless the type is choice


class Method(TypedDict):
    """A method; `origin` is `built in`, or the package that provides it."""

    name: str  # as --method takes it
    origin: str  # `built in`, or the package that provides the method
    summary: str  # the first sentence of `doc`
    formula: str  # its formula on one line
    doc: str  # sentence, formula, limits and source
    source: str  # the paper or the code that it comes from
    scale: str  # what it divides by unless --scale says otherwise
    min_group: int  # the fewest scored rows that it compares; 1: a single row is computed like any group
    scales: list[str]  # what it may divide by, the default first
    levels: list[str]  # whether its baseline may be that of the group or of the batch, the default first
    needs: list[NeedInWords]  # the extra columns that it reads with its defaults
    params: list[Parameter]  # what --param sets
    sets: dict[str, Any]  # plan fields that make this method from its function, by dotted name
    computes: list[str]  # the arithmetic with its defaults, a line per operation
    centred: bool  # whether its formula gives a group of equal rewards exactly 0
    order_free: bool  # whether the order of the rows changes nothing
    uses_batch: bool  # whether an advantage depends on rows of other groups, with its defaults
    spans_batches: bool  # whether a group may have rows in several batches


class Preset(TypedDict):
    """A preset; a refused preset has no plan. `origin` is `built in`, a file, or a package."""

    name: str  # as --preset takes it
    origin: str  # `built in`, or the file or the package that has it
    framework: str  # the trainer or the code of a paper, as headings of the list have it
    estimator: str  # the class, function or option of the framework
    options: dict[str, Any]  # the framework's own options with the values that give this arithmetic
    source: dict[str, str]  # where the code was read: repo, path, commit, version and date
    unequal_groups: str  # what the tool does with groups of different sizes
    rollouts: Counting  # how several rows of one rollout count in the tool
    oddities: list[str]  # what may surprise in the tool, and how this differs from it
    refused: str | None  # why it cannot be computed from reward tables; null: it can
    archive: bool  # whether only --all lists it: an old version, or the code of a paper
    # the arithmetic without the rules for special rows and groups, a line per operation; absent if refused
    formula: NotRequired[list[str]]
    rules: NotRequired[dict[str, list[str]]]  # the lines that explain each part, by its label; absent if refused
    needs: NotRequired[list[Need]]  # the extra columns that it reads; absent if refused
    equal: NotRequired[list[str]]  # the presets that compute the same in every case; absent if refused
    plan: NotRequired[Plan]  # all fields of its arithmetic; absent if refused


class Schema(
    TypedDict(
        "Phrases",
        {
            "written by": str,  # the same as `tool`, under the label of the text output
            "read as": str,  # the group key and the reward in words; of a refused layout the reason
            "no reward": list[str],  # which rows are left out as unscorable; empty: --missing decides
            "left out": NotRequired[list[str]],  # what marks rows that leave their group before the mean
            "no rollouts": NotRequired[list[str]],  # what marks rows that are no rollouts, such as a judge's
            "passed over": list[str],  # the paths of files in a folder that are not read
        },
    )
):
    """A schema; `origin` is `built in`, or the package that provides it."""

    name: str  # as --schema takes it
    # what marks rows that count in their group and are not trained on; empty: nothing does
    masked: NotRequired[list[str]]
    origin: str  # `built in`, or the file or the package that has the schema
    title: str  # what messages call a file of it
    tool: str  # that writes such files
    layout: str  # what a record is, by its name and in words
    recognised: list[str]  # what a file must have, must not have, and how its path may look
    batch: str  # the column whose values are the batches, or `file` or `input`; empty: the schema does not say
    rollout: str  # the columns with a rollout's id, the first that is not null counts; empty: it has none
    length: str  # the column with the length of the response; empty: none is known
    logged: str  # the column with the advantages that the tool computed; empty: it writes none
    note: str  # what a reader of such a file is told, unless a flag settles it; empty: nothing
    source: str  # the repository, the commit and the file where the layout was read


class Reads(TypedDict):
    """How a trainer reads one kind of export; what does not apply is absent."""

    by: NotRequired[str]  # the class or the door that reads it
    form: Literal["messages", "turns", "texts"]  # of conversations: one list, prompt and completion, or texts
    suffixes: list[str]  # of the files that it reads
    checked: Literal["run", "read"]  # whether its own loader ran on an export, or only its code was read
    trains_on: NotRequired[str]  # the tokens that it trains on
    names: NotRequired[dict[str, str]]  # what it calls columns that have another name elsewhere
    without: NotRequired[list[str]]  # computed columns that are not written
    arguments: NotRequired[Literal["text", "object"]]  # of tool calls; absent: as they are in the file
    # text: as JSON text, also in lines; absent: a list in lines, text in Parquet
    tools: NotRequired[Literal["list", "text"]]
    tools_never_null: NotRequired[bool]  # beside records with tools, those without have an empty list
    turns: NotRequired[Literal["one"]]  # each side of a pair is one message, not a list
    ignores: NotRequired[list[str]]  # columns that change nothing
    folder: NotRequired[bool]  # train and valid in one folder
    stored: NotRequired[bool]  # groups must have one size and advantages that add up to 0
    pooled: NotRequired[bool]  # each prompt once, whatever the groups
    know: NotRequired[dict[str, str]]  # what a person must know or set, by when it matters
    entry: NotRequired[str]  # what the trainer's own table of data sets needs


class TargetDocument(TypedDict):
    """A trainer, by what it reads."""

    name: str  # as --target takes it
    origin: str  # `built in`, or the package that has it
    title: str  # what people call it
    also: str  # other trainers that read the same; empty: none is known
    release: str  # the released version that was run or read
    source: str  # where its loaders are
    checked: Literal["run", "read"]  # whether its own loader ran on an export, or only its code was read
    kinds: dict[str, Reads]  # how it reads each kind of export
    not_read: dict[str, str]  # of other kinds, why it does not read them


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
    "targets": {"targets": list[TargetDocument], "targets-one": TargetDocument},
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


def _hint(one: Member) -> Any:
    """The type of the value of a key."""
    return get_type_hints(one.owner)[one.field.name]


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
        optional = {name for name, one in shown.items() if one.field.default is not MISSING}
        keys = {name: _without(type(one.field.default), _hint(one)) for name, one in shown.items()}
    else:
        raise TypeError(f"no schema for {kind}")
    said = sentences(kind)
    return {
        "description": (kind.__doc__ or "").partition("\n")[0],
        "type": "object",
        "properties": {
            name: {"description": said.get(name, ""), **_schema(hint, named)} for name, hint in keys.items()
        },
        "required": [name for name in keys if name not in optional],
        "additionalProperties": False,
    }


# A field of a class, or a key of a typed dictionary: the comments in the lines above it, its name, the comment behind it.
FIELD = re.compile(r'^ +((?:# .*\n +)*)"?([a-z][\w ]*?)_?"?: .*?(?:  # (.*))?$', re.MULTILINE)


def sentences(kind: Any) -> dict[str, str]:
    """What the comments of a class say of each of its fields, and of those of its bases."""
    found = {"op": "what the step does", "package": "that provides the method"}  # which are no fields
    types = get_type_hints(kind)
    for name in {*getattr(kind, "INLINE", ())} & {*types}:
        found |= sentences(types[name])
    for base in reversed(kind.__mro__):
        with suppress(TypeError):  # object and dict have no source
            for above, name, behind in reversed(FIELD.findall(getsource(base))):  # the fields stand before the methods
                said = behind or " ".join(re.findall("# (.*)", above))
                found[name] = said.replace("None", "null")
    return found


def _without(default: type, hint: Any) -> Any:
    """The type of a field where it does not have its default."""
    if get_origin(hint) not in {Union, UnionType}:
        return hint
    return Union[tuple(one for one in get_args(hint) if one is not default)]  # noqa: UP007 - of as many as there are
