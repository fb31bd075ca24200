"""New members put before the last brace of every line, a block of lines at a time.

A block is cut at the braces by offsets alone, which the reading of the file has found already, mostly. Short lines are
put together in memory, all of a block at once; of long ones the pieces are written from where they lie, so that no
byte of them is copied but by the system.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from grpo_cli.errors import InputChanged
from grpo_cli.formats.jsonl.braces import are_braces, braces
from grpo_cli.formats.jsonl.inlay import Inlay, Speller
from grpo_cli.formats.jsonl.lines import Stretch, again, pieces
from grpo_cli.formats.jsonl.stitch import WIDEST, room, stitched
from grpo_cli.parallel import ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import polars as pl

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.jsonl.lines import Piece

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Buffer = bytes | memoryview
    Letters = np.ndarray[tuple[int], np.dtype[np.uint8]]
    Spelt = Callable[[], list[Inlay]]

_TOGETHER: Final = 1 << 14  # rows
_FAR: Final = 1 << 32  # bytes of one line: its end is looked for twice
_SELDOM: Final = 32  # one long line in so many or more: then all of them are written from where they lie


class _Block:
    """Memory for the lines of a block and for those that they become."""

    def __init__(self) -> None:
        self.memory, self.out = np.zeros(0, np.uint8), np.zeros(0, np.uint8)

    def read(self, piece: Piece) -> Letters:
        """Read lines; as many bytes as a short one has are behind them."""
        if len(self.memory) < piece.size + WIDEST:
            self.memory = np.zeros(piece.size + WIDEST, np.uint8)
        letters = self.memory[: piece.size]
        piece.into(letters.data)
        return letters

    def parts(self, piece: Piece, stretch: Stretch, inlays: Sequence[Inlay]) -> list[Buffer]:
        """Read lines, and give them with the new members in them."""
        letters = self.read(piece)
        places, empty = _looked_up(letters, stretch)
        if len(places) != stretch.rows:
            raise InputChanged.between_readings(piece.name)
        marks = np.concatenate(([0], places))
        long = np.flatnonzero(np.diff(marks) > WIDEST)
        tail = letters[marks[-1] :].data
        if len(long) * _SELDOM > len(places) or len(empty) or any(one.width > WIDEST for one in inlays):
            return [*_each(letters.data, marks, empty, inlays), tail]
        needed = room(len(letters), inlays, len(places))
        if len(self.out) < needed:
            self.out = np.zeros(needed, np.uint8)
        return [*self._short(marks, inlays, long), tail]

    def _short(self, marks: Ints, inlays: Sequence[Inlay], long: Ints) -> Iterator[Buffer]:
        """Lines put together, and the seldom long ones before, between and behind them."""
        done = 0
        for start, end in zip([0, *(long + 1).tolist()], [*long.tolist(), len(marks) - 1], strict=True):
            size = stitched(
                self.out[done:], self.memory, marks[start : end + 1], [one.rows(start, end) for one in inlays]
            )
            yield self.out[done : done + size].data
            done += size
            if end < len(marks) - 1:
                yield self.memory[marks[end] : marks[end + 1]].data
                yield from (one.rows(end, end + 1).parts()[0] for one in inlays)


def _looked_up(letters: Letters, stretch: Stretch) -> tuple[Ints, Ints]:
    """The last braces of the rows, and which rows are without a member: as they were found, or by looking for them."""
    if stretch.braces is not None and are_braces(letters, stretch.braces):
        return stretch.braces.astype(np.int64), np.zeros(0, np.int64)
    places, empty = braces(letters)
    return places[places >= 0], np.flatnonzero(empty)  # a row without a brace was none before


def _each(letters: memoryview, marks: Ints, empty: Ints, inlays: Sequence[Inlay]) -> list[Buffer]:
    """Every piece from where it lies."""
    parts: list[Buffer] = [letters] * ((1 + len(inlays)) * (len(marks) - 1))
    parts[:: 1 + len(inlays)] = [letters[start:end] for start, end in pairwise(marks.tolist())]
    for number, one in enumerate(inlays, 1):
        parts[number :: 1 + len(inlays)] = one.parts()
    for row in empty.tolist():
        first = row * (1 + len(inlays)) + 1
        parts[first] = parts[first][1:]
    return parts


def spliced(source: Input, sink: BinaryIO, added: pl.DataFrame) -> None:
    """Copy the file with the new members in it."""
    kept = deque[_Block]()  # memory that was there already is faster
    known = source.stretches or [*ahead(_counted, pieces(source))]
    if sum(one.rows for one in known) != len(added):
        raise InputChanged.between_readings(source.name)

    def woven(one: tuple[tuple[Piece, Stretch], Spelt]) -> tuple[_Block, list[Buffer]]:
        (piece, stretch), spelt = one
        block = kept.pop() if kept else _Block()
        return block, block.parts(piece, stretch, spelt())

    for block, parts in ahead(woven, zip(again(source, known), _spelt(known, added), strict=True)):
        sink.writelines(parts)
        kept.append(block)


def _counted(piece: Piece) -> Stretch:
    places, empty = braces(np.frombuffer(piece.read(), np.uint8))
    keep = not empty.any() and piece.size < _FAR
    return Stretch(piece.size, len(places), places.astype(np.uint32) if keep else None)


def _spelt(known: Iterable[Stretch], added: pl.DataFrame) -> Iterator[Spelt]:
    """The new texts of each stretch, to be spelt in any thread; those of a few rows together with the following ones."""
    spellers = [Speller(name) for name in added.columns]

    def inlays(start: int, rows: int) -> list[Inlay]:
        values = added[start : start + rows]
        return [one.inlay(column) for one, column in zip(spellers, values, strict=True)]

    row, begun, together = 0, 0, list[Inlay]()
    for one in known:
        if one.rows >= _TOGETHER:
            yield partial(inlays, row, one.rows)
        else:
            if not together or row + one.rows > begun + _TOGETHER:
                begun, together = row, inlays(row, _TOGETHER)
            yield partial(_of_rows, together, row - begun, one.rows)
        row += one.rows


def _of_rows(together: Sequence[Inlay], start: int, rows: int) -> list[Inlay]:
    return [one.rows(start, start + rows) for one in together]
