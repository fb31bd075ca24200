"""JSON documents whose rollouts are inside: arrays, logs with a list of samples, traces, one episode a file.

A document is a whole file, or each line of one. Its rollouts are found along a path (`traces[]`); a column is looked
for in the rollout first, then in the objects around it. New members go into the rollout's own object.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files.compression import unpacked
from grpo_cli.formats import cells, json_text
from grpo_cli.formats.blocks import BOM, raw_lines
from grpo_cli.formats.column_types import series_of
from grpo_cli.formats.interface import PARENT, Format
from grpo_cli.formats.json_document import walk
from grpo_cli.formats.jsonl.lines import is_blank
from grpo_cli.formats.paths import absent

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from io import IOBase

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.interface import Compared, Field, Weaving
    from grpo_cli.formats.json_document.walk import Row

_OUTLINES: Final = 64  # files whose outline is remembered
_SAMPLE: Final = 20
_FIRST: Final = 512  # rollouts in lines that are quickly reached
_AGAIN: Final = 8 << 20  # bytes of a document that may be parsed once more
_TEXTS: Final = 256  # rollouts whose texts are taken at once
_PIECES: Final = 64  # of text that are written at once: each write costs, and a piece may be long
_HEAD: Final = 200  # documents whose names are taken for those of all lines
_LONG: Final = "the rows of one record stay together in its own layout: add --long"


@dataclass(frozen=True, slots=True)
class _Text:
    """A document: its text, the mark before it, and the line that it begins at."""

    text: str
    mark: bytes
    line: int
    rows: Sequence[Row]
    lists: int  # that its rollouts could stand in
    empty: int  # records without rollouts


_AT_HAND: Final[dict[tuple[Documents, Input], _Text]] = {}  # the last file that was parsed


@dataclass(frozen=True)
class Documents(Format):
    """JSON with its rollouts at a path (`traces[]`) of each document: the file is one, or each of its lines."""

    path: str = "[]"
    lined: bool = False

    holds_objects = True
    watches = True  # of documents in lines only the first show their names

    @property
    def nested(self) -> bool:
        """Whether a document holds more than its rollouts."""
        return self.path not in {"", "[]"}

    @property
    def keeps_empty_records(self) -> bool:
        """Whether all records are parts of one document."""
        return not self.lined

    def texts(self, source: Input) -> Iterator[_Text]:
        """Every document with its rollouts; a blank line is a document without any."""
        if not self.lined:
            yield _document(self, source)
            return
        for line, raw in enumerate(raw_lines(source), 1):
            mark, text = _decoded(raw)
            if is_blank(raw):
                yield _Text(text, mark, line, (), 0, 0)
            else:
                rows = self.rows(source, text, line)
                yield _Text(text, mark, line, rows, rows.lists or 1, rows.empty or not rows)

    def rows(self, source: Input, text: str, line: int) -> walk.Rows:
        """The rollouts of a document that begins at this line of the file."""
        try:
            rows = walk.rows_of(text, walk.steps(self.path))
        except json.JSONDecodeError as error:
            raise _not_json(source.name, text, line, error) from None
        except RecursionError:
            raise DataError(f"{source.name}:{line}: nested too deeply to be read") from None
        except ValueError as error:  # an integer of more than 4300 digits
            raise DataError(f"{source.name}:{line}: {str(error).lower()}") from None
        for number, row in enumerate(rows, 1):
            if not isinstance(row.value, dict):
                found = text[row.start : row.end][:40]
                where = f"{source.name}:{line + text.count(chr(10), 0, row.start)}"
                raise DataError(f"{where}: item {number} of {self.path or 'the file'} is {found}, expected an object")
        return rows

    def columns(self, source: Input) -> list[str]:
        """Names in the rollouts, then those in the objects around them, the nearest first."""
        names = _outline(self, source).names
        if not names:
            raise self._no_rows(source)
        return list(names)

    def _no_rows(self, source: Input) -> DataError:
        return DataError(f"{source.name}: no rows", f"there is nothing at {self.path}" if self.path else "")

    def outer_columns(self, source: Input) -> frozenset[str]:
        """Names that no rollout has itself."""
        return _outline(self, source).outer

    def sample(self, source: Input) -> Sequence[Mapping[str, Any]]:
        """The first few rollouts."""
        return _outline(self, source).sample

    def scan(self, source: Input, fields: Sequence[Field]) -> pl.DataFrame:
        """One column per field, one row per rollout."""
        return self.scan_watching(source, fields, ())[0]

    def scan_watching(
        self, source: Input, fields: Sequence[Field], watched: Collection[str]
    ) -> tuple[pl.DataFrame, frozenset[str]]:
        """Scan, and tell which of the watched names some rollout holds."""
        wanted = [one for one in fields if one.name != PARENT]
        found: list[list[tuple[int, Any]]] = [[] for _ in wanted]
        lines: list[int] = []
        parents: list[int] = []
        late: set[str] = set()
        base = empty = 0
        for one in self.texts(source):
            empty += one.empty
            for row in one.rows:
                lines.append(one.line)
                parents.append(base + max(row.list_at, 0))
                late.update(name for name in watched if name in row.value)
                for field, values in zip(wanted, found, strict=True):
                    values.append(row.value_of(field.name, lambda: self._place(source, len(lines) - 1, lines)))
            base += one.lists
        if not lines:
            raise self._no_rows(source)
        source.empty_records[:] = [empty]
        columns = {
            field.name: self._column(source, field, values, lines) for field, values in zip(wanted, found, strict=True)
        }
        columns[PARENT] = pl.Series(PARENT, parents, dtype=pl.Int64)
        return pl.DataFrame([columns[one.name] for one in fields]), frozenset(late)

    def _column(self, source: Input, field: Field, found: Sequence[tuple[int, Any]], lines: Sequence[int]) -> pl.Series:
        nearest = min((far for far, _ in found if far >= 0), default=None)
        if nearest is None:
            raise absent(field.name, source, self.columns(source))
        values = [value if far == nearest else None for far, value in found]
        if field.kind == "key":
            return cells.key_series(field.name, values)
        return cells.number_series(field, values, lambda row: self._place(source, row, lines))

    def _place(self, source: Input, row: int, lines: Sequence[int]) -> str:
        return f"{source.name}:{lines[row]}" if self.lined else f"{source.name} row {row + 1}"

    def place(self, source: Input, row: int, left_out: Sequence[int] = ()) -> str:  # noqa: ARG002
        """How messages call a rollout: by its line, or by its number in the file."""
        if not self.lined:
            return f"{source.name} row {row + 1}"
        lines = (one.line for one in self.texts(source) for _ in one.rows)
        return f"{source.name}:{next(islice(lines, row, None), row + 1)}"

    def values(self, source: Input, rows: np.ndarray, column: str, height: int) -> list[Any] | None:
        """The values of a column at some rollouts; of a large document that is no longer at hand only a scan returns them."""
        if not self._is_quick(source):
            return None
        wanted, found = frozenset(rows.tolist()), []
        every = (row for one in self.texts(source) for row in one.rows)
        for at, row in enumerate(islice(every, min(height, int(rows.max(initial=-1)) + 1))):
            if at in wanted:
                far, value = row.value_of(column, partial(self.place, source, at))
                found.append(None if far < 0 else value)
        return found if len(found) == len(rows) else None

    def json_texts(self, source: Input, rows: np.ndarray, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The JSON texts of some columns: of the rollout's own members as they stand there."""
        schema = dict.fromkeys(columns, pl.String)
        every = ((one, row) for one in self.texts(source) for row in one.rows)
        wanted = frozenset(rows.tolist())
        chosen = (pair for at, pair in enumerate(every) if at in wanted)
        while some := list(islice(chosen, _TEXTS)):
            try:
                found = [[_json_text(one.text, row, name) for name in columns] for one, row in some]
                yield pl.DataFrame(found, schema=schema, orient="row")
            except UnicodeEncodeError:
                raise DataError(f"{source.name}: not UTF-8") from None
            except ValueError as error:
                raise DataError(f"{source.name}: {error}") from None

    def quick_rows(self, source: Input, height: int) -> range:
        """The first rollouts of lines, and all of a document that is at hand or small enough to be parsed once more."""
        if self.lined:
            return range(min(height, _FIRST))
        return range(height if self._is_quick(source) else 0)

    def _is_quick(self, source: Input) -> bool:
        return self.lined or source.pin.size <= _AGAIN or (self, source) in _AT_HAND

    def weave(self, source: Input, sink: BinaryIO, weaving: Weaving) -> tuple[str, ...]:
        """Put the new members into the rollouts; every other byte is the input's."""
        take = None if weaving.take is None else _ordered(source, weaving.take)
        names, row, new = weaving.added.columns, 0, 0
        cells = json_text.spelt_rows(weaving.added) if names else repeat(())

        def texts(one: _Text, kept: Iterable[int]) -> Iterator[str]:
            for at in kept:
                text = one.text[one.rows[at].start : one.rows[at].end]
                values = next(cells, None)  # none: the count below is refused
                yield text if values is None else walk.put(text, names, values, replace=weaving.replace)

        for one in self.texts(source):
            kept = [at for at in range(len(one.rows)) if take is None or (row + at) in take]
            row, new = row + len(one.rows), new + len(kept)
            if self.lined and take is not None and not kept and one.text.strip():
                continue  # also a record that has no rollouts
            if len(kept) == len(one.rows):
                pieces = walk.woven(one.text, one.rows, texts(one, kept))
            else:
                pieces = walk.without(one.text, one.rows, frozenset(kept), texts(one, kept))
            sink.write(one.mark)
            while some := list(islice(pieces, _PIECES)):
                sink.write("".join(some).encode("utf-8", "surrogateescape"))
        InputChanged.unless_same(new, weaving.added.height if names or take is None else len(take or ()), source.name)
        return ()

    def read(self, source: Input) -> pl.DataFrame:
        """One row per rollout with its members and, of the objects around it, all members that are no lists."""
        found = [self._flat(row) for one in self.texts(source) for row in one.rows]
        names = dict.fromkeys(name for row in found for name in row)
        return pl.DataFrame({name: series_of(name, [row.get(name) for row in found]) for name in names})

    def _flat(self, row: Row) -> dict[str, Any]:
        around: dict[str, Any] = {}
        for scope in row.scopes:
            around |= {name: value for name, value in scope.items() if not isinstance(value, list)}
        return {**{name: value for name, value in around.items() if name not in row.value}, **row.value}

    def write(self, frame: pl.DataFrame, sink: BinaryIO, metadata: Mapping[str, str]) -> None:  # noqa: ARG002
        """Write a fresh file: an array of objects, or one object a line."""
        plain = cells.without_bytes(cells.plain_keys(frame))
        if self.lined:
            plain.write_ndjson(sink)
        else:
            plain.write_json(cast("IOBase", sink))

    def compared(self, new: Input, old: Input, added: Collection[str]) -> Compared:
        """Compare by bytes: a document is the old one with the new members put in."""
        return "bytes", self._difference(new, old, added)

    def _difference(self, new: Input, old: Input, added: Collection[str]) -> str | None:
        names = list(added)
        for was, now in zip(self.texts(old), self.texts(new), strict=False):
            texts = []
            for before, after in zip(was.rows, now.rows, strict=False):
                text = now.text[after.start : after.end]
                spans = {name: text[start:end] for name, start, end in json_text.spans_of(text)}
                here = [name for name in names if name in spans]
                body = was.text[before.start : before.end]
                texts.append(walk.put(body, here, [spans[name] for name in here], replace=True))
                if any(name not in spans for name in names):
                    return f"{new.name}:{now.line}: a rollout without {', '.join(names)}"
            same = len(was.rows) == len(now.rows) and "".join(walk.woven(was.text, was.rows, texts)) == now.text
            if not same or was.mark != now.mark:
                return f"{new.name}:{now.line}: differs from {old.name} in more than {', '.join(names) or 'nothing'}"
        counts = [sum(1 for _ in self.texts(one)) for one in (old, new)]
        return None if counts[0] == counts[1] else f"{new.name}: {counts[1]} records, {old.name} has {counts[0]}"


