"""Whole columns of Python values as polars columns, for converting JSON to a typed format.

polars infers a struct from its first value and drops the fields that come later without a word, so the
type is worked out here, from all values, and pyarrow builds the column (a list of mixed numbers inside a
struct is refused by polars 2.1). What has no common type is kept as JSON text.
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

    import pyarrow as pa

    Place = Callable[[int], str]


# Keys of mixed types are kept as JSON text, in a dtype of their own: a plain String "1" of another file
# is then visibly of another type, so that nobody concatenates it with the number 1 by accident.
JSON_TEXT: Final = pl.Categorical(pl.Categories("json", namespace="grpo_adv"))

_WORDS: Final = {"true": 1.0, "false": 0.0}
_SHOWN: Final = 40
_INT64: Final = range(-(2**63), 2**63)
_FLOATED: Final = (pl.Float64, pl.Boolean, pl.Null, pl.Decimal)


def as_number(value: object) -> float | None:
    """Read one Python value as a number; none stays none, and a blank string is none too."""
    match value:
        case None:
            return None
        case bool() | int() | float():
            return _finite_or_inf(value)
        case str():
            return _from_text(value)
        case [one]:
            return as_number(one)
    raise ValueError(value)


def _finite_or_inf(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


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
    return float(part) / _divisor(whole) if slash else float(bare)


def _divisor(text: str) -> float:
    """The lower part of a fraction such as 7/8."""
    if not text.strip().isdigit() or not float(text):
        raise ValueError(text)
    return float(text)


def as_numbers(value: object) -> list[float | None] | None:
    """Read a list of numbers; a plain number is a list of one."""
    if isinstance(value, list):
        return [as_number(item) for item in value]
    number = as_number(value)
    return None if number is None else [number]


def number_series(field: Field, values: Sequence[object], place: Place) -> pl.Series:
    """Type the Python values of a field of kind number or numbers."""
    convert: Callable[[object], object] = as_number if field.kind == "number" else as_numbers
    dtype = pl.Float64() if field.kind == "number" else pl.List(pl.Float64)
    try:
        return pl.Series(field.name, list(map(convert, values)), dtype=dtype)
    except (ValueError, TypeError):
        raise _first_refused(field, values, place, convert) from None


def _first_refused(
    field: Field, values: Sequence[object], place: Place, convert: Callable[[object], object]
) -> DataError:
    for row, value in enumerate(values):
        try:
            convert(value)
        except ValueError:
            return _not_a_number(field, value, place(row))
    return DataError(f"{place(0)}: {field.name} cannot be read as a {field.kind}")


def _not_a_number(field: Field, value: object, place: str) -> DataError:
    expected = "a number" if field.kind == "number" else "a list of numbers"
    text = repr(value)
    shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
    parts = " ".join(f"--reward {field.name}.{name}" for name in value) if isinstance(value, dict) else ""
    cure = f"name its parts, as {parts}" if parts else ""
    return DataError(f"{place}: {field.name} is {shown}, expected {expected}", cure)


def typed(field: Field, series: pl.Series, place: Place) -> pl.Series:
    """Give a column the type of its field; `place` names file and row for a message."""
    series = series.alias(field.name)
    if field.kind == "key":
        return series
    return numbers(series, place) if field.kind == "number" else _number_lists(field, series, place)


def numbers(series: pl.Series, place: Place) -> pl.Series:
    """Read a typed column as Float64, vectorised by dtype."""
    dtype = series.dtype
    if dtype.is_numeric() or isinstance(dtype, _FLOATED):
        return series.cast(pl.Float64)
    if isinstance(dtype, (pl.Categorical, pl.Enum)):
        series = series.cast(pl.String)
    if series.dtype == pl.String:
        return _parsed(series, place)
    return number_series(Field(series.name, "number"), series.to_list(), place)


def _parsed(series: pl.Series, place: Place) -> pl.Series:
    bare = series.str.strip_chars()
    parsed = bare.cast(pl.Float64, strict=False)
    doubtful = (parsed.is_null() & series.is_not_null() & (bare != "")).arg_true()
    if not len(doubtful):
        return parsed
    values = series.gather(doubtful).to_list()
    read = number_series(Field(series.name, "number"), values, lambda at: place(int(doubtful[at])))
    return parsed.scatter(doubtful, read)


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


def key_series(name: str, values: Sequence[object]) -> pl.Series:
    """Type the Python values of a key so that 1 and "1" stay different and lists compare by value."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {str} and _encodable(values):
        return pl.Series(name, values, dtype=pl.String)
    if kinds == {bool}:
        return pl.Series(name, values, dtype=pl.Boolean)
    if kinds == {int} and all(value is None or value in _INT64 for value in values):
        return pl.Series(name, values, dtype=pl.Int64)
    texts = [None if value is None else json_text(value) for value in values]
    return pl.Series(name, texts, dtype=pl.String).cast(JSON_TEXT)


def joined_keys(name: str, parts: Sequence[pl.Series]) -> pl.Series:
    """Put the parts of a key together so that the whole is typed as `key_series` types all values at once."""
    filled = [part for part in parts if part.null_count() < len(part)]
    dtypes = {part.dtype for part in filled}
    if len(dtypes) > 1:
        return pl.concat([canonical(part) for part in parts]).cast(JSON_TEXT).alias(name)
    dtype = next(iter(dtypes), pl.String())
    # Left in parts: in one piece the texts would be copied, and nothing that follows is faster for it.
    return pl.concat([part.cast(dtype) if part.dtype != dtype else part for part in parts]).alias(name)


