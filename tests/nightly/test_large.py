"""Files that are large in one way: over 4 GB, ten million rows, lines of 50 MB."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from grpo_cli.files.inputs import Input
from grpo_cli.formats.parquet import footer, splice, thrift
from grpo_cli.formats.registry import FORMATS
from tests.support.command import adv
from tests.unit.formats.test_splice import READERS, ROWS, TABLE, adding, start, values, wrote


def far(data: bytes, path: Path, by: int) -> None:
    """Write a file whose data begin `by` bytes later, behind a hole."""
    found = footer.parse(data[start(data) : -8], start(data))
    batch = splice.Batch(memoryview(b""), found)
    groups = []
    for k, group in enumerate(found.groups):
        moved = splice.moved(batch, k, by + len(footer.MAGIC))
        lists = {footer.CHUNKS: (thrift.LIST, thrift.listed(thrift.STRUCT, len(moved), b"".join(moved)))}
        groups.append(thrift.changed(found.raw, group.values(), lists))
    rows = {footer.ROW_GROUPS: (thrift.LIST, thrift.listed(thrift.STRUCT, len(groups), b"".join(groups)))}
    raw = thrift.changed(found.raw, found.fields.values(), rows)
    with path.open("wb") as handle:
        handle.write(b"PAR1")
        handle.seek(by)
        handle.write(data[: start(data)] + raw + splice.tail(len(raw)))


def test_files_over_4_gb(tmp_path: Path) -> None:
    path = tmp_path / "far.parquet"
    out = tmp_path / "out.parquet"
    far(wrote(TABLE, row_group_size=3), path, 5 << 30)
    assert repr(pq.read_table(path).to_pylist()) == repr(TABLE.to_pylist())
    with out.open("wb") as sink:
        assert FORMATS["parquet"].weave(Input.at(path), None, sink, adding(ROWS)) == []
    assert pq.read_metadata(out).row_group(0).column(8).data_page_offset > 5 << 30
    for read in READERS.values():
        assert read(str(out))["advantage"].tolist() == values(ROWS)
    assert repr(pq.read_table(out).drop_columns("advantage").to_pylist()) == repr(TABLE.to_pylist())


@pytest.mark.parametrize(("kind", "gigabytes"), [("numbers", 1.1), ("texts", 2.2)])
def test_ten_million_rows_are_joined_by_key_in_the_memory_that_the_docs_say(
    kind: str, gigabytes: float, tmp_path: Path
) -> None:
    rows = 10_000_000
    number = np.arange(rows)
    order = np.random.default_rng(0).permutation(rows)
    ids = pl.Series("id", number)
    if kind == "texts":
        ids = pl.select(pl.format("rollout-{}-{}", ids * 7919 % 1_000_003, ids)).to_series().alias("id")
    pl.DataFrame({"id": ids, "reward": number % 2}).write_parquet(tmp_path / "in.parquet")
    pl.DataFrame({"id": ids[pl.Series(order)], "judge": order}).write_parquet(tmp_path / "judge.parquet")
    line = "add in.parquet --from judge.parquet --on id -o out.parquet -q"
    with subprocess.Popen([sys.executable, "-m", "grpo_cli", *line.split()], cwd=tmp_path) as run:
        _, run.returncode, used = os.wait4(run.pid, 0)
    assert run.returncode == 0
    assert used.ru_maxrss << 10 < gigabytes * 1e9
    assert (pl.read_parquet(tmp_path / "out.parquet", columns=["judge"])["judge"] == pl.Series(number)).all()


def test_lines_of_50_megabytes(tmp_path: Path) -> None:
    long = json.dumps({"prompt_id": "p", "text": "x" * 50_000_000, "reward": 1})
    lines = [long, '{"prompt_id":"p","reward":0}', long]
    path = tmp_path / "in.jsonl"
    out = tmp_path / "out.jsonl"
    path.write_text("\n".join(lines))
    assert adv(f"compute {path} -o {out} --scale none -q").status == 0
    written = out.read_text().split("\n")
    assert [line.rpartition(',"advantage":')[0] + "}" for line in written] == lines
    assert [json.loads(line)["advantage"] for line in written] == pytest.approx([1 / 3, -2 / 3, 1 / 3])
