"""A spliced Parquet file is the old one, byte for byte up to its footer, and every reader sees one column more."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.parquet import encryption

from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files.inputs import Input
from grpo_cli.formats.interface import Weaving
from grpo_cli.formats.parquet import splice
from grpo_cli.formats.parquet.footer import Unspliceable
from grpo_cli.formats.parquet.splice import copy_start
from grpo_cli.formats.registry import FORMATS
from tests.support.drawn import paired
from tests.support.weaving import NOTE, in_memory, inserting, woven_with_notes

ROWS = 7
CODECS = ["none", "snappy", "gzip", "brotli", "lz4", "zstd"]
LINES = """\
{"k": "a", "s": {"x": 1, "deep": {"y": [1, null]}}, "l": [1.0], "m": {"a": 1}, "r": 1.5, "b": true}
{"k": "b", "s": {"x": 2, "deep": null}, "l": null, "m": {}, "r": null, "b": null}
{"k": null, "s": null, "l": [], "m": null, "r": NaN, "b": false}
{"k": "c", "s": {"x": 4, "deep": {"y": []}}, "l": [2.0], "m": {"b": 2}, "r": 1.0, "b": true}
{"k": "c", "s": {"x": 4, "deep": {"y": []}}, "l": [3.0], "m": {}, "r": 2.0, "b": true}
{"k": "é", "s": {"x": 4, "deep": {"y": []}}, "l": [null], "m": {}, "r": 0.0, "b": true}
{"k": "a longer text, a longer text, a longer text", "s": {"x": 4, "deep": {"y": []}}, "l": [1.0, 2.0], "m": {}, "r": -0.0, "b": true}
"""
TYPES = {
    "k": pa.string(),
    "s": pa.struct([("x", pa.int64()), ("deep", pa.struct([("y", pa.list_(pa.int64()))]))]),
    "l": pa.list_(pa.float64()),
    "m": pa.map_(pa.string(), pa.int32()),
    "r": pa.float64(),
    "b": pa.bool_(),
}
TABLE = pa.Table.from_pylist([json.loads(line) for line in LINES.splitlines()], pa.schema(TYPES))


def wrote(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def values(rows: int) -> list[float]:
    return [k - 1.25 for k in range(rows)]


def adding(rows: int, *, replace: bool = False, take: Any = None, **more: Any) -> Weaving:
    return inserting({"advantage": values(rows), **more}, take=take, replace=replace)


def woven(data: bytes, weaving: Weaving) -> tuple[bytes, list[str]]:
    return woven_with_notes(FORMATS["parquet"], data, weaving)


def start(data: bytes) -> int:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def metadata(data: bytes) -> pq.FileMetaData:
    return pq.read_metadata(io.BytesIO(data))


READERS: dict[str, Callable[[str], pd.DataFrame]] = {
    "pyarrow": lambda path: pq.ParquetFile(path).read().to_pandas(),
    "polars": lambda path: pl.read_parquet(path).to_pandas(),
    "duckdb": lambda path: duckdb.execute("from read_parquet($1)", [path]).df(),
    "pandas": pd.read_parquet,
}


def read_by_all(data: bytes, folder: Path) -> dict[str, pd.DataFrame]:
    path = folder / f"{abs(hash(data))}.parquet"
    path.write_bytes(data)
    return {name: read(str(path)) for name, read in READERS.items()}


def contents(frame: pd.DataFrame) -> str:
    """NaN and nested values have no equality that pandas would agree to."""
    return repr([frame.index.tolist(), *((name, frame[name].tolist()) for name in frame.columns)])


def check(data: bytes, rows: int, folder: Path) -> bytes:
    """The whole promise for one file."""
    out, notes = woven(data, adding(rows))
    assert notes == []
    assert out[: start(data)] == data[: start(data)]
    before = read_by_all(data, folder)
    after = read_by_all(out, folder)
    for name, frame in after.items():
        assert frame.columns[-1] == "advantage"
        assert frame["advantage"].tolist() == values(rows)
        assert contents(frame.drop(columns="advantage")) == contents(before[name]), name
    old = metadata(data)
    new = metadata(out)
    assert new.num_columns == old.num_columns + 1
    row = 0
    for was, group in zip(old.to_dict()["row_groups"], new.to_dict()["row_groups"], strict=True):
        chunk = group["columns"][-1]
        count = group["num_rows"]
        assert count == was["num_rows"] == chunk["num_values"]
        assert group["total_byte_size"] == was["total_byte_size"] + chunk["total_uncompressed_size"]
        if count:
            assert chunk["statistics"]["min"] == row - 1.25
            assert chunk["statistics"]["max"] == row + count - 2.25
        row += count
    assert new.metadata[b"grpo_adv"] == NOTE["grpo_adv"].encode()
    assert is_spliced(data, out, "advantage")
    return out


def is_spliced(old: bytes, new: bytes, *added: str) -> bool:
    """Whether `verify` finds all bytes of the old file in the new one."""
    try:
        return FORMATS["parquet"].compared(in_memory(new), in_memory(old), added) == ("bytes", None)
    except DataError:  # not even the numbers of rows are the same
        return False


# --- who wrote it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("codec", "pages"), paired(CODECS, ["1.0", "2.0"]))
def test_files_by_pyarrow(codec: str, pages: str, tmp_path: Path) -> None:
    data = wrote(TABLE, compression=codec, data_page_version=pages, row_group_size=3, write_page_index=True)
    new = metadata(check(data, ROWS, tmp_path)).row_group(0)
    assert new.column(new.num_columns - 1).compression == new.column(0).compression


@pytest.mark.parametrize("options", [{}, {"row_group_size": 2, "compression": "uncompressed", "statistics": False}])
def test_files_by_polars(options: Any, tmp_path: Path) -> None:
    sink = io.BytesIO()
    words = pl.Series(["x", "y", "x", None])
    frame = pl.DataFrame({
        "k": words, "c": words.cast(pl.Categorical), "e": words.cast(pl.Enum(["x", "y"])), "l": [[1], None, [], [2, None]],
        "s": [{"a": 1}] * 4, "d": pl.Series([1, 2, 3, None], dtype=pl.Decimal(10, 2)),
    })  # fmt: skip
    frame.write_parquet(sink, **options)
    found = pl.read_parquet(check(sink.getvalue(), 4, tmp_path))
    assert found.drop("advantage").equals(frame, null_equal=True)
    assert found.schema == {**frame.schema, "advantage": pl.Float64}


@pytest.mark.parametrize("index", [["a", "b", "c"], pd.RangeIndex(5, 8), pd.MultiIndex.from_product([[1], [*"xyz"]])])
def test_files_by_pandas(index: Any, tmp_path: Path) -> None:
    sink = io.BytesIO()
    pd.DataFrame({"k": [1, 2, 3], "t": pd.Categorical(["a", "b", "a"])}, index=index).to_parquet(sink)
    out = check(sink.getvalue(), 3, tmp_path)
    described = json.loads(metadata(out).metadata[b"pandas"])["columns"][-1]
    assert described["name"] == "advantage"
    assert described["pandas_type"] == "float64"


def test_files_by_duckdb(tmp_path: Path) -> None:
    path = "d.parquet"
    query = "select i, 't' || i % 5 t, [i, null] l, {'a': i} s, map {'k': i} m from range(2500) t(i)"
    duckdb.execute(f"copy ({query}) to '{path}' (row_group_size 2048, parquet_version v2)")
    check(Path(path).read_bytes(), 2500, tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"bloom_filter_options": {"k": {"ndv": 10, "fpp": 0.01}}, "write_page_index": True},
        {"sorting_columns": [pq.SortingColumn(0)], "store_schema": False},
        {"write_page_checksum": True, "use_dictionary": False, "version": "1.0"},
    ],
)
def test_rarer_options(options: Any, tmp_path: Path) -> None:
    data = wrote(TABLE, **options)
    new = metadata(check(data, ROWS, tmp_path)).row_group(0)
    assert new.sorting_columns == metadata(data).row_group(0).sorting_columns


@pytest.mark.parametrize("groups", [[], [0], [0, 2, 0, 0, 4, 1]])
def test_row_groups_without_rows(groups: list[int], tmp_path: Path) -> None:
    sink = io.BytesIO()
    table = TABLE.select(["k", "r"])
    with pq.ParquetWriter(sink, table.schema) as writer:
        for rows in groups:
            writer.write_table(table.slice(0, rows))
    assert metadata(check(sink.getvalue(), sum(groups), tmp_path)).num_row_groups == len(groups)


column_types = st.sampled_from([
    pa.int32(), pa.float64(), pa.string(), pa.list_(pa.int64()), pa.struct([("x", pa.string()), ("y", pa.list_(pa.int8()))]),
    pa.binary(3), pa.timestamp("us", "UTC"), pa.dictionary(pa.int8(), pa.string()),
])  # fmt: skip


@given(
    dtypes=st.lists(column_types, min_size=1, max_size=5),
    rows=st.integers(0, 900),
    group=st.integers(1, 400),
    same=st.booleans(),
    replaced=st.booleans(),
)
def test_any_schema_and_any_row_groups(
    dtypes: list[pa.DataType], rows: int, group: int, *, same: bool, replaced: bool
) -> None:
    table = pa.table({f"c{k}": pa.nulls(rows, dtype) for k, dtype in enumerate(dtypes)})
    data = wrote(table, row_group_size=group)
    status = ["ok" if same else f"{k}" for k in range(rows)]
    name = "c0" if replaced else "status"
    out, _ = woven(data, adding(rows, replace=replaced, **{name: pl.Series(status, dtype=pl.String)}))
    assert out[: start(data)] == data[: start(data)]
    found = pq.read_table(io.BytesIO(out))
    assert found.column_names == [*table.column_names, "advantage"] + ["status"] * (not replaced)
    assert found[name].to_pylist() == status
    assert found["advantage"].to_pylist() == values(rows)
    kept = [column for column in table.column_names if column != name]
    assert found.select(kept).equals(table.select(kept))
    assert is_spliced(data, out, "advantage", name)


def test_filters_that_use_statistics_and_indexes_find_the_same_rows() -> None:
    rows = 5000
    table = pa.table({"k": range(rows), "t": [f"{row:05}" for row in range(rows)]})
    bloom = {"t": {"ndv": 1000, "fpp": 0.01}}
    data = wrote(table, row_group_size=1000, write_page_index=True, bloom_filter_options=bloom, data_page_size=100)
    out, _ = woven(data, adding(rows))
    path = Path("a.parquet")
    path.write_bytes(out)
    for column, value in {"k": 1234, "t": "01234", "advantage": 1232.75}.items():
        by_pyarrow = pq.read_table(path, filters=[(column, "=", value)])
        assert by_pyarrow["k"].to_pylist() == [1234]
        by_polars = pl.scan_parquet(path).filter(pl.col(column) == value).collect()
        assert by_polars["k"].to_list() == [1234]
        by_duckdb = duckdb.execute(f"select k from '{path}' where {column} = $1", [value])  # noqa: S608
        assert by_duckdb.fetchall() == [(1234,)]


# --- columns of the same name ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["k", "s", "b"])
def test_a_replaced_column_keeps_its_place_and_leaves_dead_bytes(name: str, tmp_path: Path) -> None:
    table = TABLE.rename_columns(["advantage" if column == name else column for column in TABLE.column_names])
    sorting = [pq.SortingColumn(0), pq.SortingColumn(6)]
    data = wrote(table, row_group_size=3, write_page_index=True, sorting_columns=sorting)
    out, notes = woven(data, adding(ROWS, replace=True))
    chunks = [chunk for group in metadata(data).to_dict()["row_groups"] for chunk in group["columns"]]
    gone = [chunk for chunk in chunks if chunk["path_in_schema"].startswith("advantage")]
    dead = sum(chunk["total_compressed_size"] for chunk in gone)
    assert notes == [f"in: {dead:,} bytes of the replaced column stay in the file unread"]
    groups = metadata(out).to_dict()["row_groups"]
    for group in groups:
        assert group["total_byte_size"] == sum(chunk["total_uncompressed_size"] for chunk in group["columns"])
        assert len(group["columns"]) == (len(chunks) - len(gone)) // 3 + 1
    for frame in read_by_all(out, tmp_path).values():
        assert list(frame.columns) == table.column_names
        assert frame["advantage"].tolist() == values(ROWS)
    kept = pq.read_table(io.BytesIO(out)).drop_columns("advantage")
    assert repr(kept.to_pylist()) == repr(table.drop_columns("advantage").to_pylist())
    assert metadata(out).row_group(0).sorting_columns == ()
    again, _ = woven(out, adding(ROWS, replace=True))
    assert pq.read_schema(io.BytesIO(again)).equals(pq.read_schema(io.BytesIO(out)), check_metadata=True)


# --- what cannot be spliced, and what is refused -----------------------------------------------------------


def test_dropped_rows_take_the_general_path_and_it_is_said() -> None:
    out, notes = woven(wrote(TABLE), adding(2, take=np.array([4, 0])))
    assert notes == ["in: all columns were re-encoded: rows were dropped or repeated"]
    assert pq.read_table(io.BytesIO(out))["k"].to_pylist() == ["c", "a"]


class OpenKeys(encryption.KmsClient):  # type: ignore[misc]
    """A key service that wraps nothing."""

    def __init__(self, _: Any) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, _: str) -> str:
        return key.hex()


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_encrypted_files_are_refused_in_one_line(*, plaintext_footer: bool) -> None:
    """Also where the footer can be read: asked about a column without its key, pyarrow aborts the process."""
    keys = encryption.EncryptionConfiguration("f", column_keys={"c": ["r"]}, plaintext_footer=plaintext_footer)
    locks = encryption.CryptoFactory(OpenKeys).file_encryption_properties(encryption.KmsConnectionConfig(), keys)
    data = wrote(TABLE, encryption_properties=locks)
    with pytest.raises(
        DataError, match=r"^in: .* encrypted; decrypt it with .*, or with pyarrow, and run again on the copy$"
    ):
        FORMATS["parquet"].columns(in_memory(data))
    for weaving in (adding(ROWS), adding(1, take=[0])):
        with pytest.raises(DataError, match=r"^in: .* encrypted[^\n]*$"):
            woven(data, weaving)


def test_an_arrow_schema_that_cannot_be_read_takes_the_general_path() -> None:
    """Its readers would not see the new column."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, pa.schema([("k", pa.int64())]), store_schema=False) as writer:
        writer.write_table(pa.table({"k": [1, 2]}))
        writer.add_key_value_metadata({"ARROW:schema": "AAAA"})
    with pytest.raises(Unspliceable, match="ARROW:schema"):
        splice.weave(in_memory(sink.getvalue()), io.BytesIO(), adding(2))
    with pytest.raises(DataError, match="not readable as Parquet"):
        woven(sink.getvalue(), adding(2))


