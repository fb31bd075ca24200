"""Files keep every byte that was not asked for, and rows stay on their lines."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from grpo_cli.errors import DataError, InputChanged, UsageError
from grpo_cli.files.inputs import Input, Section
from grpo_cli.formats import registry
from grpo_cli.formats.columnar import stderr_silenced
from grpo_cli.formats.interface import Weaving
from grpo_cli.formats.json_document import document
from grpo_cli.formats.json_document.document import Documents
from grpo_cli.formats.registry import FORMATS, of, sniff
from grpo_cli.values import cells
from grpo_cli.values.cells import Excerpt, Field
from grpo_cli.values.column_types import series_of
from tests.support.weaving import NOTE, in_memory, inserting, woven

CSV, TSV, PARQUET, ARROW = (FORMATS[name] for name in ("csv", "tsv", "parquet", "arrow"))
JSONL = replace(registry.lines(), small=0)  # a few rows go the way of many


def adding(values: Iterable[Any], *, replace: bool = False, take: Sequence[int] | None = None, **more: Any) -> Weaving:
    return inserting({"advantage": list(values), **more}, take=take, replace=replace)


def scanned(known: Any, data: bytes | str, name: str, kind: Any = "number") -> list[Any]:
    values: list[Any] = known.scan(in_memory(data), [Field(name, kind)]).frame[name].to_list()
    return values


# --- cells -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "number"),
    [
        ('[1, 1.0, true, "True", [1]]', 1.0),
        ('[null, "", "  "]', None),
        ('[" 1e3 "]', 1000.0),
        ('["7/8"]', 0.875),
        ('["false"]', 0.0),
        ('["-inf", -1%s]' % ("0" * 400), -math.inf),
        ('["Infinity", 1%s]' % ("0" * 400), math.inf),
    ],
)
def test_a_number_is_read_from_whatever_writes_one(values: str, number: float | None) -> None:
    for value in json.loads(values):
        assert cells.as_number(value) == number


@pytest.mark.parametrize("value", ["good", "1_000", "\u0661", [1, 2], {"a": 1}, "7/0", "7/-8"])
def test_anything_else_is_no_number(value: object) -> None:
    with pytest.raises(ValueError, match=r".*"):
        cells.as_number(value)


number_texts = st.one_of(
    st.floats().map(repr),
    st.integers().map(str),
    st.text("0123456789+-.eE_ naifNIF", max_size=8),
    st.text(max_size=5),
)


@given(st.lists(st.none() | number_texts, max_size=5))
def test_columns_of_text_are_read_as_their_values_are(texts: list[str | None]) -> None:
    column = pl.Series("r", texts, dtype=pl.String)
    try:
        expected = [cells.as_number(text) for text in texts]
    except ValueError:
        with pytest.raises(DataError, match="expected a number"):
            cells.typed(Field("r", "number"), column, str)
    else:
        found = cells.typed(Field("r", "number"), column, str)
        assert repr(found.to_list()) == repr(expected)


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt128, pl.Float32, pl.Decimal(10, 2), pl.Boolean, pl.String])
def test_numbers_of_any_dtype_become_floats(dtype: Any) -> None:
    found = cells.typed(Field("r", "number"), pl.Series([1, 0, None]).cast(dtype), str)
    assert found.dtype == pl.Float64
    assert found.to_list() == [1.0, 0.0, None]


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["1.0", "False", ""])])
def test_words_of_any_dtype_become_floats(dtype: Any) -> None:
    words = pl.Series(["1.0", "False", ""], dtype=dtype)
    assert cells.typed(Field("r", "number"), words, str).to_list() == [1.0, 0.0, None]


@pytest.mark.parametrize(
    ("values", "lists"),
    [
        ("[[1, 2], null, []]", "[[1.0, 2.0], None, []]"),
        ("[1, null]", "[[1.0], None]"),
        ('["1.5", ""]', "[[1.5], None]"),
        ('[["1", "nan"]]', "[[1.0, nan]]"),
    ],
)
def test_a_plain_number_is_a_list_of_one(values: str, lists: str) -> None:
    found = cells.typed(Field("r", "numbers"), pl.Series(json.loads(values)), str)
    assert found.dtype == pl.List(pl.Float64)
    assert repr(found.to_list()) == lists


def test_arrays_and_nothing_are_lists_as_well() -> None:
    array = pl.Series([[1.0, 2.0]], dtype=pl.Array(pl.Float32, 2))
    nothing = pl.Series([], dtype=pl.Int64)
    for series in (array, nothing):
        found = cells.typed(Field("r", "numbers"), series, str)
        assert found.dtype == pl.List(pl.Float64)
        assert found.to_list() == series.to_list()


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ('["a", null]', pl.String),
        ("[1, null]", pl.Int64),
        ("[true]", pl.Boolean),
        ("[null]", pl.String),
        ('[1, "1"]', cells.JSON_TEXT),
        ("[0.5]", cells.JSON_TEXT),
        ("[10000000000000000000]", cells.JSON_TEXT),
        (r'["\ud800"]', cells.JSON_TEXT),
    ],
)
def test_keys_of_one_type_keep_it(values: str, dtype: pl.DataType) -> None:
    assert cells.key_series("k", json.loads(values)).dtype == dtype


def test_the_fields_of_a_key_have_an_order() -> None:
    assert cells.canonical(pl.Series([[{"b": 1, "a": "x"}]])).to_list() == ['[{"a":"x","b":1}]']


# --- JSON Lines ------------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
rows = st.dictionaries(st.sampled_from(["reward", "k", "advantage", "a.b", "é", ""]) | st.text(max_size=3), values)


@st.composite
def json_lines(draw: st.DrawFn) -> bytes:
    """Rows, and now and then a blank line; blanks around them, and a line feed at the end or none."""
    text = draw(st.sampled_from(["", "\ufeff"]))
    for row in [*draw(st.lists(st.none() | rows, max_size=4)), draw(rows)]:
        text += draw(st.sampled_from(["", " ", "\t"]))
        if row is not None:
            marks = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")]))
            line = json.dumps(row, ensure_ascii=draw(st.booleans()), separators=marks)
            text += line.encode("utf-8", "backslashreplace").decode()
        text += draw(st.sampled_from(["\n", "\r\n", "  \t\n"]))
    if draw(st.booleans()):
        text = text.removesuffix("\n").removesuffix("\r")
    return text.encode()


def parsed(data: bytes) -> list[Any]:
    text = data.decode("utf-8-sig", "surrogateescape")
    return [json.loads(line) for line in text.split("\n") if line.strip()]


@given(json_lines())
def test_a_new_field_or_one_that_is_replaced_changes_nothing_else(data: bytes) -> None:
    before = parsed(data)
    out = woven(JSONL, data, adding([0.123454321] * len(before)))
    assert out.replace(b',"advantage":0.123454321', b"").replace(b'"advantage":0.123454321', b"") == data
    assert all(row["advantage"] == 0.123454321 for row in parsed(out))
    after = parsed(woven(JSONL, data, adding([0.5] * len(before), replace=True)))
    expected = [{**row, "advantage": 0.5} for row in before]
    assert repr(after) == repr(expected)  # NaN equals nothing


@given(json_lines())
def test_the_scan_of_jsonl_agrees_with_the_json_module(data: bytes) -> None:
    read = parsed(data)
    names = list(dict.fromkeys(name for row in read for name in row))
    source = in_memory(data)
    assert JSONL.columns(source) == names
    for name in names:
        keys = JSONL.scan(source, [Field(name, "key")]).frame[name]
        cell = [row.get(name) for row in read]
        expected = [None if value is None else cells.key_text(value) for value in cell]
        assert cells.canonical(keys).to_list() == expected


@pytest.mark.parametrize(
    ("line", "replaced"),
    [
        ('{"x":{"advantage":1}}', '{"x":{"advantage":1},"advantage":0.5}'),
        ('{"adv\\u0061ntage" : [1, {"a":"}"}] , "z":1e3}', '{"adv\\u0061ntage" : 0.5 , "z":1e3}'),
        ('{"a":"\\"advantage\\":1","advantage": NaN}', '{"a":"\\"advantage\\":1","advantage": 0.5}'),
        ('{"id":123456789012345678901234567890,"x":1.0}',
         '{"id":123456789012345678901234567890,"x":1.0,"advantage":0.5}'),
        ("{ }", '{ "advantage":0.5}'),
        ('{"a":{}} ', '{"a":{},"advantage":0.5} '),
        ('{"a":"{"}', '{"a":"{","advantage":0.5}'),
    ],
)  # fmt: skip
def test_replace_rewrites_the_top_level_value_wherever_it_is(line: str, replaced: str) -> None:
    assert woven(JSONL, line, adding([0.5], replace=True)).decode() == replaced


def test_bytes_that_are_not_utf_8_go_out_as_they_came_in() -> None:
    line = b'{"k":"caf\xe9","advantage":1}\n'
    assert woven(JSONL, line, adding([0.5], replace=True)) == line.replace(b"1", b"0.5")
    assert len(set(scanned(JSONL, line + line.replace(b"\xe9", b"\xe8"), "k", "key"))) == len("ab")


def test_cells_are_written_as_json() -> None:
    out = woven(JSONL, "{}\n{}\n", adding([1e-05, math.nan], n=[1, None], s=["é\n", None], b=[True, False]))
    assert (
        out.decode()
        == r"""{"advantage":1e-05,"n":1,"s":"\u00e9\n","b":true}
{"advantage":null,"n":null,"s":null,"b":false}
"""
    )


def test_taken_lines_come_in_their_new_order_each_ended() -> None:
    data = b'\xef\xbb\xbf{"a":1}\r\n\r\n{"a":2}\r\n{"a":3}'
    out = woven(JSONL, data, adding([0.5, 1.5, 2.5], take=[2, 0, 0]))
    assert out == b'\xef\xbb\xbf{"a":3,"advantage":0.5}\r\n{"a":1,"advantage":1.5}\r\n{"a":1,"advantage":2.5}\r\n'


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('{"r":1}\n\n{"r":"good"}\n', "in:3: r is 'good', expected a number"),
        ('{"r":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}', "in:1: r is 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..., expected a number"),
        ('{"r":1}\n{"r":\n{"r":1}\n', "in:2: not JSON: expecting value at column 6;"),
        ("{\n", "in:1: a JSON value spans several lines"),
        ('{"rr":1}\n', "in: no column 'r'; did you mean 'rr'? columns: rr"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_with_its_line(data: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        scanned(JSONL, data, "r")
    assert str(caught.value).startswith(message)


# --- CSV and TSV -----------------------------------------------------------------------------------


@given(st.text(st.sampled_from('ab",\n'), max_size=30))
def test_odd_quotes_are_read_and_kept_as_pythons_csv_reads_them(text: str) -> None:
    data = f"h1,h2\n{text}\n"
    _, *expected = filter(None, csv.reader(io.StringIO(data, newline="")))
    ragged = any(len(row) != 2 for row in expected)
    try:
        found = CSV.read(in_memory(data)).fill_null("").rows()
    except DataError as error:
        refused = str(error)
    else:
        refused = ""
    assert bool(refused) == (ragged or "never closed" in refused)
    if refused:
        return
    assert [[*row] for row in found] == expected
    out = woven(CSV, data, adding([0.123454321] * len(found))).decode()
    assert out.replace(",0.123454321", "").replace(",advantage", "", 1) == data
    _, *after = filter(None, csv.reader(io.StringIO(out, newline="")))
    assert after == [[*row, "0.123454321"] for row in expected]


def test_replacing_a_cell_keeps_the_quotes_of_the_others() -> None:
    data = '\ufeff"k",advantage,"z"\r\n"a""b",1,"2,3"\r\n\r\nc,"x\r\ny",\r\n'
    out = woven(CSV, data, adding([0.5, None], replace=True, s=["q,r", 't"']))
    assert out.decode() == '\ufeff"k",advantage,"z",s\r\n"a""b",0.5,"2,3","q,r"\r\n\r\nc,,,"t"""\r\n'


