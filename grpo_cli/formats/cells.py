"""From the cells of any format to typed columns, and back to text: every format reads and writes by these rules.

Three sections: numbers, keys, and what reaches a file. `column_types` has the columns that are no numbers and no keys.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.formats.interface import Field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Place = Callable[[int], str]  # file and row of a cell, for a message


def typed(field: Field, series: pl.Series, place: Place) -> pl.Series:
    """A column of any dtype as its field wants it: Float64, lists of Float64, or a key as it is."""
    series = series.alias(field.name)
    if field.kind == "key":
        return series
    return numbers(series, place) if field.kind == "number" else _number_lists(field, series, place)


# --- numbers -----------------------------------------------------------------------------------------------

_WORDS: Final = {"true": 1.0, "false": 0.0}
_FLOATED: Final = (pl.Float64, pl.Boolean, pl.Null, pl.Decimal)
_SHOWN: Final = 40
_SMALL: Final = 1e-4


def as_number(value: object) -> float | None:
    """One Python value as a number; None for null and for a blank string, ValueError for what is no number.

    An integer beyond the floats is infinite. A list of one value is that value.
    """
    match value:
        case None:
            return None
        case bool() | int() | float():
            try:
                return float(value)
            except OverflowError:
                return math.inf if value > 0 else -math.inf
        case str():
            return _from_text(value)
        case [one]:
            return as_number(one)
    raise ValueError(value)


def _from_text(text: str) -> float | None:
    bare = text.strip()
    if not bare:
        return None
    word = _WORDS.get(bare.lower())
    if word is not None:
        return word
    if "_" in bare or not bare.isascii():  # Python's own spelling of numbers, which no file means
        raise ValueError(text)
    part, slash, whole = bare.partition("/")
    if not slash:
        return float(bare)
    if not whole.strip().isdigit() or not float(whole):  # 7/8 is a fraction, 7/0 and 7/-8 are not
        raise ValueError(text)
    return float(part) / float(whole)


def as_numbers(value: object) -> list[float | None] | None:
    """A list of numbers; a plain number is a list of one."""
    if isinstance(value, list):
        return [as_number(item) for item in value]
    number = as_number(value)
    return None if number is None else [number]


def number_series(field: Field, values: Sequence[object], place: Place) -> pl.Series:
    """Python values as the column of a field of kind number or numbers."""
    convert: Callable[[object], object] = as_number if field.kind == "number" else as_numbers
    dtype = pl.Float64() if field.kind == "number" else pl.List(pl.Float64)
    try:
        return pl.Series(field.name, list(map(convert, values)), dtype=dtype)
    except (ValueError, TypeError):
        raise _not_numbers(field, values, place, convert) from None


def _not_numbers(
    field: Field, values: Sequence[object], place: Place, convert: Callable[[object], object]
) -> DataError:
    """What is wrong with the first value that cannot be converted."""
    for row, value in enumerate(values):
        try:
            convert(value)
        except ValueError:
            text = repr(value)
            shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
            expected = "a number" if field.kind == "number" else "a list of numbers"
            parts = " ".join(f"--reward {field.name}.{name}" for name in value) if isinstance(value, dict) else ""
            hint = f"name its parts, as {parts}" if parts else ""
            if isinstance(value, str) and field.kind == "number":
                hint = f"if it is the reward, --map '{shown[1:-1]}=NUMBER,...' says what each text counts as"
            return DataError(f"{place(row)}: {field.name} is {shown}, expected {expected}", hint)
    return DataError(f"{place(0)}: {field.name} cannot be read as a {field.kind}")


def numbers(series: pl.Series, place: Place) -> pl.Series:
    """A column of any dtype as Float64, whole columns at a time where the dtype allows it."""
    dtype = series.dtype
    if dtype.is_numeric() or isinstance(dtype, _FLOATED):
        return series.cast(pl.Float64)
    if isinstance(dtype, (pl.Categorical, pl.Enum)):
        series = series.cast(pl.String)
    field = Field(series.name, "number")
    if series.dtype != pl.String:
        return number_series(field, series.to_list(), place)
    parsed = series.cast(pl.Float64, strict=False)
    if parsed.null_count() == series.null_count():
        return parsed
    bare = series.str.strip_chars()
    parsed = bare.cast(pl.Float64, strict=False)
    odd = (parsed.is_null() & series.is_not_null() & (bare != "")).arg_true()
    if not len(odd):
        return parsed
    return parsed.scatter(odd, number_series(field, series.gather(odd).to_list(), lambda at: place(int(odd[at]))))


def float_texts(series: pl.Series) -> pl.Series:
    """Numbers with the shortest digits that read back the same, as Python spells them; null stays null."""
    texts = series.cast(pl.Float64).cast(pl.String)
    # Below 1e-4 polars writes 1e-7 or 0.00001 where Python writes 1e-07 and 1e-05.
    small = ((series.abs() < _SMALL) & (series != 0)).arg_true()
    return texts.scatter(small, list(map(repr, series.gather(small).to_list()))) if len(small) else texts


def _number_lists(field: Field, series: pl.Series, place: Place) -> pl.Series:
    dtype = series.dtype
    inner = dtype.inner if isinstance(dtype, (pl.List, pl.Array)) else None
    if inner is not None and (inner.is_numeric() or isinstance(inner, _FLOATED)):
        return series.cast(pl.List(pl.Float64))
    if inner is None and not dtype.is_nested():
        flat = numbers(series, place)
        one_each = flat.reshape((-1, 1)).arr.to_list() if len(flat) else flat.cast(pl.List(pl.Float64))
        return pl.select(pl.when(flat.is_not_null()).then(one_each)).to_series().alias(field.name)
    return number_series(field, series.to_list(), place)


# --- keys --------------------------------------------------------------------------------------------------

# Keys of mixed types are kept as JSON text, in a dtype of their own: a plain String "1" of another file
# is then visibly of another type, so that nobody concatenates it with the number 1 by accident.
JSON_TEXT: Final = pl.Categorical(pl.Categories("json", namespace="grpo_adv"))
_INT64: Final = range(-(2**63), 2**63)


def key_series(name: str, values: Sequence[object]) -> pl.Series:
    """Python values as a key column in which 1 and "1" stay different and lists compare by value."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {str} and _is_unicode(values):
        return pl.Series(name, values, dtype=pl.String)
    if kinds == {bool}:
        return pl.Series(name, values, dtype=pl.Boolean)
    if kinds == {int} and all(value is None or value in _INT64 for value in values):
        return pl.Series(name, values, dtype=pl.Int64)
    return pl.Series(name, _json_texts(values), dtype=pl.String).cast(JSON_TEXT)


