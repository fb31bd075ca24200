"""From the cells of any format to typed columns, and back to text: every format reads and writes by these rules.

Three sections: numbers, keys, and what is written to a file. `column_types` types all other columns.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import wraps
from typing import Any, BinaryIO, Concatenate, Literal, NamedTuple, ParamSpec

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, Way

Place = Callable[[int], str]  # file and row of a cell, for a message
P = ParamSpec("P")


Kind = Literal["number", "numbers", "lists", "key"]


@dataclass(frozen=True)
class Field:
    """A column to read. The name may be a dotted path; a column that has the whole name wins."""

    name: str
    kind: Kind


class Excerpt(NamedTuple):
    """Some columns of single rows in ascending order, as JSON texts or as values; `index` says where the rows of the file are.

    `lists`: the values are lists of numbers, where a format may as well give the JSON texts.
    """

    index: Any
    numbers: np.ndarray
    columns: Sequence[str]
    as_json: bool = False
    lists: bool = False


def typed(field: Field, series: pl.Series, place: Place) -> pl.Series:
    """Convert a column to the kind of its field: Float64, lists of Float64; a key, or lists that are checked later, stay as they are."""
    if field.kind in {"key", "lists"}:
        return series.alias(field.name)
    convert = numbers if field.kind == "number" else _number_lists
    return convert(field, series.alias(""), place).alias(field.name)


def nameless(
    function: Callable[Concatenate[pl.Series, P], pl.Series],
) -> Callable[Concatenate[pl.Series, P], pl.Series]:
    """The function, which sees a column without its name: polars takes a name such as ^a$ for a pattern, in methods of a column too."""

    @wraps(function)
    def apply(series: pl.Series, /, *more: P.args, **options: P.kwargs) -> pl.Series:
        return function(series.alias(""), *more, **options).alias(series.name)

    return apply


def field_of(series: pl.Series, name: str) -> pl.Series:
    """A field of a struct, without a name: `struct.field` takes it for a pattern."""
    return series.struct.unnest()[name].alias("")


def named_frame(table: Any) -> pl.DataFrame:
    """The table for polars, which would rename a column without a name."""
    frame = pl.DataFrame(table)
    frame.columns = table.column_names
    return frame


# --- numbers -----------------------------------------------------------------------------------------------

_WORDS = {"true": 1.0, "false": 0.0}
_FLOATED = (pl.Float64, pl.Boolean, pl.Null, pl.Decimal)
_SHOWN = 40  # characters of a value in a message
_SMALL = 1e-4  # polars and Python write smaller numbers in different ways
_CURES = (
    "name a column of numbers",
    Way("--map", why="gives each text of a reward a number (nan: no reward)", fill="TEXT=NUMBER,..."),
    Way("--reward", why="takes a part of an object", fill="COL.PART"),
)


def as_number(value: object) -> float | None:
    """One Python value as a number; None for null and for a blank string, ValueError for anything else.

    An integer beyond the range of floats is infinite. A list with one value counts as that value.
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
        case [item]:
            return as_number(item)
    raise ValueError(value)


def _from_text(text: str) -> float | None:
    bare = text.strip()
    if not bare:
        return None
    word = _WORDS.get(bare.lower())
    if word is not None:
        return word
    if "_" in bare or not bare.isascii():  # Python accepts these as numbers, but no file means them as such
        raise ValueError(text)
    part, slash, whole = bare.partition("/")
    if not slash:
        return float(bare)
    if not whole.strip().isdigit() or not float(whole):  # 7/8 is a fraction, 7/0 and 7/-8 are not
        raise ValueError(text)
    return float(part) / float(whole)


def are_numbers(values: Iterable[object]) -> bool:
    """Whether some of these values are numbers or truths, and all others are null."""
    try:
        numbers = [as_number(value) for value in values]
    except ValueError:
        return False
    return any(number is not None for number in numbers)


def as_numbers(value: object) -> list[float | None] | None:
    """A list of numbers; a plain number is a list with one item."""
    if isinstance(value, list):
        return [as_number(item) for item in value]
    number = as_number(value)
    return None if number is None else [number]


def number_series(field: Field, values: Sequence[object], place: Place) -> pl.Series:
    """Python values as the column of a field of kind number or numbers."""
    convert = as_number if field.kind == "number" else as_numbers
    dtype = pl.Float64() if field.kind == "number" else pl.List(pl.Float64)
    try:
        return pl.Series(field.name, list(map(convert, values)), dtype=dtype)
    except (ValueError, TypeError):
        raise _not_numbers(field, values, place, convert) from None


