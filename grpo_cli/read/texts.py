"""The texts of rollouts: which columns they are in, and their JSON texts, a few rows at a time."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any, Final, Self, cast

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, UsageError
from grpo_cli.files.inputs import spooled
from grpo_cli.read.known_names import CONVERSATIONS, LIKELY_TEXT, PROMPTS, RESPONSES, TEXTS
from grpo_cli.read.narrow import Narrow, RowNumbers
from grpo_cli.read.tables import Table, column_names
from grpo_cli.schemas.table import Schema

Hashes = np.ndarray[tuple[int], np.dtype[np.uint64]]

_EMPTY: Final = ('""', "[]", "{}")
_MISSING: Final = 0  # the hash of a text that is missing


@dataclass(frozen=True, kw_only=True)
class TextColumns:
    """The columns of the texts: prompt and response, or a conversation with both."""

    prompt: str = ""
    response: str = ""
    messages: str = ""

    @property
    def names(self) -> list[str]:
        """The columns to read."""
        return [name for name in (self.prompt, self.response, self.messages) if name]

    @property
    def words(self) -> str:
        """The columns as the summary names them."""
        parts = {"messages": self.messages, "prompt": self.prompt, "response": self.response}
        return ", ".join(f"{part} = {name}" for part, name in parts.items() if name)


def text_columns(tables: Sequence[Table], named: TextColumns, *, prompt_only: bool = False) -> TextColumns:
    """The columns of the texts: by flag, else by schema, else by known names."""
    if named.messages and (named.prompt or named.response):
        raise UsageError("--messages already contains the response", "leave out --prompt and --response")
    names = column_names(tables)
    found = _found(names, tables[0].schema, named, prompt_only=prompt_only)
    if found.messages or (found.prompt and (found.response or prompt_only)):
        return found
    missing = "response" if found.prompt else "prompt"
    likely = [name for name in names if re.search(LIKELY_TEXT, name, re.IGNORECASE)] or names
    listed = ", ".join(likely[:20])
    flags = "--prompt NAME" if prompt_only else "--prompt NAME and --response NAME, or --messages NAME"
    raise DataError(f"no column looks like the {missing}", f"give {flags}; it could be {listed}", place=tables[0].name)


def some_texts(table: Table, named: TextColumns) -> TextColumns:
    """The columns of the texts of a table to show, as far as there are any; a response has more names here."""
    names = table.columns()
    found = _found(names, table.schema, named)
    if found.messages or found.response:
        return found
    return replace(found, response=next((name for name in TEXTS if name in names), ""))


def _found(
    names: Sequence[str], schema: Schema | None, named: TextColumns, *, prompt_only: bool = False
) -> TextColumns:
    """A conversation, or a prompt and a response, of which one may be missing."""
    if named.messages:
        return named
    known = {
        part: "" if schema is None else _there(getattr(schema, part), names)
        for part in ("prompt", "response", "messages")
    }
    prompt, response, messages = (
        getattr(named, part) or known[part] or next((name for name in among if name in names), "")
        for part, among in (("prompt", PROMPTS), ("response", RESPONSES), ("messages", CONVERSATIONS))
    )
    response = "" if prompt_only else response
    pair = prompt and (response or prompt_only) and not known["messages"]
    if messages and not (pair or named.prompt or named.response):
        return TextColumns(messages=messages)
    return TextColumns(prompt=prompt, response=response)


def refuse_same_column(columns: Any) -> None:
    """Refuse a column that two fields of this dataclass name."""
    for (part, name), (other, same) in combinations(asdict(columns).items(), 2):
        if name and name == same:
            parts = f"{part} and {other}".replace("_", " ")
            raise UsageError(f"{parts} are both the column {name!r}", "give each its own column, or leave one out")


def _there(name: str, names: Sequence[str]) -> str:
    return name if name in names or name.partition(".")[0] in names else ""


def text_hashes(narrow: Narrow, rows: RowNumbers, columns: Sequence[str]) -> dict[str, Hashes]:
    """A hash for each text; 0 if it is missing or empty."""

    def hashes(_: str, text: pl.Series) -> pl.Series:
        return text.hash().set(text.is_in(_EMPTY) | text.is_null(), _MISSING)

    return of_texts(narrow, rows, columns, "a text", "--prompt, --response or --messages", hashes)


def text_lengths(narrow: Narrow, rows: RowNumbers, column: str) -> Any:
    """The number of characters of each text; of a conversation, of its JSON."""

    def lengths(_: str, texts: pl.Series) -> pl.Series:
        plain = (json.loads(text) if text and text[0] == '"' else text or "" for text in texts)
        return pl.Series([*map(len, plain)], dtype=pl.Float64)

    return of_texts(narrow, rows, [column], "a text", "--response or --messages", lengths)[column]


def of_texts(
    narrow: Narrow,
    rows: RowNumbers,
    columns: Sequence[str],
    what: str,
    flags: str,
    values: Callable[[str, pl.Series], pl.Series],
) -> dict[str, Any]:
    """For each column an array with the `values` of its JSON texts; a column without any is an error: no row has `what`, and `flags` name another column."""
    parts = {name: [values(name, pl.Series(dtype=pl.String))] for name in columns}
    for frame in narrow.texts_at(rows, columns):
        for name, found in parts.items():
            found.append(values(name, frame[name].alias("")))
    arrays = {name: pl.concat(found).to_numpy() for name, found in parts.items()}
    for name, array in arrays.items():
        if len(rows) and not array.any():
            columns_are = f"the columns are {', '.join(narrow.tables[0].columns()[:20])}: name another one with {flags}"
            raise DataError(f"no row has {what} in the column {name!r}", columns_are, place=narrow.tables[0].name)
    return arrays


class TextStore:
    """The texts of some rows in a temporary file, for random access."""

    def __init__(self, narrow: Narrow, rows: RowNumbers, columns: Sequence[str]) -> None:
        self._rows, self._columns = rows, list(columns)
        sizes = []

        def parts() -> Iterator[bytes]:
            for frame in narrow.texts_at(rows, columns):
                texts = [(text or "").encode() for row in frame.iter_rows() for text in row]
                sizes.append(np.fromiter(map(len, texts), np.int64, len(texts)))
                yield b"".join(texts)

        self._fd = cast("int", spooled(parts(), "the texts of the records").fd)
        self._starts = np.cumsum(
            np.concatenate([np.zeros(1, np.int64), *sizes])
        )  # of the texts, and the end of the last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def size(self, rows: RowNumbers) -> RowNumbers:
        """The size in bytes of all texts of each of these rows."""
        first = np.searchsorted(self._rows, rows) * len(self._columns)
        sizes: RowNumbers = self._starts[first + len(self._columns)] - self._starts[first]
        return sizes

    def take(self, rows: RowNumbers, column: str) -> pl.Series:
        """The JSON texts of a column at these rows."""
        at = np.searchsorted(self._rows, rows) * len(self._columns) + self._columns.index(column)
        spans = zip(self._starts[at].tolist(), self._starts[at + 1].tolist(), strict=True)
        read = (os.pread(self._fd, end - start, start) for start, end in spans)
        return pl.Series(column, [text.decode() or None for text in read], dtype=pl.String)
