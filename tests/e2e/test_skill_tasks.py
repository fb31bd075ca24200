"""Ten tasks that the skill alone is enough for: a command of it, and the answer for the sample data, worked out by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.command import adv, ran
from tests.support.jobs import samples_in

SKILL = adv("skill").out
# What is printed, where ... stands for anything.
TASKS = {
    # which groups have equal rewards
    "inspect rewards.jsonl --where 'std == 0'": "3, group size 1 to 5, median 4, 1 singleton\n...#1  multiply-6-7 ...#2  fibonacci-50 ",
    # how hard is one prompt: five of eight
    "inspect rewards.jsonl --show add-17-25": "scored 8  mean 0.625 ...  1       1     0.7246 ...  8       0    -1.2076 ",
    # leave-one-out advantages: 1 - 4/7 and -5/7
    "compute rewards.jsonl --method rloo -o -": '"advantage":0.42857142857142855}\n..."advantage":-0.7142857142857143}\n',
    # advantages where prompts come back in every step, one of four: 0.75 and -0.25 by a std of 0.5
    "compute steps.jsonl --group-within step -o -": '"advantage":1.499997000006}\n..."advantage":-0.499999000002}\n',
    # texts as rewards
    "compute texts.csv --map pass=1,fail=0 --method dr-grpo -o -": "fail,-0.5\n1,pass,0.5\n1,pass,0.5\n1,fail,-0.5\n",
    # which formula made these advantages
    "audit scored.jsonl": "matches --method rloo: max abs difference 0 over 46 rows\n",
    # rows of prompts that are neither too easy nor too hard
    "select rewards.jsonl --where '0.1 <= mean <= 0.9' -o out.jsonl": "36 of 46 kept...fibonacci-50\n...multiply-6-7; hex-255\n",
    # pairs for DPO
    "export chats.jsonl --to pairs -o -": (
        'd_reward":0.0,"m...d_reward":0.0,"m...d_reward":0.5,"m...d_reward":0.0,"m...d_reward":0.1667,"m...d_reward":0.0,"m...d_reward":0.0,"m'
        "...7 records for pairs"
    ),
    # solve rates at one and four draws: five of eight, two of six, two of three
    "export rewards.jsonl --to prompts --prompt prompt_id --pass-at 1,4 -o -": (
        '"pass@1":0.625,"pass@4":1.0}..."pass@1":0.33333333333333337,"pass@4":0.9333333333333333}..."pass@1":0.6666666666666667,"pass@4":null}'
    ),
    # a gate for too many groups without a gradient
    "inspect rewards.jsonl --fail-on 'zero_variance_share > 0.2'": "1 always solved, 1 never solved",
}  # fmt: skip


@pytest.mark.parametrize("line", TASKS)
def test_a_task_is_solved_with_a_command_and_options_of_the_skill(line: str, place: Path) -> None:
    samples_in(place)
    Path("texts.csv").write_text("task_id,reward\n1,fail\n1,pass\n1,pass\n1,fail\n")
    ran("compute rewards.jsonl --method rloo -o scored.jsonl")
    done = adv(line)
    assert done.status == (3 if "--fail-on" in line else 0), done.err
    said = done.out + done.err
    for answer in TASKS[line].split("..."):
        _, found, said = said.partition(answer)
        assert found, answer
    assert f"grpo-adv {line.partition(' ')[0]}" in SKILL
    named = {*re.findall(r"--[a-z-]+", SKILL)}
    assert {*re.findall(r"--[a-z-]+", line)} <= named
