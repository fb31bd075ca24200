"""Logs of advantages with and without a formula, and what `audit` says of each: `python -m benchmarks.audit_logs`.

Every formula is numpy and none is the engine's. A formula is named right if the plan that is named computes, on fresh rewards that nobody has
rounded, what the formula does; it "fits as well" if one of those that are said to be tied does.

    python -m benchmarks.audit_logs [--only known|unknown] [--every N] [--show]
"""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from dataclasses import dataclass, replace
from itertools import count, cycle, product
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

import grpo_cli
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.presets import presets
from grpo_cli.engine.score import advantages
from grpo_cli.errors import GrpoError
from tests.support.plans import plan_from_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Floats = NDArray[Any]

SEED: Final = 45
# How far the named plan may be from the formula on fresh rewards, relative to max(1, |A|): exact and rounded logs.
RIGHT: Final = {"float64": 1e-4, "float32": 1e-4, "float16": 2e-3, "bfloat16": 1e-2, "4 decimals": 1e-3}
OPTIONS: Final = {
    "--scale": "divisor.level",
    "--std-of": "divisor.of",
    "--ddof": "divisor.ddof",
    "--whiten": "post.whiten.level",
}


@dataclass(frozen=True)
class Rows:
    """Rewards in their groups and steps, with the length of each response."""

    group: NDArray[np.int64]
    step: NDArray[np.int64]
    reward: Floats
    length: Floats
    counts: NDArray[np.bool_]  # rows that are not masked

    def mean(self, x: Floats) -> Floats:
        """The mean of the group of each row."""
        return (np.bincount(self.group, x) / self.size)[self.group]

    @property
    def size(self) -> NDArray[np.int64]:
        """The number of rows of each group."""
        return np.bincount(self.group)

    @property
    def n(self) -> Floats:
        """The number of rows of the group of each row."""
        return self.size[self.group].astype(float)

    def std(self, x: Floats, ddof: int) -> Floats:
        """The std of the group of each row."""
        squares = np.bincount(self.group, (x - self.mean(x)) ** 2)[self.group]
        return np.asarray(np.sqrt(squares / np.maximum(self.n - ddof, 1)))

    def of_step(self, x: Floats, what: Callable[[Floats], float]) -> Floats:
        """A number of the step of each row."""
        return np.array([what(x[self.step == step]) for step in range(self.step.max() + 1)])[self.step]


def centred(t: Rows) -> Floats:
    """The reward minus the mean of its group."""
    return t.reward - t.mean(t.reward)


def others(t: Rows) -> Floats:
    """The reward minus the mean of the other rewards of its group."""
    return np.asarray(centred(t) * t.n / (t.n - 1))


def whitened(t: Rows, x: Floats, epsilon: float, ddof: int = 1) -> Floats:
    """Standardised over the step."""
    return (x - t.of_step(x, np.mean)) / (t.of_step(x, lambda one: float(one.std(ddof=ddof))) + epsilon)


def by_tokens(t: Rows, x: Floats) -> Floats:
    """Standardised over all tokens of the step."""
    total = t.of_step(t.length, np.sum)
    mean = t.of_step(x * t.length, np.sum) / total
    variance = t.of_step((x - mean) ** 2 * t.length, np.sum) / (total - 1)
    return np.asarray((x - mean) / np.sqrt(variance + 1e-8))


def deviation(t: Rows) -> Floats:
    """The mean absolute deviation of the group."""
    return t.mean(np.abs(centred(t)))


def batch(x: Floats, t: Rows, ddof: int) -> Floats:
    """The std of the step."""
    return t.of_step(x, lambda one: float(one.std(ddof=ddof)))


def peak(t: Rows) -> Floats:
    """MGPO's weight: largest at a solve rate of one half."""
    p = np.clip(t.mean(t.reward), 1e-12, 1 - 1e-12)
    return np.asarray(np.exp(-0.5 * (p * np.log(p / 0.5) + (1 - p) * np.log((1 - p) / 0.5))))


