"""Dotted paths into nested columns, and the message for a column that is not there."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from grpo_cli.errors import Cure, DataError

_LISTED = 20  # columns in a message
PARENT = "@parent"  # the name of the column that numbers the lists of rollouts: which list a rollout is in
T = TypeVar("T")


def splits(name: str) -> Iterator[tuple[str, str]]:
    """Every way to cut a dotted path into a head and a rest, the longest head first."""
    at = name.rfind(".")
    while at > 0:
        yield name[:at], name[at + 1 :]
        at = name.rfind(".", 0, at)


def resolve(name: str, top: T, child: Callable[[T, str], T | None]) -> list[str] | None:
    """Find the steps that lead to a path; a child that has the whole name comes before any cut."""
    if child(top, name) is not None:
        return [name]
    for head, rest in splits(name):
        inner = child(top, head)
        deeper = None if inner is None else resolve(rest, inner, child)
        if deeper is not None:
            return [head, *deeper]
    return None


def is_there(name: str, columns: Collection[str]) -> bool:
    """Whether a column is among these, or the one that its path begins with."""
    return name in columns or name.partition(".")[0] in columns


def value_at(value: Any, *path: str) -> Any:
    """The value at the end of these steps into objects; None if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


class Absent(DataError):
    """No row has this column."""

    column: str = ""

    @classmethod
    def of(cls, column: str, file: str, cures: Sequence[Cure]) -> Absent:
        """The error about a column of a file."""
        error = cls(f"no column {column!r}", cures, place=file)
        error.column = column
        return error


def refuse_doubled(wanted: Iterable[str], names: Sequence[str], file: str, what: str = "columns") -> None:
    """Refuse a wanted name that several columns have: readers differ in which of them they take."""
    counts = Counter(names)
    doubled = next((name for name in wanted if counts[name] > 1), None)
    if doubled is not None:
        *first, last = (str(at) for at, name in enumerate(names, 1) if name == doubled)
        said = f"{what} {', '.join(first)} and {last} are named {doubled!r}"
        raise DataError(said, "rename all but one of them", place=file)


def shown(name: str) -> str:
    """A column name in a message, with quotes if spaces around it would not be seen."""
    return name if name == name.strip() else repr(name)


def items(text: str) -> list[str]:
    """The items of a text with commas, such as columns; one that has commas itself, or spaces around it, stands in double quotes."""
    found = re.findall(r'\s*(?:"([^",]*,[^"]*|\s[^"]*|[^"]*\s)"\s*|([^,]*)),', f"{text},")
    return [quoted or plain.strip() for quoted, plain in found]


def as_list(*names: str) -> str:
    """Column names as the value of an option; `items` reads it."""
    return ",".join(f'"{name}"' if "," in name else name for name in names)


def as_value(*names: str) -> str:
    """Column names as the value of a flag in a shell."""
    return shlex.quote(as_list(*names))


def absent(name: str, file: str, columns: Sequence[str]) -> Absent:
    """The error for a column that no row has: it lists the columns and suggests the nearest name."""
    listed = ", ".join(map(shown, columns[:_LISTED])) + (" ..." if len(columns) > _LISTED else "")
    near = get_close_matches(name, columns, n=1)
    known = f"columns: {listed or 'none'}"
    if f"/{name}=" in f"/{file}":
        return Absent.of(name, file, [f"{name} is only in the path: --group-within file keeps files apart", known])
    if not near:
        return Absent.of(name, file, [known])
    error = Absent.of(name, file, [f"did you mean {near[0]!r}? {known}"])
    error.wrong, error.right = name, near[0]
    return error
