"""`inspect --against`: two runs on the same prompts, against loops over plain lists."""

from __future__ import annotations

import json
import random
from collections import Counter
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
from tests.support.command import adv
from tests.support.jobs import inspected, write

NOW = {"a": [1, 1, 0, 1], "b": [0, 0], "c": [1, 0], "d": [1, 1], "e": [0, 1], "new": [1]}
BEFORE = {"a": [0, 0, 0, 1], "b": [1, 0], "c": [0, 0], "d": [1, 1], "e": [1, 0, 0, 1], "old": [0]}


def runs(folder: Path, now: dict[str, list[Any]], before: dict[str, list[Any]], key: str = "prompt_id") -> list[Path]:
    rows = [[{key: k, "reward": r, "step": 1} for k, rewards in run.items() for r in rewards] for run in (now, before)]
    return [write(folder / f"{name}.jsonl", of_run) for name, of_run in zip(("now", "before"), rows, strict=True)]


def against(now: Inspection, before: Inspection) -> dict[str, Any]:
    """What is said of two runs, and of the change from one to the other."""
    found = document(compared({"before": before, "now": now}))
    return {**found, **found["differences"][0]}


def changed(folder: Path, now: dict[str, list[Any]], before: dict[str, list[Any]], **options: Any) -> dict[str, Any]:
    first, second = (inspected(path, **options) for path in runs(folder, now, before))
    return against(first, second)


def test_prompts_are_compared_one_by_one(tmp_path: Path) -> None:
    found = changed(tmp_path, NOW, BEFORE)
    assert found["prompts"] == 5
    assert found["only_here"] == 1
    assert found["only_base"] == 1
    # The rates of a to e: now 0.75, 0, 0.5, 1, 0.5; before 0.25, 0.5, 0, 1, 0.5.
    assert found["change"]["mean"] == pytest.approx(0.1)
    assert found["better"] == 2
    assert found["worse"] == 1
    assert found["same"] == 2
    assert found["gained"] == found["lost"] == []


def test_prompts_with_equal_changes_have_no_interval_of_width_0(tmp_path: Path) -> None:
    half = [1, 1, 0, 0]
    most = [1, 1, 1, 0]
    for now, change in ((most, 0.25), (half, 0)):
        seen = changed(tmp_path, dict.fromkeys("abcd", now), dict.fromkeys("abcd", half))["change"]
        assert seen["mean"] == change
        assert seen["low"] < change < seen["high"]


def test_one_prompt_has_no_interval(tmp_path: Path) -> None:
    runs(tmp_path, {"a": [1, 1]}, {"a": [0, 1]})
    done = adv("inspect now.jsonl --against before.jsonl", cwd=tmp_path)
    assert "now.jsonl shows no clear difference from before.jsonl on 1 prompts: +50.0 points." in " ".join(
        done.out.split()
    )
    found = json.loads(adv("inspect now.jsonl --against before.jsonl --json", cwd=tmp_path).out)
    assert found["differences"][0]["change"] == {"mean": 0.5, "low": None, "high": None}


@pytest.mark.parametrize("rewards", [[0, 0, 1, 1, 1, 0], [0, 0.5, 1, 1, 0.25, 0]], ids=["two", "graded"])
def test_counts_by_chance_are_those_of_all_ways_to_deal_the_rows(rewards: list[float], tmp_path: Path) -> None:
    """Of two prompts, each with two rows now and four before."""
    found = changed(tmp_path, dict.fromkeys("ab", rewards[:2]), dict.fromkeys("ab", rewards[2:]))
    wanted = Counter[str]()
    ways = [*permutations(rewards)]
    for way in ways:
        now = fmean(way[:2])
        before = fmean(way[2:])
        wanted.update(better=now > before, worse=now < before)
    for name, count in wanted.items():
        assert found[f"{name}_by_chance"] == pytest.approx(2 * count / len(ways), abs=0.15), name


