"""Parquet that is written again instead of spliced: 96-bit timestamps, entries that describe the schema."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from grpo_cli.formats.parquet import rewrite
from tests.support.command import Done, adv

SPARK: Final = "org.apache.spark.sql.parquet.row.metadata"
NEVER: Final = 253_402_300_799_999_999  # the last microsecond of the year 9999
ROWS: Final = 12
# Without a row of each group, which no splice can make.
FEWER: Final = ("--group-size", "3", "--group", "prompt_id", "--partial", "drop", "--quiet")


def table(**more: pa.Array) -> pa.Table:
    keys = {"prompt_id": [f"p{row // 4}" for row in range(ROWS)], "reward": np.arange(ROWS) % 5 * 1.0}
    return pa.table({**keys, **more})


def run(*arguments: object) -> Done:
    return adv(*map(str, arguments))


@pytest.mark.parametrize("nested", [False, True])
def test_96_bit_timestamps_are_copied_and_never_re_encoded(*, nested: bool) -> None:
    """Read as nanoseconds they would wrap around after the year 2262."""
    path = Path("in.parquet")
    out = Path("out.parquet")
    times = pa.array([NEVER, None, 1_700_000_000_000_001] * 4, pa.timestamp("us"))
    given = table(t=pa.StructArray.from_arrays([times], ["at"]) if nested else times)
    pq.write_table(given, path, use_deprecated_int96_timestamps=True, store_schema=False)
    before = path.read_bytes()
    done = run("compute", path, "-o", out, *FEWER)
    assert done.status == 1
    name = "t.at" if nested else "t"
    assert f"{path}: {name} has 96-bit timestamps (INT96), which are copied but not re-encoded; keep" in done.err
    assert not out.exists()
    assert run("select", path, "-o", out, "--limit", "1").status == 1
    assert not run("compute", path, "-o", out, "--quiet").status
    assert not run("compute", path, "-o", "only.parquet", "--only", *FEWER).status
    assert not run("compute", path, "--in-place", "--quiet").status
    footer_at = len(before) - 8 - int.from_bytes(before[-8:-4], "little")
    for whole in (out, path):
        assert whole.read_bytes()[:footer_at] == before[:footer_at]
        found = pq.ParquetFile(whole, coerce_int96_timestamp_unit="us").read()
        assert found["t"].to_pylist() == given["t"].to_pylist()
        assert "advantage" in found.column_names


def test_entries_that_describe_the_schema_learn_of_the_new_column() -> None:
    path = Path("in.parquet")
    spark = """{"type": "struct", "fields": [
        {"name": "prompt_id", "type": "string", "nullable": true, "metadata": {}},
        {"name": "reward", "type": "double", "nullable": true, "metadata": {}}
    ]}"""
    features = """{"info": {"features": {
        "prompt_id": {"dtype": "string", "_type": "Value"}, "reward": {"dtype": "double", "_type": "Value"}
    }}}"""
    notes = {SPARK: spark, "huggingface": features, "mine": "kept"}
    pq.write_table(table().replace_schema_metadata(notes), path)
    assert not run("compute", path, "-o", "fewer.parquet", *FEWER).status
    found = pq.read_schema("fewer.parquet").metadata
    fields = json.loads(found[SPARK.encode()])["fields"]
    assert [field["name"] for field in fields] == ["prompt_id", "reward", "advantage"]
    assert [*json.loads(found[b"huggingface"])["info"]["features"]] == ["prompt_id", "reward", "advantage"]
    assert found[b"mine"] == b"kept"


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
def test_a_column_that_is_replaced_keeps_its_place(suffix: str, position: int) -> None:
    before = table().add_column(position, "advantage", pa.array(np.full(ROWS, 9.0)))
    path = Path(f"in{suffix}")
    out = Path(f"out{suffix}")
    if suffix == ".parquet":
        pq.write_table(before, path)
    else:
        feather.write_feather(before, path)
    done = run("compute", path, "-o", out, "--group", "prompt_id", "--replace", "--quiet")
    assert not done.status, done.err
    after = pq.read_table(out) if suffix == ".parquet" else feather.read_table(out)
    assert after.column_names == before.column_names
    assert after["advantage"].to_pylist() != before["advantage"].to_pylist()
    assert after.drop(["advantage"]).equals(before.drop(["advantage"]))


@pytest.mark.parametrize("year", [1900, 1969, 2024, 2262, 9999])
@pytest.mark.parametrize("groups", [3, 5, 12])
def test_96_bit_timestamps_are_spliced_replaced_verified_and_read_as_they_are(year: int, groups: int) -> None:
    times = [
        None if row % 5 == 0 else datetime(year, 12, 31, 23, 59, 59, row, UTC).replace(tzinfo=None)
        for row in range(ROWS)
    ]
    given = table(at=pa.array(times, pa.timestamp("us")), text=["x" * row for row in range(ROWS)])
    pq.write_table(given, "in.parquet", use_deprecated_int96_timestamps=True, row_group_size=groups)
    before = Path("in.parquet").read_bytes()
    pages = before[: len(before) - 8 - int.from_bytes(before[-8:-4], "little")]
    late = [row for row, time in enumerate(times) if time is not None and time.microsecond > 5]
    assert not run("compute", "in.parquet", "-o", "out.parquet", "--facts", "-q").status
    assert not run("compute", "out.parquet", "-o", "again.parquet", "--replace", "-m", "rloo", "-q").status
    assert not run("select", "in.parquet", "-o", "all.parquet", "--limit", "100", "-q").status
    some = ("--rows", f"at > '{year}-12-31T23:59:59.000005'", "-q", "-m", "dr-grpo")
    assert not run("compute", "in.parquet", "-o", "late.parquet", *some).status
    assert not run("select", "in.parquet", "-o", "all.jsonl", "--limit", "100", "-q").status
    for name in ("out", "again", "all", "late"):
        whole = Path(f"{name}.parquet")
        assert whole.read_bytes().startswith(pages)  # the pages of every other column
        found = pq.ParquetFile(whole, coerce_int96_timestamp_unit="us").read()
        assert found["at"].to_pylist() == times
    assert not run("verify", "out.parquet", "--against", "in.parquet").status
    assert not run("verify", "again.parquet", "--against", "out.parquet", "--column", "advantage").status
    advantages = pq.read_table("late.parquet", columns=["advantage"])["advantage"].to_pylist()
    rewards = given["reward"].to_pylist()
    for row, advantage in enumerate(advantages):
        group = [rewards[one] for one in late if one // 4 == row // 4]
        wanted = rewards[row] - sum(group) / len(group) if len(group) > 1 else 0
        assert advantage == (pytest.approx(wanted, abs=1e-12) if row in late else None)
    read = [json.loads(line)["at"] for line in Path("all.jsonl").read_text().splitlines()]
    assert [text and datetime.fromisoformat(text) for text in read] == times


def test_rows_that_fill_row_groups_exactly_leave_nothing_to_write_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last group of the file has equal rewards and is dropped."""
    monkeypatch.setattr(rewrite, "_MOST_AT_ONCE", 1)
    keys, rewards = ["a"] * 3 + ["b"] * 3 + ["c"] * 3, [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    pq.write_table(pa.table({"prompt_id": keys, "reward": rewards}), "in.parquet", row_group_size=3)
    assert not run(
        "compute", "in.parquet", "-o", "out.parquet", "--zero-variance", "drop", "-m", "dr-grpo", "-q"
    ).status
    found = pq.ParquetFile("out.parquet")
    assert found.num_row_groups == 2
    assert found.read()["reward"].to_pylist() == rewards[:6]
    assert found.read()["prompt_id"].to_pylist() == keys[:6]
