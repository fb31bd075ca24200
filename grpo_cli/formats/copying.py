"""The first bytes of a file, copied inside the kernel where both ends are files."""

from __future__ import annotations

import errno
import os
from io import UnsupportedOperation
from typing import TYPE_CHECKING, BinaryIO, Final

from grpo_cli.errors import InputChanged
from grpo_cli.io.early import Ahead

if TYPE_CHECKING:
    from grpo_cli.io.local import Input

_STEP: Final = 1 << 30
_BLOCK: Final = 1 << 20
# Pipes, append mode, two file systems that do not know each other, kernels and sandboxes without the call.
_CANNOT: Final = {
    errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM, errno.ESPIPE, errno.EISDIR,
}  # fmt: skip


def copy_start(source: Input, handle: BinaryIO, sink: BinaryIO, length: int) -> None:
    """Copy the first `length` bytes to where the sink stands, if they are not there already."""
    if isinstance(sink, Ahead) and sink.take(source.pin, length):
        return
    done = _in_kernel(handle, sink, length)
    handle.seek(done)
    while done < length:
        block = handle.read(min(_BLOCK, length - done))
        if not block:
            raise InputChanged.between_readings(source.name)
        sink.write(block)
        done += len(block)


def _in_kernel(handle: BinaryIO, sink: BinaryIO, length: int) -> int:
    """Copy as much as goes by `copy_file_range`, a reflink where the file system has it."""
    try:
        ends = handle.fileno(), sink.fileno()
        sink.flush()
    except (UnsupportedOperation, AttributeError):
        return 0
    done = 0
    try:
        while done < length:
            step = os.copy_file_range(*ends, min(_STEP, length - done), offset_src=done)
            if not step:
                break
            done += step
    except AttributeError:  # not on this system
        return 0
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    if done:
        # The sink has to hear that its descriptor went on.
        sink.seek(os.lseek(ends[1], 0, os.SEEK_CUR))
    return done
