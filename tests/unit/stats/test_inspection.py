"""What `inspect` says of rewards and groups, against plain Python."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, UnknownName, UsageError
from grpo_cli.formats.frame import FRAME, FrameReader
from grpo_cli.options.resolve import plan_of
from grpo_cli.read.tables import Binding, Table
from grpo_cli.runs.group_rows import show_group
from grpo_cli.runs.inspect import CHEAP, scored, with_duplicates
from grpo_cli.stats.difficulty import OTHER_SIZES, AtSize, count_ties, effective_rows, other_sizes, repeated_rewards
from grpo_cli.stats.document import document
from grpo_cli.stats.inspection import Inspection, View, with_facts
from grpo_cli.stats.trends import TrendLine
from grpo_cli.stats.verdicts import verdicts
from tests.support.command import adv
from tests.support.jobs import inspected, write

if TYPE_CHECKING:
    from pathlib import Path

BINARY = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=7)
FEW = st.lists(st.sampled_from([0.0, 0.25, 1.0, 2.0]), min_size=1, max_size=6)
USUAL = View()
MANY = st.lists(BINARY, min_size=1, max_size=12) | st.lists(FEW, min_size=1, max_size=10)


def looked(
    groups: list[list[Any]], view: View = USUAL, plan: Plan | None = None, **columns: list[Any] | pl.Series
) -> Inspection:
    """A look at groups of rewards, in their order."""
    keys = [key for key, rewards in enumerate(groups) for _ in rewards]
    values = [reward for rewards in groups for reward in rewards]
    more = [pl.Series(name, column, strict=False) for name, column in columns.items()]
    frame = pl.DataFrame([pl.Series("prompt_id", keys), pl.Series("reward", values, dtype=pl.Float64), *more])
    table = Table(FRAME, FrameReader(frame.columns, lambda names, rows: frame.select(names)[:rows]))
    return with_facts(scored([table], Binding(), plan or Plan(), view), view)


def seen(groups: list[list[Any]], **columns: list[Any] | pl.Series) -> dict[str, Any]:
    return document(looked(groups, USUAL, None, **columns).facts)


def trend_of(made: Inspection) -> Sequence[TrendLine]:
    assert made.facts.by is not None
    return made.facts.by.lines


def compared(groups: list[list[float]]) -> list[list[float]]:
    return [rewards for rewards in groups if len(rewards) > 1]


def test_nan_advantages_of_rows_without_a_reward_change_no_other_fact() -> None:
    plan = Plan.of({"rewards.missing": "propagate"})
    groups: list[list[Any]] = [[1.0, 0.0, None], [1.0, 1.0], [None, None]]
    found = looked(groups, plan=plan)
    left_out = looked(groups, plan=Plan.of({"rewards.missing": "exclude"}))
    names = ("zero_variance", "difficulty", "spread", "at_size", "reward", "listed", "singletons")
    for name in names:
        assert getattr(found.facts, name) == getattr(left_out.facts, name), name
    assert found.scored.rows[".advantage"].is_nan().to_list() == [True] * 3 + [False] * 2 + [True] * 2


def test_lengths_that_are_all_equal_are_no_fact_of_an_inspection() -> None:
    frame = pl.DataFrame({"prompt_id": [1, 1], "reward": [0.0, 1.0]})
    facts = grpo_cli.inspect(frame, whiten="token", length_column="equal").facts
    assert facts["length"] is None


# --- how hard the prompts are ------------------------------------------------------------------------------


@given(groups=st.lists(BINARY, min_size=1, max_size=12))
def test_the_difficulty_counts_groups_by_their_solve_rate(groups: list[list[float]]) -> None:
    found = seen(groups)["difficulty"]
    rates = [statistics.fmean(rewards) for rewards in compared(groups)]
    if not rates:
        assert found is None
        return
    assert found["never"] == rates.count(0)
    assert found["always"] == rates.count(1)
    assert found["groups"] == len(rates) == found["never"] + found["always"] + sum(found["between"]["counts"])
    assert found["mean"] == pytest.approx(statistics.fmean(rates))
    assert found["alive"] == sum(min(rewards) < max(rewards) for rewards in compared(groups))
    assert found["useful"] == sum(0.2 <= rate <= 0.8 for rate in rates)
    sizes = {*map(len, compared(groups))}
    if len(sizes) == 1:
        (n,) = sizes
        solved = Counter(sum(rewards) for rewards in compared(groups))
        rows = range(1, n)
        assert found["between"] == {"values": [k / n for k in rows], "counts": [solved[k] for k in rows]}


@pytest.mark.parametrize("sizes", [[8], [16], [32], [4, 8], [5, 7, 8], [3, 30], [64, 128]], ids=str)
def test_equally_many_groups_at_every_rate_have_bars_of_one_height(sizes: list[int]) -> None:
    """As many groups for each number of solved rows, of every size: no bar is higher than another, none is missing."""
    found = seen([[1.0] * k + [0.0] * (n - k) for n in sizes for k in range(n + 1) for _ in range(60)])["difficulty"]
    counts = found["between"]["counts"]
    ends = 60 * len(sizes)
    assert found["never"] == ends
    assert found["always"] == ends
    assert sum(counts) == 60 * sum(n - 1 for n in sizes)
    assert max(counts) - min(counts) <= 1
    assert len(counts) == (sizes[0] - 1 if len(sizes) == 1 else 10)


def test_rates_of_graded_rewards_have_a_bar_each_too() -> None:
    found = seen([[0, 0.5], [0.5, 1], [0.5, 0.5], [0, 0], [1, 1], [0, 1]])["difficulty"]
    assert found["between"] == {"values": [0.25, 0.5, 0.75], "counts": [1, 2, 1]}
    some = np.random.default_rng(1).random((40, 3)).tolist()
    rates = [statistics.fmean(rewards) for rewards in some]
    tenths = Counter(int(rate * 10) for rate in rates)
    edges = [k / 10 for k in range(11)]
    assert seen(some)["difficulty"]["between"] == {"edges": edges, "counts": [tenths[i] for i in range(10)]}


def test_outside_0_to_1_the_solve_rate_is_scaled_from_the_worst_to_the_best_reward() -> None:
    found = seen([[-1, 1, 1, 1], [-1, -1], [1, 1]])["difficulty"]
    assert found["worst"] == -1
    assert found["best"] == 1
    assert found["never"] == 1
    assert found["always"] == 1
    assert found["mean"] == pytest.approx(1.75 / 3)


def test_where_all_rewards_are_equal_there_is_no_solve_rate() -> None:
    assert seen([[3.0, 3.0], [3.0, 3.0]])["difficulty"] is None


@given(groups=MANY)
def test_the_spreads_within_and_between_add_up_to_that_of_all_rows(groups: list[list[float]]) -> None:
    found = seen(groups)["spread"]
    rows = [reward for rewards in groups for reward in rewards]
    within = sum(sum((r - statistics.fmean(g)) ** 2 for r in g) for g in groups) / len(rows)
    assert found["within"] == pytest.approx(math.sqrt(within), abs=1e-12)
    assert found["within"] ** 2 + found["between"] ** 2 == pytest.approx(statistics.pvariance(rows), abs=1e-12)


# --- other group sizes -------------------------------------------------------------------------------------


def alive_by_enumeration(rewards: list[float], size: int) -> float:
    drawn = list(itertools.combinations(rewards, size))
    return sum(len(set(some)) > 1 for some in drawn) / len(drawn)


def sizes_of(groups: list[list[float]], *sizes: int) -> dict[int, AtSize]:
    made = looked(groups)
    ties = count_ties(made.groups, made.rows)
    return {at.size: at for at in other_sizes(ties, sizes or OTHER_SIZES)}


@given(groups=MANY, size=st.integers(2, 6))
def test_a_smaller_size_is_judged_by_all_the_ways_to_draw_it(groups: list[list[float]], size: int) -> None:
    groups = [rewards for rewards in groups if len(rewards) >= size]
    if not groups:
        return
    found = sizes_of(groups, size)[size]
    assert found.found == "sample"
    wanted = statistics.fmean(alive_by_enumeration(rewards, size) for rewards in groups)
    assert found.alive == pytest.approx(wanted, abs=1e-12)


@given(
    groups=st.lists(st.lists(st.integers(0, 40).map(float), min_size=1, max_size=60), min_size=1, max_size=8).filter(
        lambda groups: any(len(rewards) > 1 for rewards in groups)
    )
)
def test_equal_rewards_of_a_group_are_counted_for_few_values_and_for_many(groups: list[list[float]]) -> None:
    made = looked(groups)
    wanted = Counter[tuple[int, int]]()
    for rewards in groups:
        times = Counter(rewards)
        if len(times) > 1:
            wanted.update((len(rewards), count) for count in times.values())
    found = repeated_rewards(made.groups, made.rows).rows()
    assert {(n, c): times for n, c, times in found} == wanted


def test_half_impossible_prompts_stay_without_a_gradient_at_every_size() -> None:
    """200 prompts: half are never solved, half are solved every second time; 4 rows of each."""
    solved = {0: 106, 1: 25, 2: 38, 3: 25, 4: 6}
    groups = [[1.0] * k + [0.0] * (4 - k) for k, times in solved.items() for _ in range(times)]
    at = sizes_of(groups)
    assert at[4].found == "sample"
    assert at[4].alive == pytest.approx(0.44)
    larger = at[8]
    assert larger.found == "model"
    assert larger.low is not None
    assert larger.high is not None
    assert larger.low < 0.5 < larger.high
    assert larger.alive == pytest.approx(0.5 * (1 - 2 * 0.5**8), abs=0.03)
    assert [*at] == [2, 4, 8]  # no promise beyond twice the size


@pytest.mark.parametrize(
    ("groups", "sizes"),
    [
        ([[0.0, 0.0, 1.0, 1.0]] * 29, {2: "sample", 4: "sample"}),  # too few groups for a model
        ([[0.0, 0.0, 1.0, 1.0]] * 30, {2: "sample", 4: "sample", 8: "model"}),
        ([[0.0, 0.5, 1.0, 0.5]] * 30, {2: "sample", 4: "sample"}),  # three rewards
        ([[0.0, 0.5], *[[0.0, 0.5, 1.0, 0.5]] * 30], {2: "sample", 4: "bound"}),
    ],
)
def test_other_sizes_say_what_these_groups_can_show(groups: list[list[float]], sizes: dict[int, str]) -> None:
    assert {size: at.found for size, at in sizes_of(groups).items()} == sizes


def test_a_bound_counts_smaller_groups_as_they_are() -> None:
    at = sizes_of([[0.0, 0.0], *[[0.0, 0.5, 1.0, 0.5]] * 3])
    assert document(at[4]) == {"size": 4, "alive": pytest.approx(3 / 4), "found": "bound", "low": None, "high": None}


@given(groups=st.lists(BINARY, min_size=1, max_size=40).filter(lambda groups: any(len(g) > 1 for g in groups)))
def test_larger_groups_never_vary_less_often(groups: list[list[float]]) -> None:
    shares = [at.alive for at in sizes_of(groups).values()]
    assert all(one <= other + 1e-9 for one, other in itertools.pairwise(shares))
    assert all(-1e-12 <= share <= 1 for share in shares)


@given(values=st.lists(st.floats(-5, 5), min_size=1, max_size=20))
def test_effective_rows_are_those_of_kish(values: list[float]) -> None:
    found = effective_rows(pl.Series(values))
    squares = sum(v * v for v in values)
    assert found == (pytest.approx(sum(map(abs, values)) ** 2 / squares) if squares > 1e-300 else pytest.approx(found))


def test_advantages_of_0_have_no_effective_rows() -> None:
    assert effective_rows(pl.Series([0.0, 0.0])) == 0.0
    assert effective_rows(pl.Series([None, math.nan], dtype=pl.Float64)) is None


# --- length and texts --------------------------------------------------------------------------------------

PAIRS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([0.0, 1.0]), st.none() | st.integers(1, 50)), min_size=1, max_size=30
)


@given(rows=PAIRS)
def test_the_correlation_with_the_length_is_pearsons(rows: list[tuple[int, float, int | None]]) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    groups = [[reward for key, reward, _ in rows if key == wanted] for wanted in dict.fromkeys(row[0] for row in rows)]
    lengths = [length for *_, length in rows]
    found = seen(groups, length=pl.Series(lengths, dtype=pl.Int64))["length"]
    known = [(key, reward, length) for key, reward, length in rows if length is not None]
    assert found["rows"] == len(known)
    assert found["mean"] == mean([n for *_, n in known])
    for end, wanted in (("best", 1.0), ("worst", 0.0)):
        assert found[end] == mean([n for _, reward, n in known if reward == wanted])
    assert found["correlation"] == correlation([r for _, r, _ in known], [float(n) for *_, n in known])
    means = {key: statistics.fmean(r for k, r, _ in rows if k == key) for key, *_ in rows}
    own = {key: statistics.fmean(n for k, _, n in known if k == key) for key, *_ in known}
    inside = correlation([r - means[k] for k, r, _ in known], [n - own[k] for k, _, n in known])
    assert found["within_groups"] == inside or abs(found["within_groups"] or 0) < 1e-6


def correlation(one: list[float], other: list[float]) -> Any:
    try:
        return pytest.approx(statistics.correlation(one, other), abs=1e-9)
    except statistics.StatisticsError:
        return None


def mean(values: list[Any]) -> Any:
    return pytest.approx(statistics.fmean(values)) if values else None


def test_where_all_rewards_are_equal_none_is_the_best_or_the_worst() -> None:
    made = looked([[3.0, 3.0]], View(by="part"), part=[1, 1], length=[1, 2])
    length, (line,) = made.facts.length, trend_of(made)
    assert length is not None
    assert length.mean == 1.5
    assert length.best is None
    assert length.worst is None
    assert line.zero_variance == 1
    assert line.all_best == 0
    assert line.all_worst == 0


def test_a_length_is_found_by_its_name_and_text_is_no_length() -> None:
    assert seen([[0, 1]], response_length=[3, 4])["length"]["column"] == "response_length"
    assert seen([[0, 1]], length=["short", "long"])["length"] is None


@given(texts=st.lists(st.tuples(st.integers(0, 2), st.none() | st.sampled_from("abc")), min_size=1, max_size=20))
def test_duplicates_are_texts_that_an_earlier_row_of_the_group_has(texts: list[tuple[int, str | None]]) -> None:
    texts = sorted(texts, key=lambda one: one[0])
    groups: dict[int, list[str]] = defaultdict(list)
    for key, text in texts:
        groups[key] += [text] if text else []
    rewards = [[0.0] * len(list(some)) for _, some in itertools.groupby(texts, key=lambda one: one[0])]
    made = looked(rewards, View(duplicates=True), completion=pl.Series([text for _, text in texts], dtype=pl.String))
    repeated = [len(some) - len(set(some)) for some in groups.values()]
    known = sum(map(len, groups.values()))
    assert document(made.facts.duplicates) == {
        "column": "completion",
        "rows": sum(repeated),
        "share": sum(repeated) / known if known else None,
    }


# --- trends ------------------------------------------------------------------------------------------------


GAPPY = st.lists(st.lists(st.sampled_from([0.0, 1.0, 2.0, None]), min_size=1, max_size=5), min_size=1, max_size=8)


@given(groups=MANY | GAPPY, steps=st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_a_trend_has_the_facts_of_each_part(groups: list[list[float]], steps: list[int]) -> None:
    column = [steps[key] for key, rewards in enumerate(groups) for _ in rewards]
    lines = trend_of(looked(groups, View(by="part"), part=column, length=[*range(len(column))]))
    ends = [reward for rewards in groups for reward in rewards if reward is not None] or [0.0]
    worst, best = (0.0, 1.0) if min(ends) >= 0 and max(ends) <= 1 else (min(ends), max(ends))
    assert [line.value for line in lines] == sorted(set(column))
    for line in lines:
        mine = [rewards for key, rewards in enumerate(groups) if steps[key] == line.value]
        known = [[reward for reward in rewards if reward is not None] for rewards in mine]
        rows = [reward for rewards in known for reward in rewards]
        two = compared(known)
        size = sum(map(len, mine))
        assert line.groups == len(mine)
        assert line.rows == size
        assert line.unscorable == size - len(rows)
        assert line.mean == mean(rows)
        assert line.length == mean([at for at, step in enumerate(column) if step == line.value])
        assert line.std == (pytest.approx(statistics.stdev(rows)) if len(rows) > 1 else None)
        assert line.zero_variance == mean([len(set(g)) == 1 for g in two])
        assert line.group_std == (
            pytest.approx(statistics.fmean(map(statistics.stdev, two)), abs=1e-12) if two else None
        )
        for name, end in (("all_best", best), ("all_worst", worst)):
            assert getattr(line, name) == mean([worst < best and set(g) == {end} for g in two])


def test_values_of_a_trend_are_ordered_as_numbers_when_they_are_numbers() -> None:
    made = looked([[0, 1], [1, 1], [0, 0]], View(by="part"), part=["10", "10", "9", "9", "2", "2"])
    assert [line.value for line in trend_of(made)] == ["2", "9", "10"]


def test_a_group_in_several_parts_counts_where_it_begins_and_it_is_said() -> None:
    made = looked([[0, 1, 0], [1, 1]], View(by="source"), source=["a", "b", "c", "b", "b"])
    assert [(line.groups, line.rows) for line in trend_of(made)] == [(1, 1), (1, 3), (0, 1)]
    assert any("1 group has rows in several values of source" in warning for warning in made.facts.warnings)


def test_files_can_be_compared(tmp_path: Path) -> None:
    for name, reward in (("one", 0.0), ("two", 1.0)):
        write(tmp_path / f"{name}.jsonl", [{"prompt_id": name, "reward": reward}] * 2)
    made = inspected(tmp_path, by="file")
    assert [line.mean for line in trend_of(made)] == [0.0, 1.0]


# --- what never stops --------------------------------------------------------------------------------------


def test_rows_without_a_reward_are_counted_and_left_out() -> None:
    found = looked([[1.0, None, math.nan], [0.0, math.inf]]).facts
    assert found.rows == 5
    assert found.unscorable == 3
    assert found.reward.count == 2
    assert found.singletons == 2
    assert any("3 rows (60%) have no finite reward. compute stops at them" in line for line in verdicts(found))
    known = replace(found, declared_unscorable=3)
    assert any("compute leaves them out, as the schema says" in line for line in verdicts(known))


def test_groups_of_one_row_are_inspected_and_another_key_is_asked_for() -> None:
    found = looked([[1.0], [0.0], [1.0]]).facts
    assert found.singletons == 3
    assert found.zero_variance.share is None
    assert found.at_size == []
    assert "name the prompt's id with --group" in verdicts(found)[0]


def test_no_reward_at_all_is_no_reason_to_stop() -> None:
    found = seen([[None, None]])
    assert found["reward"]["count"] == 0
    assert json.loads(json.dumps(found, default=str, allow_nan=False))["difficulty"] is None


def test_every_reward_column_is_shown_by_itself() -> None:
    frame = pl.DataFrame({"prompt_id": [0, 0, 1, 1], "a": [1.0, 1.0, 0.0, 1.0], "b": [None, 2.0, 2.0, 2.0]})
    made = grpo_cli.inspect(frame, reward=["a", "b"]).inspection
    facts = made.facts.rewards
    assert facts["a"].mean == 0.75
    assert facts["a"].zero_variance_share == 0.5
    assert facts["a"].unscorable == 0
    assert facts["b"].count == 3
    assert facts["b"].zero_variance_share == 1.0
    assert facts["b"].unscorable == 1
    assert any(line.startswith("b does not vary within 100% of the groups") for line in verdicts(made.facts))


# --- lists and single groups -------------------------------------------------------------------------------


@pytest.mark.parametrize(("groups", "gaps"), [(6, 0), (7, 1)])
def test_dots_stand_between_the_ends_only_where_a_group_is_left_out(groups: int, gaps: int, tmp_path: Path) -> None:
    rows = [{"prompt_id": k // 2, "reward": k % 2 * k} for k in range(2 * groups)]
    write(tmp_path / "a.jsonl", rows)
    assert adv("inspect a.jsonl", cwd=tmp_path).out.splitlines().count("...") == gaps


def test_groups_are_listed_from_both_ends() -> None:
    made = looked([[0, 1], [1, 1], [0, 0.5], [1]], View(top=1))
    assert [one.key for one in made.facts.listed.most] == ["0"]
    assert [one.key for one in made.facts.listed.least] == ["1"]
    by_mean = looked([[0, 1], [1, 1], [0, 0.5]], View(top=5, sort="mean")).facts.listed
    assert [one.key for one in by_mean.most] == ["1", "0", "2"]
    assert by_mean.least == []


def test_of_many_groups_without_a_gradient_the_longest_never_solved_and_one_always_solved_are_listed() -> None:
    rows = [
        {"prompt_id": name, "reward": reward, "length": length}
        for name, reward, length in [("short", 0, 5), ("always", 1, 9), ("long", 0, 50), ("too", 1, 8), ("middle", 0, 20), *((f"mixed {k}", 0, 7) for k in range(3))]
        for reward in (reward, 1 if "mixed" in name else reward)
    ]  # fmt: skip
    listed = grpo_cli.inspect(pl.DataFrame(rows), top=3).facts["listed"]
    assert [group["key"] for group in listed["most"]] == ["mixed 0", "mixed 1", "mixed 2"]
    assert [group["key"] for group in listed["least"]] == ["long", "middle", "always"]


def test_an_unknown_fact_is_named() -> None:
    with pytest.raises(UnknownName, match="no fact of a group named 'spred'"):
        looked([[0, 1]], View(sort="spred"))


ROWS = [
    {"prompt_id": f"p{k}", "step": s, "reward": float(i == s), "completion": f"text {k} {s} {i}"}
    for s in range(2) for k in range(3) for i in range(4)
]  # fmt: skip


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "csv", "jsonl.gz", "arrow"])
def test_the_rows_of_a_group_are_shown_with_their_text(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a.{suffix}", ROWS)
    if suffix == "jsonl.gz":  # with blank lines
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"\n", b"\n\n")))
    made = inspected(path, group=["prompt_id,step"])
    facts = show_group(made, "p1,1")
    assert facts.key == "p1, 1"
    assert [row.text for row in facts.rows] == [f"text 1 1 {i}" for i in range(4)]
    assert [row.reward for row in facts.rows] == [0.0, 1.0, 0.0, 0.0]
    assert [row.row for row in facts.rows] == [17, 18, 19, 20]
    assert facts.rows[1].advantage == pytest.approx(1.5, abs=1e-5)


def keyed(folder: Path, *keys: object) -> Inspection:
    """Two rows with each key."""
    return inspected(write(folder / "a.jsonl", [{"prompt_id": key, "reward": i} for key in keys for i in range(2)]))


def test_a_key_may_be_a_prefix_that_only_one_group_has(tmp_path: Path) -> None:
    made = keyed(tmp_path, "apple", "apricot")
    assert show_group(made, "apr").key == "apricot"
    with pytest.raises(DataError, match="is in 2 keys: #1 apple, #2 apricot"):
        show_group(made, "ap")
    with pytest.raises(DataError, match=r"no group has the key 'aple'.*the first of 2 is 'apple'"):
        show_group(made, "aple")


@pytest.mark.parametrize(
    ("within", "words", "group"),
    [("step", "prompt_id within step (found by name)", ["step", "prompt_id"]), ("file", "prompt_id within file", ["file", "prompt_id"])],
)  # fmt: skip
def test_a_key_that_is_unique_within_something_is_shown_with_it(
    within: str, words: str, group: list[str], tmp_path: Path
) -> None:
    """Otherwise the same label would stand for several groups, in lists and in tables for other programs."""
    rows = [{"step": at // 4, "prompt_id": at // 2 % 2, "reward": at % 2} for at in range(8)]
    write(tmp_path / "a.jsonl", rows)
    write(tmp_path / "b.jsonl", rows)
    line = f"inspect {'a.jsonl b.jsonl --group prompt_id' if within == 'file' else 'a.jsonl'} --group-within {within}"
    found = json.loads(adv(f"{line} --json", cwd=tmp_path).out)
    assert found["group_key"] == group
    assert f"by {words}" in adv(line, cwd=tmp_path).out
    listed = [group["key"] for end in ("most", "least") for group in found["listed"][end]]
    assert len({*listed}) == len(listed)
    table = pl.read_csv(adv(f"{line} --format csv", cwd=tmp_path).out.encode())
    assert table.columns[:2] == group
    assert not table.select(group).is_duplicated().any()


def test_a_key_that_is_called_file_is_no_name_of_a_file(tmp_path: Path) -> None:
    rows = [{"file": key, "reward": reward} for key in "ab" for reward in (0, 1)]
    for name in ("1.jsonl", "2.jsonl"):
        write(tmp_path / name, rows)
    line = "inspect 1.jsonl 2.jsonl --group file --group-within file"
    assert json.loads(adv(f"{line} --json", cwd=tmp_path).out)["group_key"] == ["@file", "file"]
    table = pl.read_csv(adv(f"{line} --format csv", cwd=tmp_path).out.encode())
    assert table.select("@file", "file").rows() == [
        ("1.jsonl", "a"),
        ("1.jsonl", "b"),
        ("2.jsonl", "a"),
        ("2.jsonl", "b"),
    ]


ASKED = "<|im_start|>user\nWhat is {}\n  in words?<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("given", "number"),
    [("#2", 2), ("880 * 510", 2), ("What is 880 * 510 in words?", 2), ("What is…7 * 7", 3), ("what is 7", 3), ("12", 4), ("What is 3 *…words?", 1)],
)  # fmt: skip
def test_a_group_is_found_by_its_number_its_label_or_a_part_of_its_key(tmp_path: Path, given: str, number: int) -> None:
    made = keyed(tmp_path, ASKED.format("3 * 4"), ASKED.format("880 * 510"), ASKED.format("7 * 7"), "12")
    assert show_group(made, given).number == number


def test_a_number_with_a_sign_is_no_integer_key(tmp_path: Path) -> None:
    made = keyed(tmp_path, 3, 2, 1)
    assert [show_group(made, key).key for key in ("3", "#3", "1", "#1")] == ["3", "1", "1", "3"]
    with pytest.raises(DataError, match=r"there is no group #4.*#1 to #3"):
        show_group(made, "#4")


def test_several_hits_are_listed_with_the_text_that_differs(tmp_path: Path) -> None:
    made = keyed(tmp_path, *(ASKED.format(f"{n} * 51") for n in range(9)))
    with pytest.raises(DataError, match=r"in 9 keys: #1 What is 0 \* 51 in words\?, .* and 4 more.*--show '#1'"):
        show_group(made, "51")


def test_of_a_chat_the_last_message_is_shown(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    path = write(tmp_path / "a.jsonl", [{"prompt_id": 1, "reward": i, "completion": chat} for i in range(2)])
    assert show_group(inspected(path), "1").rows[0].text == "hello"


def test_texts_are_compared_where_that_is_cheap_or_asked_for(tmp_path: Path) -> None:
    assert with_duplicates(View(), CHEAP).duplicates
    assert not with_duplicates(View(), CHEAP + 1).duplicates
    assert with_duplicates(View(duplicates=True), CHEAP + 1).duplicates
    path = write(tmp_path / "a.jsonl", ROWS)
    assert inspected(path, group=["prompt_id,step"], duplicates=False).facts.duplicates is None
    found = inspected(path, group=["prompt_id,step"]).facts.duplicates
    assert found is not None
    assert found.rows == 0


def test_another_method_changes_the_advantages_and_not_the_facts() -> None:
    groups = [[0, 1, 1], [0, 0, 1]]
    plain = looked(groups)
    other = looked(groups, plan=plan_of({"method": "rloo", "reward_clip": "0:0.5"}))
    one = document(plain.facts)
    two = document(other.facts)
    assert {name for name in one if one[name] != two[name]} <= {"method", "effective_rows"}
    assert other.scored.frame[".advantage"].to_list() != plain.scored.frame[".advantage"].to_list()


def test_top_cannot_be_negative(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--top cannot be -1"):
        inspected(write(tmp_path / "a.jsonl", ROWS), top=-1, group=["prompt_id,step"])
