"""Several rewards: which groups are constant for the plan, and how the components go together inside groups."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest

from grpo_cli.engine.plan import Plan
from grpo_cli.options.resolve import binding_fields, plan_of
from grpo_cli.read.tables import Binding
from grpo_cli.runs import inspect
from tests.support.jobs import compute, write

if TYPE_CHECKING:
    from pathlib import Path

    from grpo_cli.stats.inspection import Inspection

# The sum is 1 in each row of the first two groups; only in the second no component varies.
A = [1.0, 0.0, 0.5, 0.5, 1.0, 0.0]
B = [0.0, 1.0, 0.5, 0.5, 1.0, 1.0]
KEYS = [0, 0, 1, 1, 2, 2]
LENGTHS = [5, 1, 3, 3, 9, 2]


def look(path: Path, **options: Any) -> Inspection:
    given = {"reward": ["a", "b"], "group": ["uid"], **options}
    return inspect.run(inspect.Job(inputs=[str(path)], plan=plan_of(given), binding=Binding(**binding_fields(given))))


def rows(folder: Path) -> Path:
    columns = zip(KEYS, A, B, LENGTHS, strict=True)
    return write(folder / "a.jsonl", [{"uid": u, "a": a, "b": b, "length": n} for u, a, b, n in columns])


def test_under_gdpo_a_group_is_constant_where_all_components_are(tmp_path: Path) -> None:
    path = rows(tmp_path)
    assert look(path).facts["zero_variance"]["groups"] == 2
    found = look(path, combine="normalize").facts
    assert found["zero_variance"]["groups"] == 1 and found["zero_variance"]["nearly"] == 0
    assert found["live_rows"] == 4


def test_compute_does_not_call_groups_nearly_constant_whose_components_vary(tmp_path: Path) -> None:
    done = compute(rows(tmp_path), reward=["a", "b"], group=["uid"], combine="normalize", dry_run=True)
    assert done.facts["zero_variance"]["nearly"] == 0
    assert not [line for line in done.facts["warnings"] if "nearly" in line]


def pearson(one: list[float], other: list[float]) -> float:
    x = [v - fmean(w for k, w in zip(KEYS, one, strict=True) if k == key) for key, v in zip(KEYS, one, strict=True)]
    y = [v - fmean(w for k, w in zip(KEYS, other, strict=True) if k == key) for key, v in zip(KEYS, other, strict=True)]
    product = sum(a * b for a, b in zip(x, y, strict=True))
    return float(product / (sum(a * a for a in x) * sum(b * b for b in y)) ** 0.5)


def test_correlations_are_those_of_distances_from_the_group_mean(tmp_path: Path) -> None:
    inspection = look(rows(tmp_path), combine="normalize")
    found = inspection.facts["components"]
    lengths = [float(n) for n in LENGTHS]
    assert found["correlation"]["a"] == {"a": pytest.approx(1), "b": pytest.approx(pearson(A, B))}
    assert found["correlation"]["b"]["a"] == found["correlation"]["a"]["b"]
    assert found["length"] == {"a": pytest.approx(pearson(A, lengths)), "b": pytest.approx(pearson(B, lengths))}
    advantages = inspection.scored.rows[".advantage"].to_list()
    assert found["advantage"]["a"] == pytest.approx(pearson(A, advantages))


def test_a_single_reward_has_nothing_to_go_with(tmp_path: Path) -> None:
    assert look(rows(tmp_path), reward=["a"]).facts["components"] is None
    assert Plan().rewards.combine == "sum"
