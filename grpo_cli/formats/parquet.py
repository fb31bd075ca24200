"""Parquet: spliced where it can be (see `parquet_splice`), and otherwise written again, one row group after the other.

What is written again keeps the pandas and huggingface entries of its metadata as they were, without the new
columns; the splice extends them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from grpo_cli.errors import DataError
from grpo_cli.formats import cells, parquet_splice, sealed
from grpo_cli.formats.columnar import (
    arrow_columns,
    fetch,
    joined,
    joined_schema,
    place,
    reach,
    steps,
)
from grpo_cli.formats.footer import Encrypted, Unspliceable
from grpo_cli.formats.lines import exactly
from grpo_cli.formats.loose import plain_keys
from grpo_cli.formats.sealed import openable
from grpo_cli.io.in_place import ELSEWHERE, append

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.formats.model import Field, Weaving
    from grpo_cli.io.local import Input

_WRITABLE: Final = {"SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4"}
_MOST_AT_ONCE: Final = 1 << 16


def columns(source: Input) -> list[str]:
    """Names of the top-level columns, without those that only a key could open where others can be read."""
    with openable(source), source.open() as handle:
        names = list(_schema(source, handle).names)
        shut = sealed.locked(source, handle) if source.key is None else ()
    return [name for name in names if name not in shut]


def _schema(source: Input, handle: BinaryIO) -> pa.Schema:
    return pq.read_schema(handle, decryption_properties=sealed.opener(source))


def scan(source: Input, fields: Sequence[Field]) -> pl.DataFrame:
    """Read the columns that the fields lie in, and nothing else of the file."""
    with openable(source):
        with source.open() as handle:
            schema = _schema(source, handle)
        ways = [steps(source, field, schema) for field in fields]
        frame = _top_columns(source, list(dict.fromkeys(way[0] for way in ways)))
    pairs = zip(fields, ways, strict=True)
    return pl.DataFrame({one.name: cells.typed(one, reach(frame, way), place(source)) for one, way in pairs})


def _top_columns(source: Input, names: list[str]) -> pl.DataFrame:
    try:
        return pl.scan_parquet(source.path, glob=False, hive_partitioning=False).select(names).collect()
    except pl.exceptions.PolarsError:
        # One column of a type that polars does not know stops it, even when nobody asked for that column.
        with source.open() as handle:
            frame = pl.from_arrow(_file(source, handle).read(columns=names))
        return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()


def _file(source: Input, handle: BinaryIO) -> pq.ParquetFile:
    return pq.ParquetFile(handle, decryption_properties=sealed.opener(source))


def weave(source: Input, sink: BinaryIO, weaving: Weaving) -> list[str]:
    """Splice the new columns into the bytes of the file, or write it again where that cannot be."""
    anew = f"{source.name}: all columns were encoded anew (the general path)"
    with openable(source):
        try:
            return parquet_splice.weave(source, sink, weaving)
        except Encrypted as why:
            _write_anew(source, sink, weaving, sealed.closer(source))
            return [f"{anew} and encrypted with the same key: {why}"]
        except Unspliceable as why:
            _write_anew(source, sink, weaving)
            return [f"{anew}: {why}"]


def in_place(source: Input, weaving: Weaving) -> list[str]:
    """Splice the new columns into the file itself, which can be read at every instant."""
    try:
        with openable(source):
            growth, notes = parquet_splice.growth(source, weaving)
    except Unspliceable as why:
        raise DataError(f"{source.name}: cannot be changed in place: {why}", ELSEWHERE) from None
    append(source, growth)
    return notes


def _write_anew(source: Input, sink: BinaryIO, weaving: Weaving, closer: Any = None) -> None:
    """Write the file again with the new columns; one row group is in memory at a time."""
    new = arrow_columns(weaving.added)
    with source.open() as handle:
        old = _file(source, handle)
        schema = joined_schema(old.schema_arrow, new.schema, weaving.metadata)
        options = _like(old, new.schema.names)
        with pq.ParquetWriter(sink, schema, encryption_properties=closer, **options) as writer:
            if weaving.take is None:
                _weave_all(source, old, new, writer)
            else:
                _weave_taken(old, new, writer, weaving.take)


def _weave_all(source: Input, old: pq.ParquetFile, new: pa.Table, writer: pq.ParquetWriter) -> None:
    exactly(old.metadata.num_rows, new.num_rows, source)
    at = 0
    for group in range(old.num_row_groups):
        table = old.read_row_group(group)
        beside = new.slice(at, table.num_rows)
        writer.write_table(joined(table, beside), row_group_size=max(table.num_rows, 1))
        at += table.num_rows


def _weave_taken(old: pq.ParquetFile, new: pa.Table, writer: pq.ParquetWriter, take: np.ndarray) -> None:
    sizes = [old.metadata.row_group(group).num_rows for group in range(old.num_row_groups)]
    starts = np.cumsum([0, *sizes])[:-1]
    # The next portion often begins in the row group where this one ended.
    block = lru_cache(maxsize=1)(old.read_row_group)
    for table, at, count in fetch(take, starts, block, max([_MOST_AT_ONCE, *sizes])):
        writer.write_table(joined(table, new.slice(at, count)), row_group_size=count)


def _like(old: pq.ParquetFile, added: Sequence[str]) -> dict[str, Any]:
    """Writer options that keep the codecs of the file, and add a schema entry only where there was one."""
    codecs = _codecs(old.metadata)
    usual = next(iter(codecs.values()), "ZSTD")
    return {
        "compression": {**codecs, **dict.fromkeys(added, usual)},
        "store_schema": b"ARROW:schema" in (old.metadata.metadata or {}),
    }


def _codecs(metadata: pq.FileMetaData) -> dict[str, str]:
    if not metadata.num_row_groups:
        return {}
    first = metadata.row_group(0)
    chunks = [first.column(at) for at in range(first.num_columns)]
    return {chunk.path_in_schema: _codec(chunk.compression) for chunk in chunks}


def _codec(name: str) -> str:
    return "NONE" if name == "UNCOMPRESSED" else name if name in _WRITABLE else "ZSTD"


def read(source: Input) -> pl.DataFrame:
    """Read the whole file, for another format."""
    with openable(source):
        with source.open() as handle:
            names = list(_schema(source, handle).names)
        return _top_columns(source, names)


def write(frame: pl.DataFrame, sink: BinaryIO, metadata: Mapping[str, str]) -> None:
    """Write a fresh file."""
    plain_keys(frame).write_parquet(sink, metadata=dict(metadata))
