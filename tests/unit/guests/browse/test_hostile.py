"""Control characters, texts of any size and files that change are shown or reported, and never end the program."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.jobs import write
from tests.unit.guests.browse.files import browser, driven, model, model_of, rollouts, walked

SAID = "the file changed while it was being read"
HOSTILE = [
    "\x1b[2J\x1b[31m", "\x00\x07\x08", "\u202eright to left\u202c", "[bold red]x[/]", "[/]", "[@click=app.quit]x[/]",
    "\ud800", "", " ", "\t",
]  # fmt: skip


def test_whatever_keys_and_texts_are_the_screen_shows_them() -> None:
    rows = [
        {"prompt_id": f"{at}{text}", "prompt": text, "completion": f"<{text}>", "reward": reward, text or "empty": text}
        for at, text in enumerate(HOSTILE)
        for reward in (0, 1)
    ]
    made = model_of(Path(), rows)
    keys = ("f", "f", "c", "c", "a", "escape", "question_mark", "escape", "o", "escape", "slash", ":[", "enter")
    texts = walked(browser(made), [[*["down"] * 3], *([key] for key in keys)])
    assert "[bold red]x[/]" in texts[0]
    for text in texts:
        assert all(line.isprintable() for line in text.splitlines())


def test_a_line_of_ten_megabytes_is_shown_from_both_ends() -> None:
    text = f"BEGIN {'word ' * 2_000_000} END"
    rows = [{"prompt_id": "a", "prompt": "ask", "completion": text, "reward": at} for at in (0, 1)]
    text = driven(browser(model_of(Path(), rows)), size=(120, 200))
    assert "BEGIN" in text
    assert "END" in text
    assert "left out, t shows them" in text


def test_rows_without_a_reward_are_listed_and_say_so() -> None:
    Path("rows.jsonl").write_text("""\
{"prompt_id": "a", "prompt": "ask", "completion": "say", "reward": 1.0}
{"prompt_id": "a", "prompt": "ask", "completion": "say", "reward": null}
{"prompt_id": "b", "prompt": "ask", "completion": "say", "reward": null}
""")
    text = driven(browser(model("rows.jsonl")), size=(200, 30))
    statuses = [line.partition("│")[0].split()[-1] for line in text.splitlines()[2:4]]
    assert statuses == ["1", "?"]  # a single reward, and none


def test_rows_without_a_text_show_their_fields() -> None:
    rows = [{"prompt_id": "a", "sample": at, "reward": at} for at in range(2)]
    text = driven(browser(model_of(Path(), rows)))
    assert "no text column found, so all fields are shown" in text
    assert "── sample" in text


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_a_file_that_changes_or_vanishes_is_said_in_the_status_line(name: str) -> None:
    path = write(name, rollouts())
    made = model(path)
    write(path, rollouts()[:4])
    changed = driven(browser(made), "down", size=(200, 24))
    assert SAID in " ".join(changed.split())
    assert "mixed" in changed
    path.unlink()
    assert SAID in " ".join(driven(browser(made), "down", "f", size=(200, 24)).split())


def test_a_file_that_is_cut_under_the_screen_does_not_end_it() -> None:
    path = write("rows.parquet", rollouts())
    made = model(path)
    data = path.read_bytes()
    shutil.copystat(path, ".")
    path.write_bytes(data[: len(data) // 2])
    assert "rows.parquet" in driven(browser(made), "down", "slash", ":easy", "enter", "m", "enter", size=(120, 24))