KNOWN: Final[dict[str, Callable[[Rows], Floats]]] = {
    "group, ddof 1, 1e-4": lambda t: centred(t) / (t.std(t.reward, 1) + 1e-4),
    "group, ddof 1, 1e-6": lambda t: centred(t) / (t.std(t.reward, 1) + 1e-6),
    "group, ddof 0, 1e-8": lambda t: centred(t) / (t.std(t.reward, 0) + 1e-8),
    "group, ddof 0, 1e-4": lambda t: centred(t) / (t.std(t.reward, 0) + 1e-4),
    "group, root 1e-5": lambda t: centred(t) / np.sqrt(t.std(t.reward, 1) ** 2 + 1e-5),
    "group, deviation": lambda t: centred(t) / (deviation(t) + 1e-6),
    "centred": centred,
    "others": others,
    "twice centred": lambda t: 2 * centred(t),
    "batch, ddof 1": lambda t: centred(t) / (batch(t.reward, t, 1) + 1e-4),
    "batch, ddof 0": lambda t: centred(t) / (batch(t.reward, t, 0) + 1e-8),
    "batch of residuals, ddof 1": lambda t: centred(t) / (batch(centred(t), t, 1) + 1e-6),
    "others, batch": lambda t: others(t) / (batch(t.reward, t, 1) + 1e-6),
    "others, group": lambda t: others(t) / (t.std(t.reward, 1) + 1e-8),
    "batch baseline": lambda t: whitened(t, t.reward, 1e-6),
    "batch baseline, undivided": lambda t: t.reward - t.of_step(t.reward, np.mean),
    "reinforce++": lambda t: by_tokens(t, t.reward),
    "reinforce++-baseline": lambda t: by_tokens(t, centred(t)),
    "others, whitened": lambda t: whitened(t, others(t), 1e-4),
    "gdpo": lambda t: whitened(t, centred(t) / (t.std(t.reward, 1) + 1e-4), 1e-4),
    "raw": lambda t: t.reward,
    "clipped at 0.6": lambda t: np.clip(centred(t), -0.6, 0.6),
    "maxrl": lambda t: np.divide(centred(t), t.mean(t.reward), out=np.zeros(len(t.reward)), where=t.mean(t.reward) > 0),
    "by length": lambda t: t.reward - t.mean(t.reward * t.length) / t.mean(t.length),
    "peak": lambda t: peak(t) * centred(t) / (t.std(t.reward, 1) + 1e-4),
}  # fmt: skip


def other_policy(t: Rows, rng: np.random.Generator) -> Floats:
    """Advantages of other rewards."""
    kinds = np.unique(t.reward)
    t = replace(t, reward=rng.choice(kinds, len(t.reward)))
    return centred(t) / (t.std(t.reward, 1) + 1e-4)


def shuffled(t: Rows, rng: np.random.Generator) -> Floats:
    """The right values of each group on any of its rows."""
    values, order = KNOWN["group, ddof 1, 1e-4"](t), np.lexsort((rng.random(len(t.group)), t.group))
    given = np.empty(len(values))
    given[np.argsort(t.group, kind="stable")] = values[order]
    return given


UNKNOWN: Final[dict[str, Callable[[Rows, np.random.Generator], Floats]]] = {
    "shuffled": shuffled,
    "noise of 5 %": lambda t, rng: centred(t) / (t.std(t.reward, 1) + 1e-4) + 0.05 * rng.normal(size=len(t.group)),
    "noise of 20 %, batch": lambda t, rng: centred(t) / batch(t.reward, t, 1) + 0.2 * rng.normal(size=len(t.group)),
    "another policy": other_policy,
    "a critic": lambda t, rng: t.reward - rng.random(len(t.group)),
    "a critic of groups": lambda t, rng: t.reward - rng.random(t.group.max() + 1)[t.group],
    "clipped noise": lambda t, rng: np.clip(rng.normal(size=len(t.group)), -1, 1),
    "a constant of many digits": lambda t, rng: centred(t) / rng.uniform(0.2, 0.9),
    "divided by the range": lambda t, rng: centred(t) / (
        np.array([np.ptp(t.reward[t.group == k]) for k in range(t.group.max() + 1)])[t.group] + rng.uniform(0.2, 0.4)),
    "an odd power": lambda t, rng: centred(t) / (t.std(t.reward, 1) ** rng.uniform(1.2, 1.8) + 0.1),
    "part of the mean": lambda t, rng: t.reward - rng.uniform(0.3, 0.8) * t.mean(t.reward),
    "tanh": lambda t, rng: np.tanh(rng.uniform(0.7, 3) * centred(t) + 0.1),
    "a weight of its own": lambda t, rng: centred(t) * (rng.uniform(1.1, 1.5) - t.mean(t.reward)),
    "a value for each reward": lambda t, rng: rng.normal(size=len(np.unique(t.reward)))[np.unique(t.reward, return_inverse=True)[1]],
    "a factor for each group": lambda t, rng: centred(t) * rng.uniform(0.5, 2, t.group.max() + 1)[t.group],
}  # fmt: skip

