"""JSON lines as a file format: an object per line, each a row."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from itertools import islice, pairwise
from typing import Any, BinaryIO

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files.compression import is_packed
from grpo_cli.files.inputs import Input, spooled
from grpo_cli.formats.blocks import SIZE, Block, BlockRows, blocks, end_of_line, raw_lines, wide
from grpo_cli.formats.interface import Compared, InLines, Scanned, Weaving
from grpo_cli.formats.jsonl.lines import (
    Known,
    blocks_with_rows,
    has_plain_spelling,
    is_blank,
    line_numbers,
    number_at,
    parsed,
    row_starts,
    rows,
)
from grpo_cli.formats.jsonl.reading import PIECE, ColumnPart, Reader, ReadPiece
from grpo_cli.formats.jsonl.verify import first_difference
from grpo_cli.formats.jsonl.weaving import weave
from grpo_cli.parallel import ahead
from grpo_cli.values import cells
from grpo_cli.values.cells import Excerpt, Field
from grpo_cli.values.json_text import ABSENT, SMALL, refuse_doubled, texts_of, value_of
from grpo_cli.values.paths import absent
from grpo_cli.values.slices import Ints, within

_LOG = logging.getLogger(__name__)
_HEAD, _HEAD_BYTES = 1_000, 1 << 20  # lines that are searched for the names of the columns
_ESCAPED = rb"\u00"  # the beginning of an escaped letter
_LONGEST = 4 << 20  # bytes of a line that is searched for keys
_SPOTS = 32  # places all over the file where a further line is searched
_SAMPLE, _SAMPLE_BYTES = 20, 4 << 20  # lines that show the schema of the file
_FIRST = 128  # rows at the beginning of a compressed file that are cheap to read


@dataclass(frozen=True)
class Jsonl(InLines):
    """JSON lines, read and copied in blocks of lines."""

    inner_texts: bool = False  # in typed columns, only fields without a common type become text, not their whole column
    block_size: int = SIZE  # bytes that are read at a time
    piece_size: int = PIECE  # bytes of a block that are read exactly at a time
    small: int = SMALL  # a block with at most this many rows is read by Python alone

    record = "object"

    # --- reading -----------------------------------------------------------------------------------------------

    def columns(self, source: Input) -> list[str]:
        """Names of the top-level fields of some lines, in order of first appearance.

        Those are the first lines and a few from all over the file. Names that only other lines have are missing;
        a scan finds those that are watched.
        """
        lines = raw_lines(source)
        names = dict.fromkeys(name for row in _first_rows(source, lines, _HEAD, _HEAD_BYTES) for name in row)
        for line in () if next(lines, None) is None else _spots(source):
            with suppress(DataError):  # a piece of a long line; the scan reports invalid JSON
                names |= dict.fromkeys(name for _, row in rows([line], lambda _: source.name) for name in row)
        return list(names)

    def sample(self, source: Input) -> Sequence[Mapping[str, Any]]:
        return list(_first_rows(source, raw_lines(source), _SAMPLE, _SAMPLE_BYTES))

    def scan(self, source: Input, fields: Sequence[Field], watched: Collection[str] = ()) -> Scanned:
        """A column per field; no other field is kept. A watched name is found however late in the file it is."""
        reader = Reader(tuple(fields), frozenset(watched), self.piece_size, self.small)

        def read(block: Block) -> tuple[BlockRows, list[ReadPiece]]:
            return reader.read(block, lambda at: f"{source.name}:{number_at(source, block.start + at)}")

        parts: list[list[ColumnPart]] = [[] for _ in fields]
        seen: set[str] = set()
        index = []
        reasons = []
        for rows_there, found in ahead(read, blocks(source, self.block_size)):
            index.append(rows_there)
            for piece in found:
                for column, part in zip(parts, piece.columns, strict=True):
                    column.append(part)
                seen |= piece.late
                reader = reader.without(piece.late)
            reasons += [part.why for part in found if part.why][:1]
        if reasons:
            said = "%s: %d of %d blocks took the exact reader, the first because: %s"
            _LOG.debug(said, source.name, len(reasons), len(index), reasons[0])
        height = sum(block.height for block in index)
        if not height:
            raise DataError(f"{source.name}: no rows")
        made = {}
        for field in fields:  # a column's parts are freed once they are joined: two copies of one column, not of all
            made[field.name] = self._column(source, field, parts.pop(0))
        frame = pl.DataFrame(made or None, height=height)
        return Scanned(frame, index, frozenset(seen))

    def _column(self, source: Input, field: Field, parts: Sequence[ColumnPart]) -> pl.Series:
        # The fast reader cannot tell null from missing; the exact reading of the first row usually can.
        if all(isinstance(part, pl.Series) and part.null_count() == len(part) for part in parts):
            name = field.name.rpartition(".")[2]
            step = b'%s"' % name.encode() if has_plain_spelling(name) else b""
            found = (block.read() for block in blocks(source, self.block_size))
            near = (data for data in found if step in data or _ESCAPED in data)  # few blocks of most files
            lines = (line for data in near for line in BytesIO(data) if step in line or _ESCAPED in line)
            if all(value_of(row, field.name) is ABSENT for _, row in rows(lines, lambda _: source.name)):
                raise absent(field.name, source.name, self.columns(source))
        known = []
        for part in parts:
            if isinstance(part, DataError):
                raise part
            known.append(part)
        return cells.joined_keys(field.name, known) if field.kind == "key" else pl.concat(known, rechunk=True)

    def parts(self, source: Input) -> Iterator[pl.DataFrame]:
        """The whole file as typed columns, block by block; values without a common type stay JSON text."""
        from grpo_cli.formats.jsonl import typed  # loads pyarrow.json, which only conversion needs

        size = wide(self.block_size, len(next(_first_rows(source, raw_lines(source), 1, 1), ())))
        return typed.parts(source, size, typed.FIRST if self.like_first else None, inner_texts=self.inner_texts)

    def places(self, source: Input, rows: Sequence[int]) -> list[str]:
        return [f"{source.name}:{line}" for line in line_numbers(source, rows)]

    def sections(self, source: Input, size: int) -> Sequence[tuple[int, int]]:
        """Sections of whole lines; a compressed file is a single section."""
        if is_packed(source):
            return [(0, source.pin.size)]
        cuts = [0]
        with source.open() as handle:
            while cuts[-1] + size < source.pin.size:
                cuts.append(end_of_line(source, handle, cuts[-1] + size))
        return list(pairwise([*cuts, source.pin.size] if cuts[-1] < source.pin.size else cuts))

    def rows(self, source: Input, wanted: Excerpt) -> Iterator[pl.DataFrame]:
        """Some columns from the lines of these rows; JSON texts are unchanged, byte for byte."""
        if wanted.lists:
            return self._lists(source, wanted)
        lines = zip(wanted.numbers.tolist(), lines_of(source, wanted.index, wanted.numbers), strict=False)
        return self._frames(source, lines, wanted)

    def _frames(self, source: Input, lines: Iterable[tuple[int, bytes]], wanted: Excerpt) -> Iterator[pl.DataFrame]:
        columns = wanted.columns
        found = []
        size = 0
        for row, line in lines:
            try:
                if wanted.as_json:
                    found.append(texts_of(line.decode(), columns))
                else:
                    value = parsed(line)
                    refuse_doubled(value, columns)
                    found.append(_values(value, columns))
            except (DataError, ValueError) as error:
                wrong = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
                raise DataError(f"{self.places(source, [row])[0]}: {wrong}") from None
            size += len(line)
            if size >= SIZE:
                yield cells.frame_of_rows(found, wanted)
                found = []
                size = 0
        if found:
            yield cells.frame_of_rows(found, wanted)

    def _lists(self, source: Input, wanted: Excerpt) -> Iterator[pl.DataFrame]:
        """Lists of numbers as polars reads them, block by block; the values of a block that it refuses."""
        columns = wanted.columns
        reader = Reader(tuple(Field(name, "lists") for name in columns))

        def read(block: Block) -> pl.DataFrame:
            data = block.read()
            frame = reader.lists(data)
            if frame is not None:
                return frame
            each = rows(BytesIO(data), lambda _: source.name, partial(refuse_doubled, names=columns))
            found = [_values(row, columns) for _, row in each]
            return cells.frame_of_rows(found, wanted) if found else pl.DataFrame()

        for frame, here in within(ahead(read, blocks(source, self.block_size)), wanted.numbers):
            yield frame if len(here) == len(frame) else frame[here]

    def rows_perhaps_with(
        self, source: Input, wanted: Excerpt, word: bytes
    ) -> Iterator[tuple[int, np.ndarray, pl.DataFrame]]:
        """Only lines that have the word in their bytes, or an escape that may be a part of it, are parsed."""
        passed = 0
        numbers = wanted.numbers
        for (block, there), here in within(blocks_with_rows(source, wanted.index, self.block_size), numbers, _height):
            lines = zip(numbers[passed : passed + len(here)].tolist(), _lines_in(block, there.marks, here), strict=True)
            some = [
                (row, line)
                for row, line in lines
                if word in line.lower() or (_ESCAPED in line and re.search(rb"\\u00[2-7]", line))
            ]
            at = 0
            for frame in self._frames(source, some, wanted):
                yield passed, np.array([row for row, _ in some[at : at + len(frame)]]), frame
                at += len(frame)
            passed += len(here)
            yield passed, numbers[:0], pl.DataFrame()

    def row_starts(self, data: bytes) -> Ints:
        """Where the line of each row begins in a part of a stream; blank lines are not rows."""
        return row_starts(data)

    def cheap_rows(self, source: Input, index: Known, height: int) -> int:
        """All rows of a plain file whose lines are known; otherwise the first rows."""
        return height if index is not None and not is_packed(source) else _FIRST

    def without_broken(self, source: Input) -> Input:
        """The input without lines that are not JSON objects."""
        gone = {number: None for number, line in enumerate(raw_lines(source), 1) if not _is_readable(line)}
        if not gone:
            return source
        good = spooled((line for number, line in enumerate(raw_lines(source), 1) if number not in gone), source.name)
        source.check()
        if not good.pin.size:
            raise DataError(f"{source.name}: none of its lines can be read", "each line must be a JSON object")
        return replace(good, left_out=tuple(gone))

    # --- writing -----------------------------------------------------------------------------------------------

    def weave(self, source: Input, index: Known, sink: BinaryIO, weaving: Weaving) -> Sequence[str]:
        """Insert the new fields before the last brace of every line; all other bytes stay."""
        weave(source, index, sink, weaving, self.block_size, self.small)
        return ()

    def write_parts(self, parts: Iterator[pl.DataFrame], sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        for frame in parts:
            cells.write_lines(cells.without_bytes(frame), sink)

    def compared(self, new: Input, old: Input, added: Collection[str]) -> Compared:
        return "bytes", first_difference(new, old, added, self.block_size)


def _first_rows(source: Input, lines: Iterator[bytes], most: int, most_bytes: int) -> Iterator[dict[str, Any]]:
    """The rows of the first lines, up to a number of bytes."""

    def some() -> Iterator[bytes]:
        size = 0
        for line in islice(lines, most):
            yield line
            size += len(line)
            if size >= most_bytes:
                return

    return (row for _, row in rows(some(), lambda at: f"{source.name}:{at + 1}"))


def _spots(source: Input) -> Iterator[bytes]:
    if is_packed(source):
        return
    with source.open() as handle:
        for spot in range(1, _SPOTS + 1):
            handle.seek(source.pin.size * spot // (_SPOTS + 1))
            handle.readline(_LONGEST)
            yield handle.readline(_LONGEST)


def _values(row: Mapping[str, Any], columns: Sequence[str]) -> list[Any]:
    found = (value_of(row, name) for name in columns)
    return [None if value is ABSENT else value for value in found]


def lines_of(source: Input, index: Known, rows: np.ndarray) -> Iterator[bytes]:
    """The lines of some ascending rows: at their known offsets after a scan, otherwise by reading up to them."""
    for (block, there), here in within(blocks_with_rows(source, index), rows, _height):
        yield from _lines_in(block, there.marks, here)


def _height(found: tuple[Block, BlockRows]) -> int:
    return found[1].height


def _lines_in(block: Block, braces: Ints, rows: Ints) -> Iterator[bytes]:
    with block.open() as handle:
        begin = handle.tell()
        for row in rows.tolist():
            start = int(braces[row - 1]) + 1 if row else 0  # the end of the line before, and blank lines, come along
            size = int(braces[row]) + 1 - start
            handle.seek(begin + start)
            line = handle.read(size)
            if len(line) < size:
                raise InputChanged.between_readings(block.name)
            yield line.strip()


def _is_readable(line: bytes) -> bool:
    """Whether a line is blank or a JSON object."""
    with suppress(DataError):
        return is_blank(line) or parsed(line) is not None
    return False
