"""First contact with a run of several steps: who looks sees the steps apart and is told so; all others stop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import grpo_cli
from grpo_cli.errors import DataError
from grpo_cli.guests.browse.model import Model, commands
from grpo_cli.options.given import Given
from grpo_cli.runs.inspect import Job
from tests.support.command import adv, facts_of, ran
from tests.support.schema_files import WRITERS

STOPS = "prompts recur in several steps: 3 group keys (p0, p1, p2) have rows in several values of 'step'"
FLAGS = "--group prompt_id,step makes a group of a prompt in each step, also if ids restart; --group-within input if step does not separate groups"
SAYS = "3 prompts recur in several steps (step), which are shown apart: a group is a prompt in one of them (compute takes --group prompt_id,step); --group-within input pools them"


def written(name: str, rows: list[dict[str, Any]]) -> str:
    Path(name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return name


def run(name: str = "run.jsonl", **more: Any) -> str:
    """3 prompts in 4 steps, 2 rollouts each; `more` are columns as functions of prompt, step and rollout."""
    rows = [
        {"prompt_id": f"p{at}", "step": step, "reward": (at + step + k) % 2}
        | {column: of(at, step, k) for column, of in more.items()}
        for step in range(4)
        for at in range(3)
        for k in range(2)
    ]
    return written(name, rows)


def first_lines(line: str) -> str:
    return " ".join(ran(line).out.split("\n\n")[0].split())


def test_inspect_shows_the_steps_apart_and_says_so_in_its_first_lines() -> None:
    run()
    assert first_lines("inspect run.jsonl") == f"steps {SAYS}"
    out = ran("inspect run.jsonl").out
    assert "groups         12, group size 2\n               by prompt_id, step\n" in out
    assert "warning" not in out
    with_flag = ran("inspect run.jsonl --group prompt_id,step").out
    assert out.split("\n\n", 1)[1] == with_flag.replace("-g prompt_id,step", "").replace(" --group prompt_id,step", "")


def test_the_report_and_browse_say_so_first() -> None:
    run()
    ran("report run.jsonl -o page.html")
    assert f'class="warnings"><li>warning: {SAYS}<' in Path("page.html").read_text(encoding="utf-8")
    given = Given(inputs=["run.jsonl"]).to_command("browse")
    model = Model.of(Job.of(given).apart)
    assert model.warnings[0] == SAYS
    assert len(model.inspection.groups) == 12
    # The commands that it shows and runs are those of other programs, which need the flag.
    lines = commands(model.as_shown(given), "select", where="mean > 0", sort="order", show=None)
    assert all("--group prompt_id,step" in line for line in lines)
    assert "--group" not in " ".join(commands(given, "select", where="mean > 0", sort="order", show=None))


@pytest.mark.parametrize(
    "words", ["--json", "--format csv", "--fail-on 'rows > 99'", "--against a=run.jsonl --pass-at 1"]
)
def test_for_programs_and_gates_inspect_stops(words: str) -> None:
    run()
    done = adv(f"inspect run.jsonl {words}")
    assert (done.status, done.out) == (1, "")
    assert done.err.split("error: ")[-1].strip().removeprefix("--against a: ") == f"{STOPS}; {FLAGS}"


@pytest.mark.parametrize(
    "line",
    [
        "compute run.jsonl -o a.jsonl", "select run.jsonl --where 'std > 0' -o a.jsonl", "export run.jsonl --to prompts --prompt prompt_id -o a.jsonl",
        "compare run.jsonl -m grpo -m rloo",
    ],
)  # fmt: skip
def test_every_other_command_stops(line: str) -> None:
    run()
    assert "have rows in several values of 'step'" in adv(line).err
    assert not Path("a.jsonl").exists()


def test_python_stops_as_json_does() -> None:
    run()
    with pytest.raises(DataError, match="prompts recur in several steps"):
        grpo_cli.inspect("run.jsonl")


def test_ids_that_restart_have_nothing_to_pool() -> None:
    run(prompt=lambda at, step, _: f"question {at} of step {step}: how much is {at * step}?")
    says = "3 ids restart in several steps (step), where they name other prompts: the steps are shown apart"
    assert first_lines("inspect run.jsonl") == f"steps {says}"
    assert (
        "--group prompt_id,step: ids restart, since one has several prompts" in adv("compute run.jsonl -o a.jsonl").err
    )


def test_several_files_are_never_shown_apart() -> None:
    for name in ("a.jsonl", "b.jsonl"):
        written(name, [{"prompt_id": f"p{at}", "reward": k} for at in range(3) for k in range(2)])
    assert "have rows in several files" in adv("inspect a.jsonl b.jsonl").err
    for name in ("a.jsonl", "b.jsonl"):  # steps in each, and the same steps in both
        run(name)
    assert "have rows in several files" in adv("inspect a.jsonl b.jsonl").err


def test_files_of_one_step_each_are_steps() -> None:
    for step in range(2):
        written(f"{step}.jsonl", [{"prompt_id": "p", "step": step, "reward": k} for k in range(2)])
    assert "a prompt recurs in several steps (step)" in first_lines("inspect 0.jsonl 1.jsonl")


def test_steps_that_restart_in_each_epoch_are_told_apart() -> None:
    run(epoch=lambda _, step, __: step // 2)
    rows = [
        json.loads(line) | {"step": json.loads(line)["step"] % 2} for line in Path("run.jsonl").read_text().splitlines()
    ]
    written("run.jsonl", rows)
    out = ran("inspect run.jsonl").out
    assert "groups         12, group size 2\n               by prompt_id, step, epoch\n" in out


@pytest.mark.parametrize(
    "rows",
    [
        [{"prompt_id": f"p{at}", "step": step, "reward": at} for at in range(3) for step in range(4)],
        [{"prompt_id": f"p{at}", "trajectory_id": f"{at}{k}", "step": step, "reward": k} for at in range(3) for k in range(2) for step in range(4)],
        [{"prompt_id": f"p{at}", "sample": k, "step": step, "reward": k} for at in range(3) for k in range(2) for step in range(4)],
        [{"prompt_id": f"p{at}", "sample": k, "step": step, "reward": step % 2} for at in range(3) for k in range(2) for step in range(3 + k + at)],
        [{"prompt_id": f"p{at}", "step": step or None, "reward": k} for at in range(3) for k in range(2) for step in range(4)],
        [{"prompt_id": f"p{at}", "round": step, "reward": k} for step in range(4) for at in range(3) for k in range(2)],
    ],
    ids=["single rows", "turns of rollouts", "turns of samples", "turns with rewards", "rows without a step", "rounds"],
)  # fmt: skip
def test_what_may_be_no_training_step_stops(rows: list[dict[str, Any]]) -> None:
    written("run.jsonl", rows)
    assert "have rows in several values of" in adv("inspect run.jsonl").err


def test_numbers_of_samples_that_start_again_in_each_step_are_no_rollouts() -> None:
    run(sample=lambda _, __, k: k)
    assert first_lines("inspect run.jsonl") == f"steps {SAYS}"


def test_only_the_rows_that_are_chosen_are_asked() -> None:
    run()
    assert "steps " not in ran("inspect run.jsonl --rows 'step == 3'").out
    assert "steps          3 prompts recur" in ran("inspect run.jsonl --rows 'step >= 2'").out


def test_a_flag_that_says_what_a_group_is_counts() -> None:
    run()
    assert facts_of("inspect run.jsonl --group-within input")["groups"] == 3
    for words in ("--group-within input", "--group prompt_id,step", "--group-within step", "--group-size 2"):
        assert "prompts recur" not in ran(f"inspect run.jsonl {words}").out


def test_runs_of_several_steps_are_compared_by_prompt() -> None:
    run()
    run("old.jsonl")
    out = ran("inspect run.jsonl --against old.jsonl", COLUMNS="200").out
    pooled = "3 prompts recur in several steps (step): a prompt has the rewards of all its steps here"
    assert out.splitlines()[:2] == [f"steps          {pooled}", f"               old.jsonl: {pooled}"]
    assert "matched by     prompt_id" in out
    ran("report run.jsonl --against old.jsonl -o page.html")


@pytest.mark.parametrize("schema", sorted(WRITERS))
def test_an_ordinary_file_of_every_layout_is_inspected_as_before(schema: str, tmp_path: Path) -> None:
    """What stopped may be shown apart; what did not stop has the groups that it had."""
    made = WRITERS[schema](tmp_path)
    words = [word for name, value in made.flags.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    facts = adv("inspect", str(made.path), *words, "--json")
    shown = adv("inspect", str(made.path), *words)
    assert shown.status <= facts.status
    if not facts.status:
        assert "prompts recur" not in shown.out + facts.out
        assert f"\ngroups         {json.loads(facts.out)['groups']:,}, group size" in shown.out
