"""Blocks of JSON lines that are all cast in one mould: read without a parser, and without a doubt.

What a program writes differs from line to line in its texts and numbers only. The first line of a block says what
is the same in all of them: its mould is the text between the values, keys included. numpy finds the quotes of all
lines at once, and compares everything between the values with the mould, eight bytes at a time. A line that passes
is the first line with other values in it, so that what is found there needs no parser: neither another member of
that name nor anything else can hide in it. Whatever does not pass is for the parsers, block by block.

Long lines take a fifth to a third less processor time than parsing them and searching them for doubts, short ones
as much.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.formats import cells
from grpo_cli.formats.quotes import Quotes
from grpo_cli.formats.rows import value_of
from grpo_cli.numbers import distinct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_cli.formats.cells import Place
    from grpo_cli.formats.model import Field

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Words = np.ndarray[tuple[int], np.dtype[np.uint64]]

_WORD: Final = 8
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_GAP: Final = re.compile(rb"([\s:,\[\]{}]*)(?:([^\s:,\[\]{}]+)([\s:,\[\]{}]*))?")
_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
_SCALARS: Final = {int, float, bool, type(None)}


class Value(NamedTuple):
    """A value of the mould: behind which quote of the line it begins and how far, and the same for its end."""

    text: bool
    first: int
    skip: int
    last: int
    back: int


@dataclass(frozen=True, slots=True)
class Mould:
    """The text before, between and behind the values of a line, and where the values lie."""

    quotes: int
    constants: tuple[bytes, ...]
    values: tuple[Value, ...]
    row: dict[str, Any]  # the line as it is parsed, with the number of each value in its place

    @classmethod
    def of(cls, line: bytes) -> Mould | None:
        """Take it from a line; none where two values have no text between them that could tell them apart."""
        constants, values, marked = [b""], list[Value](), list[bytes]()
        at = quotes = 0
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
                values.append(Value(False, quotes - 1, len(before) + 1, quotes, len(behind)))  # noqa: FBT003
                constants.append(behind)
                marked += [b'"%d"' % (len(values) - 1), behind]
            if match is None:
                break
            at, key = match.end(), line[match.end() :].lstrip(b" ").startswith(b":")
            if key:
                constants[-1] += match[0]
                marked.append(match[0])
            else:
                constants[-1] += b'"'
                values.append(Value(True, quotes, 1, quotes + 1, 0))  # noqa: FBT003
                constants.append(b'"')
                marked.append(b'"%d"' % (len(values) - 1))
            quotes += 2
        try:
            row = json.loads(b"".join(marked))
        except (ValueError, RecursionError):
            return None
        return cls(quotes, tuple(constants), tuple(values), row) if quotes and type(row) is dict else None


def read(
    block: bytes, fields: Sequence[Field], watched: frozenset[str], place: Place
) -> tuple[list[pl.Series], frozenset[str], int] | None:
    """The columns of a block of one mould, the watched names it holds, and its rows; none if it is of several."""
    mould = Mould.of(block[: block.find(b"\n")]) if block.endswith(b"\n") else None
    asked = None if mould is None else [value_of(mould.row, field.name) for field in fields]
    if mould is None or asked is None or not all(isinstance(one, str) for one in asked):
        return None
    cast = _Cast.of(block, mould)
    if cast is None:
        return None
    found = [cast.column(field, int(number), place) for field, number in zip(fields, asked, strict=True)]
    columns = [column for column in found if column is not None]
    rest = {number for number, value in enumerate(mould.values) if not value.text} - {int(one) for one in asked}
    if len(columns) < len(found) or not all(cast.is_scalar(number) for number in rest):
        return None
    return columns, watched.intersection(mould.row), len(cast.ends)


class _Cast:
    """A block that has been compared with its mould."""

    def __init__(self, block: bytes, mould: Mould, marks: Sequence[Ints], quotes: Quotes) -> None:
        # Zeros behind the block: words are read from its last letters, too.
        padded = np.zeros(len(block) // _WORD * _WORD + 2 * _WORD + _WORD, np.uint8)
        padded[: len(block)] = quotes.letters
        self._aligned, self._letters = padded.view("<u8"), quotes.letters
        self._mould, self._marks, self.ends, self._quotes = mould, marks, marks[-1], quotes

    @classmethod
    def of(cls, block: bytes, mould: Mould) -> _Cast | None:
        """Compare; none where a line differs by more than its values."""
        found = Quotes.of(block)
        if found is None or len(found.places) != len(found.ends) * mould.quotes:
            return None
        starts = np.concatenate(([-1], found.ends[:-1]))
        places = found.places.reshape(len(found.ends), -1)
        marks = [starts, *(places[:, at] for at in range(mould.quotes)), found.ends]
        if (marks[1] < starts).any() or (marks[-2] > found.ends).any():
            return None
        cast = cls(block, mould, marks, found)
        return cast if cast._fits() else None

    def _span(self, value: Value) -> tuple[Ints, Ints]:
        """Start and end of a value in each line."""
        return self._marks[value.first + 1] + value.skip, self._marks[value.last + 1] - value.back

    def _fits(self) -> bool:
        at, spans = self._marks[0] + 1, [self._span(value) for value in self._mould.values]
        for constant, (start, end) in zip(self._mould.constants, [*spans, (self.ends, self.ends)], strict=True):
            if (start - at != len(constant)).any() or (end < start).any() or not self._same(at, constant):
                return False
            at = end
        return True

    def _same(self, at: Ints, constant: bytes) -> bool:
        """Whether these bytes stand at all of the places."""
        for low in range(0, len(constant), _WORD):
            low = min(low, max(len(constant) - _WORD, 0))  # noqa: PLW2901 - the last word may reach back
            part = constant[low : low + _WORD]
            wanted = np.uint64(int.from_bytes(part, "little"))
            if (self._word(at + low) & _MASKS[len(part)] != wanted).any():
                return False
        return True

    def _word(self, at: Ints) -> Words:
        """Eight bytes from each place on: two aligned words, shifted. numpy takes five times as long over unaligned ones."""
        index = at >> 3
        shift = ((at & 7) << 3).astype(np.uint64)
        low = np.take(self._aligned, index) >> shift
        index += 1
        # A shift by 64 would be undefined: by 63 and one more it is zero.
        word: Words = low | (np.take(self._aligned, index) << (np.uint64(63) - shift) << np.uint64(1))
        return word

    def column(self, field: Field, number: int, place: Place) -> pl.Series | None:
        """The column of a field; none where it has to be read by a parser."""
        value = self._mould.values[number]
        start, end = self._span(value)
        if value.text:
            if field.kind != "key" or self._quotes.escaped_in(start, end):
                return None
            return self._texts(start, end).alias(field.name)
        return self._scalars(field, start, end, place)

    def _texts(self, start: Ints, end: Ints) -> pl.Series:
        """The texts between these places. Those that repeat the line before are made once."""
        import pyarrow as pa

        size = end - start
        change = np.ones(len(size), bool)
        if size.max(initial=0) <= 4 * _WORD:
            same = size[1:] == size[:-1]
            for low in range(0, int(size.max(initial=0)), _WORD):
                word = self._word(np.minimum(start + low, len(self._letters))) & _MASKS[np.clip(size - low, 0, _WORD)]
                same &= word[1:] == word[:-1]
            change[1:] = ~same
        start, size = start[change], size[change]
        offsets = np.concatenate(([0], np.cumsum(size)))
        places = np.repeat(start - offsets[:-1], size) + np.arange(offsets[-1])
        data = pa.py_buffer(self._letters[places])
        heads = pl.Series(pa.LargeStringArray.from_buffers(len(size), pa.py_buffer(offsets), data))
        return heads if len(heads) == len(change) else heads.gather(pl.Series(np.cumsum(change) - 1))

    def is_scalar(self, number: int) -> bool:
        """Whether a value that nobody asked for is one: a line that is not JSON must not pass."""
        return self._parsed(*self._span(self._mould.values[number])) is not None

    def _scalars(self, field: Field, start: Ints, end: Ints, place: Place) -> pl.Series | None:
        """Numbers by their texts: each of them is read once, by the parser that reads all others too."""
        parsed = self._parsed(start, end)
        if parsed is None:
            return None
        texts, known, values = parsed
        try:
            if field.kind != "key":
                column = cells.number_series(field, values, place)
            elif {*map(type, values)} == {int}:
                column = cells.key_series(field.name, values)
            else:
                return None
        except DataError:
            return None
        if column.dtype not in (pl.Int64, pl.Float64):
            return None
        return column.gather(pl.Series(np.searchsorted(known, texts), dtype=pl.UInt32))

    def _parsed(self, start: Ints, end: Ints) -> tuple[Words, Words, list[Any]] | None:
        """The texts of scalars as numbers (short ones are their bytes), those that there are, and their values."""
        size = end - start
        if not size.min(initial=1):
            return None
        if size.max(initial=0) <= _WORD:
            texts = self._word(start) & _MASKS[size]
            known = distinct(texts)
            told = [word.to_bytes(_WORD, "little").rstrip(b"\x00") for word in known.tolist()]
        else:
            spelt = self._texts(start, end)
            unique = spelt.unique().sort()
            told = [text.encode() for text in unique.to_list()]
            known = np.arange(len(told), dtype=np.uint64)
            texts = spelt.replace_strict(unique, pl.Series(known), return_dtype=pl.UInt64).to_numpy()
        try:
            values = json.loads(b"[%b]" % b",".join(told))
        except (ValueError, RecursionError):
            return None
        plain = len(values) == len(told) and {*map(type, values)} <= _SCALARS
        return (texts, known, values) if plain else None
