"""Text on a terminal: numbers, names and lists, labelled lines, tables and histograms."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from grpo_cli.errors import StepsApart, printable
from grpo_cli.values.key_text import cut

if TYPE_CHECKING:  # it loads polars, which listings do without
    from grpo_cli.stats.facts import GroupSizes

Column = tuple[str, Sequence[str]]  # the head of a column of a table, and its cells
Sections = Iterator[tuple[str, list[str]]]  # labels with their lines

# A value below this share of the largest number beside it is a rounding error, shown as 0.
ROUNDING = 1e-12
LISTED = 3  # items of a list that are named
UNITS = 1e15  # larger numbers are shown with an exponent: a float does not have all of their digits
SMALLEST = 1e-3  # smaller numbers need more than four decimals
LARGEST = 1e4  # larger numbers need fewer than four decimals
MINUTE = 60  # seconds
MARKDOWN_DIGITS = 6  # of a number in a Markdown table
HALF = 0.5  # height of the blocks if all values are equal
# What a screen calls a status, where files and JSON have another name.
STATUSES_SAID: Final[Mapping[str, str]] = {
    "zero-variance": "no gradient", "unscorable": "no reward", "small-group": "small group", "left-out": "left out",
    "not-a-rollout": "no rollout",
}  # fmt: skip
SHORTEST = 12  # a text beside its numbers is at least this many characters wide


def number(value: float | None, scale: float = 0.0, digits: int = 4) -> str:
    """Four significant digits (or as many as `digits` says) and thousands separators; 0 for what is rounding beside `scale`.

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
    """A constant with all of its digits."""
    if isinstance(value, float):
        return f"{value:.12g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def column(values: Sequence[float | None], scale: float = 0.0) -> list[str]:
    """Numbers of one column with the same number of decimals, as few as they need, where their sizes allow it.

    >>> column([78.75, 80.0]), column([0.5, 1 / 3])
    (['78.75', '80.00'], ['0.5000', '0.3333'])
    """
    finite = [abs(v) for v in values if v is not None and math.isfinite(v)]
    top = max([scale, *finite])
    sizes = [v for v in finite if v > ROUNDING * top]
    whole = all(v == int(v) for v in sizes)
    if whole or min(sizes) < SMALLEST or top >= LARGEST:
        return [number(v, top) for v in values]
    most = 4 if top < 10 else max(4 - len(f"{top:.0f}"), 0)  # noqa: PLR2004 - four significant digits
    decimals = min(most, 1)
    while decimals < most and any(round(v, decimals) != round(v, 6) for v in sizes):
        decimals += 1
    return [f"{v:z.{decimals}f}" if v is not None and math.isfinite(v) else number(v) for v in values]


def count(size: int, noun: str) -> str:
    """`1 group`, `3,000 groups`."""
    return f"{size:,} {noun}" if size == 1 else f"{size:,} {noun}s"


def group_size(sizes: GroupSizes, unit: str) -> str:
    """`group size 8`, or `group size 1 to 8, median 4.5`; with the unit if it is no row."""
    units = " rollouts" if unit == "rollout" else ""
    if sizes.min == sizes.max:
        return f"group size {sizes.max:,}{units}"
    return f"group size {sizes.min:,} to {sizes.max:,}{units}, median {number(sizes.median)}"


def status_words(status: str) -> str:
    """What a screen calls a status: `no gradient` is `zero-variance` in files and in JSON."""
    return STATUSES_SAID.get(status, status)


def row_count(rows: int, rollouts: int) -> str:
    """`1,000`, or `500 rollouts in 1,000 rows`."""
    return f"{rows:,}" if rows == rollouts else f"{count(rollouts, 'rollout')} in {count(rows, 'row')}"


def clean(text: str) -> str:
    """The text on one line, without control characters."""
    return printable(" ".join(text.split()))


def marked(name: str, origin: str) -> str:
    """A name, and where it comes from unless it is built in."""
    return f"{name} (from {clean(origin)})" if origin else name


def listing(items: Iterable[str], shown: int = LISTED) -> str:
    """The first few, and how many more there are."""
    texts = list(items)
    more = f", ... {len(texts) - shown:,} more" if len(texts) > shown else ""
    return ", ".join(texts[:shown]) + more


def file_list(names: Sequence[str]) -> str:
    """`2 files: a.jsonl, b.jsonl`: the first few files, and how many there are if there are several."""
    standard = {"-": "standard input", "stdout": "standard output"}
    listed = listing(standard.get(name, clean(name)) for name in names)
    return f"{count(len(names), 'file')}: {listed}" if len(names) > 1 else listed


def duration(seconds: float) -> str:
    """`0.021 s`, `12.3 s`, `2 min 05 s`."""
    if seconds < MINUTE:
        return f"{seconds:.3f} s" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), MINUTE)
    return f"{minutes} min {rest:02d} s"


# --- labelled lines and tables -----------------------------------------------------------------------------

