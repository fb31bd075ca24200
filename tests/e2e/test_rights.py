"""A user without rights: what cannot be read or written is named in one line, and nothing is left out or changed in silence."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from tests.support import harbor
from tests.support.command import files
from tests.support.drawn import some
from tests.support.jobs import rows_of
from tests.support.unprivileged import unprivileged
from tests.unit.files.test_datasets_on_disk import shards

ROWS = """{"prompt_id": "FILE", "reward": 1, "prompt": "p", "completion": "c"}
{"prompt_id": "FILE", "reward": 0, "prompt": "p", "completion": "d"}
"""

# A command, the file or folder whose mode is 0, and the words of the error.
UNREADABLE = """
compute in.jsonl | in.jsonl | in.jsonl: permission denied
compute in.parquet | in.parquet | in.parquet: permission denied
compute folder -o out/ | folder/a.jsonl | folder/a.jsonl: permission denied
compute folder -o out/ | folder | folder: permission denied
compute folder -o out/ | folder/deep | folder/deep: permission denied
compute fol*er -o out/ | folder | folder: permission denied
compute folder/*/b.jsonl -o out/ | folder/deep | folder/*/b.jsonl: no file matches this pattern
compute folder/a.jsonl -o out.jsonl | folder | folder/a.jsonl: permission denied
compute in.jsonl --config c.toml | c.toml | c.toml: permission denied
compute in.jsonl --presets c.toml | c.toml | c.toml: permission denied
add in.jsonl --from copy.jsonl -o out.jsonl | copy.jsonl | copy.jsonl: permission denied
inspect in.jsonl --rescored copy.jsonl | copy.jsonl | copy.jsonl: permission denied
verify in.jsonl --against copy.jsonl | copy.jsonl | copy.jsonl: permission denied
compute job -o out.jsonl | job/b/result.json | job/b/result.json: permission denied
compute job -o out.jsonl | job/b/agent/trajectory.json | job/b/agent/trajectory.json: permission denied
compute job -o out.jsonl | job/b/agent | job/b/agent/trajectory.json: permission denied
compute job -o out.jsonl | job/b | job/b/
compute saved -o out/ | saved/state.json | saved/state.json: permission denied
compute x.db -o out.jsonl | x.db-wal | x.db-wal: permission denied
"""
# A command that writes into the folder `ro`, which is read-only, and the words of the error.
UNWRITABLE = """
compute in.jsonl -o ro/out.jsonl | ro/out.jsonl: cannot be written: permission denied; choose another -o
compute in.jsonl -o ro/old.jsonl --force | ro/old.jsonl: cannot be written: permission denied
compute folder -o ro/new/ | ro/new: cannot be created: permission denied; choose another -o
compute ro/old.jsonl | old.advantages.jsonl: cannot be written: permission denied
compute ro/old.jsonl --in-place | ro/old.jsonl: cannot be written: permission denied
compute in.jsonl ro/old.jsonl --group-within file --in-place | ro/old.jsonl: cannot be written: permission denied; write a new file with -o FILE
compute in.jsonl ro/old.jsonl --group-within file | ro/old.advantages.jsonl: cannot be written: permission denied
select in.jsonl ro/old.jsonl --group-within file --where 'size > 0' | ro/old.selected.jsonl: cannot be written: permission denied
compute ro/old.parquet --in-place | ro/old.parquet: cannot be written: permission denied
select in.jsonl --limit 1 -o - --summary ro/s.json | ro/s.json: cannot be written: permission denied; all other outputs were written
select in.jsonl --limit 1 -o ro/out.jsonl | ro/out.jsonl: cannot be written: permission denied
export in.jsonl --to sft -o ro/out.jsonl | ro/out.jsonl: cannot be written: permission denied
compare in.jsonl -m grpo -m rloo --write -o ro/out.jsonl | ro/out.jsonl: cannot be written: permission denied
add in.jsonl --from copy.jsonl --column reward=more -o ro/out.jsonl | ro/out.jsonl: cannot be written: permission denied
report in.jsonl -o ro/r.html | ro/r.html: cannot be written: permission denied
skill --install ro | ro/grpo-adv: permission denied
"""


def cases(table: str) -> list[list[str]]:
    return [line.split(" | ") for line in table.strip().splitlines()]


@pytest.fixture(autouse=True)
def _files(place: Path) -> Iterator[None]:
    for folder in ("folder/deep", "ro"):
        Path(folder).mkdir(parents=True)
    for name in ("in.jsonl", "copy.jsonl", "folder/a.jsonl", "folder/deep/b.jsonl", "ro/old.jsonl"):
        Path(name).write_text(ROWS.replace("FILE", name))
    for name in ("in", "ro/old"):
        pl.read_ndjson(f"{name}.jsonl").write_parquet(f"{name}.parquet")
    Path("c.toml").touch()
    job = harbor.job(Path("job"), 2)
    for at, name in enumerate("ab"):
        harbor.trial(job, "t", name, {"reward": at}, steps=harbor.conversation("t", name))
    shards(Path("saved"), 1)
    with closing(sqlite3.connect("x.db")) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE t (prompt_id, reward)")
        writer.execute("INSERT INTO t VALUES (0, 0), (0, 1)")
        writer.commit()
        modes = {path: path.stat().st_mode for path in place.rglob("*")}
        yield
        for path, mode in modes.items():
            path.chmod(mode)


def contents() -> dict[str, bytes]:
    """All but what SQLite's library shares between processes."""
    return {name: data for name, data in files().items() if name != "x.db-shm"}


