"""A Parquet file that grows in place is the old one or the new one at every instant."""

from __future__ import annotations

import errno
import fcntl
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files import in_place
from grpo_cli.files.in_place import Extension, append, padding, steps
from grpo_cli.files.inputs import Input, spool
from grpo_cli.formats.interface import Weaving
from grpo_cli.formats.parquet import footer, splice
from grpo_cli.formats.registry import FORMATS
from tests.support.command import adv
from tests.support.weaving import inserting

ROWS = 3000
TABLE = pa.table({"k": [f"key {k % 7}" for k in range(ROWS)], "r": [k / 3 for k in range(ROWS)]})
VALUES = [k / 7 for k in range(ROWS)]


def weaving(*, replace: bool = False, take: Any = None, column: str = "advantage") -> Weaving:
    return inserting({column: VALUES}, take=take, replace=replace)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "live.parquet"
    pq.write_table(TABLE, path, row_group_size=1000)
    return path


def columns(path: Path) -> list[str]:
    """The columns; all readers have to agree on the whole file."""
    by_arrow, by_polars = pq.ParquetFile(path).read(), pl.read_parquet(path)
    by_duckdb = duckdb.connect().sql(f"from read_parquet('{path}')").to_arrow_table()
    by_pandas = pd.read_parquet(path)
    names: list[str] = by_arrow.column_names
    assert names == by_polars.columns == by_duckdb.column_names == list(by_pandas.columns)
    for name in names:
        expected = by_arrow[name].to_pylist()
        assert expected == by_polars[name].to_list() == by_duckdb[name].to_pylist() == by_pandas[name].tolist()
    assert by_arrow["k"].equals(TABLE["k"])
    return names


@pytest.mark.parametrize("replace", [False, True])
def test_whenever_it_stops_every_reader_sees_the_old_file_or_the_new_one(path: Path, *, replace: bool) -> None:
    column = "r" if replace else "advantage"
    growth, _ = splice.growth(Input.at(path), weaving(replace=replace, column=column))
    old = path.read_bytes()
    seen = []
    with path.open("r+b") as handle:
        for step in steps(handle.fileno(), growth, portion=1500):
            names, is_new = columns(path), pl.read_parquet(path)[column].to_list() == VALUES if replace else None
            seen.append((step, "advantage" in names if is_new is None else is_new))
            assert path.read_bytes()[: len(old)] == old
    written = seen.index(("the new end is written", True))
    assert [new for _, new in seen] == [False] * written + [True] * (len(seen) - written)
    assert sum("portion" in step for step, _ in seen) > 5


def test_a_run_that_was_killed_can_be_repeated(path: Path) -> None:
    """What was left behind stays unread, and the next run goes on from the end of the file."""
    growth, _ = splice.growth(Input.at(path), weaving())
    with path.open("r+b") as handle:
        half = steps(handle.fileno(), growth, portion=1000)
        for _ in range(6):
            next(half)
    assert columns(path) == ["k", "r"]
    assert FORMATS["parquet"].weave_in_place(Input.at(path), None, weaving()) == []
    assert columns(path) == ["k", "r", "advantage"]


