"""The raw lines of a text file, each with its own ending, and no more of them than were first seen."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from grpo_cli.errors import DataError, InputChanged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from grpo_cli.io.local import Input

BOM: Final = b"\xef\xbb\xbf"
_OTHER_MARKS: Final = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


def raw_lines(source: Input) -> Iterator[bytes]:
    """Every line with its ending; what another process appends meanwhile is not part of the file."""
    left = source.pin.size
    if not left:
        raise DataError(f"{source.name}: no rows", "the file is empty")
    with source.open() as handle:
        for line in handle:
            if left == source.pin.size:
                _refuse_other_encodings(source, line)
            yield line if len(line) <= left else line[:left]
            left -= len(line)
            if left <= 0:
                return


def _refuse_other_encodings(source: Input, line: bytes) -> None:
    for mark, name in _OTHER_MARKS:
        if line.startswith(mark):
            raise DataError(f"{source.name}: this is {name}, not text in UTF-8", "unpack or convert it first")


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
    for start, end in spans[take]:
        handle.seek(start)
        raw = handle.read(end - start).removeprefix(BOM)
        yield raw if ending(raw) else raw + newline
