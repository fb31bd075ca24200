"""Paths that a file or a folder names: they stay inside, lead to files, and what is too large is not read."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from grpo_cli.errors import DataError
from grpo_cli.files.named import inside
from tests.support import harbor
from tests.support.command import Done, adv, in_time
from tests.support.jobs import look, rows_of
from tests.unit.files.test_datasets_on_disk import shards

SECRET = [{"source": "user", "message": "secret question"}, {"source": "agent", "message": "secret answer"}]
SAID = {
    "pipe": "is not a file",
    "folder": "is a directory",
    "zeros": "a link to /dev/zero, out of ",
    "private": "a link to /",
}
JOURNAL = bytes.fromhex("d9d505f920a163d7")


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "..", "a\0b"])
def test_a_name_that_is_absolute_or_climbs_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="which is not inside of it"):
        inside(tmp_path, name)


@pytest.mark.parametrize("name", ["x", "a/x", "..x", "a/...", "a/link", "here", ""])
def test_a_name_inside_of_the_folder_is_a_path(name: str, tmp_path: Path) -> None:
    (tmp_path / "job" / "a").mkdir(parents=True)
    (tmp_path / "job" / "a" / "link").symlink_to("../x")
    (tmp_path / "job" / "here").symlink_to(".")
    (tmp_path / "other name").symlink_to("job")
    for folder in ("job", "other name"):
        assert inside(tmp_path / folder, name) == tmp_path / folder / name


@pytest.mark.parametrize("name", ["link", "folder/x", "twice"])
def test_a_link_out_of_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "x")
    (folder / "folder").symlink_to(tmp_path)
    (folder / "twice").symlink_to("link")
    with pytest.raises(DataError, match=r"a link to .*/x, out of .*/job; copy the folder without links"):
        inside(folder, name)


# --- job folders of Harbor ---------------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job with two trials of a task, and beside it a trajectory that is no part of it."""
    top = harbor.job(tmp_path / "job", 2)
    for at in range(2):
        harbor.trial(top, "t", f"trial-{at}", {"reward": at}, steps=harbor.conversation("t", str(at)))
    harbor.trial(tmp_path, "s", "private", {"reward": 1.0}, steps=SECRET)
    return top


def exported(job: Path) -> Done:
    with in_time(100):
        return adv("export", job.name, "--to", "sft", "-o", "out.jsonl", "-q", cwd=job.parent)


@pytest.mark.parametrize("climbing", ["../../../private", "/{}/private", "a/../../../../private"])
def test_a_step_outside_of_its_trial_is_not_read(climbing: str, job: Path) -> None:
    result = job / "trial-1" / "result.json"
    steps = [{"step_name": climbing.format(job.parent)}]
    result.write_text(json.dumps(json.loads(result.read_bytes()) | {"step_results": steps}))
    done = exported(job)
    assert done.status == 1
    assert not (job.parent / "out.jsonl").exists()
    assert "error: job/trial-1/steps: names " in done.err
    assert "which is not inside of it" in done.err


def pipe(path: Path) -> None:
    os.mkfifo(path)


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


def private(path: Path) -> None:
    path.symlink_to(str(path).replace("/job/trial-1/", "/private/"))


@pytest.mark.parametrize("kind", [pipe, zeros, folder, private])
@pytest.mark.parametrize("name", ["result.json", "agent/trajectory.json"])
def test_what_is_no_file_of_a_trial_is_named_or_left_out(kind: Callable[[Path], None], name: str, job: Path) -> None:
    path = job / "trial-1" / name
    path.unlink()
    kind(path)
    done = exported(job)
    if name == "result.json" and kind is not private:  # as of a trial that is still running
        assert (done.status, len(rows_of(job.parent / "out.jsonl"))) == (0, 1), done
    else:
        assert done.status == 1
        assert not (job.parent / "out.jsonl").exists()
        assert f"trial-1/{name}: {SAID[kind.__name__]}" in done.err


@pytest.mark.parametrize("kind", [pipe, zeros, folder])
@pytest.mark.parametrize("name", ["result.json", "config.json"])
def test_what_a_job_has_beside_its_trials_is_not_waited_for(kind: Callable[[Path], None], name: str, job: Path) -> None:
    (job / name).unlink()
    kind(job / name)
    assert exported(job).status == 0


def test_a_file_of_a_trial_is_as_long_as_a_line_may_be(job: Path) -> None:
    for name in ("agent/trajectory.json", "result.json"):
        path = job / "trial-1" / name
        before = path.read_bytes()
        path.write_bytes(before + b" " * 50_000)
        done = adv("compute", "job", "-o", "out.jsonl", "--max-line", "50000", cwd=job.parent)
        assert done.status == 1
        assert f"{name}: more than 50,000 bytes; --max-line BYTES reads more" in done.err
        path.write_bytes(before)


