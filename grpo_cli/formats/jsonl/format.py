"""JSON lines as a file format: one object a line, a row each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from grpo_cli.formats.interface import Format
from grpo_cli.formats.jsonl import jsonl
from grpo_cli.formats.jsonl.broken import without_broken
from grpo_cli.formats.jsonl.compare import first_difference
from grpo_cli.formats.jsonl.exact import ABSENT, parsed, refuse_doubled, rows, value_of
from grpo_cli.formats.jsonl.lines import BOM, is_blank, line_of, raw_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import numpy as np
    import polars as pl

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.interface import Compared, Field, Weaving

_SAMPLE: Final = 20  # lines
_SAMPLE_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class Jsonl(Format):
    """JSON lines: read in blocks, woven line by line."""

    holds_objects = True
    watches = True  # names are taken from some of the lines, and any other line may hold more

    def columns(self, source: Input) -> list[str]:
        """Names of the top-level members of some lines from all over the file."""
        return jsonl.columns(source)

    def scan(self, source: Input, fields: Sequence[Field]) -> pl.DataFrame:
        """One column per field; no other member is kept."""
        return jsonl.scan(source, fields)

    def scan_watching(
        self, source: Input, fields: Sequence[Field], watched: Collection[str]
    ) -> tuple[pl.DataFrame, frozenset[str]]:
        """Scan, and tell which of the watched names some line holds, however late in the file."""
        return jsonl.late(source, fields, watched)

    def read(self, source: Input) -> pl.DataFrame:
        """The whole file as typed columns; what has no common type stays JSON text."""
        return jsonl.read(source)

    def sample(self, source: Input) -> Sequence[Mapping[str, Any]]:
        """The first few rows, fewer where they are long."""
        return [row for _, row in rows(_first_lines(source), lambda at: f"{source.name}:{at + 1}")]

    def place(self, source: Input, row: int, left_out: Sequence[int] = ()) -> str:
        """A row by the number of its line."""
        line = line_of(source, row)
        for gone in left_out:
            line += gone <= line
        return f"{source.name}:{line}"

    def values(self, source: Input, rows: np.ndarray, column: str, height: int) -> Sequence[Any] | None:
        """The values of a column, of which only the lines of these rows are parsed."""
        wanted, found, at = frozenset(rows.tolist()), [], -1
        for line in raw_lines(source):
            if is_blank(line):
                continue
            at += 1
            if at in wanted:
                row = parsed(line.removeprefix(BOM), lambda _: source.name, 0)
                refuse_doubled(row, [column], lambda: source.name)
                value = value_of(row, column)
                found.append(None if value is ABSENT else value)
        return found if at + 1 == height else None

    def without_broken(self, source: Input) -> tuple[Input, tuple[int, ...]]:
        """The input without the lines that are no JSON object, and their numbers."""
        return without_broken(source)

    def weave(self, source: Input, sink: BinaryIO, weaving: Weaving) -> Sequence[str]:
        """Put the new members before the last brace of every line; every other byte is the input's."""
        return jsonl.weave(source, sink, weaving)

    def write(self, frame: pl.DataFrame, sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        """Write a fresh file, one object a line."""
        jsonl.write(frame, sink, metadata)

    def compared(self, new: Input, old: Input, added: Collection[str]) -> Compared:
        """Compare line by line, byte by byte."""
        return "bytes", first_difference(new, old, tuple(added))


def _first_lines(source: Input) -> Iterator[bytes]:
    size = 0
    for line in islice(raw_lines(source), _SAMPLE):
        yield line
        size += len(line)
        if size > _SAMPLE_BYTES:
            return