LABEL = 15
HANG = 2  # indent of the continuation lines of a value
# A value column narrower than this is harder to read than a line that is too long.
NARROWEST = 20
BLOCKS = "▁▂▃▄▅▆▇█"
# As in `browse`: what matters stands out, what is drawn does not.
# Names of two words that have a colour: on two lines they would lose it.
NAMES = ("never solved", "always solved")
JOINED = "\ue000"  # in place of their space while a line is broken: for private use, and as wide
COLOURS = {rf"[{BLOCKS}]+": "dim", r"\bnever solved|\b0, never": "red", r"\balways solved|\b1, always": "green"}
DECIDES = r"(?<![\w.])\d[\d.,]*\d%?|(?<![\w.])\d%?"  # the numbers of a verdict
ASCII_BLOCKS = str.maketrans(dict(zip(f"{BLOCKS}…", [*"._-=+*%#", "..."], strict=True)))


class Sheet:
    """Prints labelled lines on one console."""

    def __init__(self, console: Console, label: int = LABEL) -> None:
        self.console = console
        console.size = console.size  # asked for once, not for each line
        self.is_ascii = console.options.ascii_only
        self.label = label
        self.width = max(console.width - label, NARROWEST)
        self.between = False  # whether an empty line comes first
        self._styled = console.color_system is not None
        self._waiting: list[Text] | None = None  # lines that are printed at once

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Print what comes in it as one: for a thousand parts, a call for each line takes most of the time."""
        lines: list[Text] = []
        self._waiting = lines
        try:
            yield
        finally:
            self._waiting = None
            if lines:
                joined = Text("\n").join(lines) if self._styled else Text("\n".join(line.plain for line in lines))
                self.console.print(joined, soft_wrap=True, highlight=False)

    def row(self, label: str, lines: str | Iterable[str], style: str = "") -> None:
        """A label and its value; wrapped lines stay in the value's column, indented.

        A label that is too long for its column gets a line of its own.
        """
        label = printable(label)
        if len(label) >= self.label:
            self._print(Text(label, style="bold"))
            label = ""
        head = (label.ljust(self.label), "bold")
        for line in [lines] if isinstance(lines, str) else lines:
            for piece in self._wrap(line, self.width):
                if not self._styled:
                    self._print(Text(f"{head[0]}{piece}"))
                    head = (" " * self.label, "")
                    continue
                value = Text(piece, style=style)
                for pattern, colour in COLOURS.items():
                    value.highlight_regex(pattern, colour)
                if label == "verdict":
                    value.highlight_regex(DECIDES, "bold")
                self._print(Text.assemble(head, value))
                head = (" " * self.label, "")

    def height(self, sections: Iterable[tuple[str, Iterable[str]]]) -> int:
        """How many lines `rows` prints for these; their labels fit."""
        return sum(len(self._wrap(line, self.width)) for _, lines in sections for line in lines)

    def rows(self, sections: Iterable[tuple[str, str | Iterable[str]]]) -> None:
        """Labels with their values; those without a value are left out."""
        for label, lines in sections:
            if lines:
                self.row(label, lines)

    def warnings(self, warnings: Iterable[str]) -> None:
        """A row for each."""
        warned = [warning for warning in warnings if not isinstance(warning, StepsApart)]
        if warned:
            self.blank()
        for warning in warned:
            self.row("warning:", clean(warning), "yellow")

    def steps(self, warnings: Iterable[str]) -> None:
        """A row for each warning that steps are shown apart, which come first."""
        apart = [clean(warning) for warning in warnings if isinstance(warning, StepsApart)]
        if apart:
            self.row("steps", apart, "yellow")
            self.blank()

    def part(self, by: str, value: str) -> None:
        """The head of a part of the rows, see --plan-by."""
        self.row("part", clean(f"{by} = {value}"), "bold")

    def text(self, line: str, style: str = "") -> None:
        """A line of its own, over the whole width."""
        for piece in self._wrap(line, self.console.width, 0):
            self._print(Text(piece, style=style))

    def command(self, label: str, line: str) -> None:
        """A command to copy, dim, continued over lines as in a shell."""
        lines = [label]
        for word in map(shlex.quote, shlex.split(line)):
            if cell_len(f"{lines[-1]} {word} \\") <= self.console.width:
                lines[-1] += f" {word}"
            else:
                lines[-1] += " \\"
                lines.append(f"  {word}")
        for printed in lines:
            self._print(Text(printed, "dim"))

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Rows under their heads, the first column and texts to the left; an empty line follows."""
        columns = [(head, [row[i] for row in rows]) for i, head in enumerate(heads)]
        for i, line in enumerate(aligned(columns, (heads[0], "text"))):
            self.text(line, "" if i else "dim")
        self.blank()

    def blank(self) -> None:
        """An empty line before what comes next."""
        self.between = True

    def _wrap(self, line: str, width: int, hang: int = HANG) -> list[str]:
        """The line, or its pieces; they keep its own indentation.

        Without control characters, and with only what the terminal's encoding can show.
        """
        text = printable(line)
        if self.is_ascii:
            known = self.console.encoding
            text = text.translate(ASCII_BLOCKS).encode(known, "backslashreplace").decode(known)
        if cell_len(text) <= width:
            return [text]
        start = len(text) - len(text.lstrip())
        room = max(width - start - hang, 1)
        lines = []
        indent = start
        together = text
        if JOINED not in text:  # else it would become a space
            for name in NAMES:
                together = together.replace(name, name.replace(" ", JOINED))
        for piece in Text(together[start:]).wrap(self.console, room, overflow="fold"):
            plain = piece.plain if together is text else piece.plain.replace(JOINED, " ")
            lines.append(" " * indent + plain.rstrip())
            indent = start + hang
        return lines

    def _print(self, text: Text) -> None:
        lines = [Text(), text] if self.between else [text]
        self.between = False
        text.rstrip()
        if self._waiting is not None:
            self._waiting += lines
            return
        for line in lines:
            self.console.print(line, soft_wrap=True, highlight=False)


