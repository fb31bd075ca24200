"""`inspect --against --cluster`: prompts of a template or a family count together in intervals and p values."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import polars as pl
import pytest

import grpo_cli
from grpo_cli.errors import DataError, UsageError
from grpo_cli.stats.intervals import OF_CHANGE, OF_RATE, beyond, detectable, estimate, p_value_of_clusters
from tests.support.command import adv, facts_of, ran
from tests.support.drawn import is_nightly

# --- numbers ------------------------------------------------------------------------------------------------------


def test_clusters_of_one_prompt_each_change_no_interval() -> None:
    change = np.random.default_rng(1).uniform(-1, 1, 30)
    each = np.arange(30)
    assert estimate(change, OF_CHANGE, clusters=each) == estimate(change, OF_CHANGE)
    assert detectable(change, each) == detectable(change)


def test_clusters_of_equal_size_are_a_sample_of_their_sums() -> None:
    """Student's interval of 9 sums of 4 prompts, two more of which are imagined, has 8 or 9 degrees of freedom, by weight 8.9."""
    change = np.random.default_rng(2).uniform(-0.2, 0.9, 36)
    found = estimate(change, OF_CHANGE, clusters=np.repeat(np.arange(9), 4))
    sums = [*change.reshape(9, 4).sum(axis=1), 1.0, -1.0]
    sizes = [4.0] * 9 + [1.0, 1.0]
    middle = sum(sums) / sum(sizes)
    without = [(sum(sums) - one) / (sum(sizes) - size) for one, size in zip(sums, sizes, strict=True)]
    error = math.sqrt(10 / 11 * sum((one - middle) ** 2 for one in without))
    assert sum(sizes) ** 2 / sum(size**2 for size in sizes) == pytest.approx(9.89, abs=0.01)
    assert found.mean == pytest.approx(fmean(change))
    assert found.low == pytest.approx(middle - 2.306 * error, abs=1e-3)
    assert found.high == pytest.approx(middle + 2.306 * error, abs=1e-3)


def test_prompts_that_all_change_alike_within_their_cluster_are_worth_one_prompt_a_cluster() -> None:
    """Copies of 12 prompts say no more than the 12: the interval of 240 is about theirs, without the imagined ones."""
    once = np.random.default_rng(3).normal(0.1, 0.2, 12)
    found = estimate(np.repeat(once, 20), OF_CHANGE, clusters=np.repeat(np.arange(12), 20))
    half = 2.201 * stdev(once) / math.sqrt(12)
    assert found.low == pytest.approx(fmean(once) - half, abs=0.01)
    assert found.high == pytest.approx(fmean(once) + half, abs=0.01)


@pytest.mark.parametrize(
    ("freedom", "at", "chance"),
    [
        (1, 1.0, 0.5),
        (1, 12.706, 0.05),
        (2, 4.303, 0.05),
        (5, 2.015, 0.1),
        (7, 3.499, 0.01),
        (30, 2.042, 0.05),
        (5, 0.0, 1.0),
    ],
)
def test_students_tail_is_that_of_a_printed_table(freedom: int, at: float, chance: float) -> None:
    assert beyond(at, freedom) == pytest.approx(chance, abs=2e-4)


@pytest.mark.parametrize(
    "sizes", [[1] * 7, [40] * 7, [1000, *[1] * 40]], ids=["7 prompts", "7 of 40", "nearly all in one"]
)
def test_too_few_clusters_have_no_interval_no_p_value_and_no_power(sizes: list[int]) -> None:
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    change = np.random.default_rng(4).uniform(0, 1, len(clusters))
    for imagined in (OF_CHANGE, OF_RATE):
        found = estimate(change, imagined, clusters=clusters)
        assert (found.low, found.high) == (None, None)
    assert p_value_of_clusters(change, clusters) is None
    assert detectable(change, clusters) is None


