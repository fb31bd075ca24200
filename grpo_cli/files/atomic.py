"""Atomic outputs: each is the old file or the new file, never anything in between."""

from __future__ import annotations

import errno
import fcntl
import filecmp
import logging
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from io import BufferedRandom, FileIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Final, cast

from grpo_cli.errors import DataError, InputChanged, UsageError, Way, Written, reason
from grpo_cli.files.finished import naming
from grpo_cli.files.inputs import Input
from grpo_cli.files.kept import is_input

ELSEWHERE = "write a new file with -o FILE instead"
_BUFFER = 1 << 20  # bytes that are written at once
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.tmp", re.DOTALL)
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
_ACCESS = "system.posix_acl_access"
_NOTHING = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}  # some network file systems
_LOST = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}  # some bytes may have been written
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG}
_log: Final = logging.getLogger(__name__)


@contextmanager
def replacing(
    path: str | os.PathLike[str],
    *,
    force: bool,
    retried: bool = False,
    over: int | None = None,
    sync_folder: bool = True,
) -> Iterator[BinaryIO]:
    """Give a file to write; it is renamed to `path` if the body succeeds, and removed if not.

    A file that the command reads is never replaced, but by --in-place: then `over` is the descriptor of the one to change
    (see `locked`), and no other file is replaced, even if `path` is a link that leads elsewhere by now.
    With `retried`, an existing file with the same bytes was written by an earlier attempt, and is not refused.
    A symlink stays, and the file that it points to is replaced. A device or a pipe (`/dev/null`) has no old content
    to protect, so it is written directly. Its directory is synced as well, unless the caller does that (see
    `folders_synced`).
    """
    named = Path(path)
    target = Path(os.path.realpath(path))
    # By name: a pipe of the shell has no real path.
    state = _state(named)
    if state is not None and not stat.S_ISREG(state.st_mode) and not stat.S_ISDIR(state.st_mode):
        with _explained(named), open(named, "wb", opener=_without_waiting) as device:
            yield device
            with naming():  # what is not flushed may fail
                device.flush()
        return
    state = _refuse_existing(target, force=force or retried, over=over)
    with _explained(target, in_place=over is not None):
        remove_abandoned(target.parent)
        temporary = target.with_name(f".{target.name[:100]}.{os.urandom(6).hex()}.tmp")
        try:
            # What replaces a file is not for others before it has the mode of that file.
            made = FileIO(_locked(temporary, 0o666 if state is None else 0o600), "r+")
            with BufferedRandom(made, _BUFFER) as sink:
                yield cast("BinaryIO", sink)
                _synced(sink, target)
                if retried and not force and target.is_file() and filecmp.cmp(temporary, target, shallow=False):
                    force = True
                state = _refuse_existing(target, force=force, over=over) or state
                is_like = state is None or _take_after(sink.fileno(), target, state)
                with naming():
                    _rename(temporary, target, force=force)
                if not is_like:
                    _log.warning("grpo-adv: %s had another owner or group: it is yours now", target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        if sync_folder:
            _sync_directory(target.parent)


def _without_waiting(path: str, flags: int) -> int:
    """Open a device or a pipe; a pipe that nothing reads is an error, not a wait without end."""
    try:
        fd = os.open(path, flags | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        if stat.S_ISSOCK(Path(path).stat().st_mode):
            raise DataError("is a socket", "give -o FILE", place=path) from None
        raise DataError("a pipe that nothing reads", ["start its reader first", "give -o FILE"], place=path) from None
    os.set_blocking(fd, True)
    return fd


@contextmanager
def locked(source: Input) -> Iterator[int]:
    """Lock a file while it is replaced by its own output, so that no other run replaces it; give its descriptor."""
    try:
        fd = os.open(source.path, os.O_RDWR)
    except OSError as error:
        raise DataError(f"cannot be changed in place: {reason(error)}", ELSEWHERE, place=source.name) from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            busy = "another process has locked it"
            raise DataError(busy, "run again when it has finished", place=source.name) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:  # without them, the pin still shows changes
                raise
        if not source.pin.matches(os.fstat(fd)):
            raise InputChanged.between_readings(source.name)
        yield fd
    finally:
        os.close(fd)


def refuse_unwritable(paths: Iterable[Path], *, in_place: bool = False) -> None:
    """Refuse files that could not be renamed into their folders: those take no new file, or let nobody replace another's."""
    tried = set[Path]()
    for path in paths:
        target = Path(os.path.realpath(path))
        state = _state(path)
        if state is not None and not stat.S_ISREG(state.st_mode):  # a device or a pipe is written directly
            continue
        with _explained(target, in_place=in_place):
            if target.parent not in tried:
                TemporaryFile(dir=target.parent).close()
                tried.add(target.parent)
            if state is not None and _is_of_others(state, target.parent.stat()):
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(target))


def _is_of_others(state: os.stat_result, folder: os.stat_result) -> bool:
    """Whether the folder (as /tmp, by its sticky bit) lets only the owner of a file, or its own, replace it."""
    return bool(folder.st_mode & stat.S_ISVTX) and os.geteuid() not in {0, state.st_uid, folder.st_uid}


def _refuse_existing(target: Path, *, force: bool, over: int | None = None) -> os.stat_result | None:
    """The state of the file that may be replaced, or None if there is no such file."""
    state = _state(target)
    if over is not None and (state is None or not os.path.samestat(state, os.fstat(over))):
        raise InputChanged.between_readings(str(target))
    if state is None:
        return None
    if is_input(state) and over is None:
        raise UsageError("is an input: it is never overwritten", "give another name", place=target)
    if stat.S_ISDIR(state.st_mode):
        raise UsageError("is a directory", ["give the name of a file", "end the name with a slash"], place=target)
    if not force:
        raise UsageError("exists", [Way("--force", why="to replace it", lead="add"), "choose another -o"], place=target)
    return state


def _take_after(fd: int, target: Path, state: os.stat_result) -> bool:
    """Give a new file the attributes and the mode of the file that it replaces, and its owner and group if this returns True."""
    for uid, gid in ((state.st_uid, state.st_gid), (-1, state.st_gid)):
        if _owners(os.fstat(fd)) != _owners(state):
            with suppress(PermissionError):  # only root gives files to other users, and a user to groups of his own
                os.fchown(fd, uid, gid)
    kept = _attributes(target)
    new = _attributes(fd)
    for name in new.keys() - kept.keys():  # the access list of a new file in this folder
        os.removexattr(fd, name)
    for name in kept:
        os.setxattr(fd, name, kept[name])
    if stat.S_IMODE(os.fstat(fd).st_mode) != stat.S_IMODE(state.st_mode):
        os.fchmod(fd, stat.S_IMODE(state.st_mode))
    return _owners(os.fstat(fd)) == _owners(state)


def _owners(state: os.stat_result) -> tuple[int, int]:
    return state.st_uid, state.st_gid


def _attributes(of: Path | int) -> dict[str, bytes]:
    """The attributes that users give to a file, and its access list; none where the file system or Python has none."""
    if sys.platform != "linux":
        return {}
    with suppress(OSError):
        names = (name for name in os.listxattr(of) if name.startswith("user.") or name == _ACCESS)
        return {name: os.getxattr(of, name) for name in names}
    return {}


def _state(path: Path) -> os.stat_result | None:
    """The state of whatever has this name, or None."""
    try:
        return path.stat()
    except OSError as error:
        if error.errno not in _NOTHING:
            raise
        return None


def _locked(temporary: Path, mode: int) -> int:
    """Make a temporary file; its lock shows other runs that it is still being written."""
    while True:
        # Not by tempfile, whose mode is 0600: a new file follows the umask.
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        with suppress(OSError):  # a file system without locks: its files never count as abandoned
            fcntl.flock(fd, fcntl.LOCK_EX)
        if temporary.exists():
            return fd
        os.close(fd)  # removed as abandoned between the two calls


@cache
def remove_abandoned(folder: Path) -> None:
    """Remove temporary files of killed runs, once for each folder: known by name, and by their free lock."""
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
    """Rename the file; without `force`, a file that was created meanwhile under that name is not replaced."""
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
        _log.debug("%s: no hard links here: a file created at this moment would be overwritten", target)
        _refuse_existing(target, force=False)
        temporary.replace(target)
    else:
        with suppress(OSError):  # the file is complete; the next run in this folder removes its other name
            temporary.unlink()


def _synced(sink: BufferedRandom, target: Path) -> None:
    """Sync a file; an error names the output, as it may be one of another disk."""
    try:
        sink.flush()
        os.fsync(sink.fileno())
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), str(target)) from error


