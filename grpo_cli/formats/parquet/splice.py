"""Parquet with its data unchanged: the new columns follow the old data, and a new footer follows them.

Nothing that the old footer points to moves, so its offsets, page indexes and bloom filters stay valid. The new footer
repeats what the old footer says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Final

import polars as pl

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


NewGroup = tuple[bytes, int]  # its bytes in the new footer, and the bytes of replaced columns that stay in the file


@dataclass(frozen=True, slots=True)
class Splice:
    """The bytes that are appended: first the chunks, then the footer, which needs the row groups with their offsets."""

    name: str
    merged: MergedColumns
    columns: pl.DataFrame
    codec: str
    metadata: new_footer.Metadata

    @classmethod
    def of(cls, source: Input, handle: BinaryIO, weaving: Weaving) -> Splice:
        """Plan the splice; Unspliceable is raised here, before anything is written."""
        old = footer.read(handle, source.pin.size)
        if weaving.take is not None:
            raise Unspliceable("rows were dropped or repeated")
        InputChanged.unless_same(sum(old.rows()), len(weaving.added), source.name)
        if max(old.rows(), default=0) > column_chunks.MOST_ROWS:
            raise Unspliceable("a row group is too long to be written at once")
        merged = MergedColumns.of(old, column_chunks.blank(weaving.added))
        schema = arrow_columns(weaving.added[:0]).schema
        metadata = new_footer.edited(merged, schema, weaving.metadata)
        return cls(source.name, merged, weaving.added, column_chunks.codec(footer.usual_codec(old)), metadata)

    def chunks(self, at: int) -> Iterator[tuple[memoryview, list[NewGroup]]]:
        """The new chunks, which are written from the offset `at` on, of some row groups at a time."""
        old = self.merged.old
        groups = iter(old.groups)
        for batch in column_chunks.encoded(self.columns, old.rows(), self.codec):
            found = list[NewGroup]()
            for number, group in enumerate(batch.footer.groups):
                new = column_chunks.moved(batch, number, at)
                sizes = [thrift.number(batch.footer.raw, group[name].start) for name in _SIZES]
                found.append(self.merged.group(next(groups), (sizes[0], sizes[1]), new))
            at += len(batch.data)
            yield batch.data, found

    def footer(self, groups: Sequence[NewGroup]) -> bytes:
        """The new footer."""
        old = self.merged.old
        listed = thrift.listed(thrift.STRUCT, len(groups), b"".join(encoded for encoded, _ in groups))
        values = {footer.SCHEMA: self.merged.schema(), footer.ROW_GROUPS: listed, footer.NOTES: self.metadata.encoded}
        if footer.ORDERS in old.fields:
            values[footer.ORDERS] = self.merged.orders()
        lists = {name: (thrift.LIST, value) for name, value in values.items()}
        return thrift.changed(old.raw, old.fields.values(), lists)

    def notes(self, groups: Sequence[NewGroup]) -> list[str]:
        """Notes for the user about what the file does not show, a line each."""
        notes = [f"{self.name}: {note}" for note in self.metadata.notes]
        if self.merged.removed:
            unread = sum(size for _, size in groups)
            notes.append(f"{self.name}: {unread:,} bytes of the replaced column stay in the file unread")
        return notes


def weave(source: Input, sink: BinaryIO, weaving: Weaving) -> list[str]:
    """Write the bytes of the file, the new chunks and the new footer; return the notes."""
    with source.open() as handle:
        splice = Splice.of(source, handle, weaving)
        start = splice.merged.old.start
        copy_start(source, handle, sink, start)
        groups = list[NewGroup]()
        for data, more in splice.chunks(start):  # written while the next chunks are encoded
            sink.write(data)
            groups += more
    body = splice.footer(groups)
    sink.write(body + tail(len(body)))
    return splice.notes(groups)


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
