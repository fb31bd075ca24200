"""One small file per schema, written as its tool writes it, with what a reader has to find in it.

`WRITERS` has an entry for every schema: it writes into a folder and gives the path, the rows, the sizes of the groups
in order of first appearance, and the rewards (None: no reward, or left out). Most are in `schema_files.toml`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from tests.support import harbor as harbor_files
from tests.support import prime_runs

Sizes = Sequence[int]
Rewards = Sequence[float | None]
TABLE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Written:
    """A file and what is in it; `flags` are those that the tool's layout cannot do without."""

    path: Path
    sizes: Sizes
    rewards: Rewards
    flags: dict[str, Any] = field(default_factory=dict)


Writer = Callable[[Path], Written]


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def from_table(entry: dict[str, Any], folder: Path) -> Written:
    """What `schema_files.toml` says of a file."""
    path = folder / entry["file"]
    path.parent.mkdir(parents=True, exist_ok=True)
    if "columns" in entry:
        pl.DataFrame(json.loads(entry["columns"])).write_parquet(path)
    elif "document" in entry:
        content = json.loads(entry["document"])
        path.write_text(json.dumps(content, indent=entry.get("indent", 2) or None), encoding="utf-8")
    else:
        path.write_text(entry["text"], encoding="utf-8")
    rewards = [None if reward == "none" else reward for reward in entry["rewards"]]
    return Written(path, entry["sizes"], rewards, entry.get("flags", {}))


def verifiers_episode(task: str, trace: str, score: float, *, episode: str = "e") -> dict[str, Any]:
    """An episode as `append_trace` of verifiers (a60a606ec, verifiers/v1/cli/output.py) writes it: one trace, no group.

    Replay (verifiers/v1/cli/replay.py) gives it another id, keeps that of the trace, and sets new rewards.
    """
    kind = {"type": "GSM8KTask", "data": {"idx": 0, "prompt": task}, "key": task, "hash": task}
    rewards = {"correct": {"score": score, "weight": 1.0}}
    made = {"version": 1, "id": trace, "task": kind, "agent": {"name": "agent"}, "nodes": [], "rewards": rewards}
    more = {"env": {"id": "gsm8k"}, "task": kind, "ok": True, "errors": []}
    return {"id": f"{episode}-{trace}", **more, "traces": [{**made, "ok": True}]}


def prime_stream(folder: Path) -> Written:
    run = prime_runs.training().write(folder / "run")
    rewards = [1.0, 1.0, 1.0, 0.0, 0.25, 0.5, 0.0, 0.0, 0.0, None, None, None]
    return Written(run / "monitors/file/traces/stream.jsonl", [4] * 6, rewards * 2)


def prime_branches(folder: Path) -> Written:
    path = prime_runs.branches(folder / "default" / "train.parquet", [[1.0, 0.0], [0.5, 0.25, 0.0]])
    return Written(path, [2, 3], [1.0, 0.0, 0.5, 0.25, 0.0])


def rllm(folder: Path) -> Written:
    top = folder / "episodes" / "train_step_1_epoch_0"
    top.mkdir(parents=True)
    for k in range(2):
        for task in ("ab", "cd"):
            steps = [{"observation": "o", "reward": 0.0}]
            episode = {
                "training_step": 1, "epoch": 0, "episode_id": f"{task}:{k}", "task": {}, "task_hash": task,
                "is_correct": bool(k), "termination_reason": "done", "metrics": {},
                "trajectories": [
                    {"name": "solver", "uid": f"u{k}", "reward": float(k), "num_steps": 1, "steps": steps},
                    {"name": "judge", "uid": f"v{k}", "reward": 0.5, "num_steps": 1, "steps": steps},
                ],
            }  # fmt: skip
            (top / f"episode_hash{task}_id{k}.json").write_text(json.dumps(episode, indent=2), encoding="utf-8")
    return Written(top, [2, 2, 2, 2], [0.0, 0.5, 1.0, 0.5, 0.0, 0.5, 1.0, 0.5])


def harbor(folder: Path) -> Written:
    top = harbor_files.job(folder / "jobs" / "2026-11-20__10-00-00", 6)
    rewards = [1.0, 0.0, None, 0.0, None, 1.0]
    for i, reward in enumerate(rewards):
        task = "sort-list" if i < 3 else "fix-build"
        harbor_files.trial(
            top, task, f"{i}-{task}__Ab{i}", None if reward is None else {"reward": reward},
            exception="EnvironmentStartTimeoutError" if i == 2 else None, steps=harbor_files.conversation(task, str(i)),
        )  # fmt: skip
    return Written(top, [3, 3], rewards)


WRITERS: dict[str, Writer] = {
    "harbor": harbor,
    "rllm": rllm,
    "prime-rl-stream": prime_stream,
    "prime-rl-branches": prime_branches,
}
for _name, _entry in tomllib.loads(TABLE.read_text(encoding="utf-8")).items():
    WRITERS[_name] = partial(from_table, _entry)

# What is recognised only to be refused: a record of each.
REFUSED: dict[str, dict[str, Any]] = {
    "nemo-gym-profile": {"mean/reward": 0.5, "max/reward": 1.0, "std/reward": 0.5, "sample": {}},
    "polaris": {"problem": "p", "answer": "4", "difficulty": "7/8"},
    "big-math": {"problem": "p", "answer": "4", "source": "s", "domain": [], "llama8b_solve_rate": None},
    "intellect-2": {"prompt": "p", "verification_info": "{}", "solve_rate_qwen_r1_distill_7b": 0.5},
    "open-math-reasoning": {"problem": "p", "generated_solution": "s", "expected_answer": "4", "pass_rate_72b_tir": "n/a"},
    "verl-prompts": {"data_source": "d", "prompt": chat("q"), "ability": "math", "reward_model": {"ground_truth": "4"}},
}  # fmt: skip
