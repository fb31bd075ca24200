"""The quotes of a block of JSON lines that begin and end its strings, found for all lines at once.

A quote behind a backslash is a letter, unless that backslash is one too. Which is which is worked out on bits, 64
letters at a time, as simdjson does it (https://arxiv.org/abs/1902.08318).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from grpo_cli.formats.bits import Bits

if TYPE_CHECKING:
    from typing import Self

    from grpo_cli.formats.bits import Ints, Words
    from grpo_cli.formats.window import Letters, Window

_U: Final = ord("u")
_OTHER_ESCAPES: Final = np.isin(np.arange(256), np.frombuffer(b"/bfnrtu", np.uint8))
_HEX: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789abcdefABCDEF", np.uint8))
_ODD: Final = np.uint64(0xAAAAAAAAAAAAAAAA)
_ONE, _TOP = np.uint64(1), np.uint64(63)
_PART: Final = 1 << 14  # words that are worked on at a time: in the first cache it takes a third of the time


@dataclass(frozen=True, slots=True)
class Quotes:
    """The whole lines of a window, where each of them ends, and the quotes around strings and the backslashes in them."""

    letters: Letters
    ends: Ints
    quotes: Bits
    slashes: Bits | None

    @classmethod
    def of(cls, window: Window) -> Self | None:
        """Look at what was read; none where no line is whole, or one of them holds what no JSON string may hold."""
        if not len(window.ends) or not window.is_text():
            return None
        quotes, slashes = window.quotes, window.slashes
        if not np.bitwise_or.reduce(slashes):
            return cls(window.letters, window.ends, Bits(quotes), None)
        escaped = _escaped(slashes)
        if not _well_escaped(window.letters, Bits(escaped & ~(slashes | quotes))):
            return None
        return cls(window.letters, window.ends, Bits(quotes & ~escaped), Bits(slashes))

    def escaped_in(self, start: Ints, end: Ints) -> bool:
        """Whether a letter between any of these places is escaped."""
        return self.slashes is not None and bool((self.slashes.next(start) < end).any())


def _escaped(slashes: Words) -> Words:
    """The letters behind a backslash that is no letter itself."""
    found, out = _with_carry(slashes, None)
    carried = np.zeros(len(slashes), np.uint64)
    at = np.flatnonzero(out != 0)
    while len(at := at[at < len(slashes) - 1] + 1):  # runs of backslashes that go on from word to word
        carried[at] = out[at - 1]
        found[at], more = _with_carry(slashes[at], carried[at])
        changed = more != out[at]
        out[at] = more
        at = at[changed]
    return found


def _with_carry(slashes: Words, carried: Words | None) -> tuple[Words, Words]:
    """Escaped letters of each word when its first letter is (1) or is not escaped, and the same for the next word."""
    found, out = np.empty_like(slashes), np.empty_like(slashes)
    for start in range(0, len(slashes), _PART):
        part = slice(start, start + _PART)
        here = slashes[part]
        possible = here if carried is None else here & ~carried[part]
        codes = (((possible << _ONE) | _ODD) - possible) ^ _ODD
        np.bitwise_xor(codes, here if carried is None else here | carried[part], out=found[part])
        np.right_shift(codes & here, _TOP, out=out[part])
    return found, out


def _well_escaped(letters: Letters, others: Bits) -> bool:
    r"""Whether escaped letters (but quotes and backslashes) may be escaped, and \u has four digits behind it."""
    if not np.bitwise_or.reduce(others.words):
        return True
    places = others.places()
    places = places[places < len(letters)]
    here = letters[places]
    if not _OTHER_ESCAPES[here].all():
        return False
    digits = np.minimum(places[here == _U][:, None] + np.arange(1, 5), len(letters) - 1)
    return bool(_HEX[letters[digits]].all())
