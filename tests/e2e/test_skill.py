"""The skill for coding agents is true: the commands of the skill run, and the list of pages for agents is whole."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.command import adv, in_time, ran
from tests.support.documents import DOCS
from tests.support.jobs import samples_in

SKILL = adv("skill").out
TARGET = Path("skills/grpo-adv/SKILL.md")


def test_the_commands_of_the_skill_run_one_after_the_other(place: Path) -> None:
    samples_in(place)
    blocks = re.findall(r"```sh\n(.*?)```", SKILL, re.DOTALL)
    commands = "".join(blocks).splitlines()
    assert len(commands) > 12
    for command in commands:
        done = adv(command.removeprefix("grpo-adv "))
        assert done.status == 0, (command, done.err)


@pytest.mark.parametrize("command", re.findall(r"`grpo-adv ([^`]+)`", SKILL))
def test_commands_inside_of_its_sentences_are_commands(command: str, place: Path) -> None:
    samples_in(place)
    ran(re.sub(r"\bCOMMAND\b", "compute", command))


TASKS = """
inspect rewards.jsonl --where 'std == 0' --json
inspect rewards.jsonl --show add-17-25 --json
compute rewards.jsonl --method rloo -o out.jsonl
compute steps.jsonl --group-within step -o out.jsonl
compute texts.jsonl --map pass=1,fail=0 --method dr-grpo -o out.jsonl
audit logged.jsonl --json
select rewards.jsonl --where '0.1 <= mean <= 0.9' -o out.jsonl
export chats.jsonl --to pairs -o out.jsonl
export rewards.jsonl --to prompts --prompt prompt_id --pass-at 1,4 -o out.jsonl
inspect rewards.jsonl --json --fail-on 'zero_variance_share > 0.2'
"""


@pytest.mark.parametrize("task", TASKS.strip().splitlines())
def test_the_skill_alone_names_what_solves_ten_tasks(task: str) -> None:
    assert f"grpo-adv {task.partition(' ')[0]}" in SKILL
    assert {*re.findall(r"(?<= )--?[a-z-]+", task)} <= {*re.findall(r"--[a-z-]+", SKILL), "-o"}


def test_it_is_a_skill_with_a_name_and_a_description_that_fit() -> None:
    head = re.match(r"---\nname: ([a-z-]+)\ndescription: (.+)\n---\n", SKILL)
    assert head
    assert head[1] == "grpo-adv"
    assert len(head[2]) <= 1024


def test_it_is_installed_in_the_given_folder_and_not_over_another() -> None:
    done = adv("skill --install skills")
    assert done.status == 0
    assert done.out == "skills/grpo-adv/SKILL.md\n"
    assert TARGET.read_text() == SKILL
    TARGET.write_text("mine")
    again = adv("skill --install skills")
    assert again.status == 2
    assert TARGET.read_text() == "mine"
    assert again.err == "error: skills/grpo-adv/SKILL.md: exists; add --force to replace it; choose another folder\n"
    ran("skill --install skills --force")
    assert TARGET.read_text() == SKILL


@pytest.mark.parametrize("name", ["grpo-adv", "grpo-adv/SKILL.md"])
@pytest.mark.parametrize("more", ["", "--force"])
@pytest.mark.parametrize("there", [True, False], ids=["", "dangling"])
def test_it_is_not_installed_through_a_link_inside_of_the_folder(
    name: str, more: str, place: Path, *, there: bool
) -> None:
    link = place / "skills" / name
    other = place / "other"
    link.parent.mkdir(parents=True)
    link.symlink_to(other)
    if there:
        other.mkdir() if name == "grpo-adv" else other.write_text("mine")
    before = [*place.rglob("*")]
    done = adv(f"skill --install skills {more}")
    assert done.status == 2
    assert done.out == ""
    assert [*place.rglob("*")] == before
    assert done.err == f"error: skills/{name}: is a link; remove it; choose another folder\n"
    assert not other.is_file() or other.read_text() == "mine"


def test_the_folder_of_skills_may_be_a_link() -> None:
    Path("dotfiles").mkdir()
    Path("skills").symlink_to("dotfiles")
    ran("skill --install skills")
    assert Path("dotfiles/grpo-adv/SKILL.md").read_text() == SKILL


@pytest.mark.parametrize("more", ["", "--force"])
def test_a_pipe_in_its_place_is_not_waited_for(more: str) -> None:
    TARGET.parent.mkdir(parents=True)
    os.mkfifo(TARGET)
    with in_time(60):
        done = adv(f"skill --install skills {more}")
    assert done.status == 2
    assert "skills/grpo-adv/SKILL.md: is not a file; remove it; choose another folder" in done.err


def test_the_list_for_agents_names_every_page_for_users() -> None:
    listed = {*re.findall(r"\(([a-z-]+)[.]html\)", (DOCS / "llms.txt").read_text(encoding="utf-8"))}
    # For those who change it.
    inner = {"index", "adding", "architecture", "engine", "json-lines", "parquet", "audit-internals"}
    assert listed == {page.stem for page in DOCS.glob("*.md")} - inner
