"""The quotes of a block of JSON lines that begin and end its strings, found for all lines at once.

A quote behind a backslash is a letter, unless that backslash is one too. Which is which is worked out on bits, 64
letters at a time, as simdjson does it (https://arxiv.org/abs/1902.08318).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from typing import Self

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Bits = np.ndarray[tuple[int], np.dtype[np.uint64]]
    Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
    Letters = np.ndarray[tuple[int], np.dtype[np.uint8]]

_LF, _QUOTE, _BACKSLASH, _SPACE, _U = b'\n"\\ u'
_OTHER_ESCAPES: Final = np.isin(np.arange(256), np.frombuffer(b"/bfnrtu", np.uint8))
_HEX: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789abcdefABCDEF", np.uint8))
_ODD: Final = np.uint64(0xAAAAAAAAAAAAAAAA)
_ONE, _TOP = np.uint64(1), np.uint64(63)
_BITS: Final = 64
_DENSE: Final = 64  # one place in so many letters or more: then looking at every letter is faster


@dataclass(frozen=True, slots=True)
class Quotes:
    """The letters of a block, its line feeds, the quotes around strings, and which letters are escaped (as bits)."""

    letters: Letters
    ends: Ints
    places: Ints
    escaped: Bits | None

    @classmethod
    def of(cls, block: bytes) -> Self | None:
        """Look at whole lines; none where one of them holds what no JSON string may hold."""
        letters = np.frombuffer(block, np.uint8)
        ends = _places(letters == _LF)
        # As signed numbers all bytes that are not ASCII lie below the space as well.
        if np.count_nonzero(letters.view(np.int8) < _SPACE) != len(ends) and not _is_text(block, letters, len(ends)):
            return None
        quotes, backslashes = letters == _QUOTE, letters == _BACKSLASH
        if not backslashes.any():
            return cls(letters, ends, _places(quotes), None)
        slashes, bits = _packed(backslashes), _packed(quotes)
        escaped = _escaped(slashes)
        if not _well_escaped(letters, escaped & ~(slashes | bits)):
            return None
        return cls(letters, ends, _set(bits & ~escaped), escaped)

    def escaped_in(self, start: Ints, end: Ints) -> bool:
        """Whether a letter between any of these places is escaped."""
        if self.escaped is None:
            return False
        bits = self.escaped
        before = np.concatenate(([0], np.cumsum(np.bitwise_count(bits), dtype=np.int64)))

        def count(at: Ints) -> Ints:
            below = (_ONE << (at & (_BITS - 1)).astype(np.uint64)) - _ONE
            found: Ints = before[at >> 6] + np.bitwise_count(bits[at >> 6] & below)
            return found

        return bool((count(end) != count(start)).any())


def _is_text(block: bytes, letters: Letters, lines: int) -> bool:
    """Tell that there are no control characters but line feeds, and that all of it is UTF-8."""
    if np.count_nonzero(letters < _SPACE) != lines:
        return False
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


def _places(mask: Bools) -> Ints:
    """Where the mask holds. Where that is seldom, eight letters are looked at together."""
    whole = len(mask) // 8 * 8
    words = mask[:whole].view(np.uint64)
    some = np.flatnonzero(words)
    if len(some) * _DENSE > len(mask):
        return np.flatnonzero(mask)
    row, column = np.nonzero(mask[:whole].reshape(-1, 8)[some])
    return np.concatenate((some[row] * 8 + column, np.flatnonzero(mask[whole:]) + whole))


def _packed(mask: Bools) -> Bits:
    """One bit a letter, and one word more than that takes."""
    found = np.zeros(len(mask) // _BITS * 8 + 16, np.uint8)
    bits = np.packbits(mask, bitorder="little")
    found[: len(bits)] = bits
    return found.view("<u8")


def _set(bits: Bits) -> Ints:
    """Where bits are set."""
    some = np.flatnonzero(bits)
    letters = np.unpackbits(bits[some].view(np.uint8), bitorder="little").reshape(-1, _BITS)
    row, column = np.nonzero(letters)
    found: Any = some[row] * _BITS + column
    return found  # type: ignore[no-any-return]


def _escaped(slashes: Bits) -> Bits:
    """The letters behind a backslash that is no letter itself."""
    carried = np.zeros(len(slashes), np.uint64)
    found, out = _with_carry(slashes, carried)
    carry = np.concatenate((np.zeros(1, np.uint64), out[:-1]))
    while len(changed := np.flatnonzero(carry != carried)):  # runs of backslashes that go on from word to word
        carried[changed] = carry[changed]
        found[changed], out[changed] = _with_carry(slashes[changed], carried[changed])
        carry = np.concatenate((np.zeros(1, np.uint64), out[:-1]))
    return found


def _with_carry(slashes: Bits, carried: Bits) -> tuple[Bits, Bits]:
    """Escaped letters of each word when its first letter is (1) or is not escaped, and the same for the next word."""
    possible = slashes & ~carried
    series = ((possible << _ONE) | _ODD) - possible
    codes = series ^ _ODD
    return codes ^ (slashes | carried), (codes & slashes) >> _TOP


def _well_escaped(letters: Letters, others: Bits) -> bool:
    r"""Whether escaped letters (but quotes and backslashes) may be escaped, and \u has four digits behind it."""
    places = _set(others)
    if not len(places):
        return True
    here = letters[np.minimum(places, len(letters) - 1)]
    if not _OTHER_ESCAPES[here].all():
        return False
    digits = np.minimum(places[here == _U][:, None] + np.arange(1, 5), len(letters) - 1)
    return bool(_HEX[letters[digits]].all())
