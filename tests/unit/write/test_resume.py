"""Writing in place, and resuming after an interruption."""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, UsageError
from grpo_cli.files.stores import Stored
from grpo_cli.formats import registry
from grpo_cli.read.tables import Binding, FileTable
from grpo_cli.write.outputs import Output
from grpo_cli.write.resume import NAME, Ledger, identity
from grpo_cli.write.verify import verify
from tests.support.jobs import compute, rows_of, write
from tests.support.samples import samples_in


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def files(place: Path) -> list[Path]:
    rows = [{"prompt_id": name, "reward": i % 2} for name in "ab" for i in range(4)]
    return [
        write(place / f"step_{n}.jsonl", [{**row, "prompt_id": f"{n}{row['prompt_id']}"} for row in rows])
        for n in (1, 2, 10)
    ]


def marks(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.glob("*.jsonl")}


def again(files: list[Path], **options: Any) -> dict[str, int]:
    compute(*files, output="out/", resume=True, **options)
    return marks(files[0].parent / "out")


def test_finished_outputs_of_the_same_run_are_kept(files: list[Path], place: Path) -> None:
    before = again(files)
    (place / "out" / "step_2.jsonl").unlink()
    after = again(files)
    assert {name for name in before if before[name] == after[name]} >= {"step_1.jsonl", "step_10.jsonl"}
    assert [row["advantage"] for row in rows_of(place / "out" / "step_2.jsonl")] == pytest.approx(
        [-0.8660239, 0.8660239] * 4
    )


@pytest.mark.parametrize("change", ["plan", "file", "set", "output"])
def test_another_plan_file_or_set_of_files_redoes_everything(change: str, files: list[Path], place: Path) -> None:
    before = again(files)
    options: dict[str, Any] = {}
    if change == "plan":
        options = {"method": "rloo"}
    elif change == "file":
        write(files[2], rows_of(files[2]))
    elif change == "set":
        files = [*files, write(place / "more.jsonl", [{"prompt_id": "z", "reward": i} for i in range(2)])]
    else:
        (place / "out" / "step_1.jsonl").write_text("touched")
        with pytest.raises(
            UsageError, match=r"out/step_1.jsonl exists; not left by a run with --resume"
        ):  # somebody else's work now
            again(files)
        options = {"force": True}
    after = again(files, **options)
    redone = {name for name in before if before[name] != after[name]}
    assert redone == ({"step_1.jsonl"} if change == "output" else set(before))


def test_a_cut_note_counts_as_not_done(files: list[Path], place: Path) -> None:
    before = again(files)
    ledger = place / "out" / NAME
    ledger.write_text(ledger.read_text()[:-10])
    with pytest.raises(UsageError, match=r"out/step_10.jsonl exists"):
        again(files)
    assert {name for name, mark in again(files, force=True).items() if mark != before[name]} == {"step_10.jsonl"}


def test_a_run_that_was_killed_can_be_resumed_by_another_plan_and_from_another_place(
    files: list[Path], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = again(files)
    finished = Ledger.finished

    def killed(self: Ledger, target: Path, temporary: Path) -> None:
        finished(self, target, temporary)
        if target.name == "step_2.jsonl":  # noted, but not renamed yet
            raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "finished", killed)
    with pytest.raises(KeyboardInterrupt):
        again(files, method="rloo")
    monkeypatch.undo()
    half = marks(place / "out")
    assert {name for name in before if before[name] != half[name]} == {"step_1.jsonl"}
    monkeypatch.chdir(place / "out")
    facts = compute(*files, output="../out/", resume=True, method="rloo").facts
    whole = marks(place / "out")
    assert (facts["kept_outputs"], whole["step_1.jsonl"]) == (1, half["step_1.jsonl"])
    assert {name for name in before if half[name] != whole[name]} == {"step_2.jsonl", "step_10.jsonl"}


