"""The sample files are what the script writes, and have what their README promises."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import polars as pl

from tests.support.jobs import SAMPLES, rows_of

SPEC = spec_from_file_location("sample_data_make", SAMPLES / "make.py")
assert SPEC is not None
assert SPEC.loader is not None
make = module_from_spec(SPEC)
sys.modules[SPEC.name] = make  # dataclasses look their module up
SPEC.loader.exec_module(make)
ROWS = rows_of(SAMPLES / "rewards.jsonl")
STEPS = rows_of(SAMPLES / "steps.jsonl")
TWO = rows_of(SAMPLES / "two_rewards.jsonl")


def test_the_files_are_the_bytes_that_the_script_makes() -> None:
    """Those of Parquet name the pyarrow that wrote them, so only that they are the same twice."""
    for folder in ("one", "two"):
        Path(folder).mkdir()
        make.main(Path(folder))
    for name in ("rewards.jsonl", "chats.jsonl", "steps.jsonl", "two_rewards.jsonl"):
        assert Path("one", name).read_bytes() == (SAMPLES / name).read_bytes(), name
    assert Path("one/rewards.parquet").read_bytes() == Path("two/rewards.parquet").read_bytes()


def test_the_parquet_file_has_the_same_rows() -> None:
    frame = pl.read_parquet(SAMPLES / "rewards.parquet")
    assert frame.to_dicts() == ROWS
    assert frame.columns == ["prompt_id", "sample", "reward", "length", "completion"]


def test_the_readme_counts_the_rows() -> None:
    text = (SAMPLES / "README.md").read_text(encoding="utf-8")
    for name, rows in (("rewards.jsonl", ROWS), ("steps.jsonl", STEPS), ("two_rewards.jsonl", TWO)):
        assert f"| `{name}` | {len(rows)} |" in text