def _not_numbers(
    field: Field, values: Sequence[object], place: Place, convert: Callable[[object], object]
) -> DataError:
    """The error for the first value that cannot be converted."""
    for row, value in enumerate(values):
        try:
            convert(value)
        except ValueError:
            text = repr(value)
            shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
            expected = "a number" if field.kind == "number" else "a list of numbers"
            return DataError(f"{field.name} is {shown}, expected {expected}", _CURES, place=place(row))
    return DataError(f"{field.name} cannot be read as a {field.kind}", place=place(0))


def numbers(field: Field, series: pl.Series, place: Place) -> pl.Series:
    """A column of any dtype as Float64, whole columns at a time where the dtype allows it."""
    dtype = series.dtype
    if dtype.is_numeric() or isinstance(dtype, _FLOATED):
        return series.cast(pl.Float64)
    if isinstance(dtype, (pl.Categorical, pl.Enum)):
        series = series.cast(pl.String)
    if series.dtype != pl.String:
        return number_series(field, series.to_list(), place)
    parsed = series.cast(pl.Float64, strict=False)
    if parsed.null_count() == series.null_count():  # no spaces, fractions or words: a third of the time
        return parsed
    bare = series.str.strip_chars()
    parsed = bare.cast(pl.Float64, strict=False)
    odd = (parsed.is_null() & series.is_not_null() & (bare != "")).arg_true()
    return parsed.scatter(odd, number_series(field, series.gather(odd).to_list(), lambda at: place(int(odd[at]))))


@nameless
def float_texts(series: pl.Series) -> pl.Series:
    """Numbers with the fewest digits that read back the same, as Python writes them; null stays null."""
    series = series.cast(pl.Float64)  # the Float32 nearest to 1e-4 is below it only as a Float64
    texts = series.cast(pl.String)
    # Below 1e-4 polars writes 1e-7 or 0.00001 where Python writes 1e-07 and 1e-05.
    small = ((series.abs() < _SMALL) & (series != 0)).arg_true()
    return texts.scatter(small, list(map(repr, series.gather(small).to_list()))) if len(small) else texts


def _number_lists(field: Field, series: pl.Series, place: Place) -> pl.Series:
    dtype = series.dtype
    inner = dtype.inner if isinstance(dtype, (pl.List, pl.Array)) else None
    if inner is not None and (inner.is_numeric() or isinstance(inner, _FLOATED)):
        return series.cast(pl.List(pl.Float64))
    if inner is None and not dtype.is_nested():
        flat = numbers(Field(field.name, "number"), series, place)
        one_each = flat.reshape((-1, 1)).arr.to_list() if len(flat) else flat.cast(pl.List(pl.Float64))
        return where(flat.is_not_null(), one_each)
    return number_series(field, series.to_list(), place)


# --- keys --------------------------------------------------------------------------------------------------

# Keys of several types share a column as text, in a dtype of its own: it cannot be concatenated by accident with a plain
# String "1" of another file. docs/guarantees.md defines which keys are equal. The text is JSON; a value that JSON has no
# type for has its type as a prefix, as in date:2024-01-01.
JSON_TEXT = pl.Categorical(pl.Categories("json", namespace="grpo_adv"))
_INT64 = range(-(2**63), 2**63)
_NANOSECONDS = {"ms": 10**6, "us": 10**3, "ns": 1}
_YEARS_1_TO_9999 = (
    -62_135_596_800 * 10**9,
    253_402_300_800 * 10**9 - 1,
)  # their first and last nanosecond, counted from 1970
_DAY = 86_400 * 10**9
# Floats can be written in several ways, and a null field is the same as a missing one.
_TYPE = re.compile("^[a-z]+:")  # the prefix of a value that JSON has no type for
_OTHER_WAYS = frozenset({float, type(None)})
_NESTED = frozenset({list, dict})


