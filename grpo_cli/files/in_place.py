"""Growing a file in place: at every instant it has its old end, or its new end.

For formats that are read from their last bytes. First the old end is written where the file is going to end; then the
body in between; and then a single small write, inside a sector of the disk, replaces the end by the new end. No byte
of the old file is touched, and there is no journal: a process or machine that is killed leaves the old content with a
few more bytes, or the new content.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from grpo_cli.errors import DataError, InputChanged, reason
from grpo_cli.files.atomic import remove_abandoned
from grpo_cli.files.inputs import Input

ELSEWHERE: Final = "write a new file with -o FILE instead"
_SECTOR: Final = 512
_PORTION: Final = 1 << 24
_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE of linux/falloc.h
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True, slots=True)
class Extension:
    """The bytes after the first `size`: the body, the old end, and the new end that replaces it."""

    size: int
    body: Sequence[bytes | memoryview]
    before: bytes
    after: bytes

    @property
    def end(self) -> int:
        """The offset of the new end of the file."""
        return self.size + sum(memoryview(part).nbytes for part in self.body)


def padding(end: int, length: int) -> int:
    """The number of bytes to insert so that `length` bytes from `end` on are in a single sector of the disk."""
    over = end % _SECTOR + length > _SECTOR
    return -end % _SECTOR if over else 0


def append(source: Input, growth: Extension) -> None:
    """Grow the file, or leave it as it was pinned."""
    with _locked_for_writing(source) as fd:
        try:
            for _ in steps(fd, growth):
                pass
        except BaseException as error:
            # Also on an interrupt: no old byte is beyond this length.
            os.ftruncate(fd, growth.size)
            if isinstance(error, OSError) and error.errno in _FULL:
                full = f"{source.name}: no space left, the file is unchanged"
                raise DataError(full, f"free some, or {ELSEWHERE}") from error
            if isinstance(error, OSError) and error.errno == errno.EIO:
                raise DataError("the disk failed, the file is unchanged", ELSEWHERE, place=source.name) from error
            raise


def steps(fd: int, growth: Extension, portion: int = _PORTION) -> Iterator[str]:
    """Grow the file; yield after each system call, so that a test can look at the file in between."""
    end = growth.end
    _reserve(fd, growth.size, end + len(growth.before) - growth.size)
    yield "room is reserved"
    _write(fd, growth.before, end)
    yield "the old end is at the new place"
    os.fsync(fd)
    yield "and is on the disk"
    at = growth.size
    for part in growth.body:
        view = memoryview(part).cast("B")
        for low in range(0, len(view), portion):
            at += _write(fd, view[low : low + portion], at)
            yield "a portion of the body is written"
    os.fsync(fd)
    yield "the body is on the disk"
    _write(fd, growth.after, end)
    yield "the new end is written"
    os.fsync(fd)
    yield "and is on the disk, too"


def _write(fd: int, data: bytes | memoryview, at: int) -> int:
    view = memoryview(data)
    done = 0
    while done < len(view):
        done += os.pwrite(fd, view[done:], at + done)
    return done


def _reserve(fd: int, start: int, length: int) -> None:
    """Check now whether there is room.

    Not os.posix_fallocate: it grows the file at once, which then ends in zeros until the next write.
    """
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    reserve = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if reserve is None:
        return
    if reserve(fd, _KEEP_SIZE, ctypes.c_int64(start), ctypes.c_int64(length)):
        number = ctypes.get_errno()
        if number in _FULL:  # any other error: this file system cannot reserve, and the writes will show
            raise OSError(number, os.strerror(number))


@contextmanager
def _locked_for_writing(source: Input) -> Iterator[int]:
    path = Path(os.path.realpath(source.path))
    if source.fd is not None or not path.is_file():
        raise DataError("only a file can be changed in place", ELSEWHERE, place=source.name)
    remove_abandoned(path.parent)  # a killed run can leave a second name of the file
    names = path.stat().st_nlink
    if names > 1:
        raise DataError(f"the file has {names} names (hard links), and all would change", ELSEWHERE, place=source.name)
    for target in {path, Path(source.path)}:
        refuse_checksums(target, source.name, ELSEWHERE)
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError as error:
        why = reason(error)
        raise DataError(f"cannot be changed in place: {why}", ELSEWHERE, place=source.name) from error
    with _locked(fd, source):
        yield fd


@contextmanager
def locked(source: Input) -> Iterator[None]:
    """Lock a file while it is rewritten, so that no other run changes it in place."""
    with _locked(os.open(source.path, os.O_RDONLY), source):
        yield


@contextmanager
def _locked(fd: int, source: Input) -> Iterator[None]:
    """Lock an open file that is unchanged since it was pinned, and close it at the end."""
    import fcntl  # not on Windows

    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(
                "another process has locked it", "run again when it has finished", place=source.name
            ) from None
        except OSError as error:
            # Some network file systems have no locks; the pin still shows changes.
            if error.errno not in {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}:
                raise
        if not source.pin.matches(os.fstat(fd)):
            raise InputChanged.between_readings(source.name)
        yield
    finally:
        os.close(fd)


def refuse_checksums(path: Path, name: str, cure: str) -> None:
    """Refuse a file with Hadoop checksums beside it: Spark would no longer read the changed file."""
    side = path.with_name(f".{path.name}.crc")
    with suppress(OSError):
        if side.exists():
            raise DataError(
                f"{side} has its checksums, which would no longer match", f"remove it, or {cure}", place=name
            )
