"""What is put into the lines: the text of one new member for each row.

Advantages repeat: eight rewards of 0 or 1 have 15 different ones. Each is spelt once for many blocks, and found again
by a hash without collisions, which takes a tenth of the time that spelling takes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.formats.jsonl.members import spelt

if TYPE_CHECKING:
    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Codes = np.ndarray[tuple[int], np.dtype[np.uint8]]
    Words = np.ndarray[tuple[int], np.dtype[np.uint64]]
    Letters = np.ndarray[tuple[int], np.dtype[np.uint8]]

_FEW: Final = 256  # different values that are spelt once: a code is one byte
_LOOKED_AT: Final = 4096  # rows that tell whether values are few
_SLOTS: Final = 16  # bits of a hash
_SHIFT: Final = np.uint64(64 - _SLOTS)
_FACTORS: Final = tuple(np.uint64(0x9E3779B97F4A7C15 * (2 * k + 1) % 2**64) for k in range(16))


@dataclass(frozen=True, slots=True)
class Inlay:
    """A key with the comma before it, texts of values, and which of them each row has (none: each its own).

    Few texts begin with the head themselves.
    """

    head: bytes
    letters: Letters
    starts: Ints
    sizes: Ints
    widest: int
    codes: Codes | None

    @property
    def width(self) -> int:
        """The size of the longest member."""
        return len(self.head) + self.widest

    def rows(self, start: int, end: int) -> Inlay:
        """Some of the rows."""
        if self.codes is None:
            return replace(self, starts=self.starts[start:end], sizes=self.sizes[start:end])
        return replace(self, codes=self.codes[start:end])

    def spans(self) -> tuple[Ints, Ints]:
        """Where the text of each row starts, and its size."""
        if self.codes is None:
            return self.starts, self.sizes
        return np.take(self.starts, self.codes), np.take(self.sizes, self.codes)

    def parts(self) -> list[bytes]:
        """The member of each row by itself."""
        letters, spans = self.letters.data, zip(self.starts.tolist(), self.sizes.tolist(), strict=True)
        each = [self.head + letters[start : start + size] for start, size in spans]
        return each if self.codes is None else [each[code] for code in self.codes.tolist()]


class _Known(NamedTuple):
    """A few different values, a hash that tells them apart, and their texts."""

    words: Words
    factor: np.uint64
    slots: Codes
    texts: Inlay

    def inlay(self, words: Words) -> Inlay | None:
        """The texts of values; none where one of them is not known."""
        codes = np.take(self.slots, (words * self.factor >> _SHIFT).view(np.int64))
        return replace(self.texts, codes=codes) if (np.take(self.words, codes) == words).all() else None


class Speller:
    """The members of one column, block by block, in any thread: what was spelt for one block serves the next ones."""

    def __init__(self, name: str) -> None:
        self._head = f",{json.dumps(name)}:".encode()
        self._known: _Known | None = None

    def inlay(self, values: pl.Series) -> Inlay:
        """Spell the members of some rows."""
        if values.dtype == pl.Float64:
            words = values.to_numpy().view(np.uint64)  # null is NaN, and both are written null
            found = self._known.inlay(words) if self._known is not None else None
            found = found or self._few(words)
            if found is not None:
                return found
        letters, starts, sizes = _letters(spelt(values))
        return Inlay(self._head, letters, starts, sizes, int(sizes.max(initial=0)), None)

    def _few(self, words: Words) -> Inlay | None:
        for looked_at in (words[:_LOOKED_AT], words):
            known = self._of(np.unique(looked_at))
            found = None if known is None else known.inlay(words)
            if known is None or found is not None:
                self._known = known or self._known
                return found
        return None

    def _of(self, words: Words) -> _Known | None:
        """Spell values that are few, with a hash that puts no two of them in one slot."""
        for factor in _FACTORS if 0 < len(words) <= _FEW else ():
            slots = np.zeros(1 << _SLOTS, np.uint8)
            at, codes = words * factor >> _SHIFT, np.arange(len(words), dtype=np.uint8)
            slots[at] = codes
            if (slots[at] == codes).all():
                texts = pl.select(self._head.decode() + spelt(pl.Series(words.view(np.float64)))).to_series()
                letters, starts, sizes = _letters(texts)
                return _Known(words, factor, slots, Inlay(b"", letters, starts, sizes, int(sizes.max()), codes))
        return None


def _letters(texts: pl.Series) -> tuple[Letters, Ints, Ints]:
    """The letters of all texts, as many behind them as the longest has, and where each text starts and its size."""
    array = texts.to_arrow(compat_level=pl.CompatLevel.oldest())
    ends = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    sizes = np.diff(ends)
    data = array.buffers()[2]
    letters = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    padding = np.zeros(int(sizes.max(initial=0)), np.uint8)
    return np.concatenate((letters, padding)), ends[:-1] - ends[0], sizes
