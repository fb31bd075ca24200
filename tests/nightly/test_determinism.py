"""The same input gives the same bytes, whatever the threads, the hash seed and the Python; and nothing asks the network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import pytest

from tests.support.jobs import samples_in

ROWS: Final = 300_000
COMMANDS: Final = [
    "compute a.parquet -o out.parquet --force -q",
    "compute a.parquet -o out.parquet --force --scale batch --whiten sample -q",
    "compute a.jsonl -o out.jsonl --force --method james-stein -q",
    "select a.parquet --limit 1000 --seed 3 -o out.parquet --force -q",
    "inspect a.parquet --json",
    "report a.jsonl -o out.html --force -q",
]
SURROUNDINGS: Final = [
    {"POLARS_MAX_THREADS": "1", "PYTHONHASHSEED": "1"},
    {"POLARS_MAX_THREADS": "2", "PYTHONHASHSEED": "2"},
    {"POLARS_MAX_THREADS": "8", "PYTHONHASHSEED": "3"},
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows whose groups lie apart, with rewards whose sums depend on their order."""
    folder = tmp_path_factory.mktemp("same")
    drawn = np.random.default_rng(5)
    frame = pl.DataFrame({"prompt_id": drawn.integers(0, ROWS // 8, ROWS), "reward": drawn.normal(size=ROWS)})
    frame.write_parquet(folder / "a.parquet", row_group_size=ROWS // 7)
    frame.write_ndjson(folder / "a.jsonl")
    return folder


def said_and_written(command: str, place: Path, **surroundings: str) -> tuple[bytes, bytes]:
    """Standard output, and the file `out.*` where there is one."""
    done = subprocess.run(
        [sys.executable, "-m", "grpo_cli", *command.split()],
        cwd=place, env={**os.environ, **surroundings}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = [path for path in place.iterdir() if path.name.startswith("out.")]
    raw = written[0].read_bytes() if written else b""
    for path in written:
        path.unlink()
    return done.stdout, raw


@pytest.mark.parametrize("command", COMMANDS)
def test_threads_and_hash_seeds_change_no_byte(command: str, place: Path) -> None:
    first, *others = (said_and_written(command, place, **surroundings) for surroundings in SURROUNDINGS)
    assert any(first)
    assert others == [first] * len(others)


def test_the_order_of_the_shards_changes_no_advantage(place: Path, tmp_path: Path) -> None:
    frame = pl.read_parquet(place / "a.parquet").with_row_index("row").sort("prompt_id", maintain_order=True)
    parts = [frame[low : low + ROWS // 3] for low in range(0, ROWS, ROWS // 3)]
    found = []
    for at, order in enumerate(([0, 1, 2], [2, 0, 1])):
        names = [tmp_path / f"{at}" / f"{name}.parquet" for name in "abc"]
        for name, part in zip(names, order, strict=True):
            name.parent.mkdir(exist_ok=True)
            parts[part].write_parquet(name)
        words = f"compute {tmp_path}/{at} --group-within input -o {tmp_path}/out{at}/ -q"
        subprocess.run([sys.executable, "-m", "grpo_cli", *words.split()], check=True)
        found.append(pl.read_parquet(f"{tmp_path}/out{at}/*.parquet").sort("row")["advantage"])
    # If a group is in two shards, its sum is added up in another order.
    whole = frame.group_by("prompt_id").agg(pl.col("row")).height
    different = frame.sort("row").filter((found[0] != found[1]).fill_null(value=True))["prompt_id"].n_unique()
    assert different <= len(parts)
    assert whole > 10_000
    assert np.abs(found[0].to_numpy() - found[1].to_numpy()).max() < 1e-12


def without_network(words: list[str], place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["unshare", "-rn", *words], cwd=place, capture_output=True, text=True, check=False)


def test_no_command_needs_a_network(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or without_network(["true"], tmp_path).returncode:
        pytest.skip("no network namespace may be made here")
    samples_in(tmp_path)
    for command in (
        "compute rewards.jsonl",
        "compute rewards.parquet --in-place --column other",
        "inspect steps.jsonl --by step --group-within step",
        "select rewards.jsonl --limit 2",
        "report rewards.jsonl -o report.html",
        "audit rewards.advantages.jsonl",
        "compare rewards.jsonl --preset trl-grpo --preset verl-grpo",
        "verify rewards.advantages.jsonl --against rewards.jsonl",
        "methods rloo",
        "presets trl-grpo",
        "schemas rewards.jsonl",
    ):
        done = without_network([sys.executable, "-m", "grpo_cli", *command.split()], tmp_path)
        assert done.returncode == 0, (command, done.stderr)
