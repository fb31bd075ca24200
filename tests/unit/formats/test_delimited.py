"""CSV and TSV by blocks are read and woven as they are record by record."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grpo_cli.errors import DataError
from grpo_cli.formats.delimited import format as delimited
from grpo_cli.formats.delimited import positions
from grpo_cli.formats.delimited.format import Csv, Tsv
from grpo_cli.values.cells import Field
from tests.support.command import adv
from tests.support.jobs import compute, rows_of, write
from tests.support.weaving import in_memory, inserting, woven

CSV = Csv("csv")
TSV = Tsv("tsv")

cells = st.sampled_from([
    "a", "b", "", '""', '"q"', '"x,y"', '"x\ty"', '"l\nm"', '"l\r\nm"', '"say ""hi"""', '""""', "1e5", " 1", "7/8", '"2.5"', "é",
])  # fmt: skip
odd_cells = st.sampled_from(
    ['a"b', '"a"b', '"a" "b"', '"', '\ufeff"k"', "\ufeffk", "a\rb", "\x00", '"a\x00"', "1\r", '"a"\r']
)
line_ends = st.sampled_from(["\n", "\r\n"])


@st.composite
def files(draw: st.DrawFn, known: st.SearchStrategy[str]) -> bytes:
    """Three columns; now and then a blank line, a record of another width, no line feed at the end."""
    ends = draw(line_ends)
    text = draw(st.sampled_from(["", "\ufeff"]))
    text += draw(st.sampled_from(["k,r,advantage", '"k",r,advantage', "k,advantage,r", "advantage,k,r"]))
    for _ in range(draw(st.integers(0, 12))):
        width = 3 if draw(st.integers(0, 20)) else draw(st.integers(1, 4))
        record = draw(st.lists(known, min_size=width, max_size=width))
        text += ends + (",".join(record) if draw(st.integers(0, 10)) else "")
    text += ends if draw(st.booleans()) else ""
    return text.encode() if draw(st.integers(0, 5)) else text.encode("latin-1", "ignore")


usual = files(cells)
odd = files(cells | odd_cells)


def outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except DataError as error:
        return str(error)


def both_ways(work: Callable[[Csv], Any], size: int) -> tuple[Any, Any]:
    """What comes out by blocks of a few bytes, and record by record out of one block."""

    def never(*_: object) -> None:
        raise positions.Unsure

    blocks = outcome(lambda: work(replace(CSV, block_size=size)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "positions", never)
        exact = outcome(lambda: work(CSV))
    # Of several mistakes, the one in the first block is reported.
    return (str, str) if isinstance(blocks, str) and isinstance(exact, str) else (blocks, exact)


@given(usual | odd, st.integers(16, 200), st.sampled_from(["key", "number", "numbers"]))
@example(b'k,r,advantage\n"a,"\n', 16, "key")
def test_blocks_are_read_as_records_are(data: bytes, size: int, kind: Any) -> None:
    def scanned(csv: Csv) -> Any:
        frame = csv.scan(in_memory(data), [Field("k", "key"), Field("r", kind)]).frame
        return frame.schema, repr(frame.to_dict(as_series=False))

    blocks, exact = both_ways(scanned, size)
    assert blocks == exact
    blocks, exact = both_ways(lambda csv: csv.read(in_memory(data)).to_dict(as_series=False), size)
    assert blocks == exact


@given(usual | odd, st.integers(16, 200), st.booleans(), st.sampled_from(["all", "some", "shuffled"]), st.randoms())
def test_blocks_are_woven_as_records_are(data: bytes, size: int, replace: bool, which: str, random: Any) -> None:  # noqa: FBT001
    rows = outcome(lambda: CSV.read(in_memory(data)).height)
    if isinstance(rows, str):
        return
    take = None
    if which != "all":
        take = random.choices(range(rows), k=rows) if rows else []
    if take and which == "some":
        take.sort()
    added = pl.DataFrame({
        "advantage": pl.Series(random.choices([None, 0.5, float("nan"), 1e-5, float("-inf")], k=rows), dtype=pl.Float64),
        "status": pl.Series(random.choices([None, "scored", 'a"b', "x,y", "l\nm"], k=rows), dtype=pl.String),
        "n": pl.Series(range(rows), dtype=pl.Int64),
    })  # fmt: skip
    weaving = inserting(added, take=take, replace=replace)
    blocks, exact = both_ways(lambda csv: woven(csv, data, weaving), size)
    assert blocks == exact
    if take is None and rows:
        before = in_memory(data)
        if replace:
            assert CSV.compared(in_memory(blocks), before, added.columns)[1] is None
        changed = bytearray(blocks)
        changed[random.randrange(len(changed))] ^= 1
        after = in_memory(bytes(changed))
        found, exactly = both_ways(lambda csv: csv.compared(after, before, added.columns), size)
        assert found == exactly


@pytest.mark.parametrize("size", [16, 64, 4 << 20])
@pytest.mark.parametrize(
    ("records", "message"),
    [
        ('"a\nb",1\n\n' * 20 + "a,1,2\n", "in row 21: expected 2 cells as in the header, found 3"),
        ("a,1\n" * 30 + '"a,1\nb,2\n', "in row 31: a quoted cell is never closed"),
        ("a,1\n" * 30 + "\na,good\n", "in row 31: r is 'good', expected a number"),
        ("a,1\n" * 10 + 'a"b,1\na,one\n', "in row 12: r is 'one', expected a number"),
    ],
)
def test_a_mistake_is_reported_with_its_row(records: str, message: str, size: int) -> None:
    data = in_memory(f"k,r\n{records}")
    csv = replace(CSV, block_size=size)
    with pytest.raises(DataError, match=message):
        csv.scan(data, [Field("k", "key"), Field("r", "number")])


@pytest.mark.parametrize("of", [CSV, TSV])
@pytest.mark.parametrize("size", [16, 4 << 20])
def test_an_empty_cell_is_null_with_quotes_or_without(of: Csv | Tsv, size: int) -> None:
    text = 'k,r\n"",""\n,1\n"a",\n" ",""\n"""",2\n'.replace(",", of.separator.decode())
    for data in (
        text,
        text + "\n",
        text + f'a"b{of.separator.decode()}""\n',
    ):  # the last one is read record by record
        source = in_memory(data)
        frame = replace(of, block_size=size).scan(source, [Field("k", "key"), Field("r", "number")]).frame
        assert frame["k"][:5].to_list() == [None, None, "a", " ", '"']
        assert frame["r"][:5].to_list() == [None, 1.0, None, None, 2.0]
        assert of.read(source)["r"][:5].to_list() == [None, "1", None, None, "2"]


