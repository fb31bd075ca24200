"""A screen of a terminal as a picture: `python -m tests.support.pictures` writes docs/browse.svg, and a test compares it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from rich.cells import cell_len
from rich.segment import Segment

from grpo_cli.guests.browse.app import Browser
from tests.support.jobs import ROOT, samples_in
from tests.unit.guests.browse.files import browser, driven, model

PICTURE = ROOT / "docs" / "browse.svg"
WIDE, HIGH = 8.4, 18  # pixels of a cell
SIZE = (100, 24)
KEYS = ("s", *["down"] * 5, "enter", "down", "c", "tab", "down")
# The colours of a terminal, on light paper and on dark.
INK = {"paper": ("#fdfdfb", "#15181c"), "ink": ("#222222", "#e4e6e9"), "frame": ("#bbbbbb", "#444b54")}
COLOURS = {
    "red": ("#b3261e", "#ff8a80"),
    "green": ("#1b7a33", "#7bd88f"),
    "yellow": ("#8a6100", "#f2c55c"),
    "blue": ("#1f5fae", "#82b1ff"),
    "magenta": ("#8e2a9e", "#e29af0"),
    "cyan": ("#00707a", "#6fdbe6"),
}

NAMES = ("ink", *COLOURS)  # by their numbers


def browsed() -> str:
    """The screen of the picture: a group of the sample data, and two of its texts beside each other."""
    with tempfile.TemporaryDirectory() as folder:
        samples_in(Path(folder, "sample_data"))
        made = model(Path(folder, "sample_data", "chats.jsonl"))
        return picture(driven(browser(made), *KEYS, size=SIZE, then=drawn))


def drawn(app: Browser) -> list[list[Segment]]:
    """The lines of the screen in their styles."""
    return [list(strip) for strip in app.screen._compositor.render_strips()]


def picture(lines: Iterable[Iterable[Segment]]) -> str:
    """The lines as SVG, each stretch of a style where a terminal has it; it is light or dark as the reader's screen is."""
    wide = SIZE[0] * WIDE + 20
    high = SIZE[1] * HIGH + 20
    rows = "\n".join(part for at, line in enumerate(lines) for part in _line(at, line))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high}" width="{wide:.0f}" class="ink">\n'
        f"<style>\n{_style()}</style>\n"
        f'<rect class="sheet" x="0.5" y="0.5" width="{wide - 1:.0f}" height="{high - 1}" rx="6"/>\n'
        f'<g font-family="monospace" font-size="14">\n{rows}\n</g>\n</svg>\n'
    )


def _style() -> str:
    named = {**INK, **COLOURS}
    light, dark = (" ".join(f"--{name}: {pair[at]};" for name, pair in named.items()) for at in (0, 1))
    classes = [f".{name} {{ fill: var(--{name}); }}" for name in ("ink", *COLOURS)]
    return "\n".join((
        f"svg {{ {light} }}", f"@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}",
        ".sheet { fill: var(--paper); stroke: var(--frame); }", *classes, ".on { fill: var(--paper); }",
        ".bold { font-weight: bold; }", ".dim { opacity: 0.7; }", ".under { text-decoration: underline; }", "",
    ))  # fmt: skip


def _line(at: int, line: Iterable[Segment]) -> Iterator[str]:
    """The stretches of a line; spaces do not break, as a browser leaves out all others after the first."""
    cell = 0
    for text, style, _ in line:
        x = cell * WIDE + 10
        long = cell_len(text) * WIDE
        cell += cell_len(text)
        colour = NAMES[style.color.number or 0] if style and style.color and not style.color.is_default else "ink"
        reverse = bool(style and style.reverse)
        if reverse:
            yield f'<rect class="{colour}" x="{x:.1f}" y="{at * HIGH + 10}" width="{long:.1f}" height="{HIGH}"/>'
        if not text.strip():
            continue
        looks = [colour] if colour != "ink" else []
        looks = ["on"] if reverse else looks
        if style:
            looks += [
                name for name, has in (("bold", style.bold), ("dim", style.dim), ("under", style.underline)) if has
            ]
        said = escape(text).replace(" ", "\N{NO-BREAK SPACE}")
        named = f' class="{" ".join(looks)}"' if looks else ""
        yield f'<text x="{x:.1f}" y="{at * HIGH + 24}" textLength="{long:.1f}"{named}>{said}</text>'


if __name__ == "__main__":
    PICTURE.write_text(browsed(), encoding="utf-8")