def test_the_identity_of_a_run_on_objects_does_not_depend_on_where_it_is_started(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def identity_of(url: str, tag: str) -> str:
        found = {"last_modified": dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "size": 9, "e_tag": tag}
        table = FileTable(Stored.of(url, found), registry.lines())
        return identity(Plan(), Binding(), None, Output(), [table])

    here = identity_of("s3://bucket/x.jsonl", "a")
    assert here not in {identity_of("s3://bucket/y.jsonl", "a"), identity_of("s3://bucket/x.jsonl", "b")}
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place / "elsewhere")
    assert identity_of("s3://bucket/x.jsonl", "a") == here


def test_a_file_that_another_process_has_locked_is_not_rewritten_in_place(files: list[Path]) -> None:
    before = files[0].read_bytes()
    with files[0].open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        with pytest.raises(DataError, match="another process has locked it"):
            compute(files[0], in_place=True)
    assert files[0].read_bytes() == before
    compute(files[0], in_place=True)


def test_resume_needs_a_directory(files: list[Path]) -> None:
    with pytest.raises(UsageError, match="--resume keeps its notes in the output directory"):
        compute(files[0], output="one.jsonl", resume=True)


@pytest.mark.parametrize("name", ["rewards.jsonl", "rewards.parquet"])
def test_in_place_the_input_gains_the_column(name: str, place: Path) -> None:
    samples_in(place)
    samples_in(place / "before")
    compute(place / name, in_place=True)
    assert verify(place / name, place / "before" / name).added == ("advantage",)
    with pytest.raises(DataError, match="--replace"):
        compute(place / name, in_place=True)
    compute(place / name, in_place=True, replace=True, method="rloo")
    assert verify(place / name, place / "before" / name).by == "bytes"


def test_in_place_with_dropped_rows_rewrites_the_file(place: Path) -> None:
    samples_in(place)
    compute(place / "rewards.jsonl", in_place=True, zero_variance="drop")
    assert len((place / "rewards.jsonl").read_text().splitlines()) == 37


@pytest.mark.parametrize(
    "options", [{"output": "x.jsonl"}, {"only": True}, {"resume": True}, {"duplicate": True, "zero_variance": "drop"}]
)
def test_in_place_cannot_be_combined_with_other_outputs(options: dict[str, Any], files: list[Path]) -> None:
    before = files[0].read_bytes()
    with pytest.raises(UsageError, match="cannot be combined"):
        compute(files[0], in_place=True, **options)
    assert files[0].read_bytes() == before


def test_the_ledger_is_lines_of_json_behind_a_digest(files: list[Path], place: Path) -> None:
    again(files)
    key, *lines = (place / "out" / NAME).read_text().splitlines()
    assert len(key) == 64
    assert [json.loads(line)[0] for line in lines] == [f"step_{n}.jsonl" for n in (1, 2, 10)]


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
def test_notes_that_are_not_a_regular_file_stop_the_run(kind: str, files: list[Path], place: Path) -> None:
    (place / "out").mkdir()
    (place / "mine.txt").write_text("mine")
    notes = place / "out" / NAME
    if kind == "pipe":
        os.mkfifo(notes)
    else:
        notes.symlink_to(place / ("mine.txt" if kind == "link" else "nothing.txt"))
    with pytest.raises(DataError, match=r"\.grpo-adv\.resume"):
        again(files)
    assert (place / "mine.txt").read_text() == "mine"
    assert not (place / "nothing.txt").exists()
    assert [path.name for path in (place / "out").iterdir()] == [NAME]


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\n[]", b"mine\n", b"{}\n[1, 2]\n", b"KEY\n[]\n", b"KEY\n[[], 2]\n", b"KEY\n5]\n"]
)
def test_notes_of_another_shape_stop_the_run(content: bytes, files: list[Path], place: Path) -> None:
    (place / "out").mkdir()
    content = content.replace(b"KEY", b"0" * 64)
    (place / "out" / NAME).write_bytes(content)
    with pytest.raises(DataError, match="was not written by --resume; move it away, or choose another -o DIR/"):
        again(files)
    assert (place / "out" / NAME).read_bytes() == content
