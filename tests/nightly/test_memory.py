"""Texts are never all in memory: 600 MB of them, and a process that has less."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

PARTS: Final = 20
ROWS: Final = 5000  # of a part
TEXT: Final = 6000  # bytes
MOST: Final = 500 << 20
# The command, and the most memory that it had, in kB.
SCRIPT: Final = """
import atexit, sys
from pathlib import Path
from grpo_cli.__main__ import main
status = Path("/proc/self/status")
atexit.register(lambda: print(status.read_text().partition("VmHWM:")[2].split()[0], file=sys.stderr))
main()
"""


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process had")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows in no order."""
    folder = tmp_path_factory.mktemp("texts")
    drawn = np.random.default_rng(5)
    keys = drawn.permutation(PARTS * ROWS) // 8
    writer = None
    with (folder / "in.jsonl").open("wb") as lines:
        for at in range(PARTS):
            here = keys[at * ROWS : (at + 1) * ROWS]
            completion = [drawn.bytes(TEXT // 2).hex() for _ in range(ROWS)]
            columns = {"prompt_id": here, "reward": drawn.random(ROWS), "prompt": here.astype(str)}
            frame = pl.DataFrame({**columns, "completion": completion})
            frame.write_ndjson(lines)
            table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
            writer = writer or pq.ParquetWriter(folder / "in.parquet", table.schema)
            writer.write_table(table)
    if writer is not None:
        writer.close()
    return folder


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    "command",
    ["compute -o OUT", "select --limit 9000 -o OUT", "inspect", "export --to sft -o OUT", "export --to pairs -o OUT"],
)
def test_texts_are_never_all_in_memory(command: str, suffix: str, texts: Path) -> None:
    name, *options = command.replace("OUT", f"out.{suffix}").split()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, name, f"in.{suffix}", *options, "-q"],
        cwd=texts, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    (texts / f"out.{suffix}").unlink(missing_ok=True)
    assert done.returncode == 0, done.stderr
    peak = int(done.stderr) << 10
    print(f"{command}, {suffix}: {peak >> 20} MB")  # noqa: T201 - shown by pytest -s
    assert peak < MOST
