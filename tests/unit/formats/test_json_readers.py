"""The fast reading of JSON lines says what the exact one says, value by value and error by error."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_cli.errors import DataError
from grpo_cli.formats import registry
from grpo_cli.formats.jsonl import reading
from grpo_cli.formats.jsonl.format import Jsonl
from grpo_cli.values.cells import Field, Kind
from tests.support.weaving import in_memory

LINES = replace(registry.lines(), small=0)  # Python alone would read a few rows, which compares it with itself
KINDS: dict[str, Kind] = {"reward": "number", "k": "key", "a.b": "number", "l": "numbers", "s": "number"}
FIELDS = tuple(Field(name, kind) for name, kind in KINDS.items())
WATCHED = ("advantage", "step")


def outcome(
    data: bytes, fields: Sequence[Field] = FIELDS, watched: Sequence[str] = WATCHED, lines: Jsonl = LINES
) -> Any:
    """Everything that a scan returns: types, values to the last bit, late names, or the error."""
    source = in_memory(data)
    try:
        found = lines.scan(source, fields, watched)
    except DataError as error:
        return str(error), error.hint
    finally:
        os.close(int(source.fd or 0))  # many examples are many files
    return [(column.name, column.dtype, list(map(repr, column.to_list()))) for column in found.frame], found.late_names


def exactly(data: bytes, fields: Sequence[Field] = FIELDS, watched: Sequence[str] = WATCHED) -> Any:
    with mock.patch.object(reading.Reader, "_tried", return_value="a test"):
        return outcome(data, fields, watched)


def in_small_blocks(data: bytes, fields: Sequence[Field] = FIELDS, watched: Sequence[str] = WATCHED) -> Any:
    return outcome(data, fields, watched, replace(LINES, block_size=64, piece_size=32))


# --- lines of every kind -------------------------------------------------------------------------------

NUMBERS = """
    1 1.0 -0 -0.0 1e400 -1E400 1e-400 NaN Infinity -Infinity 9007199254740993 9223372036854775808 123456789012345678901234567890
    1e22 0.1e1 18446744073709551616 01 1. 1_0 340282366920938463463374607431768211456 0.30000000000000004
    2.2250738585072011e-308 1e23 4503599627370497.5 9007199254740993.0 8.5e-324
"""
STRINGS = r"""
    "" "1" "1.5" "true" "nan" "inf" "good" "\ud800" "a\ud800" "\udc00" "\ud83d\ude00" "\u0000" "\u0072eward" "reward\""
    "\x" "}" "reward" "k" "\\u006b" "\\" "\\\\\\""
"""
numbers = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(NUMBERS.split()),
    st.from_regex(r"[-+]?[0-9]{0,9}\.?[0-9]*([eE][-+]?[0-9]{0,3}|[a-z_. ])?", fullmatch=True),
)
strings = st.one_of(
    st.text(max_size=4).map(json.dumps),
    st.text(max_size=4).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(STRINGS.split()),
    st.sampled_from(['" 2 "', r'"{\"reward\": 1}"', '"tab\tbed"', '"\x7f"', '"\u2028"']),
)
scalars = numbers | strings | st.sampled_from(["null", "true", "false", "nul", ""])
KEYS = r"""
    "reward" "k" "a" "b" "a.b" "l" "s" "x" "advantage" "step" "" "rew\u0061rd" "\u006b" "a\u002eb" "st\u0065p" "r\\u00e9" "é"
