"""A screen of text as a picture: `python -m tests.support.pictures` writes docs/browse.svg, and a test compares it."""

from __future__ import annotations

import tempfile
from html import escape
from pathlib import Path

from tests.support.samples import samples_in
from tests.unit.browse.files import browser, driven, model

PICTURE = Path(__file__).resolve().parent.parent.parent / "docs" / "browse.svg"
WIDE, HIGH = 8.4, 18  # pixels of a cell
SIZE = (100, 24)


def browsed() -> str:
    """The screen of the picture: a group of the sample data, and one of its texts."""
    with tempfile.TemporaryDirectory() as folder:
        samples_in(Path(folder, "sample_data"))
        made = model(Path(folder, "sample_data", "chats.jsonl"))
        return picture(driven(browser(made), "s", *["down"] * 5, "enter", "down", "c", "tab", "down", size=SIZE))


def picture(text: str) -> str:
    """Lines of text as SVG, each cell where a terminal has it."""
    lines = text.splitlines()
    wide, high = SIZE[0] * WIDE + 20, len(lines) * HIGH + 20
    rows = "".join(
        f'<text x="10" y="{at * HIGH + 24}" textLength="{len(line) * WIDE:.1f}">{escape(line)}</text>\n'
        for at, line in enumerate(lines)
        if line
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high}" width="{wide:.0f}">\n'
        f'<rect width="100%" height="100%" rx="6" fill="#fdfdfb" stroke="#bbb"/>\n'
        f'<g font-family="monospace" font-size="14" fill="#222" xml:space="preserve" lengthAdjust="spacingAndGlyphs">\n{rows}</g>\n</svg>\n'
    )


if __name__ == "__main__":
    PICTURE.write_text(browsed(), encoding="utf-8")
