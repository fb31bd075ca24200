"""What a coding agent is told is true: the commands of the skill run, and the list of pages for agents is whole."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.support.command import adv
from tests.support.documents import DOCS
from tests.support.samples import samples_in

SKILL = adv("skill").out
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", SKILL, re.DOTALL) for line in block.splitlines()]


def test_the_commands_of_the_skill_run_one_after_the_other(tmp_path: Path) -> None:
    samples_in(tmp_path)
    assert len(COMMANDS) > 12
    for command in COMMANDS:
        program, *words = shlex.split(command)
        done = adv(*words, cwd=tmp_path)
        assert (program, done.status) == ("grpo-adv", 0), (command, done.err)


@pytest.mark.parametrize("command", re.findall(r"`(grpo-adv [^`]+)`", SKILL))
def test_commands_inside_of_its_sentences_are_commands(command: str, tmp_path: Path) -> None:
    samples_in(tmp_path)
    words = ["compute" if word == "COMMAND" else word for word in shlex.split(command)[1:]]
    assert adv(*words, cwd=tmp_path).status == 0


TASKS = {
    "groups of equal rewards": "inspect rewards.jsonl --where 'std == 0' --json",
    "how hard one prompt is": "inspect rewards.jsonl --show add-17-25 --json",
    "advantages by a method": "compute rewards.jsonl --method rloo -o scored.jsonl",
    "prompts that come back in every step": "compute steps.jsonl --group-within step -o scored.jsonl",
    "texts as rewards": "compute chats.jsonl --map pass=1,fail=0 --method dr-grpo -o scored.jsonl",
    "the formula behind logged advantages": "audit logged.jsonl --json",
    "prompts neither too easy nor too hard": "select rewards.jsonl --where '0.1 <= mean <= 0.9' -o alive.jsonl",
    "pairs for DPO": "export chats.jsonl --to pairs -o pairs.jsonl",
    "solve rates of several draws": "export rewards.jsonl --to prompts --prompt prompt_id --pass-at 1,4 -o prompts.jsonl",
    "a gate": "inspect rewards.jsonl --quiet --fail-on 'zero_variance_share > 0.2'",
}


@pytest.mark.parametrize("task", TASKS)
def test_a_task_needs_no_command_or_option_that_the_skill_does_not_name(task: str, tmp_path: Path) -> None:
    samples_in(tmp_path)
    assert adv("compute", "rewards.jsonl", "-o", "logged.jsonl", cwd=tmp_path).status == 0
    name, *words = shlex.split(TASKS[task])
    assert f"grpo-adv {name}" in SKILL
    assert {word for word in words if word.startswith("-")} <= {*re.findall(r"--[a-z-]+", SKILL), "-o"}
    assert adv(name, *words, cwd=tmp_path).status == (3 if "--fail-on" in words else 0)


def test_it_is_a_skill_with_a_name_and_a_description_that_fit() -> None:
    head = re.match(r"---\nname: ([a-z-]+)\ndescription: (.+)\n---\n", SKILL)
    assert head
    assert head[1] == "grpo-adv" and len(head[2]) <= 1024


def test_it_is_installed_where_it_is_asked_for_and_not_over_another(tmp_path: Path) -> None:
    done = adv("skill", "--install", "skills", cwd=tmp_path)
    target = tmp_path / "skills" / "grpo-adv" / "SKILL.md"
    assert (done.status, done.out, target.read_text()) == (0, "skills/grpo-adv/SKILL.md\n", SKILL)
    target.write_text("mine")
    again = adv("skill", "--install", "skills", cwd=tmp_path)
    assert (again.status, target.read_text()) == (2, "mine")
    assert again.err == "error: skills/grpo-adv/SKILL.md: exists; add --force to replace it, or choose another folder\n"
    assert adv("skill", "--install", "skills", "--force", cwd=tmp_path).status == 0
    assert target.read_text() == SKILL


def test_the_list_for_agents_names_every_page_for_users() -> None:
    listed = {*re.findall(r"\(([a-z-]+)[.]html\)", (DOCS / "llms.txt").read_text(encoding="utf-8"))}
    inner = {"index", "adding", "architecture", "engine", "json-lines", "parquet"}  # for those who change it
    assert listed == {page.stem for page in DOCS.glob("*.md")} - inner