def _is_unicode(values: Sequence[Any]) -> bool:
    # A lone surrogate is legal in JSON, and no polars string. It is rare, so it is looked for all at once.
    try:
        "".join(filter(None, values)).encode()
    except UnicodeEncodeError:
        return False
    return True


def joined_keys(name: str, parts: Sequence[pl.Series]) -> pl.Series:
    """Key columns of parts of a file as one, typed as `key_series` types all values at once."""
    dtypes = {part.dtype for part in parts if part.null_count() < len(part)}
    if len(dtypes) > 1:
        return pl.concat([canonical(part) for part in parts]).cast(JSON_TEXT).alias(name)
    dtype = next(iter(dtypes), pl.String())
    # Left in parts: in one piece the texts would be copied, and nothing that follows is faster for it.
    return pl.concat([part.cast(dtype) if part.dtype != dtype else part for part in parts]).alias(name)


def canonical(series: pl.Series) -> pl.Series:
    """A key column of any dtype as JSON text, so that keys of different dtypes can stand in one column."""
    dtype = series.dtype
    if dtype == JSON_TEXT or dtype.is_integer() or dtype == pl.Boolean:
        return series.cast(pl.String)
    if isinstance(dtype, (pl.Categorical, pl.Enum)):
        series = series.cast(pl.String)
    if series.dtype != pl.String:
        return pl.Series(series.name, _json_texts(series.to_list()), dtype=pl.String)
    quoted = pl.select(pl.lit('"') + series + pl.lit('"')).to_series().alias(series.name)
    odd = series.str.contains(r'["\\\x00-\x1f]').fill_null(value=False).arg_true()
    return quoted.scatter(odd, _json_texts(series.gather(odd).to_list())) if len(odd) else quoted


def json_text(value: object) -> str:
    """One spelling for equal values: sorted keys, no spaces, escapes only where there is no other way."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return text


def json_as_is(value: object) -> str:
    """JSON text of a value with its members in their own order, escapes only where there is no other way."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def _json_texts(values: Iterable[object]) -> list[str | None]:
    return [None if value is None else json_text(value) for value in values]


# --- what reaches a file -----------------------------------------------------------------------------------


def plain_keys(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with keys of the private JSON_TEXT dtype as plain text."""
    return frame.with_columns(series.cast(pl.String) for series in frame if series.dtype == JSON_TEXT)


def without_bytes(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with bytes as base64, which is all that JSON can hold."""
    return frame.with_columns(series.bin.encode("base64") for series in frame if isinstance(series.dtype, pl.Binary))


def texts_of_nested(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with text for what CSV cannot hold: nested columns as JSON, bytes as base64, durations as ISO 8601."""
    return without_bytes(frame).with_columns(
        series.dt.to_string("iso")
        if isinstance(series.dtype, pl.Duration)
        else pl.Series(series.name, _json_texts(series.to_list()), dtype=pl.String)
        for series in frame
        if series.dtype.is_nested() or isinstance(series.dtype, pl.Duration)
    )
