"""A column of lists with one number for some tokens and 0 for the others, stored as that number and a bit per token.

As lists such a column takes 64 times as much memory, so it becomes lists, or their texts, only where some rows of it are
written. If its tokens have different numbers, these are in a temporary file. A frame of new columns may have one such
column; its other columns are plain.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import polars as pl

from grpo_cli.values.slices import Ints

if TYPE_CHECKING:
    import pyarrow as pa

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]

_VALUE = ".value"
_TOKENS = ".tokens"
_START = ".start"
_FILE = ".file"
_BYTES = 8  # of a number
AT_ONCE = 1 << 21  # tokens, about: the most that lists in memory have at a time


class Numbers:
    """An open file with the numbers of tokens; nothing closes it before the last of them is written."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


_NAMES = count()
_FILES = WeakValueDictionary[int, Numbers]()  # by the names that columns have


class Tokens(NamedTuple):
    """The tokens of rows: true where they count, and if they have numbers of their own, where those of a row start in a file."""

    counting: pl.Series
    file: Numbers | None = None
    starts: pl.Series | None = None


def on_tokens(values: pl.Series, tokens: Tokens) -> pl.Series:
    """The column that has each value, or the numbers of the file, on the true tokens of its row; a row whose tokens are null is null."""
    frame = pl.DataFrame([values.alias(_VALUE), tokens.counting.alias(_TOKENS)])
    if tokens.file is not None and tokens.starts is not None:
        name = next(_NAMES)
        _FILES[name] = tokens.file
        frame = frame.with_columns(tokens.starts.alias(_START), pl.lit(name).alias(_FILE))
    return frame.to_struct(values.name)


def is_on_tokens(series: pl.Series) -> bool:
    """Whether a column is stored in this way."""
    return _TOKENS in _fields(series)


def has_numbers(series: pl.Series) -> bool:
    """Whether the tokens of a row have different numbers."""
    return _FILE in _fields(series)


def _fields(series: pl.Series) -> list[str]:
    return [field.name for field in series.dtype.fields] if isinstance(series.dtype, pl.Struct) else []


def token_counts(series: pl.Series) -> Ints:
    """How many tokens each row of such a column has."""
    return lengths(series.struct.unnest()[_TOKENS])


def lengths(lists: pl.Series) -> Ints:
    """The length of each list; 0 of null."""
    return lists.list.len().fill_null(0).cast(pl.Int64).to_numpy()


def with_lists(frame: pl.DataFrame, which: Callable[[pl.Series], bool] = is_on_tokens) -> pl.DataFrame:
    """The frame with these columns as lists of numbers."""
    return frame.with_columns(_lists(series) for series in frame if which(series))


def portions(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The frame in slices whose lists fit into memory; a frame without lists stays whole."""
    counts = np.zeros(len(frame), np.int64)
    for series in frame:
        if is_on_tokens(series):
            counts += token_counts(series)
    ends = np.cumsum(counts)
    start = 0
    while True:  # a frame without rows is a slice as well
        base = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, base + AT_ONCE, side="right")))
        yield frame[start:end]
        start = end
        if start >= len(frame):
            return


def json_texts(series: pl.Series) -> pl.Series:
    """The lists of such a column as JSON; NaN and infinity, which JSON does not have, are null."""
    values, tokens = series.struct.unnest()
    return pl.Series(list(map(_json_text, values.fill_null(0.0).to_list(), tokens.to_list())), dtype=pl.String)


def _json_text(value: float, tokens: list[bool] | None) -> str:
    if tokens is None:
        return "null"
    text = repr(value) if math.isfinite(value) else "null"
    return f"[{','.join([text if counts else '0.0' for counts in tokens])}]"


def bool_lists(flat: Bools, sizes: Ints) -> pl.Series:
    """Consecutive lists of these sizes."""
    return cut(pl.Series(flat).to_arrow(), sizes)


def _lists(series: pl.Series) -> pl.Series:
    import pyarrow as pa

    value, tokens, *own = series.struct.unnest()
    counts = token_counts(series)
    flat = np.repeat(value.fill_null(0.0).to_numpy(), counts)
    counting = pl.Series(tokens.to_arrow().flatten()).to_numpy()
    flat[~counting] = 0.0
    if own:
        starts, files = own
        flat[counting] = _numbers(starts, files, tokens.list.sum())
    numbers = pa.Array.from_buffers(pa.from_numpy_dtype(flat.dtype), len(flat), [None, pa.py_buffer(flat)])
    lists = cut(numbers, counts)
    return pl.select(pl.when(tokens.is_not_null()).then(lists)).to_series().alias(series.name)


def _numbers(starts: pl.Series, files: pl.Series, sizes: pl.Series) -> Floats:
    """The numbers of these rows, one after the other."""
    parts = [b""]
    for start, file, size in zip(starts.to_list(), files.to_list(), sizes.to_list(), strict=True):
        if size:
            parts.append(os.pread(_FILES[file].fd, size * _BYTES, start * _BYTES))
    return np.frombuffer(b"".join(parts), np.float64)


def cut(flat: pa.Array, sizes: Ints) -> pl.Series:
    """Consecutive lists of these sizes."""
    import pyarrow as pa  # pyarrow makes lists of the numbers without a copy

    ends = pl.Series(np.append(0, np.cumsum(sizes)).astype(np.int64)).to_arrow()
    return pl.Series(pa.LargeListArray.from_arrays(ends, flat))
