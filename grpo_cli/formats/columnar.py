"""Code that Parquet and Arrow share: fields of nested columns, new columns as Arrow arrays, reordered rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial, reduce
from threading import Lock
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from grpo_cli.errors import DataError
from grpo_cli.files.inputs import Input
from grpo_cli.values.cells import field_of, named_frame, plain_keys, where
from grpo_cli.values.paths import absent, refuse_doubled, resolve
from grpo_cli.values.token_lists import with_lists

STDERR = 2
_LOCK = Lock()  # guards `_SILENT`
_SILENT: Final[list[int | None]] = []  # the saved descriptor, once for each active call of `stderr_silenced`
EACH = "[]"  # the step from a list to its items
# Errors of pyarrow and polars for a broken file; pyarrow also decodes column names, which may not be UTF-8.
BROKEN = (
    pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException, UnicodeDecodeError, OSError,
)  # fmt: skip


@contextmanager
def readable(source: Input, format_name: str) -> Iterator[None]:
    """Turn errors of pyarrow and polars about a broken file into one line."""
    if not source.pin.size:
        raise DataError(f"{source.name}: no rows", "the file is empty")
    try:
        yield
    except MemoryError:  # pyarrow's is an ArrowException as well
        raise
    except BROKEN as error:
        if getattr(error, "errno", None):  # a disk error, not a broken file: pyarrow's own errors have no number
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")[:160]
        cure = "does its suffix name its format, and was the copy complete?"
        raise DataError(f"{source.name}: not readable as {format_name}: {reason}", cure) from error


@contextmanager
def stderr_silenced() -> Iterator[None]:
    """Discard what is written to standard error, also below Python: polars prints a panic beside its exception."""
    with _LOCK:
        _SILENT.append(_SILENT[0] if _SILENT else _silenced())
    try:
        yield
    finally:
        with _LOCK:
            stderr = _SILENT.pop()
            if stderr is not None and not _SILENT:
                os.dup2(stderr, STDERR)
                os.close(stderr)


def _silenced() -> int | None:
    """Silence standard error; return a duplicate of its descriptor, or None if it is closed."""
    try:
        stderr = os.dup(STDERR)
    except OSError:
        return None
    with open(os.devnull, "wb") as nothing:  # noqa: PTH123 - a device
        os.dup2(nothing.fileno(), STDERR)
    return stderr


def frame_of(table: pa.Table, source: Input) -> pl.DataFrame:
    """The table for polars, validated: in a broken file, values outside their buffers would crash the process."""
    for column in table.schema:
        if "list_view<" in str(column.type):  # polars has none, and casts of pyarrow 26 give other values
            wrong = f"{column.name} has list views, which cannot be read"
            raise DataError(wrong, "write it as lists", place=source.name)
    table.validate(full=True)
    with stderr_silenced():
        return named_frame(table)


def steps(source: Input, names: Iterable[str], schema: pa.Schema) -> dict[str, list[str]]:
    """The steps to each name: a column, then fields of its structs; `rollouts[]` is two steps, to the items of a list."""
    columns = schema.names
    types = dict(zip(reversed(columns), reversed(schema.types), strict=True))  # of two with one name the first
    ways = dict[str, list[str]]()
    for name in names:
        found = resolve(name, types, partial(_child, source))
        if found is None:
            raise absent(name, source.name, columns)
        ways[name] = way = list[str]()
        for part in found:
            is_list = part.endswith(EACH) and part not in columns
            way += [part[:-2], EACH] if is_list else [part]
    refuse_doubled((way[0] for way in ways.values()), columns, source.name)
    return ways


def _child(source: Input, parent: Any, name: str) -> Any:
    if isinstance(parent, dict) and name in parent:
        return parent[name]
    if name.endswith(EACH):
        items = _child(source, parent, name[:-2])
        return items.value_type if items is not None and _is_list(items) else None
    if isinstance(parent, dict) or not pa.types.is_struct(parent):
        return None
    refuse_doubled([name], [child.name for child in parent], source.name, "fields")
    return next((child.type for child in parent if child.name == name), None)


def _is_list(dtype: Any) -> bool:
    return str(dtype).startswith(("list", "large_list", "fixed_size_list"))  # views of lists as well


def reach(frame: pl.DataFrame, path: Sequence[str]) -> pl.Series:
    """The column or struct field that the steps lead to; through a list, a list of the fields of its items."""
    series = frame.get_column(path[0]).alias("")
    for at, name in enumerate(path[1:], 2):
        if name == EACH:
            lists = series.arr.to_list() if isinstance(series.dtype, pl.Array) else series
            return _of_items(lists, path[at:])
        series = field_of(series, name)
    return series


def _of_items(lists: pl.Series, path: Sequence[str]) -> pl.Series:
    inner = reduce(field_of, path, lists.clear().explode()).dtype
    each = pl.element().map_batches(lambda items: reduce(field_of, path, items), inner, is_elementwise=True)
    return lists.list.eval(each)


def cells_of(
    frame: pl.DataFrame, columns: Mapping[str, Sequence[str]], source: Input, *, as_json: bool
) -> pl.DataFrame:
    """The values at the steps of each column, or their JSON texts; null stays null."""
    values = {name: reach(frame, path) for name, path in columns.items()}
    if not as_json:
        return pl.DataFrame(values)
    texts = {}
    for name, series in values.items():
        if "Binary" in str(series.dtype):
            raise DataError(
                f"{source.name}: {name} contains bytes, which cannot be written as JSON", "name another column"
            )
        encoded = pl.select(pl.struct(series.alias("v")).struct.json_encode()).to_series()
        text = encoded.str.strip_prefix('{"v":').str.strip_suffix("}")
        texts[name] = where(series.is_not_null() & (text != "null"), text)
    return pl.DataFrame(texts)


def table_of(frame: pl.DataFrame) -> pa.Table:
    """The frame for pyarrow, without the types that only new readers know."""
    return plain_keys(frame).to_arrow(compat_level=pl.CompatLevel.oldest())


def arrow_columns(added: pl.DataFrame) -> pa.Table:
    """The new columns as Arrow arrays of types that every reader knows."""
    table = table_of(with_lists(added))
    types = [_plain(column.type) for column in table.schema]
    if types == table.schema.types:
        return table  # a cast loads pyarrow.compute, which slows short runs; numbers need no cast
    return table.cast(pa.schema(list(map(pa.field, table.column_names, types))))


def _plain(dtype: Any) -> Any:
    if pa.types.is_large_list(dtype):
        return pa.list_(_plain(dtype.value_type))
    return pa.string() if pa.types.is_large_string(dtype) or pa.types.is_dictionary(dtype) else dtype


def joined(table: pa.Table, added: pl.DataFrame, at: int) -> pa.Table:
    """The table with its rows of the added columns, from row `at` on; a column with the same name is replaced in place."""
    new = arrow_columns(added[at : at + table.num_rows])
    for field, column in zip(new.schema, new.columns, strict=True):
        at = table.schema.get_field_index(field.name)
        table = table.append_column(field, column) if at < 0 else table.set_column(at, field, column)
    return table


def joined_schema(schema: pa.Schema, new: pa.Schema, metadata: Mapping[str, str]) -> pa.Schema:
    """The schema of the result of `joined`, with the metadata of the file and ours."""
    for field in new:
        at = schema.get_field_index(field.name)
        schema = schema.append(field) if at < 0 else schema.set(at, field)
    ours = {key.encode(): value.encode() for key, value in metadata.items()}
    return schema.with_metadata({**(schema.metadata or {}), **ours})


def fetch(
    take: np.ndarray, starts: np.ndarray, block: Callable[[int], pa.Table], most: int
) -> Iterator[tuple[pa.Table, int]]:
    """Source rows in output order: tables of at most `most` rows, each with its first output row.

    `starts` are the first rows of the file's blocks; each block is read once for every such table.
    """
    for low in range(0, len(take), most):
        wanted = take[low : low + most]
        where = np.searchsorted(starts, wanted, side="right") - 1
        parts = [rows_of(block(int(b)), wanted[where == b] - starts[b]) for b in np.unique(where)]
        order = np.argsort(np.argsort(where, kind="stable"), kind="stable")
        yield rows_of(pa.concat_tables(parts), order), low


def rows_of(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """Some rows of a table, in this order."""
    if np.array_equal(rows, np.arange(table.num_rows)):
        return table
    # pyarrow.array() of numbers from numpy would import pandas where it is installed.
    rows = np.ascontiguousarray(rows, np.int64)
    wanted = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])
    try:
        return table.take(wanted)
    except pa.ArrowNotImplementedError:  # of views, which polars writes
        schema = pa.schema([field.with_type(_without_views(field.type)) for field in table.schema])
        with suppress(pa.ArrowNotImplementedError):
            return table.cast(schema).take(wanted).cast(table.schema)
        return runs_of(table, rows)  # views in arrays and maps


def _without_views(dtype: Any) -> Any:
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(_without_views(field.type)) for field in dtype])
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return pa.large_list(_without_views(dtype.value_type))
    return {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(dtype, dtype)


def runs_of(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """Some rows of a table, as slices of consecutive rows; other rows are not touched."""
    runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    return pa.concat_tables([table.slice(int(run[0]), len(run)) for run in runs])


def row_of(schema: pa.Schema | pa.StructType) -> dict[str, Any]:
    """A made-up row with a value of the right type in each column, since the schema says everything."""
    return {field.name: _value(field.type) for field in schema}


def _value(dtype: Any) -> Any:
    if pa.types.is_struct(dtype):
        return row_of(dtype)
    if pa.types.is_map(dtype):
        return {}
    if _is_list(dtype):
        return [_value(dtype.value_type)]
    if pa.types.is_boolean(dtype):
        return True
    if pa.types.is_integer(dtype):
        return 1
    if pa.types.is_floating(dtype) or pa.types.is_decimal(dtype):
        return 1.0
    return None if pa.types.is_null(dtype) else ""
