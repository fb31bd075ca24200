"""What a tool writes about rows later, into files of their own: an advantage, when the batch of the row is trained on.

prime-rl appends an episode to `stream.jsonl`, or to chunks in `stream/`, when it arrives, and updates that name a trace to
`annotations/PRODUCER.jsonl`, or chunks in `annotations/PRODUCER/`. Their index has all but their lists of tokens.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import polars as pl

from grpo_cli.files.inputs import Input, is_readable, natural
from grpo_cli.formats import registry
from grpo_cli.formats.interface import InLines
from grpo_cli.read.tables import Table
from grpo_cli.values.cells import Field, canonical
from grpo_cli.values.paths import Absent

_FOLDER = "annotations"
_STREAM = "stream"


def updates_of(table: Table) -> list[Path]:
    """The files with updates of the rows, those of each producer in the order in which they were written."""
    if table.schema is None or not table.schema.updates:
        return []
    path = Path(table.name).resolve()
    streams = [each for each in (path, path.parent) if each.name.partition(".")[0] == _STREAM]
    if not streams:
        return []
    folder = streams[0].parent / _FOLDER
    there = [file for file in folder.rglob("*") if is_readable(file, registry.SUFFIXES) and file.stat().st_size]
    of_producer: dict[str, list[Path]] = {}
    for file in sorted(there, key=natural):
        producer = file.relative_to(folder).parts[0].partition(".")[0]
        of_producer.setdefault(producer, []).append(file)
    each = ([file for file in files if ".index." in file.name] or files for files in of_producer.values())
    return [file for files in each for file in files]


def updated(table: Table, name: str) -> pl.Series | None:
    """The numbers of a column that were written later, the newest of each row; None if no update has the column."""
    if table.schema is None:
        return None
    key = table.schema.updates
    newest = dict[str, float]()
    for file in updates_of(table):
        known = registry.of(source := Input.at(file))
        if isinstance(known, InLines):
            source = known.without_broken(source)  # the last line may still be written
        with suppress(Absent):  # the updates of a trainer have no advantages
            found = known.scan(source, [Field(key, "key"), Field(name, "number")]).frame
            found = found.filter(found[name].is_not_null())
            newest |= zip(canonical(found[key]), found[name], strict=True)
    if not newest:
        return None
    (own,) = table.schema.ids
    ids = canonical(table.scan([Field(own, "key")]).frame[own])
    return ids.replace_strict(newest, default=None, return_dtype=pl.Float64).alias(name)
