"""What a run over files does not load: pandas takes 0.17 s where it is installed, pyarrow.compute 0.03 s."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.support.drawn import paired
from tests.support.jobs import write

NOT_NEEDED = {"pandas", "pyarrow.compute", "pyarrow.dataset"}


def loaded(arguments: list[str]) -> set[str]:
    """Modules that a run imports."""
    command = [sys.executable, "-X", "importtime", "-m", "grpo_cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Enough rows for a dictionary to be thought of."""
    path = tmp_path / "in.parquet"
    frame = pl.DataFrame([{"prompt_id": f"p{row // 8}", "reward": row % 3} for row in range(4000)])
    frame.write_parquet(path, row_group_size=1000)
    return path


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("in.parquet", ["-o", "out.parquet"]),
        ("in.parquet", ["-o", "out.parquet", "--dtype", "f32"]),
        ("in.parquet", ["--in-place"]),
        ("in.jsonl", ["-o", "out.jsonl"]),
    ],
)
def test_a_column_is_added_without_pandas_and_the_kernels_of_pyarrow(
    name: str, options: list[str], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    pl.read_parquet(path).write_ndjson("in.jsonl")
    assert not NOT_NEEDED & loaded(["compute", name, *options, "--quiet"])
    written = name if "--in-place" in options else options[1]
    read = pl.read_ndjson if written.endswith(".jsonl") else pl.read_parquet
    assert read(written).columns == ["prompt_id", "reward", "advantage"]


def test_facts_and_nulls_load_no_pandas(path: Path) -> None:
    target = path.with_name("out.parquet")
    options = ["--facts", "--zero-variance", "null", "--group-size", "2"]
    assert "pandas" not in loaded(["compute", str(path), "-o", str(target), "--quiet", *options])


READING = [["compute"], ["inspect"], ["select", "--where", "std > 0"]]


@pytest.mark.parametrize(("command", "lines_of"), paired(READING, [(2000, 10), (4000, 1100)]))
def test_json_lines_load_pyarrow_only_to_put_many_short_ones_together(
    command: list[str], lines_of: tuple[int, int], tmp_path: Path
) -> None:
    rows, size = lines_of
    lines = tmp_path / "in.jsonl"
    write(lines, [{"prompt_id": row // 8, "reward": row % 3, "text": "x" * size} for row in range(rows)])
    target = [] if command == ["inspect"] else ["-o", str(tmp_path / "out.jsonl")]
    assert "pyarrow" not in loaded([*command, str(lines), *target, "--quiet"])
