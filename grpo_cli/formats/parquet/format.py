"""Parquet: spliced if possible (see `splice`), otherwise re-encoded (see `rewrite`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, pairwise
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from grpo_cli.errors import DataError
from grpo_cli.files.atomic import ELSEWHERE
from grpo_cli.files.inputs import Input
from grpo_cli.formats.columnar import (
    cells_of,
    frame_of,
    reach,
    readable,
    row_of,
    stderr_silenced,
    steps,
    table_of,
)
from grpo_cli.formats.interface import Compared, Format, Index, Scanned, Weaving, place_of_row
from grpo_cli.formats.parquet import footer, pages, rewrite, splice
from grpo_cli.formats.parquet.footer import Unspliceable
from grpo_cli.formats.parquet.verify import first_difference, spliced_after
from grpo_cli.formats.verify import different_values
from grpo_cli.values import cells
from grpo_cli.values.cells import Excerpt, Field
from grpo_cli.values.paths import refuse_doubled

_BATCH = 512  # rows that are decoded at once
_SLICED = 4096  # with at most this many rows, only the pages around them are decoded
_BUFFER = 1 << 20  # bytes of a read
_PLACES = 8  # row groups in the sample of cheap rows
_FIRST = 512  # rows from each of them
_DECODED = 4 << 20  # bytes decoded from each of them
_MOST_ROWS = 1 << 17  # most rows of a row group in a new file
_MOST_BYTES = 32 << 20  # most bytes of a row group in a new file
_DECRYPT = "decrypt it with the tool that wrote it, or with pyarrow, and run again on the copy"
# polars refuses files with a column type that it does not know, even if that column is not read, and files whose name is not
# UTF-8.
_REFUSED = (pl.exceptions.PolarsError, pl.exceptions.PanicException, UnicodeEncodeError)


class _Head(NamedTuple):
    """What a footer says of all rows; the footer itself may be large."""

    schema: pa.Schema
    rows: int
    leaves: Sequence[pages.Leaf]


@lru_cache(maxsize=4096)  # a run asks for the columns, a sample, the rows and the texts of each file
def _head(source: Input) -> _Head:
    """The head of a pinned file that is not encrypted."""
    with readable(source, "Parquet"), source.open() as handle:
        # Before pyarrow opens it: pyarrow aborts the process for a column that it has no key for.
        if footer.is_encrypted(handle, source.pin.size):
            raise DataError(f"{source.name}: the file is encrypted", _DECRYPT)
        metadata = pq.read_metadata(handle)
        leaves = [pages.Leaf(leaf.path, leaf.max_repetition_level) for leaf in metadata.schema]
        return _Head(metadata.schema.to_arrow_schema(), metadata.num_rows, leaves)


@contextmanager
def _opened(source: Input) -> Iterator[BinaryIO]:
    """Open a file that is not encrypted; errors of pyarrow and polars about broken files become one line."""
    _head(source)
    with readable(source, "Parquet"), source.open() as handle:
        yield handle


def _lazy(source: Input, names: Sequence[str]) -> pl.LazyFrame:
    """These columns, which polars reads; one of `_REFUSED` if it cannot."""
    source.path.encode()
    return pl.scan_parquet(source.path, glob=False, hive_partitioning=False).select(pl.selectors.by_name(names))


def _top_columns(source: Input, handle: BinaryIO, names: list[str]) -> pl.DataFrame:
    if source.is_local:
        _check_pages(source, tuple(names))
        with suppress(*_REFUSED), stderr_silenced():
            return _lazy(source, names).collect()
    file = pq.ParquetFile(handle, pre_buffer=not source.is_local)  # those of an object are fetched at once
    # Without threads: after an error in one column they may still read others when the process ends, and crash it.
    return frame_of(file.read(columns=names, use_threads=False), source)


@dataclass(frozen=True)
class Parquet(Format):
    """Parquet: the old column chunks, copied byte for byte, then the new chunks."""

    record = "values"
    most_rows: int = _MOST_ROWS

    def columns(self, source: Input) -> list[str]:
        return list(_head(source).schema.names)

    def scan(self, source: Input, fields: Sequence[Field], watched: Collection[str] = ()) -> Scanned:
        with _opened(source) as handle:
            ways = steps(source, [field.name for field in fields], _head(source).schema)
            frame = _top_columns(source, handle, list(dict.fromkeys(way[0] for way in ways.values())))
        place = partial(place_of_row, source)
        columns = {field.name: cells.typed(field, reach(frame, ways[field.name]), place) for field in fields}
        return Scanned(pl.DataFrame(columns))

    def parts(self, source: Input) -> Iterator[pl.DataFrame]:
        names = self.columns(source)
        refuse_doubled(names, names, source.name)
        with _opened(source) as handle:
            frame = _top_columns(source, handle, names)
        yield frame

    def sample(self, source: Input) -> Sequence[Mapping[str, Any]]:
        return [row_of(_head(source).schema)]

    def row_count(self, source: Input) -> int | None:
        return _head(source).rows

    def rows(self, source: Input, wanted: Excerpt) -> Iterator[pl.DataFrame]:
        """Some columns of single rows: few rows by slices of the file, otherwise from their row groups.

        Lists come from their row groups, some megabytes at a time: a slice of a few rows may have many.
        """
        with _opened(source) as handle:
            ways = steps(source, wanted.columns, _head(source).schema)
            tops = list(dict.fromkeys(way[0] for way in ways.values()))
            found: Iterable[pl.DataFrame] | None = None
            if source.is_local and not wanted.lists and len(wanted.numbers) <= _SLICED:
                source.check()
                _check_pages(source, tuple(tops))
                with suppress(*_REFUSED):
                    found = _sliced(source, wanted.numbers, tops)
            if found is None:
                # The buffer keeps pyarrow from reading a whole column chunk for its first pages.
                file = pq.ParquetFile(handle, buffer_size=_BUFFER, pre_buffer=False)
                found = (frame_of(table, source) for table in rewrite.taken(file, wanted.numbers, tops))
            for frame in found:
                yield cells_of(frame, ways, source, as_json=wanted.as_json)

    def cheap_rows(self, source: Input, index: Index, height: int) -> np.ndarray | int:
        """All rows of a file; for an object the first rows of some row groups, since each is a request."""
        if source.is_local:
            return height
        with _opened(source) as handle:
            metadata = pq.ParquetFile(handle).metadata
            groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
        ends = np.cumsum([group.num_rows for group in groups])
        found = [np.arange(0)]
        spread = np.linspace(0, len(groups) - 1, _PLACES).astype(np.int64)
        for at in np.unique(spread).tolist() if groups else ():
            rows = groups[at].num_rows
            short = _DECODED * rows // max(1, groups[at].total_byte_size)  # only a few rows if they are long
            some = np.arange(min(rows, _FIRST, max(8, short)))
            start = int(ends[at]) - rows
            found.append(some + start)
        return np.concatenate(found)

    def weave(self, source: Input, index: Index, sink: BinaryIO, weaving: Weaving) -> Sequence[str]:
        """Splice the new columns into the bytes of the file, or re-encode the file if that is not possible."""
        _head(source)  # refuses what is encrypted
        with readable(source, "Parquet"):
            try:
                return splice.weave(source, sink, weaving)
            except Unspliceable as why:
                if weaving.exact and weaving.take is None:
                    raise DataError(f"cannot be changed in place: {why}", ELSEWHERE, place=source.name) from None
                rewrite.write(source, sink, weaving)
                if not weaving.added.width:  # rows were chosen, which is no surprise
                    return []
                return [f"{source.name}: all columns were re-encoded: {why}"]

    def write_parts(self, parts: Iterator[pl.DataFrame], sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        """Write a new file, with a single row group in memory at a time."""
        groups = _row_groups(parts, self.most_rows)
        first = next(groups)
        schema = table_of(first).schema
        # Without it texts and lists are those of every reader, not polars' large ones, which datasets takes for other types.
        stores_schema = not all(map(_is_plain, first.dtypes))
        # Columns are named where all are flat: of a nested one, Parquet names the leaves.
        is_flat = not any(dtype.is_nested() for dtype in first.dtypes)
        repeated = [column.name for column in first if splice.repeats(column)] if is_flat else True
        with pq.ParquetWriter(
            sink, schema, compression="zstd", store_schema=stores_schema, use_dictionary=repeated
        ) as writer:
            writer.add_key_value_metadata(dict(metadata))
            for frame in chain([first], groups):
                writer.write_table(table_of(frame).cast(schema), row_group_size=max(len(frame), 1))

    def compared(self, new: Input, old: Input, added: Collection[str]) -> Compared:
        """Compare all bytes before the old footer; of a file that was re-encoded, the values."""
        length = spliced_after(old, new, added)
        if length is None:
            return "values", different_values(new, old, self.read, added)
        at = first_difference(old, new, length)
        if at is not None:
            return "bytes", f"{new.name}: the byte at offset {at:,} differs from {old.name}"
        try:
            self.scan(new, [Field(name, "key") for name in added])  # nothing else has read the new columns
        except (DataError, OSError) as error:
            return "bytes", f"{new.name}: {', '.join(added)} cannot be read: {error}"
        return "bytes", None


@lru_cache(maxsize=64)
def _check_pages(source: Input, names: tuple[str, ...]) -> None:
    """Refuse the pinned file if its pages cannot be read: once for these columns, however many single rows are read."""
    with source.open() as handle:
        pages.check(handle, source.pin.size, _head(source).leaves, names)


def _sliced(source: Input, numbers: np.ndarray, columns: list[str]) -> list[pl.DataFrame]:
    """The rows with these ascending numbers; polars decodes the pages that they are on."""
    starts = [0, *(np.flatnonzero(np.diff(numbers) > _BATCH) + 1).tolist(), len(numbers)]
    parts = [numbers[start:end] for start, end in pairwise(starts) if start < end]
    with stderr_silenced():
        whole = _lazy(source, columns)
        found = pl.collect_all([whole.slice(int(part[0]), int(part[-1] - part[0]) + 1) for part in parts])
    return [frame[part - part[0]] for frame, part in zip(found, parts, strict=True)]


def _is_plain(dtype: Any) -> bool:
    """Whether the Parquet schema alone says all of a type."""
    if isinstance(dtype, pl.List):
        return _is_plain(dtype.inner)
    if isinstance(dtype, pl.Struct):
        return all(_is_plain(field.dtype) for field in dtype.fields)
    return bool(dtype.is_numeric()) or dtype in {pl.String, pl.Boolean}


def _row_groups(parts: Iterator[pl.DataFrame], most: int) -> Iterator[pl.DataFrame]:
    buffered = []
    for part in parts:
        buffered.append(part)
        rows = sum(map(len, buffered))
        size = sum(frame.estimated_size() for frame in buffered)
        if rows >= most or size >= _MOST_BYTES:
            yield pl.concat(buffered)
            buffered.clear()
    if buffered:
        yield pl.concat(buffered)
