"""What tasks on other machines do with files, as plain functions that know nothing of what calls them.

`work_on` does some work on files, or on sections of them, and returns what it found in few bytes: of a column of texts
each text once. `write_files` adds columns to files. Each gives the same for the same arguments, wherever and however
often it is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files.atomic import directories_synced
from grpo_cli.files.inputs import Input, Section
from grpo_cli.formats.interface import Scanned
from grpo_cli.read.group_keys import encode
from grpo_cli.read.tables import FileTable, Table
from grpo_cli.write.outputs import Output
from grpo_cli.write.weave import Writing, write_one

_REPEATED: Final = 2  # rows that have a text, on average: below that the texts are sent as they are


class _Texts(NamedTuple):
    """A column of texts: each of them once, and which of them every row has."""

    codes: np.ndarray
    texts: pl.Series


class _Packed(NamedTuple):
    """What reading found, and its columns beside it."""

    rest: Scanned
    columns: list[pl.Series | _Texts]


def work_on(work: Callable[[Table], Any], tables: Sequence[FileTable]) -> list[Any]:
    """What the work finds in each of some files or sections, packed."""
    done = []
    for table in map(here, tables):
        table.source.check()
        done.append(packed(work(table)))
        table.source.check()
    return done


def write_files(output: Output, writings: Sequence[Writing]) -> list[str]:
    """Write the outputs of some files, one after the other; returns what there is to say of them."""
    notes = list[str]()
    with directories_synced() as folders:
        for writing in writings:
            notes += write_one(output, replace(writing, table=here(writing.table)), folders, retried=True)
    return notes


def here(table: FileTable) -> FileTable:
    """The table as this machine sees its file: a shared file system has another device number on each of them."""
    source = table.source
    whole = source.whole if isinstance(source, Section) and source.whole is not None else source
    if not whole.is_local:
        return table
    try:
        device = Input.at(whole.path).pin.device
    except DataError:
        raise InputChanged.between_readings(source.name) from None
    whole = replace(whole, pin=replace(whole.pin, device=device))
    return table.of_source(replace(source, whole=whole) if isinstance(source, Section) else whole)


# --- on the way ------------------------------------------------------------------------------------------------


def packed(found: Any) -> Any:
    """Columns with each of their texts once; anything else as it is."""
    if not isinstance(found, Scanned):
        return found
    return _Packed(found.with_frame(pl.DataFrame()), [_packed(column) for column in found.frame])


def unpacked(found: Any) -> Any:
    """What was packed."""
    if not isinstance(found, _Packed):
        return found
    return found.rest.with_frame(pl.DataFrame([_unpacked(column) for column in found.columns]))


def _packed(column: pl.Series) -> pl.Series | _Texts:
    if column.dtype != pl.String:
        return column
    coded = encode([column], len(column))
    if _REPEATED * coded.size > len(column):
        return column
    codes = coded.codes.to_numpy()
    return _Texts(codes.astype(np.min_scalar_type(coded.size)), column.gather(coded.first))


def _unpacked(column: pl.Series | _Texts) -> pl.Series:
    return column if isinstance(column, pl.Series) else column.texts.gather(pl.Series(column.codes))
