"""JSON documents with rollouts inside: arrays, logs with a list of samples, traces, an episode per file.

A document is a whole file, or a line of a file. Its rollouts are found along a path (`traces[]`); a column is looked
up in the rollout first, then in the objects around it. New fields go into the rollout's own object.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from io import IOBase
from itertools import islice, repeat
from typing import Any, BinaryIO, Final, NamedTuple, cast

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files.compression import unpacked
from grpo_cli.files.inputs import Input
from grpo_cli.formats.blocks import BOM, raw_lines
from grpo_cli.formats.interface import ADD_LONG, Compared, Format, Index, Scanned, Weaving, place_of_row
from grpo_cli.formats.json_document import walk
from grpo_cli.formats.json_document.walk import Rollout, Rollouts
from grpo_cli.formats.jsonl.lines import is_blank
from grpo_cli.formats.verify import Record, first_difference, json_record
from grpo_cli.values import cells, json_text
from grpo_cli.values.cells import Excerpt, Field
from grpo_cli.values.column_types import refuse_broken_names, series_of
from grpo_cli.values.json_text import refuse_doubled, refuse_doubled_inside
from grpo_cli.values.paths import PARENT, absent

_OUTLINES = 64  # files whose outline is remembered
_SAMPLE = 20  # rollouts from which the layout is recognised
_FIRST = 512  # rollouts in lines that are cheap to read
_AGAIN = 8 << 20  # bytes of a document that may be parsed again
_TEXTS = 256  # rollouts whose texts are taken at once
_PIECES = 64  # pieces of text that are written at once: each write has a cost, and a piece may be long
_HEAD = 200  # lines that are searched for the names of the columns


class _Text(NamedTuple):
    """A document: its text, its byte order mark, and its first line."""

    text: str
    mark: bytes
    line: int
    rows: Rollouts


_AT_HAND: Final[dict[tuple[Documents, Input], _Text]] = {}  # the last file that was parsed


@dataclass(frozen=True)
class Documents(Format):
    """JSON with rollouts at a path (`traces[]`) of each document: the whole file, or each of its lines."""

    path: str = "[]"
    lined: bool = False

    record = "object"

    @property
    def is_one_list(self) -> bool:
        """Whether the file is a document whose path leads through a single list."""
        return not self.lined and self.path.count("[]") == 1

    def texts(self, source: Input) -> Iterator[_Text]:
        """Every document with its rollouts; a blank line is a document without any."""
        if not self.lined:
            yield _document(self, source)
            return
        for line, raw in enumerate(raw_lines(source), 1):
            mark, text = _decoded(raw)
            rows = Rollouts(())
            if not is_blank(raw):
                rows = self.rollouts(source, text, line)
                rows.lists, rows.empty = rows.lists or 1, rows.empty or not rows
            yield _Text(text, mark, line, rows)

    def rollouts(self, source: Input, text: str, line: int) -> Rollouts:
        """The rollouts of a document that begins at this line of the file."""
        try:
            rows = walk.rows_of(text, walk.steps(self.path))
        except json.JSONDecodeError as error:
            raise _not_json(source.name, text, line, error) from None
        except RecursionError:
            raise DataError(f"{source.name}:{line}: nested too deeply to be read") from None
        except ValueError as error:  # an integer with more than 4300 digits
            raise DataError(f"{source.name}:{line}: {str(error).lower()}") from None
        for number, row in enumerate(rows, 1):
            if not isinstance(row.value, dict):
                found = text[row.start : row.end][:40]
                where = f"{source.name}:{line + text.count(chr(10), 0, row.start)}"
                raise DataError(f"{where}: item {number} of {self.path or 'the file'} is {found}, expected an object")
        return rows

    def columns(self, source: Input) -> list[str]:
        """Names in the rollouts, then in the objects around them, nearest first."""
        names = list(_outline(self, source).far)
        if not names:
            raise self._no_rows(source)
        return names

    def _no_rows(self, source: Input) -> DataError:
        return DataError(f"{source.name}: no rows", f"there is nothing at {self.path}" if self.path else "")

    def outer_columns(self, source: Input) -> frozenset[str]:
        """Names that no rollout has itself."""
        return frozenset(name for name, far in _outline(self, source).far.items() if far)

    def sample(self, source: Input) -> Sequence[Mapping[str, Any]]:
        return _outline(self, source).sample

    def scan(self, source: Input, fields: Sequence[Field], watched: Collection[str] = ()) -> Scanned:
        wanted = [field for field in fields if field.name != PARENT]
        found: list[list[tuple[int, Any]]] = [[] for _ in wanted]
        lines = []
        parents = []
        late: set[str] = set()
        base = empty = 0
        for document in self.texts(source):
            empty += document.rows.empty
            for row in document.rows:
                lines.append(document.line)
                parents.append(base + max(row.list_at, 0))
                late.update(name for name in watched if name in row.value)
                for field, values in zip(wanted, found, strict=True):
                    values.append(row.value_of(field.name, lambda: self._place(source, len(lines) - 1, lines)))
            base += document.rows.lists
        if not lines:
            raise self._no_rows(source)
        columns = {
            field.name: self._column(source, field, values, lines) for field, values in zip(wanted, found, strict=True)
        }
        columns[PARENT] = pl.Series(PARENT, parents, dtype=pl.Int64)
        frame = pl.DataFrame([columns[field.name] for field in fields] or None, height=len(lines))
        return Scanned(frame, late_names=frozenset(late), empty=empty)

    def _column(self, source: Input, field: Field, found: Sequence[tuple[int, Any]], lines: Sequence[int]) -> pl.Series:
        nearest = min((far for far, _ in found if far >= 0), default=None)
        if nearest is None:
            raise absent(field.name, source.name, self.columns(source))
        values = [value if far == nearest else None for far, value in found]
        if field.kind == "key":
            return cells.key_series(field.name, values)
        return cells.number_series(field, values, lambda row: self._place(source, row, lines))

    def _place(self, source: Input, row: int, lines: Sequence[int]) -> str:
        return f"{source.name}:{lines[row]}" if self.lined else place_of_row(source, row)

    def places(self, source: Input, rows: Sequence[int]) -> list[str]:
        if not self.lined:
            return super().places(source, rows)
        lines = [document.line for document in self.texts(source) for _ in document.rows]
        return [self._place(source, row, lines) for row in rows]

    def _place_of(self, source: Input, row: int) -> str:
        return self.places(source, [row])[0]

    def rows(self, source: Input, wanted: Excerpt) -> Iterator[pl.DataFrame]:
        """Some columns of single rollouts; the JSON texts of their own fields are unchanged.

        As in a scan, if other rollouts have a field of their own, a rollout without it gets none from the objects around it.
        """
        paths = [(name, _outline(self, source).far.get(name)) for name in wanted.columns]
        every = ((document, row) for document in self.texts(source) for row in document.rows)
        taken = frozenset(wanted.numbers.tolist())
        if wanted.lists:
            wanted = wanted._replace(as_json=True)
        last = int(wanted.numbers.max(initial=0))
        first = enumerate(islice(every, last + 1))
        chosen = ((at, document, row) for at, (document, row) in first if at in taken)
        while some := list(islice(chosen, _TEXTS)):
            try:
                found = list[list[Any]]()
                for at, document, row in some:
                    place = partial(self._place_of, source, at)
                    found.append([_cell(document, row, *column, place, as_json=wanted.as_json) for column in paths])
                yield cells.frame_of_rows(found, wanted)
            except ValueError as error:
                wrong = "not UTF-8" if isinstance(error, UnicodeEncodeError) else error
                raise DataError(f"{source.name}: {wrong}") from None

    def cheap_rows(self, source: Input, index: Index, height: int) -> int:
        """The first rollouts of lines, and all of a document that is cached or small enough to be parsed again."""
        if self.lined:
            return _FIRST
        return height if source.pin.size <= _AGAIN or (self, source) in _AT_HAND else 0

    def weave(self, source: Input, index: Index, sink: BinaryIO, weaving: Weaving) -> tuple[str, ...]:
        if weaving.take is not None and (np.diff(weaving.take) <= 0).any():
            raise DataError(f"{source.name}: rows cannot be repeated or moved inside a document", ADD_LONG)
        take = None if weaving.take is None else frozenset(weaving.take.tolist())
        names = weaving.added.columns
        row = 0
        new = 0
        cells = json_text.row_texts(weaving.added) if names else repeat(())

        def texts(document: _Text, kept: Iterable[int]) -> Iterator[str]:
            for at in kept:
                if weaving.replace:
                    refuse_doubled(document.rows[at].value, names, partial(self._place_of, source, row + at))
                text = document.text[document.rows[at].start : document.rows[at].end]
                values = next(cells, None)  # None: the count below refuses it
                yield text if values is None else walk.put(text, names, values, replace=weaving.replace)

        for document in self.texts(source):
            kept = [at for at in range(len(document.rows)) if take is None or (row + at) in take]
            new += len(kept)
            if not (
                self.lined and take is not None and not kept and document.text.strip()
            ):  # a record without rollouts stays out
                pieces = walk.woven(document.text, document.rows, frozenset(kept), texts(document, kept))
                sink.write(document.mark)
                while some := list(islice(pieces, _PIECES)):
                    sink.write("".join(some).encode("utf-8", "surrogateescape"))
            row += len(document.rows)
        InputChanged.unless_same(new, weaving.added.height if names or take is None else len(take or ()), source.name)
        return ()

    def parts(self, source: Input) -> Iterator[pl.DataFrame]:
        """A row per rollout with its fields and those of the objects around it, except lists."""
        rows = [row for document in self.texts(source) for row in document.rows]
        nearest = _nearest(rows)
        found = [self._flat(row, nearest, partial(self._place_of, source, at)) for at, row in enumerate(rows)]
        names = dict.fromkeys(name for row in found for name in row)
        refuse_broken_names(names, source.name)
        yield pl.DataFrame({name: series_of(name, [row.get(name) for row in found]) for name in names})

    def _flat(self, row: Rollout, nearest: Mapping[str, int], place: json_text.Where) -> dict[str, Any]:
        around: dict[str, Any] = {}
        for far, scope in zip(range(len(row.scopes), 0, -1), row.scopes, strict=True):
            refuse_doubled(scope, scope.twice, place)
            around |= {
                name: value for name, value in scope.items() if nearest[name] == far and not isinstance(value, list)
            }
        refuse_doubled_inside([around, row.value], place)
        return {**around, **row.value}

    def write_parts(self, parts: Iterator[pl.DataFrame], sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        """Write a new file: an array of objects, or an object per line."""
        plain = cells.without_bytes(pl.concat(parts))
        if self.lined:
            cells.write_lines(plain, sink)
        elif cells.JSON_TEXT in plain.dtypes:
            sink.write(f"[{','.join(cells.json_objects(plain))}]".encode())
        else:
            plain.write_json(cast("IOBase", sink))

    def compared(self, new: Input, old: Input, added: Collection[str]) -> Compared:
        """Compare by bytes: rollout by rollout, with the text between them."""
        return "bytes", first_difference(self._records(new), self._records(old), added, "rollout")

    def _records(self, source: Input) -> Iterator[Record]:
        row = 0
        for document in self.texts(source):
            place = f"{source.name}:{document.line}"
            done = 0
            for rollout in document.rows:
                row += 1
                place = place if self.lined else f"{source.name} row {row}"
                yield Record(place, document.text[done : rollout.start])
                yield json_record(place, document.text[rollout.start : rollout.end])
                done = rollout.end
            yield Record(place, f"{document.text[done:]}{document.mark!r}")


def _cell(
    document: _Text, row: Rollout, name: str, nearest: int | None, place: json_text.Where, *, as_json: bool
) -> Any:
    """A column of a rollout, or of the nearest object around it that has it, as a value or as JSON text; None without one."""
    far, value = row.value_of(name, place)
    if far < 0 or value is None or (nearest is not None and far > nearest):
        return None
    if not as_json:
        return value
    if far > 0:
        return cells.json_as_is(value)
    found = json_text.texts_of(document.text[row.start : row.end], [name])[0]
    return None if found is None else json_text.on_one_line(found)


def _document(documents: Documents, source: Input) -> _Text:
    """The document of a file, parsed once for names, columns and weaving; only the last file is cached."""
    key = (documents, source)
    document = _AT_HAND.get(key)
    if document is None:
        _AT_HAND.clear()  # before the next document takes memory
        with unpacked(source) as handle:
            mark, text = _decoded(handle.read())
        document = _AT_HAND[key] = _Text(text, mark, 1, documents.rollouts(source, text, 1))
    return document


def _decoded(raw: bytes) -> tuple[bytes, str]:
    mark = BOM if raw.startswith(BOM) else b""
    return mark, raw.removeprefix(BOM).decode("utf-8", "surrogateescape")


class _Outline(NamedTuple):
    """How far out the nearest field of each name is, nearest names first, and the first rollouts."""

    far: Mapping[str, int]
    sample: tuple[dict[str, Any], ...]


@lru_cache(maxsize=_OUTLINES)
def _outline(documents: Documents, source: Input) -> _Outline:
    """The outline of a file, cached: a large document takes seconds to parse."""
    sample: list[Any] = []

    def rows() -> Iterator[Rollout]:
        for document in islice(documents.texts(source), _HEAD if documents.lined else None):
            sample.extend(row.value for row in document.rows[: _SAMPLE - len(sample)])
            yield from document.rows

    return _Outline(_nearest(rows()), tuple(sample))


def _nearest(rows: Iterable[Rollout]) -> dict[str, int]:
    """How far out of a rollout the nearest field of each name is, in any row: 0 is the rollout; the nearest come first."""
    names: dict[int, dict[str, None]] = {}
    for row in rows:
        for far, scope in enumerate((row.value, *reversed(row.scopes))):
            names.setdefault(far, {}).update(dict.fromkeys(scope))
    nearest: dict[str, int] = {}
    for far in sorted(names):
        nearest |= {name: far for name in names[far] if name not in nearest}
    return nearest


def _not_json(name: str, text: str, line: int, error: json.JSONDecodeError) -> DataError:
    where = line + text.count("\n", 0, error.pos)
    if error.pos >= len(text.rstrip()):
        return DataError(f"{name}:{where}: the document is cut short", "was its writer stopped?")
    what = error.msg[:1].lower() + error.msg[1:]
    cure = "jq -c . writes one document per line" if error.msg == "Extra data" else ""
    return DataError(f"{name}:{where}: not JSON: {what} at column {error.colno}", cure)
