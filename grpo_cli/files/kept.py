"""The files that a command reads, so that none of them is written: each is noted when it is found, and every output is compared.

A file is known by device and inode, so a link is the file that it leads to; an object by its URL.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Final, NamedTuple

from grpo_cli.errors import UsageError

Identity = tuple[int, int] | str


class _Command(NamedTuple):
    read: set[Identity]
    prints_to: Identity | None  # the file behind standard output, if it is one


_COMMAND: Final[ContextVar[_Command | None]] = ContextVar("command", default=None)


@contextmanager
def keeping(*, prints: bool = False) -> Iterator[None]:
    """Around a command: what it reads is kept. With `prints`, reading the file behind standard output is an error."""
    before = _COMMAND.set(_Command(set(), identity_of(1) if prints else None))
    try:
        yield
    finally:
        _COMMAND.reset(before)


def note(found: os.stat_result | str) -> None:
    """A file or object is read. Devices and pipes have nothing to lose."""
    command = _COMMAND.get()
    identity = _known(found)
    if command is None or identity is None:
        return
    if identity == command.prints_to:
        raise UsageError("standard output is an input: it is never overwritten", "send it to another file")
    command.read.add(identity)


def note_standard_input() -> None:
    """The file that the shell opened is read, if it is one."""
    with suppress(OSError):
        note(os.fstat(0))


def is_input(target: os.stat_result | str) -> bool:
    """Whether the command reads the file of this state, or this object."""
    command = _COMMAND.get()
    return command is not None and _known(target) in command.read


def identity_of(file: Path | int) -> Identity | None:
    """What a file, or the file behind a descriptor, is known by; None if there is none, or if it is a pipe or a device."""
    with suppress(OSError):
        return _known(os.stat(file))  # noqa: PTH116 - also takes a descriptor
    return None


def _known(found: os.stat_result | str) -> Identity | None:
    if isinstance(found, str):
        return found
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None
