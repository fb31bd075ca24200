"""Where letters of some kind are in a block: one bit for each letter, in words of 64."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from grpo_cli.formats.jsonl.lent import as_series

if TYPE_CHECKING:
    from typing import Any

    import polars as pl

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Words = np.ndarray[tuple[int], np.dtype[np.uint64]]
    Letters = np.ndarray[tuple[int], np.dtype[np.uint8]]

SIZE: Final = 64
_ONE, _TOP = np.uint64(1), np.uint64(SIZE - 1)
_DENSE: Final = 2  # of so many words one holds a place or more: then looking at all of them is faster


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
        near = self._near(at)
        found: Ints = at + _first(near)
        far = np.flatnonzero(near == 0)
        if len(far):
            word = self._some[np.minimum(np.searchsorted(self._some, (at[far] >> 6) + 1), len(self._some) - 1)]
            found[far] = (word << 6) + _first(self.words[word])
        return found

    def any_in(self, start: Ints, end: Ints) -> bool:
        """Whether a bit between any of these places is set."""
        size = end - start
        if size.max(initial=0) > SIZE:
            return bool((self.next(start) < end).any())
        return bool((_first(self._near(start)) < size).any())

    def _near(self, at: Ints) -> Words:
        """The 64 bits from each place on."""
        index, shift = at >> 6, (at & (SIZE - 1)).astype(np.uint64)
        near = np.take(self.words, index) >> shift
        # A shift by 64 would be undefined: by 63 and one more it is zero.
        near |= np.take(self.words, index + 1) << (_TOP - shift) << _ONE
        return near


def _first(words: Words) -> Any:
    """The number of the lowest bit of each word, 64 where there is none."""
    return np.bitwise_count(~words & (words - _ONE))


def equal(letters: Letters, letter: int) -> Words:
    """Where this letter is. polars compares into bits; numpy takes 2.6 times as long with bools that are packed then."""
    return _words(_series(letters) == letter)


def below(letters: Letters, letter: int) -> Words:
    """Where letters are that come before this one as signed numbers: all bytes that are not ASCII do so as well."""
    return _words(_series(letters.view(np.int8)) < letter)


def _series(letters: np.ndarray[tuple[int], np.dtype[np.uint8 | np.int8]]) -> pl.Series:
    import pyarrow as pa

    kind = pa.uint8() if letters.dtype == np.uint8 else pa.int8()
    return as_series(pa.Array.from_buffers(kind, len(letters), [None, pa.py_buffer(letters)]))


def _words(found: pl.Series) -> Words:
    """The bits of a column of bools, and two words more than they take."""
    words = np.empty(len(found) // SIZE + 3, np.uint64)
    words[-3:] = 0
    letters, size = words.view(np.uint8), -(-len(found) // 8)
    letters[:size] = np.frombuffer(found.to_arrow().buffers()[1], np.uint8)[:size]
    if len(found) % 8:  # what is behind the last bit may be anything
        letters[size - 1] &= (1 << len(found) % 8) - 1
    return words


def places(words: Words) -> Ints:
    """Where bits are set."""
    some = np.flatnonzero(words != 0)  # of bools, it takes a fifth
    return _places(words[some], some) if len(some) * _DENSE < len(words) else _set(words)


def _places(words: Words, numbers: Ints) -> Ints:
    at = _set(words)
    found: Ints = (numbers[at >> 6] << 6) + (at & (SIZE - 1))
    return found


def _set(words: Words) -> Ints:
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little").view(bool))
