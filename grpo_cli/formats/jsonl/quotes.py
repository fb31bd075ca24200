"""The quotes of a block of JSON lines that begin and end its strings, found for all lines at once.

A quote behind a backslash is a letter, unless that backslash is one too. Which is which is worked out on bits, 64
letters at a time, as simdjson does it (https://arxiv.org/abs/1902.08318).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from grpo_cli.formats.jsonl.bits import Bits

if TYPE_CHECKING:
    from typing import Self

    from grpo_cli.formats.jsonl.bits import Ints, Words
    from grpo_cli.formats.jsonl.window import Letters, Window

    Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]

_U: Final = ord("u")
_OTHER_ESCAPES: Final = np.isin(np.arange(256), np.frombuffer(b"/bfnrtu", np.uint8))
_HEX: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789abcdefABCDEF", np.uint8))
_ODD: Final = np.uint64(0xAAAAAAAAAAAAAAAA)
_ONE: Final = np.uint64(1)


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
        others = slashes | quotes
        others &= escaped
        others ^= escaped
        if not _well_escaped(window.letters, Bits(others)):
            return None
        escaped &= quotes
        escaped ^= quotes
        return cls(window.letters, window.ends, Bits(escaped), Bits(slashes))

    def escaped_in(self, start: Ints, end: Ints) -> bool:
        """Whether a letter between any of these places is escaped."""
        return self.slashes is not None and self.slashes.any_in(start, end)


def _escaped(slashes: Words) -> Words:
    """The letters behind a backslash that is no letter itself."""
    found, out = _with_carry(slashes, None)
    at = np.flatnonzero(out[:-1]) + 1
    found[at] |= _ONE
    at = at[slashes[at] & _ONE != 0]
    while len(at):  # runs of backslashes that go on from word to word
        found[at], more = _with_carry(slashes[at], out[at - 1].astype(np.uint64))
        changed = more != out[at]
        out[at] = more
        at = at[changed & (at < len(slashes) - 1)] + 1
    return found


def _with_carry(slashes: Words, carried: Words | None) -> tuple[Words, Bools]:
    """Escaped letters of each word when its first letter is (1) or is not escaped, and whether that of the next word is."""
    possible = slashes if carried is None else slashes & ~carried
    codes = possible << _ONE
    codes |= _ODD
    codes -= possible
    codes ^= _ODD
    found = codes ^ (slashes if carried is None else slashes | carried)
    codes &= slashes
    return found, codes.view(np.int64) < 0  # the highest bit


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