def test_a_job_in_the_cache_of_the_hub_has_links_to_its_blobs(job: Path) -> None:
    repository = job.parent / "hub" / "datasets--o--n"
    snapshot = repository / "snapshots" / "c0ffee"
    blobs = repository / "blobs"
    for folder in (snapshot, blobs):
        folder.mkdir(parents=True)
    moved = job.rename(snapshot / "job")
    for at, path in enumerate(sorted(moved.rglob("*.json"))):
        blob = path.rename(blobs / str(at))
        path.symlink_to(os.path.relpath(blob, path.parent))
    done = exported(moved)
    assert (done.status, len(rows_of(snapshot / "out.jsonl"))) == (0, 1), done.err
    trajectory = moved / "trial-1" / "agent" / "trajectory.json"
    trajectory.unlink()
    trajectory.symlink_to(job.parent / "private" / "agent" / "trajectory.json")
    (snapshot / "out.jsonl").unlink()
    done = exported(moved)
    assert done.status == 1
    assert "trajectory.json: a link to " in done.err


# --- data sets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["../elsewhere", "/etc"])
def test_a_split_outside_of_its_folder_is_not_named(split: str, tmp_path: Path) -> None:
    shards(tmp_path / "saved" / "train", 1)
    shards(tmp_path / "elsewhere", 1)
    (tmp_path / "saved" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", split]}))
    with pytest.raises(DataError, match="which is not inside of it"):
        look(tmp_path / "saved")


def test_a_shard_that_is_a_link_elsewhere_is_read_if_it_is_named(tmp_path: Path) -> None:
    elsewhere = shards(tmp_path / "elsewhere", 1)
    saved = shards(tmp_path / "saved", 1)
    (shard,) = saved.glob("*.arrow")
    shard.unlink()
    shard.symlink_to(next(elsewhere.glob("*.arrow")))
    with pytest.raises(DataError, match=r"a link to .*elsewhere.*, out of "):
        look(saved)
    assert look(shard).facts["rows"] == 30


@pytest.mark.parametrize("note", ["state.json", "dataset_dict.json"])
@pytest.mark.parametrize("kind", [pipe, zeros])
def test_notes_that_are_no_files_are_no_notes(note: str, kind: Callable[[Path], None], tmp_path: Path) -> None:
    saved = shards(tmp_path / "saved", 1)
    (saved / note).unlink(missing_ok=True)
    kind(saved / note)
    with in_time(100):
        assert adv("inspect", "saved", "-q", cwd=tmp_path).status == 0


# --- databases ---------------------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "x.db")) as opened:
        opened.execute("CREATE TABLE t (prompt_id, reward)")
        opened.executemany("INSERT INTO t VALUES (?, ?)", [(at // 2, at % 2) for at in range(8)])
        opened.commit()
    return tmp_path / "x.db"


def naming(path: Path, victim: Path, first: bytes = JOURNAL) -> None:
    """A journal of no pages, as of a transaction in several databases: it ends with the name of the journal above it."""
    name = os.fsencode(victim)
    head = first + struct.pack(">IIIII", 0, 1, path.stat().st_size // 4096, 512, 4096)
    above = struct.pack(">I", (1 << 30) // 4096 + 1) + name + struct.pack(">II", len(name), sum(name)) + JOURNAL
    Path(f"{path}-journal").write_bytes(head.ljust(512, b"\0") + above)


def test_a_journal_that_names_a_file_deletes_nothing(database: Path) -> None:
    victim = database.with_name("victim")
    victim.write_text("precious")
    naming(database, victim)
    done = adv("inspect", "x.db", cwd=database.parent)
    assert done.status == 1
    assert victim.read_text() == "precious"
    assert "x.db: a transaction is open or was interrupted: " in done.err
    naming(database, victim, first=bytes(8))  # as one that is complete is left with journal_mode=PERSIST
    assert adv("inspect", "x.db", cwd=database.parent).status == 0
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("end", ["-wal", "-journal"])
@pytest.mark.parametrize("kind", [pipe, zeros, folder])
def test_what_is_beside_a_database_is_a_file(end: str, kind: Callable[[Path], None], database: Path) -> None:
    kind(Path(f"{database}{end}"))
    with in_time(100):
        done = adv("inspect", "x.db", cwd=database.parent)
    assert done.status == 1
    assert f"x.db{end}: {SAID[kind.__name__]}" in done.err
