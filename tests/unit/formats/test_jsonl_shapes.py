"""Every shape of the benchmarks is read by polars alone, and woven byte by byte."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path

import polars as pl
import pytest

from benchmarks.shapes_jsonl import SHAPES, Shape
from grpo_cli.errors import DataError
from grpo_cli.files.compression import unpacked
from grpo_cli.files.inputs import Input
from grpo_cli.formats import registry
from grpo_cli.formats.blocks import blocks
from grpo_cli.formats.jsonl.reading import Reader, ReadPiece
from grpo_cli.read.known_names import STEP_LIKE
from grpo_cli.values.cells import Field
from tests.support.weaving import in_memory, inserting

LINES = replace(registry.lines(), small=0)  # a few rows go the way of many
ROWS = 300


@pytest.mark.parametrize("name", SHAPES)
def test_no_block_of_a_benchmark_is_read_exactly(name: str, caplog: pytest.LogCaptureFixture) -> None:
    lines = replace(LINES, block_size=20_000)
    shape: Shape = SHAPES[name]
    path = Path(f"{name}{shape.suffix}")
    shape.write(path, ROWS)
    source = Input.at(path)
    caplog.set_level(logging.DEBUG, "grpo_cli")
    watched = {*STEP_LIKE, "advantage"} - set(LINES.columns(source))
    found = lines.scan(source, [Field(shape.key, "key"), Field(shape.reward, "number")], watched)
    frame = found.frame
    assert not caplog.messages
    assert not found.late_names
    rows = [json.loads(line) for line in shape.lines(ROWS)]
    for field in (shape.key, shape.reward):
        assert frame[field].to_list() == [reduce(getitem, field.split("."), row) for row in rows]
    sink = io.BytesIO()
    lines.weave(source, found.index, sink, inserting({"advantage": [0.5] * ROWS}))
    with unpacked(source) as plain:
        close = f"}}{shape.newline}".encode()
        wanted = [line.removesuffix(close) + b',"advantage":0.5' + close for line in plain]
    assert sink.getvalue() == b"".join(wanted)


PLAIN = '{"k":"p","reward":0.5,"a":{"b":2}}\n'
FIELDS = [Field("reward", "number"), Field("k", "key"), Field("a.b", "number")]


def scanned(text: str) -> pl.DataFrame:
    return LINES.scan(in_memory(text.encode("utf-8", "surrogateescape")), FIELDS).frame


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"k":"p","reward":NaN,"a":{"b":2}}', "1 of 1 blocks took the exact reader, the first because: error parsing"),
        ('{"k":1,"reward":1,"a":{"b":2}}', "unexpected value while building Series of type String"),
        ('{"k":"p","reward":1,"a.b":2}', "got non-null value for NULL-typed column"),
        ('{"k":"p","reward":1,"a.b":null}', "a watched name is null, or written with escapes"),
        ('{"k":"\\ud800","reward":1,"a":{"b":2}}', "k has the character NUL or half a surrogate pair"),
    ],
)
def test_what_was_read_exactly_is_said_with_its_reason(
    line: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "grpo_cli")
    scanned(PLAIN * 20 + line + "\n" + PLAIN)
    assert len(caplog.messages) == 1
    assert reason in caplog.messages[0]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('{"k":"p","reward":1,"reward":1,"a":{"b":2}}', "reward"),
        ('{"k":"p","k":"q","reward":1,"a":{"b":2}}', "k"),
        ('{"k":"p","reward":1,"a":{"b":2},"a":{"b":3}}', "a"),
        ('{"k":"p","reward":1,"a":{"b":2,"b":3}}', "b"),
        ('{"k":"p","reward":1,"a.b":2,"a.b":3}', "a.b"),
        ('{"k":"p","rew\\u0061rd":1,"reward":1,"a":{"b":2}}', "reward"),
    ],
)
@pytest.mark.parametrize("at", [0, 1000])
def test_a_field_that_is_named_twice_is_an_error_with_its_line(line: str, name: str, at: int) -> None:
    with pytest.raises(DataError, match=f"^in:{at + 1}: {name} is named twice in one object"):
        scanned(PLAIN * at + line + "\n" + PLAIN * 3)


def test_unread_fields_may_be_named_twice() -> None:
    assert scanned('{"k":"p","x":1,"x":{"y":1,"y":2},"reward":1,"a":{"b":2,"c":1,"c":2}}\n')["reward"].to_list() == [1]


def test_of_a_rare_double_that_no_sample_sees_the_first_counts_for_both_readers() -> None:
    double = '{"k":"p","reward":1,"reward":2,"a":{"b":2}}\n'
    assert scanned(PLAIN * 20 + double)["reward"].to_list() == [0.5] * 20 + [1.0]


def test_fields_inside_of_each_other_are_read_exactly(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "grpo_cli")
    source = in_memory(b'{"a":{"b":{"c":1}},"\xc3\xa9":2}\n')
    fields = [Field("a", "key"), Field("a.b.c", "number"), Field("a.b", "key"), Field("é", "number")]
    assert LINES.scan(source, fields).frame.row(0) == ('{"b":{"c":1}}', 1.0, '{"c":1}', 2.0)
    text = in_memory(b'{"a":"x"}\n{"a":{"b":{"c":1}}}\n')
    assert LINES.scan(text, [Field("a", "key"), Field("a.b.c", "number")]).frame["a.b.c"].to_list() == [None, 1.0]
    assert len(caplog.messages) == 2


def test_names_that_are_elsewhere_in_the_lines_are_no_reason_to_read_exactly(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "grpo_cli")
    row = {"k": "p", "reward": 0.5, "x": {"step": 3, "a.b": 1}, "t": '"step":null', "advantage_of": None}
    source = in_memory(f"{json.dumps(row)}\n".encode() * 2000)
    assert not LINES.scan(source, FIELDS[:2], ["step", "advantage"]).late_names
    assert not caplog.messages


def test_a_step_that_begins_late_costs_no_more_than_the_block_where_it_begins() -> None:
    source = in_memory((PLAIN * 500 + PLAIN.replace("{", '{"step":1,', 1) * 500).encode())
    reader = Reader(tuple(FIELDS), frozenset({"step"}))
    exact = list[ReadPiece]()
    height = 0
    for block in blocks(source, 1000):
        rows, pieces = reader.read(block, str)
        height += rows.height
        exact += [piece for piece in pieces if piece.why]
        reader = reader.without(frozenset().union(*(piece.late for piece in pieces)))
    assert [set(piece.late) for piece in exact] == [{"step"}]
    assert height == 1000
    scan = replace(LINES, block_size=1000).scan(source, FIELDS, ["step"])
    assert set(scan.late_names) == {"step"}
    assert scan.frame.height == 1000
