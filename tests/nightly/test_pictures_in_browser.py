"""The pictures of the documents as a browser shows them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.pictures import INK, PICTURE, WIDE

# What a line would be wide if nothing stretched it: its letters, and a space is as wide as a letter.
NATURAL = """() => [...document.querySelectorAll("text")].map((line) => {
    const cells = [...line.textContent].length;
    line.removeAttribute("textLength");
    return [line.textContent, line.getComputedTextLength() / cells];
})"""


@pytest.fixture
def page(browser: Any) -> Any:
    opened = browser.new_page()
    opened.goto(PICTURE.as_uri())
    return opened


def test_each_line_is_as_wide_as_its_letters_and_spaces(page: Any) -> None:
    lines = page.evaluate(NATURAL)
    assert len(lines) > 24
    assert [text for text, cell in lines if abs(cell - WIDE) > 0.1] == []


def test_the_picture_is_dark_where_the_reader_has_a_dark_screen(page: Any) -> None:
    found = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found[scheme] = page.evaluate("getComputedStyle(document.querySelector('.sheet')).fill")
    hexed = {scheme: "#{:02x}{:02x}{:02x}".format(*map(int, said[4:-1].split(","))) for scheme, said in found.items()}
    assert hexed == {"light": INK["paper"][0], "dark": INK["paper"][1]}
