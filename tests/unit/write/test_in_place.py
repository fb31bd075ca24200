"""Writing in place."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.errors import DataError, UsageError
from grpo_cli.write.verify import verify
from tests.support.jobs import compute, write
from tests.support.samples import samples_in


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def files(place: Path) -> list[Path]:
    rows = [{"prompt_id": name, "reward": i % 2} for name in "ab" for i in range(4)]
    return [
        write(place / f"step_{n}.jsonl", [{**row, "prompt_id": f"{n}{row['prompt_id']}"} for row in rows])
        for n in (1, 2, 10)
    ]


def test_a_file_that_another_process_has_locked_is_not_rewritten_in_place(files: list[Path]) -> None:
    before = files[0].read_bytes()
    with files[0].open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        with pytest.raises(DataError, match="another process has locked it"):
            compute(files[0], in_place=True)
    assert files[0].read_bytes() == before
    compute(files[0], in_place=True)


@pytest.mark.parametrize("name", ["rewards.jsonl", "rewards.parquet"])
def test_in_place_the_input_gains_the_column(name: str, place: Path) -> None:
    samples_in(place)
    samples_in(place / "before")
    compute(place / name, in_place=True)
    assert verify(place / name, place / "before" / name).added == ("advantage",)
    with pytest.raises(DataError, match="--replace"):
        compute(place / name, in_place=True)
    compute(place / name, in_place=True, replace=True, method="rloo")
    assert verify(place / name, place / "before" / name).by == "bytes"


def test_in_place_with_dropped_rows_rewrites_the_file(place: Path) -> None:
    samples_in(place)
    compute(place / "rewards.jsonl", in_place=True, zero_variance="drop")
    assert len((place / "rewards.jsonl").read_text().splitlines()) == 37


@pytest.mark.parametrize(
    "options", [{"output": "x.jsonl"}, {"only": True}, {"duplicate": True, "zero_variance": "drop"}]
)
def test_in_place_cannot_be_combined_with_other_outputs(options: dict[str, Any], files: list[Path]) -> None:
    before = files[0].read_bytes()
    with pytest.raises(UsageError, match="cannot be combined"):
        compute(files[0], in_place=True, **options)
    assert files[0].read_bytes() == before
