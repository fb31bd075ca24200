"""Lines compared with a mould, and the values that are found between what is the same in all of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.formats import cells, digits
from grpo_cli.formats.model import Field
from grpo_cli.formats.window import WORD

if TYPE_CHECKING:
    from typing import Self

    from grpo_cli.formats.cells import Place
    from grpo_cli.formats.mould import Mould
    from grpo_cli.formats.quotes import Quotes
    from grpo_cli.formats.window import Window

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
    Words = np.ndarray[tuple[int, int], np.dtype[np.uint64]]

_STEP: Final = 64  # letters of a constant that are compared at a time
_WIDE: Final = 4  # texts are taken as words of one width where those are no more than so many times the window
_SCALARS: Final = {int, float, bool, type(None)}
_DECIMAL: Final = r"^-?(?:0|[1-9][0-9]*)\.[0-9]+(?:[eE][-+]?[0-9]+)?$"
_LITERALS: Final = (b"true", b"false", b"null")
_ANY: Final = Field("", "number")


class _Value(NamedTuple):
    """Where a value starts and ends in each line, and its first eight letters if it is no text."""

    start: Ints
    end: Ints
    words: Words


class Cast:
    """Whole lines that have been compared with their mould."""

    def __init__(self, window: Window, mould: Mould, found: Quotes) -> None:
        self._window, self._mould, self._found = window, mould, found
        self._values: list[_Value] = []

    @classmethod
    def of(cls, window: Window, mould: Mould, found: Quotes) -> Self | None:
        """Compare; none where a line differs by more than its values."""
        cast = cls(window, mould, found)
        return cast if cast._fits() else None

    def _fits(self) -> bool:
        ends, constants = self._found.ends, self._mould.constants
        at = np.concatenate(([0], ends[:-1] + 1))
        for constant, behind, text in zip(constants, constants[1:], self._mould.texts, strict=False):
            start = at + len(constant)
            if (start > ends).any():
                return False
            end = self._end(start, behind, text=text)
            if not text and (end < start).any():
                return False
            words = self._behind(start, constant, 0 if text else WORD)
            if words is None:
                return False
            self._values.append(_Value(start, end, words))
            at = end
        last = constants[-1]
        return bool((at + len(last) == ends).all()) and self._behind(ends, last, 0) is not None

    def _end(self, start: Ints, behind: bytes, *, text: bool) -> Ints:
        """Where values end: a text at the next quote, any other before what stands between it and that, or the line's end."""
        quote = 0 if text else behind.find(b'"')
        found: Ints = self._found.ends - len(behind) if quote < 0 else self._found.quotes.next(start) - quote
        return found

    def _behind(self, at: Ints, constant: bytes, width: int) -> Words | None:
        """The letters behind a constant that ends at these places; none where another text stands before one of them."""
        padded = constant.rjust(-(-len(constant) // WORD) * WORD, b"\0")
        words = None
        for low in range(len(padded), 0, -_STEP) or (0,):
            part = padded[len(padded) - low :][:_STEP]
            words = self._window.words(at, low, len(part) + (width if low <= _STEP else 0))
            for number in range(len(part) // WORD):
                wanted = part[number * WORD : (number + 1) * WORD].lstrip(b"\0")
                here = words[:, number] >> np.uint64(8 * (WORD - len(wanted)))
                if (here != np.uint64(int.from_bytes(wanted, "little"))).any():
                    return None
        return None if words is None else words[:, len(part) // WORD :]

    def column(self, field: Field, number: int, place: Place) -> pl.Series | None:
        """The column of a field; none where it has to be read by a parser."""
        start, end, _ = self._values[number]
        if self._mould.texts[number]:
            if field.kind != "key" or self._found.escaped_in(start, end):
                return None
            return self._texts(start, end).alias(field.name)
        return self._numbers(field, number, place)

    def is_scalar(self, number: int) -> bool:
        """Whether a value that nobody asked for is one: a line that is not JSON must not pass."""
        start, end, words = self._values[number]
        rest = np.flatnonzero(~digits.read(words[:, 0], end - start).known)
        for literal in _LITERALS:
            rest = rest[~_are(literal, words[rest, 0], (end - start)[rest])] if len(rest) else rest
        return not len(rest) or self._parsed(_ANY, self._texts(start[rest], end[rest]), str) is not None

    def _numbers(self, field: Field, number: int, place: Place) -> pl.Series | None:
        """Short numbers by arithmetic, all others by their texts."""
        start, end, words = self._values[number]
        found = digits.read(words[:, 0], end - start)
        values = found.whole() if field.kind == "key" else found.floats()
        if values is None or field.kind == "numbers":
            return None
        rest = np.flatnonzero(~found.known)
        for literal in _LITERALS[:2] if field.kind == "number" and len(rest) else ():
            there = _are(literal, words[rest, 0], (end - start)[rest])
            values[rest[there]] = json.loads(literal)
            rest = rest[~there]
        column = pl.Series(field.name, values)
        if not len(rest):
            return column
        others = self._parsed(field, self._texts(start[rest], end[rest]), place)
        if others is None or others.dtype != column.dtype:
            return None
        return others.alias(field.name) if len(others) == len(column) else column.scatter(rest, others)

    def _parsed(self, field: Field, texts: pl.Series, place: Place) -> pl.Series | None:
        """Scalars by their texts: decimal numbers as they are, each other text once, by the parser that defines it."""
        if field.kind == "number" and texts.str.contains(_DECIMAL).all():
            return texts.cast(pl.Float64)
        unique = texts.unique()
        try:
            values: list[Any] = json.loads(f"[{','.join(unique)}]")
        except (ValueError, RecursionError):
            return None
        if len(values) != len(unique) or not {*map(type, values)} <= _SCALARS:
            return None
        if field.kind == "key" and {*map(type, values)} != {int}:
            return None
        try:
            known = cells.key_series("", values) if field.kind == "key" else cells.number_series(field, values, place)
        except DataError:
            return None
        return texts.replace_strict(unique, known, return_dtype=known.dtype)

    def _texts(self, start: Ints, end: Ints) -> pl.Series:
        """The texts between these places. Those that repeat the line before are made once."""
        size = end - start
        widest = int(size.max(initial=0))
        if not widest or widest * len(size) > _WIDE * len(self._window.memory):
            return _series(_gathered(self._found.letters, start, size), size)
        words = self._window.words(start, 0, widest)
        if widest % WORD or size.min() < widest:
            words &= _zeros_behind(words.shape[1] * WORD)[size].view("<u8").reshape(words.shape)
        change = np.ones(len(size), bool)
        np.not_equal(words[1:, 0], words[:-1, 0], out=change[1:])
        for number in range(1, words.shape[1]):
            change[1:] |= words[1:, number] != words[:-1, number]
        heads, size = words[change].view(np.uint8), size[change]
        kept = np.arange(heads.shape[1]) < size[:, None]
        found = _series(heads[kept] if not kept.all() else heads.ravel(), size)
        return found if len(found) == len(change) else found[np.cumsum(change) - 1]


def _are(literal: bytes, words: Ints, sizes: Ints) -> Bools:
    """Which of the words begin with a literal, and are no longer."""
    mask, wanted = (np.uint64(int.from_bytes(one, "little")) for one in (b"\xff" * len(literal), literal))
    found: Bools = ((words & mask) == wanted) & (sizes == len(literal))
    return found


def _zeros_behind(width: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """For each size of a text the letters of so many that are its own, as a mask."""
    kept = np.arange(width) < np.arange(width + 1)[:, None]
    return (kept * np.uint8(0xFF)).view(f"V{width}").ravel()


def _gathered(letters: np.ndarray[tuple[int], np.dtype[np.uint8]], start: Ints, size: Ints) -> Any:
    behind = np.cumsum(size)
    return letters[np.repeat(start - behind + size, size) + np.arange(behind[-1])]


def _series(letters: Any, size: Ints) -> pl.Series:
    """Texts from their letters, one after the other."""
    import pyarrow as pa

    offsets = np.concatenate(([0], np.cumsum(size)))
    return pl.Series(
        pa.LargeStringArray.from_buffers(len(size), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(letters)))
    )
