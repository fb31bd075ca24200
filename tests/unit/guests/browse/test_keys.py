"""Every key of the screen, pressed; and whole screens as text."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from rich.color import ColorType
from rich.text import Text

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.presets import presets
from grpo_cli.guests.browse import layout
from grpo_cli.guests.browse.app import Browser
from grpo_cli.guests.browse.keys import KEYS
from grpo_cli.guests.browse.model import Model
from grpo_cli.read.tables import Binding
from grpo_cli.read.texts import code_of
from tests.support.jobs import rows_of
from tests.support.pictures import NAMES, PICTURE, browsed, drawn
from tests.unit.guests.browse.files import browser, driven, model, model_of, rollouts, settled, walked

SCREENS = Path(__file__).parent / "screens"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return model_of(tmp_path_factory.mktemp("browse"), rollouts(), "rollouts.jsonl")


def after(made: Model, *keys: str, **more: Any) -> Any:
    return driven(browser(made, **more.pop("start", {})), *keys, **more)


def key_at(app: Browser) -> str:
    """The group at the place, and the row in it."""
    assert app.code is not None
    assert app.row is not None
    return f"{app.model.inspection.narrow.label(app.code)} {app.row}"


def lines(text: str) -> list[list[str]]:
    """The parts of each line, between bars; the first is the keys, with commas between them."""
    return [[part.strip() for part in line.split("|")] for line in text.strip().splitlines()]


MOVES = """
home                              | easy 0
down                              | mixed 4
tab, down                         | mixed 3
escape, up                        | easy 0
down, enter, down, escape, up     | easy 0
end                               | alone 11
home                              | easy 0
down, tab, down                   | mixed 3
escape, home, d                   | never 9
d                                 | alone 11
d                                 | easy 0
"""


def test_keys_that_move_go_to_groups_and_rows(small: Model) -> None:
    steps = lines(MOVES)
    places = walked(browser(small), [keys.split(", ") for keys, _ in steps], then=key_at)
    assert places == [place for _, place in steps]


STEPS = """
f                        | the truth of easy        | ── user
f                        | ── user                  | the truth of easy
down, a                  | 0.75   0.5000     1.5000 | ── user
escape                   | ── user                  | 0.75   0.5000
c, tab, down             | ≠                        | kept
c, escape, home          | Answer 0 to easy         | ≠
question_mark            | Shift+Tab                | ── user
escape, o                | grpo-adv browse          | ── user
escape, e                | export --to pairs        | ── user
enter                    | select needs a condition: set one with w | name of the new file
w, :mean == 0.25, enter  | 1 of 5 groups where mean == 0.25 | graded
w, :meen > 0, enter      | no fact of a group named 'meen'  | where meen
w, :mean > 7, enter      | no group meets the condition     | ── user
w, :0 < mean < 1, enter, d       | every listed group has a gradient | ── Question
w, :, enter              | 5 groups                 | groups where
w, :size >, escape       | 5 groups                 | where size
n                        | no search yet            | 1 row
w, :size == 2, enter, e, enter, :-, enter | standard output is this screen | wrote
w, :, enter, slash, :TO GRADED, enter     | 'TO GRADED' in 2 rows, at 1 (n: next, N: previous), 100% searched | Esc
n                        | Answer 1 to graded       | Answer 0
N                        | Answer 0 to graded       | Answer 1
escape                   | Answer 0 to graded       | searched
slash, :nowhere, enter   | 'nowhere' in 0 rows, 100% searched | n, N
escape, home, y          | copied 32 characters     | nothing
t                        | Answer 0 to easy         | left out
"""


def test_keys_show_what_they_say(small: Model) -> None:
    steps = lines(STEPS)
    texts = walked(browser(small), [keys.split(", ") for keys, _, _ in steps])
    for text, (keys, shown, not_shown) in zip(texts, steps, strict=True):
        assert shown in text, keys
        assert not_shown not in text, keys


def test_a_fact_is_chosen_that_groups_are_sorted_by(small: Model) -> None:
    def order(app: Browser) -> str:
        return " ".join(app.model.inspection.narrow.label(int(code)) for code in app.shown)

    steps = [("s", "down", "down", "down", "enter"), ("s", "home", "enter", "s", "escape")]
    by_third, first_again = walked(browser(small), steps, then=order)
    assert by_third == "easy alone graded mixed never"
    assert first_again == "easy mixed graded never alone"


def test_a_method_is_switched_at_the_place(small: Model) -> None:
    text = after(small, "down", "tab", "down", "m", "down", "enter")
    assert "| dr-grpo, scale none" in text
    assert "+0.75" in text
    assert "▸      0     -0.25     15     4" in text


def test_a_preset_is_switched(small: Model) -> None:
    name, row = next(iter(presets().items()))
    listed, chosen = walked(browser(small), [("p", "home"), ("enter",)])
    assert re.search(rf"{name} +{re.escape(row.framework)}, {row.estimator}", listed)
    assert f"preset {name}, {row.plan.method}" in chosen


def test_a_method_that_needs_a_column_says_which(small: Model) -> None:
    downs = ["down"] * [name for name in ESTIMATORS if name != "expression"].index("remax")
    text = after(small, "m", *downs, "enter")
    assert "the plan needs" in text
    assert "--baseline-column" in text
    assert "grpo, scale group" in text


def test_the_groups_shown_are_written_by_select_or_export_and_nothing_is_overwritten(small: Model) -> None:
    alive = Path("alive.jsonl")
    best = Path("best.jsonl")
    app = browser(small)
    steps = [
        ("w", ":0 < mean < 1", "enter", "e", "enter", f":{alive}", "enter"),
        ("e", "enter", f":{alive}", "enter"),
        ("e", "down", "enter", f":{best}", "enter"),
        ("o",),
    ]
    written, again, exported, commands = walked(app, steps, size=(200, 24))
    assert "select: wrote 2 groups to" in written
    assert "exists" in again
    assert "export: wrote 2 groups to" in exported
    assert "--to sft --where '0 < mean < 1' --output NEW_FILE" in commands
    assert [row["prompt_id"] for row in rows_of(alive)] == ["mixed"] * 4 + ["graded"] * 2
    texts = [record["completion"][0]["content"] for record in rows_of(best)]
    assert texts == ["Answer 1 to mixed", "Answer 1 to graded"]


def test_quitting_returns_the_commands_that_were_asked_for(small: Model) -> None:
    app = browser(small)
    driven(app, "w", ":size == 4", "enter", "o", "escape", "q", then=lambda _: None)
    (path,) = small.job.inputs
    assert app.return_value == [
        f"grpo-adv browse {path} --where 'size == 4' --show mixed",
        f"grpo-adv select {path} --where 'size == 4' --output NEW_FILE",
    ]


def test_the_end_waits_for_files_that_are_written_and_for_nothing_that_is_read(small: Model) -> None:
    app = browser(small)
    going = Event()
    done = list[str]()

    def begin(app: Browser) -> None:
        app.aside(lambda: done.append(str(going.wait())), "text")
        app.aside(lambda: done.append(str(going.wait(0.05))), "write rows.jsonl")

    driven(app, then=begin)
    app.finish()
    assert done == ["False"]  # nobody said that the other could go on
    going.set()


def test_the_command_opens_a_group_with_a_long_key() -> None:
    rows = [{"prompt": f"{'the same words ' * 9}\n{n}'s", "step": n, "reward": at} for n in range(3) for at in range(2)]
    made = model_of(Path(), rows, binding=Binding(group=("prompt", "step")))
    app = browser(made)
    driven(app, "down", "o", then=lambda _: None)
    words = shlex.split(app.last_commands[0])
    assert code_of(made.inspection.narrow, words[words.index("--show") + 1]) == 1


SHOWN = """
first      | down
fields     | f
compare    | f, c, tab, down
arithmetic | c, up, a
help       | escape, question_mark
sort       | escape, s
write      | escape, e
"""


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_screens_look_as_they_did(small: Model, size: tuple[int, int]) -> None:
    steps = lines(SHOWN)
    screens = walked(browser(small), [keys.split(", ") for _, keys in steps], size=size)
    for (name, _), shown in zip(steps, screens, strict=True):
        expected = SCREENS / f"{name}-{size[0]}x{size[1]}.txt"
        if os.environ.get("UPDATE_SNAPSHOTS"):
            expected.write_text(shown, encoding="utf-8")
        assert shown == expected.read_text(encoding="utf-8"), "run with UPDATE_SNAPSHOTS=1, and read the difference"


@pytest.mark.parametrize(("width", "least"), [(40, 38), (60, 58), (71, 69), (72, 28), (80, 36)])
def test_a_narrow_screen_has_the_text_below_the_lists(small: Model, width: int, least: int) -> None:
    def sizes(app: Browser) -> tuple[int, int, int]:
        return app.page.wide, app.page.size.height, app.groups.size.height

    wide, high, of_groups = driven(browser(small), size=(width, 24), then=sizes)
    assert wide >= least
    assert high >= 8
    assert of_groups >= 3


def test_the_picture_of_the_documents_is_this_screen() -> None:
    assert browsed() == PICTURE.read_text(encoding="utf-8"), "run: python -m tests.support.pictures"


def test_the_screen_has_the_colours_of_the_terminal_and_no_other(small: Model) -> None:
    """So it fits a light terminal and a dark one; a background is the terminal's, or a foreground that is reversed."""
    found = after(small, "down", "slash", ":to mixed", "enter", then=drawn)
    styles = [segment.style for line in found for segment in line if segment.style is not None]
    assert {style.color.type for style in styles if style.color} <= {ColorType.DEFAULT, ColorType.STANDARD}
    assert {style.bgcolor.type for style in styles if style.bgcolor} <= {ColorType.DEFAULT}
    assert {bool(style.reverse) for style in styles} == {False, True}


