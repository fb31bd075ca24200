"""Values of many lines at once, cut out of their text by whoever knows where they stand: keys, numbers and other scalars."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.formats import cells
from grpo_cli.formats.interface import Field
from grpo_cli.formats.jsonl import digits
from grpo_cli.formats.jsonl.lent import as_series

if TYPE_CHECKING:
    from grpo_cli.formats.cells import Place

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
    Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
    Words = np.ndarray[tuple[int], np.dtype[np.uint64]]

_SCALARS: Final = {int, float, bool, type(None)}
_LITERALS: Final = (b"true", b"false", b"null")
_ANY: Final = Field("", "number")


class Value(Protocol):
    """One value of each line."""

    @property
    def words(self) -> Words:
        """Its first eight letters, with whatever stands behind it."""

    @property
    def sizes(self) -> Ints:
        """How many letters it has; one number if that is the same in all lines."""

    def texts(self) -> pl.Series | None:
        """The texts of it; none where one of them needs a parser."""

    def views(self, rows: Ints) -> pl.Series | None:
        """Its texts in some of the rows, for as long as the window is not read anew."""


def numbers(value: Value, field: Field, place: Place) -> pl.Series | None:
    """Short numbers by arithmetic, all others by their texts; none where a parser has to read them."""
    words = value.words
    found = digits.read(words, value.sizes)
    values = found.whole() if field.kind == "key" else found.floats()
    if values is None or field.kind == "numbers":
        return None
    rest = np.flatnonzero(~found.known)
    for literal in _LITERALS[:2] if field.kind == "number" and len(rest) else ():
        there = _are(literal, value, rest)
        values[rest[there]] = json.loads(literal)
        rest = rest[~there]
    if len(rest):
        others = _parsed(field, words[rest], value.views(rest), place)
        if others is None or (others.dtype == pl.Int64) != (field.kind == "key"):
            return None
        if others.null_count():
            return pl.Series(field.name, values).scatter(rest, others)
        values[rest] = others.to_numpy()
    return pl.Series(field.name, values)


def is_scalar(value: Value) -> bool:
    """Whether a value that nobody asked for is one: a line that is not JSON must not pass."""
    words = value.words
    rest = np.flatnonzero(~digits.read(words, value.sizes).known)
    for literal in _LITERALS:
        rest = rest[~_are(literal, value, rest)] if len(rest) else rest
    return not len(rest) or _parsed(_ANY, words[rest], value.views(rest), str) is not None


def _parsed(field: Field, words: Words, texts: pl.Series | None, place: Place) -> pl.Series | None:
    """Scalars by their texts: decimal numbers as they are, each other text once, by the parser that defines it."""
    if texts is None:
        return None
    if field.kind == "number" and digits.begin_decimals(words).all():
        found = texts.cast(pl.Float64, strict=False)  # behind the dot polars takes what JSON takes, and nothing else
        if not found.null_count():
            return found
    unique = texts.unique()
    try:
        values: list[Any] = json.loads(f"[{','.join(unique)}]")
    except (ValueError, RecursionError):
        return None
    if len(values) != len(unique) or not {*map(type, values)} <= _SCALARS:
        return None
    if field.kind == "key" and {*map(type, values)} != {int}:
        return None
    try:
        known = cells.key_series("", values) if field.kind == "key" else cells.number_series(field, values, place)
    except DataError:
        return None
    return texts.replace_strict(unique, known, return_dtype=known.dtype)


def _are(literal: bytes, value: Value, rows: Ints) -> Bools:
    """In which of the rows the value is a literal."""
    sizes = value.sizes if len(value.sizes) == 1 else value.sizes[rows]
    found: Bools = np.full(len(rows), sizes == len(literal))
    if found.any():
        mask, wanted = (np.uint64(int.from_bytes(one, "little")) for one in (b"\xff" * len(literal), literal))
        found &= (value.words[rows] & mask) == wanted
    return found


def spread(heads: pl.Series, change: Bools) -> pl.Series:
    """A text for each row from those of the rows where it changes."""
    return heads if len(heads) == len(change) else heads[pl.Series(np.cumsum(change, dtype=np.uint32) - np.uint32(1))]


def series(letters: Any, sizes: Ints) -> pl.Series:
    """Texts from their letters, one after the other."""
    import pyarrow as pa

    offsets = np.concatenate(([0], np.cumsum(sizes)))
    buffers = pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(letters))
    return as_series(pa.LargeStringArray.from_buffers(len(sizes), *buffers))
