"""Parquet as a file format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow.parquet as pq

from grpo_cli.errors import DataError
from grpo_cli.formats.columnar import row_of
from grpo_cli.formats.interface import Field, Format
from grpo_cli.formats.parquet import parquet
from grpo_cli.formats.parquet.compare import same_chunks

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import polars as pl

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.interface import Compared, Weaving


@dataclass(frozen=True)
class Parquet(Format):
    """Parquet: new column chunks behind the old ones, whose bytes are copied as they are."""

    binary = True

    def columns(self, source: Input) -> list[str]:
        """Names of the top-level columns."""
        return parquet.columns(source)

    def scan(self, source: Input, fields: Sequence[Field]) -> pl.DataFrame:
        """Read the columns that the fields lie in."""
        return parquet.scan(source, fields)

    def read(self, source: Input) -> pl.DataFrame:
        """Read all columns."""
        return parquet.read(source)

    def sample(self, source: Input) -> Sequence[Mapping[str, Any]]:
        """One row that has the types of the file, made of its schema alone."""
        with source.open() as handle:
            return [row_of(pq.read_schema(handle))]

    def values(self, source: Input, rows: np.ndarray, column: str, height: int) -> Sequence[Any] | None:
        """The values of a top-level column, out of the row groups that the rows are in, one after the other."""
        with source.open() as handle:
            file = pq.ParquetFile(handle)
            if file.metadata.num_rows != height or column not in file.schema_arrow.names:
                return None
            sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            ends = np.cumsum(sizes)
            groups = np.searchsorted(ends, rows, side="right")
            found: list[Any] = []
            for group in np.unique(groups):
                here = rows[groups == group] - (int(ends[group]) - sizes[group])
                found += file.read_row_group(int(group), columns=[column])[column].take(here).to_pylist()
        return found

    def weave(self, source: Input, sink: BinaryIO, weaving: Weaving) -> Sequence[str]:
        """Splice the new columns into the bytes of the file, or write it again where that cannot be."""
        return parquet.weave(source, sink, weaving)

    def weave_in_place(self, source: Input, weaving: Weaving) -> Sequence[str]:
        """Splice the new columns into the file itself, which can be read at every instant."""
        return parquet.in_place(source, weaving)

    def write(self, frame: pl.DataFrame, sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        """Write a fresh file."""
        parquet.write(frame, sink, metadata)

    def compared(self, new: Input, old: Input, added: Collection[str]) -> Compared:
        """Compare the bytes of the column chunks; where they are not the same, the values."""
        if same_chunks(old, new, added) is not None:
            return super().compared(new, old, added)
        try:
            self.scan(new, [Field(name, "key") for name in added])  # nothing else has read the new columns
        except (DataError, OSError) as error:
            return "bytes", f"{new.name}: {', '.join(added)} cannot be read: {error}"
        return "bytes", None