def coloured(app: Browser) -> set[tuple[str, str]]:
    """The texts that have a colour, and which."""
    return {
        (segment.text.strip(), NAMES[segment.style.color.number or 0])
        for line in drawn(app)
        for segment in line
        if segment.style is not None and segment.style.color is not None and not segment.style.color.is_default
    }


def test_a_colour_has_one_meaning_and_stands_beside_a_sign(small: Model) -> None:
    """Keys, who speaks, the sign of an advantage, groups that are always or never solved."""
    found = after(small, "down", then=coloured)
    assert {("s", "cyan"), ("?", "cyan"), ("=", "green"), ("=", "red")} <= found
    assert {text.strip("─ ") for text, colour in found if colour == "magenta"} == {"assistant"}
    assert {text.strip("─ ") for text, colour in found if colour == "blue"} == {"user"}
    signs = {(text[0], colour) for text, colour in found if text[:1] in {"+", "-"}}
    assert signs == {("+", "green"), ("-", "red")}


def test_the_first_text_is_laid_out_for_a_page_that_has_its_size(small: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was drawn one character wide, and laid out again."""
    widths = []
    real = layout.page

    def noted(passages: Any, width: int, **more: Any) -> list[Text]:
        widths.append(width)
        return real(passages, width, **more)

    monkeypatch.setattr(layout, "page", noted)
    after(small)
    assert widths
    assert min(widths) == max(widths) == 36


def test_the_head_of_the_text_says_what_it_got() -> None:
    row = '{"prompt_id": %d, "completion": "c", "reward": %d, "step": 3, "finish_reason": "stop", "completion_tokens": 25}\n'
    Path("rows.jsonl").write_text("".join(row % (at // 4, at == 5) for at in range(8)))
    text = after(model("rows.jsonl"), "down", size=(200, 50))
    assert "reward 1 · advantage +1.5 · 25 tokens · step 3 · stop · rows.jsonl row 6" in text


def test_turns_fold_to_a_line_and_unfold(small: Model) -> None:
    folded, back, also = walked(browser(small), [("x",), ("x",), ("x", "down")])
    assert "▸─ user 14 characters: Question e" in folded
    assert "Answer 0 to easy" in folded
    assert "▸─" not in back
    assert "▸─ user" in also
    assert "── assistant" in also


def test_a_click_on_a_line_of_the_list_goes_there(small: Model) -> None:
    async def clicked() -> str:
        app = browser(small)
        async with app.run_test(size=(80, 24)) as pilot:
            await settled(app, pilot)
            await pilot.click(app.groups, offset=(5, 2))
            await settled(app, pilot)
            return key_at(app)

    assert asyncio.run(clicked()) == "mixed 4"


def test_the_beginning_of_a_prompt_stands_beside_a_key_that_says_nothing() -> None:
    keys = {"easy": "0x7f3a", "mixed": "a key with words"}
    rows = [{**row, "prompt_id": keys.get(row["prompt_id"], row["prompt_id"])} for row in rollouts()]
    text = after(model_of(Path(), rows), size=(200, 30))
    assert re.search(r"0x7f3a  Question easy\? +3 ", text)
    assert re.search(r"a key with words +4 ", text)


def test_the_help_lists_the_keys_by_what_they_are_for_and_says_that_it_scrolls(small: Model) -> None:
    text = after(small, "question_mark")
    assert re.search(r"Esc goes back, ↓ scrolls \(\d+ lines\)", text)
    whole = after(small, "question_mark", size=(60, 80))
    assert re.search(r"│ {3}d +next group without a gradient \(all +│\n +│ {10}advantages 0 or missing\)", whole)
    assert "scrolls (" not in whole


def test_every_key_is_pressed_in_this_file() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    pressed = {*re.findall(r'"(\w+)"', source)}
    for keys, *_ in lines(MOVES + STEPS.lstrip()):
        pressed.update(keys.split(", "))
    assert [key.key for key in KEYS if key.key not in pressed] == []
