"""Keys of groups and texts of a few rows to show to people, without reading the texts of other rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Final

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, GrpoError
from grpo_cli.read.narrow import Narrow, RowNumbers
from grpo_cli.read.tables import SHOWN, Table
from grpo_cli.values.cells import Field, canonical, json_text, words
from grpo_cli.values.key_text import cells, cut, labels_of, plain, shared, told_apart, without
from grpo_cli.values.paths import Absent

SAMPLE: Final = 1_000  # keys from all over the file, to find what all keys share
LISTED: Final = 5
NUMBER: Final = re.compile(r"#\d{1,15}")
LONGEST: Final = 100  # characters of a key that is compared with a misspelled one
NEAR: Final = 10_000  # keys that are compared with a misspelled one, to suggest the nearest


class Labels:
    """The labels of the groups of a narrow table; a key is formatted only when its label is needed."""

    def __init__(self, narrow: Narrow) -> None:
        self._narrow = narrow
        size = narrow.groups.size
        sample = [self._text(code) for code in range(0, size, max(1, size // SAMPLE))]
        self._widest = max(map(cells, sample), default=0)
        self._start, self._end = shared(sample)

    def __call__(self, codes: Sequence[int], width: int) -> list[str]:
        """The labels of these groups in at most `width` cells; if several would be equal, the parts that differ."""
        texts = [self._text(code) for code in codes]
        if self._widest > width:
            texts = [without(text, self._start, self._end) for text in texts]
        return told_apart(texts, width)

    def _text(self, code: int) -> str:
        """The key on one line, without a chat template."""
        if not self._narrow.key.width:
            return self._narrow.label(code)
        return ", ".join(plain(words(column[code : code + 1])) for column in self._narrow.key)


def code_of(narrow: Narrow, key: str) -> int:
    """The code of the group that --show names: by its key, `#3`, a prefix, a label as printed, or part of the text."""
    texts = _keys(narrow).fill_null("null")
    spaced = ", ".join(part.strip() for part in key.split(","))
    ways: tuple[Callable[[], pl.Series], ...] = (
        lambda: texts == key,
        lambda: texts == spaced,
        lambda: _numbered(texts, key),
        lambda: texts.str.starts_with(key),
        lambda: _with_parts(texts, key),
    )
    for way in ways:
        codes = way().arg_true()
        if len(codes) == 1:
            return int(codes[0])
        if len(codes) > 1:
            some = codes[:LISTED].to_list()
            labels = labels_of([texts[code] for code in some], SHOWN)
            shown = ", ".join(f"#{code + 1} {label}" for code, label in zip(some, labels, strict=True))
            more = f" and {len(codes) - LISTED:,} more" if len(codes) > LISTED else ""
            raise DataError(
                f"{key!r} is in {len(codes):,} keys: {shown}{more}",
                f"give --show more of the key, or its number: --show '#{some[0] + 1}'",
            )
    if NUMBER.fullmatch(key):
        raise DataError(f"there is no group {key}", f"the groups are #1 to #{len(texts)}")
    near = get_close_matches(key, texts.head(NEAR).str.head(LONGEST).to_list(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the first of {len(texts)} is {cut(plain(texts[0]), SHOWN)!r}"
    raise DataError(f"no group has the key {key!r} or a text like it in its key", hint)


def _numbered(texts: pl.Series, key: str) -> pl.Series:
    """The group with this number, as lists print it."""
    return pl.Series(range(1, len(texts) + 1)) == int(key[1:] if NUMBER.fullmatch(key) else 0)


def _with_parts(texts: pl.Series, key: str) -> pl.Series:
    """The keys that contain this text, as written or as labels print it: on one line, with marks for omissions."""
    same = texts.str.contains(key, literal=True)
    if same.any():
        return same
    parts = [" ".join(part.split()) for part in re.split(r"…|\.\.\.", key)]
    pattern = "(?is)" + ".*".join(re.escape(part) for part in map(plain, parts))
    return pl.Series([plain(text) for text in texts]).str.contains(pattern) if any(parts) else same


def key_of(narrow: Narrow, code: int) -> str:
    """The whole key of a group, as `code_of` takes it."""
    return str(_written(narrow.key[code : code + 1])[0]) if narrow.key.width else narrow.label(code)


def _keys(narrow: Narrow) -> pl.Series:
    """The keys as full text; a block is named by its first row."""
    if not narrow.key.width:
        return pl.Series([narrow.label(code) for code in range(narrow.groups.size)], dtype=pl.String)
    return _written(narrow.key)


def _written(keys: pl.DataFrame) -> pl.Series:
    """Keys as text, their parts separated by commas."""
    parts = [
        canonical(column) if column.dtype.is_nested() or column.dtype.is_extension()
        else canonical(column).str.replace(r"^\w+:", "") if column.dtype.is_temporal()
        else pl.Series([None if key is None else str(key) for key in column], dtype=pl.String) if column.dtype == pl.Binary
        else column.cast(pl.String)
        for column in keys
    ]  # fmt: skip
    return pl.DataFrame([part.alias(str(i)) for i, part in enumerate(parts)]).select(
        pl.concat_str(pl.all(), separator=", ")
    ).to_series()  # fmt: skip


def texts(narrow: Narrow, rows: RowNumbers, column: str) -> list[str | None]:
    """The texts of these rows of the narrow table; values that are not text as JSON."""
    places, which = np.unique(rows if narrow.rows is None else narrow.rows[rows], return_inverse=True)
    values: list[Any] = []
    for at, here in narrow.by_file(places):
        values += _values(narrow.tables[at], narrow.scans[at].index, here, column)
    return [as_text(values[place]) for place in which.tolist()]


def as_text(value: Any) -> str | None:
    """A text as it is, other values as JSON."""
    if isinstance(value, pl.Series):
        value = value.to_list()
    return value if value is None or isinstance(value, str) else json_text(value)


def _values(table: Table, index: Any, rows: RowNumbers, column: str) -> Sequence[Any]:
    """The values of these ascending rows; derived columns need a scan."""
    with suppress(Absent):
        return [value for frame in table.rows(index, rows, [column]) for value in frame[column].to_list()]
    try:
        return table.scan([Field(column, "key")]).frame[column].gather(rows).to_list()
    except GrpoError:  # not every file has the column
        return [None] * len(rows)
