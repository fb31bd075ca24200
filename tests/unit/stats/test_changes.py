"""Which prompts changed between two runs: the test and the interval of each, the correction for all, and what is listed."""

from __future__ import annotations

import csv
import json
import random
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.errors import GrpoWarning, UnknownName
from grpo_cli.stats.changes import benjamini_hochberg, changes, p_values
from grpo_cli.stats.intervals import Rewards
from tests.support.command import adv, facts_of, ran
from tests.support.drawn import is_nightly

LINE = "inspect now.csv --against base=base.csv"


def rewards(of_prompts: list[list[float]]) -> Rewards:
    prompts = np.repeat(np.arange(len(of_prompts)), [len(one) for one in of_prompts])
    return Rewards.of(prompts, np.array([value for one in of_prompts for value in one]), len(of_prompts))


def run(name: str, solved: list[int]) -> None:
    """Prompts with 8 rollouts each, so many of which are solved."""
    rows = [f"p{at:03d},{int(k < many)}" for at, many in enumerate(solved) for k in range(8)]
    Path(name).write_text("\n".join(["prompt_id,reward", *rows]) + "\n")


# --- numbers ------------------------------------------------------------------------------------------------------

SIDE = st.lists(st.integers(0, 20), min_size=1, max_size=5)


def of_all_deals(now: list[int], before: list[int]) -> float:
    """The share of all ways to deal the rollouts whose means are as far apart, in whole numbers."""
    both = now + before

    def apart(mine: tuple[int, ...]) -> int:
        sum_of_mine = sum(both[at] for at in mine)
        return abs(sum_of_mine * len(before) - (sum(both) - sum_of_mine) * len(now))

    deals = [apart(mine) for mine in combinations(range(len(both)), len(now))]
    return fmean(each >= apart(tuple(range(len(now)))) for each in deals)


@given(now=SIDE, before=SIDE)
def test_the_p_value_of_a_prompt_is_the_share_of_all_deals_that_change_as_much(now: Any, before: Any) -> None:
    # The extremes stand in both, so that every reward is a whole number of hundredths of the range.
    now, before = [0, *now], [20, *before]
    (found,) = p_values(*(rewards([[value / 20 for value in side]]) for side in (now, before)))
    assert found == pytest.approx(of_all_deals(now, before))


@given(now=st.lists(st.booleans(), min_size=1, max_size=6), before=st.lists(st.booleans(), min_size=1, max_size=6))
def test_of_solved_and_unsolved_rollouts_it_is_fishers_exact_test(now: list[bool], before: list[bool]) -> None:
    (found,) = p_values(*(rewards([[*map(float, side)]]) for side in (now, before)))
    assert found == pytest.approx(of_all_deals([*map(int, now)], [*map(int, before)]))


def test_many_rollouts_of_graded_rewards_are_normal() -> None:
    """33 and 40 of them, beside 20,000 random deals."""
    drawn = np.random.default_rng(3)
    now, before = drawn.beta(2, 2, 33), drawn.beta(2, 2.8, 40)
    both = np.concatenate([now, before])
    seen = abs(now.mean() - before.mean())
    deals = [drawn.permutation(both) for _ in range(20_000)]
    share = fmean(abs(deal[:33].mean() - deal[33:].mean()) >= seen for deal in deals)
    (found,) = p_values(rewards([[*now]]), rewards([[*before]]))
    assert 0.001 < share < 0.2
    assert found == pytest.approx(share, abs=0.01)


