"""The extra columns that some methods read, and the flag that names each.

Importing this table loads neither polars nor numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """An extra column: what it means, how it is read, and which flag names it."""

    name: str
    meaning: str
    kind: Literal["number", "numbers", "key"] = "number"
    flag: str = ""
    default: float = 0.0


_ROWS: Final = (
    Role(name="length", meaning="response length in tokens", flag="--length-column"),
    Role(name="logprob", meaning="mean log-prob of the response", flag="--logprob-column"),
    Role(name="baseline", meaning="reward of the greedy answer, or another baseline", flag="--baseline-column"),
    Role(name="references", meaning="rewards of a reference policy", kind="numbers", flag="--reference-column"),
    Role(name="kl", meaning="KL of the response, summed over its tokens", flag="--kl-column"),
    Role(name="truncated", meaning="whether the response was cut off", flag="--truncated-column"),
    Role(
        name="rollout",
        meaning="id of the rollout, for files with several rows per rollout",
        kind="key",
        flag="--rollout",
    ),
    Role(
        name="state",
        meaning="the state that a step starts from, or the number of the turn",
        kind="key",
        flag="--state-column",
    ),
    Role(name="step_reward", meaning="reward of the step alone", flag="--step-reward-column"),
    Role(name="role", meaning="agent or role that a moving baseline belongs to", kind="key", flag="--role-column"),
    Role(name="input_length", meaning="input length in tokens", flag="--input-length-column"),
    Role(name="turns", meaning="number of turns", flag="--turns-column", default=1.0),
)

# Rows that leave their group, and rows that count in it and are not trained on: columns of a table that has such rows.
LEFT_OUT: Final = "left_out"
MASKED: Final = "masked"
APART: Final = (LEFT_OUT, MASKED)
ROLES: Final[Mapping[str, Role]] = MappingProxyType({role.name: role for role in _ROWS})
