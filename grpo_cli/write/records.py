"""Write records of JSON texts and computed columns to any format, piece by piece."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import BinaryIO, Final

import polars as pl

from grpo_cli.files.inputs import spooled
from grpo_cli.formats import registry
from grpo_cli.formats.convert import convert
from grpo_cli.formats.interface import Format, Weaving
from grpo_cli.values.json_text import column_texts
from grpo_cli.values.slices import joined

_NO_METADATA: Final[Mapping[str, str]] = MappingProxyType({})


def write_records(
    pieces: Iterator[pl.DataFrame], names: Sequence[str], columns: pl.DataFrame, sink: BinaryIO, format_: Format
) -> None:
    """Write a record for each row: its JSON texts, then the computed `columns`. Only one piece of texts is in memory.

    `names` are the columns of the texts. Formats other than JSON lines need the types of all texts, so these are first
    written to a temporary file.
    """
    if format_.same_as(registry.lines()):
        row = 0
        for piece in pieces:
            sink.write(_lines(piece, columns[row : row + len(piece)]))
            row += len(piece)
        return
    if not len(columns):
        nothing = pl.DataFrame(schema={**dict.fromkeys(names, pl.String), **columns.schema})
        format_.write_parts(iter([nothing]), sink, _NO_METADATA)
        return
    source = spooled((_lines(piece) for piece in pieces), "the texts of the records")
    try:
        weaving = Weaving(added=columns, take=None, replace=False, metadata=_NO_METADATA)
        convert(source, registry.lines(inner_texts=True), sink, format_, weaving, long=False)
    finally:
        if source.fd is not None:
            os.close(source.fd)


def _lines(texts: pl.DataFrame, columns: pl.DataFrame | None = None) -> memoryview:
    fields = [column.fill_null("null") for column in texts]
    fields += [column_texts(column) for column in (() if columns is None else columns)]
    parts: list[str | pl.Series] = []
    for at, field in enumerate(fields):
        parts += [f"{',' if at else '{'}{json.dumps(field.name)}:", field]
    return joined([*parts, "}\n"])
