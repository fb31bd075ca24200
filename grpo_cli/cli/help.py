"""The text of `-h` and `--help` (one screen, one line per option) and of `--help-all` (all options, with their full text)."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from functools import partial

from grpo_cli.cli.terminal import BOLD, CYAN, coloured
from grpo_cli.options.commands import COMMANDS, Command
from grpo_cli.options.table import Option

PROGRAM = "grpo-adv"
HELP_ALL = "--help-all"
_LABEL = 31  # columns of names; a longer name has its text on the next line
_INDENT = 2
_NARROWEST = 60  # columns


def of_command(row: Command, *, whole: bool = False) -> str:
    """What the command does, an example, its argument, and its options by panel: those that most runs need, or with `whole` all."""
    options = [*(one.name for one in row.own), *row.options]
    shown = [row.takes[name] for name in (() if whole else row.common) or options]
    panels = dict.fromkeys(one.panel for one in shown)
    line = partial(_line, whole=whole)
    usage = [PROGRAM, row.name]
    if row.argument is not None:
        usage.append(_usage(row.argument))
    parts = [
        (" ".join([*usage, "[OPTIONS]"]), ()),
        (_wrapped(row.help), ()),
        ("Example", [f"{' ' * _INDENT}{row.example}"]),
        (_wrapped(row.more), ()),
    ]
    if row.argument is not None:
        parts.append(("Argument", _lines([line(row.argument)])))
    for panel in panels:
        of_panel = [line(one) for one in shown if one.panel == panel]
        parts.append((panel, _lines(of_panel)))
    if row.common and not whole:
        parts.append((f"all {len(options)} options: {PROGRAM} {row.name} {HELP_ALL}", ()))
    return _page(parts)


def _usage(argument: Option) -> str:
    if not argument.required:
        return f"[{argument.flag}]"
    return argument.flag if argument.type is str else f"{argument.flag}..."


def of_program(text: str, options: Iterable[tuple[str, str]]) -> str:
    """The commands, those of installed packages by themselves, and the options of the program itself."""
    label = max(map(len, COMMANDS))
    built_in, of_packages = [], []
    for row in COMMANDS.values():
        package = COMMANDS.origin(row.name)
        if package:
            of_packages.append((row.name, f"{row.help.removesuffix('.')} ({package})."))
        else:
            built_in.append((row.name, row.help))
    own = [(flag, meaning.removesuffix(".")) for flag, meaning in options]
    return _page(
        [
            (f"{PROGRAM} COMMAND [OPTIONS]", ()),
            (_wrapped(text), ()),
            ("Commands", _lines(built_in, label=label)),
            *([("Commands of packages", _lines(of_packages, label=label))] if of_packages else []),
            ("Options", _lines(own)),
            (f"the options of a command: {PROGRAM} COMMAND --help", ()),
        ]
    )


def _line(row: Option, *, whole: bool) -> tuple[str, str]:
    flags = ", ".join(filter(None, (row.flag, row.other, row.short)))
    text = row.help if whole else row.brief or row.help.removesuffix(".")
    return f"{flags} {row.takes}".rstrip(), text


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
    blocks = []
    for title, lines in parts:
        if title:
            head = coloured(title, BOLD, sys.stdout) if lines else title
            blocks.append("\n".join([head, *lines]))
    return "\n\n".join(blocks)


def _width() -> int:
    return max(_NARROWEST, shutil.get_terminal_size().columns)