@given(p=st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_p_values_are_adjusted_as_benjamini_and_hochberg_wrote(p: list[float]) -> None:
    """At a level q, all up to the largest k with p(k) <= k q / m are found."""
    adjusted = benjamini_hochberg(np.array(p))
    for level in (0.05, 0.2, 0.9):
        bars = [k for k, value in enumerate(sorted(p), 1) if value <= k * level / len(p) * (1 + 1e-12)]
        found = {*sorted(p)[: max(bars, default=0)]}
        assert {value for value, one in zip(p, adjusted, strict=True) if one <= level * (1 + 1e-12)} == found


def test_the_interval_of_a_prompt_imagines_a_solved_and_an_unsolved_rollout_in_either_run() -> None:
    """7 of 8 and 0 of 8 become 8 of 10 and 1 of 10: -0.7 +- 1.96 sqrt(0.8 0.2 / 10 + 0.1 0.9 / 10)."""
    found = changes(rewards([[0.0] * 8]), rewards([[1.0] * 7 + [0.0]]), np.array([-7 / 8]))
    half = 1.959964 * (0.016 + 0.009) ** 0.5
    assert (found.low[0], found.high[0]) == pytest.approx((-1.0, -0.7 + half))


def test_the_interval_of_graded_rewards_leaves_out_0_where_the_test_does() -> None:
    """8 rollouts that rise from 0 to about 0.06 are beyond chance, and imagined rollouts would say -21 to 31."""
    drawn = np.random.default_rng(5)
    of_now = [[0.04, 0.05, 0.06, 0.07, 0.05, 0.06, 0.08, 0.07], *drawn.uniform(0, 1, (60, 8)).round(2).tolist()]
    of_before = [[0.0] * 8, *drawn.uniform(0, 1, (60, 8)).round(2).tolist()]
    now, before = rewards(of_now), rewards(of_before)
    found = changes(now, before, now.rates - before.rates)
    assert found.sign[0] == 1
    assert 0 < found.low[0] < 0.06 < found.high[0] < 0.1
    assert ((found.low > 0) | (found.high < 0)).tolist() == (found.p <= 0.05).tolist()
    assert ((found.sign != 0) <= (found.p_adjusted <= 0.05)).all()
    # Rewards that are all equal say nothing of their spread: rollouts are imagined.
    equal = changes(rewards([[0.5] * 8]), rewards([[0.5] * 8]), np.array([0.0]))
    assert equal.low[0] < -0.19
    assert equal.high[0] > 0.19


def test_few_rollouts_beside_many_are_beyond_chance_where_the_test_says_so() -> None:
    """2 of 8 beside 0 of 64: p = 28 / 2556, and Agresti and Caffo say -0.1 to 57."""
    found = changes(rewards([[1.0] * 2 + [0.0] * 6]), rewards([[0.0] * 64]), np.array([0.25]))
    assert found.p[0] == pytest.approx(28 / 2556)
    assert found.sign[0] == 1
    assert found.low[0] > 0


# --- simulation ---------------------------------------------------------------------------------------------------

TIMES = 2000 if is_nightly() else 300


def drawn_rewards(drawn: Any, kind: str, rate: Any, rollouts: int) -> Rewards:
    solved = (drawn.random((len(rate), rollouts)) < rate[:, None]).astype(float)
    if kind == "nearly two":  # a bonus that hardly varies
        solved = 0.9 * solved + 0.1 * drawn.random(solved.shape)
    if kind == "graded":
        solved = drawn.beta(4 * rate[:, None] + 0.1, 4 * (1 - rate[:, None]) + 0.1, solved.shape)
    return rewards(solved.tolist())


@pytest.mark.parametrize("kind", ["solved or not", "nearly two", "graded"])
@pytest.mark.parametrize("rollouts", [4, 8, 16])
def test_without_a_change_a_prompt_is_called_better_or_worse_in_one_run_of_twenty(kind: str, rollouts: int) -> None:
    drawn = np.random.default_rng(rollouts)
    wrong = 0
    times = TIMES if kind == "solved or not" else TIMES // 3
    for _ in range(times):
        rate = drawn.beta(0.7, 0.7, 40)
        now, before = (drawn_rewards(drawn, kind, rate, rollouts) for _ in range(2))
        wrong += bool(changes(now, before, now.rates - before.rates).sign.any())
    assert wrong / times <= 0.05 + 2 * (0.05 * 0.95 / times) ** 0.5


def test_of_the_prompts_that_are_called_better_or_worse_one_in_twenty_is_wrong() -> None:
    """A fifth of 100 prompts fall by 0.7, and 15 of 20 of them are found."""
    drawn = np.random.default_rng(7)
    false, found = [], 0
    for _ in range(TIMES // 3):
        rate = drawn.uniform(0.1, 0.9, 100)
        rate[:20] = 0.85
        after = rate.copy()
        after[:20] = 0.15
        before, now = (drawn_rewards(drawn, "solved or not", each, 16) for each in (rate, after))
        sign = changes(now, before, now.rates - before.rates).sign
        found += int((sign[:20] < 0).sum())
        named = int((sign != 0).sum())
        false.append((sign[20:] != 0).sum() / named if named else 0.0)
    assert fmean(false) <= 0.05
    assert found / (20 * len(false)) > 0.75


@pytest.mark.parametrize(("now", "before"), [(1, 1), (4, 4), (8, 8), (4, 16), (64, 64)])
def test_the_interval_of_a_prompt_holds_the_truth(now: int, before: int) -> None:
    drawn = np.random.default_rng(now + before)
    for rate in (0.02, 0.1, 0.3, 0.5, 0.8):
        for gain in (0.0, 0.15, 0.5):
            after = min(rate + gain, 1.0)
            mine = drawn_rewards(drawn, "solved or not", np.full(4000, after), now)
            theirs = drawn_rewards(drawn, "solved or not", np.full(4000, rate), before)
            found = changes(mine, theirs, mine.rates - theirs.rates)
            holds = (found.low - 1e-9 <= after - rate) & (after - rate <= found.high + 1e-9)
            assert holds.mean() >= 0.93 - 0.01


@pytest.mark.parametrize("rollouts", [4, 8, 16])
def test_the_interval_of_graded_rewards_holds_the_truth(rollouts: int) -> None:
    drawn = np.random.default_rng(rollouts)
    for rate, after in ((0.1, 0.1), (0.1, 0.25), (0.5, 0.65), (0.8, 0.95)):
        now, before = (drawn_rewards(drawn, "graded", np.full(800, each), rollouts) for each in (after, rate))
        found = changes(now, before, now.rates - before.rates)
        truth = 4 * (after - rate) / 4.2
        assert ((found.low <= truth) & (truth <= found.high)).mean() >= 0.90 - 0.02


# --- the command --------------------------------------------------------------------------------------------------


def test_prompts_that_changed_most_are_listed_with_their_intervals_although_none_is_beyond_chance() -> None:
    run("base.csv", [4, 5, 3, 4] * 5)
    run("now.csv", [5, 4, 3, 6] * 5)
    out = ran(LINE, COLUMNS="120").out
    assert "now.csv: no prompt by itself can be told from chance, after correction for 20 prompts" in " ".join(
        out.split()
    )
    assert [line.split() for line in out.splitlines() if line.split()[1:3] == ["p003", "4/8"]] == [
        ["#4", "p003", "4/8", "6/8", "+25", "-22", "to", "62", "1.00"]
    ]
    (difference,) = facts_of(LINE)["differences"]
    assert [one["key"] for one in difference["changed"]] == [
        *("p003", "p007", "p011", "p015", "p019"),
        *("p017", "p013", "p009", "p005", "p001"),
    ]
    assert difference["better_beyond_chance"] == difference["worse_beyond_chance"] == 0
    assert difference["gained"] == []


def test_prompts_that_are_better_or_worse_beyond_chance_are_counted_in_text_document_and_gate() -> None:
    run("base.csv", [7] * 15 + [3] * 85)
    run("now.csv", [0] * 15 + [4] * 65 + [5] * 20)
    found = facts_of(LINE)
    (difference,) = found["differences"]
    assert (difference["better_beyond_chance"], difference["worse_beyond_chance"]) == (0, 15)
    assert found["verdict"].endswith("by more than chance: 15 are worse, each beyond chance by itself.")
    last = difference["changed"][-1]
    assert (last["key"], last["before"], last["now"], last["beyond_chance"]) == ("p000", 0.875, 0, "worse")
    assert last["p"] == pytest.approx(18 / 12_870)  # 7 + 0 and 0 + 7 of 16: 2 * 9 of C(16, 8) deals
    assert last["p_adjusted"] == pytest.approx(18 / 12_870 * 100 / 15)
    assert adv(f"{LINE} --fail-on 'worse_beyond_chance > 14'").status == 3
    assert "now.csv: 15 worse beyond chance, of 100 prompts" in ran(LINE).out


def test_a_run_that_solves_more_says_which_prompts_fall() -> None:
    run("base.csv", [1] * 50 + [8] * 6)
    run("now.csv", [6] * 50 + [0] * 6)
    verdict = facts_of(LINE)["verdict"]
    assert verdict.startswith("now.csv solves more of these prompts than base")
    assert verdict.endswith(", though 6 of them are worse beyond chance.")


def test_facts_of_the_change_choose_the_prompts() -> None:
    run("base.csv", [8, 7, 4, 4, 0, 1])
    run("now.csv", [0, 0, 4, 5, 8, 8])
    (chosen,) = facts_of(f"{LINE} --where 'change < 0 and now == 0'")["differences"]
    assert [one["key"] for one in chosen["changed"]] == ["p001", "p000"]
    assert chosen["prompts"] == 6
    (chosen,) = facts_of(f"{LINE} --sort now --top 1")["differences"]
    assert [one["key"] for one in chosen["changed"]] == ["p004", "p000"]
    assert "; 2 meet --where" in ran(f"{LINE} --where 'beyond_chance == \"better\"'", COLUMNS="120").out
    assert facts_of(f"{LINE} --top 0")["differences"][0]["changed"] == []
    assert "no fact of a change named 'mean'; known: " in adv(f"{LINE} --sort mean").err
    assert "no fact of a change named 'std'" in adv(f"{LINE} --where 'std > 0'").err
    of_rows = adv(f"{LINE} --where 'reward > 0'").err
    assert "reward is a column of rows, and --where is about the changes of prompts; a condition on rows" in of_rows
    assert "--top cannot be -1" in adv(f"{LINE} --top -1").err
    assert "now is a number" in adv(f"{LINE} --where 'now == \"a\"'").err


def test_a_table_of_its_own_has_all_prompts_of_every_run() -> None:
    for name, solved in (("base.csv", [8, 7, 4]), ("b.csv", [8, 0, 4]), ("now.csv", [0, 7, 5])):
        run(name, solved)
    line = f"{LINE} --against b=b.csv --format csv"
    rows = [*csv.DictReader(ran(f"{line} --sort change").out.splitlines())]
    assert [(row["run"], row["prompt"], row["change"]) for row in rows] == [
        ("b", "p000", "0.0"), ("b", "p002", "0.0"), ("b", "p001", "-0.875"),
        ("now.csv", "p002", "0.125"), ("now.csv", "p001", "0.0"), ("now.csv", "p000", "-1.0"),
    ]  # fmt: skip
    assert [row["run"] for row in csv.DictReader(ran(line).out.splitlines())] == ["base", "b", "now.csv"]
    assert ran(f"{line} --where 'change == -1'").out.splitlines()[1].startswith("now.csv,p000,1,1.0,8,0.0,8,-1.0,")
    assert ran(f"{LINE} --where 'change > 1' --format csv").out.count("\n") == 1


def test_python_has_a_frame_of_all_prompts() -> None:
    run("base.csv", [8, 7, 4])
    run("now.csv", [0, 7, 5])
    look = grpo_cli.inspect("now.csv", against={"base": "base.csv"}, sort="change", top=1)
    assert look.changes.columns[:4] == ["run", "prompt", "number", "before"]
    assert dict(look.changes.select("prompt", "change").iter_rows()) == {"p002": 0.125, "p001": 0.0, "p000": -1.0}
    assert [one["key"] for one in look.runs["differences"][0]["changed"]] == ["p002", "p000"]
    with pytest.raises(UnknownName, match="no fact of a change named 'mean'"):
        grpo_cli.inspect("now.csv", against={"base": "base.csv"}, sort="mean")


# --- the same rollouts -----------------------------------------------------------------------------------------------


def lines(name: str, text: Any, reward: Any) -> None:
    drawn = random.Random(name)  # noqa: S311 - test data
    rows = [
        {"prompt_id": f"p{at}", "response": text(at, k, drawn), "reward": reward(at, k)}
        for at in range(6)
        for k in range(4)
    ]
    Path(name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_the_same_rollouts_scored_again_are_told_of_old_rewards() -> None:
    def text(at: int, k: int, _: Any) -> str:
        return f"the answer to {at} may be {k * 7} or so"

    lines("base.jsonl", text, lambda at, k: (at + k) % 2)
    lines("now.jsonl", text, lambda at, k: (at * k) % 2)
    says = "base.jsonl has the same responses as now.jsonl (24 of 24 that were compared)"
    (warning,) = facts_of("inspect now.jsonl --against base.jsonl")["warnings"]
    assert warning == f"{says}: two rewards of the same rollouts are compared by --old-rewards"
    with pytest.warns(GrpoWarning, match="two rewards of the same rollouts are compared by old_rewards"):
        grpo_cli.inspect(pl.read_ndjson("now.jsonl"), against={"a": pl.read_ndjson("base.jsonl")})


@pytest.mark.parametrize(
    "text",
    [
        lambda at, _, drawn: f"the answer to {at} may be {drawn.random()}",
        lambda _, k, __: "ABCD"[k],  # equal by chance
        lambda *_: None,
    ],
    ids=["other", "short", "none"],
)
def test_other_rollouts_of_the_same_prompts_are_no_rescored_ones(text: Any) -> None:
    for name in ("base.jsonl", "now.jsonl"):
        lines(name, text, lambda at, k: (at + k) % 2)
    assert facts_of("inspect now.jsonl --against base.jsonl")["warnings"] == []
