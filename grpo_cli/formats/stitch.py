"""Short lines put together with their new members, all of a block at once.

Each line is copied with what happens to stand behind it, as many bytes as the longest has, one after the other: the
next one covers what was too much. Then the members are put between them, all of one size together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_cli.formats.inlay import Inlay

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Letters = np.ndarray[tuple[int], np.dtype[np.uint8]]

WIDEST: Final = 512  # bytes of a line: beyond that a piece of a system call for each is not slower
_ROWS: Final = 1 << 16  # that are worked on at a time


def room(size: int, inlays: Sequence[Inlay], rows: int) -> int:
    """Bytes that so many bytes of lines need with new members in them."""
    return size + sum(one.width for one in inlays) * rows + WIDEST


def stitched(out: Letters, memory: Letters, marks: Ints, inlays: Sequence[Inlay]) -> int:
    """Write what lies between the marks with a new member at each, and tell how many bytes that is.

    Both memories have as much behind them as the longest line takes.
    """
    done = 0
    for start in range(0, len(marks) - 1, _ROWS):
        here = [one.rows(start, start + _ROWS) for one in inlays]
        done += _some(out[done:], memory, marks[start : start + _ROWS + 1], here)
    return done


def _some(out: Letters, memory: Letters, marks: Ints, inlays: Sequence[Inlay]) -> int:
    between, spans = np.diff(marks), [one.spans() for one in inlays]
    whole = between + sum(len(one.head) for one in inlays)
    for _, sizes in spans:
        whole += sizes
    ends = np.cumsum(whole)
    at = ends - whole
    width = int(between.max())
    # Of places that overlap the last one counts: numpy assigns in the order of the index.
    _every(out, width)[at] = _every(memory, width)[marks[:-1]]
    at += between
    for one, (starts, sizes) in zip(inlays, spans, strict=True):
        _every(out, len(one.head))[at] = np.void(one.head)
        at += len(one.head)
        for size in np.flatnonzero(np.bincount(sizes)).tolist():
            rows = np.flatnonzero(sizes == size)
            _every(out, size)[at[rows]] = _every(one.letters, size)[starts[rows]]
        at += sizes
    return int(ends[-1])


def _every(memory: Letters, width: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """So many letters from each place on."""
    return np.ndarray(len(memory) - width + 1, f"V{width}", memory, strides=(1,))
