"""Facts as plain data: the documents that `--json` prints are made from frozen dataclasses.

A class of facts may say more of its fields: `NOT_SHOWN` are those that its document does not have, and `INLINE` those whose own
fields stand in the document beside the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from operator import attrgetter
from typing import Any, NamedTuple, final, get_type_hints

from grpo_cli.errors import Way


@final
class Absent:
    """The default of a field whose number may be None, too."""


ABSENT = Absent()


def asked_by(flag: str, fill: str = "", why: str = "") -> dict[str, Way]:
    """The metadata of a field that only an option gives a value: a gate on it in other runs names this option."""
    return {"way": Way(flag, fill=fill, why=why)}


class Member(NamedTuple):
    """A key of a document: the field that it is made from."""

    owner: Any  # the class that declares the field, or inherits it
    field: Field[Any]  # its default is the value that a document leaves out
    path: str  # the attributes that lead to its value, with dots


def members(kind: Any) -> Mapping[str, Member]:
    """The keys of the document of a class, in their order; the field `from_` is the key `from`."""
    left_out = getattr(kind, "NOT_SHOWN", ())
    inline = getattr(kind, "INLINE", ())
    types = get_type_hints(kind) if inline else {}
    found: dict[str, Member] = {}
    for one in fields(kind):
        if one.name in inline:
            inner = members(types[one.name])
            found |= {name: each._replace(path=f"{one.name}.{each.path}") for name, each in inner.items()}
        else:
            found[one.name.removesuffix("_")] = Member(kind, one, one.name)
    return {name: one for name, one in found.items() if name not in left_out}


def document(facts: Any) -> dict[str, Any]:
    """The facts as dictionaries and lists; a field that still has its default is left out."""
    found = {}
    for name, one in members(type(facts)).items():
        value = attrgetter(one.path)(facts)
        if value is not one.field.default:
            found[name] = plain_data(value)
    return found


def plain_data(value: Any) -> Any:
    """A value of a field, without classes."""
    if hasattr(value, "as_dict"):  # a plan
        return value.as_dict()
    if is_dataclass(value):
        return document(value)
    if isinstance(value, Mapping):
        return {name: plain_data(inner) for name, inner in value.items()}
    return [*map(plain_data, value)] if isinstance(value, (list, tuple)) else value
