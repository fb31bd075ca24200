"""Dotted paths into nested columns, and the message for a column that is not there."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, TypeVar

from grpo_cli.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from grpo_cli.files.inputs import Input

_LISTED: Final = 20
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


class Absent(DataError):
    """No row has this column."""

    column: str = ""


def absent(name: str, source: Input, columns: Sequence[str]) -> Absent:
    """Say that no row has the column, which columns there are, and which one may have been meant."""
    listed = ", ".join(columns[:_LISTED]) + (" ..." if len(columns) > _LISTED else "")
    near = get_close_matches(name, columns, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    if f"/{name}=" in f"/{source.name}":
        hint = f"{name} is only in the path: --group-within file keeps files apart; "
    error = Absent(f"{source.name}: no column {name!r}", f"{hint}columns: {listed or 'none'}")
    error.column = name
    return error
