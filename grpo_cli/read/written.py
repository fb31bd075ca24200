"""What a person writes for a value of a column, such as `failure=timeout` or `step=7`: it is read in the type of each value.

Numbers are compared exactly, texts by their bytes, dates, times and bytes in the spellings that people see. A cell of CSV is a text, and a
number if it is written as one: 7 and 7.0 are 7, 007 is a text.
"""

from __future__ import annotations

import ast
import base64
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import NamedTuple

import polars as pl

from grpo_cli.values.cells import JSON_TEXT, canonical, decimal_text, key_text

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.ASCII)
_NUMBER_OF_CELL = re.compile(r"[-+]?(0|[1-9]\d*)(\.\d+)?(e[-+]?\d+)?", re.ASCII)
_WORDS = {
    "true": "1", "false": "0", "nan": "NaN", "inf": "Infinity", "infinity": "Infinity", "-inf": "-Infinity",
    "-infinity": "-Infinity",
}  # fmt: skip
_DIGITS = 5_000  # no number of a file has more
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(\.\d{1,9})?)?(Z|[-+]\d\d:?\d\d)?", re.ASCII)
_TIME = re.compile(r"(\d\d:\d\d(?::\d\d)?)(\.\d{1,9})?", re.ASCII)
_DURATION = re.compile(r"(-?)P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.ASCII)
_NANOSECONDS = 1 << 63
_CLOCK = re.compile(r"()(?:(-?\d+) days?, )?(\d+):(\d\d):(\d\d(?:\.\d{1,9})?)", re.ASCII)


def is_text(dtype: pl.DataType) -> bool:
    """Whether the values are texts. Keys of several types are none, though they are stored as such."""
    return dtype != JSON_TEXT and isinstance(dtype, (pl.String, pl.Categorical, pl.Enum))


def rows_with(column: pl.Series, written: str, *, typed: bool) -> pl.Series | None:
    """The rows with the value that is written so; None if no value of the column's type is.

    Nothing stands for null and for an empty text. Without types (CSV), a text may be a number.
    """
    column = column.alias("")  # polars takes a name such as ^a$ for a pattern
    if column.dtype.is_extension():
        column = column.ext.storage()
    dtype = column.dtype
    if not written:
        may_be_empty = is_text(dtype) or dtype == JSON_TEXT
        return column.is_null() | (canonical(column) == '""') if may_be_empty else column.is_null()
    if not typed and dtype == pl.String:
        return _cells_with(column, written)
    values = canonical_texts(written, dtype)
    if values is None:
        return None
    if dtype.is_nested() or dtype == JSON_TEXT or is_text(dtype):
        found = canonical(column).is_in([*values])
    else:  # most values are there several times
        each = column.unique()
        found = column.is_in(each.filter(canonical(each).is_in([*values])).implode())
    return found.fill_null(value=False)


def _cells_with(column: pl.Series, written: str) -> pl.Series:
    """The cells of CSV with this text, or with this number."""
    found = column == written
    number = number_of_cell(written)
    if number:
        low = column.str.strip_chars().str.to_lowercase().replace({"true": "1", "false": "0"})
        near = (low.cast(pl.Float64, strict=False) == float(number)).fill_null(value=False)
        each = column.filter(near & ~found).unique()
        same = [cell for cell in each.to_list() if number_of_cell(cell) == number]
        found |= column.is_in(same)
    return found.fill_null(value=False)


def number_of_cell(cell: str) -> str | None:
    """The canonical text of the number that a cell of CSV is written as, if it is."""
    return _number(cell, _NUMBER_OF_CELL)


def canonical_texts(written: str, dtype: pl.DataType) -> set[str] | None:
    """The canonical texts of the values of this type that are written so; None if no value of this type is."""
    found = {text for kind in _kinds(dtype) for text in kind.read(written, dtype)}
    return found - {""} if found or isinstance(dtype, pl.Null) else None


def values_of(dtype: pl.DataType) -> str:
    """What the values of this type are, for a message."""
    if isinstance(dtype, pl.Enum):
        return f"one of {', '.join(dtype.categories)}"
    kinds = _kinds(dtype)
    return kinds[0].name if len(kinds) == 1 else "values of several types"


# --- one value, as a type reads it ------------------------------------------------------------------------------


class _Kind(NamedTuple):
    """A kind of values."""

    name: str  # for a message
    holds: Callable[[pl.DataType], bool]  # whether the values of a column of this type are of this kind
    # The canonical texts: none if no value of this kind is written so, an empty one if none that a file can hold is.
    read: Callable[[str, pl.DataType], Iterator[str]]


def _kinds(dtype: pl.DataType) -> list[_Kind]:
    """The kinds of values that a column of this type may have; keys of several types have all."""
    return [kind for kind in _KINDS if dtype == JSON_TEXT or kind.holds(dtype)]


def _text(written: str, dtype: pl.DataType) -> Iterator[str]:
    if not isinstance(dtype, pl.Enum) or written in dtype.categories:
        yield key_text(written)


def _boolean(written: str, _: pl.DataType) -> Iterator[str]:
    truth = {"1": "true", "0": "false"}.get(_number(written, _NUMBER) or "")
    if truth:
        yield truth


def _numbers(written: str, dtype: pl.DataType) -> Iterator[str]:
    """A whole number is exact; any other, and one with an exponent, is the nearest float where the values are floats."""
    number = _number(written, _NUMBER)
    if not number:
        yield from () if number is None else [""]
        return
    is_whole = number.lstrip("-").isdecimal() and "e" not in written.lower()
    if not dtype.is_float():
        yield number
    if dtype.is_float() or dtype == JSON_TEXT:
        value = pl.Series([float(number)]).cast(dtype if dtype.is_float() else pl.Float64).cast(pl.Float64).item()
        is_same = math.isfinite(value) and Decimal(value) == Decimal(number)
        yield key_text(value) if is_same or not is_whole else ""


def _number(written: str, pattern: re.Pattern[str]) -> str | None:
    """The canonical text of a number; None if it is none, empty if it is beyond what a file can hold."""
    bare = written.strip().lower()
    if bare in _WORDS:
        return _WORDS[bare]
    if pattern.fullmatch(bare) is None:
        return None
    number = Decimal(bare)
    return decimal_text(number) if abs(number.adjusted()) < _DIGITS else ""


def _date(written: str, _: pl.DataType) -> Iterator[str]:
    with suppress(ValueError):
        yield f"date:{date.fromisoformat(written.removeprefix('date:'))}"


def _datetime(written: str, _: pl.DataType) -> Iterator[str]:
    moment = _moment(written.removeprefix("datetime:"))
    if moment and not moment[1]:
        yield f"datetime:{moment[0]}"


def _instant(written: str, _: pl.DataType) -> Iterator[str]:
    """Without a zone it is in UTC, as in a condition."""
    moment = _moment(written.removeprefix("instant:"))
    if moment:
        yield f"instant:{moment[0]}"


def _moment(written: str) -> tuple[str, str] | None:
    """A date, with or without a time, as its canonical text in UTC, and its zone; None if it is none."""
    found = _MOMENT.fullmatch(written)
    if found is None:
        return None
    day, clock, fraction, zone = found.groups(default="")
    try:
        moment = datetime.fromisoformat(f"{day}T{clock or '00:00'}{zone or 'Z'}").astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}{_trimmed(fraction)}", zone


