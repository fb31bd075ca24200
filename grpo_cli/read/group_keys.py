"""Keys become numbers: the codes of groups, which can be cut further into blocks, and what is wrong with a key.

Which column is the key is decided in `choose_columns`, and what may not be merged in `assign_groups`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import count
from operator import or_
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import PIECE, over
from grpo_cli.errors import DataError
from grpo_cli.formats.cells import JSON_TEXT, canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grpo_cli.engine.column_stats import Words
    from grpo_cli.engine.moments import Codes, Index

    Coding = np.ndarray[tuple[int], np.dtype[np.unsignedinteger[Any]]]

SHOWN: Final = 3
_ODD: Final = 0x9E3779B97F4A7C15  # 2^64 by the golden ratio: its multiples are spread evenly


@dataclass(frozen=True)
class Coded:
    """A dense code for every row, in order of first appearance, and the row where each code first stands.

    `keys` are those of every code, where `encode` was to keep them.
    """

    codes: pl.Series
    first: pl.Series
    keys: pl.DataFrame | None = None

    @property
    def size(self) -> int:
        """How many codes there are."""
        return len(self.first)

    @cached_property
    def together(self) -> bool:
        """Whether the rows of each code follow each other."""
        return _runs(self.codes.to_numpy()) == self.size

    def runs(self) -> tuple[Codes, Index]:
        """The code and the length of each stretch of rows with one code."""
        codes = self.codes.to_numpy()
        starts = _starts(codes)
        return codes[starts], np.diff(starts, append=len(codes))


def encode(keys: Sequence[pl.Series], rows: int, *, keep: bool = False) -> Coded:
    """Number the distinct combinations of the keys.

    Of rows that follow each other with one key only the first is numbered. Hashes of keys are numbered, which is much
    faster than to number keys, and then every row is compared with the first row of its number. With `keep` the keys of
    the codes are kept, as far as they are no lists and structs.
    """
    if not keys:
        zero = pl.zeros(rows, dtype=pl.UInt32, eager=True)
        return Coded(zero, pl.Series(np.zeros(min(rows, 1), np.uint32)))
    lines = pl.DataFrame([_flat(key).alias(str(at)) for at, key in enumerate(keys)])
    starts, lines = _without_repeats(lines)
    codes, first = _numbered_lines(lines)
    heads = None
    if keep and not any(key.dtype.is_nested() for key in keys):
        heads = lines[first] if len(first) < len(lines) else lines
    if starts is not None:
        codes, first = np.repeat(codes, np.diff(starts, append=rows)), starts[first].astype(np.uint32)
    if heads is not None:
        heads = _with_own_texts(heads)
        heads.columns = [key.name for key in keys]
    return Coded(pl.Series(codes), pl.Series(first), heads)


def _without_repeats(lines: pl.DataFrame) -> tuple[Index | None, pl.DataFrame]:
    """The lines that differ from the one before them, and where they stand; all lines where that is most of them."""
    rows = len(lines)

    def differing(start: int, end: int) -> tuple[Index, pl.DataFrame]:
        found = np.ones(end - start, bool)
        first = max(start, 1)  # the first line of all differs
        before, after = lines[first - 1 : end - 1], lines[first:end]
        masks = (one.ne_missing(other) for one, other in zip(before, after, strict=True))
        found[first - start :] = reduce(or_, masks).to_numpy()
        places = np.flatnonzero(found)
        return places + start, lines[start:end][places]

    few = min(rows, PIECE)
    if 2 * len(differing(0, few)[0]) >= few:  # then it is most of the others, too
        return None, lines
    starts, parts = zip(*over(differing, rows), strict=True)
    return np.concatenate(starts), pl.concat(parts).rechunk()


def _numbered_lines(lines: pl.DataFrame) -> tuple[Codes, Codes]:
    """The number of every line among the distinct ones, in order of first appearance, and where each of them first stands."""
    key = lines.to_series()
    fits = key.dtype.is_integer() and key.dtype not in {pl.Int128, pl.UInt128}
    if lines.width == 1 and fits and not key.null_count():  # an integer is its own word
        return _numbered(key.to_numpy().astype(np.int64, copy=False).view(np.uint64))
    for seed in count():
        codes, first = _numbered(lines.hash_rows(seed).to_numpy())
        if len(first) == len(lines) or _are_lines_of(lines[first], codes, lines):
            break  # otherwise two keys share a hash
    return codes, first


def _numbered(words: Words) -> tuple[Codes, Codes]:
    """The number of every word among the distinct ones, in order of first appearance, and where each of them first stands."""
    rows = len(words)
    codes = _first_rows(words)

    def own(start: int, end: int) -> Index:
        return np.flatnonzero(codes[start:end] == np.arange(start, end, dtype=np.uint32)) + start

    first = np.concatenate([np.zeros(0, np.int64), *over(own, rows)])
    numbers = np.empty(rows, np.uint32)
    numbers[first] = np.arange(len(first), dtype=np.uint32)

    def number(start: int, end: int) -> None:
        codes[start:end] = numbers.take(codes[start:end])

    over(number, rows)
    return codes, first.astype(np.uint32)


def _first_rows(words: Words, attempt: int = 0) -> Codes:
    """The first row that has the word, of every row: a hash table in which no word looks for another place.

    Of the rows that share a place the first one has it; those that have another word than that one are looked up among
    themselves, with other places.
    """
    rows = len(words)
    bits = max(rows - 1, 1).bit_length()
    factor, shift = np.uint64(pow(_ODD, 2 * attempt + 1, 1 << 64)), np.uint64(64 - bits)
    table = np.full(1 << bits, rows, np.uint32)

    def places(start: int, end: int) -> Index:
        return (words[start:end] * factor >> shift).view(np.int64)

    for start in range(0, rows, PIECE):
        end = min(start + PIECE, rows)
        np.minimum.at(table, places(start, end), np.arange(start, end, dtype=np.uint32))
    first = np.empty(rows, np.uint32)

    def look_up(start: int, end: int) -> Index:
        first[start:end] = found = table.take(places(start, end))
        return np.flatnonzero(words.take(found) != words[start:end]) + start

    others = np.concatenate([np.zeros(0, np.int64), *over(look_up, rows)])
    if len(others):
        first[others] = others[_first_rows(words[others], attempt + 1)]
    return first


def _are_lines_of(heads: pl.DataFrame, codes: Codes, keys: pl.DataFrame) -> bool:
    """Whether each row of the keys is the line of the heads that its code names."""

    def differs(start: int, end: int) -> bool:
        lines = pl.Series(codes[start:end])
        return any(head.gather(lines).ne_missing(key[start:end]).any() for head, key in zip(heads, keys, strict=True))

    return not any(over(differs, len(keys)))


def _runs(codes: Coding) -> int:
    """How many stretches of rows with one code there are."""

    def changes(start: int, end: int) -> int:
        return int(np.count_nonzero(codes[start + 1 : end + 1] != codes[start:end]))

    return sum(over(changes, len(codes) - 1)) + min(len(codes), 1)


def _starts(codes: Coding) -> Index:
    """The rows where these stretches start."""

    def changes(start: int, end: int) -> Index:
        return np.flatnonzero(codes[start + 1 : end + 1] != codes[start:end]) + (start + 1)

    return np.concatenate([np.zeros(min(len(codes), 1), np.int64), *over(changes, len(codes) - 1)])


def _with_own_texts(lines: pl.DataFrame) -> pl.DataFrame:
    """Some lines of a frame whose texts are copies: they would keep the texts of all lines in memory."""
    return lines.with_columns(one + "" for one in lines if one.dtype == pl.String)


def _flat(key: pl.Series) -> pl.Series:
    """Lists and structs are legal keys; their JSON text is compared."""
    return canonical(key) if key.dtype.is_nested() else key


def firsts(key: pl.DataFrame, coded: Coded) -> pl.DataFrame:
    """A line of keys for each group."""
    if coded.keys is not None:
        return coded.keys
    return _with_own_texts(key[coded.first])


def within(coded: Coded, more: Sequence[pl.Series]) -> Coded:
    """The same groups, cut further by other columns."""
    return encode([coded.codes, *more], len(coded.codes))


def blocks(coded: Coded, size: int) -> Coded:
    """Consecutive blocks of `size` rows inside each code."""
    place = coded.codes.to_frame("code").select(pl.int_range(pl.len()).over("code")).to_series()
    return within(coded, [place // size])


def sizes(coded: Coded) -> Index:
    """Rows of each group."""
    if coded.together:
        return np.diff(coded.first.to_numpy().astype(np.int64), append=len(coded.codes))
    return np.bincount(coded.codes.to_numpy(), minlength=coded.size)


def spanning(coded: Coded, other: pl.Series) -> list[int]:
    """Of each code whose rows have more than one value of `other` the first row with a second value."""
    flat = _flat(other)
    if not flat.ne_missing(flat.head(1)).any():
        return []
    rows = flat.ne_missing(flat.gather(coded.first).gather(coded.codes)).arg_true()
    return rows.filter(coded.codes.gather(rows).is_first_distinct()).to_list()


def refuse_missing(name: str, key: pl.Series, place: Callable[[int], str]) -> None:
    """A row without a key belongs nowhere; all of them would be one group. pandas writes such a key as NaN."""
    for what, missing in (("null", key.is_null() if key.null_count() else None), ("NaN", _is_nan(key))):
        count = 0 if missing is None else int(missing.sum())
        if missing is not None and count:
            more = f" ({count} rows)" if count > 1 else ""
            row = missing.arg_max() or 0
            raise DataError(f"{place(row)}: {name} is {what}{more}", "give every row one, or name another column")


def _is_nan(key: pl.Series) -> pl.Series | None:
    if key.dtype.is_float():
        return key.is_nan()
    return key.cast(pl.String) == "NaN" if key.dtype == JSON_TEXT else None


class CountedError(DataError):
    """An error of a first row, and how many more there are like it: the counts of other parts of the rows can be added."""

    first: str
    counts: Sequence[int]
    words: Callable[..., str]

    @classmethod
    def of(cls, first: str, counts: Sequence[int], words: Callable[..., str], hint: str) -> CountedError:
        """The error about the first row, with the words of the counts behind it."""
        error = cls(first + words(*counts), hint)
        error.first, error.counts, error.words = first, counts, words
        return error


class MergeError(DataError):
    """Keys occur in several files, steps or batches, and nothing says that they may.

    It has what it was made of, so that the errors of parts of the rows can be put together.
    """

    what: str
    count: int  # of groups
    rows: Sequence[Any]  # the first rows of some of them
    names: Sequence[str]
    cures: str

    @classmethod
    def of(cls, what: str, count: int, rows: Sequence[Any], names: Sequence[str], cures: str) -> MergeError:
        """The error for so many groups, of which the first few are named."""
        shown = ", ".join(names[:SHOWN])
        more = f" and {count - SHOWN} more" if count > SHOWN else ""
        keys = f"{count} group keys have" if count > 1 else "a group key has"
        error = cls(f"{keys} rows in several {what} ({shown}{more})", cures)
        error.what, error.count, error.rows, error.names, error.cures = what, count, rows, names, cures
        return error
