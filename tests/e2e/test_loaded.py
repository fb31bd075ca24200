"""What a run over files does not load: pandas takes 0.17 s where it is installed, pyarrow.compute 0.03 s."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.support.drawn import paired

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
    rows = 4000
    frame = pl.DataFrame(
        {"prompt_id": [f"p{row // 8}" for row in range(rows)], "reward": [row % 3 for row in range(rows)]}
    )
    frame.write_parquet(path, row_group_size=1000)
    return path


@pytest.mark.parametrize("options", [[], ["--dtype", "f32"]])
def test_a_spliced_column_loads_neither_pandas_nor_the_kernels_of_pyarrow(path: Path, options: list[str]) -> None:
    target = path.with_name("out.parquet")
    assert not NOT_NEEDED & loaded(["compute", str(path), "-o", str(target), "--quiet", *options])
    assert pl.read_parquet(target).columns == ["prompt_id", "reward", "advantage"]


def test_members_of_json_lines_do_not_either(path: Path) -> None:
    lines, target = path.with_name("in.jsonl"), path.with_name("out.jsonl")
    pl.read_parquet(path).write_ndjson(lines)
    assert not NOT_NEEDED & loaded(["compute", str(lines), "-o", str(target), "--quiet"])
    assert pl.read_ndjson(target).columns == ["prompt_id", "reward", "advantage"]


def test_growing_in_place_does_not_either(path: Path) -> None:
    assert not NOT_NEEDED & loaded(["compute", str(path), "--in-place", "--quiet"])


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
    frame = pl.DataFrame({"prompt_id": [row // 8 for row in range(rows)], "reward": [row % 3 for row in range(rows)]})
    frame.with_columns(text=pl.lit("x" * size)).write_ndjson(lines)
    target = [] if command == ["inspect"] else ["-o", str(tmp_path / "out.jsonl")]
    assert "pyarrow" not in loaded([*command, str(lines), *target, "--quiet"])
