"""An inspection in partitions, all of whose tasks are done by this process, against one by one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from grpo_cli.errors import UsageError
from grpo_cli.runs import inspect_ray
from tests.support import partitions
from tests.support.jobs import inspect_job

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    partitions.without_ray(monkeypatch)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"by": "role"},
        {"by": "file"},
        {"by": "turns", "length_column": "length", "top": 7, "sort": "mean"},
        {"reward": ["reward", "other=0.5"]},
        {"reward": ["reward", "other"], "length_column": "length"},
        {"reward": ["other"]},
        {"reward": ["logprob"]},
        {"reward": ["logprob", "kl"], "by": "role"},
        {"rollout": "rollout", "group_within": "input"},
        {"group_size": 4, "partial": "drop"},
        {"group": None, "group_size": 3, "partial": "keep", "group_within": None},
        {"scale": "batch", "whiten": "sample", "batch_by": "input"},
        {"duplicates": True, "text_column": "text"},
        {"zero_variance": "drop", "method": "rloo"},
    ],
    ids=str,
)
@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_the_facts_are_those_of_one_process(options: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    frame = partitions.rows().with_columns(text=pl.format("response {}", pl.int_range(pl.len()) % 7))
    folder = partitions.shards(tmp_path / "in", frame, suffix=suffix)
    facts = partitions.both_inspected(folder, **{"group": "prompt_id", "reward": ["reward"], **options})
    assert facts["listed"]["most"]


@pytest.mark.parametrize("binary", [True, False])
def test_rewards_of_two_values_and_of_many(binary: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    frame = partitions.rows(2000, 400, binary=binary)
    if not binary:
        frame = frame.with_columns(reward=pl.Series(np.random.default_rng(1).normal(size=2000)))
    facts = partitions.both_inspected(partitions.shards(tmp_path / "in", frame), group="prompt_id")
    assert ("values" in facts["reward"]["histogram"]) == binary


@pytest.mark.parametrize("reward", [None, 0.5], ids=["none", "equal"])
def test_rewards_that_are_missing_or_all_the_same(reward: float | None, tmp_path: Path) -> None:
    frame = partitions.rows(60, 12).with_columns(reward=pl.lit(reward, pl.Float64))
    partitions.both_inspected(partitions.shards(tmp_path / "in", frame), group="prompt_id", reward=["reward"])


def test_a_group_of_each_row_is_no_error(tmp_path: Path) -> None:
    frame = partitions.rows(60).with_columns(prompt_id=pl.int_range(pl.len()))
    facts = partitions.both_inspected(partitions.shards(tmp_path / "in", frame), group="prompt_id")
    assert facts["singletons"] == 60


def test_what_only_all_rows_can_show_is_refused(tmp_path: Path) -> None:
    folder = partitions.shards(tmp_path / "in", partitions.rows(60))
    job = inspect_job(folder, group="prompt_id", reward=["reward", "other"], combine="normalize")
    with pytest.raises(UsageError, match="which components occur together"):
        inspect_ray.run(job)
