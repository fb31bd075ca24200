"""`inspect --against`: two runs on the same prompts, against loops over plain lists."""

from __future__ import annotations

import json
import random
from collections import Counter
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest

from grpo_cli.errors import DataError
from grpo_cli.stats.against import against
from tests.support.command import adv
from tests.support.jobs import inspected, write

if TYPE_CHECKING:
    from pathlib import Path

NOW = {"a": [1, 1, 0, 1], "b": [0, 0], "c": [1, 0], "d": [1, 1], "e": [0, 1], "new": [1]}
BEFORE = {"a": [0, 0, 0, 1], "b": [1, 0], "c": [0, 0], "d": [1, 1], "e": [1, 0, 0, 1], "old": [0]}


def runs(folder: Path, now: dict[str, list[Any]], before: dict[str, list[Any]], key: str = "prompt_id") -> list[Path]:
    return [
        write(
            folder / f"{name}.jsonl", [{key: k, "reward": r, "step": 1} for k, rewards in one.items() for r in rewards]
        )
        for name, one in (("now", now), ("before", before))
    ]


def changed(folder: Path, now: dict[str, list[Any]], before: dict[str, list[Any]], **options: Any) -> dict[str, Any]:
    first, second = (inspected(path, **options) for path in runs(folder, now, before))
    return against(first, second)


def test_prompts_are_compared_one_by_one(tmp_path: Path) -> None:
    found = changed(tmp_path, NOW, BEFORE)
    both = [name for name in NOW if name in BEFORE]
    rates = {name: (fmean(NOW[name]), fmean(BEFORE[name])) for name in both}
    changes = {name: now - before for name, (now, before) in rates.items()}
    assert found["prompts"] == len(both)
    assert found["only_now"] == {"prompts": 1, "keys": ["new"]} and found["only_before"]["keys"] == ["old"]
    assert found["rows"] == {"now": 12, "before": 14}
    assert found["solve_rate"]["now"] == pytest.approx(fmean(now for now, _ in rates.values()))
    assert found["solve_rate"]["change"] == pytest.approx(fmean(changes.values()))
    assert (found["better"], found["worse"], found["same"]) == (2, 1, 2)
    assert (found["solved_first"], found["solved_no_more"]) == (1, 1)
    assert found["flips"] == {"up": 2, "down": 1}
    counted = Counter(
        (round(change, 9), "better" if change > 0 else "worse" if change else "same") for change in changes.values()
    )
    assert {(round(one["value"], 9), one["kind"]): one["count"] for one in found["changes"]} == counted
    assert [one["key"] for one in found["gained"]] == ["a", "c"] and [one["key"] for one in found["lost"]] == ["b"]
    bands = {one["difficulty"]: (one["prompts"], one["change"]) for one in found["by_difficulty"]}
    assert bands == {
        "never": (1, pytest.approx(changes["c"])),
        "medium": (3, pytest.approx(fmean(changes[name] for name in "abe"))),
        "always": (1, 0),
    }


def test_the_interval_is_that_of_means_of_drawn_prompts(tmp_path: Path) -> None:
    draw = random.Random(3)  # noqa: S311 - rewards, not secrets
    names = [f"p{k}" for k in range(60)]
    now = {name: [draw.random() < 0.6 for _ in range(4)] for name in names}
    before = {name: [draw.random() < 0.4 for _ in range(4)] for name in names}
    found = changed(tmp_path, now, before)["solve_rate"]
    changes = [fmean(now[name]) - fmean(before[name]) for name in names]
    means = sorted(fmean(draw.choices(changes, k=len(changes))) for _ in range(4000))
    assert found["low"] == pytest.approx(means[100], abs=0.015) and found["high"] == pytest.approx(
        means[3900], abs=0.015
    )
    assert found["low"] < found["change"] < found["high"]
    assert changed(tmp_path, now, before)["solve_rate"] == found  # the same draws each time


def test_rewards_beyond_0_to_1_are_rated_between_the_ends_of_both_runs(tmp_path: Path) -> None:
    found = changed(tmp_path, {"a": [3.0, 5.0]}, {"a": [-1.0, 1.0]})
    assert (found["worst"], found["best"]) == (-1.0, 5.0)
    assert found["solve_rate"]["change"] == pytest.approx(4 / 6)


