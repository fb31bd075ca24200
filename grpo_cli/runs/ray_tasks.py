"""What tasks on other machines do with files, as plain functions that know nothing of Ray.

They give the same result for the same arguments, wherever and however often they run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from grpo_cli.files.atomic import folders_synced
from grpo_cli.formats.interface import Scanned
from grpo_cli.read.group_keys import encode
from grpo_cli.read.tables import FileTable, Table
from grpo_cli.write.outputs import Output
from grpo_cli.write.write_outputs import Writing, paths_of, write_one

_REPEATED: Final = 2  # rows with the same text, on average; below that, texts are sent as they are


def work_on(work: Callable[[Table], Any], tables: Sequence[FileTable]) -> list[Any]:
    """What the work finds in each of some files or sections, packed."""
    done = []
    for table in tables:
        table.source.check()
        done.append(packed(work(table)))
        table.source.check()
    return done


def write_files(output: Output, writings: Sequence[Writing]) -> list[Sequence[str]]:
    """Write the outputs of some files, one after the other; return the notes for the user of each."""
    with folders_synced(paths_of([writing.target for writing in writings])):
        return [write_one(output, writing, retried=True) for writing in writings]


class Packed(NamedTuple):
    """What was read, with numbers in the place of texts that repeat, and these texts by column."""

    scanned: Scanned
    texts: Mapping[str, pl.Series]


def packed(found: Any) -> Any:
    """Columns that were read, with each text once; anything else as it is."""
    if not isinstance(found, Scanned):
        return found
    columns, texts = list[pl.Series](), dict[str, pl.Series]()
    for column in found.frame:
        coded = encode([column], len(column)) if column.dtype == pl.String else None
        if coded is None or _REPEATED * coded.size > len(column):
            columns.append(column)
        else:
            columns.append(coded.codes.shrink_dtype().alias(column.name))
            texts[column.name] = column.gather(coded.first)
    return Packed(found.with_frame(pl.DataFrame(columns)), texts)


def unpacked(found: Any) -> Any:
    """What was packed."""
    if not isinstance(found, Packed):
        return found
    frame = found.scanned.frame
    return found.scanned.with_frame(
        frame.with_columns(texts.gather(frame[name]) for name, texts in found.texts.items())
    )
