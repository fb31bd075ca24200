"""Where letters of some kind are in a block: one bit for each letter, in words of 64."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from typing import Any

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Words = np.ndarray[tuple[int], np.dtype[np.uint64]]
    Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]

SIZE: Final = 64
_ONE, _TOP = np.uint64(1), np.uint64(SIZE - 1)
_DENSE: Final = 4  # of so many words one holds a place or more: then looking at every letter is faster


class Bits:
    """The bits of a block, and at least one word of none behind them."""

    def __init__(self, words: Words) -> None:
        self.words = words

    @cached_property
    def _some(self) -> Ints:
        """The words that are not empty, and behind them the last one, which is."""
        return np.append(np.flatnonzero(self.words != 0), len(self.words) - 1)

    def places(self) -> Ints:
        """Where bits are set."""
        return _places(self.words[self._some], self._some)

    def next(self, at: Ints) -> Ints:
        """The first bit at or behind each place; behind the last one the end of all words."""
        index, shift = at >> 6, (at & (SIZE - 1)).astype(np.uint64)
        near = np.take(self.words, index) >> shift
        # A shift by 64 would be undefined: by 63 and one more it is zero.
        near |= np.take(self.words, index + 1) << (_TOP - shift) << _ONE
        found: Ints = at + _first(near)
        far = np.flatnonzero(near == 0)
        if len(far):
            word = self._some[np.minimum(np.searchsorted(self._some, index[far] + 1), len(self._some) - 1)]
            found[far] = (word << 6) + _first(self.words[word])
        return found


def _first(words: Words) -> Any:
    """The number of the lowest bit of each word, 64 where there is none."""
    return np.bitwise_count(~words & (words - _ONE))


def packed(mask: Bools) -> Words:
    """One bit a letter, and two words more than that takes."""
    found = np.zeros((len(mask) // SIZE + 3) * 8, np.uint8)
    bits = np.packbits(mask, bitorder="little")
    found[: len(bits)] = bits
    return found.view("<u8")


def places(mask: Bools) -> Ints:
    """Where a mask holds."""
    words = packed(mask)
    some = np.flatnonzero(words != 0)  # of bools, it takes a fifth
    return np.flatnonzero(mask) if len(some) * _DENSE > len(words) else _places(words[some], some)


def _places(words: Words, numbers: Ints) -> Ints:
    at = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little").view(bool))
    found: Ints = (numbers[at >> 6] << 6) + (at & (SIZE - 1))
    return found