def key_series(name: str, values: Sequence[object]) -> pl.Series:
    """Values of JSON as a key column in which 1 and "1" stay different and lists compare by value."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {str} and is_unicode(values):
        return pl.Series(name, values, dtype=pl.String)
    if kinds == {bool}:
        return pl.Series(name, values, dtype=pl.Boolean)
    if kinds == {int} and all(value is None or value in _INT64 for value in values):
        return pl.Series(name, values, dtype=pl.Int64)
    texts = [None if value is None else key_text(value) for value in values]
    return pl.Series(name, texts, dtype=pl.String).cast(JSON_TEXT)


def is_unicode(texts: Iterable[Any]) -> bool:
    """Whether these texts fit into a column: JSON allows lone surrogates. They are rare, so one search covers all texts."""
    try:
        "".join(filter(None, texts)).encode()
    except UnicodeEncodeError:
        return False
    return True


def joined_keys(name: str, parts: Sequence[pl.Series]) -> pl.Series:
    """Key columns of files, or of parts of a file, as one: of their common type, or as text where they have none."""
    dtypes = {part.dtype for part in parts if part.null_count() < len(part)}
    dtype = _common(dtypes or {part.dtype for part in parts} - {pl.Null()} or {pl.String()})
    if dtype is None:
        return pl.concat([canonical(part) for part in parts]).cast(JSON_TEXT).alias(name)
    # Left in parts: in one piece the texts would be copied, and nothing that follows is faster for it.
    return pl.concat([_as(part, dtype) for part in parts]).alias(name)


def _common(dtypes: Collection[pl.DataType]) -> pl.DataType | None:
    """The type that holds the keys of all these types as they are."""
    if len(dtypes) == 1:
        return next(iter(dtypes))
    if all(dtype.is_integer() for dtype in dtypes):
        wide = {pl.UInt64(), pl.Int128(), pl.UInt128()} & {*dtypes}
        return pl.Int64() if not wide else None if pl.UInt128() in wide else pl.Int128()
    if all(dtype.is_float() for dtype in dtypes):
        return pl.Float64()
    is_text = all(dtype != JSON_TEXT and isinstance(dtype, (pl.String, pl.Categorical, pl.Enum)) for dtype in dtypes)
    return pl.String() if is_text else None


def _as(part: pl.Series, dtype: pl.DataType) -> pl.Series:
    if part.dtype == dtype:
        return part
    if part.null_count() == len(part):
        return pl.Series([], dtype=dtype).clear(len(part))
    return part.cast(dtype)


@nameless
def canonical(series: pl.Series) -> pl.Series:
    """A key column of any dtype as text that is the same for equal keys, whatever their dtypes, and differs for all others."""
    dtype = series.dtype
    if dtype.is_extension():
        return canonical(series.ext.storage())
    if dtype == JSON_TEXT or dtype.is_integer() or isinstance(dtype, (pl.Boolean, pl.Null)):
        return series.cast(pl.String)
    if isinstance(dtype, (pl.String, pl.Categorical, pl.Enum)):
        texts = series.cast(pl.String)
        quoted = pl.select(pl.lit('"') + texts + pl.lit('"')).to_series()
        odd = texts.str.contains(r'["\\\x00-\x1f]').fill_null(value=False).arg_true()
        return quoted.scatter(odd, [json_text(text) for text in texts.gather(odd)]) if len(odd) else quoted
    if dtype.is_float() or dtype.is_decimal():
        spell = _float_text if dtype.is_float() else decimal_text
        spelled = [None if value is None else spell(value) for value in series.to_list()]
        return pl.Series(spelled, dtype=pl.String)
    if dtype.is_nested():
        return _nested_texts(series)
    if dtype.is_temporal():
        return _time_texts(series)
    if isinstance(dtype, pl.Binary):
        return "bytes:" + series.bin.encode("base64")
    raise DataError(f"a column of the type {dtype} cannot be a key", "name another column")


def _nested_texts(series: pl.Series) -> pl.Series:
    """Lists and structs as JSON text of their canonical items; of a struct its non-null fields, sorted by name."""
    if isinstance(series.dtype, pl.Map):
        series = series.cast(pl.List(pl.Struct({"key": series.dtype.key, "value": series.dtype.value})))
    if isinstance(series.dtype, pl.Array):
        series = series.arr.to_list()
    if isinstance(series.dtype, pl.List):
        items = pl.element().map_batches(
            lambda inner: canonical(inner).fill_null("null"), pl.String, is_elementwise=True
        )
        whole = pl.lit("[") + series.list.eval(items).list.join(",") + pl.lit("]")
    else:
        names = sorted(series.struct.fields)
        fields = [pl.lit(f"{json_text(name)}:") + canonical(field_of(series, name)) for name in names]
        inside = pl.concat_str(fields, separator=",", ignore_nulls=True) if fields else pl.lit("")
        whole = pl.when(series.is_not_null()).then(pl.lit("{") + inside + pl.lit("}"))
    return pl.select(whole).to_series()


def _time_texts(series: pl.Series) -> pl.Series:
    """Dates, times, instants and durations in words that do not depend on the unit: no fraction ends in 0."""
    dtype = series.dtype
    if isinstance(dtype, pl.Duration):
        return "duration:" + series.dt.to_string("iso")
    form = "%Y-%m-%dT%H:%M:%S%.f"
    plain = dtype
    unit = 1
    if isinstance(dtype, pl.Date):
        form = "%Y-%m-%d"
        unit = _DAY
    elif isinstance(dtype, pl.Time):
        form = "%H:%M:%S%.f"
    elif isinstance(dtype, pl.Datetime):
        plain, unit = pl.Datetime(dtype.time_unit), _NANOSECONDS[dtype.time_unit]  # in UTC, whatever its zone
    count = pl.lit(series.to_physical())
    nanoseconds = count.cast(pl.Int128) * unit
    # Beyond these years polars ends the process: it has no calendar for them.
    known = pl.when(nanoseconds.is_between(*_YEARS_1_TO_9999)).then(count).cast(plain)
    text = known.dt.to_string(form).str.replace(r"(\.\d+?)0+$", "${1}")
    return f"{_kind(dtype)}:" + pl.select(pl.coalesce(text, nanoseconds.cast(pl.String))).to_series()


def _kind(dtype: pl.DataType) -> str:
    """The prefix of a canonical text that is not JSON."""
    if isinstance(dtype, pl.Datetime):
        return "instant" if dtype.time_zone else "datetime"
    return type(dtype).__name__.lower()


def where(holds: pl.Series, values: pl.Series | pl.Expr) -> pl.Series:
    """The values where this holds, else null."""
    return pl.select(pl.when(holds).then(values)).to_series().alias("")


def bare_texts(keys: pl.Series) -> pl.Series:
    """Keys as texts, without the quotes of JSON."""
    return keys if keys.dtype == pl.String else canonical(keys).str.strip_chars('"')


def words(key: pl.Series) -> str:
    """The first key of a column in words. Python's own have neither nanoseconds nor every year."""
    if _holds(key.dtype, _is_beyond_json) and not _is_bytes(key.dtype):
        return (canonical(key)[0] or "null").removeprefix(f"{_kind(key.dtype)}:")
    return str(key.to_list()[0])


