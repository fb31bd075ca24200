"""Where commands print: rich's console, which leaves it to the caller what a reader that has gone means."""

from __future__ import annotations

from typing import IO, NoReturn

from rich.console import Console


class Screen(Console):
    """A console without colours of its own making."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        super().__init__(file=stream, highlight=False)

    def on_broken_pipe(self) -> NoReturn:
        """Not rich's exit status 1, which is that of an error."""
        raise BrokenPipeError
