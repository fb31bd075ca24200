"""Parquet: spliced where it can be (see `parquet_splice`), and otherwise written again (see `rewriting`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from grpo_cli.errors import DataError
from grpo_cli.files.in_place import ELSEWHERE, append
from grpo_cli.formats import cells
from grpo_cli.formats.cells import plain_keys
from grpo_cli.formats.columnar import place, reach, steps
from grpo_cli.formats.parquet import rewrite, sealed, splice
from grpo_cli.formats.parquet.footer import Encrypted, Unspliceable
from grpo_cli.formats.parquet.sealed import openable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.interface import Field, Weaving

_WRITABLE: Final = {"SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4"}
_MOST_AT_ONCE: Final = 1 << 16


def columns(source: Input) -> list[str]:
    """Names of the top-level columns, without those that only a key could open where others can be read."""
    with openable(source), source.open() as handle:
        names = list(_schema(source, handle).names)
        shut = sealed.locked(source, handle) if source.key is None else ()
    return [name for name in names if name not in shut]


def _schema(source: Input, handle: BinaryIO) -> pa.Schema:
    return pq.read_schema(handle, decryption_properties=sealed.opener(source))


def scan(source: Input, fields: Sequence[Field]) -> pl.DataFrame:
    """Read the columns that the fields lie in, and nothing else of the file."""
    with openable(source):
        with source.open() as handle:
            schema = _schema(source, handle)
        ways = [steps(source, field, schema) for field in fields]
        frame = _top_columns(source, list(dict.fromkeys(way[0] for way in ways)))
    pairs = zip(fields, ways, strict=True)
    return pl.DataFrame({one.name: cells.typed(one, reach(frame, way), place(source)) for one, way in pairs})


def _top_columns(source: Input, names: list[str]) -> pl.DataFrame:
    try:
        return pl.scan_parquet(source.path, glob=False, hive_partitioning=False).select(names).collect()
    except pl.exceptions.PolarsError:
        # One column of a type that polars does not know stops it, even when nobody asked for that column.
        with source.open() as handle:
            frame = pl.from_arrow(sealed.opened(source, handle).read(columns=names))
        return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()


def weave(source: Input, sink: BinaryIO, weaving: Weaving) -> list[str]:
    """Splice the new columns into the bytes of the file, or write it again where that cannot be."""
    anew = f"{source.name}: all columns were encoded anew (the general path)"
    with openable(source):
        try:
            return splice.weave(source, sink, weaving)
        except Encrypted as why:
            rewrite.write(source, sink, weaving, sealed.closer(source))
            return [f"{anew} and encrypted with the same key: {why}"]
        except Unspliceable as why:
            rewrite.write(source, sink, weaving)
            return [f"{anew}: {why}"]


def in_place(source: Input, weaving: Weaving) -> list[str]:
    """Splice the new columns into the file itself, which can be read at every instant."""
    try:
        with openable(source):
            growth, notes = splice.growth(source, weaving)
    except Unspliceable as why:
        raise DataError(f"{source.name}: cannot be changed in place: {why}", ELSEWHERE) from None
    append(source, growth)
    return notes


def read(source: Input) -> pl.DataFrame:
    """Read the whole file, for another format."""
    with openable(source):
        with source.open() as handle:
            names = list(_schema(source, handle).names)
        return _top_columns(source, names)


def write(frame: pl.DataFrame, sink: BinaryIO, metadata: Mapping[str, str]) -> None:
    """Write a fresh file."""
    plain_keys(frame).write_parquet(sink, metadata=dict(metadata))
