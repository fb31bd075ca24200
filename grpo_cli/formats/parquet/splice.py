"""Parquet with its data unchanged: the new columns follow the old data, and a new footer follows them.

Nothing that the old footer points to moves, so its offsets, page indexes and bloom filters stay valid. The new footer
repeats what the old footer says.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import BinaryIO, Final

from grpo_cli.errors import InputChanged
from grpo_cli.files.inputs import Input
from grpo_cli.formats.columnar import arrow_columns
from grpo_cli.formats.interface import Weaving
from grpo_cli.formats.parquet import column_chunks, footer, new_footer, thrift
from grpo_cli.formats.parquet.footer import Unspliceable
from grpo_cli.formats.parquet.new_footer import MergedColumns

_KERNEL_STEP: Final = 1 << 30  # bytes for one call of copy_file_range
_BLOCK: Final = 1 << 20
_SIZES: Final = (footer.PLAIN_SIZE, footer.PACKED_SIZE)


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
        if max(rows, default=0) > column_chunks.MOST_ROWS:
            raise Unspliceable("a row group is too long to be written at once")
        merged = MergedColumns.of(old, column_chunks.blank(weaving.added))
        metadata, odd = new_footer.edited(old, arrow_columns(weaving.added[:0]).schema, weaving.metadata)
        copy_start(source, handle, sink, old.start)
    groups, encoded, unread, at = iter(old.groups), list[bytes](), 0, old.start
    codec = column_chunks.codec([footer.chunk(old.raw, at) for at in old.first_chunks()])
    for batch in column_chunks.encoded(weaving.added, rows, codec):
        sink.write(batch.data)  # while the next chunks are encoded
        for number, group in enumerate(batch.footer.groups):
            plain, packed = (thrift.number(batch.footer.raw, group[name].start) for name in _SIZES)
            made, beside = merged.group(next(groups), (plain, packed), column_chunks.moved(batch, number, at))
            encoded.append(made)
            unread += beside
        at += len(batch.data)
    body = merged.footer(encoded, metadata)
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
