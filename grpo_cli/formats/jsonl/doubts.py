"""Rows of a block that the fast reader may have read otherwise than Python's parser would.

One pass over the bytes counts the quoted names that matter, forbidden ones among them. When the sum is what it
has to be and no value is missing, nothing is in doubt, and that is the end of it; only else the lines are looked at.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from grpo_cli.formats.jsonl.lent import as_series
from grpo_cli.formats.jsonl.lines import is_blank

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Self

    from grpo_cli.formats.jsonl.routes import Route

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]

_FAR: Final = 4096  # bytes up to which the rest of a line is searched for brackets: parsing is not much slower
_MARKS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_KEY: Final = re.compile(rb"[ \t\r]*:")
_DEPTH: Final = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}


def doubted(
    block: bytes, frame: pl.DataFrame, found: Sequence[Route], watched: frozenset[str]
) -> list[tuple[int, int]] | None:
    """Row and line of every doubted row; none when the lines do not even match the rows."""
    text = _text(block)
    keys = {name for route in found for name in route.path}
    rivals = {name for route in found for name in route.rivals}
    watched = watched - keys  # of a nested one each line that holds it elsewhere is in doubt anyway
    if keys & rivals:
        return None
    escapes = _escapes({letter for name in keys | rivals | watched for letter in name})
    places = _places(text, [*_quoted((*keys, *rivals, *watched)), *escapes])
    odd = _odd_values(frame, found)
    if len(places) == frame.height * len(keys) and not odd.any() and not sum(frame.null_count().row(0)):
        return []
    rows = _Rows.of(block, frame.height)
    if rows is None:
        return None
    return rows.numbered(
        {
            *rows.line_of_row[odd].tolist(),
            *rows.lines_of(np.concatenate([rows.where(places, text) for text in _quoted(rivals) + escapes])).tolist(),
            *(line for text in _quoted(keys) for line in rows.twice(rows.where(places, text))),
            *(line for text in _quoted(watched) for line in rows.at_top(rows.where(places, text))),
        }
    )


def _text(block: bytes) -> pl.Series:
    """The block as one cell, without a copy. That it is UTF-8 is known: polars has parsed every line of it."""
    import pyarrow as pa

    ends = pa.py_buffer(np.array([0, len(block)], dtype=np.int64))
    return as_series(pa.LargeStringArray.from_buffers(1, ends, pa.py_buffer(block)))


def _escapes(letters: Iterable[str]) -> list[str]:
    r"""What a name spelt with escapes has to hold. \u0026 and \u003c are common, so only letters go by prefix."""
    codes = {f"{ord(letter):04x}" for letter in letters}
    prefixes = {f"\\u{code[:3]}" for code in codes if code[2] in "4567"}
    others = {f"\\u{code}" for code in codes if code[2] in "23"}
    return sorted(prefixes | others | {f"\\u{text[2:].upper()}" for text in others})


def _odd_values(frame: pl.DataFrame, found: Sequence[Route]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Rows where a value does not speak for itself."""
    odd = np.zeros(frame.height, dtype=bool)
    for route in found:
        column = frame[route.field.name]
        if not route.certain and column.null_count():
            odd |= column.is_null().to_numpy()
        if column.dtype == pl.String:
            nul = column.str.contains("\x00", literal=True).fill_null(value=False)
            odd |= nul.to_numpy()
    return odd


def _quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]


def _places(text: pl.Series, literals: Sequence[str]) -> Ints:
    # Plain strings and no pattern: a regular expression with a class in it takes three times as long.
    return text.str.find_many(list(literals)).explode(empty_as_null=False).cast(pl.Int64).to_numpy()


class _Rows:
    """The lines of a block, and which of them are rows."""

    def __init__(self, block: bytes, newlines: Ints, line_of_row: Ints) -> None:
        self._block, self._newlines, self.line_of_row = block, newlines, line_of_row

    @classmethod
    def of(cls, block: bytes, height: int) -> Self | None:
        """Find the lines; none when there are not as many rows among them as polars read."""
        newlines = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
        count = len(newlines) + (not block.endswith(b"\n"))
        if count == height:
            return cls(block, newlines, np.arange(height))
        filled = [at for at, line in enumerate(BytesIO(block)) if not is_blank(line)]
        return cls(block, newlines, np.array(filled, dtype=np.int64)) if len(filled) == height else None

    def where(self, places: Ints, text: str) -> Ints:
        """Those of the places that hold this text."""
        for at, letter in enumerate(text.encode()):
            places = places[np.frombuffer(self._block, np.uint8)[places + at] == letter]
        return places

    def lines_of(self, places: Ints) -> Ints:
        """The line of each place."""
        return np.searchsorted(self._newlines, places)

    def numbered(self, lines: set[int]) -> list[tuple[int, int]]:
        """The row of each line."""
        wanted = np.array(sorted(lines), dtype=np.int64)
        return list(zip(np.searchsorted(self.line_of_row, wanted).tolist(), wanted.tolist(), strict=True))

    def at_top(self, places: Ints) -> Iterator[int]:
        """Lines that may hold a top-level member at one of these places."""
        for place, line in zip(places.tolist(), self.lines_of(places).tolist(), strict=True):
            if not self._nested(place, line):
                yield line

    def twice(self, places: Ints) -> Iterator[int]:
        """Lines that may hold two top-level members of one name: more of its tokens than can be told apart."""
        lines = self.lines_of(places)
        repeated = np.flatnonzero(np.bincount(lines)[lines] > 1)
        held: dict[int, list[int]] = {}
        for place, line in zip(places[repeated].tolist(), lines[repeated].tolist(), strict=True):
            held.setdefault(line, []).append(place)
        for line, here in held.items():
            unclear = len(here)
            for place in reversed(here):  # the last one has the shortest way to the end of the line
                unclear -= self._nested(place, line)
                if unclear == 1:
                    break
            if unclear > 1:
                yield line

    def _nested(self, place: int, line: int) -> bool:
        """Tell that a quoted name is no member of the line's object itself, by the brackets that follow it."""
        end = int(self._newlines[line]) if line < len(self._newlines) else len(self._block)
        if end - place > _FAR:
            return False
        if not _KEY.match(self._block, self._block.index(b'"', place + 1) + 1):
            return True
        return sum(_DEPTH.get(mark, 0) for mark in _MARKS.findall(self._block, place, end)) != -1
