"""Where the lines of a block have their last braces: there a new member goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from grpo_cli.formats.jsonl import bits
from grpo_cli.formats.jsonl.lines import is_blank

if TYPE_CHECKING:
    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Places = np.ndarray[tuple[int], np.dtype[np.uint32]]
    Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
    Letters = np.ndarray[tuple[int], np.dtype[np.uint8]]

_LF, _CR, _CLOSE = b"\n\r}"
_BLANKS: Final = b" \t\r\n"
# Nearly always a line ends with a brace that has neither a blank nor another brace before it: pairs of letters.
_BEFORE: Final = ~np.isin(np.arange(256), np.frombuffer(b"{" + _BLANKS, np.uint8))
_USUAL: Final = np.outer(np.arange(256) == _CLOSE, _BEFORE).ravel()


def are_braces(letters: Letters, places: Places) -> bool:
    """Tell whether a brace stands at each of the places."""
    return not len(places) or (int(places[-1]) < len(letters) and bool((np.take(letters, places) == _CLOSE).all()))


def braces(letters: Letters) -> tuple[Ints, Bools]:
    """The last brace of each row, none in what is no object, and which rows are without a member."""
    # Nearly every line ends with one, which is seen for all lines at once.
    ends = _ends(letters)
    starts = np.concatenate(([0], ends[:-1] + 1))
    pairs, found = _pairs(letters, ends - 2), ends - 1
    returned = pairs >> 8 == _CR
    if returned.any():
        found -= returned
        pairs = _pairs(letters, found - 1)
    usual = _USUAL[pairs] & (found > starts)
    empty, is_row = np.zeros(len(ends), bool), np.ones(len(ends), bool)
    for at in np.flatnonzero(~usual).tolist():
        line = letters[starts[at] : ends[at]].tobytes()
        brace = line.rfind(b"}")
        is_row[at] = not is_blank(line)
        found[at] = starts[at] + brace if brace >= 0 else -1
        empty[at] = line[: max(0, brace)].rstrip(_BLANKS).endswith(b"{")
    return (found, empty) if is_row.all() else (found[is_row], empty[is_row])


def _ends(letters: Letters) -> Ints:
    """Where lines end; the last one may do so without a line feed."""
    found = bits.places(bits.equal(letters, _LF))
    return np.append(found, len(letters)) if len(letters) and letters[-1] != _LF else found


def _pairs(letters: Letters, at: Ints) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    """Two letters from each place on, the second one in the upper half."""
    if len(letters) < 2:  # noqa: PLR2004 - a pair
        return np.zeros(len(at), np.uint16)
    every = np.ndarray(len(letters) - 1, "V2", letters, strides=(1,))
    return every[np.maximum(at, 0)].view("<u2")