"""
blanks = st.sampled_from(["", "", "", "", " ", "\t", "\r", "  "])


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    @st.composite
    def drawn(draw: st.DrawFn) -> str:
        names = draw(st.lists(st.sampled_from(KEYS.split()), max_size=5))
        fields = [f"{name}{draw(blanks)}:{draw(blanks)}{draw(values)}" for name in names]
        blank = draw(blanks)
        return "{" + blank + f",{blank}".join(fields) + blank + "}"

    return drawn()


def lists(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(values, max_size=3).map(lambda found: "[" + ",".join(found) + "]")


values = st.recursive(scalars, lambda inner: lists(inner) | objects(inner), max_leaves=4)


TEXT = st.text(st.sampled_from('ab"\\/\n\t{}[]:,é漢\U0001f600 \x7f'), max_size=70)


@st.composite
def plain_row(draw: st.DrawFn, odd: st.SearchStrategy[Any] = st.none()) -> str:  # noqa: B008
    """A row as trainers write them."""
    row: dict[str, Any] = {"reward": draw(st.floats(-1, 1) | st.sampled_from([0, 1, None]) | odd)}
    row["k"] = draw(st.sampled_from(["p1", "p2", "\u00e9", "{}:,[]'"]))
    row["a"] = {"b": draw(st.integers(0, 3) | odd), "note": draw(TEXT), "empty": []}
    row["l"] = draw(st.lists(st.floats(0, 1), max_size=2))
    if draw(st.booleans()):
        row["s"] = draw(st.sampled_from(["1", "0.5"]))
    if draw(st.booleans()):
        row["x"] = {"reward": draw(st.integers(0, 9)), "step": draw(odd)}
    marks = draw(st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")]))
    return json.dumps(row, ensure_ascii=draw(st.booleans()), separators=marks)


plain_rows = plain_row()
nasty = st.sampled_from([
    "", " ", "\x0b", "\x0c{}", "[1]", "5", "{", "}", "{}{}", '{"reward":1}\r{"k":2}', '{"k":"\udce9"}', "\ufeff{}", "{} x", "nul",
])  # fmt: skip
any_line = st.one_of(plain_rows, plain_rows, objects(values), nasty)


def file_of(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    @st.composite
    def drawn(draw: st.DrawFn) -> bytes:
        ends = draw(st.sampled_from(["\n", "\r\n"]))
        text = ends.join(draw(st.lists(strategy, min_size=1, max_size=8)))
        text += ends if draw(st.booleans()) else ""
        mark = b"\xef\xbb\xbf" if draw(st.booleans()) else b""
        return mark + text.encode("utf-8", "surrogateescape")

    return drawn()


# --- rows as trainers write them, and with other bytes in them -----------------------------------------------

ROW_FIELDS = (Field("id", "key"), Field("n", "key"), Field("reward", "number"), Field("meta.kl", "number"))
ROW_WATCHED = ("step", "kl", "late")
OTHER_BYTES = list(b'"\\{}[]:,0 1-.eu\n\rx\x01\xff')


ODD = st.sampled_from([True, False, 1e99, float("nan"), 10**14]) | st.floats()


@st.composite
def ordinary(draw: st.DrawFn) -> bytes:
    """Rows as trainers write them, now and then with bytes that are changed, added or gone."""
    block = bytearray(draw(file_of(plain_row(ODD))))
    for _ in range(draw(st.integers(0, 3))):
        at = int(draw(st.floats(0, 1, exclude_max=True)) * len(block))
        how = draw(st.sampled_from(["added", "changed", "gone"]))
        block[at : at + (how != "added")] = b"" if how == "gone" else bytes([draw(st.sampled_from(OTHER_BYTES))])
    return bytes(block)


ONE_FIELD = st.tuples(
    st.builds(Field, st.sampled_from(["reward", "k", "a.b", "a"]), st.sampled_from(["number", "key"]))
)
PATHS = (Field("a.b", "key"), Field("a.b.k", "key"), Field("k.k", "number"))
FILES = {
    "nasty lines": (file_of(any_line), st.just(FIELDS), WATCHED),
    "repeated and escaped names": (file_of(objects(st.sampled_from(["1", "2.5", "3"]))), ONE_FIELD, WATCHED),
    "nested": (
        file_of(objects(objects(objects(st.sampled_from(["1", "null", '"x"', "true"]))))), st.just(PATHS), WATCHED,
    ),
    "ordinary": (ordinary(), st.just(FIELDS), WATCHED),
}  # fmt: skip


def agrees(data: bytes, fields: Sequence[Field] = ROW_FIELDS, watched: Sequence[str] = ROW_WATCHED) -> None:
    """Compare both readers: on the file as a whole, in small blocks, and with each line as a piece."""
    wanted = exactly(data, fields, watched)
    assert outcome(data, fields, watched) == wanted
    assert in_small_blocks(data, fields, watched) == wanted
    assert outcome(data, fields, watched, replace(LINES, piece_size=1)) == wanted


@pytest.mark.parametrize("kind", FILES)
@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_both_readers_say_the_same_of_any_file(kind: str, data: st.DataObject) -> None:
    files, fields, watched = FILES[kind]
    agrees(data.draw(files), data.draw(fields), watched)


ODD_LINES = rb"""
{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"x":xyz}
{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"x":01}
{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"x":"\q"}
{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"x":"\u12g4"}
{"id":"a","n":1,"reward":0.5,"meta":{"kl":1}} {}
{"id":"a","n":1,"reward":0.5,"meta":{"kl":1}
["id"]
{"id":"a","n":1.5,"reward":0.5,"meta":{"kl":1}}
{"id":"a","n":true,"reward":0.5,"meta":{"kl":1}}
{"id":"a","n":1,"reward":"0.5","meta":{"kl":1}}
{"id":"a","n":1,"reward":[0.5],"meta":{"kl":1}}
{"id":"\u0061","n":1,"reward":0.5,"meta":{"kl":1}}
{"id":"a","n":1,"reward":0.5,"meta":{}}
{"id":"a","n":99999999999999999999,"reward":0.5,"meta":{"kl":1}}
{"id":99999999999999999999,"n":1,"reward":0.5,"meta":{"kl":1}}
{"id":-9223372036854775809,"n":1,"reward":0.5,"meta":{"kl":1}}
{"id":"Static(a","n":1,"reward":99999999999999999999,"meta":{"kl":1}}
{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"reward"	:0.25}
{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"meta.kl":null}
{"id":"a","n":1,"reward":0.5,"meta":{"kl":1,"kl":2}}
{"id":"a","n":1,"reward":0.5,"meta":7}
"""


@pytest.mark.parametrize(
    "line",
    [
        *ODD_LINES.splitlines(),  # the first is empty
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"x":"\x02"}',
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"x":"\xc3("}',
        b"  ",
    ],
)
@pytest.mark.parametrize("before", [0, 1, 20])
def test_an_odd_line_is_read_as_python_reads_it_wherever_it_stands(
    line: bytes, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1}}\n'
    if line.count(b'"reward"') + line.count(b'"kl"') > 2 and before > 8:
        before = 50  # beyond the first rows a rare double is looked for in samples
        monkeypatch.setattr(reading, "_EVERY", before)
    agrees(whole * before + line + b"\n" + whole)


def test_a_column_of_nulls_whose_whole_name_has_a_dot_is_there() -> None:
    data = b'{"a.b":null,"reward":1}\n' * 20
    number = [Field("a.b", "number")]
    assert outcome(data, number) == exactly(data, number) == ([("a.b", pl.Float64, ["None"] * 20)], frozenset())
