"""JSON Lines: a line is parsed for what is needed, and written back byte for byte around the new field."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np
import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.files.compression import is_packed
from grpo_cli.formats import cells
from grpo_cli.formats.blocks import blocks
from grpo_cli.formats.jsonl import members
from grpo_cli.formats.jsonl.exact import ABSENT, rows, value_of
from grpo_cli.formats.jsonl.lines import BOM, ending, is_blank, last_braces, number_at, offsets, raw_lines, taken
from grpo_cli.formats.jsonl.reading import Found, Reader, Rows
from grpo_cli.formats.jsonl.weaving import insert
from grpo_cli.formats.paths import absent
from grpo_cli.parallel import ahead

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.blocks import Block
    from grpo_cli.formats.interface import Field, Weaving
    from grpo_cli.formats.jsonl.reading import Part

_LOG: Final = logging.getLogger(__name__)
_CHUNK: Final = 16_384  # rows whose new cells are rendered at a time
_HEAD: Final = 1_000  # lines whose keys are taken for those of the file
_HEAD_BYTES: Final = 1 << 20
_LONGEST: Final = 4 << 20  # bytes of a line that is looked at for its keys
_SPOTS: Final = 32  # places all over the file where one more line is looked at


def _rows(source: Input) -> Iterator[dict[str, Any]]:
    return (row for _, row in rows(raw_lines(source), lambda at: f"{source.name}:{at + 1}"))


def columns(source: Input) -> list[str]:
    """Names of the top-level keys in the order in which they first appear, by the look of some lines.

    Those are the first lines and a few from all over the file. A key that only other lines hold is not here;
    whoever must not miss one has it watched for by `late`.
    """
    names: dict[str, None] = {}
    size = 0
    lines = raw_lines(source)
    for at, line in enumerate(lines):
        names.update(_keys_of(line, f"{source.name}:{at + 1}"))
        size += len(line)
        if at >= _HEAD or size >= _HEAD_BYTES:
            break
    for line in () if next(lines, None) is None else _spots(source):
        with suppress(DataError):  # a piece of a long line; what is no JSON is reported by the scan
            names.update(_keys_of(line, source.name))
    return list(names)


def _keys_of(line: bytes, place: str) -> dict[str, None]:
    return {name: None for _, row in rows([line], lambda _: place) for name in row}


def _spots(source: Input) -> Iterator[bytes]:
    if is_packed(source):
        return
    with source.open() as handle:
        for spot in range(1, _SPOTS + 1):
            handle.seek(source.pin.size * spot // (_SPOTS + 1))
            handle.readline(_LONGEST)
            yield handle.readline(_LONGEST)


def scan(source: Input, fields: Sequence[Field]) -> pl.DataFrame:
    """One column per field. Only the values of these fields are kept."""
    return late(source, fields, ())[0]


def late(source: Input, fields: Sequence[Field], watched: Collection[str]) -> tuple[pl.DataFrame, frozenset[str]]:
    """Scan, and tell which of the watched names some line holds, however late in the file."""
    reader = Reader(tuple(fields), frozenset(watched))

    def read(block: Block) -> tuple[Rows, list[Found]]:
        return reader.read(block, lambda at: f"{source.name}:{number_at(source, block.start + at)}")

    parts: list[list[Part]] = [[] for _ in fields]
    seen: set[str] = set()
    exact, why = 0, ""
    source.blocks.clear()
    for rows_there, found in ahead(read, blocks(source)):
        source.blocks.append(rows_there)
        for one in found:
            for column, part in zip(parts, one.columns, strict=True):
                column.append(part)
            seen |= one.late
        reason = next((one.why for one in found if one.why), "")
        exact, why = exact + bool(reason), why or reason
    if exact:
        _LOG.debug(
            "%s: %d of %d blocks were read exactly, the first one since: %s",
            source.name,
            exact,
            len(source.blocks),
            why,
        )
    if not sum(one.height for one in source.blocks):
        raise DataError(f"{source.name}: no rows")
    made = {}
    for field in fields:  # each column's parts go as soon as they are joined: two copies of one column, not of all
        made[field.name] = _column(source, field, parts.pop(0))
    return pl.DataFrame(made), frozenset(seen)


def _column(source: Input, field: Field, parts: Sequence[Part]) -> pl.Series:
    # Null or missing: the fast reader cannot tell. Mostly the first row can.
    nothing = all(isinstance(part, pl.Series) and part.null_count() == len(part) for part in parts)
    if nothing and all(value_of(row, field.name) is ABSENT for row in _rows(source)):
        raise absent(field.name, source, columns(source))
    known = []
    for part in parts:
        if isinstance(part, DataError):
            raise part
        known.append(part)
    return cells.joined_keys(field.name, known) if field.kind == "key" else pl.concat(known, rechunk=True)


def json_texts(source: Input, rows: np.ndarray, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """The JSON texts of some columns at ascending rows, as they stand in their lines; a frame for each block."""
    row = 0
    for block in blocks(source):
        if not len(rows) or row > rows[-1]:
            return
        data = block.read()
        braces, _ = last_braces(data)
        first, last = np.searchsorted(rows, [row, row + len(braces)])
        here = rows[first:last] - row
        row += len(braces)
        if not len(here):
            continue
        starts = np.where(here > 0, braces[here - 1] + 1, 0)
        found = []
        for start, end in zip(starts.tolist(), (braces[here] + 1).tolist(), strict=True):
            try:
                found.append(members.texts_of(data[start:end].decode(), columns))
            except ValueError as error:
                line = number_at(source, block.start + start) + data.count(b"\n", start, data.index(b"{", start))
                wrong = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
                raise DataError(f"{source.name}:{line}: {wrong}") from None
        yield pl.DataFrame(found, schema=dict.fromkeys(columns, pl.String), orient="row")


def weave(source: Input, sink: BinaryIO, weaving: Weaving) -> tuple[str, ...]:
    """Put the new fields before the last brace of every line; every other byte is the input's."""
    take = weaving.take
    if take is None or (np.diff(take) > 0).all():
        insert(source, sink, weaving)
        return ()
    spot = members.Spot.of(weaving.added.columns, replace=weaving.replace)
    values = _rendered(weaving.added)
    sink.writelines(
        spot.put(line, next(values)) if weaving.added.width else line for line in _taken(source, take, sink)
    )
    return ()


def _taken(source: Input, take: np.ndarray, sink: BinaryIO) -> Iterator[bytes]:
    """Rows in any order: copies of groups, for example."""
    spans = offsets((line, not is_blank(line)) for line in raw_lines(source))
    first = next(raw_lines(source))
    sink.write(BOM if first.startswith(BOM) else b"")
    with source.open() as handle:
        yield from taken(handle, spans, take, ending(first) or b"\n")


def _rendered(added: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    for chunk in added.iter_slices(_CHUNK):
        yield from zip(*(members.spelt(series).to_list() for series in chunk), strict=True)


def write(frame: pl.DataFrame, sink: BinaryIO, metadata: Mapping[str, str]) -> None:  # noqa: ARG001 - no place for it
    """Write a fresh file, one object a line."""
    cells.without_bytes(cells.plain_keys(frame)).write_ndjson(sink)
