"""Inputs that are legal and unkind: names that are not UTF-8, types that polars does not know, parameters beyond the data."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from io import BufferedRandom
from itertools import count
from pathlib import Path

import duckdb
import polars as pl
import pytest

from grpo_cli.errors import InputChanged
from grpo_cli.files.inputs import pinned
from tests.support.command import adv, files, ran
from tests.support.jobs import NAN, advantages, rows_of, selected, write

ROWS = [{"prompt_id": "a", "reward": float(reward), "text": "x"} for reward in (0, 1)]
BEYOND = 10**9


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "parquet", "arrow"])
def test_a_name_that_is_not_utf_8_is_a_name(suffix: str) -> None:
    name = os.fsdecode(b"f\xe9\xff.") + suffix
    write(name, ROWS)
    for line in (
        "compute IN -q",
        "compute IN --in-place -q --column other",
        "inspect IN",
        "select IN --limit 1",
        "export IN --to prompts --prompt prompt_id -o OUT.jsonl",
        "report IN -o OUT.html",
    ):
        ran(line.replace("IN", name).replace("OUT", os.fsdecode(b"p\xe9")))
    assert "other" in Path(name).read_bytes().decode("latin-1")


def test_half_a_surrogate_pair_is_drawn_as_its_escape() -> None:
    write("a.jsonl", [{"prompt_id": "\ud800k", "reward": at, "completion": "\udfffx"} for at in range(4)])
    ran("report a.jsonl -o r.html")
    assert "\\udfffx" in Path("r.html").read_text(encoding="utf-8")


def test_a_column_of_a_type_unknown_to_polars_is_copied() -> None:
    duckdb.execute(
        "copy (select 'a' as prompt_id, r::double as reward, interval 3 day as i from range(2) t(r)) to 'a.parquet'"
    )
    done = adv("compute a.parquet -o b.parquet")
    assert done.status == 0
    assert done.err == ""
    before, after = (duckdb.read_parquet(name).select("i").fetchall() for name in ("a.parquet", "b.parquet"))
    assert before == after


@pytest.mark.parametrize(
    ("name", "rows"), [("b.csv", 2), ("b.tsv", 50_000), ("b.parquet", 2), ("b.parquet", 50_000), ("b.arrow", 50_000)]
)
def test_a_disk_that_fails_while_a_file_is_converted_is_named_in_the_error(
    name: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object, __: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    write("a.jsonl", ROWS * (rows // 2))
    monkeypatch.setattr("grpo_cli.files.atomic.BufferedRandom", type("Full", (BufferedRandom,), {"write": fails}))
    done = adv(f"compute a.jsonl -o {name}")
    assert done.status == 1
    assert f"{name}: cannot be written: no space left on device, nothing was written" in done.err
    assert [*files()] == ["a.jsonl"]


def test_a_pipe_in_the_place_of_an_input_is_not_waited_for() -> None:
    path = write("a.jsonl", ROWS)
    source = pinned(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputChanged):
        source.open()


@pytest.mark.parametrize("method", ["passk", "pkpo"])
def test_sets_that_are_larger_than_any_group_take_no_time(method: str) -> None:
    started = time.process_time()
    found = advantages([0, 1, 1, 0], param=[f"k={BEYOND}"], method=method)
    assert [str(value) for value in found] == [str(NAN)] * 4
    assert time.process_time() - started < 1


@pytest.mark.parametrize("method", ["maclaurin", "maclaurin-loo", "maclaurin-cross", "oversample-subset"])
def test_a_series_is_as_long_as_the_group(method: str) -> None:
    rewards = [float(at % 3 == 0) for at in range(3000)]
    started = time.process_time()
    far, whole = (advantages(rewards, method=method, param=[f"order={order}"]) for order in (BEYOND, 3000))
    assert far == whole
    assert time.process_time() - started < 5


@pytest.mark.parametrize(("pick", "most"), [("spread", BEYOND), ("best", 2**63 - 1), ("random", 2**63 - 1)])
def test_more_rows_of_a_group_than_there_are_is_all_of_them(pick: str, most: int) -> None:
    selected(write("a.jsonl", ROWS * 3), per_group=most, pick=pick, output="out.jsonl")
    assert len(rows_of("out.jsonl")) == len(ROWS * 3)


@pytest.mark.parametrize(
    "options", ["-m a-grae", "-m james-stein", "--expr 'reward * 1e200'", "--expr 'reward * 1e208'"]
)
def test_advantages_whose_squares_are_no_numbers_are_summed_up_in_silence(options: str) -> None:
    rewards = (1, 0, -1, 0.5, 1, 1, 0, 0)
    write("a.jsonl", [{"prompt_id": at // 4, "reward": 9e99 * reward} for at, reward in enumerate(rewards)])
    done = adv(f"compute a.jsonl {options} -o b.jsonl --json")
    assert done.status == 0
    assert done.err == ""
    facts = json.loads(done.out)["advantage"]
    assert facts["max"] > 1e49
    assert facts["std"] is None or facts["std"] > 1e49


def test_max_line_allows_longer_lines() -> None:
    write("a.jsonl", [{**row, "text": "x" * 5000} for row in ROWS] * 2000)
    refused = adv("compute a.jsonl -o b.jsonl --max-line 4000 -q")
    assert refused.status == 1
    assert "a line of more than 4,000 bytes; --max-line" in refused.err
    write("short.jsonl", ROWS * 2000)
    assert "a.jsonl: a line of" in adv("add short.jsonl --from a.jsonl -o b.jsonl --max-line 4000").err
    ran("compute a.jsonl -o b.jsonl --max-line 6000 -q")
    # The third begins just before the end of a block.
    write("c.jsonl", [{"prompt_id": 1, "text": "x" * size, "reward": 0} for size in (10**6, 10**6, 4 * 10**6)])
    assert adv("inspect c.jsonl --max-line 3000000").status == 1
    ran("inspect c.jsonl --max-line 5000000")


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
    error: BaseException, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    write("a.jsonl", ROWS)
    monkeypatch.setattr("grpo_cli.runs.compute_files.score", fails)
    done = adv("compute a.jsonl")
    assert done.status == 1
    assert done.err == f"error: {words}\n"
    assert [*files()] == ["a.jsonl"]


@pytest.mark.parametrize("line", ["compute .", "select . --where 'size > 0'"])
def test_of_several_outputs_those_that_were_written_before_a_disk_failed_are_counted(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
        write(name, ROWS)
    calls = count(1)

    def sync(_: int) -> None:
        if next(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", sync)
    done = adv(f"{line} --group-within file -o out/ -q")
    assert done.status == 1
    assert (
        "b.jsonl: cannot be written: no space left on device; 1 of 3 outputs had been written (out/a.jsonl), "
        "the others were not; choose another -o; when that is put right, add --force to write all of them again"
        in done.err
    )
    assert [*files(Path("out"))] == ["a.jsonl"]
