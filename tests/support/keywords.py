"""The keywords of the Python API as types: `python -m tests.support.keywords` writes them, a test compares them."""

from __future__ import annotations

from typing import Any, get_args, get_origin

from grpo_cli import api
from grpo_cli.options.table import COMPUTED, EVERY, ON_FRAMES, Option
from tests.unit.test_rooms import PACKAGE

KINDS = {bool: "Switch", int: "Whole", float: "Number", str: "Text"}
TARGET = PACKAGE / "options" / "keywords.py"
HEAD = '''"""The keywords of the functions of `grpo_cli`, for editors and type checkers.

Made from the table of options: `python -m tests.support.keywords`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

Switch = bool | None
Whole = int | None
Number = float | None
Text = str | None
Numbers = str | float | Sequence[float | None] | None  # "0:1" or (0, 1)
Several = str | Sequence[str] | Mapping[str, Any] | None
'''


def generated() -> str:
    """A class for each function, and for what several of them take one that they extend."""
    audit, compute = (keywords(names, {}) for names in (ON_FRAMES, COMPUTED))
    inspect = keywords(api.INSPECTED, api.INSPECT_KEYWORDS)
    select = keywords(api.SELECTED, api.SELECT_KEYWORDS)
    export = keywords(api.EXPORTED, api.EXPORT_KEYWORDS)
    shared = _common(compute, inspect, select, export)
    plan = _common(compute, inspect, export)
    classes = [
        _class("SharedKeywords(TypedDict, total=False)", "Every function takes them.", shared),
        _class("PlanKeywords(SharedKeywords, total=False)", "All but `select` take them.", _without(plan, shared)),
        _class("AuditKeywords(PlanKeywords, total=False)", "Of `audit` and `compare`.", _without(audit, plan)),
        _class("ComputeKeywords(AuditKeywords, total=False)", "Of `compute` and `advantages`.", _without(compute, audit)),
        _class("InspectKeywords(PlanKeywords, total=False)", "Of `inspect` and `report`.", _without(inspect, plan)),
        _class("SelectKeywords(SharedKeywords, total=False)", "Of `select`.", _without(select, shared)),
        _class("ExportKeywords(AuditKeywords, total=False)", "Of `export`.", _without(export, audit)),
        _class("AddKeywords(TypedDict, total=False)", "Of `add_columns`.", keywords(api.ADDED, api.ADD_KEYWORDS)),
    ]  # fmt: skip
    return "\n\n".join([f"{HEAD}{_alternatives('ExportTo', EVERY['to'])}", *classes])


def _alternatives(name: str, option: Option) -> str:
    """The values of an option that is a parameter of its own."""
    values = ", ".join(f'"{value}"' for value in option.choices)
    return f"{name} = Literal[{values}]\n"


def _common(first: dict[str, str], *others: dict[str, str]) -> dict[str, str]:
    return {name: kind for name, kind in first.items() if all(other.get(name) == kind for other in others)}


def _without(fields: dict[str, str], inherited: dict[str, str]) -> dict[str, str]:
    return {name: kind for name, kind in fields.items() if name not in inherited}


def keywords(options: tuple[str, ...], spelled: dict[str, str]) -> dict[str, str]:
    """The type of each keyword; `to` is a parameter of its own."""
    names = {option: keyword for keyword, option in spelled.items()}
    return {names.get(name, name): _type(EVERY[name]) for name in options if name != "to"}


def _type(option: Any) -> str:
    if get_origin(option.type) is list:
        return "Several"
    if get_args(option.type):
        values = ", ".join(f'"{value}"' for value in get_args(option.type))
        return f"Literal[{values}] | None"
    return "Numbers" if ":" in (option.metavar or "") else KINDS[option.type]


def _class(head: str, doc: str, fields: dict[str, str]) -> str:
    lines = [f"    {name}: {kind}" for name, kind in fields.items()]
    return "\n".join([f"class {head}:", f'    """{doc}"""', "", *lines, ""])


if __name__ == "__main__":
    TARGET.write_text(generated(), encoding="utf-8")
