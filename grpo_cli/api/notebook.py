"""What a prompt and a notebook show of a result: a line, its warnings, and a table.

A notebook may be light or dark: texts have its colours, and the few others can be read on both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from io import StringIO
from typing import Any

from rich.console import Console
from rich.terminal_theme import TerminalTheme

WIDTH = 100  # characters of a line
PRE = '<pre style="white-space:pre;overflow-x:auto;line-height:1.2;font-family:monospace">{code}</pre>'


def _on_both() -> TerminalTheme:
    """Colours with a contrast of 4 or more on white and on black; those that nothing here uses are grey."""
    grey = (118, 118, 118)
    colours = [grey, (205, 60, 60), (35, 135, 70), (148, 108, 0), (70, 110, 220), grey, grey, grey]
    return TerminalTheme((255, 255, 255), (0, 0, 0), colours)


def counted(number: int, what: str) -> str:
    """A number with its noun: "1 row", "2,000 rows"."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def line(kind: str, *parts: str, warnings: Sequence[str] = ()) -> str:
    """The repr of a result: what it is and what it has, and how many warnings."""
    more = [counted(len(warnings), "warning")] if warnings else []
    return f"<{kind}: {', '.join(filter(None, [*parts, *more]))}>"


def cell(headline: str, *bodies: str, warnings: Iterable[str] = ()) -> str:
    """What a notebook shows: a line, the warnings, and what follows."""
    return "".join([f"<p><b>{escape(headline)}</b></p>", warned(warnings), *bodies])


def warned(warnings: Iterable[str]) -> str:
    """Warnings as a list; empty without any."""
    items = "".join(f"<li>warning: {escape(sentence)}</li>" for sentence in warnings)
    return f"<ul>{items}</ul>" if items else ""


def table(heads: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """A table of texts."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(str(value))}</td>' for value in each)}</tr>" for each in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""


def frame(data: Any) -> str:
    """What the library of a frame shows of it; empty if it shows nothing."""
    shown = getattr(data, "_repr_html_", None)
    return str(shown()) if shown is not None else ""


def printed(render: Callable[[Console], None]) -> Console:
    """A console that has recorded what was printed on it."""
    console = Console(file=StringIO(), width=WIDTH, highlight=False, record=True)
    render(console)
    return console


def preformatted(console: Console) -> str:
    """What was printed, as HTML."""
    return console.export_html(inline_styles=True, code_format=PRE, theme=_on_both())
