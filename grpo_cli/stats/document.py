"""Facts as plain data: the documents that `--json` prints are made from frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any, final


@final
class Absent:
    """The default of a field whose number may be None, too."""


ABSENT = Absent()


def members(kind: Any) -> dict[str, Field[Any]]:
    """The fields of a class by their names in a document: all but those of its `NOT_SHOWN`; `from_` is `from`."""
    left_out = getattr(kind, "NOT_SHOWN", ())
    return {one.name.removesuffix("_"): one for one in fields(kind) if one.name not in left_out}


def document(facts: Any) -> dict[str, Any]:
    """The facts as dictionaries and lists; a field that still has its default is left out."""
    found = {name: (getattr(facts, one.name), one.default) for name, one in members(facts).items()}
    return {name: plain_data(value) for name, (value, default) in found.items() if value is not default}


def plain_data(value: Any) -> Any:
    """A value of a field, without classes."""
    if hasattr(value, "as_dict"):  # a plan
        return value.as_dict()
    if is_dataclass(value):
        return document(value)
    if isinstance(value, Mapping):
        return {name: plain_data(inner) for name, inner in value.items()}
    return [*map(plain_data, value)] if isinstance(value, (list, tuple)) else value