def test_a_cell_that_is_longer_than_many_blocks_is_read() -> None:
    text = 'a "" ,\n' * 3_000
    data = in_memory(f'k,r\n"{text}",1\nb,2\n')
    found = replace(CSV, block_size=64).scan(data, [Field("k", "key"), Field("r", "number")]).frame
    assert found.rows() == [(text.replace('""', '"'), 1.0), ("b", 2.0)]


def test_only_the_block_with_an_odd_quote_is_read_exactly() -> None:
    plain = b"abcde,5\n" * 2_000
    known = delimited.Delimited._exact_part
    data = in_memory(b"k,r\n" + plain + b'a"b,6\n' + plain)
    with mock.patch.object(delimited.Delimited, "_exact_part", autospec=True, side_effect=known) as exact:
        found = replace(CSV, block_size=4_096).scan(data, [Field("k", "key"), Field("r", "number")]).frame
    assert found.row(2_000) == ('a"b', 6.0)
    assert {*found.rows()} == {("abcde", 5.0), ('a"b', 6.0)}
    assert found.height == 4_001
    exact.assert_called_once()
    _, block, *_ = exact.call_args.args
    text = block.read()
    assert b'a"b' in text
    assert len(text) <= 4_096


def test_what_the_scan_found_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source = in_memory(b"a,b\n" + b"1,x\n" * 500)
    small = Csv("csv", block_size=100)
    index = small.scan(source, [Field("a", "key")]).index
    monkeypatch.setattr(Csv, "scan", lambda *_: pytest.fail("the file is scanned again"))
    sink = io.BytesIO()
    small.weave(source, index, sink, inserting({"c": [7] * 500}))
    assert sink.getvalue() == b"a,b,c\n" + b"1,x,7\n" * 500


def test_tabs_separate_as_commas_do() -> None:
    data = b'k\tr\r\n"a\tb"\t1\r\n"c"""\t2\r\n'
    assert TSV.read(in_memory(data)).rows() == [("a\tb", "1"), ('c"', "2")]
    weaving = inserting({"x": ["0\t5", None]})
    assert woven(TSV, data, weaving) == b'k\tr\tx\r\n"a\tb"\t1\t"0\t5"\r\n"c"""\t2\t\r\n'


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json", "parquet"])
def test_a_column_without_a_name_is_read_and_written(suffix: str) -> None:
    """As the index in a CSV file that pandas wrote."""
    Path("in.csv").write_text(",prompt_id,reward\nx,1,0\ny,1,1\n")
    path = write(f"a.{suffix}", rows_of("in.csv"))
    compute(path, method="dr-grpo", output="o.jsonl")
    rows = rows_of("o.jsonl")
    assert [row[""] for row in rows] == ["x", "y"]
    assert [row["advantage"] for row in rows] == [-0.5, 0.5]
    assert adv(f"inspect {path} --show 1").status == 0
