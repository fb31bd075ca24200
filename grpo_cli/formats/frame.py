"""A frame in memory, read like a file: its source has no bytes, and nothing can be inserted into it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.files.inputs import InMemory, Input
from grpo_cli.formats.interface import Index, Reader, Scanned, place_of_row
from grpo_cli.values.cells import Excerpt, Field, field_of, typed
from grpo_cli.values.paths import Absent, absent, refuse_doubled

FIRST = 4096  # rows that are cheap to compute, even of a lazy frame
EXPLODE = "make a row of each item first (frame.explode), and name the column of the record with group="
# The source of every frame: a name for messages.
FRAME = InMemory.of(b"", "frame")


@dataclass(frozen=True)
class FrameReader(Reader):
    """The names of a frame's columns, and how to take some of them."""

    names: Sequence[str]
    take: Callable[[list[str], int | None], pl.DataFrame]  # some columns, of all rows or only of the first
    in_memory: Sequence[str] = ()  # text columns that need not be computed, as those of a lazy frame
    types: Mapping[str, pl.DataType] = field(default_factory=dict)  # of the columns, as far as known without reading

    name: str = field(default="a frame", kw_only=True)

    record = "rollout"

    def columns(self, source: Input) -> list[str]:
        """The frame's columns."""
        return list(self.names)

    def sample(self, source: Input) -> Sequence[Mapping[str, Any]]:
        """A made-up row from the types: no value is read."""
        from grpo_cli.formats.columnar import row_of  # imports pyarrow, which a run on a polars frame does not need

        return [row_of(pl.DataFrame(schema=self.types).to_arrow().schema)]

    def scan(self, source: Input, fields: Sequence[Field], watched: Collection[str] = ()) -> Scanned:
        """The columns of these fields."""
        columns = self._taken(source, [wanted.name for wanted in fields], None)
        for wanted in fields:
            if wanted.kind == "number" and isinstance(columns[wanted.name].dtype, (pl.List, pl.Array)):
                raise DataError(f"{wanted.name} has lists, but a frame needs one number per row", EXPLODE)
        place = partial(place_of_row, source)
        return Scanned(pl.DataFrame([typed(wanted, columns[wanted.name], place) for wanted in fields]))

    def rows(self, source: Input, wanted: Excerpt) -> Iterator[pl.DataFrame]:
        """Some columns at ascending rows; rows after the last of them are not computed."""
        frame = pl.DataFrame(self._taken(source, wanted.columns, int(wanted.numbers[-1]) + 1))[wanted.numbers]
        if wanted.as_json:
            from grpo_cli.formats.columnar import cells_of  # imports pyarrow, as above

            frame = cells_of(frame, {name: [name] for name in wanted.columns}, source, as_json=True)
        yield frame

    @property
    def untyped(self) -> Collection[str]:
        """The columns of Python objects, whose type is not known, so that they may not be readable."""
        return [name for name in self.names if self.types.get(name, pl.Object) == pl.Object]

    def cheap_rows(self, source: Input, index: Index, height: int) -> int:
        """The first rows."""
        return FIRST

    def _taken(self, source: Input, names: Sequence[str], rows: int | None) -> dict[str, pl.Series]:
        """Some columns; dotted paths lead into structs."""
        heads = {name: name if name in self.names else name.partition(".")[0] for name in names}
        for name, head in heads.items():
            if head not in self.names:
                raise absent(name, source.name, self.names)
        refuse_doubled(heads.values(), self.names, source.name)
        frame = self.take(list(dict.fromkeys(heads.values())), rows)
        return {name: _reach(source, frame[head], name, head) for name, head in heads.items()}


def _reach(source: Input, column: pl.Series, name: str, head: str) -> pl.Series:
    """The field of a column that a path leads to."""
    found = column.alias("")
    for part in name.removeprefix(head).split(".")[1:]:
        try:
            found = field_of(found, part)
        except pl.exceptions.PolarsError:
            raise Absent.of(name, source.name, [f"{head} is {column.dtype}"]) from None
    return found
