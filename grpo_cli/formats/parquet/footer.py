"""A Parquet footer as spans: where its row groups, its columns and its notes lie.

Ids are those of https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from grpo_cli.formats.parquet import thrift

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.formats.parquet.thrift import Field

# FileMetaData
SCHEMA, HEIGHT, ROW_GROUPS, NOTES, ORDERS = 2, 3, 4, 5, 7
_ENCRYPTION: Final = 8
# SchemaElement
_TYPE, _NAME, CHILDREN = 1, 4, 5
# RowGroup
CHUNKS, PLAIN_SIZE, ROWS, SORTING, PACKED_SIZE = 1, 2, 3, 4, 6
# SortingColumn
SORTED_BY: Final = 1
# ColumnChunk
ELSEWHERE, CHUNK_AT, META, OFFSETS_AT, OFFSETS_SIZE, INDEX_AT, INDEX_SIZE = range(1, 8)
CRYPTO: Final = (8, 9)
# ColumnMetaData
PATH, CODEC, PLAIN, PACKED, PAGES_AT, LIST_AT, DICTIONARY_AT, BLOOM_AT, BLOOM_SIZE = 3, 4, 6, 7, 9, 10, 11, 14, 15

TAIL: Final = 8  # the length of the footer in 4 bytes, and the magic
MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
BROKEN: Final = (IndexError, ValueError, KeyError)


class Unspliceable(Exception):
    """The bytes of this file have to be written anew; the message says why."""


class Column(NamedTuple):
    """A top-level column: the bytes of its schema elements, how many they are, and which leaves it has."""

    name: str
    start: int
    end: int
    elements: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of one file. `start` is where it lies in the file; the spans count inside `raw`."""

    raw: bytes
    start: int
    fields: Mapping[int, Field]
    groups: Sequence[Mapping[int, Field]]
    root: int
    columns: Sequence[Column]

    @property
    def leaves(self) -> int:
        """How many column chunks a row group has."""
        return self.columns[-1].last if self.columns else 0

    def rows(self) -> list[int]:
        """Count the rows of each row group."""
        return [thrift.number(self.raw, group[ROWS].start) for group in self.groups]

    def chunks(self, group: Mapping[int, Field]) -> list[int]:
        """Find where the chunks of a row group begin, and where the last one ends."""
        return thrift.items(self.raw, group[CHUNKS].start)


def read(handle: BinaryIO, size: int) -> Footer:
    """Read the footer of a file that has `size` bytes."""
    raw, encrypted = _last_bytes(handle, size)
    if encrypted:
        raise Unspliceable("the footer is encrypted")
    return parse(raw, size - TAIL - len(raw))


def is_encrypted(handle: BinaryIO, size: int) -> bool:
    """Whether the footer or some columns are encrypted; False as well for a file without a footer to follow."""
    with suppress(Unspliceable, *BROKEN):
        raw, encrypted = _last_bytes(handle, size)
        if encrypted:
            return True
        # The first row group tells, and the walk stops there: a footer can have thousands.
        for one in thrift.walk(raw, 0, {ROW_GROUPS: lambda _, at: at}):
            if one.id == ROW_GROUPS:
                _, count, at = thrift.opened(raw, one.start)
                chunks = thrift.items(raw, thrift.by_id(raw, at)[CHUNKS].start)[:-1] if count else []
                return any(not thrift.by_id(raw, chunk).keys().isdisjoint(CRYPTO) for chunk in chunks)
    return False


def height(handle: BinaryIO, size: int) -> int | None:
    """The number of rows, which stands before the row groups; None for a footer that cannot be followed."""
    with suppress(Unspliceable, *BROKEN):
        raw, _ = _last_bytes(handle, size)
        for one in thrift.walk(raw, 0, {ROW_GROUPS: lambda _, at: at}):
            if one.id == HEIGHT:
                return thrift.number(raw, one.start)
    return None


