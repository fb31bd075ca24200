"""Several rewards: which groups are constant for the plan, and how the components go together inside groups."""

from __future__ import annotations

from pathlib import Path
from statistics import correlation
from typing import Any

import polars as pl
import pytest

from grpo_cli.stats.document import document
from grpo_cli.stats.inspection import Inspection
from tests.support.command import facts_of, ran
from tests.support.jobs import compute, inspected, selected, write

ROWS = "uid,a,b,length\n0,1.0,0.0,5\n0,0.0,1.0,1\n1,0.5,0.5,3\n1,0.5,0.5,3\n2,1.0,1.0,9\n2,0.0,1.0,2\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return table(tmp_path, ROWS)


def table(folder: Path, text: str) -> Path:
    """The rows as lines of JSON: a cell of CSV is no length."""
    return write(folder / "a.jsonl", pl.read_csv(text.encode()).to_dicts())


def look(path: Path, **options: Any) -> Inspection:
    return inspected(path, **{"reward": ["a", "b"], "group": ["uid"], **options})


def test_under_gdpo_a_group_is_constant_where_all_components_are(path: Path) -> None:
    assert look(path).facts.summary.zero_variance.groups == 2
    found = look(path, combine="normalize").facts
    assert found.summary.zero_variance.groups == 1
    assert found.summary.zero_variance.nearly == 0
    assert found.live_rows == 4


def test_a_component_with_weight_0_gives_no_gradient(path: Path) -> None:
    found = look(path, reward=["a", "b=0"], combine="normalize").facts
    alone = look(path, reward=["a"]).facts
    assert alone.components is None
    for name in ("zero_variance", "live_rows", "at_size"):
        assert document(found)[name] == document(alone)[name]
    path = table(path.parent, "uid,a,b\n0,1,0\n0,1,1\n")
    assert look(path, reward=["a", "b=0"], combine="normalize").facts.summary.zero_variance.groups == 1
    assert look(path, reward=["a=0", "b=0"], combine="normalize").facts.summary.zero_variance.groups == 0


@pytest.mark.parametrize(
    ("combine", "shares"),
    [("sum", [(0 + 4 / 6 + 0) / 3, 1 / 3]), ("normalize", [(4 / 6 + 5 / 6 + 0) / 3, 2 / 3])],
)
def test_other_sizes_are_of_what_the_plan_learns_from(combine: str, shares: list[float], tmp_path: Path) -> None:
    text = "uid,a,b\n0,1,0\n0,0,1\n0,1,0\n0,0,1\n1,1,1\n1,1,1\n1,0,1\n1,1,0\n2,0,0\n2,0,0\n2,0,0\n2,0,0\n"
    found = look(table(tmp_path, text), combine=combine).facts
    assert [at.size for at in found.at_size] == [2, 4]
    assert found.at_size[0].alive == pytest.approx(shares[0])
    assert found.at_size[1].alive == pytest.approx(shares[1])


def test_null_nan_and_infinite_components_are_the_same_to_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("uid,a,b\n0,1,\n0,1,nan\n0,1,inf\n")
    facts = look(path, combine="normalize", component_missing="zero", missing="exclude").facts
    assert facts.summary.zero_variance.share == 1


def test_two_combinations_are_modelled_as_two_rewards_are(tmp_path: Path) -> None:
    """Beyond the size of the groups a model says how often a constant group would vary."""
    text = "uid,a,b\n0,1,0\n0,0,1\n0,0,1\n0,1,0\n1,1,0\n1,1,0\n1,1,0\n1,1,0\n2,0,1\n2,0,1\n2,0,1\n2,1,0\n"
    path = table(tmp_path, text)
    assert look(path, combine="normalize").facts.at_size == look(path, reward=["a"]).facts.at_size


def test_compute_does_not_call_groups_nearly_constant_whose_components_vary(path: Path) -> None:
    done = compute(path, reward=["a", "b"], group=["uid"], combine="normalize", explain=True)
    assert done.facts["zero_variance"]["nearly"] == 0
    assert "nearly" not in " ".join(done.facts["warnings"])


def test_correlations_are_those_of_distances_from_the_group_mean(path: Path) -> None:
    inspection = look(path, combine="normalize")
    found = document(inspection.facts.components)
    a = [0.5, -0.5, 0.0, 0.0, 0.5, -0.5]
    b = [-0.5, 0.5, 0.0, 0.0, 0.0, 0.0]
    lengths = [2.0, -2.0, 0.0, 0.0, 3.5, -3.5]
    advantages = inspection.scored.rows[".advantage"].to_list()
    assert found["correlation"]["a"] == pytest.approx({"a": 1, "b": correlation(a, b)})
    assert found["correlation"]["b"] == pytest.approx({"a": correlation(a, b), "b": 1})
    assert found["length"] == pytest.approx({"a": correlation(a, lengths), "b": correlation(b, lengths)})
    assert found["advantage"]["a"] == pytest.approx(correlation(a, advantages))
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
    flags: str, weights: list[float], name: str, decides: str, tmp_path: Path
) -> None:
    path = table(tmp_path, "uid,a,b,length\nx,0,0,0\nx,1,1,1\nx,0,1,0\nx,1,0,1\ny,0,0,0\ny,1,1,1\ny,0,1,0\ny,1,0,1\n")
    line = f"inspect {path} -g uid {flags}"
    text = " ".join(ran(line).out.split())
    assert f"rewards {name} mean" in text
    assert decides in text
    assert "correlation within groups with length +1.00, advantage" in text
    assert "each column separately" not in text
    gdpo = " ".join(ran(f"{line} --combine normalize").out.split())
    assert f"rewards {name} (the sum; the plan normalises each column separately) mean" in gdpo
    assert [one["weight"] for one in facts_of(line)["rewards"].values()] == weights


def test_the_heads_of_a_matrix_of_many_rewards_are_numbers(tmp_path: Path) -> None:
    head = "uid,a_long_name_1,a_long_name_2,a_long_name_3,a_long_name_4,a_long_name_5"
    path = table(tmp_path, f"{head}\n0,0,0,0,0,0\n0,1,2,3,4,0\n1,2,4,1,3,0\n1,3,1,4,2,0\n2,4,3,2,1,0\n2,0,0,0,0,0\n")
    lines = ran(f"inspect {path} -g uid {head[3:].replace(',', ' -r ')}").out.splitlines()
    before, _, matrix = "\n".join(lines).partition("\ntogether")
    _, heads, first, *_ = matrix.splitlines()
    assert heads.split() == ["1", "2", "3", "4", "5"]
    assert first.split()[:3] == ["1", "a_long_n…e_1", "+1.00"]
    assert before
    assert max(len(line) for line in lines if not line.startswith("to read their texts:")) <= 80


@pytest.mark.parametrize(("combine", "share"), [("sum", 2 / 3), ("normalize", 1 / 3)])
def test_what_select_leaves_constant_is_judged_by_the_components_too(combine: str, share: float, path: Path) -> None:
    out = str(path.with_name("kept.jsonl"))
    found = selected(path, combine=combine, reward=["a", "b"], group=["uid"], where="size == 2", output=out)
    assert found["zero_variance_share"] == pytest.approx(share)
    assert found["kept_zero_variance_share"] == pytest.approx(share)
