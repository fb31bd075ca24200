"""The keys of the screen, one row each: the screen binds them, the help and the documents list them."""

from __future__ import annotations

from typing import Final, NamedTuple


class Key(NamedTuple):
    """A key: its name in Textual, the action it is bound to, how it is shown, and what it does."""

    key: str
    action: str
    shown: str
    help: str
    short: str = ""  # the text in the last line of the screen; empty: not shown there


KEYS: Final = (
    Key("tab", "app.focus_next", "Tab", "next list; Shift+Tab: previous list"),
    Key("enter", "inside", "Enter", "open the group, then the text; Esc goes back"),
    Key("escape", "leave", "Esc", "back; stops a search"),
    Key("right_square_bracket", "rollout(1)", "]", "next rollout of the group, whichever list has the focus"),
    Key("left_square_bracket", "rollout(-1)", "[", "previous rollout"),
    Key("s", "sort", "s", "sort the groups by a fact", "sort"),
    Key("r", "reverse", "r", "reverse the order"),
    Key("w", "where", "w", "show only groups that meet a condition, such as 0 < mean < 1 and size == 8", "where"),
    Key("slash", "search", "/", "search the texts of the groups shown", "search"),
    Key("n", "hit(1)", "n", "next hit"),
    Key("N", "hit(-1)", "N", "previous hit"),
    Key("d", "jump('dead')", "d", "next group without a gradient: all advantages are 0 or missing"),
    Key("v", "jump('widest')", "v", "widest group: largest reward - smallest reward; again: the next widest"),
    Key("u", "jump('surprising')", "u",
        "most surprising row: furthest from the mean of its group in standard deviations; again: the next group"),
    Key("l", "jump('longest')", "l", "longest row; again: the longest of the next group"),
    Key("m", "method", "m", "compute with another method", "method"),
    Key("p", "preset", "p", "compute with a preset"),
    Key("a", "arithmetic", "a", "how the advantage of the row is computed", "arithmetic"),
    Key("f", "fields", "f", "every field of the record, the ground truth first", "fields"),
    Key("t", "whole", "t", "show a long text whole, or only its two ends"),
    Key("c", "compare", "c", "keep this text and compare the next ones with it, side by side; again: one text", "compare"),
    Key("z", "zoom", "z", "the text at full width"),
    Key("y", "copy", "y", "copy what the right side shows"),
    Key("e", "write", "e", "write the groups shown to a new file, as select or export does"),
    Key("o", "command", "o", "the commands that open this view and write these groups"),
    Key("question_mark", "help", "?", "all keys", "help"),
    Key("q", "app.quit", "q", "quit", "quit"),
)  # fmt: skip
