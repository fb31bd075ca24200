"""A folder that is being written: complete files appear, half-written ones are waited for, the view stays."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from grpo_cli.browse.app import Browser
from grpo_cli.browse.follow import Folder
from grpo_cli.errors import DataError
from tests.support.jobs import write
from tests.unit.browse.files import browser, driven, model, rollouts, screen

LATER = [{**row, "prompt_id": f"later-{row['prompt_id']}"} for row in rollouts()]


def test_a_file_appears_once_it_stays_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "step_1.jsonl", rollouts())
    folder = Folder(model(tmp_path))
    assert folder.look() is None
    write(tmp_path / "step_2.jsonl", LATER)
    assert folder.look() is None  # it may still be written
    made = folder.look()
    assert made is not None
    assert made.size == 10
    assert folder.look() is None


def test_a_half_written_file_is_waited_for(tmp_path: Path) -> None:
    write(tmp_path / "step_1.jsonl", rollouts())
    folder = Folder(model(tmp_path))
    for name in ("step_2.jsonl", "step_3.parquet"):
        whole = write(tmp_path / name, [{**row, "prompt_id": f"{name} {row['prompt_id']}"} for row in rollouts()])
        data = whole.read_bytes()
        whole.write_bytes(data[:-20])
        assert [folder.look() for _ in range(3)] == [None] * 3
        assert folder.waiting == [str(whole)]
        whole.write_bytes(data)
        assert folder.look() is None
        assert folder.look() is not None


def test_files_that_cannot_be_read_together_are_refused_once(tmp_path: Path) -> None:
    write(tmp_path / "step_1.jsonl", rollouts())
    folder = Folder(model(tmp_path))
    write(tmp_path / "step_2.jsonl", rollouts())
    folder.look()
    with pytest.raises(DataError, match="rows in several files"):
        folder.look()
    assert folder.look() is None


def test_a_file_that_grows_and_one_that_goes_are_seen(tmp_path: Path) -> None:
    path = write(tmp_path / "step_1.jsonl", rollouts())
    other = write(tmp_path / "step_2.jsonl", LATER[:3])
    folder = Folder(model(tmp_path))
    with path.open("a", encoding="utf-8") as handle:
        handle.write('{"prompt_id": "new", "reward": 1}\n')
    assert folder.look() is None
    made = folder.look()
    assert made is not None
    assert made.size == 7
    other.unlink()
    made = folder.look()
    assert made is not None
    assert made.size == 6


def test_the_view_stays_where_it_is(tmp_path: Path) -> None:
    write(tmp_path / "step_2.jsonl", rollouts())
    made = model(tmp_path)
    folder = Folder(made)

    def then(app: Browser) -> tuple[str, int]:
        write(tmp_path / "step_1.jsonl", LATER)
        folder.look()
        fresh = folder.look()
        assert fresh is not None
        app._put_fresh(fresh)
        assert app.code is not None
        assert app.row is not None
        return app.model.inspection.narrow.label(app.code), app.row

    assert driven(browser(made), "down", "tab", "down", then=then) == ("mixed", 12 + 3)


def test_a_folder_is_looked_at_while_it_is_shown(tmp_path: Path) -> None:
    write(tmp_path / "step_1.jsonl", rollouts())
    app = browser(model(tmp_path), follow=True)

    async def run() -> str:
        async with app.run_test(size=(80, 24)) as pilot:
            write(tmp_path / "step_2.jsonl", LATER)
            for _ in range(100):
                await pilot.pause(0.1)
                if "10 groups" in screen(app):
                    break
            return screen(app)

    assert "2 files: 10 groups" in asyncio.run(run())


def test_a_file_that_was_read_and_is_being_rewritten_keeps_the_others_waiting(tmp_path: Path) -> None:
    path = write(tmp_path / "step_1.jsonl", rollouts())
    folder = Folder(model(tmp_path))
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    write(tmp_path / "step_2.jsonl", LATER)
    assert [folder.look() for _ in range(3)] == [None] * 3
    assert folder.waiting == [str(path)]
    path.write_bytes(data)
    assert folder.look() is None
    made = folder.look()
    assert made is not None
    assert made.size == 10
