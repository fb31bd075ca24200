"""A window on a file of lines: memory that each thread keeps, and what stands where in it.

Memory that is new costs more than what is done in it: a mask of 64 MB took 23 ms, and 7 ms where it was there already.
One thread is a third faster with steps that stay in the cache of its core, but two threads then wait for each other:
880 MB of long lines took both of them 0.68 s in steps of 512 KB, 0.60 s in steps of 4 MB and 0.52 s in steps of 8 MB.
Of short lines the arrays are as long as the letters, and 4 MB are best.
"""

from __future__ import annotations

from threading import local
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from grpo_cli.formats.jsonl import bits
from grpo_cli.formats.jsonl.lent import as_series
from grpo_cli.formats.jsonl.lines import filled

if TYPE_CHECKING:
    from typing import Self

    import polars as pl

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Words = np.ndarray[tuple[int, int], np.dtype[np.uint64]]
    Letters = np.ndarray[tuple[int], np.dtype[np.uint8]]

ROOM: Final = 8 << 20
WORD: Final = 8
_AROUND: Final = 64  # bytes before the first letter and behind the last one that may be taken as well
LONG: Final = 512  # letters of a line
_LF, _CR, _QUOTE, _BACKSLASH, _SPACE = b'\n\r"\\ '
_HALF: Final = np.uint64(32)
_KEPT: Final = np.array([(1 << 8 * size) - 1 for size in range(WORD + 1)], np.uint64)  # so many letters of a word
_LARGE: Final = 31 << 20  # the C library learns from what is smaller than 32 MB
_MINE: Final = local()


def keep_freed() -> None:
    """Have the C library keep freed memory for the next one who asks: it learns the size from one large piece.

    Without this the threads gave back and took anew every few lines what a step needs, 0.2 s for 880 MB.
    """
    np.empty(_LARGE, np.uint8)


class Window:
    """Letters of a file, where its lines end, and its quotes and backslashes as bits."""

    def __init__(self, room: int = ROOM) -> None:
        self.memory = np.zeros(room + 2 * _AROUND, np.uint8)
        self.beyond = self.memory[_AROUND:]  # the room, and some letters behind it
        self.room = self.beyond[:-_AROUND]
        self.size, self._long = 0, False

    @classmethod
    def mine(cls) -> Self:
        """Give the window of this thread."""
        found: Self | None = getattr(_MINE, "window", None)
        if found is None:
            found = _MINE.window = cls()
        return found

    def fill(self, handle: BinaryIO, most: int) -> None:
        """Read from where the file stands; of long lines twice as much."""
        self.size = filled(handle, self.room.data[: min(most, len(self.room) // (1 if self._long else 2))])

    def search(self) -> None:
        """Find the ends of lines, quotes and backslashes."""
        letters = self.room[: self.size]
        self.quotes, self.slashes = bits.equal(letters, _QUOTE), bits.equal(letters, _BACKSLASH)
        self.ends = bits.places(bits.below(letters, _SPACE))
        self.plain = bool((letters[self.ends] == _LF).all())
        if not self.plain:
            self.ends = bits.places(bits.equal(letters, _LF))
        self._long = len(self.ends) * LONG < self.size

    @property
    def letters(self) -> Letters:
        """The whole lines that were read."""
        return self.room[: self.ends[-1] + 1 if len(self.ends) else 0]

    def is_text(self) -> bool:
        """Tell that the lines hold no control characters but their ends (CRLF too), and are UTF-8."""
        if self.plain:
            return True
        returned = np.count_nonzero(self.memory[self.ends + (_AROUND - 1)] == _CR)
        return _is_text(self.letters, len(self.ends) + int(returned))

    def words(self, at: Ints, back: int, width: int) -> Words:
        """Letters in words of eight: from so many before each place on, as many words as so many letters take."""
        width = -(-width // WORD) * WORD
        return self.texts(at - back, width).view("<u8").reshape(-1, width // WORD)

    def texts(self, at: Ints, width: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """So many letters from each place on. numpy copies a whole piece for each index, in 5 ns for 8 bytes and for 64."""
        every = np.ndarray(len(self.memory) - width + 1, f"V{width}", self.memory, strides=(1,))
        return every[at + _AROUND]

    def views(self, start: Ints, size: Ints) -> pl.Series:
        """Texts that stay where they are: they last until the next lines are read."""
        import pyarrow as pa

        # https://arrow.apache.org/docs/format/Columnar.html: size, the first four letters, number of the memory and place
        # in it; of up to twelve letters all of them.
        first, rest = (self.texts(start + at, WORD).view("<u8") for at in (0, 4))
        views = np.empty((len(start), 2), np.uint64)
        views[:, 0] = size.view(np.uint64) | (first & _KEPT[np.minimum(size, 4)]) << _HALF
        views[:, 1] = (start + _AROUND).view(np.uint64) << _HALF
        short = np.flatnonzero(size <= 4 + WORD)
        views[short, 1] = rest[short] & _KEPT[np.maximum(size[short] - 4, 0)]
        buffers = [None, pa.py_buffer(views), pa.py_buffer(self.memory)]
        return as_series(pa.Array.from_buffers(pa.string_view(), len(start), buffers))


def _is_text(letters: Letters, controls: int) -> bool:
    import pyarrow as pa

    if np.count_nonzero(letters < _SPACE) != controls:
        return False
    ends = pa.py_buffer(np.array([0, len(letters)]))
    try:
        pa.LargeStringArray.from_buffers(1, ends, pa.py_buffer(letters)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def steps(width: int) -> list[int]:
    """Where words of eight letters stand that cover a text; the last ones overlap."""
    return [*range(0, width - WORD, WORD), max(0, width - WORD)] if width else []
