"""Which rows belong together: keys to codes, blocks of N, batches, and the refusals that keep groups apart.

Merging unrelated groups is the worst bug that this tool can have, so whatever is ambiguous is an error that
names three keys and both cures.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import PIECE, rows_where
from grpo_cli.errors import DataError
from grpo_cli.formats.cells import JSON_TEXT, canonical
from grpo_cli.parallel import ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grpo_cli.engine.moments import Codes, Index

SHOWN: Final = 3
_SMALL: Final = 1 << 14  # rows of a chunk: with smaller ones the threads wait for each other


@dataclass(frozen=True)
class Coded:
    """A dense code for every row, in order of first appearance, and the row where each code first stands.

    `runs` are the code and the length of each stretch of rows with one code, `keys` those of every code if they were asked for.
    """

    codes: pl.Series
    first: pl.Series
    runs: tuple[Codes, Index]
    keys: pl.DataFrame | None = None

    @property
    def size(self) -> int:
        """How many codes there are."""
        return len(self.first)

    @property
    def together(self) -> bool:
        """Whether the rows of each code follow each other."""
        return len(self.runs[0]) == self.size


def encode(keys: Sequence[pl.Series], rows: int, *, keep: bool = False) -> Coded:
    """Number the distinct combinations of the keys; of rows that follow each other with one key only the first counts.

    With `keep` the keys of the codes are kept, as far as they are no lists and structs.
    """
    if not keys:
        zero = pl.zeros(rows, dtype=pl.UInt32, eager=True)
        one = np.zeros(min(rows, 1), np.int64)
        return Coded(zero, pl.Series(one, dtype=pl.UInt32), (one.astype(np.uint32), one + rows))
    flat = [_flat(key) for key in keys]
    found = _starts(flat)
    heads = pl.DataFrame([_gathered(key, found, own=keep).alias(str(i)) for i, key in enumerate(flat)])
    first, codes = pl.Series(found, dtype=pl.UInt32), np.arange(len(found), dtype=np.uint32)
    if not _distinct(heads):
        numbered = heads.with_columns(first=first).unique(heads.columns, keep="first", maintain_order=True)
        numbered = numbered.with_row_index("code")
        of_runs = heads.join(numbered, on=heads.columns, how="left", maintain_order="left", nulls_equal=True)["code"]
        codes, first, heads = of_runs.to_numpy().astype(np.uint32), numbered["first"], numbered.select(heads.columns)
    kept = keep and not any(key.dtype.is_nested() for key in keys)
    heads.columns = [key.name for key in keys] if kept else heads.columns
    lengths = np.diff(found, append=rows)
    return Coded(pl.Series(np.repeat(codes, lengths)), first, (codes, lengths), heads if kept else None)


def _starts(keys: Sequence[pl.Series]) -> Index:
    """The rows where a key differs from that of the row before, and row 0."""
    # Runs are found on all cores: in one go, or by numbering every row, it takes several times as long.
    changes = [rows_where(lambda before, here: here.ne_missing(before), key) for key in keys]
    first = np.zeros(min(len(keys[0]), 1), np.int64)
    return np.concatenate([first, *changes] if len(keys) == 1 else [first, reduce(np.union1d, changes)])


def _gathered(key: pl.Series, rows: Index, *, own: bool) -> pl.Series:
    """Some rows of a key, in ascending order; texts of their `own`, or those of all rows would stay in memory behind them."""
    # Chunk by chunk: gathering from several at once is slower.
    chunks = key.get_chunks()
    ends = np.cumsum([len(chunk) for chunk in chunks])
    cuts = [0, *np.searchsorted(rows, ends).tolist()]

    def piece(at: int) -> pl.Series:
        found = chunks[at].gather(rows[cuts[at] : cuts[at + 1]] - (int(ends[at - 1]) if at else 0))
        return found + "" if own and key.dtype == pl.String else found

    small = len(key) <= max(PIECE, _SMALL * len(chunks))
    return pl.concat((map if small else ahead)(piece, range(len(chunks))))


def _distinct(heads: pl.DataFrame) -> bool:
    """Whether no two lines are the same."""
    # Keys that were written in their order are seen to be distinct faster than they are counted.
    ordered = [one for one in heads if one.dtype == pl.String or one.dtype.is_integer()]
    climbs = (not one.null_count() and not len(rows_where(lambda before, here: here <= before, one)) for one in ordered)
    return any(climbs) or heads.n_unique() == len(heads)


def _flat(key: pl.Series) -> pl.Series:
    """Lists and structs are legal keys; their JSON text is compared."""
    return canonical(key) if key.dtype.is_nested() else key


def firsts(key: pl.DataFrame, coded: Coded) -> pl.DataFrame:
    """A line of keys for each group."""
    if coded.keys is not None:
        return coded.keys
    heads = key[coded.first]
    return heads.with_columns(one + "" for one in heads if one.dtype == pl.String)


def within(coded: Coded, more: Sequence[pl.Series]) -> Coded:
    """The same groups, cut further by other columns."""
    return encode([coded.codes, *more], len(coded.codes))


def blocks(coded: Coded, size: int) -> Coded:
    """Consecutive blocks of `size` rows inside each code."""
    place = coded.codes.to_frame("code").select(pl.int_range(pl.len()).over("code")).to_series()
    return within(coded, [place // size])


def sizes(coded: Coded) -> Index:
    """Rows of each group."""
    codes, lengths = coded.runs
    if coded.together:
        return lengths
    return np.bincount(codes, weights=lengths, minlength=coded.size).astype(np.int64)


def spanning(coded: Coded, other: pl.Series) -> list[int]:
    """The codes whose rows have more than one value of `other`."""
    flat = _flat(other)
    if not flat.ne_missing(flat.head(1)).any():
        return []
    differs = flat.ne_missing(flat.gather(coded.first).gather(coded.codes))
    return coded.codes.filter(differs).unique(maintain_order=True).to_list()


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


def refuse_merge(what: str, codes: Sequence[int], names: Sequence[str], cures: str) -> DataError:
    """The error for keys that occur in several files or steps when nothing says that they may."""
    shown = ", ".join(names[:SHOWN])
    more = f" and {len(codes) - SHOWN} more" if len(codes) > SHOWN else ""
    keys = f"{len(codes)} group keys have" if len(codes) > 1 else "a group key has"
    return DataError(f"{keys} rows in several {what} ({shown}{more})", cures)
