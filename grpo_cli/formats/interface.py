"""What every file format can do: the interface that readers and writers of files stand behind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final, Literal

import polars as pl

from grpo_cli.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import numpy as np

    from grpo_cli.files.inputs import Input

Kind = Literal["number", "numbers", "key"]
Compared = tuple[Literal["bytes", "values"], str | None]
PARENT: Final = "@parent"  # the column that numbers the list that a rollout stands in


class PartOfRecord(DataError):
    """Of one record some rows are to be kept and others not, and its layout has no place for that."""


class TypesDiffer(Exception):
    """A later part of a file needs other column types than the first one."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column to read. The name may be a dotted path; a column that has the whole name wins."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Weaving:
    """What goes into the bytes of a file.

    `added` is aligned with the rows of the output; `take` says which source row each of them is (None:
    every row, in order). With `replace` a column of the same name is rewritten where it stands.
    """

    added: pl.DataFrame
    take: np.ndarray | None
    replace: bool
    metadata: Mapping[str, str]


@dataclass(frozen=True)
class Format(ABC):
    """One file format. Row i of everything that it reads is rollout i of the file.

    The abstract methods are what each format must do; the others have a default that fits a format of plain rows.
    """

    name: str  # how messages call it

    holds_lists: ClassVar[bool] = True  # a record may be a prompt with the list of its rollouts' rewards
    holds_objects: ClassVar[bool] = False  # a record may have rollouts as objects somewhere inside

    @property
    def binary(self) -> bool:
        """Whether the bytes are no text for a terminal."""
        return False

    # --- reading -----------------------------------------------------------------------------------------------

    @abstractmethod
    def columns(self, source: Input) -> list[str]:
        """Names of the top-level columns, in the order of the file."""

    @abstractmethod
    def scan(self, source: Input, fields: Sequence[Field]) -> pl.DataFrame:
        """One column per field, typed by its kind, and nothing else of the file."""

    @abstractmethod
    def read(self, source: Input) -> pl.DataFrame:
        """The whole file, one row per record, for another format."""

    def parts(self, source: Input) -> Iterator[pl.DataFrame]:
        """What `read` returns in several frames, so that not all of it has to be in memory; one at least."""
        yield self.read(source)

    def parts_like_first(self, source: Input) -> Iterator[pl.DataFrame]:
        """`parts`, perhaps by the column types of the first one: TypesDiffer ends them where those do not hold all values."""
        return self.parts(source)

    @abstractmethod
    def sample(self, source: Input) -> Sequence[Mapping[str, Any]]:
        """The first few rows as Python values, or one made-up row of the same types: it shows the schema of the file."""

    @property
    def watches(self) -> bool:
        """Whether a row may hold a name that `columns` does not list, so that `scan_watching` may find one."""
        return False

    def scan_watching(
        self,
        source: Input,
        fields: Sequence[Field],
        watched: Collection[str],  # noqa: ARG002 - for formats that watch
    ) -> tuple[pl.DataFrame, frozenset[str]]:
        """What `scan` returns, and which of the watched names some row holds beyond those of `columns`."""
        return self.scan(source, fields), frozenset()

    def outer_columns(self, source: Input) -> frozenset[str]:  # noqa: ARG002
        """Those of `columns` that stand in objects around the rollouts, where a new column never goes."""
        return frozenset()

    def place(self, source: Input, row: int, left_out: Sequence[int] = ()) -> str:  # noqa: ARG002
        """How messages call a row (0 is the first); `left_out` are numbers of lines that `source` no longer has."""
        return f"{source.name} row {row + 1}"

    def row_count(self, source: Input) -> int | None:  # noqa: ARG002
        """How many rows the file has; None when only a scan would tell."""
        return None

    def sections(self, source: Input, size: int) -> Sequence[tuple[int, int]]:  # noqa: ARG002
        """From where to where the file can be cut into sections that are read by themselves, each of about `size` bytes."""
        return [(0, source.pin.size)]

    def values(self, source: Input, rows: np.ndarray, column: str, height: int) -> Sequence[Any] | None:  # noqa: ARG002
        """The values of a column at some ascending rows of `height`; None when a scan is the only way."""
        return None

    @abstractmethod
    def json_texts(self, source: Input, rows: np.ndarray, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The JSON texts of some columns at ascending rows, null where a row has no value.

        The frames have all rows together, and each is small enough to be held in memory.
        """

    def quick_rows(self, source: Input, height: int) -> np.ndarray | range:  # noqa: ARG002
        """Rows, in ascending order, whose values `values` returns without reading much of the file."""
        return range(0)

    def without_broken(self, source: Input) -> tuple[Input, tuple[int, ...]]:
        """The input without the lines that cannot be read, and the numbers of those lines."""
        return source, ()

    # --- rollouts inside of records ----------------------------------------------------------------------------

    @property
    def nested(self) -> bool:
        """Whether a record may hold several rollouts, so that `long` is not `read`."""
        return False

    @property
    def keeps_empty_records(self) -> bool:
        """Whether a record without rollouts stays in the file when rows of others are taken."""
        return False

    def long(self, source: Input) -> pl.DataFrame:
        """The whole file, one row per rollout."""
        return self.read(source)

    def records(self, source: Input, weaving: Weaving) -> Weaving:  # noqa: ARG002
        """The weaving with one row per record of `read`; PartOfRecord when rows of one record are divided."""
        return weaving

    # --- writing -----------------------------------------------------------------------------------------------

    @abstractmethod
    def weave(self, source: Input, sink: BinaryIO, weaving: Weaving) -> Sequence[str]:
        """Copy the file with the new columns put in; returns what there is to tell of it, a line each."""

    @abstractmethod
    def write(self, frame: pl.DataFrame, sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        """Write a fresh file; a format without a place for metadata leaves it out."""

    def write_parts(self, parts: Iterator[pl.DataFrame], sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        """Write a fresh file of frames that have the same columns."""
        self.write(pl.concat(list(parts)), sink, metadata)

    def weave_in_place(self, source: Input, weaving: Weaving) -> Sequence[str] | None:  # noqa: ARG002
        """Put the new columns into the file itself; None when the format cannot, and nothing was changed."""
        return None

    # --- comparing ---------------------------------------------------------------------------------------------

    def same_as(self, other: Format) -> bool:
        """Whether both are one file format, however the rollouts lie in its records."""
        return self.name == other.name

    def compared(self, new: Input, old: Input, added: Collection[str]) -> Compared:
        """By what `new` without the added columns was compared with `old`, and the first difference (None: none)."""
        return "values", self._different_values(new, old, added)

    def _different_values(self, new: Input, old: Input, added: Collection[str]) -> str | None:
        was, now = self.read(old), self.read(new)
        if len(was) != len(now):
            raise DataError(f"{new.name}: {len(now)} rows, {old.name} has {len(was)}")
        for name in was.columns:
            if name in added:
                continue
            if name not in now.columns:
                raise DataError(f"{new.name}: the column {name} is gone")
            if was[name].dtype != now[name].dtype:
                return f"{new.name}: {name} is {now[name].dtype}, and {was[name].dtype} in {old.name}"
            differs = was[name].ne_missing(now[name])
            if differs.any():
                return f"{new.name} row {(differs.arg_max() or 0) + 1}: {name} differs from {old.name}"
        more = [name for name in now.columns if name not in was.columns and name not in added]
        return f"{new.name}: the column {more[0]} is new" if more else None
