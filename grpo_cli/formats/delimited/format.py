"""CSV and TSV as file formats: read in blocks, with cells inserted record by record."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from typing import BinaryIO, ClassVar, Final, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files.compression import is_packed, unpacked
from grpo_cli.files.inputs import Input
from grpo_cli.formats.blocks import SIZE, Block, BlockRows, again, ending, raw_lines, refuse_other_encodings, wide
from grpo_cli.formats.delimited.positions import Unsure, blocks, positions
from grpo_cli.formats.delimited.records import QUOTE, bare, records, text_of
from grpo_cli.formats.interface import Compared, Format, Index, Scanned, Weaving
from grpo_cli.formats.verify import Cell, Record, first_difference, once_each
from grpo_cli.formats.weave_text import refuse_height, weave_blocks
from grpo_cli.parallel import ahead
from grpo_cli.values import cells
from grpo_cli.values.cells import Field, Place
from grpo_cli.values.paths import absent, refuse_doubled
from grpo_cli.values.slices import Buffer, Ints, filled

Convert = Callable[[list[pl.Series], Place], list[pl.Series]]  # converts the texts of some columns

_LF, _CR = b"\n\r"
_BLANK_LINES: Final = re.compile(rb"(?:\r?\n)*")
_SAMPLE: Final = 20
_FIRST: Final = 512  # rows of a packed file that are quickly reached
_READ_AGAIN: Final = 16 << 20  # bytes of a file that may be read once more


class _Header(NamedTuple):
    """The first record, its cells, and the blank lines before it."""

    record: bytes
    cells: list[bytes]
    before: bytes

    @property
    def size(self) -> int:
        return len(self.before) + len(self.record)

    @property
    def names(self) -> list[str]:
        return [text_of(cell) for cell in self.cells]


class _ReadBlock(NamedTuple):
    """The content of a block: its records, each marked before its line ending, and some of its columns."""

    rows: BlockRows
    columns: list[pl.Series]


@dataclass(frozen=True)
class Delimited(Format):
    """Text with a record per line, or over several lines in a quoted cell, and a separator between cells."""

    block_size: int = SIZE  # bytes that are read at a time

    separator: ClassVar[bytes]
    holds_lists = False
    has_types = False
    typed_cells = True

    # --- reading -----------------------------------------------------------------------------------------------

    def columns(self, source: Input) -> list[str]:
        with self._opened(source) as (header, _):
            return header.names

    def scan(self, source: Input, fields: Sequence[Field], watched: Collection[str] = ()) -> Scanned:
        """A column per field: numbers if the field is a number, text for keys. An empty cell is null."""

        def typed(texts: list[pl.Series], place: Place) -> list[pl.Series]:
            # Categories store equal keys once, and do not keep the block in memory.
            own = pl.Categorical(pl.Categories.random())
            return [
                cells.typed(field, text.cast(own).cast(pl.String) if field.kind == "key" else text, place)
                for field, text in zip(fields, texts, strict=True)
            ]

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

    def rows(
        self, source: Input, index: Index, numbers: np.ndarray, columns: Sequence[str], *, as_json: bool
    ) -> Iterator[pl.DataFrame]:
        """The texts of some cells; nothing after the block of the last row is read."""
        at = 0
        with closing(self._parts(source, columns, lambda texts, _: texts)) as parts:
            for part in parts:
                first, last = np.searchsorted(numbers, [at, at + part.rows.height])
                if first < last:
                    here = pl.Series(numbers[first:last] - at)
                    texts = {name: text.gather(here) for name, text in zip(columns, part.columns, strict=True)}
                    yield pl.DataFrame({k: cells.canonical(text) if as_json else text for k, text in texts.items()})
                if last == len(numbers):
                    return
                at += part.rows.height

    def cheap_rows(self, source: Input, index: Index, height: int) -> range:
        """The rows in the first bytes; of a packed file, which does not say how many it has, the first ones."""
        if is_packed(source):
            return range(min(height, _FIRST))
        return range(min(height, height * _READ_AGAIN // max(1, source.pin.size)))

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
                    yield _Header(record, raw, before), handle
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
                return _ReadBlock(BlockRows(block.size, found.ends.astype(np.min_scalar_type(block.size))), made)

            nothing = convert([pl.Series([], dtype=pl.String) for _ in at], str)
            yield _ReadBlock(BlockRows(header.size, np.zeros(0, np.int64)), nothing)
            row = 0
            size = wide(self.block_size, len(wanted))
            for found in ahead(read, blocks(source, handle, self.separator, header.size, size)):
                part = found if isinstance(found, _ReadBlock) else self._exact_part(found, row, len(names), at, convert)
                row += part.rows.height
                yield part

    def _exact_part(self, block: Block, row: int, width: int, wanted: Sequence[int], convert: Convert) -> _ReadBlock:
        """A block that is read record by record; a record with another width than the header is refused."""
        texts: list[list[str | None]] = [[] for _ in wanted]
        ends, at = list[int](), 0
        for record, raw in records(BytesIO(block.read()), self.separator, block.name, row + 1):
            at += len(record)
            if not raw:
                continue
            ends.append(at - len(ending(record)))
            if len(raw) != width:
                hint = "a cell that contains the separator needs quotes"
                if len(raw) < width:
                    whole = ending(record)  # only the last record of a file may lack it
                    hint = "a row needs all its cells, even empty cells" if whole else "is the file cut short?"
                raise DataError(
                    f"{block.name} row {row + len(ends)}: expected {width} cells as in the header, found {len(raw)}",
                    hint,
                )
            for column, found in zip(wanted, texts, strict=True):
                cell = raw[column]
                if self.strict and cell.decode(errors="ignore").encode() != cell:
                    place = f"{block.name} row {row + len(ends)}"
                    raise DataError("a cell is not UTF-8", "write the file in UTF-8", place=place)
                found.append(text_of(cell) if cell else None)
        series = [pl.Series(found, dtype=pl.String) for found in texts]
        made = convert(series, lambda at: f"{block.name} row {row + at + 1}")
        return _ReadBlock(BlockRows(block.size, np.array(ends, np.min_scalar_type(block.size))), made)

    # --- writing -----------------------------------------------------------------------------------------------

    def weave(
        self, source: Input, index: Sequence[BlockRows] | None, sink: BinaryIO, weaving: Weaving
    ) -> tuple[str, ...]:
        with self._opened(source) as (header, _):
            old, names = header.names, weaving.added.columns
        slots = [old.index(name) if weaving.replace and name in old else None for name in names]
        sink.write(header.before if weaving.take is None else b"")
        sink.write(self._put(header.record, header.cells, slots, [self._cell_text(name).encode() for name in names]))
        known = self.scan(source, ()).index if index is None else index
        refuse_height(source, sum(rows.height for rows in known), weaving)
        after_header = islice(zip(again(source, [rows.size for rows in known]), known, strict=True), 1, None)

        def insert(data: bytes, rows: BlockRows, added: pl.DataFrame) -> list[Buffer]:
            if not names:
                return [data]
            if any(slot is not None for slot in slots):
                return self._with_replaced(source, data, slots, added, len(old))
            return filled(data, [(rows.marks, rows.marks)], [self._cells(added.get_columns())])

        newline = ending(header.record) or b"\n"
        weave_blocks(source, after_header, sink, weaving, marked=b"\r\n", newline=newline, spans=_spans, insert=insert)
        return ()

    def _cells(self, columns: Sequence[pl.Series]) -> list[str | pl.Series]:
        """New cells after others, each with a separator before it."""
        return [part for series in columns for part in (self.separator.decode(), self._cell_texts(series))]

    def _with_replaced(
        self, source: Input, data: bytes, slots: Sequence[int | None], added: pl.DataFrame, width: int
    ) -> list[Buffer]:
        """The bytes of a block with the new cells in their slots, or after the last cell if they have none."""
        try:
            found = positions(data, self.separator, width)
        except Unsure:
            values = zip(*(map(str.encode, self._cell_texts(series)) for series in added), strict=True)
            lines = list(records(BytesIO(data), self.separator, "", 1))
            InputChanged.unless_same(sum(bool(raw) for _, raw in lines), added.height, source.name)
            return [self._put(record, raw, slots, next(values)) if raw else record for record, raw in lines]
        InputChanged.unless_same(len(found.starts), added.height, source.name)
        there = sorted((slot, at) for at, slot in enumerate(slots) if slot is not None)
        gaps = [found.cell(slot) for slot, _ in there]
        texts: list[list[str | pl.Series]] = [[self._cell_texts(added.to_series(at))] for _, at in there]
        after = [series for series, slot in zip(added, slots, strict=True) if slot is None]
        if after:
            gaps.append((found.ends, found.ends))
            texts.append(self._cells(after))
        return filled(data, gaps, texts)

    def write_parts(self, parts: Iterator[pl.DataFrame], sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        """Write a new file with a header; nested cells as JSON text."""
        for at, frame in enumerate(parts):
            plain = cells.texts_of_nested(cells.plain_keys(frame))
            plain.write_csv(sink, separator=self.separator.decode(), include_header=at == 0)

    def _put(self, record: bytes, raw: Sequence[bytes], slots: Sequence[int | None], new: Sequence[bytes]) -> bytes:
        """A record with new cells: each in its slot, or after the last cell if it has none."""
        body = bare(record)
        if any(slot is not None for slot in slots):
            rewritten = list(raw)
            for slot, text in zip(slots, new, strict=True):
                if slot is not None:
                    rewritten[slot] = text
            body = self._mark(body, raw) + self.separator.join(rewritten)
        after = [text for slot, text in zip(slots, new, strict=True) if slot is None]
        return self.separator.join([body, *after]) + ending(record)

    def _mark(self, body: bytes, raw: Sequence[bytes]) -> bytes:
        """What a record has before its cells: the byte order mark, at the very beginning of a file."""
        return body[: len(body) - len(self.separator.join(raw))]

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
        return pl.Series(
            ["" if value is None else self._cell_text(str(value)) for value in series.to_list()], dtype=pl.String
        )

    # --- comparing ---------------------------------------------------------------------------------------------

    def compared(self, new: Input, old: Input, added: Collection[str]) -> Compared:
        if self._is_same(new, old, added):
            return "bytes", None
        return "bytes", first_difference(self._compared_records(new), self._compared_records(old), added, "record")

    def _is_same(self, new: Input, old: Input, added: Collection[str]) -> bool:
        """Whether both files are equal without the added cells; False also if only the exact reading can decide."""
        known, names = self.columns(old), self.columns(new)
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

            def left(block: Block) -> bytes:
                data = block.read()
                if not gone:
                    return data
                if not kept:
                    raise Unsure
                found = positions(data, self.separator, len(names))
                # Each with the separator before it; those before the first kept cell with the one after them.
                gaps = [
                    (found.cell(at)[0], found.cell(at + 1)[0])
                    if at < kept[0]
                    else (found.marks[:, at - 1], found.cell(at)[1])
                    for at in gone
                ]
                return b"".join(filled(data, gaps, [[]] * len(gaps)))

            left_cells = self.separator.join(header.cells[at] for at in kept)
            mark = self._mark(bare(header.record), header.cells)
            yield b"".join([header.before, mark, left_cells, ending(header.record)])
            yield from ahead(left, blocks(source, handle, self.separator, header.size, self.block_size))

    def _compared_records(self, source: Input) -> Iterator[Record]:
        """Every record with its cells, the header being row 0; blank lines and other widths have no cells."""
        names: list[str] = []
        row = -1
        for record, raw in self._records(source):
            names = names or once_each([text_of(cell) for cell in raw])
            row += bool(raw)
            cells, at = list[Cell](), len(self._mark(bare(record), raw))
            for name, cell in zip(names, raw, strict=False):
                cells.append(Cell(name, at - bool(cells), at, at + len(cell)))
                at += len(cell) + 1
            whole = raw and len(raw) == len(names)
            # A character for each byte, whatever its encoding.
            yield Record(f"{source.name} row {row}", record.decode("latin-1"), tuple(cells) if whole else None)


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
