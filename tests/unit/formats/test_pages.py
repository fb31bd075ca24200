"""Counts in page headers are checked before polars allocates memory for that many values."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpo_cli.errors import DataError
from grpo_cli.files.inputs import spool
from grpo_cli.formats.parquet import thrift
from grpo_cli.formats.parquet.pages import BrokenPage, check
from grpo_cli.formats.registry import FORMATS
from grpo_cli.values.cells import Field
from tests.support import flips

TABLE = pa.table(
    {
        "k": ["p", "q", None] * 10,
        "r": [0.5, None, 2.0] * 10,
        "l": [[1, 2], [], None] * 10,
        "s": [{"x": 1}, None, {}] * 10,
    }
)


def written(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, **options)
    return sink.getvalue()


def counts(data: bytes) -> list[int]:
    """Where the number of values is in each page of the columns k and r."""
    found = []
    metadata = pq.read_metadata(io.BytesIO(data))
    for number in range(metadata.num_row_groups):
        for column in range(2):
            chunk = metadata.row_group(number).column(column)
            at = chunk.dictionary_page_offset or chunk.data_page_offset
            end = at + chunk.total_compressed_size
            while at < end:
                fields, behind = thrift.fields(data, at)
                found += [thrift.by_id(data, field.start)[1].start for field in fields if field.id in {5, 7, 8}]
                at = behind + next(thrift.number(data, field.start) for field in fields if field.id == 3)
    return found


SHAPES: list[Any] = [
    {},
    {"use_dictionary": False},
    {"data_page_version": "2.0"},
    {"row_group_size": 7, "compression": "none"},
    {"max_rows_per_page": 4, "write_page_index": True},
]


@pytest.mark.parametrize("options", SHAPES)
def test_each_count_that_cannot_be_is_one_line_and_no_abort(options: Any) -> None:
    data = written(**options)
    check(io.BytesIO(data), len(data), pq.read_metadata(io.BytesIO(data)).schema, TABLE.column_names)
    places = counts(data)
    assert len(places) >= 2
    for at in places:
        for byte in (0x71, 0x7E):  # -57 and 63, in the one byte that the number has
            broken = data[:at] + bytes([byte]) + data[at + 1 :]
            with pytest.raises(DataError, match=r"^in: not readable as Parquet: [kr]: "):
                FORMATS["parquet"].scan(spool(io.BytesIO(broken), "in"), [Field("k", "key"), Field("r", "number")])


def test_other_columns_are_not_looked_at() -> None:
    data = written()
    broken = data[: counts(data)[0]] + b"\x71" + data[counts(data)[0] + 1 :]
    metadata = pq.read_metadata(io.BytesIO(broken))
    check(io.BytesIO(broken), len(broken), metadata.schema, ["r", "l", "s"])
    with pytest.raises(BrokenPage):
        check(io.BytesIO(broken), len(broken), metadata.schema, ["k"])


@pytest.mark.parametrize("number", [410, 2001])
def test_a_column_chunk_before_the_file_is_no_error_of_the_system(number: int) -> None:
    data = flips.spoiled(number)
    metadata = pq.read_metadata(io.BytesIO(data))
    with pytest.raises(BrokenPage, match=rf"response: a column chunk at byte -\d+ of {len(data)}"):
        check(io.BytesIO(data), len(data), metadata.schema, flips.TABLE.column_names)
