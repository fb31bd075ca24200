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
    field = st.tuples(st.sampled_from(KEYS), blanks, blanks, values).map(lambda m: f"{m[0]}{m[1]}:{m[2]}{m[3]}")
    return st.tuples(st.lists(field, max_size=5), blanks).map(lambda o: "{" + o[1] + f",{o[1]}".join(o[0]) + o[1] + "}")


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
nasty = st.sampled_from([
    "", " ", "\x0b", "\x0c{}", "[1]", "5", "{", "}", "{}{}", '{"reward":1}\r{"k":2}', '{"k":"\udce9"}', "\ufeff{}", "{} x", "nul",
])  # fmt: skip
any_line = st.one_of(plain_rows, plain_rows, objects(values), nasty)


def file_of(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    def joined(parts: tuple[list[str], str, bool, bool]) -> bytes:
        found, ends, last, mark = parts
        text = ends.join(found) + (ends if last else "")
        return (b"\xef\xbb\xbf" if mark else b"") + text.encode("utf-8", "surrogateescape")

    return st.tuples(
        st.lists(strategy, min_size=1, max_size=8), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans()
    ).map(joined)


# --- rows as trainers write them, and with other bytes in them -----------------------------------------------

ROW_FIELDS = (Field("id", "key"), Field("n", "key"), Field("reward", "number"), Field("meta.kl", "number"))
ROW_WATCHED = ("step", "kl", "late")
TEXT = st.text(st.sampled_from('ab"\\/\n\t{}[]:,é漢\U0001f600 \x7f'), max_size=70)
IDS = st.text(st.sampled_from("ab-09 é{}:,[]'"), max_size=20)
ROW = st.fixed_dictionaries({
    "id": IDS, "text": TEXT, "n": st.integers(-5, 10**14),
    "reward": st.floats(allow_nan=True) | st.sampled_from([0.0, 1.0, None, True, False, 3]),
    "meta": st.builds(lambda kl, note: {"kl": kl, "note": note, "empty": []}, st.sampled_from([0.5, -0.25]), TEXT),
    "step": st.integers(0, 3) | st.sampled_from([True, False, None, 1e300]),
})  # fmt: skip
SAME_SIZE = st.fixed_dictionaries({
    "id": st.sampled_from(["p-0001", "p-0002", "p-0099"]), "text": st.text(st.sampled_from("ab{}[]:, "), min_size=9, max_size=9),
    "n": st.integers(10, 99), "reward": st.sampled_from([0.0, 1.0, 0.5]),
    "meta": st.fixed_dictionaries({"kl": st.sampled_from([True, None, 1e99])}), "step": st.integers(0, 9),
})  # fmt: skip
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")])
OTHER_BYTES = list(b'"\\{}[]:,0 1-.eu\n\rx\x01\xff')


@st.composite
def ordinary(draw: st.DrawFn) -> bytes:
    """Rows of any size or of one size, now and then with bytes that are changed, added or gone."""
    some = draw(st.lists(ROW, min_size=1, max_size=20) | st.lists(SAME_SIZE, min_size=1, max_size=40))
    (comma, colon), ascii_only = draw(SEPARATORS), draw(st.booleans())
    ending = draw(st.sampled_from(["\n", "\r\n"]))
    text = "".join(json.dumps(row, ensure_ascii=ascii_only, separators=(comma, colon)) + ending for row in some)
    block = bytearray(text.encode())
    for _ in range(draw(st.integers(0, 3))):
        at, how = int(draw(st.floats(0, 1, exclude_max=True)) * len(block)), draw(st.integers(0, 2))
        block[at : at + (how > 0)] = bytes([draw(st.sampled_from(OTHER_BYTES))]) if how < 2 else b""
    return bytes(block)


ODD_NUMBERS = numbers | st.one_of(
    st.from_regex(r"-?(0|[1-9][0-9]*)\.[0-9]+([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.from_regex(r"[-+]?[0-9]{0,9}\.?[0-9]*([eE][-+]?[0-9]*|[0-9a-z_. ])?", fullmatch=True),
)
NUMBERS = [
    st.lists(ODD_NUMBERS, min_size=1, max_size=20).map(
        lambda texts, row=row: "".join(row % text for text in texts).encode()  # type: ignore[misc]
    )
    for row in ('{"id":"a","n":1,"reward":%s,"meta":{"kl":1}}\n', '{"id":"a","n":%s,"reward":1,"meta":{"kl":1}}\n')
]
ONE_FIELD = st.builds(Field, st.sampled_from(["reward", "k", "a.b", "a"]), st.sampled_from(["number", "key"])).map(
    lambda one: (one,)
)
PATHS = (Field("a.b", "key"), Field("a.b.k", "key"), Field("k.k", "number"))
FILES = {
    "nasty lines": (file_of(any_line), st.just(FIELDS), WATCHED),
    "nearly plain": (file_of(plain_rows | objects(scalars)), st.just(FIELDS), WATCHED),
    "repeated and escaped names": (file_of(objects(st.sampled_from(["1", "2.5", "3"]))), ONE_FIELD, WATCHED),
    "nested": (
        file_of(objects(objects(objects(st.sampled_from(["1", "null", '"x"', "true"]))))), st.just(PATHS), WATCHED,
    ),
    "ordinary": (ordinary(), st.just(ROW_FIELDS), ROW_WATCHED),
    "numbers": (st.one_of(NUMBERS), st.just(ROW_FIELDS), ROW_WATCHED),
}  # fmt: skip


def agrees(data: bytes, fields: Sequence[Field] = ROW_FIELDS, watched: Sequence[str] = ROW_WATCHED) -> None:
    """Compare both readers: on the file as a whole, in small blocks, and with each line as a piece."""
    wanted = exactly(data, fields, watched)
    assert outcome(data, fields, watched) == wanted
    assert in_small_blocks(data, fields, watched) == wanted
    assert outcome(data, fields, watched, replace(LINES, piece_size=1)) == wanted


ODD_VALUES = (b"xyz", b"01", b'"\\q"', b'"\\u12g4"', b'"\x02"', b'"\xc3("')


@pytest.mark.parametrize("kind", FILES)
@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_both_readers_say_the_same_of_any_file(kind: str, data: st.DataObject) -> None:
    files, fields, watched = FILES[kind]
    agrees(data.draw(files), data.draw(fields), watched)


@pytest.mark.parametrize(
    "line",
    [
        *(b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"x":%b}' % odd for odd in ODD_VALUES),
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1}} {}',
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1}',
        b'["id"]',
        b"",
        b"  ",
        b'{"id":"a","n":1.5,"reward":0.5,"meta":{"kl":1}}',
        b'{"id":"a","n":true,"reward":0.5,"meta":{"kl":1}}',
        b'{"id":"a","n":1,"reward":"0.5","meta":{"kl":1}}',
        b'{"id":"a","n":1,"reward":[0.5],"meta":{"kl":1}}',
        b'{"id":"\\u0061","n":1,"reward":0.5,"meta":{"kl":1}}',
        b'{"id":"a","n":1,"reward":0.5,"meta":{}}',
        b'{"id":"a","n":99999999999999999999,"reward":0.5,"meta":{"kl":1}}',
        b'{"id":99999999999999999999,"n":1,"reward":0.5,"meta":{"kl":1}}',
        b'{"id":-9223372036854775809,"n":1,"reward":0.5,"meta":{"kl":1}}',
        b'{"id":"Static(a","n":1,"reward":99999999999999999999,"meta":{"kl":1}}',
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"reward"\t:0.25}',
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"meta.kl":null}',
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1,"kl":2}}',
        b'{"id":"a","n":1,"reward":0.5,"meta":7}',
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


@pytest.mark.parametrize("size", [0, 1, 57, 64, 65, 200, 5000])
def test_constants_and_keys_of_any_length(size: int) -> None:
    names = {"x" * size: [], "y": "z" * size, "n": 1, "reward": 0.5, "meta": {"kl": 1}}
    block = b"".join(json.dumps({"id": f"{at // 3}" * size, **names}).encode() + b"\n" for at in range(20))
    agrees(block)
    agrees(block[:-20] + b" " + block[-20:])


def test_a_column_of_nulls_whose_whole_name_has_a_dot_is_there() -> None:
    data = b'{"a.b":null,"reward":1}\n' * 20
    number = [Field("a.b", "number")]
    assert outcome(data, number) == exactly(data, number) == ([("a.b", pl.Float64, ["None"] * 20)], frozenset())
