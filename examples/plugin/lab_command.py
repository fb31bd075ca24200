"""A command of grpo-adv: the prompts to sample again. `grpo-adv --help` imports this module, so it loads nothing large.

What runs (`lab_unsolved.py`) is loaded when the command is called.
"""

from __future__ import annotations

from grpo_cli import Command, Option

COMMAND = Command(
    "lab-unsolved",
    "List the groups that no rollout has solved, to sample them again.",
    argument=Option("file", "A file of rewards, or a folder of them.", spelled="FILE", required=True),
    options=("group", "reward", "schema", "fail_on", "json", "summary", "quiet", "color", "debug"),
    own=(Option("solved_above", "Rewards above X solve a prompt (default: 0).", type=float, metavar="X"),),
    example="grpo-adv lab-unsolved rewards.jsonl --solved-above 0.5",
    job="lab_unsolved:Job",
    shown_by="lab_unsolved:show",
)