def test_prompts_that_changed_by_more_than_chance_are_listed_with_the_change_without_noise(tmp_path: Path) -> None:
    """Six prompts of forty are solved now; a change seen in few rows is shrunk more."""
    draw = random.Random(5)  # noqa: S311 - rewards, not secrets
    sizes = {f"p{k:02}": 4 if k % 2 else 24 for k in range(40)}
    before = {k: [int(draw.random() < (0.1 if k < "p06" else 0.5)) for _ in range(n)] for k, n in sizes.items()}
    now = {k: [int(draw.random() < (0.9 if k < "p06" else 0.5)) for _ in range(n)] for k, n in sizes.items()}
    found = changed(tmp_path, now, before)
    assert {one["key"] for one in found["gained"]} <= {f"p{k:02}" for k in range(6)}
    assert found["gained"][0]["key"] in {"p00", "p02", "p04"}
    shares = {one["key"]: one["shrunken"] / one["change"] for one in found["gained"]}
    assert all(0 < share < 1 for share in shares.values())
    large, small = ([share for k, share in shares.items() if sizes[k] == size] for size in (24, 4))
    assert min(large) > max(small, default=0)


def test_rewards_outside_0_to_1_are_scaled_by_the_extremes_of_both_runs(tmp_path: Path) -> None:
    found = changed(tmp_path, {"a": [3.0, 5.0]}, {"a": [-1.0, 1.0]})
    assert found["worst"] == -1.0
    assert found["best"] == 5.0
    assert found["change"]["mean"] == pytest.approx(4 / 6)
    shown = adv("inspect now.jsonl --against before.jsonl", cwd=tmp_path).out
    assert "scaled from -1 (0) to 5 (1)" in shown


def test_groups_of_several_steps_are_one_prompt(tmp_path: Path) -> None:
    rows = [{"prompt_id": k, "step": step, "reward": r} for step in (1, 2) for k in "ab" for r in (0, step - 1)]
    path = write(tmp_path / "steps.jsonl", rows)
    one = inspected(path, group=["prompt_id", "step"])
    found = against(one, one)
    assert found["key"] == ["prompt_id"]
    assert found["prompts"] == 2
    assert [run["solve_rate"]["mean"] for run in found["runs"]] == [0.25, 0.25]
    assert found["change"] == {"mean": 0, "low": -1, "high": 1}


def test_rounding_in_a_mean_changes_no_prompt(tmp_path: Path) -> None:
    rewards = [1.0] + [0.0] * 48
    rows = [{"prompt_id": "a", "step": step, "reward": r} for step in (1, 2, 3) for r in rewards]
    pooled = inspected(write(tmp_path / "steps.jsonl", rows), group=["prompt_id", "step"])
    once = inspected(write(tmp_path / "once.jsonl", [{"prompt_id": "a", "reward": r} for r in rewards]))
    assert against(pooled, once)["same"] == against(once, pooled)["same"] == 1


