"""The interface of file formats, for readers and writers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Literal

import numpy as np
import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.files.inputs import Input
from grpo_cli.values.cells import Excerpt, Field

# Where the rows of a file are; opaque to all but the format that found them, and picklable. None if it would save
# nothing, or if the file was not scanned in this process: the format then finds the rows again.
Index = Any
Compared = tuple[Literal["bytes", "values"], str | None]
Record = Literal["texts", "values", "object", "rollout"]


ADD_LONG = "this layout keeps the rows of a record together: add --long"


class PartOfRecord(DataError):
    """Some rows of a record are kept and others dropped, which its layout cannot express."""


class TypesDiffer(Exception):
    """A later part of a file needs other column types than the first part."""


@dataclass(frozen=True, kw_only=True)
class Weaving:
    """The columns to insert into a file.

    `added` is aligned with the rows of the output; `take` is the source row of each (None: every row, in order). With
    `replace`, a column with the same name is rewritten in its place.
    """

    added: pl.DataFrame
    take: np.ndarray | None = None
    replace: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False  # if all rows stay, refuse to re-encode the file, of which there is no other copy


@dataclass(frozen=True)
class Scanned:
    """The result of reading a file: its columns, and facts that save work when it is written or rows are fetched."""

    frame: pl.DataFrame
    index: Index = None
    late_names: frozenset[str] = frozenset()  # watched names that some row has and `columns` does not list
    empty: int = 0  # records without rollouts

    def with_frame(self, frame: pl.DataFrame, *others: Scanned) -> Scanned:
        """The same scan with columns derived from it and from other scans of the same file."""
        return replace(self, frame=frame, late_names=self.late_names.union(*(scan.late_names for scan in others)))


def place_of_row(source: Input, row: int) -> str:
    """A row (0 is the first) in messages about files without lines."""
    return f"{source.name} row {row + 1}"


@dataclass(frozen=True)
class Reader(ABC):
    """What reads columns from a source. Row i of everything that it reads is rollout i of the source.

    The abstract methods are all that it needs; the defaults of the others fit formats of plain rows.
    """

    name: str  # its name in messages

    @property
    @abstractmethod
    def record(self) -> Record:
        """What a record is, and so what it can hold.

        - texts: the cells of a line of text, where 1 and the text 1 are the same, and lists cannot be;
        - values: cells with types, in a binary file; lists may have an item per rollout;
        - object: an object of JSON; rollouts may be anywhere inside, and it may have names that `columns` does not list;
        - rollout: the row of a frame, which is never a record of several.
        """

    @abstractmethod
    def columns(self, source: Input) -> list[str]:
        """Names of the top-level columns, in the order of the file."""

    @abstractmethod
    def scan(self, source: Input, fields: Sequence[Field], watched: Collection[str] = ()) -> Scanned:
        """A column per field, typed by its kind, and nothing else of the file; and watched names that occur."""

    @abstractmethod
    def sample(self, source: Input) -> Sequence[Mapping[str, Any]]:
        """The first few rows as Python values, or one made-up row of the same types: it shows the schema of the file."""

    @abstractmethod
    def rows(self, source: Input, wanted: Excerpt) -> Iterator[pl.DataFrame]:
        """The wanted cells; null if a row lacks the column.

        Together the frames have all rows; each is small enough for memory.
        """

    # --- what it may know beyond that ----------------------------------------------------------------------------

    def outer_columns(self, source: Input) -> frozenset[str]:
        """Those of `columns` in objects around the rollouts, where new columns never go."""
        return frozenset()

    def places(self, source: Input, rows: Sequence[int]) -> list[str]:
        """Rows (0 is the first) in messages."""
        return [place_of_row(source, row) for row in rows]

    def row_count(self, source: Input) -> int | None:
        """The number of rows of the file; None if that takes a scan."""
        return None

    def cheap_rows(self, source: Input, index: Index, height: int) -> np.ndarray | int:
        """The rows, of all `height` rows, that `rows` returns without reading much of the file, or how many first ones."""
        return 0


@dataclass(frozen=True)
class Format(Reader):
    """A file format: it also reads whole files, inserts columns into them, and writes new ones."""

    @abstractmethod
    def parts(self, source: Input) -> Iterator[pl.DataFrame]:
        """The whole file, one row per record, for another format: in one frame, or several if it can."""

    @abstractmethod
    def weave(self, source: Input, index: Index, sink: BinaryIO, weaving: Weaving) -> Sequence[str]:
        """Weave: copy the file with the new columns inserted; return notes for the user, a line each."""

    @abstractmethod
    def write_parts(self, parts: Iterator[pl.DataFrame], sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        """Write a new file from frames with the same columns; formats without metadata leave it out."""

    @abstractmethod
    def compared(self, new: Input, old: Input, added: Collection[str]) -> Compared:
        """How `new` without the added columns was compared with `old`, and the first difference, if any."""

    def read(self, source: Input) -> pl.DataFrame:
        """The whole file in one frame."""
        return pl.concat(self.parts(source))

    def same_as(self, other: Format) -> bool:
        """Whether both are the same file format, whatever the layout of their records."""
        return self.name == other.name


# --- what only some formats can, asked for by `isinstance` -------------------------------------------------------


@dataclass(frozen=True)
class InCells(Format):
    """A format of texts in cells."""

    strict: bool = False  # a text that is not UTF-8 is an error, not escaped

    record = "texts"


@dataclass(frozen=True)
class InLines(Format):
    """A format whose rows are lines, which can be read apart from each other."""

    like_first: bool = False  # `parts` have the types of the first part: TypesDiffer if these do not fit all values

    @abstractmethod
    def sections(self, source: Input, size: int) -> Sequence[tuple[int, int]]:
        """Start and end of sections of about `size` bytes; their indexes are lists, and together that of the file."""

    @abstractmethod
    def without_broken(self, source: Input) -> Input:
        """The input without the lines that cannot be read."""

    @abstractmethod
    def rows_perhaps_with(
        self, source: Input, wanted: Excerpt, word: bytes
    ) -> Iterator[tuple[int, np.ndarray, pl.DataFrame]]:
        """`rows` without some of those that lack the word, as `Table.rows_perhaps_with` gives them."""


class InRecords(Format):
    """A format of records with several rollouts each: a row of `parts` is a record."""

    @abstractmethod
    def of_rollouts(self, source: Input, index: Index, columns: Sequence[str]) -> Collection[str]:
        """The columns among these that have a value for each rollout, not for its whole record."""

    @abstractmethod
    def long(self, source: Input) -> pl.DataFrame:
        """The whole file, one row per rollout."""

    @abstractmethod
    def records(self, source: Input, index: Index, weaving: Weaving) -> Weaving:
        """The weaving with one row per record; PartOfRecord when rows of one record are divided."""
