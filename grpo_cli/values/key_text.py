"""Keys as text on one line, and short labels that tell them apart."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from grpo_cli.errors import printable

LONGEST = 1_000  # characters of a key that are looked at from either end
MARK = "…"
NARROWEST = 8  # a label is given at least this much room
# Marks of a chat template with the name of the speaker: <|im_start|>user, <start_of_turn>user, [INST], <<SYS>>, <s>.
_TEMPLATE = re.compile(
    r"<\|[^|<>]{1,40}\|>(?:(?:system|user|assistant)\b)?|</?(?:start|end)_of_turn>(?:(?:user|model)\b)?"
    r"|<\uff5c[^<>]{1,40}\uff5c>|\[/?INST\]|<</?SYS>>|</?s>|<bos>|<eos>"
)


def labels_of(keys: Sequence[str], width: int) -> list[str]:
    """The labels of the keys of one list: what they share is left out where they do not fit, and what differs is shown."""
    texts = [plain(key) for key in keys]
    if max(map(cells, texts), default=0) > width:
        start, end = shared(texts)
        texts = [without(text, start, end) for text in texts]
    return told_apart(texts, max(width, NARROWEST))


def without(text: str, start: str, end: str) -> str:
    """The text without what all share; all of it where nothing else would be left."""
    if not (text.startswith(start) and text.endswith(end)):
        return text
    return text[len(start) : len(text) - len(end)].strip() or text


def plain(key: str) -> str:
    """A key as a text on one line: of messages what they say, without the marks of a template."""
    if key.startswith(("[{", "{")):
        try:
            said = [text for text in _said(json.loads(key)) if text]
        except ValueError:
            said = []
        key = " ".join(said) if said else key
    if len(key) > 2 * LONGEST:
        key = f"{key[:LONGEST]} {MARK} {key[-LONGEST:]}"
    return printable(" ".join(_TEMPLATE.sub(" ", key).split()))


def _said(value: Any) -> Iterator[str]:
    """The texts of messages, which have a speaker and a content."""
    for message in value if isinstance(value, list) else [value]:
        content = message.get("content", message.get("value")) if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else [content]:
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                yield text


def shared(texts: Sequence[str]) -> tuple[str, str]:
    """The beginning and the end that all texts share, in whole words."""
    if len({*texts}) < 2:  # noqa: PLR2004 - a single text shares nothing
        return "", ""
    start = _beginning(texts)
    word_end = max(start.rfind(mark) for mark in " -_/:,.")
    start = start[: word_end + 1]
    rest = [text[len(start) :][::-1] for text in texts]
    end = _beginning(rest)[::-1]
    return start, end[end.find(" ") :] if " " in end else ""


def _beginning(texts: Sequence[str]) -> str:
    """The letters that all texts begin with."""
    return os.path.commonprefix(texts)  # noqa: RUF071 - of letters, not of folders


def told_apart(texts: Sequence[str], width: int) -> list[str]:
    """Each text in at most `width` cells; where the ends of two are the same, the place where they differ."""
    labels = [cut(text, width) for text in texts]
    places = sorted(range(len(texts)), key=lambda at: labels[at])
    for _, same in groupby(places, key=lambda at: labels[at]):
        places_here = list(same)
        several = sorted({texts[at] for at in places_here})
        if len(several) == 1:
            continue
        for at in places_here:
            labels[at] = _around(texts[at], _first_difference(texts[at], several), width)
    return labels


def _first_difference(text: str, others: Sequence[str]) -> int:
    """Where the text first differs from the others that are most like it: its neighbours in their order."""
    at = others.index(text)
    near = [others[i] for i in (at - 1, at + 1) if 0 <= i < len(others)]
    return max(len(_beginning([text, other])) for other in near)


def _around(text: str, at: int, width: int) -> str:
    """The beginning of a text, and the part around an offset further back."""
    head = _cells(text, width // 4) + MARK
    room = width - cells(head)
    begin = max(at - room // 3, 0)
    return head + _cells(text[begin:], room)


def cut(text: str, width: int) -> str:
    """The text, or two thirds of its beginning and its end with a mark between them."""
    if cells(text) <= width:
        return text
    if width <= 1:
        return MARK[:width]
    tail = (width - 1) // 3
    beginning = _cells(text, width - 1 - tail)
    end = _cells(text[::-1], tail)[::-1]
    return beginning + MARK + end


def _cells(text: str, width: int) -> str:
    """As many leading characters as fit."""
    used = 0
    for i, character in enumerate(text[: width + 1]):
        used += cells(character)
        if used > width:
            return text[:i]
    return text[: width + 1]


def cells(text: str) -> int:
    """The cells of a terminal that a text takes: two for a wide character, none for an accent on the character before it."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # slow to load, and most texts are ASCII

    return cell_len(text)
