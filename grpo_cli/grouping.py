"""Which rows belong together: keys to codes, blocks of N, batches, and the refusals that keep groups apart.

Merging unrelated groups is the worst bug that this tool can have, so whatever is ambiguous is an error that
names three keys and both cures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.formats.cells import canonical

if TYPE_CHECKING:
    from collections.abc import Sequence

STEP_LIKE: Final = (
    "step", "global_step", "training_step", "train_step", "gen_step", "iteration", "iter", "epoch",
)  # fmt: skip
SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Coded:
    """A dense code for every row, in order of first appearance, and the row where each code first stands."""

    codes: pl.Series
    first: pl.Series

    @property
    def size(self) -> int:
        """How many codes there are."""
        return len(self.first)


def encode(keys: Sequence[pl.Series], rows: int) -> Coded:
    """Number the distinct combinations of the keys; rows that follow each other with one key are cheap."""
    if not keys:
        zero = pl.zeros(rows, dtype=pl.UInt32, eager=True)
        return Coded(zero, pl.Series([0] if rows else [], dtype=pl.UInt32))
    frame = pl.DataFrame([_flat(key).alias(str(i)) for i, key in enumerate(keys)])
    run = (frame.to_series() if len(keys) == 1 else frame.to_struct()).rle_id()
    ids = run.to_numpy()
    starts = pl.Series(np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1])[:rows].astype(np.uint32))
    heads = frame[starts]
    if heads.n_unique() == len(heads):
        return Coded(run, starts)
    distinct = heads.with_columns(first=starts).unique(frame.columns, keep="first", maintain_order=True)
    numbered = distinct.with_row_index("code")
    codes = heads.join(numbered, on=frame.columns, how="left", maintain_order="left", nulls_equal=True)["code"]
    return Coded(codes.gather(run).cast(pl.UInt32), numbered["first"])


def _flat(key: pl.Series) -> pl.Series:
    """Lists and structs are legal keys; their JSON text is compared."""
    return canonical(key) if key.dtype.is_nested() else key


def within(coded: Coded, more: Sequence[pl.Series]) -> Coded:
    """The same groups, cut further by other columns."""
    return encode([coded.codes, *more], len(coded.codes))


def blocks(coded: Coded, size: int) -> Coded:
    """Consecutive blocks of `size` rows inside each code."""
    place = coded.codes.to_frame("code").select(pl.int_range(pl.len()).over("code")).to_series()
    return within(coded, [place // size])


def sizes(coded: Coded) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Rows of each group."""
    return np.bincount(coded.codes.to_numpy(), minlength=coded.size)


def spanning(coded: Coded, other: pl.Series) -> list[int]:
    """The codes whose rows have more than one value of `other`."""
    if other.n_unique() <= 1:
        return []
    frame = pl.DataFrame({"code": coded.codes, "other": _flat(other)})
    differs = ~pl.col("other").eq_missing(pl.col("other").first().over("code"))
    return frame.filter(differs)["code"].unique(maintain_order=True).to_list()


def refuse_nulls(name: str, key: pl.Series, place: str) -> None:
    """A row without a key belongs nowhere; polars would make all of them one group."""
    count = key.null_count()
    if count:
        more = f" ({count} rows)" if count > 1 else ""
        raise DataError(f"{place}: {name} is null{more}", "give every row one, or name another column")


def refuse_merge(what: str, codes: Sequence[int], names: Sequence[str], cures: str) -> DataError:
    """The error for keys that occur in several files or steps when nothing says that they may."""
    shown = ", ".join(names[:SHOWN])
    more = f" and {len(codes) - SHOWN} more" if len(codes) > SHOWN else ""
    keys = f"{len(codes)} group keys have" if len(codes) > 1 else "a group key has"
    return DataError(f"{keys} rows in several {what} ({shown}{more})", cures)
