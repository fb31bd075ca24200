"""`verify`: the output without the added columns is the input, or the first difference is reported."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from grpo_cli.errors import DataError, UsageError
from grpo_cli.formats.jsonl import reading, weaving
from grpo_cli.formats.jsonl import verify as lines_verify
from grpo_cli.formats.jsonl.lines import last_braces
from grpo_cli.write.verify import verify
from tests.support.jobs import compute, write
from tests.support.samples import samples_in

SUFFIXES = ["jsonl", "csv", "tsv", "parquet", "arrow"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The sample rewards in every format."""
    samples_in(tmp_path)
    rows = pl.read_parquet(tmp_path / "rewards.parquet").to_dicts()
    for suffix in ("csv", "tsv", "arrow"):
        write(tmp_path / f"rewards.{suffix}", rows)
    lines = ",\n".join(map(json.dumps, rows))
    (tmp_path / "rewards.json").write_text(f"[\n{lines}\n]\n")
    return tmp_path


def computed(place: Path, suffix: str, **options: Any) -> tuple[Path, Path]:
    """The sample rewards, and what `compute` makes of them."""
    source = place / f"rewards.{suffix}"
    out = place / f"out.{suffix}"
    compute(source, output=str(out), **options)
    return source, out


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_compute_wrote_is_the_input_plus_its_columns(suffix: str, place: Path) -> None:
    source, out = computed(place, suffix, facts=True)
    found = verify(out, source)
    assert found.added == tuple(f"advantage{end}" for end in ("", "_mean", "_std", "_size", "_status"))
    assert found.by == ("values" if suffix == "arrow" else "bytes")


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("suffix", [*SUFFIXES, "json"])
def test_what_writes_files_is_not_what_verifies_them(
    suffix: str,
    replace: bool,  # noqa: FBT001 - given by name
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = pl.read_parquet(place / "rewards.parquet").with_columns(advantage=7.5)
    write(place / "rewards.json", rows.to_dicts())
    source = place / f"rewards.{suffix}"
    out = place / f"out.{suffix}"
    if replace and suffix != "json":
        compute(source, output=str(place / f"first.{suffix}"))
        source = place / f"first.{suffix}"
    compute(source, output=str(out), **({"replace": True} if replace else {"column": "new"}))

    def called(*_: Any, **__: Any) -> None:
        pytest.fail("the comparison calls the writer")

    for writer in (
        "jsonl.weaving.Spot.put", "jsonl.weaving.Spot.of", "jsonl.weaving.without_last", "jsonl.weaving.weave",
        "json_document.walk.put", "json_document.walk.woven", "delimited.format.Delimited._inserted",
        "delimited.format.Delimited.weave", "parquet.splice.weave", "parquet.rewrite.write", "arrow.Arrow.weave",
    ):  # fmt: skip
        monkeypatch.setattr(f"grpo_cli.formats.{writer}", called)
    assert verify(out, source, ["advantage" if replace else "new"])


def test_a_field_that_the_writer_inserted_into_an_inner_object_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison finds the places by itself."""

    def inner_of_late_rows(data: bytes) -> Any:
        braces, empty = last_braces(data)
        braces[3000:] -= 1
        return braces, empty

    rows = [{"prompt_id": at // 4, "reward": at % 4, "meta": {"a": at}} for at in range(6000)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for module in (reading, weaving, lines_verify):
        monkeypatch.setattr(module, "last_braces", inner_of_late_rows, raising=False)
    compute(tmp_path / "in.jsonl", output=str(tmp_path / "out.jsonl"))
    assert '{"a": 3001,"advantage":' in (tmp_path / "out.jsonl").read_text()
    with pytest.raises(DataError, match=r"out\.jsonl:3001"):
        verify(tmp_path / "out.jsonl", tmp_path / "in.jsonl", ["advantage"])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_replaced_column_has_to_be_named(suffix: str, place: Path) -> None:
    first = place / f"first.{suffix}"
    second = place / f"second.{suffix}"
    compute(place / f"rewards.{suffix}", output=str(first))
    compute(first, output=str(second), replace=True, method="rloo")
    assert verify(second, first, ["advantage"]).added == ("advantage",)
    with pytest.raises(DataError):
        verify(second, first)


def test_a_name_that_only_late_lines_of_the_input_have_is_not_new(tmp_path: Path) -> None:
    rows = [{"prompt_id": at // 4, "reward": at % 4 == 0, **({"late": 1} if at > 2000 else {})} for at in range(2400)]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress(data))
    compute(tmp_path / "in.jsonl.gz", output=str(tmp_path / "out.jsonl"))
    assert verify(tmp_path / "out.jsonl", tmp_path / "in.jsonl.gz").added == ("advantage",)


def test_a_line_without_the_new_field_is_found(place: Path) -> None:
    source, out = computed(place, "jsonl")
    lines = source.read_text().splitlines(keepends=True)[:2] + out.read_text().splitlines(keepends=True)[2:]
    out.write_text("".join(lines))
    with pytest.raises(DataError, match=r"out\.jsonl:1: no advantage in this line$"):
        verify(out, source)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_column_that_the_output_does_not_have_cannot_be_left_out(suffix: str, place: Path) -> None:
    source, out = computed(place, suffix)
    with pytest.raises(UsageError, match=rf"out\.{suffix} has no advantages; --column takes .*advantage"):
        verify(out, source, ["advantages"])


def test_a_directory_is_no_output(place: Path) -> None:
    with pytest.raises(DataError, match="is a directory; name a file in it"):
        verify(place, place / "rewards.jsonl")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: rows.with_columns(length=rows["length"].scatter(6, 999)), "row 7: length differs"),
        (lambda rows: rows.with_columns(pl.col("length").cast(pl.Float64)), r"length is Float64|row 1: length differs"),
        (lambda rows: pl.concat([rows[1:2], rows[:1], rows[2:]]), "row 1: sample differs"),
        (lambda rows: rows[:-1], "45 rows|row 46: a record that the other file does not have"),
        (lambda rows: rows.with_columns(more=1), "the column more is new|row 0: more differs"),
        (lambda rows: rows.drop("length"), "the column length is gone|row 0: length differs"),
    ],
    ids=["a value", "a type", "two rows swapped", "a row less", "a column more", "a column less"],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
def test_every_change_of_a_table_is_found(
    change: Callable[[pl.DataFrame], pl.DataFrame], says: str, suffix: str, place: Path
) -> None:
    frame = change(pl.read_parquet(place / "rewards.parquet").with_columns(advantage=0.5))
    out = write(place / f"out.{suffix}", frame.to_dicts())
    with pytest.raises(DataError, match=says):
        verify(out, place / f"rewards.{suffix}", ["advantage"])


OLD = [{"a": 1, "x": 1, "b": 2, "y": 3}] * 2


@pytest.mark.parametrize(
    ("rows", "columns", "says"),
    [
        ([{"a": 5, "x": 1, "b": 6, "y": 3}, {"a": 5, "x": 1, "b": 6, "y": 4}], ["a", "b"], r"2: y differs"),
        ([{"a": 5, "x": 1, "b": 6, "y": 3}] * 2, ["a"], r"1: b differs"),
        ([{"a": 1, "x": 2, "b": 2, "y": 3, "p": 1, "q": 2}] * 2, ["p", "q"], r"1: x differs"),
        ([{"a": 5, "x": 1, "b": 6, "y": 3, "p": 1, "q": 2}] * 2, ["q", "b", "a", "p"], ""),
    ],
    ids=["both replaced", "one of them named", "both new", "in any order"],
)
@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_of_several_columns_the_one_that_differs_is_named(
    rows: list[dict[str, int]], columns: list[str], says: str, suffix: str, tmp_path: Path
) -> None:
    for name, table in (("old", OLD), ("new", rows)):
        lines = [json.dumps(row) for row in table]
        if suffix == "csv":
            lines = [",".join(table[0]), *(",".join(map(str, row.values())) for row in table)]
        (tmp_path / f"{name}.{suffix}").write_text("".join(f"{line}\n" for line in lines))
    if says:
        with pytest.raises(DataError, match=says):
            verify(tmp_path / f"new.{suffix}", tmp_path / f"old.{suffix}", columns)
    else:
        assert verify(tmp_path / f"new.{suffix}", tmp_path / f"old.{suffix}", columns).added == tuple(columns)


def test_two_formats_are_not_compared(place: Path) -> None:
    with pytest.raises(UsageError, match="verify compares files of one format"):
        verify(place / "rewards.jsonl", place / "rewards.parquet")


def test_the_first_field_that_differs_is_named(place: Path) -> None:
    source, out = computed(place, "jsonl")
    text = out.read_text()
    for change, facts in [
        (('"length": 13', '"length": 14'), r"out\.jsonl:1: length differs from"),
        (('"sample": 0, ', ""), r"out\.jsonl:1: sample differs"),
        (('"sample": 0, ', '"sample": 0,  '), r"out\.jsonl:1: the text around the values differs"),
        (('{"prompt_id"', "{prompt_id"), r"out\.jsonl:1: the line differs|not JSON"),
    ]:
        out.write_text(text.replace(*change, 1))
        with pytest.raises(DataError, match=facts):
            verify(out, source)


CHANGES: dict[str, Callable[[list[bytes], bytes], Sequence[bytes]]] = {
    "a value": lambda lines, _: [*lines[:3], lines[3].replace(b"add-17-25", b"add-17-26"), *lines[4:]],
    "quotes": lambda lines, _: [line.replace(b"add-17-25", b'"add-17-25"') for line in lines],
    "white space": lambda lines, _: [*lines[:3], lines[3].replace(b"add-17-25", b"add-17-25 "), *lines[4:]],
    "line ends": lambda lines, _: [line.replace(b"\n", b"\r\n") for line in lines],
    "a blank line more": lambda lines, _: [*lines[:3], b"\n", *lines[3:]],
    "a byte order mark": lambda lines, _: [b"\xef\xbb\xbf", *lines],
    "no last line end": lambda lines, _: [*lines[:-1], lines[-1].rstrip(b"\n")],
    "cut short": lambda lines, _: [*lines[:-2], lines[-2][:4]],
    "a row less": lambda lines, _: [*lines[:3], *lines[4:]],
    "a row twice": lambda lines, _: [*lines[:4], *lines[3:]],
    "two rows swapped": lambda lines, _: [*lines[:3], lines[12], *lines[4:12], lines[3], *lines[13:]],
    "a cell more": lambda lines, cell: [*lines[:3], _with_cell(lines[3], cell), *lines[4:]],
    "a column more": lambda lines, cell: [_with_cell(line, cell) for line in lines],
}


def _with_cell(line: bytes, cell: bytes) -> bytes:
    """The line with one more cell at its end."""
    return re.sub(rb"(?<=[^\[\]\n])(?=\}?,?\n)", cell, line, count=1)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "json", "jsonl"])
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_a_text_is_found(change: str, suffix: str, place: Path) -> None:
    source, out = computed(place, suffix)
    whole = out.read_bytes()
    assert verify(out, source, ["advantage"]).by == "bytes"
    cell = {"csv": b",5", "tsv": b"\t5"}.get(suffix, b',"more":5')
    out.write_bytes(b"".join(CHANGES[change](whole.splitlines(keepends=True), cell)))
    assert out.read_bytes() != whole
    with pytest.raises(DataError, match=rf"{suffix}( row |:)\d+: "):
        verify(out, source, ["advantage"])


def test_a_column_that_cannot_be_read_is_not_verified(place: Path) -> None:
    source, out = computed(place, "parquet")
    chunk = pq.read_metadata(out).row_group(0).column(pq.read_schema(out).names.index("advantage"))
    start = min(at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at)
    data = bytearray(out.read_bytes())
    data[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    out.write_bytes(data)
    with pytest.raises(DataError, match="advantage cannot be read"):
        verify(out, source)


def test_a_replaced_column_of_another_type_has_to_be_named(tmp_path: Path) -> None:
    source = tmp_path / "in.parquet"
    out = tmp_path / "out.parquet"
    nested = [{"a": 1, "b": 2}] * 4
    pl.DataFrame({"prompt_id": [1, 1, 2, 2], "reward": [0, 1, 0, 1], "advantage": nested}).write_parquet(source)
    compute(source, output=str(out), replace=True)
    with pytest.raises(DataError, match="advantage is Float64, and Struct"):
        verify(out, source)
    assert verify(out, source, ["advantage"]).by == "bytes"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_in_the_wrong_order_are_said_to_be(suffix: str, place: Path) -> None:
    source, out = computed(place, suffix)
    with pytest.raises(DataError) as raised:
        verify(source, out)
    assert raised.value.hint == f"{source} lacks advantage of {out}: verify takes OUTPUT --against INPUT"
