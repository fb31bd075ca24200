"""What a terminal can show; loaded before any error or help is printed."""

from __future__ import annotations

import os
from typing import IO


def has_colours(stream: IO[str] | None) -> bool:
    """Whether to use colours and bold on a stream."""
    terminal = stream is not None and stream.isatty()
    return terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
