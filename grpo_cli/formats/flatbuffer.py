"""The few fields of Arrow's metadata that pyarrow does not tell: which compression a file has.

Arrow keeps its metadata in flatbuffers: a table starts with the way back to its vtable, and the vtable has
the place of each field by number (0: the field is not there). Numbers are little endian.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from typing import TypeAlias

    Bytes: TypeAlias = memoryview

_TAIL: Final = 10  # length of the footer in 4 bytes, then ARROW1
_CONTINUES: Final = 0xFFFFFFFF  # stands before the length of a message since format version 5
# Format.fbs: Footer.recordBatches, Message.header, RecordBatch.compression, BodyCompression.codec
_BATCHES, _HEADER, _COMPRESSION, _CODEC = 3, 2, 3, 0


def first_batch(handle: BinaryIO) -> Bytes | None:
    """Metadata of the first record batch of a file, found through its footer."""
    end = handle.seek(-_TAIL, os.SEEK_END)
    length = int.from_bytes(handle.read(4), "little")
    handle.seek(end - length)
    footer = memoryview(handle.read(length))
    batches = _follow(footer, _number(footer, 0), _BATCHES)
    if batches is None or not _number(footer, batches):
        return None
    # A vector has its length first; a block aligns to 8 bytes and starts with the offset of its message.
    first = batches + 4
    handle.seek(int.from_bytes(footer[first : first + 8], "little"))
    size = int.from_bytes(handle.read(4), "little")
    if size == _CONTINUES:
        size = int.from_bytes(handle.read(4), "little")
    return memoryview(handle.read(size))


def codec(message: Bytes) -> str | None:
    """Compression of a record batch, from its message."""
    batch = _follow(message, _number(message, 0), _HEADER)
    compression = None if batch is None else _follow(message, batch, _COMPRESSION)
    if compression is None:
        return None
    entry = _entry(message, compression, _CODEC)
    return "zstd" if entry and message[compression + entry] else "lz4"


def _number(raw: Bytes, at: int) -> int:
    return int.from_bytes(raw[at : at + 4], "little", signed=True)


def _entry(raw: Bytes, table: int, field: int) -> int:
    vtable = table - _number(raw, table)
    at = 4 + 2 * field
    inside = at < int.from_bytes(raw[vtable : vtable + 2], "little")
    return int.from_bytes(raw[vtable + at : vtable + at + 2], "little") if inside else 0


def _follow(raw: Bytes, table: int, field: int) -> int | None:
    entry = _entry(raw, table, field)
    return table + entry + _number(raw, table + entry) if entry else None
