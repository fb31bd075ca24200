"""Each output is the old file or the new one, never something between."""

from __future__ import annotations

import errno
import fcntl
import filecmp
import logging
import os
import re
import stat
from contextlib import contextmanager, suppress
from functools import cache
from io import BufferedRandom, FileIO
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from grpo_cli.errors import NOTHING_WRITTEN, DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from _typeshed import ReadableBuffer

    Buffer = bytes | memoryview  # of bytes

_BUFFER: Final = 1 << 20
_SYNC_EVERY: Final = 1 << 25  # bytes written between two calls of fdatasync
_PIECES: Final = min(os.sysconf("SC_IOV_MAX"), 1024)  # that one call of writev takes,
_FEW: Final = 32  # and of which the size is looked at: lists are made as they are taken
_TEMPORARY: Final = re.compile(r"\..+\.[0-9a-f]{12}\.tmp", re.DOTALL)
_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
_NOTHING: Final = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
_log: Final = logging.getLogger(__name__)
_SYNC: Final = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


@contextmanager
def replacing(
    path: str | os.PathLike[str],
    *,
    force: bool,
    retried: bool = False,
    ready: Callable[[Path], None] | None = None,
    unsynced: set[Path] | None = None,
) -> Iterator[BinaryIO]:
    """Give a file to write that takes the name `path` if the body ends well, and is removed if not.

    Where the same work may have been `retried` a file with the same bytes is what was written before, and no reason to refuse.
    `ready` is called with the complete temporary file just before it is renamed. A symlink stays, and the file
    that it points to is replaced. A device or a pipe (`/dev/null`) has no old content to protect, so it is
    written directly. The directory is synced as well, or added to `unsynced` (see `directories_synced`).
    """
    named, target = Path(path), Path(os.path.realpath(path))
    # By its name: a pipe of the shell has no real path.
    mode = _mode(named)
    if mode is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        with _explained(named), named.open("wb") as device:
            yield device
        return
    _refuse_existing(target, force=force or retried)
    with _explained(target):
        remove_abandoned(target.parent)
        temporary = target.with_name(f".{target.name[:100]}.{os.urandom(6).hex()}.tmp")
        try:
            with _SyncedFile(_locked(temporary), target) as sink:
                yield cast("BinaryIO", sink)
                sink.sync()
                if retried and not force and target.is_file() and filecmp.cmp(temporary, target, shallow=False):
                    force = True
                mode = _refuse_existing(target, force=force)
                if mode is not None:
                    temporary.chmod(mode & 0o7777)
                if ready is not None:
                    ready(temporary)
                _rename(temporary, target, force=force)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        if unsynced is None:
            _sync_directory(target.parent)
        else:
            unsynced.add(target.parent)


def _refuse_existing(target: Path, *, force: bool) -> int | None:
    """The mode of the file that may be replaced, or None when there is none."""
    mode = _mode(target)
    if mode is not None and stat.S_ISDIR(mode):
        raise UsageError(f"{target}: is a directory", "give the name of a file, or end the name with a slash")
    if mode is not None and not force:
        raise UsageError(f"{target}: exists", "add --force to replace it, or choose another -o")
    return mode


def _mode(path: Path) -> int | None:
    """The mode of what has this name, or None when nothing has it."""
    try:
        return path.stat().st_mode
    except OSError as error:
        if error.errno not in _NOTHING:
            raise
        return None


def _locked(temporary: Path) -> int:
    """Make a temporary file; its lock tells other runs that somebody is still writing it."""
    while True:
        # Not by tempfile: its mode is 0600, while a new file here takes the umask as any other does.
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(OSError):  # a file system without locks: such a file is never taken for abandoned
            fcntl.flock(fd, fcntl.LOCK_EX)
        if temporary.exists():
            return fd
        os.close(fd)  # removed as abandoned between the two calls


