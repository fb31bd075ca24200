"""Advantages by a trainer's own functions: `computes.py PACKAGE:FUNCTION TABLES`, a JSON list of tables of rows in groups.

A table has `group`, `reward` and `length` (tokens of the response), a number for each row. It is printed as a list for each table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

WHAT, FILE = sys.argv[1:3]
sys.argv = sys.argv[:1]  # ms-swift reads the arguments of its own command when it is imported
PACKAGE, _, NAME = WHAT.partition(":")
Table = dict[str, list[Any]]


def verl(table: Table) -> Any:
    """Rewards stand on the last token of a response; the advantage is that of its first."""
    import numpy as np
    from omegaconf import OmegaConf
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    lengths = torch.tensor(table["length"])
    mask = (torch.arange(int(lengths.max())) < lengths[:, None]).float()
    rewards = torch.zeros_like(mask)
    rewards[torch.arange(len(lengths)), lengths - 1] = torch.tensor(table["reward"], dtype=torch.float32)
    name, _, more = NAME.partition(" ")
    divided = more != "no-std"
    config = OmegaConf.create({"gamma": 1.0, "norm_adv_by_std_in_grpo": divided})
    asked = {"norm_adv_by_std_in_grpo": False} if not divided else {}
    index = np.array(table["group"], dtype=object)
    function = get_adv_estimator_fn(name)
    found, _ = function(token_level_rewards=rewards, response_mask=mask, index=index, config=config, **asked)
    return found[:, 0]


def swift(table: Table) -> Any:
    from swift.rl_core.advantage import compute_advantages, compute_advantages_dynamic

    estimator, scale, *blocks = NAME.split(" ")
    rewards = torch.tensor(table["reward"], dtype=torch.float32)[:, None]
    if blocks:
        size = table["group"].count(table["group"][0])
        return compute_advantages(rewards, torch.ones(1), size, estimator, scale)[0]
    ids = [str(at) for at in range(len(rewards))]
    groups = [str(group) for group in table["group"]]
    found, _ = compute_advantages_dynamic(
        rewards, torch.ones(1), groups, ids, advantage_estimator=estimator, scale_rewards=scale
    )
    return found


def tinker(table: Table) -> Any:
    from tinker_cookbook.rl.data_processing import compute_advantages
    from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup

    made = []
    for group in dict.fromkeys(table["group"]):
        rewards = [float(reward) for reward, of in zip(table["reward"], table["group"], strict=True) if of == group]
        none = [Trajectory(transitions=[], final_ob=None) for _ in rewards]
        made.append(TrajectoryGroup(trajectories_G=none, final_rewards_G=rewards, metrics_G=[{} for _ in rewards]))
    return torch.cat(compute_advantages(made))


def twinkle(table: Table) -> Any:
    import twinkle.advantage

    name, scale = NAME.split(" ")
    made = getattr(twinkle.advantage, name)()
    return made(table["reward"], num_generations=table["group"].count(table["group"][0]), scale=scale)


COMPUTE: dict[str, Callable[[Table], Any]] = {"verl": verl, "swift": swift, "tinker": tinker, "twinkle": twinkle}
tables = json.loads(Path(FILE).read_text(encoding="utf-8"))
found = [COMPUTE[PACKAGE](table).tolist() for table in tables]
sys.stdout.write(f"\nDECODED {json.dumps(found)}\n")
