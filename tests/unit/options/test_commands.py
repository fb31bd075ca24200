"""The table of commands: what a command names is there."""

from __future__ import annotations

import inspect

import pytest

from grpo_cli.options.commands import COMMANDS, Command
from grpo_cli.plugins import named

EACH = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)


@EACH
def test_a_command_has_a_body_or_a_job_and_what_shows_it(command: Command) -> None:
    assert bool(command.body) != bool(command.job)
    assert bool(command.job) == bool(command.shown_by)


@EACH
def test_what_a_command_names_takes_what_it_is_called_with(command: Command) -> None:
    if command.body:
        inspect.signature(named(command.body)).bind({})
        return
    inspect.signature(named(command.job).of).bind({})
    inspect.signature(named(command.shown_by)).bind("facts", "console")
    tasks = ["workers"] if "engine" in command.options else []
    inspect.signature(named(command.job.partition(":")[0] + ":run")).bind("job", "phase", *tasks)


@EACH
def test_a_guest_says_what_it_is_in_its_own_folder(command: Command) -> None:
    """What a guest names is in its folder; what the others name is not in one of a guest."""
    references = [name for name in (command.body, command.job, command.shown_by) if name]
    if f"grpo_cli.guests.{command.name}" in references[0]:
        assert all(name.startswith(f"grpo_cli.guests.{command.name}.") for name in references)
        assert named(f"grpo_cli.guests.{command.name}:COMMAND") is command
    else:
        assert not [name for name in references if "guests" in name]
