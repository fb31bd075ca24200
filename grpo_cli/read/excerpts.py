"""A few rows of a file, as a person reads them: the text of some responses, without reading those of all others."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, GrpoError
from grpo_cli.formats.cells import canonical, json_text
from grpo_cli.formats.interface import Field
from grpo_cli.read.tables import FileTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_cli.read.tables import Narrow, Table

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
NEAR: Final = 10_000  # keys that a misspelt one is compared with


def code_of(narrow: Narrow, key: str) -> int:
    """The code of the group with this key: the whole key, its parts with a comma between them, or a unique beginning."""
    texts = _keys(narrow)
    spaced = ", ".join(part.strip() for part in key.split(","))
    for same in (texts == key, texts == spaced, texts.str.starts_with(key)):
        codes = same.arg_true()
        if len(codes) == 1:
            return int(codes[0])
        if len(codes) > 1:
            shown = ", ".join(narrow.label(int(code)) for code in codes[:3])
            more = f" and {len(codes) - 3} more" if len(codes) > 3 else ""  # noqa: PLR2004 - the three that are shown
            raise DataError(f"{key!r} is the beginning of {len(codes)} keys ({shown}{more})", "give --show more of it")
    near = get_close_matches(key, texts.head(NEAR).to_list(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the first of {len(texts)} is {texts[0]!r}"
    raise DataError(f"no group has the key {key!r}", hint)


def _keys(narrow: Narrow) -> pl.Series:
    """The keys in words, whole; a block is called by its first row."""
    if not narrow.key.width:
        return pl.Series([narrow.label(code) for code in range(narrow.groups.size)], dtype=pl.String)
    parts = [canonical(one) if one.dtype.is_nested() else one.cast(pl.String) for one in narrow.key.get_columns()]
    return pl.DataFrame([part.alias(str(i)) for i, part in enumerate(parts)]).select(
        pl.concat_str(pl.all(), separator=", ")
    ).to_series()  # fmt: skip


def texts(narrow: Narrow, rows: Rows, column: str) -> list[str | None]:
    """The text of these rows of the narrow table; of messages and other values their JSON."""
    places = rows if narrow.rows is None else narrow.rows[rows]
    files = np.searchsorted(narrow.ends, places, side="right")
    values: dict[int, Any] = {}
    for file in np.unique(files):
        start = int(narrow.ends[file]) - narrow.lengths[file]
        here = np.unique(places[files == file])
        read = _values(narrow.tables[file], here - start, column, narrow.lengths[file])
        values |= dict(zip(here.tolist(), read, strict=True))
    return [_as_text(values[place]) for place in places.tolist()]


def _as_text(value: Any) -> str | None:
    """Of a chat, what was said last; of other values their JSON."""
    if isinstance(value, pl.Series):
        value = value.to_list()
    if isinstance(value, list) and value and isinstance(value[-1], dict) and isinstance(value[-1].get("content"), str):
        return str(value[-1]["content"])
    return value if value is None or isinstance(value, str) else json_text(value)


def _values(table: Table, rows: Rows, column: str, height: int) -> Sequence[Any]:
    """The values of these rows (in ascending order), read the cheap way if the format has one."""
    if isinstance(table, FileTable):
        values = table.format.values(table.source, rows, column, height)
        if values is not None:
            return values
    try:
        return table.scan([Field(column, "key")])[column].gather(rows).to_list()
    except GrpoError:  # not every file of several has it
        return [None] * len(rows)