@pytest.mark.parametrize("rows", [0, ROWS - 1, ROWS + 1])
def test_another_number_of_rows_than_before_is_a_changed_input(rows: int) -> None:
    with pytest.raises(InputChanged):
        woven(wrote(TABLE), adding(rows))


def test_a_dictionary_is_made_only_where_values_repeat() -> None:
    numbers = np.arange(50_000)
    data = wrote(pa.table({"k": numbers}), row_group_size=20_000)
    for new, there in ((numbers % 5 / 2, True), (numbers / 3, False)):
        out, _ = woven(data, inserting({"a": new}))
        for group in metadata(out).to_dict()["row_groups"]:
            assert group["columns"][1]["has_dictionary_page"] == there
        assert pl.read_parquet(out)["a"].to_list() == new.tolist()


# --- where it goes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["wb", "ab", "w+b"])
def test_the_file_is_the_same_wherever_it_is_written(mode: Literal["wb", "ab", "w+b"]) -> None:
    source = Path("a.parquet")
    source.write_bytes(wrote(TABLE))
    expected, _ = woven(source.read_bytes(), adding(ROWS))
    with Path("b").open(mode) as sink:
        FORMATS["parquet"].weave(Input.at(source), None, sink, adding(ROWS))
        assert sink.tell() == len(expected)
    assert Path("b").read_bytes() == expected
    out, into = os.pipe()  # which has room for it
    with os.fdopen(out, "rb") as reader:
        with os.fdopen(into, "wb") as pipe:
            FORMATS["parquet"].weave(Input.at(source), None, pipe, adding(ROWS))
        assert reader.read() == expected


