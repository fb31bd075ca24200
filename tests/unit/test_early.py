"""A copy that begins before it is asked for changes no byte of the output and leaves nothing behind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from grpo_cli.files import early
from grpo_cli.files.atomic import replacing
from grpo_cli.files.inputs import Pin
from tests.support.command import adv

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of three megabytes."""
    noise = np.random.default_rng(1)
    texts = [noise.bytes(800).hex() for _ in range(2000)]
    frame = pl.DataFrame({"prompt_id": np.arange(2000) // 8, "reward": noise.integers(0, 2, 2000), "text": texts})
    path = tmp_path / "in.parquet"
    frame.write_parquet(path)
    return path


@pytest.fixture
def early_from_the_first_byte(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Copy small files early as well, in many steps; the list grows with each early copy that was of use."""
    used: list[int] = []
    take = early.Ahead.take

    def counted(self: early.Ahead, pin: Pin, length: int) -> bool:
        there = take(self, pin, length)
        used.extend([length] if there else [])
        return there

    monkeypatch.setattr(early, "_STEP", 1 << 16)
    monkeypatch.setattr(early.Ahead, "take", counted)
    return used


def names(source: Path) -> list[str]:
    return sorted(path.name for path in source.parent.iterdir())


def computed(source: Path, name: str, *options: str) -> int:
    target = source.with_name(name)
    return adv("compute", str(source), "-o", str(target), "--quiet", *options).status


def test_the_output_has_the_same_bytes(source: Path, early_from_the_first_byte: list[int]) -> None:
    assert computed(source, "early.parquet") == 0
    assert early_from_the_first_byte
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(early, "_STEP", 1 << 40)
        assert computed(source, "late.parquet") == 0
    assert len(early_from_the_first_byte) == 1
    assert source.with_name("early.parquet").read_bytes() == source.with_name("late.parquet").read_bytes()


def test_nothing_is_left_when_the_run_ends_without_an_output(
    source: Path, early_from_the_first_byte: list[int]
) -> None:
    assert computed(source, "out.parquet", "--fail-on", "rows > 5") == 3
    assert computed(source, "out.parquet", "--reward", "text") == 1
    assert names(source) == ["in.parquet"]
    assert not early_from_the_first_byte


def test_rows_that_are_dropped_come_from_an_empty_file(source: Path, early_from_the_first_byte: list[int]) -> None:
    assert computed(source, "out.parquet", "--zero-variance", "drop", "--std-threshold", "0.45") == 0
    assert not early_from_the_first_byte
    kept = pl.read_parquet(source.with_name("out.parquet"))
    whole = pl.read_parquet(source)
    assert 0 < len(kept) < len(whole)
    assert kept.drop("advantage").equals(whole.filter(pl.col("text").is_in(kept["text"].to_list())))


def test_a_file_that_changes_after_the_copy_began_is_copied_as_it_is_then(
    source: Path, early_from_the_first_byte: list[int]
) -> None:
    target = source.with_name("out.parquet")
    with early.begun(str(source), str(target), force=False):
        os.utime(source, (1, 1))
        with replacing(target, force=False) as sink:
            assert isinstance(sink, early.Ahead)
            assert not sink.take(Pin.of(source.stat()), source.stat().st_size)
            sink.write(b"anew")
    assert target.read_bytes() == b"anew"
    assert names(source) == ["in.parquet", "out.parquet"]


def test_an_output_that_exists_is_not_begun_unless_it_may_be_replaced(
    source: Path, early_from_the_first_byte: list[int]
) -> None:
    target = source.with_name("out.parquet")
    target.write_bytes(b"old")
    for force, count in ((False, 2), (True, 3)):
        with early.begun(str(source), str(target), force=force):
            assert len(names(source)) == count
        assert target.read_bytes() == b"old"
    with early.begun(str(source), str(source), force=True):
        assert len(names(source)) == 2


def test_a_body_that_fails_takes_the_copy_with_it(source: Path, early_from_the_first_byte: list[int]) -> None:
    target = source.with_name("out.parquet")
    with (
        pytest.raises(ZeroDivisionError),
        early.begun(str(source), str(target), force=False),
        replacing(target, force=False),
    ):
        raise ZeroDivisionError
    assert names(source) == ["in.parquet"]
