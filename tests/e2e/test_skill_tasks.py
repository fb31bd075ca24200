"""Ten tasks that the skill alone is enough for: a command of it, and what plain Python says the answer is."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from tests.support.command import Done, adv
from tests.support.jobs import grouped, rows_of, write
from tests.support.samples import samples_in

SKILL = adv("skill").out
Row = dict[str, Any]


def groups(path: Path, *keys: str) -> dict[Any, list[Row]]:
    return grouped(rows_of(path), *keys)


def rewards(group: list[Row]) -> list[float]:
    return [row["reward"] for row in group]


def which_groups_have_equal_rewards(folder: Path, done: Done) -> None:
    by_prompt = groups(folder / "rewards.jsonl", "prompt_id")
    equal = {key: len(group) for (key,), group in by_prompt.items() if len({*rewards(group)}) == 1}
    facts = json.loads(done.out)
    assert (facts["groups"], facts["singletons"]) == (len(equal), [*equal.values()].count(1))
    listed = {group["key"] for group in (*facts["listed"]["most"], *facts["listed"]["least"])}
    assert listed == {key for key, size in equal.items() if size > 1} != set()


def how_hard_is_one_prompt(folder: Path, done: Done) -> None:
    group = groups(folder / "rewards.jsonl", "prompt_id")["add-17-25",]
    shown = json.loads(done.out)["show"]
    assert (shown["size"], len(shown["rows"])) == (len(group), len(group))
    assert shown["mean"] == pytest.approx(fmean(rewards(group)))
    assert shown["std"] == pytest.approx(stdev(rewards(group)))


def rloo_advantages(folder: Path, done: Done) -> None:
    for group in groups(folder / "scored.jsonl", "prompt_id").values():
        total, n = sum(rewards(group)), len(group)
        for row in group:
            expected = row["reward"] - (total - row["reward"]) / (n - 1) if n > 1 else 0.0
            assert row["advantage"] == pytest.approx(expected, abs=1e-12)


def advantages_where_prompts_come_back_in_every_step(folder: Path, done: Done) -> None:
    for group in groups(folder / "scored.jsonl", "step", "prompt_id").values():
        mean, std = fmean(rewards(group)), stdev(rewards(group))
        for row in group:
            assert row["advantage"] == pytest.approx((row["reward"] - mean) / (std + 1e-6), abs=1e-9)


def texts_as_rewards(folder: Path, done: Done) -> None:
    for group in groups(folder / "scored.jsonl", "task_id").values():
        values = [float(row["reward"] == "pass") for row in group]
        for row, value in zip(group, values, strict=True):
            assert row["advantage"] == pytest.approx(value - fmean(values))


def which_formula_made_these_advantages(folder: Path, done: Done) -> None:
    match = json.loads(done.out)["match"]  # the file was made by the test: r - mean
    assert (match["verdict"], match["mismatched_rows"]) == ("match", 0)
    assert match["plan"]["divisor"]["level"] == "none"
    assert match["plan"]["method"] in {"dr-grpo", "grpo"}


def rows_of_prompts_that_are_neither_too_easy_nor_too_hard(folder: Path, done: Done) -> None:
    source = (folder / "rewards.jsonl").read_text(encoding="utf-8").splitlines()
    by_prompt = groups(folder / "rewards.jsonl", "prompt_id")
    wanted = [line for line in source if 0.1 <= fmean(rewards(by_prompt[json.loads(line)["prompt_id"],])) <= 0.9]
    assert (folder / "alive.jsonl").read_text(encoding="utf-8").splitlines() == wanted
    assert 0 < len(wanted) < len(source)


def pairs_for_dpo(folder: Path, done: Done) -> None:
    varied = [group for group in groups(folder / "chats.jsonl", "prompt_id").values() if len({*rewards(group)}) > 1]
    made = sorted((pair["chosen_reward"], pair["rejected_reward"]) for pair in rows_of(folder / "pairs.jsonl"))
    assert made == sorted((max(rewards(group)), min(rewards(group))) for group in varied)


def solve_rates_at_one_and_four_draws(folder: Path, done: Done) -> None:
    made = {row["prompt"]: row for row in rows_of(folder / "prompts.jsonl")}
    for (prompt,), group in groups(folder / "rewards.jsonl", "prompt_id").items():
        n, solved = len(group), sum(reward == 1 for reward in rewards(group))
        for k in (1, 4):
            expected = None if n < k else 1 - math.comb(n - solved, k) / math.comb(n, k)
            assert made[prompt][f"pass@{k}"] == (None if expected is None else pytest.approx(expected))


def a_gate_for_too_many_groups_without_a_gradient(folder: Path, done: Done) -> None:
    two = [group for group in groups(folder / "rewards.jsonl", "prompt_id").values() if len(group) > 1]
    share = fmean(len({*rewards(group)}) == 1 for group in two)
    assert 0.2 < share <= 0.5
    assert (done.status, done.out) == (3, "")


TASKS: Mapping[Callable[[Path, Done], None], str] = {
    which_groups_have_equal_rewards: "grpo-adv inspect rewards.jsonl --where 'std == 0' --json",
    how_hard_is_one_prompt: "grpo-adv inspect rewards.jsonl --show add-17-25 --json",
    rloo_advantages: "grpo-adv compute rewards.jsonl --method rloo -o scored.jsonl",
    advantages_where_prompts_come_back_in_every_step: "grpo-adv compute steps.jsonl --group-within step -o scored.jsonl",
    texts_as_rewards: "grpo-adv compute texts.jsonl --map pass=1,fail=0 --method dr-grpo -o scored.jsonl",
    which_formula_made_these_advantages: "grpo-adv audit logged.jsonl --json",
    rows_of_prompts_that_are_neither_too_easy_nor_too_hard: "grpo-adv select rewards.jsonl --where '0.1 <= mean <= 0.9' -o alive.jsonl",
    pairs_for_dpo: "grpo-adv export chats.jsonl --to pairs -o pairs.jsonl",
    solve_rates_at_one_and_four_draws: "grpo-adv export rewards.jsonl --to prompts --prompt prompt_id --pass-at 1,4 -o prompts.jsonl",
    a_gate_for_too_many_groups_without_a_gradient: "grpo-adv inspect rewards.jsonl --quiet --fail-on 'zero_variance_share > 0.2'",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    samples_in(tmp_path)
    texts = [{"task_id": k // 4, "reward": "pass" if k % 3 else "fail"} for k in range(24)]
    logged = [{"prompt_id": k // 8, "reward": k * k % 11 / 10} for k in range(160)]
    for k, row in enumerate(logged):
        start = k // 8 * 8
        row["advantage"] = row["reward"] - fmean(one["reward"] for one in logged[start : start + 8])
    write(tmp_path / "texts.jsonl", texts)
    write(tmp_path / "logged.jsonl", logged)
    return tmp_path


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_a_task_is_solved_with_what_the_skill_says(task: Callable[[Path, Done], None], folder: Path) -> None:
    program, *words = shlex.split(TASKS[task])
    done = adv(*words, cwd=folder)
    assert program == "grpo-adv" and done.status in {0, 3}, done.err
    task(folder, done)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_the_skill_names_the_command_and_its_options(task: Callable[[Path, Done], None]) -> None:
    named = set(re.findall(r"--[a-z-]+", SKILL)) | {"-o"}
    assert f"grpo-adv {shlex.split(TASKS[task])[1]}" in SKILL
    assert {word for word in shlex.split(TASKS[task]) if re.fullmatch(r"--?[a-z-]+", word)} <= named