def test_a_file_that_became_shorter_is_a_changed_input() -> None:
    path = Path("a.parquet")
    path.write_bytes(wrote(TABLE))
    source = Input.at(path)
    with path.open("rb") as handle, Path("b").open("wb") as sink:
        os.truncate(path, 10)
        with pytest.raises(InputChanged):
            copy_start(source, handle, sink, 100)


# --- the check ---------------------------------------------------------------------------------------------


def test_any_difference_in_what_was_there_is_seen() -> None:
    data = wrote(TABLE, row_group_size=3, write_page_index=True)
    out, _ = woven(data, adding(ROWS))
    cast = TABLE.set_column(4, "r", TABLE["r"].cast(pa.float32()))
    assert is_spliced(data, out, "advantage")
    assert not is_spliced(data, out)
    assert is_spliced(data, data)
    for other in (
        wrote(TABLE, row_group_size=2),
        wrote(TABLE.drop_columns("k")),
        wrote(TABLE, row_group_size=3, compression="gzip", write_page_index=True),
        wrote(cast, row_group_size=3),
    ):
        assert not is_spliced(data, other, "advantage")


def test_every_byte_before_the_old_footer_counts() -> None:
    """Pages, page indexes, Bloom filters, and what nothing points to."""
    data = wrote(TABLE, row_group_size=3, write_page_index=True, bloom_filter_options={"k": {"ndv": 4}})
    out, _ = woven(data, adding(ROWS))
    for at in range(0, start(data), 23):
        broken = bytearray(out)
        broken[at] ^= 1
        said = FORMATS["parquet"].compared(in_memory(bytes(broken)), in_memory(data), {"advantage"})
        assert said == ("bytes", f"in: the byte at offset {at:,} differs from in")


def test_columns_that_lie_elsewhere_are_compared_by_their_values() -> None:
    before = in_memory(wrote(pa.table({"a": [1, 2], "b": ["x", "y"]})))
    moved = in_memory(wrote(pa.table({"new": ["z" * 100] * 2, "a": [1, 2], "b": ["x", "y"]})))
    assert FORMATS["parquet"].compared(moved, before, {"new"}) == ("values", None)
