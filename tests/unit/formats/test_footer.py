"""Footers are stepped over as a plain decoder would read them, and what nobody knows survives."""

from __future__ import annotations

import io
from contextlib import suppress
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.errors import DataError
from grpo_cli.formats.parquet import footer, splice, thrift
from grpo_cli.formats.parquet.footer import Unspliceable
from grpo_cli.formats.parquet.thrift import BINARY, DOUBLE, FALSE, I16, I32, I64, LIST, MAP, SET, STRUCT, TRUE, UUID
from grpo_cli.formats.registry import FORMATS
from tests.support.weaving import in_memory, inserting

# --- structs of plain values ---------------------------------------------------------------------------------


INNER = thrift.struct([(1, I32, b"\x02"), (2, TRUE, b"")])
STRUCTS = [
    (1, thrift.BYTE, b"\xff"), (2, I16, b"\x01"), (3, I32, b"\xfe\x01"), (5, I64, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    (25, DOUBLE, b"12345678"), (26, BINARY, b"\x80\x01" + b"x" * 128), (27, BINARY, b"\0"), (28, TRUE, b""), (29, FALSE, b""),
    (60, UUID, b"0123456789abcdef"), (61, LIST, thrift.listed(I32, 2, b"\x02\xfe\x01")),
    (62, LIST, thrift.listed(BINARY, 16, b"\x01x" * 16)), (63, SET, thrift.listed(TRUE, 3, b"\x01\x02\x01")),
    (64, LIST, thrift.listed(STRUCT, 2, INNER + INNER)), (65, MAP, b"\0"), (66, MAP, b"\x02\x58\x02\x01a\x04\x01b"), (67, STRUCT, INNER),
]  # fmt: skip


def test_any_struct_is_stepped_over() -> None:
    raw = thrift.struct(STRUCTS)
    assert thrift.skip(raw + b"behind", 0, STRUCT) == len(raw)
    found, end = thrift.fields(raw + b"behind", 0)
    assert [(field.id, field.kind) for field in found] == [(number, kind) for number, kind, _ in STRUCTS]
    assert [raw[field.start : thrift.skip(raw, field.start, field.kind)] for field in found] == [
        value for *_, value in STRUCTS
    ]
    assert end == len(raw)
    assert thrift.changed(raw, found, {}) == raw


@given(st.binary(max_size=300))
def test_noise_and_structs_without_end_end_in_one_error(raw: bytes) -> None:
    with suppress(Unspliceable):
        footer.parse(raw, 4)
    with pytest.raises(Unspliceable, match="cannot be parsed"):
        footer.parse(b"\x1c" * 100_000, 4)


# --- footers -----------------------------------------------------------------------------------------------

TABLE = pa.table({
    "k": ["a", "b" * 300, "c"], "s": [{"x": 1, "y": [1, None]}, None, {"x": 3, "y": []}], "r": [1.0, 2.0, None],
})  # fmt: skip


def wrote(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, row_group_size=2, write_page_index=True, **options)
    return sink.getvalue()


def cut(data: bytes) -> tuple[bytes, bytes]:
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return data[:start], data[start:-8]


def ended(body: bytes, raw: bytes) -> bytes:
    return body + raw + splice.tail(len(raw))


def spliced(data: bytes) -> bytes:
    sink = io.BytesIO()
    splice.weave(in_memory(data), sink, inserting({"advantage": [0.5, 1.5, 2.5]}))
    return sink.getvalue()


# No map: polars 2.1 refuses to step over one.
STRANGE = [
    (900, BINARY, b"\x07unknown"), (901, TRUE, b""), (902, LIST, b"\x1c\x18\x07unknown\0"), (950, DOUBLE, b"unknown!"),
]  # fmt: skip


def strange(raw: bytes, at: int, kind: int) -> bytes:
    """A value with fields that no reader knows in every struct of it."""
    if kind == STRUCT:
        found, _ = thrift.fields(raw, at)
        known = [(field.id, field.kind, strange(raw, field.start, field.kind)) for field in found]
        return thrift.struct([*known, *STRANGE])
    if kind == LIST:
        inner, count, _ = thrift.opened(raw, at)
        *items, _ = thrift.items(raw, at)
        return thrift.listed(inner, count, b"".join(strange(raw, item, inner) for item in items))
    return raw[at : thrift.skip(raw, at, kind)]


@pytest.mark.parametrize("options", [{}, {"sorting_columns": [pq.SortingColumn(0)]}])
def test_fields_that_nobody_knows_survive_in_every_struct(options: Any) -> None:
    body, raw = cut(wrote(**options))
    odd = ended(body, strange(raw, 0, STRUCT))
    assert odd.count(b"unknown") > 100
    assert pq.read_table(io.BytesIO(odd)).equals(TABLE)
    out = spliced(odd)
    assert out[: len(body)] == body
    # Only what the splice says itself has none of them.
    assert out.count(b"unknown") == odd.count(b"unknown")
    assert pq.read_table(io.BytesIO(out)).equals(TABLE.append_column("advantage", pa.array([0.5, 1.5, 2.5])))
    assert pl.read_parquet(out)["advantage"].to_list() == [0.5, 1.5, 2.5]


def test_a_footer_is_read_to_its_own_end() -> None:
    """The length at the end of the file may reach back further than necessary."""
    body, raw = cut(wrote())
    out = spliced(ended(body, raw + b"\x15 left behind" * 9))
    assert b"left behind" not in out
    assert out == spliced(wrote())


def put(raw: bytes, name: int, kind: int, value: bytes) -> bytes:
    return thrift.changed(raw, thrift.walk(raw, 0), {name: (kind, value)})


def in_chunk(raw: bytes, name: int, kind: int, value: bytes) -> bytes:
    """Set a field in the first chunk of the first row group."""
    found = footer.parse(raw, 4)
    marks = found.chunks(found.groups[0])
    chunk = put(raw[marks[0] : marks[1]], name, kind, value)
    return raw[: marks[0]] + chunk + raw[marks[1] :]


def test_what_cannot_be_spliced_says_why() -> None:
    body, raw = cut(wrote())
    secret = b"\x1c\x00\x00"
    for changed, why in (
        (put(raw, 8, STRUCT, secret), "the file is encrypted"),
        (in_chunk(raw, footer.ELSEWHERE, BINARY, b"\x01f"), "the columns lie in other files"),
        (in_chunk(raw, 8, STRUCT, secret), "some columns are encrypted"),
        (put(raw, footer.ORDERS, LIST, b"\x0c"), "the column orders are not those of the schema"),
        (raw[:-9], "the footer cannot be parsed"),
        (put(raw, footer.SCHEMA, LIST, b"\x0c"), "the footer cannot be parsed|not have the columns"),
        (b"", "the footer cannot be parsed"),
    ):
        with pytest.raises(Unspliceable, match=why):
            spliced(ended(body, changed))


@pytest.mark.parametrize("data", [wrote()[:-4] + b"PARE", b"PAR1" + b"\xff" * 4 + b"PAR1", b"PAR1", b"x" * 50])
def test_what_is_no_footer_at_all_is_refused(data: bytes) -> None:
    with pytest.raises(Unspliceable):
        spliced(data)
    with pytest.raises(DataError, match=r"not readable as Parquet|is encrypted"):
        FORMATS["parquet"].weave(in_memory(data), None, io.BytesIO(), inserting({"advantage": [0.5]}))


@given(st.data())
def test_a_broken_footer_is_never_followed_into_a_crash(data: st.DataObject) -> None:
    body, raw = cut(wrote())
    at = data.draw(st.integers(0, len(raw) - 1))
    gone = data.draw(st.integers(0, 3))
    broken = raw[:at] + data.draw(st.binary(max_size=3)) + raw[at + gone :]
    with suppress(Unspliceable):
        footer.parse(broken, len(body))
