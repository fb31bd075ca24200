"""pass@k and pass^k: what k rollouts of a prompt solve that are drawn from those it has, without replacement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from grpo_cli.engine.moments import Index
from grpo_cli.errors import Way
from grpo_cli.stats.difficulty import pass_at
from grpo_cli.stats.intervals import OF_RATE, Estimate, estimate, renumbered


@dataclass(frozen=True)
class Pass:
    """The chance that one of k rollouts is solved, and that all are; prompts with fewer rollouts are left out."""

    k: int  # rollouts that are drawn from those of a prompt, without replacement
    # mean chance that at least one of `k` rollouts of a prompt is solved; None if no prompt has `k`
    pass_at: Estimate | None
    pass_all: Estimate | None  # mean chance that all of `k` rollouts of a prompt are solved; None if no prompt has `k`
    left_out: int  # prompts of the run with fewer than `k` scored rollouts


class ByDraws:
    """What has `passes`, whose numbers a condition names by k."""

    GATED: ClassVar = {"pass_at": Way("--pass-at", fill="K"), "pass_all": Way("--pass-at", fill="K")}

    passes: Sequence[Pass]

    @property
    def pass_at(self) -> Mapping[str, Estimate | None]:
        """The mean chance that at least one of k rollouts is solved, by k."""
        return {str(one.k): one.pass_at for one in self.passes}

    @property
    def pass_all(self) -> Mapping[str, Estimate | None]:
        """The mean chance that all of k rollouts are solved, by k."""
        return {str(one.k): one.pass_all for one in self.passes}


@dataclass(frozen=True)
class Draws(ByDraws):
    """What k rollouts of each group solve, see --pass-at, and how many groups have only solved ones, some, or none."""

    solved_at: float  # the least reward of a solved rollout: 1 if all rewards lie in 0..1, else the highest
    always: int  # groups in which every rollout is solved
    sometimes: int  # groups in which some are
    never: int  # groups in which none is
    passes: Sequence[Pass]  # one for each number of --pass-at


def of_groups(n: Index, solved: Index, solved_at: float, draws: Sequence[int]) -> Draws | None:
    """What draws from these groups solve; None if no group has a reward."""
    scored = n > 0
    if not scored.any():
        return None
    n, solved = n[scored], solved[scored]
    always, never = int((solved == n).sum()), int((solved == 0).sum())
    passes = [of_prompts(n, solved, k) for k in draws]
    return Draws(solved_at, always, len(n) - always - never, never, passes)


def of_prompts(n: Index, solved: Index, k: int, clusters: Index | None = None) -> Pass:
    """pass@k and pass^k over prompts with so many rollouts, of which so many are solved; those of a cluster count together."""
    enough = n >= k
    if not enough.any():
        return Pass(k, None, None, len(n))
    n, solved = n[enough], solved[enough]
    if clusters is not None:
        clusters = renumbered(clusters[enough])
    rows = n.tolist()
    failed = n - solved
    one_solved = np.array(pass_at(rows, solved.tolist(), k))
    one_failed = np.array(pass_at(rows, failed.tolist(), k))
    left_out = int((~enough).sum())
    pass_any = estimate(one_solved, OF_RATE, clusters=clusters)
    pass_all = estimate(1 - one_failed, OF_RATE, clusters=clusters)
    return Pass(k, pass_any, pass_all, left_out)
