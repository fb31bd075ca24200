"""Dumps in which one rollout has several rows, each built as its tool writes it.

`FAN_OUTS` has a writer for each: it takes a folder, and returns the file, the groups (rewards of rollouts, by group) and
the rollout of each row. Six groups of four rollouts; some rollouts have up to three rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.bad_files import torch_zip
from tests.support.schema_files import chat, lines

GROUPS, ROLLOUTS = 6, 4
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


def rows(name: str, records: Sequence[Any]) -> Callable[[Path], FanOut]:
    """A writer of a line of JSON for each record."""
    return lambda folder: FanOut(lines(folder / name, records))


def slime_dump(folder: Path) -> FanOut:
    """What --save-debug-rollout-data writes: rollout_id at the top is the training step."""
    dump = {"rollout_id": 3, "samples": [slime_sample(row, row.index) for row in PARTS]}
    path = folder / "3.pt"
    path.write_bytes(torch_zip(pickle.dumps(dump, protocol=2)))
    return FanOut(path)


PARTS = [*parts()]
EPISODES = [[row for row in PARTS if row.index == index] for index in range(GROUPS * ROLLOUTS)]
FAN_OUTS: dict[str, Callable[[Path], FanOut]] = {
    # Siblings share the index of the sample that they were made of; whole rollouts have no rollout_id.
    "slime": rows("slime.jsonl", [slime_sample(row, row.index if row.is_split else None) for row in PARTS]),
    "slime dump": slime_dump,
    # Copies of a sample keep its index, and have new ids of their own numbering.
    "miles": rows("miles.jsonl", [
        slime_sample(row, 1000 + row.index if row.is_split else None) | {"adapter": None} for row in PARTS
    ]),
    # Rows are sorted by {prompt}_{session}_{output}; each output has the score of the last.
    "verl v1": rows("5.jsonl", [
        {"input": f"p{row.group} turn {row.part}", "output": "o", "gts": "4", "score": row.reward, "step": 5,
         "uid": f"6f1d{row.group}-4c_{row.rollout}_{row.part}"}
        for row in PARTS
    ]),
    # A run of a workflow with several steps; the reward of the run is propagated to each.
    "Trinity": rows("experiences.jsonl", [
        {"eid": {"batch": 2, "task": row.group, "run": row.rollout, "step": row.part, "suffix": "a"}, "reward": row.reward,
         "prompt_text": f"p{row.group} step {row.part}", "response_text": "r", "response_length": 3}
        for row in PARTS
    ]),
    # A trace of a rollout in each row; ids that were given before it was dispatched.
    "NeMo Gym": rows("gym.jsonl", [
        {"responses_create_params": {"input": chat(f"p{row.group}")}, "response": {"id": f"{row.index}.{row.part}"}, "reward": row.reward,
         "_ng_task_index": row.group, "_ng_rollout_index": row.rollout, "_ng_rollout_id": f"step7-{row.index}"}
        for row in PARTS
    ]),
    # An episode in each line, with a trace for each agent that took part; here they share the reward.
    "prime-rl": rows("rollouts/step_1/train/all/traces.jsonl", [
        {
            "id": f"e{index}", "group": {"id": f"g{some[0].group}"}, "run": {"type": "train", "work": {"step": 1}}, "task": {"type": "t", "key": "k"},
            "traces": [
                {"id": f"t{index}.{row.part}", "agent": {"name": "agent", "trainable": True}, "nodes": [], "metrics": {}, "info": {},
                 "rewards": {"correct": {"score": row.reward, "weight": 1.0}}, "errors": [], "ok": True}
                for row in some
            ],
        }
        for index, some in enumerate(EPISODES)
    ]),
    "eval-protocol": rows("logs.jsonl", [
        {"messages": chat(f"p{row.group}"), "input_metadata": {"row_id": f"r{row.group}"}, "created_at": "2026-01-01", "rollout_status": {},
         "execution_metadata": {"rollout_id": f"{row.index:x}-b"}, "evaluation_result": {"score": row.reward, "is_score_valid": True}}
        for row in PARTS
    ]),
    # Rows of a conversation that was forked where its tokens drifted; every one has its own uuid for rollout_id.
    "TRL async": rows("training_sequences.jsonl", [
        {"group_id": row.group, "rollout_id": f"{row.index:032x}", "reward": row.reward, "model_version": 3, "input_ids": [1, row.part]}
        for row in PARTS
    ]),
    # A row for each step of an episode, whose id is {task}:{number}; the reward is that of the trajectory.
    "rLLM steps": rows("steps.jsonl", [
        {"task_id": f"task{row.group}", "episode_id": f"task{row.group}:{row.rollout}", "turn": row.part, "reward": row.reward}
        for row in PARTS
    ]),
    # Step-wise samples: a TrajectoryID is {instance}_{repetition}, the reward is that of the trajectory.
    "SkyRL steps": rows("steps.jsonl", [
        {"uid": f"i{row.group}", "trajectory_id": f"i{row.group}_{row.rollout}", "is_last_step": row.part == row.parts - 1,
         "reward": row.reward}
        for row in PARTS
    ]),
    # Requests of agent sessions, as a gateway logs them: a row for each, numbered in its group.
    "sessions": rows("requests.jsonl", [
        {"prompt_id": row.group, "session_id": row.rollout, "request": row.part, "score": row.reward} for row in PARTS
    ]),
}  # fmt: skip
slime_compact, miles, verl_v1, trl_async = (FAN_OUTS[name] for name in ("slime", "miles", "verl v1", "TRL async"))
