"""JSON lines as a file format: one object a line, a row each."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files.compression import is_packed
from grpo_cli.files.inputs import spooled
from grpo_cli.formats import cells
from grpo_cli.formats.blocks import BOM, SIZE, blocks, raw_lines
from grpo_cli.formats.interface import Format
from grpo_cli.formats.json_text import ABSENT, refuse_doubled, texts_of, value_of
from grpo_cli.formats.jsonl.compare import first_difference
from grpo_cli.formats.jsonl.exact import parsed, rows
from grpo_cli.formats.jsonl.lines import is_blank, line_of, number_at
from grpo_cli.formats.jsonl.reading import Found, Part, Reader, Rows
from grpo_cli.formats.jsonl.weaving import weave, weave_in_new_order
from grpo_cli.formats.paths import absent
from grpo_cli.parallel import ahead

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.blocks import Block
    from grpo_cli.formats.interface import Compared, Field, Weaving

_LOG: Final = logging.getLogger(__name__)
_HEAD, _HEAD_BYTES = 1_000, 1 << 20  # lines whose keys are taken for those of the file
_LONGEST: Final = 4 << 20  # bytes of a line that is looked at for its keys
_SPOTS: Final = 32  # places all over the file where one more line is looked at
_SAMPLE, _SAMPLE_BYTES = 20, 4 << 20  # lines that show the schema of the file
_FIRST: Final = 128  # rows at the beginning of a packed file that are quickly reached


@dataclass(frozen=True)
class Jsonl(Format):
    """JSON lines: read in blocks, woven line by line."""

    inner_texts: bool = False  # as typed columns: only members without a common type are text, not their whole column

    holds_objects = True
    watches = True  # names are taken from some of the lines, and any other line may hold more

    # --- reading -----------------------------------------------------------------------------------------------

    def columns(self, source: Input) -> list[str]:
        """Names of the top-level members in the order in which they first appear, by the look of some lines.

        Those are the first lines and a few from all over the file. A name that only other lines hold is not here;
        whoever must not miss one has it watched for.
        """
        lines = raw_lines(source)
        names = dict.fromkeys(name for row in _first_rows(source, lines, _HEAD, _HEAD_BYTES) for name in row)
        for line in () if next(lines, None) is None else _spots(source):
            with suppress(DataError):  # a piece of a long line; what is no JSON is reported by the scan
                names |= dict.fromkeys(name for _, row in rows([line], lambda _: source.name) for name in row)
        return list(names)

    def sample(self, source: Input) -> Sequence[Mapping[str, Any]]:
        """The first few rows, fewer where they are long."""
        return list(_first_rows(source, raw_lines(source), _SAMPLE, _SAMPLE_BYTES))

    def scan(self, source: Input, fields: Sequence[Field]) -> pl.DataFrame:
        """One column per field; no other member is kept."""
        return self.scan_watching(source, fields, ())[0]

    def scan_watching(
        self, source: Input, fields: Sequence[Field], watched: Collection[str]
    ) -> tuple[pl.DataFrame, frozenset[str]]:
        """Scan, and tell which of the watched names some line holds, however late in the file."""
        reader = Reader(tuple(fields), frozenset(watched))

        def read(block: Block) -> tuple[Rows, list[Found]]:
            return reader.read(block, lambda at: f"{source.name}:{number_at(source, block.start + at)}")

        parts: list[list[Part]] = [[] for _ in fields]
        seen: set[str] = set()
        reasons = []
        source.blocks.clear()
        for rows_there, found in ahead(read, blocks(source)):
            source.blocks.append(rows_there)
            for one in found:
                for column, part in zip(parts, one.columns, strict=True):
                    column.append(part)
                seen |= one.late
            reasons += [one.why for one in found if one.why][:1]
        if reasons:
            said = "%s: %d of %d blocks were read exactly, the first one since: %s"
            _LOG.debug(said, source.name, len(reasons), len(source.blocks), reasons[0])
        if not sum(one.height for one in source.blocks):
            raise DataError(f"{source.name}: no rows")
        made = {}
        for field in fields:  # each column's parts go as soon as they are joined: two copies of one column, not of all
            made[field.name] = self._column(source, field, parts.pop(0))
        return pl.DataFrame(made), frozenset(seen)

    def _column(self, source: Input, field: Field, parts: Sequence[Part]) -> pl.Series:
        # Null or missing: the fast reader cannot tell. Mostly the first row can.
        if all(isinstance(part, pl.Series) and part.null_count() == len(part) for part in parts):
            every = rows(raw_lines(source), lambda at: f"{source.name}:{at + 1}")
            if all(value_of(row, field.name) is ABSENT for _, row in every):
                raise absent(field.name, source, self.columns(source))
        known = []
        for part in parts:
            if isinstance(part, DataError):
                raise part
            known.append(part)
        return cells.joined_keys(field.name, known) if field.kind == "key" else pl.concat(known, rechunk=True)

    def read(self, source: Input) -> pl.DataFrame:
        """The whole file as typed columns; what has no common type stays JSON text."""
        return pl.concat(list(self.parts(source)))

    def parts(self, source: Input) -> Iterator[pl.DataFrame]:
        """The whole file as typed columns, block by block."""
        from grpo_cli.formats.jsonl import typed  # loads pyarrow.json, which only conversion needs

        return typed.parts(source, inner_texts=self.inner_texts)

    def parts_like_first(self, source: Input) -> Iterator[pl.DataFrame]:
        """The same, with most blocks read once."""
        from grpo_cli.formats.jsonl import typed

        return typed.parts_like_first(source, inner_texts=self.inner_texts)

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

    def values(self, source: Input, rows: np.ndarray, column: str, height: int) -> Sequence[Any] | None:  # noqa: ARG002
        """The values of a column, of which only the lines of these rows are parsed."""
        found = []
        for line in _lines_of(source, rows):
            row = parsed(line.removeprefix(BOM), lambda _: source.name, 0)
            refuse_doubled(row, [column], lambda: source.name)
            value = value_of(row, column)
            found.append(None if value is ABSENT else value)
        return found if len(found) == len(rows) else None

    def json_texts(self, source: Input, rows: np.ndarray, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The JSON texts of some columns, byte for byte as they stand in the lines."""
        schema = dict.fromkeys(columns, pl.String)
        found: list[list[str | None]] = []
        size = 0
        for row, line in zip(rows.tolist(), _lines_of(source, rows), strict=False):
            try:
                found.append(texts_of(line.decode(), columns))
            except ValueError as error:
                wrong = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
                raise DataError(f"{self.place(source, row)}: {wrong}") from None
            size += len(line)
            if size >= SIZE:
                yield pl.DataFrame(found, schema=schema, orient="row")
                found, size = [], 0
        if found:
            yield pl.DataFrame(found, schema=schema, orient="row")

    def quick_rows(self, source: Input, height: int) -> range:
        """All rows of a plain file whose lines have been found, and the first ones of others."""
        known = not is_packed(source) and sum(one.height for one in source.blocks) == height
        return range(height if known else min(height, _FIRST))

    def without_broken(self, source: Input) -> tuple[Input, tuple[int, ...]]:
        """The input without the lines that are no JSON object, and their numbers."""
        gone: list[int] = []
        for _ in _good_lines(source, gone):
            pass
        if not gone:
            return source, ()
        gone.clear()
        kept = spooled(_good_lines(source, gone), source.name)
        source.check()
        if not kept.pin.size:
            raise DataError(f"{source.name}: none of its lines can be read", "each has to be a JSON object")
        return kept, tuple(gone)

    # --- writing -----------------------------------------------------------------------------------------------

    def weave(self, source: Input, sink: BinaryIO, weaving: Weaving) -> Sequence[str]:
        """Put the new members before the last brace of every line; every other byte is the input's."""
        if weaving.take is None or (np.diff(weaving.take) > 0).all():
            weave(source, sink, weaving)
        else:
            weave_in_new_order(source, sink, weaving.added, weaving.take, replace=weaving.replace)
        return ()

    def write(self, frame: pl.DataFrame, sink: BinaryIO, metadata: Mapping[str, str]) -> None:  # noqa: ARG002
        """Write a fresh file, one object a line."""
        cells.without_bytes(cells.plain_keys(frame)).write_ndjson(sink)

    def write_parts(self, parts: Iterator[pl.DataFrame], sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        """Write a fresh file of several frames, one behind the other."""
        for frame in parts:
            self.write(frame, sink, metadata)

    def compared(self, new: Input, old: Input, added: Collection[str]) -> Compared:
        """Compare line by line, byte by byte."""
        return "bytes", first_difference(new, old, tuple(added))


def _first_rows(source: Input, lines: Iterator[bytes], most: int, most_bytes: int) -> Iterator[dict[str, Any]]:
    """The rows of the first lines, until they are so many bytes."""
    size = 0
    for number, line in enumerate(islice(lines, most), 1):
        if not is_blank(line):
            yield parsed(line.removeprefix(BOM), lambda number: f"{source.name}:{number}", number)
        size += len(line)
        if size >= most_bytes:
            return


def _spots(source: Input) -> Iterator[bytes]:
    if is_packed(source):
        return
    with source.open() as handle:
        for spot in range(1, _SPOTS + 1):
            handle.seek(source.pin.size * spot // (_SPOTS + 1))
            handle.readline(_LONGEST)
            yield handle.readline(_LONGEST)


def _lines_of(source: Input, rows: np.ndarray) -> Iterator[bytes]:
    """The lines of some ascending rows: at their places if a scan has noted them, or else by walking to them."""
    heights = np.array([one.height for one in source.blocks], np.int64)
    if is_packed(source) or heights.sum() <= rows.max(initial=-1):
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
            size = int(braces[at]) + 1 - start
            handle.seek(int(offsets[block]) + start)
            line = handle.read(size)
            if len(line) < size:
                raise InputChanged.between_readings(source.name)
            yield line.strip()


def _good_lines(source: Input, gone: list[int]) -> Iterator[bytes]:
    """The lines that can be read; the numbers of the others are added to `gone`."""
    for number, line in enumerate(raw_lines(source), 1):
        try:
            if not is_blank(line):
                parsed(line.removeprefix(BOM), lambda _: "", 0)
        except DataError:
            gone.append(number)
        else:
            yield line
