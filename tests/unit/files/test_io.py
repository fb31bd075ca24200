"""Inputs keep their identity; outputs are the old file or the new one."""

from __future__ import annotations

import errno
import glob
import io
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_cli.errors import DataError, InputChanged, UsageError
from grpo_cli.files import stores
from grpo_cli.files.atomic import replacing
from grpo_cli.files.inputs import Input, expand, pinned, spool
from grpo_cli.formats.registry import SUFFIXES


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def touch(*names: str) -> None:
    for name in names:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}\n")


def names(patterns: list[str]) -> list[str]:
    return [str(path) for path in expand(patterns, SUFFIXES).files.values()]


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_of_packed_files_only_text_is_read(tree: Path) -> None:
    touch("d/a.jsonl.gz", "d/b.CSV.ZST", "d/c.parquet.gz", "d/d.gz", "d/e.pq", "d/f.jsonl.bz2")
    assert [Path(name).name for name in names(["d"])] == ["a.jsonl.gz", "b.CSV.ZST", "e.pq"]


def test_step_2_comes_before_step_10_two_stars_reach_every_level_and_files_come_once(tree: Path) -> None:
    touch("step_10.jsonl", "step_2.jsonl", "step_1/b.jsonl")
    assert names(["step_*.jsonl"]) == ["step_2.jsonl", "step_10.jsonl"]
    assert names(["."]) == ["step_1/b.jsonl", "step_2.jsonl", "step_10.jsonl"]
    assert {*names(["**/*.jsonl"])} == {"step_1/b.jsonl", "step_2.jsonl", "step_10.jsonl"}
    assert names(["step_10.jsonl", "*.jsonl", "./step_2.jsonl"]) == ["step_10.jsonl", "step_2.jsonl"]


@pytest.mark.parametrize(
    "pattern",
    ["step_[!0].jsonl", "step[!0]1.jsonl", "step_[0-2].*", "step_[]a].jsonl", "step_[!]0].jsonl", "step_[^0].jsonl", "step_[z-a].jsonl",
     "step_[.jsonl", "[", "step_?.jsonl", "**/step_1.jsonl", "[!x]*/*"],
)  # fmt: skip
def test_a_glob_of_objects_means_what_it_means_of_files(pattern: str, tree: Path) -> None:
    files = [*(f"step_{one}.jsonl" for one in "012a]^![\\"), "step/1.jsonl", "d/step_1.jsonl", "d/step_[.jsonl"]
    touch(*files)
    means = stores._as_pattern(pattern)
    assert {name for name in files if means.fullmatch(name)} == {*glob.glob(pattern, recursive=True)}  # noqa: PTH207 - as inputs are found


def test_a_glob_that_matches_directories_reads_what_is_in_them(tree: Path) -> None:
    touch("runs/x/1.jsonl", "runs/y/2.jsonl", "runs/y/notes.txt")
    assert names(["runs/*"]) == ["runs/x/1.jsonl", "runs/y/2.jsonl"]


def test_own_outputs_and_private_names_are_skipped_and_listed(tree: Path) -> None:
    touch("d/a.jsonl", "d/a.advantages.jsonl", "d/_meta.jsonl", "d/notes.txt", "d/.hidden/x.jsonl")
    for pattern in ("d", "d/*.jsonl"):
        found = expand([pattern], SUFFIXES)
        assert [path.name for path in found.files.values()] == ["a.jsonl"]
        assert {path.name for path in found.skipped} == {"a.advantages.jsonl", "_meta.jsonl"}


def test_a_file_named_literally_is_never_skipped(tree: Path) -> None:
    touch("_a.advantages.jsonl", "b[1].jsonl")
    found = expand(["*.jsonl", "_a.advantages.jsonl", "b[1].jsonl"], SUFFIXES)
    assert [path.name for path in found.files.values()] == ["b[1].jsonl", "_a.advantages.jsonl"]
    assert found.skipped == []


@pytest.mark.parametrize("pattern", ["none.jsonl", "*.parquet", "empty", "e*"])
def test_a_pattern_without_a_file_is_an_error_that_names_it(tree: Path, pattern: str) -> None:
    Path("empty").mkdir()
    touch("empty/readme.txt")
    with pytest.raises(DataError, match=re.escape(pattern)):
        expand([pattern], SUFFIXES)


def test_a_file_whose_time_and_size_were_set_back_is_noticed(tree: Path) -> None:
    path = Path("a.jsonl")
    path.write_text("1")
    source = Input.at(path)
    before = path.stat()
    path.write_text("2")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(InputChanged):
        source.check()


