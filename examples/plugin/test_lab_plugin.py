"""The plugin is what it says. Install it first: `pip install -e '.[test]'`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import pstdev
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import grpo_cli

Numbers: TypeAlias = NDArray[Any]


def midrange(groups: Numbers, rewards: Numbers) -> Numbers:
    """The method once more, in numpy, written from the formula alone."""
    wanted = np.zeros(len(rewards))
    for group in np.unique(groups):
        own = rewards[groups == group]
        wanted[groups == group] = own - (own.min() + own.max()) / 2
    return wanted


def advantages(groups: Numbers, rewards: Numbers) -> Numbers:
    frame = pl.DataFrame({"prompt_id": groups, "reward": rewards})
    return grpo_cli.advantages(frame, method="lab-midrange").to_numpy()


@pytest.mark.parametrize("seed", range(20))
def test_the_method_equals_its_oracle(seed: int) -> None:
    draw = np.random.default_rng(seed)
    groups, rewards = draw.integers(0, 6, 24), draw.integers(0, 5, 24) / 4
    wanted = midrange(groups, rewards)
    assert advantages(groups, rewards) == pytest.approx(wanted)
    order = draw.permutation(24)
    assert advantages(groups[order], rewards[order]) == pytest.approx(wanted[order])
    assert advantages(draw.permutation(6)[groups], rewards) == pytest.approx(wanted)
    assert advantages(groups, rewards + 64) == pytest.approx(wanted)  # a reward of 64 more for everybody


def test_the_preset_gives_the_numbers_of_the_trainer() -> None:
    rewards = [0.0, 0.25, 1.0]
    frame = pl.DataFrame({"prompt_id": [1, 1, 1], "reward": rewards})
    wanted = [(r - 0.5) / (pstdev(rewards) + 1e-4) for r in rewards]
    assert grpo_cli.advantages(frame, preset="lab-trainer").to_list() == pytest.approx(wanted)


def printed(folder: Path, *words: str, status: int = 0) -> str:
    """What grpo-adv prints for a log of two rounds, in the second of which a rollout has 2 points."""
    log = [{"question": "2+3", "answer": f"{p + 4}", "points": p, "round": n} for n in (1, 2) for p in (0, n)]
    (folder / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in log), encoding="utf-8")
    command = [sys.executable, "-m", "grpo_cli", *words, "--schema", "lab-log"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout


def test_the_schema_reads_the_log(tmp_path: Path) -> None:
    lines = printed(tmp_path, "compute", "log.jsonl", "-m", "lab-midrange", "-o", "-", "-q").splitlines()
    assert [json.loads(line)["advantage"] for line in lines] == [-0.5, 0.5, -1.0, 1.0]


def test_the_target_writes_what_its_trainer_reads(tmp_path: Path) -> None:
    texts = ("--prompt", "question", "--response", "answer", "--where", "max > 1")
    printed(tmp_path, "export", "log.jsonl", "--to", "sft", *texts, "--target", "lab-tuner", "-o", "sft.jsonl")
    asked = {"role": "user", "content": "2+3"}
    answered = {"role": "assistant", "content": "6"}
    assert json.loads((tmp_path / "sft.jsonl").read_text(encoding="utf-8")) == {"messages": [asked, answered]}


def test_the_command_lists_the_groups_that_no_rollout_has_solved(tmp_path: Path) -> None:
    assert printed(tmp_path, "lab-unsolved", "log.jsonl") == "0 of 2 groups are unsolved\n"
    said = printed(tmp_path, "lab-unsolved", "log.jsonl", "--solved-above", "1")
    assert said == "1 of 2 groups are unsolved\n  1, 2+3 (2 rollouts)\n"
    assert printed(tmp_path, "lab-unsolved", "log.jsonl", "--fail-on", "unsolved > 0") == "0 of 2 groups are unsolved\n"
    stopped = ("--solved-above", "1", "--fail-on", "unsolved > 0")
    assert printed(tmp_path, "lab-unsolved", "log.jsonl", *stopped, status=3) == said
    facts = json.loads(printed(tmp_path, "lab-unsolved", "log.jsonl", "--solved-above", "2", "--json"))
    assert [(row["round"], row["size"]) for row in facts["unsolved"]] == [(1, 2), (2, 2)]
