"""`inspect --against`: two runs on the same prompts, against loops over plain lists."""

from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import grpo_cli
from grpo_cli.errors import DataError
from grpo_cli.stats.document import document
from grpo_cli.stats.inspection import Inspection
from grpo_cli.stats.runs import compared
from tests.support.command import adv, facts_of, ran
from tests.support.jobs import inspected

Run = dict[Any, Any]  # the rewards of each prompt; digits may stand in a text
COMMAND = "inspect now.csv --against before.csv"


def written(name: str, run: Run, key: str = "prompt_id") -> str:
    text = f"{key},reward\n"
    for prompt, rewards in run.items():
        text += "".join(f"{prompt},{reward}\n" for reward in rewards)
    Path(name).write_text(text)
    return name


def against(now: Inspection, before: Inspection) -> dict[str, Any]:
    """What is said of two runs, and of the change from one to the other."""
    found = document(compared({"before": before, "now": now}))
    return {**found, **found["differences"][0]}


def changed(now: Run, before: Run) -> dict[str, Any]:
    return against(inspected(written("now.csv", now)), inspected(written("before.csv", before)))


def test_prompts_are_compared_one_by_one() -> None:
    """The rates of a to e are 0.75, 0, 0.5, 1, 0.5 now; before 0.25, 0.5, 0, 1, 0.5."""
    found = changed(
        {"a": "1101", "b": "00", "c": "10", "d": "11", "e": "01", "new": "1"},
        {"a": "0001", "b": "10", "c": "00", "d": "11", "e": "1001", "old": "0"},
    )
    counts = {
        "prompts": 5,
        "only_here": 1,
        "only_base": 1,
        "better": 2,
        "worse": 1,
        "same": 2,
        "gained": [],
        "lost": [],
    }
    assert {name: found[name] for name in counts} == counts
    assert found["change"]["mean"] == pytest.approx(0.1)


@pytest.mark.parametrize(("now", "change"), [("1110", 0.25), ("1100", 0)])
def test_prompts_with_equal_changes_have_no_interval_of_width_0(now: str, change: float) -> None:
    seen = changed(dict.fromkeys("abcd", now), dict.fromkeys("abcd", "1100"))["change"]
    assert seen["mean"] == change
    assert seen["low"] < change < seen["high"]


def test_one_prompt_has_no_interval() -> None:
    assert changed({"a": "11"}, {"a": "01"})["change"] == {"mean": 0.5, "low": None, "high": None}
    text = " ".join(ran(COMMAND).out.split())
    says = (
        "now.csv shows no clear difference from before.csv on this prompt: +50.0 points (p = 1.00), and 1 prompt says"
    )
    assert says in text
    assert changed({"a": "00"}, {"a": "00"})["change"]["mean"] == 0


@pytest.mark.parametrize("rewards", ["001110", "024410"], ids=["two", "graded"])
def test_counts_by_chance_are_those_of_all_ways_to_deal_the_rows(rewards: str) -> None:
    """Of two prompts, each with two rows now and four before."""
    found = changed(dict.fromkeys("ab", rewards[:2]), dict.fromkeys("ab", rewards[2:]))
    changes = [fmean(way[:2]) - fmean(way[2:]) for way in permutations(map(int, rewards))]
    better = [change > 0 for change in changes]
    worse = [change < 0 for change in changes]
    assert found["better_by_chance"] == pytest.approx(2 * fmean(better), abs=0.15)
    assert found["worse_by_chance"] == pytest.approx(2 * fmean(worse), abs=0.15)


def test_prompts_that_changed_by_more_than_chance_are_listed_with_the_change_without_noise() -> None:
    """Six prompts of forty are solved now; a change seen in few rows is shrunk more."""
    draw = random.Random(5)  # noqa: S311 - rewards, not secrets

    def run(rate: float) -> Run:
        rewards = {}
        for prompt in range(40):
            chances = [rate if prompt < 6 else 0.5] * (4 if prompt % 2 else 24)
            rewards[prompt] = [int(draw.random() < chance) for chance in chances]
        return rewards

    before = run(0.1)
    found = changed(run(0.9), before)["gained"]
    shares = {int(one["key"]): one["shrunken"] / one["change"] for one in found}
    assert max(shares) < 6
    assert next(iter(shares)) in {0, 2, 4}
    large = [share for key, share in shares.items() if key % 2 == 0]
    small = [share for key, share in shares.items() if key % 2]
    assert max(small, default=0) < min(large) <= max(large) < 1
    assert min(shares.values()) > 0


def test_rewards_outside_0_to_1_are_scaled_by_the_extremes_of_both_runs() -> None:
    found = changed({"a": [3, 5]}, {"a": [-1, 1]})
    assert found["worst"] == -1.0
    assert found["best"] == 5.0
    assert found["change"]["mean"] == pytest.approx(4 / 6)
    assert "scaled from -1 (0) to 5 (1)" in ran(COMMAND).out