@pytest.mark.parametrize("after", range(8))
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "bad disk")])
def test_an_error_leaves_the_file_as_it_was(
    path: Path, after: int, error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, source, all_steps = path.read_bytes(), Input.at(path), steps

    def failing(fd: int, growth: Extension) -> Iterator[str]:
        for count, step in enumerate(all_steps(fd, growth)):
            if count == after:
                raise error
            yield step

    monkeypatch.setattr(in_place, "steps", failing)
    with pytest.raises(DataError if isinstance(error, OSError) else KeyboardInterrupt, match=r"file is unchanged|^$"):
        FORMATS["parquet"].weave_in_place(source, None, weaving())
    assert path.read_bytes() == old


def test_a_full_disk_is_noticed_before_anything_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growth = Extension(path.stat().st_size, [b"x"], b"12345678", b"1234")
    monkeypatch.setattr(Extension, "end", 1 << 62)
    old = path.read_bytes()
    with pytest.raises(DataError, match="no space left, the file is unchanged"):
        append(Input.at(path), growth)
    assert path.read_bytes() == old


def test_in_place_gives_the_file_of_a_splice_plus_the_old_footer(path: Path) -> None:
    sink = io.BytesIO()
    FORMATS["parquet"].weave(Input.at(path), None, sink, weaving())
    old = Input.at(spare(path))
    FORMATS["parquet"].weave_in_place(Input.at(path), None, weaving())
    assert pq.read_table(path).equals(pq.read_table(io.BytesIO(sink.getvalue())))
    assert FORMATS["parquet"].compared(Input.at(path), old, {"advantage"}) == ("bytes", None)
    for _ in range(3):
        notes = FORMATS["parquet"].weave_in_place(Input.at(path), None, weaving(replace=True)) or []
        assert len(notes) == 1 and "bytes of the replaced column stay in the file unread" in notes[0]
        assert columns(path) == ["k", "r", "advantage"]


def spare(path: Path) -> Path:
    copy = path.with_name("spare.parquet")
    copy.write_bytes(path.read_bytes())
    return copy


def test_the_last_bytes_are_in_one_sector() -> None:
    for end in range(3 * 512):
        begin = end + padding(end, 8)
        assert begin // 512 == (begin + 7) // 512
        assert padding(end, 8) < 8


def footer_length(path: Path) -> int:
    with path.open("rb") as handle:
        return len(footer.read(handle, path.stat().st_size).raw)


@pytest.mark.parametrize(
    ("rows", "group_rows", "text"), [(200_000, 50_000, 40), (20_000, 20_000, 900), (40_000, 100, 10)]
)
def test_no_more_is_written_than_the_column_and_two_footers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, group_rows: int, text: int
) -> None:
    path, noise = tmp_path / "a.parquet", np.random.default_rng(3)
    texts = [noise.bytes(text // 2).hex() for _ in range(200)]
    columns = {"prompt_id": np.arange(rows) // 8, "reward": noise.normal(size=rows)}
    frame = pl.DataFrame(columns).with_columns(text=pl.Series(texts).gather(np.arange(rows) % 200))
    frame.write_parquet(path, row_group_size=group_rows)
    before = path.stat().st_size

    written: list[int] = []
    pwrite = os.pwrite

    def counted(fd: int, data: bytes, at: int) -> int:
        written.append(pwrite(fd, data, at))
        return written[-1]

    monkeypatch.setattr(os, "pwrite", counted)
    assert adv("compute", str(path), "--in-place", "--quiet").status == 0

    meta = pq.read_metadata(path)
    chunks = [meta.row_group(group).column(meta.num_columns - 1) for group in range(meta.num_row_groups)]
    assert {chunk.path_in_schema for chunk in chunks} == {"advantage"}
    column = sum(chunk.total_compressed_size for chunk in chunks)
    assert written
    assert sum(written) <= 1.1 * column + 2 * footer_length(path)
    # What was reserved and not written would count as well: the file is no longer than that.
    assert path.stat().st_size - before <= 1.1 * column + 2 * footer_length(path)
    assert pl.read_parquet(path).drop("advantage").equals(frame)


# --- what is refused ---------------------------------------------------------------------------------------


def refused(source: Input, match: str, **options: Any) -> None:
    with pytest.raises(DataError, match=match) as caught:
        FORMATS["parquet"].weave_in_place(source, None, weaving(**options))
    assert "-o FILE" in caught.value.hint


def test_a_file_that_changed_since_it_was_pinned(path: Path) -> None:
    source = Input.at(path)
    os.utime(path, ns=(1, 1))
    with pytest.raises(InputChanged):
        FORMATS["parquet"].weave_in_place(source, None, weaving())


def test_a_file_that_is_locked(path: Path) -> None:
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        with pytest.raises(DataError, match="another process has locked it"):
            FORMATS["parquet"].weave_in_place(Input.at(path), None, weaving())
    FORMATS["parquet"].weave_in_place(Input.at(path), None, weaving())


def test_a_side_file_of_hadoop(path: Path) -> None:
    side = path.with_name(f".{path.name}.crc")
    side.touch()
    refused(Input.at(path), "has its checksums")
    link = path.with_name("link.parquet")
    link.symlink_to(path)
    refused(Input.at(link), "has its checksums")


def test_a_file_of_several_names(path: Path) -> None:
    os.link(path, path.with_name("other.parquet"))
    refused(Input.at(path), "2 names")


def test_a_symlink_is_followed(path: Path) -> None:
    link = path.with_name("link.parquet")
    link.symlink_to(path)
    FORMATS["parquet"].weave_in_place(Input.at(link), None, weaving())
    assert link.is_symlink()
    assert columns(path) == ["k", "r", "advantage"]


def test_what_is_no_file_cannot_be_spliced_or_must_not_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(spool(io.BytesIO(path.read_bytes())), "only a file")
    refused(Input.at(path), "rows were dropped", take=np.arange(ROWS))
    with pytest.raises(footer.Unspliceable, match="more than 2 GiB"):
        splice.growth(Input.at(path), weaving(), most=1000)
    monkeypatch.setattr(os, "open", denied)
    refused(Input.at(path), "cannot be changed in place: permission denied")


def denied(path: Any, flags: int, *_: Any, opened: Callable[[Any, int], int] = os.open) -> int:
    """A file that can be read but not written."""
    if flags & os.O_RDWR:
        raise PermissionError(errno.EACCES, "Permission denied")
    return opened(path, flags)
