"""Texts as lines: nothing is lost or wider than the page, and control characters are escaped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from grpo_cli.guests.browse.layout import ENDS, beside, differing, page, shown, wrapped
from grpo_cli.guests.browse.lines import fitting
from grpo_cli.read.texts import Passage

ANY_TEXT = st.text(st.characters(), max_size=200)


def plain(lines: Iterable[Text]) -> list[str]:
    return [line.plain for line in lines]


def styled(lines: Iterable[Text]) -> list[tuple[str, str]]:
    """The parts that have a style, and which."""
    return [(line.plain[span.start : span.end], str(span.style)) for line in lines for span in line.spans]


@given(ANY_TEXT, st.integers(4, 40))
def test_no_line_is_wider_than_the_page_or_has_control_characters(text: str, width: int) -> None:
    for line in plain(page([Passage(text, text)], width)):
        assert cell_len(line) <= width
        assert line.replace("\u200d", "").isprintable()


@given(st.text(st.sampled_from("ab cé日\n"), max_size=100), st.integers(4, 20))
def test_wrapping_loses_nothing(text: str, width: int) -> None:
    assert "".join(plain(wrapped(Text(text), width))) == text.replace("\n", "")


def test_emoji_that_are_joined_stay_whole_and_nothing_else_is_joined() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    assert shown(f"a {family} b") == f"a {family} b"
    assert shown(f"{family}\x1b") == f"{family}\\x1b"
    assert shown("a\u200db") == "a\\u200db"


def test_control_characters_are_escaped_and_an_empty_text_says_so() -> None:
    assert plain(page([Passage("x", "")], 12)) == ["── x ───────", "(empty)"]
    text = "a\x1b[31mb\x00c\u202ed\ud800e\rf\tg [bold]h[/bold]"
    assert plain(wrapped(Text(shown(text)), 200)) == ["a\\x1b[31mb\\x00c\\u202ed\\ud800e\\rf    g [bold]h[/bold]"]


def test_a_long_text_is_shown_from_both_ends_until_all_of_it_is_wanted() -> None:
    text = "a" * 5_000 + "middle" + "z" * 5_000
    short = "".join(plain(page([Passage("x", text)], 80)))
    assert "left out, t shows them" in short
    assert short.count("a") >= ENDS
    assert short.count("z") >= ENDS
    assert "middle" not in short
    assert "middle" in "".join(plain(page([Passage("x", text)], 80, whole=True)))


def test_a_hit_in_the_middle_of_a_long_text_is_shown() -> None:
    text = "a" * 5_000 + " The MIDDLE here " + "z" * 5_000
    lines = page([Passage("x", text)], 80, needle="the middle")
    assert [text for text, style in styled(lines) if style == "hit"] == ["The MIDDLE"]


def test_two_texts_are_shown_side_by_side_with_the_words_that_differ_marked() -> None:
    lines = beside([Passage("a", "the answer is 42 now")], [Passage("a", "the answer is 43 now")], 60)
    assert [text for text, style in styled(lines) if style == "differs"] == ["42", "43"]
    assert " ≠ " in plain(lines)[1]
    assert " │ " in plain(lines)[0]


@given(st.text(st.sampled_from("ab \n"), max_size=40), st.text(st.sampled_from("ab \n"), max_size=40))
def test_what_is_not_marked_is_the_same_in_both(left: str, right: str) -> None:
    def without(text: str, spans: Any) -> str:
        marked = {at for start, end, _ in spans for at in range(start, end)}
        return "".join(letter for at, letter in enumerate(text) if at not in marked)

    one, other = differing(left, right)
    assert without(left, one) == without(right, other)


def test_markdown_is_marked_and_stays_as_it_was_written() -> None:
    text = "# Plan\nuse `x` and **y**:\n```py\n# no heading\n```\nend"
    lines = page([Passage("x", text)], 80)[1:]
    parts = " ".join(f"{part}:{style}" for part, style in styled(lines))
    assert parts == "# Plan:strong `x`:code **y**:strong ```py:code # no heading:code ```:code"
    assert "\n".join(plain(lines)) == text


@given(st.floats(1e-90, 1e90) | st.floats(-1e90, -1e-90), st.integers(5, 8))
def test_a_number_is_never_cut(value: float, width: int) -> None:
    text = fitting(value, width)
    assert len(text) <= max(width, 6)
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.51)
