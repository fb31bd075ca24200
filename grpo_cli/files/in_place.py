"""A file made longer in place: at every instant it ends as it ended before, or as it is to end.

For formats that are read from their last bytes. First those bytes are put where the file is going to end, saying
that everything is as it was; then what lies between is filled in; and then one small write, inside one sector
of the disk, says the new thing. No byte of the old file is touched and there is no journal: whoever kills
the process or the machine leaves the old content behind a few more bytes, or the new one.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files.atomic import remove_abandoned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from grpo_cli.files.inputs import Input

ELSEWHERE: Final = "write a new file with -o FILE instead"
_SECTOR: Final = 512
_PORTION: Final = 1 << 24
_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE of linux/falloc.h
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True, slots=True)
class Growth:
    """What comes behind the first `size` bytes: the body, and an end with one meaning before and one after."""

    size: int
    body: Sequence[bytes | memoryview]
    before: bytes
    after: bytes

    @property
    def end(self) -> int:
        """Where the last bytes of the file are going to lie."""
        return self.size + sum(memoryview(part).nbytes for part in self.body)


def padding(end: int, length: int) -> int:
    """Count the bytes to put in, so that `length` bytes from `end` on lie in one sector of a disk."""
    over = end % _SECTOR + length > _SECTOR
    return -end % _SECTOR if over else 0


def append(source: Input, growth: Growth) -> None:
    """Make the file longer, or leave it as it was pinned."""
    with _locked_for_writing(source) as fd:
        try:
            for _ in steps(fd, growth):
                pass
        except BaseException as error:
            # Also when someone interrupts: nothing that was there before lies behind this length.
            os.ftruncate(fd, growth.size)
            if isinstance(error, OSError) and error.errno in _FULL:
                full = f"{source.name}: no space left, the file is as it was"
                raise DataError(full, f"free some, or {ELSEWHERE}") from error
            if isinstance(error, OSError) and error.errno == errno.EIO:
                raise DataError(f"{source.name}: the disk failed, the file is as it was", ELSEWHERE) from error
            raise


def steps(fd: int, growth: Growth, portion: int = _PORTION) -> Iterator[str]:
    """Make the file longer; stop behind each system call, so that a test can look at the file in between."""
    end = growth.end
    _reserve(fd, growth.size, end + len(growth.before) - growth.size)
    yield "room is reserved"
    _write(fd, growth.before, end)
    yield "the old end stands at the new place"
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
    """Find out now whether there is room.

    Not os.posix_fallocate: it makes the file longer at once, and then it ends in zeros until the next write.
    """
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    reserve = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if reserve is None:
        return
    if reserve(fd, _KEEP_SIZE, ctypes.c_int64(start), ctypes.c_int64(length)):
        number = ctypes.get_errno()
        if number in _FULL:  # any other says that this file system cannot reserve, and the writes will tell
            raise OSError(number, os.strerror(number))


@contextmanager
def _locked_for_writing(source: Input) -> Iterator[int]:
    path = Path(os.path.realpath(source.path))
    if source.fd is not None or not path.is_file():
        raise DataError(f"{source.name}: only a file can be changed in place", ELSEWHERE)
    remove_abandoned(path.parent)  # a run that was killed leaves the file a second name, for an instant
    names = path.stat().st_nlink
    if names > 1:
        raise DataError(f"{source.name}: {names} names (hard links) share this file, all would change", ELSEWHERE)
    for one in {path, Path(source.path)}:
        refuse_checksums(one, source.name, ELSEWHERE)
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise DataError(f"{source.name}: cannot be changed in place: {why}", ELSEWHERE) from error
    with _locked(fd, source):
        yield fd


@contextmanager
def locked(source: Input) -> Iterator[None]:
    """Lock a file while it is written anew, so that no other run changes it in place."""
    with _locked(os.open(source.path, os.O_RDONLY), source):
        yield


@contextmanager
def _locked(fd: int, source: Input) -> Iterator[None]:
    """Lock an open file that is still as it was pinned, and close it at the end."""
    import fcntl  # there is none on Windows

    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"{source.name}: another process holds it", "run again when that has ended") from None
        except OSError as error:
            # Some network file systems know no locks; the pin still tells whether anybody wrote.
            if error.errno not in {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}:
                raise
        if not source.pin.holds(os.fstat(fd)):
            raise InputChanged.between_readings(source.name)
        yield
    finally:
        os.close(fd)


def refuse_checksums(path: Path, name: str, cure: str) -> None:
    """Hadoop keeps the checksums of a file beside it; with other bytes in it, Spark would not read it any more."""
    side = path.with_name(f".{path.name}.crc")
    with suppress(OSError):
        if side.exists():
            raise DataError(f"{name}: {side} holds its checksums, which would be wrong", f"remove it, or {cure}")