def _json_text(text: str, row: Row, name: str) -> str | None:
    """The JSON text of a column of a rollout, or of the nearest object around it that has it; None where there is none."""
    far, value = row.value_of(name, lambda: "a rollout")
    if far < 0 or value is None:
        return None
    if far > 0:
        return cells.json_as_is(value)
    found = json_text.texts_of(text[row.start : row.end], [name])[0]
    return None if found is None else json_text.on_one_line(found)


def _document(documents: Documents, source: Input) -> _Text:
    """The document that a file is, parsed once for its names, its columns and the weave: of one file, not of many."""
    key = (documents, source)
    if key not in _AT_HAND:
        _AT_HAND.clear()  # before the next one takes its memory
        with unpacked(source) as handle:
            mark, text = _decoded(handle.read())
        rows = documents.rows(source, text, 1)
        _AT_HAND[key] = _Text(text, mark, 1, rows, rows.lists, rows.empty)
    return _AT_HAND[key]


def _decoded(raw: bytes) -> tuple[bytes, str]:
    mark = BOM if raw.startswith(BOM) else b""
    return mark, raw.removeprefix(BOM).decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class _Outline:
    """All names of a file, those that only the objects around rollouts have, and the first rollouts."""

    names: tuple[str, ...]
    outer: frozenset[str]
    sample: tuple[dict[str, Any], ...]


