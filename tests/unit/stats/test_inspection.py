"""What `inspect` says of rewards and groups, against plain Python."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, UnknownName
from grpo_cli.formats.frame import FRAME, FrameReader
from grpo_cli.read.tables import Binding, Table
from grpo_cli.runs.group_rows import show_group
from grpo_cli.runs.inspect import CHEAP, scored, with_duplicates
from grpo_cli.stats.difficulty import OTHER_SIZES, AtSize, count_ties, effective_rows, other_sizes
from grpo_cli.stats.document import document
from grpo_cli.stats.inspection import Inspection, View, with_facts
from grpo_cli.stats.intervals import OF_RATE, estimate
from grpo_cli.stats.trends import TrendLine, over_steps
from grpo_cli.stats.verdicts import verdicts
from tests.support.command import facts_of, ran
from tests.support.jobs import inspected, write

if TYPE_CHECKING:
    from pathlib import Path

BINARY = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=7)
FEW = st.lists(st.sampled_from([0.0, 0.25, 1.0, 2.0]), min_size=1, max_size=6)
USUAL = View()
MANY = st.lists(BINARY, min_size=1, max_size=12) | st.lists(FEW, min_size=1, max_size=10)


def looked(
    groups: list[list[Any]] | str, view: View = USUAL, plan: Plan | None = None, **columns: list[Any] | pl.Series
) -> Inspection:
    """A look at groups of rewards, in their order; as text "0 1, 1 -" they are two groups of two, the last row without one."""
    if isinstance(groups, str):
        texts = groups.strip(", ").split(", ")
        groups = [[None if one == "-" else float(one) for one in text.split()] for text in texts]
    rows = pl.DataFrame({"reward": pl.Series(groups, dtype=pl.List(pl.Float64))})
    frame = rows.with_row_index("prompt_id").explode("reward")
    for name, column in columns.items():
        frame = frame.with_columns(pl.Series(name, column, strict=False))
    table = Table(FRAME, FrameReader(frame.columns, lambda names, rows: frame.select(names)[:rows]))
    return with_facts(scored([table], Binding(), plan or Plan(), view), view)


def seen(groups: list[list[Any]] | str, **columns: list[Any] | pl.Series) -> dict[str, Any]:
    return document(looked(groups, USUAL, None, **columns).facts)


def trend_of(made: Inspection) -> Sequence[TrendLine]:
    assert made.facts.by is not None
    return made.facts.by.lines


def test_nan_advantages_of_rows_without_a_reward_change_no_other_fact() -> None:
    found = looked("1 0 -, 1 1, - -", plan=Plan.of({"rewards.missing": "propagate"}))
    left_out = looked("1 0 -, 1 1, - -", plan=Plan.of({"rewards.missing": "exclude"}))
    for name in ("zero_variance", "difficulty", "spread", "at_size", "reward", "listed", "singletons"):
        assert document(found.facts)[name] == document(left_out.facts)[name], name
    assert found.scored.rows[".advantage"].is_nan().to_list() == [True, True, True, False, False, True, True]


def test_lengths_that_are_all_equal_are_no_fact_of_an_inspection() -> None:
    frame = pl.DataFrame({"prompt_id": [1, 1], "reward": [0.0, 1.0]})
    facts = grpo_cli.inspect(frame, whiten="token", length_column="equal").facts
    assert facts["length"] is None


# --- how hard the prompts are ------------------------------------------------------------------------------


def test_the_difficulty_counts_groups_by_their_solve_rate() -> None:
    found = seen("0 0 0 0, 1 1 1 1, 0 1 1 1, 0 0 0 1, 1 0 0 0, 1, 0 0 1 1, 1 1 1 1")["difficulty"]
    assert {"groups": 7, "never": 1, "always": 2, "alive": 4, "useful": 4}.items() <= found.items()
    assert found["mean"] == pytest.approx((0 + 1 + 0.75 + 0.25 + 0.25 + 0.5 + 1) / 7)
    assert found["between"] == {"values": [0.25, 0.5, 0.75], "counts": [2, 1, 1]}
    assert seen("0 0 0 0 0 1, 1 1 1 1 0 1, 0 0 0 0 1")["difficulty"]["useful"] == 1
    assert seen("1, 0, 1")["difficulty"] is None


@pytest.mark.parametrize("sizes", [[8], [32], [4, 8], [5, 7, 8], [3, 30], [64, 128]], ids=str)
def test_equally_many_groups_at_every_rate_have_bars_of_one_height(sizes: list[int]) -> None:
    """As many groups for each number of solved rows, of every size: no bar is higher than another, none is missing."""
    groups = list[list[float]]()
    for n in sizes:
        groups += [[1.0] * k + [0.0] * (n - k) for k in range(n + 1)]
    found = seen(groups * 60)["difficulty"]
    counts = found["between"]["counts"]
    assert found["never"] == 60 * len(sizes)
    assert found["always"] == 60 * len(sizes)
    assert sum(counts) == 60 * sum(n - 1 for n in sizes)
    assert max(counts) - min(counts) <= 1
    assert len(counts) == (sizes[0] - 1 if len(sizes) == 1 else 10)


def test_rates_of_graded_rewards_have_a_bar_each_too_and_many_are_counted_in_tenths() -> None:
    found = seen("0 0.5, 0.5 1, 0.5 0.5, 0 0, 1 1, 0 1")["difficulty"]
    assert found["between"] == {"values": [0.25, 0.5, 0.75], "counts": [1, 2, 1]}
    many = seen("0.111 0.123, 0.117 0.201, 0.353 0.349, 0.987 0.979, 0.7071 0.7717")["difficulty"]
    assert many["between"]["edges"] == pytest.approx(np.arange(11) / 10)
    assert many["between"]["counts"] == [0, 2, 0, 1, 0, 0, 0, 1, 0, 1]


def test_outside_0_to_1_the_solve_rate_is_scaled_from_the_worst_to_the_best_reward() -> None:
    found = seen("-1 1 1 1, -1 -1, 1 1")["difficulty"]
    assert {"worst": -1, "best": 1, "never": 1, "always": 1}.items() <= found.items()
    assert found["mean"] == pytest.approx(1.75 / 3)


@given(groups=MANY)
def test_the_spreads_within_and_between_add_up_to_that_of_all_rows(groups: list[list[float]]) -> None:
    found = seen(groups)["spread"]
    rows = [*itertools.chain(*groups)]
    squares = sum(len(rewards) * statistics.pvariance(rewards) for rewards in groups)
    assert found["within"] == pytest.approx(math.sqrt(squares / len(rows)), abs=1e-12)
    assert found["within"] ** 2 + found["between"] ** 2 == pytest.approx(statistics.pvariance(rows), abs=1e-12)


# --- other group sizes -------------------------------------------------------------------------------------


def sizes_of(groups: list[list[float]] | str, *sizes: int) -> dict[int, AtSize]:
    made = looked(groups)
    found = other_sizes(count_ties(made.groups, made.rows, sizes or OTHER_SIZES))
    return {at.size: at for at in found}


@given(groups=MANY, size=st.integers(2, 6))
def test_a_smaller_size_is_judged_by_all_the_ways_to_draw_it(groups: list[list[float]], size: int) -> None:
    groups = [rewards for rewards in groups if len(rewards) >= size]
    if groups:
        shares = []
        for rewards in groups:
            drawn = [len({*some}) > 1 for some in itertools.combinations(rewards, size)]
            shares.append(statistics.fmean(drawn))
        found = sizes_of(groups, size)[size]
        assert found.found == "sample"
        assert found.alive == pytest.approx(statistics.fmean(shares), abs=1e-12)


@pytest.mark.parametrize(
    ("groups", "sizes"),
    [
        ("0 0 1 1, " * 29, {2: "sample", 4: "sample"}),  # too few groups for a model
        ("0 0 1 1, " * 30, {2: "sample", 4: "sample", 8: "model"}),
        ("0 0.5 1 0.5, " * 30, {2: "sample", 4: "sample"}),  # three rewards
        ("0 0.5, " + "0 0.5 1 0.5, " * 30, {2: "sample", 4: "bound"}),
    ],
)
def test_other_sizes_say_what_these_groups_can_show(groups: str, sizes: dict[int, str]) -> None:
    assert {size: at.found for size, at in sizes_of(groups).items()} == sizes


def test_a_bound_counts_smaller_groups_as_they_are() -> None:
    at = sizes_of("0 0, " + "0 0.5 1 0.5, " * 3)
    assert at[4].alive == pytest.approx(3 / 4)
    assert at[4].found == "bound"
    assert at[4].high is None


@given(groups=MANY, size=st.integers(2, 6))
def test_the_interval_at_a_size_is_that_of_the_shares_of_the_groups(groups: list[list[float]], size: int) -> None:
    groups = [rewards for rewards in groups if len(rewards) >= size]
    if groups:
        drawn = [[len({*some}) > 1 for some in itertools.combinations(rewards, size)] for rewards in groups]
        of_groups = estimate(np.array([statistics.fmean(ways) for ways in drawn]), OF_RATE)
        found = sizes_of(groups, size)[size]
        assert found.low == (None if of_groups.low is None else pytest.approx(of_groups.low, abs=1e-12))
        assert found.high == (None if of_groups.high is None else pytest.approx(of_groups.high, abs=1e-12))


@given(groups=MANY)
def test_neither_a_share_nor_an_end_of_its_interval_falls_from_one_size_to_the_next(groups: list[list[float]]) -> None:
    for made in (groups, [[min(reward, 1.0) // 1 for reward in rewards] for rewards in groups * 10]):
        lines = [*sizes_of(made).values()]
        for before, after in itertools.pairwise(lines):
            assert before.alive <= after.alive + 1e-12
            if before.low is not None and after.low is not None:
                assert before.low <= after.low
            if before.high is not None and after.high is not None:
                assert before.high <= after.high
        for at in lines:
            assert at.low is None or at.low <= at.alive + 1e-12
            assert at.high is None or at.high >= at.alive - 1e-12


def test_one_group_of_40_that_varies_has_an_interval_at_its_own_size_and_no_lower_one_at_a_larger() -> None:
    at: Any = sizes_of("0 0 0 1 0 0 0 0, " + "0 0 0 0 0 0 0 0, " * 39)
    assert at[8].alive == 1 / 40
    assert at[8].low == at[16].low == 0.0
    assert at[8].high == pytest.approx(0.1464, abs=1e-3)
    assert 0.15 < at[16].high < 0.25
    most: Any = sizes_of("0 0 0 1 0 0 0 0, " * 35 + "0 0 0 0 0 0 0 0, " * 5)
    assert 0.7 < most[8].low <= most[16].low


def test_the_interval_at_a_larger_size_is_no_wider_than_the_groups_leave_it() -> None:
    """400 groups of 4 at a solve rate of 0.3: with 8 rows 94 % have a gradient, two standard errors are 2.4 points."""
    groups = "0 0 0 0, " * 96 + "0 0 0 1, " * 165 + "0 0 1 1, " * 106 + "0 1 1 1, " * 30 + "1 1 1 1, " * 3
    at: Any = sizes_of(groups)
    assert at[8].alive == pytest.approx(1 - 0.3**8 - 0.7**8, abs=0.01)
    assert 0.05 < at[8].high - at[8].low < 0.09


def test_a_rollout_of_several_rows_counts_once_in_the_effective_rows() -> None:
    turns = pl.DataFrame({
        "prompt_id": ["a"] * 8,
        "trajectory_id": [1, 1, 1, 1, 2, 3, 3, 4],
        "reward": [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
    })  # fmt: skip
    once = turns.unique("trajectory_id", maintain_order=True).drop("trajectory_id")
    found = grpo_cli.inspect(turns, method="dr-grpo", rollout="trajectory_id", rollout_reward="last")
    assert found.facts["effective_rows"] == grpo_cli.inspect(once, method="dr-grpo").facts["effective_rows"]
    assert found.facts["effective_rows"] == pytest.approx((0.75 + 3 * 0.25) ** 2 / (0.75**2 + 3 * 0.25**2))


def test_effective_rows_are_those_of_kish() -> None:
    assert effective_rows(pl.Series([1.0, -2.0, 3.0, 0.0])) == pytest.approx((1 + 2 + 3) ** 2 / (1 + 4 + 9))
    assert effective_rows(pl.Series([0.0, 0.0])) == 0.0
    assert effective_rows(pl.Series([None, math.nan], dtype=pl.Float64)) is None


# --- length and texts --------------------------------------------------------------------------------------


def test_the_correlation_with_the_length_is_pearsons() -> None:
    """The length of the third row is not known, but its reward counts in the mean of its group."""
    found = seen("0 1 1 0, 1 0, 1", length=[10, 12, None, 14, 30, 20, None])["length"]
    assert found["rows"] == 5
    assert found["mean"] == pytest.approx((10 + 12 + 14 + 30 + 20) / 5)
    assert found["best"] == pytest.approx((12 + 30) / 2)
    assert found["worst"] == pytest.approx((10 + 14 + 20) / 3)
    assert found["correlation"] == pytest.approx(statistics.correlation([0, 1, 0, 1, 0], [10, 12, 14, 30, 20]))
    inside = statistics.correlation([-0.5, 0.5, -0.5, 0.5, -0.5], [-2, 0, 2, 5, -5])
    assert found["within_groups"] == pytest.approx(inside)
    constant = seen("1 1, 1 1", length=[1, 2, 3, 4])["length"]
    assert constant["correlation"] is None
    assert constant["within_groups"] is None


def test_where_all_rewards_are_equal_there_is_no_solve_rate_and_none_is_the_best_or_the_worst() -> None:
    made = looked("3 3", View(by="part"), part=[1, 1], length=[1, 2])
    assert made.facts.difficulty is None
    length = made.facts.length
    assert length is not None
    assert length.mean == 1.5
    assert length.best is None
    assert length.worst is None
    (line,) = trend_of(made)
    assert line.zero_variance == 1
    assert line.all_best == 0
    assert line.all_worst == 0


def test_a_length_is_found_by_its_name_and_text_is_no_length() -> None:
    assert seen("0 1", response_length=[3, 4])["length"]["column"] == "response_length"
    assert seen("0 1", length=["short", "long"])["length"] is None


def test_duplicates_are_texts_that_an_earlier_row_of_the_group_has() -> None:
    groups = "0 0 0 0 0, 0 0 0, 0 0"
    texts = ["a", "b", "a", "a", None, "a", "", "b", None, None]
    found = document(looked(groups, View(duplicates=True), completion=texts).facts.duplicates)
    assert found == {"column": "completion", "rows": 2, "share": 2 / 6}
    none = looked("0 0", View(duplicates=True), completion=pl.Series([None, None], dtype=pl.String))
    assert document(none.facts.duplicates) == {"column": "completion", "rows": 0, "share": None}


# --- trends ------------------------------------------------------------------------------------------------


def test_a_trend_has_the_facts_of_each_part() -> None:
    groups = "0 1 -, 2 2, 0 0 1, - -, 1, 0 0 0"
    part = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 0, 0, 0]
    lines = trend_of(looked(groups, View(by="part"), part=part, length=[*range(14)]))
    names, *wanted = """\