def aligned(columns: Iterable[Column], left: Collection[str] = ("text",)) -> list[str]:
    """A table as lines: numbers to the right, the columns with these heads to the left."""
    padded = []
    for head, cells in columns:
        texts = [head, *map(clean, cells)]
        width = max(map(cell_len, texts))
        in_column = []
        for text in texts:
            gap = " " * (width - cell_len(text))
            in_column.append(text + gap if head in left else gap + text)
        padded.append(in_column)
    return ["  ".join(line).rstrip() for line in zip(*padded, strict=True)]


def column_of_texts(texts: Sequence[str | None], beside: Sequence[Column], width: int | None) -> list[Column]:
    """A column of texts, cut to what the others leave of the width; none if all are empty."""
    shown = [clean(text or "") for text in texts]
    if width is not None:
        used = [max(map(cell_len, [head, *cells])) + 2 for head, cells in beside]
        room = max(width - sum(used), SHORTEST)
        shown = [cut(text, room) for text in shown]
    return [("text", shown)] if any(shown) else []


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Collection[str] = ()) -> str:
    """A Markdown table, in which texts of the data are no HTML; the columns of numbers are right-aligned."""
    rules = ["--:" if head in numbers else "---" for head in heads]
    lines = []
    for cells in (heads, rules, *rows):
        shown = " | ".join(map(_markdown_cell, cells))
        lines.append(f"| {shown} |\n")
    return "".join(lines)


def _markdown_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return number(value, digits=MARKDOWN_DIGITS)
    from html import escape

    return escape(clean(str(value)), quote=False).replace("|", "\\|")


def text_outcomes(outcomes: Mapping[str, float | None]) -> list[str]:
    """The rewards of text values; nothing without --map."""
    pairs = []
    for text, value in outcomes.items():
        reward = "missing" if value is None else exact(value)
        pairs.append(f"{clean(text)} = {reward}")
    return [f"text values: {', '.join(pairs)}"] if pairs else []


def rescaled(worst: float | None, best: float | None) -> str:
    """What a solve rate measures where rewards are not within 0..1."""
    return f"scaled from {number(worst)} (0) to {number(best)} (1)"


# --- histograms --------------------------------------------------------------------------------------------

LONGEST = 30  # characters of the bar of the largest count


def bar_lines(names: Sequence[str], counts: Sequence[int], *, left: bool = False) -> list[str]:
    """A line for each name, with its count and a bar; names are right-aligned, or left-aligned."""
    sizes = [f"{count:,}" for count in counts]
    wide = max(map(len, names))
    wide_size = max(map(len, sizes))
    top = max(counts)
    side = "<" if left else ">"
    lines = []
    for name, size, count in zip(names, sizes, counts, strict=True):
        bar = BLOCKS[-1] * _height(count, top, LONGEST)
        lines.append(f"{name:{side}{wide}}  {size:>{wide_size}}  {bar}")
    return lines


def blocks(counts: Sequence[int]) -> str:
    """A block for each count, as high as the count; a space for 0."""
    top = max(counts)
    levels = f" {BLOCKS}"
    return "".join(levels[_height(count, top, len(BLOCKS))] for count in counts)


def strip(
    values: Sequence[float | None], width: int, ends: tuple[float, float] | None = None, missing: str = " "
) -> str:
    """A block for each value (or for the mean of a few), scaled from the lowest to the highest, or to `ends`."""
    step = max(1, -(-len(values) // width))
    means = []
    for start in range(0, len(values), step):
        part = [value for value in values[start : start + step] if value is not None]
        means.append(sum(part) / len(part) if part else None)
    known = [mean for mean in means if mean is not None]
    low, high = ends or (min(known), max(known))
    highest = len(BLOCKS) - 2  # not the full block: strips that stand below each other would be one slab
    drawn = ""
    for mean in means:
        if mean is None:
            drawn += missing
            continue
        height = (mean - low) / (high - low) if high > low else HALF
        level = min(max(height, 0), 1) * highest
        drawn += BLOCKS[round(level)]
    return drawn


def _height(count: int, top: int, most: int) -> int:
    """The height of a bar of at most `most`; at least 1 unless the count is 0."""
    return max(1, round(count / top * most)) if count else 0
