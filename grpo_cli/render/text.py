"""A histogram in a few lines of text: a bar for each value where they are few, else one line of blocks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console


# Below this share of the largest number beside it, a value is what rounding left of 0.
ROUNDING: Final = 1e-12
LISTED: Final = 3
# Beyond this a float has no units; where four decimals are too few or too many; what one decimal of a percent can say.
UNITS: Final = 1e15
SMALLEST: Final = 1e-3
LARGEST: Final = 1e4
LEAST: Final = 1e-3
MINUTE: Final = 60
ELLIPSIS: Final = "..."


def number(value: float | None, scale: float = 0.0, digits: int = 4) -> str:
    """Four significant digits (or as many as asked for) and thousands separators; 0 for what is rounding beside `scale`.

    >>> number(0.1 + 0.2), number(-1.4e-17, scale=1.0), number(1234567.0), number(None)
    ('0.3', '0', '1,234,567', '-')
    """
    if value is None:
        return "-"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{value:g}"
    size = abs(value)
    if size <= ROUNDING * scale:
        return "0"
    rounded = float(f"{size:.{digits}g}")
    whole = 10 ** (digits - 1) <= rounded < UNITS
    return f"{value:,.0f}" if whole else f"{value:.{digits}g}"


def exact(value: Any) -> str:
    """A constant with all the digits that it was given with."""
    if isinstance(value, float):
        return f"{value:.12g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def column(values: Sequence[float | None], scale: float = 0.0) -> list[str]:
    """Numbers of one column with the same number of decimals, where their sizes allow it."""
    finite = [abs(v) for v in values if v is not None and math.isfinite(v)]
    top = max([scale, *finite])
    telling = [v for v in finite if v > ROUNDING * top]
    fraction = any(v != int(v) for v in telling)
    if not fraction or min(telling) < SMALLEST or top >= LARGEST:
        return [number(v, top) for v in values]
    return [_decimals(v) if v is not None and math.isfinite(v) else number(v) for v in values]


def _decimals(value: float) -> str:
    return f"{value:.4f}".replace("-0.0000", "0.0000")


def count(size: int, noun: str) -> str:
    """`1 group`, `3,000 groups`."""
    return f"{size:,} {noun}" if size == 1 else f"{size:,} {noun}s"


def percent(share: float) -> str:
    """A share, never rounded to nothing or to everything.

    >>> percent(0.25), percent(1 / 3), percent(1e-5), percent(0.99999), percent(1.0)
    ('25%', '33.3%', '<0.1%', '>99.9%', '100%')
    """
    if 0 < share < LEAST:
        return "<0.1%"
    if 1 - LEAST < share < 1:
        return ">99.9%"
    return f"{100 * share:.1f}".removesuffix(".0") + "%"


def clean(text: str) -> str:
    """Data on one line, without anything that a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def cut(text: str, width: int) -> str:
    """Take out the middle of a long text: keys often differ at their ends.

    >>> cut("what is the sum of 17 and 25", 15)
    'what i...and 25'
    """
    if cell_len(text) <= width:
        return text
    room = width - len(ELLIPSIS)
    return _fitting(text, room - room // 2) + ELLIPSIS + _fitting(text[::-1], room // 2)[::-1]


def _fitting(text: str, width: int) -> str:
    """As many leading characters as fit into `width` cells."""
    used = 0
    for i, character in enumerate(text):
        used += cell_len(character)
        if used > width:
            return text[:i]
    return text


def listing(items: Iterable[str], shown: int = LISTED) -> str:
    """The first few, and how many more there are."""
    texts = list(items)
    more = f", {ELLIPSIS} {len(texts) - shown:,} more" if len(texts) > shown else ""
    return ", ".join(texts[:shown]) + more


def duration(seconds: float) -> str:
    """`0.021 s`, `12.3 s`, `2 min 05 s`."""
    if seconds < MINUTE:
        return f"{seconds:.3f} s" if seconds < 1 else f"{seconds:.1f} s"
    return f"{int(seconds) // MINUTE} min {int(seconds) % MINUTE:02d} s"


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


BARS: Final = 6
LONGEST: Final = 30


def bars(histogram: Mapping[str, Any] | None) -> list[str]:
    """The lines for a histogram of `facts.distribution`."""
    if histogram is None:
        return []
    if "edges" in histogram:
        low, high = number(histogram["edges"][0]), number(histogram["edges"][-1])
        return [f"{low} |{blocks(histogram['counts'])}| {high}"]
    if len(histogram["values"]) <= BARS:
        return _listed(histogram["values"], histogram["counts"])
    low, high = number(histogram["values"][0]), number(histogram["values"][-1])
    return [f"{low} |{blocks(histogram['counts'])}| {high}   one bar for each of {len(histogram['values'])} values"]


def blocks(counts: Sequence[int]) -> str:
    """One character each, as high as the count: a space for none, at least the lowest block for any."""
    top = max(counts)
    return "".join(BLOCKS[_height(count, top, len(BLOCKS)) - 1] if count else " " for count in counts)


def _listed(values: Sequence[float], counts: Sequence[int]) -> list[str]:
    names, sizes = [number(value) for value in values], [f"{count:,}" for count in counts]
    wide, high = max(map(len, names)), max(map(len, sizes))
    return [
        f"{name:>{wide}}  {size:>{high}}  {BLOCKS[-1] * _height(count, max(counts), LONGEST)}"
        for name, size, count in zip(names, sizes, counts, strict=True)
    ]


def _height(count: int, top: int, most: int) -> int:
    return max(1, round(count / top * most))
