"""What went wrong as one line on stderr and an exit status."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

from grpo_cli.errors import GrpoError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BROKEN_PIPE: Final = 141


def guarded(run: Callable[[], None], given: Mapping[str, Any]) -> int:
    """Run a command; our errors become one line on stderr and their exit status."""
    try:
        run()
    except GrpoError as error:
        if given.get("debug"):
            raise
        return _told(str(error), error.status)
    except BrokenPipeError:
        silence()
        return BROKEN_PIPE
    except OSError as error:
        if given.get("debug"):
            raise
        return _told(system_words(error), 1)
    return 0


def _told(message: str, status: int) -> int:
    print(f"grpo-adv: {message}", file=sys.stderr)
    return status


def system_words(error: OSError) -> str:
    """What the operating system refused: a full disk, a directory without permission, a closed stream."""
    where = f"{error.filename}: " if error.filename else "reading or writing failed: "
    return f"{where}{(error.strerror or str(error)).lower()}"


def silence() -> None:
    """Whatever is still buffered for a reader that has gone would raise once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
