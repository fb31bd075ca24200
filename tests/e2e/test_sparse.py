"""Files with holes: a sparse input and a sparse output that is replaced are files like others."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.command import adv, ran

BLOCK = 4096
ZEROS = 4 << 20  # bytes of a text of NULs in each row


def with_holes(name: str, data: bytes) -> None:
    """Write the data, and leave out blocks of zeros."""
    with Path(name).open("wb") as file:
        for at in range(0, len(data), BLOCK):
            block = data[at : at + BLOCK]
            if block.strip(b"\0"):
                file.seek(at)
                file.write(block)
        file.truncate(len(data))


@pytest.mark.parametrize(
    ("words", "written"), [("-o out.parquet --force", "out.parquet"), ("--in-place", "in.parquet")]
)
def test_a_sparse_file_keeps_its_bytes_and_a_sparse_output_is_replaced(words: str, written: str) -> None:
    table = pa.table({"prompt_id": ["a", "a"], "reward": [0.0, 1.0], "blob": [b"\0" * ZEROS] * 2})
    pq.write_table(table, "plain.parquet", compression="none", use_dictionary=False, write_statistics=False)
    with_holes("in.parquet", Path("plain.parquet").read_bytes())
    with_holes("out.parquet", b"\0" * (3 * ZEROS))  # longer than what replaces it
    if os.stat("in.parquet").st_blocks * 512 > ZEROS:  # noqa: PTH116
        pytest.skip("this file system has no holes")
    ran(f"compute in.parquet {words}")
    found = pq.read_table(written)
    assert found["advantage"].to_pylist() == pytest.approx([-(0.5**0.5), 0.5**0.5], abs=1e-5)
    assert found["blob"] == table["blob"]
    checked = adv(f"verify {written} --against plain.parquet")
    assert checked.status == 0, checked.err
