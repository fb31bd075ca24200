"""Arrow IPC, as a file (Feather 2) or as a stream, record batch by record batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa
from pyarrow import ipc

from grpo_cli.errors import InputChanged
from grpo_cli.files.inputs import Input
from grpo_cli.formats.columnar import (
    arrow_columns,
    cells_of,
    fetch,
    frame_of,
    joined,
    joined_schema,
    reach,
    readable,
    row_of,
    runs_of,
    steps,
    table_of,
)
from grpo_cli.formats.interface import Compared, Format, Index, Scanned, Weaving, place_of_row
from grpo_cli.formats.verify import different_values, once_each
from grpo_cli.values import cells
from grpo_cli.values.cells import Excerpt, Field
from grpo_cli.values.paths import refuse_doubled
from grpo_cli.values.slices import within

_FILE_MAGIC = b"ARROW1"
# The first bytes of a frame of each; among the values of an uncompressed file they would only compress the output.
_MARKS = {"zstd": b"\x28\xb5\x2f\xfd", "lz4": b"\x04\x22\x4d\x18"}
_HEAD = 1 << 20  # bytes, of the schema and the first record batch
_MOST_AT_ONCE = 1 << 16  # rows that are gathered at once
_FIRST = 512  # rows that are cheap to read
_TEXTS = 1024  # rows whose texts are rendered at once


@dataclass(frozen=True)
class Arrow(Format):
    """Arrow IPC, re-encoded record batch by record batch."""

    record = "values"

    def columns(self, source: Input) -> list[str]:
        return list(_schema(source).names)

    def scan(self, source: Input, fields: Sequence[Field], watched: Collection[str] = ()) -> Scanned:
        schema = _schema(source)
        ways = steps(source, [field.name for field in fields], schema)
        with _opened(source, _positions(schema, ways)) as reader:
            table = reader.read_all()
            frame = frame_of(table, source)
            place = partial(place_of_row, source)
            columns = {field.name: cells.typed(field, reach(frame, ways[field.name]), place) for field in fields}
            return Scanned(pl.DataFrame(columns or None, height=table.num_rows))

    def parts(self, source: Input) -> Iterator[pl.DataFrame]:
        with _opened(source) as reader:
            refuse_doubled(reader.schema.names, reader.schema.names, source.name)
            frame = frame_of(reader.read_all(), source)
        yield frame

    def sample(self, source: Input) -> Sequence[Mapping[str, Any]]:
        return [row_of(_schema(source))]

    def row_count(self, source: Input) -> int | None:
        """The sum over the headers of the record batches; None for streams, which have no list of them.

        None for an object in a store as well: each header would be a request.
        """
        if not source.is_local:
            return None
        with _opened(source) as reader:
            # Of pyarrow 26; an older one has to read every batch to know.
            return int(reader.count_rows()) if hasattr(reader, "count_rows") else None

    def rows(self, source: Input, wanted: Excerpt) -> Iterator[pl.DataFrame]:
        """Some columns of single rows, read from the record batches up to the last with a wanted row."""
        schema = _schema(source)
        ways = steps(source, wanted.columns, schema)
        with _opened(source, _positions(schema, ways)) as reader:
            batches = (batch for batch, _ in _batches(reader))
            for batch, here in within(batches, wanted.numbers):
                for low in range(0, len(here), _TEXTS):
                    some = runs_of(pa.Table.from_batches([batch]), here[low : low + _TEXTS])
                    yield cells_of(frame_of(some, source), ways, source, as_json=wanted.as_json)

    def cheap_rows(self, source: Input, index: Index, height: int) -> int:
        """All rows of a file; for an object, the first rows."""
        return height if source.is_local else _FIRST

    def weave(self, source: Input, index: Index, sink: BinaryIO, weaving: Weaving) -> tuple[str, ...]:
        """Re-encode the file in its own form, with a single record batch in memory at a time."""
        new = weaving.added
        with _opened(source) as reader:
            options = ipc.IpcWriteOptions(compression=_codec(source), emit_dictionary_deltas=True)
            schema = joined_schema(reader.schema, arrow_columns(new[:0]).schema, weaving.metadata)
            create = ipc.new_file if isinstance(reader, ipc.RecordBatchFileReader) else ipc.new_stream
            with create(sink, schema, options=options) as writer:
                if weaving.take is None:
                    _weave_all(source, reader, new, writer)
                else:
                    _weave_taken(reader, new, writer, weaving.take)
        return ()

    def write_parts(self, parts: Iterator[pl.DataFrame], sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        table = table_of(pl.concat(parts))
        schema = joined_schema(table.schema, pa.schema([]), metadata)
        with ipc.new_file(sink, schema) as writer:
            writer.write_table(table.cast(schema).unify_dictionaries())

    def compared(self, new: Input, old: Input, added: Collection[str]) -> Compared:
        return "values", different_values(new, old, _all_columns, added)


def _all_columns(source: Input) -> pl.DataFrame:
    """The whole file, even if several columns have one name."""
    with _opened(source) as reader:
        table = reader.read_all()
        return frame_of(table.rename_columns(once_each(table.schema.names)), source)


# --- the file and the stream form ----------------------------------------------------------------------------
# Their two readers have no common class, so they are typed as Any.


@contextmanager
def _opened(source: Input, only: list[int] | None = None) -> Iterator[Any]:
    """A reader, of the file or of the stream form, with the wanted columns (None: all)."""
    options = ipc.IpcReadOptions(included_fields=only)
    with readable(source, "Arrow IPC"), source.open() as handle:
        is_file = handle.read(len(_FILE_MAGIC)) == _FILE_MAGIC
        # Opened by pyarrow: its threads may outlive an error, and would abort the exit if they read through Python.
        opened = ipc.open_file if is_file else ipc.open_stream
        with (
            pa.OSFile(os.fsencode(source.path)) if source.is_local else pa.PythonFile(source.open()) as file,
            opened(file, options=options) as reader,
        ):
            yield reader


def _schema(source: Input) -> pa.Schema:
    with _opened(source) as reader:
        _ = reader.schema.names  # a name that is not UTF-8 fails here, where it becomes a message
        return reader.schema


def _positions(schema: pa.Schema, ways: Mapping[str, Sequence[str]]) -> list[int]:
    """The numbers of the columns that these steps begin with."""
    tops = {way[0] for way in ways.values()}
    return [at for at, name in enumerate(schema.names) if name in tops]


def _codec(source: Input) -> str | None:
    """The compression, which pyarrow does not report: by the mark at the beginning of every compressed buffer."""
    with source.open() as handle:
        head = handle.read(_HEAD)
    return next((codec for codec, mark in _MARKS.items() if mark in head), None)


# --- re-encoding ----------------------------------------------------------------------------------------


def _weave_all(source: Input, reader: Any, new: pl.DataFrame, writer: ipc.RecordBatchStreamWriter) -> None:
    at = 0
    for batch, notes in _batches(reader):
        InputChanged.unless_same(min(at + batch.num_rows, len(new)), at + batch.num_rows, source.name)
        writer.write_batch(_one_batch(joined(pa.Table.from_batches([batch]), new, at)), custom_metadata=notes)
        at += batch.num_rows
    InputChanged.unless_same(at, len(new), source.name)


def _batches(reader: Any) -> Iterator[tuple[pa.RecordBatch, Any]]:
    """Every record batch and its metadata."""
    if isinstance(reader, ipc.RecordBatchFileReader):
        found = (reader.get_batch_with_custom_metadata(at) for at in range(reader.num_record_batches))
    else:
        found = reader.iter_batches_with_custom_metadata()
    for batch, notes in found:
        batch.validate()  # values outside its buffers would crash the process
        yield batch, notes


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    whole = table.combine_chunks()
    arrays = [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in whole.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def _whole(batch: pa.RecordBatch) -> pa.Table:
    """The batch as a table, validated: taking values outside their buffers would crash."""
    batch.validate(full=True)
    return pa.Table.from_batches([batch])


def _weave_taken(reader: Any, new: pl.DataFrame, writer: ipc.RecordBatchStreamWriter, take: np.ndarray) -> None:
    block: Callable[[int], pa.Table]
    if isinstance(reader, ipc.RecordBatchFileReader):
        block = lru_cache(maxsize=1)(lambda at: _whole(reader.get_batch(at)))
        sizes = [block(at).num_rows for at in range(reader.num_record_batches)]
    else:  # a stream has no index to seek by, so rows out of order need all of it
        tables = [_whole(batch) for batch in reader]
        block = tables.__getitem__
        sizes = [table.num_rows for table in tables]
    starts = np.cumsum([0, *sizes])[:-1]
    for table, at in fetch(take, starts, block, max([_MOST_AT_ONCE, *sizes])):
        writer.write_batch(_one_batch(joined(table, new, at)))
