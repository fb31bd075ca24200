"""Rows of JSON lines: where they are, and their exact reading by Python's own parser, line by line.

The exact reading defines the meaning of a line. The fast reading must agree with it (except for rare duplicate fields, see
docs/guarantees.md), and leaves doubtful lines to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from io import BytesIO
from itertools import accumulate, islice
from typing import Any

import numpy as np

from grpo_cli.errors import DataError, Way
from grpo_cli.files.inputs import Input
from grpo_cli.formats.blocks import BOM, SIZE, Block, BlockRows, again, blocks, offsets_of, raw_lines
from grpo_cli.parallel import ahead
from grpo_cli.values.json_text import DECODER
from grpo_cli.values.slices import Ints

Row = dict[str, Any]
Known = Sequence[BlockRows] | None  # the rows of the blocks that a scan found; None without a scan
Refuse = Callable[[Row], object]

_LF, _CR, _OPEN, _CLOSE = b"\n\r{}"
_BLANKS = b" \t\r\n"
# Bytes that usually precede the last brace of an object that is not empty.
_USUAL = ~np.isin(np.arange(256), np.frombuffer(b"{" + _BLANKS, np.uint8))

# A value as this tool writes it.
VALUE = r'(?:-?[0-9][-+0-9.eE]*|null|true|false|NaN|-?Infinity|"[^"\\]*"|\[[-+0-9.eE,nul]*\])'
_SKIP = Way("--on-error", "skip", "leaves such lines out, in commands that have it")
_ONE_A_LINE = "write one object per line, for example with jq -c '.[]'"


def is_blank(line: bytes) -> bool:
    """Whether a line has nothing but white space and a byte order mark."""
    return not line.startswith(b"{") and not line.removeprefix(BOM).strip()


def has_plain_spelling(name: str) -> bool:
    r"""Whether \u00XX escapes are the only other way to write a name."""
    return name.isascii() and name.isprintable() and not set(name) & set('"\\/') and name != ""


def line_ends(found: np.ndarray) -> Ints:
    """The positions of the line feeds of a block; the last line may end with the block instead."""
    ends = offsets_of(found, _LF)
    return np.append(ends, len(found)) if len(found) and found[-1] != _LF else ends


def row_starts(data: bytes) -> Ints:
    """Where the line of each row begins; blank lines are not rows."""
    found = np.frombuffer(data, np.uint8)
    ends = line_ends(found)
    starts = np.append(0, ends[:-1] + 1)
    odd = np.flatnonzero(found[starts] != _OPEN).tolist()
    return np.delete(starts, [at for at in odd if is_blank(data[starts[at] : ends[at]])])


def last_braces(data: bytes) -> tuple[Ints, Ints]:
    """Where each row of a block has its last brace, and which rows are empty objects.

    Blank lines are not rows, nor are lines without a brace, which no reader accepts.
    """
    found = np.frombuffer(data, np.uint8)
    ends = line_ends(found)
    starts = np.append(0, ends[:-1] + 1)
    last = ends - 1
    last -= np.take(found, last, mode="clip") == _CR
    # Nearly every line ends with a brace after a value, which is checked for all lines at once.
    usual = (np.take(found, last, mode="clip") == _CLOSE) & (last > starts)
    usual &= _USUAL[np.take(found, last - 1, mode="clip")]
    odd = np.flatnonzero(~usual)
    if not len(odd):
        return last, odd
    empty = np.zeros(len(ends), bool)
    for at in odd.tolist():
        line = data[starts[at] : ends[at]]
        brace = line.rfind(b"}")
        last[at] = starts[at] + brace if brace >= 0 else -1
        empty[at] = brace > 0 and line[:brace].rstrip(_BLANKS).endswith(b"{")
    return last[last >= 0], np.flatnonzero(empty[last >= 0])


def blocks_with_rows(source: Input, index: Known, size: int = SIZE) -> Iterable[tuple[Block, BlockRows]]:
    """The blocks that a scan found with their rows; without a scan, blocks of about `size` bytes, each read once."""
    if index is None:
        return ahead(_counted, blocks(source, size))
    return zip(again(source, [rows.size for rows in index]), index, strict=True)


def _counted(block: Block) -> tuple[Block, BlockRows]:
    data = block.read()
    return block._replace(open=partial(BytesIO, data)), BlockRows(block.size, *last_braces(data))


def number_at(source: Input, offset: int) -> int:
    """The number of the line at an offset; counted only if a message has to name it."""
    number = source.lines_before + 1
    for block in blocks(source):
        number += block.read().count(b"\n", 0, max(0, offset - block.start))
        if block.start + block.size >= offset:
            break
    return _of_file(source, [number])[0]


def line_numbers(source: Input, rows: Sequence[int]) -> list[int]:
    """The number of the line of each of these rows (0 = the first), for messages: blank lines are not rows."""
    before = source.lines_before
    wanted = {*rows}
    numbers = (number for number, line in enumerate(raw_lines(source), before + 1) if not is_blank(line))
    first = enumerate(islice(numbers, max(wanted, default=-1) + 1))
    found = {row: number for row, number in first if row in wanted}
    return _of_file(source, [found.get(row, before + row + 1) for row in rows])


def _of_file(source: Input, numbers: list[int]) -> list[int]:
    """The numbers of these lines in the file, which may have lines that the source lacks."""
    for gone in source.left_out:
        numbers = [number + (gone <= number) for number in numbers]
    return numbers


# --- the exact reading ------------------------------------------------------------------------------------------


def rows(lines: Iterable[bytes], place: Callable[[int], str], refuse: Refuse = id) -> Iterator[tuple[int, Row]]:
    """Every row that is not refused with the position of its line; blank lines are not rows. `place` names a position in messages."""
    for at, line in enumerate(lines):
        if is_blank(line):
            continue
        try:
            row = parsed(line)
            refuse(row)
        except DataError as error:
            error.inside(place(at))
            raise
        yield at, row


def rows_at(data: bytes, place: Callable[[int], str], refuse: Refuse) -> Iterator[tuple[int, Row]]:
    """Every row of a block that is not refused with the offset of its line. `place` names an offset in messages."""
    lines = BytesIO(data).readlines()
    starts = list(accumulate(map(len, lines), initial=0))
    return ((starts[at], row) for at, row in rows(lines, lambda at: place(starts[at]), refuse))


def parsed(line: bytes) -> Row:
    """A line as an object; anything else is an error."""
    # Bytes that are not UTF-8 do not stop the run: they are written as they were read.
    text = line.removeprefix(BOM).decode("utf-8", "surrogateescape")
    try:
        row = DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _not_json(text, error) from None
    except RecursionError:
        raise DataError("nested too deeply to be read") from None
    except ValueError:
        raise DataError("an integer has more than 4300 digits", _SKIP) from None
    if not isinstance(row, dict):
        kind = {list: "an array", str: "a string", type(None): "null"}.get(type(row), "a single value")
        raise DataError(f"expected an object, found {kind}", _ONE_A_LINE)
    return row


def _not_json(text: str, error: json.JSONDecodeError) -> DataError:
    if text.strip() in {"[", "{"}:
        return DataError("a JSON value spans several lines", _ONE_A_LINE)
    if not text.endswith("\n"):
        return DataError(
            "the last line is cut short",
            Way("--on-error", "skip", "leaves that line out, in commands that have it", lead="was its writer stopped?"),
        )
    named = [] if error.pos else ["if the file is CSV or TSV, name it .csv or .tsv, or pipe it in"]
    what = error.msg.removesuffix(" at")
    column = min(error.pos, len(text.rstrip("\r\n"))) + 1  # a text that ends too early fails in the next line
    return DataError(f"not JSON: {what[:1].lower()}{what[1:]} at column {column}", [*named, _SKIP])
