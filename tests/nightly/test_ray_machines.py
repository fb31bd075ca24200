"""Nodes of a Ray cluster that are lost during a run: all of them are raylets on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_cli.runs import compute_files
from tests.support import ray_runs
from tests.support.jobs import job
from tests.support.raylets import INSTALLED, raylets

pytestmark = [
    pytest.mark.skipif(not INSTALLED, reason="the extra ray is not installed"),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("stage", ["reading", "writing"])
def test_a_machine_that_is_lost_changes_nothing(stage: str, suffix: str, tmp_path: Path) -> None:
    folder = ray_runs.shards(tmp_path / "in", ray_runs.rows(100_000, 12_500), files=12, suffix=suffix)
    compute_files.run(job(folder, group_within="input", output=f"{tmp_path}/local/"))
    with raylets(2) as (cluster, more), ray_runs.on_tasks(5_000) as workers:
        lost = list[tuple[int, int]]()

        def lose(name: str, done: int = 0, total: int | None = None) -> None:
            if name == stage and done and not lost:
                lost.append((done, total or 0))
                cluster.remove_node(more[0], allow_graceful=False)

        compute_files.run(job(folder, group_within="input", output=f"{tmp_path}/tasks/"), lose, workers)
    assert lost
    assert lost[0][0] < lost[0][1]
    ray_runs.same_files(tmp_path / "local", tmp_path / "tasks")
