"""Files with holes: a sparse input and a sparse output that is replaced are files like others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.command import adv

BLOCK = 4096
ZEROS = 4 << 20  # bytes of a text of NULs in each row


def with_holes(path: Path, data: bytes) -> None:
    """Write the data, and leave out blocks of zeros."""
    with path.open("wb") as file:
        for at in range(0, len(data), BLOCK):
            block = data[at : at + BLOCK]
            if block.strip(b"\0"):
                file.seek(at)
                file.write(block)
        file.truncate(len(data))


@pytest.mark.parametrize("words", [["-o", "out.parquet", "--force"], ["--in-place"]])
def test_a_sparse_file_keeps_its_bytes_and_a_sparse_output_is_replaced(words: list[str], tmp_path: Path) -> None:
    blobs = [b"\0" * ZEROS, b"\0" * ZEROS]
    table = pa.table({"prompt_id": ["a", "a"], "reward": [0.0, 1.0], "blob": blobs})
    pq.write_table(table, tmp_path / "plain.parquet", compression="none", use_dictionary=False, write_statistics=False)
    data = (tmp_path / "plain.parquet").read_bytes()
    with_holes(tmp_path / "in.parquet", data)
    with_holes(tmp_path / "out.parquet", b"\0" * (3 * ZEROS))  # longer than what replaces it
    if (tmp_path / "in.parquet").stat().st_blocks * 512 > ZEROS:
        pytest.skip("this file system has no holes")
    done = adv("compute", "in.parquet", *words, cwd=tmp_path)
    assert done.status == 0, done.err
    written = tmp_path / ("in.parquet" if words == ["--in-place"] else "out.parquet")
    found = pq.read_table(written)
    assert found["advantage"].to_pylist() == pytest.approx([-(0.5**0.5), 0.5**0.5], abs=1e-5)
    assert found["blob"].to_pylist() == blobs
    checked = adv("verify", written.name, "--against", "plain.parquet", cwd=tmp_path)
    assert checked.status == 0, checked.err