@cache
def remove_abandoned(folder: Path) -> None:
    """Remove temporary files of runs that were killed, once for each folder: recognised by name, and by a lock nobody has."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not _TEMPORARY.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            with suppress(OSError):
                fd = os.open(entry.path, os.O_RDWR | os.O_NOFOLLOW)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(entry.path)  # noqa: PTH108 - there is no Path of it
                finally:
                    os.close(fd)


def _rename(temporary: Path, target: Path, *, force: bool) -> None:
    """Give the file its name; without `force` a file that was created meanwhile under that name is not replaced."""
    if force:
        temporary.replace(target)
        return
    try:
        os.link(temporary, target)
    except FileExistsError:
        _refuse_existing(target, force=False)
        raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _log.debug("%s: no hard links here, so a file that is created at this moment would be replaced", target)
        _refuse_existing(target, force=False)
        temporary.replace(target)
    else:
        with suppress(OSError):  # the file is complete under its name; the next run here removes the other name
            temporary.unlink()


class _SyncedFile(BufferedRandom):
    """A file to write that goes to the disk meanwhile: the fsync at the end then has little left to do."""

    def __init__(self, fd: int, target: Path) -> None:
        super().__init__(FileIO(fd, "r+"), _BUFFER)
        self._target = target
        self._unsynced = 0
        self._thread: Thread | None = None
        self._error: OSError | None = None

    def write(self, data: ReadableBuffer) -> int:
        """Write, and have another thread sync now and then."""
        self._count(len(data) if isinstance(data, bytes) else memoryview(data).nbytes)
        return super().write(data)

    def writelines(self, lines: Iterable[ReadableBuffer], /) -> None:
        """Write many pieces in one call from where they lie; the file's own buffer would be one more copy."""
        self.flush()
        at, parts = self.tell(), iter(cast("Iterable[Buffer]", lines))
        while batch := list(islice(parts, _FEW)):
            size = sum(map(len, batch))
            while len(batch) < _PIECES and size < _SYNC_EVERY and (more := list(islice(parts, _FEW))):
                batch += more
                size += sum(map(len, more))
            done = os.writev(self.fileno(), batch)
            if done < size:  # the disk is nearly full, or a signal came
                left = memoryview(b"".join(batch))
                while done < size:
                    done += os.write(self.fileno(), left[done:])
            self._count(size)
            at += size
        self.seek(at)

    def _count(self, written: int) -> None:
        self._unsynced += written
        if self._unsynced > _SYNC_EVERY and (self._thread is None or not self._thread.is_alive()):
            self._unsynced, self._thread = 0, Thread(target=self._sync, daemon=True)
            self._thread.start()

    def _sync(self) -> None:
        try:
            _SYNC(self.fileno())
        except OSError as error:
            self._error = error

    def sync(self) -> None:
        """Have everything on the disk, or raise what any of the syncs reported: the system tells an error only once."""
        self.flush()
        if self._thread is not None:
            self._thread.join()
        if self._error is None:
            self._thread = None
            try:
                os.fsync(self.fileno())
            except OSError as error:
                self._error = error
        if self._error is not None:
            raise OSError(self._error.errno, os.strerror(self._error.errno or 0), str(self._target))

    def close(self) -> None:
        """Close it, after the thread is done with it."""
        if self._thread is not None:
            self._thread.join()
        super().close()


@contextmanager
def directories_synced() -> Iterator[set[Path]]:
    """Give a set for `replacing`, and sync the directories in it at the end, each once for all of its files."""
    folders: set[Path] = set()
    try:
        yield folders
    finally:
        for folder in folders:
            _sync_directory(folder)


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
    """Turn what the operating system refuses into one line that says what helps."""
    try:
        yield
    except OSError as error:
        explained = _refusal(target, error)
        if explained is None:
            raise
        raise explained from error


def _refusal(target: Path, error: OSError) -> DataError | None:
    """What the user can do about the error; None for one that has nothing to do with the output."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DataError(f"{target}: no space left{NOTHING_WRITTEN}", "free some, or choose another -o")
    if error.errno == errno.EFBIG:
        return DataError(f"{target}: the file would be larger than allowed here{NOTHING_WRITTEN}", "see ulimit -f")
    if error.errno == errno.EIO and error.filename == str(target):
        return DataError(f"{target}: the disk failed while it was written{NOTHING_WRITTEN}", "choose another -o")
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        why = os.strerror(error.errno).lower()
        return DataError(f"{target}: cannot be written: {why}", "choose another -o")
    if error.errno in {errno.ENOENT, errno.ENOTDIR} and not target.parent.is_dir():
        return DataError(f"{target}: there is no directory {target.parent}", f"mkdir -p {target.parent}")
    if error.errno == errno.ENAMETOOLONG:
        return DataError(f"{target.name[:40]}...: the name is too long for this file system")
    return None
