"""New members put before the last brace of every line, a block of lines at a time.

A block is cut at the braces by offsets alone. Short lines are put together in memory, all of a block at once; of long
ones the pieces are written from where they lie, so that no byte of them is copied but by the system.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from grpo_cli.ahead import ahead
from grpo_cli.errors import InputChanged
from grpo_cli.formats import bits
from grpo_cli.formats.inlay import Inlay
from grpo_cli.formats.lines import is_blank, pieces
from grpo_cli.formats.stitch import WIDEST, room, stitched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import polars as pl

    from grpo_cli.formats.lines import Piece
    from grpo_cli.io.local import Input

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
    Buffer = bytes | memoryview
    Letters = np.ndarray[tuple[int], np.dtype[np.uint8]]

_LF, _CR, _CLOSE = b"\n\r}"
_BLANKS: Final = b" \t\r\n"
# Nearly always a line ends with a brace that has neither a blank nor another brace before it: pairs of letters.
_BEFORE: Final = ~np.isin(np.arange(256), np.frombuffer(b"{" + _BLANKS, np.uint8))
_USUAL: Final = np.outer(np.arange(256) == _CLOSE, _BEFORE).ravel()
_TOGETHER: Final = 1 << 14  # rows
# Threads wait for each other oftener in smaller blocks: 4M short lines took 0.60 s in 2 MB, and 0.42 s in these.
_BLOCK: Final = 4 << 20
_STEP: Final = 2 << 20
_SELDOM: Final = 32  # one long line in so many or more: then all of them are written from where they lie


class _Block:
    """Memory for the lines of a block and for those that they become, and where the last brace of each row is."""

    def __init__(self) -> None:
        self.memory, self.out = np.zeros(0, np.uint8), np.zeros(0, np.uint8)
        self.size = 0
        self.braces: Ints = np.zeros(0, np.int64)
        self.empty: Bools = np.zeros(0, bool)  # rows without a member

    def read(self, piece: Piece) -> None:
        """Read lines and find the braces."""
        if len(self.memory) < piece.size + WIDEST:
            self.memory = np.zeros(piece.size + WIDEST, np.uint8)
        self.size = piece.size
        piece.into(self.memory[: self.size].data)
        self.braces, self.empty = _braces(self.memory, self.size)

    def parts(self, inlays: Sequence[Inlay]) -> list[Buffer]:
        """The lines with the new members in them."""
        marks = np.concatenate(([0], self.braces))
        long = np.flatnonzero(np.diff(marks) > WIDEST)
        tail = self.memory[marks[-1] : self.size].data
        if len(long) * _SELDOM > len(self.braces) or self.empty.any() or any(one.width > WIDEST for one in inlays):
            return [*self._each(marks, inlays), tail]
        needed = room(self.size, inlays, len(self.braces))
        if len(self.out) < needed:
            self.out = np.zeros(needed, np.uint8)
        return [*self._short(marks, inlays, long), tail]

    def _each(self, marks: Ints, inlays: Sequence[Inlay]) -> list[Buffer]:
        """Every piece from where it lies."""
        letters, found = self.memory[: self.size].data, marks.tolist()
        parts: list[Buffer] = [letters] * ((1 + len(inlays)) * len(self.braces))
        parts[:: 1 + len(inlays)] = [letters[start:end] for start, end in pairwise(found)]
        for number, one in enumerate(inlays, 1):
            parts[number :: 1 + len(inlays)] = one.parts()
        for row in np.flatnonzero(self.empty).tolist():
            first = row * (1 + len(inlays)) + 1
            parts[first] = parts[first][1:]
        return parts

    def _short(self, marks: Ints, inlays: Sequence[Inlay], long: Ints) -> Iterator[Buffer]:
        """Lines put together, and the seldom long ones before, between and behind them."""
        letters, done = self.memory[: self.size].data, 0
        for start, end in zip([0, *(long + 1).tolist()], [*long.tolist(), len(marks) - 1], strict=True):
            size = stitched(
                self.out[done:], self.memory, marks[start : end + 1], [one.rows(start, end) for one in inlays]
            )
            yield self.out[done : done + size].data
            done += size
            if end < len(marks) - 1:
                yield letters[marks[end] : marks[end + 1]]
                yield from (one.rows(end, end + 1).parts()[0] for one in inlays)


def spliced(source: Input, sink: BinaryIO, added: pl.DataFrame) -> int:
    """Copy the file with the new members in it, and tell how many rows it had."""
    rows = 0
    kept = deque[_Block]()  # memory that was there already is faster

    def cut(piece: Piece) -> _Block:
        block = kept.pop() if kept else _Block()
        block.read(piece)
        return block

    def woven(numbered: tuple[_Block, Callable[[], list[Inlay]]]) -> tuple[_Block, list[Buffer]]:
        block, inlays = numbered
        return block, block.parts(inlays())

    for block, parts in ahead(woven, _numbered(ahead(cut, pieces(source, _BLOCK)), added, source)):
        rows += len(block.braces)
        sink.writelines(parts)
        kept.append(block)
    return rows


def _numbered(
    blocks: Iterable[_Block], added: pl.DataFrame, source: Input
) -> Iterator[tuple[_Block, Callable[[], list[Inlay]]]]:
    """Every block with the new texts of its rows; those of a few rows are spelt together with the following ones."""
    row, begun, together = 0, 0, list[Inlay]()
    for one in blocks:
        rows = len(one.braces)
        if row + rows > len(added) or (one.braces < 0).any():  # a row without a brace was none before
            raise InputChanged.between_readings(source.name)
        if rows >= _TOGETHER:
            yield one, partial(_inlays, added[row : row + rows])
        else:
            if not together or row + rows > begun + _TOGETHER:
                begun, together = row, _inlays(added[row : row + _TOGETHER])
            yield one, partial(_of_rows, together, row - begun, rows)
        row += rows


def _inlays(values: pl.DataFrame) -> list[Inlay]:
    return [Inlay.of(series) for series in values]


def _of_rows(together: Sequence[Inlay], start: int, rows: int) -> list[Inlay]:
    return [one.rows(start, start + rows) for one in together]


def _ends(letters: Letters) -> Ints:
    """Where lines end; the last one may do so without a line feed."""
    mask = np.empty(_STEP, bool)
    found = [np.zeros(0, np.int64)]
    for start in range(0, len(letters), _STEP):
        step = letters[start : start + _STEP]
        found.append(bits.places(np.equal(step, _LF, out=mask[: len(step)])) + start)
    if len(letters) and letters[-1] != _LF:
        found.append(np.array([len(letters)]))
    return np.concatenate(found)


def _braces(memory: Letters, size: int) -> tuple[Ints, Bools]:
    """The last brace of each row, and which rows are empty. Nearly every line ends with one, which is seen for all at once."""
    letters = memory[:size]
    ends = _ends(letters)
    starts = np.concatenate(([0], ends[:-1] + 1))
    pairs, braces = _pairs(memory, ends - 2), ends - 1
    returned = pairs >> 8 == _CR
    if returned.any():
        braces -= returned
        pairs = _pairs(memory, braces - 1)
    usual = _USUAL[pairs] & (braces > starts)
    empty, is_row = np.zeros(len(ends), bool), np.ones(len(ends), bool)
    for at in np.flatnonzero(~usual).tolist():
        line = letters[starts[at] : ends[at]].tobytes()
        brace = line.rfind(b"}")
        is_row[at] = not is_blank(line)
        braces[at] = starts[at] + brace if brace >= 0 else -1
        empty[at] = line[: max(0, brace)].rstrip(_BLANKS).endswith(b"{")
    return (braces, empty) if is_row.all() else (braces[is_row], empty[is_row])


def _pairs(memory: Letters, at: Ints) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    """Two letters from each place on, the second one in the upper half."""
    every = np.ndarray(len(memory) - 1, "V2", memory, strides=(1,))
    return every[np.maximum(at, 0)].view("<u2")
