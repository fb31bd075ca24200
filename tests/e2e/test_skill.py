"""The skill for coding agents is true: the commands of the skill run, and the list of pages for agents is whole."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from tests.support.command import adv, in_time
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


def test_it_is_a_skill_with_a_name_and_a_description_that_fit() -> None:
    head = re.match(r"---\nname: ([a-z-]+)\ndescription: (.+)\n---\n", SKILL)
    assert head
    assert head[1] == "grpo-adv" and len(head[2]) <= 1024


def test_it_is_installed_in_the_given_folder_and_not_over_another(tmp_path: Path) -> None:
    done = adv("skill", "--install", "skills", cwd=tmp_path)
    target = tmp_path / "skills" / "grpo-adv" / "SKILL.md"
    assert (done.status, done.out, target.read_text()) == (0, "skills/grpo-adv/SKILL.md\n", SKILL)
    target.write_text("mine")
    again = adv("skill", "--install", "skills", cwd=tmp_path)
    assert (again.status, target.read_text()) == (2, "mine")
    assert again.err == "error: skills/grpo-adv/SKILL.md: exists; add --force to replace it, or choose another folder\n"
    assert adv("skill", "--install", "skills", "--force", cwd=tmp_path).status == 0
    assert target.read_text() == SKILL


@pytest.mark.parametrize("name", ["grpo-adv", "grpo-adv/SKILL.md"])
@pytest.mark.parametrize("more", [[], ["--force"]], ids=["", "force"])
@pytest.mark.parametrize("there", [True, False], ids=["", "dangling"])
def test_it_is_not_installed_through_a_link_inside_of_the_folder(
    name: str, more: list[str], tmp_path: Path, *, there: bool
) -> None:
    link, other = tmp_path / "skills" / name, tmp_path / "other"
    link.parent.mkdir(parents=True)
    link.symlink_to(other)
    if there and name == "grpo-adv":
        other.mkdir()
    elif there:
        other.write_text("mine")
    done = adv("skill", "--install", "skills", *more, cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert done.err == f"error: skills/{name}: is a link; remove it, or choose another folder\n"
    assert not other.exists() or other.is_dir() or other.read_text() == "mine"
    assert [path.name for path in other.iterdir()] == [] if other.is_dir() else other.exists() == there


def test_the_folder_of_skills_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "skills").symlink_to("dotfiles")
    assert adv("skill", "--install", "skills", cwd=tmp_path).status == 0
    assert (tmp_path / "dotfiles" / "grpo-adv" / "SKILL.md").read_text() == SKILL


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "skills" / "grpo-adv").mkdir(parents=True)
    os.mkfifo(tmp_path / "skills" / "grpo-adv" / "SKILL.md")
    for more in ([], ["--force"]):
        with in_time(60):
            done = adv("skill", "--install", "skills", *more, cwd=tmp_path)
        assert done.status == 2
        assert "skills/grpo-adv/SKILL.md: is not a file; remove it, or choose another folder" in done.err


def test_the_list_for_agents_names_every_page_for_users() -> None:
    listed = {*re.findall(r"\(([a-z-]+)[.]html\)", (DOCS / "llms.txt").read_text(encoding="utf-8"))}
    inner = {"index", "adding", "architecture", "engine", "json-lines", "parquet"}  # for those who change it
    assert listed == {page.stem for page in DOCS.glob("*.md")} - inner
