"""Inputs that are legal and unkind: names that are not UTF-8, types that polars does not know, parameters beyond the data."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from grpo_cli.errors import InputChanged
from grpo_cli.files.inputs import pinned
from tests.support.command import adv
from tests.support.jobs import NAN, advantages, rows_of, selected, write

ROWS = [{"prompt_id": "a", "reward": float(reward), "text": "x"} for reward in (0, 1)]
BEYOND = 10**9


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "parquet", "arrow"])
def test_a_name_that_is_not_utf_8_is_a_name(suffix: str, tmp_path: Path) -> None:
    name = os.fsdecode(b"f\xe9\xff.") + suffix
    write(tmp_path / name, ROWS)
    for command in (
        ["compute", name, "-q"],
        ["compute", name, "--in-place", "-q", "--column", "other"],
        ["inspect", name],
        ["select", name, "--limit", "1"],
        ["export", name, "--to", "prompts", "--prompt", "prompt_id", "-o", os.fsdecode(b"p\xe9.jsonl")],
        ["report", name, "-o", os.fsdecode(b"r\xe9.html")],
    ):
        done = adv(*command, cwd=tmp_path)
        assert done.status == 0, done.err
    assert "other" in (tmp_path / name).read_bytes().decode("latin-1")


def test_half_a_surrogate_pair_is_drawn_as_its_escape(tmp_path: Path) -> None:
    rows = [{"prompt_id": "\ud800k", "reward": at, "completion": "\udfffx"} for at in range(4)]
    write(tmp_path / "a.jsonl", rows)
    done = adv("report", "a.jsonl", "-o", "r.html", cwd=tmp_path)
    assert done.status == 0, done.err
    assert "\\udfffx" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_column_of_a_type_unknown_to_polars_is_copied(tmp_path: Path) -> None:
    query = "select 'a' as prompt_id, r::double as reward, interval 3 day as i from range(2) t(r)"
    relation = duckdb.sql(query)
    assert relation is not None
    relation.write_parquet(str(tmp_path / "a.parquet"))
    done = adv("compute", "a.parquet", "-o", "b.parquet", cwd=tmp_path)
    assert (done.status, done.err) == (0, "")
    files = [duckdb.read_parquet(str(tmp_path / name)) for name in ("a.parquet", "b.parquet")]
    before, after = (file.select("i").fetchall() for file in files)
    assert before == after


@pytest.mark.parametrize("name", ["b.csv", "b.tsv", "b.parquet", "b.arrow"])
@pytest.mark.parametrize("rows", [2, 50_000])
def test_a_disk_that_fails_while_a_file_is_converted_is_named_in_the_error(
    name: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object, __: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    write(tmp_path / "a.jsonl", ROWS * (rows // 2))
    monkeypatch.setattr("grpo_cli.files.atomic._SyncedFile.write", fails)
    done = adv("compute", "a.jsonl", "-o", name, cwd=tmp_path)
    assert done.status == 1
    assert f"{name}: no space left, nothing was written" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_pipe_in_the_place_of_an_input_is_not_waited_for(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ROWS)
    source = pinned(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputChanged):
        source.open()


@pytest.mark.parametrize("options", [{"method": "passk"}, {"method": "pkpo"}], ids=str)
def test_sets_that_are_larger_than_any_group_take_no_time(options: dict[str, Any]) -> None:
    started = time.process_time()
    found = advantages([0, 1, 1, 0], param=[f"k={BEYOND}"], **options)
    assert [str(value) for value in found] == [str(NAN)] * 4
    assert time.process_time() - started < 1


@pytest.mark.parametrize("method", ["maclaurin", "maclaurin-loo", "maclaurin-cross", "oversample-subset"])
def test_a_series_is_as_long_as_the_group(method: str) -> None:
    rewards = [float(at % 3 == 0) for at in range(3000)]
    started = time.process_time()
    far, whole = (advantages(rewards, method=method, param=[f"order={order}"]) for order in (BEYOND, 3000))
    assert far == whole
    assert time.process_time() - started < 5


@pytest.mark.parametrize("pick", ["spread", "best", "random"])
@pytest.mark.parametrize("most", [BEYOND, 10**20])
def test_more_rows_of_a_group_than_there_are_is_all_of_them(tmp_path: Path, most: int, pick: str) -> None:
    path = write(tmp_path / "a.jsonl", ROWS * 3)
    selected(path, per_group=most, pick=pick, output=f"{tmp_path}/out.jsonl")
    assert len(rows_of(tmp_path / "out.jsonl")) == len(ROWS * 3)


@pytest.mark.parametrize(
    "options", [("-m", "a-grae"), ("-m", "james-stein"), ("--expr", "reward * 1e200"), ("--expr", "reward * 1e208")]
)
def test_advantages_whose_squares_are_no_numbers_are_summed_up_in_silence(
    tmp_path: Path, options: tuple[str, str]
) -> None:
    rewards = [9e99 * reward for reward in (1, 0, -1, 0.5, 1, 1, 0, 0)]
    write(tmp_path / "a.jsonl", [{"prompt_id": at // 4, "reward": reward} for at, reward in enumerate(rewards)])
    done = adv("compute", "a.jsonl", *options, "-o", "b.jsonl", "--json", cwd=tmp_path)
    assert (done.status, done.err) == (0, "")
    facts = json.loads(done.out)["advantage"]
    assert facts["max"] > 1e49
    assert facts["std"] is None or facts["std"] > 1e49


def test_max_line_allows_longer_lines(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [{**row, "text": "x" * 5000} for row in ROWS] * 2000)
    refused = adv("compute", "a.jsonl", "-o", "b.jsonl", "--max-line", "4000", "-q", cwd=tmp_path)
    assert refused.status == 1
    assert "a line of more than 4,000 bytes; --max-line" in refused.err
    assert adv("compute", "a.jsonl", "-o", "b.jsonl", "--max-line", "6000", "-q", cwd=tmp_path).status == 0
    with (tmp_path / "c.jsonl").open("w") as lines:  # the third begins just before the end of a block
        for size in (10**6, 10**6, 4 * 10**6):
            lines.write(json.dumps({"prompt_id": 1, "text": "x" * size, "reward": 0}) + "\n")
    assert adv("inspect", "c.jsonl", "--max-line", "3000000", cwd=tmp_path).status == 1
    assert adv("inspect", "c.jsonl", "--max-line", "5000000", cwd=tmp_path).status == 0


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "not enough memory for this input"),
        (RuntimeError("can't start new thread"), "the system cannot start more threads"),
        (RecursionError(), "a record is nested too deeply to be read"),
        (pl.exceptions.PanicException("one\ntwo"), "polars stopped: one; --debug shows where"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_libraries_raise_for_what_data_can_cause_is_one_line(
    error: BaseException, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    write(tmp_path / "a.jsonl", ROWS)
    monkeypatch.setattr("grpo_cli.runs.compute_files.score", fails)
    done = adv("compute", "a.jsonl", cwd=tmp_path)
    assert (done.status, done.err) == (1, f"error: {words}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def syncs_fail(monkeypatch: pytest.MonkeyPatch, fails: Callable[[int], bool]) -> None:
    """The disk is full at some of the calls of fsync, which are counted from 1."""
    calls = count(1)

    def sync(_: int) -> None:
        if fails(next(calls)):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", sync)


@pytest.mark.parametrize("command", [["compute"], ["select", "--where", "size > 0"]], ids=["compute", "select"])
def test_of_several_outputs_those_that_were_written_before_a_disk_failed_are_counted(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
        write(tmp_path / name, ROWS)
    syncs_fail(monkeypatch, lambda call: call == 2)
    done = adv(*command, ".", "--group-within", "file", "-o", "out/", "-q", cwd=tmp_path)
    assert done.status == 1
    assert "b.jsonl: no space left; 1 of 3 outputs had been written, the others were not; free some" in done.err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.jsonl"]
