"""Names that polars takes for patterns: columns keep them, and what is done with a column does not look at them."""

from __future__ import annotations

import json
from collections.abc import Callable

import polars as pl
import pyarrow as pa
import pytest

from grpo_cli.values.cells import Field, Kind, canonical, field_of, texts_of_nested, typed, without_bytes
from grpo_cli.values.json_text import column_texts
from tests.support.keys import FLAT, FORMS

Work = Callable[[pl.Series], pl.Series]
NAMES = ("^a$", "^.*$", "*")
WORKS: dict[str, Work] = {
    "as a key": lambda series: typed(Field(series.name, "key"), series, str),
    "as its canonical text": canonical,
    "as text of CSV": lambda series: texts_of_nested(series.to_frame()).to_series(),
    "without bytes": lambda series: without_bytes(series.to_frame()).to_series(),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("work", WORKS)
def test_a_column_of_any_type_is_the_same_under_a_name_that_is_a_pattern(work: str, form: str, name: str) -> None:
    for kind, value, _ in FLAT:
        dtype, made = FORMS[form](kind, value)
        series = pl.Series(pa.array([made, None, made], dtype))
        plain = WORKS[work](series.alias("plain"))
        under = WORKS[work](series.alias(name))
        assert under.name == name
        assert under.alias("plain").equals(plain, check_names=True, check_dtypes=True), kind


NUMBERS = """
[1, null]
[0.5, NaN]
["1.5", " 2 "]
[true, null]
["7/8", "true"]
[[1.0], [2.0, null]]
"""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("values", NUMBERS.strip().splitlines())
def test_numbers_are_the_same_under_a_name_that_is_a_pattern(name: str, values: str) -> None:
    kind: Kind = "numbers" if values.startswith("[[") else "number"
    series = pl.Series("b", json.loads(values))
    found = typed(Field(name, kind), series, str)
    plain = typed(Field("b", kind), series, str)
    assert found.name == name
    assert found.alias("b").equals(plain, null_equal=True)
    texts = column_texts(found, small=0) if kind == "number" else found
    assert texts.name == name


def test_a_field_of_an_object_is_the_one_with_this_name() -> None:
    series = pl.Series("^a$", [{"^a$": 1, "a": 2, "*": 3}, None])
    assert field_of(series, "^a$").to_list() == [1, None]
    assert field_of(series, "a").to_list() == [2, None]
    assert field_of(series, "*").to_list() == [3, None]
