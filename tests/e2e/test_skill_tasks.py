"""Ten tasks that the skill alone is enough for: a command of it, and the answer for the sample data, worked out by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import adv
from tests.support.jobs import rows_of, write
from tests.support.samples import samples_in

SKILL = adv("skill").out


@pytest.fixture(autouse=True)
def _files(place: Path) -> None:
    samples_in(place)
    write("texts.jsonl", [{"task_id": 1, "reward": text} for text in ("fail", "pass", "pass", "fail")])
    logged = [{"prompt_id": k // 8, "reward": k * k % 11 / 10} for k in range(160)]
    means = [sum(row["reward"] for row in logged[at : at + 8]) / 8 for at in range(0, 160, 8)]
    write("logged.jsonl", [{**row, "advantage": row["reward"] - means[k // 8]} for k, row in enumerate(logged)])


TASKS: dict[str, tuple[str, Callable[[Any], Any], Any]] = {
    "which groups have equal rewards": (
        "inspect rewards.jsonl --where 'std == 0' --json",
        lambda facts: (facts["groups"], facts["singletons"], [one["key"] for one in facts["listed"]["most"]]),
        (3, 1, ["multiply-6-7", "fibonacci-50"]),
    ),
    "how hard is one prompt": (  # five of eight
        "inspect rewards.jsonl --show add-17-25 --json",
        lambda facts: (facts["show"]["size"], facts["show"]["mean"], len(facts["show"]["rows"])),
        (8, 0.625, 8),
    ),
    "leave-one-out advantages": (
        "compute rewards.jsonl --method rloo -o out.jsonl",
        lambda rows: [row["advantage"] for row in rows[:2]],
        pytest.approx([1 - 4 / 7, -5 / 7]),
    ),
    "advantages where prompts come back in every step": (  # one of four
        "compute steps.jsonl --group-within step -o out.jsonl",
        lambda rows: [row["advantage"] for row in rows[:2]],
        pytest.approx([0.75 / (0.5 + 1e-6), -0.25 / (0.5 + 1e-6)]),
    ),
    "texts as rewards": (
        "compute texts.jsonl --map pass=1,fail=0 --method dr-grpo -o out.jsonl",
        lambda rows: [row["advantage"] for row in rows],
        [-0.5, 0.5, 0.5, -0.5],
    ),
    "which formula made these advantages": (
        "audit logged.jsonl --json",
        lambda facts: [facts["match"][name] for name in ("verdict", "mismatched_rows", "factor")],
        ["match", 0, 1.0],
    ),
    "rows of prompts that are neither too easy nor too hard": (
        "select rewards.jsonl --where '0.1 <= mean <= 0.9' -o out.jsonl",
        lambda rows: (len(rows), {row["prompt_id"] for row in rows} & {"multiply-6-7", "fibonacci-50", "hex-255"}),
        (36, set()),
    ),
    "pairs for DPO": (
        "export chats.jsonl --to pairs -o out.jsonl",
        lambda rows: [(row["chosen_reward"], row["rejected_reward"]) for row in rows],
        [(1, 0), (1, 0), (1, 0.5), (1, 0), (1, 0.1667), (1, 0), (1, 0)],
    ),
    "solve rates at one and four draws": (  # five of eight, two of six, two of three
        "export rewards.jsonl --to prompts --prompt prompt_id --pass-at 1,4 -o out.jsonl",
        lambda rows: [(rows[at]["pass@1"], rows[at]["pass@4"]) for at in (0, 2, 9)],
        [(0.625, 1), (pytest.approx(1 / 3), pytest.approx(14 / 15)), (pytest.approx(2 / 3), None)],
    ),
    "a gate for too many groups without a gradient": (
        "inspect rewards.jsonl --json --fail-on 'zero_variance_share > 0.2'",
        lambda facts: facts["zero_variance"]["groups"],
        2,
    ),
}


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_solved_with_a_command_and_options_of_the_skill(task: str) -> None:
    line, answer, wanted = TASKS[task]
    done = adv(line)
    assert done.status == (3 if "--fail-on" in line else 0), done.err
    assert answer(json.loads(done.out) if "--json" in line else rows_of("out.jsonl")) == wanted
    assert f"grpo-adv {line.partition(' ')[0]}" in SKILL
    assert {*re.findall(r"(?<= )--?[a-z-]+", line)} <= {*re.findall(r"--[a-z-]+", SKILL), "-o"}
