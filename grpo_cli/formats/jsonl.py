"""JSON Lines: a line is parsed for what is needed, and written back byte for byte around the new field."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.formats import cells, loose, members
from grpo_cli.formats.lines import BOM, ending, exactly, is_blank, offsets, raw_lines, taken
from grpo_cli.formats.paths import absent, splits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np

    from grpo_cli.formats.model import Field, Weaving
    from grpo_cli.io.local import Input

_PARSE: Final = json.JSONDecoder().decode
_ABSENT: Final = object()
_CHUNK: Final = 16_384  # rows whose new cells are rendered at a time
_ONE_A_LINE: Final = "write one object a line, for example with jq -c '.[]'"


def _rows(source: Input) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every row with the number of its line. A blank line is no row."""
    for number, line in enumerate(raw_lines(source), 1):
        if not is_blank(line):
            yield number, _parsed(line.removeprefix(BOM), source, number)


def _parsed(line: bytes, source: Input, number: int) -> dict[str, Any]:
    # Bytes that are not UTF-8 are no reason to stop: they go out as they came in.
    text = line.decode("utf-8", "surrogateescape")
    try:
        row = _PARSE(text)
    except json.JSONDecodeError as error:
        raise _not_json(f"{source.name}:{number}", text, error) from None
    except RecursionError:
        raise DataError(f"{source.name}:{number}: nested too deeply to be read") from None
    except ValueError as error:  # an integer of more than 4300 digits
        raise DataError(f"{source.name}:{number}: {str(error).lower()}") from None
    if type(row) is not dict:
        kind = {list: "an array", str: "a string", type(None): "null"}.get(type(row), "a single value")
        raise DataError(f"{source.name}:{number}: expected an object, found {kind}", _ONE_A_LINE)
    return row


def _not_json(place: str, text: str, error: json.JSONDecodeError) -> DataError:
    if text.strip() in {"[", "{"}:
        return DataError(f"{place}: one JSON value over several lines", _ONE_A_LINE)
    if not text.endswith("\n"):
        return DataError(f"{place}: the last line is cut short", "was its writer stopped? remove that line")
    return DataError(f"{place}: not JSON: {error.msg[:1].lower()}{error.msg[1:]} at column {error.colno}")


def columns(source: Input) -> list[str]:
    """Names of all top-level keys in the order in which they first appear, late ones too."""
    names: dict[str, None] = {}
    known: set[tuple[str, ...]] = set()
    for _, row in _rows(source):
        shape = tuple(row)
        if shape not in known:
            known.add(shape)
            names.update(dict.fromkeys(shape))
    return list(names)


def scan(source: Input, fields: Sequence[Field]) -> pl.DataFrame:
    """One column per field. Only the values that were asked for are kept."""
    found: list[list[Any]] = [[] for _ in fields]
    wanted = [(field.name, values.append) for field, values in zip(fields, found, strict=True)]
    numbers: list[int] = []
    for number, row in _rows(source):
        numbers.append(number)
        for name, keep in wanted:
            value = row.get(name, _ABSENT)
            keep(_nested(row, name) if value is _ABSENT else value)
    if not numbers:
        raise DataError(f"{source.name}: no rows")
    pairs = zip(fields, found, strict=True)
    return pl.DataFrame({field.name: _column(source, field, values, numbers) for field, values in pairs})


def _nested(row: Mapping[str, Any], name: str) -> Any:
    for head, rest in splits(name):
        inner = row.get(head)
        if isinstance(inner, dict):
            value = inner[rest] if rest in inner else _nested(inner, rest)
            if value is not _ABSENT:
                return value
    return _ABSENT


def _column(source: Input, field: Field, values: list[Any], numbers: Sequence[int]) -> pl.Series:
    if all(value is _ABSENT for value in values):
        raise absent(field.name, source, columns(source))
    present = [None if value is _ABSENT else value for value in values]
    if field.kind == "key":
        return cells.key_series(field.name, present)
    return cells.number_series(field, present, lambda row: f"{source.name}:{numbers[row]}")


def weave(source: Input, sink: BinaryIO, weaving: Weaving) -> None:
    """Put the new fields before the last brace of every line; every other byte is the input's."""
    spot = members.Spot.of(weaving.added.columns, replace=weaving.replace)
    lines = raw_lines(source) if weaving.take is None else _taken(source, weaving.take, sink)
    values = _rendered(weaving.added)
    woven = 0
    for line in lines:
        if is_blank(line):
            sink.write(line)
            continue
        woven += 1
        row = next(values, None)  # none: the count below is refused
        sink.write(line if row is None else spot.put(line, row))
    exactly(woven, weaving.added.height, source)


def _taken(source: Input, take: np.ndarray, sink: BinaryIO) -> Iterator[bytes]:
    spans = offsets((line, not is_blank(line)) for line in raw_lines(source))
    with source.open() as handle:
        first = handle.readline()
        sink.write(BOM if first.startswith(BOM) else b"")
        yield from taken(handle, spans, take, ending(first) or b"\n")


def _rendered(added: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    for chunk in added.iter_slices(_CHUNK):
        yield from zip(*(map(members.spell, series.to_list()) for series in chunk), strict=True)


def read(source: Input) -> pl.DataFrame:
    """Read the whole file as typed columns, for another format; what has no common type stays JSON text."""
    rows = [row for _, row in _rows(source)]
    names = dict.fromkeys(name for row in rows for name in row)
    return pl.DataFrame({name: loose.series_of(name, [row.get(name) for row in rows]) for name in names})


def write(frame: pl.DataFrame, sink: BinaryIO, metadata: Mapping[str, str]) -> None:  # noqa: ARG001 - no place for it
    """Write a fresh file, one object a line."""
    loose.without_bytes(loose.plain_keys(frame)).write_ndjson(sink)
