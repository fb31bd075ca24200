"""The numbers of summaries, against plain Python and numpy."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import fields, replace
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
from grpo_cli.stats.facts import BINS, BinCounts, Counts, bins_of, distribution, sizes, worst_and_best
from tests.support.jobs import job, look

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


@given(zeros=st.integers(0, 100), ones=st.integers(1, 100))
def test_the_mean_of_zeros_and_ones_is_exactly_their_share(zeros: int, ones: int) -> None:
    rewards = pl.Series([1.0] * ones + [0.0] * zeros)
    share = ones / (zeros + ones)
    assert distribution(rewards).mean == share
    assert Numbers.of(rewards).facts()["mean"] == share


def test_what_is_not_finite_is_left_out() -> None:
    found = distribution(pl.Series([1.0, None, float("nan"), float("inf")]))
    assert found.count == 1
    assert found.mean == 1.0
    assert distribution(pl.Series([None], dtype=pl.Float64)).histogram is None


def test_sizes_are_those_of_the_groups() -> None:
    odd = sizes(Counter([2, 9, 1, 4, 4]))
    assert odd.min == 1
    assert odd.median == 4
    assert odd.max == 9
    assert sizes(Counter([3, 1, 8, 4])).median == 3.5


def test_best_and_worst_are_one_and_zero_inside_that_range() -> None:
    assert worst_and_best(0.25, 1.0) == (0.0, 1.0)
    assert worst_and_best(-1.0, 1.0) == (-1.0, 1.0)
    assert worst_and_best(0.0, 5.0) == (0.0, 5.0)


def table(text: str) -> Path:
    path = Path("a.csv")
    path.write_text(f"prompt_id,reward\n{text}")
    return path


def test_constant_groups_are_split_by_what_they_are() -> None:
    rows = """\
best,1
best,1
worst,0
worst,0
worst,0
other,0.5
other,0.5
near,0.5
near,0.500000000001
alive,0
alive,1
lone,1
"""
    found = look(table(rows)).facts
    counts = {"groups": 3, "all_best": 1, "all_worst": 1, "other": 1, "nearly": 1, "rows": 7, "share": 3 / 5}
    assert counts.items() <= found["zero_variance"].items()
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
    options: dict[str, Any], skipped: set[str], kept: set[str]
) -> None:
    facts = look(table("constant,1\nconstant,1\nalive,0\nalive,1\nlone,1\n"), **options).facts
    assert {skip["reason"] for skip in facts["skipped"]} == skipped
    assert {skip["reason"] for skip in facts["kept"]} == kept
    assert (facts["status"]["scored"] < 5) == bool(skipped)


def test_a_small_group_may_begin_without_a_reward() -> None:
    facts = look(table("small,\nsmall,1\nalive,0\nalive,0.5\nalive,1\n"), missing="exclude", min_group_size=3).facts
    assert [(skip["reason"], skip["rows"]) for skip in facts["skipped"]] == [("singleton", 2), ("small-group", 2)]


def test_groups_that_are_nan_are_not_nearly_constant() -> None:
    frame = pl.DataFrame({"prompt_id": [1, 1, 2], "reward": [1.0, None, None]})
    nearly = grpo_cli.compute(frame, missing="propagate").groups["nearly"]
    assert not nearly.any()


def test_facts_that_are_not_shown_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    source = table("a,0\na,1\na,1\n")
    run(job(source, output="loud.csv"))
    monkeypatch.setattr("grpo_cli.stats.facts.summarize", lambda *_: pytest.fail("somebody summed up"))
    silent = run(replace(job(source, output="silent.csv"), silent=True))
    assert silent.facts is None
    assert Path("silent.csv").read_text() == Path("loud.csv").read_text()


def test_a_gate_applies_to_silent_runs_too() -> None:
    source = table("a,1\na,1\n")
    with pytest.raises(GateError):
        run(replace(job(source, fail_on="zero_variance_share > 0.5"), silent=True))
    assert [*Path().iterdir()] == [source]


def test_numbers_without_a_grid_have_bins_of_equal_width() -> None:
    values = np.random.default_rng(0).random(5_000)
    counts, edges = np.histogram(values, bins=20)
    found = distribution(pl.Series(values)).histogram
    assert isinstance(found, BinCounts)
    assert found.counts == counts.tolist()
    assert found.edges == pytest.approx(edges)


@pytest.mark.parametrize("by", ["peak", "pass-at-k"])
def test_a_weight_by_solve_rate_warns_of_means_outside_0_to_1(by: str) -> None:
    source = table("below,-1\nbelow,0\nabove,3\nabove,0\ninside,1\ninside,0\nedge,1\nedge,1\n")
    weight = f"weight.by={by}"
    (warning,) = look(source, set=[weight]).facts["warnings"]
    assert warning == (
        f"2 groups have mean rewards outside 0..1, counted as the solve rate 0 or 1 by {weight}: "
        "bring rewards (now -1 to 3) to 0..1 with --reward-shift and --reward-scale, "
        "or set the reward from which a row is solved with --set weight.solved=X"
    )
    assert not look(source, set=[weight], reward_shift=1.0, reward_scale=0.25).facts["warnings"]
    assert not look(source, set=[weight, "weight.solved=1"]).facts["warnings"]
    assert not look(source).facts["warnings"]
    with_gap = table("a,0\na,\na,0\na,1\nb,0\nb,1\nb,0\nb,1\n")
    warnings = look(with_gap, set=[weight], missing="propagate").facts["warnings"]
    assert "outside" not in " ".join(warnings)  # a mean of NaN is not


def test_the_advantages_are_those_of_the_rows_that_are_written() -> None:
    facts = look(table("a,0\na,1\nb,0.5\nb,\nb,\n"), missing="zero", singleton="drop").facts
    assert facts["dropped_rows"] == 3
    assert facts["advantage"]["zero"] == 0
    assert facts["advantage"]["null"] == 0


@pytest.mark.parametrize(("values", "own_bar"), [(101, True), (102, False)])
def test_hundredths_have_a_bar_each_and_one_value_more_has_bins(values: int, *, own_bar: bool) -> None:
    _, bins = bins_of(np.linspace(0.0, 1.0, values))
    assert ("value" in bins[0]) == own_bar
    assert (len(bins) == values) == own_bar


def test_counts_of_nothing_add_nothing() -> None:
    some = Counts(**{field.name: at for at, field in enumerate(fields(Counts), 1)})
    assert Counts() + some == some
    assert some + some == Counts(**{field.name: 2 * at for at, field in enumerate(fields(Counts), 1)})
