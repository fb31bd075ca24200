"""Job folders of Harbor: a row for each finished trial, with its rewards, and its conversation from the trajectory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import grpo_cli
from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files import trials
from grpo_cli.formats import harbor as harbor_format
from grpo_cli.write.verify import verify
from tests.support import harbor
from tests.support.command import adv, facts_of
from tests.support.jobs import compute, look, refused, rows_of, selected
from tests.support.schema_files import WRITERS

RLOO = [1.0, -1.0, None, -1.0, None, 1.0]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return WRITERS["harbor"](tmp_path).path


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A job without trials."""
    return harbor.job(tmp_path / "job", 3)


def test_a_row_is_a_trial_and_the_output_is_a_table_of_its_own(job: Path) -> None:
    before = sorted(path.read_bytes() for path in job.rglob("*.json"))
    done = compute(job, method="rloo")
    assert done.facts["outputs"] == [f"{job}.advantages.jsonl"]
    rows = rows_of(f"{job}.advantages.jsonl")
    assert [row["advantage"] for row in rows] == RLOO
    first = Path(f"{job}.advantages.jsonl").read_text().partition("\n")[0]
    assert first.replace(harbor.NOW, "NOW") == (
        '{"task": "sort-list", "trial": "0-sort-list__Ab0", "eval": "terminus-2__gpt-5__terminal-bench",'
        ' "reward": 1.0, "valid": true, "exception": null, "agent": "terminus-2", "model": "gpt-5", "source": "terminal-bench",'
        ' "started_at": "NOW", "finished_at": "NOW", "n_input_tokens": 1200, "n_cache_tokens": 0, "n_output_tokens": 345,'
        ' "cost_usd": 0.01, "id": "id-0-sort-list__Ab0", "source_trial_id": null, "messages": ['
        '{"role": "user", "content": "Solve sort-list."},'
        ' {"role": "assistant", "content": "Let me look (0).", "reasoning_content": "Where is it?", "tool_calls": ['
        '{"id": "call_0", "type": "function", "function": {"name": "bash", "arguments": {"command": "ls -l"}}}]},'
        r' {"role": "tool", "tool_call_id": "call_0", "content": "drwxr-xr-x 2 root root 4096 README.md\n"},'
        ' {"role": "assistant", "content": "0"}],"advantage":1.0}'  # what came after it is left out
    )
    assert rows[2]["exception"] == "EnvironmentStartTimeoutError"
    assert rows[2]["reward"] is None
    assert sorted(path.read_bytes() for path in job.rglob("*.json")) == before
    assert verify(f"{job}.advantages.jsonl", job).added == ("advantage",)


def test_jobs_in_a_folder_are_inputs_of_their_own_and_a_trial_is_one_as_well(job: Path) -> None:
    WRITERS["harbor"](job.parent.parent / "more")
    (job.parent.parent / "more" / "jobs").rename(job.parent / "more")
    found = look(job.parent, group_within="file")
    assert found.facts["inputs"] == [str(job), str(job.parent / "more" / job.name)]
    assert found.facts["groups"] == 4
    assert "--group-within" in refused(job.parent)
    assert look(job / "0-sort-list__Ab0", singleton="zero").facts["rows"] == 1


@pytest.mark.parametrize("what", ["nothing yet", "a pipe"])
def test_a_result_that_is_no_file_is_no_row_and_is_named(job: Path, what: str) -> None:
    result = harbor.trial(job, "sort-list", "9-odd", None, finished=False) / "result.json"
    if what == "a pipe":
        os.mkfifo(result)
    facts = facts_of(f"inspect {job}")
    assert facts["rows"] == 6
    assert f"skipped 1 trial without a readable result.json: {job}/9-odd/" in facts["warnings"]


def test_trajectories_are_read_when_their_texts_are_asked_for(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harbor_format, "_CHEAP", 32)
    for at in range(100):
        steps = harbor.conversation(f"t{at // 4}", str(at))
        harbor.trial(top, f"t{at // 4}", f"{at:03}", {"reward": at % 2}, steps=steps)
    read = mock.Mock(wraps=harbor_format._atif)
    monkeypatch.setattr(harbor_format, "_atif", read)
    assert look(top).facts["rows"] == 100
    few = read.call_count
    assert few < 80  # a sample, to compare prompts
    compute(top)
    last = rows_of(f"{top}.advantages.jsonl")[99]
    assert len(last["messages"]) == 4
    assert read.call_count >= few + 100
    read.reset_mock()
    done = adv(f"export {top} --to sft --limit 5 -o -")
    assert [row["messages"][-1]["content"] for row in done.rows] == ["1", "5", "9", "13", "17"]
    assert read.call_count < 110  # a sample, and the groups that are left


