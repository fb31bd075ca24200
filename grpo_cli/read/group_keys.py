"""Which rows belong together: keys to codes, blocks of N, batches, and the refusals that keep groups apart.

Merging unrelated groups is the worst bug that this tool can have, so whatever is ambiguous is an error that
names three keys and both cures.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import PIECE, over, rows_where
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
        codes = self.codes

        def changes(start: int, end: int) -> int:
            return int((codes[start:end] != codes[start + 1 : end + 1]).sum())

        return sum(over(changes, len(codes) - 1)) < self.size or not self.size

    def runs(self) -> tuple[Codes, Index]:
        """The code and the length of each stretch of rows with one code."""
        starts = _starts([self.codes])
        return self.codes.to_numpy()[starts], np.diff(starts, append=len(self.codes))


def encode(keys: Sequence[pl.Series], rows: int, *, keep: bool = False) -> Coded:
    """Number the distinct combinations of the keys; of rows that follow each other with one key only the first counts.

    With `keep` the keys of the codes are kept, as far as they are no lists and structs.
    """
    if not keys:
        zero = pl.zeros(rows, dtype=pl.UInt32, eager=True)
        return Coded(zero, pl.Series(np.zeros(min(rows, 1), np.uint32)))
    flat = [_flat(key) for key in keys]
    starts = _starts(flat)
    if len(starts) > rows // 2:  # a copy of the keys where runs start would be one of most rows
        codes = _numbered(pl.DataFrame([key.alias(str(at)) for at, key in enumerate(flat)]))
        first = _new(codes)
        heads = pl.DataFrame([_gathered(key, first, own=keep).alias(str(at)) for at, key in enumerate(flat)])
    else:
        heads = pl.DataFrame([_gathered(key, starts, own=keep).alias(str(at)) for at, key in enumerate(flat)])
        codes = _numbered(heads)
        new = _new(codes)
        first, heads = (starts, heads) if len(new) == len(starts) else (starts[new], heads[new])
        codes = np.repeat(codes, np.diff(starts, append=rows))
    kept = keep and not any(key.dtype.is_nested() for key in keys)
    heads.columns = [key.name for key in keys] if kept else heads.columns
    return Coded(pl.Series(codes), pl.Series(first, dtype=pl.UInt32), heads if kept else None)


def _starts(keys: Sequence[pl.Series]) -> Index:
    """The rows where a key differs from that of the row before, and row 0."""
    # Runs are found on all cores: in one go, or by numbering every row, it takes several times as long.

    def changes(start: int, end: int) -> Index:
        differs = [key[start + 1 : end + 1].ne_missing(key[start:end]) for key in keys]
        return np.flatnonzero(reduce(or_, differs).to_numpy()) + (start + 1)

    rows = len(keys[0])
    return np.concatenate([np.zeros(min(rows, 1), np.int64), *over(changes, rows - 1)])


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


def _numbered(keys: pl.DataFrame) -> Codes:
    """The number of each line among the distinct lines, in order of first appearance.

    Lines in ascending order are distinct. Of many others the hashes are numbered, which is much faster.
    """
    if any(_ascending(key) for key in keys):
        return np.arange(len(keys), dtype=np.uint32)
    if len(keys) > PIECE and (codes := _by_hash(keys)) is not None:
        return codes
    distinct = keys.unique(keep="first", maintain_order=True).with_row_index("code")
    return keys.join(distinct, on=keys.columns, how="left", maintain_order="left", nulls_equal=True)["code"].to_numpy()


def _by_hash(keys: pl.DataFrame) -> Codes | None:
    """The numbers of the hashes; None where a line differs from the first line of its number: two keys share a hash."""
    import pyarrow as pa  # few lines are not worth loading it

    hashes = pa.array(keys.hash_rows().to_numpy()).dictionary_encode()
    codes: Codes = hashes.indices.to_numpy().view(np.uint32)
    heads = keys[_new(codes)]

    def differs(start: int, end: int) -> bool:
        same = pl.Series(codes[start:end])
        return any(head.gather(same).ne_missing(key[start:end]).any() for head, key in zip(heads, keys, strict=True))

    return None if any(over(differs, len(keys))) else codes


def _ascending(key: pl.Series) -> bool:
    """Whether each value is above the one before."""
    if key.null_count() or not (key.dtype == pl.String or key.dtype.is_integer()):
        return False
    # Of a key in no order the first rows say so.
    return not any(len(rows_where(lambda before, here: here <= before, part)) for part in (key[:PIECE], key))


def _new(codes: Codes) -> Index:
    """The rows where a code stands for the first time; codes are in order of first appearance."""
    most = np.maximum.accumulate(codes)
    return np.concatenate([np.zeros(min(len(codes), 1), np.int64), np.flatnonzero(most[1:] != most[:-1]) + 1])


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
    if coded.together:
        return np.diff(coded.first.to_numpy().astype(np.int64), append=len(coded.codes))
    return np.bincount(coded.codes.to_numpy(), minlength=coded.size)


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
