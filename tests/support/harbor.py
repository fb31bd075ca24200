"""Job folders as Harbor 0.25.0 leaves them: models of `harbor/models/{job,trial,trajectories}`, written as its `trial.py` does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NOW = "2026-11-20T10:00:00.000000Z"
JOB = """
{"job_name": "", "jobs_dir": "", "n_attempts": 4, "orchestrator": {"n_concurrent_trials": 4},
 "agents": [{"name": "terminus-2", "model_name": "openai/gpt-5"}], "datasets": [{"name": "terminal-bench", "version": "2.0"}]}
"""
JOB_RESULT = """
{"id": "7f1f", "started_at": "2026-11-20T10:00:00.000000Z", "updated_at": "2026-11-20T10:00:00.000000Z",
 "finished_at": "2026-11-20T10:00:00.000000Z", "n_total_trials": 0,
 "stats": {"n_completed_trials": 0, "n_errored_trials": 0, "n_retries": 0, "evals": {}}}
"""
CONFIG = """
{"task": {"path": "", "source": "terminal-bench"}, "trial_name": "", "trials_dir": "", "timeout_multiplier": 1.0,
 "agent": {"name": "terminus-2", "model_name": "", "kwargs": {}},
 "environment": {"type": "docker", "force_build": false, "delete": true}, "verifier": {"disable": false}, "job_id": "7f1f"}
"""
RESULT = """
{"id": "", "task_name": "", "trial_name": "", "trial_uri": "", "task_id": {}, "source": "terminal-bench", "task_checksum": "c0ffee",
 "config": {}, "agent_info": {"name": "terminus-2", "version": "2.0.0", "model_info": {"name": "gpt-5", "provider": "openai"}},
 "agent_result": {"n_input_tokens": 1200, "n_cache_tokens": 0, "n_output_tokens": 345, "cost_usd": 0.01, "model_usage": null,
                  "rollout_details": null, "metadata": {"n_episodes": 3}},
 "verifier_result": null, "verifier_environment_mode": "shared", "exception_info": null,
 "started_at": "2026-11-20T10:00:00.000000Z", "finished_at": "2026-11-20T10:00:00.000000Z",
 "environment_setup": {"started_at": "2026-11-20T10:00:00.000000Z", "finished_at": "2026-11-20T10:00:00.000000Z"},
 "agent_setup": {"started_at": "2026-11-20T10:00:00.000000Z", "finished_at": "2026-11-20T10:00:00.000000Z"},
 "agent_execution": {"started_at": "2026-11-20T10:00:00.000000Z", "finished_at": "2026-11-20T10:00:00.000000Z"},
 "verifier": {"started_at": "2026-11-20T10:00:00.000000Z", "finished_at": "2026-11-20T10:00:00.000000Z"}, "step_results": null}
"""
TRAJECTORY = """
{"schema_version": "ATIF-v1.8", "session_id": "session", "agent": {"name": "terminus-2", "version": "2.0.0", "model_name": ""},
 "steps": [], "final_metrics": {"total_prompt_tokens": 1200, "total_completion_tokens": 345}}
"""
TURN = """
{"source": "agent", "model_name": "gpt-5", "message": "", "reasoning_content": "Where is it?",
 "tool_calls": [{"tool_call_id": "", "function_name": "bash", "arguments": {"command": "ls -l"}}],
 "observation": {"results": [{"source_call_id": "", "content": ""}]}, "metrics": {"prompt_tokens": 400, "completion_tokens": 100}}
