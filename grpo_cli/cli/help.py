"""The text of `-h` and `--help` (one screen, one line per option) and of `--help-all` (all options, with their full text)."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from grpo_cli.cli.terminal import BOLD, CYAN, coloured
from grpo_cli.options.table import COMMANDS, EVERY, Command, Option

PROGRAM: Final = "grpo-adv"
HELP_ALL: Final = "--help-all"
_LABEL: Final = 31  # columns of names; a longer name has its text on the next line
_INDENT: Final = 2
_NARROWEST: Final = 60  # columns


def of_command(row: Command, *, whole: bool = False) -> str:
    """What the command does, an example, its argument, and its options by panel: those that most runs need, or with `whole` all."""
    shown = [EVERY[name] for name in (() if whole else row.common) or row.options]
    panels = dict.fromkeys(one.panel for one in shown)
    line = partial(_line, whole=whole)
    taken = [] if row.argument is None else [row.argument]
    words = [f"{row.flag}{'...' if row.type is not str else ''}" if row.required else f"[{row.flag}]" for row in taken]
    parts = [
        (" ".join([PROGRAM, row.name, *words, "[OPTIONS]"]), ()),
        (_wrapped(row.help), ()),
        ("Example", [f"{' ' * _INDENT}{row.example}"]),
        (_wrapped(row.more), ()),
        ("Argument" if taken else "", _lines(map(line, taken))),
        *((panel, _lines(line(one) for one in shown if one.panel == panel)) for panel in panels),
    ]
    more = f"all {len(row.options)} options: {PROGRAM} {row.name} {HELP_ALL}" if row.common and not whole else ""
    return _page([*parts, (more, ())])


def of_program(text: str, options: Iterable[tuple[str, str]]) -> str:
    """The commands, and the options of the program itself."""
    commands = [(row.name, row.help) for row in COMMANDS.values()]
    return _page(
        [
            (f"{PROGRAM} COMMAND [OPTIONS]", ()),
            (_wrapped(text), ()),
            ("Commands", _lines(commands, label=max(len(name) for name in COMMANDS))),
            ("Options", _lines((name, text.removesuffix(".")) for name, text in options)),
            (f"the options of a command: {PROGRAM} COMMAND --help", ()),
        ]
    )


def _line(row: Option, *, whole: bool) -> tuple[str, str]:
    flags = ", ".join(filter(None, (row.flag, row.other, row.short)))
    return f"{flags} {row.takes}".rstrip(), row.help if whole else row.brief or row.help.removesuffix(".")


def _lines(rows: Iterable[tuple[str, str]], *, label: int = _LABEL) -> list[str]:
    """Names and texts in two columns."""
    lines = []
    for name, text in rows:
        start = " " * (_INDENT + label + _INDENT)
        first, *rest = textwrap.wrap(
            text, _width(), initial_indent=start, subsequent_indent=start, break_on_hyphens=False
        )
        shown = " " * _INDENT + coloured(name, CYAN, sys.stdout)
        if len(name) > label:
            lines += [shown, first, *rest]
        else:
            lines += [shown + first[_INDENT + len(name) :], *rest]
    return lines


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _width())


def _page(parts: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Titles with the lines below them; on a terminal the titles of lines are bold."""
    titled = ((coloured(title, BOLD, sys.stdout) if lines else title, lines) for title, lines in parts if title)
    return "\n\n".join("\n".join([title, *lines]) for title, lines in titled)


def _width() -> int:
    return max(_NARROWEST, shutil.get_terminal_size().columns)
