"""Check the guarantee that an output without its added columns is the input.

JSON lines, CSV records and everything before the footer of a Parquet file are compared byte by byte, re-encoded Parquet and
Arrow files value by value. Rows and their order must be the same; the first difference is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from grpo_cli.errors import DataError, UsageError
from grpo_cli.files.inputs import Input
from grpo_cli.files.stores import pinned
from grpo_cli.formats import registry
from grpo_cli.formats.interface import Format
from grpo_cli.read.layout import LISTED
from grpo_cli.read.recognise import recognise
from grpo_cli.read.tables import Binding, FileTable
from grpo_cli.values.cells import Field


@dataclass(frozen=True)
class VerifyDocument:
    """The result of `verify`."""

    file: str  # the output that was checked, as it was given
    against: str  # the input that it was made from, as it was given
    columns: Sequence[str]  # the added or replaced columns, which were left out of the comparison
    # whether the rest has the same bytes, or the same values after it is decoded
    compared_by: Literal["bytes", "values"]


class Verified(NamedTuple):
    """Equal by bytes or by values, without these columns."""

    by: Literal["bytes", "values"]  # what was compared: `bytes` or `values`
    # the columns that were left out of the comparison: those named, else those only the output has
    added: tuple[str, ...]


def verify(output: Path | str, against: Path | str, columns: Sequence[str] = ()) -> Verified:
    """Compare an output with its input, without the `columns` that were added or replaced (default: the new ones)."""
    new, old = (registry.as_text(pinned(name)) for name in (output, against))
    kind = registry.of(new)
    of_old = registry.of(old)
    if not kind.same_as(of_old):
        raise UsageError(
            f"{new.name} is {kind.name} and {old.name} is {of_old.name}", "verify compares files of one format"
        )
    as_read = _as_it_was_read(new, old, kind, frozenset(columns))
    found, difference = _compared(as_read, new, old, columns)
    if difference is not None and as_read != kind:
        with suppress(DataError, UsageError):  # the columns may be in the records around the rollouts
            around, other = _compared(kind, new, old, columns)
            if other is None:
                return around
    if difference is not None:
        raise DataError(difference, _way_out(as_read, new, old, columns))
    return found


def _compared(kind: Format, new: Input, old: Input, columns: Sequence[str]) -> tuple[Verified, str | None]:
    """The result for files of this layout, and the first difference."""
    added = _named_columns(kind, new, columns) if columns else _added_columns(kind, new, old)
    by, difference = kind.compared(new, old, added)
    return Verified(by, added), difference


def _way_out(kind: Format, new: Input, old: Input, columns: Sequence[str]) -> str:
    """A hint for a difference: files in the wrong order, rows that were left out, or a replaced column."""
    names = _columns(kind, new)
    lost = [name for name in _columns(kind, old) if name not in names]
    if lost:
        return f"{new.name} lacks {', '.join(lost[:LISTED])} of {old.name}: verify takes OUTPUT --against INPUT"
    with suppress(DataError, IndexError):

        def height(source: Input) -> int:
            name = kind.columns(source)[0]
            return len(kind.scan(source, [Field(name, "key")]).frame)

        now = height(new)
        was = height(old)
        if now < was:
            return f"{new.name} has {now:,} of {was:,} rows: verify needs an output with all rows"
    return "" if columns else "name a replaced column with --column"


def _named_columns(kind: Format, new: Input, columns: Sequence[str]) -> tuple[str, ...]:
    """The named columns; it is an error if the output lacks one."""
    names = _columns(kind, new)
    for name in columns:
        if names and name not in names:
            raise UsageError(f"{new.name} has no {name}", f"--column takes {', '.join(names[:LISTED])}")
    return tuple(columns)


def _added_columns(kind: Format, new: Input, old: Input) -> tuple[str, ...]:
    """The names that only the output has."""
    known = _columns(kind, old)
    added = tuple(name for name in _columns(kind, new) if name not in known)
    if kind.record != "object" or not added:
        return added
    with suppress(DataError):  # the comparison reports it
        late = kind.scan(old, (), added).late_names  # a name that only a late line has
        return tuple(name for name in added if name not in late)
    return added


def _columns(kind: Format, source: Input) -> list[str]:
    """The names of columns, without those of the records around the rollouts."""
    outer = kind.outer_columns(source)
    return [name for name in kind.columns(source) if name not in outer]


def _as_it_was_read(new: Input, old: Input, kind: Format, columns: frozenset[str]) -> Format:
    """The format as the file was read: by its schema, or by the path of the new fields if rollouts are in records."""
    with suppress(DataError):
        table = recognise([FileTable(old, kind)], Binding())[0]
        if table.schema is None and kind.record == "object":
            both = zip(kind.sample(old), kind.sample(new), strict=False)
            pairs = [(was, now) for was, now in both if not columns or not columns <= now.keys()]
            path = next(filter(None, (_path_of_new(was, now, columns) for was, now in pairs)), "")
            return registry.nested(kind, path) if path.endswith("[]") else table.format
        return table.format
    return kind


def _path_of_new(was: Any, now: Any, columns: frozenset[str]) -> str:
    """The path to the first list of objects with new fields, such as `rollouts[]`; empty if there is none.

    The new fields are these columns or, if none are given, all fields that the objects did not have.
    """
    if isinstance(was, list) and isinstance(now, list):
        steps = (("[]", *pair) for pair in zip(was, now, strict=False))
    elif isinstance(was, dict) and isinstance(now, dict):
        steps = ((name, was[name], now[name]) for name in was if name in now)
    else:
        return ""
    for step, before, after in steps:
        objects = step == "[]" and isinstance(before, dict) and isinstance(after, dict)
        if objects and (columns <= after.keys() if columns else after.keys() > before.keys()):
            return step
        if inner := _path_of_new(before, after, columns):
            return f"{step}{inner}" if inner.startswith("[]") else f"{step}.{inner}"
    return ""