def test_a_trial_that_is_gone_is_a_change_of_the_input(job: Path) -> None:
    inspection = grpo_cli.inspect(str(job), text_column="messages")
    (job / "0-sort-list__Ab0" / "result.json").unlink()
    with pytest.raises(InputChanged):
        inspection.show("sort-list")


def test_a_reward_counts_where_harbor_says_that_it_measured_the_agent(top: Path) -> None:
    harbor.trial(top, "t", "a", {"reward": 1.0})
    harbor.trial(top, "t", "b", {"reward": 0.0})
    for name in ("AgentTimeoutError", "ContextWindowExceededError", "ApiRateLimitError", "Odd"):
        harbor.trial(top, "t", f"c {name}", {"reward": 0.0}, exception=name)
    assert look(top).scored.frame[".scorable"].to_list() == [True, True, True, False, True, False]
    assert look(top, missing="exclude").facts["warnings"] == []


def test_an_error_is_asked_for_where_harbor_marks_a_row_without_a_reward(top: Path) -> None:
    harbor.trial(top, "t", "a", {"reward": 1.0})
    harbor.trial(top, "t", "b", {"reward": 0.0})
    harbor.trial(top, "t", "c", {"reward": 0.0}, exception="ApiRateLimitError")
    with pytest.raises(DataError, match=r"a row without a reward, as .* marks it; --missing exclude leaves"):
        look(top, missing="error")
    assert "a row without a reward" in refused(top, set=["rewards.missing=error"])


def test_several_rewards_are_components_unless_one_is_called_reward(top: Path) -> None:
    harbor.trial(top, "t", "a", {"correct": 1.0, "style": 0.5})
    harbor.trial(top, "t", "b", {"correct": 0.0})
    found = look(top)
    assert list(found.facts["reward_columns"]) == ["reward_correct", "reward_style"]
    assert found.scored.frame[".reward"].to_list() == [1.5, 0.0]
    harbor.trial(top, "t", "c", {"reward": 0.25, "style": 9.0})
    found = look(top, missing="exclude")
    assert list(found.facts["reward_columns"]) == ["reward"]
    assert look(top, reward="reward_style", missing="exclude").scored.frame[".reward"].to_list() == [0.5, None, 9.0]


def test_conversations_become_sft_records_and_browse_shows_them(job: Path) -> None:
    best = adv(f"export {job} --to sft -o -").rows
    assert [row["reward"] for row in best] == [1.0, 1.0]
    assert [row["messages"][-1]["content"] for row in best] == ["0", "5"]
    pairs = adv(f"export {job} --to pairs -o -").rows
    assert [row["chosen"][-1]["content"] for row in pairs] == ["0", "5"]
    assert pairs[0]["prompt"][0] == {"role": "user", "content": "Solve sort-list."}
    for column in (None, "messages"):
        shown = grpo_cli.inspect(str(job), text_column=column).show("sort-list")
        assert shown["prompt"] == "Solve sort-list."
        assert [row["text"].splitlines()[-1] for row in shown["rows"]] == ["0", "1", "2"]
        assert "[assistant, tool call bash]" in shown["rows"][0]["text"]


def test_what_lies_in_a_trial_is_no_trial(job: Path) -> None:
    trial = next(folder for folder in sorted(job.iterdir()) if (folder / "result.json").is_file())
    (trial / "agent").mkdir(exist_ok=True)
    (trial / "agent" / "config.json").write_text("{}")
    assert trials.unfinished(trial) == []


def test_groups_are_selected_from_a_job(job: Path) -> None:
    selected(job, where="mean > 0.4", output=str(job.parent / "some.jsonl"))
    found = rows_of(job.parent / "some.jsonl")
    assert [row["task"] for row in found] == ["sort-list"] * 3 + ["fix-build"] * 3
    everything = {row["trial"]: _said(row) for row in _rows(job)}
    assert [_said(row) for row in found] == [everything[row["trial"]] for row in found]


