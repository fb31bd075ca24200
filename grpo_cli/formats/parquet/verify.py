"""Whether a Parquet file has the column chunks of another file, byte for byte."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import BinaryIO, Final, NamedTuple

from grpo_cli.errors import DataError
from grpo_cli.files.inputs import Input
from grpo_cli.formats.parquet import footer, thrift
from grpo_cli.formats.parquet.footer import Column, Footer
from grpo_cli.formats.parquet.thrift import I32, I64

_BLOCK: Final = 1 << 22


class _Side(NamedTuple):
    """One of the two files, without the added columns."""

    handle: BinaryIO
    footer: Footer
    columns: Sequence[Column]

    def chunks(self, group: int) -> list[bytes]:
        """The metadata of the compared chunks of a row group."""
        raw = self.footer.raw
        spans = list(pairwise(self.footer.chunks(self.footer.groups[group])))
        return [raw[slice(*spans[leaf])] for column in self.columns for leaf in range(column.first, column.last)]

    def schema(self) -> list[bytes]:
        """The schema elements of the root, with its number of children set to 0, and of the columns."""
        raw, at = self.footer.raw, self.footer.root
        root = thrift.changed(raw, thrift.walk(raw, at), {footer.CHILDREN: (I32, thrift.whole(0))})
        return [root, *(raw[column.start : column.end] for column in self.columns)]

    def bytes(self, at: int, length: int) -> bytes:
        self.handle.seek(at)
        return self.handle.read(length)


def same_chunks(old: Input, new: Input, added: Collection[str]) -> bool:
    """Whether the new file has everything of the old file: its columns, row groups and the bytes of all chunks."""
    with old.open() as first, new.open() as second:
        left, right = _side(first, old, added), _side(second, new, added)
        try:
            same_table = left.schema() == right.schema() and left.footer.rows() == right.footer.rows()
            return same_table and _have_same_chunks(left, right)
        except footer.BROKEN as error:
            raise DataError(f"{new.name}: the footer cannot be parsed") from error


def _side(handle: BinaryIO, source: Input, added: Collection[str]) -> _Side:
    try:
        found = footer.read(handle, source.pin.size)
    except footer.Unspliceable as why:
        raise DataError(f"{source.name}: {why}") from None
    return _Side(handle, found, [column for column in found.columns if column.name not in added])


def _have_same_chunks(left: _Side, right: _Side) -> bool:
    groups = range(len(left.footer.groups))
    pairs = (pair for group in groups for pair in zip(left.chunks(group), right.chunks(group), strict=True))
    return all(_is_same(left, right, ours, theirs) for ours, theirs in pairs)


def _is_same(left: _Side, right: _Side, ours: bytes, theirs: bytes) -> bool:
    """Whether two chunks have the same bytes and, except for offsets, the same metadata."""
    if ours != theirs and _without_offsets(ours) != _without_offsets(theirs):
        return False
    blocks = (
        (here + at, there + at, min(_BLOCK, length - at))
        for (here, length), (there, _) in zip(_spans(ours), _spans(theirs), strict=True)
        for at in range(0, length, _BLOCK)
    )
    return all(left.bytes(here, size) == right.bytes(there, size) for here, there, size in blocks)


def _without_offsets(chunk: bytes) -> bytes:
    """A chunk with all offsets, but not the sizes, set to 0."""
    found = thrift.by_id(chunk, 0)
    inner = thrift.by_id(chunk, found[footer.META].start)
    zero = (I64, thrift.whole(0))
    places = {footer.PAGES_AT, footer.LIST_AT, footer.DICTIONARY_AT, footer.BLOOM_AT} & inner.keys()
    meta = thrift.changed(chunk, inner.values(), dict.fromkeys(places, zero))
    outer = dict.fromkeys({footer.CHUNK_AT, footer.OFFSETS_AT, footer.INDEX_AT} & found.keys(), zero)
    return thrift.changed(chunk, found.values(), {**outer, footer.META: (thrift.STRUCT, meta)})


def _spans(chunk: bytes) -> Iterator[tuple[int, int]]:
    """Offset and size of each part of a chunk: its pages, its two indexes, its bloom filter."""
    found = thrift.by_id(chunk, 0)
    inner = thrift.by_id(chunk, found[footer.META].start)
    read = {name: thrift.number(chunk, field.start) for name, field in inner.items() if field.kind == I64}
    yield read.get(footer.DICTIONARY_AT) or read[footer.PAGES_AT], read[footer.PACKED]
    for at, size in ((footer.OFFSETS_AT, footer.OFFSETS_SIZE), (footer.INDEX_AT, footer.INDEX_SIZE)):
        if at in found and size in found:
            yield thrift.number(chunk, found[at].start), thrift.number(chunk, found[size].start)
    if footer.BLOOM_AT in inner and footer.BLOOM_SIZE in inner:
        yield read[footer.BLOOM_AT], thrift.number(chunk, inner[footer.BLOOM_SIZE].start)
