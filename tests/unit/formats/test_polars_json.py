"""What polars does with JSON lines and a schema, on which the fast reading relies: an upgrade that changes it is seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest

TEXT = pl.Categorical(pl.Categories.random())
FLOATS = pl.List(pl.Float64)
INNER = pl.Struct({"b": pl.Float64})


def read(data: str | bytes, dtype: Any, name: str = "a") -> list[Any]:
    schema: Mapping[str, Any] = {name: dtype}
    found = pl.read_ndjson(data.encode() if isinstance(data, str) else data, schema=schema)[name]
    return (found.cast(pl.String) if dtype is TEXT else found).to_list()


def refuses(data: str | bytes, dtype: Any) -> bool:
    try:
        read(data, dtype)
    except pl.exceptions.PolarsError:
        return True
    return False


@pytest.mark.parametrize("value", ["1", "1.0", "true", "[]", "{}", "[1]"])
def test_text_as_categories_is_text_and_nothing_else(value: str) -> None:
    assert refuses(f'{{"a":{value}}}\n', TEXT)
    assert read('{"a":"1"}\n{"a":""}\n{"a":null}\n{}\n', TEXT) == ["1", "", None, None]


def test_text_as_string_would_be_anything() -> None:
    assert read('{"a":1}\n', pl.String) == ["1"]


@pytest.mark.parametrize("value", ["true", '"1"', '""', "[]", "{}", "NaN", "Infinity", "1e400", "01", "1.", ".5", "+1"])
def test_a_number_is_no_word_and_no_odd_number(value: str) -> None:
    assert refuses(f'{{"a":{value}}}\n', pl.Float64())
    assert refuses(f'{{"a":{value}}}\n', pl.Int64())


@pytest.mark.parametrize("value", ["1.0", "1e2", "9223372036854775808", "-9223372036854775809", "99999999999999999999"])
def test_an_integer_key_is_no_other_number(value: str) -> None:
    assert refuses(f'{{"a":{value}}}\n', pl.Int64())


@pytest.mark.parametrize(
    "text",
    ["1", "-0", "-0.0", "1e22", "1e23", "0.1", "9007199254740993", "123456789012345678901234567890", "5e-324",
     "2.2250738585072011e-308", "1e-400", "0.30000000000000004", "8.5e-324", "1.7976931348623157e308"],
)  # fmt: skip
def test_numbers_are_rounded_as_python_rounds_them(text: str) -> None:
    import json

    (found,) = read(f'{{"a":{text}}}\n', pl.Float64())
    assert repr(found) == repr(float(json.loads(text)))


def test_lists_are_of_numbers() -> None:
    assert read('{"a":[1,2.5,null]}\n{"a":[]}\n{"a":null}\n', FLOATS) == [[1.0, 2.5, None], [], None]
    assert all(refuses(f'{{"a":{value}}}\n', FLOATS) for value in ("1", '["1"]', "[true]", "[[1]]", "{}"))


@pytest.mark.parametrize("value", ["1", "1.5", '"x"', '""', "true", "false", "[]", "{}", "[1]", '{"b":1}'])
def test_a_field_that_must_not_be_there_is_an_error_at_the_top_and_inside_of_an_object(value: str) -> None:
    for before in ("", '"b":1,'):
        assert refuses(f'{{{before}"a":{value}}}\n', pl.Null())
        assert refuses(f'{{"a":{{{before}"c":{value}}}}}\n', pl.Struct({"b": pl.Float64(), "c": pl.Null()}))


def test_null_and_missing_look_the_same() -> None:
    assert read('{"a":null}\n{}\n', pl.Null()) == [None, None]
    assert read('{"a":{"b":null}}\n{"a":{}}\n{"a":null}\n{}\n', INNER) == [{"b": None}, {"b": None}, None, None]


@pytest.mark.parametrize("value", ["1", '"x"', "[1]", "true"])
def test_an_object_is_an_object(value: str) -> None:
    assert refuses(f'{{"a":{value}}}\n', INNER)


def test_the_first_of_two_fields_counts() -> None:
    assert read('{"a":1,"a":2}\n{"a":null,"a":2}\n', pl.Float64()) == [1.0, None]
    assert read('{"a":{"b":1},"a":{"b":2}}\n{"a":{"b":1,"b":2}}\n', INNER) == [{"b": 1.0}, {"b": 1.0}]


def test_a_name_may_be_written_with_escapes_or_hold_a_dot() -> None:
    assert read('{"\\u0061":1}\n', pl.Float64()) == [1.0]
    assert read('{"\\u0061":"x"}\n{"a":"y"}\n', TEXT) == ["x", "y"]
    assert refuses('{"\\u0061":1}\n', pl.Null())
    assert read('{"a.b":1,"a":{"b":2}}\n', pl.Float64(), "a.b") == [1.0]
    assert read('{"é":1}\n{"\\u00e9":2}\n', pl.Float64(), "é") == [1.0, 2.0]


def test_escapes_are_those_of_json() -> None:
    assert read(r'{"a":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"}' + "\n", TEXT) == ['"\\/\b\f\n\r\té\U0001f600']
    assert all(refuses(f'{{"z":"{text}","a":"x"}}\n', TEXT) for text in (r"\q", r"\u12g4", "\x01", "\t"))


def test_half_a_surrogate_pair_becomes_the_character_nul() -> None:
    assert read('{"a":"\\ud800"}\n{"a":"x\\ud800y"}\n{"a":"\\u0000"}\n', TEXT) == ["\0", "x\0y", "\0"]
    assert refuses('{"a":"\\udc00"}\n', TEXT)


def test_bytes_that_are_no_utf_8_are_an_error_wherever_they_are() -> None:
    assert refuses(b'{"z":"\xff","a":"x"}\n', TEXT)
    assert refuses(b'{"z":"\xed\xa0\x80","a":"x"}\n', TEXT)


def test_lines_are_cut_at_line_feeds_and_blank_ones_are_none() -> None:
    assert read('{"a":1}\n\n  \n\t\r\n{"a":2}\r\n{"a":3}', pl.Float64()) == [1.0, 2.0, 3.0]
    objects = '{"a":1}{"a":2}', '{"a":1} x', '{"a":1\n,"b":2}', '{"a":1}\r{"a":2}', "\ufeff{}"
    for odd in (*objects, "[1]", "5", "null", "\x0b"):
        assert refuses(f'{{"a":1}}\n{odd}\n', pl.Float64())


def test_nothing_asked_for_gives_the_rows() -> None:
    assert pl.read_ndjson(b'{"a":1}\n{}\n', schema={}).shape == (2, 0)