def test_taken_records_follow_the_header() -> None:
    out = woven(CSV, 'k,r\r\n"a\nb",1\r\nc,2', adding([0.5, 1.5, math.nan], take=[1, 0, 1]))
    assert out == b'k,r,advantage\r\nc,2,0.5\r\n"a\nb",1,1.5\r\nc,2,NaN\r\n'


def test_csv_without_a_header_or_the_column_says_so_and_with_a_header_alone_it_has_columns() -> None:
    with pytest.raises(DataError, match=r"^in: no column 'r'"):
        scanned(CSV, "k,reward\na,1\n", "r")
    with pytest.raises(DataError, match=r"^in: no rows"):
        scanned(CSV, "\n\n", "r")
    assert scanned(CSV, "k,r\n", "r") == []
    assert woven(CSV, "\n\nk,r", adding(pl.Series([], dtype=pl.Float64))) == b"\n\nk,r,advantage"


# --- Parquet and Arrow -----------------------------------------------------------------------------


NESTED_ROWS = """\
{"k": "a", "r": "1.50", "s": {"x": 1.5, "deep": {"y": 1}}, "l": [], "m": {"a": 1}, "d": "x", "t": 0, "b": "ab", "s.x": 10}
{"k": "b", "r": null, "s": null, "l": null, "m": {}, "d": null, "t": 1, "b": null, "s.x": 20}
{"k": "b", "r": "0", "s": {"x": null, "deep": null}, "l": [{"role": "u", "n": 18446744073709551615}], "m": null, "d": "y", "t": null, "b": "cd", "s.x": 30}
{"k": "c", "r": "1", "s": {"x": 2, "deep": {"y": 2}}, "l": [null], "m": {"b": null}, "d": "x", "t": 3, "b": "ef", "s.x": 40}
{"k": "c", "r": "2", "s": null, "l": [{"role": null, "n": 1}], "m": {}, "d": "y", "t": 4, "b": "gh", "s.x": 50}
"""


