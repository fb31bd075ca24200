"""Keys as numbers: the codes of groups, cutting them into blocks, and refusing missing keys.

`request` decides which column is the key, `groups.group` within what it is unique, `checks.merges.silent_merge` what must not be merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import count
from operator import or_
from typing import Any

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import PIECE, Words, over
from grpo_cli.engine.moments import Codes, Index
from grpo_cli.errors import DataError
from grpo_cli.values.cells import JSON_TEXT, Place, canonical

_HALF_WORD = (1 << 31) - 1  # the largest number with 31 bits
SHOWN = 3  # keys in a message
_ODD = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio: its multiples are evenly spread


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
        changes = np.count_nonzero(codes[1:] != codes[:-1])
        return bool(changes < self.size)

    def at(self, places: Index) -> Coded:
        """The same for some of the rows, which are numbered again."""
        codes, first = _numbered(self.codes.to_numpy()[places].astype(np.uint64))
        return Coded(pl.Series(codes), pl.Series(first))

    def cut(self, rows: slice) -> Coded:
        """The same for consecutive rows whose codes no other row has."""
        least, after = int(self.codes[rows.start]), len(self.first)
        if rows.stop < len(self.codes):
            after = int(self.codes[rows.stop])
        codes = self.codes[rows].to_numpy() - np.uint32(least)
        first = self.first[least:after].to_numpy() - np.uint32(rows.start)
        return Coded(pl.Series(codes), pl.Series(first))

    def runs(self) -> tuple[Codes, Index]:
        """The code and the length of each run of rows with the same code."""
        codes = self.codes.to_numpy()
        differs = codes[1:] != codes[:-1]
        starts = np.flatnonzero(np.append(True, differs))
        return codes[starts], np.diff(starts, append=len(codes))


def encode(keys: Sequence[pl.Series], rows: int = 0) -> Coded:
    """Number the distinct combinations of the keys; without keys, `rows` rows are one.

    Of consecutive rows with the same key only the first is numbered. Numbering hashes is much faster than numbering
    keys; afterwards every row is compared with the first row of its code.
    """
    if not keys:
        zero = pl.zeros(rows, dtype=pl.UInt32, eager=True)
        return Coded(zero, zero.head(1))
    rows = len(keys[0])
    lines = pl.DataFrame([_flat(key).alias(str(at)) for at, key in enumerate(keys)])
    starts, lines = _without_repeats(lines)
    words = _words(lines)
    for seed in count():
        codes, first = _numbered(lines.hash_rows(seed).to_numpy() if words is None else words)
        if words is not None or len(first) == len(lines) or _are_lines_of(lines[first], codes, lines):
            break  # otherwise two keys share a hash
    if starts is not None:
        codes = np.repeat(codes, np.diff(starts, append=rows))
        first = starts[first].astype(np.uint32)
    return Coded(pl.Series(codes), pl.Series(first))


def are_coded(keys: pl.DataFrame, known: pl.DataFrame, coded: Coded) -> bool:
    """Whether these are the keys of coded rows, row by row; `known` has the key of each code.

    Then they need not be numbered again, which takes three times as long.
    """
    same_type = keys.schema == known.schema and len(keys) == len(coded.codes)
    distinct = same_type and known.n_unique() == len(known) and not any(known.null_count().row(0))
    return distinct and _are_lines_of(known, coded.codes.to_numpy(), keys)


def _without_repeats(lines: pl.DataFrame) -> tuple[Index | None, pl.DataFrame]:
    """The positions of lines that differ from the previous line, and these lines; None and all lines if most differ."""
    rows = len(lines)

    def differing(start: int, end: int) -> tuple[Index, pl.DataFrame]:
        found = np.ones(end - start, bool)
        first = max(start, 1)  # the very first line differs by definition
        before = lines[first - 1 : end - 1]
        after = lines[first:end]
        masks = (earlier.ne_missing(other) for earlier, other in zip(before, after, strict=True))
        found[first - start :] = reduce(or_, masks).to_numpy()
        places = np.flatnonzero(found)
        return places + start, lines[start:end][places]

    few = min(rows, PIECE)
    found, _ = differing(0, few)
    if 2 * len(found) >= few:  # then most of the others do as well
        return None, lines
    starts, parts = zip(*over(differing, rows, PIECE), strict=True)
    return np.concatenate(starts), pl.concat(parts).rechunk()


def _words(lines: pl.DataFrame) -> Words | None:
    """A word for each line, equal only for equal lines, if a line is two small whole numbers; else None."""
    words = np.zeros(len(lines), np.uint64)
    for column in lines:
        if lines.width != 2 or not column.dtype.is_integer() or column.null_count():  # noqa: PLR2004 - each has 31 bits
            return None
        ends: list[Any] = [column.min() or 0, column.max() or 0]
        if min(ends) < 0 or max(ends) > _HALF_WORD:
            return None
        words <<= np.uint64(31)
        words |= column.cast(pl.UInt64).to_numpy()
    return words


def _numbered(words: Words) -> tuple[Codes, Codes]:
    """The number of every word among distinct words, in order of first appearance, and the first position of each."""
    firsts = _first_rows(words)
    own = np.flatnonzero(firsts == np.arange(len(words), dtype=np.uint32)).astype(np.uint32)
    numbers = np.empty(len(words), np.uint32)
    numbers[own] = np.arange(len(own), dtype=np.uint32)
    return numbers[firsts], own


def _first_rows(words: Words, attempt: int = 0) -> Codes:
    """For every row, the first row with the same word: by a hash table without probing.

    The first row in a slot keeps it; rows that share the slot but have another word are looked up in a second
    table of their own, with another hash.
    """
    rows = len(words)
    bits = max(rows - 1, 1).bit_length()
    factor = np.uint64(pow(_ODD, 2 * attempt + 1, 1 << 64))
    shift = np.uint64(64 - bits)
    places = (words * factor >> shift).view(np.int64)
    table = np.full(1 << bits, rows, np.uint32)
    np.minimum.at(table, places, np.arange(rows, dtype=np.uint32))
    first = table[places]
    others = np.flatnonzero(words[first] != words).astype(np.uint32)
    if len(others):
        first[others] = others[_first_rows(words[others], attempt + 1)]
    return first


def _are_lines_of(heads: pl.DataFrame, codes: Codes, keys: pl.DataFrame) -> bool:
    """Whether each row of the keys equals the head of its code."""
    unnamed = [head.alias("") for head in heads]  # polars takes a name such as ^a$ for a pattern

    def differs(start: int, end: int) -> bool:
        lines = pl.Series(codes[start:end])
        return any(head.gather(lines).ne_missing(key[start:end]).any() for head, key in zip(unnamed, keys, strict=True))

    return not any(over(differs, len(codes), PIECE))


def _flat(key: pl.Series) -> pl.Series:
    """Lists and structs as JSON text, by which they are compared."""
    return canonical(key) if key.dtype.is_nested() else key


def repeats(codes: pl.Series, sample: pl.Series) -> int:
    """How many rows repeat a sample of their group."""
    if sample.null_count():
        known = sample.is_not_null()
        codes = codes.filter(known)
        sample = sample.filter(known)
    if not sample.dtype.is_integer():
        return len(codes) - encode([codes, sample]).size

    def ascends(start: int, end: int) -> bool:
        group, number = (column[start : end + 1].to_numpy() for column in (codes, sample))
        rises = (group[1:] == group[:-1]) & (number[1:] > number[:-1])
        return bool((rises | (group[1:] > group[:-1])).all())

    if all(over(ascends, len(codes))):  # in order, as samplers write them
        return 0
    words = _words(pl.DataFrame({"code": codes, "sample": sample}))
    if words is None:
        return len(codes) - encode([codes, sample]).size
    return len(words) - pl.Series(words).n_unique()  # in a third of the time of numbering pairs


def within(coded: Coded, more: Sequence[pl.Series]) -> Coded:
    """The same groups, divided further by other columns."""
    return encode([coded.codes, *more])


def blocks(coded: Coded, size: int) -> Coded:
    """Consecutive blocks of `size` rows inside each code."""
    place = pl.int_range(pl.len()).over("code")
    block = coded.codes.to_frame("code").select(place // size)
    return within(coded, [block.to_series()])


def sizes(coded: Coded) -> Index:
    """The number of rows of each group."""
    if coded.together:
        return np.diff(coded.first.to_numpy().astype(np.int64), append=len(coded.codes))
    return np.bincount(coded.codes.to_numpy(), minlength=coded.size)


def parts_of_each(coded: Coded, parts: Coded) -> Index:
    """How many of these parts each group has; every part lies inside one group."""
    group_of_part = coded.codes.gather(parts.first)
    return np.bincount(group_of_part.to_numpy(), minlength=coded.size)


def usual(coded: Coded) -> tuple[int, float]:
    """The size of most groups, and their share of the groups."""
    counts = np.bincount(sizes(coded))
    size = int(counts.argmax())
    return size, float(counts[size] / coded.size)


def spanning(coded: Coded, other: pl.Series) -> list[int]:
    """The first row with a second value of `other`, for each code that has several values."""
    flat = _flat(other)
    if not flat.ne_missing(flat.head(1)).any():
        return []
    of_first_row = flat.gather(coded.first).gather(coded.codes)
    rows = flat.ne_missing(of_first_row).arg_true()
    is_first = coded.codes.gather(rows).is_first_distinct()
    return rows.filter(is_first).to_list()


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
            cure = ["give every row a value", "name another column"]
            raise DataError(f"{name} is {what}{more}", cure, place=place(missing.arg_max() or 0))
