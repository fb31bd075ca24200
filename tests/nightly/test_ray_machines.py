"""Machines of a Ray cluster that are lost while a run goes on: all of them are raylets on this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from grpo_cli.runs import compute_files, compute_ray, ray_stages
from tests.support import partitions
from tests.support.jobs import job
from tests.support.raylets import INSTALLED, raylets

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(not INSTALLED, reason="the extra ray is not installed"),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


@pytest.mark.parametrize("stage", ["reading", "computing", "writing"])
def test_a_machine_that_is_lost_changes_nothing(stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_stages, "ROWS", 20_000)
    folder = partitions.shards(tmp_path / "in", partitions.rows(100_000, 12_500), files=12)
    expected = tmp_path / "local"
    compute_files.run(job(folder, group_within="input", output=f"{expected}/"))
    with raylets(2) as (cluster, more):
        lost = list[tuple[int, int]]()

        def lose(name: str, done: int = 0, total: int = 0) -> None:
            if name == stage and done and not lost:
                lost.append((done, total))
                cluster.remove_node(more[0], allow_graceful=False)

        compute_ray.run(job(folder, group_within="input", output=f"{tmp_path}/parted/"), lose)
    assert lost
    assert lost[0][0] < lost[0][1]
    partitions.same_files(expected, tmp_path / "parted")
