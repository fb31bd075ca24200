"""The keys of the screen, one row each: the screen binds them, the help and the documents list them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from textwrap import wrap
from typing import NamedTuple

from rich.text import Text


class Key(NamedTuple):
    """A key: what it is for, its name in Textual, the action it is bound to, how it is shown, and what it does."""

    purpose: str
    key: str
    action: str
    shown: str
    help: str
    short: str = ""  # the text in the last line of the screen; empty: not shown there


KEYS = (
    Key("move", "tab", "focus_next", "Tab", "next list; Shift+Tab: previous list"),
    Key("move", "enter", "inside", "Enter", "open the group, then the text"),
    Key("move", "escape", "leave", "Esc", "back; stops a search"),
    Key("move", "d", "dead", "d", "next group without a gradient (all advantages 0 or missing)"),
    Key("find", "s", "sort", "s", "sort the groups by a fact", "sort"),
    Key("find", "w", "where", "w", "show only groups that meet a condition, such as 0 < mean < 1 and size == 8", "where"),
    Key("find", "slash", "search", "/", "search the texts of the groups shown", "search"),
    Key("find", "n", "hit(1)", "n", "next hit"),
    Key("find", "N", "hit(-1)", "N", "previous hit"),
    Key("look", "a", "arithmetic", "a", "how the advantage of the row is computed", "explain"),
    Key("look", "f", "fields", "f", "every field of the record, the ground truth first", "fields"),
    Key("look", "t", "whole", "t", "show a long text whole, or only its ends"),
    Key("look", "x", "fold", "x", "fold every turn to a line, or unfold them", "fold"),
    Key("look", "c", "compare", "c",
        "keep this text and show the next ones beside it; press again for one text"),
    Key("look", "m", "method", "m", "compute with another method", "method"),
    Key("look", "p", "preset", "p", "compute with a preset"),
    Key("do", "y", "copy", "y", "copy what the right side shows"),
    Key("do", "e", "write", "e", "write the groups shown to a new file, as select or export does"),
    Key("do", "o", "command", "o", "the commands that open this view and write these groups"),
    Key("do", "question_mark", "help", "?", "all keys", "help"),
    Key("do", "q", "quit", "q", "quit", "quit"),
)  # fmt: skip
# Keys of every list and text, which are not bound by the screen.
MOVING = (("↑ ↓", "a line; also k and j"), ("PgUp", "a page up"), ("PgDn", "a page down; also Space"), ("Home", "the first line, End the last; also g and G"))  # fmt: skip
INDENT = 9  # characters, of the widest key and the spaces around it


def footer() -> Text:
    """The keys that most runs need."""
    text = Text()
    for key in KEYS:
        if key.short:
            text.append(key.shown, "key").append(f" {key.short}  ")
    return text


def described(width: int) -> Iterator[Text]:
    """Every key by its purpose."""
    for purpose, keys in groupby(KEYS, attrgetter("purpose")):
        yield Text.styled(purpose, "strong")
        listed = [(key.shown, key.help) for key in keys]
        if purpose == "move":
            listed[:0] = MOVING
        for shown, does in listed:
            first, *rest = wrap(does, max(width - INDENT, 1))
            yield Text.assemble((f"  {shown:<{INDENT - 2}}", "key"), first)
            yield from (Text(" " * INDENT + line) for line in rest)
        yield Text()