def test_a_trajectory_may_be_missing_cut_short_or_continued(top: Path) -> None:
    first = harbor.conversation("t", "first")
    for name in ("cut", "continued", "missing"):
        harbor.trial(top, "t", name, {"reward": 1.0}, steps=None if name == "missing" else first)
    path = top / "cut" / "agent" / "trajectory.json"
    path.write_bytes(path.read_bytes()[:100])
    agent = top / "continued" / "agent"
    _write(agent / "trajectory.json", harbor.trajectory(first, continued_trajectory_ref="trajectory.cont-1.json"))
    copied = {"source": "user", "message": "a summary", "is_copied_context": True}
    _write(agent / "trajectory.cont-1.json", harbor.trajectory([copied, {"source": "agent", "message": "last"}]))
    assert [_said(row) for row in _rows(top)] == [
        ["Solve t.", "Let me look (0).", "drwxr-xr-x 2 root root 4096 README.md\n", "first", "exit", "last"],
        None,
        None,
    ]


def test_the_steps_of_a_task_are_one_conversation(top: Path) -> None:
    here = harbor.trial(top, "t", "a", {"reward": 1.0})
    for step in ("build", "test"):
        (here / "steps" / step / "agent").mkdir(parents=True)
        told = [{"source": "user", "message": step}, {"source": "agent", "message": f"{step} done"}]
        _write(here / "steps" / step / "agent" / "trajectory.json", harbor.trajectory(told))
    steps = """[
        {"step_name": "build", "agent_result": {"n_output_tokens": 5}, "exception_info": null},
        {"step_name": "test", "agent_result": {"n_output_tokens": 7}, "exception_info": {"exception_type": "ApiError"}}
    ]"""
    _change(here, f'{{"agent_result": null, "step_results": {steps}}}')
    (row,) = _rows(top)
    assert _said(row) == ["build", "build done", "test", "test done"]
    assert row["n_output_tokens"] == 12
    assert row["exception"] == "ApiError"
    assert row["valid"] is False


def test_a_job_that_cannot_be_read_is_refused_in_one_line(top: Path) -> None:
    harbor.trial(top, "t", "a", None, exception="ApiError")
    assert "job: none of its 1 finished trials has a reward; exception.txt" in refused(top)
    harbor.trial(top, "t", "b", {"reward": 1.0})
    (top / "b" / "result.json").write_text('{"id": ')
    with pytest.raises(DataError, match=r"b/result\.json: not the result of a trial: .*; remove that folder"):
        look(top)


def test_a_reward_that_a_result_names_twice_is_refused(top: Path) -> None:
    here = harbor.trial(top, "t", "a", {"reward": 1.0})
    twice = (here / "result.json").read_text().replace('"reward": 1.0', '"reward": 1.0, "reward": 0.0')
    (here / "result.json").write_text(twice)
    assert "a/result.json: not the result of a trial: reward is named twice in one object" in refused(top)


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ('{"verifier_result": {"rewards": ["a"]}}', "'list' object is not a mapping"),
        ('{"verifier_result": [1]}', "'list' object is not a mapping"),
        ('{"step_results": 3}', "must be an iterable, not int"),
        ('{"step_results": {"a": {}}}', "'str' object has no attribute 'get'"),
        ('{"step_results": [{"agent_result": "none"}]}', "'str' object is not a mapping"),
        ('{"agent_result": {"n_output_tokens": "12"}}', "'int' and 'str'"),
        ('{"exception_info": {"exception_type": ["ApiError"]}}', "unhashable type: 'list'"),
        ('{"exception_info": "ApiError"}', "'str' object is not a mapping"),
    ],
)
def test_a_result_of_other_types_is_refused_with_its_file(odd: str, why: str, top: Path) -> None:
    _change(harbor.trial(top, "t", "a", {"reward": 1.0}), odd)
    with pytest.raises(DataError, match=rf"a/result\.json: not the result of a trial: .*{why}; remove that folder"):
        look(top)


def test_other_folders_with_results_stay_folders(tmp_path: Path) -> None:
    for name in ("run1", "run2"):
        Path(name).mkdir()
        Path(name, "config.json").write_text('{"lr": 0.1}')
        Path(name, "result.json").write_text('[{"prompt_id": 1, "reward": 1.0}, {"prompt_id": 1, "reward": 0.0}]')
    assert look("run*/result.json", group_within="file").facts["rows"] == 4
    with pytest.raises(DataError):
        look(tmp_path, group_within="file")  # config.json has no rewards


def _change(trial: Path, fields: str) -> None:
    """Give the result of a trial other fields."""
    path = trial / "result.json"
    _write(path, json.loads(path.read_bytes()) | json.loads(fields))


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def _rows(top: Path) -> list[Any]:
    compute(top, output=str(top.parent / "o.jsonl"), force=True, singleton="zero")
    return sorted(rows_of(top.parent / "o.jsonl"), key=lambda row: str(row["trial"] != "continued"))


def _said(row: Any) -> list[str] | None:
    return row["messages"] and [message["content"] for message in row["messages"]]
