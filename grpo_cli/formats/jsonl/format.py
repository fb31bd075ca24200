"""JSON lines as a file format: one object a line, a row each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
import polars as pl

from grpo_cli.files.compression import is_packed
from grpo_cli.formats.interface import Format
from grpo_cli.formats.jsonl import jsonl
from grpo_cli.formats.jsonl.broken import without_broken
from grpo_cli.formats.jsonl.compare import first_difference
from grpo_cli.formats.jsonl.exact import ABSENT, parsed, refuse_doubled, rows, value_of
from grpo_cli.formats.jsonl.lines import BOM, is_blank, line_of, raw_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.interface import Compared, Field, Weaving

_SAMPLE: Final = 20  # lines
_SAMPLE_BYTES: Final = 4 << 20
_FIRST: Final = 128  # rows at the beginning of a packed file that are quickly reached


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
        return pl.concat(list(self.parts(source)))

    def parts(self, source: Input) -> Iterator[pl.DataFrame]:
        """The whole file as typed columns, block by block."""
        from grpo_cli.formats.jsonl import typed  # loads pyarrow.json, which only conversion needs

        return typed.parts(source)

    def parts_like_first(self, source: Input) -> Iterator[pl.DataFrame]:
        """The same, with most blocks read once."""
        from grpo_cli.formats.jsonl import typed

        return typed.parts_like_first(source)

    def sample(self, source: Input) -> Sequence[Mapping[str, Any]]:
        """The first few rows, fewer where they are long."""
        return [row for _, row in rows(_first_lines(source), lambda at: f"{source.name}:{at + 1}")]

    def place(self, source: Input, row: int, left_out: Sequence[int] = ()) -> str:
        """A row by the number of its line."""
        line = line_of(source, row)
        for gone in left_out:
            line += gone <= line
        return f"{source.name}:{line}"

    def sections(self, source: Input, size: int) -> Sequence[tuple[int, int]]:
        """Whole lines; of a packed file there is one section."""
        if is_packed(source):
            return super().sections(source, size)
        cuts = [0]
        with source.open() as handle:
            while cuts[-1] + size < source.pin.size:
                handle.seek(cuts[-1] + size)
                line = handle.readline(source.max_line)
                cuts.append(min(cuts[-1] + size + len(line), source.pin.size))
        return list(pairwise([*cuts, source.pin.size] if cuts[-1] < source.pin.size else cuts))

    def values(self, source: Input, rows: np.ndarray, column: str, height: int) -> Sequence[Any] | None:
        """The values of a column, of which only the lines of these rows are parsed."""
        found = []
        for line in _lines_of(source, rows, height):
            row = parsed(line.removeprefix(BOM), lambda _: source.name, 0)
            refuse_doubled(row, [column], lambda: source.name)
            value = value_of(row, column)
            found.append(None if value is ABSENT else value)
        return found if len(found) == len(rows) else None

    def json_texts(self, source: Input, rows: np.ndarray, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The JSON texts of some columns, byte for byte as they stand in the lines."""
        return jsonl.json_texts(source, rows, columns)

    def quick_rows(self, source: Input, height: int) -> range:
        """All rows of a plain file whose lines have been found, and the first ones of others."""
        known = not is_packed(source) and sum(one.height for one in source.blocks) == height
        return range(height if known else min(height, _FIRST))

    def without_broken(self, source: Input) -> tuple[Input, tuple[int, ...]]:
        """The input without the lines that are no JSON object, and their numbers."""
        return without_broken(source)

    def weave(self, source: Input, sink: BinaryIO, weaving: Weaving) -> Sequence[str]:
        """Put the new members before the last brace of every line; every other byte is the input's."""
        return jsonl.weave(source, sink, weaving)

    def write(self, frame: pl.DataFrame, sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        """Write a fresh file, one object a line."""
        jsonl.write(frame, sink, metadata)

    def write_parts(self, parts: Iterator[pl.DataFrame], sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        """Write a fresh file of several frames, one behind the other."""
        for frame in parts:
            jsonl.write(frame, sink, metadata)

    def compared(self, new: Input, old: Input, added: Collection[str]) -> Compared:
        """Compare line by line, byte by byte."""
        return "bytes", first_difference(new, old, tuple(added))


def _lines_of(source: Input, rows: np.ndarray, height: int) -> Iterator[bytes]:
    """The lines of some ascending rows: at their places if a scan has noted them, or else by walking to them."""
    heights = np.array([one.height for one in source.blocks], np.int64)
    if is_packed(source) or heights.sum() != height:
        wanted = frozenset(rows.tolist())
        lines = (line for line in raw_lines(source) if not is_blank(line))
        yield from (line for at, line in enumerate(islice(lines, int(rows.max(initial=-1)) + 1)) if at in wanted)
        return
    ends, offsets = np.cumsum(heights), np.cumsum([0, *(one.size for one in source.blocks)])
    with source.open() as handle:
        for row in rows.tolist():
            block = int(np.searchsorted(ends, row, side="right"))
            braces, at = source.blocks[block].braces, row - int(ends[block] - heights[block])
            start = int(braces[at - 1]) + 1 if at else 0  # the end of the line before, and blank lines, come along
            handle.seek(int(offsets[block]) + start)
            yield handle.read(int(braces[at]) + 1 - start).strip()


def _first_lines(source: Input) -> Iterator[bytes]:
    size = 0
    for line in islice(raw_lines(source), _SAMPLE):
        yield line
        size += len(line)
        if size > _SAMPLE_BYTES:
            return