def _time(written: str, _: pl.DataType) -> Iterator[str]:
    found = _TIME.fullmatch(written.removeprefix("time:"))
    if found is not None:
        with suppress(ValueError):
            yield f"time:{time.fromisoformat(found[1]):%H:%M:%S}{_trimmed(found[2] or '')}"


def _trimmed(fraction: str) -> str:
    """A fraction of a second without zeros at its end."""
    return fraction.rstrip("0").rstrip(".")


def _duration(written: str, _: pl.DataType) -> Iterator[str]:
    """As ISO 8601 writes it (PT1H30M), or as Python does (1:30:00)."""
    bare = written.removeprefix("duration:")
    found = _DURATION.fullmatch(bare) or _CLOCK.fullmatch(bare)
    if found is None or not any(found.groups(default="")[1:]):
        return
    sign, *parts = found.groups(default="")
    days, hours, minutes, seconds = (Decimal(part or "0") for part in parts)
    nanoseconds = int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 10**9)
    in_range = abs(nanoseconds) < _NANOSECONDS
    yield (
        canonical(pl.Series([-nanoseconds if sign else nanoseconds], dtype=pl.Duration("ns"))).item()
        if in_range
        else ""
    )


def _bytes(written: str, _: pl.DataType) -> Iterator[str]:
    """As base64, as Python writes bytes, or as their text."""
    spelled = [written.encode(errors="surrogateescape")]
    with suppress(ValueError):
        spelled.append(base64.b64decode(written.removeprefix("bytes:"), validate=True))
    if re.match("b['\"]", written):
        with suppress(ValueError, SyntaxError):
            spelled.append(ast.literal_eval(written))
    yield from canonical(pl.Series(spelled, dtype=pl.Binary))


def _json(written: str, _: pl.DataType) -> Iterator[str]:
    with suppress(ValueError, RecursionError):
        value = json.loads(written)
        if isinstance(value, (list, dict)):
            yield key_text(value)


_KINDS = (
    _Kind("true or false", lambda dtype: isinstance(dtype, pl.Boolean), _boolean),
    _Kind("numbers", lambda dtype: dtype.is_numeric(), _numbers),
    _Kind("texts", is_text, _text),
    _Kind("dates", lambda dtype: isinstance(dtype, pl.Date), _date),
    _Kind("dates with a time", lambda dtype: isinstance(dtype, pl.Datetime) and not dtype.time_zone, _datetime),
    _Kind(
        "dates with a time and a zone", lambda dtype: isinstance(dtype, pl.Datetime) and bool(dtype.time_zone), _instant
    ),
    _Kind("times of day", lambda dtype: isinstance(dtype, pl.Time), _time),
    _Kind("durations", lambda dtype: isinstance(dtype, pl.Duration), _duration),
    _Kind("bytes", lambda dtype: isinstance(dtype, pl.Binary), _bytes),
    _Kind("lists or objects", lambda dtype: dtype.is_nested(), _json),
)
