"""Blocks of JSON lines that are all cast in one mould: read without a parser, and without a doubt.

What a program writes differs from line to line in its texts and numbers only. The first line of a block says what
is the same in all of them: its mould is the text between the values, keys included. numpy walks along all lines of a
block at once: it compares the text before a value with the mould, eight bytes at a time, and finds where the value
ends. A line that passes is the first line with other values in it, so that what is found there needs no parser:
neither another member of that name nor anything else can hide in it. Whatever does not pass is for the parsers,
from the first block on that does not.

880 MB of long lines take 0.9 s of processor time, parsing and searching them for doubts 1.8; 4M short lines 0.7 and 1.8.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from threading import local
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from grpo_cli.formats.cast import Cast
from grpo_cli.formats.quotes import Quotes
from grpo_cli.formats.rows import value_of
from grpo_cli.formats.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    import polars as pl

    from grpo_cli.formats.cells import Place
    from grpo_cli.formats.model import Field


_LAST: Final = local()
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_GAP: Final = re.compile(rb"([\s:,\[\]{}]*)(?:([^\s:,\[\]{}]+)([\s:,\[\]{}]*))?")


@dataclass(frozen=True, slots=True)
class Mould:
    """The text before, between and behind the values of a line, and which of the values are texts."""

    constants: tuple[bytes, ...]
    texts: tuple[bool, ...]
    row: dict[str, Any]  # the line as it is parsed, with the number of each value in its place

    @classmethod
    def of(cls, line: bytes) -> Mould | None:
        """Take it from a line; none where two values have no text between them that could tell them apart."""
        constants, texts, marked = [b""], list[bool](), list[bytes]()
        at = 0
        strings = [*_STRING.finditer(line)]
        for match in [*strings, None]:
            end = len(line) if match is None else match.start()
            gap = _GAP.fullmatch(line, at, end)
            if gap is None:
                return None
            before, scalar, behind = (part or b"" for part in gap.groups())
            constants[-1] += before
            marked.append(before)
            if scalar:
                texts.append(False)
                constants.append(behind)
                marked += [b'"%d"' % (len(texts) - 1), behind]
            if match is None:
                break
            at, key = match.end(), line[match.end() :].lstrip(b" ").startswith(b":")
            if key:
                constants[-1] += match[0]
                marked.append(match[0])
            else:
                constants[-1] += b'"'
                texts.append(True)
                constants.append(b'"')
                marked.append(b'"%d"' % (len(texts) - 1))
        try:
            row = json.loads(b"".join(marked))
        except (ValueError, RecursionError):
            return None
        return cls(tuple(constants), tuple(texts), row) if type(row) is dict else None


class Read(NamedTuple):
    """What whole lines hold: the columns, the watched names, the number of rows; and how many bytes they are."""

    columns: list[pl.Series]
    late: frozenset[str]
    height: int
    size: int


def read(handle: BinaryIO, size: int, fields: Sequence[Field], watched: frozenset[str], place: Place) -> Iterator[Read]:
    """Read lines from where a file stands, window by window, up to the first one that is not of one mould."""
    window, start, at = Window.mine(), handle.tell(), 0
    while at < size:
        handle.seek(start + at)
        window.fill(handle, size - at)
        found = Quotes.of(window)
        if found is None:
            return
        for mould in _moulds(found):
            cast = Cast.of(window, mould, found)
            columns = None if cast is None else _columns(cast, mould, fields, place)
            if columns is not None:
                break
        else:
            return
        _LAST.mould = mould
        yield Read(columns, watched.intersection(mould.row), len(found.ends), len(found.letters))
        at += len(found.letters)


def _moulds(found: Quotes) -> Iterator[Mould]:
    """The mould that was the right one before, which saves making one of a long line, and that of the first line."""
    last: Mould | None = getattr(_LAST, "mould", None)
    if last is not None:
        yield last
    own = Mould.of(found.letters[: found.ends[0]].tobytes())
    if own is not None and own != last:
        yield own


def _columns(cast: Cast, mould: Mould, fields: Sequence[Field], place: Place) -> list[pl.Series] | None:
    asked = [value_of(mould.row, field.name) for field in fields]
    if not all(isinstance(one, str) for one in asked):
        return None
    columns = []
    for field, number in zip(fields, asked, strict=True):
        column = cast.column(field, int(number), place)
        if column is None:
            return None
        columns.append(column)
    rest = {number for number, text in enumerate(mould.texts) if not text} - {int(one) for one in asked}
    return columns if all(map(cast.is_scalar, rest)) else None