@pytest.mark.parametrize(
    ("now", "before", "message"),
    [
        ({"a": [0, 1]}, {"b": [0, 1]}, "no prompt is in both runs .matched by prompt_id."),
        ({"a": [None]}, {"a": [0, 1]}, "no row of this run has a finite reward"),
        ({"a": [0, 1]}, {"a": [None]}, "no row of the other run has a finite reward"),
        ({"a": [7, 7]}, {"a": [7, 7]}, "all rewards of the runs are equal"),
    ],
)
def test_runs_that_cannot_be_compared_say_why(now: Any, before: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        changed(tmp_path, now, before)


def test_runs_in_which_every_reward_is_0_are_compared(tmp_path: Path) -> None:
    assert changed(tmp_path, {"a": [0, 0]}, {"a": [0, 0]})["change"]["mean"] == 0


def test_runs_with_different_keys_are_refused(tmp_path: Path) -> None:
    first, second = (runs(tmp_path / key, NOW, NOW, key)[0] for key in ("uid", "task_id"))
    with pytest.raises(DataError, match="different group keys; name the prompt with --group"):
        against(inspected(first), inspected(second))


def test_an_error_of_the_run_before_says_so(tmp_path: Path) -> None:
    runs(tmp_path, NOW, BEFORE)
    write(tmp_path / "other.jsonl", [{"prompt_id": "a", "result": "pass"}])
    other = adv("inspect now.jsonl --against other.jsonl", cwd=tmp_path)
    assert other.status == 1
    assert "--against other.jsonl: no column looks like the reward" in other.err
    twice = adv("inspect - --against -", cwd=tmp_path)
    assert twice.status == 2
    assert "both runs are read from standard input" in twice.err


def test_a_column_of_the_key_in_which_it_is_unique_is_still_a_part_of_the_prompt(tmp_path: Path) -> None:
    for name, better in (("now", 1.0), ("before", 0.0)):
        rows = [
            {"env": env, "task": task, "reward": better if env == "math" else k % 2}
            for env in ("math", "code") for task in range(2) for k in range(2)
        ]  # fmt: skip
        write(tmp_path / f"{name}.jsonl", rows)
    options = {"group": "env,task", "group_within": "env"}
    facts = against(*(inspected(tmp_path / f"{name}.jsonl", **options) for name in ("now", "before")))
    assert facts["key"] == ["env", "task"]
    assert facts["prompts"] == 4
    assert facts["better"] == 2


def test_the_prompts_that_changed_most_are_shown_on_a_terminal_a_page_and_in_python(tmp_path: Path) -> None:
    """Ten of forty prompts are solved now and never before, ten the other way round."""
    first, second = (
        {f"p{k:02}": [solved if k < 10 else 1 - solved if k < 20 else k % 2] * 8 for k in range(40)}
        for solved in (1, 0)
    )
    paths = runs(tmp_path, first, second)
    found = json.loads(adv("inspect now.jsonl --against before.jsonl --json", cwd=tmp_path).out)
    (change,) = found["differences"]
    assert [one["key"] for one in change["gained"]] == [f"p{k:02}" for k in range(5)]
    assert [one["key"] for one in change["lost"]] == [f"p{k:02}" for k in range(10, 15)]
    assert [*zip(*((one["before"], one["now"], one["change"]) for one in change["gained"]), strict=True)] == [
        (0,) * 5, (1,) * 5, (1,) * 5,
    ]  # fmt: skip
    text = " ".join(adv("inspect now.jsonl --against before.jsonl", cwd=tmp_path).out.split())
    shrunken = change["gained"][0]["shrunken"]
    assert "gained most now.jsonl: the change without noise, of the change seen" in text
    assert f"{shrunken:+.2f} of +1.00 0 to 1 #1 p00" in text
    assert "of -1.00 1 to 0 #11 p10" in text
    assert text.index("gained most") < text.index("lost most") < text.index("verdict")
    look = grpo_cli.inspect(paths[0], against={"before": paths[1]})
    assert look.runs["differences"][0]["gained"] == change["gained"]
    assert adv("report now.jsonl --against before.jsonl -o a.html", cwd=tmp_path).status == 0
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert f"now.jsonl gained most on p00 ({shrunken:+.2f}), " in page
    assert "now.jsonl lost most on p10 (-" in page


def test_warnings_on_reading_are_those_of_all_runs(tmp_path: Path) -> None:
    rows = [{"prompt_id": k // 2, "a": k % 2, "b": None if k == at else 1} for at in (1, 2) for k in range(8)]
    write(tmp_path / "now.jsonl", rows[:8])
    write(tmp_path / "before.jsonl", rows[8:])
    found = json.loads(adv("inspect now.jsonl --against before.jsonl -r a -r b --json", cwd=tmp_path).out)
    now, before = found["warnings"]
    assert now.startswith("rows with only some of the rewards: 1")
    assert before == f"before.jsonl: {now}"