def nested_table() -> pa.Table:
    role = pa.struct([("role", pa.string()), ("n", pa.uint64())])
    types = {
        "r": pa.string(),
        "s": pa.struct([("x", pa.float32()), ("deep", pa.struct([("y", pa.int8())]))]),
        "l": pa.list_(role),
        "m": pa.map_(pa.string(), pa.int64()),
        "d": pa.dictionary(pa.int32(), pa.string()),
        "t": pa.timestamp("us", tz="UTC"),
        "b": pa.binary(2),
        "s.x": pa.int64(),
    }
    key = pa.field("k", pa.string(), nullable=False, metadata={"note": "key"})
    schema = pa.schema([key, *types.items()], {"pandas": "{}", "mine": "kept"})
    rows = [json.loads(line) for line in NESTED_ROWS.splitlines()]
    table = pa.Table.from_pylist(rows, schema)
    return table.set_column(1, "r", table["r"].cast(pa.decimal128(10, 2)))


def parquet_of(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"row_group_size": 2, "compression": "gzip", **options})
    return sink.getvalue()


def arrow_of(table: pa.Table, *, stream: bool = False, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    create = ipc.new_stream if stream else ipc.new_file
    with create(sink, table.schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
        for batch in table.to_batches(max_chunksize=2):
            writer.write_batch(batch, custom_metadata={"batch": "note"})
    return sink.getvalue()


NESTED = [parquet_of(nested_table()), arrow_of(nested_table()), arrow_of(nested_table(), stream=True)]


def test_parquet_keeps_every_column_its_schema_and_its_row_groups() -> None:
    table = nested_table()
    out = woven(PARQUET, parquet_of(table), adding([0.5, None, math.nan, 1.0, 2.0], s2=list("abcde")))
    file = pq.ParquetFile(io.BytesIO(out))
    found = file.read()
    schema = file.schema_arrow
    assert found.drop_columns(["advantage", "s2"]).equals(table, check_metadata=False)
    assert schema.field("k").metadata[b"note"] == b"key"
    assert schema.metadata == {b"pandas": b"{}", b"mine": b"kept", b"grpo_adv": NOTE["grpo_adv"].encode()}
    groups = file.metadata.to_dict()["row_groups"]
    assert [group["num_rows"] for group in groups] == [2, 2, 1]
    assert {chunk["compression"] for chunk in groups[0]["columns"]} == {"GZIP"}
    assert str(found["advantage"].to_pylist()) == "[0.5, None, nan, 1.0, 2.0]"


@pytest.mark.parametrize("data", NESTED[1:])
def test_arrow_keeps_every_column_its_schema_and_its_batches(data: bytes) -> None:
    out = woven(ARROW, data, adding([0.5, None, math.nan, 1.0, 2.0]))
    reader = ipc.open_file(out) if out.startswith(b"ARROW1") else ipc.open_stream(out)
    assert out[:4] == data[:4]
    table = reader.read_all()
    assert [len(chunk) for chunk in table["k"].chunks] == [2, 2, 1]
    assert table.drop_columns(["advantage"]).equals(nested_table(), check_metadata=False)
    assert table.schema.field("k").metadata == {b"note": b"key"}
    assert table.schema.metadata[b"mine"] == b"kept"
    assert table.schema.metadata[b"grpo_adv"] == NOTE["grpo_adv"].encode()


@pytest.mark.parametrize(("compression", "stream"), [("lz4", True), ("zstd", False), (None, True)])
def test_arrow_keeps_its_compression(compression: str | None, *, stream: bool) -> None:
    table = pa.table({"r": ["x" * 1000] * 10})
    data = arrow_of(table, stream=stream, compression=compression)
    grown = len(woven(ARROW, data, adding([0.5] * 10))) - len(data)
    assert abs(grown) < 2000


@pytest.mark.parametrize("data", NESTED)
@pytest.mark.parametrize("take", [[], [1], [4, 0, 3, 3, 1]])
def test_taken_rows_come_in_their_new_order(data: bytes, take: list[int]) -> None:
    known = sniff(in_memory(data))
    advantages = pl.Series(take, dtype=pl.Float64)
    out = woven(known, data, adding(advantages, take=take))
    assert scanned(known, out, "s.x") == [[10, 20, 30, 40, 50][row] for row in take]
    assert scanned(known, out, "advantage") == take


@pytest.mark.parametrize("data", NESTED)
def test_nested_fields_are_reached_and_a_whole_name_wins_in_columns(data: bytes) -> None:
    known = sniff(in_memory(data))
    assert known.columns(in_memory(data)) == nested_table().schema.names
    assert scanned(known, data, "s.deep.y") == [1, None, None, 2, None]
    assert scanned(known, data, "s.x") == [10, 20, 30, 40, 50]
    assert scanned(known, data, "r") == [1.5, None, 0, 1, 2]
    assert scanned(known, data, "k", "key") == ["a", "b", "b", "c", "c"]
    with pytest.raises(DataError, match=r"no column 's.deep.z'"):
        scanned(known, data, "s.deep.z")


def test_rows_of_view_types_are_written_once_whatever_is_between_them() -> None:
    """Slices of a column of views would each be written with the texts of the whole column."""
    text = pl.Series([f"a text that is longer than a view {at}" for at in range(2_000)])
    table = pl.select(
        k=text, list=pl.concat_list(text, None), chat=pl.concat_list(pl.struct(content=text)),
        bytes=text.cast(pl.Binary), struct=pl.struct(a=text),
    )  # fmt: skip
    sink = io.BytesIO()
    table.write_ipc(sink)
    data = sink.getvalue()
    out = woven(ARROW, data, adding([0.5] * 1_000, take=range(0, 2_000, 2)))
    assert len(out) < len(data)
    assert pl.read_ipc(out).drop("advantage").equals(table[::2])
    assert ipc.open_file(out).schema.remove(5) == ipc.open_file(data).schema


def test_a_replaced_column_of_arrow_stays_in_its_place_and_one_is_added_without_rows() -> None:
    data = arrow_of(pa.table({"a": [1], "advantage": ["old"], "z": [2]}))
    out = woven(ARROW, data, adding([0.5], replace=True))
    assert ARROW.columns(in_memory(out)) == ["a", "advantage", "z"]
    assert scanned(ARROW, out, "advantage") == [0.5]
    nothing = pl.Series([], dtype=pl.Float64)
    out = woven(ARROW, arrow_of(pa.table({"r": []})), adding(nothing))
    assert ARROW.columns(in_memory(out)) == ["r", "advantage"]
    assert scanned(ARROW, out, "advantage") == []
    with pytest.raises(InputChanged):
        woven(ARROW, data, adding([0.5, 1.5]))


@pytest.mark.parametrize(
    "data", [b"PAR1 and then nothing", b"ARROW1 and then nothing", b"\xff\xff\xff\xff!", b"FEA1...."]
)
def test_a_broken_file_or_feather_1_is_one_line(data: bytes) -> None:
    known = sniff(in_memory(data))
    for act in (known.columns, known.read, known.sample, lambda source: known.scan(source, [Field("r", "number")])):
        with pytest.raises(DataError, match=r"^in: not readable as (Parquet|Arrow IPC)"):
            act(in_memory(data))


# --- which format, and from one to another ---------------------------------------------------------


def test_the_suffix_decides_and_an_unknown_one_lists_the_known_ones() -> None:
    assert of("x/A.JSON").name == "jsonl"
    assert of("a.b.pq").name == "parquet"
    assert of("a.tsv").name == "tsv"
    assert of("a.jsonl.gz") is of("b/c.NDJSON.ZST") is of("a.jsonl")
    for name in (
        "a.txt",
        "a",
        ".jsonl/a",
        "a.jsonl.bz2",
        "a.gz",
        "a.arrow.zst",
        "a.jsonl.gz.zst",
    ):  # only text is packed
        with pytest.raises(UsageError, match=r"\.parquet"):
            of(name)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"PAR1....", "parquet"),
        (b"ARROW1\0\0", "arrow"),
        (b"\xff\xff\xff\xff....", "arrow"),
        (b' \n{"a":1}', "jsonl"),
        (b"\xef\xbb\xbf{}", "jsonl"),
        (b"a,b\n1,2\n", "csv"),
        (b"a\tb,c\n", "tsv"),
    ],
)
def test_a_pipe_is_known_by_its_first_bytes(data: bytes, name: str) -> None:
    assert sniff(in_memory(data)).name == of(in_memory(data)).name == name


