"""The report as a browser shows it: drawn, sorted, searched, opened, printed; it needs playwright and a Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.render.report import write_report
from grpo_cli.stats.inspection import Inspection
from tests.support.jobs import inspected, write
from tests.unit.render.test_report import against_another, drawn, report_of


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Inspection:
    return report_of(tmp_path_factory.mktemp("report"))


@pytest.fixture
def page(browser: Any, found: Inspection, tmp_path: Path) -> Iterator[Any]:
    """The page, which must say nothing to the console and ask for nothing but itself."""
    with opened_quietly(browser, found, tmp_path / "a.html") as opened:
        yield opened


@contextmanager
def opened_quietly(browser: Any, found: Inspection, target: Path) -> Iterator[Any]:
    write_report(found, {"force": True}, target)
    said: list[str] = []
    asked: list[str] = []
    opened = browser.new_page(viewport={"width": 1200, "height": 900})
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(target.as_uri())
    opened.wait_for_selector("html[data-drawn]", timeout=30_000)
    yield opened
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [target.as_uri()]
    opened.close()


def test_steps_may_be_called_as_what_every_javascript_object_has(browser: Any, tmp_path: Path) -> None:
    drawn: list[tuple[int, int]] = []
    for steps in (["a", "b", "c"], ["__proto__", "constructor", "toString"]):
        rows = [
            {"prompt_id": f"{step} {prompt}", "step": step, "reward": at % 2 if step == steps[1] else 0}
            for step in steps
            for prompt in range(6)
            for at in range(4)
        ]
        found = inspected(write(tmp_path / "a.jsonl", rows), by_steps=True)
        with opened_quietly(browser, found, tmp_path / "a.html") as page:
            figures = [page.locator(f"#figure-{name} svg") for name in ("zero_variance", "mean_reward")]
            drawn += [(figure.locator("path").count(), figure.locator("text").count()) for figure in figures]
            assert steps[0] in figures[0].locator("text", has_text=steps[0]).first.text_content()
    assert drawn[:2] == drawn[2:]


def keys(page: Any) -> list[str]:
    return [text.strip() for text in page.locator("#table tbody .key").all_inner_texts()]


def test_a_browser_draws_every_figure(page: Any, found: Inspection) -> None:
    names = drawn(found, ["grpo", "rloo", "dr-grpo"])
    assert page.locator("figure").count() == len(names)
    for name in names:
        assert page.locator(f"#figure-{name} .chart svg .mark-rect path, #figure-{name} .chart svg path").count() > 0


def test_a_browser_draws_what_changed_from_another_run(browser: Any, tmp_path: Path) -> None:
    with opened_quietly(browser, against_another(tmp_path), tmp_path / "a.html") as page:
        for name, marks in (("changes", 2), ("by_difficulty", 6), ("gained_and_lost", 6)):
            assert page.locator(f"#figure-{name} .chart svg [aria-roledescription]").count() >= marks
        page.set_viewport_size({"width": 420, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 420


def test_a_click_on_a_head_sorts_and_another_turns_it_round(page: Any) -> None:
    assert keys(page) == [f"p{i:02}" for i in range(12)]
    page.click("#table [data-column=mean]")
    assert keys(page)[:3] == ["p00", "p01", "p11"]
    assert page.locator("#table th[aria-sort=descending]").inner_text().startswith("mean")
    page.click("#table [data-column=mean]")
    assert keys(page)[-3:] == ["p00", "p01", "p11"]
    page.click("#table [data-column=key]")
    assert keys(page)[0] == "p00"


def test_the_search_takes_words_and_conditions(page: Any) -> None:
    page.fill("#search", "p0")
    assert len(keys(page)) == 10
    page.fill("#search", "0 < mean < 0.4 and size == 4")
    assert keys(page) == ["p05", "p09"]
    assert page.inner_text("#matches") == "2 of 12 groups"
    page.fill("#search", "nothing like it")
    assert keys(page) == []


def test_a_click_on_a_key_opens_its_rows_with_their_text_as_text(page: Any) -> None:
    page.click("#table tbody tr:nth-child(6) button")
    assert page.is_visible("#group")
    assert page.inner_text("#group-key") == "#6 p05"
    assert page.evaluate("location.hash") == "#p05"
    assert page.inner_text("#group-prompt").split("\n") == ["prompt", "what is 5?"]
    assert page.locator("#group-rows article").count() == 4
    assert "<b>bold</b>" in page.locator("#group-rows .turn").first.inner_text()
    page.click("#next")
    assert page.inner_text("#group-key") == "#7 p06"
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#group-key") == "#6 p05"
    close(page)


def close(page: Any) -> None:
    """Press Escape and wait for the close event, which fires after the dialog is gone and clears the address."""
    page.keyboard.press("Escape")
    page.wait_for_function("!document.getElementById('group').open && location.hash === ''")


def test_an_address_opens_its_group(page: Any) -> None:
    for address, key in (("p05", "#6 p05"), ("group-2", "#2 p01")):
        page.evaluate(f"location.hash = '{address}'")
        page.wait_for_function(f"document.getElementById('group-key').textContent === '{key}'")
        close(page)


def long_keys(folder: Path) -> Inspection:
    """Prompts as keys, with long answers and what they are compared with."""
    said = "Let me think. " + "so it goes on " * 60
    rows = [
        {"prompt": f"<|im_start|>user\nWhat is {n} * 51? Think step by step and answer in a box.", "reward": int(i < n),
         "response": f"{said}boxed {n * 51}", "answer": str(n * 51), "step": n // 3}
        for n in range(6) for i in range(4)
    ]  # fmt: skip
    return inspected(write(folder / "long.jsonl", rows), by_steps=True)


def test_a_long_text_opens_and_its_end_and_the_truth_are_there_at_once(browser: Any, tmp_path: Path) -> None:
    with opened_quietly(browser, long_keys(tmp_path), tmp_path / "a.html") as page:
        page.fill("#search", "3 * 51 think")
        page.click("#table tbody tr:nth-child(1) button")
        assert "Ground truth: 153" in page.inner_text("#group-truth")
        brief = page.locator("#group-rows .turn summary").first
        assert brief.inner_text().endswith("boxed 153")
        whole = page.locator("#group-rows .turn div").first
        assert not whole.is_visible()
        brief.click()
        assert whole.is_visible()


def test_on_a_phone_keys_and_texts_are_read_in_lines(browser: Any, tmp_path: Path) -> None:
    with opened_quietly(browser, long_keys(tmp_path), tmp_path / "a.html") as page:
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.locator("#table tbody .key").first.bounding_box()["width"] > 250
        page.click("#table tbody tr:nth-child(1) button")
        box = page.locator("#group-rows .turn").first.bounding_box()
        assert box["width"] > 250 and box["x"] + box["width"] <= 390


def test_the_page_is_dark_for_those_who_want_it_and_can_be_turned(page: Any) -> None:
    def paper() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    page.emulate_media(color_scheme="dark")
    assert paper() == "rgb(21, 24, 28)"
    page.click("#theme")
    assert paper() == "rgb(255, 255, 255)"
    page.click("#theme")
    assert paper() == "rgb(21, 24, 28)"


def test_on_paper_it_is_black_on_white_and_whole(page: Any) -> None:
    page.emulate_media(color_scheme="dark", media="print")
    style = "getComputedStyle(document.{0}).{1}"
    assert page.evaluate(style.format("body", "backgroundColor")) == "rgb(255, 255, 255)"
    for place in ("querySelector('h1')", "querySelector('.chart')", "querySelector('#table td')"):
        assert page.evaluate(style.format(place, "color")) == "rgb(0, 0, 0)"
    assert not page.is_visible("#search")
    assert page.is_visible("#table")


def test_the_page_fits_a_narrow_window(page: Any) -> None:
    page.set_viewport_size({"width": 420, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
