"""Check the headers of the pages that polars is about to read.

polars allocates memory for the number of values that a header states. In a damaged file that can be more than there is,
and the process dies without an exception. pyarrow kills it for a chunk with inconsistent size statistics, so all facts
about chunks come from `footer`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from grpo_cli.formats.parquet import footer, thrift

_UNPACKED, _PACKED, _DATA, _DICTIONARY, _DATA_V2 = 2, 3, 5, 7, 8  # field ids of a page header
_COUNT = 1  # the id of the number of values in each kind of page
_FIRST_READ = 512  # bytes; a header with long statistics takes more


class BrokenPage(pa.ArrowInvalid):  # type: ignore[misc] # pyarrow has no types
    """A page header with impossible values."""


class Leaf(NamedTuple):
    """A column of values, named as pyarrow does."""

    path: str
    max_repetition_level: int  # 0 if each row has one value


def check(handle: BinaryIO, size: int, leaves: Sequence[Leaf], names: Collection[str]) -> None:
    """Refuse headers with impossible counts in the chunks of these top-level columns."""
    prefixes = tuple(f"{name}." for name in names)
    read = [at for at, leaf in enumerate(leaves) if f"{leaf.path}.".startswith(prefixes)]
    try:
        raw, groups = footer.groups(handle, size)
        for group in groups:
            rows = thrift.number(raw, group[footer.ROWS].start)
            chunks = thrift.items(raw, group[footer.CHUNKS].start)
            for at in read:
                chunk = footer.chunk(raw, chunks[at])
                is_flat = not leaves[at].max_repetition_level
                if chunk.values < 0 or (is_flat and chunk.values != rows):
                    raise BrokenPage(f"{leaves[at].path}: {chunk.values} values in a row group of {rows} rows")
                if not 0 <= chunk.start < size:
                    raise BrokenPage(f"{leaves[at].path}: a column chunk at byte {chunk.start} of {size}")
                _check_pages(handle, chunk, leaves[at].path)
    except footer.BROKEN as error:
        if isinstance(error, BrokenPage):
            raise
        raise BrokenPage("its footer cannot be parsed") from error


def _check_pages(handle: BinaryIO, chunk: footer.Chunk, path: str) -> None:
    start = chunk.start
    seen = 0
    while start < chunk.start + chunk.packed and seen < chunk.values:
        start, values = _page(handle, start, chunk.start + chunk.packed, path)
        seen += values
    if seen > chunk.values:
        raise BrokenPage(f"{path}: pages of {seen} values in a column chunk of {chunk.values}")


def _page(handle: BinaryIO, start: int, end: int, path: str) -> tuple[int, int]:
    """The offset of the next page, and the number of values on this page."""
    size = _FIRST_READ
    while True:
        handle.seek(start)
        raw = handle.read(min(size, end - start))
        try:
            fields, after = thrift.fields(raw, 0)
            header = {field.id: field.start for field in fields}
            unpacked, packed = (thrift.number(raw, header[name]) for name in (_UNPACKED, _PACKED))
            counts = {
                kind: thrift.number(raw, thrift.by_id(raw, header[kind])[_COUNT].start)
                for kind in (_DATA, _DICTIONARY, _DATA_V2)
                if kind in header
            }
            break
        except (ValueError, KeyError) as error:
            raise BrokenPage(f"{path}: an invalid page header") from error
        except IndexError:
            if len(raw) < size:
                raise BrokenPage(f"{path}: a page header that does not end") from None
            size *= 16
    # No value of a dictionary is shorter than a byte once it is unpacked.
    if min(unpacked, packed, *counts.values()) < 0 or counts.get(_DICTIONARY, 0) > unpacked:
        raise BrokenPage(f"{path}: a page header with impossible numbers")
    return start + after + packed, counts.get(_DATA, 0) + counts.get(_DATA_V2, 0)
