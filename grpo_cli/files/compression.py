"""Compressed files, gzip and zstandard: read as a stream, written in bounded pieces.

The first bytes of a file show its compression, so that pipes and wrong suffixes are read as well; for outputs the
suffix decides. Both kinds of file may consist of several members or frames.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from io import BufferedReader, RawIOBase
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Any, BinaryIO, cast

from grpo_cli.errors import DataError
from grpo_cli.files.inputs import PACKED, Input, Unbuffered, part_of

_GZIP = b"\x1f\x8b"
_ZSTD = (b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18")  # the second begins every file of pzstd
_PIECE = 1 << 20  # bytes that are packed or unpacked at once
_WORKERS = min(4, os.cpu_count() or 1)  # threads
_LEVEL = 5  # zlib level: takes 0.5 to 0.8 times as long as its default, 6, for 1 to 10 % more bytes
# No name, no time and no system: the same text gives the same bytes.
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_END = b"\x03\x00"  # an empty block, the last one of a deflate stream


def suffix_of(name: str) -> str:
    """The suffix of the compression of a file with this name, or empty."""
    return next((suffix for suffix in PACKED if name.lower().endswith(suffix)), "")


def packer_of(head: bytes) -> str:
    """The compression of a file that begins with these bytes, or empty. No text in UTF-8 begins with them."""
    return "gzip" if head.startswith(_GZIP) else "zstd" if head.startswith(_ZSTD) else ""


def is_packed(source: Input) -> bool:
    """Whether the first bytes are those of a compressed file."""
    with source.open() as handle:
        return packer_of(handle.read(4)) != ""


@contextmanager
def unpacked(source: Input) -> Iterator[BinaryIO]:
    """Open the file, decompressed if needed; bytes that were appended since it was pinned are not read."""
    with source.open() as handle:
        bounded = part_of(handle, 0, source.pin.size, buffer=_PIECE)
        packer = packer_of(bounded.read(4))
        bounded.seek(0)
        if packer:
            with _stream(bounded, packer) as stream:
                yield cast("BinaryIO", BufferedReader(_Explained(stream, source), _PIECE))
        elif source.pin.size > source.max_line:
            yield cast("BinaryIO", BufferedReader(_Explained(bounded, source), _PIECE))
        else:
            yield bounded


@contextmanager
def packing(sink: BinaryIO, suffix: str, workers: int = _WORKERS) -> Iterator[BinaryIO]:
    """Give a file that compresses into `sink`, or `sink` itself without a suffix.

    The same text gives the same bytes.
    """
    if not suffix:
        yield sink
        return
    packer = _Gzip(sink, workers) if suffix == ".gz" else _Zstandard(sink, workers)
    with packer.pool:  # waits for the few blocks that are being packed, also if the body fails
        yield cast("BinaryIO", packer)
        packer.finish()


@contextmanager
def seekable(handle: BinaryIO) -> Iterator[BinaryIO]:
    """Give a seekable file with the content of an open file; compressed bytes are unpacked to disk."""
    packer = packer_of(handle.read(4))
    handle.seek(0)
    if not packer:
        yield handle
        return
    with _stream(handle, packer) as stream, TemporaryFile() as plain:
        copyfileobj(stream, plain, _PIECE)
        yield plain


def _stream(handle: BinaryIO, packer: str) -> BinaryIO:
    if packer == "gzip":
        return cast("BinaryIO", _gunzip()[0](fileobj=handle, mode="rb"))
    import pyarrow as pa

    return cast("BinaryIO", pa.CompressedInputStream(pa.PythonFile(handle, mode="r"), packer))


@cache
def _gunzip() -> tuple[Callable[..., Any], tuple[type[Exception], ...]]:
    """The gzip reader and its errors: isal if it is installed, three times as fast, with the same bytes; else Python's.

    Python compresses: the same text gives the same bytes on every machine.
    """
    try:
        # Imported by name, so that mypy gives the same result with and without it.
        igzip, isal_zlib = (import_module(f"isal.{name}") for name in ("igzip", "isal_zlib"))
    except ImportError:
        return gzip.GzipFile, (EOFError, OSError, zlib.error)
    # OverflowError: a header (the name of the file is in it) of more than 512 KB.
    return igzip.IGzipFile, (EOFError, OSError, OverflowError, zlib.error, isal_zlib.error)


class _Explained(Unbuffered):
    """A stream of text whose errors name the file; a line that is too long is an error as well.

    A few packed bytes can be gigabytes without a line feed.
    """

    def __init__(self, stream: BinaryIO, source: Input) -> None:
        self._stream = stream
        self._source = source
        self._line = 0

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            piece = self._stream.read(len(buffer))
        except _gunzip()[1] as error:
            raise _broken(self._source.name, error) from None
        first = piece.find(b"\n")
        last = piece.rfind(b"\n")
        self._source.refuse_long_line(self._line + (first if first >= 0 else len(piece)))
        self._line = self._line + len(piece) if last < 0 else len(piece) - last - 1
        buffer[: len(piece)] = piece
        return len(piece)


def _broken(name: str, error: Exception) -> DataError:
    why = str(error).rstrip(". ").lower()
    if isinstance(error, EOFError) or "truncated" in why:  # pyarrow says "truncated"
        return DataError("the packed file is cut short", "was its writer stopped?", place=name)
    return DataError(f"the packed file is broken: {why}", place=name)


class _Packer(RawIOBase):
    """Packs blocks of a fixed size on all cores. How many there are, and how the text arrives, change no byte."""

    size: int

    def __init__(self, sink: BinaryIO, workers: int) -> None:
        self._sink = sink
        self._text = bytearray()
        self._waiting = deque[Future[bytes]]()
        self._workers = workers
        self.pool = ThreadPoolExecutor(workers)

    def pack(self, text: bytes) -> bytes:
        """The packed bytes of a block, which need no other block."""
        raise NotImplementedError

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        view = memoryview(data).cast("B")
        for at in range(0, len(view), self.size):
            self._text += view[at : at + self.size]
            if len(self._text) >= self.size:
                self._begin(bytes(self._text[: self.size]))
                del self._text[: self.size]
        return len(view)

    def _begin(self, text: bytes) -> None:
        self._waiting.append(self.pool.submit(self.pack, text))
        if len(self._waiting) > self._workers:
            self._sink.write(self._waiting.popleft().result())

    def finish(self) -> None:
        """Write what is left; an empty text becomes an empty block."""
        self._begin(bytes(self._text))
        while self._waiting:
            self._sink.write(self._waiting.popleft().result())


class _Gzip(_Packer):
    """A single member, since some readers stop after the first: its blocks end at whole bytes and are joined."""

    size = 1 << 20

    def __init__(self, sink: BinaryIO, workers: int) -> None:
        super().__init__(sink, workers)
        sink.write(_HEADER)
        self._sum = self._length = 0

    def pack(self, text: bytes) -> bytes:
        packer = zlib.compressobj(_LEVEL, wbits=-zlib.MAX_WBITS)
        return packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH)

    def _begin(self, text: bytes) -> None:
        self._sum = zlib.crc32(text, self._sum)
        self._length += len(text)
        super()._begin(text)

    def finish(self) -> None:
        super().finish()
        self._sink.write(_END + struct.pack("<II", self._sum, self._length % 2**32))


class _Zstandard(_Packer):
    """A frame for each block; single frames need no stream, which would close the sink."""

    size = 4 << 20  # the memory of writers and readers

    def pack(self, text: bytes) -> bytes:
        import pyarrow as pa

        return cast("bytes", pa.compress(text, "zstd", asbytes=True))
