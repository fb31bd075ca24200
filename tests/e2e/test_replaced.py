"""What is kept of a file that is replaced: its mode, its owner, its attributes and its access list; only its time is new."""

from __future__ import annotations

import os
import stat
import struct
import sys
import time
from pathlib import Path

import pytest

from tests.support.command import adv, ran
from tests.support.drawn import paired
from tests.support.jobs import write

ROWS = [{"prompt_id": at // 4, "reward": at % 3, "prompt": "p", "completion": "c"} for at in range(40)]
REPLACING = {
    "out.jsonl": "compute in.jsonl -o out.jsonl --force",
    "out.parquet": "compute in.jsonl -o out.parquet --force",
    "out.csv.gz": "compute in.jsonl -o out.csv.gz --force",
    "page.html": "report in.jsonl -o page.html --force",
    "s.json": "compute in.jsonl -o - --summary s.json --force",
    "chosen.jsonl": "select in.jsonl --limit 2 -o chosen.jsonl --force",
    "sft.jsonl": "export in.jsonl --to sft -o sft.jsonl --force",
    "both.jsonl": "compare in.jsonl -m grpo -m rloo --write -o both.jsonl --force",
    "added.jsonl": "add in.jsonl --from in.jsonl --column reward=more -o added.jsonl --force",
    "mine.jsonl": "compute mine.jsonl --in-place",
    "mine.csv": "compute mine.csv --in-place",
    "mine.json": "compute mine.json --in-place",
    "mine.arrow": "compute mine.arrow --in-place",
    "mine.parquet": "compute mine.parquet --in-place",
    "skills/grpo-adv/SKILL.md": "skill --install skills --force",
}
NOBODY = 65534
# An access list: the owner reads and writes, user 65534 reads, the group and the mask read, others nothing.
ENTRIES = [(1, 6, 2**32 - 1), (2, 4, NOBODY), (4, 4, 2**32 - 1), (16, 4, 2**32 - 1), (32, 0, 2**32 - 1)]
ACCESS = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in ENTRIES)
ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="other systems have other attributes")
PATHS = [Path(name) for name in REPLACING]


@pytest.fixture(autouse=True)
def _files(place: Path) -> None:
    write(place / "in.jsonl", ROWS)
    (place / "skills/grpo-adv").mkdir(parents=True)
    for name in REPLACING:
        if name.startswith("mine"):
            write(place / name, ROWS)
        else:
            (place / name).write_text("old")


def replace(path: Path) -> os.stat_result:
    """Run the command that replaces a file; its new state."""
    old = path.read_bytes()
    done = adv(REPLACING[str(path)])
    assert (done.status, "had another owner" in done.err) == (0, False), done.err
    assert path.read_bytes() != old
    return path.stat()


def set_attribute(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, name, value)
    except OSError:
        pytest.skip("this file system has no attributes")


@pytest.mark.parametrize(("path", "mode"), paired(PATHS, [0o600, 0o664, 0o606, 0o440]))
def test_the_mode_the_owner_and_the_group_are_kept_and_the_time_is_new(path: Path, mode: int) -> None:
    if os.geteuid() == 0:  # only root gives files away
        os.chown(path, NOBODY, NOBODY - 1)
    path.chmod(mode)
    old = path.stat()
    os.utime(path, (1, 1))
    before = time.time_ns()
    state = replace(path)
    assert stat.S_IMODE(state.st_mode) == mode
    assert state.st_uid == old.st_uid
    assert state.st_gid == old.st_gid
    assert before - 10**8 < state.st_mtime_ns < time.time_ns() + 10**8


@ONLY_LINUX
@pytest.mark.parametrize("path", PATHS, ids=str)
def test_attributes_and_the_access_list_are_kept(path: Path) -> None:
    wanted = {"user.run": b"2026-11-27", "user.empty": b"", "system.posix_acl_access": ACCESS}
    for each, value in wanted.items():
        set_attribute(path, each, value)
    mode = path.stat().st_mode
    assert replace(path).st_mode == mode
    assert {each: os.getxattr(path, each) for each in os.listxattr(path)} == wanted


@ONLY_LINUX
def test_the_access_list_of_new_files_is_not_given_to_a_file_without_one(place: Path) -> None:
    set_attribute(place, "system.posix_acl_default", ACCESS)
    path = Path("out.jsonl")
    path.chmod(0o644)
    assert stat.S_IMODE(replace(path).st_mode) == 0o644
    assert os.listxattr(path) == []
    ran("compute in.jsonl -o new.jsonl")
    assert os.listxattr("new.jsonl") == ["system.posix_acl_access"]


def test_what_replaces_a_private_file_is_private_while_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("out.jsonl").chmod(0o600)
    seen = set[int]()
    real = os.fsync

    def fsync(fd: int) -> None:
        seen.update(stat.S_IMODE(path.stat().st_mode) for path in Path().glob(".out.jsonl.*.tmp"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    replace(Path("out.jsonl"))
    assert seen == {0o600}
