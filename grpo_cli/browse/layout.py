"""Texts as lines of a page: wrapped, without control characters, and with differences marked."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import accumulate, pairwise, zip_longest
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size

from grpo_cli.errors import printable
from grpo_cli.read.texts import Passage
from grpo_cli.render.text import clean, count
from grpo_cli.values.chat import is_model

ENDS: Final = 2_000  # characters shown at either end of a long text at first
WHOLE: Final = 1_000_000  # characters shown at either end when the whole text is asked for
LEAST: Final = 500  # a cut leaves out at least this many characters; as many are shown around a hit
COMPARED: Final = 4_000  # longer texts are compared by lines, not by words
TAB: Final = 4  # spaces that a tab is shown as

Style = str  # how a piece of a line looks, a name in `widgets.STYLES`
# What Markdown marks: code, headings, strong words. The marks stay, since the model wrote them.
_MARKDOWN: Final = re.compile(
    r"(?P<code>^```.*?(?:^```\s*?$|\Z)|`[^`\n]+`)|(?P<strong>^#{1,6} .*?$|\*\*[^*\n]+\*\*)", re.DOTALL | re.MULTILINE
)


class Piece(NamedTuple):
    """A stretch of a line in one style."""

    text: str
    style: Style = ""


Line = tuple[Piece, ...]
Span = tuple[int, int, Style]
Spans = Sequence[Span]


class Laid(NamedTuple):
    """Lines of a page, and the first line of each passage."""

    lines: list[Line]
    heads: list[int]


def page(
    passages: Sequence[Passage], width: int, *, whole: bool = False, needle: str = "", folded: Collection[int] = ()
) -> Laid:
    """The passages below each other, each under its speaker, with the hits of a search marked; of folded ones only a line."""
    lines, heads = list[Line](), list[int]()
    for number, passage in enumerate(passages):
        heads.append(len(lines))
        if number in folded:
            lines.append(_folded(passage, width))
            continue
        lines.append(_head(passage.speaker, width))
        if not passage.text:
            lines += _cut([Piece("(empty)", "note")], width)
            continue
        at = 0
        for start, end in _kept(passage.text, WHOLE if whole else ENDS, needle):
            if start > at:
                shows = "" if whole else ", t shows them"
                left = f"... {count(start - at, 'character')} left out{shows} ..."
                lines += _cut([Piece(left, "note")], width)
            text = passage.text[start:end].replace("\r\n", "\n")
            lines += wrapped(text, width, hits(text, needle) if needle else marked(text))
            at = end
    return Laid(lines, heads)


def _kept(text: str, ends: int, needle: str) -> list[tuple[int, int]]:
    """The stretches of a text that are shown: all of it, or its two ends and what is around the first hit between them."""
    if len(text) <= 2 * ends + LEAST:
        return [(0, len(text))]
    kept = [(0, ends), (len(text) - ends, len(text))]
    first = re.search(re.escape(needle), text, re.IGNORECASE) if needle else None
    if first is not None and first.end() > ends and first.start() < len(text) - ends:
        start, end = max(first.start() - LEAST, ends), min(first.end() + LEAST, len(text) - ends)
        kept.insert(1, (start, end))
    return kept


def beside(left: Sequence[Passage], right: Sequence[Passage], width: int) -> list[Line]:
    """Two rollouts in two columns, passage by passage, with the words that differ marked."""
    room = (width - 3) // 2
    lines: list[Line] = []
    for pair in zip_longest(left, right, fillvalue=Passage("", "")):
        texts = [passage.text.replace("\r\n", "\n") for passage in pair]
        columns = [
            [_head(passage.speaker, room), *wrapped(text, room, spans)] if passage.speaker else []
            for passage, text, spans in zip(pair, texts, differing(*texts), strict=True)
        ]
        for cells in zip_longest(*columns, fillvalue=()):
            marked = any(piece.style == "differs" for cell in cells for piece in cell)
            gap = " " * (room - sum(cell_len(piece.text) for piece in cells[0]))
            lines.append((*cells[0], Piece(gap), Piece(" ≠ " if marked else " │ ", "note"), *cells[1]))
    return lines


def differing(left: str, right: str) -> tuple[Spans, Spans]:
    """Where two texts differ: in words, or in lines if they are long."""
    pattern = r"\S+|\s+" if max(len(left.split()), len(right.split())) <= COMPARED else r"[^\n]*\n|[^\n]+"
    words = re.findall(pattern, left), re.findall(pattern, right)
    starts = [[0, *accumulate(map(len, some))] for some in words]
    found: tuple[list[Span], list[Span]] = ([], [])
    for kind, *places in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        for side, (start, end) in enumerate((places[:2], places[2:])):
            if kind != "equal" and start < end:
                found[side].append((starts[side][start], starts[side][end], "differs"))
    return found


def hits(text: str, needle: str) -> Spans:
    """Where a text has the needle, ignoring case."""
    return [(*match.span(), "hit") for match in re.finditer(re.escape(needle), text, re.IGNORECASE)]


def marked(text: str) -> Spans:
    """Where a text has code, a heading or strong words in Markdown."""
    return [(*match.span(), match.lastgroup or "") for match in _MARKDOWN.finditer(text)]


def wrapped(text: str, width: int, spans: Spans = ()) -> Iterator[Line]:
    """A text in lines of at most `width` cells, the spans in their styles."""
    line = list[Piece]()
    for piece in _pieces(text, spans):
        first, *others = piece.text.split("\n")
        line.append(Piece(first, piece.style))
        for other in others:
            yield from _cut(line, width)
            line = [Piece(other, piece.style)]
    yield from _cut(line, width)


def _pieces(text: str, spans: Spans) -> Iterator[Piece]:
    at = 0
    for start, end, style in spans:
        yield Piece(text[at:start])
        yield Piece(text[start:end], style)
        at = end
    yield Piece(text[at:])


def _cut(line: Sequence[Piece], width: int) -> Iterator[Line]:
    """The pieces of a line, cut where a cell or a word ends."""
    pieces = [Piece(_shown(piece.text), piece.style) for piece in line]
    text = "".join(piece.text for piece in pieces)
    if not text:
        yield ()
    bounds = [0, *accumulate(len(piece.text) for piece in pieces)]
    for start, end in _breaks(text, width):
        inside = (
            Piece(text[max(start, low) : min(end, high)], piece.style)
            for piece, (low, high) in zip(pieces, pairwise(bounds), strict=True)
        )
        yield tuple(piece for piece in inside if piece.text)


def _breaks(text: str, width: int) -> Iterator[tuple[int, int]]:
    """Where the lines of a text begin and end: after a space unless that would leave a very short line."""
    start = 0
    while start < len(text):
        end = min(start + width, len(text))
        while end > start + 1 and (over := cell_len(text[start:end]) - width) > 0:
            end -= max(1, over // 2)
        if end < len(text):
            space = text.rfind(" ", start + width // 4, end)
            end = space + 1 if space > 0 else end
        yield start, end
        start = end


def _shown(text: str) -> str:
    """A text with its control characters escaped."""
    return text if text.isprintable() else printable(text.replace("\t", " " * TAB))


def _head(speaker: str, width: int) -> Line:
    return (Piece(set_cell_size(f"── {_shown(speaker)} {'─' * width}", width), _style_of(speaker)),)


def _folded(passage: Passage, width: int) -> Line:
    size = count(len(passage.text), "character")
    head = Piece(f"▸─ {_shown(passage.speaker)} ", _style_of(passage.speaker))
    rest = max(width - cell_len(head.text), 0)
    return head, Piece(set_cell_size(f"{size}: {clean(passage.text[:width])}", rest), "dim")


def _style_of(speaker: str) -> Style:
    """The model's turns differ from those of all others."""
    return "model" if is_model(re.split("[ ,]", speaker)[0]) else "other"