REWARDS: Final[dict[str, Callable[[np.random.Generator, Floats], Floats]]] = {
    "0/1": lambda rng, rate: (rng.random(len(rate)) < rate).astype(float),
    "quarters": lambda rng, rate: rng.binomial(4, rate) / 4,
    "decimals": lambda rng, rate: np.round(np.clip(rate + rng.normal(0, 0.2, len(rate)), 0, 1), 3),
    "reals": lambda rng, rate: rate + rng.normal(0, 0.3, len(rate)),
}


def bfloat16(values: Floats) -> Floats:
    """To the nearest number of eight bits."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(float)


PRECISIONS: Final[dict[str, Callable[[Floats], Any]]] = {
    "float64": lambda a: a,
    "float32": lambda a: a.astype(np.float32),
    "float16": lambda a: a.astype(np.float16).astype(np.float32),
    "bfloat16": bfloat16,
    "4 decimals": lambda a: np.round(a, 4),
}


@dataclass(frozen=True)
class Log:
    """What makes a log: its formula ("" and a function of noise for those without), its numbers, its shape."""

    formula: str
    rewards: str
    precision: str
    groups: int
    even: bool
    steps: int
    mask: str  # "", "vote" or "exclude"
    seed: int
    known: bool

    def rows(self, seed: int) -> Rows:
        """Rewards, the same for the same seed."""
        rng = np.random.default_rng([SEED, self.seed, seed])
        sizes = np.full(self.groups, 8) if self.even else rng.integers(3, 13, self.groups)
        group = np.repeat(np.arange(self.groups), sizes)
        step = (group * self.steps) // self.groups
        rate = rng.uniform(0.05, 0.95, self.groups)[group]
        mask = rng.random(len(group)) < (0.15 if self.mask else 0)
        length = rng.integers(20, 900, len(group)).astype(float)
        return Rows(group, step, REWARDS[self.rewards](rng, rate), length, ~mask)

    def values(self, t: Rows) -> Floats:
        """What the formula gives, NaN for rows that are left out."""
        rng = np.random.default_rng([SEED, self.seed, 7])
        at = np.flatnonzero(t.counts) if self.mask == "exclude" else np.arange(len(t.group))
        group = np.unique(t.group[at], return_inverse=True)[1]
        part = Rows(group, t.step[at], t.reward[at], t.length[at], t.counts[at])
        given = np.full(len(t.group), np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            given[at] = np.nan_to_num(KNOWN[self.formula](part) if self.known else UNKNOWN[self.formula](part, rng))
        return given

    def said(self) -> tuple[str, float, str]:
        """What an audit says of it, how long that took, and the name that it gives."""
        t = self.rows(0)
        given = PRECISIONS[self.precision](self.values(t))
        frame = pl.DataFrame({
            "prompt_id": [f"p{one}" for one in t.group], "step": t.step, "reward": t.reward, "length": t.length,
            "advantage": pl.Series(given).fill_nan(None),
        })  # fmt: skip
        frame = frame.drop(*([] if self.steps > 1 else ["step"]))
        if self.mask:
            frame = frame.with_columns(is_masked=pl.Series(~t.counts))
        start = time.process_time()
        try:
            facts = grpo_cli.audit(frame, masked_column="is_masked" if self.mask else None)
        except GrpoError as error:
            return f"refused: {error}", time.process_time() - start, ""
        spent = time.process_time() - start
        match = facts["match"]
        verdict = match["verdict"]
        name = ("" if match["factor"] == 1 else f"{match['factor']} x ") + match["name"]
        if verdict != "match" or facts["headline"]:
            return verdict, spent, name
        if not self.known:
            return "WRONG", spent, name
        if self.is_right(plan_from_dict(match["plan"]), match["factor"]):
            return "named", spent, name
        ties = (tied(one) for tie in facts["ties"] for one in tie["names"])
        return ("tie" if any(self.is_right(*one) for one in ties if one) else "WRONG"), spent, name

    def is_right(self, plan: Plan, factor: float) -> bool:
        """Whether the plan computes the formula on fresh rewards."""
        t = self.rows(1)
        table = pl.DataFrame({"group": t.group, "batch": t.step, "reward.0": t.reward, "length": t.length})
        if self.mask == "exclude":
            t = replace(t, counts=t.counts)
            table = table.filter(pl.Series(t.counts)).with_columns(pl.col("group").rank("dense") - 1)
        wanted = self.values(t)[np.isfinite(self.values(t))]
        table = table.with_columns(pl.col("group", "batch").cast(pl.UInt32))
        try:
            given = factor * advantages(plan, table)
        except (GrpoError, pl.exceptions.PolarsError):
            return False
        return bool(
            (np.abs(np.nan_to_num(given) - wanted) <= RIGHT[self.precision] * np.maximum(1, np.abs(wanted))).all()
        )


def tied(name: str) -> tuple[Plan, float] | None:
    """The plan of a formula that is said to fit as well."""
    factor, _, rest = name.rpartition(" x ")
    rest = re.sub(r"(--epsilon \S+) to \S+", r"\1", rest)
    words = rest.split()
    given: dict[str, Any] = {"rewards.missing": "exclude"}
    preset = None if words[0].startswith("--") else presets()[words.pop(0)].plan
    for flag, value in zip(words[::2], words[1::2], strict=True):
        if flag == "--set":
            key, _, value = value.partition("=")  # noqa: PLW2901 - a field and its value
            given[key] = value
        else:
            given[{**OPTIONS, "--method": "estimator.name", "--epsilon": "divisor.epsilon"}[flag]] = value
    if preset is not None:
        divisor = replace(preset.divisor, level=given["divisor.level"]) if "divisor.level" in given else preset.divisor
        return replace(preset, divisor=divisor, rewards=replace(preset.rewards, missing="exclude")), float(factor or 1)
    return Plan.of(given), float(factor or 1)


def logs() -> Iterator[Log]:
    """150 with a formula, six of each; 300 without, twenty of each kind."""
    precisions, shapes = cycle(PRECISIONS), cycle(product((9, 40, 4, 300, 16, 2_000), (True, False)))
    rewards, steps, masks, seeds = (
        cycle(REWARDS),
        cycle((1, 1, 3)),
        cycle(("", "", "", "vote", "", "", "exclude")),
        count(),
    )
    for known, formulas, times in ((True, KNOWN, 6), (False, UNKNOWN, 20)):
        for name, _ in product(formulas, range(times)):
            (groups, even), by, kind = next(shapes), next(steps), next(rewards)
            kind = "0/1" if name == "peak" else kind
            by = by if groups >= 9 else 1
            precision = next(precisions)
            yield Log(name, kind, precision, groups, even, by, next(masks), next(seeds), known)


def main() -> None:
    """Count the verdicts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=("known", "unknown"))
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    presets()
    for known in (True, False):
        if given.only == ("unknown" if known else "known"):
            continue
        counts, times = Counter[str](), []
        for log in [one for one in logs() if one.known == known][:: given.every]:
            verdict, spent, name = log.said()
            counts[verdict] += 1
            times.append(spent)
            if given.show:
                shape = f"{log.groups} {'even' if log.even else 'uneven'} {log.steps} {log.mask}"
                print(
                    f"{verdict:8s} {spent:6.2f} s {log.formula:28s} {log.rewards:9s} {log.precision:10s} {shape:22s} {name}",
                    flush=True,
                )
        what = "with" if known else "without"
        print(
            f"{len(times)} logs {what} a formula: {dict(counts)}; processor seconds: median {np.median(times):.2f}, p90 {np.quantile(times, 0.9):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
