"""A run in partitions, all of whose tasks are done by this process, against a run of one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.plan import Plan
from tests.support import partitions

if TYPE_CHECKING:
    from pathlib import Path

ORDER_FREE = [name for name, one in ESTIMATORS.items() if one.order_free]
BINARY = {"bnpo", "vr-cond", "maxrl", "spo"}


@pytest.fixture(autouse=True)
def _without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    partitions.without_ray(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return partitions.shards(tmp_path / "in", partitions.rows())


@pytest.mark.parametrize("method", ORDER_FREE)
def test_every_method_gives_the_same_bytes_at_group_scope(method: str, tmp_path: Path) -> None:
    folder = partitions.shards(tmp_path / "in", partitions.rows(binary=method in BINARY))
    batch = Plan.of({"estimator.name": method}).uses_batch
    more = {"batch_by": "input"} if batch else {}
    partitions.both(
        tmp_path, folder, exact=not batch, method=method, group="prompt_id", **partitions.options_of(method), **more
    )


@pytest.mark.parametrize("method", [name for name in ORDER_FREE if "batch" in ESTIMATORS[name].scales])
@pytest.mark.parametrize("batch", ["input", "file"])
def test_every_method_divided_by_a_batch_is_the_same_to_rounding(method: str, batch: str, tmp_path: Path) -> None:
    frame = partitions.rows(binary=method in BINARY)
    folder = partitions.shards(tmp_path / "in", frame.sort("prompt_id") if batch == "file" else frame)
    within = {"group_within": "file"} if batch == "file" else {}
    options = {"method": method, "group": "prompt_id", "scale": "batch", "batch_by": batch, **within}
    partitions.both(tmp_path, folder, exact=False, **options, **partitions.options_of(method))
