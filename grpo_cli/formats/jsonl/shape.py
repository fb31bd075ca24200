"""Short lines of one shape: the same text between values of the same sizes, so that each stands at the same place.

Ids of one width and rewards of 0 or 1 make such lines, and a window of them is a table of letters. What is the same in
all of them is compared in columns of eight letters, and a value is a column of the table: no end of a line, no quote
and no end of a value is looked for. Lines of many shapes, with a table for each, took three times as long as `cast` takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from threading import local
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from grpo_cli.formats.jsonl.mould import Mould
from grpo_cli.formats.jsonl.values import series, spread
from grpo_cli.formats.jsonl.window import LONG, WORD, steps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    import polars as pl

    from grpo_cli.formats.jsonl.window import Window

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Words = np.ndarray[tuple[int], np.dtype[np.uint64]]
    Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
    Letters = np.ndarray[tuple[int], np.dtype[np.uint8]]

_PART: Final = 1 << 20
_ALL: Final = (1 << 8 * WORD) - 1
_LAST: Final = local()
_QUOTE, _BACKSLASH, _SPACE = b'"\\ '


class Shaped(NamedTuple):
    """Whole lines at the beginning of a window: their values, where each has its last brace, and how many bytes they are."""

    mould: Mould
    values: list[Cells]
    braces: Ints
    size: int


@dataclass(frozen=True, slots=True)
class _Table:
    """Lines of one size, and eight letters or more behind the last one."""

    memory: Letters
    stride: int
    rows: int

    def words(self, at: int) -> Words:
        """Eight letters of each line."""
        return np.ndarray(self.rows, "<u8", self.memory, at, (self.stride,))

    def texts(self, at: int, width: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """So many letters of each line."""
        return np.ndarray(self.rows, f"V{width}", self.memory, at, (self.stride,))

    def parts(self) -> Iterator[_Table]:
        """The lines in parts that stay in the cache of a core while one column after the other is looked at."""
        most = max(1, _PART // self.stride)
        for row in range(0, self.rows, most):
            yield _Table(self.memory[row * self.stride :], self.stride, min(most, self.rows - row))


class Cells:
    """One value of each line."""

    def __init__(self, table: _Table, at: int, width: int) -> None:
        self._table, self._at, self._width = table, at, width
        self.sizes = np.array([width])

    @cached_property
    def words(self) -> Words:
        """The first eight letters, with whatever stands behind them."""
        return self._table.words(self._at).copy()

    @cached_property
    def heads(self) -> tuple[Letters, Bools]:
        """The texts that differ from the line before, and in which lines they do."""
        change = np.zeros(self._table.rows, bool)
        change[0] = True
        for at in steps(self._width):
            words = self._table.words(self._at + at).copy()
            differ = words[1:] ^ words[:-1]
            if self._width < WORD:
                differ &= np.uint64((1 << 8 * self._width) - 1)
            change[1:] |= differ != 0
        if not self._width:
            return np.zeros(0, np.uint8), change
        texts = self._table.texts(self._at, self._width)
        return (texts if change.all() else texts[change]).copy().view(np.uint8), change

    @property
    def is_plain(self) -> bool:
        """Whether no letter is one that ends a text, escapes another, or needs a closer look."""
        return _plain(self.heads[0])

    def texts(self) -> pl.Series:
        """The texts of all lines."""
        letters, change = self.heads
        return spread(self._series(letters, int(np.count_nonzero(change))), change)

    def views(self, rows: Ints) -> pl.Series | None:
        """The texts of some lines."""
        letters = self._table.texts(self._at, self._width)[rows].view(np.uint8)
        return self._series(letters, len(rows)) if _plain(letters) else None

    def _series(self, letters: Letters, count: int) -> pl.Series:
        return series(letters, np.full(count, self._width))


class _Shape(NamedTuple):
    """A mould with sizes of its values: where they stand, and words of what is the same, with a mask."""

    mould: Mould
    spans: list[tuple[int, int]]
    words: list[tuple[int, int, int]]  # place, letters and mask

    @classmethod
    def of(cls, line: bytes) -> Self | None:
        """Take it from a line with its end."""
        mould = Mould.of(line[:-1])
        if mould is None or len(line) < WORD or min(line[:-1].removesuffix(b"\r")) < _SPACE:
            return None
        at, spans, words = 0, [], []
        constants = (*mould.constants[:-1], mould.constants[-1] + b"\n")
        for constant, size in zip(constants, (*mould.sizes, 0), strict=True):
            for step in steps(len(constant)):
                letters = constant[step : step + WORD]
                words.append((at + step, int.from_bytes(letters, "little"), (1 << 8 * len(letters)) - 1))
            at += len(constant)
            spans.append((at, size))
            at += size
        return cls(mould, spans[:-1], words)

    def fits(self, table: _Table) -> bool:
        """Whether all lines are of this shape."""
        return all(map(self._fit, table.parts()))

    def _fit(self, table: _Table) -> bool:
        found: Any = np.uint64(0)
        for at, letters, kept in self.words:
            differ = table.words(at) ^ np.uint64(letters)
            found |= differ if kept == _ALL else differ & np.uint64(kept)
        return not found.any()


def shaped(window: Window) -> Shaped | None:
    """Cut the lines of a window; none where they are long, or not of one shape."""
    line = window.room[: min(LONG, window.size)].tobytes()
    line = line[: line.find(b"\n") + 1]
    if not line:
        return None
    rows = window.size // len(line)
    table = _Table(window.beyond, len(line), rows)
    shape = _known(line, table)
    if shape is None or not shape.fits(table):
        return None
    values = [Cells(table, at, size) for at, size in shape.spans]
    if not all(cells.is_plain for cells, text in zip(values, shape.mould.texts, strict=True) if text):
        return None
    braces = np.arange(1, rows + 1) * len(line) - (1 + shape.mould.closing)
    return Shaped(shape.mould, values, braces, rows * len(line))


def _known(line: bytes, table: _Table) -> _Shape | None:
    """The shape of the first line: mostly that of the lines before."""
    last: tuple[int, _Shape] | None = getattr(_LAST, "shape", None)
    if last is not None and last[0] == len(line) and last[1].fits(_Table(table.memory, len(line), 1)):
        return last[1]
    shape = _Shape.of(line)
    if shape is not None:
        _LAST.shape = len(line), shape
    return shape


def _plain(letters: Letters) -> bool:
    # As signed numbers all bytes that are not ASCII lie below the space as well.
    return not ((letters.view(np.int8) < _SPACE).any() or (letters == _QUOTE).any() or (letters == _BACKSLASH).any())
