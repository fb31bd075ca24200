"""`select --top`, `--top-p` and `pass@K`: which groups are kept, against loops over plain lists."""

from __future__ import annotations

import json
import statistics as stats
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.errors import UnknownName, UsageError

GROUPS: list[list[float]] = [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 0], [3]]


def table(groups: list[list[float]]) -> pl.DataFrame:
    frame = pl.DataFrame({"reward": groups}).with_row_index("prompt_id")
    return frame.explode("reward").cast({"reward": pl.Float64})


def kept(groups: list[list[float]], **options: Any) -> list[int]:
    """The groups with rows that are kept, in order."""
    found = grpo_cli.select(table(groups), **options).frame
    return found["prompt_id"].unique(maintain_order=True).to_list()


def test_the_groups_with_the_largest_or_smallest_fact_are_kept() -> None:
    assert kept(GROUPS, top=2, by="std") == [2, 4]
    assert kept(GROUPS, top=2, by="-std") == [0, 3]
    assert kept(GROUPS, top=2, by="mean") == [3, 5]
    assert kept(GROUPS, top=2, by="-mean") == [0, 1]
    assert kept(GROUPS, top=2, by="size") == [0, 1]
    assert kept(GROUPS, top=2, by="pass@2", solved_at=1.0) == [3, 4]


def test_without_a_fact_the_spread_decides_and_a_group_without_one_is_last() -> None:
    assert kept(GROUPS, top=3) == [1, 2, 4]
    assert kept(GROUPS, top=5) == [0, 1, 2, 3, 4]
    assert kept(GROUPS, top=99) == [0, 1, 2, 3, 4, 5]


def variance(group: list[float]) -> float:
    """That of the sample; 0 for a single row."""
    return stats.variance(group) if len(group) > 1 else 0.0


DRAWN = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=5)
SHARES = st.sampled_from([0.1, 0.5, 0.9, 0.99, 1.0])
SLACKS = st.sampled_from([None, 0.01, 0.3])


@given(st.lists(DRAWN, min_size=1, max_size=7), SHARES, SLACKS)
def test_the_fewest_groups_with_a_share_of_the_variance_are_kept(
    groups: list[list[float]], share: float, slack: float | None
) -> None:
    """As in RAGEN-2 (arXiv:2604.06268), whose slack is 0.01: a group counts with its variance, whatever its size.

    Of groups whose variances differ by rounding alone, as those of 1, 1, 2 and 0, 0, 1, either may be kept.
    """
    variances = sorted(map(variance, groups), reverse=True)
    target = share * sum(variances) - (slack or 0.0)
    left = kept(groups, top_p=share, top_p_slack=slack)
    wanted: list[float] = []
    for value in variances:
        if target > 0 and sum(wanted) < target - 1e-9:
            wanted.append(value)
    found = [variance(groups[at]) for at in left]
    assert sorted(found) == pytest.approx(sorted(wanted))


def test_pass_at_k_is_the_share_of_samples_of_k_rows_with_a_solved_one() -> None:
    """Of two rows of 1, 0, 0, 0 half have the solved one; of 1, 1, 0, 0 five in six."""
    assert kept(GROUPS, where="pass@1 >= 0.5", solved_at=1.0) == [2, 3, 4, 5]
    assert kept(GROUPS, where="pass@2 >= 0.5", solved_at=1.0) == [1, 2, 3, 4]
    assert kept(GROUPS, where="pass@2 > 0.5", solved_at=1.0) == [2, 3, 4]
    assert kept(GROUPS, where="0.8333 < pass@2 < 0.8334", solved_at=1.0) == [2]
    assert kept(GROUPS, where="pass@3 == 0.75", solved_at=1.0) == [1]
    assert kept(GROUPS, where="pass@4 >= 0.5", solved_at=1.0) == [1, 2, 3]
    assert kept(GROUPS, where="pass@1 >= 0.5") == [5]
    assert kept(GROUPS, where="pass@2 >= 0.5") == []


def test_conditions_come_first_then_the_share_then_the_ranking_then_the_limit() -> None:
    # Of 1, 0 the variance is 1/2, of 1, 1, 0, 0 it is 1/3 and of 1, 0, 0, 0 1/4: the first two have 0.77 of all.
    options: dict[str, Any] = {"where": "pass@1 < 1 and std > 0", "solved_at": 1.0, "top_p": 0.7}
    chosen = grpo_cli.select(table([*GROUPS, *GROUPS]), top=3, limit=2, **options)
    reasons = {one["reason"]: one["groups"] for one in chosen.facts["dropped"]}
    wanted = {"pass@1 < 1 is false": 4, "std > 0 is false": 2, "--top-p 0.7": 2, "--top 3 --by std": 1, "--limit 2": 1}
    assert reasons == wanted
    assert chosen.facts["kept_groups"] == 2


MEANINGLESS = """
{"top": 0}                          | cannot be 0; it takes 1 or more
{"top_p": 1.5}                      | cannot be 1.5; it takes a share above 0
{"top_p": 0.9, "top_p_slack": -1.0} | cannot be -1.0; it takes 0 or more
{"limit": 1, "top_p_slack": 0.01}   | top_p_slack is part of top_p; add top_p=P
{"limit": 1, "by": "mean"}          | by is the order for top
"""


@pytest.mark.parametrize("line", MEANINGLESS.strip().splitlines())
def test_meaningless_options_are_refused(line: str) -> None:
    options, _, message = line.partition(" | ")
    with pytest.raises(UsageError, match=message):
        grpo_cli.select(table(GROUPS), **json.loads(options))


MISSPELLED = """
sdt       | no fact of a group named 'sdt'; did you mean 'std'?
pass4     | nearly, prompt_id, pass@K
pass@0    | no fact of a group named 'pass@0'; did you mean 'pass@K'?
solverate | did you mean 'solve_rate'?
zz        | known: size, scored, unscorable, mean, std, min, max, spread, solve_rate, constant, nearly, prompt_id, pass@K
"""


@pytest.mark.parametrize("line", MISSPELLED.strip().splitlines())
def test_a_misspelled_fact_is_answered_with_the_right_one(line: str) -> None:
    name, _, hint = line.partition(" | ")
    with pytest.raises(UnknownName) as where:
        grpo_cli.select(table(GROUPS), where=f"{name} > 0.5 and pass@2 >= 0")
    assert str(where.value).endswith(hint)
    with pytest.raises(UnknownName) as by:
        grpo_cli.select(table(GROUPS), top=1, by=name.strip())
    assert str(by.value).endswith(hint)


@pytest.mark.parametrize("text", ["pass@k > 0", "pas@4 > 0", "Pass@4 > 0"])
def test_a_misspelled_pass_at_k_shows_how_it_is_written(text: str) -> None:
    with pytest.raises(UsageError, match=r"pass@K takes a number for K, as in 'pass@4 >= 0\.5'"):
        grpo_cli.select(table(GROUPS), where=text)
