"""Each output is the old file or the new one, never something between."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from io import BufferedRandom, FileIO
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from grpo_cli.errors import DataError, UsageError
from grpo_cli.files.early import claimed, opened, temporary_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from _typeshed import ReadableBuffer

    Buffer = bytes | memoryview  # of bytes

_STEP: Final = 1 << 25  # bytes between two calls for the disk
_AT_ONCE: Final = min(os.sysconf("SC_IOV_MAX"), 1024)  # pieces that one call takes
_SYNC: Final = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


@contextmanager
def replacing(
    path: str | os.PathLike[str], *, force: bool, ready: Callable[[Path], None] = lambda _: None
) -> Iterator[BinaryIO]:
    """Give a file to write; it takes the name `path` only if the body ends well, and `ready` does with it as it is.

    A symlink stays, and the file that it points to is replaced. A device or a pipe (`/dev/null`) has no
    old content to protect, so it is written directly.
    """
    named, target = Path(path), Path(os.path.realpath(path))
    if _is_stream(named):  # a pipe of the shell has no real path
        with _explained(named), named.open("wb") as device:
            yield device
        return
    _refuse_existing(target, force=force)
    with _explained(target):
        temporary, sink = claimed(target) or _beside(target)
        try:
            with sink:
                yield sink
                sink.flush()
                os.fsync(sink.fileno())
            _refuse_existing(target, force=force)
            _copy_mode(target, temporary)
            ready(temporary)
            temporary.replace(target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        _sync_directory(target.parent)


def _is_stream(target: Path) -> bool:
    return target.exists() and not target.is_file() and not target.is_dir()


def _refuse_existing(target: Path, *, force: bool) -> None:
    if target.is_dir():
        raise UsageError(f"{target}: is a directory", "give the name of a file, or end the name with a slash")
    if target.exists() and not force:
        raise UsageError(f"{target}: exists", "add --force to replace it, or choose another -o")


def _beside(target: Path) -> tuple[Path, BinaryIO]:
    temporary = temporary_for(target)
    return temporary, cast("BinaryIO", Steady(opened(temporary)))


class Steady(BufferedRandom):
    """A file to write that goes to the disk while it is written: the fsync at the end then has little left to do.

    900 MB of lines were done 0.2 s earlier.
    """

    def __init__(self, fd: int) -> None:
        super().__init__(FileIO(fd, "r+"), 1 << 20)
        self._since = 0
        self._thread: Thread | None = None

    def write(self, data: ReadableBuffer) -> int:
        """Write, and have another thread begin with the disk now and then."""
        self._written(len(data) if isinstance(data, bytes) else memoryview(data).nbytes)
        return super().write(data)

    def writelines(self, lines: Iterable[ReadableBuffer], /) -> None:
        """Write pieces from where they lie, many in one call; the file's own buffer would be one copy more."""
        self.flush()
        at, parts = self.tell(), iter(cast("Iterable[Buffer]", lines))
        while batch := list(islice(parts, _AT_ONCE)):
            size = _gathered(self.fileno(), batch)
            self._written(size)
            at += size
        self.seek(at)

    def _written(self, count: int) -> None:
        self._since += count
        if self._since > _STEP and (self._thread is None or not self._thread.is_alive()):
            self._since, self._thread = 0, Thread(target=self._sync, daemon=True)
            self._thread.start()

    def _sync(self) -> None:
        with suppress(OSError):  # the fsync at the end will tell
            _SYNC(self.fileno())

    def close(self) -> None:
        """Close it, after the thread is done with it."""
        if self._thread is not None:
            self._thread.join()
        super().close()


def _gathered(fd: int, parts: Sequence[Buffer]) -> int:
    """Write pieces in one call, and what that leaves in further ones; tell how many bytes they are."""
    size = sum(map(len, parts))
    done = os.writev(fd, parts)
    if done < size:  # the disk is nearly full, or a signal came
        left = memoryview(b"".join(parts))
        while done < size:
            done += os.write(fd, left[done:])
    return size


def _copy_mode(target: Path, temporary: Path) -> None:
    if target.exists():
        temporary.chmod(target.stat().st_mode & 0o7777)


def _sync_directory(folder: Path) -> None:
    # Some file systems cannot do it; the rename has happened either way.
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        told = _cause(target, error)
        if told is None:
            raise
        raise told from error


def _cause(target: Path, error: OSError) -> DataError | None:
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return DataError(f"{target}: no space left, nothing was written", "free some, or choose another -o")
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        why = os.strerror(error.errno).lower()
        return DataError(f"{target}: cannot be written: {why}", "choose another -o")
    if error.errno in {errno.ENOENT, errno.ENOTDIR} and not target.parent.is_dir():
        return DataError(f"{target}: there is no directory {target.parent}", f"mkdir -p {target.parent}")
    if error.errno == errno.ENAMETOOLONG:
        return DataError(f"{target.name[:40]}...: the name is too long for this file system")
    return None
