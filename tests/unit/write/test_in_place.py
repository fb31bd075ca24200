"""Writing in place: the file is replaced by a new one beside it, which is renamed."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.errors import DataError, InputChanged, UsageError
from grpo_cli.files.atomic import replacing
from grpo_cli.formats.parquet import splice
from grpo_cli.formats.parquet.footer import Unspliceable
from grpo_cli.write.verify import verify
from tests.support.command import files
from tests.support.jobs import compute, rows_of, samples_in, write

ROWS = [{"prompt_id": name, "reward": i % 2} for name in "ab" for i in range(4)]
EVERY_FORMAT = ["in.jsonl", "in.jsonl.gz", "in.csv", "in.json", "in.parquet", "in.arrow"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=["in.jsonl", "in.parquet"])
def path(place: Path, request: pytest.FixtureRequest) -> Path:
    return write(place / request.param, ROWS)


@pytest.mark.parametrize("name", EVERY_FORMAT)
def test_the_file_has_the_bytes_that_a_new_file_would_have(name: str, place: Path) -> None:
    path = write(place / name, ROWS)
    compute(path, output="beside/")
    compute(path, in_place=True)
    assert path.read_bytes() == (place / "beside" / name).read_bytes()


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


def test_dropped_rows_are_gone(place: Path) -> None:
    samples_in(place)
    for name in ("rewards.jsonl", "rewards.parquet"):
        compute(name, in_place=True, zero_variance="drop")
        assert len(rows_of(name)) == 37


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_an_owner_that_cannot_stay_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    os.chown(path, 12, 34)
    monkeypatch.setattr(os, "fchown", denied)
    compute(path, in_place=True)
    assert f"{path} had another owner or group: it is yours now" in caplog.text


def test_a_symlink_stays_and_the_file_behind_it_changes(path: Path) -> None:
    link = path.with_name(f"link{path.suffix}")
    link.symlink_to(path.name)
    compute(path, output=f"new{path.suffix}")
    compute(link, in_place=True)
    assert link.is_symlink()
    assert path.read_bytes() == path.with_name(f"new{path.suffix}").read_bytes()


@pytest.mark.parametrize("elsewhere", ["a file", "an input", "nothing"])
def test_a_link_that_leads_elsewhere_for_a_moment_gives_no_file_the_rows_of_another(
    path: Path, elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after that moment it leads to the file that was read, so that only who replaces it can see."""
    link = path.with_name(f"link{path.suffix}")
    other = path.with_name(f"other{path.suffix}")
    if elsewhere != "nothing":
        write(other, [{**row, "reward": 7 + at % 2} for at, row in enumerate(ROWS)])
    link.symlink_to(path.name)
    before = files(path.parent)

    def led_to(name: str) -> None:
        link.unlink()
        link.symlink_to(name)

    @contextmanager
    def for_a_moment(*words: Any, **more: Any) -> Iterator[Any]:
        led_to(other.name)
        try:
            with replacing(*words, **more) as sink:
                led_to(path.name)
                yield sink
        finally:
            led_to(path.name)

    monkeypatch.setattr("grpo_cli.write.write_outputs.replacing", for_a_moment)
    with pytest.raises(InputChanged, match="the file changed while it was being read"):
        compute(link, *[other] * (elsewhere == "an input"), in_place=True, group_within="file")
    assert files(path.parent) == before


def test_other_names_of_the_file_keep_the_old_content(path: Path) -> None:
    other = path.with_name(f"other{path.suffix}")
    other.hardlink_to(path)
    before = path.read_bytes()
    (note,) = compute(path, in_place=True).facts["warnings"]
    assert note == f"{path}: other names of the file (hard links) keep the old content"
    assert other.read_bytes() == before != path.read_bytes()


def test_a_file_that_another_process_has_locked_is_not_replaced(path: Path) -> None:
    before = path.read_bytes()
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        with pytest.raises(DataError, match="another process has locked it"):
            compute(path, in_place=True)
    assert path.read_bytes() == before
    compute(path, in_place=True)


def test_a_file_that_may_not_be_written_is_not_replaced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()
    opened = os.open

    def only_read(name: Any, flags: int, *mode: int) -> int:
        return denied() if str(name) == str(path) and flags & os.O_RDWR else opened(name, flags, *mode)

    monkeypatch.setattr(os, "open", only_read)
    with pytest.raises(DataError, match="cannot be changed in place: permission denied; write a new file with -o FILE"):
        compute(path, in_place=True)
    monkeypatch.undo()
    assert path.read_bytes() == before