@pytest.mark.parametrize(("data", "cure"), [(b"", "no rows"), (b"hello\n", "name a file")])
def test_a_pipe_of_something_else_says_what_to_do(data: bytes, cure: str) -> None:
    with pytest.raises(DataError, match=cure):
        sniff(in_memory(data))


def test_late_fields_of_a_struct_are_not_dropped() -> None:
    values = [{"a": 1}, {"b": "x", "c": [1, 2.5]}]
    found = series_of("v", values)
    assert found.to_list() == [{"a": 1, "b": None, "c": None}, {"a": None, "b": "x", "c": [1.0, 2.5]}]


@pytest.mark.parametrize("values", [[1, "1"], [{"a": 1}, [1]], [2**70], [2**60, 0.5], [True, 1], [{}]])
def test_values_without_a_common_type_stay_as_text(values: list[Any]) -> None:
    assert series_of("v", values).dtype == pl.String


def test_the_private_dtype_of_keys_reaches_no_file() -> None:
    frame = pl.DataFrame([cells.key_series("k", [1, "1"])])
    for known in FORMATS.values():
        sink = io.BytesIO()
        known.write_parts(iter([frame]), sink, NOTE)
        source = in_memory(sink.getvalue())
        if known.record == "object":
            assert [row["k"] for row in known.sample(source)] == [1, "1"]
        else:
            assert known.read(source)["k"].to_list() == ["1", "1"]


