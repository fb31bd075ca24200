"""What Parquet and Arrow share: fields of nested columns, new columns as Arrow arrays, rows in another order."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from grpo_cli.errors import DataError
from grpo_cli.formats.cells import plain_keys
from grpo_cli.formats.paths import absent, resolve
from grpo_cli.formats.token_lists import with_lists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.interface import Field


STDERR: Final = 2
EACH: Final = "[]"  # the step from a list to its items
# What pyarrow and polars raise for a broken file; pyarrow decodes names of columns that are no UTF-8.
BROKEN: Final = (
    pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException, UnicodeDecodeError, OSError,
)  # fmt: skip


@contextmanager
def readable(source: Input, format_name: str) -> Iterator[None]:
    """Turn what pyarrow and polars say about a broken file into one line of ours."""
    if not source.pin.size:
        raise DataError(f"{source.name}: no rows", "the file is empty")
    try:
        yield
    except MemoryError:  # pyarrow's is an ArrowException as well
        raise
    except BROKEN as error:
        if getattr(error, "errno", None):  # the disk, not the file: pyarrow's own have no number
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise DataError(f"{source.name}: not {format_name} that can be read: {reason[:160]}") from error


@contextmanager
def panics_unprinted() -> Iterator[None]:
    """Keep what polars prints when it panics, many lines of its own code, from standard error: the exception says enough."""
    try:
        kept = os.dup(STDERR)
    except OSError:  # it is closed
        yield
        return
    with open(os.devnull, "wb") as nothing:  # noqa: PTH123 - a device
        os.dup2(nothing.fileno(), STDERR)
    try:
        yield
    finally:
        os.dup2(kept, STDERR)
        os.close(kept)


def frame_of(table: pa.Table) -> pl.DataFrame:
    """The table for polars; values that point out of their buffers, as in a broken file, would crash the process there."""
    table.validate(full=True)
    with panics_unprinted():
        frame = pl.from_arrow(table)
    return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()


def steps(source: Input, field: Field, schema: pa.Schema) -> list[str]:
    """The steps to a field: a column, then fields of its structs; `rollouts[]` are two, to the items of a list."""
    found = resolve(field.name, schema, _child)
    if found is None:
        raise absent(field.name, source, schema.names)
    return [step for name in found for step in ([name[:-2], EACH] if name.endswith(EACH) else [name])]


def _child(parent: Any, name: str) -> Any:
    if name.endswith(EACH):
        items = _child(parent, name[:-2])
        return items.value_type if items is not None and _is_list(items) else None
    if isinstance(parent, pa.Schema):
        return next((one.type for one in parent if one.name == name), None)
    if not pa.types.is_struct(parent):
        return None
    inner = (parent.field(at) for at in range(parent.num_fields))
    return next((one.type for one in inner if one.name == name), None)


def _is_list(dtype: Any) -> bool:
    is_list = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(dtype) for test in is_list) or "list_view" in str(dtype)


def reach(frame: pl.DataFrame, path: Sequence[str]) -> pl.Series:
    """The column, or the field of its structs, that the steps lead to; behind a list a list of the items' fields."""
    series = frame.get_column(path[0])
    for at, name in enumerate(path[1:], 2):
        if name == EACH:
            lists = series.arr.to_list() if isinstance(series.dtype, pl.Array) else series
            return lists.list.eval(reduce(lambda item, step: item.struct.field(step), path[at:], pl.element()))
        series = series.struct.field(name)
    return series


def json_texts(source: Input, frame: pl.DataFrame, columns: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """The values that the steps of each column lead to, as JSON texts; null stays null."""
    texts = {}
    for name, path in columns.items():
        series = reach(frame, path)
        if "Binary" in str(series.dtype):
            raise DataError(f"{source.name}: {name} holds bytes, which have no JSON text", "name another column")
        encoded = pl.select(pl.struct(series.alias("v")).struct.json_encode()).to_series()
        text = encoded.str.strip_prefix('{"v":').str.strip_suffix("}")
        texts[name] = pl.select(pl.when(series.is_not_null() & (text != "null")).then(text)).to_series()
    return pl.DataFrame(texts)


def place(source: Input) -> Callable[[int], str]:
    """How messages call a row of the file: by its number, from 1."""
    return lambda row: f"{source.name} row {row + 1}"


def arrow_columns(added: pl.DataFrame) -> pa.Table:
    """The new columns as Arrow arrays of types that every reader knows."""
    table = plain_keys(with_lists(added)).to_arrow(compat_level=pl.CompatLevel.oldest())
    types = [_plain(one.type) for one in table.schema]
    # A cast loads pyarrow.compute, which the shortest runs notice; numbers need none.
    return (
        table if types == table.schema.types else table.cast(pa.schema(list(map(pa.field, table.column_names, types))))
    )


def _plain(dtype: Any) -> Any:
    if pa.types.is_large_list(dtype):
        return pa.list_(_plain(dtype.value_type))
    return pa.string() if pa.types.is_large_string(dtype) or pa.types.is_dictionary(dtype) else dtype


def joined(table: pa.Table, new: pa.Table) -> pa.Table:
    """The table with the new columns behind its own, or in the place of those that have the same name."""
    for field, column in zip(new.schema, new.columns, strict=True):
        at = table.schema.get_field_index(field.name)
        table = table.append_column(field, column) if at < 0 else table.set_column(at, field, column)
    return table


def joined_schema(schema: pa.Schema, new: pa.Schema, metadata: Mapping[str, str]) -> pa.Schema:
    """The schema that `joined` leads to, with the file's own metadata and ours."""
    for field in new:
        at = schema.get_field_index(field.name)
        schema = schema.append(field) if at < 0 else schema.set(at, field)
    ours = {key.encode(): value.encode() for key, value in metadata.items()}
    return schema.with_metadata({**(schema.metadata or {}), **ours})


def fetch(
    take: np.ndarray, starts: np.ndarray, block: Callable[[int], pa.Table], most: int
) -> Iterator[tuple[pa.Table, int, int]]:
    """Source rows in output order: a table of at most `most` rows, which output row it begins with, and its height.

    `starts` are the first rows of the file's blocks; each block is read once for every such table.
    """
    for low in range(0, len(take), most):
        wanted = take[low : low + most]
        where = np.searchsorted(starts, wanted, side="right") - 1
        parts = [rows_of(block(int(b)), wanted[where == b] - starts[b]) for b in np.unique(where)]
        order = np.argsort(np.argsort(where, kind="stable"), kind="stable")
        yield rows_of(pa.concat_tables(parts), order), low, len(wanted)


def rows_of(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """Some rows of a table, in this order."""
    if np.array_equal(rows, np.arange(table.num_rows)):
        return table
    # pyarrow.array() of numbers from numpy would import pandas where it is installed.
    rows = np.ascontiguousarray(rows, np.int64)
    try:
        return table.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)]))
    except pa.ArrowNotImplementedError:
        # pyarrow cannot take from view types, which polars writes; runs of rows can always be cut out.
        runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
        return pa.concat_tables([table.slice(int(run[0]), len(run)) for run in runs])


def row_of(schema: pa.Schema) -> dict[str, Any]:
    """A made-up row with a value of its type in each column: the schema shows all that there is to know."""
    return {one.name: _value(one.type) for one in schema}


def _value(dtype: Any) -> Any:
    if pa.types.is_struct(dtype):
        inner = (dtype.field(at) for at in range(dtype.num_fields))
        return {one.name: _value(one.type) for one in inner}
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
