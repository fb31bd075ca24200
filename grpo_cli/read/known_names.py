"""Every name that a column is recognised by where nobody says what it is. An id comes before a text that may repeat."""

from __future__ import annotations

from typing import Final

# Tiers in the order in which they are looked through; two candidates inside a tier are an error that lists them.
GROUP_TIERS: Final = (
    (
        "prompt_id", "group_id", "uid", "prompt_uid", "task_id", "problem_id", "question_id", "example_id",
        "prompt_idx", "group_idx", "group_index", "prompt_index", "doc_id", "row_id",
    ),
    ("prompt", "input", "question", "problem", "messages"),
)  # fmt: skip
REWARD_TIERS: Final = (
    ("reward",),
    ("rewards", "score", "total_reward", "final_reward", "reward_score"),
    ("acc", "is_correct", "correct"),
)
# Often the id of a row, sometimes that of a prompt: beside a key that is only text it has to be looked at.
ROW_IDS: Final = ("id", "uuid", "idx", "index", "qid", "sample_uid")
SAMPLE_IDS: Final = ("sample", "sample_id", "sample_idx", "rollout_idx", "completion_id", "traj_idx")
STEP_LIKE: Final = (
    "step", "global_step", "training_step", "train_step", "gen_step", "iteration", "iter", "epoch",
)  # fmt: skip
OWN_STEP: Final = "step"  # the one step-like name that may also count the steps inside a rollout
