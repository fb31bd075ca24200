"""Numbers of up to eight letters, read from words of eight: all at once, by arithmetic.

A decimal number of so few digits is a whole number divided by a power of ten, both of which a float holds exactly, so
that the one division rounds as Python's reading of the text does. Longer ones are looked at only as far as their dot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Words = np.ndarray[tuple[int], np.dtype[np.uint64]]
    Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
    Floats = np.ndarray[tuple[int], np.dtype[np.float64]]

WORD: Final = 8


def _each(byte: int) -> np.uint64:
    return np.uint64(int.from_bytes(bytes([byte]) * WORD, "little"))


_MINUS, _ZERO = np.uint64(ord("-")), np.uint64(ord("0"))
_ZEROS, _DOTS, _LOW, _HIGH, _ABOVE_9 = map(_each, (0x30, 0x2E, 0x7F, 0x80, 0x76))
_BYTE, _SEVEN, _ONE, _FIRST, _LOWEST = map(np.uint64, (8, 7, 1, 0xFF, 0x80))
# Of a number that is moved to the end of its word: how far, and the zeros that then stand before it.
_MOVES: Final = np.array([WORD * 8 - 1, *((WORD - size) * 8 for size in range(1, WORD + 1))], np.uint64)
_FILLS: Final = np.array([int(_ZEROS) >> 8 * size for size in range(WORD)] + [0], np.uint64)
_TENS: Final = 10.0 ** np.arange(WORD)
# Two, four and eight digits become one number: what is kept, by how much it is multiplied and moved.
_PAIRS: Final = tuple(
    (np.uint64(mask), np.uint64(times), np.uint64(move))
    for mask, times, move in (
        (0x0F0F0F0F0F0F0F0F, 10 * 256 + 1, 8),
        (0x00FF00FF00FF00FF, 100 * 65536 + 1, 16),
        (0x0000FFFF0000FFFF, 10_000 * (1 << 32) + 1, 32),
    )
)


class Numbers(NamedTuple):
    """The digits of each number without its dot, how many of them stand behind it, its sign, and whether it is one."""

    digits: Words
    behind: Any  # of all of them, if it is the same; none: no number has a dot
    minus: Bools | None
    known: Bools

    def floats(self) -> Floats:
        """Give them as Python reads them: -0.0 has a sign, and the whole number -0 has none."""
        found = self.digits.astype(np.float64)
        if self.behind is not None:
            found /= _TENS[self.behind]
        if self.minus is not None:
            signed = self.minus & ((found != 0) if self.behind is None else (found != 0) | (self.behind > 0))
            np.negative(found, out=found, where=signed)
        return found

    def whole(self) -> Ints | None:
        """Give them as whole numbers, if they are."""
        if self.behind is not None:
            return None
        found = self.digits.astype(np.int64)
        return found if self.minus is None else np.where(self.minus, -found, found)


def read(words: Words, sizes: Ints) -> Numbers:
    """Read the number at the beginning of each word; `known` tells which are numbers as JSON writes them."""
    if (sizes > WORD).all():
        return Numbers(np.zeros_like(words), None, None, np.zeros(len(words), bool))
    first = words & _FIRST
    minus = first == _MINUS
    signed = minus.any()
    if signed:
        words = np.where(minus, words >> _BYTE, words)
        sizes = sizes - minus
        first = words & _FIRST
    size = _one_of(sizes)
    known = np.full(len(words), True) & (size > 0) & (size <= WORD)  # noqa: FBT003
    size = np.clip(size, 0, WORD)
    words = (words << _MOVES[size]) | _FILLS[size]
    # The high bit of each byte that is a dot: https://graphics.stanford.edu/~seander/bithacks.html, without false ones.
    dots = words ^ _DOTS
    dots = _one_of(~(((dots & _LOW) + _LOW) | dots | _LOW))
    behind, dot = None, dots != 0
    if dot.any():
        words, behind = _without_dot(words, dots)
        known &= (np.bitwise_count(dots) <= 1) & ((behind > 0) | ~dot) & (behind < size - dot)
        size = size - behind - dot
    known &= (first != _ZERO) | (size == 1)
    words = words ^ _ZEROS
    known &= (((words + _ABOVE_9) | words) & _HIGH) == 0
    for mask, times, move in _PAIRS:
        words = ((words & mask) * times) >> move
    return Numbers(words, behind, minus if signed else None, known)


def begin_decimals(words: Words) -> Bools:
    """Tell which words begin as a decimal number of JSON does, up to the first digit behind its dot."""
    words = np.where((words & _FIRST) == _MINUS, words >> _BYTE, words)
    other = words ^ _ZEROS
    # The high bit of each byte that is no digit; right up to the first such byte and the one behind it.
    other = ((other + _ABOVE_9) | other) & _HIGH
    dot = other & (~other + _ONE)
    behind = dot << _BYTE
    known: Bools = ((words ^ _DOTS) & (dot - (dot >> _SEVEN))) == 0
    known &= (behind != 0) & (other & behind == 0) & (dot != _LOWEST)
    known &= ((words & _FIRST) != _ZERO) | (dot == _LOWEST << _BYTE)
    return known


def _one_of(values: Any) -> Any:
    """The value that all of them are, if they are; what is done to it is done once."""
    return values[:1] if (values == values[:1]).all() else values


def _without_dot(words: Words, dots: Any) -> tuple[Words, Any]:
    """The words with what stands before the dot moved onto it, and the number of digits behind it."""
    before = (dots >> _SEVEN) - _ONE
    after = ~((dots << _ONE) - _ONE)
    moved = (words & after) | ((words & before) << _BYTE) | _ZERO
    behind = (np.bitwise_count(after) >> 3).astype(np.int64)
    none = dots == 0
    if none.any():
        moved, behind = np.where(none, words, moved), np.where(none, 0, behind)
    return moved, behind