@lru_cache(maxsize=_OUTLINES)
def _outline(documents: Documents, source: Input) -> _Outline:
    """The outline of a file, made once for all who need it: a large document takes seconds to parse."""
    names: dict[int, dict[str, None]] = {}
    sample: list[Any] = []
    for one in islice(documents.texts(source), _HEAD if documents.lined else None):
        for row in one.rows:
            for far, scope in enumerate((row.value, *reversed(row.scopes))):
                names.setdefault(far, {}).update(dict.fromkeys(scope))
            if len(sample) < _SAMPLE:
                sample.append(row.value)
    every = dict.fromkeys(name for far in sorted(names) for name in names[far])
    return _Outline(tuple(every), frozenset(every) - {*names.get(0, ())}, tuple(sample))


def _ordered(source: Input, take: np.ndarray) -> frozenset[int]:
    if len(take) > 1 and (np.diff(take) <= 0).any():
        raise DataError(f"{source.name}: rows cannot be repeated or moved inside a document", _LONG)
    return frozenset(take.tolist())


def _not_json(name: str, text: str, line: int, error: json.JSONDecodeError) -> DataError:
    where = line + text.count("\n", 0, error.pos)
    if error.pos >= len(text.rstrip()):
        return DataError(f"{name}:{where}: the document is cut short", "was its writer stopped?")
    return DataError(
        f"{name}:{where}: not JSON: {error.msg[:1].lower()}{error.msg[1:]} at column {error.colno}",
        "jq -c . writes several documents one a line" if error.msg == "Extra data" else "",
    )
