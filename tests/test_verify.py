"""`verify`: the output without the added columns is the input, or the first difference is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from grpo_cli.errors import DataError, UsageError
from grpo_cli.verify import verify
from tests.jobs import compute
from tests.readme import samples_in

if TYPE_CHECKING:
    from pathlib import Path

if TYPE_CHECKING:
    from typing import Any

SUFFIXES = ["jsonl", "csv", "tsv", "parquet", "arrow"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    samples_in(tmp_path)
    frame = pl.read_parquet(tmp_path / "rewards.parquet")
    frame.write_csv(tmp_path / "rewards.csv")
    frame.write_csv(tmp_path / "rewards.tsv", separator="\t")
    frame.write_ipc(tmp_path / "rewards.arrow")
    return tmp_path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_compute_wrote_is_the_input_plus_its_columns(suffix: str, place: Path) -> None:
    source, out = place / f"rewards.{suffix}", place / f"out.{suffix}"
    compute(source, output=str(out), facts=True)
    found = verify(out, source)
    assert found.added == tuple(f"advantage{end}" for end in ("", "_mean", "_std", "_size", "_status"))
    assert found.by == ("bytes" if suffix in {"jsonl", "parquet"} else "values")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_replaced_column_has_to_be_named(suffix: str, place: Path) -> None:
    first, second = place / f"first.{suffix}", place / f"second.{suffix}"
    compute(place / f"rewards.{suffix}", output=str(first))
    compute(first, output=str(second), replace=True, method="rloo")
    assert verify(second, first, ["advantage"]).added == ("advantage",)
    with pytest.raises(DataError):
        verify(second, first)


def test_a_changed_byte_of_a_line_is_found(place: Path) -> None:
    compute(place / "rewards.jsonl", output=str(place / "out.jsonl"))
    lines = (place / "out.jsonl").read_text().splitlines(keepends=True)
    lines[4] = lines[4].replace('"reward": ', '"reward":  ')
    (place / "out.jsonl").write_text("".join(lines))
    with pytest.raises(DataError, match=r"out\.jsonl:5: differs"):
        verify(place / "out.jsonl", place / "rewards.jsonl")


def test_a_missing_line_and_one_too_many_are_found(place: Path) -> None:
    compute(place / "rewards.jsonl", output=str(place / "out.jsonl"))
    lines = (place / "out.jsonl").read_text().splitlines(keepends=True)
    (place / "short.jsonl").write_text("".join(lines[:-1]))
    (place / "long.jsonl").write_text("".join([*lines, lines[0]]))
    with pytest.raises(DataError, match=r"rewards\.jsonl:46: a line that the other file does not have"):
        verify(place / "short.jsonl", place / "rewards.jsonl")
    with pytest.raises(DataError, match=r"long\.jsonl:47"):
        verify(place / "long.jsonl", place / "rewards.jsonl")


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
def test_another_value_in_a_table_is_found_with_its_row(suffix: str, place: Path) -> None:
    out = place / f"out.{suffix}"
    frame = pl.read_parquet(place / "rewards.parquet").with_columns(advantage=0.5)
    frame = frame.with_columns(length=pl.when(pl.int_range(pl.len()) == 6).then(999).otherwise("length"))
    writers: dict[str, Any] = {"csv": frame.write_csv, "parquet": frame.write_parquet, "arrow": frame.write_ipc}
    writers[suffix](out)
    with pytest.raises(DataError, match="row 7: length differs"):
        verify(out, place / f"rewards.{suffix}")


def test_dropped_rows_are_another_table(place: Path) -> None:
    compute(place / "rewards.parquet", output=str(place / "out.parquet"), zero_variance="drop")
    with pytest.raises(DataError, match="37 rows"):
        verify(place / "out.parquet", place / "rewards.parquet")


def test_two_formats_are_not_compared(place: Path) -> None:
    with pytest.raises(UsageError, match="verify compares one format"):
        verify(place / "rewards.jsonl", place / "rewards.parquet")
