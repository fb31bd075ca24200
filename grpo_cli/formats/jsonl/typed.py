"""JSON lines as typed columns, for another format: first the types of the whole file, then its blocks with these types.

If the output can be started again, the types of the first blocks are tried on all others before all are read twice.
pyarrow reads the blocks. It is as strict as Python's parser: values of two kinds, a field that is named twice or half
a surrogate pair are errors, and such a block is read line by line. Its differences are checked: integers in a column
of floats that are not exact as floats, texts that are not UTF-8, and several objects on a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.json as pj

from grpo_cli.files.inputs import Input
from grpo_cli.formats.blocks import BOM, Block, again, blocks
from grpo_cli.formats.interface import TypesDiffer
from grpo_cli.formats.jsonl.lines import last_braces, number_at, rows_at
from grpo_cli.parallel import ahead
from grpo_cli.values.cells import named_frame
from grpo_cli.values.column_types import EXACT, Contents, refuse_broken_names, typed_series, with_inner_texts
from grpo_cli.values.json_text import refuse_doubled_inside
from grpo_cli.values.slices import Exported

Types = Mapping[str, pa.DataType | None]  # None is for the texts of values that have no common type

_MOST = 2**31 - 1  # bytes that pyarrow takes for a block
FIRST = 8  # blocks
_ONE_TYPE = ("chosen", "rejected")  # exported fields, which need a common type
_OTHERWISE = (pa.ArrowException, pl.exceptions.PolarsError, UnicodeError)


class _Unsure(Exception):
    """pyarrow may read the block differently from Python's parser."""


def parts(source: Input, size: int, first: int | None = None, *, inner_texts: bool) -> Iterator[pl.DataFrame]:
    """The whole file as typed columns, a frame per block; values without a common type stay JSON text.

    Normally the whole column stays text; with `inner_texts` only the fields without a common type, so chosen and rejected
    share a type. With `first` each block is read once; TypesDiffer if one does not have the types of the first blocks.
    """
    sizes, types = _types(source, islice(blocks(source, size), first), inner_texts=inner_texts)
    if first is None:
        return ahead(partial(_frame, source, types), again(source, sizes))
    return ahead(partial(_frame_like_first, types), blocks(source, size))


def _types(source: Input, some: Iterable[Block], *, inner_texts: bool) -> tuple[list[int], Types]:
    """The sizes of these blocks, and the types that fit all their values."""
    columns: dict[str, Contents] = {}
    sizes = []
    for size, found in ahead(partial(_contents, source), some):
        sizes.append(size)
        for name, contents in found.items():
            columns.setdefault(name, Contents()).add(contents)
    refuse_broken_names(columns, source.name)
    if inner_texts and columns.keys() >= {*_ONE_TYPE}:
        for name in _ONE_TYPE[1:]:
            columns[_ONE_TYPE[0]].add(columns[name])
        columns |= dict.fromkeys(_ONE_TYPE, columns[_ONE_TYPE[0]])
    return sizes, {name: contents.type(inner_texts=inner_texts) for name, contents in columns.items()}


def _contents(source: Input, block: Block) -> tuple[int, dict[str, Contents]]:
    """The size of a block, and the contents of each column in it."""
    data = block.read()
    try:
        table = _checked(data, pj.ParseOptions())
        return len(data), dict(zip(table.column_names, map(_contents_of, _arrays(table)), strict=True))
    except (_Unsure, *_OTHERWISE):
        found = _exact_rows(source, block, data)
        names = dict.fromkeys(name for row in found for name in row)
        return len(data), {name: Contents.of(row.get(name) for row in found) for name in names}


def _frame(source: Input, types: Types, block: Block) -> pl.DataFrame:
    """A block with columns of these types."""
    data = block.read()
    try:
        return named_frame(_table(data, _options(types)))
    except (_Unsure, *_OTHERWISE):
        found = _exact_rows(source, block, data)
        columns = {}
        for name, dtype in types.items():
            values = [row.get(name) for row in found]
            fitting = values if dtype is None else [with_inner_texts(value, dtype) for value in values]
            columns[name] = typed_series(name, fitting, dtype)
        return pl.DataFrame(columns)


def _frame_like_first(types: Types, block: Block) -> pl.DataFrame:
    """A block that no earlier pass has read."""
    try:
        table = _checked(block.read(), _options(types))
        for array in _arrays(table):
            _contents_of(array)  # an integer among floats may need another type
        return named_frame(table)
    except (_Unsure, *_OTHERWISE):
        raise TypesDiffer from None


def _options(types: Types) -> pj.ParseOptions:
    schema = pa.schema([(name, _readable(dtype)) for name, dtype in types.items()])
    return pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")


def _checked(data: bytes, options: pj.ParseOptions) -> pa.Table:
    pl.Series([data], dtype=pl.Binary).cast(pl.String)  # an error where it is not UTF-8
    return _table(data, options)


def _table(data: bytes, options: pj.ParseOptions) -> pa.Table:
    data = data.removeprefix(BOM)
    if len(data) >= _MOST:
        raise _Unsure
    table = pj.read_json(pa.BufferReader(data), pj.ReadOptions(use_threads=False, block_size=len(data) + 1), options)
    if table.num_rows != len(last_braces(data)[0]):
        raise _Unsure
    return table


def _exact_rows(source: Input, block: Block, data: bytes) -> list[dict[str, Any]]:
    """The rows as Python reads them."""

    def place(at: int) -> str:
        return f"{source.name}:{number_at(source, block.start + at)}"

    return [row for _, row in rows_at(data, place, refuse_doubled_inside)]


def _arrays(table: pa.Table) -> list[pa.Array]:
    return [column.combine_chunks() for column in table.columns]


def _contents_of(array: pa.Array) -> Contents:
    """The contents of a column, by the type that pyarrow inferred."""
    dtype = array.type
    if pa.types.is_null(dtype):
        return Contents()
    if pa.types.is_struct(dtype):
        fields = {child.name: _contents_of(array.field(at)) for at, child in enumerate(dtype)}
        return Contents({dict}, fields=fields)
    if pa.types.is_list(dtype):
        return Contents({list}, items=_contents_of(array.flatten()))
    if pa.types.is_integer(dtype):
        whole = pl.Series(Exported(array))
        ends: list[Any] = [0, whole.min() or 0, whole.max() or 0]
        return Contents({int}, min(ends), max(ends))
    if pa.types.is_floating(dtype):
        values = pl.Series(Exported(array))
        if (values.abs() >= EXACT).any():  # it may be an integer, even beyond all floats
            raise _Unsure
        return Contents({float})
    return Contents({bool if pa.types.is_boolean(dtype) else str})  # a text may look like a time


def _readable(dtype: pa.DataType | None) -> pa.DataType:
    """The type as pyarrow's reader of JSON knows it."""
    if dtype is None:
        raise _Unsure
    if pa.types.is_large_string(dtype):
        return pa.string()
    if pa.types.is_large_list(dtype):
        return pa.list_(_readable(dtype.value_type))
    if pa.types.is_struct(dtype):
        return pa.struct([(inner.name, _readable(inner.type)) for inner in dtype])
    return dtype