@contextmanager
def folders_synced(paths: Iterable[Path]) -> Iterator[None]:
    """Sync the directories of these files at the end, each once for all of its files."""
    try:
        yield
    finally:
        for folder in {Path(os.path.realpath(path)).parent for path in paths}:
            _sync_directory(folder)


def _sync_directory(folder: Path) -> None:
    # Some file systems cannot sync directories; the rename has happened either way.
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextmanager
def _explained(target: Path, *, in_place: bool = False) -> Iterator[None]:
    """Turn an error of the operating system into one line that says what helps."""
    try:
        yield
    except OSError as error:
        explained = _refusal(target, error, ELSEWHERE if in_place else "choose another -o")
        if explained is None:
            raise
        raise explained from error


def _is_of_ours(name: object, folder: Path) -> bool:
    """Whether it is the name of a temporary file in a folder: ours, or of `TemporaryFile`."""
    path = Path(str(name))
    return path.parent == folder and bool(_TEMPORARY.fullmatch(path.name) or path.name.startswith("tmp"))


def _refusal(target: Path, error: OSError, elsewhere: str) -> DataError | None:
    """The error with what the user can do; None if it has nothing to do with the output."""
    place = str(target)
    # A disk error is of this disk only if it names the output.
    is_lost = error.errno in _LOST and (error.errno != errno.EIO or error.filename == place)
    if is_lost or error.errno in _DENIED:
        written = Written() if is_lost else None
        return DataError(f"cannot be written: {reason(error)}", elsewhere, place=place, written=written)
    if error.errno in {errno.ENOENT, errno.ENOTDIR} and not target.parent.is_dir():
        return DataError(f"there is no directory {target.parent}", f"mkdir -p {target.parent}", place=place)
    if error.errno == errno.ENOENT and _is_of_ours(error.filename, target.parent):  # as in /proc
        return DataError(f"no file can be made in {target.parent}", elsewhere, place=place)
    return None
