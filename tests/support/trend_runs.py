"""Simulated runs, and what is told of them: `python -m tests.support.trend_runs [RUNS] [SEED]` prints a table of shares.

Each step has 16 prompts with 8 rollouts each, whose rates are drawn from 0.1 to 0.9. Prompts come from a pool of 64 that is
shuffled again and again, or are new in every step. Steps are independent, or share shocks: AR(1) with 0.5 and the std 0.03.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from grpo_cli.engine.moments import Index, Vector
from grpo_cli.stats.courses import Course, course

PROMPTS = 16
ROLLOUTS = 8
POOL = 64
SHOCKS = 0.03  # the std of what the prompts of a step share
KEPT = 0.5  # the part of a shock that the next step has, too
STEPS = (10, 20, 40, 100)
HEAD = """\
| prompts | steps | run | any claim | line | turn | end | on the same prompts |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


class Kind(NamedTuple):
    """What a run does: a rise, a peak at 60 % of the run, a fall in the last two steps; shared shocks or none."""

    rise: float = 0.0
    peak: float = 0.0
    fall: float = 0.0
    shocks: bool = False


KINDS = {
    "no trend": Kind(),
    "no trend, shocks": Kind(shocks=True),
    "+0.1": Kind(rise=0.1),
    "+0.1, shocks": Kind(rise=0.1, shocks=True),
    "+0.2": Kind(rise=0.2),
    "peak of 0.2": Kind(peak=0.2),
    "collapse by 0.4": Kind(fall=0.4),
}


class Run(NamedTuple):
    """The groups of a run: step, prompt and mean reward of each."""

    steps: Index
    prompts: Index
    means: Vector


def drawn(steps: int, kind: Kind, random: np.random.Generator, *, recur: bool) -> Run:
    """A run of so many steps."""
    groups = steps * PROMPTS
    if recur:
        shuffles = -(-groups // POOL)
        prompts = np.concatenate([random.permutation(POOL) for _ in range(shuffles)])[:groups]
    else:
        prompts = np.arange(groups)
    rates = random.uniform(0.1, 0.9, groups)
    at = np.linspace(0, 1, steps)
    level = kind.rise * (at - 0.5) + kind.peak * np.maximum(0, 1 - abs(at - 0.6) / 0.4)
    level[-2:] -= kind.fall
    if kind.shocks:
        shock = 0.0
        for step in range(steps):
            fresh = random.normal(0, SHOCKS) * (np.sqrt(1 - KEPT**2) if step else 1)
            shock = KEPT * shock + fresh
            level[step] += shock
    of_groups = np.repeat(np.arange(steps), PROMPTS)
    chances = np.clip(rates[prompts] + level[of_groups], 0, 1)
    return Run(of_groups, prompts, random.binomial(ROLLOUTS, chances) / ROLLOUTS)


def courses(runs: int, steps: int, kind: Kind, seed: int, *, recur: bool) -> Iterator[Course]:
    """What is told of some runs."""
    random = np.random.default_rng(seed)
    for _ in range(runs):
        run = drawn(steps, kind, random, recur=recur)
        found = course(run.steps, run.means, range(steps), run.prompts)
        assert found is not None
        yield found


def main(runs: int = 2_000, seed: int = 0) -> None:
    """Print how many of the runs are told as a line, a turn or an end apart."""
    sys.stdout.write(HEAD)
    for recur in (True, False):
        for steps in STEPS:
            for name, kind in KINDS.items():
                found = [*courses(runs, steps, kind, seed, recur=recur)]
                shapes = Counter(one.shape for one in found)
                shares = [runs - shapes["none"] - shapes["few"], *(shapes[shape] for shape in ("line", "turn", "end"))]
                shares.append(sum(one.same_prompts for one in found))
                cells = [f"{100 * share / runs:.1f} %" for share in shares]
                sys.stdout.write(f"| {' | '.join(['recur' if recur else 'new', str(steps), name, *cells])} |\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