"""
FAILED = """
{"exception_type": "", "exception_message": "it failed", "exception_traceback": "Traceback ...", "occurred_at": "2026-11-20T10:00:00.000000Z"}
"""


def job(folder: Path, trials: int) -> Path:
    """What Harbor writes of a job beside its trials."""
    folder.mkdir(parents=True)
    config = {**json.loads(JOB), "job_name": folder.name, "jobs_dir": str(folder.parent)}
    result = json.loads(JOB_RESULT)
    result["n_total_trials"] = trials
    result["stats"]["n_completed_trials"] = trials
    _write(folder / "config.json", config)
    _write(folder / "lock.json", {"schema_version": 1, "trials": []})
    _write(folder / "result.json", result)
    (folder / "job.log").write_text("", encoding="utf-8")
    return folder


def trial(
    folder: Path,
    task: str,
    name: str,
    rewards: Mapping[str, float] | None,
    *,
    exception: str | None = None,
    steps: list[dict[str, Any]] | None = None,
    model: str = "gpt-5",
    finished: bool = True,
) -> Path:
    """A trial: its configuration, its result, and the trajectory of its agent if it has left one."""
    here = folder / name
    config = json.loads(CONFIG)
    config["task"]["path"] = f"tasks/{task}"
    config["agent"]["model_name"] = f"openai/{model}"
    config |= {"trial_name": name, "trials_dir": str(folder)}
    (here / "agent").mkdir(parents=True)
    (here / "verifier").mkdir()
    (here / "artifacts").mkdir()
    _write(here / "config.json", config)
    _write(here / "lock.json", {"schema_version": 1})
    (here / "trial.log").write_text("", encoding="utf-8")
    if steps is not None:
        _write(here / "agent" / "trajectory.json", trajectory(steps, model), indent=2)
    if rewards is not None:
        (here / "verifier" / "test-stdout.txt").write_text("1 passed\n", encoding="utf-8")
        _write(here / "verifier" / "reward.json", dict(rewards))
    if exception is not None:
        (here / "exception.txt").write_text(f"{exception}: it failed\n", encoding="utf-8")
    if finished:
        _write(here / "result.json", result(task, name, config, rewards, exception, model))
    return here


def result(
    task: str,
    name: str,
    config: Mapping[str, Any],
    rewards: Mapping[str, float] | None,
    exception: str | None,
    model: str,
) -> dict[str, Any]:
    """TrialResult.model_dump_json: every field, null where it is not set."""
    found: dict[str, Any] = json.loads(RESULT)
    found |= {"id": f"id-{name}", "task_name": task, "trial_name": name, "trial_uri": f"file:///jobs/{name}"}
    found |= {"task_id": {"path": f"tasks/{task}"}, "config": config}
    found["agent_info"]["model_info"]["name"] = model
    if rewards is not None:
        found["verifier_result"] = {"rewards": dict(rewards)}
    if exception is not None:
        found["exception_info"] = {**json.loads(FAILED), "exception_type": exception}
    return found


def trajectory(steps: list[dict[str, Any]], model: str = "gpt-5", **more: Any) -> dict[str, Any]:
    """Trajectory.to_json_dict: without the fields that are not set, steps counted from 1."""
    found: dict[str, Any] = json.loads(TRAJECTORY)
    found["agent"]["model_name"] = f"openai/{model}"
    found["steps"] = [{"step_id": at, "timestamp": NOW, **step} for at, step in enumerate(steps, 1)]
    return {**found, **more}


def conversation(task: str, answer: str, turns: int = 1, words: int = 1) -> list[dict[str, Any]]:
    """The steps of an agent that calls a tool `turns` times, and says something in the end."""
    output = "drwxr-xr-x 2 root root 4096 README.md\n" * words
    calls = []
    for turn in range(turns):
        call = json.loads(TURN)
        call["message"] = f"Let me look ({turn})."
        call["tool_calls"][0]["tool_call_id"] = f"call_{turn}"
        call["observation"]["results"][0] = {"source_call_id": f"call_{turn}", "content": output}
        calls.append(call)
    done = {"source": "agent", "message": answer, "observation": {"results": [{"content": "exit"}]}}
    return [{"source": "user", "message": f"Solve {task}."}, *calls, done]


def _write(path: Path, value: Any, indent: int = 4) -> None:
    path.write_text(json.dumps(value, indent=indent), encoding="utf-8")
