"""New columns as Parquet column chunks, one for each row group of a file.

pyarrow writes them on threads into small files in memory, several row groups each. `splice` appends the chunks to the
data of the large file, and `moved` shifts their offsets.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, Final, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from grpo_cli.formats.columnar import arrow_columns
from grpo_cli.formats.parquet import footer, thrift
from grpo_cli.formats.parquet.footer import Chunk, Footer
from grpo_cli.formats.parquet.thrift import ThriftField
from grpo_cli.parallel import ahead
from grpo_cli.values.token_lists import AT_ONCE, is_on_tokens, token_counts

MOST_ROWS: Final = 1 << 26  # pyarrow cuts larger row groups
# Codecs of parquet.thrift by number. Few readers know Hadoop's LZ4 (5), all know its successor.
_CODECS: Final = {0: "none", 1: "snappy", 2: "gzip", 4: "brotli", 5: "lz4", 6: "zstd", 7: "lz4"}
_BATCH_ROWS: Final = 1 << 18
_BATCH_GROUPS: Final = 512
_ORIGIN: Final = len(footer.MAGIC)
_SAMPLE: Final = 8192
_AT_ONCE: Final = 8192  # values between two looks at the size of a page; pyarrow's own 1024 encodes more slowly
_DICTIONARY: Final = 1 << 16  # bytes; where a sample was wrong, pyarrow goes on without one
_LISTS: Final = 1 << 20  # bytes, of lists: a number for each row of a row group


class Batch(NamedTuple):
    """The chunks of some row groups, and the footer of the small file that they are in after its magic."""

    data: memoryview
    footer: Footer


def codec(chunks: Sequence[Chunk]) -> str:
    """The codec to write with: that of the first of these if pyarrow has it, otherwise zstd."""
    name = _CODECS.get(chunks[0].codec, "zstd") if chunks else "zstd"
    return name if name == "none" or pa.Codec.is_available(name) else "zstd"


def blank(columns: pl.DataFrame) -> Footer:
    """The footer of these columns without rows."""
    return _encode(columns[:0], [], "none").footer


def encoded(columns: pl.DataFrame, sizes: Sequence[int], compression: str) -> Iterator[Batch]:
    """The batches in order, encoded a few ahead of the writer; lists are long, so one batch of them is in memory."""
    tokens = sum(int(token_counts(series).sum()) for series in columns if is_on_tokens(series))
    most = max(1, AT_ONCE * len(columns) // tokens) if tokens else _BATCH_ROWS
    parts = _parts(columns, sizes, most)

    def made(part: tuple[pl.DataFrame, list[int]]) -> Batch:
        return _encode(*part, compression)

    return map(made, parts) if tokens else ahead(made, parts)


def _parts(columns: pl.DataFrame, sizes: Sequence[int], most: int) -> Iterator[tuple[pl.DataFrame, list[int]]]:
    """The rows and sizes of some row groups at a time."""
    start, rows, part = 0, 0, list[int]()
    for size in sizes:
        part.append(size)
        rows += size
        if rows >= most or len(part) == _BATCH_GROUPS:
            yield columns[start : start + rows], part
            start, rows, part = start + rows, 0, []
    if part:
        yield columns[start:], part


def _encode(columns: pl.DataFrame, sizes: Sequence[int], compression: str) -> Batch:
    # pyarrow ends a page where an array ends, and the file must not depend on how the columns were chunked.
    table, sink = arrow_columns(columns).combine_chunks(), io.BytesIO()
    first = columns.head(min(next(filter(None, sizes), 0), _SAMPLE))
    options: dict[str, Any] = {
        "compression": compression,
        "use_dictionary": any(map(_repeats, first)),
        "dictionary_pagesize_limit": _LISTS if any(map(pa.types.is_list, table.schema.types)) else _DICTIONARY,
        "write_batch_size": _AT_ONCE,
        "store_schema": False,
    }
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        start = 0
        for size, run in groupby(sizes):
            count = len(list(run))
            rows = table.slice(start, size * count)
            for _ in range(1 if size else count):  # an empty table makes one row group
                writer.write_table(rows, row_group_size=max(size, 1))
            start += size * count
    view = sink.getbuffer()
    sink.seek(0)
    found = footer.read(sink, len(view))
    return Batch(view[_ORIGIN : found.start], found)


def _repeats(column: pl.Series) -> bool:
    return column.dtype.is_nested() or 2 * column.n_unique() <= len(column)  # a list repeats one number


def moved(batch: Batch, group: int, to: int) -> list[bytes]:
    """The metadata of the chunks of a row group if the data of the batch begins at `to`."""
    raw, found = batch.footer.raw, []
    for start, end in pairwise(batch.footer.chunks(batch.footer.groups[group])):
        parts, done = [], start
        for place in _places(raw, start):
            if offset := thrift.number(raw, place.start):  # 0 means that there is none
                parts += [raw[done : place.start], thrift.whole(offset + to - _ORIGIN)]
                done = place.end
        found.append(b"".join([*parts, raw[done:end]]))
    return found


def _places(raw: bytes, at: int) -> Iterator[ThriftField]:
    """The offsets in the metadata of a chunk; they precede the statistics, which are not walked."""
    for field in thrift.walk(raw, at):
        if field.id == footer.CHUNK_AT:
            yield field
        elif field.id == footer.META:
            for inner in thrift.walk(raw, field.start):
                if inner.id in {footer.PAGES_AT, footer.DICTIONARY_AT}:
                    yield inner
                if inner.id >= footer.DICTIONARY_AT:
                    return
