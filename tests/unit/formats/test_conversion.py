"""What is converted block by block is what all values at once give, type by type."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files.inputs import Input
from grpo_cli.formats import registry
from grpo_cli.formats.convert import convert
from grpo_cli.formats.delimited.format import Csv
from grpo_cli.formats.interface import TypesDiffer, Weaving
from grpo_cli.formats.jsonl import typed
from grpo_cli.formats.parquet.format import Parquet
from grpo_cli.formats.registry import FORMATS
from grpo_cli.values.column_types import series_of
from tests.support.drawn import paired
from tests.support.weaving import NOTE, in_memory, inserting

JSONL = registry.lines()
PARQUET = FORMATS["parquet"]
SMALL: Any = {
    **FORMATS,
    "jsonl": replace(JSONL, block_size=128),
    "csv": Csv("csv", block_size=128),
    "parquet": Parquet("parquet", most_rows=10),
}

plain = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.floats(), st.sampled_from(["a", "é", "2024-01-01", "\ud800", "\x00", ""]),
    st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63, -(2**63), 2**64, 1e16, 1e300, 10**400]),
)  # fmt: skip
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3)
)
# Columns of one kind are what is read fast; the others meet it in some rows.
kinds = st.sampled_from([
    st.integers(-9, 9), st.floats(allow_nan=False, width=16), st.sampled_from(["a", "2024-01-01"]), st.booleans(),
    st.lists(st.integers(0, 3), max_size=2), st.fixed_dictionaries({"x": st.integers()}, optional={"y": st.none()}),
    st.lists(st.fixed_dictionaries({"x": st.sampled_from(["b", None])}), max_size=2), st.none(), values,
])  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    columns = {name: draw(kinds) for name in draw(st.sets(st.sampled_from("abcd"), min_size=1))}
    rows = draw(st.lists(st.fixed_dictionaries({}, optional=columns), min_size=1, max_size=12))
    if not draw(st.integers(0, 3)):
        odd = draw(st.sampled_from(rows))
        odd["a"] = draw(values)
    rows.append(draw(st.fixed_dictionaries(columns)))
    lines = [json.dumps(row) + "\n" for row in rows]
    return "".join(lines).encode()


def same(one: pl.DataFrame, other: pl.DataFrame) -> None:
    assert one.schema == other.schema
    assert repr(one.to_dict(as_series=False)) == repr(other.to_dict(as_series=False))


def at_once(data: bytes) -> pl.DataFrame:
    """The table whose types are those of all values at once: the specification."""
    rows = [json.loads(line) for line in data.splitlines()]
    names = dict.fromkeys(name for row in rows for name in row)
    return pl.DataFrame([series_of(name, [row.get(name) for row in rows]) for name in names])


def same_types(data: bytes, size: int) -> None:
    """All lines have the types of all values at once, and those of the first lines only if these hold all values."""
    wanted = at_once(data)
    same(replace(JSONL, block_size=size).read(in_memory(data)), wanted)
    try:
        found = pl.concat(typed.parts(in_memory(data), size, first=1, inner_texts=False))
    except TypesDiffer:
        return
    same(found, wanted)


@given(tables(), st.integers(8, 120))
def test_the_types_of_lines_are_those_of_all_values_at_once(data: bytes, size: int) -> None:
    same_types(data, size)


ODD = rb"""
{"a":1} {"a":9007199254740993} {"a":0.5}
{"a":9007199254740992} {"a":0.5}
{"a":0.5} {"a":9007199254740993}
{"a":0.5} {"a":9007199254740992}
{"a":9223372036854775808} {"a":-1}
{"a":1} {"a":9223372036854775808}
{"a":null} {"a":1}
{"a":{"x":1}} {"a":{"y":{}}}
{"a":{"x":1}} {"a":{"x":1,"y":1}}
{"a":[{"x":1}]} {"a":[{"y":1}]}
{"a":[]} {"a":[null]} {"b":null}
{"a":[]} {"a":[1]}
{"a":"\ud83d"} {"a":"b"}
{"a":"b"} {"a":"\ud83d"}
{"a":["\ud83d"]} {"a":["b"]}
{"a":1} {"b":1}
"""


@pytest.mark.parametrize("rows", [*ODD.strip().splitlines(), b'{"a":null} {"a":1%s}' % (b"0" * 400)])
def test_a_later_value_of_another_type_is_never_changed_into_the_type_of_the_first(rows: bytes) -> None:
    same_types(rows.replace(b" ", b"\n") + b"\n", 8)


LATER = [b'{"k":"p","r":0.5}\n', b'{"k":"p","r":1,"late":2}\n', b'{"k":"\xff","r":1}\n', b'{"k":1,"r":2}\n']


@pytest.mark.parametrize(("target", "last"), paired(["parquet", "jsonl", "csv", "arrow"], LATER))
def test_an_output_is_restarted_if_later_lines_have_other_types(target: str, last: bytes) -> None:
    data = b'{"k":"p","r":1}\n' * 100 + last
    added = inserting({"advantage": range(101)})
    whole = converted(data, added, target=FORMATS[target])
    with pytest.raises(TypesDiffer):
        replace(SMALL["jsonl"], like_first=True).read(in_memory(data))
    found = converted(data, added, SMALL["jsonl"], SMALL[target])
    same(FORMATS[target].read(in_memory(found)), FORMATS[target].read(in_memory(whole)))


def test_lines_of_one_kind_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    source = in_memory(b'{"k": "p7", "r": 3.5, "m": [{"n": 7, "t": "2024-01-01"}], "o": {"e": null}}\n' * 500)
    monkeypatch.setattr(typed, "_exact_rows", never)
    small = replace(JSONL, block_size=4_096)
    found = small.read(source)
    same(replace(small, like_first=True).read(source), found)
    assert found.rows() == [("p7", 3.5, [{"n": 7, "t": "2024-01-01"}], {"e": None})] * 500


@pytest.mark.parametrize("odd", [b'{"a":1}{"a":2}\n{"a":\n3}\n', b'{"a":1,\n"a":2}\n'])
def test_what_is_no_object_a_line_is_no_row(odd: bytes) -> None:
    with pytest.raises(DataError, match=r"^in:2: not JSON"):
        JSONL.read(in_memory(b'{"a":1}\n' + odd))


def converted(data: bytes, weaving: Weaving, source: Any = JSONL, target: Any = PARQUET) -> bytes:
    sink = io.BytesIO()
    convert(in_memory(data), source, sink, target, weaving, long=False)
    return sink.getvalue()


@pytest.mark.parametrize("target", ["parquet", "jsonl", "csv", "arrow"])
@pytest.mark.parametrize("source", ["jsonl", "csv"])
@pytest.mark.parametrize("take", [None, [1, 1, 4, 60, 98, 99], [99, 3, 3, 50, 0], []])
def test_every_row_keeps_its_new_cell(source: str, target: str, take: list[int] | None) -> None:
    table = pl.DataFrame({"a": range(100)})
    data = (table.write_csv() if source == "csv" else table.write_ndjson()).encode()
    rows = [*range(100)] if take is None else take
    added = pl.DataFrame({"advantage": pl.Series(rows, dtype=pl.Float64)})
    out = converted(data, inserting(added, take=take), SMALL[source], SMALL[target])
    if not rows and target == "jsonl":
        assert not out
        return
    found = FORMATS[target].read(in_memory(out))
    assert found.columns == ["a", "advantage"]
    assert found["a"].cast(pl.Float64).to_list() == rows
    assert found["advantage"].cast(pl.Float64).to_list() == rows
    if target == "parquet":
        metadata = pq.read_metadata(io.BytesIO(out))
        assert metadata.metadata[b"grpo_adv"] == NOTE["grpo_adv"].encode()
        assert metadata.num_row_groups >= 3 or take is not None


def test_another_number_of_rows_than_before_is_a_changed_input() -> None:
    with pytest.raises(InputChanged):
        converted(b'{"a":1}\n{"a":2}\n', inserting({"x": [1.0]}))


IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
BYTES = pa.table({
    "alone": [b"\xff\0", None],
    "image": pa.array([{"bytes": b"\xff\0"}, None], IMAGE),
    "list": [[b"", None, b"\xfe"], None],
    "array": pa.array([[b"a", b"b"], None], pa.list_(pa.binary(), 2)),
    "images": pa.array([[{"bytes": b"\x80", "path": "a"}, None], None], pa.list_(IMAGE)),
    "map": pa.array([{"a": [{"bytes": b"\x80"}]}, None], pa.map_(pa.string(), pa.list_(IMAGE))),
    "keys": pa.array([{b"\xff": 1}, None], pa.map_(pa.binary(), pa.int64())),
    "numbered": pa.array([{1: "a"}, None], pa.map_(pa.int64(), pa.string())),
})  # fmt: skip
IN_BASE64 = """{
    "alone": "/wA=",
    "image": {"bytes": "/wA=", "path": null},
    "list": ["", null, "/g=="],
    "array": ["YQ==", "Yg=="],
    "images": [{"bytes": "gA==", "path": "a"}, null],
    "map": {"a": [{"bytes": "gA==", "path": null}]},
    "keys": {"/w==": 1},
    "numbered": {"1": "a"}
}"""


@pytest.mark.parametrize("target", ["jsonl", "json", "csv"])
def test_bytes_at_any_depth_are_base64_where_a_format_has_none(target: str) -> None:
    pq.write_table(BYTES, "x.parquet")
    out = io.BytesIO()
    added = inserting(pl.DataFrame({"advantage": [0.5, 1.5]}))
    convert(Input.at(Path("x.parquet")), PARQUET, out, FORMATS[target], added, long=True)
    text = out.getvalue().decode()
    if target == "csv":
        first, second = csv.DictReader(io.StringIO(text))
        assert first.pop("alone") == "/wA="
        found = {"alone": "/wA=", **{name: json.loads(cell) for name, cell in first.items()}}
    else:
        found, second = json.loads(text) if target == "json" else map(json.loads, text.splitlines())
    assert float(found.pop("advantage")) == 0.5
    assert float(second.pop("advantage")) == 1.5
    assert not any(second.values())
    assert found == json.loads(IN_BASE64)