def test_another_name_for_a_file_is_no_change(tree: Path) -> None:
    touch("a.jsonl")
    source = Input.at("a.jsonl")
    Path("b.jsonl").hardlink_to("a.jsonl")
    source.check()
    source = Input.at("a.jsonl")
    Path("b.jsonl").unlink()
    source.check()


def test_a_spool_is_read_twice_at_once_from_its_start() -> None:
    source = spool(io.BytesIO(b"one\ntwo\n"))
    assert source.name == "-"
    with source.open() as first, source.open() as second:
        assert first.readline() == b"one\n"
        assert second.read() == b"one\ntwo\n"
        assert first.read() == b"two\n"
    source.check()
    assert source.pin.size == len(b"one\ntwo\n")


def test_a_shared_descriptor_can_be_read_from_independent_positions() -> None:
    source = spool(io.BytesIO(b"0123456789"))
    assert source.fd is not None
    shared = replace(source, path=f"/dev/fd/{source.fd}")
    first = shared.open()
    second = shared.open()
    assert first.read(3) == b"012"
    assert second.read(2) == b"01"
    assert first.read(2) == b"34"
    assert first.seek(-2, os.SEEK_END) == len("01234567")
    assert first.read() == b"89"


def test_a_pipe_given_as_a_file_is_spooled(tree: Path) -> None:
    read, write = os.pipe()
    os.write(write, b"{}\n")
    os.close(write)
    source = pinned(Path(f"/dev/fd/{read}"))
    os.close(read)
    assert source.fd is not None
    with source.open() as again:
        assert again.read() == b"{}\n"


def test_a_device_is_no_input_and_a_terminal_is_one(tree: Path) -> None:
    (tree / "rows.jsonl").symlink_to("/dev/zero")
    for name in (tree / "rows.jsonl", Path("/dev/null")):
        with pytest.raises(DataError, match="is a device; name a file or a pipe"):
            pinned(name)
    ours, theirs = os.openpty()
    os.write(ours, b"{}\n\x04")
    with pinned(Path(f"/dev/fd/{theirs}")).open() as again:
        assert again.read() == b"{}\n"
    os.close(ours)
    os.close(theirs)


def write(path: Path | str, *, force: bool = False, meanwhile: Callable[[], None] = lambda: None) -> None:
    with replacing(path, force=force) as sink:
        sink.write(b"new")
        meanwhile()


def test_an_output_appears_whole_with_the_mode_of_a_new_file(tree: Path) -> None:
    touch("ordinary")
    write("out")
    assert Path("out").read_bytes() == b"new"
    assert Path("out").stat().st_mode == Path("ordinary").stat().st_mode
    assert leftovers(tree) == []


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_the_old_file_and_nothing_else(tree: Path, stop: type[BaseException]) -> None:
    def stopped() -> None:
        raise stop

    touch("out")
    with pytest.raises(stop):
        write("out", force=True, meanwhile=stopped)
    assert Path("out").read_text() == "{}\n"
    assert leftovers(tree) == []


def test_a_file_that_exists_or_appears_meanwhile_needs_force(tree: Path) -> None:
    for _ in range(2):  # it appears, then it exists
        with pytest.raises(UsageError, match="--force"):
            write("out", meanwhile=lambda: touch("out"))
        assert Path("out").read_text() == "{}\n"
        assert leftovers(tree) == []


def test_a_symlink_stays_and_its_file_is_replaced(tree: Path) -> None:
    touch("real/out")
    Path("link").symlink_to("real/out")
    write("link", force=True)
    assert Path("link").is_symlink()
    assert Path("real/out").read_bytes() == b"new"


def test_a_missing_directory_says_how_to_make_it(tree: Path) -> None:
    with pytest.raises(DataError, match="mkdir -p"):
        write("no/where/out")


def test_a_directory_is_no_output(tree: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        write(tree, force=True)


def test_a_limit_is_one_line_and_other_errors_of_the_body_pass_through(tree: Path) -> None:
    with pytest.raises(DataError, match="file too large"), replacing("out", force=False):
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    assert leftovers(tree) == []
    with pytest.raises(BrokenPipeError), replacing("out", force=False):
        raise BrokenPipeError


def test_a_link_that_leads_elsewhere_while_it_is_opened_gives_no_bytes_of_another_file(tmp_path: Path) -> None:
    """And back again before it is checked: the rows of `b` would get into the file of `a`."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    link = tmp_path / "in.jsonl"
    link.symlink_to("a")
    pinned = Input.at(link)
    with pinned.open() as handle:
        assert handle.read() == b"a"
    link.unlink()
    link.symlink_to("b")
    with pytest.raises(InputChanged):
        pinned.open()
