"""Keys as numbers: the codes of groups, cutting them into blocks, and refusing missing keys.

`request` decides which column is the key, `groups.group` within what it is unique, `checks.silent_merge` what must not be merged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import count
from operator import or_
from typing import Final

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import PIECE, Words, over
from grpo_cli.engine.moments import Codes, Index
from grpo_cli.errors import DataError
from grpo_cli.values.cells import JSON_TEXT, Place, canonical

SHOWN: Final = 3
WORDS: Final = 1 << 64
_ODD: Final = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio: its multiples are evenly spread


@dataclass(frozen=True)
class Coded:
    """A dense code for every row, in order of first appearance, and the first row of each code."""

    codes: pl.Series
    first: pl.Series

    @property
    def size(self) -> int:
        """The number of codes."""
        return len(self.first)

    @cached_property
    def together(self) -> bool:
        """Whether the rows of each code are consecutive."""
        codes = self.codes.to_numpy()
        return int(np.count_nonzero(codes[1:] != codes[:-1])) < self.size

    def runs(self) -> tuple[Codes, Index]:
        """The code and the length of each run of rows with the same code."""
        codes = self.codes.to_numpy()
        starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
        return codes[starts], np.diff(starts, append=len(codes))


def encode(keys: Sequence[pl.Series], rows: int = 0, *, piece: int = PIECE) -> Coded:
    """Number the distinct combinations of the keys; without keys, `rows` rows are one.

    Of consecutive rows with the same key only the first is numbered. Numbering hashes is much faster than numbering
    keys; afterwards every row is compared with the first row of its code. `piece` rows are
    processed at a time.
    """
    if not keys:
        zero = pl.zeros(rows, dtype=pl.UInt32, eager=True)
        return Coded(zero, pl.Series(np.zeros(min(rows, 1), np.uint32)))
    rows = len(keys[0])
    lines = pl.DataFrame([_flat(key).alias(str(at)) for at, key in enumerate(keys)])
    starts, lines = _without_repeats(lines, piece)
    columns = lines.get_columns()
    words, _ = packed(columns)
    for seed in count():
        codes, first = _numbered(lines.hash_rows(seed).to_numpy() if words is None else words, piece)
        is_sure = words is not None or len(first) == len(lines)
        if is_sure or _are_lines_of(lines[first], codes, columns, piece):
            break  # otherwise two keys share a hash
    if starts is not None:
        codes, first = np.repeat(codes, np.diff(starts, append=rows)), starts[first].astype(np.uint32)
    return Coded(pl.Series(codes), pl.Series(first))


def _without_repeats(lines: pl.DataFrame, piece: int) -> tuple[Index | None, pl.DataFrame]:
    """The positions of lines that differ from the previous line, and these lines; None and all lines if most differ."""
    rows = len(lines)

    def differing(start: int, end: int) -> tuple[Index, pl.DataFrame]:
        found = np.ones(end - start, bool)
        first = max(start, 1)  # the very first line differs by definition
        before, after = lines[first - 1 : end - 1], lines[first:end]
        masks = (earlier.ne_missing(other) for earlier, other in zip(before, after, strict=True))
        found[first - start :] = reduce(or_, masks).to_numpy()
        places = np.flatnonzero(found)
        return places + start, lines[start:end][places]

    few = min(rows, piece)
    if 2 * len(differing(0, few)[0]) >= few:  # then most of the others do as well
        return None, lines
    starts, parts = zip(*over(differing, rows, piece), strict=True)
    return np.concatenate(starts), pl.concat(parts).rechunk()


def packed(columns: Sequence[pl.Series]) -> tuple[Words | None, int]:
    """A 64-bit word for each row of integers, equal only for equal rows, and the number of possible words.

    None if a column has other values, or if the rows need more than 64 bits.
    """
    if not all(map(_is_whole, columns)):
        return None, 0
    lows = [int(column.min() or 0) for column in columns]  # type: ignore[arg-type]
    spans = [int(column.max() or 0) - low + 1 for low, column in zip(lows, columns, strict=True)]  # type: ignore[arg-type]
    possible = math.prod(spans)
    if possible > WORDS:
        return None, possible
    words = np.zeros(len(columns[0]), np.uint64)
    for column, low, span in zip(columns, lows, spans, strict=True):
        words *= np.uint64(span % WORDS)
        # Negative numbers wrap around. The cast is buffered: a converted column would be as large as the words.
        np.add(words, column.to_numpy(), out=words, dtype=np.uint64, casting="unsafe")
        words -= np.uint64(low % WORDS)
    return words, possible


def _is_whole(column: pl.Series) -> bool:
    """Whether it has integers of up to 64 bits and no null."""
    return column.dtype.is_integer() and column.dtype not in {pl.Int128, pl.UInt128} and not column.null_count()


def _numbered(words: Words, piece: int = PIECE) -> tuple[Codes, Codes]:
    """The number of every word among distinct words, in order of first appearance, and the first position of each."""
    rows = len(words)
    codes = _first_rows(words, piece)

    def own(start: int, end: int) -> Index:
        return np.flatnonzero(codes[start:end] == np.arange(start, end, dtype=np.uint32)) + start

    first = np.concatenate([np.zeros(0, np.int64), *over(own, rows, piece)])
    numbers = np.empty(rows, np.uint32)
    numbers[first] = np.arange(len(first), dtype=np.uint32)

    def number(start: int, end: int) -> None:
        codes[start:end] = numbers.take(codes[start:end])

    over(number, rows, piece)
    return codes, first.astype(np.uint32)


def _first_rows(words: Words, piece: int, attempt: int = 0) -> Codes:
    """For every row, the first row with the same word: by a hash table without probing.

    The first row in a slot keeps it; rows that share the slot but have another word are looked up in a second
    table of their own, with another hash.
    """
    rows = len(words)
    bits = max(rows - 1, 1).bit_length()
    factor, shift = np.uint64(pow(_ODD, 2 * attempt + 1, 1 << 64)), np.uint64(64 - bits)
    table = np.full(1 << bits, rows, np.uint32)

    def places(start: int, end: int) -> Index:
        return (words[start:end] * factor >> shift).view(np.int64)

    for start in range(0, rows, piece):
        end = min(start + piece, rows)
        np.minimum.at(table, places(start, end), np.arange(start, end, dtype=np.uint32))
    first = np.empty(rows, np.uint32)

    def look_up(start: int, end: int) -> Index:
        first[start:end] = found = table.take(places(start, end))
        return np.flatnonzero(words.take(found) != words[start:end]) + start

    others = np.concatenate([np.zeros(0, np.int64), *over(look_up, rows, piece)])
    if len(others):
        first[others] = others[_first_rows(words[others], piece, attempt + 1)]
    return first


def _are_lines_of(heads: pl.DataFrame, codes: Codes, keys: Sequence[pl.Series], piece: int) -> bool:
    """Whether each row of the keys equals the head of its code."""

    def differs(start: int, end: int) -> bool:
        lines = pl.Series(codes[start:end])
        return any(head.gather(lines).ne_missing(key[start:end]).any() for head, key in zip(heads, keys, strict=True))

    return not any(over(differs, len(codes), piece))


def _flat(key: pl.Series) -> pl.Series:
    """Lists and structs as JSON text, by which they are compared."""
    return canonical(key) if key.dtype.is_nested() else key


def within(coded: Coded, more: Sequence[pl.Series]) -> Coded:
    """The same groups, divided further by other columns."""
    return encode([coded.codes, *more])


def blocks(coded: Coded, size: int) -> Coded:
    """Consecutive blocks of `size` rows inside each code."""
    place = coded.codes.to_frame("code").select(pl.int_range(pl.len()).over("code")).to_series()
    return within(coded, [place // size])


def sizes(coded: Coded) -> Index:
    """The number of rows of each group."""
    if coded.together:
        return np.diff(coded.first.to_numpy().astype(np.int64), append=len(coded.codes))
    return np.bincount(coded.codes.to_numpy(), minlength=coded.size)


def parts_of_each(coded: Coded, parts: Coded) -> Index:
    """How many of these parts each group has; every part lies inside one group."""
    return np.bincount(coded.codes.gather(parts.first).to_numpy(), minlength=coded.size)


def usual(coded: Coded) -> tuple[int, float]:
    """The size of most groups, and their share of the groups."""
    counts = np.bincount(sizes(coded))
    size = int(counts.argmax())
    return size, counts[size] / coded.size


def spanning(coded: Coded, other: pl.Series) -> list[int]:
    """The first row with a second value of `other`, for each code that has several values."""
    flat = _flat(other)
    if not flat.ne_missing(flat.head(1)).any():
        return []
    rows = flat.ne_missing(flat.gather(coded.first).gather(coded.codes)).arg_true()
    return rows.filter(coded.codes.gather(rows).is_first_distinct()).to_list()


def refuse_missing(name: str, key: pl.Series, place: Place) -> None:
    """Refuse rows without a key, which would all be one group. pandas writes a missing key as NaN."""
    wrong = {"null or missing": key.is_null()}
    if key.dtype.is_float():
        wrong["NaN"] = key.is_nan()
    elif key.dtype == JSON_TEXT:
        wrong["NaN"] = key.cast(pl.String) == "NaN"
    for what, missing in wrong.items():
        if count := int(missing.sum()):
            more = f" ({count} rows)" if count > 1 else ""
            cure = "give every row a value; name another column"
            raise DataError(f"{name} is {what}{more}", cure, place=place(missing.arg_max() or 0))