def _last_bytes(handle: BinaryIO, size: int) -> tuple[bytes, bool]:
    """Read the bytes of a footer, and whether it is encrypted."""
    handle.seek(max(size - TAIL, 0))
    tail = handle.read(TAIL)
    start = size - TAIL - int.from_bytes(tail[:4], "little")
    if tail[4:] not in {MAGIC, _ENCRYPTED} or start < len(MAGIC):
        raise Unspliceable("there is no footer at its end")
    handle.seek(start)
    return handle.read(size - TAIL - start), tail[4:] == _ENCRYPTED


def parse(raw: bytes, start: int) -> Footer:
    """Find the parts of a footer; Unspliceable, if it cannot be followed or describes what cannot be spliced."""
    try:
        parsed = _parse(raw, start)
        _refuse_foreign(parsed)
    except BROKEN as error:
        raise Unspliceable("the footer cannot be followed") from error
    return parsed


def _parse(raw: bytes, start: int) -> Footer:
    groups: list[Mapping[int, Field]] = []

    def collect(raw: bytes, at: int) -> int:
        # One walk finds the fields of every row group: a second one would cost as much again.
        _, count, at = thrift.opened(raw, at)
        for _ in range(count):
            group, at = thrift.fields(raw, at)
            groups.append({one.id: one for one in group})
        return at

    metadata, end = thrift.fields(raw, 0, {ROW_GROUPS: collect})
    if end > len(raw):
        raise IndexError(end)
    fields = {one.id: one for one in metadata}
    marks = thrift.items(raw, fields[SCHEMA].start)
    return Footer(raw, start, fields, groups, marks[0], columns(raw, marks))


def columns(raw: bytes, marks: Sequence[int]) -> list[Column]:
    """The top-level columns: schema elements begin at the marks and list a tree depth first."""
    elements = [thrift.by_id(raw, at) for at in marks[:-1]]
    top_level, at, leaf = [], 1, 0
    while at < len(elements):
        name = thrift.binary(raw, elements[at][_NAME].start).decode()
        behind, open_nodes, first = at, 1, leaf
        while open_nodes:
            element = elements[behind]
            leaf += _TYPE in element
            open_nodes += (thrift.number(raw, element[CHILDREN].start) if CHILDREN in element else 0) - 1
            behind += 1
        top_level.append(Column(name, marks[at], marks[behind], behind - at, first, leaf))
        at = behind
    return top_level


def _refuse_foreign(parsed: Footer) -> None:
    """Refuse what the first row group shows: foreign files, keys, and lists that do not fit the schema."""
    if _ENCRYPTION in parsed.fields:
        raise Unspliceable("the file is encrypted")
    if any(thrift.opened(parsed.raw, group[CHUNKS].start)[1] != parsed.leaves for group in parsed.groups):
        raise Unspliceable("the row groups do not have the columns of the schema")
    if ORDERS in parsed.fields and thrift.opened(parsed.raw, parsed.fields[ORDERS].start)[1] != parsed.leaves:
        raise Unspliceable("the column orders are not those of the schema")
    for chunk in _first_chunks(parsed):
        if ELSEWHERE in chunk:
            raise Unspliceable("the columns lie in other files")
        if not chunk.keys().isdisjoint(CRYPTO):
            raise Unspliceable("some columns are encrypted")
        if META not in chunk:
            raise KeyError(META)


def _first_chunks(parsed: Footer) -> list[dict[int, Field]]:
    if not parsed.groups:
        return []
    return [thrift.by_id(parsed.raw, at) for at in parsed.chunks(parsed.groups[0])[:-1]]


def usual_codec(parsed: Footer) -> int | None:
    """The codec that most columns have in the first row group; None without a row group."""
    metas = [thrift.by_id(parsed.raw, chunk[META].start) for chunk in _first_chunks(parsed)]
    codecs = Counter(thrift.number(parsed.raw, meta[CODEC].start) for meta in metas)
    return codecs.most_common(1)[0][0] if codecs else None
