"""Dumps in which one rollout has several rows, each built as its tool writes it.

`FAN_OUTS` has a writer for each: it takes a folder, and returns the file, the groups (rewards of rollouts, by group) and
the rollout of each row. Six groups of four rollouts; some rollouts have up to three rows.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from tests.support.bad_files import torch_zip
from tests.support.schema_files import lines

GROUPS = 6
ROLLOUTS = 4
ROWS = 34


@dataclass(frozen=True)
class Part:
    """A row: its group, the number of its rollout in the group and in the file, its own number in the rollout, the reward."""

    group: int
    rollout: int
    index: int
    part: int
    parts: int
    reward: float

    @property
    def is_split(self) -> bool:
        return self.parts > 1


@dataclass(frozen=True)
class FanOut:
    """A file, and what its rows are."""

    path: Path
    rows: list[Part] = field(default_factory=lambda: list(parts()))


def parts() -> Iterator[Part]:
    """Five of 24 rollouts have three rows; the rewards of a group differ, and those of a rollout do not."""
    rng = np.random.default_rng(7)
    split = {0, 1, 6, 14, 23}
    for group in range(GROUPS):
        rewards = rng.permutation([0.0, 1.0, 1.0, float(group % 2)])
        for rollout, reward in enumerate(rewards.tolist()):
            index = group * ROLLOUTS + rollout
            count = 3 if index in split else 1
            yield from (Part(group, rollout, index, part, count, reward) for part in range(count))


def slime_sample(row: Part, rollout_id: int | None) -> dict[str, Any]:
    return {
        "group_index": row.group, "index": row.index, "rollout_id": rollout_id, "prompt": f"p{row.group}", "response": f"r{row.index}.{row.part}",
        "response_length": 5 + row.part, "label": "4", "reward": row.reward, "loss_mask": None, "status": "completed",
        "remove_sample": False, "metadata": {},
    }  # fmt: skip


def rows(name: str, line: str) -> Callable[[Path], FanOut]:
    """A writer of a line for each row, with what is known of the row in the places of its $names."""

    def write(folder: Path) -> FanOut:
        text = ""
        for row in PARTS:
            last = LAST[row.part == row.parts - 1]
            text += Template(line.lstrip()).substitute(vars(row), uuid=f"{row.index:032x}", last=last)
        (folder / name).write_text(text, encoding="utf-8")
        return FanOut(folder / name)

    return write


def slime_lines(name: str, first_id: int, **more: Any) -> Callable[[Path], FanOut]:
    """Siblings share an id of their rollout, counted from this one; whole rollouts have none."""
    ids = [first_id + row.index if row.is_split else None for row in PARTS]
    samples = [{**slime_sample(row, one), **more} for row, one in zip(PARTS, ids, strict=True)]
    return lambda folder: FanOut(lines(folder / name, samples))


def episodes(folder: Path) -> FanOut:
    """Of prime-rl: an episode in each line, with a trace for each agent that took part; here they share the reward."""
    made: dict[int, dict[str, Any]] = {}
    for row in PARTS:
        episode = json.loads(Template(EPISODE).substitute(vars(row)))
        trace = json.loads(Template(TRACE).substitute(vars(row)))
        made.setdefault(row.index, episode)["traces"].append(trace)
    return FanOut(lines(folder / "rollouts/step_1/train/all/traces.jsonl", made.values()))


def slime_dump(folder: Path) -> FanOut:
    """What --save-debug-rollout-data writes: rollout_id at the top is the training step."""
    dump = {"rollout_id": 3, "samples": [slime_sample(row, row.index) for row in PARTS]}
    path = folder / "3.pt"
    path.write_bytes(torch_zip(pickle.dumps(dump, protocol=2)))
    return FanOut(path)


PARTS = [*parts()]
LAST = ("false", "true")
EPISODE = """
{"id": "e$index", "group": {"id": "g$group"}, "run": {"type": "train", "work": {"step": 1}}, "task": {"type": "t", "key": "k"}, "traces": []}
"""
TRACE = """
{"id": "t$index.$part", "agent": {"name": "agent", "trainable": true}, "nodes": [], "metrics": {}, "info": {},
 "rewards": {"correct": {"score": $reward, "weight": 1.0}}, "errors": [], "ok": true}
"""
FAN_OUTS: dict[str, Callable[[Path], FanOut]] = {
    # Siblings share the index of the sample that they were made of.
    "slime": slime_lines("slime.jsonl", 0),
    "slime dump": slime_dump,
    # Copies of a sample keep its index, and have new ids of their own numbering.
    "miles": slime_lines("miles.jsonl", 1000, adapter=None),
    # Rows are sorted by {prompt}_{session}_{output}; each output has the score of the last.
    "verl v1": rows("5.jsonl", """
{"input": "p$group turn $part", "output": "o", "gts": "4", "score": $reward, "step": 5, "uid": "6f1d$group-4c_${rollout}_$part"}
"""),
    # A run of a workflow with several steps; the reward of the run is propagated to each.
    "Trinity": rows("experiences.jsonl", """
{"eid": {"batch": 2, "task": $group, "run": $rollout, "step": $part, "suffix": "a"}, "reward": $reward, \
"prompt_text": "p$group step $part", "response_text": "r", "response_length": 3}
"""),
    # A trace of a rollout in each row; ids that were given before it was dispatched.
    "NeMo Gym": rows("gym.jsonl", """
{"responses_create_params": {"input": [{"role": "user", "content": "p$group"}]}, "response": {"id": "$index.$part"}, "reward": $reward, \
"_ng_task_index": $group, "_ng_rollout_index": $rollout, "_ng_rollout_id": "step7-$index"}
"""),
    "prime-rl": episodes,
    "eval-protocol": rows("logs.jsonl", """
{"messages": [{"role": "user", "content": "p$group"}], "input_metadata": {"row_id": "r$group"}, "created_at": "2026-01-01", \
"rollout_status": {}, "execution_metadata": {"rollout_id": "${index}-b"}, "evaluation_result": {"score": $reward, "is_score_valid": true}}
"""),
    # Rows of a conversation that was forked where its tokens drifted; every one has its own uuid for rollout_id.
    "TRL async": rows("training_sequences.jsonl", """
{"group_id": $group, "rollout_id": "$uuid", "reward": $reward, "model_version": 3, "input_ids": [1, $part]}
"""),
    # A row for each step of an episode, whose id is {task}:{number}; the reward is that of the trajectory.
    "rLLM steps": rows("steps.jsonl", """
{"task_id": "task$group", "episode_id": "task$group:$rollout", "turn": $part, "reward": $reward}
"""),
    # Step-wise samples: a TrajectoryID is {instance}_{repetition}, the reward is that of the trajectory.
    "SkyRL steps": rows("steps.jsonl", """
{"uid": "i$group", "trajectory_id": "i${group}_$rollout", "is_last_step": $last, "reward": $reward}
"""),
    # Requests of agent sessions, as a gateway logs them: a row for each, numbered in its group.
    "sessions": rows("requests.jsonl", """
{"prompt_id": $group, "session_id": $rollout, "request": $part, "score": $reward}
"""),
}  # fmt: skip
slime_compact, miles, trl_async = (FAN_OUTS[name] for name in ("slime", "miles", "TRL async"))
