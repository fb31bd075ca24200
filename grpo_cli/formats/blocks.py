"""The lines of a text file, and blocks of whole lines for threads to work on in order.

To cut a file, only line ends are searched, and each thread reads its own block. A compressed file is a single
stream: its blocks come with their bytes. A second reading cuts the file at the sizes that the first found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from io import BytesIO
from typing import BinaryIO, NamedTuple

import numpy as np

from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files.compression import is_packed, packer_of, unpacked
from grpo_cli.files.inputs import Input, Section
from grpo_cli.values.slices import Ints

BOM = b"\xef\xbb\xbf"
SIZE = 2 << 20  # bytes of a block, unless a line is longer
FAR = 4  # factor for the size of blocks that are requests to a store
_NONE = np.zeros(0, np.int64)
_WIDE = 512  # columns that cost less than the bytes of a block of the usual size
_STEP = 1 << 18  # bytes
_OTHER_MARKS = (b"\xff\xfe", b"\xfe\xff")


class Block(NamedTuple):
    """Whole lines: where they begin, their size, and how to open them there, from any thread."""

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


class BlockRows(NamedTuple):
    """The rows of a block of `size` bytes: the mark of each is where new text is inserted; `empty` are objects without fields."""

    size: int
    marks: Ints
    empty: Ints = _NONE

    @property
    def height(self) -> int:
        return len(self.marks)


def wide(size: int, columns: int) -> int:
    """The bytes of a block of which so many columns are made: each column has a cost of its own in every block."""
    return size * max(1, columns // _WIDE)


def blocks(source: Input, size: int = SIZE) -> Iterator[Block]:
    """The file in blocks of about `size` bytes that end at line ends."""
    whole = source.whole if isinstance(source, Section) else source
    step = size if whole.is_local else FAR * size
    start = 0
    with source.open() as handle:
        if packer_of(_peeked(handle)):
            for data in _unpacked(source, size):
                yield Block(source.name, start, len(data), partial(BytesIO, data))
                start += len(data)
            return
        refuse_other_encodings(source, handle)
        end_of_file = source.pin.size
        while start < end_of_file:
            end = end_of_line(source, handle, min(start + step, end_of_file))
            if end - start > source.max_line:  # then its last line may be too long
                handle.seek(start)
                before = handle.read(end - start - 1)
                source.refuse_long_line(end - start - 1 - before.rfind(b"\n"))
            yield Block(source.name, start, end - start, partial(_opened_at, source, start))
            start = end


def again(source: Input, sizes: Iterable[int]) -> Iterator[Block]:
    """The same blocks again, by their sizes; a file whose length has changed is refused."""
    start = 0
    with unpacked(source) if is_packed(source) else nullcontext() as stream:
        for size in sizes:
            opening = partial(BytesIO, stream.read(size)) if stream else partial(_opened_at, source, start)
            yield Block(source.name, start, size, opening)
            start += size
        more = stream.read(1) if stream else start != source.pin.size
    if more:
        raise InputChanged.between_readings(source.name)


def refuse_other_encodings(source: Input, handle: BinaryIO) -> None:
    """Refuse empty files and UTF-16, by the first bytes."""
    head = _peeked(handle)
    if not head:
        raise DataError("no rows", "the file is empty", place=source.name)
    if head[:2] in _OTHER_MARKS:
        raise DataError("this is UTF-16, not text in UTF-8", "convert it first", place=source.name)


def _peeked(handle: BinaryIO) -> bytes:
    """The first bytes of a file, which stays at them."""
    head: bytes = handle.peek(4)  # type: ignore[attr-defined]
    return head


def _opened_at(source: Input, start: int) -> BinaryIO:
    handle = source.open()
    handle.seek(start)
    return handle


def end_of_line(source: Input, handle: BinaryIO, near: int) -> int:
    """The end of the line that an offset is in."""
    handle.seek(near)
    rest = len(handle.readline(min(source.max_line, source.pin.size) + 1))
    source.refuse_long_line(rest)
    return min(near + rest, source.pin.size)


def _unpacked(source: Input, size: int) -> Iterator[bytes]:
    with unpacked(source) as handle:
        refuse_other_encodings(source, handle)
        buffered: list[bytes] = []  # joined once, for lines of many blocks
        while data := handle.read(size):
            cut = data.rfind(b"\n") + 1
            if cut:
                yield b"".join((*buffered, memoryview(data)[:cut]))
                buffered.clear()
            buffered.append(data[cut:])
        if any(buffered):
            yield b"".join(buffered)


def raw_lines(source: Input) -> Iterator[bytes]:
    """Every line with its ending, also of a compressed file; bytes that are appended meanwhile do not count."""
    with unpacked(source) as handle:
        refuse_other_encodings(source, handle)
        yield from handle


def offsets_of(found: np.ndarray, mark: int) -> Ints:
    """Where a byte is in a block, searched in steps: a mask of the whole block would be new memory for each block."""
    some = (np.flatnonzero(found[at : at + _STEP] == mark) + at for at in range(0, len(found), _STEP))
    return np.concatenate([_NONE, *some])


def ending(raw: bytes) -> bytes:
    r"""The line ending of a record: CRLF, LF or none."""
    return b"\r\n" if raw.endswith(b"\r\n") else b"\n" if raw.endswith(b"\n") else b""
