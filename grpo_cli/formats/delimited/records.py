"""What a record is: the exact reading of CSV and TSV, one record at a time.

It defines what a file means. The reading of whole blocks (`positions`) must agree with it, and hands over to it
whatever it is not sure of.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from grpo_cli.errors import DataError
from grpo_cli.formats.blocks import BOM, ending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

QUOTE: Final = b'"'


def records(
    lines: Iterable[bytes],
    separator: bytes,
    name: str,
    row: int,
    refuse_long: Callable[[int], None] = lambda _: None,
) -> Iterator[tuple[bytes, list[bytes]]]:
    """Raw record and its raw cells; a blank line is a record with no cell at all.

    `row` is the number of the first record: 0 is the header. It is for the message about a cell that is never closed.
    `refuse_long` gets the bytes of a record as they become more.
    """
    held: list[bytes] = []  # the lines of a record whose quoted cell is open
    size = 0
    for line in lines:
        if not held and not bare(line):
            yield line, []
            continue
        held.append(line)
        size += len(line)
        refuse_long(size)
        if len(held) > 1 and QUOTE not in line:
            continue  # only a line with a quote can close it
        record = b"".join(held)
        raw = cells_of(bare(record), separator)
        if raw is not None:
            held.clear()
            row, size = row + 1, 0
            yield record, raw
    if held:
        raise DataError(f"{name} row {row}: a quoted cell is never closed", "is the file cut short?")


def bare(record: bytes) -> bytes:
    """A record without its ending and the byte order mark."""
    return record[: len(record) - len(ending(record))].removeprefix(BOM)


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
