"""New members put before the last brace of every line, a block of lines at a time.

A block is cut at the braces by offsets alone, and pyarrow joins the cuts and the new texts into one buffer: each
byte is copied once, whatever the length of the lines, and no line becomes an object of Python.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np
import polars as pl

from grpo_cli.ahead import ahead
from grpo_cli.errors import InputChanged
from grpo_cli.formats.lines import is_blank, pieces
from grpo_cli.formats.members import spelt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from grpo_cli.io.local import Input

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]

_LF, _CR, _OPEN, _CLOSE = b"\n\r{}"
_BLANKS: Final = np.frombuffer(b" \t\r\n", np.uint8)


@dataclass(frozen=True, slots=True)
class _Cuts:
    """A block, the place of the last brace of each of its rows, and which rows have no member yet."""

    block: bytes
    braces: Ints
    empty: Bools


def spliced(source: Input, sink: BinaryIO, added: pl.DataFrame) -> int:
    """Copy the file with the new members in it, and tell how many rows it had."""
    rows = 0
    cuts = ahead(lambda piece: _cut(piece.read()), pieces(source))
    for height, woven in ahead(_joined, _numbered(cuts, added, source)):
        rows += height
        sink.writelines(woven)
    return rows


def _numbered(cuts: Iterable[_Cuts], added: pl.DataFrame, source: Input) -> Iterator[tuple[_Cuts, pl.DataFrame]]:
    """Every block with the new values of its rows."""
    row = 0
    for one in cuts:
        values = added[row : row + len(one.braces)]
        if len(values) < len(one.braces) or (one.braces < 0).any():  # a row without a brace was none before
            raise InputChanged.between_readings(source.name)
        yield one, values
        row += len(one.braces)


def _cut(block: bytes) -> _Cuts:
    """Find the braces. Nearly every line ends with one, which is seen for all at once; the others are looked at."""
    letters = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(letters == _LF)
    if not block.endswith(b"\n"):
        ends = np.append(ends, len(block))
    starts = np.concatenate(([0], ends[:-1] + 1))
    braces = ends - 1
    braces -= letters[np.maximum(braces, 0)] == _CR
    before = letters[np.maximum(braces - 1, 0)]
    usual = (braces > starts) & (letters[braces] == _CLOSE) & (before != _OPEN) & ~np.isin(before, _BLANKS)
    empty = np.zeros(len(ends), dtype=bool)
    is_row = np.ones(len(ends), dtype=bool)
    for at in np.flatnonzero(~usual).tolist():
        start, end = int(starts[at]), int(ends[at])
        line = block[start:end]
        is_row[at] = not is_blank(line)
        braces[at] = brace = block.rfind(b"}", start, end)
        empty[at] = line[: max(0, brace - start)].rstrip(b" \t\r\n").endswith(b"{")
    return _Cuts(block, braces[is_row], empty[is_row])


def _joined(numbered: tuple[_Cuts, pl.DataFrame]) -> tuple[int, list[bytes | memoryview]]:
    """The pieces of the block with its new members."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cuts, values = numbered
    count = len(cuts.braces)
    if not count:
        return 0, [cuts.block]
    marks = np.concatenate(([0], cuts.braces))
    buffers = [None, pa.py_buffer(marks), pa.py_buffer(cuts.block)]
    between = pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, buffers)
    woven = pc.binary_join_element_wise(between, *_members(cuts.empty, values), _scalar(b""))
    return count, [memoryview(woven.buffers()[2]), memoryview(cuts.block)[marks[-1] :]]


def _scalar(text: bytes) -> pa.Scalar:
    """A constant. Not `pa.scalar`: that looks for pandas first, and where pandas is there it takes 0.2 s to load."""
    import pyarrow as pa

    offsets = np.array([0, len(text)])
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(text)])[0]


def _members(empty: Bools, values: pl.DataFrame) -> Iterator[pa.Array | pa.Scalar]:
    """Keys and values in turn, as pyarrow takes them; the first key has no comma where the object was empty."""
    import pyarrow as pa

    for at, series in enumerate(values):
        key = json.dumps(series.name)
        if at == 0 and empty.any():
            bare = pl.select(pl.when(pl.Series(empty)).then(pl.lit(f"{key}:")).otherwise(pl.lit(f",{key}:")))
            yield bare.to_series().to_arrow().cast(pa.large_binary())
        else:
            yield _scalar(f",{key}:".encode())
        yield spelt(series).to_arrow().cast(pa.large_binary())
