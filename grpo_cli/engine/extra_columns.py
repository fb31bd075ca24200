"""The extra columns that some methods read, and the flag that names each.

Importing this table loads neither polars nor numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple


class Role(NamedTuple):
    """An extra column: what it means, how it is read, and which flag names it."""

    name: str
    meaning: str
    flag: str
    kind: Literal["number", "numbers", "key"] = "number"
    default: float = 0.0


_ROWS = (
    Role("length", "response length in tokens", "--length-column"),
    Role("logprob", "mean log-prob of the response", "--logprob-column"),
    Role("baseline", "reward of the greedy answer, or another baseline", "--baseline-column"),
    Role("references", "rewards of a reference policy", "--reference-column", kind="numbers"),
    Role("kl", "KL of the response, summed over its tokens", "--kl-column"),
    Role("truncated", "whether the response was cut off", "--truncated-column"),
    Role(
        "rollout",
        "id of the rollout, for files with several rows per rollout",
        "--rollout",
        kind="key",
    ),
    Role(
        "state",
        "the state that a step starts from, or the number of the turn",
        "--state-column",
        kind="key",
    ),
    Role("step_reward", "reward of the step alone", "--step-reward-column"),
    Role("role", "agent or role that a moving baseline belongs to", "--role-column", kind="key"),
    Role("input_length", "input length in tokens", "--input-length-column"),
    Role("turns", "number of turns", "--turns-column", default=1.0),
)

# Log-probs up to here are rounding: the number after 1 in bfloat16 is 1 + 2^-7, and its logarithm is 0.0078.
MOST_LOGPROB: Final = 0.01
# Rows that leave their group, and rows that count in it and are not trained on: columns of a table that has such rows.
LEFT_OUT: Final = "left_out"
MASKED: Final = "masked"
APART: Final = (LEFT_OUT, MASKED)
ROLES: Final[Mapping[str, Role]] = {role.name: role for role in _ROWS}
