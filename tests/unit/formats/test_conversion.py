"""What is converted block by block is what all values at once give, type by type."""

from __future__ import annotations

import csv
import io
import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grpo_cli.errors import DataError, InputChanged
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

JSONL, PARQUET = registry.lines(), FORMATS["parquet"]
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
def tables(draw: st.DrawFn) -> list[Any]:
    columns = {name: draw(kinds) for name in draw(st.sets(st.sampled_from("abcd"), min_size=1))}
    rows = [
        {name: draw(kind) for name, kind in columns.items() if draw(st.integers(0, 9))}
        for _ in range(draw(st.integers(1, 12)))
    ]
    if not draw(st.integers(0, 3)):
        rows[draw(st.integers(0, len(rows) - 1))]["a"] = draw(values)
    return [*rows, {"a": draw(columns["a"])}] if "a" in columns else [*rows, {"z": 1}]


def lines(rows: Sequence[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def same(one: pl.DataFrame, other: pl.DataFrame) -> None:
    assert one.schema == other.schema
    assert repr(one.to_dict(as_series=False)) == repr(other.to_dict(as_series=False))


@given(tables(), st.integers(8, 120))
@example([{"a": 1}, {"a": 2**53 + 1}, {"a": 0.5}], 8)
@example([{"a": 2**53}, {"a": 0.5}], 8)
@example([{"a": 2**63}, {"a": -1}], 8)
@example([{"a": None}, {"a": 10**400}], 8)
@example([{"a": {"x": 1}}, {"a": {"y": {}}}], 8)
@example([{"a": []}, {"a": [None]}, {"b": None}], 8)
@example([{"a": "\ud83d"}, {"a": "b"}], 8)
@example([{"a": ["\ud83d"]}, {"a": ["b"]}], 8)
def test_the_types_of_lines_are_those_of_all_values_at_once(rows: list[Any], size: int) -> None:
    names = dict.fromkeys(name for row in rows for name in row)
    expected = pl.DataFrame([series_of(name, [row.get(name) for row in rows]) for name in names])
    same(replace(JSONL, block_size=size).read(in_memory(lines(rows))), expected)


@given(tables(), st.integers(8, 120))
@example([{"a": 0.5}, {"a": 2**53 + 1}], 8)
@example([{"a": 0.5}, {"a": 2**53}], 8)
@example([{"a": 1}, {"a": 2**63}], 8)
@example([{"a": None}, {"a": 1}], 8)
@example([{"a": {"x": 1}}, {"a": {"x": 1, "y": 1}}], 8)
@example([{"a": [{"x": 1}]}, {"a": [{"y": 1}]}], 8)
@example([{"a": []}, {"a": [1]}], 8)
@example([{"a": "b"}, {"a": "\ud83d"}], 8)
@example([{"a": 1}, {"b": 1}], 8)
def test_the_types_of_the_first_lines_are_kept_only_if_they_hold_all_values(rows: list[Any], size: int) -> None:
    source = in_memory(lines(rows))
    try:
        found = pl.concat(list(typed.parts(source, size, first=1, inner_texts=False)))
    except TypesDiffer:
        return
    same(found, replace(JSONL, block_size=size).read(source))


LATER = [b'{"k":"p","r":0.5}\n', b'{"k":"p","r":1,"late":2}\n', b'{"k":"\xff","r":1}\n', b'{"k":1,"r":2}\n']


@pytest.mark.parametrize(("target", "last"), paired(["parquet", "jsonl", "csv", "arrow"], LATER))
def test_an_output_is_restarted_if_later_lines_have_other_types(target: str, last: bytes) -> None:
    data = lines([{"k": f"p{at}", "r": at} for at in range(100)]) + last
    added = inserting({"advantage": range(101)})
    whole = converted(data, added, target=FORMATS[target])
    with pytest.raises(TypesDiffer):
        list(SMALL["jsonl"].parts_like_first(in_memory(data)))
    found = converted(data, added, SMALL["jsonl"], SMALL[target])
    same(FORMATS[target].read(in_memory(found)), FORMATS[target].read(in_memory(whole)))


def test_lines_of_one_kind_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    rows = [{"k": f"p{at}", "r": at / 2, "m": [{"n": at, "t": "2024-01-01"}], "o": {"e": None}} for at in range(500)]
    monkeypatch.setattr(typed, "_exact_rows", never)
    small = replace(JSONL, block_size=4_096)
    found = small.read(in_memory(lines(rows)))
    same(pl.concat(list(small.parts_like_first(in_memory(lines(rows))))), found)
    assert found.row(7) == ("p7", 3.5, [{"n": 7, "t": "2024-01-01"}], {"e": None})


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
    data = lines([{"a": at, "s": f"x{at}"} for at in range(100)])
    if source == "csv":
        data = b"a,s\n" + b"".join(f"{at},x{at}\n".encode() for at in range(100))
    rows = range(100) if take is None else take
    added = pl.DataFrame({"advantage": [row / 2 for row in rows]}, schema={"advantage": pl.Float64})
    out = converted(data, inserting(added, take=take), SMALL[source], SMALL[target])
    found = FORMATS[target].read(in_memory(out)) if out else pl.DataFrame()
    if not rows and target == "jsonl":
        assert not out
        return
    assert found.columns == ["a", "s", "advantage"]
    assert list(map(int, found["a"])) == list(rows)
    assert [float(value) * 2 for value in found["advantage"]] == list(rows)
    if target == "parquet":
        metadata = pq.read_metadata(io.BytesIO(out))
        assert metadata.metadata[b"grpo_adv"] == NOTE["grpo_adv"].encode()
        assert metadata.num_row_groups >= 3 or take is not None


def test_another_number_of_rows_than_before_is_a_changed_input() -> None:
    weaving = inserting({"x": [1.0]})
    with pytest.raises(InputChanged):
        converted(b'{"a":1}\n{"a":2}\n' * 3, weaving)


def in_base64(value: Any) -> Any:
    """A value as JSON has it: bytes as base64, keys of maps as text."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, list):
        return [in_base64(item) for item in value]
    if isinstance(value, dict):
        return {str(in_base64(name)): in_base64(inner) for name, inner in value.items()}
    return value


IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
BYTES: dict[str, tuple[pa.DataType, Any]] = {
    "alone": (pa.binary(), b"\xff\x00"),
    "image": (IMAGE, {"bytes": b"\xff\x00", "path": None}),
    "list": (pa.list_(pa.binary()), [b"", None, b"\xfe"]),
    "array": (pa.list_(pa.binary(), 2), [b"a", b"b"]),
    "images": (pa.list_(IMAGE), [{"bytes": b"\x80", "path": "a"}, None]),
    "map": (pa.map_(pa.string(), pa.list_(IMAGE)), {"a": [{"bytes": b"\x80", "path": "a"}]}),
    "keys": (pa.map_(pa.binary(), pa.int64()), {b"\xff": 1}),
    "numbered": (pa.map_(pa.int64(), pa.string()), {1: "a"}),
}


@pytest.mark.parametrize("target", ["jsonl", "json", "csv"])
def test_bytes_at_any_depth_are_base64_where_a_format_has_none(target: str) -> None:
    columns = {
        name: pa.array([list(value.items()) if pa.types.is_map(dtype) else value, None], dtype)
        for name, (dtype, value) in BYTES.items()
    }
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    source, out = in_memory(sink.getvalue(), "x.parquet"), io.BytesIO()
    convert(source, PARQUET, out, FORMATS[target], inserting(pl.DataFrame({"advantage": [0.5, 1.5]})), long=True)

    if target == "csv":
        read = list(csv.DictReader(io.StringIO(out.getvalue().decode())))
        first, second = ({name: row[name] for name in BYTES} for row in read)
        first = {name: text if name == "alone" else json.loads(text) for name, text in first.items()}
        assert set(second.values()) == {""}
    else:
        text = out.getvalue().decode()
        first, second = json.loads(text) if target == "json" else map(json.loads, text.splitlines())
        assert set(second.values()) == {None, 1.5}
    assert {name: first[name] for name in BYTES} == {name: in_base64(value) for name, (_, value) in BYTES.items()}
