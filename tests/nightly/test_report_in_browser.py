"""The report as a browser shows it: drawn, sorted, searched, opened, printed; it needs playwright and a Chromium."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.render.report import write_report
from grpo_cli.runs import group_rows
from grpo_cli.stats.inspection import Inspection
from tests.support.command import adv
from tests.support.jobs import inspected, write
from tests.unit.render.test_report import beside, categories, drawn, logged, rows


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Inspection:
    return inspected(write(tmp_path_factory.mktemp("report") / "a.jsonl", rows()), by_steps=True)


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def page(browser: Any, found: Inspection, tmp_path: Path) -> Iterator[Any]:
    """The page, which must say nothing to the console and ask for nothing but itself."""
    with opened_quietly(browser, found, tmp_path / "a.html") as opened:
        yield opened


@contextmanager
def opened_quietly(browser: Any, found: Inspection, target: Path, width: int = 1200) -> Iterator[Any]:
    write_report(found, target, force=True)
    said = []
    asked = []
    opened = browser.new_page(viewport={"width": width, "height": 900})
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(target.as_uri())
    opened.wait_for_selector("html[data-drawn]", timeout=30_000)
    yield opened
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [target.as_uri()]
    opened.close()


def keys(page: Any) -> list[str]:
    return [text.strip() for text in page.locator("#table tbody .key button").all_inner_texts()]


def open_group(page: Any, key: str) -> None:
    page.locator("#table tbody .key button", has_text=key).first.click()


def test_a_browser_draws_every_figure(page: Any, found: Inspection) -> None:
    names = drawn(found)
    assert page.locator("figure").count() == len(names)
    assert not page.is_visible("#figure-rewards")
    page.click("#details > summary")
    page.wait_for_function(f"document.documentElement.dataset.drawn === '{len(names)}'")
    for name in names:
        assert page.locator(f"#figure-{name} .chart svg .mark-rect path, #figure-{name} .chart svg path").count() > 0


def test_a_browser_draws_what_changed_from_another_run(browser: Any, tmp_path: Path) -> None:
    now = inspected(logged("now.jsonl", "01111111 " * 12))
    before = inspected(logged("before.jsonl", "00000000 " * 6 + "11111111 " * 6))
    with opened_quietly(browser, beside(now, before), tmp_path / "a.html") as page:
        for name, marks in (("run_rates", 2), ("run_changes", 1)):
            assert page.locator(f"#figure-{name} .chart svg [aria-roledescription]").count() >= marks
        page.set_viewport_size({"width": 420, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 420


def test_a_click_on_a_head_sorts_and_another_turns_it_round(page: Any) -> None:
    first = ["p08", "p04", "p03", "p02", "p09", "p05", "p10", "p06", "p07", "p11", "p01", "p00"]
    assert keys(page) == first  # never solved first, and of equal ones the longest
    page.click("#table [data-column=solve_rate]")
    assert {*keys(page)[:3]} == {"p00", "p01", "p11"}
    assert page.locator("#table th[aria-sort=descending]").inner_text().startswith("solve rate")
    page.click("#table [data-column=solve_rate]")
    assert {*keys(page)[-3:]} == {"p00", "p01", "p11"}
    page.click("#table [data-column=key]")
    assert keys(page)[0] == "p00"


def test_the_search_takes_words_and_conditions(page: Any) -> None:
    page.fill("#search", "p0")
    assert len(keys(page)) == 10
    page.fill("#search", "0 < mean < 0.4 and size == 4")
    assert sorted(keys(page)) == ["p05", "p09"]
    assert page.inner_text("#matches") == "2 of 12 groups"
    page.fill("#search", "what 5?")
    assert keys(page) == ["p05"]
    page.fill("#search", "nothing like it")
    assert keys(page) == []


def test_the_search_says_what_is_wrong_with_a_condition(page: Any) -> None:
    page.fill("#search", "meen > 0.5")
    assert page.inner_text("#matches").startswith("no column is called meen; the columns are number, step, size")
    page.fill("#search", "mean > > 1")
    assert page.inner_text("#matches").startswith("this is not a condition; the columns are")
    page.fill("#search", "mean = high and size == 4")
    assert page.inner_text("#matches") == "texts need quotes: mean = 'high' and size == 4"


def test_the_search_takes_the_heads_that_the_table_shows_and_texts_in_quotes(browser: Any, tmp_path: Path) -> None:
    with opened_quietly(browser, categories(), tmp_path / "a.html") as page:
        for text, wanted in (
            ("solve rate > 0.5", ["3"]), ("solve_rate == 1 and env == 'code'", ["3"]), ('env = "it\'s"', ["7"]),
            ("env != 'math' and env != 'logic'", ["2", "3", "7"]), ("'code' == env", ["2", "3"]), ("env == 'math and code'", []),
            ("env == 4", []),
        ):  # fmt: skip
            page.fill("#search", text)
            assert sorted(keys(page)) == wanted, text
        page.fill("#search", "solve rat > 0.5")
        heads = "number, env, size, scored, mean, std, min, max, solve rate, length, truncated"
        assert page.inner_text("#matches") == f"no column is called rat; the columns are {heads}"


def test_categories_have_a_bar_each_whose_click_lists_its_groups(browser: Any, tmp_path: Path) -> None:
    with opened_quietly(browser, categories(), tmp_path / "a.html") as page:
        for name in ("mean_reward", "zero_variance", "length_over", "spread_over", "ended"):
            labels = page.locator(f"#figure-{name} .chart .mark-text.role-axis-label").last.locator("text")
            assert labels.all_text_contents() == ["code", "logic", "it's", "math"], name
        bars = page.locator("#figure-length_over .chart .mark-rect path")
        for at, wanted in enumerate((["2", "3"], ["4", "5", "6"], ["7"], ["0", "1"])):
            bars.nth(at).click()
            assert sorted(keys(page)) == wanted
        assert page.input_value("#search") == "env == 'math'"
        ends = [bars.nth(at).bounding_box()["width"] for at in range(4)]
        assert ends[0] / ends[1] == pytest.approx(12.5 / 15, rel=0.02)


def test_intervals_are_drawn_where_they_are_known(browser: Any, tmp_path: Path) -> None:
    rows = [
        {"prompt_id": k, "env": "ab"[k % 2], "reward": int((k * 7 + at) % 11 < k % 9)}
        for k in range(60)
        for at in range(4)
    ]
    with opened_quietly(browser, inspected(write(tmp_path / "a.jsonl", rows), by="env"), tmp_path / "a.html") as page:
        page.click("#details > summary")
        page.wait_for_selector("#figure-other_sizes svg")
        for name, wanted in (("mean_reward", 2), ("other_sizes", 3)):
            assert page.locator(f"#figure-{name} .mark-rule.role-mark line").count() == wanted
        interval = page.locator("#figure-other_sizes .mark-rule.role-mark line").last
        interval.evaluate("(line) => line.scrollIntoView({block: 'center'})")
        box = interval.bounding_box()
        page.mouse.move(box["x"], box["y"] + 2)
        said = page.locator("#vg-tooltip-element").inner_text()
        assert re.search(r"fitted solve rates.*95% interval\s+\d+\.\d% to \d+\.\d%", said, re.DOTALL), said


def test_the_trends_of_several_runs_are_lines_of_their_own_colours(browser: Any, tmp_path: Path) -> None:
    for name, good in (("a", 1), ("b", 3), ("now", 2)):
        rows = [
            {"prompt_id": k, "step": k // 5, "reward": int(at < good - (k % 5 > 2))}
            for k in range(20)
            for at in range(4)
        ]
        write(tmp_path / f"{name}.jsonl", rows)
    assert adv("report now.jsonl --against a.jsonl --against b.jsonl -o r.html", cwd=tmp_path).status == 0
    page = browser.new_page()
    page.goto((tmp_path / "r.html").as_uri())
    page.wait_for_selector("html[data-drawn]")
    for name in ("mean_reward", "zero_variance"):
        lines = page.locator(f"#figure-{name} .mark-line.role-mark path")
        assert len({lines.nth(at).get_attribute("stroke") for at in range(lines.count())}) == 3
        legend = page.locator(f"#figure-{name} .role-legend-label text").all_text_contents()
        assert legend == ["now.jsonl", "a.jsonl", "b.jsonl"]
    page.close()


def test_a_click_on_a_bar_lists_its_groups(browser: Any, tmp_path: Path) -> None:
    rows = [{"prompt_id": f"p{p:02}", "reward": int(at < p % 5), "step": p // 5} for p in range(23) for at in range(4)]
    found = inspected(write(tmp_path / "a.jsonl", rows), by_steps=True)
    with opened_quietly(browser, found, tmp_path / "a.html") as page:
        for at, wanted in enumerate((5, 5, 5, 4, 4)):  # never, one of four, ..., always
            page.locator("#figure-solve_rates .mark-rect path").nth(at).click()
            assert len(keys(page)) == wanted
        assert page.input_value("#search") == "solve_rate == 1"
        page.locator("#figure-solve_rates .mark-rect path").nth(1).click()
        assert page.input_value("#search") == "0.1 < solve_rate < 0.4"
        page.locator("#figure-mean_reward .mark-symbol path").nth(2).click()
        assert sorted(keys(page)) == [f"p{p}" for p in range(10, 15)]


def test_a_click_on_a_trend_takes_the_point_whose_tooltip_is_shown(browser: Any, tmp_path: Path) -> None:
    """Anywhere in the figure: on the line, in the band, and where nothing is drawn."""
    rows = [
        {"prompt_id": f"p{p}", "reward": int((p + at) % 4 < 2), "step": step, "completion_tokens": 10 * step + at}
        for step in range(30)
        for p in range(3)
        for at in range(4)
    ]
    found = inspected(write(tmp_path / "a.jsonl", rows), by_steps=True, group=["prompt_id", "step"])
    with opened_quietly(browser, found, tmp_path / "a.html", width=1440) as page:
        trends = page.evaluate(
            "[...document.querySelectorAll('main > section figure')].map(figure => figure.id)"
            ".filter(id => document.querySelector(`#${id} .mark-line`))"
        )
        assert {"figure-mean_reward", "figure-zero_variance"} <= {*trends}
        for name, share, height in product(trends, (0.11, 0.33, 0.52, 0.74, 0.93), (0.15, 0.9)):
            figure = page.locator(f"#{name} .chart svg .background").first
            page.wait_for_timeout(500)  # a click moves the page to the table, smoothly
            figure.scroll_into_view_if_needed()
            box = figure.bounding_box()
            at = box["x"] + share * box["width"], box["y"] + height * box["height"]
            page.mouse.move(at[0] - 3, at[1])
            page.mouse.move(*at)
            page.wait_for_selector("#vg-tooltip-element.visible", timeout=10_000)
            said = page.inner_text("#vg-tooltip-element")
            step = re.search(r"step\s*(\d+)", said)
            assert step, said
            assert abs(int(step[1]) - 29 * share) < 2, (name, said)
            assert "undefined" not in said
            page.mouse.click(*at)
            assert page.input_value("#search") == f"step == {step[1]}", (name, said)
            assert len(keys(page)) == 3


def test_trends_come_first_and_the_reward_has_a_band(page: Any) -> None:
    names = page.evaluate("[...document.querySelectorAll('main > section figure')].map(figure => figure.id.slice(7))")
    assert names == ["mean_reward", "zero_variance", "length_over", "spread_over", "ended", "solve_rates", "lengths"]
    assert page.locator("#figure-mean_reward .mark-area path").count() == 1


def test_a_link_to_a_group_opens_it(browser: Any, page: Any) -> None:
    open_group(page, "p05")
    link = page.evaluate("document.getElementById('link').href")
    other = browser.new_page()
    other.goto(link)
    other.wait_for_selector("#group[open]")
    assert other.inner_text("#group-key") == "#6 p05"
    other.close()
    close(page)


def test_the_rewards_stand_beside_the_conversation_and_on_a_phone_above_it(page: Any) -> None:
    open_group(page, "p05")
    for width, is_beside in ((1200, True), (390, False)):
        page.set_viewport_size({"width": width, "height": 844})
        numbers, turns = (
            page.locator(f"#group-rows article {part}").first.bounding_box() for part in (".numbers", ".turns")
        )
        assert (turns["x"] >= numbers["x"] + numbers["width"]) == is_beside
        assert (turns["y"] >= numbers["y"] + numbers["height"]) != is_beside
    page.set_viewport_size({"width": 1200, "height": 900})
    close(page)


def test_a_click_on_a_key_opens_its_rows_with_their_text_as_text(page: Any) -> None:
    open_group(page, "p05")
    assert page.is_visible("#group")
    assert page.inner_text("#group-key") == "#6 p05"
    assert page.evaluate("location.hash") == "#p05"
    assert page.inner_text("#group-prompt").split("\n") == ["prompt", "what is 5?"]
    assert page.locator("#group-rows article").count() == 4
    assert "<b>bold</b>" in page.locator("#group-rows .turn").first.inner_text()
    page.click("#next")
    assert page.inner_text("#group-key") == "#11 p10"
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
        assert box["width"] > 250
        assert box["x"] + box["width"] <= 390


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
    assert not page.is_visible("#figure-rewards")  # what was not open is not printed


def test_paper_says_which_groups_its_table_has(browser: Any, tmp_path: Path) -> None:
    rows = [{"prompt_id": p, "reward": int(at < p % 3)} for p in range(600) for at in range(2)]
    with opened_quietly(browser, inspected(write(tmp_path / "a.jsonl", rows)), tmp_path / "a.html") as page:
        assert page.is_visible("#says")
        assert not page.is_visible("#printed")
        for condition, wanted in (
            ("", "600 of 600 groups; the first 40"),
            ("mean == 0.5 and number <= 30", "10 of 600 groups: mean == 0.5 and number <= 30"),
        ):
            page.emulate_media(media="screen")
            page.fill("#search", condition)
            page.emulate_media(media="print")
            assert page.inner_text("#printed") == wanted
            assert not page.is_visible("#says")


def test_a_bar_lists_as_many_groups_as_it_counts_and_a_page_that_cannot_hold_all_says_so(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"prompt_id": p, "reward": int(at < p % 3)} for p in range(1500) for at in range(2)]
    found = inspected(write(tmp_path / "a.jsonl", rows))
    for most, wanted in (
        (20_000, "500 of 1,500 groups"),
        (300, "100 of the 300 that this page holds (1,500 groups in all)"),
    ):
        monkeypatch.setattr(group_rows, "GROUPS", most)
        with opened_quietly(browser, found, tmp_path / "a.html") as page:
            bar = page.locator("#figure-solve_rates .mark-rect path").first
            bar.hover()
            page.wait_for_selector("#vg-tooltip-element.visible")
            assert "500" in page.inner_text("#vg-tooltip-element")
            bar.click()
            assert page.inner_text("#matches") == wanted
            assert not page.is_visible("#vg-tooltip-element.visible")


def test_the_search_finds_all_that_an_open_group_shows(browser: Any, tmp_path: Path) -> None:
    rows = [
        {"prompt_id": p, "prompt": f"ask {p}", "completion": f"Traceback in {p}" if p == 3 else "fine", "reward": at % 2,
         "answer": f"truth{p}", "finish_reason": "length" if p == 4 else "stop", "env": "ab"[p % 2]}
        for p in range(6) for at in range(2)
    ]  # fmt: skip
    with opened_quietly(browser, inspected(write(tmp_path / "a.jsonl", rows)), tmp_path / "a.html") as page:
        for words, wanted in (
            ("traceback", ["3"]), ("TRUTH5", ["5"]), ("length", ["4"]), ("ask 2", ["2"]), ("env == 'a'", ["0", "2", "4"]),
            ("response fine ask", ["0", "1", "2", "4", "5"]), ("zebra", []),
        ):  # fmt: skip
            page.fill("#search", words)
            assert sorted(keys(page)) == wanted, words


def test_a_call_of_a_tool_shows_its_code_in_lines_of_one_width(browser: Any, tmp_path: Path) -> None:
    code = "def f(n):\n    return n\nprint(f(1))"
    call = {"type": "function", "function": {"name": "python", "arguments": json.dumps({"code": code, "timeout": 3})}}
    said = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": f"```python\n{code}\n```\nso", "tool_calls": [call]},
    ]
    rows = [{"prompt_id": 0, "messages": said, "reward": at} for at in range(2)]
    with opened_quietly(browser, inspected(write(tmp_path / "a.jsonl", rows)), tmp_path / "a.html") as page:
        open_group(page, "0")
        turns = page.locator("#group-rows article").first.locator(".turn > div")
        assert turns.nth(1).inner_text() == f"code:\n{code}\ntimeout: 3"
        assert turns.nth(0).locator("code").inner_text().strip() == f"```python\n{code}\n```"
        for place in (turns.nth(1), turns.nth(0).locator("code")):
            assert "monospace" in place.evaluate("(place) => getComputedStyle(place).fontFamily")


def test_a_printed_page_has_no_gaps_and_repeats_the_head_of_its_table(page: Any) -> None:
    """No figure is wider than half the paper, or scaled; the head is text, since buttons are not printed again."""
    page.set_viewport_size({"width": 690, "height": 1000})
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    charts = page.locator("main > section figure .chart svg")
    for at in range(charts.count()):
        box = charts.nth(at).bounding_box()
        assert box["width"] <= 345
        wide = charts.nth(at).evaluate("(drawn) => drawn.viewBox.baseVal.width")
        assert box["width"] == pytest.approx(wide, rel=0.05)  # letters keep their size
    shown = page.evaluate("getComputedStyle(document.querySelector('#table th'), '::before').content")
    assert shown == '"group"'
    assert page.evaluate("getComputedStyle(document.querySelector('.figures')).display") == "block"


def test_a_group_that_is_open_is_what_is_printed(page: Any) -> None:
    open_group(page, "p05")
    page.emulate_media(media="print")
    assert [page.is_visible(place) for place in ("#group", "#table", "header", "#next")] == [True, False, False, False]
    assert page.evaluate("(place => place.scrollHeight <= place.clientHeight)(document.getElementById('group'))")


def luminance(colour: str) -> float:
    """Of `#rrggbb`, as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