def test_groups_of_several_steps_are_one_prompt(tmp_path: Path) -> None:
    rows = [{"prompt_id": k, "step": step, "reward": r} for step in (1, 2) for k in "ab" for r in (0, step - 1)]
    path = write(tmp_path / "steps.jsonl", rows)
    one = inspected(path, group=["prompt_id", "step"])
    found = against(one, one)
    assert found["key"] == ["prompt_id"] and found["prompts"] == 2
    assert found["solve_rate"] == {"now": 0.25, "before": 0.25, "change": 0, "low": 0, "high": 0, "level": 0.95, "draws": 2000}  # fmt: skip


def test_rounding_in_a_mean_changes_no_prompt(tmp_path: Path) -> None:
    rewards = [1.0] + [0.0] * 48
    rows = [{"prompt_id": "a", "step": step, "reward": r} for step in (1, 2, 3) for r in rewards]
    pooled = inspected(write(tmp_path / "steps.jsonl", rows), group=["prompt_id", "step"])
    once = inspected(write(tmp_path / "once.jsonl", [{"prompt_id": "a", "reward": r} for r in rewards]))
    assert against(pooled, once)["same"] == against(once, pooled)["same"] == 1


@pytest.mark.parametrize(
    ("now", "before", "message"),
    [
        ({"a": [0, 1]}, {"b": [0, 1]}, "no prompt is in both runs .prompt_id is a and b."),
        ({"a": [0, 0]}, {"a": [0, 0]}, None),
        ({"a": [7, 7]}, {"a": [7, 7]}, "both runs have one reward throughout"),
    ],
)
def test_runs_that_cannot_be_compared_say_why(now: Any, before: Any, message: str | None, tmp_path: Path) -> None:
    if message is None:
        assert changed(tmp_path, now, before)["solve_rate"]["change"] == 0
        return
    with pytest.raises(DataError, match=message):
        changed(tmp_path, now, before)


def test_other_keys_are_a_question(tmp_path: Path) -> None:
    first, second = (runs(tmp_path / key, NOW, NOW, key)[0] for key in ("uid", "task_id"))
    with pytest.raises(DataError, match=r"no key in common .uid and task_id.; name the prompt with --group"):
        against(inspected(first), inspected(second))


def test_a_prompt_that_both_have_is_offered_as_the_key(tmp_path: Path) -> None:
    runs = [
        inspected(write(tmp_path / f"{key}.jsonl", [{key: 1, "prompt": "what?", "reward": r} for r in (0, 1)]))
        for key in ("uid", "task_id")
    ]
    with pytest.raises(DataError, match=r"\(uid and task_id\); --group prompt takes the prompt, which both have"):
        against(*runs)


def test_an_error_of_the_run_before_says_so(tmp_path: Path) -> None:
    runs(tmp_path, NOW, BEFORE)
    write(tmp_path / "other.jsonl", [{"prompt_id": "a", "result": "pass"}])
    other = adv("inspect", "now.jsonl", "--against", "other.jsonl", cwd=tmp_path)
    assert other.status == 1 and "--against other.jsonl: no column looks like the reward" in other.err
    twice = adv("inspect", "-", "--against", "-", cwd=tmp_path)
    assert twice.status == 2 and "both runs are standard input" in twice.err


def test_the_command_shows_the_change_and_gives_it_as_json(tmp_path: Path) -> None:
    runs(tmp_path, NOW, BEFORE)
    text = adv("inspect", "now.jsonl", "--against", "before.jsonl", cwd=tmp_path).out
    assert "0.45 to 0.55: +0.1000" in text and "2 better, 1 worse, 2 the same" in text
    assert "only now 1: new" in text and "The interval holds 0" in text
    found = json.loads(adv("inspect", "now.jsonl", "--against", "before.jsonl", "--json", cwd=tmp_path).out)
    assert found["inputs"] == ["now.jsonl"] and found["against"] == ["before.jsonl"] and found["prompts"] == 5
    refused = adv("inspect", "now.jsonl", "--against", "before.jsonl", "--format", "csv", cwd=tmp_path)
    assert refused.status == 2 and "--against and --format are two views" in refused.err
