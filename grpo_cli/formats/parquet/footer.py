"""A Parquet footer as spans: where its row groups, columns and metadata entries are.

Ids are those of https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import BinaryIO, NamedTuple

from grpo_cli.errors import DataError
from grpo_cli.formats.parquet import thrift
from grpo_cli.formats.parquet.thrift import ThriftField

# FileMetaData
SCHEMA = 2
ROW_GROUPS = 4
NOTES = 5
ORDERS = 7
_ENCRYPTION = 8
# SchemaElement
_TYPE = 1
_NAME = 4
CHILDREN = 5
# RowGroup
CHUNKS = 1
PLAIN_SIZE = 2
ROWS = 3
SORTING = 4
PACKED_SIZE = 6
# ColumnChunk
ELSEWHERE, CHUNK_AT, META = range(1, 4)
CRYPTO = (8, 9)
# ColumnMetaData
CODEC, VALUES, PLAIN, PACKED = range(4, 8)
PAGES_AT = 9
DICTIONARY_AT = 11

TAIL = 8  # the length of the footer in 4 bytes, and the magic
MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"
BROKEN = (IndexError, ValueError, KeyError)


class Unspliceable(ValueError):
    """The file has to be re-encoded; the message says why."""


class Column(NamedTuple):
    """A top-level column: the span and the number of its schema elements, and the range of its leaves."""

    name: str
    start: int
    end: int
    elements: int
    first: int
    last: int


class Chunk(NamedTuple):
    """A column chunk: its codec, number of values, and the offset and size of its pages."""

    codec: int
    values: int
    start: int
    packed: int


class Footer(NamedTuple):
    """The footer of a file. `start` is its offset in the file; spans are offsets in `raw`."""

    raw: bytes
    start: int
    fields: Mapping[int, ThriftField]
    groups: Sequence[Mapping[int, ThriftField]]
    root: int
    columns: Sequence[Column]

    @property
    def leaves(self) -> int:
        """The number of column chunks of a row group."""
        return self.columns[-1].last if self.columns else 0

    def rows(self) -> list[int]:
        """The number of rows of each row group."""
        return [thrift.number(self.raw, group[ROWS].start) for group in self.groups]

    def chunks(self, group: Mapping[int, ThriftField]) -> list[int]:
        """The offset of each chunk of a row group, and the end of the last."""
        return thrift.items(self.raw, group[CHUNKS].start)

    def first_chunks(self) -> list[int]:
        """The offset of each chunk of the first row group."""
        return self.chunks(self.groups[0])[:-1] if self.groups else []


def read(handle: BinaryIO, size: int) -> Footer:
    """Read the footer of a file that has `size` bytes."""
    raw, encrypted = _last_bytes(handle, size)
    if encrypted:
        raise Unspliceable("the footer is encrypted")
    return parse(raw, size - TAIL - len(raw))


def is_encrypted(handle: BinaryIO, size: int) -> bool:
    """Whether the footer or some columns are encrypted; False also if the footer cannot be parsed."""
    with suppress(*BROKEN, StopIteration):
        raw, encrypted = _last_bytes(handle, size)
        if encrypted:
            return True
        # The first row group is enough: a footer can have thousands.
        before = thrift.walk(raw, 0, {ROW_GROUPS: lambda _, at: at})
        _, count, at = next(thrift.opened(raw, field.start) for field in before if field.id == ROW_GROUPS)
        chunks = thrift.items(raw, thrift.by_id(raw, at)[CHUNKS].start)[:-1] if count else []
        return any(not thrift.by_id(raw, chunk).keys().isdisjoint(CRYPTO) for chunk in chunks)
    return False


def _last_bytes(handle: BinaryIO, size: int) -> tuple[bytes, bool]:
    """The bytes of a footer, and whether it is encrypted."""
    handle.seek(max(size - TAIL, 0))
    tail = handle.read(TAIL)
    start = size - TAIL - int.from_bytes(tail[:4], "little")
    if tail[4:] not in {MAGIC, _ENCRYPTED} or start < len(MAGIC):
        raise Unspliceable("it does not end with a footer")
    handle.seek(start)
    return handle.read(size - TAIL - start), tail[4:] == _ENCRYPTED


def groups(handle: BinaryIO, size: int) -> tuple[bytes, Sequence[Mapping[int, ThriftField]]]:
    """The bytes of a footer, and the fields of its row groups in them; one of `BROKEN` if it cannot be parsed."""
    raw, _ = _last_bytes(handle, size)
    return raw, _parse_groups(raw)[2]


def chunk(raw: bytes, at: int) -> Chunk:
    """A column chunk by its metadata. Not from pyarrow, which can end the process on a damaged file."""
    meta = thrift.by_id(raw, thrift.by_id(raw, at)[META].start)
    first_page = meta[DICTIONARY_AT] if DICTIONARY_AT in meta else meta[PAGES_AT]

    def number(field: ThriftField) -> int:
        return thrift.number(raw, field.start)

    return Chunk(
        codec=number(meta[CODEC]), values=number(meta[VALUES]), start=number(first_page), packed=number(meta[PACKED])
    )


def first_chunks(name: str, handle: BinaryIO, size: int) -> list[Chunk]:
    """The column chunks of the first row group; DataError if they cannot be parsed."""
    try:
        raw, found = groups(handle, size)
        if not found:
            return []
        starts = thrift.items(raw, found[0][CHUNKS].start)[:-1]
        return [chunk(raw, at) for at in starts]
    except BROKEN:
        raise DataError(f"{name}: not readable as a Parquet file: its footer cannot be parsed") from None


def parse(raw: bytes, start: int) -> Footer:
    """The parts of a footer; Unspliceable if it cannot be parsed, or if the file cannot be spliced."""
    try:
        fields, marks, groups = _parse_groups(raw)
        parsed = Footer(raw, start, fields, groups, marks[0], columns(raw, marks))
        _refuse_foreign(parsed)
    except Unspliceable:
        raise
    except BROKEN as error:
        raise Unspliceable("the footer cannot be parsed") from error
    return parsed


def _parse_groups(raw: bytes) -> tuple[dict[int, ThriftField], list[int], list[Mapping[int, ThriftField]]]:
    """The fields, the offsets of the schema elements, and the fields of each row group."""
    groups: list[Mapping[int, ThriftField]] = []

    def collect(raw: bytes, at: int) -> int:
        # All fields are found in one walk: a second one would take as long.
        _, count, at = thrift.opened(raw, at)
        for _ in range(count):
            group, at = thrift.fields(raw, at)
            groups.append({field.id: field for field in group})
        return at

    metadata, end = thrift.fields(raw, 0, {ROW_GROUPS: collect})
    if end > len(raw):
        raise IndexError(end)
    fields = {field.id: field for field in metadata}
    return fields, thrift.items(raw, fields[SCHEMA].start), groups


def columns(raw: bytes, marks: Sequence[int]) -> list[Column]:
    """The top-level columns: schema elements begin at the marks and list a tree depth first."""
    elements = [thrift.by_id(raw, at) for at in marks[:-1]]
    top_level = []
    at = 1
    leaf = 0
    while at < len(elements):
        name = thrift.binary(raw, elements[at][_NAME].start).decode()
        after = at
        open_nodes = 1
        first = leaf
        while open_nodes:
            element = elements[after]
            leaf += _TYPE in element
            open_nodes += (thrift.number(raw, element[CHILDREN].start) if CHILDREN in element else 0) - 1
            after += 1
        top_level.append(Column(name, marks[at], marks[after], after - at, first, leaf))
        at = after
    return top_level


def _refuse_foreign(parsed: Footer) -> None:
    """Refuse lists that do not match the schema, and columns in other files or encrypted, by the first row group."""
    if _ENCRYPTION in parsed.fields:
        raise Unspliceable("the file is encrypted")
    if any(thrift.opened(parsed.raw, group[CHUNKS].start)[1] != parsed.leaves for group in parsed.groups):
        raise Unspliceable("the row groups do not have the columns of the schema")
    if ORDERS in parsed.fields and thrift.opened(parsed.raw, parsed.fields[ORDERS].start)[1] != parsed.leaves:
        raise Unspliceable("the column orders are not those of the schema")
    for at in parsed.first_chunks():
        found = thrift.by_id(parsed.raw, at)
        if ELSEWHERE in found:
            raise Unspliceable("the columns lie in other files")
        if not found.keys().isdisjoint(CRYPTO):
            raise Unspliceable("some columns are encrypted")
        chunk(parsed.raw, at)  # an error if it lacks a field
