"""Lines compared with a mould, and the values that are found between what is the same in all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from grpo_cli.formats.jsonl.values import series, spread
from grpo_cli.formats.jsonl.window import WORD, steps

if TYPE_CHECKING:
    from typing import Self

    import polars as pl

    from grpo_cli.formats.jsonl.mould import Mould
    from grpo_cli.formats.jsonl.quotes import Quotes
    from grpo_cli.formats.jsonl.window import Window

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Words = np.ndarray[tuple[int], np.dtype[np.uint64]]
    Cells = np.ndarray[tuple[int], np.dtype[np.void]]

_STEP: Final = 64  # letters of a constant that are compared at a time
_WIDE: Final = 4  # texts are taken as words of one width where those are no more than so many times the window


@dataclass(frozen=True, slots=True)
class _Value:
    """Where a value starts and ends in each line, and its first eight letters if it is no text."""

    window: Window
    found: Quotes
    start: Ints
    end: Ints
    words: Words

    @property
    def sizes(self) -> Ints:
        return self.end - self.start

    def texts(self) -> pl.Series | None:
        """The texts between these places. Those that repeat the line before are made once."""
        if self.found.escaped_in(self.start, self.end):
            return None
        start, size = self.start, self.sizes
        widest = int(size.max(initial=0))
        beyond = not widest or int(start[-1]) + widest + WORD > len(self.window.beyond)
        if beyond or widest * len(size) > _WIDE * len(self.window.memory):
            return series(_gathered(self.window.letters, start, size), size)
        words = self.window.words(start, 0, widest)
        if widest % WORD or size.min() < widest:
            words &= _zeros_behind(words.shape[1] * WORD)[size].view("<u8").reshape(words.shape)
        change = np.ones(len(size), bool)
        np.not_equal(words[1:, 0], words[:-1, 0], out=change[1:])
        for number in range(1, words.shape[1]):
            change[1:] |= words[1:, number] != words[:-1, number]
        heads, size = words[change].view(np.uint8), size[change]
        kept = np.arange(heads.shape[1]) < size[:, None]
        return spread(series(heads[kept] if not kept.all() else heads.ravel(), size), change)

    def views(self, rows: Ints) -> pl.Series:
        """The texts of some rows, for a while."""
        return self.window.views(self.start[rows], self.sizes[rows])


class Cast:
    """Whole lines that have been compared with their mould."""

    def __init__(self, window: Window, mould: Mould, found: Quotes) -> None:
        self._window, self._mould, self._found = window, mould, found
        self.values = list[_Value]()

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
            self.values.append(_Value(self._window, self._found, start, end, words))
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
        for low in range(0, max(1, len(constant)), _STEP):
            part = constant[low : low + _STEP]
            more = width if low + _STEP >= len(constant) else 0
            found = self._window.texts(at - (len(constant) - low), max(WORD, len(part) + more))
            if not all(_are(found, step, part[step : step + WORD]) for step in steps(len(part))):
                return None
        return np.ndarray(len(at), "<u8", found, len(part) if width else 0, (found.itemsize,)).copy()


def _are(cells: Cells, at: int, letters: bytes) -> bool:
    """Whether letters stand at a place of each cell."""
    words = np.ndarray(len(cells), "<u8", cells, at, (cells.itemsize,))
    if len(letters) < WORD:
        words = words << np.uint64(8 * (WORD - len(letters)))
    return not (words != np.uint64(int.from_bytes(letters.rjust(WORD, b"\0"), "little"))).any()


def _zeros_behind(width: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """For each size of a text the letters of so many that are its own, as a mask."""
    kept = np.arange(width) < np.arange(width + 1)[:, None]
    return (kept * np.uint8(0xFF)).view(f"V{width}").ravel()


def _gathered(letters: np.ndarray[tuple[int], np.dtype[np.uint8]], start: Ints, size: Ints) -> Any:
    behind = np.cumsum(size)
    return letters[np.repeat(start - behind + size, size) + np.arange(behind[-1])]
