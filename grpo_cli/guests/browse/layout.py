"""Texts as lines of a page: wrapped, without control characters, and with differences marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import accumulate, zip_longest

from rich.cells import cell_len, set_cell_size
from rich.text import Span, Text

from grpo_cli.errors import printable
from grpo_cli.read.texts import Passage
from grpo_cli.render.text import clean, count
from grpo_cli.values.chat import is_model

ENDS = 2_000  # characters shown at either end of a long text at first
WHOLE = 1_000_000  # characters shown at either end when the whole text is asked for
LEAST = 500  # a cut leaves out at least this many characters; as many are shown around a hit
COMPARED = 4_000  # longer texts are compared by lines, not by words
TAB = 4  # spaces that a tab is shown as
_JOINED = re.compile("(?<=[\u2600-\u27bf\ufe0f\U0001f300-\U0001faff])\u200d(?=[\u2600-\u27bf\U0001f300-\U0001faff])")

# What Markdown marks, by the name of its style: code, headings, strong words. The marks stay, since the model wrote them.
_MARKDOWN = re.compile(
    r"(?P<code>^```.*?(?:^```\s*?$|\Z)|`[^`\n]+`)|(?P<strong>^#{1,6} .*?$|\*\*[^*\n]+\*\*)", re.DOTALL | re.MULTILINE
)


def page(
    passages: Sequence[Passage], width: int, *, whole: bool = False, needle: str = "", folded: bool = False
) -> list[Text]:
    """The passages below each other, each under its speaker, with the hits of a search marked; of folded ones only a line."""
    lines = list[Text]()
    for number, passage in enumerate(passages, 1):
        if folded and number < len(passages):
            lines.append(_folded(passage, width))
            continue
        lines.append(_head(passage.speaker, width))
        if not passage.text:
            lines += wrapped(Text.styled("(empty)", "note"), width)
            continue
        at = 0
        for start, end in _kept(passage.text, WHOLE if whole else ENDS, needle):
            if start > at:
                shows = "" if whole else ", t shows them"
                left = f"... {count(start - at, 'character')} left out{shows} ..."
                lines += wrapped(Text.styled(left, "note"), width)
            text = Text(shown(passage.text[start:end]))
            if needle:
                text.highlight_words([needle], "hit", case_sensitive=False)
            else:
                text.highlight_regex(_MARKDOWN)
            lines += wrapped(text, width)
            at = end
    return lines


def _kept(text: str, ends: int, needle: str) -> list[tuple[int, int]]:
    """The stretches of a text that are shown: all of it, or its two ends and what is around the first hit between them."""
    if len(text) <= 2 * ends + LEAST:
        return [(0, len(text))]
    kept = [(0, ends), (len(text) - ends, len(text))]
    first = re.search(re.escape(needle), text, re.IGNORECASE) if needle else None
    tail = len(text) - ends
    if first is not None and first.end() > ends and first.start() < tail:
        start = max(first.start() - LEAST, ends)
        end = min(first.end() + LEAST, tail)
        kept.insert(1, (start, end))
    return kept


def beside(left: Sequence[Passage], right: Sequence[Passage], width: int) -> list[Text]:
    """Two rollouts in two columns, passage by passage, with the words that differ marked."""
    room = (width - 3) // 2
    lines = []
    for pair in zip_longest(left, right, fillvalue=Passage("", "")):
        texts = [shown(passage.text) for passage in pair]
        columns: list[list[Text]] = []
        for passage, text, spans in zip(pair, texts, differing(*texts), strict=True):
            columns.append([])
            if passage.speaker:
                columns[-1] += [_head(passage.speaker, room), *wrapped(Text(text, spans=spans), room)]
        for line, other in zip_longest(*columns, fillvalue=Text()):
            differs = has(line, "differs") or has(other, "differs")
            gap = " " * (room - line.cell_len)
            lines.append(Text.assemble(line, gap, (" ≠ " if differs else " │ ", "note"), other))
    return lines


def differing(left: str, right: str) -> tuple[list[Span], list[Span]]:
    """Where two texts differ: in words, or in lines if they are long."""
    longest = max(len(left.split()), len(right.split()))
    pattern = r"\S+|\s+" if longest <= COMPARED else r"[^\n]*\n|[^\n]+"
    words = re.findall(pattern, left), re.findall(pattern, right)
    starts = [[0, *accumulate(map(len, some))] for some in words]
    differences: tuple[list[Span], list[Span]] = ([], [])
    for kind, *places in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        for side, (start, end) in enumerate((places[:2], places[2:])):
            if kind != "equal" and start < end:
                differences[side].append(Span(starts[side][start], starts[side][end], "differs"))
    return differences


def has(line: Text, style: str) -> bool:
    """Whether a part of a line has a style."""
    return any(span.style == style for span in line.spans)


def wrapped(text: Text, width: int) -> Iterator[Text]:
    """A text in lines of at most `width` cells."""
    for line in text.split("\n", allow_blank=True):
        breaks = [*_breaks(line.plain, width)]
        yield from line.divide(breaks) if breaks else [line]


def _breaks(text: str, width: int) -> Iterator[int]:
    """Where a line is cut: after a space unless that would leave a very short line."""
    start = 0
    while len(text) > start:
        end = min(start + width, len(text))
        while end > start + 1 and (over := cell_len(text[start:end]) - width) > 0:
            end -= max(1, over // 2)
        if end < len(text):
            space = text.rfind(" ", start + width // 4, end)
            end = space + 1 if space > 0 else end
            yield end
        start = end


def shown(text: str) -> str:
    """The lines of a text, with control characters escaped."""
    text, tab = text.replace("\r\n", "\n"), " " * TAB
    lines = []
    for line in text.split("\n"):
        # What joins two emoji to one moves nothing on a screen.
        parts = _JOINED.split(line)
        lines.append(
            "\u200d".join(part if part.isprintable() else printable(part.replace("\t", tab)) for part in parts)
        )
    return "\n".join(lines)


def _head(speaker: str, width: int) -> Text:
    line = f"── {printable(speaker)} {'─' * width}"
    return Text.styled(set_cell_size(line, width), _style_of(speaker))


def _folded(passage: Passage, width: int) -> Text:
    size = count(len(passage.text), "character")
    head = f"▸─ {printable(passage.speaker)} "
    start = clean(passage.text[:width])
    rest = set_cell_size(f"{size}: {start}", max(width - cell_len(head), 0))
    return Text.assemble((head, _style_of(passage.speaker)), (rest, "dim"))


def _style_of(speaker: str) -> str:
    """The model's turns differ from those of all others."""
    who = speaker.rpartition(": ")[2]  # after the name of a field
    return "model" if is_model(re.split("[ ,]", who)[0]) else "other"
