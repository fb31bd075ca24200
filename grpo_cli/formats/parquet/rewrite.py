"""Parquet re-encoded with all its columns, row group by row group, for files that cannot be spliced."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files.inputs import Input
from grpo_cli.formats.columnar import arrow_columns, fetch, joined, joined_schema, rows_of
from grpo_cli.formats.interface import Weaving
from grpo_cli.formats.parquet import footer, new_footer
from grpo_cli.formats.parquet.new_footer import Change
from grpo_cli.formats.parquet.splice import codec
from grpo_cli.values.slices import within

_MOST_AT_ONCE = 1 << 16  # most rows of a row group, unless the input has larger ones
_MOST_BYTES = 1 << 26  # most bytes of a row group, if its rows are long
_DECODED = 4 << 20  # bytes that are read at a time
_BUFFER = 1 << 20  # bytes of a read


def write(source: Input, sink: BinaryIO, weaving: Weaving) -> None:
    """Re-encode the file with the new columns, with a single row group in memory at a time."""
    new = weaving.added
    schema = arrow_columns(new[:0]).schema
    with source.open() as handle:
        old = pq.ParquetFile(handle, pre_buffer=False, buffer_size=_BUFFER)  # not whole row groups ahead
        _refuse_int96(source, old)
        chunks = footer.first_chunks(source.name, handle, source.pin.size)
        with pq.ParquetWriter(
            sink,
            _schema(old, schema, weaving),
            compression=codec(chunks),
            store_schema=b"ARROW:schema" in (old.metadata.metadata or {}),
        ) as writer:
            if weaving.take is None:
                _weave_all(source, old, new, writer)
            else:
                _weave_taken(old, new, writer, weaving.take)


def _refuse_int96(source: Input, old: pq.ParquetFile) -> None:
    """Timestamps of 12 bytes are read as nanoseconds, which end in the year 2262, while Spark writes 9999 for "never"."""
    name = next((leaf.path for leaf in old.schema if leaf.physical_type == "INT96"), None)
    if name is not None:
        raise DataError(
            f"{source.name}: {name} has 96-bit timestamps (INT96), which are copied but not re-encoded",
            "keep all rows, leave the column out with --only, or have it written as TIMESTAMP_MICROS",
        )


def _schema(old: pq.ParquetFile, new: pa.Schema, weaving: Weaving) -> pa.Schema:
    """The schema with the new columns, also in the metadata entries that describe it."""
    schema = old.schema_arrow
    entries = {key: value for key, value in (old.metadata.metadata or {}).items() if key != b"ARROW:schema"}
    entries |= schema.metadata or {}
    entries = new_footer.each_edited(entries, Change(schema.names, new, weaving.metadata))
    return joined_schema(schema.with_metadata(entries), new, weaving.metadata)


def _weave_all(source: Input, old: pq.ParquetFile, new: pl.DataFrame, writer: pq.ParquetWriter) -> None:
    InputChanged.unless_same(old.metadata.num_rows, len(new), source.name)
    at = 0
    for group in range(old.num_row_groups):
        table = old.read_row_group(group)
        writer.write_table(joined(table, new, at), row_group_size=max(table.num_rows, 1))
        at += table.num_rows


def _weave_taken(old: pq.ParquetFile, new: pl.DataFrame, writer: pq.ParquetWriter, take: np.ndarray) -> None:
    sizes = [old.metadata.row_group(group).num_rows for group in range(old.num_row_groups)]
    starts = np.cumsum([0, *sizes])[:-1]
    most = max([_MOST_AT_ONCE, *sizes])
    if (np.diff(take) > 0).all():
        groups = _row_groups(old, take, most)
    else:  # the next portion often begins in the row group where this portion ended
        groups = fetch(take, starts, lru_cache(maxsize=1)(old.read_row_group), most)
    for table, at in groups:
        writer.write_table(joined(table, new, at), row_group_size=table.num_rows)


def _row_groups(old: pq.ParquetFile, take: np.ndarray, most: int) -> Iterator[tuple[pa.Table, int]]:
    """Rows in the order of the file, a table for each new row group: a few megabytes are in memory, however long rows are."""
    parts = []
    done = height = size = 0
    for part in taken(old, take):
        parts.append(part)
        height, size = height + part.num_rows, size + part.nbytes
        if height >= most or size >= _MOST_BYTES:
            yield pa.concat_tables(parts), done
            parts, done, height, size = [], done + height, 0, 0
    if height:
        yield pa.concat_tables(parts), done


def taken(file: pq.ParquetFile, numbers: np.ndarray, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """The rows with these ascending numbers, some megabytes at a time; nothing after the last of them in a row group is read."""
    groups = map(file.metadata.row_group, range(file.num_row_groups))
    for (group, metadata), here in within(enumerate(groups), numbers, lambda found: found[1].num_rows):
        # Lists of equal numbers take few bytes in the file.
        numbers_there = max(metadata.column(at).num_values for at in range(metadata.num_columns))
        size = max(1, metadata.total_byte_size, 8 * numbers_there)
        most = min(_MOST_AT_ONCE, max(1, _DECODED * metadata.num_rows // size), int(here[-1]) + 1)
        batches = file.iter_batches(most, row_groups=[group], columns=columns, use_threads=False)
        for batch, inside in within(batches, here):
            yield rows_of(pa.Table.from_batches([batch]), inside)
