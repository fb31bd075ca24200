"""CSV and TSV as file formats: read in blocks, with cells inserted record by record."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import BinaryIO, ClassVar, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files.compression import is_packed, unpacked
from grpo_cli.files.inputs import Input
from grpo_cli.formats.blocks import SIZE, Block, BlockRows, again, ending, raw_lines, refuse_other_encodings, wide
from grpo_cli.formats.delimited.positions import (
    QUOTE,
    Positions,
    Unsure,
    blocks,
    exactly,
    positions,
    records,
    stops_of,
    text_of,
)
from grpo_cli.formats.interface import Compared, InCells, Index, Scanned, Weaving
from grpo_cli.formats.verify import Cell, Record, first_difference, once_each
from grpo_cli.formats.weave_text import refuse_height, weave_blocks
from grpo_cli.parallel import ahead
from grpo_cli.values import cells
from grpo_cli.values.cells import Excerpt, Field, Place
from grpo_cli.values.paths import absent, refuse_doubled
from grpo_cli.values.slices import Buffer, Ints, filled, within

Convert = Callable[[list[pl.Series], Place], list[pl.Series]]  # converts the texts of some columns

_LF, _CR = b"\n\r"
_BLANK_LINES = re.compile(rb"(?:\r?\n)*")
_SAMPLE = 20  # records from which the layout is recognised
_FIRST = 512  # rows of a packed file that are quickly reached
_READ_AGAIN = 16 << 20  # bytes of a file that may be read once more


class _Header(NamedTuple):
    """The names of the columns, the first record, and the blank lines before it."""

    names: list[str]
    found: Positions
    before: bytes

    @property
    def size(self) -> int:
        return len(self.before) + len(self.found.data)


class _ReadBlock(NamedTuple):
    """The content of a block: its records, each marked before its line ending, and some of its columns."""

    rows: BlockRows
    columns: list[pl.Series]


@dataclass(frozen=True)
class Delimited(InCells):
    """Text with a record per line, or over several lines in a quoted cell, and a separator between cells."""

    block_size: int = SIZE  # bytes that are read at a time

    separator: ClassVar[bytes]

    # --- reading -----------------------------------------------------------------------------------------------

    def columns(self, source: Input) -> list[str]:
        with self._opened(source) as (header, _):
            return header.names

    def scan(self, source: Input, fields: Sequence[Field], watched: Collection[str] = ()) -> Scanned:
        """A column per field: numbers if the field is a number, text for keys. An empty cell is null, with quotes or without."""

        def typed(texts: list[pl.Series], place: Place) -> list[pl.Series]:
            # Categories store equal keys once, and do not keep the block in memory.
            own = pl.Categorical(pl.Categories.random())
            columns = list[pl.Series]()
            for field, text in zip(fields, texts, strict=True):
                column = text.cast(own).cast(pl.String) if field.kind == "key" else text
                columns.append(cells.typed(field, column, place))
            return columns

        names = [field.name for field in fields]
        header, *parts = self._parts(source, names, typed)
        columns = {name: pl.concat([part.columns[at] for part in parts or [header]]) for at, name in enumerate(names)}
        height = sum(part.rows.height for part in parts)
        return Scanned(pl.DataFrame(columns or None, height=height), [part.rows for part in (header, *parts)])

    def parts(self, source: Input) -> Iterator[pl.DataFrame]:
        """Every cell as text, block by block: numbers keep their text."""
        names = self.columns(source)
        for part in self._parts(source, names, lambda texts, _: texts):
            yield pl.DataFrame(
                dict(zip(names, part.columns, strict=True))
            )  # a list would rename a column without a name

    def sample(self, source: Input) -> list[dict[str, str]]:
        rows = ([text_of(cell) for cell in raw] for _, raw in self._records(source) if raw)
        header = next(rows, [])
        return [dict(zip(header, row, strict=False)) for row in islice(rows, _SAMPLE)]

    def rows(self, source: Input, wanted: Excerpt) -> Iterator[pl.DataFrame]:
        """The texts of some cells; nothing after the block of the last row is read."""
        with closing(self._parts(source, wanted.columns, lambda texts, _: texts)) as parts:
            for part, here in within(parts, wanted.numbers, lambda part: part.rows.height):
                texts = {
                    name: text.gather(pl.Series(here)) for name, text in zip(wanted.columns, part.columns, strict=True)
                }
                yield pl.DataFrame({k: cells.canonical(text) if wanted.as_json else text for k, text in texts.items()})

    def cheap_rows(self, source: Input, index: Index, height: int) -> int:
        """The rows in the first bytes; of a packed file, which does not say how many it has, the first ones."""
        if is_packed(source):
            return _FIRST
        return height * _READ_AGAIN // max(1, source.pin.size)

    def _records(self, source: Input) -> Iterator[tuple[bytes, list[bytes]]]:
        return records(raw_lines(source), self.separator, source.name, 0, source.refuse_long_line)

    @contextmanager
    def _opened(self, source: Input) -> Iterator[tuple[_Header, BinaryIO]]:
        """The header, and the open file after it."""
        with unpacked(source) as handle:
            refuse_other_encodings(source, handle)
            before = b""
            lines = iter(handle.readline, b"")
            for record, raw in records(lines, self.separator, source.name, 0, source.refuse_long_line):
                if any(b"\r" in cell and not cell.startswith(QUOTE) for cell in raw):
                    raise DataError(
                        f"{source.name}: the lines end with a bare CR", "convert them, for example with tr '\\r' '\\n'"
                    )
                if raw:
                    found = Positions(record, [*np.array([stops_of(record, raw)]).T])
                    yield _Header(list(map(text_of, raw)), found, before), handle
                    return
                before += record
        raise DataError(f"{source.name}: no rows", "the file has no header")

    def _parts(self, source: Input, wanted: Sequence[str], convert: Convert) -> Generator[_ReadBlock]:
        """Some columns of each block, converted from their texts; the header is the first block, without rows."""
        with self._opened(source) as (header, handle):
            names = header.names
            at = _positions(source, names, wanted)

            def read(block: Block) -> Block | _ReadBlock:
                try:
                    found = positions(block.read(), self.separator, len(names))
                    made = convert([found.texts(cell) for cell in at], str)
                except (Unsure, DataError, pl.exceptions.PolarsError):
                    return block
                return _ReadBlock(found.rows(), made)

            nothing = convert([pl.Series([], dtype=pl.String) for _ in at], str)
            yield _ReadBlock(BlockRows(header.size, np.zeros(0, np.int64)), nothing)
            row = 0
            size = wide(self.block_size, len(wanted))
            for found in ahead(read, blocks(source, handle, self.separator, header.size, size)):
                part = found if isinstance(found, _ReadBlock) else self._exact_part(found, row, len(names), at, convert)
                row += part.rows.height
                yield part

    def _exact_part(self, block: Block, row: int, width: int, wanted: Sequence[int], convert: Convert) -> _ReadBlock:
        """A block that is read record by record."""

        def place(at: int) -> str:
            return f"{block.name} row {row + at + 1}"

        data = block.read()
        texts = list[pl.Series]()
        found = exactly(data, self.separator, width, block.name, row)
        for column in wanted:
            starts, ends = found.cell(column)
            raw = [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
            for at, cell in enumerate(raw if self.strict else ()):
                if cell.decode(errors="ignore").encode() != cell:
                    raise DataError("a cell is not UTF-8", "write the file in UTF-8", place=place(at))
            texts.append(pl.Series([text_of(cell) or None for cell in raw], dtype=pl.String))
        return _ReadBlock(found.rows(), convert(texts, place))

    # --- writing -----------------------------------------------------------------------------------------------

    def weave(
        self, source: Input, index: Sequence[BlockRows] | None, sink: BinaryIO, weaving: Weaving
    ) -> tuple[str, ...]:
        with self._opened(source) as (header, _):
            old = header.names
            names = weaving.added.columns
        slots = [old.index(name) if weaving.replace and name in old else None for name in names]
        sink.write(header.before if weaving.take is None else b"")
        sink.writelines(self._inserted(header.found, slots, pl.DataFrame({name: [name] for name in names})))
        known = self.scan(source, ()).index if index is None else index
        refuse_height(source, sum(rows.height for rows in known), weaving)
        after_header = islice(zip(again(source, [rows.size for rows in known]), known, strict=True), 1, None)

        def insert(data: bytes, rows: BlockRows, added: pl.DataFrame) -> list[Buffer]:
            if not names:
                return [data]
            if not any(slot is not None for slot in slots):
                return filled(data, [(rows.marks, rows.marks)], [self._cells(added.get_columns())])
            try:
                found = positions(data, self.separator, len(old))
            except Unsure:
                found = exactly(data, self.separator, len(old), source.name, 0)
            InputChanged.unless_same(len(found.ends), added.height, source.name)
            return self._inserted(found, slots, added)

        newline = ending(header.found.data) or b"\n"
        weave_blocks(source, after_header, sink, weaving, marked=b"\r\n", newline=newline, spans=_spans, insert=insert)
        return ()

    def _cells(self, columns: Sequence[pl.Series]) -> list[str | pl.Series]:
        """New cells after others, each with a separator before it."""
        return [part for series in columns for part in (self.separator.decode(), self._cell_texts(series))]

    def _inserted(self, found: Positions, slots: Sequence[int | None], added: pl.DataFrame) -> list[Buffer]:
        """The bytes of records with new cells: each in its slot, or after the last cell if it has none."""
        there = sorted((slot, at) for at, slot in enumerate(slots) if slot is not None)
        gaps = [found.cell(slot) for slot, _ in there]
        texts: list[list[str | pl.Series]] = [[self._cell_texts(added.to_series(at))] for _, at in there]
        after = [series for series, slot in zip(added, slots, strict=True) if slot is None]
        if after:
            gaps.append((found.ends, found.ends))
            texts.append(self._cells(after))
        return filled(found.data, gaps, texts)

    def write_parts(self, parts: Iterator[pl.DataFrame], sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        """Write a new file with a header; nested cells as JSON text."""
        for at, frame in enumerate(parts):
            plain = cells.texts_of_nested(cells.plain_keys(frame))
            plain.write_csv(sink, separator=self.separator.decode(), include_header=at == 0)

    def _cell_text(self, text: str) -> str:
        """A new cell, quoted if needed."""
        if any(mark in text for mark in (self.separator.decode(), '"', "\n", "\r")):
            return f'"{text.replace(chr(34), chr(34) * 2)}"'
        return text

    def _cell_texts(self, series: pl.Series) -> pl.Series:
        """New cells of a whole column; null is an empty cell."""
        series = series.alias("")
        if series.dtype.is_float():
            return cells.float_texts(series).fill_null("")
        if series.dtype.is_integer() or series.dtype == pl.Boolean:
            return series.cast(pl.String).fill_null("")
        texts = ["" if value is None else self._cell_text(str(value)) for value in series.to_list()]
        return pl.Series(texts, dtype=pl.String)

    # --- comparing ---------------------------------------------------------------------------------------------

    def compared(self, new: Input, old: Input, added: Collection[str]) -> Compared:
        if self._is_same(new, old, added):
            return "bytes", None
        return "bytes", first_difference(self._compared_records(new), self._compared_records(old), added, "record")

    def _is_same(self, new: Input, old: Input, added: Collection[str]) -> bool:
        """Whether both files are equal without the added cells; False also if only the exact reading can decide."""
        known = self.columns(old)
        names = self.columns(new)
        if names != [*known, *(name for name in added if name not in known)]:
            return False
        olds, news = (filter(None, self._without(source, added)) for source in (old, new))
        was = now = b""
        try:
            while (was := was or next(olds, b"")) and (now := now or next(news, b"")):
                size = min(len(was), len(now))
                if was[:size] != now[:size]:
                    return False
                was, now = was[size:], now[size:]
            return not was and not (now or next(news, b""))
        except Unsure:
            return False

    def _without(self, source: Input, added: Collection[str]) -> Iterator[bytes]:
        """The bytes of a file without some cells, block by block; Unsure if they have to be read exactly."""
        with self._opened(source) as (header, handle):
            names = header.names
            gone = sorted(names.index(name) for name in added if name in names)
            kept = [at for at in range(len(names)) if at not in gone]
            if not kept:
                raise Unsure

            def left(found: Positions) -> bytes:
                # Each with the separator before it; those before the first kept cell with the one after them.
                after = [at < kept[0] for at in gone]
                gaps = [(found.stops[at] + by, found.stops[at + 1] + by) for at, by in zip(gone, after, strict=True)]
                return b"".join(filled(found.data, gaps, [[]] * len(gaps)))

            def read(block: Block) -> bytes:
                data = block.read()
                return left(positions(data, self.separator, len(names))) if gone else data

            yield header.before
            yield left(header.found)
            yield from ahead(read, blocks(source, handle, self.separator, header.size, self.block_size))

    def _compared_records(self, source: Input) -> Iterator[Record]:
        """Every record with its cells, the header being the first; blank lines and other widths have no cells."""
        names: list[str] = []
        row = -1
        for record, raw in self._records(source):
            names = names or once_each(list(map(text_of, raw)))
            row += bool(raw)
            spans = pairwise(stops_of(record, raw))
            # Each but the first has the separator before it.
            cells = [
                Cell(name, start + (not at), start + 1, end)
                for at, (name, (start, end)) in enumerate(zip(names, spans, strict=False))
            ]
            whole = raw and len(raw) == len(names)
            place = f"row {row}" if row else "header"
            # A character for each byte, whatever its encoding.
            yield Record(f"{source.name} {place}", record.decode("latin-1"), tuple(cells) if whole else None)


class Csv(Delimited):
    """Cells with commas between them."""

    separator = b","


class Tsv(Delimited):
    """Cells with tabs between them."""

    separator = b"\t"


def _spans(data: bytes, ends: Ints) -> np.ndarray:
    """Where the records with these ends begin, and where their line endings end."""
    found = np.frombuffer(data, np.uint8)
    stops = np.minimum(ends + 1 + (np.take(found, ends, mode="clip") == _CR), len(data))
    starts = np.append(0, stops)[:-1]
    for at in np.flatnonzero(np.isin(found[starts], (_CR, _LF))).tolist():
        if blank := _BLANK_LINES.match(data, starts[at]):
            starts[at] = blank.end()
    return np.column_stack([starts, stops])


def _positions(source: Input, names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """The number of each wanted column."""
    refuse_doubled(wanted, names, source.name)
    places = {name: at for at, name in enumerate(names)}
    for name in wanted:
        if name not in places:
            raise absent(name, source.name, names)
    return [places[name] for name in wanted]
