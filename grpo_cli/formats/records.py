"""CSV text cut into records and cells without changing a byte of them.

A quote means something only at the start of a cell, as in Python's csv and in RFC 4180; elsewhere it is
a letter. Counting quotes would cut a file wrongly at the first `5" disk`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from grpo_cli.errors import DataError
from grpo_cli.formats.lines import BOM, ending, raw_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_cli.io.local import Input

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
