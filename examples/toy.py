"""A policy learns five sums, and its advantages come through a shell pipe.

Run it: python examples/toy.py

The policy is the smallest one there is: for every prompt a row of logits over the answers 0 to 9. In each
round it samples answers, writes their rewards to a file, pipes the file through grpo-adv, and moves its
logits along the policy gradient. A real trainer does the same with a bigger policy.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = dict[str, Any]
Policy = dict[str, NDArray[np.float64]]  # one row of logits per prompt

PROMPTS = {"1+1": 2, "2+3": 5, "4+4": 8, "3+6": 9, "2+2": 4}
ANSWERS = 10  # the answers are 0 to 9
SAMPLES = 8  # of every prompt in every round: one group
ROUNDS = 4
LEARNING_RATE = 6.0


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn logits into probabilities."""
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def reward(answer: int, truth: int) -> float:
    """Pay 1 for the right answer, 0.2 for a near miss, else nothing."""
    return {0: 1.0, 1: 0.2}.get(abs(answer - truth), 0.0)


def sample(logits: Policy, rng: np.random.Generator) -> list[Row]:
    """Ask every prompt a few times. One dictionary per answer, as a sampling job would write it."""
    rows = []
    for prompt, truth in PROMPTS.items():
        for k, answer in enumerate(rng.choice(ANSWERS, size=SAMPLES, p=softmax(logits[prompt]))):
            rows.append(
                {
                    "prompt_id": prompt,
                    "sample": k,
                    "answer": int(answer),
                    "reward": reward(int(answer), truth),
                }
            )
    return rows


def advantages(rows: list[Row], folder: Path) -> list[Row]:
    """Send the rows through the tool; they come back in their order, with one more field."""
    (folder / "rewards.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pipeline = f"cat rewards.jsonl | {grpo_adv()} compute - --quiet > advantages.jsonl"
    subprocess.run(pipeline, shell=True, cwd=folder, check=True)  # noqa: S602 - the shell pipe is the point
    return [json.loads(line) for line in (folder / "advantages.jsonl").read_text().splitlines()]


def grpo_adv() -> str:
    """Name the command, or the module where the command is not on PATH."""
    return "grpo-adv" if shutil.which("grpo-adv") else f"{shlex.quote(sys.executable)} -m grpo_cli"


def update(logits: Policy, rows: list[Row]) -> None:
    """Take one step of policy gradient: d log p(answer) / d logits = one_hot(answer) - p."""
    gradient = {prompt: np.zeros(ANSWERS) for prompt in PROMPTS}
    for row in rows:
        p = softmax(logits[row["prompt_id"]])
        gradient[row["prompt_id"]] += row["advantage"] * (np.eye(ANSWERS)[row["answer"]] - p) / SAMPLES
    for prompt in PROMPTS:
        logits[prompt] += LEARNING_RATE * gradient[prompt]


def constant_groups(rows: list[Row]) -> int:
    """Count the prompts whose samples all earned the same: they teach nothing, their advantages are 0."""
    return sum(len({row["reward"] for row in rows if row["prompt_id"] == prompt}) == 1 for prompt in PROMPTS)


def main() -> None:
    """Learn, and print one line per round."""
    rng = np.random.default_rng(0)
    logits = {prompt: np.zeros(ANSWERS) for prompt in PROMPTS}
    print("round  mean reward  constant groups")
    with tempfile.TemporaryDirectory() as folder:
        for k in range(1, ROUNDS + 1):
            rows = advantages(sample(logits, rng), Path(folder))
            update(logits, rows)
            mean = float(np.mean([row["reward"] for row in rows]))
            print(f"{k:5}  {mean:11.3f}  {constant_groups(rows):15}  {'#' * round(40 * mean)}", flush=True)
    for prompt, truth in PROMPTS.items():
        p = softmax(logits[prompt])
        print(f"{prompt} = {p.argmax()} with probability {p.max():.2f}, right: {truth}")


if __name__ == "__main__":
    main()
