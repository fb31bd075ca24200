"""Parquet with every byte kept: the new columns follow the old data, and a new footer follows them.

Nothing that the old footer points to moves, so its offsets, page indexes and bloom filters stay right. The
old footer itself is not carried along: only what it says.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from io import UnsupportedOperation
from typing import TYPE_CHECKING, BinaryIO, Final

from grpo_cli.errors import InputChanged
from grpo_cli.files.in_place import Growth, padding
from grpo_cli.formats.columnar import arrow_columns
from grpo_cli.formats.jsonl.lines import exactly
from grpo_cli.formats.parquet import column_chunks, footer, new_footer, thrift
from grpo_cli.formats.parquet.compare import same_chunks
from grpo_cli.formats.parquet.footer import Unspliceable
from grpo_cli.formats.parquet.new_footer import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.interface import Weaving
    from grpo_cli.formats.parquet.footer import Footer


_STEP: Final = 1 << 30
_BLOCK: Final = 1 << 20
# Pipes, append mode, two file systems that do not know each other, kernels and sandboxes without the call.
_CANNOT: Final = {
    errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM, errno.ESPIPE, errno.EISDIR,
}  # fmt: skip


def copy_start(source: Input, handle: BinaryIO, sink: BinaryIO, length: int) -> None:
    """Copy the first `length` bytes to where the sink stands."""
    done = _in_kernel(handle, sink, length)
    handle.seek(done)
    while done < length:
        block = handle.read(min(_BLOCK, length - done))
        if not block:
            raise InputChanged.between_readings(source.name)
        sink.write(block)
        done += len(block)


def _in_kernel(handle: BinaryIO, sink: BinaryIO, length: int) -> int:
    """Copy as much as goes by `copy_file_range`, a reflink where the file system has it."""
    try:
        ends = handle.fileno(), sink.fileno()
        sink.flush()
    except (UnsupportedOperation, AttributeError):
        return 0
    done = 0
    try:
        while done < length:
            step = os.copy_file_range(*ends, min(_STEP, length - done), offset_src=done)
            if not step:
                break
            done += step
    except AttributeError:  # not on this system
        return 0
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    if done:
        # The sink has to hear that its descriptor went on.
        sink.seek(os.lseek(ends[1], 0, os.SEEK_CUR))
    return done


__all__ = ["Splice", "Unspliceable", "growth", "same_chunks", "tail", "weave"]

# While a file grows, the length of its footer spans what is new. Some readers take that for a signed number.
MOST_IN_PLACE: Final = 0x7FFF_FFFF


@dataclass(slots=True)
class Splice:
    """What is to be written behind the bytes that stay: first the chunks, and then what they led to."""

    name: str
    layout: Layout
    columns: pa.Table
    codec: str
    keys: new_footer.Keys
    _groups: list[bytes] = field(default_factory=list)
    _dead: int = 0

    @classmethod
    def of(cls, source: Input, handle: BinaryIO, weaving: Weaving) -> Splice:
        """Plan it; whatever speaks against it is found here, before a byte is written."""
        old = footer.read(handle, source.pin.size)
        if weaving.take is not None:
            raise Unspliceable("rows were dropped or repeated")
        columns = arrow_columns(weaving.added)
        exactly(sum(old.rows()), columns.num_rows, source)
        if max(old.rows(), default=0) > column_chunks.MOST_ROWS:
            raise Unspliceable("a row group is too long to be written at once")
        layout = Layout.of(old, column_chunks.blank(columns))
        keys = new_footer.keys(layout, columns.schema, weaving.metadata)
        return cls(source.name, layout, columns, column_chunks.codec(footer.usual_codec(old)), keys)

    def chunks(self, at: int) -> Iterator[memoryview]:
        """Encode the new chunks, which go into the file from the place `at` on."""
        old = self.layout.old
        groups = iter(old.groups)
        for batch in column_chunks.encoded(self.columns, old.rows(), self.codec):
            for number, group in enumerate(batch.footer.groups):
                new = column_chunks.moved(batch, number, at)
                described, dead = self.layout.group(next(groups), _sizes(batch.footer, group), new)
                self._groups.append(described)
                self._dead += dead
            at += len(batch.data)
            yield batch.data

    def footer(self) -> bytes:
        """Spell the new footer, once all chunks have their places."""
        old = self.layout.old
        groups = thrift.listed(thrift.STRUCT, len(self._groups), b"".join(self._groups))
        values = {footer.SCHEMA: self.layout.schema(), footer.ROW_GROUPS: groups, footer.NOTES: self.keys.listed}
        if footer.ORDERS in old.fields:
            values[footer.ORDERS] = self.layout.orders()
        lists = {name: (thrift.LIST, value) for name, value in values.items()}
        return thrift.changed(old.raw, old.fields.values(), lists)

    def notes(self) -> list[str]:
        """Say what the file does not show."""
        told = [f"{self.name}: {one}" for one in self.keys.left]
        if self.layout.gone:
            told.append(f"{self.name}: {self._dead:,} bytes of the replaced column stay in the file unread")
        return told


def weave(source: Input, sink: BinaryIO, weaving: Weaving) -> list[str]:
    """Write the bytes of the file, the new chunks and the new footer; give what is worth a line."""
    with source.open() as handle:
        splice = Splice.of(source, handle, weaving)
        start = splice.layout.old.start
        copy_start(source, handle, sink, start)
        for data in splice.chunks(start):  # noqa: FURB122 - each is written while the next ones are encoded
            sink.write(data)
    body = splice.footer()
    sink.write(body + tail(len(body)))
    return splice.notes()


def growth(source: Input, weaving: Weaving) -> tuple[Growth, list[str]]:
    """Plan how the file grows in place, all of it encoded; give what is worth a line, too."""
    size = source.pin.size
    with source.open() as handle:
        splice = Splice.of(source, handle, weaving)
    body, end = list[bytes | memoryview](), size
    for data in splice.chunks(size):
        body.append(data)
        end += len(data)
        _refuse_far(splice, end)
    ending = splice.footer()
    gap = bytes(padding(end + len(ending), footer.TAIL))
    end += len(gap) + len(ending)
    _refuse_far(splice, end)
    before, after = tail(end - splice.layout.old.start), tail(len(ending))
    return Growth(size, [*body, gap, ending], before, after[: -len(footer.MAGIC)]), splice.notes()


def _refuse_far(splice: Splice, end: int) -> None:
    if end - splice.layout.old.start > MOST_IN_PLACE:
        raise Unspliceable("more than 2 GiB would be added")


def tail(length: int) -> bytes:
    """Spell the last bytes of a file whose footer has this length."""
    return length.to_bytes(4, "little") + footer.MAGIC


def _sizes(side: Footer, group: Mapping[int, thrift.Field]) -> tuple[int, int]:
    plain, packed = (thrift.number(side.raw, group[name].start) for name in (footer.PLAIN_SIZE, footer.PACKED_SIZE))
    return plain, packed
