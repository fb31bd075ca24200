"""Several rewards: which groups are constant for the plan, and how the components go together inside groups."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from statistics import correlation, fmean
from typing import Any

import pytest

from grpo_cli.stats.document import document
from grpo_cli.stats.inspection import Inspection
from tests.support.command import adv
from tests.support.jobs import compute, inspected, selected, write

# The sum is 1 in each row of the first two groups; only in the second no component varies.
A = [1.0, 0.0, 0.5, 0.5, 1.0, 0.0]
B = [0.0, 1.0, 0.5, 0.5, 1.0, 1.0]
KEYS = [0, 0, 1, 1, 2, 2]
LENGTHS = [5, 1, 3, 3, 9, 2]


def look(path: Path, **options: Any) -> Inspection:
    return inspected(path, **{"reward": ["a", "b"], "group": ["uid"], **options})


def rows(folder: Path) -> Path:
    columns = zip(KEYS, A, B, LENGTHS, strict=True)
    return write(folder / "a.jsonl", [{"uid": u, "a": a, "b": b, "length": n} for u, a, b, n in columns])


def test_under_gdpo_a_group_is_constant_where_all_components_are(tmp_path: Path) -> None:
    path = rows(tmp_path)
    assert look(path).facts.zero_variance.groups == 2
    found = look(path, combine="normalize").facts
    assert found.zero_variance.groups == 1
    assert found.zero_variance.nearly == 0
    assert found.live_rows == 4


def test_a_component_with_weight_0_gives_no_gradient(tmp_path: Path) -> None:
    found = look(rows(tmp_path), reward=["a", "b=0"], combine="normalize").facts
    alone = look(rows(tmp_path), reward=["a"]).facts
    for name in ("zero_variance", "live_rows", "at_size"):
        assert getattr(found, name) == getattr(alone, name)
    path = write(tmp_path / "b.jsonl", [{"uid": 0, "a": 1, "b": b} for b in (0, 1)])
    assert look(path, reward=["a", "b=0"], combine="normalize").facts.zero_variance.groups == 1
    assert look(path, reward=["a=0", "b=0"], combine="normalize").facts.zero_variance.groups == 0


def share_that_varies(groups: list[list[Any]], size: int) -> float:
    """Over all choices of so many rows of each group: how often they are not all equal."""
    return fmean(fmean(len({*some}) > 1 for some in combinations(group, size)) for group in groups)


@pytest.mark.parametrize(("combine", "value"), [("sum", sum), ("normalize", tuple)])
def test_other_sizes_are_of_what_the_plan_learns_from(combine: str, value: Any, tmp_path: Path) -> None:
    groups = [[(1, 0), (0, 1), (1, 0), (0, 1)], [(1, 1), (1, 1), (0, 1), (1, 0)], [(0, 0)] * 4]
    rows = [{"uid": u, "a": a, "b": b} for u, group in enumerate(groups) for a, b in group]
    found = look(write(tmp_path / "a.jsonl", rows), combine=combine).facts
    values = [[value(row) for row in group] for group in groups]
    for at in found.at_size:
        if at.size <= 4:
            assert at.alive == pytest.approx(share_that_varies(values, at.size)), at


def test_null_nan_and_infinite_components_are_the_same_to_the_plan(tmp_path: Path) -> None:
    odd: list[Any] = [None, float("nan"), float("inf"), None]
    path = write(tmp_path / "a.jsonl", [{"uid": u, "a": 1, "b": b} for u in range(3) for b in odd])
    facts = look(path, combine="normalize", component_missing="zero", missing="exclude").facts
    assert facts.zero_variance.share == 1


def test_two_combinations_are_modelled_as_two_rewards_are(tmp_path: Path) -> None:
    """Beyond the size of the groups a model says how often a constant group would vary."""
    rewards = [[1, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, 1]]
    rows = [{"uid": u, "a": a, "b": 1 - a} for u, group in enumerate(rewards) for a in group]
    path = write(tmp_path / "a.jsonl", rows)
    assert look(path, combine="normalize").facts.at_size == look(path, reward=["a"]).facts.at_size


def test_compute_does_not_call_groups_nearly_constant_whose_components_vary(tmp_path: Path) -> None:
    done = compute(rows(tmp_path), reward=["a", "b"], group=["uid"], combine="normalize", dry_run=True)
    assert done.facts["zero_variance"]["nearly"] == 0
    assert not [line for line in done.facts["warnings"] if "nearly" in line]


def inside(values: list[float]) -> list[float]:
    """The distances from the mean of the group."""
    means = {key: fmean(v for k, v in zip(KEYS, values, strict=True) if k == key) for key in KEYS}
    return [value - means[key] for key, value in zip(KEYS, values, strict=True)]


def pearson(one: list[float], other: list[float]) -> float:
    return correlation(inside(one), inside(other))


def test_correlations_are_those_of_distances_from_the_group_mean(tmp_path: Path) -> None:
    inspection = look(rows(tmp_path), combine="normalize")
    found = document(inspection.facts.components)
    lengths = [float(n) for n in LENGTHS]
    assert found["correlation"]["a"] == {"a": pytest.approx(1), "b": pytest.approx(pearson(A, B))}
    assert found["correlation"]["b"]["a"] == found["correlation"]["a"]["b"]
    assert found["length"] == {"a": pytest.approx(pearson(A, lengths)), "b": pytest.approx(pearson(B, lengths))}
    advantages = inspection.scored.rows[".advantage"].to_list()
    assert found["advantage"]["a"] == pytest.approx(pearson(A, advantages))
    assert found["decides"] == max("ab", key=lambda name: abs(found["advantage"][name]))


@pytest.mark.parametrize(
    ("weights", "name", "decides"),
    [
        (["a", "b=0.1"], "a + 0.1 b", "a decides the advantage: within groups its correlation is +1.00 with a, "),
        (["a=-2", "b=-1"], "-2 a - b", "a decides the advantage: "),
        (["a", "b"], "a + b", "No single component decides the advantage: "),
    ],
)
def test_the_text_has_weights_and_says_which_component_decides(
    weights: list[str], name: str, decides: str, tmp_path: Path
) -> None:
    rows = [{"uid": u, "a": a, "b": b, "length": a} for u in "xy" for a, b in [(0, 0), (1, 1), (0, 1), (1, 0)]]
    path = write(tmp_path / "a.jsonl", rows)
    line = f"inspect {path} -g uid -r {' -r '.join(weights)}"
    text = " ".join(adv(line).out.split())
    assert f"rewards {name} mean" in text
    assert decides in text
    assert "correlation within groups with length +1.00, advantage" in text
    assert "each column separately" not in text
    gdpo = " ".join(adv(f"{line} --combine normalize").out.split())
    assert f"rewards {name} (the sum; the plan normalises each column separately) mean" in gdpo
    found = json.loads(adv(f"{line} --json").out)
    assert [one["weight"] for one in found["rewards"].values()] == [float((w + "=1").split("=")[1]) for w in weights]


def test_the_heads_of_a_matrix_of_many_rewards_are_numbers(tmp_path: Path) -> None:
    rows = [{"uid": k // 2, **{f"a_long_name_{n}": (k * n) % 5 for n in range(1, 6)}} for k in range(8)]
    path = write(tmp_path / "a.jsonl", rows)
    flags = "".join(f" -r a_long_name_{n}" for n in range(1, 6))
    lines = adv(f"inspect {path} -g uid{flags}").out.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("together"))
    assert lines[at + 1].split() == [*"12345"]
    assert lines[at + 2].split()[:3] == ["1", "a_long_n…e_1", "+1.00"]
    assert max(len(line) for line in lines if not line.startswith("to read their texts:")) <= 80


def test_a_single_reward_has_no_correlations(tmp_path: Path) -> None:
    assert look(rows(tmp_path), reward=["a"]).facts.components is None


def test_what_select_leaves_constant_is_judged_by_the_components_too(tmp_path: Path) -> None:
    path = rows(tmp_path)
    options = {"reward": ["a", "b"], "group": ["uid"], "where": "size == 2", "output": str(tmp_path / "kept.jsonl")}
    for combine, share in (("sum", 2 / 3), ("normalize", 1 / 3)):
        found = selected(path, combine=combine, force=True, **options)
        assert found["zero_variance_share"] == found["kept_zero_variance_share"] == pytest.approx(share)
