"""Each output is the old file or the new one, never something between."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from grpo_cli.errors import DataError, UsageError
from grpo_cli.io.early import claimed, opened, temporary_for

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def replacing(path: str | os.PathLike[str], *, force: bool) -> Iterator[BinaryIO]:
    """Give a file to write; it takes the name `path` only if the body ends well.

    A symlink stays, and the file that it points to is replaced. A device or a pipe (`/dev/null`) has no
    old content to protect, so it is written directly.
    """
    target = Path(os.path.realpath(path))
    if _is_stream(target):
        with _explained(target), target.open("wb") as device:
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
    return temporary, os.fdopen(opened(temporary), "w+b", buffering=1 << 20)


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