def key_text(value: object) -> str:
    """The canonical text of one value of JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text if is_unicode([text]) and not _has_other_ways(value) else _key_text(value)


def _has_other_ways(value: Any) -> bool:
    """Whether a value is or contains, at any depth, a null or a float. Texts are not inspected: they can be long."""
    left: list[Collection[Any]] = [[value]]
    while left:
        values = left.pop()
        kinds = set(map(type, values))
        if not kinds.isdisjoint(_OTHER_WAYS):
            return True
        if not kinds.isdisjoint(_NESTED):
            left += (value.values() if type(value) is dict else value for value in values if type(value) in _NESTED)
    return False


def _key_text(value: object) -> str:
    match value:
        case float():
            return _float_text(value)
        case list():
            return f"[{','.join(map(_key_text, value))}]"
        case dict():
            fields = (
                f"{json_text(name)}:{_key_text(value[name])}" for name in sorted(value) if value[name] is not None
            )
            return f"{{{','.join(fields)}}}"
    return json_text(value)


def _float_text(value: float) -> str:
    """A whole float as an integer; a fraction with the fewest decimal digits that read back the same."""
    if not math.isfinite(value):
        return json_text(value)
    return str(int(value)) if value.is_integer() else decimal_text(Decimal(repr(value)))


def decimal_text(value: Decimal) -> str:
    """The canonical text of a decimal number."""
    if not value:
        return "0"  # whatever its sign
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def json_text(value: object) -> str:
    """JSON text of a value that is no key: sorted keys, no spaces, escapes only where they are needed."""
    return json_as_is(value, sort_keys=True, separators=(",", ":"), default=str)


def json_as_is(value: object, **style: Any) -> str:
    """JSON text of a value with its fields in their own order, escapes only where they are needed."""
    text = json.dumps(value, ensure_ascii=False, **style)
    return text if is_unicode([text]) else json.dumps(value, **style)


# --- what is written to a file -----------------------------------------------------------------------------


def plain_keys(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with keys of several types, whose dtype JSON_TEXT is private, as text: texts as they are, others as JSON."""
    return frame.with_columns(_plain(series) for series in frame if series.dtype == JSON_TEXT)


@nameless
def _plain(keys: pl.Series) -> pl.Series:
    texts = keys.cast(pl.String)
    each = texts.drop_nulls().unique()
    plain = [json.loads(text) if text.startswith('"') else _TYPE.sub("", text) for text in each]
    return texts.replace_strict(each, pl.Series(plain, dtype=pl.String), return_dtype=pl.String)


