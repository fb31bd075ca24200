"""The raw lines of a text file, each with its own ending, and no more of them than were first seen."""

from __future__ import annotations

from array import array
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

import numpy as np

from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files.compression import is_packed, seekable, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from grpo_cli.files.inputs import Input

BOM: Final = b"\xef\xbb\xbf"
BLOCK: Final = 8 << 20  # bytes that are worked on at a time
_STEP: Final = 1 << 13  # bytes in which the end of a line is looked for
_OTHER_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


def raw_lines(source: Input) -> Iterator[bytes]:
    """Every line with its ending, out of a packed file too; what is appended meanwhile is not part of the file."""
    with unpacked(source) as handle:
        _refuse_other_encodings(source, handle)
        yield from handle


class Piece(NamedTuple):
    """Whole lines: where they begin, how many bytes they are, and how to open them there, which any thread may do."""

    name: str
    start: int
    size: int
    open: Callable[[], BinaryIO]

    def read(self) -> bytes:
        """Read all of it."""
        with self.open() as handle:
            return self.rest(handle, 0)

    def into(self, room: memoryview) -> None:
        """Read all of it into memory of its size."""
        with self.open() as handle:
            if filled(handle, room) < self.size:
                raise InputChanged.between_readings(self.name)

    def rest(self, handle: BinaryIO, done: int) -> bytes:
        """Read what is left behind the first bytes."""
        block = handle.read(self.size - done)
        if len(block) < self.size - done:
            raise InputChanged.between_readings(self.name)
        return block


class Stretch(NamedTuple):
    """Whole lines that one reading found: how many bytes, how many rows, and where these have their last braces."""

    size: int
    rows: int
    braces: np.ndarray[tuple[int], np.dtype[np.uint32]] | None  # none: nobody has looked for them


def again(source: Input, known: Iterable[Stretch]) -> Iterator[tuple[Piece, Stretch]]:
    """Go through the same stretches once more; a file that has other ones by now is refused."""
    start = 0
    if is_packed(source):
        with unpacked(source) as handle:
            for one in known:
                yield Piece(source.name, start, one.size, partial(BytesIO, handle.read(one.size))), one
                start += one.size
            whole = not handle.read(1)
    else:
        for one in known:
            yield Piece(source.name, start, one.size, partial(_opened_at, source, start)), one
            start += one.size
        whole = start == source.pin.size
    if not whole:
        raise InputChanged.between_readings(source.name)


def blocks(source: Input) -> Iterator[bytes]:
    """The file in blocks of whole lines."""
    return (piece.read() for piece in pieces(source))


def pieces(source: Input) -> Iterator[Piece]:
    """Where the blocks of the file are. Only the ends of lines are looked for, unless it is packed."""
    if is_packed(source):
        start = 0
        for text in _unpacked_blocks(source):
            yield Piece(source.name, start, len(text), partial(BytesIO, text))
            start += len(text)
        return
    with source.open() as handle:
        _refuse_other_encodings(source, handle)
        start, size = 0, source.pin.size
        while start < size:
            end = _end_of_line(handle, start, min(start + BLOCK, size), size)
            yield Piece(source.name, start, end - start, partial(_opened_at, source, start))
            start = end


def _opened_at(source: Input, start: int) -> BinaryIO:
    handle = source.open()
    handle.seek(start)
    return handle


def filled(handle: BinaryIO, room: memoryview) -> int:
    """Read until the room is full or the file has ended, and tell how much that was."""
    done = 0
    while done < len(room):
        count: int = handle.readinto(room[done:])  # type: ignore[attr-defined]
        if not count:
            break
        done += count
    return done


def _end_of_line(handle: BinaryIO, start: int, near: int, size: int) -> int:
    """The last end of a line before a place, or else the first one behind it."""
    if near == size:
        return size
    low, step = near, _STEP
    while low > start:
        high, low = low, max(start, low - step)
        handle.seek(low)
        cut = handle.read(high - low).rfind(b"\n")
        if cut >= 0:
            return low + cut + 1
        step *= 8
    handle.seek(near)
    return min(near + len(handle.readline()), size)


def _unpacked_blocks(source: Input) -> Iterator[bytes]:
    with unpacked(source) as handle:
        _refuse_other_encodings(source, handle)
        held: list[bytes] = []  # joined once, for lines of many blocks
        while block := handle.read(BLOCK):
            cut = block.rfind(b"\n") + 1
            if cut:
                yield b"".join((*held, memoryview(block)[:cut]))
                held.clear()
            held.append(block[cut:])
        if any(held):
            yield b"".join(held)


def _refuse_other_encodings(source: Input, handle: BinaryIO) -> None:
    head: bytes = handle.peek(2)[:2]  # type: ignore[attr-defined]
    if not head:
        raise DataError(f"{source.name}: no rows", "the file is empty")
    if head in _OTHER_MARKS:
        raise DataError(f"{source.name}: this is UTF-16, not text in UTF-8", "convert it first")


def number_at(source: Input, offset: int) -> int:
    """The number of the line that begins at an offset; counted only when a message has to name it."""
    number = 1
    for block in blocks(source):
        number += block.count(b"\n", 0, max(0, offset))
        offset -= len(block)
        if offset <= 0:
            break
    return number


def line_of(source: Input, row: int) -> int:
    """The number of the line that holds a row (0 = the first), for a message: blank lines are no rows."""
    seen = -1
    for number, line in enumerate(raw_lines(source), 1):
        seen += not is_blank(line)
        if seen == row:
            return number
    return row + 1


def is_blank(line: bytes) -> bool:
    """Tell whether a line is empty but for blanks and a byte order mark."""
    return not line.startswith(b"{") and not line.removeprefix(BOM).strip()


def ending(raw: bytes) -> bytes:
    r"""Give the line ending of a record: CRLF, LF or nothing."""
    return b"\r\n" if raw.endswith(b"\r\n") else b"\n" if raw.endswith(b"\n") else b""


def exactly(count: int, woven: int, source: Input) -> None:
    """Refuse a file whose second reading has another number of rows than the first."""
    if count != woven:
        raise InputChanged.between_readings(source.name)


def offsets(records: Iterable[tuple[bytes, bool]]) -> np.ndarray:
    """Start and end of every record that is a row, as an array of two columns."""
    marks, at = array("q"), 0
    for raw, is_row in records:
        if is_row:
            marks.extend((at, at + len(raw)))
        at += len(raw)
    return np.frombuffer(marks, dtype=np.int64).reshape(-1, 2) if marks else np.empty((0, 2), np.int64)


def taken(handle: BinaryIO, spans: np.ndarray, take: np.ndarray, newline: bytes) -> Iterator[bytes]:
    """Emit the wanted rows, each of them ended, without the mark that only the first line may carry."""
    with seekable(handle) as plain:
        for start, end in spans[take]:
            plain.seek(start)
            raw = plain.read(end - start).removeprefix(BOM)
            yield raw if ending(raw) else raw + newline
