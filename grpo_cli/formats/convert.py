"""From one format to another: what cannot be woven into the bytes of the input is written afresh."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import polars as pl

from grpo_cli.errors import InputChanged
from grpo_cli.formats.interface import TypesDiffer
from grpo_cli.formats.token_lists import portions, with_lists

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.interface import Format, Weaving


def convert(
    source: Input, source_format: Format, sink: BinaryIO, target_format: Format, weaving: Weaving, *, long: bool
) -> None:
    """Write the rows of a file, with its new columns, in another format; with `long` one row per rollout.

    Lines of text are converted block by block; of other formats the whole file is in memory.
    """
    if not long:
        weaving = source_format.records(source, weaving)

    def write(parts: Iterator[pl.DataFrame]) -> None:
        target_format.write_parts(_with_new_columns(source, parts, weaving), sink, weaving.metadata)

    if long and source_format.nested:
        write(iter([source_format.long(source)]))
        return
    if sink.readable():  # a file on disk, which can be begun anew; a pipe and a packed file cannot
        try:
            write(source_format.parts_like_first(source))
        except TypesDiffer:
            sink.seek(0)
            sink.truncate()
        else:
            return
    write(source_format.parts(source))


def _with_new_columns(source: Input, parts: Iterator[pl.DataFrame], weaving: Weaving) -> Iterator[pl.DataFrame]:
    added, take = weaving.added, weaving.take
    if take is not None and (take[1:] < take[:-1]).any():
        whole = pl.concat(list(parts))[pl.Series(take)]
        yield from map(with_lists, portions(whole.with_columns(added.get_columns())))
        return
    row = 0
    for part in parts:
        first, last = row, row + len(part)
        row = last
        kept = part
        if take is not None:
            start = first
            first, last = np.searchsorted(take, [first, last])
            kept = part[pl.Series(take[first:last] - start)]
        InputChanged.unless_same(last, min(last, added.height), source.name)
        yield from map(with_lists, portions(kept.with_columns(added[first:last].get_columns())))
    if take is None:
        InputChanged.unless_same(row, added.height, source.name)
