"""The fast reading of JSON lines says what the exact one says, value by value and error by error."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli import parallel
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files.atomic import replacing
from grpo_cli.files.compression import packing
from grpo_cli.files.inputs import Input, spool
from grpo_cli.formats import blocks, json_text, slices
from grpo_cli.formats.interface import Field, Weaving
from grpo_cli.formats.jsonl import lines, members, reading, weaving
from grpo_cli.formats.registry import FORMATS
from grpo_cli.read import build_table
from grpo_cli.read.tables import Binding, FileTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

LINES = FORMATS["jsonl"]
FIELDS = (
    Field("reward", "number"),
    Field("k", "key"),
    Field("a.b", "number"),
    Field("l", "numbers"),
    Field("s", "number"),
)
WATCHED = ("advantage", "step")


def outcome(data: bytes, fields: Sequence[Field] = FIELDS, watched: Sequence[str] = WATCHED) -> Any:
    """Everything that a scan tells: types, values to the last bit, late names, or the error."""
    source = spool(io.BytesIO(data), "in")
    try:
        frame, late = LINES.scan_watching(source, fields, watched)
    except DataError as error:
        return str(error), error.hint
    finally:
        os.close(int(source.fd or 0))  # many examples are many files
    return [(one.name, one.dtype, list(map(repr, one.to_list()))) for one in frame], late


def exactly(data: bytes, fields: Sequence[Field] = FIELDS, watched: Sequence[str] = WATCHED) -> Any:
    with mock.patch.object(reading.Reader, "_tried", return_value="a test"):
        return outcome(data, fields, watched)


def in_small_blocks(data: bytes, fields: Sequence[Field] = FIELDS) -> Any:
    with mock.patch.object(blocks, "SIZE", 64), mock.patch.object(reading, "PIECE", 32):
        return outcome(data, fields)


# --- lines of every kind -------------------------------------------------------------------------------

numbers = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from([
        "1", "1.0", "-0", "-0.0", "1e400", "-1E400", "1e-400", "NaN", "Infinity", "-Infinity", "9007199254740993",
        "9223372036854775808", "123456789012345678901234567890", "1e22", "0.1e1", "18446744073709551616", "01", "1.", "1_0",
        "340282366920938463463374607431768211456", "0.30000000000000004", "2.2250738585072011e-308", "1e23",
        "4503599627370497.5", "9007199254740993.0", "8.5e-324",
    ]),
)  # fmt: skip
strings = st.one_of(
    st.text(max_size=4).map(json.dumps),
    st.text(max_size=4).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from([
        '""', '"1"', '"1.5"', '" 2 "', '"true"', '"nan"', '"inf"', '"good"', r'"\ud800"', r'"a\ud800"', r'"\udc00"', r'"\ud83d\ude00"', r'"\u0000"',
        r'"\u0072eward"', r'"{\"reward\": 1}"', r'"reward\""', '"tab\tbed"', r'"\x"', '"}"', '"reward"', '"k"', r'"\\u006b"',
        r'"\\"', '"\\\\\\""', '"\x7f"', '"\u2028"',
    ]),
)  # fmt: skip
scalars = numbers | strings | st.sampled_from(["null", "true", "false", "nul", ""])
KEYS = ['"reward"', '"k"', '"a"', '"b"', '"a.b"', '"l"', '"s"', '"x"', '"advantage"', '"step"', '""', r'"rew\u0061rd"', r'"\u006b"', r'"a\u002eb"',
        r'"st\u0065p"', '"r\\u00e9"', '"\u00e9"']  # fmt: skip
blanks = st.sampled_from(["", "", "", "", " ", "\t", "\r", "  "])


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.tuples(st.sampled_from(KEYS), blanks, blanks, values).map(lambda m: f"{m[0]}{m[1]}:{m[2]}{m[3]}")
    return st.tuples(st.lists(member, max_size=5), blanks).map(
        lambda o: "{" + o[1] + f",{o[1]}".join(o[0]) + o[1] + "}"
    )


def lists(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(values, max_size=3).map(lambda found: "[" + ",".join(found) + "]")


values = st.recursive(scalars, lambda inner: lists(inner) | objects(inner), max_leaves=4)
plain_rows = st.fixed_dictionaries(
    {
        "reward": st.floats(-1, 1) | st.integers(0, 1) | st.just(None),
        "k": st.sampled_from(["p1", "p2", "\u00e9"]),
        "a": st.fixed_dictionaries({"b": st.integers(0, 3)}),
        "l": st.lists(st.floats(0, 1), max_size=2),
    },
    optional={"s": st.sampled_from(["1", "0.5"]), "x": st.fixed_dictionaries({"reward": st.integers(0, 9)})},
).map(json.dumps)
nasty = st.sampled_from(
    [
        "",
        " ",
        "\x0b",
        "\x0c{}",
        "[1]",
        "5",
        "{",
        "}",
        "{}{}",
        '{"reward":1}\r{"k":2}',
        '{"k":"\udce9"}',
        "\ufeff{}",
        "{} x",
        "nul",
    ]
)
any_line = st.one_of(plain_rows, plain_rows, objects(values), nasty)


def file_of(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    def joined(parts: tuple[list[str], str, bool, bool]) -> bytes:
        found, ends, last, mark = parts
        text = ends.join(found) + (ends if last else "")
        return (b"\xef\xbb\xbf" if mark else b"") + text.encode("utf-8", "surrogateescape")

    return st.tuples(
        st.lists(strategy, min_size=1, max_size=8), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans()
    ).map(joined)


@given(file_of(any_line))
def test_both_readers_agree_on_nasty_lines(data: bytes) -> None:
    assert outcome(data) == exactly(data)


@given(file_of(plain_rows | objects(scalars)))
def test_both_readers_agree_on_nearly_plain_lines_in_blocks(data: bytes) -> None:
    assert in_small_blocks(data) == exactly(data)


@given(
    file_of(objects(st.sampled_from(["1", "2.5", "3"]))),
    st.sampled_from(["reward", "k", "a.b", "a"]),
    st.sampled_from(["number", "key"]),
)
def test_repeated_and_escaped_names_are_noticed(data: bytes, name: str, kind: Any) -> None:
    fields = [Field(name, kind)]
    assert outcome(data, fields) == exactly(data, fields)


@given(file_of(objects(objects(objects(st.sampled_from(["1", "null", '"x"', "true"]))))))
def test_nested_paths_agree(data: bytes) -> None:
    fields = [Field("a.b", "key"), Field("a.b.k", "key"), Field("k.k", "number")]
    assert outcome(data, fields) == exactly(data, fields)


@given(st.lists(numbers, min_size=1, max_size=20))
def test_rewards_are_the_floats_of_python(texts: list[str]) -> None:
    data = "".join(f'{{"reward":{text}}}\n' for text in texts).encode()
    fields = [Field("reward", "number")]
    assert outcome(data, fields) == exactly(data, fields)


@pytest.mark.parametrize("size", [3, 200])
def test_plain_lines_are_read_fast(size: int) -> None:
    data = b'{"k":"p","reward":0.5,"x":{"reward":1},"a":{"b":2},"l":[1,2],"s":null}\n\n' * size
    with mock.patch.object(reading.Reader, "exact", side_effect=AssertionError):
        facts, late = outcome(data)
    assert (facts[0][2][0], len(facts[0][2]), late) == ("0.5", size, frozenset())


def test_an_odd_line_costs_the_piece_around_it() -> None:
    plain = b'{"k":"p","reward":0.5,"a":{"b":2},"l":[1,2],"s":null}\n'
    data = plain * 20_000 + b'{"k":"p","reward":NaN,"a":{"b":1},"l":[],"s":"7"}\n' + plain * 20_000
    seen: list[int] = []
    exact: Callable[..., Any] = reading.Reader.exact

    def counting(self: Any, piece: bytes, *rest: Any) -> Any:
        seen.append(len(piece))
        return exact(self, piece, *rest)

    with mock.patch.object(reading.Reader, "exact", counting):
        facts, _ = outcome(data, [Field("reward", "number"), Field("k", "key")])
    assert facts[0][2][20_000] == "nan"
    assert len(seen) == 1
    assert seen[0] <= reading.PIECE


@pytest.mark.parametrize("line", [b'{"advantage":1}', b'{"adv\\u0061ntage":null}', b'{"x":1,"advantage" : null}'])
def test_a_late_name_is_found_in_any_line(line: bytes) -> None:
    plain = b'{"reward":1,"x":{"advantage":2},"y":"advantage"}\n'
    source = spool(io.BytesIO(plain * 3000 + line + b"\n" + plain * 3000), "in")
    frame, late = LINES.scan_watching(source, [Field("reward", "number")], WATCHED)
    assert late == {"advantage"}
    assert frame.height == 6001


def test_a_watched_name_is_found_while_another_block_has_the_same_doubt() -> None:
    looks = reading.Reader._is_there

    def as_another_thread_does(self: reading.Reader, data: bytes, watched: set[tuple[str, ...]]) -> bool:
        self.common.update(watched)
        return looks(self, data, watched)

    with mock.patch.object(reading.Reader, "_is_there", as_another_thread_does):
        assert outcome(b'{"reward": 1, "step": 3}\n' * 200, FIELDS[:1])[1] == {"step"}


def test_names_come_from_the_first_lines_and_from_all_over_the_file() -> None:
    rows = [b'{"a":1}\n'] * 5000 + [b'{"a":1,"late":2}\n'] * 5000
    assert LINES.columns(spool(io.BytesIO(b"".join(rows)), "in")) == ["a", "late"]


def test_an_error_far_inside_the_file_has_the_number_of_its_line() -> None:
    plain = '{"reward":1}\n\n'
    for bad, facts in (('{"reward":"good"}', "reward is 'good'"), ('{"reward":', "not JSON")):
        data = (plain * 60_000 + bad + "\n" + plain * 60_000).encode()
        with mock.patch.object(blocks, "SIZE", 1 << 18), pytest.raises(DataError, match=f"in:120001: {facts}"):
            LINES.scan(spool(io.BytesIO(data), "in"), [Field("reward", "number")])


def test_what_is_no_json_is_shown_before_a_word_that_stands_earlier() -> None:
    data = b'{"reward":"good"}\n' * 100 + b"{oops}\n"
    assert "in:101: not JSON" in outcome(data)[0]
    assert in_small_blocks(data, FIELDS) == outcome(data)


# --- the weave -----------------------------------------------------------------------------------------


def woven(data: bytes, added: pl.DataFrame) -> bytes:
    """The same with what a reading of the file found and without."""
    source = spool(io.BytesIO(data), "in")
    weaving = Weaving(added=added, take=None, replace=False, metadata={})
    try:
        alone, after = io.BytesIO(), io.BytesIO()
        LINES.weave(source, alone, weaving)
        assert source.blocks == []
        with suppress(DataError):  # lines that are no objects are woven too, and not read
            LINES.scan(source, ())
            assert sum(one.size for one in source.blocks) == len(data)
            LINES.weave(source, after, weaving)
            assert after.getvalue() == alone.getvalue()
    finally:
        os.close(int(source.fd or 0))
    return alone.getvalue()


def by_line(data: bytes, added: pl.DataFrame) -> bytes:
    """What the weave by lines makes of it: the specification."""
    spot = members.Spot.of(added.columns, replace=False)
    values = iter(added.rows())
    return b"".join(
        line if lines.is_blank(line) else spot.put(line, list(map(json_text.spell, next(values))))
        for line in io.BytesIO(data)
    )


braced = st.one_of(
    objects(values),
    plain_rows,
    st.sampled_from(["", " ", "{}", "{ }", " {} ", "{}\t", '{"a":{}}', "\x0b", '{"a":"}"} ']),
)


@given(file_of(braced), st.booleans(), st.data())
def test_the_fast_weave_puts_what_the_weave_by_lines_puts(data: bytes, several: bool, draw: st.DataObject) -> None:  # noqa: FBT001
    data += b"{}"
    height = sum(not lines.is_blank(line) for line in io.BytesIO(data))
    floats = draw.draw(st.lists(st.floats() | st.none(), min_size=height, max_size=height))
    more = {"n": range(height), "t": ['\u00e9"'] * height, "b": [None] * height} if several else {}
    added = pl.DataFrame({"advantage": pl.Series(floats, dtype=pl.Float64), **more})
    for size, few in ((48, 0), (1 << 20, 0), (1 << 20, 1000)):
        with mock.patch.object(blocks, "SIZE", size), mock.patch.object(slices, "FEW", few):
            assert woven(data, added) == by_line(data, added)


def is_object(line: str) -> bool:
    with suppress(ValueError):
        return isinstance(json.loads(line), dict)
    return False


@st.composite
def old_members(draw: st.DrawFn) -> str:
    """A row with members of the output in it: as this tool writes them, as others do, or anywhere."""
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


@given(file_of(st.one_of(old_members(), old_members(), st.sampled_from(["", " ", "{}", "{ }"]))), st.data())
def test_rows_that_are_replaced_or_dropped_are_those_of_the_weave_by_lines(data: bytes, draw: st.DataObject) -> None:
    data += b"{}"
    found = [line for line in io.BytesIO(data) if not lines.is_blank(line)]
    take = None
    if draw.draw(st.booleans()):
        take = np.flatnonzero(draw.draw(st.lists(st.booleans(), min_size=len(found), max_size=len(found))))
    names = draw.draw(st.sampled_from([["advantage"], ["step"], ["advantage", "step"]]))
    replace = draw.draw(st.booleans())
    height = len(found) if take is None else len(take)
    added = pl.DataFrame({name: np.arange(height) / 7 for name in names}, schema=dict.fromkeys(names, pl.Float64))
    spot = dataclasses.replace(members.Spot.of(names, replace=replace), plain=None)
    rows = iter(added.rows())

    def put(line: bytes) -> bytes:
        return spot.put(line, list(map(json_text.spell, next(rows))))

    if take is None:
        wanted = b"".join(line if lines.is_blank(line) else put(line) for line in io.BytesIO(data))
    else:
        newline = blocks.ending(next(io.BytesIO(data), b"")) or b"\n"
        kept = [found[at].removeprefix(blocks.BOM) for at in take.tolist()]
        wanted = b"".join(put(line if blocks.ending(line) else line + newline) for line in kept)
        wanted = (blocks.BOM if data.startswith(blocks.BOM) else b"") + wanted
    for size, few in ((48, 0), (1 << 20, 0), (1 << 20, 1000)):
        with mock.patch.object(blocks, "SIZE", size), mock.patch.object(slices, "FEW", few):
            source, sink = spool(io.BytesIO(data), "in"), io.BytesIO()
            LINES.weave(source, sink, Weaving(added=added, take=take, replace=replace, metadata={}))
            os.close(int(source.fd or 0))
        assert sink.getvalue() == wanted


@given(file_of(any_line), file_of(braced), st.integers(1, 8))
def test_a_few_rows_are_read_and_woven_as_many_are(data: bytes, objects_alone: bytes, small: int) -> None:
    objects_alone += b"{}"
    rows = sum(not lines.is_blank(line) for line in io.BytesIO(objects_alone))
    added = pl.DataFrame({"advantage": [at / 7 for at in range(rows)], "t": ['\u00e9"'] * rows})
    many = outcome(data), woven(objects_alone, added)
    with mock.patch.object(reading, "SMALL", small), mock.patch.object(weaving, "SMALL", small):
        assert (outcome(data), woven(objects_alone, added)) == many


def test_members_that_stand_last_are_replaced_without_a_look_at_single_lines() -> None:
    rows = b"".join(b'{"t":"a","r":%d,"advantage":%d.5,"advantage_status":"ok"}\n' % (at, at) for at in range(3000))
    added = pl.DataFrame({"advantage": np.arange(3000) / 7, "advantage_status": ["zero"] * 3000})
    sink = io.BytesIO()
    with mock.patch.object(weaving, "_line_by_line", side_effect=AssertionError):
        weaving_of = Weaving(added=added, take=None, replace=True, metadata={})
        LINES.weave(spool(io.BytesIO(rows), "in"), sink, weaving_of)
    assert [json.loads(line)["advantage"] for line in sink.getvalue().splitlines()] == added["advantage"].to_list()
    assert sink.getvalue().count(b"advantage_status") == 3000


@given(
    st.lists(st.floats() | st.floats(-1e-3, 1e-3) | st.none(), max_size=30), st.sampled_from([pl.Float64, pl.Float32])
)
def test_a_column_is_spelt_as_its_values_are(floats: list[float | None], dtype: Any) -> None:
    series = pl.Series("x", floats, dtype=pl.Float64).cast(dtype)
    assert json_text.spelt(series).to_list() == list(map(json_text.spell, series.to_list()))


def test_the_digits_of_polars_are_those_of_python() -> None:
    rng = np.random.default_rng(0)
    found = np.concatenate(
        [rng.normal(size=50_000) * 10.0 ** rng.integers(-20, 25, 50_000), np.frombuffer(rng.bytes(400_000))]
    )
    series = pl.Series(found)
    assert json_text.spelt(series).to_list() == [repr(x) if math.isfinite(x) else "null" for x in found.tolist()]


@pytest.mark.parametrize(("data", "rows"), [(b"{}\n{}\n", 1), (b"{}\n", 2), (b"\n", 1), (b"no brace\n", 1)])
def test_another_number_of_rows_is_a_changed_input(data: bytes, rows: int) -> None:
    with pytest.raises(InputChanged):
        woven(data, pl.DataFrame({"advantage": [0.5] * rows}))


def test_work_ahead_keeps_the_order_and_gives_errors_in_their_place() -> None:
    assert list(parallel.ahead(lambda n: n * n, range(50))) == [n * n for n in range(50)]
    found = parallel.ahead(lambda n: 6 // (3 - n), range(50))
    assert [next(found) for _ in range(3)] == [2, 3, 6]
    with pytest.raises(ZeroDivisionError):
        next(found)


# --- whole runs ----------------------------------------------------------------------------------------


def rows_of(count: int, late: str = "") -> bytes:
    plain = [f'{{"prompt_id":"p{at // 2}","reward":{at % 2}}}\n' for at in range(count)]
    if late:
        plain[count // 2 + 7] = plain[count // 2 + 7].replace("}", f",{late}}}")
    return "".join(plain).encode()


def test_a_column_of_the_output_in_one_late_line_is_refused() -> None:
    table = FileTable(spool(io.BytesIO(rows_of(5000, '"advantage":null')), "in"), LINES)
    table.refuse(["advantage"])
    with pytest.raises(DataError, match="in already has a column 'advantage'"):
        table.scan([Field("reward", "number")])


def test_a_step_that_only_a_late_line_holds_still_tells_groups_apart() -> None:
    data = rows_of(5000, '"step":1') + b'{"prompt_id":"p2503","reward":1,"step":2}\n'
    table = FileTable(spool(io.BytesIO(data), "in"), LINES)
    with pytest.raises(DataError, match="step"):
        build_table.read([table], Binding(), Plan.of({"estimator.name": "grpo"}))
    assert "step" in table.columns()


# --- the pieces of the fast weave ----------------------------------------------------------------------


@given(
    sizes=st.lists(st.sampled_from([1, 3, 60, 300, 700]), min_size=1, max_size=60),
    long=st.floats(0, 0.1),
    values=st.sampled_from(["few", "many", "texts"]),
    seed=st.integers(0, 9),
)
def test_long_lines_between_short_ones_are_woven_like_any_other(
    sizes: list[int], long: float, values: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = [json.dumps({"t": "x" * size}).encode() for size in sizes * 20]
    for at in np.flatnonzero(rng.random(len(rows)) < long).tolist():
        rows[at] = json.dumps({"t": "y" * 5000}).encode()
    data = b"\n".join(rows)
    numbers = rng.normal(size=len(rows)) if values == "many" else rng.choice([0.1, -0.0, math.nan, 1e-7], len(rows))
    more = {"s": ["z" * (600 if at == 5 else at) for at in range(len(rows))]} if values == "texts" else {}
    added = pl.DataFrame({"advantage": numbers, **more})
    with mock.patch.object(blocks, "SIZE", 3000), mock.patch.object(slices, "FEW", 0):
        assert woven(data, added) == by_line(data, added)


def changed(before: bytes, after: bytes, added: pl.DataFrame) -> bytes:
    """What is woven into a file that is another one, of the same size, than the one that was read."""
    read, source = (spool(io.BytesIO(data), "in") for data in (before, after))
    sink = io.BytesIO()
    try:
        LINES.scan(read, [Field("r", "number")])
        source.blocks[:] = read.blocks
        LINES.weave(source, sink, Weaving(added=added, take=None, replace=False, metadata={}))
    finally:
        for one in (read, source):
            os.close(int(one.fd or 0))
    return sink.getvalue()


ROW = b'{"r":1,"t":"ab"}\n'
ONE_BY_ONE = pl.DataFrame({"advantage": [0.5, 1.5, -0.5]})


@pytest.mark.parametrize(
    "after", [ROW * 2 + b" " * 17, ROW * 2, ROW * 4, ROW + b'{"r":1,"t":"a"}\n{"r":1,"t":"abc"}\n']
)
def test_other_lines_than_those_that_were_read_are_refused(after: bytes) -> None:
    with pytest.raises(InputChanged):
        changed(ROW * 3, after, ONE_BY_ONE)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_packed_lines_are_woven_where_their_reading_found_them(tmp_path: Path, suffix: str) -> None:
    data = b"".join(json.dumps({"r": at % 7, "t": "x" * (at % 90)}).encode() + b"\n" for at in range(3000)) + b"\n{}\n"
    with (tmp_path / f"a.jsonl{suffix}").open("wb") as raw, packing(raw, suffix) as handle:
        handle.write(data)
    source, sink = Input.at(tmp_path / f"a.jsonl{suffix}"), io.BytesIO()
    added = pl.DataFrame({"advantage": np.arange(3001) / 7})
    with mock.patch.object(blocks, "SIZE", 10_000):
        LINES.scan(source, [Field("r", "key")])
    assert len(source.blocks) > 5
    LINES.weave(source, sink, Weaving(added=added, take=None, replace=False, metadata={}))
    assert sink.getvalue() == by_line(data, added)


@pytest.mark.parametrize("take", [None, np.arange(0, 3000, 2)], ids=["all", "some"])
def test_lines_that_nobody_has_read_are_read_once_while_they_are_woven(take: Any, tmp_path: Path) -> None:
    data = b"".join(json.dumps({"r": at % 7, "t": "x" * (at % 90)}).encode() + b"\n" for at in range(3000))
    (tmp_path / "a.jsonl").write_bytes(data)
    opened, found = list[int](), []
    added = pl.DataFrame({"advantage": np.arange(3000 if take is None else len(take)) / 7})
    for known in (True, False):
        source, sink = Input.at(tmp_path / "a.jsonl"), io.BytesIO()
        with mock.patch.object(blocks, "SIZE", 10_000), mock.patch.object(blocks, "_opened_at", opening(opened)):
            if known:
                LINES.scan(source, [Field("r", "key")])
            opened.clear()
            LINES.weave(source, sink, Weaving(added=added, take=take, replace=False, metadata={}))
        found.append(sink.getvalue())
        assert len(opened) == len({*opened}) > 5
        for short in (added[1:], added[:0], pl.concat([added, added[:1]])) if take is None else ():
            with mock.patch.object(blocks, "SIZE", 10_000), pytest.raises(InputChanged):
                LINES.weave(source, io.BytesIO(), Weaving(added=short, take=None, replace=False, metadata={}))
    assert found[0] == found[1]


def opening(opened: list[int]) -> Callable[[Input, int], Any]:
    real = blocks._opened_at

    def at(source: Input, start: int) -> Any:
        opened.append(start)
        return real(source, start)

    return at


def test_a_file_takes_many_pieces_as_it_takes_one(tmp_path: Path) -> None:
    parts = [bytes([at % 251]) * (at % 90) for at in range(5000)]
    with replacing(tmp_path / "a", force=False) as sink:
        sink.write(b"head")
        sink.writelines(memoryview(part) for part in parts)
        sink.write(b"between")
        with mock.patch("os.writev", lambda fd, some: os.write(fd, b"".join(some)[:10])):
            sink.writelines(parts[:1500])
        assert sink.tell() == len(b"head" + b"".join(parts) + b"between" + b"".join(parts[:1500]))
        sink.write(b"tail")
    whole = b"head" + b"".join(parts) + b"between" + b"".join(parts[:1500]) + b"tail"
    assert (tmp_path / "a").read_bytes() == whole
