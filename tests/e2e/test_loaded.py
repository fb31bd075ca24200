"""What a run over files does not load: pandas takes 0.17 s where it is installed, pyarrow.compute 0.03 s."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest

from tests.support.drawn import paired
from tests.support.jobs import rows_of, write

NOT_NEEDED = {"pandas", "pyarrow.compute", "pyarrow.dataset"}
# Enough rows for a dictionary to be thought of.
FRAME = pl.DataFrame({"prompt_id": [f"p{row // 8}" for row in range(4000)], "reward": [row % 3 for row in range(4000)]})


def loaded(line: str, *more: str) -> set[str]:
    """Modules that a run imports; without a summary unless other options are given."""
    command = [sys.executable, "-X", "importtime", "-m", "grpo_cli", *line.split(), *(more or ["--quiet"])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("compute in.parquet -o out.parquet", "out.parquet"),
        ("compute in.parquet -o out.parquet --dtype f32", "out.parquet"),
        ("compute in.parquet --in-place", "in.parquet"),
        ("compute in.jsonl -o out.jsonl", "out.jsonl"),
    ],
)
def test_a_column_is_added_without_pandas_and_the_kernels_of_pyarrow(line: str, written: str) -> None:
    FRAME.write_parquet("in.parquet", row_group_size=1000)
    FRAME.write_ndjson("in.jsonl")
    assert not NOT_NEEDED & loaded(line)
    assert [*rows_of(written)[0]] == ["prompt_id", "reward", "advantage"]


def test_facts_and_nulls_load_no_pandas() -> None:
    FRAME.write_parquet("in.parquet")
    assert "pandas" not in loaded("compute in.parquet -o out.parquet --facts --zero-variance null --group-size 2")


READING = ["compute in.jsonl -o out.jsonl", "inspect in.jsonl", "select in.jsonl --where size>0 -o out.jsonl"]


@pytest.mark.parametrize(("line", "lines_of"), paired(READING, [(2000, 10), (4000, 1100)]))
def test_json_lines_load_pyarrow_only_to_put_many_short_ones_together(line: str, lines_of: tuple[int, int]) -> None:
    rows, size = lines_of
    write("in.jsonl", [{"prompt_id": row // 8, "reward": row % 3, "text": "x" * size} for row in range(rows)])
    assert "pyarrow" not in loaded(line)


def test_a_line_of_text_loads_no_files_in_packages_and_no_names_of_html() -> None:
    """`importlib.resources` came in with the base class of a finder of modules, and took half of `--version`."""
    write("in.jsonl", [{"prompt_id": row // 8, "reward": row % 3} for row in range(80)])
    assert not {"importlib.resources", "tempfile", "random", "polars"} & loaded("help", "compute")
    assert "html" not in loaded("compute in.jsonl -o out.jsonl")
