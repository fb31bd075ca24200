"""Parquet written again with all its columns, one row group after the other: for what cannot be spliced."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from grpo_cli.formats.columnar import arrow_columns, fetch, joined, joined_schema
from grpo_cli.formats.jsonl.lines import exactly
from grpo_cli.formats.parquet import int96, new_footer, sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.interface import Weaving

_WRITABLE: Final = {"SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4"}
_MOST_AT_ONCE: Final = 1 << 16


def write(source: Input, sink: BinaryIO, weaving: Weaving, closer: Any = None) -> None:
    """Write the file again with the new columns; one row group is in memory at a time."""
    new = arrow_columns(weaving.added)
    with source.open() as handle, source.open() as again:
        old = sealed.opened(source, handle)
        schema, block = old.schema_arrow, old.read_row_group
        if int96.columns(old):
            schema, block = int96.by_microseconds(source, again, old)
        blocks = _Blocks(old.metadata, block)
        options = _like(old, new.schema.names)
        with pq.ParquetWriter(
            sink, _schema(old, schema, new.schema, weaving), encryption_properties=closer, **options
        ) as writer:
            if weaving.take is None:
                _weave_all(source, blocks, new, writer)
            else:
                _weave_taken(blocks, new, writer, weaving.take)


class _Blocks(NamedTuple):
    """The row groups of a file."""

    told: pq.FileMetaData
    read: Callable[[int], pa.Table]

    def sizes(self) -> list[int]:
        return [self.told.row_group(group).num_rows for group in range(self.told.num_row_groups)]


def _schema(old: pq.ParquetFile, schema: pa.Schema, new: pa.Schema, weaving: Weaving) -> pa.Schema:
    """Give the schema with the new columns; entries that describe it learn of them."""
    told = {key: value for key, value in (old.metadata.metadata or {}).items() if key != b"ARROW:schema"}
    told |= schema.metadata or {}
    told = new_footer.extended(told, schema.names, new, weaving.metadata)
    return joined_schema(schema.with_metadata(told), new, weaving.metadata)


def _weave_all(source: Input, old: _Blocks, new: pa.Table, writer: pq.ParquetWriter) -> None:
    exactly(old.told.num_rows, new.num_rows, source)
    at = 0
    for group in range(old.told.num_row_groups):
        table = old.read(group)
        beside = new.slice(at, table.num_rows)
        writer.write_table(joined(table, beside), row_group_size=max(table.num_rows, 1))
        at += table.num_rows


def _weave_taken(old: _Blocks, new: pa.Table, writer: pq.ParquetWriter, take: np.ndarray) -> None:
    sizes = old.sizes()
    starts = np.cumsum([0, *sizes])[:-1]
    # The next portion often begins in the row group where this one ended.
    block = lru_cache(maxsize=1)(old.read)
    for table, at, count in fetch(take, starts, block, max([_MOST_AT_ONCE, *sizes])):
        writer.write_table(joined(table, new.slice(at, count)), row_group_size=count)


def _like(old: pq.ParquetFile, added: Sequence[str]) -> dict[str, Any]:
    """Writer options that keep the codecs of the file, and add a schema entry only where there was one."""
    codecs = _codecs(old.metadata)
    usual = next(iter(codecs.values()), "ZSTD")
    return {
        "compression": {**codecs, **dict.fromkeys(added, usual)},
        "store_schema": b"ARROW:schema" in (old.metadata.metadata or {}),
        "use_deprecated_int96_timestamps": bool(int96.columns(old)),
    }


def _codecs(metadata: pq.FileMetaData) -> dict[str, str]:
    if not metadata.num_row_groups:
        return {}
    first = metadata.row_group(0)
    chunks = [first.column(at) for at in range(first.num_columns)]
    return {chunk.path_in_schema: _codec(chunk.compression) for chunk in chunks}


def _codec(name: str) -> str:
    return "NONE" if name == "UNCOMPRESSED" else name if name in _WRITABLE else "ZSTD"
