"""A dim line on a terminal while libraries are loaded and files are read: only in runs that take longer than a moment.

It goes before anything else is printed: a progress bar, a result, an error.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from threading import Lock, Timer
from typing import Final

from grpo_cli.cli.terminal import DIM, coloured
from grpo_cli.errors import printable

PATIENCE = 0.3  # seconds
CLEARED = "\r\x1b[K"

_timer: Timer | None = None
_is_shown = False
_LOCK: Final = Lock()  # the line is shown by a thread


def begin(inputs: Sequence[str]) -> None:
    """Say what is being read, in a moment; nothing where standard error is no terminal."""
    global _timer  # noqa: PLW0603 - a terminal has one such line
    if sys.stderr is None or not sys.stderr.isatty() or not inputs or "-" in inputs:
        return
    from grpo_cli.files.stores import is_url, shown

    first = shown(inputs[0]) if is_url(inputs[0]) else inputs[0]
    names = first + (f" and {len(inputs) - 1:,} more" if len(inputs) > 1 else "")
    _timer = Timer(PATIENCE, _show, [f"reading {printable(names)} ..."])
    _timer.daemon = True
    _timer.start()


def end() -> None:
    """Take the line away, for good."""
    global _timer, _is_shown  # noqa: PLW0603 - see above
    with _LOCK:
        if _timer is not None:
            _timer.cancel()
            _timer = None
        if _is_shown and sys.stderr is not None:
            sys.stderr.write(CLEARED)
            sys.stderr.flush()
        _is_shown = False


def _show(text: str) -> None:
    global _is_shown  # noqa: PLW0603 - see above
    with _LOCK:
        if _timer is None or sys.stderr is None:
            return
        room = shutil.get_terminal_size().columns - 1
        sys.stderr.write(coloured(text[:room], DIM, sys.stderr))
        sys.stderr.flush()
        _is_shown = True
