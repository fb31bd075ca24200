"""`verify`: the output without the added columns is the input, or the first difference is reported."""

from __future__ import annotations

import gzip
import json
import re
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
from tests.support.jobs import compute, rows_of, samples_in, write

SUFFIXES = ["jsonl", "csv", "tsv", "parquet", "arrow"]


@pytest.fixture(autouse=True)
def rewards(here: None) -> None:
    """The sample rewards in every format."""
    samples_in(Path())
    rows = pl.read_parquet("rewards.parquet").to_dicts()
    for suffix in ("csv", "tsv", "arrow"):
        write(f"rewards.{suffix}", rows)
    lines = ",\n".join(map(json.dumps, rows))
    Path("rewards.json").write_text(f"[\n{lines}\n]\n")


def computed(suffix: str, **options: Any) -> tuple[Path, Path]:
    """The sample rewards, and what `compute` makes of them."""
    source = Path(f"rewards.{suffix}")
    out = Path(f"out.{suffix}")
    compute(source, output=str(out), **options)
    return source, out


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_compute_wrote_is_the_input_plus_its_columns(suffix: str) -> None:
    source, out = computed(suffix, facts=True)
    found = verify(out, source)
    new = "advantage, advantage_mean, advantage_std, advantage_size, advantage_status"
    assert ", ".join(found.added) == new
    assert found.by == ("values" if suffix == "arrow" else "bytes")
    with pytest.raises(DataError) as raised:
        verify(source, out)
    assert raised.value.hint == f"{source} lacks {new} of {out}: verify takes OUTPUT --against INPUT"
    with pytest.raises(UsageError, match=rf"out\.{suffix} has no advantages; --column takes .*advantage"):
        verify(out, source, ["advantages"])


