"""Compare a file with the file it was made from: its text record by record, or its columns value by value.

Nothing here calls the code that writes such files, so that a bug in the writer cannot hide itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.files.inputs import Input
from grpo_cli.values.json_text import spans_of

_BEFORE_VALUE = re.compile(r'[ \t\r\n]*(,?[ \t\r\n]*"(?:[^"\\]|\\.)*"[ \t\r\n]*:)[ \t\r\n]*', re.DOTALL)


class Cell(NamedTuple):
    """The cell of a column in the text of its record: the position of its value, and of its separator or name."""

    name: str
    start: int
    value: int
    end: int


class Record(NamedTuple):
    """A record and its cells (None for a text that is not a record); `place` is its name in messages."""

    place: str
    text: str
    cells: tuple[Cell, ...] | None = None


def once_each(names: Sequence[str]) -> list[str]:
    """The names without duplicates: the first column with a name owns it, the others get their number."""
    return [f"{name} ({at + 1})" if name in names[:at] else name for at, name in enumerate(names)]


def different_values(
    new: Input, old: Input, read: Callable[[Input], pl.DataFrame], added: Collection[str]
) -> str | None:
    """The first difference between the values of a file without the added columns and those of another; None without one."""
    was = read(old)
    now = read(new)
    if len(was) != len(now):
        raise DataError(f"{new.name}: {len(now)} rows, {old.name} has {len(was)}")
    for name in was.columns:
        if name in added:
            continue
        if name not in now.columns:
            return f"{new.name}: the column {name} is gone"
        if was[name].dtype != now[name].dtype:
            return f"{new.name}: {name} is {now[name].dtype}, and {was[name].dtype} in {old.name}"
        differs = was[name].alias("").ne_missing(now[name])
        if differs.any():
            return f"{new.name} row {(differs.arg_max() or 0) + 1}: {name} differs from {old.name}"
    more = [name for name in now.columns if name not in was.columns and name not in added]
    return f"{new.name}: the column {more[0]} is new" if more else None


def json_record(place: str, text: str) -> Record:
    """An object and its fields, or a text that is not an object."""
    cells: list[Cell] = []
    at = text.find("{") + 1
    try:
        for name, value, end in spans_of(text):
            before = _BEFORE_VALUE.fullmatch(text, at, value)
            if before is None or before[1].startswith(",") != bool(cells):
                return Record(place, text)
            cells.append(Cell(name, before.start(1), value, end))
            at = end
    except (ValueError, IndexError):
        return Record(place, text)
    return Record(place, text, tuple(cells))


def first_difference(new: Iterable[Record], old: Iterable[Record], added: Collection[str], unit: str) -> str | None:
    """The first record of the new file that is not the old record with the added cells; None if there is none.

    Added cells that the old record has may have another value; all others follow the old cells.
    """
    for was, now in zip_longest(old, new):
        if was is None or now is None:
            raise DataError(f"{(was or now).place}: a {unit} that the other file does not have")
        if _is_same(was, now, added):
            continue
        names = [cell.name for cell in now.cells or ()]
        for name in added if now.cells is not None else ():
            if names.count(name) != 1:
                wrong = f"{name} is named twice in one object" if name in names else f"no {name} in this {unit}"
                raise DataError(f"{now.place}: {wrong}")
        return f"{now.place}: {_differing(was, now, added) or f'the {unit}'} differs from {was.place}"
    return None


def _is_same(was: Record, now: Record, added: Collection[str]) -> bool:
    if was.cells is None or now.cells is None or not added:
        return was.text == now.text
    there = {cell.name for cell in was.cells}
    fresh = [name for name in added if name not in there]
    last = [cell.name for cell in now.cells[len(now.cells) - len(fresh) :]]
    return sorted(last) == sorted(fresh) and _without(was, added, fresh) == _without(now, added, fresh)


def _without(record: Record, added: Collection[str], fresh: Collection[str]) -> str:
    """The text without cells that only one of the files has, and without the values of other added cells."""
    pieces = []
    at = 0
    for cell in record.cells or ():
        if cell.name in added:
            pieces.append(record.text[at : cell.start if cell.name in fresh else cell.value])
            at = cell.end
    return "".join([*pieces, record.text[at:]])


def _differing(was: Record, now: Record, added: Collection[str]) -> str:
    """The first column that differs, or what else differs in the record; empty if a text is not a record."""
    if was.cells is None or now.cells is None:
        return ""

    def kept(record: Record) -> list[tuple[str, str]]:
        cells = [cell for cell in record.cells or () if cell.name not in added]
        return [(cell.name, record.text[cell.value : cell.end]) for cell in cells]

    before = kept(was)
    after = kept(now)
    differing = (cell or other for cell, other in zip_longest(before, after) if cell != other)
    return next((name for name, _ in differing), "the text around the values")
