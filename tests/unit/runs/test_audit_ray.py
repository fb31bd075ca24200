"""An audit whose files are read by tasks, all of which are done by this process, against one by one process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from grpo_cli.errors import GrpoError
from grpo_cli.read.tables import Binding
from grpo_cli.runs import audit, audit_ray
from tests.support import partitions
from tests.support.jobs import compute

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_facts_are_those_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions.without_ray(monkeypatch)
    folder = partitions.shards(tmp_path / "in", partitions.rows().drop("length"))
    compute(folder, group="prompt_id", group_within="input", scale="batch", batch_by="input", output=f"{tmp_path}/out/")
    for path in (folder, tmp_path / "out"):
        job = audit.Job(inputs=[str(path)], binding=Binding(group=("prompt_id",), rewards=("reward",)))
        found = []
        for run in (audit.run, audit_ray.run):
            try:
                found.append(run(job))
            except GrpoError as error:
                found.append({"error": str(error)})
        assert found[0] == found[1]
        assert ("error" in found[0]) == (path == folder)
    assert found[0]["match"]["mismatched_rows"] == 0


def test_a_name_that_only_late_rows_have_is_known_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions.without_ray(monkeypatch)
    lines = [f'{{"prompt_id": {at // 4 % 500}, "reward": {at % 3}, "advantage": {at % 3 - 1}}}' for at in range(4000)]
    lines += [line.replace("{", '{"step": 2, ', 1) for line in lines]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    job = audit.Job(inputs=[str(tmp_path / "rows.jsonl")])
    assert audit.run(job) == audit_ray.run(job)


def test_records_without_rollouts_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions.without_ray(monkeypatch)
    lines = [{"id": at, "rewards": [at % 2, 1], "advantages": [at % 2 - 0.5, 0.5]} for at in range(20)]
    lines.append({"id": 99, "rewards": [], "advantages": []})
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    job = audit.Job(inputs=[str(tmp_path / "rows.jsonl")], column="advantages")
    found = [run(job) for run in (audit.run, audit_ray.run)]
    assert found[0] == found[1]
    assert "no rollouts" in " ".join(found[1]["warnings"])
