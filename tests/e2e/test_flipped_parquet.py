"""A Parquet file with one wrong bit ends no process and shows no traceback, whichever command reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support import flips
from tests.support.command import adv
from tests.support.drawn import is_nightly

FLIPS = int(os.environ.get("FLIPS", "3000" if is_nightly() else "8"))
INSPECT = """
import sys
from tests.support.command import adv
for name in sys.argv[1:]:
    print(name, flush=True)  # the last one is the one that ended the process
    assert adv("inspect", name).status in {0, 1}
"""


def python(*words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process that may crash."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env=environment)


def test_no_wrong_bit_ends_a_process() -> None:
    done = python("-m", "tests.support.flips", "0", str(FLIPS))
    where = Path("now").read_text(encoding="utf-8")
    assert (done.returncode, done.stdout) == (0, ""), (where, done.stderr[-500:])


def test_sizes_in_a_column_chunk_that_cannot_be_end_no_process() -> None:
    """pyarrow crashes on such a chunk: a list in its size statistics is one item too short."""
    data = flips.written(0)
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    lists = [
        at for at in range(footer, len(data) - 8) if data[at] in {0x26, 0x36, 0x46}
    ]  # short ones of 64-bit numbers
    names = [f"{at}.parquet" for at in lists[:6]]
    for at, name in zip(lists, names, strict=False):
        Path(name).write_bytes(bytes([*data[:at], data[at] ^ 0x10, *data[at + 1 :]]))
    done = python("-c", INSPECT, *names)
    assert names
    assert (done.returncode, done.stdout.split()) == (0, names), done.stderr[-500:]


def test_a_column_chunk_without_a_codec_is_one_line() -> None:
    Path("in.parquet").write_bytes(flips.spoiled(2586))
    done = adv("compute in.parquet -o out.parquet")
    assert (done.status, done.err.count("\n"), "in.parquet" in done.err) == (1, 1, True), done