value groups rows unscorable mean std length zero_variance group_std all_best all_worst
0 3 8 1 0.714286 0.95119 5.75 0.666667 0.235702 0.333333 0.333333
1 2 5 2 0.333333 0.57735 7 0 0.57735 0 0
2 1 1 0 1 None 10 None None None None
""".splitlines()
    for line, text in zip(lines, wanted, strict=True):
        facts = [getattr(line, name) for name in names.split()]
        assert " ".join(str(fact) if fact is None else f"{fact:.6g}" for fact in facts) == text


def test_values_of_a_trend_are_ordered_as_numbers_when_they_are_numbers() -> None:
    made = looked("0 1, 1 1, 0 0", View(by="part"), part=["10", "10", "9", "9", "2", "2"])
    assert [line.value for line in trend_of(made)] == ["2", "9", "10"]


def test_a_group_in_several_parts_counts_where_it_begins_and_it_is_said() -> None:
    made = looked("0 1 0, 1 1", View(by="source"), source=["a", "b", "c", "b", "b"])
    lines = trend_of(made)
    assert [line.groups for line in lines] == [1, 1, 0]
    assert [line.rows for line in lines] == [1, 3, 1]
    assert "1 group has rows in several values of source" in " ".join(made.facts.summary.warnings)


def test_files_can_be_compared(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("prompt_id,reward\n1,0\n1,0\n")
    (tmp_path / "two.csv").write_text("prompt_id,reward\n2,1\n2,1\n")
    first, second = trend_of(inspected(tmp_path, by="file"))
    assert first.mean == 0.0
    assert second.mean == 1.0


# --- what never stops --------------------------------------------------------------------------------------


def test_rows_without_a_reward_are_counted_and_left_out() -> None:
    found = looked([[1.0, None, math.nan], [0.0, math.inf]]).facts
    assert found.summary.rows == 5
    assert found.summary.unscorable == 3
    assert found.summary.reward.count == 2
    assert found.summary.singletons == 2
    assert "3 rows (60%) have no finite reward. compute stops at them" in "".join(verdicts(found))
    known = replace(found, summary=replace(found.summary, declared_unscorable=3))
    assert "compute leaves them out, as the schema says" in "".join(verdicts(known))


def test_groups_of_one_row_are_inspected_and_another_key_is_asked_for() -> None:
    found = looked("1, 0, 1").facts
    assert found.summary.singletons == 3
    assert found.summary.zero_variance.share is None
    assert found.at_size == []
    assert "name the prompt's id with --group" in verdicts(found)[0]


def test_no_reward_at_all_is_no_reason_to_stop() -> None:
    found = seen("- -")
    assert found["reward"]["count"] == 0
    assert json.loads(json.dumps(found, default=str, allow_nan=False))["difficulty"] is None


def test_every_reward_column_is_shown_by_itself() -> None:
    frame = pl.read_csv(b"prompt_id,a,b\n0,1,\n0,1,2\n1,0,3\n1,1,3\n")
    made = grpo_cli.inspect(frame, reward=["a", "b"]).inspection
    a = made.facts.rewards["a"]
    assert a.values.mean == 0.75
    assert a.zero_variance_share == 0.5
    assert a.unscorable == 0
    b = made.facts.rewards["b"]
    assert b.values.count == 3
    assert b.zero_variance_share == 1.0
    assert b.unscorable == 1
    assert "\nb does not vary within 100% of the groups" in "\n".join(verdicts(made.facts))


# --- lists and single groups -------------------------------------------------------------------------------


@pytest.mark.parametrize(("groups", "gaps"), [(6, 0), (7, 1)])
def test_dots_stand_between_the_ends_only_where_a_group_is_left_out(groups: int, gaps: int, tmp_path: Path) -> None:
    rows = "".join(f"{k},0\n{k},{k + 1}\n" for k in range(groups))
    (tmp_path / "a.csv").write_text(f"prompt_id,reward\n{rows}")
    assert ran("inspect a.csv", cwd=tmp_path).out.splitlines().count("...") == gaps


def test_groups_are_listed_from_both_ends() -> None:
    listed = looked("0 1, 1 1, 0 0.5, 1", View(top=1)).facts.listed
    assert [one.key for one in listed.most] == ["0"]
    assert [one.key for one in listed.least] == ["1"]
    by_mean = looked("0 1, 1 1, 0 0.5", View(top=5, sort="mean")).facts.listed
    assert [one.key for one in by_mean.most] == ["1", "0", "2"]
    assert by_mean.least == []


def test_of_many_groups_without_a_gradient_the_longest_never_solved_and_one_always_solved_are_listed() -> None:
    lengths = [5, 5, 9, 9, 50, 50, 8, 8, 20, 20, 7, 7, 7, 7, 7, 7]
    listed = looked("0 0, 1 1, 0 0, 1 1, 0 0, 0 1, 0 1, 0 1", View(top=3), length=lengths).facts.listed
    assert [one.key for one in listed.most] == ["5", "6", "7"]
    assert [one.key for one in listed.least] == ["2", "4", "1"]


def test_an_unknown_fact_is_named() -> None:
    with pytest.raises(UnknownName, match="no fact of a group named 'spred'"):
        looked("0 1", View(sort="spred"))


ROWS = """\
prompt_id,step,reward,completion
p0,0,1,text 0
p1,0,0,text 1
p1,1,0,text 2
p1,1,1,text 3
p0,1,0,text 4
p1,1,0,text 5
p1,1,0,text 6
"""


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "csv", "jsonl.gz", "arrow"])
def test_the_rows_of_a_group_are_shown_with_their_text(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a.{suffix}", pl.read_csv(ROWS.encode()).to_dicts())
    if suffix == "jsonl.gz":  # with blank lines
        lines = gzip.decompress(path.read_bytes())
        path.write_bytes(gzip.compress(lines.replace(b"\n", b"\n\n")))
    made = inspected(path, group=["prompt_id,step"])
    facts = show_group(made, "p1,1")
    assert facts.group.key == "p1, 1"
    assert [row.text for row in facts.rows] == ["text 2", "text 3", "text 5", "text 6"]
    assert [row.reward for row in facts.rows] == [0.0, 1.0, 0.0, 0.0]
    assert [row.row for row in facts.rows] == [3, 4, 6, 7]
    assert facts.rows[1].advantage == pytest.approx(1.5, abs=1e-5)


def keyed(folder: Path, *keys: object) -> Inspection:
    """Two rows with each key."""
    pl.DataFrame({"prompt_id": [*keys, *keys], "reward": 0}).write_ndjson(folder / "a.jsonl")
    return inspected(folder / "a.jsonl")


def test_a_key_may_be_a_prefix_that_only_one_group_has(tmp_path: Path) -> None:
    made = keyed(tmp_path, "apple", "apricot")
    assert show_group(made, "apr").group.key == "apricot"
    with pytest.raises(DataError, match="is in 2 keys: #1 apple, #2 apricot"):
        show_group(made, "ap")
    with pytest.raises(DataError, match=r"no group has the key 'aple'.*the first of 2 is 'apple'"):
        show_group(made, "aple")


def test_a_key_that_is_unique_within_something_is_shown_with_it(tmp_path: Path) -> None:
    """Otherwise the same label would stand for several groups, in lists and in tables for other programs."""
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("step,prompt_id,reward\n0,a,0\n0,a,1\n0,b,0\n0,b,1\n1,a,0\n1,a,1\n1,b,0\n1,b,1\n")
    for line, words, within in (
        ("inspect a.csv --group-within step", "by prompt_id within step (found by name)", "step"),
        ("inspect a.csv b.csv --group prompt_id --group-within file", "by prompt_id within file", "file"),
    ):
        found = facts_of(line, cwd=tmp_path)
        assert found["group_key"] == [within, "prompt_id"]
        assert words in ran(line, cwd=tmp_path).out
        listed = [group["key"] for group in found["listed"]["most"]]
        assert len({*listed}) == len(listed)
        table = pl.read_csv(ran(f"{line} --format csv", cwd=tmp_path).out.encode())
        assert table.columns[:2] == [within, "prompt_id"]
        assert not table[:, :2].is_duplicated().any()


def test_a_key_that_is_called_file_is_no_name_of_a_file(tmp_path: Path) -> None:
    for name in ("1.csv", "2.csv"):
        (tmp_path / name).write_text("file,reward\na,0\na,1\nb,0\nb,1\n")
    line = "inspect 1.csv 2.csv --group file --group-within file"
    assert facts_of(line, cwd=tmp_path)["group_key"] == ["@file", "file"]
    table = pl.read_csv(ran(f"{line} --format csv", cwd=tmp_path).out.encode())
    assert table.select("@file", "file").write_csv() == "@file,file\n1.csv,a\n1.csv,b\n2.csv,a\n2.csv,b\n"


ASKED = "<|im_start|>user\nWhat is {}\n  in words?<|im_end|>\n<|im_start|>assistant\n"


def test_a_group_is_found_by_its_number_its_label_or_a_part_of_its_key(tmp_path: Path) -> None:
    made = keyed(tmp_path, ASKED.format("3 * 4"), ASKED.format("880 * 510"), ASKED.format("7 * 7"), "12")
    for asked, number in {
        "#2": 2, "880 * 510": 2, "What is 880 * 510 in words?": 2, "What is…7 * 7": 3, "what is 7": 3, "12": 4, "What is 3 *…words?": 1,
    }.items():  # fmt: skip
        assert show_group(made, asked).group.number == number


def test_a_number_with_a_sign_is_no_integer_key(tmp_path: Path) -> None:
    made = keyed(tmp_path, 3, 2, 1)
    for asked, key in {"3": "3", "#3": "1", "1": "1", "#1": "3"}.items():
        assert show_group(made, asked).group.key == key
    with pytest.raises(DataError, match=r"there is no group #4.*#1 to #3"):
        show_group(made, "#4")


def test_several_hits_are_listed_with_the_text_that_differs(tmp_path: Path) -> None:
    made = keyed(tmp_path, *(ASKED.format(f"{n} * 51") for n in range(9)))
    with pytest.raises(DataError, match=r"in 9 keys: #1 What is 0 \* 51 in words\?, .* and 4 more.*--show '#1'"):
        show_group(made, "51")


def test_of_a_chat_the_last_message_is_shown(tmp_path: Path) -> None:
    chat = '[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]'
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"prompt_id": 1, "reward": 0, "completion": {chat}}}\n' * 2)
    assert show_group(inspected(path), "1").rows[0].text == "hello"


def test_texts_are_compared_where_that_is_cheap_or_asked_for(tmp_path: Path) -> None:
    assert with_duplicates(View(), CHEAP).duplicates
    assert not with_duplicates(View(), CHEAP + 1).duplicates
    assert with_duplicates(View(duplicates=True), CHEAP + 1).duplicates
    path = tmp_path / "a.csv"
    path.write_text(ROWS)
    assert inspected(path, group=["prompt_id,step"], duplicates=False).facts.duplicates is None
    found = inspected(path, group=["prompt_id,step"]).facts.duplicates
    assert found is not None
    assert found.rows == 0


def test_another_method_changes_the_advantages_and_not_the_facts() -> None:
    plain = looked("0 1 1, 0 0 1")
    other = looked("0 1 1, 0 0 1", plan=Plan.of({"estimator.name": "rloo", "shape.clip.lo": 0, "shape.clip.hi": 0.5}))
    facts = [replace(one.facts, method="", effective_rows=None) for one in (plain, other)]
    same = [replace(one, summary=replace(one.summary, plan=Plan())) for one in facts]
    assert same[0] == same[1]
    assert other.scored.frame[".advantage"].to_list() != plain.scored.frame[".advantage"].to_list()


def test_groups_with_rows_of_several_values_are_counted_as_a_warning_says() -> None:
    lines = [("a", 1, 1), ("a", 0, 2), ("b", 1, 1), ("b", 0, 1)]
    write("in.jsonl", [{"prompt_id": key, "reward": reward, "policy_version": v} for key, reward, v in lines])
    facts = facts_of("inspect in.jsonl --by policy_version --json")
    counted = [(line["value"], line["groups"], line["rows"], line["mean"]) for line in facts["by"]["lines"]]
    assert counted == [(1, 2, 3, 2 / 3), (2, 0, 1, 0.0)]
    how = "a group counts at that of its first row, rows and their mean at their own"
    assert f"1 group has rows in several values of policy_version: {how}" in facts["warnings"]
    write("in.jsonl", [{"prompt_id": key, "reward": reward, "policy_version": key} for key, reward, _ in lines])
    assert not facts_of("inspect in.jsonl --by policy_version --json")["warnings"]


def test_one_step_is_no_order_in_which_something_could_rise() -> None:
    lines = [SimpleNamespace(value=1), SimpleNamespace(value=2)]
    assert over_steps(lines)
    assert not over_steps(lines[:1])
    assert not over_steps([*lines, SimpleNamespace(value="c")])
