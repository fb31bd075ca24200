"""What is put into the lines: the text of one new member for each row.

Advantages repeat: eight rewards of 0 or 1 have 15 different ones. Each is spelt once a block, and found again by a
hash without collisions, which takes a tenth of the time that spelling takes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from grpo_cli.formats.members import spelt

if TYPE_CHECKING:
    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Words = np.ndarray[tuple[int], np.dtype[np.uint64]]
    Letters = np.ndarray[tuple[int], np.dtype[np.uint8]]

_FEW: Final = 256  # different values that are spelt once
_LOOKED_AT: Final = 4096  # rows that tell whether values are few
_SLOTS: Final = 16  # bits of a hash
_SHIFT: Final = np.uint64(64 - _SLOTS)
_FACTORS: Final = tuple(np.uint64(0x9E3779B97F4A7C15 * (2 * k + 1) % 2**64) for k in range(16))


@dataclass(frozen=True, slots=True)
class Inlay:
    """A key with the comma before it, texts of values, and which of them each row has (none: each its own)."""

    head: bytes
    letters: Letters
    starts: Ints
    sizes: Ints
    codes: Ints | None

    @classmethod
    def of(cls, values: pl.Series) -> Inlay:
        """Spell the members of a column."""
        few = _few(values)
        known, codes = (values, None) if few is None else few
        letters, offsets = _letters(spelt(known))
        return cls(f",{json.dumps(values.name)}:".encode(), letters, offsets[:-1], np.diff(offsets), codes)

    @property
    def width(self) -> int:
        """The size of the longest member."""
        return len(self.head) + int(self.sizes.max(initial=0))

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


def _letters(texts: pl.Series) -> tuple[Letters, Ints]:
    import pyarrow as pa

    array = texts.to_arrow().cast(pa.large_string())
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    data = array.buffers()[2]
    letters = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return letters[offsets[0] : offsets[-1]], offsets - offsets[0]


def _few(values: pl.Series) -> tuple[pl.Series, Ints] | None:
    """The different values and which of them each row has, if they are few."""
    if values.dtype != pl.Float64:
        return None
    words = values.to_numpy().view(np.uint64)  # null is NaN, and both are written null
    for looked_at in (words[:_LOOKED_AT], words):
        known = np.unique(looked_at)
        if len(known) > _FEW:
            return None
        codes = _codes(known, words)
        if codes is not None and (np.take(known, codes) == words).all():
            return pl.Series(values.name, known.view(np.float64)), codes
    return None


def _codes(known: Words, words: Words) -> Ints | None:
    """The place of each word among the known ones; of a word that is not there any place."""
    for factor in _FACTORS:
        slots = known * factor >> _SHIFT
        table = np.full(1 << _SLOTS, len(known) - 1)
        table[slots] = np.arange(len(known))
        if (table[slots] == np.arange(len(known))).all():  # no two in one slot
            return np.take(table, (words * factor >> _SHIFT).view(np.int64))
    return None