def write_lines(frame: pl.DataFrame, sink: BinaryIO) -> None:
    """Write each row as a line of JSON; keys of several types keep their types."""
    if JSON_TEXT in frame.dtypes:
        sink.writelines(f"{line}\n".encode() for line in json_objects(frame))
    else:
        frame.write_ndjson(sink)


def json_objects(frame: pl.DataFrame) -> pl.Series:
    """Each row as a JSON object, as polars writes lines; keys of several types keep their types."""
    fields = list[pl.Series]()
    for name, series in zip(frame.columns, frame, strict=True):
        values = series.alias("")
        if series.dtype == JSON_TEXT:
            texts = values.cast(pl.String).fill_null("null").str.replace(f"{_TYPE.pattern}(.*)$", '"${1}"')
        else:
            objects = pl.select(pl.struct(values.alias("v")).struct.json_encode()).to_series()
            texts = objects.str.strip_prefix('{"v":').str.strip_suffix("}")
        fields.append(f"{json_text(name)}:" + texts)
    return pl.select(pl.lit("{") + pl.concat_str(fields, separator=",") + pl.lit("}")).to_series()


def without_bytes(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with bytes at any depth as base64, and keys of maps as text, since JSON has nothing else for them."""
    return frame.with_columns(_as_texts(series, _is_bytes) for series in frame if _holds(series.dtype, _is_bytes))


def texts_of_nested(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with text for what CSV has no type for: nested columns as JSON, bytes as base64, durations as ISO 8601."""
    texts = list[pl.Series]()
    for series in frame:
        if isinstance(series.dtype, pl.Duration):
            texts.append(series.alias("").dt.to_string("iso").alias(series.name))
        elif series.dtype.is_nested():
            values = _as_texts(series, _is_beyond_json) if _holds(series.dtype, _is_beyond_json) else series
            cells = [None if value is None else json_text(value) for value in values.to_list()]
            texts.append(pl.Series(series.name, cells, dtype=pl.String))
    return without_bytes(frame).with_columns(texts)


def _is_bytes(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.Binary)


def _is_beyond_json(dtype: pl.DataType) -> bool:
    """Whether values are dates, times or bytes: as values of Python they would lose their nanoseconds."""
    return isinstance(dtype, pl.Binary) or dtype.is_temporal()


def _holds(dtype: pl.DataType, is_text: Callable[[pl.DataType], bool]) -> bool:
    """Whether `_as_texts` changes some of a column of this type."""
    return _as_texts(pl.Series([], dtype=dtype), is_text).dtype != dtype


@nameless
def _as_texts(series: pl.Series, is_text: Callable[[pl.DataType], bool]) -> pl.Series:
    """The column with texts for values of these types, at any depth, and for keys of maps."""
    dtype = series.dtype
    if isinstance(dtype, pl.Array):
        lists = series.arr.to_list()
        texts = _as_texts(lists, is_text)
        return series if texts.dtype == lists.dtype else texts
    if isinstance(dtype, pl.Map):
        entries = _as_texts(series.cast(pl.List(pl.Struct({"key": dtype.key, "value": dtype.value}))), is_text)
        value = _as_texts(pl.Series([], dtype=dtype.value), is_text).dtype
        texts = entries.cast(pl.Map(pl.String(), value))
    elif isinstance(dtype, pl.List):
        inner = _as_texts(pl.Series([], dtype=dtype.inner), is_text).dtype
        each = pl.element().map_batches(lambda items: _as_texts(items, is_text), inner, is_elementwise=True)
        texts = series.list.eval(each)
    elif isinstance(dtype, pl.Struct):
        fields = [_as_texts(field, is_text) for field in series.struct.unnest()]
        texts = where(series.is_not_null(), pl.struct(fields))
    elif is_text(dtype):
        texts = canonical(series).str.replace(r"^\w+:", "")
        if isinstance(dtype, pl.Datetime) and dtype.time_zone:
            texts += "Z"
    else:
        return series
    return texts


def frame_of_rows(rows: Iterable[Sequence[Any]], wanted: Excerpt) -> pl.DataFrame:
    """Rows of JSON texts, or of values of any kind, as a frame. From a list, polars would rename a column without a name."""
    dtype = pl.String() if wanted.as_json else pl.Object()
    columns = zip(wanted.columns, zip(*rows, strict=True), strict=True)
    return pl.DataFrame({name: pl.Series(values, dtype=dtype) for name, values in columns})