# --- some values ---------------------------------------------------------------------------------------------

TEXTS = [f"text {at}, \u00e9 {'x' * (at % 50)}" for at in range(3000)]
TEXT_TABLE = pa.table({"n": range(3000), "text": TEXTS})
TEXT_FRAME = pl.DataFrame(TEXT_TABLE)
LINES = TEXT_FRAME.write_ndjson().splitlines()
SOME = {
    "lines": "\n".join(LINES).encode(),
    "lines with a mark, blanks and CRLF": ("\ufeff" + " \r\n\r\n".join(LINES) + "\r\n\r\n").encode(),
    "packed lines": gzip.compress("\n".join(LINES).encode()),
    "array": f"[{','.join(LINES)}]".encode(),
    "csv": TEXT_FRAME.write_csv().encode(),
    "parquet": parquet_of(TEXT_TABLE, row_group_size=700),
    "arrow": arrow_of(TEXT_TABLE),
}


@pytest.mark.parametrize("scanned_before", [True, False])
@pytest.mark.parametrize("name", SOME)
def test_single_rows_are_values_and_json_texts(name: str, *, scanned_before: bool) -> None:
    source = in_memory(SOME[name])
    known = of(source)
    index = known.scan(source, [Field("n", "number")]).index if scanned_before else None
    cheap = np.arange(3000)[: known.cheap_rows(source, index, 3000)]
    assert len(cheap)
    middle = cheap[len(cheap) // 2 :]
    some = np.concatenate([cheap[:3], middle[:3], cheap[-3:]])
    for rows in (np.unique(some), np.array([0, 2999]), np.arange(3000)):
        found = single(known, source, index, rows, "text")
        assert found == [TEXTS[row] for row in rows]
        texts = single(known, source, index, rows, "text", as_json=True)
        assert [json.loads(text) for text in texts] == found


@pytest.mark.parametrize(("rows", "letters", "cheap"), [(1000, 10, 512), (64, 1 << 18, 15), (4, 5 << 20, 4)])
def test_few_rows_of_an_object_are_cheap_if_they_are_long(rows: int, letters: int, cheap: int) -> None:
    """4 MiB of a row group are decoded, but never more than 512 rows, nor fewer than 8 if there are so many."""
    texts = pa.array([f"{at:0{letters}}" for at in range(rows)])
    data = parquet_of(pa.table({"text": texts}), row_group_size=rows, use_dictionary=False, compression="none")
    source = Section.between(in_memory(data), 0, len(data))
    assert not source.is_local
    found: Any = of(source).cheap_rows(source, None, rows)
    assert [*found] == [*range(cheap)]


def single(known: Any, source: Input, index: Any, rows: Any, column: str, *, as_json: bool = False) -> list[Any]:
    frames = known.rows(source, Excerpt(index, rows, [column], as_json))
    return list(pl.concat(frames)[column])


def test_standard_error_is_itself_again_when_the_last_of_several_threads_is_done(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(stderr_silenced())
        second.enter_context(stderr_silenced())
        first.close()
        os.write(2, b"a panic of the second\n")
    os.write(2, b"a message\n")
    assert capfd.readouterr().err == "a message\n"


def test_a_document_that_another_thread_drops_at_once_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dropping(dict[Any, Any]):
        def __setitem__(self, key: Any, value: Any) -> None:
            """What another thread's `clear` does right after it."""

    monkeypatch.setattr(document, "_AT_HAND", Dropping())
    assert scanned(FORMATS["json"], '[{"reward": 1}, {"reward": 2}]', "reward") == [1.0, 2.0]


@pytest.mark.parametrize("known", [Documents("json", "[].rollouts[]"), Documents("jsonl", "rollouts[]", lined=True)])
def test_a_field_that_other_rollouts_have_themselves_is_never_taken_from_farther_out(known: Documents) -> None:
    text = """{"prompt": "outer", "step": 7, "rollouts":
        [{"prompt": "own", "reward": 1}, {"reward": 0}, {"prompt": null, "reward": 0}]}"""
    source = in_memory(text.replace("\n", " ") if known.lined else f"[{text}]")
    scan = known.scan(source, [Field("prompt", "key"), Field("step", "key")]).frame
    read = known.read(source)
    rows = np.arange(3)
    for name, values in {"prompt": ["own", None, None], "step": [7, 7, 7]}.items():
        assert scan[name].to_list() == values
        assert read[name].to_list() == values
        assert single(known, source, None, rows, name) == values
    assert single(known, source, None, rows, "prompt", as_json=True) == ['"own"', None, None]
    assert single(known, source, None, rows, "step", as_json=True) == ["7", "7", "7"]
