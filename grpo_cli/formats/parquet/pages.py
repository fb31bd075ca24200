"""The headers of the pages that polars is about to read.

It believes the number of values that a header states, and asks for memory for so many: in a damaged file that
may be more than there is, which ends the process without an exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

import pyarrow as pa

from grpo_cli.formats.parquet import thrift

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow.parquet as pq

_UNPACKED, _PACKED, _DATA, _DICTIONARY, _DATA_V2 = 2, 3, 5, 7, 8  # ids of fields of a header
_COUNT: Final = 1  # and of the number of values, which stands first in each kind of page
_FIRST_READ: Final = 512  # bytes; a header with long statistics takes more


class BrokenPage(pa.ArrowInvalid):  # type: ignore[misc] # pyarrow has no types
    """A header that cannot be true."""


def check(handle: BinaryIO, metadata: pq.FileMetaData, names: Collection[str]) -> None:
    """Refuse headers with impossible counts in the chunks of these top-level columns."""
    prefixes = tuple(f"{name}." for name in names)
    paths = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    read = [(at, path) for at, path in enumerate(paths) if f"{path}.".startswith(prefixes)]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for at, path in read:
            chunk = group.column(at)
            flat = not metadata.schema.column(at).max_repetition_level
            if chunk.num_values < 0 or (flat and chunk.num_values != group.num_rows):
                raise BrokenPage(f"{path}: {chunk.num_values} values in a row group of {group.num_rows} rows")
            start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
            end, seen = start + chunk.total_compressed_size, 0
            while start < end and seen < chunk.num_values:
                start, values = _page(handle, start, end, path)
                seen += values
            if seen > chunk.num_values:
                raise BrokenPage(f"{path}: pages of {seen} values in a column chunk of {chunk.num_values}")


def _page(handle: BinaryIO, start: int, end: int, path: str) -> tuple[int, int]:
    """Where the next page begins, and how many values this one adds."""
    size = _FIRST_READ
    while True:
        handle.seek(start)
        raw = handle.read(min(size, end - start))
        try:
            fields, behind = thrift.fields(raw, 0)
            header = {field.id: field.start for field in fields}
            unpacked, packed = (thrift.number(raw, header[name]) for name in (_UNPACKED, _PACKED))
            counts = {
                kind: thrift.number(raw, thrift.by_id(raw, header[kind])[_COUNT].start)
                for kind in (_DATA, _DICTIONARY, _DATA_V2)
                if kind in header
            }
            break
        except (ValueError, KeyError) as error:
            raise BrokenPage(f"{path}: a page header that means nothing") from error
        except IndexError:
            if len(raw) < size:
                raise BrokenPage(f"{path}: a page header without an end") from None
            size *= 16
    # No value of a dictionary is shorter than a byte once it is unpacked.
    if min(unpacked, packed, *counts.values()) < 0 or counts.get(_DICTIONARY, 0) > unpacked:
        raise BrokenPage(f"{path}: a page header with impossible numbers")
    return start + behind + packed, counts.get(_DATA, 0) + counts.get(_DATA_V2, 0)