def test_groups_of_several_steps_are_one_prompt() -> None:
    written("steps.csv", {"1,a": "00", "1,b": "00", "2,a": "01", "2,b": "01"}, "step,prompt_id")
    one = inspected("steps.csv", group=["prompt_id", "step"])
    found = against(one, one)
    assert found["key"] == ["prompt_id"]
    assert found["prompts"] == 2
    assert [run["solve_rate"]["mean"] for run in found["runs"]] == [0.25, 0.25]
    assert found["change"] == {"mean": 0, "low": None, "high": None}  # of two prompts it may be any


def test_rounding_in_a_mean_changes_no_prompt() -> None:
    rewards = "1" + "0" * 48
    written("steps.csv", {"1,a": rewards, "2,a": rewards, "3,a": rewards}, "step,prompt_id")
    pooled = inspected("steps.csv", group=["prompt_id", "step"])
    once = inspected(written("once.csv", {"a": rewards}))
    assert against(pooled, once)["same"] == against(once, pooled)["same"] == 1


@pytest.mark.parametrize(
    ("now", "before", "message"),
    [
        ({"a": "01"}, {"b": "01"}, "no prompt is in both runs .matched by prompt_id."),
        ({"a": [""]}, {"a": "01"}, "no row of this run has a finite reward"),
        ({"a": "01"}, {"a": [""]}, "no row of the other run has a finite reward"),
        ({"a": "77"}, {"a": "77"}, "all rewards of the runs are equal"),
    ],
)
def test_runs_that_cannot_be_compared_say_why(now: Run, before: Run, message: str) -> None:
    with pytest.raises(DataError, match=message):
        changed(now, before)


def test_runs_with_different_keys_are_refused() -> None:
    now = inspected(written("now.csv", {"a": "01"}, "uid"))
    before = inspected(written("before.csv", {"a": "01"}, "task_id"))
    with pytest.raises(DataError, match="different group keys; name the prompt with --group"):
        against(now, before)


def test_an_error_of_the_run_before_says_so() -> None:
    written("now.csv", {"a": "01"})
    Path("other.csv").write_text("prompt_id,result\na,pass\n")
    other = adv("inspect now.csv --against other.csv")
    assert other.status == 1
    assert "--against other.csv: no column looks like the reward" in other.err
    twice = adv("inspect - --against -")
    assert twice.status == 2
    assert "both runs are read from standard input" in twice.err


def test_a_column_of_the_key_in_which_it_is_unique_is_still_a_part_of_the_prompt() -> None:
    code = {"code,0": "01", "code,1": "01"}
    written("now.csv", {"math,0": "11", "math,1": "11", **code}, "env,task")
    written("before.csv", {"math,0": "00", "math,1": "00", **code}, "env,task")
    options = {"group": "env,task", "group_within": "env"}
    found = against(inspected("now.csv", **options), inspected("before.csv", **options))
    assert found["key"] == ["env", "task"]
    assert found["prompts"] == 4
    assert found["better"] == 2


def test_the_prompts_that_changed_most_are_shown_on_a_terminal_a_page_and_in_python() -> None:
    """Ten of forty prompts are solved now and never before, ten the other way round."""
    names = [f"p{k:02}" for k in range(40)]
    rewards = ["1" * 8] * 10 + ["0" * 8] * 20 + ["1" * 8] * 10
    written("now.csv", dict(zip(names, rewards, strict=True)))
    rewards[:20] = reversed(rewards[:20])
    written("before.csv", dict(zip(names, rewards, strict=True)))
    (change,) = facts_of(COMMAND)["differences"]
    assert [one["key"] for one in change["gained"]] == ["p00", "p01", "p02", "p03", "p04"]
    assert [one["key"] for one in change["lost"]] == ["p10", "p11", "p12", "p13", "p14"]
    first = change["gained"][0]
    assert first["before"] == 0
    assert first["now"] == first["change"] == 1
    text = " ".join(ran(COMMAND).out.split())
    shrunken = f"{first['shrunken']:+.2f}"
    assert "changed most now.csv: 10 better and 10 worse beyond chance, of 40 prompts" in text
    assert "#1 p00 0/8 8/8 +100 54 to 100 < 0.001 better #2 p01" in text
    assert "#11 p10 8/8 0/8 -100 -100 to -54 < 0.001 worse --sort change --format csv has all" in text
    assert text.index("changed most") < text.index("verdict")
    look = grpo_cli.inspect("now.csv", against={"before": "before.csv"})
    assert look.runs["differences"][0]["gained"] == change["gained"]
    ran("report now.csv --against before.csv -o a.html")
    page = Path("a.html").read_text(encoding="utf-8")
    assert f"now.csv gained most on p00 ({shrunken}), " in page
    assert "now.csv lost most on p10 (-" in page


def test_warnings_on_reading_are_those_of_all_runs() -> None:
    for name in ("now.csv", "before.csv"):
        Path(name).write_text("prompt_id,a,b\na,0,1\na,1,\nb,0,1\nb,1,1\n")
    now, before = facts_of(f"{COMMAND} -r a -r b")["warnings"]
    assert now.startswith("rows with only some of the rewards: 1")
    assert before == f"before.csv: {now}"
