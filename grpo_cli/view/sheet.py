"""A page of labelled lines: labels on the left, wrapped values on the right, nothing drawn around them.

It reads the same on a terminal, in a pipe and in a log: colour only repeats what the words say, and where the
encoding has no block characters, ASCII ones stand in for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.text import Text

from grpo_cli.view.words import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

LABEL: Final = 15
# A value column narrower than this is harder to read than a line that is too long.
NARROWEST: Final = 20
BLOCKS: Final = "▁▂▃▄▅▆▇█"
PLAIN: Final = str.maketrans(BLOCKS, "._-=+*%#")


class Sheet:
    """Prints labelled lines on one console."""

    def __init__(self, console: Console, label: int = LABEL) -> None:
        self.console = console
        self.label = label
        self.width = max(console.width - label, NARROWEST)

    def row(self, label: str, lines: str | Iterable[str], style: str = "", *, hang: int = 0) -> None:
        """A label and its value; wrapped lines stay in the value's column, `hang` cells further in.

        A label that is too long for its column stands on a line of its own.
        """
        if len(label) >= self.label:
            self._print(Text(label, style="bold"))
            label = ""
        head = Text(label.ljust(self.label), style="bold")
        for line in [lines] if isinstance(lines, str) else lines:
            for piece in self._wrapped(line, self.width, hang):
                self._print(head + Text(piece, style=style))
                head = Text(" " * self.label)

    def text(self, line: str, style: str = "") -> None:
        """A line of its own, over the whole width."""
        for piece in self._wrapped(line, self.console.width, 0):
            self._print(Text(piece, style=style))

    def blank(self) -> None:
        """An empty line between two blocks."""
        self.console.print()

    def _wrapped(self, line: str, width: int, hang: int) -> list[str]:
        """The line, or its pieces; they keep its own indentation."""
        text = self._plain(line)
        if cell_len(text) <= width:
            return [text]
        start = len(text) - len(text.lstrip())
        room = max(width - start - hang, 1)
        first, *rest = Text(text[start:]).wrap(self.console, room, overflow="fold")
        return [
            " " * start + first.plain.rstrip(),
            *(" " * (start + hang) + piece.plain.rstrip() for piece in rest),
        ]

    def _plain(self, line: str) -> str:
        """Nothing that the terminal would obey, and only what its encoding can show."""
        safe = "".join(c if c.isprintable() else "?" for c in line)
        if not self.console.options.ascii_only:
            return safe
        return safe.translate(PLAIN).encode("ascii", "replace").decode()

    def _print(self, text: Text) -> None:
        text.rstrip()
        self.console.print(text, soft_wrap=True, highlight=False)


def aligned(heads: Sequence[str], columns: Sequence[Sequence[str]], left: frozenset[int] = frozenset()) -> list[str]:
    """A table as lines: numbers to the right, the columns whose place is in `left` to the left."""
    texts = [[head, *map(clean, column)] for head, column in zip(heads, columns, strict=True)]
    widths = [max(map(cell_len, column)) for column in texts]
    lines = []
    for cells in zip(*texts, strict=True):
        padded = [
            cell + " " * (width - cell_len(cell)) if i in left else " " * (width - cell_len(cell)) + cell
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return lines
