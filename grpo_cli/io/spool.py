"""Standard input and other pipes, kept in a file without a name so that they can be read twice."""

from __future__ import annotations

import errno
import os
import select
import stat
import tempfile
from typing import TYPE_CHECKING, BinaryIO, Final

from grpo_cli.errors import DataError
from grpo_cli.io.local import Input, Pin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READ: Final = 1 << 20
TURN: Final = 200  # milliseconds


def spool(stream: BinaryIO, name: str = "-") -> Input:
    """Copy a stream to an unlinked temporary file: nothing is left behind, however the run ends."""
    fd, path = tempfile.mkstemp(prefix="grpo-adv.")
    os.unlink(path)  # noqa: PTH108 - mkstemp gives a plain string
    try:
        with os.fdopen(os.dup(fd), "wb") as sink:
            sink.writelines(arrivals(stream))
    except OSError as error:
        os.close(fd)
        raise _full(name, error) from error
    except BaseException:
        os.close(fd)
        raise
    return Input(name, _path_of(fd), Pin.of(os.fstat(fd)), fd)


def arrivals(stream: BinaryIO) -> Iterator[bytes]:
    """What comes in, as it comes in.

    polars has its own handler for Ctrl-C, under which a read that waits is started again and never interrupted:
    waiting is therefore done in short turns.
    """
    try:
        fd = stream.fileno()
    except (OSError, AttributeError):  # not a file of the system: there is nothing to wait for
        while part := stream.read(READ):
            yield part
        return
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    while True:
        if not waiting.poll(TURN):
            continue
        part = os.read(fd, READ)
        if not part:
            return
        yield part


def pinned(path: Path) -> Input:
    """Pin a file, or spool it when it is a pipe, as in `grpo-adv compute <(sampler)`."""
    found = Input.at(path)
    mode = os.stat(path).st_mode  # noqa: PTH116 - also takes /dev/fd/N
    if stat.S_ISDIR(mode):
        raise DataError(f"{path}: is a directory", "name a file in it")
    if stat.S_ISREG(mode):
        return found
    with found.open() as stream:
        return spool(stream, str(path))


def _path_of(fd: int) -> str:
    linux = f"/proc/self/fd/{fd}"
    return linux if os.path.exists(linux) else f"/dev/fd/{fd}"  # noqa: PTH110 - a descriptor, not a file


def _full(name: str, error: OSError) -> DataError:
    where = tempfile.gettempdir()
    if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return DataError(f"{name}: cannot be read: {(error.strerror or str(error)).lower()}")
    no_room = f"{name}: no space left in {where} to keep it for the second reading"
    return DataError(no_room, "set TMPDIR elsewhere")
