"""Blocks of JSON lines that are all cast in one mould: read without a parser, and without a doubt.

What a program writes differs from line to line in its texts and numbers only. The first line of a block says what
is the same in all of them: its mould is the text between the values, keys included. numpy walks along all lines of a
block at once: it compares the text before a value with the mould, eight bytes at a time, and finds where the value
ends. A line that passes is the first line with other values in it, so that what is found there needs no parser:
neither another member of that name nor anything else can hide in it. Whatever does not pass is for the parsers,
from the first block on that does not.

Of short lines many have one shape as well (`shape`), in which nothing has to be found.

880 MB of long lines take 0.8 s of processor time, parsing and searching them for doubts 1.8; 4M short lines of one shape
take 0.3, of many shapes 0.7, parsed 1.8.
"""

from __future__ import annotations

from threading import local
from typing import TYPE_CHECKING, Final, NamedTuple

from grpo_cli.formats.jsonl.cast import Cast
from grpo_cli.formats.jsonl.mould import Mould
from grpo_cli.formats.jsonl.quotes import Quotes
from grpo_cli.formats.jsonl.rows import value_of
from grpo_cli.formats.jsonl.shape import shaped
from grpo_cli.formats.jsonl.values import is_scalar, numbers
from grpo_cli.formats.jsonl.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    import numpy as np
    import polars as pl

    from grpo_cli.formats.cells import Place
    from grpo_cli.formats.interface import Field
    from grpo_cli.formats.jsonl.values import Value

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]

_LAST: Final = local()


class Read(NamedTuple):
    """What whole lines hold: the columns, the watched names, where each has its last brace; and how many bytes they are."""

    columns: list[pl.Series]
    late: frozenset[str]
    braces: Ints
    size: int


def read(handle: BinaryIO, size: int, fields: Sequence[Field], watched: frozenset[str], place: Place) -> Iterator[Read]:
    """Read lines from where a file stands, window by window, up to the first one that is not of one mould."""
    window, start, at = Window.mine(), handle.tell(), 0
    while at < size:
        handle.seek(start + at)
        window.fill(handle, size - at)
        found = _of_shape(window, fields, watched, place) or _of_mould(window, fields, watched, place)
        if found is None:
            return
        yield found
        at += found.size


def _of_shape(window: Window, fields: Sequence[Field], watched: frozenset[str], place: Place) -> Read | None:
    """Lines of one shape."""
    found = shaped(window)
    columns = None if found is None else _columns(found.mould, found.values, fields, place)
    if found is None or columns is None:
        return None
    return Read(columns, watched.intersection(found.mould.row), found.braces, found.size)


def _of_mould(window: Window, fields: Sequence[Field], watched: frozenset[str], place: Place) -> Read | None:
    """Lines of one mould, whatever their sizes."""
    window.search()
    found = Quotes.of(window)
    if found is None:
        return None
    for mould in _moulds(found):
        cast = Cast.of(window, mould, found)
        columns = None if cast is None else _columns(mould, cast.values, fields, place)
        if columns is not None:
            _LAST.mould = mould
            return Read(columns, watched.intersection(mould.row), found.ends - mould.closing, len(found.letters))
    return None


def _moulds(found: Quotes) -> Iterator[Mould]:
    """The mould that was the right one before, which saves making one of a long line, and that of the first line."""
    last: Mould | None = getattr(_LAST, "mould", None)
    if last is not None:
        yield last
    own = Mould.of(found.letters[: found.ends[0]].tobytes())
    if own is not None and own != last:
        yield own


def _columns(mould: Mould, values: Sequence[Value], fields: Sequence[Field], place: Place) -> list[pl.Series] | None:
    """The columns of the fields; none where one has to be read by a parser."""
    asked = [value_of(mould.row, field.name) for field in fields]
    if not values or not all(isinstance(one, str) for one in asked):
        return None
    columns = []
    for field, number in zip(fields, map(int, asked), strict=True):
        if not mould.texts[number]:
            column = numbers(values[number], field, place)
        else:
            column = values[number].texts() if field.kind == "key" else None
        if column is None:
            return None
        columns.append(column.alias(field.name))
    rest = {number for number, text in enumerate(mould.texts) if not text} - {int(one) for one in asked}
    return columns if all(is_scalar(values[number]) for number in rest) else None