def _encodable(values: Sequence[Any]) -> bool:
    # A lone surrogate is legal in JSON, and no polars string. It is rare, so it is looked for all at once.
    try:
        "".join(filter(None, values)).encode()
    except UnicodeEncodeError:
        return False
    return True


def json_text(value: object) -> str:
    """One spelling for equal values: sorted keys, no spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return text


def canonical(series: pl.Series) -> pl.Series:
    """JSON text of a key of any dtype, so that keys of different dtypes can stand in one column."""
    dtype = series.dtype
    if dtype == JSON_TEXT or dtype.is_integer() or dtype == pl.Boolean:
        return series.cast(pl.String)
    if isinstance(dtype, (pl.Categorical, pl.Enum)):
        series = series.cast(pl.String)
    if series.dtype == pl.String:
        return _quoted(series)
    texts = [None if value is None else json_text(value) for value in series.to_list()]
    return pl.Series(series.name, texts, dtype=pl.String)


def _quoted(series: pl.Series) -> pl.Series:
    plain = pl.select(pl.lit('"') + series + pl.lit('"')).to_series().alias(series.name)
    odd = series.str.contains(r'["\\\x00-\x1f]').fill_null(value=False).arg_true()
    if not len(odd):
        return plain
    return plain.scatter(odd, [json_text(text) for text in series.gather(odd).to_list()])


_EXACT: Final = 2**53
_MOST_FIELDS: Final = 500  # beyond that a dict is a table of its own, not a record


def series_of(name: str, values: Sequence[Any]) -> pl.Series:
    """Type a column by all its values, or keep it as text."""
    import pyarrow as pa

    dtype = _common(values)
    if dtype is not None:
        try:
            return pl.Series(name, pa.array(values, dtype))
        except (pa.ArrowException, UnicodeEncodeError):
            pass
    return pl.Series(name, list(map(_text, values)), dtype=pl.String)


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return None if value is None else json_text(value)


def _common(values: Iterable[Any]) -> pa.DataType | None:
    """Find the dtype that holds all values without loss; none when there is no such dtype."""
    import pyarrow as pa

    present = [value for value in values if value is not None]
    kinds = set(map(type, present))
    if not kinds:
        return pa.large_string()  # a null type inside lists of structs leaves polars 2.1 as an invalid array
    if kinds <= {int, float} and int in kinds:
        return _number(present, kinds)
    if len(kinds) > 1:
        return None
    (kind,) = kinds
    if kind is list:
        inner = _common(item for row in present for item in row)
        return None if inner is None else pa.large_list(inner)
    if kind is dict:
        return _record(present)
    return {bool: pa.bool_(), str: pa.large_string(), float: pa.float64()}.get(kind)


def _number(values: Sequence[Any], kinds: set[type]) -> pa.DataType | None:
    import pyarrow as pa

    whole = [value for value in values if type(value) is int]
    low, high = min(whole), max(whole)
    if float in kinds:
        return pa.float64() if low >= -_EXACT and high <= _EXACT else None
    if low >= -(2**63):
        return pa.int64() if high < 2**63 else pa.uint64() if low >= 0 and high < 2**64 else None
    return None


def _record(rows: Sequence[dict[str, Any]]) -> pa.DataType | None:
    import pyarrow as pa

    names = list(dict.fromkeys(name for row in rows for name in row))
    if not 0 < len(names) <= _MOST_FIELDS:
        return None
    dtypes = {name: _common(row.get(name) for row in rows) for name in names}
    known = [pa.field(name, dtype) for name, dtype in dtypes.items() if dtype is not None]
    return pa.struct(known) if len(known) == len(dtypes) else None


def texts_of_nested(frame: pl.DataFrame) -> pl.DataFrame:
    """Spell what has no plain text: nested columns as JSON, bytes as base64, durations as ISO 8601."""
    return frame.with_columns(_spelt(series) for series in frame if not _has_text(series.dtype))


def _has_text(dtype: pl.DataType) -> bool:
    return not dtype.is_nested() and not isinstance(dtype, (pl.Binary, pl.Duration))


def _spelt(series: pl.Series) -> pl.Series:
    if isinstance(series.dtype, pl.Binary):
        return series.bin.encode("base64")
    if isinstance(series.dtype, pl.Duration):
        return series.dt.to_string("iso")
    texts = [None if value is None else json_text(value) for value in series.to_list()]
    return pl.Series(series.name, texts, dtype=pl.String)


def without_bytes(frame: pl.DataFrame) -> pl.DataFrame:
    """Spell bytes as base64, which is all that JSON can hold."""
    return frame.with_columns(_spelt(series) for series in frame if isinstance(series.dtype, pl.Binary))


def plain_keys(frame: pl.DataFrame) -> pl.DataFrame:
    """Turn the private dtype of JSON text keys into plain text before it reaches a file."""
    return frame.with_columns(series.cast(pl.String) for series in frame if series.dtype == JSON_TEXT)
