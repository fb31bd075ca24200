"""An output is the old file or the new one: whatever the disk, another program or a kill does meanwhile."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.errors import DataError, UsageError
from grpo_cli.files import atomic
from grpo_cli.files.atomic import replacing


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(autouse=True)
def _every_folder_is_new() -> None:
    atomic.remove_abandoned.cache_clear()


def test_an_error_of_the_sync_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fails)
    target = tmp_path / "out.jsonl"
    target.write_bytes(b"old")
    with (
        pytest.raises(DataError, match=r"out\.jsonl: cannot be written: no space left on device, nothing was written"),
        replacing(target, force=True) as sink,
    ):
        sink.write(b"new")
    assert target.read_bytes() == b"old"
    assert names_in(tmp_path) == ["out.jsonl"]


def test_without_hard_links_the_file_is_renamed_and_this_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(*_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "link", refuses)
    with caplog.at_level(logging.DEBUG), replacing(tmp_path / "out", force=False) as sink:
        sink.write(b"ours")
    assert (tmp_path / "out").read_bytes() == b"ours"
    assert "no hard links here" in caplog.text
    assert names_in(tmp_path) == ["out"]


KILLED = """
import os, signal, sys
from grpo_cli.files.atomic import replacing
with replacing(sys.argv[1], force=True) as sink:
    sink.write(b"half")
    sink.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_temporary_file_of_a_killed_run_is_removed_by_the_next_run_that_writes_there(tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    target.write_bytes(b"old")
    subprocess.run([sys.executable, "-c", KILLED, target], check=False)
    (left,) = (name for name in names_in(tmp_path) if name != "out.jsonl")
    assert re.fullmatch(r"\.out\.jsonl\.[0-9a-f]{12}\.tmp", left)
    assert target.read_bytes() == b"old"
    with replacing(tmp_path / "other.jsonl", force=False) as sink:
        sink.write(b"new")
    assert names_in(tmp_path) == ["other.jsonl", "out.jsonl"]


def test_a_temporary_file_that_is_still_written_and_what_only_looks_like_one_stay(tmp_path: Path) -> None:
    names = [".out.0123456789ab.tmp", ".out.0123456789.tmp", "out.0123456789ab.tmp", ".0123456789ab.tmp", ".x.tmp"]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    with (tmp_path / names[0]).open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        with replacing(tmp_path / "new", force=False) as sink:
            sink.write(b"new")
        assert {*names_in(tmp_path)} == {"new", *names}


def test_a_retried_task_accepts_its_own_output_and_replaces_no_other(tmp_path: Path) -> None:
    target = tmp_path / "out"
    for _ in range(2):
        with replacing(target, force=False, retried=True) as sink:
            sink.write(b"same")
    with pytest.raises(UsageError, match="out: exists"), replacing(target, force=False, retried=True) as sink:
        sink.write(b"else")
    assert target.read_bytes() == b"same"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_second_name_that_stays_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EPERM, "not permitted", str(self), missing_ok)

    with replacing(tmp_path / "out", force=False) as sink:
        sink.write(b"new")
        monkeypatch.setattr(type(tmp_path), "unlink", refuse)
    monkeypatch.undo()
    (other,) = (path for path in tmp_path.iterdir() if path.name != "out")
    assert (tmp_path / "out").read_bytes() == other.read_bytes() == b"new"
