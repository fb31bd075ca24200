"""The texts of rollouts: which columns hold them, and their JSON texts row by row, a few at a time and never all of them."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, InputChanged, UsageError
from grpo_cli.files.inputs import spooled
from grpo_cli.read.known_names import CONVERSATIONS, LIKELY_TEXT, PROMPTS, RESPONSES
from grpo_cli.read.tables import FileTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from grpo_cli.read.tables import Narrow

    Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
    Hashes = np.ndarray[tuple[int], np.dtype[np.uint64]]

_EMPTY: Final = ('""', "[]", "{}")
_MISSING: Final = 0  # the hash of a text that is not there


@dataclass(frozen=True, slots=True, kw_only=True)
class TextColumns:
    """Where the texts are: prompt and response, or a conversation that has both."""

    prompt: str = ""
    response: str = ""
    messages: str = ""

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        return [name for name in (self.prompt, self.response, self.messages) if name]

    @property
    def words(self) -> str:
        """What the summary says of them."""
        parts = {"messages": self.messages, "prompt": self.prompt, "response": self.response}
        return ", ".join(f"{part} = {name}" for part, name in parts.items() if name)


def text_columns(tables: Sequence[FileTable], named: TextColumns, *, prompt_only: bool = False) -> TextColumns:
    """The columns of the texts: those that are named, else those of the schema, else those of known names."""
    if named.messages and (named.prompt or named.response):
        raise UsageError("--messages is a conversation with its response", "leave out --prompt and --response")
    if named.messages:
        return named
    names = list(dict.fromkeys(name for table in tables for name in table.columns()))
    schema = tables[0].schema
    known = TextColumns()
    if schema is not None:
        known = TextColumns(
            prompt=_there(schema.prompt, names),
            response=_there(schema.response, names),
            messages=_there(schema.messages, names),
        )
    first = {
        part: next((name for name in among if name in names), "")
        for part, among in (("prompt", PROMPTS), ("response", RESPONSES), ("messages", CONVERSATIONS))
    }
    prompt = named.prompt or known.prompt or first["prompt"]
    response = named.response or known.response or first["response"]
    messages = known.messages or first["messages"]
    if known.messages and not (named.prompt or named.response):
        return TextColumns(messages=messages)
    if prompt and (response or prompt_only):
        return TextColumns(prompt=prompt, response="" if prompt_only else response)
    if messages and not (named.prompt or named.response):
        return TextColumns(messages=messages)
    missing = "response" if prompt else "prompt"
    likely = [name for name in names if re.search(LIKELY_TEXT, name, re.IGNORECASE)] or names
    listed = ", ".join(likely[:20])
    flags = "--prompt NAME" if prompt_only else "--prompt NAME and --response NAME, or --messages NAME"
    raise DataError(f"{tables[0].name}: no column is known as the {missing}", f"give {flags}; it could be {listed}")


def refuse_same_column(columns: Any) -> None:
    """Two parts of a record, the fields of a dataclass, that are one column: one of the names is a mistake."""
    for (part, name), (other, same) in combinations(asdict(columns).items(), 2):
        if name and name == same:
            parts = f"{part} and {other}".replace("_", " ")
            raise UsageError(f"{parts} are both the column {name!r}", "give each its own column, or leave one out")


def _there(name: str, names: Sequence[str]) -> str:
    return name if name in names or name.partition(".")[0] in names else ""


def json_texts(narrow: Narrow, rows: Rows, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """The JSON texts of some columns at ascending rows of the narrow table, in frames of a few rows; null for none."""
    places = rows if narrow.rows is None else narrow.rows[rows]
    for table, length, end in zip(narrow.tables, narrow.lengths, narrow.ends, strict=True):
        start = int(end) - length
        first, last = np.searchsorted(places, np.array([start, end]))
        if first == last or not isinstance(table, FileTable):
            continue
        count = 0
        for frame in table.format.json_texts(table.source, places[first:last] - start, columns):
            count += len(frame)
            yield frame
        if count != last - first:
            raise InputChanged.between_readings(table.name)


def text_hashes(narrow: Narrow, rows: Rows, columns: Sequence[str]) -> dict[str, Hashes]:
    """A number for each text, equal for equal ones; 0 where there is none, or an empty one."""
    parts: dict[str, list[Any]] = {name: [np.zeros(0, np.uint64)] for name in columns}
    for frame in json_texts(narrow, rows, columns):
        for name, found in parts.items():
            text = frame[name]
            found.append(text.hash().set(text.is_in(_EMPTY) | text.is_null(), _MISSING).to_numpy())
    hashes = {name: np.concatenate(found) for name, found in parts.items()}
    for name, found_hashes in hashes.items():
        if len(rows) and not found_hashes.any():
            raise DataError(f"no row has a text in the column {name!r}", _listed(narrow))
    return hashes


def _listed(narrow: Narrow) -> str:
    return f"the columns are {', '.join(narrow.tables[0].columns()[:20])}"


class TextStore:
    """The texts of some rows in a temporary file, to be taken in any order."""

    def __init__(self, narrow: Narrow, rows: Rows, columns: Sequence[str]) -> None:
        self._rows, self._columns = rows, list(columns)
        sizes = []

        def parts() -> Iterator[bytes]:
            for frame in json_texts(narrow, rows, columns):
                texts = [(text or "").encode() for row in frame.iter_rows() for text in row]
                sizes.append(np.fromiter(map(len, texts), np.int64, len(texts)))
                yield b"".join(texts)

        self._fd = cast("int", spooled(parts(), "the texts of the records").fd)
        self._ends = np.cumsum(np.concatenate([np.zeros(0, np.int64), *sizes]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def size(self, rows: Rows) -> Rows:
        """How many bytes the texts of each of these rows are."""
        first = np.searchsorted(self._rows, rows) * len(self._columns)
        starts = np.where(first > 0, self._ends[first - 1], 0)
        sizes: Rows = self._ends[first + len(self._columns) - 1] - starts
        return sizes

    def take(self, rows: Rows, column: str) -> pl.Series:
        """The JSON texts of a column at these rows."""
        at = np.searchsorted(self._rows, rows) * len(self._columns) + self._columns.index(column)
        ends = self._ends[at]
        starts = np.where(at > 0, self._ends[at - 1], 0)
        read = (
            os.pread(self._fd, end - start, start) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        )
        return pl.Series(column, [text.decode() or None for text in read], dtype=pl.String)
