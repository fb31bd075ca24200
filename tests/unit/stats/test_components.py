"""Several rewards: which groups are constant for the plan, and how the components go together inside groups."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from statistics import correlation
from typing import Any

import polars as pl
import pytest

from grpo_cli.stats.document import document
from grpo_cli.stats.inspection import Inspection
from tests.support.command import facts_of, ran
from tests.support.jobs import compute, inspected, selected

# The sum is 1 in each row of the first two groups; only in the second no component varies.
ROWS = """\
{"uid": 0, "a": 1.0, "b": 0.0, "length": 5}
{"uid": 0, "a": 0.0, "b": 1.0, "length": 1}
{"uid": 1, "a": 0.5, "b": 0.5, "length": 3}
{"uid": 1, "a": 0.5, "b": 0.5, "length": 3}
{"uid": 2, "a": 1.0, "b": 1.0, "length": 9}
{"uid": 2, "a": 0.0, "b": 1.0, "length": 2}
"""
# The same columns without the means of their groups.
A = [0.5, -0.5, 0.0, 0.0, 0.5, -0.5]
B = [-0.5, 0.5, 0.0, 0.0, 0.0, 0.0]
LENGTHS = [2.0, -2.0, 0.0, 0.0, 3.5, -3.5]


@pytest.fixture(autouse=True)
def _rows(here: None) -> None:
    Path("a.jsonl").write_text(ROWS)


def look(path: str = "a.jsonl", **options: Any) -> Inspection:
    return inspected(path, **{"reward": ["a", "b"], "group": ["uid"], **options})


def test_under_gdpo_a_group_is_constant_where_all_components_are() -> None:
    assert look().facts.zero_variance.groups == 2
    found = look(combine="normalize").facts
    assert found.zero_variance.groups == 1
    assert found.zero_variance.nearly == 0
    assert found.live_rows == 4


def test_a_component_with_weight_0_gives_no_gradient() -> None:
    found = look(reward=["a", "b=0"], combine="normalize").facts
    alone = look(reward=["a"]).facts
    assert alone.components is None
    for name in ("zero_variance", "live_rows", "at_size"):
        assert getattr(found, name) == getattr(alone, name)
    Path("b.jsonl").write_text('{"uid": 0, "a": 1, "b": 0}\n{"uid": 0, "a": 1, "b": 1}\n')
    assert look("b.jsonl", reward=["a", "b=0"], combine="normalize").facts.zero_variance.groups == 1
    assert look("b.jsonl", reward=["a=0", "b=0"], combine="normalize").facts.zero_variance.groups == 0


def share_that_varies(groups: list[list[Any]], size: int) -> float:
    """Over all choices of so many rows of each group: how often they are not all equal."""
    varies = [[len(set(some)) > 1 for some in combinations(group, size)] for group in groups]
    return fmean(map(fmean, varies))


@pytest.mark.parametrize(
    ("combine", "values"),
    [
        ("sum", [[1, 1, 1, 1], [2, 2, 1, 1], [0, 0, 0, 0]]),
        ("normalize", [["10", "01", "10", "01"], ["11", "11", "01", "10"], ["00", "00", "00", "00"]]),
    ],
)
def test_other_sizes_are_of_what_the_plan_learns_from(combine: str, values: list[Any]) -> None:
    rows = {"uid": [0] * 4 + [1] * 4 + [2] * 4, "a": [*map(int, "101011010000")], "b": [*map(int, "010111100000")]}
    pl.DataFrame(rows).write_ndjson("a.jsonl")
    sizes = {at.size: at.alive for at in look(combine=combine).facts.at_size}
    assert sizes[2] == pytest.approx(share_that_varies(values, 2))
    assert sizes[4] == pytest.approx(share_that_varies(values, 4))


def test_null_nan_and_infinite_components_are_the_same_to_the_plan() -> None:
    group = '{"uid": 0, "a": 1, "b": null}\n{"uid": 0, "a": 1, "b": NaN}\n{"uid": 0, "a": 1, "b": Infinity}\n'
    Path("a.jsonl").write_text(group)
    facts = look(combine="normalize", component_missing="zero", missing="exclude").facts
    assert facts.zero_variance.share == 1


def test_two_combinations_are_modelled_as_two_rewards_are() -> None:
    """Beyond the size of the groups a model says how often a constant group would vary."""
    a = [1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 1]
    pl.DataFrame({"uid": [0] * 4 + [1] * 4 + [2] * 4, "a": a, "b": [1 - one for one in a]}).write_ndjson("a.jsonl")
    assert look(combine="normalize").facts.at_size == look(reward=["a"]).facts.at_size


def test_compute_does_not_call_groups_nearly_constant_whose_components_vary() -> None:
    done = compute("a.jsonl", reward=["a", "b"], group=["uid"], combine="normalize", dry_run=True)
    assert done.facts["zero_variance"]["nearly"] == 0
    assert "nearly" not in " ".join(done.facts["warnings"])


def test_correlations_are_those_of_distances_from_the_group_mean() -> None:
    inspection = look(combine="normalize")
    found = document(inspection.facts.components)
    assert found["correlation"]["a"] == {"a": pytest.approx(1), "b": pytest.approx(correlation(A, B))}
    assert found["correlation"]["b"]["a"] == found["correlation"]["a"]["b"]
    assert found["length"] == {"a": pytest.approx(correlation(A, LENGTHS)), "b": pytest.approx(correlation(B, LENGTHS))}
    one, other = inspection.scored.rows[".advantage"].to_list()[:2]  # the means of groups are 0
    assert one == -other
    advantages = inspection.scored.rows[".advantage"].to_list()  # each group has the mean 0
    assert found["advantage"]["a"] == pytest.approx(correlation(A, advantages))
    assert found["decides"] == "a"


@pytest.mark.parametrize(
    ("flags", "weights", "name", "decides"),
    [
        ("-r a -r b=0.1", [1, 0.1], "a + 0.1 b", "a decides the advantage: within groups its correlation is +1.00 with a, "),
        ("-r a=-2 -r b=-1", [-2, -1], "-2 a - b", "a decides the advantage: "),
        ("-r a -r b", [1, 1], "a + b", "No single component decides the advantage: "),
    ],
)  # fmt: skip
def test_the_text_has_weights_and_says_which_component_decides(
    flags: str, weights: list[float], name: str, decides: str
) -> None:
    pl.DataFrame(
        {"uid": [*"xxxxyyyy"], "a": [0, 1, 0, 1] * 2, "b": [0, 1, 1, 0] * 2, "length": [0, 1, 0, 1] * 2}
    ).write_ndjson("a.jsonl")
    line = f"inspect a.jsonl -g uid {flags}"
    text = " ".join(ran(line).out.split())
    assert f"rewards {name} mean" in text
    assert decides in text
    assert "correlation within groups with length +1.00, advantage" in text
    assert "each column separately" not in text
    gdpo = " ".join(ran(f"{line} --combine normalize").out.split())
    assert f"rewards {name} (the sum; the plan normalises each column separately) mean" in gdpo
    assert [one["weight"] for one in facts_of(line)["rewards"].values()] == weights


def test_the_heads_of_a_matrix_of_many_rewards_are_numbers() -> None:
    names = [f"a_long_name_{n}" for n in range(1, 6)]
    rewards = {name: [(k * n) % 5 for k in range(8)] for n, name in enumerate(names, 1)}
    pl.DataFrame({"uid": [0, 0, 1, 1, 2, 2, 3, 3], **rewards}).write_ndjson("a.jsonl")
    text = ran(f"inspect a.jsonl -g uid -r {' -r '.join(names)}").out
    matrix = text[text.index("\ntogether") :].splitlines()
    assert matrix[2].split() == ["1", "2", "3", "4", "5"]
    assert matrix[3].split()[:3] == ["1", "a_long_n…e_1", "+1.00"]
    assert max(len(line) for line in text.splitlines() if not line.startswith("to read their texts:")) <= 80


@pytest.mark.parametrize(("combine", "share"), [("sum", 2 / 3), ("normalize", 1 / 3)])
def test_what_select_leaves_constant_is_judged_by_the_components_too(combine: str, share: float) -> None:
    options = {"reward": ["a", "b"], "group": ["uid"], "where": "size == 2", "output": "kept.jsonl"}
    found = selected("a.jsonl", combine=combine, **options)
    assert found["zero_variance_share"] == found["kept_zero_variance_share"] == pytest.approx(share)
