"""Files that another file, or a folder, names: they are inside of that folder, and reading them neither waits nor ends in memory.

Whoever made a file wrote the paths in it; that of a user is not checked here.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate, islice
from pathlib import Path
from typing import BinaryIO, Final

from grpo_cli.errors import DataError, Way, printable, reason
from grpo_cli.files.kept import note

_COPY = "copy the folder without links (cp -rL), or remove it"
# Folders in the cache of the Hugging Face hub: of links, and of what they lead to.
_LINKED = "snapshots"
_BLOBS = "blobs"
_TURN = 100  # milliseconds that a pipe is waited for at once, so that Ctrl-C is seen
_SILENT_FOR = 1000  # milliseconds after which a line says that it is waited for
_log: Final = logging.getLogger(__name__)


def inside(folder: Path, name: str) -> Path:
    """The path of what a folder names; DataError if that is absolute, climbs, or is a link that leads out of the folder.

    In the cache of the Hugging Face hub, links lead to the blobs of the same repository.
    """
    path = folder / name
    parts = Path(name).parts
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise DataError(f"names {name!r}, which is not inside of it", "remove what names it", place=folder)
    steps = accumulate([f"{folder}", *parts], "{}/{}".format)
    if any(map(os.path.islink, islice(steps, 1, None))):  # not of Path, which takes ten times as long
        home, real = (Path(os.path.realpath(each)) for each in (folder, path))
        blobs = [above.with_name(_BLOBS) for above in home.parents if above.name == _LINKED]
        if not any(map(real.is_relative_to, (home, *blobs))):
            raise DataError(f"a link to {real}, out of {folder}", _COPY, place=path)
    return path


def content(path: Path, most: int) -> bytes:
    """The bytes of a file; FileNotFoundError if there is none, DataError if it cannot be read, or has more than `most`."""
    with opened(path) as handle:
        if os.fstat(handle.fileno()).st_size > most:
            raise DataError(
                f"more than {most:,} bytes", Way("--max-line", why="reads more, in memory", fill="BYTES"), place=path
            )
        return handle.read()


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """An open file; FileNotFoundError if there is none, DataError for anything else and what cannot be read."""
    try:
        handle = regular(path)
        if handle is None:
            raise DataError("is not a file", _COPY, place=path)
        with handle:
            note(os.fstat(handle.fileno()))
            yield handle
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DataError(reason(error), place=path) from None


def regular(path: Path | str) -> BinaryIO | None:
    """An open file; None if it is a device, a pipe, or anything else that is not a file."""
    handle = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - the caller closes it
    if stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
        return handle
    handle.close()
    return None


def opened_to_read(path: Path | str) -> BinaryIO:
    """An open file or pipe, whatever its name leads to; of a named pipe that nobody writes to, a line says after a second what is waited for.

    A plain `open` of such a pipe would not say so, and Ctrl-C would not always end it: polars restarts calls that it interrupts.
    """
    try:
        handle = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - the caller closes it
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "it is a socket: name a file or a pipe", str(path)) from None
        raise
    try:
        if stat.S_ISFIFO(os.fstat(handle.fileno()).st_mode) and Path(os.path.realpath(path)).exists():
            _wait_for_writer(handle.fileno(), path)
        os.set_blocking(handle.fileno(), True)
    except BaseException:
        handle.close()
        raise
    return handle


def _wait_for_writer(fd: int, path: Path | str) -> None:
    """Wait until a pipe has bytes, or has had a writer."""
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    turns = 0
    while not waiting.poll(_TURN):
        turns += 1
        if turns * _TURN == _SILENT_FOR:
            _log.warning("grpo-adv: %s is a pipe: waiting for its writer", printable(str(path)))


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe in its place would be waited for."""
    return os.open(path, flags | os.O_NONBLOCK)
