"""A disk that is really full, at every page and every inode that a command needs: old files or new ones, and one line.

The disk is a memory file system in a mount namespace. FAULT_POSITIONS is the largest number of fillings that each command
is tried with; without it, all of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.nightly.test_faults import WRITING, Case, check, contents, fresh, large, repaired, spread
from tests.support.faults import Faults, serving

PAGE: Final = os.sysconf("SC_PAGE_SIZE")
ROOMY: Final = 1 << 30
MANY: Final = 1 << 16


@dataclass(frozen=True)
class Disk:
    """The server of runs in the namespace, the command that enters it, and the path of the disk from outside."""

    faults: Faults
    enter: list[str]
    top: Path
    mounted: Path

    def resize(self, size: int = ROOMY, inodes: int = MANY) -> None:
        options = f"remount,size={size},nr_inodes={inodes}"
        subprocess.run([*self.enter, "mount", "-o", options, self.mounted], check=True)

    def used(self) -> tuple[int, int]:
        """Bytes and inodes."""
        state = os.statvfs(self.top)
        return (state.f_blocks - state.f_bfree) * state.f_frsize, state.f_files - state.f_ffree


@contextmanager
def mounted(where: Path) -> Iterator[int]:
    """A process with a namespace that has a small disk at this place."""
    script = f'mount -t tmpfs -o size={ROOMY},nr_inodes={MANY} none "$0" && echo mounted && exec cat'
    with subprocess.Popen(
        ["unshare", "-rm", "sh", "-c", script, where], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        if holder.stdout.readline() != "mounted\n":
            pytest.skip("no mount namespace may be made here")
        yield holder.pid
        holder.stdin.close()


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    if any(shutil.which(name) is None for name in ("cc", "unshare", "nsenter", "mount")):
        pytest.skip("there is no C compiler for the server of runs, or no unshare, nsenter or mount")
    where = tmp_path_factory.mktemp("disk")
    with mounted(where) as holder:
        enter = ["nsenter", f"--target={holder}", "--user", "--mount", "--preserve-credentials", "--"]
        with serving(tmp_path_factory.mktemp("runs"), enter) as faults:
            yield Disk(faults, enter, Path(f"/proc/{holder}/root{where}"), where)


# The large one needs thousands of pages, and those of the others show the same.
@pytest.mark.parametrize(
    "case", [case for case in WRITING if case.made is not large], ids=lambda case: f"{case.words} {case.made.__name__}"
)
def test_a_full_disk_leaves_old_files_or_new_ones(case: Case, disk: Disk, tmp_path: Path) -> None:
    files = tmp_path / "before"
    place = disk.top / "place"
    before, words = case.set_up(files)
    disk.resize()
    fresh(files, place)
    used, inodes = disk.used()
    whole = disk.faults.run(words, place, stdin=str(place / case.stdin))
    assert (whole.status, whole.err) == (0, ""), whole
    after = contents(place)
    grown = disk.used()[0] - used
    pages = (grown + sum(map(len, before.values()))) // PAGE + 2  # an old file stays until the new one has its name
    fillings = [("pages", used + at * PAGE, MANY) for at in (0, *spread(pages))]
    fillings += [("inodes", ROOMY, inodes + at) for at in range(len(after) + 3)]
    wrong = []
    failed = 0
    for kind, size, most in fillings:
        disk.resize()
        fresh(files, place)
        disk.resize(size, most)
        ended = disk.faults.run(words, place, stdin=str(place / case.stdin))
        failed += ended.status != 0
        problem = check(case, place, ended, before, after)
        disk.resize()
        problem = problem or repaired(case, place, disk.faults, after)
        if problem:
            wrong.append(f"{kind}: {size - used} bytes, {most - inodes} inodes: {problem}")
    print(f"{case.words}: {len(fillings)} runs, {failed} of them failed")  # noqa: T201 - the figures of CONTRIBUTING.md
    assert not wrong, "\n".join(wrong)
    assert failed
