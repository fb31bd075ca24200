"""Parquet with its data unchanged: the new columns follow the old data, and a new footer follows them.

Nothing that the old footer points to moves, so its offsets, page indexes and bloom filters stay valid. The new footer
repeats what the old footer says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, Final

import polars as pl

from grpo_cli.errors import InputChanged
from grpo_cli.files.in_place import Extension, padding
from grpo_cli.files.inputs import Input
from grpo_cli.formats.columnar import arrow_columns
from grpo_cli.formats.interface import Weaving
from grpo_cli.formats.parquet import column_chunks, footer, new_footer, thrift
from grpo_cli.formats.parquet.footer import Unspliceable
from grpo_cli.formats.parquet.new_footer import MergedColumns

# While a file grows, the footer length in its last bytes covers all that was appended. Some readers take it as signed.
MOST_IN_PLACE: Final = 0x7FFF_FFFF
_KERNEL_STEP: Final = 1 << 30  # bytes for one call of copy_file_range
_BLOCK: Final = 1 << 20
_SIZES: Final = (footer.PLAIN_SIZE, footer.PACKED_SIZE)


@dataclass(slots=True)
class Splice:
    """The bytes that are appended: first the chunks, then the footer, which needs their offsets."""

    name: str
    merged: MergedColumns
    columns: pl.DataFrame
    codec: str
    metadata: new_footer.Metadata
    _groups: list[bytes] = field(default_factory=list)
    _unread: int = 0  # bytes of replaced columns that stay in the file

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

    def chunks(self, at: int) -> Iterator[memoryview]:
        """The new chunks, which are written from the offset `at` on."""
        old = self.merged.old
        groups = iter(old.groups)
        for batch in column_chunks.encoded(self.columns, old.rows(), self.codec):
            for number, group in enumerate(batch.footer.groups):
                new = column_chunks.moved(batch, number, at)
                sizes = [thrift.number(batch.footer.raw, group[name].start) for name in _SIZES]
                encoded, unread = self.merged.group(next(groups), (sizes[0], sizes[1]), new)
                self._groups.append(encoded)
                self._unread += unread
            at += len(batch.data)
            yield batch.data

    def footer(self) -> bytes:
        """The new footer, once all chunks have their offsets."""
        old = self.merged.old
        groups = thrift.listed(thrift.STRUCT, len(self._groups), b"".join(self._groups))
        values = {footer.SCHEMA: self.merged.schema(), footer.ROW_GROUPS: groups, footer.NOTES: self.metadata.encoded}
        if footer.ORDERS in old.fields:
            values[footer.ORDERS] = self.merged.orders()
        lists = {name: (thrift.LIST, value) for name, value in values.items()}
        return thrift.changed(old.raw, old.fields.values(), lists)

    def notes(self) -> list[str]:
        """Notes for the user about what the file does not show, a line each."""
        notes = [f"{self.name}: {note}" for note in self.metadata.notes]
        if self.merged.removed:
            notes.append(f"{self.name}: {self._unread:,} bytes of the replaced column stay in the file unread")
        return notes


def weave(source: Input, sink: BinaryIO, weaving: Weaving) -> list[str]:
    """Write the bytes of the file, the new chunks and the new footer; return the notes."""
    with source.open() as handle:
        splice = Splice.of(source, handle, weaving)
        start = splice.merged.old.start
        copy_start(source, handle, sink, start)
        for data in splice.chunks(start):  # noqa: FURB122 - each is written while the next ones are encoded
            sink.write(data)
    body = splice.footer()
    sink.write(body + tail(len(body)))
    return splice.notes()


def growth(source: Input, weaving: Weaving, most: int = MOST_IN_PLACE) -> tuple[Extension, list[str]]:
    """Everything that is appended in place, already encoded, and the notes."""
    size = source.pin.size
    with source.open() as handle:
        splice = Splice.of(source, handle, weaving)
    body, end = list[bytes | memoryview](), size
    for data in splice.chunks(size):
        body.append(data)
        end += len(data)
        _refuse_far(splice, end, most)
    ending = splice.footer()
    gap = bytes(padding(end + len(ending), footer.TAIL))
    end += len(gap) + len(ending)
    _refuse_far(splice, end, most)
    before, after = tail(end - splice.merged.old.start), tail(len(ending))
    return Extension(size, [*body, gap, ending], before, after[: -len(footer.MAGIC)]), splice.notes()


def _refuse_far(splice: Splice, end: int, most: int) -> None:
    if end - splice.merged.old.start > most:
        raise Unspliceable("more than 2 GiB would be added")


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
