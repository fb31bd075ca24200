"""Conversion: write the rows of a file in another format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

import numpy as np
import polars as pl

from grpo_cli.errors import InputChanged
from grpo_cli.files.inputs import Input
from grpo_cli.formats.interface import Format, Index, InLines, InRecords, TypesDiffer, Weaving
from grpo_cli.values.token_lists import portions, with_lists


def convert(
    source: Input,
    source_format: Format,
    sink: BinaryIO,
    target_format: Format,
    weaving: Weaving,
    *,
    long: bool,
    index: Index = None,
) -> None:
    """Write the rows of a file, with its new columns, in another format; with `long` one row per rollout.

    Lines of text are converted block by block; for other formats the whole file is in memory.
    """

    def write(parts: Iterator[pl.DataFrame]) -> None:
        target_format.write_parts(_with_new_columns(source, parts, weaving), sink, weaving.metadata)

    if isinstance(source_format, InRecords):
        if long:
            write(iter([source_format.long(source)]))
            return
        weaving = source_format.records(source, index, weaving)
    # A file on disk can be started again; a pipe or a compressed file cannot.
    if isinstance(source_format, InLines) and sink.readable():
        try:
            write(replace(source_format, like_first=True).parts(source))
        except TypesDiffer:
            sink.seek(0)
            sink.truncate()
        else:
            return
    write(source_format.parts(source))


def taken(source: Input, source_format: Format, rows: Index) -> Iterator[pl.DataFrame]:
    """These rollouts of a file, in frames; of nested records one row each."""
    parts = source_format.parts(source)
    if isinstance(source_format, InRecords):
        parts = iter([source_format.long(source)])
    nothing = pl.DataFrame(height=len(rows))
    yield from _with_new_columns(source, parts, Weaving(added=nothing, take=rows))


def _with_new_columns(source: Input, parts: Iterator[pl.DataFrame], weaving: Weaving) -> Iterator[pl.DataFrame]:
    added = weaving.added
    take = weaving.take
    if take is None:
        chosen = parts
    elif (np.diff(take) >= 0).all():
        chosen = _in_order(parts, take)
    else:
        chosen = iter([pl.concat(parts)[take]])
    row = 0
    for part in chosen:
        first, row = row, row + len(part)
        InputChanged.unless_same(row, min(row, added.height), source.name)
        yield from map(with_lists, portions(part.with_columns(added[first:row].get_columns())))
    InputChanged.unless_same(row, added.height, source.name)


def _in_order(parts: Iterator[pl.DataFrame], take: np.ndarray) -> Iterator[pl.DataFrame]:
    """Ascending rows of these parts; all parts are read, since each has a say in the types of columns."""
    row = 0
    for part in parts:
        here = slice(*np.searchsorted(take, [row, row + len(part)]))
        yield part[take[here] - row]
        row += len(part)