def refused(line: str, said: str) -> None:
    done = unprivileged(line)
    assert done.status in {1, 2}, done
    assert (done.err.count("\n"), done.err.startswith("error: "), said in done.err) == (1, True, True), done


@pytest.mark.parametrize(("line", "name", "said"), some(cases(UNREADABLE), every=2))
def test_what_cannot_be_read_is_named(line: str, name: str, said: str) -> None:
    before = contents()
    mode = Path(name).stat().st_mode
    Path(name).chmod(0)
    refused(line, said)
    Path(name).chmod(mode)
    assert contents() == before


@pytest.mark.parametrize(("line", "said"), some(cases(UNWRITABLE), every=2))
def test_what_cannot_be_written_is_named(line: str, said: str) -> None:
    before = contents()
    Path("ro").chmod(0o555)
    refused(line, said)
    assert contents() == before


def test_a_read_only_file_in_a_folder_of_ones_own_is_replaced() -> None:
    copy = Path("copy.jsonl")
    copy.chmod(0o444)
    assert unprivileged("compute in.jsonl -o copy.jsonl --force").status == 0
    assert len(rows_of(copy)) == 2
    assert copy.stat().st_mode & 0o777 == 0o444


def test_what_only_root_reads_on_a_disk_is_no_input() -> None:
    Path("folder/lost+found").mkdir(mode=0)
    assert unprivileged("compute folder -o out/").status == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
def test_an_owner_that_cannot_be_kept_is_said(place: Path) -> None:
    os.chown("copy.jsonl", 65534, 65534)
    done = unprivileged("compute in.jsonl -o copy.jsonl --force -q")
    assert done.status == 0
    assert done.err == f"grpo-adv: {place.resolve()}/copy.jsonl had another owner or group: it is yours now\n"
    assert Path("copy.jsonl").stat().st_uid == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
def test_a_file_of_another_user_in_a_folder_for_all_is_not_replaced() -> None:
    Path("all").mkdir()
    Path("all/out.jsonl").write_text(ROWS)
    for name in ("all/out.jsonl", "all"):
        os.chown(name, 65534, 65534)
    Path("all").chmod(0o1777)
    before = contents()
    said = "all/out.jsonl: cannot be written: operation not permitted"
    refused("compute in.jsonl -o all/out.jsonl --force", said)
    assert contents() == before


@pytest.mark.parametrize(
    "line", ["compute in.jsonl", "inspect .", "compute {}/in.jsonl -o out.jsonl", "skill --install skills"]
)
def test_a_working_folder_that_is_gone_is_one_line(line: str, place: Path) -> None:
    Path("gone").mkdir()
    script = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, [sys.executable, '-m', 'grpo_cli', *sys.argv[1:]])"
    words = [sys.executable, "-c", script, *line.format(place).split()]
    done = subprocess.run(words, cwd="gone", capture_output=True, text=True, check=False)
    assert done.returncode in {1, 2}
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
