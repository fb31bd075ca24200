"""JSON lines: what the fast reading does, where names are found, and what is woven."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli import parallel
from grpo_cli.errors import DataError, InputChanged
from grpo_cli.formats import blocks, registry
from grpo_cli.formats.jsonl import lines, reading, weaving
from grpo_cli.read.open_tables import find_inputs, open_tables
from grpo_cli.read.tables import Binding
from grpo_cli.values import json_text, slices
from grpo_cli.values.cells import Field
from tests.support.weaving import in_memory, inserting, woven
from tests.unit.formats.test_json_readers import (
    FIELDS,
    WATCHED,
    any_line,
    file_of,
    in_small_blocks,
    objects,
    outcome,
    plain_rows,
    values,
)  # fmt: skip

LINES = dataclasses.replace(registry.lines(), small=0)  # a few rows go the way of many
SMALL = dataclasses.replace(LINES, block_size=10_000)


def test_an_odd_line_costs_the_piece_around_it() -> None:
    plain = b'{"k":"p","reward":0.5,"a":{"b":2},"l":[1,2],"s":null}\n'
    data = plain * 20_000 + b'{"k":"p","reward":NaN,"a":{"b":1},"l":[],"s":"7"}\n' + plain * 20_000
    with mock.patch.object(reading.Reader, "exact", autospec=True, side_effect=reading.Reader.exact) as exact:
        facts, _ = outcome(data, [Field("reward", "number"), Field("k", "key")])
    assert facts[0][2][20_000] == "nan"
    _, piece, *_ = exact.call_args.args
    assert len(piece) <= reading.PIECE
    exact.assert_called_once()


@pytest.mark.parametrize("line", [b'{"advantage":1}', b'{"adv\\u0061ntage":null}', b'{"x":1,"advantage" : null}'])
def test_a_late_name_is_found_in_any_line(line: bytes) -> None:
    plain = b'{"reward":1,"x":{"advantage":2},"y":"advantage"}\n'
    source = in_memory(plain * 3000 + line + b"\n" + plain * 3000)
    found = LINES.scan(source, [Field("reward", "number")], WATCHED)
    assert found.late_names == {"advantage"}
    assert found.frame.height == 6001


def test_an_error_far_inside_the_file_has_the_number_of_its_line() -> None:
    plain = b'{"reward":1}\n\n' * 60_000
    blocks_of_256_kb = dataclasses.replace(LINES, block_size=1 << 18)
    for bad, said in ((b'{"reward":"good"}\n', "reward is 'good'"), (b'{"reward":\n', "not JSON")):
        with pytest.raises(DataError, match=f"in:120001: {said}"):
            blocks_of_256_kb.scan(in_memory(plain + bad + plain), [Field("reward", "number")])


def test_places_of_several_rows_are_found_in_one_reading() -> None:
    """Blank lines are no rows; the file has several blocks, and the rows come in any order, also twice."""
    data = (b'{"a":12}\n' * 1000 + b"\n \r\n") * 400
    rows = [399_999, 0, 999, 1000, 123_456, 0]
    with mock.patch("grpo_cli.formats.jsonl.lines.raw_lines", wraps=blocks.raw_lines) as read:
        found = LINES.places(in_memory(data, "x.jsonl"), rows)
    assert found == ["x.jsonl:400798", "x.jsonl:1", "x.jsonl:1000", "x.jsonl:1003", "x.jsonl:123703", "x.jsonl:1"]
    read.assert_called_once()


def test_what_is_no_json_is_shown_before_a_word_that_stands_earlier() -> None:
    data = b'{"reward":"good"}\n' * 100 + b"{oops}\n"
    assert "in:101: not JSON" in outcome(data)[0]
    assert in_small_blocks(data, FIELDS) == outcome(data)


# --- the weave -----------------------------------------------------------------------------------------


def by_line(data: bytes, added: pl.DataFrame, put: Callable[[bytes, list[str]], bytes] | None = None) -> bytes:
    """What the weave by lines makes of it: the specification."""
    names = [json.dumps(name) for name in added.columns]
    rows = iter(added.rows())
    out = b""
    for line in io.BytesIO(data):
        if lines.is_blank(line):
            out += line
            continue
        texts = [json_text.cell_text(cell) for cell in next(rows)]
        out += put(line, texts) if put else weaving.inserted(line, names, texts)
    return out


def at_once(data: bytes, added: pl.DataFrame) -> bytes:
    """The same of a whole block, whose texts are joined in columns unless its lines are long."""
    braces, empty = lines.last_braces(data)
    return b"".join(slices.filled(data, [(braces, braces)], [weaving._cells(added, empty)], few=0))


EMPTY = st.sampled_from(["", " ", "{}", "{ }", " {} ", "{}\t", '{"a":{}}', "\x0b", '{"a":"}"} '])
braced = objects(values) | plain_rows | EMPTY


def rows_in(data: bytes) -> list[bytes]:
    return [line for line in io.BytesIO(data.removeprefix(blocks.BOM)) if not lines.is_blank(line)]


@given(file_of(braced), st.booleans(), st.data())
def test_the_fast_weave_puts_what_the_weave_by_lines_puts(data: bytes, several: bool, draw: st.DataObject) -> None:  # noqa: FBT001
    data += b"{}"
    height = len(rows_in(data))
    floats = draw.draw(st.lists(st.floats() | st.none(), min_size=height, max_size=height))
    added = pl.DataFrame({"advantage": floats}, schema={"advantage": pl.Float64})
    if several:
        added = added.with_columns(n=pl.int_range(height), t=pl.lit('\u00e9"'), b=None)
    wanted = by_line(data, added)
    assert woven(LINES, data, inserting(added)) == wanted
    assert woven(dataclasses.replace(LINES, block_size=48), data, inserting(added)) == wanted
    assert at_once(data, added) == wanted


def is_object(line: str) -> bool:
    with suppress(ValueError):
        return isinstance(json.loads(line), dict)
    return False


@st.composite
def old_fields(draw: st.DrawFn) -> str:
    """A row with fields of the output in it: as this tool writes them, as others do, or anywhere."""
    body = draw(st.one_of(plain_rows, objects(values).filter(is_object), st.just('{"t":"\\"advantage\\":1"}')))
    old = draw(st.sampled_from(["0.5", "-1e-07", "null", '"ok"', '"a,b"', "[1]", "true", "NaN"]))
    more = draw(
        st.sampled_from([
            "", f',"advantage":{old}', f',"advantage":{old},"step":1', f',"step":1,"advantage":{old}',
            f', "advantage": {old}', f',"advantage":{old} ', f',"adv\\u0061ntage":{old}',
            f',"advantage":1,"advantage":{old}', f',"advantage":{old},"z":{{"advantage":1}}', f',"z":"}}","advantage":{old}',
        ])
    )  # fmt: skip
    return body[: body.rindex("}")] + more.removeprefix("," if body.strip(" \t\r{}") == "" else "") + "}"


@given(
    file_of(old_fields() | st.sampled_from(["", " ", "{}", "{ }"])),
    st.sampled_from([["advantage"], ["step"], ["advantage", "step"]]),
    st.booleans(),
    st.none() | st.lists(st.integers(0, 7), unique=True, max_size=8).map(sorted),
)
def test_rows_that_are_replaced_or_dropped_are_those_of_the_weave_by_lines(
    data: bytes,
    names: list[str],
    replace: bool,  # noqa: FBT001 - drawn
    take: list[int] | None,
) -> None:
    data += b"{}" if data[-1:] in {b"", b"\n"} else b"\n{}"  # on a line of its own
    found = rows_in(data)
    kept = data
    if take is not None:
        take = [row for row in take if row < len(found)]
        newline = b"\r\n" if data.partition(b"\n")[0].endswith(b"\r") else b"\n"
        kept = blocks.BOM if data.startswith(blocks.BOM) else b""
        for row in take:
            kept += found[row] if found[row].endswith(b"\n") else found[row] + newline
    numbers = np.arange(len(found) if take is None else len(take)) / 7
    added = pl.DataFrame(dict.fromkeys(names, numbers))
    spot = weaving.Spot.of(names)._replace(plain=None)
    weave = inserting(added, take=take, replace=replace)
    small = dataclasses.replace(LINES, block_size=48)
    try:
        wanted = by_line(kept, added, spot.put if replace else None)
    except DataError:
        for known in (LINES, small):
            with pytest.raises(DataError, match="named twice in one object"):
                woven(known, data, weave)
        return
    assert woven(LINES, data, weave) == wanted
    assert woven(small, data, weave) == wanted


@given(file_of(any_line), file_of(braced), st.integers(1, 8))
def test_few_rows_are_read_and_woven_like_many(data: bytes, objects_alone: bytes, small: int) -> None:
    objects_alone += b"{}"
    rows = len(rows_in(objects_alone))
    weave = inserting({"advantage": np.arange(rows) / 7, "t": ['\u00e9"'] * rows})
    few = dataclasses.replace(LINES, small=small)
    assert outcome(data, lines=few) == outcome(data)
    assert woven(few, objects_alone, weave) == woven(LINES, objects_alone, weave)


def test_fields_at_the_end_are_replaced_without_looking_at_single_lines() -> None:
    rows = b'{"t":"a","r":1,"advantage":7.5,"advantage_status":"ok"}\n' * 3000
    added = inserting({"advantage": [0.5] * 3000, "advantage_status": ["zero"] * 3000}, replace=True)
    with mock.patch.object(weaving, "_line_by_line", side_effect=AssertionError):
        out = woven(LINES, rows, added)
    assert out == b'{"t":"a","r":1,"advantage":0.5,"advantage_status":"zero"}\n' * 3000


@pytest.mark.parametrize("dtype", [pl.Float64, pl.Float32, pl.Float16])
def test_numbers_around_the_change_of_notation_have_one_spelling(dtype: Any) -> None:
    edges = pl.Series([1e-4, 1e-5, 1e-7, 1e16, 3e7, -1e-4, -1e16]).cast(dtype).to_numpy()
    below = np.nextafter(edges, edges.dtype.type(0))
    above = np.nextafter(edges, edges.dtype.type(1))
    series = pl.Series(np.concatenate([edges, below, above]))
    assert series.dtype == dtype
    texts = json_text.column_texts(series, small=0).to_list()
    assert texts == [json_text.cell_text(number) for number in series]


def test_the_digits_of_polars_are_those_of_python() -> None:
    rng = np.random.default_rng(0)
    usual = rng.normal(size=50_000) * 10.0 ** rng.integers(-20, 25, 50_000)
    any_bits = np.frombuffer(rng.bytes(400_000))
    series = pl.Series([*usual.tolist(), None, *any_bits.tolist()])
    wanted = [repr(x) if x is not None and math.isfinite(x) else "null" for x in series]
    assert json_text.column_texts(series).to_list() == wanted


@pytest.mark.parametrize(("data", "rows"), [(b"{}\n{}\n", 1), (b"{}\n", 2), (b"\n", 1), (b"no brace\n", 1)])
def test_another_number_of_rows_is_a_changed_input(data: bytes, rows: int) -> None:
    with pytest.raises(InputChanged):
        woven(LINES, data, inserting({"advantage": [0.5] * rows}))


def test_work_ahead_keeps_the_order_and_gives_errors_in_their_place() -> None:
    assert [*parallel.ahead(float, range(50))] == [*range(50)]
    found = parallel.ahead(lambda n: 6 // (3 - n), range(50))
    assert [next(found) for _ in range(3)] == [2, 3, 6]
    with pytest.raises(ZeroDivisionError):
        next(found)


# --- whole runs ----------------------------------------------------------------------------------------


# --- the pieces of the fast weave ----------------------------------------------------------------------


ROW = b'{"r":1,"t":"ab"}\n'


@pytest.mark.parametrize(
    "after", [ROW * 2 + b" " * 17, ROW * 2, ROW * 4, ROW + b'{"r":1,"t":"a"}\n{"r":1,"t":"abc"}\n']
)
def test_other_lines_than_those_that_were_read_are_refused(after: bytes) -> None:
    index = LINES.scan(in_memory(ROW * 3), [Field("r", "number")]).index
    with pytest.raises(InputChanged):
        LINES.weave(in_memory(after), index, io.BytesIO(), inserting({"advantage": [0.5, 1.5, -0.5]}))


NUMBERED = b"".join(json.dumps({"r": at % 7, "t": "x" * (at % 90)}).encode() + b"\n" for at in range(3000))


@pytest.mark.parametrize("take", [None, np.arange(0, 3000, 2)], ids=["all", "some"])
@pytest.mark.parametrize("known", [True, False])
def test_lines_that_nobody_has_read_are_read_once_while_they_are_woven(take: Any, *, known: bool) -> None:
    source = in_memory(NUMBERED)
    sink = io.BytesIO()
    added = pl.DataFrame({"advantage": np.arange(3000 if take is None else len(take)) / 7})
    index = SMALL.scan(source, [Field("r", "key")]).index if known else None
    with mock.patch.object(blocks, "_opened_at", wraps=blocks._opened_at) as opened:
        SMALL.weave(source, index, sink, inserting(added, take=take))
    starts = [call.args[1] for call in opened.call_args_list]
    assert len(starts) == len({*starts}) > 5
    rows = NUMBERED if take is None else b"".join(NUMBERED.splitlines(keepends=True)[::2])
    assert sink.getvalue() == by_line(rows, added)
    for other in (added[1:], added[:0], pl.concat([added, added[:1]])) if take is None else ():
        with pytest.raises(InputChanged):
            SMALL.weave(source, index, io.BytesIO(), inserting(other))


def test_a_column_that_is_in_no_line_is_refused_without_parsing_the_lines() -> None:
    """3 million lines took 20 s to be refused."""
    path = Path("a.jsonl")
    path.write_text('{"prompt_id": 1, "reward": 1.0, "response": "a scoer of text"}\n' * 20_000)
    (table,) = open_tables(find_inputs([str(path)])[0], Binding())
    table.columns()
    with (
        mock.patch.object(lines, "parsed", wraps=lines.parsed) as read,
        pytest.raises(DataError, match="no column 'scoer'"),
    ):
        table.scan([Field("scoer", "number")])
    assert read.call_count < 2_000, "the head of the file, for the names in the message"
