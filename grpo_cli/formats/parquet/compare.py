"""Whether a Parquet file holds the column chunks of another one, byte for byte."""

from __future__ import annotations

from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from grpo_cli.errors import DataError
from grpo_cli.formats.parquet import footer, thrift
from grpo_cli.formats.parquet.thrift import I32, I64

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.parquet.footer import Column, Footer

_BLOCK: Final = 1 << 22


class _Side(NamedTuple):
    """One of the two files, without the columns that were added."""

    handle: BinaryIO
    footer: Footer
    columns: Sequence[Column]

    def chunks(self, group: int) -> list[bytes]:
        """Give what the footer says of the chunks that are compared."""
        raw = self.footer.raw
        spans = list(pairwise(self.footer.chunks(self.footer.groups[group])))
        return [raw[slice(*spans[leaf])] for one in self.columns for leaf in range(one.first, one.last)]

    def schema(self) -> list[bytes]:
        """Give the schema elements: the root, whose number of children is another matter, and the columns."""
        raw, at = self.footer.raw, self.footer.root
        root = thrift.changed(raw, thrift.walk(raw, at), {footer.CHILDREN: (I32, thrift.whole(0))})
        return [root, *(raw[one.start : one.end] for one in self.columns)]

    def bytes(self, at: int, length: int) -> bytes:
        self.handle.seek(at)
        return self.handle.read(length)


def same_chunks(old: Input, new: Input, added: Collection[str]) -> str | None:
    """The first difference, in one line; None when all that was in the old file is in the new one."""
    with old.open() as first, new.open() as second:
        left, right = _side(first, old, added), _side(second, new, added)
        try:
            return _different_table(left, right) or _different_chunk(left, right)
        except footer.BROKEN as error:
            raise DataError(f"{new.name}: the footer cannot be followed") from error


def _side(handle: BinaryIO, source: Input, added: Collection[str]) -> _Side:
    try:
        found = footer.read(handle, source.pin.size)
    except footer.Unspliceable as why:
        raise DataError(f"{source.name}: {why}") from None
    return _Side(handle, found, [one for one in found.columns if one.name not in added])


def _different_table(left: _Side, right: _Side) -> str | None:
    names = [[one.name for one in side.columns] for side in (left, right)]
    for number, (one, two) in enumerate(zip_longest(*names), start=1):
        if one != two:
            is_now = "is missing" if two is None else f"is {two!r} now" if one else f"({two!r}) was not there"
            return f"column {number}{f' ({one!r})' if one else ''} {is_now}"
    for name, before, after in zip(["", *names[0]], left.schema(), right.schema(), strict=True):
        if before != after:
            return f"the type of column {name!r} is another one" if name else "the root of the schema is another one"
    rows = left.footer.rows(), right.footer.rows()
    if rows[0] == rows[1]:
        return None
    if sum(rows[0]) != sum(rows[1]):
        return f"there are {sum(rows[1])} rows, and there were {sum(rows[0])}"
    return "the rows are in other row groups"


def _different_chunk(left: _Side, right: _Side) -> str | None:
    groups = range(len(left.footer.groups))
    described = [(left.chunks(group), right.chunks(group)) for group in groups]
    if all(one == two for one, two in described) and _same_start(left, right):
        return None  # all chunks lie before the old footer, and there the files are the same
    for group, (one, two) in enumerate(described):
        for first, second in zip(one, two, strict=True):
            if different := _difference(left, right, first, second):
                return f"row group {group + 1}, column {_name(first)!r}: {different}"
    return None


def _same_start(left: _Side, right: _Side) -> bool:
    starts = range(0, left.footer.start, _BLOCK)
    sizes = [min(_BLOCK, left.footer.start - at) for at in starts]
    return all(left.bytes(at, size) == right.bytes(at, size) for at, size in zip(starts, sizes, strict=True))


def _difference(left: _Side, right: _Side, one: bytes, two: bytes) -> str | None:
    if _without_offsets(one) != _without_offsets(two):
        return "the footer describes it otherwise"
    for (kind, here, length), (_, there, _) in zip(_spans(one), _spans(two), strict=True):
        for at in range(0, length, _BLOCK):
            size = min(_BLOCK, length - at)
            first, second = left.bytes(here + at, size), right.bytes(there + at, size)
            if first != second:
                byte = next((k for k, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(second))
                return f"byte {at + byte} of its {kind} is another one"
    return None


def _without_offsets(chunk: bytes) -> bytes:
    """A chunk with all offsets, but not the sizes, set to 0."""
    found = thrift.by_id(chunk, 0)
    inner = thrift.by_id(chunk, found[footer.META].start)
    zero = (I64, thrift.whole(0))
    places = {footer.PAGES_AT, footer.LIST_AT, footer.DICTIONARY_AT, footer.BLOOM_AT} & inner.keys()
    meta = thrift.changed(chunk, inner.values(), dict.fromkeys(places, zero))
    outer = dict.fromkeys({footer.CHUNK_AT, footer.OFFSETS_AT, footer.INDEX_AT} & found.keys(), zero)
    return thrift.changed(chunk, found.values(), {**outer, footer.META: (thrift.STRUCT, meta)})


def _spans(chunk: bytes) -> Iterator[tuple[str, int, int]]:
    """List what belongs to a chunk: its kind, its place and its length."""
    found = thrift.by_id(chunk, 0)
    inner = thrift.by_id(chunk, found[footer.META].start)
    read = {name: thrift.number(chunk, one.start) for name, one in inner.items() if one.kind == I64}
    yield "pages", read.get(footer.DICTIONARY_AT) or read[footer.PAGES_AT], read[footer.PACKED]
    parts = {
        "offset index": (footer.OFFSETS_AT, footer.OFFSETS_SIZE),
        "column index": (footer.INDEX_AT, footer.INDEX_SIZE),
    }
    for kind, (at, size) in parts.items():
        if at in found and size in found:
            yield kind, thrift.number(chunk, found[at].start), thrift.number(chunk, found[size].start)
    if footer.BLOOM_AT in inner and footer.BLOOM_SIZE in inner:
        size = thrift.number(chunk, inner[footer.BLOOM_SIZE].start)
        yield "bloom filter", read[footer.BLOOM_AT], size


def _name(chunk: bytes) -> str:
    meta = thrift.by_id(chunk, thrift.by_id(chunk, 0)[footer.META].start)
    marks = thrift.items(chunk, meta[footer.PATH].start)
    return ".".join(thrift.binary(chunk, at).decode("utf-8", "replace") for at in marks[:-1])
