"""What options ask for: no option of a command is dropped on the way to its job."""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import suppress
from typing import Any, get_args, get_origin

import pytest

from grpo_cli.errors import GrpoError, UsageError
from grpo_cli.options.commands import COMMANDS
from grpo_cli.options.export_kinds import EXPORT_KINDS
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import _TRANSLATED as TRANSLATED
from grpo_cli.options.table import Option
from grpo_cli.plugins import named
from grpo_cli.runs.asked import OnFiles

# Of a command that does more than its job, the job.
JOBS = {
    "compute": "grpo_cli.runs.compute_files:Job",
    "inspect": "grpo_cli.runs.inspect:Job",
    "browse": "grpo_cli.runs.inspect:Job",
    "report": "grpo_cli.runs.inspect:Job",
    **{command.name: command.job for command in COMMANDS.values() if command.job},
}


def of_method(name: str) -> dict[str, Any]:
    """The options of a plan, or of the plans of `compare`, with this method."""
    return {"method": name, "contenders": [name, "rloo"]}


KL: dict[str, Any] = {"kl_from": "a,b", "kl_estimator": "k1", "kl_reduce": "sum", "kl_coef": 0.1}
DISTILL: dict[str, Any] = {"per_token": True, "distill": 1.0, "token_logprobs": "s", "teacher_logprobs": "t"}
# What a job cannot be made without.
NEEDED: dict[str, dict[str, Any]] = {
    "select": {"where": ["std > 0"]},
    "export": {"where": ["std > 0"]},
    "compare": {"contenders": ["grpo", "rloo"], "write": True},
}
# What an option has no effect without.
BESIDE: dict[str, dict[str, Any]] = {
    "partial": {"group_size": 2},
    "pick": {"per_group": 2},
    "batch_by": {"scale": "batch"},
    "logprob_column": of_method("unlikeliness"),
    "baseline_column": of_method("remax"),
    "reference_column": of_method("reference"),
    "kl_column": {"kl_coef": 0.1, "set": ["shape.kl.coef=0.1"]},
    "truncated_column": {"set": ["shape.truncated.factor=0.5"]},
    "state_column": of_method("gigpo"),
    "step_reward_column": of_method("gigpo"),
    "role_column": of_method("ema"),
    "input_length_column": of_method("length-penalty"),
    "turns_column": of_method("length-penalty"),
    "seed": {"limit": 2, "duplicate": True},
    "length_column": {"where": ["length > 1"], "whiten": "token"},
    "tokens": {"per_token": True},
    "prompt_tokens": {"per_token": True},
    "token_logprobs": DISTILL,
    "teacher_logprobs": DISTILL,
    "kl_from": KL,
    "take": {"on": ["id"]},
    "mask": KL | DISTILL,
    "kl_estimator": KL,
    "kl_reduce": KL,
}
# Not of the job: files of options, how it is shown, where it runs; and what a command does beside its job.
ELSEWHERE = {
    "": ["config", "no_config", "presets", "schemas", "json", "quiet", "color", "debug", "engine", "ray_address"],
    "compute": ["stream"],
    "inspect": ["show", "full", "format", "fail_on"],
    "browse": ["show", "prompt", "response", "messages"],
    "report": ["output"],
    "select": ["batch_by"],  # refused: it reads rewards
}


class Watched(Given):
    """Options that remember whose value was taken."""

    def __init__(self, given: Given, asked: set[str]) -> None:
        super().__init__(given)
        self._asked = asked

    def __getitem__(self, name: str) -> Any:
        self._asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._asked.add(name)
        return super().get(name, default)

    def among(self, names: Container[str]) -> Given:
        return Watched(super().among(names), self._asked)

    def without(self, names: Container[str]) -> Given:
        return Watched(super().without(names), self._asked)


def value_of(option: Option) -> Any:
    if get_origin(option.type) is list:
        return ["1"]
    choices = get_args(option.type)
    return choices[0] if choices else {bool: True, int: 2, float: 1.0}.get(option.type, "1")


@pytest.mark.parametrize("name", JOBS)
def test_the_job_of_a_command_takes_the_value_of_every_option(name: str) -> None:
    """A field has the value of the option of its name: one that is renamed alone would drop the option, and nobody would hear."""
    takes = COMMANDS[name].takes
    needed = {row.name: value_of(row) for row in takes.values() if row.required} | NEEDED.get(name, {})
    kinds = [{"to": kind} for kind in EXPORT_KINDS] if name == "export" else [{}]
    of_job = [row for row in takes.values() if not (row.sets or row.name in TRANSLATED)]  # the others make the plan
    forgotten = []
    for row in of_job:
        beside = {other: value for other, value in BESIDE.get(row.name, {}).items() if other in takes}
        given = [Given({**needed, **kind, **beside, row.name: value_of(row)}) for kind in kinds]
        if row.name not in taken(name, given):
            forgotten.append(row.name)
    assert {*forgotten} == {*ELSEWHERE[""], *ELSEWHERE.get(name, ())} & {*takes}


def taken(name: str, given: Sequence[Given]) -> set[str]:
    """The options whose value a job takes, of these lines."""
    names: set[str] = set()
    for each in given:
        with suppress(GrpoError):  # a value may be refused once it is taken
            named(JOBS[name]).of(Watched(each, names))
    return names


def test_one_of_two_runs_may_come_from_standard_input() -> None:
    assert OnFiles(inputs=["new.jsonl"], before=["-"]).earlier == {"-": "-"}
    assert OnFiles(inputs=["-"], before=["old=old.jsonl"]).earlier == {"old": "old.jsonl"}
    with pytest.raises(UsageError, match="both runs are read from standard input; only one of them can be"):
        _ = OnFiles(inputs=["-"], before=["-"]).earlier
