"""What a terminal can show; loaded before any error or help is printed."""

from __future__ import annotations

import os
from typing import IO, Any

# The colours of the terminal, each with one meaning everywhere.
BOLD = "1"
RED = "1;31"  # an error
CYAN = "36"  # what to type
DIM = "2"  # what goes on
COLOURS = {"always": "FORCE_COLOR", "never": "NO_COLOR"}  # the variable that says so


def has_colours(stream: IO[str] | None) -> bool:
    """Whether to use colours and bold on a stream."""
    if stream is None or os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def coloured(text: str, colour: str, stream: IO[str] | None) -> str:
    """The text in a colour, if the stream has colours."""
    return f"\x1b[{colour}m{text}\x1b[0m" if has_colours(stream) else text


def set_colours(choice: Any) -> None:
    """Apply --color, which wins over the environment; rich and textual read the same variables."""
    if choice not in COLOURS:
        return
    for name in COLOURS.values():
        os.environ.pop(name, None)
    os.environ[COLOURS[choice]] = "1"
