"""The per cent that are shown before the first screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_cli.browse.model import Model
from grpo_cli.runs.inspect import Job
from tests.support.jobs import write
from tests.unit.browse.files import rollouts


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet", "rows.csv"])
def test_it_ends_with_the_work_and_never_goes_back(tmp_path: Path, name: str) -> None:
    said: list[tuple[str, int, int]] = []
    flat = [{"prompt_id": "a", "reward": reward} for reward in (1, 0)]
    path = write(tmp_path / name, flat if name == "rows.csv" else rollouts())
    Model.of(Job(inputs=[str(path)]), lambda *words: said.append(words))
    shares = [done for _, done, _ in said]
    assert shares == sorted(shares)
    assert (said[0], said[-1]) == (("finding files", 0, 100), ("grouping and computing", 70, 100))


def test_a_large_file_of_lines_is_counted_by_its_bytes(tmp_path: Path) -> None:
    rows = [{"prompt_id": f"p{at // 2}", "completion": "x" * 4_000, "reward": 1.0} for at in range(10_000)]
    path = write(tmp_path / "rows.jsonl", rows)
    said: list[tuple[str, int, int]] = []
    made = Model.of(Job(inputs=[str(path)]), lambda *words: said.append(words))
    assert made.size == 5_000
    assert len([text for text, *_ in said if text == "reading"]) > 3