@pytest.mark.parametrize("seed", range(40))
def test_a_p_value_is_below_5_percent_where_the_interval_has_no_0(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = 1 + random.geometric(0.1, 8 + seed)
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    change = random.normal(0, 0.1, len(clusters)) + random.normal(0.08, 0.15, len(sizes))[clusters]
    found: Any = estimate(change, OF_CHANGE, clusters=clusters)
    p: Any = p_value_of_clusters(change, clusters)
    assert (p < 0.05) == (not found.low <= 0 <= found.high)


# --- simulation ---------------------------------------------------------------------------------------------------

TIMES = 4000 if is_nightly() else 600
PROMPTS = 400
ROLLOUTS = 8
SLACK = 2 * (0.05 * 0.95 / TIMES) ** 0.5  # two standard errors of a share that is 95 %
# What the prompts of a cluster share: the law of their change, and its mean.
SHARED: dict[str, Any] = {
    "normal": (lambda random, size: random.normal(0.05, 0.12, size).clip(-0.31, 0.41), 0.05),
    "uniform": (lambda random, size: random.uniform(-0.3, 0.3, size), 0.0),
    "none": (lambda _, size: np.full(size, 0.05), 0.05),
}


def sizes_of(clusters: int, kind: str) -> Any:
    """400 prompts in clusters of one size, or as words in a text: the k-th has 1/k of the first."""
    shares = 1 / np.arange(1, clusters + 1) if kind == "unequal" else np.ones(clusters)
    ends = np.round(np.cumsum(shares) / shares.sum() * PROMPTS).astype(int)
    return np.maximum(np.diff(ends, prepend=0), 1)


def drawn(random: Any, clusters: int, kind: str, shared: Any) -> tuple[Any, Any]:
    """The change of each prompt, from 8 rollouts in both runs, and its cluster."""
    of_prompt = np.repeat(np.arange(clusters), sizes_of(clusters, kind))
    before = random.uniform(0.31, 0.59, len(of_prompt))
    now = before + shared(random, clusters)[of_prompt]
    return (random.binomial(ROLLOUTS, now) - random.binomial(ROLLOUTS, before)) / ROLLOUTS, of_prompt


@pytest.mark.parametrize("clusters", [8, 20, 80])
@pytest.mark.parametrize("kind", ["equal", "unequal"])
@pytest.mark.parametrize("law", SHARED)
def test_the_interval_of_a_shared_change_holds_the_truth(law: str, kind: str, clusters: int) -> None:
    """In 94 to 99 % of the runs. Taken as independent, prompts that do share a change hold it in 25 to 90 %."""
    shared, truth = SHARED[law]
    random = np.random.default_rng(clusters)
    held = alone = alarms = 0
    for _ in range(TIMES):
        change, of_prompt = drawn(random, clusters, kind, shared)
        together: Any = estimate(change, OF_CHANGE, clusters=of_prompt)
        each: Any = estimate(change, OF_CHANGE)
        held += together.low <= truth <= together.high
        alone += each.low <= truth <= each.high
        p: Any = p_value_of_clusters(change - truth, of_prompt)
        alarms += p < 0.05
    assert held / TIMES >= 0.94 - SLACK
    assert alarms / TIMES <= 0.06 + SLACK
    if law == "none":
        assert alone / TIMES >= 0.94 - SLACK
    else:
        assert held / TIMES <= 0.99
        assert alone / TIMES <= 0.92


# --- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def runs() -> Path:
    """120 prompts of 12 families: each family's solve rate changes as a whole, in half of them by +0.5, in half by -0.3."""
    random = np.random.default_rng(5)
    prompt = np.repeat(np.arange(120), 8)
    family = prompt % 12
    for name, rate in (("base", np.full(960, 0.4)), ("now", np.where(family < 6, 0.9, 0.1))):
        reward = (random.random(960) < rate).astype(float)
        frame = pl.DataFrame({"prompt_id": prompt, "family": [f"f{each}" for each in family], "reward": reward})
        frame.write_ndjson(f"{name}.jsonl")
    return Path()


LINE = "inspect now.jsonl --against base=base.jsonl"


@pytest.mark.usefixtures("runs")
def test_everything_that_is_said_of_two_runs_counts_families() -> None:
    alone = facts_of(f"{LINE} --pass-at 4")
    assert "cluster" not in alone
    assert "clusters" not in alone["runs"][0]
    found = facts_of(f"{LINE} --pass-at 4 --cluster family")
    one, before = found["differences"][0], alone["differences"][0]
    assert (found["cluster"], one["clusters"], [run["clusters"] for run in found["runs"]]) == ("family", 12, [12, 12])
    assert before["p"] < 0.001
    assert before["change"]["low"] > 0
    assert one["p"] == one["p_holm"] > 0.2
    assert one["change"]["mean"] == before["change"]["mean"]
    assert one["change"]["low"] < -0.1
    assert one["detectable"] > 2 * before["detectable"]
    assert one["prompts_for_2_points"] == math.ceil(120 * (one["detectable"] / 0.02) ** 2)
    assert found["verdict"] == (
        f"now.jsonl shows no clear difference from base on 120 prompts: {100 * one['change']['mean']:+.1f} points (95% interval over "
        f"12 values of family {100 * one['change']['low']:.1f} to {100 * one['change']['high']:.1f}, p = {one['p']:.2f}), but its prompts change by more than chance: "
        "their changes in both directions are larger than those of two samples of one policy."
    )
    for name in ("solve_rate", "passes"):
        widths = []
        for run in (found["runs"][1], alone["runs"][1]):
            of = run[name] if name == "solve_rate" else run[name][0]["pass_all"]
            widths.append(of["high"] - of["low"])
        assert widths[0] > 1.5 * widths[1]
    for prompt in (*one["gained"], *one["lost"]):
        assert prompt["cluster"] == f"f{int(prompt['key']) % 12}"
    text = ran(f"{LINE} --cluster family").out
    assert "clusters       12 values of family; prompts with the same count together\n" in text
    first = one["changed"][0]
    line = next(line.split() for line in text.splitlines() if line.startswith(f"#{first['number']} "))
    assert (line[1], line[-1]) == (first["key"], first["cluster"])
    lines = csv.DictReader(ran(f"{LINE} --cluster family --format csv").out.splitlines())
    assert [line["clusters"] for line in lines] == ["12", "12"]


@pytest.mark.usefixtures("runs")
def test_a_gate_on_the_change_sees_the_wider_interval() -> None:
    assert adv(f"{LINE} --fail-on 'change_low > 0'").status == 3
    assert adv(f"{LINE} --fail-on 'change_low > 0' --cluster family").status == 0


def test_fewer_than_8_families_cannot_tell(runs: Path) -> None:
    for name in ("base", "now"):
        frame = pl.read_ndjson(runs / f"{name}.jsonl")
        frame.with_columns(family="f" + (pl.col("prompt_id") % 7).cast(pl.String)).write_ndjson(runs / f"{name}.jsonl")
    found = facts_of(f"{LINE} --cluster family --pass-at 2")
    one = found["differences"][0]
    change = f"{100 * one['change']['mean']:+.1f} points"
    assert (one["change"]["low"], one["p"], one["p_holm"], one["detectable"]) == (None, None, None, None)
    assert (found["runs"][0]["solve_rate"]["high"], found["runs"][0]["passes"][0]["pass_at"]["low"]) == (None, None)
    cannot = "7 values of family cannot tell whether that is chance"
    assert found["verdict"] == f"now.jsonl solves more of these 120 prompts than base: {change}, and {cannot}."
    says = "7 values of family do not say how far prompts of others would vary: intervals and p values begin with 8"
    assert found["warnings"] == [says]
    assert "no clear difference" not in ran(f"{LINE} --cluster family").out


def test_python_and_the_page_count_families_too(runs: Path) -> None:
    now, base = (pl.read_ndjson(runs / f"{name}.jsonl") for name in ("now", "base"))
    look = grpo_cli.inspect(now, against={"base": base}, cluster="family")
    of_command = facts_of(f"{LINE} --cluster family")
    assert look.runs["differences"][0]["change"] == of_command["differences"][0]["change"]
    with pytest.raises(UsageError, match=r"cluster is for the comparison of runs; give earlier ones with against="):
        grpo_cli.inspect(now, cluster="family")
    pytest.importorskip("altair")
    ran("report now.jsonl --against base=base.jsonl --cluster family -o page.html")
    page = Path("page.html").read_text()
    assert of_command["verdict"] in page
    assert "Prompts with the same family count together." in page


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("inspect now.jsonl --cluster family", "--cluster is for the comparison of runs; add --against INPUT"),
        ("report now.jsonl --cluster family", "--cluster is for the comparison of runs; add --against INPUT"),
        (f"{LINE} --cluster famly", "no column 'famly'; did you mean 'family'?"),
        (f"{LINE} --cluster reward", "prompts have rows of several values of reward (0, 1, 2 and 11"),
    ],
)
def test_a_cluster_that_says_nothing_is_refused(line: str, says: str) -> None:
    done = adv(line)
    assert done.status in {1, 2}
    assert says in done.err