WRITERS = """
jsonl.weaving.Spot.put jsonl.weaving.Spot.of jsonl.weaving.without_last jsonl.weaving.weave
json_document.walk.put json_document.walk.woven delimited.format.Delimited._inserted delimited.format.Delimited.weave
parquet.splice.weave parquet.rewrite.write arrow.Arrow.weave
"""


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("suffix", [*SUFFIXES, "json"])
def test_what_writes_files_is_not_what_verifies_them(
    suffix: str, *, replace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pl.read_parquet("rewards.parquet").with_columns(advantage=7.5)
    write("rewards.json", rows.to_dicts())
    source = f"rewards.{suffix}"
    out = f"out.{suffix}"
    if replace and suffix != "json":
        compute(source, output=f"first.{suffix}")
        source = f"first.{suffix}"
    column = "advantage" if replace else "new"
    compute(source, output=out, replace=replace, column=column)

    def called(*_: Any, **__: Any) -> None:
        pytest.fail("the comparison calls the writer")

    for writer in WRITERS.split():
        monkeypatch.setattr(f"grpo_cli.formats.{writer}", called)
    assert verify(Path(out), Path(source), [column])


def test_a_field_that_the_writer_inserted_into_an_inner_object_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison finds the places by itself."""

    def inner_of_late_rows(data: bytes) -> Any:
        braces, empty = last_braces(data)
        braces[3000:] -= 1
        return braces, empty

    source = Path("in.jsonl")
    out = Path("out.jsonl")
    source.write_text(
        '{"prompt_id": 1, "reward": 1, "meta": {"a": 1}}\n{"prompt_id": 1, "reward": 0, "meta": {"a": 2}}\n' * 3000
    )
    for module in (reading, weaving, lines_verify):
        monkeypatch.setattr(module, "last_braces", inner_of_late_rows, raising=False)
    compute(source, output=str(out))
    assert '{"a": 1,"advantage":' in out.read_text()
    with pytest.raises(DataError, match=r"out\.jsonl:3001"):
        verify(out, source, ["advantage"])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_replaced_column_has_to_be_named(suffix: str) -> None:
    _, first = computed(suffix)
    second = Path(f"second.{suffix}")
    compute(first, output=str(second), replace=True, method="rloo")
    assert verify(second, first, ["advantage"]).added == ("advantage",)
    with pytest.raises(DataError):
        verify(second, first)


def test_a_name_that_only_late_lines_of_the_input_have_is_not_new() -> None:
    group = b'{"prompt_id": 1, "reward": 1}\n{"prompt_id": 1, "reward": 0}\n' * 1000
    late = group.replace(b"}", b', "late": 1}')
    source = Path("in.jsonl.gz")
    source.write_bytes(gzip.compress(group + late))
    compute(source, output="out.jsonl")
    assert verify(Path("out.jsonl"), source).added == ("advantage",)


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_replaced_first_column_is_verified_like_any_other(suffix: str) -> None:
    rows = [{"advantage": 7.5, "prompt_id": "a", "reward": reward} for reward in (0.0, 1.0)]
    source = write(f"first.{suffix}", rows)
    compute(source, output=f"out.{suffix}", replace=True)
    assert verify(Path(f"out.{suffix}"), source, ["advantage"]).added == ("advantage",)
    text = Path(f"out.{suffix}").read_text()
    assert text.splitlines()[1][-5:-4] == "a"
    Path(f"out.{suffix}").write_text(text[:-6] + "b" + text[-5:])
    with pytest.raises(DataError, match="prompt_id differs"):
        verify(Path(f"out.{suffix}"), source, ["advantage"])


def test_a_directory_is_no_output() -> None:
    with pytest.raises(DataError, match="is a directory; name a file in it"):
        verify(Path(), Path("rewards.jsonl"))


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
def test_every_change_of_the_columns_of_a_table_is_found(suffix: str) -> None:
    rows = pl.read_parquet("rewards.parquet").with_columns(advantage=0.5)
    length = pl.col("length")
    for changed, says in (
        (rows.with_columns(length + (pl.col("sample") == 6)), "row 7: length differs"),
        (rows.with_columns(length.cast(pl.Float64)), "length is Float64|row 1: length differs"),
        (rows.with_columns(more=1), "the column more is new|header: more differs"),
        (pl.concat([rows[1:2], rows[:1], rows[2:]]), "row 1: sample differs"),
        (rows[:-1], "45 rows|row 46: a record that the other file does not have"),
        (rows.drop("length"), "the column length is gone|header: length differs"),
    ):
        out = write(f"out.{suffix}", changed.to_dicts())
        with pytest.raises(DataError, match=says):
            verify(out, Path(f"rewards.{suffix}"), ["advantage"])


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
@pytest.mark.parametrize(
    ("new", "columns", "says"),
    [
        ("a,x,b,y\n5,1,6,3\n5,1,6,4\n", "a b", "2: y differs"),
        ("a,x,b,y\n5,1,6,3\n5,1,6,3\n", "a", "1: b differs"),
        ("a,x,b,y,p,q\n1,2,2,3,1,2\n1,2,2,3,1,2\n", "p q", "1: x differs"),
    ],
)
def test_of_several_columns_the_one_that_differs_is_named(new: str, columns: str, says: str, suffix: str) -> None:
    output, source = in_both(new, suffix)
    with pytest.raises(DataError, match=says):
        verify(output, source, columns.split())


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_several_columns_are_named_in_any_order(suffix: str) -> None:
    output, source = in_both("a,x,b,y,p,q\n5,1,6,3,1,2\n5,1,6,3,1,2\n", suffix)
    assert verify(output, source, ["q", "b", "a", "p"]).added == ("q", "b", "a", "p")


def in_both(new: str, suffix: str) -> tuple[Path, Path]:
    """An output and its input."""
    Path("new.csv").write_text(new)
    Path("old.csv").write_text("a,x,b,y\n1,1,2,3\n1,1,2,3\n")
    for name in ("new", "old"):
        write(f"{name}.jsonl", rows_of(f"{name}.csv"))
    return Path(f"new.{suffix}"), Path(f"old.{suffix}")


def test_two_formats_are_not_compared() -> None:
    with pytest.raises(UsageError, match="verify compares files of one format"):
        verify(Path("rewards.jsonl"), Path("rewards.parquet"))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"length": 13', '"length": 14', r"out\.jsonl:1: length differs from"),
        ('"sample": 0, ', "", r"out\.jsonl:1: sample differs"),
        ('"sample": 0, ', '"sample": 0,  ', r"out\.jsonl:1: the text around the values differs"),
        ('{"prompt_id"', "{prompt_id", r"out\.jsonl:1: the line differs|not JSON"),
        (',"advantage"', ',"gain"', r"out\.jsonl:1: no advantage in this line$"),
    ],
)
def test_the_first_field_that_differs_is_named(old: str, new: str, says: str) -> None:
    source, out = computed("jsonl")
    out.write_text(out.read_text().replace(old, new, 1))
    with pytest.raises(DataError, match=says):
        verify(out, source, ["advantage"])


TEXTS = {
    "csv": "prompt_id,text,reward\na,1st,1\na,2nd,0\na,3rd,1\n",
    "tsv": "prompt_id\ttext\treward\na\t1st\t1\na\t2nd\t0\na\t3rd\t1\n",
    "jsonl": """\
{"prompt_id":"a","text":"1st","reward":1}
{"prompt_id":"a","text":"2nd","reward":0}
{"prompt_id":"a","text":"3rd","reward":1}
""",
    "json": """[
{"prompt_id":"a","text":"1st","reward":1},
{"prompt_id":"a","text":"2nd","reward":0},
{"prompt_id":"a","text":"3rd","reward":1}
]
""",
}
END_OF_ROW = r"(?<=[^\[\]\n])(?=\}?,?\n)"
CHANGES = {
    "a value": ("2nd", "2ND"),
    "quotes": ("2nd", '"2nd"'),
    "white space": ("2nd", "2nd "),
    "line ends": ("\n", "\r\n"),
    "a blank line more": ("\n(.*2nd)", r"\n\n\1"),
    "a byte order mark": (r"\A", "\ufeff"),
    "no last line end": (r"\n\Z", ""),
    "cut short": (r"3rd(.|\n)*", ""),
    "a row less": (".*2nd.*\n", ""),
    "a row twice": ("(.*2nd.*\n)", r"\1\1"),
    "two rows swapped": ("(.*1st.*\n)(.*2nd.*\n)", r"\2\1"),
    "a cell more": (r"(2nd.*\d)", r"\1MORE"),
    "a column more": (END_OF_ROW, "MORE"),
}


@pytest.mark.parametrize("suffix", TEXTS)
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_a_text_is_found(change: str, suffix: str) -> None:
    source = Path(f"in.{suffix}")
    out = Path(f"out.{suffix}")
    source.write_text(TEXTS[suffix])
    compute(source, output=str(out))
    assert verify(out, source, ["advantage"]).by == "bytes"
    whole = out.read_text()
    changed = re.sub(*CHANGES[change], whole)
    assert changed != whole
    cell = {"csv": ",5", "tsv": "\t5"}.get(suffix, ',"more":5')
    out.write_text(changed.replace("MORE", cell))
    with pytest.raises(DataError, match=rf"{suffix}( row | header|:)\d*: "):
        verify(out, source, ["advantage"])


def test_a_column_that_cannot_be_read_is_not_verified() -> None:
    source, out = computed("parquet")
    place = pq.read_schema(out).names.index("advantage")
    chunk = pq.read_metadata(out).row_group(0).column(place)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    size = chunk.total_compressed_size
    data = bytearray(out.read_bytes())
    data[start : start + size] = bytes(size)
    out.write_bytes(data)
    with pytest.raises(DataError, match="advantage cannot be read"):
        verify(out, source)


def test_a_replaced_column_of_another_type_has_to_be_named() -> None:
    source = Path("in.parquet")
    out = Path("out.parquet")
    nested = [{"a": 1, "b": 2}] * 4
    pl.DataFrame({"prompt_id": [1, 1, 2, 2], "reward": [0, 1, 0, 1], "advantage": nested}).write_parquet(source)
    compute(source, output=str(out), replace=True)
    with pytest.raises(DataError, match="advantage is Float64, and Struct"):
        verify(out, source)
    assert verify(out, source, ["advantage"]).by == "bytes"


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize("longer", ["output", "input"])
def test_a_record_more_at_the_end_of_either_file_is_found(suffix: str, longer: str) -> None:
    source, out = computed(suffix)
    last = {"output": out, "input": source}[longer]
    last.write_bytes(last.read_bytes() + last.read_bytes().splitlines(keepends=True)[-1])
    with pytest.raises(DataError, match="that the other file does not have"):
        verify(out, source)