def test_a_parquet_file_that_would_have_to_be_encoded_again_is_not_replaced(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(place / "in.parquet", ROWS)
    before = path.read_bytes()
    monkeypatch.setattr(splice, "weave", unspliceable)
    with pytest.raises(DataError, match="cannot be changed in place: odd; write a new file with -o FILE"):
        compute(path, in_place=True)
    assert path.read_bytes() == before
    assert [found.name for found in place.iterdir()] == ["in.parquet"]
    (note,) = compute(path, output="out.parquet").facts["warnings"]
    assert note == f"{path}: all columns were re-encoded: odd"


@pytest.mark.parametrize("link", [False, True])
def test_a_file_with_checksums_beside_it_is_not_replaced(path: Path, *, link: bool) -> None:
    """Hadoop's `.crc` files: nobody would update them, and then Spark refuses to read the file."""
    path.with_name(f".{path.name}.crc").touch()
    named = path.with_name(f"link{path.suffix}") if link else path
    if link:
        named.symlink_to(path)
    side = path.with_name(f".{path.name}.crc")
    before = path.read_bytes()
    with pytest.raises(
        DataError, match=f"{re.escape(side.name)} has its checksums, which would no longer match; remove"
    ):
        compute(named, in_place=True)
    assert path.read_bytes() == before
    side.unlink()
    compute(named, in_place=True)


# --- of several files ------------------------------------------------------------------------------------------------


@pytest.fixture
def two(place: Path) -> list[Path]:
    return [write(place / name, ROWS) for name in ("a.jsonl", "b.jsonl")]


def test_if_the_second_is_locked_the_first_is_not_replaced(two: list[Path]) -> None:
    before = [path.read_bytes() for path in two]
    with two[1].open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        with pytest.raises(DataError, match=r"b\.jsonl: another process has locked it"):
            compute(*two, group_within="file", in_place=True)
    assert [path.read_bytes() for path in two] == before


def test_if_the_second_is_of_another_user_in_a_folder_for_all_the_first_is_not_replaced(
    two: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = two[0].parent / "shared"
    shared.mkdir(mode=0o1777)
    shared.chmod(0o1777)
    theirs = two[1].rename(shared / "b.jsonl")
    before = two[0].read_bytes()
    monkeypatch.setattr(os, "geteuid", lambda: theirs.stat().st_uid + 1)
    with pytest.raises(DataError, match=r"b\.jsonl: cannot be written: operation not permitted; write a new file with"):
        compute(two[0], theirs, group_within="file", in_place=True)
    assert two[0].read_bytes() == before
    shared.chmod(0o777)
    compute(two[0], theirs, group_within="file", in_place=True)


def test_if_the_disk_fails_at_the_second_what_is_done_is_named_and_the_way_out_finishes_it(
    two: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = two[1].read_bytes()
    asked: dict[str, Any] = {"group_within": "file", "in_place": True}
    with monkeypatch.context() as patch:
        full_after_one(patch)
        with pytest.raises(DataError) as found:
            compute(*two, **asked)
    done = f"{two[1]}: cannot be written: no space left on device; 1 of 2 outputs had been written ({two[0]}), the others were not"
    assert found.value.message == done
    assert found.value.hints[-1] == "when that is put right, add --replace to write all of them again"
    assert two[1].read_bytes() == before
    compute(*two, **asked, replace=True)
    finished = [path.read_bytes() for path in two]
    for path in two:
        write(path, ROWS)
    compute(*two, **asked)
    assert [path.read_bytes() for path in two] == finished


def test_if_the_disk_fails_after_rows_were_dropped_no_option_is_said_to_bring_them_back(
    two: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(two[0], [*ROWS, {"prompt_id": "c", "reward": 1}, {"prompt_id": "c", "reward": 1}])
    full_after_one(monkeypatch)
    with pytest.raises(DataError, match=r"rows of dropped groups are gone .*: restore them before you run it again"):
        compute(*two, group_within="file", in_place=True, zero_variance="drop")


@pytest.mark.parametrize(
    "options", [{"output": "x.jsonl"}, {"only": True}, {"duplicate": True, "zero_variance": "drop"}]
)
def test_in_place_cannot_be_combined_with_other_outputs(options: dict[str, Any], path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(UsageError, match="cannot be combined"):
        compute(path, in_place=True, **options)
    assert path.read_bytes() == before


def full_after_one(patch: pytest.MonkeyPatch) -> None:
    actual = os.fsync
    calls = count()

    def sync(fd: int) -> None:
        if next(calls):
            raise OSError(errno.ENOSPC, "No space left on device")
        actual(fd)

    patch.setattr(os, "fsync", sync)


def denied(*_: Any) -> int:
    raise PermissionError(errno.EACCES, "Permission denied")


def unspliceable(*_: Any) -> list[str]:
    raise Unspliceable("odd")
