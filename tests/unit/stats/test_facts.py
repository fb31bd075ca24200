"""The numbers of summaries, against plain Python and numpy."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.engine.column_stats import Numbers
from grpo_cli.errors import GateError
from grpo_cli.runs.compute_files import run
from grpo_cli.stats.facts import BINS, BinCounts, distribution, sizes, worst_and_best
from tests.support.jobs import compute, job, look, write

FEW = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0]), min_size=1, max_size=40)
MANY = st.lists(st.integers(-1000, 1000).map(lambda i: i / 8), min_size=BINS + 1, max_size=80, unique=True)


@given(values=FEW | MANY)
def test_a_distribution_is_that_of_the_values(values: list[float]) -> None:
    found = distribution(pl.Series(values))
    assert found.count == len(values)
    assert found.mean == pytest.approx(statistics.fmean(values))
    assert found.std == (pytest.approx(statistics.stdev(values)) if len(values) > 1 else None)
    assert found.min == min(values)
    assert found.max == max(values)
    assert found.quartiles == pytest.approx(np.quantile(values, [0.25, 0.5, 0.75]).tolist())
    assert found.histogram is not None
    assert sum(found.histogram.counts) == len(values)


@given(size=st.integers(1, 200), data=st.data())
def test_the_mean_of_zeros_and_ones_is_exactly_their_share(size: int, data: st.DataObject) -> None:
    ones = data.draw(st.integers(0, size))
    rewards = pl.Series([1.0] * ones + [0.0] * (size - ones))
    assert distribution(rewards).mean == Numbers.of(rewards).facts()["mean"] == ones / size


@given(values=MANY)
def test_a_bin_counts_the_values_between_its_edges(values: list[float]) -> None:
    histogram = distribution(pl.Series(values)).histogram
    assert isinstance(histogram, BinCounts)
    counts, _ = np.histogram(values, bins=histogram.edges)
    # A value on an edge may fall on either side of it by rounding.
    assert np.abs(np.cumsum(histogram.counts) - np.cumsum(counts)).max() <= 1


def test_what_is_not_finite_is_left_out() -> None:
    found = distribution(pl.Series([1.0, None, float("nan"), float("inf")]))
    assert found.count == 1
    assert found.mean == 1.0
    assert distribution(pl.Series([None], dtype=pl.Float64)).histogram is None


@given(numbers=st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_sizes_are_those_of_the_groups(numbers: list[int]) -> None:
    found = sizes(Counter(numbers))
    assert found.min == min(numbers)
    assert found.median == statistics.median(numbers)
    assert found.max == max(numbers)


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [(0.0, 1.0, (0.0, 1.0)), (0.25, 0.5, (0.0, 1.0)), (-1.0, 1.0, (-1.0, 1.0)), (0.0, 5.0, (0.0, 5.0))],
)
def test_best_and_worst_are_one_and_zero_inside_that_range(
    low: float, high: float, wanted: tuple[float, float]
) -> None:
    assert worst_and_best(low, high) == wanted


def test_constant_groups_are_split_by_what_they_are(tmp_path: Any) -> None:
    groups: dict[str, list[float]] = {"best": [1, 1], "worst": [0] * 3, "other": [0.5] * 2, "near": [0.5, 0.5 + 1e-12]}
    groups |= {"alive": [0, 1], "lone": [1]}
    rows = [{"prompt_id": name, "reward": reward} for name, rewards in groups.items() for reward in rewards]
    found = look(write(tmp_path / "a.jsonl", rows)).facts
    seen = found["zero_variance"]
    assert seen["groups"] == 3
    assert seen["all_best"] == 1
    assert seen["all_worst"] == 1
    assert seen["other"] == 1
    assert seen["nearly"] == 1
    assert seen["rows"] == 7
    assert seen["share"] == 3 / 5
    assert found["singletons"] == 1


@pytest.mark.parametrize(
    ("options", "skipped", "kept"),
    [
        ({}, {"singleton"}, {"zero-variance"}),
        ({"zero_variance": "drop"}, {"singleton", "zero-variance"}, set()),
        ({"method": "reinforce"}, set(), {"zero-variance", "singleton"}),
        ({"min_group_size": 2}, {"small-group", "singleton"}, {"zero-variance"}),
    ],
)
def test_groups_that_a_plan_keeps_are_not_called_skipped(
    options: dict[str, Any], skipped: set[str], kept: set[str], tmp_path: Path
) -> None:
    rewards = {"constant": [1, 1], "alive": [0, 1], "lone": [1]}
    rows = [{"prompt_id": name, "reward": reward} for name, some in rewards.items() for reward in some]
    facts = compute(write(tmp_path / "a.jsonl", rows), dry_run=True, **options).facts
    assert {skip["reason"] for skip in facts["skipped"]} == skipped
    assert {skip["reason"] for skip in facts["kept"]} == kept
    assert (facts["status"]["scored"] < 5) == bool(skipped)


def test_groups_that_are_nan_are_not_nearly_constant() -> None:
    frame = pl.DataFrame({"prompt_id": [1, 1, 2], "reward": [1.0, None, None]})
    assert grpo_cli.compute(frame, missing="propagate").groups["nearly"].fill_null(value=False).to_list() == [False] * 2


def test_facts_that_are_not_shown_are_not_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in.jsonl", [{"prompt_id": "a", "reward": reward} for reward in (0, 1, 1)])
    loud = run(job(source, output=str(tmp_path / "loud.jsonl")))
    monkeypatch.setattr("grpo_cli.stats.facts.summarize", lambda *_: pytest.fail("somebody summed up"))
    silent = run(replace(job(source, output=str(tmp_path / "silent.jsonl")), silent=True))
    assert (tmp_path / "silent.jsonl").read_bytes() == (tmp_path / "loud.jsonl").read_bytes()
    assert silent.facts is None
    assert loud.facts is not None


def test_a_gate_applies_to_silent_runs_too(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [{"prompt_id": "a", "reward": 1}, {"prompt_id": "a", "reward": 1}])
    with pytest.raises(GateError):
        run(replace(job(source, gate="zero_variance_share > 0.5"), silent=True))
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_numbers_without_a_grid_have_bins_of_equal_width() -> None:
    values = np.random.default_rng(0).random(5_000)
    counts, edges = np.histogram(values, bins=20)
    found = distribution(pl.Series(values)).histogram
    assert isinstance(found, BinCounts)
    assert found.counts == counts.tolist()
    assert found.edges == pytest.approx(edges)


@pytest.mark.parametrize("by", ["peak", "pass-at-k"])
def test_a_weight_by_solve_rate_warns_of_means_outside_0_to_1(by: str, tmp_path: Path) -> None:
    rewards = {"below": [-1, 0], "above": [3, 0], "inside": [1, 0], "edge": [1, 1]}
    rows = [{"prompt_id": name, "reward": reward} for name, some in rewards.items() for reward in some]
    source = write(tmp_path / "a.jsonl", rows)
    (warning,) = look(source, set=[f"weight.by={by}"]).facts["warnings"]
    assert warning == (
        f"2 groups have mean rewards outside 0..1, counted as the solve rate 0 or 1 by weight.by={by}: "
        "bring rewards (now -1 to 3) to 0..1 with --reward-shift and --reward-scale, "
        "or set the reward from which a row is solved with --set weight.solved=X"
    )
    assert not look(source, set=[f"weight.by={by}"], reward_shift=1.0, reward_scale=0.25).facts["warnings"]
    assert not look(source, set=[f"weight.by={by}", "weight.solved=1"]).facts["warnings"]
    assert not look(source).facts["warnings"]


def test_a_mean_of_nan_is_not_outside_0_to_1(tmp_path: Path) -> None:
    rows = [{"prompt_id": k // 4, "reward": None if k == 1 else float(k % 2)} for k in range(16)]
    found = look(write(tmp_path / "a.jsonl", rows), set=["weight.by=peak"], missing="propagate")
    assert not [warning for warning in found.facts["warnings"] if "outside" in warning]


def test_the_advantages_are_those_of_the_rows_that_are_written(tmp_path: Path) -> None:
    rows = [("a", 0.0), ("a", 1.0), ("b", 0.5), ("b", None), ("b", None)]
    path = write(tmp_path / "in.jsonl", [{"prompt_id": name, "reward": reward} for name, reward in rows])
    facts = compute(path, missing="zero", singleton="drop").facts
    assert facts["dropped_rows"] == 3
    assert facts["advantage"]["zero"] == 0
    assert facts["advantage"]["null"] == 0