def test_rows_without_a_reward_may_lack_the_family_and_prompts_without_one_count_together() -> None:
    rows = [
        {"prompt_id": at, "family": f"f{at // 2}" if at < 30 else None, "reward": reward}
        for at in range(34)
        for reward in (0, 1, 1)
    ]
    now = pl.DataFrame([*rows, {"prompt_id": 0, "family": None, "reward": None}])
    base = pl.DataFrame(rows).with_columns(family=pl.col("family").replace("f0", "other"))
    found = grpo_cli.inspect(now, against={"base": base}, cluster="family").runs
    assert found["differences"][0]["clusters"] == 16
    assert found["warnings"][-3:] == [
        "base: 4 of the prompts have no family; these count together",
        "now: 4 of the prompts have no family; these count together",
        "2 of the prompts have another family in base: that of now counts",
    ]
    with pytest.raises(DataError, match=r"base: 1 prompt has rows of several values of family \(0\); cluster takes"):
        grpo_cli.inspect(now, against={"base": now.fill_null(0)}, cluster="family")


def test_a_column_that_is_the_prompts_own_is_said_to_be_no_family() -> None:
    frame = pl.DataFrame({"prompt_id": [*range(10)] * 2, "reward": [0.0, 1.0] * 10})
    found = grpo_cli.inspect(frame, against={"base": frame}, cluster="prompt_id").runs
    assert found["warnings"] == ["no two prompts have the same value of prompt_id: none count together"]
