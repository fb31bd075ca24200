"""More rows than fit into memory are refused before they are read, with both figures."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

from grpo_cli.errors import DataError
from grpo_cli.read import memory
from grpo_cli.read.memory import WAYS_OUT, available_memory, refuse_beyond_memory
from grpo_cli.read.tables import FileTable
from tests.support.command import adv
from tests.support.jobs import opened

MB = 10**6
FRAME = pl.DataFrame({"prompt_id": range(100_000), "reward": [0.0] * 100_000})


def machine(root: Path, *, available: int | None, container: int | str = "max") -> Path:
    """A root directory with the files in which Linux reports memory."""
    known = f"MemAvailable: {available // 1024} kB\n" if available else ""
    memory = root / "proc/meminfo"
    limit = root / "sys/fs/cgroup/memory.max"
    memory.parent.mkdir(parents=True, exist_ok=True)
    limit.parent.mkdir(parents=True, exist_ok=True)
    memory.write_text(f"MemTotal: 1 kB\nSwapFree: 0 kB\n{known}")
    limit.write_text(f"{container}\n")
    return root


@pytest.mark.skipif(not hasattr(ipc.RecordBatchFileReader, "count_rows"), reason="pyarrow counts rows since 26")
def test_rows_that_cannot_fit_are_refused_with_both_figures(tmp_path: Path) -> None:
    FRAME.write_parquet("a.parquet")
    FRAME.write_ipc("b.arrow", compat_level=pl.CompatLevel.oldest())
    both = opened("a.parquet", "b.arrow")
    refuse_beyond_memory(both, 2, machine(tmp_path, available=8 * MB + MB // 2))
    with pytest.raises(
        DataError, match=r"200,000 rows take at least 0\.0 GB of memory, but 0\.0 GB are available; run it"
    ):
        refuse_beyond_memory(both, 2, machine(tmp_path, available=7 * MB))
    with pytest.raises(DataError):  # each further column takes more
        refuse_beyond_memory(both, 4, machine(tmp_path, available=8 * MB + MB // 2))


def test_ray_is_no_way_out_for_too_many_rows() -> None:
    assert "ray" not in WAYS_OUT


def test_more_rows_than_have_numbers_are_refused_whatever_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FRAME.write_parquet("a.parquet")
    monkeypatch.setattr(FileTable, "row_count", 1 << 32)
    with pytest.raises(DataError, match=r"4,294,967,296 rows, but a run takes at most 4,294,967,295; run it in parts"):
        refuse_beyond_memory(opened("a.parquet"), 2, machine(tmp_path, available=None))


def test_the_least_of_what_the_machine_and_its_container_give_counts(tmp_path: Path) -> None:
    assert available_memory(machine(tmp_path, available=8192)) == 8192
    assert available_memory(machine(tmp_path, available=8192, container=7000)) == 7000
    assert available_memory(machine(tmp_path, available=4096, container=7000)) == 4096


def test_where_the_memory_or_the_number_of_rows_is_unknown_nothing_is_refused(tmp_path: Path) -> None:
    FRAME.write_parquet("a.parquet")
    FRAME.write_ndjson("a.jsonl")
    FRAME.write_ipc_stream("a.arrow", compat_level=pl.CompatLevel.oldest())
    assert available_memory(Path("nothing")) is None
    refuse_beyond_memory(opened("a.parquet"), 2, Path("nothing"))
    for name in ("a.jsonl", "a.arrow"):
        refuse_beyond_memory(opened(name), 2, machine(tmp_path, available=1024))


def test_the_command_says_so_before_it_reads_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = pa.table({"prompt_id": pa.array([0] * (1 << 20), pa.int32()), "reward": pa.array([0.0] * (1 << 20))})
    with pq.ParquetWriter(Path("a.parquet"), block.schema) as writer:
        for _ in range(90):
            writer.write_table(block)
    monkeypatch.setattr(memory, "available_memory", lambda _: 3 << 30)
    done = adv("compute a.parquet -g prompt_id")
    assert done.status == 1
    assert done.err.startswith("error: 94,371,840 rows take at least 3.8 GB of memory, but 3.2 GB are available; ")
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
