"""Parquet: spliced where it can be (see `splice`), and otherwise written again (see `rewrite`)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Final

import polars as pl
import pyarrow.parquet as pq

from grpo_cli.errors import DataError
from grpo_cli.files.in_place import ELSEWHERE, append
from grpo_cli.formats import cells
from grpo_cli.formats.cells import plain_keys
from grpo_cli.formats.columnar import place, reach, readable, steps
from grpo_cli.formats.parquet import footer, rewrite, splice
from grpo_cli.formats.parquet.footer import Unspliceable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.interface import Field, Weaving

_DECRYPT: Final = "decrypt it with the tool that wrote it, or with pyarrow, and run again on the copy"


@contextmanager
def _opened(source: Input) -> Iterator[BinaryIO]:
    """Open a file that is not encrypted; what pyarrow and polars say of a broken one becomes one line."""
    with readable(source, "Parquet"), source.open() as handle:
        # Before pyarrow sees it: asked about a column that it has no key for, it aborts the process.
        if footer.is_encrypted(handle, source.pin.size):
            raise DataError(f"{source.name}: the file is encrypted", _DECRYPT)
        yield handle


def columns(source: Input) -> list[str]:
    """Names of the top-level columns."""
    with _opened(source) as handle:
        return list(pq.read_schema(handle).names)


def scan(source: Input, fields: Sequence[Field]) -> pl.DataFrame:
    """Read the columns that the fields lie in, and nothing else of the file."""
    with _opened(source) as handle:
        schema = pq.read_schema(handle)
        ways = [steps(source, field, schema) for field in fields]
        frame = _top_columns(source, handle, list(dict.fromkeys(way[0] for way in ways)))
    pairs = zip(fields, ways, strict=True)
    return pl.DataFrame({one.name: cells.typed(one, reach(frame, way), place(source)) for one, way in pairs})


def _top_columns(source: Input, handle: BinaryIO, names: list[str]) -> pl.DataFrame:
    try:
        return pl.scan_parquet(source.path, glob=False, hive_partitioning=False).select(names).collect()
    except pl.exceptions.PolarsError:
        # One column of a type that polars does not know stops it, even when nobody asked for that column.
        frame = pl.from_arrow(pq.ParquetFile(handle).read(columns=names))
        return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()


def weave(source: Input, sink: BinaryIO, weaving: Weaving) -> list[str]:
    """Splice the new columns into the bytes of the file, or write it again where that cannot be."""
    with _opened(source):
        try:
            return splice.weave(source, sink, weaving)
        except Unspliceable as why:
            rewrite.write(source, sink, weaving)
            return [f"{source.name}: all columns were encoded anew (the general path): {why}"]


def in_place(source: Input, weaving: Weaving) -> list[str]:
    """Splice the new columns into the file itself, which can be read at every instant."""
    try:
        with _opened(source):
            growth, notes = splice.growth(source, weaving)
    except Unspliceable as why:
        raise DataError(f"{source.name}: cannot be changed in place: {why}", ELSEWHERE) from None
    append(source, growth)
    return notes


def read(source: Input) -> pl.DataFrame:
    """Read the whole file, for another format."""
    with _opened(source) as handle:
        return _top_columns(source, handle, list(pq.read_schema(handle).names))


def write(frame: pl.DataFrame, sink: BinaryIO, metadata: Mapping[str, str]) -> None:
    """Write a fresh file."""
    plain_keys(frame).write_parquet(sink, metadata=dict(metadata))
