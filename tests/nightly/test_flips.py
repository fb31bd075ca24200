"""Thousands of Parquet files with one wrong bit under every reading command: none ends a process (`FLIPS=N`, 3,000 unless it is said)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLIPS = int(os.environ.get("FLIPS", "3000"))


def test_no_wrong_bit_of_thousands_ends_a_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.flips", "0", str(FLIPS)],
        cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), ((tmp_path / "now").read_text(), done.stderr[-500:])
