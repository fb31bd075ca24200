"""A Parquet file with one wrong bit ends no process and shows no traceback, whichever command reads it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

from tests.support import flips
from tests.support.command import adv
from tests.support.drawn import is_nightly

FLIPS = int(os.environ.get("FLIPS", "3000" if is_nightly() else "24"))
ROOT = Path(__file__).parents[2]


INSPECT = """
import sys
from tests.support.command import adv
for name in sys.argv[1:]:
    print(name, flush=True)  # the last one is the one that ended the process
    assert adv("inspect", name).status in {0, 1}
"""


def python(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a process that may crash."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=environment)


def test_no_wrong_bit_ends_a_process(tmp_path: Path) -> None:
    done = python("-m", "tests.support.flips", "0", str(FLIPS), cwd=tmp_path)
    where = (tmp_path / "now").read_text(encoding="utf-8")
    assert (done.returncode, done.stdout) == (0, ""), (where, done.stderr[-500:])


def test_sizes_in_a_column_chunk_that_cannot_be_end_no_process(tmp_path: Path) -> None:
    """pyarrow crashes on such a chunk: a list in its size statistics is one item too short."""
    data = bytearray(flips.written(0))
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert pq.read_metadata(io.BytesIO(bytes(data))).num_columns == 5
    names = list[str]()
    for at in range(footer, len(data) - 8):
        if data[at] & 0x0F == 0x06 and data[at] >> 4 in {2, 3, 4} and len(names) < 6:  # a short list of 64-bit numbers
            changed = bytes([*data[:at], data[at] ^ 0x10, *data[at + 1 :]])
            names.append(f"{at}.parquet")
            (tmp_path / names[-1]).write_bytes(changed)
    done = python("-c", INSPECT, *names, cwd=tmp_path)
    assert names
    assert (done.returncode, done.stdout.split()) == (0, names), done.stderr[-500:]


def test_a_column_chunk_without_a_codec_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "in.parquet").write_bytes(flips.spoiled(2586))
    done = adv("compute", "in.parquet", "-o", "out.parquet", cwd=tmp_path)
    assert (done.status, done.err.count("\n"), "in.parquet" in done.err) == (1, 1, True), done
