"""Timestamps of 12 bytes, as Spark and Impala write them, read without a loss.

As nanoseconds they reach to the year 2262 and wrap around behind it; Spark writes microseconds, and days as far off as
9999-12-31 for "never".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np
import pyarrow as pa

from grpo_cli.errors import DataError
from grpo_cli.formats.parquet import sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow.parquet as pq

    from grpo_cli.files.inputs import Input

_REACH: Final = (1 << 63) // 1000  # microseconds that are nanoseconds, too


def columns(file: pq.ParquetFile) -> list[str]:
    """Name the leaves of this kind."""
    leaves = [file.schema.column(at) for at in range(len(file.schema))]
    return [one.path for one in leaves if one.physical_type == "INT96"]


def by_microseconds(
    source: Input, handle: BinaryIO, fine: pq.ParquetFile
) -> tuple[pa.Schema, Callable[[int], pa.Table]]:
    """Give the schema of a file, and what reads a row group of it; finer timestamps are refused."""
    names = columns(fine)
    coarse = sealed.opened(source, handle, coerce_int96_timestamp_unit="us")

    def read(group: int) -> pa.Table:
        both = (one.read_row_group(group, columns=names) for one in (fine, coarse))
        for name, exact, rough in zip(names, *map(_leaves, both), strict=True):
            if not _same(exact, rough):
                told = f"{source.name}: {name} has 96-bit timestamps with nanoseconds, which cannot be written again"
                raise DataError(told, "keep all rows: then they are not touched")
        return coarse.read_row_group(group)

    return coarse.schema_arrow, read


def _same(fine: np.ndarray, coarse: np.ndarray) -> bool:
    near = np.abs(coarse) < _REACH
    return np.array_equal(fine[near], coarse[near] * 1000)


def _leaves(table: pa.Table) -> list[np.ndarray]:
    """Give the numbers of all timestamps in a table, leaf after leaf."""
    return [leaf for column in table.columns for leaf in _inside(column.combine_chunks())]


def _inside(array: pa.Array) -> Iterator[np.ndarray]:
    if pa.types.is_struct(array.type):
        for inner in array.flatten():
            yield from _inside(inner)
    elif pa.types.is_nested(array.type):
        yield from _inside(array.flatten())
    else:
        yield array.drop_null().view(pa.int64()).to_numpy()
