"""CSV and TSV: every cell keeps its text and its quotes; the new cells follow the last one."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Final

import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.formats import cells
from grpo_cli.formats.interface import Format
from grpo_cli.formats.jsonl.lines import BOM, ending, exactly, offsets, raw_lines, taken
from grpo_cli.formats.paths import absent

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.interface import Compared, Field, Weaving


_QUOTE: Final = b'"'


def _cell(separator: bytes) -> re.Pattern[bytes]:
    mark = re.escape(separator)
    # The possessive loop keeps an unclosed quote from being tried again at every letter.
    return re.compile(rb'("(?:[^"]++|"")*+"[^%b]*|(?!")[^%b]*)(%b|\Z)' % (mark, mark, mark))


_CELL: Final = {mark: _cell(mark) for mark in (b",", b"\t")}
_QUOTED: Final = re.compile(rb'"((?:[^"]++|"")*+)"(.*)', re.DOTALL)


def cells_of(record: bytes, separator: bytes) -> list[bytes] | None:
    """Cut a record (without its ending) into raw cells; none when a quoted cell is still open."""
    if _QUOTE not in record:
        return record.split(separator)
    found: list[bytes] = []
    at = 0
    while (match := _CELL[separator].match(record, at)) is not None:
        found.append(match[1])
        if not match[2]:
            return found
        at = match.end()
    return None


def records(source: Input, separator: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """Raw record and its raw cells; a blank line is a record with no cell at all. The first is the header."""
    held = b""
    row = -1
    for line in raw_lines(source):
        if not held and not bare(line):
            yield line, []
            continue
        record = held + line
        body = bare(record)
        # While a quoted cell is open, only a line with a quote can close it.
        cells = None if held and _QUOTE not in line else cells_of(body, separator)
        held = record if cells is None else b""
        if cells is not None:
            row += 1
            yield record, cells
    if held:
        open_cell = f"{source.name} row {row + 1}: a quoted cell is never closed"
        raise DataError(open_cell, "is the file cut short?")


def bare(record: bytes) -> bytes:
    """Take off the ending and the byte order mark."""
    return record[: len(record) - len(ending(record))].removeprefix(BOM)


def text_of(cell: bytes) -> str:
    """Text of a raw cell. Bytes that are not UTF-8 stay apart from each other as escapes."""
    match = _QUOTED.fullmatch(cell)
    if match is not None:
        cell = match[1].replace(b'""', _QUOTE) + match[2]
    return cell.decode("utf-8", "backslashreplace")


def quoted(text: str, separator: str) -> str:
    """Spell a cell, with quotes where they are needed."""
    if text == "" or not any(mark in text for mark in (separator, '"', "\n", "\r")):
        return text
    return f'"{text.replace(chr(34), chr(34) * 2)}"'


_CHUNK: Final = 16_384  # rows whose new cells are rendered at a time
_SAMPLE: Final = 20


@dataclass(frozen=True)
class Delimited(Format):
    """Text with one record a line, or several where a quoted cell goes on, and a separator between cells."""

    separator: ClassVar[str]
    holds_lists = False

    def columns(self, source: Input) -> list[str]:
        """Names in the header."""
        return _names(source, records(source, self.separator.encode()))

    def scan(self, source: Input, fields: Sequence[Field]) -> pl.DataFrame:
        """One column per field: numbers where they are asked for, text as a key. An empty cell is null."""
        found = self._texts(source, [field.name for field in fields])
        columns = [pl.Series(texts, dtype=pl.String) for texts in found]
        place = partial(self.place, source)
        pairs = zip(fields, columns, strict=True)
        return pl.DataFrame({one.name: cells.typed(one, column, place) for one, column in pairs})

    def sample(self, source: Input) -> list[dict[str, str]]:
        """The texts of the first few rows."""
        rows = ([text_of(cell) for cell in raw] for _, raw in records(source, self.separator.encode()) if raw)
        header = next(rows, [])
        return [dict(zip(header, row, strict=False)) for row in islice(rows, _SAMPLE)]

    def _texts(self, source: Input, wanted: Sequence[str]) -> list[list[str | None]]:
        rows = records(source, self.separator.encode())
        names = _names(source, rows)
        at = [_position(source, names, name) for name in wanted]
        found: list[list[str | None]] = [[] for _ in wanted]
        for raw in _whole(source, rows, len(names)):
            for column, texts in zip(at, found, strict=True):
                texts.append(text_of(raw[column]) if raw[column] else None)
        return found

    def weave(self, source: Input, sink: BinaryIO, weaving: Weaving) -> tuple[str, ...]:
        """Copy every record and put the new cells in."""
        rows = records(source, self.separator.encode())
        header = next(record for record in rows if record[1])
        old = [text_of(raw) for raw in header[1]]
        names = weaving.added.columns
        slots = [old.index(name) if weaving.replace and name in old else None for name in names]
        sink.write(self._put(header[0], header[1], slots, [quoted(name, self.separator).encode() for name in names]))
        if weaving.take is not None:
            rows = self._taken(source, weaving, ending(header[0]) or b"\n")
        self._weave_rows(source, sink, weaving.added, slots, rows)
        return ()

    def _weave_rows(
        self,
        source: Input,
        sink: BinaryIO,
        added: pl.DataFrame,
        slots: Sequence[int | None],
        rows: Iterator[tuple[bytes, list[bytes]]],
    ) -> None:
        values = self._rendered(added)
        woven = 0
        for record, raw in rows:
            new = next(values, None) if raw else None
            woven += bool(raw)
            sink.write(record if new is None else self._put(record, raw, slots, new))
        exactly(woven, added.height, source)

    def _taken(self, source: Input, weaving: Weaving, newline: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
        mark = self.separator.encode()
        spans = offsets((record, bool(raw)) for record, raw in records(source, mark))[1:]
        if weaving.take is None:
            return
        with source.open() as handle:
            for record in taken(handle, spans, weaving.take, newline):
                yield record, cells_of(bare(record), mark) or []

    def _put(self, record: bytes, raw: Sequence[bytes], slots: Sequence[int | None], new: Sequence[bytes]) -> bytes:
        mark = self.separator.encode()
        close = ending(record)
        body = record[: len(record) - len(close)]
        if any(slot is not None for slot in slots):
            rewritten = list(raw)
            for slot, text in zip(slots, new, strict=True):
                if slot is not None:
                    rewritten[slot] = text
            body = (BOM if body.startswith(BOM) else b"") + mark.join(rewritten)
        behind = [text for slot, text in zip(slots, new, strict=True) if slot is None]
        return mark.join([body, *behind]) + close

    def _rendered(self, added: pl.DataFrame) -> Iterator[tuple[bytes, ...]]:
        for chunk in added.iter_slices(_CHUNK):
            yield from zip(*(map(self._spell, series.to_list()) for series in chunk), strict=True)

    def _spell(self, value: object) -> bytes:
        match value:
            case None:
                return b""
            case bool():
                return b"true" if value else b"false"
            case float():
                return b"NaN" if math.isnan(value) else repr(value).encode()
        return quoted(str(value), self.separator).encode()

    def compared(self, new: Input, old: Input, added: Collection[str]) -> Compared:
        """Compare by bytes: a record is the old one with the added cells put in."""
        return "bytes", self._difference(new, old, added)

    def _difference(self, new: Input, old: Input, added: Collection[str]) -> str | None:
        mark = self.separator.encode()
        nothing: tuple[bytes, list[bytes]] = (b"", [])
        both = zip_longest(records(old, mark), records(new, mark), fillvalue=nothing)
        known, names = self.columns(old), self.columns(new)
        for name in (name for name in added if name not in names):
            return f"{new.name}: there is no column {name}"
        slots = [known.index(name) if name in known else None for name in added]
        places = [names.index(name) for name in added]
        row = -1
        for (was, old_cells), (now, cells_now) in both:
            row += bool(old_cells or cells_now)
            texts = [cells_now[at] for at in places if at < len(cells_now)]
            whole = len(cells_now) == len(names) and len(old_cells) == len(known)
            if was != now if not old_cells else not whole or self._put(was, old_cells, slots, texts) != now:
                there = dict(zip(names, cells_now, strict=False))
                cells = zip(known, old_cells, strict=False)
                what = next(
                    (name for name, cell in cells if name not in added and there.get(name) != cell), "the record"
                )
                return f"{new.name} row {row}: {what} differs from {old.name}"
        return None

    def read(self, source: Input) -> pl.DataFrame:
        """Read every cell as text: what a number looked like is kept that way."""
        names = self.columns(source)
        found = self._texts(source, names)
        named = zip(names, found, strict=True)
        return pl.DataFrame({name: pl.Series(texts, dtype=pl.String) for name, texts in named})

    def write(self, frame: pl.DataFrame, sink: BinaryIO, metadata: Mapping[str, str]) -> None:  # noqa: ARG002
        """Write a fresh file; nested cells as JSON text."""
        cells.texts_of_nested(cells.plain_keys(frame)).write_csv(sink, separator=self.separator)


def _names(source: Input, rows: Iterator[tuple[bytes, list[bytes]]]) -> list[str]:
    header = next((raw for _, raw in rows if raw), None)
    if header is None:
        raise DataError(f"{source.name}: no rows", "the file has no header")
    return [text_of(cell) for cell in header]


def _whole(source: Input, rows: Iterator[tuple[bytes, list[bytes]]], width: int) -> Iterator[list[bytes]]:
    for row, raw in enumerate((raw for _, raw in rows if raw), 1):
        if len(raw) != width:
            raise DataError(
                f"{source.name} row {row}: {len(raw)} cells, the header has {width}",
                "a cell that contains the separator needs quotes",
            )
        yield raw


def _position(source: Input, names: Sequence[str], name: str) -> int:
    if name not in names:
        raise absent(name, source, names)
    if names.count(name) > 1:
        twice = f"{source.name}: {names.count(name)} columns are named {name!r}"
        raise DataError(twice, "rename one of them")
    return names.index(name)


class Csv(Delimited):
    """Cells with commas between them."""

    separator = ","


class Tsv(Delimited):
    """Cells with tabs between them."""

    separator = "\t"
