"""Whole columns of Python values as polars columns, for converting JSON to a typed format.

polars infers a struct from its first value and drops the fields that come later without a word, so the
type is worked out here, from all values, and pyarrow builds the column (a list of mixed numbers inside a
struct is refused by polars 2.1). What has no common type is kept as JSON text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa

from grpo_cli.formats import cells

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_EXACT: Final = 2**53
_MOST_FIELDS: Final = 500  # beyond that a dict is a table of its own, not a record
_SCALARS: Final[dict[type, pa.DataType]] = {bool: pa.bool_(), str: pa.large_string(), float: pa.float64()}


def series_of(name: str, values: Sequence[Any]) -> pl.Series:
    """Type a column by all its values, or keep it as text."""
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
    return None if value is None else cells.json_text(value)


def _common(values: Iterable[Any]) -> pa.DataType | None:
    """Find the dtype that holds all values without loss; none when there is no such dtype."""
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
    return _record(present) if kind is dict else _SCALARS.get(kind)


def _number(values: Sequence[Any], kinds: set[type]) -> pa.DataType | None:
    whole = [value for value in values if type(value) is int]
    low, high = min(whole), max(whole)
    if float in kinds:
        return pa.float64() if low >= -_EXACT and high <= _EXACT else None
    if low >= -(2**63):
        return pa.int64() if high < 2**63 else pa.uint64() if low >= 0 and high < 2**64 else None
    return None


def _record(rows: Sequence[dict[str, Any]]) -> pa.DataType | None:
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
    texts = [None if value is None else cells.json_text(value) for value in series.to_list()]
    return pl.Series(series.name, texts, dtype=pl.String)


def without_bytes(frame: pl.DataFrame) -> pl.DataFrame:
    """Spell bytes as base64, which is all that JSON can hold."""
    return frame.with_columns(_spelt(series) for series in frame if isinstance(series.dtype, pl.Binary))


def plain_keys(frame: pl.DataFrame) -> pl.DataFrame:
    """Turn the private dtype of JSON text keys into plain text before it reaches a file."""
    return frame.with_columns(series.cast(pl.String) for series in frame if series.dtype == cells.JSON_TEXT)
