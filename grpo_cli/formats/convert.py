"""From one format to another: what cannot be woven into the bytes of the input is written afresh."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import polars as pl

if TYPE_CHECKING:
    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.interface import Format, Weaving


def convert(
    source: Input, source_format: Format, sink: BinaryIO, target_format: Format, weaving: Weaving, *, long: bool
) -> None:
    """Write the rows of a file, with its new columns, in another format; with `long` one row per rollout.

    The whole file is in memory.
    """
    if not long:
        weaving = source_format.records(source, weaving)
    frame = source_format.long(source) if long else source_format.read(source)
    if weaving.take is not None:
        frame = frame[pl.Series(weaving.take)]
    target_format.write(frame.with_columns(weaving.added.get_columns()), sink, weaving.metadata)
