"""Insert new fields before the last brace of every row, a block of lines at a time, by offsets alone.

Long lines are written as slices of the block, so that only the system copies their bytes; polars joins short lines.
Fields to be replaced are cut off if they are last in the row, as this tool writes them; a block with such a field
elsewhere is processed line by line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from io import BytesIO
from typing import BinaryIO, NamedTuple, Self

import numpy as np
import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.files.inputs import Input
from grpo_cli.formats.blocks import BOM, BlockRows, ending, raw_lines
from grpo_cli.formats.interface import Weaving
from grpo_cli.formats.jsonl.lines import VALUE, Known, blocks_with_rows, has_plain_spelling, is_blank, line_ends, rows
from grpo_cli.formats.weave_text import weave_blocks
from grpo_cli.values.json_text import column_texts, refuse_doubled, rewritten, row_texts
from grpo_cli.values.slices import Buffer, Ints, between, filled
from grpo_cli.values.token_lists import is_on_tokens


def weave(source: Input, index: Known, sink: BinaryIO, weaving: Weaving, size: int, small: int) -> None:
    """Copy the file with the new fields inserted; with `take` only the lines of these rows, in its order.

    Without an index the file is read in blocks of about `size` bytes.
    """
    found = blocks_with_rows(source, index, size)
    newline = b""
    if weaving.take is not None:
        first = next(raw_lines(source))
        newline = ending(first) or b"\n"
        sink.write(BOM if first.startswith(BOM) else b"")
    insert = partial(_inserted, spot=Spot.of(weaving.added.columns) if weaving.replace else None, small=small)
    try:
        weave_blocks(source, found, sink, weaving, marked=b"}", newline=newline, spans=_spans, insert=insert)
    except DataError as error:
        if not error.place:  # a line names a field twice; its block does not know its number
            refuse = partial(refuse_doubled, names=weaving.added.columns)
            for _ in rows(raw_lines(source), lambda at: f"{source.name}:{at + 1}", refuse):
                pass
        raise


def _spans(data: bytes, braces: Ints) -> np.ndarray:
    """Where the lines with these braces begin, after a byte order mark, and end, including their line feeds."""
    here = np.frombuffer(data, np.uint8)
    feeds = line_ends(here)
    at = np.searchsorted(feeds, braces)
    starts = np.where(at, feeds[at - 1] + 1, 0)
    marked = np.all([np.take(here, starts + k, mode="clip") == byte for k, byte in enumerate(BOM)], axis=0)
    ends = np.minimum(feeds[at] + 1, len(here))
    return np.column_stack([starts + len(BOM) * marked, ends])


def _inserted(data: bytes, rows: BlockRows, added: pl.DataFrame, spot: Spot | None, small: int) -> Iterable[Buffer]:
    """The bytes of a block with the new fields in all its rows."""
    braces = rows.marks
    if not len(braces) or not added.width:
        return [data]
    cuts = braces
    starts = np.append(0, braces[:-1])  # the bytes after a brace go with the next row
    if spot is not None:
        heads = None if len(braces) <= small else without_last(data, starts, braces, spot)
        if heads is None:
            return _line_by_line(BytesIO(data), spot, added)
        cuts = starts + heads.str.len_bytes().to_numpy()
    if any(map(is_on_tokens, added)):
        return _with_lists(memoryview(data), starts, cuts, rows, added)
    return filled(data, [(cuts, braces)], [_cells(added, rows.empty)])


def _with_lists(data: memoryview, starts: Ints, cuts: Ints, rows: BlockRows, added: pl.DataFrame) -> Iterator[Buffer]:
    """The bytes of rows with long lists as new fields, which are rendered only when they are written."""
    names = [json.dumps(name) for name in added.columns]
    empty = frozenset(rows.empty.tolist())
    spans = zip(starts.tolist(), cuts.tolist(), row_texts(added), strict=True)
    for row, (start, cut, texts) in enumerate(spans):
        new = ",".join([f"{name}:{text}" for name, text in zip(names, texts, strict=True)])
        yield data[start:cut]
        yield (new if row in empty else f",{new}").encode()
    yield data[rows.marks[-1] :]


def _line_by_line(lines: Iterable[bytes], spot: Spot, added: pl.DataFrame) -> Iterator[bytes]:
    values = row_texts(added)
    return (line if is_blank(line) else spot.put(line, next(values)) for line in lines)


def without_last(data: bytes, starts: Ints, braces: Ints, spot: Spot) -> pl.Series | None:
    """The objects up to their last braces, without trailing fields of these names.

    None if the names may be elsewhere, if they can be written in many ways, or if not everything is text.
    """
    if spot.last is None or spot.anywhere is None:
        return None
    try:
        _ = data.isascii() or data.decode()
    except UnicodeDecodeError:
        return None
    found = between(data, starts, braces).str.replace(spot.last, "")
    return None if found.str.contains(spot.anywhere).any() else found


def _cells(added: pl.DataFrame, empty: Ints) -> list[str | pl.Series]:
    """The new fields as text: each name before its values, after a comma unless it is the first of an empty object."""
    cells: list[str | pl.Series] = []
    for column in added:
        cells += [f",{json.dumps(column.name)}:", column_texts(column)]
    if len(empty):
        name = f",{json.dumps(added.columns[0])}:"
        cells[0] = pl.Series([name]).new_from_index(0, len(added)).scatter(empty, name[1:])
    return cells


# --- one line -------------------------------------------------------------------------------------------------


class Spot(NamedTuple):
    """Where new fields go. The patterns are None for names that can be written in many ways."""

    names: tuple[str, ...]
    keys: tuple[str, ...]
    last: str | None  # these fields as they are inserted, after all others
    anywhere: str | None  # these names, anywhere
    # An object up to its only new field, with no escape and no nested object before it.
    plain: re.Pattern[bytes] | None

    @classmethod
    def of(cls, names: Sequence[str]) -> Self:
        """Render the keys once for all lines."""
        keys = tuple(map(json.dumps, names))
        if not all(map(has_plain_spelling, names)):
            return cls(tuple(names), keys, None, None, None)
        last = "".join(f",{re.escape(key)}:{VALUE}" for key in keys) + "$"
        anywhere = "|".join((*map(re.escape, keys), r"\\u00[2-7]"))
        plain = None
        if len(names) == 1:
            plain = re.compile(rf"\s*{{[^{{\\]*?{re.escape(keys[0])}[ \t]*:[ \t]*({VALUE})[ \t\r\n]*[,}}]".encode())
        return cls(tuple(names), keys, last, anywhere, plain)

    def put(self, line: bytes, values: Sequence[str]) -> bytes:
        """The line with the new fields, all other bytes as they were."""
        if self.plain is not None and line.count(self.keys[0].encode()) == 1:
            match = self.plain.match(line)
            if match is not None and line.find(b"\\u", match.end()) < 0:
                start, end = match.span(1)
                return b"".join((line[:start], values[0].encode(), line[end:]))
        if self.anywhere is not None and not re.search(self.anywhere.encode(), line):
            return inserted(line, self.keys, values)
        fresh = dict(zip(self.names, values, strict=True))
        text, left = rewritten(line.decode("utf-8", "surrogateescape"), fresh)
        line = text.encode("utf-8", "surrogateescape")
        return inserted(line, list(map(json.dumps, left)), list(left.values())) if left else line


def inserted(line: bytes, keys: Sequence[str], values: Sequence[str]) -> bytes:
    """The line with new fields before its last brace; the keys are JSON texts."""
    brace = line.rindex(b"}")
    comma = "" if line[:brace].rstrip(b" \t\r\n").endswith(b"{") else ","
    members = [f"{key}:{value}" for key, value in zip(keys, values, strict=True)]
    text = comma + ",".join(members)
    return b"".join((line[:brace], text.encode(), line[brace:]))
