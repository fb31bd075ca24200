"""The lines of a text file, and blocks of whole lines, which threads can work on in order.

Only the ends of lines are looked for to cut a file, so that each thread reads its own block. Of a packed file there is
one stream: its blocks come with their bytes. Two readings cut a file in the same way, at the sizes that the first found.
"""

from __future__ import annotations

from array import array
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

import numpy as np

from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files.compression import is_packed, seekable, unpacked
from grpo_cli.files.inputs import Section

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from grpo_cli.files.inputs import Input

BOM: Final = b"\xef\xbb\xbf"
SIZE: Final = 2 << 20  # bytes of a block, but for lines that are longer
FAR: Final = 4  # blocks are so many times as large where each of them is a request to a store
_STEP: Final = 1 << 13  # bytes in which the end of a line is looked for
_OTHER_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


class Block(NamedTuple):
    """Whole lines: where they begin, how many bytes they are, and how to open them there, which any thread may do."""

    name: str
    start: int
    size: int
    open: Callable[[], BinaryIO]

    def read(self) -> bytes:
        """All of its bytes."""
        with self.open() as handle:
            data = handle.read(self.size)
        if len(data) < self.size:
            raise InputChanged.between_readings(self.name)
        return data


def blocks(source: Input) -> Iterator[Block]:
    """The file cut behind ends of lines."""
    if is_packed(source):
        start = 0
        for data in _unpacked(source):
            yield Block(source.name, start, len(data), partial(BytesIO, data))
            start += len(data)
        return
    whole = source.whole if isinstance(source, Section) and source.whole is not None else source
    step = SIZE if whole.is_local else FAR * SIZE
    with source.open() as handle:
        refuse_other_encodings(source, handle)
        start, size = 0, source.pin.size
        while start < size:
            end = _end_of_line(source, handle, start, min(start + step, size))
            yield Block(source.name, start, end - start, partial(_opened_at, source, start))
            start = end


def again(source: Input, sizes: Iterable[int]) -> Iterator[Block]:
    """The same blocks once more, by their sizes; a file that has another length by now is refused."""
    start = 0
    if is_packed(source):
        with unpacked(source) as handle:
            for size in sizes:
                yield Block(source.name, start, size, partial(BytesIO, handle.read(size)))
                start += size
            whole = not handle.read(1)
    else:
        for size in sizes:
            yield Block(source.name, start, size, partial(_opened_at, source, start))
            start += size
        whole = start == source.pin.size
    if not whole:
        raise InputChanged.between_readings(source.name)


def refuse_other_encodings(source: Input, handle: BinaryIO) -> None:
    """Refuse an empty file and UTF-16 by the first bytes."""
    head: bytes = handle.peek(2)[:2]  # type: ignore[attr-defined]
    if not head:
        raise DataError(f"{source.name}: no rows", "the file is empty")
    if head in _OTHER_MARKS:
        raise DataError(f"{source.name}: this is UTF-16, not text in UTF-8", "convert it first")


def _opened_at(source: Input, start: int) -> BinaryIO:
    handle = source.open()
    handle.seek(start)
    return handle


def _end_of_line(source: Input, handle: BinaryIO, start: int, near: int) -> int:
    """The last end of a line before a place, or else the first one behind it."""
    size = source.pin.size
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
    end = min(near + len(handle.readline(source.max_line)), size)
    source.refuse_long_line(end - start)
    return end


def _unpacked(source: Input) -> Iterator[bytes]:
    with unpacked(source) as handle:
        refuse_other_encodings(source, handle)
        held: list[bytes] = []  # joined once, for lines of many blocks
        while data := handle.read(SIZE):
            cut = data.rfind(b"\n") + 1
            if cut:
                yield b"".join((*held, memoryview(data)[:cut]))
                held.clear()
            held.append(data[cut:])
        if any(held):
            yield b"".join(held)


def raw_lines(source: Input) -> Iterator[bytes]:
    """Every line with its ending, out of a packed file too; what is appended meanwhile is not part of the file."""
    with unpacked(source) as handle:
        refuse_other_encodings(source, handle)
        yield from handle


def ending(raw: bytes) -> bytes:
    r"""The line ending of a record: CRLF, LF or nothing."""
    return b"\r\n" if raw.endswith(b"\r\n") else b"\n" if raw.endswith(b"\n") else b""


def offsets(records: Iterable[tuple[bytes, bool]]) -> np.ndarray:
    """Start and end of every record that is a row, as an array of two columns."""
    marks, at = array("q"), 0
    for raw, is_row in records:
        if is_row:
            marks.extend((at, at + len(raw)))
        at += len(raw)
    return np.frombuffer(marks, dtype=np.int64).reshape(-1, 2) if marks else np.empty((0, 2), np.int64)


def taken(handle: BinaryIO, spans: np.ndarray, take: np.ndarray, newline: bytes) -> Iterator[bytes]:
    """The wanted rows, each of them ended, without the mark that only the first line may carry."""
    with seekable(handle) as plain:
        for start, end in spans[take]:
            plain.seek(start)
            raw = plain.read(end - start).removeprefix(BOM)
            yield raw if ending(raw) else raw + newline
