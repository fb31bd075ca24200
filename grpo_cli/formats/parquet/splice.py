"""Parquet with its data unchanged: the new columns follow the old data, and a new footer follows them.

Nothing that the old footer points to moves, so its offsets, page indexes and bloom filters stay valid. The new footer
repeats what the old footer says. pyarrow writes the new columns on threads into small files in memory, several row groups
each; their column chunks are appended to the data of the large file, and `moved` shifts their offsets.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby, pairwise
from typing import BinaryIO, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from grpo_cli.errors import InputChanged
from grpo_cli.files.inputs import Input
from grpo_cli.formats.columnar import arrow_columns
from grpo_cli.formats.interface import Weaving
from grpo_cli.formats.parquet import footer, new_footer, thrift
from grpo_cli.formats.parquet.footer import Chunk, Footer, Unspliceable
from grpo_cli.formats.parquet.new_footer import MergedColumns
from grpo_cli.formats.parquet.thrift import ThriftField
from grpo_cli.parallel import ahead
from grpo_cli.values.token_lists import AT_ONCE, is_on_tokens, token_counts

_KERNEL_STEP = 1 << 30  # bytes for one call of copy_file_range
_BLOCK = 1 << 20  # bytes that are copied at once where the kernel does not
_MOST_ROWS = 1 << 26  # pyarrow cuts larger row groups
# Codecs of parquet.thrift by number. Few readers know Hadoop's LZ4 (5), all know its successor.
_CODECS = {0: "none", 1: "snappy", 2: "gzip", 4: "brotli", 5: "lz4", 6: "zstd", 7: "lz4"}
_BATCH_ROWS = 1 << 18  # rows of the new columns that are encoded at once
_BATCH_GROUPS = 512  # row groups that are encoded at once
_ORIGIN = len(footer.MAGIC)
_SAMPLE = 8192  # rows that show whether values repeat
_AT_ONCE = 8192  # values between two looks at the size of a page; pyarrow's own 1024 encodes more slowly
_DICTIONARY = 1 << 16  # bytes; where a sample was wrong, pyarrow goes on without one
_LISTS = 1 << 20  # bytes, of lists: a number for each row of a row group


def weave(source: Input, sink: BinaryIO, weaving: Weaving) -> list[str]:
    """Write the bytes of the file, the new chunks and the new footer; return the notes.

    Unspliceable is raised before anything is written.
    """
    with source.open() as handle:
        old = footer.read(handle, source.pin.size)
        if weaving.take is not None:
            raise Unspliceable("rows were dropped or repeated")
        rows = old.rows()
        InputChanged.unless_same(sum(rows), len(weaving.added), source.name)
        if max(rows, default=0) > _MOST_ROWS:
            raise Unspliceable("a row group is too long to be written at once")
        merged = MergedColumns.of(old, _encode(weaving.added[:0], [], "none").footer)
        metadata, odd = new_footer.edited(old, arrow_columns(weaving.added[:0]).schema, weaving.metadata)
        copy_start(source, handle, sink, old.start)
    groups = iter(old.groups)
    merged_groups = list[bytes]()
    unread = 0
    at = old.start
    compression = codec([footer.chunk(old.raw, at) for at in old.first_chunks()])
    for batch in encoded(weaving.added, rows, compression):
        sink.write(batch.data)  # while the next chunks are encoded
        for number, group in enumerate(batch.footer.groups):
            plain, packed = (
                thrift.number(batch.footer.raw, group[name].start) for name in (footer.PLAIN_SIZE, footer.PACKED_SIZE)
            )
            made, beside = merged.group(next(groups), (plain, packed), moved(batch, number, at))
            merged_groups.append(made)
            unread += beside
        at += len(batch.data)
    body = merged.footer(merged_groups, metadata)
    sink.write(body + tail(len(body)))
    notes = [f"{source.name}: {note}" for note in odd]
    if merged.removed:
        notes.append(f"{source.name}: {unread:,} bytes of the replaced column stay in the file unread")
    return notes


def tail(length: int) -> bytes:
    """The last bytes of a file whose footer has this length."""
    return length.to_bytes(4, "little") + footer.MAGIC


def copy_start(source: Input, handle: BinaryIO, sink: BinaryIO, length: int) -> None:
    """Copy the first `length` bytes to the position of the sink."""
    copied = getattr(sink, "copied", None)  # an upload: the store may copy the bytes of the object itself
    done = _in_kernel(handle, sink, length) if copied is None else copied(source, length)
    handle.seek(done)
    while done < length:
        block = handle.read(min(_BLOCK, length - done))
        if not block:
            raise InputChanged.between_readings(source.name)
        sink.write(block)
        done += len(block)


def _in_kernel(handle: BinaryIO, sink: BinaryIO, length: int) -> int:
    """Copy with `copy_file_range`, a reflink where the file system has it; return the number of bytes copied."""
    done = 0
    # Not on this system; a pipe, append mode, a file system without it. A real error comes again for the bytes left.
    with suppress(AttributeError, OSError):
        sink.flush()
        ends = handle.fileno(), sink.fileno()
        while step := os.copy_file_range(*ends, min(_KERNEL_STEP, length - done), offset_src=done):
            done += step
    if done:
        # The sink does not know that its descriptor has moved.
        sink.seek(os.lseek(sink.fileno(), 0, os.SEEK_CUR))
    return done


# --- the new columns as column chunks -------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """The chunks of some row groups, and the footer of the small file that they are in after its magic."""

    data: memoryview
    footer: Footer


def codec(chunks: Sequence[Chunk]) -> str:
    """The codec to write with: that of the first of these if pyarrow has it, otherwise zstd."""
    name = _CODECS.get(chunks[0].codec, "zstd") if chunks else "zstd"
    return name if name == "none" or pa.Codec.is_available(name) else "zstd"


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
    start = 0
    rows = 0
    part = list[int]()
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
    table = arrow_columns(columns).combine_chunks()
    sink = io.BytesIO()
    first = columns.head(min(next(filter(None, sizes), 0), _SAMPLE))
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression=compression,
        use_dictionary=any(map(repeats, first)),
        dictionary_pagesize_limit=_LISTS if any(map(pa.types.is_list, table.schema.types)) else _DICTIONARY,
        write_batch_size=_AT_ONCE,
        store_schema=False,
    ) as writer:
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


def repeats(column: pl.Series) -> bool:
    """Whether a dictionary of its values is worth trying: of mostly distinct ones it costs time and bytes."""
    return column.dtype.is_nested() or 2 * column.n_unique() <= len(column)  # a list repeats one number


def moved(batch: Batch, group: int, to: int) -> list[bytes]:
    """The metadata of the chunks of a row group if the data of the batch begins at `to`."""
    raw = batch.footer.raw
    found = []
    for start, end in pairwise(batch.footer.chunks(batch.footer.groups[group])):
        parts = []
        done = start
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
