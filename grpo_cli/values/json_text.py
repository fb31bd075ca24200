"""JSON as text and as Python objects: the text of cells, the positions of fields, and the field that a path means.

Positions and values come from one scanner (Python's own, in C), so that what is read and what is written back can never
differ.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.values import token_lists
from grpo_cli.values.cells import float_texts, nameless
from grpo_cli.values.paths import splits

Where = Callable[[], str]  # gives file and row, for a message

ABSENT = object()
SMALL = 8  # with at most this many rows, Python is faster than polars
_BLANKS = re.compile(r"[ \t\n\r]*")
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*").match
_COMMA = re.compile(r"[ \t\n\r]*,[ \t\n\r]*").match
_BREAKS = re.compile(r"[ \t\r]*\n[ \t\r\n]*")


# --- values ------------------------------------------------------------------------------------------------


class Doubled(dict[str, Any]):
    """An object that names a field twice. If that field is not refused, the first value counts, as in polars."""

    def __init__(self) -> None:
        super().__init__()
        self.twice: set[str] = set()

    def add(self, name: str, value: Any) -> None:
        """Add a field."""
        if name in self:
            self.twice.add(name)
        else:
            self[name] = value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        found = Doubled()
        for name, value in pairs:
            found.add(name, value)
    return found


DECODER = json.JSONDecoder(object_pairs_hook=_object)
_SCAN: Final[Callable[[str, int], tuple[Any, int]]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def value_of(row: Mapping[str, Any], name: str, place: Where | None = None) -> Any:
    """The value of a column or of a dotted path; a key that has the whole name wins. ABSENT if there is none.

    With a `place` for the error, an object on the way that names it twice is refused: readers differ in which they take.
    """
    _refuse(row, name, place)
    if name in row:
        return row[name]
    for head, rest in splits(name):
        _refuse(row, head, place)
        inner = row.get(head)
        if isinstance(inner, dict):
            value = value_of(inner, rest, place)
            if value is not ABSENT:
                return value
    return ABSENT


def _refuse(row: Mapping[str, Any], name: str, place: Where | None) -> None:
    if place is not None and isinstance(row, Doubled) and name in row.twice:
        raise named_twice(name, place())


def refuse_doubled(row: Mapping[str, Any], names: Iterable[str], place: Where = str) -> None:
    """Refuse a row that names one of these fields twice, on any level of a dotted path."""
    for name in names:
        value_of(row, name, place)


def refuse_doubled_inside(value: Any, place: Where = str) -> None:
    """Refuse a value in which an object, however deep, names a field twice: its text would lose one of them."""
    if isinstance(value, Doubled) and value.twice:
        raise named_twice(min(value.twice), place())
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        refuse_doubled_inside(item, place)


def named_twice(name: str, place: str = "") -> DataError:
    """The error for an object that names a field twice."""
    return DataError(f"{name} is named twice in one object", "write each field once", place=place)


# --- texts -------------------------------------------------------------------------------------------------


def cell_text(value: object) -> str:
    """JSON text of a cell, in ASCII. JSON has no NaN and no infinity, so they become null."""
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "null"
    if isinstance(value, list):
        return f"[{','.join(map(cell_text, value))}]"
    return json.dumps(value)


@nameless
def column_texts(series: pl.Series, small: int = SMALL) -> pl.Series:
    """JSON text of a column, the same as `cell_text` gives for each cell."""
    if len(series) > small and series.dtype.is_float():
        finite = pl.when(series.is_finite()).then(float_texts(series))
        return pl.select(finite.otherwise(pl.lit("null"))).to_series()
    if series.dtype.is_integer() or series.dtype == pl.Boolean:
        return series.cast(pl.String).fill_null("null")
    if token_lists.has_numbers(series):
        (series,) = token_lists.with_lists(series.to_frame())
        flat = column_texts(series.explode(empty_as_null=False, keep_nulls=False), 0)
        texts = token_lists.cut(flat.to_arrow(), token_lists.lengths(series)).list.join(",")
        whole = pl.format("[{}]", texts)
        return pl.select(pl.when(series.is_not_null()).then(whole).otherwise(pl.lit("null"))).to_series()
    if token_lists.is_on_tokens(series):
        return token_lists.json_texts(series)
    return pl.Series(list(map(cell_text, series.to_list())), dtype=pl.String)


def row_texts(frame: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    """The JSON texts of the cells of every row; token lists are rendered for some rows at a time."""
    for part in token_lists.portions(frame):
        yield from zip(*(column_texts(column).to_list() for column in part), strict=True)


def spans_of(text: str) -> Iterator[tuple[str, int, int]]:
    """Key, start and end of the value of every top-level field; ValueError or IndexError if it is not an object.

    Exports do this for every row: a separator and the blanks around it are one match.
    """
    at = skip(text, text.index("{") + 1)
    while text[at] != "}":
        key, at = _scanned(text, at)
        colon = _COLON(text, at)
        if colon is None:
            raise ValueError(text)
        start = colon.end()
        _, end = _scanned(text, start)
        yield key, start, end
        comma = _COMMA(text, end)
        at = skip(text, end) if comma is None else comma.end()


def rewritten(text: str, fresh: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Replace the values of all fields with these names; also return the new fields that the object does not have."""
    spans = [span for span in spans_of(text) if span[0] in fresh]
    there = set[str]()
    for name, start, end in reversed(spans):
        if name in there:
            raise named_twice(name)
        there.add(name)
        text = text[:start] + fresh[name] + text[end:]
    return text, {name: value for name, value in fresh.items() if name not in there}


def texts_of(text: str, names: Sequence[str]) -> list[str | None]:
    """The JSON text of the value of each column or dotted path of an object; None where it has none, or null.

    ValueError for a field that the object names twice.
    """
    fields = Doubled()
    for key, start, end in spans_of(text):
        fields.add(key, text[start:end])
    return [_text_of(fields, name) for name in names]


def _text_of(fields: Doubled, name: str) -> str | None:
    if name in fields.twice:
        raise ValueError(f"{name} is named twice in one object")
    if name in fields:
        return None if fields[name] == "null" else cast("str", fields[name])
    for head, rest in splits(name):
        if head in fields:
            return texts_of(fields[head], [rest])[0] if fields[head].startswith("{") else None
    return None


def on_one_line(text: str) -> str:
    """The same JSON without line breaks: outside of strings they have no meaning, and inside they are escaped."""
    return _BREAKS.sub("", text) if "\n" in text else text


def items_of(text: str) -> list[str]:
    """The JSON text of every item of a list."""
    return [item for item, _ in items_with_values(text)]


def items_with_values(text: str) -> list[tuple[str, Any]]:
    """The JSON text of every item of a list, and its value."""
    items = []
    at = skip(text, 1)
    while text[at] != "]":
        start = at
        value, end = _scanned(text, start)
        items.append((text[start:end], value))
        comma = _COMMA(text, end)
        at = skip(text, end) if comma is None else comma.end()
    return items


def _scanned(text: str, at: int) -> tuple[Any, int]:
    try:
        return _SCAN(text, at)
    except StopIteration:
        raise ValueError(text) from None


def skip(text: str, at: int) -> int:
    """The next place that is not blank."""
    match = _BLANKS.match(text, at)
    return at if match is None else match.end()
