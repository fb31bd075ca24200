"""The exact reading of CSV and TSV, record by record.

It defines the meaning of a file. The reading of whole blocks (`positions`) must agree with it, and leaves doubtful
blocks to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from grpo_cli.errors import DataError
from grpo_cli.formats.blocks import BOM, ending

QUOTE: Final = b'"'


def records(
    lines: Iterable[bytes],
    separator: bytes,
    name: str,
    row: int,
    refuse_long: Callable[[int], None] = lambda _: None,
) -> Iterator[tuple[bytes, list[bytes]]]:
    """Raw records and their raw cells; a blank line is a record without cells.

    `row` is the number of the first record, for the message about a cell that is never closed: 0 is the header, which may
    begin with a byte order mark. `refuse_long` is called with the size of a record as it grows.
    """
    buffered: list[bytes] = []  # the lines of a record whose quoted cell is open
    size = 0
    mark = b"" if row else BOM
    for line in lines:
        if not buffered and not bare(line).removeprefix(mark):
            yield line, []
            mark = b""
            continue
        buffered.append(line)
        size += len(line)
        refuse_long(size)
        if len(buffered) > 1 and QUOTE not in line:
            continue  # only a line with a quote can close it
        record = b"".join(buffered)
        raw = cells_of(bare(record).removeprefix(mark), separator)
        if raw is not None:
            buffered.clear()
            mark = b""
            row, size = row + 1, 0
            yield record, raw
    if buffered:
        raise DataError("a quoted cell is never closed", "is the file cut short?", place=f"{name} row {row}")


def bare(record: bytes) -> bytes:
    """A record without its ending."""
    return record[: len(record) - len(ending(record))]


def stops_of(record: bytes, raw: Sequence[bytes], start: int = 0) -> list[int]:
    """The offset before the first of the raw cells of a record that begins at `start`, and the end of each cell."""
    sizes = [len(cell) + 1 for cell in raw]
    return list(
        accumulate(sizes, initial=start + len(bare(record)) - sum(sizes))
    )  # a byte order mark may be before them


def _cell(separator: bytes) -> re.Pattern[bytes]:
    mark = re.escape(separator)
    # The possessive loop keeps an unclosed quote from being tried again at every byte.
    return re.compile(rb'("(?:[^"]++|"")*+"[^%b]*|(?!")[^%b]*)(%b|\Z)' % (mark, mark, mark))


_CELL: Final = {mark: _cell(mark) for mark in (b",", b"\t")}
_QUOTED: Final = re.compile(rb'"((?:[^"]++|"")*+)"(.*)', re.DOTALL)


def cells_of(record: bytes, separator: bytes) -> list[bytes] | None:
    """The raw cells of a record without its ending; None when a quoted cell is still open."""
    if QUOTE not in record:
        return record.split(separator)
    found: list[bytes] = []
    at = 0
    while (match := _CELL[separator].match(record, at)) is not None:
        found.append(match[1])
        if not match[2]:
            return found
        at = match.end()
    return None


def text_of(cell: bytes) -> str:
    """The text of a raw cell; bytes that are not UTF-8 stay apart from each other as escapes."""
    match = _QUOTED.fullmatch(cell)
    if match is not None:
        cell = match[1].replace(b'""', QUOTE) + match[2]
    return cell.decode("utf-8", "backslashreplace")
