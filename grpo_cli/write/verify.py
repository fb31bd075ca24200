"""The guarantee as a check: an output without its added columns is the input.

JSON lines, CSV records and Parquet column chunks are compared byte by byte; what took the general path, and Arrow
files, value by value. Same rows, same order; the first difference is told.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from grpo_cli.errors import DataError, UsageError
from grpo_cli.files.inputs import pinned
from grpo_cli.formats import registry
from grpo_cli.formats.interface import Field
from grpo_cli.formats.jsonl import members
from grpo_cli.formats.jsonl.lines import BOM, is_blank, raw_lines
from grpo_cli.formats.parquet.compare import same_chunks
from grpo_cli.read.apply_schema import recognise
from grpo_cli.read.choose_columns import LISTED
from grpo_cli.read.tables import Binding, FileTable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.interface import Format

BYTES: Final = "bytes"
VALUES: Final = "values"


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found equal: by bytes or by values, without which columns."""

    by: str
    added: tuple[str, ...]


def verify(output: Path, against: Path, columns: Sequence[str] = ()) -> Verified:
    """Compare an output with its input; `columns` are those that were added or replaced (default: the new names)."""
    new, old = pinned(output), pinned(against)
    kind, of_old = registry.of(new), registry.of(old)
    if kind.name != of_old.name:
        raise UsageError(f"{new.name} is {kind.name} and {old.name} is {of_old.name}", "verify compares one format")
    kind = _laid_out(old, kind)
    added = _there(kind, new, columns) or _added(kind, new, old)
    by, difference = _compared(kind, new, old, added)
    if difference is not None:
        raise DataError(difference, "name a replaced column with --column" if not columns else "")
    return Verified(by, added)


def _there(kind: Format, new: Input, columns: Sequence[str]) -> tuple[str, ...]:
    """The names that were given, which the output has to have."""
    names = (kind.own or kind.columns)(new) if columns else []
    for name in columns:
        if names and name not in names:
            raise UsageError(f"{new.name} has no {name}", f"--column takes {', '.join(names[:LISTED])}")
    return tuple(columns)


def _added(kind: Format, new: Input, old: Input) -> tuple[str, ...]:
    """The names that only the output has."""
    names = kind.own or kind.columns
    known = names(old)
    added = tuple(name for name in names(new) if name not in known)
    if kind.late is None or not added:
        return added
    with suppress(DataError):  # the comparison will tell
        late = kind.late(old, (), added)[1]  # what some line far behind the first ones holds
        return tuple(name for name in added if name not in late)
    return added


def _laid_out(old: Input, kind: Format) -> Format:
    """The format as the schema of the file reads it, where rollouts are inside of records."""
    with suppress(DataError):
        return recognise([FileTable(old, kind)], Binding())[0].format
    return kind


def _compared(kind: Format, new: Input, old: Input, added: Collection[str]) -> tuple[str, str | None]:
    if kind.difference is not None:
        return BYTES, kind.difference(new, old, added)
    if kind.name == "jsonl":
        return BYTES, _lines(new, old, tuple(added))
    if kind.name == "parquet":
        difference = same_chunks(old, new, added)
        if difference is None:
            return BYTES, _unreadable(kind, new, added)
    return VALUES, _values(kind, new, old, added)


def _unreadable(kind: Format, new: Input, added: Collection[str]) -> str | None:
    """What is wrong with the added columns themselves: nothing else has read them."""
    try:
        kind.scan(new, [Field(name, "key") for name in added])
    except (DataError, OSError) as error:
        return f"{new.name}: {', '.join(added)} cannot be read: {error}"
    return None


def _lines(new: Input, old: Input, added: tuple[str, ...]) -> str | None:
    """An output line is what weaving its own new values into the input line gives."""
    spot = members.Spot.of(added, replace=True)
    for number, (was, now) in enumerate(zip_longest(raw_lines(old), raw_lines(new)), 1):
        if was is None or now is None:
            longer = new.name if was is None else old.name
            raise DataError(f"{longer}:{number}: a line that the other file does not have")
        if was == now if is_blank(was) or not added else _woven(spot, was, now):
            continue
        without = _without(now, added)
        if without is not None:
            raise DataError(f"{new.name}:{number}: no {without} in this line")
        return f"{new.name}:{number}: {_first_difference(was, now, added)} differs from {old.name}:{number}"
    return None


def _without(line: bytes, added: Sequence[str]) -> str | None:
    """The first new member that a line does not have, if it is a line that can have one."""
    with suppress(ValueError, IndexError, StopIteration):
        names = dict(_members(line))
        return next((name for name in added if name not in names), None)
    return None


def _woven(spot: members.Spot, was: bytes, now: bytes) -> bool:
    if is_blank(now):
        return False
    found = dict(_members(now))
    if not all(name in found for name in spot.names):
        return False
    return spot.put(was, [found[name] for name in spot.names]) == now


def _members(line: bytes) -> list[tuple[str, str]]:
    """The keys of an object and the texts of their values."""
    text = line.removeprefix(BOM).decode("utf-8", "surrogateescape")
    return [(name, text[start:end]) for name, start, end in members.spans_of(text)]


def _first_difference(was: bytes, now: bytes, added: Sequence[str]) -> str:
    """The first member that is not the same in both lines, or what else there is in a line."""
    try:
        before, after = _members(was), _members(now)
    except (ValueError, IndexError, StopIteration):
        return "the line"
    pairs = zip_longest(before, (one for one in after if one[0] not in added or one in before))
    differing = (one or other for one, other in pairs if one != other)
    return next((name for name, _ in differing if name not in added), "the text around the values")


def _values(kind: Format, new: Input, old: Input, added: Collection[str]) -> str | None:
    """The same columns with the same values, compared column by column."""
    was, now = kind.read(old), kind.read(new)
    if len(was) != len(now):
        raise DataError(f"{new.name}: {len(now)} rows, {old.name} has {len(was)}")
    for name in was.columns:
        if name in added:
            continue
        if name not in now.columns:
            raise DataError(f"{new.name}: the column {name} is gone")
        if was[name].dtype != now[name].dtype:
            return f"{new.name}: {name} is {now[name].dtype}, and {was[name].dtype} in {old.name}"
        differs = was[name].ne_missing(now[name])
        if differs.any():
            return f"{new.name} row {(differs.arg_max() or 0) + 1}: {name} differs from {old.name}"
    more = [name for name in now.columns if name not in was.columns and name not in added]
    return f"{new.name}: the column {more[0]} is new" if more else None