# What people without red or without green receptors see (Machado 2009, linear RGB).
BLIND = {
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}


def seen(colour: str, matrix: Any) -> list[float]:
    parts = [(int(colour[at : at + 2], 16) / 255) ** 2.2 for at in (1, 3, 5)]
    return [max(sum(a * b for a, b in zip(row, parts, strict=True)), 0) ** (1 / 2.2) for row in matrix]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colours_of_charts_stand_out_from_the_paper_and_from_each_other(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    style = "getComputedStyle(document.documentElement).getPropertyValue"
    paper, *colours = (
        page.evaluate(f"{style}('--{name}')").strip() for name in ("paper", "c0", "c1", "c2", "c3", "c4")
    )
    for colour in colours:
        high, low = sorted((luminance(colour), luminance(paper)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 3, colour
    for matrix in BLIND.values():
        for one, other in combinations(colours[:3], 2):  # varies, always solved, never solved
            assert max(abs(a - b) for a, b in zip(seen(one, matrix), seen(other, matrix), strict=True)) > 0.2


def test_nothing_is_cut_on_a_phone(browser: Any, tmp_path: Path) -> None:
    """Labels and legends of charts, and what the search says before somebody types."""
    rows = [
        {"prompt_id": k, "reward": r, "env": ("a very long name of an environment that goes on", "b")[k % 2]}
        for k, some in enumerate([(0, 0), (0, 1), (1, 1), (0.5, 0.5), (0, 1), (0, 1)]) for r in some
    ]  # fmt: skip
    found = inspected(write(tmp_path / "a.jsonl", rows), by="env")
    with opened_quietly(browser, found, tmp_path / "a.html", width=390) as page:
        ends = page.evaluate("""[...document.querySelectorAll("main .chart text, main > section :is(h2, p, button)")]
            .map((part) => part.getBoundingClientRect()).filter((box) => box.width)""")
        assert min(box["left"] for box in ends) >= 0
        assert max(box["right"] for box in ends) <= 390
        hint = page.evaluate("""(field) => {
            const pen = document.createElement("canvas").getContext("2d"), style = getComputedStyle(field);
            pen.font = style.font;
            return [pen.measureText(field.placeholder).width, field.clientWidth - 2 * parseFloat(style.paddingLeft)];
        }""", page.query_selector("#search"))  # fmt: skip
        assert hint[0] <= hint[1]


def test_the_page_fits_a_narrow_window(page: Any) -> None:
    page.set_viewport_size({"width": 420, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
