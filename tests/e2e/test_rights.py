"""A user without rights: what cannot be read or written is named in one line, and nothing is left out or changed in silence."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support import harbor
from tests.support.drawn import some
from tests.support.jobs import rows_of, write
from tests.support.unprivileged import unprivileged
from tests.unit.files.test_datasets_on_disk import shards

ROWS = [{"prompt_id": at // 4, "reward": at % 3, "prompt": "p", "completion": "c"} for at in range(40)]

# A command, the file or folder whose mode is 0, and the words of the error.
UNREADABLE = {
    "an input": ("compute in.jsonl", "in.jsonl", "in.jsonl: permission denied"),
    "a Parquet input": ("compute in.parquet", "in.parquet", "in.parquet: permission denied"),
    "a file in a folder": ("compute folder -o out/", "folder/a.jsonl", "folder/a.jsonl: permission denied"),
    "a folder": ("compute folder -o out/", "folder", "folder: permission denied"),
    "a folder in a folder": ("compute folder -o out/", "folder/deep", "folder/deep: permission denied"),
    "a folder that a pattern matches": ("compute fol*er -o out/", "folder", "folder: permission denied"),
    "a folder in a pattern": ("compute folder/*/b.jsonl -o out/", "folder/deep", "folder/*/b.jsonl: matches nothing"),
    "a file in a folder that cannot be searched": ("compute folder/a.jsonl -o out.jsonl", "folder", "folder/a.jsonl: permission denied"),
    "--config": ("compute in.jsonl --config c.toml", "c.toml", "c.toml: permission denied"),
    "--presets": ("compute in.jsonl --presets c.toml", "c.toml", "c.toml: permission denied"),
    "--from": ("add in.jsonl --from copy.jsonl -o out.jsonl", "copy.jsonl", "copy.jsonl: permission denied"),
    "--rescored": ("inspect in.jsonl --rescored copy.jsonl", "copy.jsonl", "copy.jsonl: permission denied"),
    "--against": ("verify in.jsonl --against copy.jsonl", "copy.jsonl", "copy.jsonl: permission denied"),
    "the result of a trial": ("compute job -o out.jsonl", "job/b/result.json", "job/b/result.json: permission denied"),
    "a trajectory": ("compute job -o out.jsonl", "job/b/agent/trajectory.json", "job/b/agent/trajectory.json: permission denied"),
    "the folder of an agent": ("compute job -o out.jsonl", "job/b/agent", "job/b/agent/trajectory.json: permission denied"),
    "a trial": ("compute job -o out.jsonl", "job/b", "job/b/"),
    "the list of shards": ("compute saved -o out/", "saved/state.json", "saved/state.json: permission denied"),
    "a log of a database": ("compute x.db -o out.jsonl", "x.db-wal", "x.db-wal: permission denied"),
}  # fmt: skip
# A command, the folder that is read-only, and the words of the error.
UNWRITABLE = {
    "-o": ("compute in.jsonl -o ro/out.jsonl", "ro", "ro/out.jsonl: cannot be written: permission denied; choose another -o"),
    "-o of an existing file": ("compute in.jsonl -o ro/old.jsonl --force", "ro", "ro/old.jsonl: cannot be written: permission denied"),
    "-o DIR/": ("compute folder -o ro/new/", "ro", "ro/new: cannot be created: permission denied; choose another -o"),
    "beside the input": ("compute ro/old.jsonl", "ro", "old.advantages.jsonl: cannot be written: permission denied"),
    "--in-place": ("compute ro/old.jsonl --in-place", "ro", "ro/old.jsonl: cannot be written: permission denied"),
    "--in-place of Parquet": ("compute ro/old.parquet --in-place", "ro", "ro/old.parquet: cannot be written: permission denied"),
    "--summary": ("select in.jsonl --limit 1 -o - --summary ro/s.json", "ro", "--summary ro/s.json cannot be written: permission denied"),
    "select": ("select in.jsonl --limit 1 -o ro/out.jsonl", "ro", "ro/out.jsonl: cannot be written: permission denied"),
    "export": ("export in.jsonl --to sft -o ro/out.jsonl", "ro", "ro/out.jsonl: cannot be written: permission denied"),
    "compare": ("compare in.jsonl -m grpo -m rloo --write -o ro/out.jsonl", "ro", "ro/out.jsonl: cannot be written: permission denied"),
    "add": ("add in.jsonl --from copy.jsonl --column reward=more -o ro/out.jsonl", "ro", "ro/out.jsonl: cannot be written: permission denied"),
    "report": ("report in.jsonl -o ro/r.html", "ro", "ro/r.html: cannot be written: permission denied"),
    "skill": ("skill --install ro", "ro", "ro/grpo-adv: permission denied"),
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    for name in (
        "in.jsonl",
        "copy.jsonl",
        "in.parquet",
        "folder/a.jsonl",
        "folder/deep/b.jsonl",
        "ro/old.jsonl",
        "ro/old.parquet",
    ):
        write(tmp_path / name, [{**row, "prompt_id": f"{name} {row['prompt_id']}"} for row in ROWS])
    (tmp_path / "c.toml").write_text("")
    job = harbor.job(tmp_path / "job", 2)
    for at, name in enumerate("ab"):
        harbor.trial(job, "t", name, {"reward": at}, steps=harbor.conversation("t", name))
    shards(tmp_path / "saved", 1)
    with closing(sqlite3.connect(tmp_path / "x.db")) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE t (prompt_id, reward)")
        writer.executemany("INSERT INTO t VALUES (?, ?)", [(at // 2, at % 2) for at in range(8)])
        writer.commit()
        modes = {path: path.stat().st_mode for path in tmp_path.rglob("*")}
        yield tmp_path
        for path, mode in modes.items():
            path.chmod(mode)


def files(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def refused(place: Path, line: str, said: str) -> None:
    done = unprivileged(*line.split(), cwd=place)
    assert done.status in {1, 2}, done
    assert (done.err.count("\n"), done.err.startswith("error: "), said in done.err) == (1, True, True), done


@pytest.mark.parametrize("what", some(UNREADABLE, every=2))
def test_what_cannot_be_read_is_named(what: str, place: Path) -> None:
    line, name, said = UNREADABLE[what]
    before, mode = files(place), (place / name).stat().st_mode
    (place / name).chmod(0)
    refused(place, line, said)
    (place / name).chmod(mode)
    assert {name: raw for name, raw in files(place).items() if "x.db-shm" not in name} == {
        name: raw for name, raw in before.items() if "x.db-shm" not in name
    }


@pytest.mark.parametrize("what", some(UNWRITABLE, every=2))
def test_what_cannot_be_written_is_named(what: str, place: Path) -> None:
    line, name, said = UNWRITABLE[what]
    before = files(place)
    (place / name).chmod(0o555 if (place / name).is_dir() else 0o444)
    refused(place, line, said)
    assert files(place) == before


def test_a_read_only_file_in_a_folder_of_ones_own_is_replaced(place: Path) -> None:
    (place / "copy.jsonl").chmod(0o444)
    assert unprivileged("compute", "in.jsonl", "-o", "copy.jsonl", "--force", cwd=place).status == 0
    assert len(rows_of(place / "copy.jsonl")) == len(ROWS)
    assert (place / "copy.jsonl").stat().st_mode & 0o777 == 0o444


def test_what_only_root_reads_on_a_disk_is_no_input(place: Path) -> None:
    (place / "folder" / "lost+found").mkdir(mode=0)
    assert unprivileged("compute", "folder", "-o", "out/", cwd=place).status == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
def test_an_owner_that_cannot_be_kept_is_said(place: Path) -> None:
    os.chown(place / "copy.jsonl", 65534, 65534)
    done = unprivileged("compute", "in.jsonl", "-o", "copy.jsonl", "--force", "-q", cwd=place)
    assert done.status == 0
    assert done.err == f"grpo-adv: {place.resolve()}/copy.jsonl had another owner or group: it is yours now\n"
    assert (place / "copy.jsonl").stat().st_uid == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
def test_a_file_of_another_user_in_a_folder_for_all_is_not_replaced(place: Path) -> None:
    folder = place / "all"
    folder.mkdir()
    write(folder / "out.jsonl", ROWS)
    os.chown(folder / "out.jsonl", 65534, 65534)
    os.chown(folder, 65534, 65534)
    folder.chmod(0o1777)
    before = files(place)
    refused(
        place, "compute in.jsonl -o all/out.jsonl --force", "all/out.jsonl: cannot be written: operation not permitted"
    )
    assert files(place) == before


@pytest.mark.parametrize(
    "line", ["compute in.jsonl", "inspect .", "compute {}/in.jsonl -o out.jsonl", "skill --install skills"]
)
def test_a_working_folder_that_is_gone_is_one_line(line: str, place: Path) -> None:
    (place / "gone").mkdir()
    script = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, [sys.executable, '-m', 'grpo_cli', *sys.argv[1:]])"
    words = [sys.executable, "-c", script, *line.format(place).split()]
    done = subprocess.run(words, cwd=place / "gone", capture_output=True, text=True, check=False)
    assert (done.returncode in {1, 2}, done.stderr.count("\n"), "Traceback" in done.stderr) == (True, 1, False), (
        done.stderr
    )
