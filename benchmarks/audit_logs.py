"""Logs of advantages with and without a formula, and what `audit` says of each: `python -m benchmarks.audit_logs`.

Every formula is numpy and none is the engine's. 150 logs have a formula in every shape, 432 have nine formulas as loggers round
them (2 to 5 decimals, float16, bfloat16; groups of 3, 4, 8 and 16; 0/1 and graded rewards), 300 have no formula.

The judge. A log is *wrong* if a formula is named and the right one is neither it nor among those that are said to fit as well. The
right one computes, on fresh rewards of groups of unequal size that nobody has rounded, what the formula does; another epsilon is
right where the range that is printed holds that of the formula. The right claim must pass. Of twenty wrong claims, each of which
differs in some row by more than the coarsest reading that the values allow, none may pass. With --run-printed, what is printed is run as well.

    python -m benchmarks.audit_logs [--only known|rounded|unknown] [--family NAME] [--first N] [--last N] [--every N] [--show]
                                    [--run-printed] [--keep FILE]
    python -m benchmarks.audit_logs --table FILE ...

A run with --keep adds a line for each log to a file, and --table counts the lines of such files: the bench can be run in parts.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from itertools import count, cycle, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import numpy as np
import polars as pl

import grpo_cli
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.presets import presets
from grpo_cli.engine.score import advantages
from grpo_cli.errors import GrpoError
from grpo_cli.guests.audit import facts as audit_facts
from grpo_cli.guests.audit import groupings
from grpo_cli.guests.audit.run import said_of
from grpo_cli.options.given import Given
from tests.support.plans import plan_from_dict
from tests.support.printed import coarsest, not_reproduced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[Any]

SEED: Final = 45
WRONG_CLAIMS: Final = 20  # of a log
# How far the named plan may be from the formula on fresh rewards, relative to max(1, |A|): a solved constant has three digits.
RIGHT: Final = 1e-4
RIGHT_IF_ROUNDED: Final = 2e-3
NOT_ROUNDED: Final = {"float64", "float32"}
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


@dataclass(frozen=True)
class Known:
    """A formula with its epsilon, and the options that claim it."""

    formula: Callable[[Rows, float], Floats]
    epsilon: float = 0.0
    claim: Mapping[str, Any] = field(default_factory=dict)
    judged_on: str = "decimals"  # the rewards on which a named plan has to compute it

    def __call__(self, t: Rows) -> Floats:
        """The advantages."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.nan_to_num(self.formula(t, self.epsilon))


def known(formula: Callable[[Rows, float], Floats], epsilon: float = 0.0, /, **claim: Any) -> Known:
    """A formula, its epsilon, and the options that claim it."""
    return Known(formula, epsilon, claim)


def of_group(epsilon: float, ddof: int) -> Known:
    """GRPO."""
    return known(
        lambda t, e: centred(t) / (t.std(t.reward, ddof) + e), epsilon, method="grpo", epsilon=epsilon, ddof=ddof
    )


def of_batch(epsilon: float, ddof: int, x: Callable[[Rows], Floats] = centred, method: str = "grpo") -> Known:
    """Divided by the std of the rewards of the step."""
    claim = {"method": method, "scale": "batch", "std_of": "reward", "epsilon": epsilon, "ddof": ddof}
    return known(lambda t, e: x(t) / (batch(t.reward, t, ddof) + e), epsilon, **claim)


def clipped_at(bound: float) -> Known:
    """The reward minus the mean of its group, within these bounds."""
    return known(lambda t, _: np.clip(centred(t), -bound, bound), method="dr-grpo", clip=f"-{bound}:{bound}")


def whitens(epsilon: float = 0.0, inside: float = 0.0) -> list[str]:
    """The settings of a whitening."""
    return [f"post.whiten.epsilon={epsilon}", f"post.whiten.inside={inside}", "post.whiten.masked=count"]


KNOWN: Final[dict[str, Known]] = {
    "group, ddof 1, 1e-4": of_group(1e-4, 1),
    "group, ddof 1, 1e-6": of_group(1e-6, 1),
    "group, ddof 0, 1e-8": of_group(1e-8, 0),
    "group, ddof 0, 1e-4": of_group(1e-4, 0),
    "group, root 1e-5": known(
        lambda t, _: centred(t) / np.sqrt(t.std(t.reward, 1) ** 2 + 1e-5), method="grpo", epsilon=0.0, set=["divisor.inside=1e-05"]),
    "group, deviation": known(
        lambda t, e: centred(t) / (deviation(t) + e), 1e-6, method="grpo", epsilon=1e-6, set=["divisor.measure=mad"]),
    "centred": known(lambda t, _: centred(t), method="dr-grpo"),
    "others": known(lambda t, _: others(t), method="rloo"),
    "twice centred": known(lambda t, _: 2 * centred(t), expr="2 * (reward - mean)"),
    "batch, ddof 1": of_batch(1e-4, 1),
    "batch, ddof 0": of_batch(1e-8, 0),
    "batch of residuals, ddof 1": known(
        lambda t, e: centred(t) / (batch(centred(t), t, 1) + e), 1e-6, method="grpo", scale="batch", std_of="residual", epsilon=1e-6),
    "others, batch": of_batch(1e-6, 1, others, "rloo"),
    "others, group": known(
        lambda t, e: others(t) / (t.std(t.reward, 1) + e), 1e-8, method="rloo", scale="group", epsilon=1e-8),
    "batch baseline": known(lambda t, e: whitened(t, t.reward, e), 1e-6, method="batch-norm", scale="batch", epsilon=1e-6),
    "batch baseline, undivided": known(
        lambda t, _: t.reward - t.of_step(t.reward, np.mean), method="batch-norm", scale="none"),
    "reinforce++": known(lambda t, _: by_tokens(t, t.reward), method="reinforce", whiten="token", set=whitens(inside=1e-8)),
    "reinforce++-baseline": known(
        lambda t, _: by_tokens(t, centred(t)), method="dr-grpo", whiten="token", set=whitens(inside=1e-8)),
    "others, whitened": known(
        lambda t, _: whitened(t, others(t), 1e-4), method="rloo", whiten="sample", set=whitens(1e-4)),
    "gdpo": known(
        lambda t, _: whitened(t, centred(t) / (t.std(t.reward, 1) + 1e-4), 1e-4), preset="trl-gdpo"),
    "raw": known(lambda t, _: t.reward, method="reinforce"),
    "clipped at 0.6": clipped_at(0.6),
    "maxrl": known(lambda t, _: np.divide(centred(t), t.mean(t.reward), out=np.zeros(len(t.reward)), where=t.mean(t.reward) > 0), method="maxrl"),
    "by length": known(lambda t, _: t.reward - t.mean(t.reward * t.length) / t.mean(t.length), method="opo"),
    "peak": replace(known(lambda t, e: peak(t) * centred(t) / (t.std(t.reward, 1) + e), 1e-4, method="grpo", epsilon=1e-4, set=["weight.by=peak", "weight.sharpness=0.5"]),
        judged_on="0/1"),
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


def float16(values: Floats) -> Any:
    """To the nearest number of eleven bits."""
    return values.astype(np.float16).astype(np.float32)


PRECISIONS: Final[dict[str, Callable[[Floats], Any]]] = {
    "float64": lambda a: a,
    "float32": lambda a: a.astype(np.float32),
    "float16": float16,
    "bfloat16": bfloat16,
    "4 decimals": lambda a: np.round(a, 4),
    "2 decimals": lambda a: np.round(a, 2),
    "3 decimals": lambda a: np.round(a, 3),
    "5 decimals": lambda a: np.round(a, 5),
}
OF_150: Final = ("float64", "float32", "float16", "bfloat16", "4 decimals")
ROUNDED: Final = ("2 decimals", "3 decimals", "4 decimals", "5 decimals", "float16", "bfloat16")
ROUNDED_FORMULAS: Final = (
    "group, ddof 1, 1e-4", "group, ddof 0, 1e-8", "group, deviation", "centred", "others", "batch, ddof 1", "batch baseline",
    "gdpo", "maxrl",
)  # fmt: skip
SIZES: Final = (3, 4, 8, 16)
SHAPES: Final = (9, 40, 4, 300, 16, 2_000)  # numbers of groups


@dataclass(frozen=True)
class Log:
    """What makes a log: its formula (or a function of noise for those without), its numbers, its shape."""

    kind: str  # known, rounded or unknown
    formula: str
    rewards: str
    precision: str
    groups: int
    size: int  # of each group; 0: 3 to 12 rows
    steps: int
    mask: str  # "", "vote" or "exclude"
    seed: int

    @property
    def words(self) -> str:
        """Its shape in words."""
        return f"{self.groups} groups of {self.size or '3 to 12'}, {self.steps} steps {self.mask}"

    def rows(self) -> Rows:
        """Rewards, the same for the same seed."""
        rng = np.random.default_rng([SEED, self.seed, 0])
        sizes = np.full(self.groups, self.size) if self.size else rng.integers(3, 13, self.groups)
        group = np.repeat(np.arange(self.groups), sizes)
        step = (group * self.steps) // self.groups
        rate = rng.uniform(0.05, 0.95, self.groups)[group]
        mask = rng.random(len(group)) < (0.15 if self.mask else 0)
        length = rng.integers(20, 900, len(group)).astype(float)
        return Rows(group, step, REWARDS[self.rewards](rng, rate), length, ~mask)

    def values(self, t: Rows, formula: Callable[[Rows], Floats] | None = None) -> Floats:
        """What a formula gives (None: that of the log), NaN for rows that are left out."""
        rng = np.random.default_rng([SEED, self.seed, 7])
        at = np.flatnonzero(t.counts) if self.mask == "exclude" else np.arange(len(t.group))
        group = np.unique(t.group[at], return_inverse=True)[1]
        part = Rows(group, t.step[at], t.reward[at], t.length[at], t.counts[at])
        given = np.full(len(t.group), np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            if formula is not None:
                given[at] = np.nan_to_num(formula(part))
            elif self.kind == "unknown":
                given[at] = np.nan_to_num(UNKNOWN[self.formula](part, rng))
            else:
                given[at] = np.nan_to_num(KNOWN[self.formula](part))
        return given

    def logged(self, t: Rows) -> Any:
        """The column of advantages."""
        return PRECISIONS[self.precision](self.values(t))

    def frame(self, t: Rows) -> pl.DataFrame:
        """The file that is audited."""
        frame = pl.DataFrame({
            "prompt_id": [f"p{one}" for one in t.group], "step": t.step, "reward": t.reward, "length": t.length,
            "advantage": pl.Series(self.logged(t)).fill_nan(None),
        })  # fmt: skip
        frame = frame.drop(*([] if self.steps > 1 else ["step"]))
        return frame.with_columns(is_masked=pl.Series(~t.counts)) if self.mask else frame


@dataclass
class Said:
    """What an audit says of a log."""

    kind: str
    family: str
    verdict: str  # named, tie, WRONG, FALSE (a formula for a log that has none), or the word of the audit
    seconds: float  # of the processor, beyond those of `inspect`
    name: str
    right_claim: str = ""  # passed, or what was said
    wrong_claims: int = 0  # that were tried
    passed: list[str] = field(default_factory=list)  # wrong claims that passed
    not_reproduced: list[str] = field(default_factory=list)  # printed formulas that do not give the log if they are run
    alone: bool = True  # whether no other formula of the bench lies within the coarsest reading on every row


def judged(log: Log, *, runs_printed: bool) -> Said:
    """What an audit says of it, and how it judges claims; `runs_printed`: whether the printed formulas are run."""
    t = log.rows()
    frame = log.frame(t)
    masked: dict[str, Any] = {"masked_column": "is_masked"} if log.mask else {}
    start = time.process_time()
    grpo_cli.inspect(frame, **masked)
    inspected = time.process_time() - start
    results = list[Any]()

    def kept(result: Any, *more: Any) -> Any:
        results.append(result)
        return audit_facts.facts_of(result, *more)

    family = f"{log.formula} | {log.precision} | {log.rewards} | {log.words}"
    start = time.process_time()
    try:
        with patch.object(groupings, "facts_of", kept):
            facts = grpo_cli.audit(frame, **masked)
    except GrpoError as error:
        return Said(log.kind, family, f"refused: {error}", 0.0, "")
    spent = time.process_time() - start - inspected
    match, name = facts["match"], _name(facts["match"])
    verdict = match["verdict"] if not facts["headline"] else f"headline: {facts['headline'].split(':')[0]}"
    is_named = match["verdict"] in {"match", "noise"} and not facts["headline"]
    if log.kind == "unknown":
        return Said(log.kind, family, "FALSE" if is_named else verdict, spent, name)
    said = Said(log.kind, family, _rightness(log, facts) if is_named else verdict, spent, name)
    if is_named and runs_printed:
        said.not_reproduced = not_reproduced(frame, facts, group="prompt_id", **masked)
    claim = KNOWN[log.formula].claim
    claimed = grpo_cli.audit(frame, **masked, **claim)["claim"]
    said.right_claim = (
        f"{claimed['mismatched_rows']} of {len(frame)} rows differ" if claimed["mismatched_rows"] else "passed"
    )
    _try_claims(log, t, results[0], said)
    return said


def _name(match: Mapping[str, Any]) -> str:
    divisor = match["plan"]["divisor"]
    inside = f" inside {divisor['inside']}" if divisor["inside"] else ""
    times = "" if match["factor"] == 1 else f"{match['factor']:g} x "
    return f"{times}{match['name'].removeprefix(times)} {divisor['level']} {divisor['epsilon']}{inside}"


# --- is the right formula named ----------------------------------------------------------------------------------


def fresh(seed: int, rewards: str = "decimals") -> Rows:
    """Rewards of groups of unequal size that no log has."""
    return replace(Log("known", "", rewards, "", 60, 0, 1, "", 10_000 + seed).rows(), counts=np.ones(0, bool))


def _computes(plan: Plan, factor: float, formula: Known, epsilon: float, within: float) -> bool:
    """Whether the plan computes the formula on fresh rewards."""
    t = fresh(1, formula.judged_on)
    table = pl.DataFrame({"group": t.group, "batch": t.step, "reward.0": t.reward, "length": t.length})
    table = table.with_columns(pl.col("group", "batch").cast(pl.UInt32))
    wanted = replace(formula, epsilon=epsilon)(t)
    try:
        given = factor * advantages(plan, table)
    except (GrpoError, pl.exceptions.PolarsError):
        return False
    return bool((np.abs(np.nan_to_num(given) - wanted) <= within * np.maximum(1, np.abs(wanted))).all())


def _rightness(log: Log, facts: Mapping[str, Any]) -> str:
    """`named`, `tie` or `WRONG`."""
    formula = KNOWN[log.formula]
    within = RIGHT if log.precision in NOT_ROUNDED else RIGHT_IF_ROUNDED

    def is_right(plan: Plan, factor: float, low: float, high: float) -> bool:
        if _computes(plan, factor, formula, formula.epsilon, within):
            return True
        # Its own epsilon, and the range that is printed beside it holds that of the formula.
        own = plan.divisor.epsilon
        may_be = low <= formula.epsilon <= high and not plan.divisor.inside
        return may_be and _computes(plan, factor, formula, own, within)

    match = facts["match"]
    interval = match["epsilon"] or {"low": 1.0, "high": 0.0}
    if is_right(plan_from_dict(match["plan"]), match["factor"], interval["low"], interval["high"]):
        return "named"
    ties = (tied(name) for tie in facts["ties"] for name in tie["names"])
    return "tie" if any(is_right(*one) for one in ties if one) else "WRONG"


def tied(name: str) -> tuple[Plan, float, float, float] | None:
    """The plan of a formula that is said to fit as well, its factor, and the range of its epsilon."""
    factor, _, rest = name.rpartition(" x ")
    low, high = 1.0, 0.0
    if found := re.search(r"--epsilon (\S+) to (\S+)", rest):
        low, high = map(float, found.groups())
        rest = rest.replace(found.group(0), f"--epsilon {found.group(1)}")
    rest = re.sub(r"(=\S+) to \S+", r"\1", rest)  # what is added under the root
    words = rest.split()
    given: dict[str, Any] = {"rewards.missing": "exclude"}
    preset = None if words[0].startswith("--") else presets()[words.pop(0)].plan
    for flag, value in zip(words[::2], words[1::2], strict=True):
        if flag == "--set":
            key, _, value = value.partition("=")  # noqa: PLW2901 - a field and its value
            given[key] = float(value) if re.fullmatch(r"[0-9.e-]+", value) else value
        else:
            given[{**OPTIONS, "--method": "estimator.name", "--epsilon": "divisor.epsilon"}[flag]] = (
                float(value) if flag == "--epsilon" else int(value) if flag == "--ddof" else value
            )
    if preset is not None:
        divisor = replace(preset.divisor, level=given["divisor.level"]) if "divisor.level" in given else preset.divisor
        plan = replace(preset, divisor=divisor, rewards=replace(preset.rewards, missing="exclude"))
    else:
        plan = Plan.of(given)
    return plan, float(factor or 1), low, high


# --- claims ----------------------------------------------------------------------------------------------------


def _claims() -> dict[str, Known]:
    """The formulas that are claimed: those of the bench, and others with other constants."""
    more = {
        f"group, ddof {ddof}, {epsilon:g}": of_group(epsilon, ddof)
        for epsilon, ddof in product((1e-3, 1e-2, 3e-2, 0.1), (0, 1))
    }
    clips = {f"clipped at {bound}": clipped_at(bound) for bound in (0.1, 0.2, 0.3)}
    batches = {f"batch, {epsilon:g}": of_batch(epsilon, 1) for epsilon in (3e-2, 0.1, 0.3)}
    return {**KNOWN, **more, **clips, **batches}


CLAIMS: Final = _claims()


def _plan_of(claim: Mapping[str, Any]) -> Plan:
    plan = said_of(Given(dict(claim))).claim
    if plan is None:
        raise ValueError(f"{claim} claims nothing")
    return plan


def _try_claims(log: Log, t: Rows, result: Any, said: Said) -> None:
    """Twenty wrong claims, and whether another formula lies within the reading on every row."""
    logged = np.asarray(log.logged(t), dtype=float)
    known_rows, allowed = np.isfinite(logged), coarsest(logged)
    check = getattr(audit_facts, "check_claim", None) or audit_facts._check_claim  # noqa: SLF001
    for name, formula in CLAIMS.items():
        differs = np.abs(log.values(t, formula) - logged)[known_rows] > allowed[known_rows]
        if name != log.formula and not differs.any() and not _computes_alike(formula, KNOWN[log.formula]):
            said.alone = False
        if differs.any() and said.wrong_claims < WRONG_CLAIMS and formula.claim:
            said.wrong_claims += 1
            if not check(_plan_of(formula.claim), result).mismatched_rows:
                said.passed.append(name)


def _computes_alike(one: Known, other: Known) -> bool:
    t = fresh(2)
    return bool(np.allclose(one(t), other(t), rtol=1e-3, atol=1e-3))


# --- the logs --------------------------------------------------------------------------------------------------


def logs() -> Iterator[Log]:
    """150 with a formula, six of each; 432 that are rounded; 300 without a formula, twenty of each kind."""
    precisions, shapes = cycle(OF_150), cycle(product(SHAPES, (8, 0)))
    rewards, steps, seeds = cycle(REWARDS), cycle((1, 1, 3)), count()
    masks = cycle(("", "", "", "vote", "", "", "exclude"))
    for kind, formulas, times in (("known", KNOWN, 6), ("unknown", UNKNOWN, 20)):
        for name, _ in product(formulas, range(times)):
            (groups, size), by, of = next(shapes), next(steps), next(rewards)
            of = "0/1" if name == "peak" else of
            by = by if groups >= 9 else 1
            yield Log(kind, name, of, next(precisions), groups, size, by, next(masks), next(seeds))
    for name, precision, size, of in product(ROUNDED_FORMULAS, ROUNDED, SIZES, ("0/1", "graded")):
        seed = next(seeds)
        graded = ("quarters", "decimals")[seed // 2 % 2]
        yield Log("rounded", name, of if of == "0/1" else graded, precision, 40, size, 1, "", seed)


def verified() -> None:
    """The options of every claim compute its formula; a claim that does not is an error of the bench."""
    for name, formula in CLAIMS.items():
        if not _computes(_plan_of(formula.claim), 1.0, formula, formula.epsilon, 2e-6):
            raise ValueError(f"{name}: the options of the claim compute another formula")


def table(said: Iterable[Said]) -> str:
    """The counts of verdicts, of claims, and the times."""
    lines, kinds = [], defaultdict[str, list[Said]](list)
    for one in said:
        parts = one.family.split(" | ")
        kinds[one.kind].append(one)
        if one.kind == "rounded":
            kinds[f"  {parts[1]}"].append(one)
            kinds[f"  {parts[0]}"].append(one)
            kinds[
                f"  {parts[2] if parts[2] == '0/1' else 'graded'}, {parts[3].split(',')[0].removeprefix('40 ')}"
            ].append(one)
    for kind, ones in kinds.items():
        lines.append(f"{kind:34s} {_counts(ones)}")
    every = [one for ones in (kinds[k] for k in ("known", "rounded", "unknown") if k in kinds) for one in ones]
    times = [one.seconds for one in every]
    lines.append(
        f"processor seconds beyond inspect: median {np.median(times):.2f}, p90 {np.quantile(times, 0.9):.2f}, largest {max(times):.2f}"
    )
    return "\n".join(lines)


def _counts(ones: Sequence[Said]) -> str:
    verdicts = Counter(
        one.verdict if one.verdict in {"named", "tie", "few", "WRONG", "FALSE"} else "none" for one in ones
    )
    told = " ".join(
        f"{word} {verdicts[word]:3d}" for word in ("named", "tie", "few", "none", "WRONG", "FALSE") if verdicts[word]
    )
    refused = sum(one.right_claim not in {"", "passed"} for one in ones)
    passed, tried = sum(len(one.passed) for one in ones), sum(one.wrong_claims for one in ones)
    alone = [one for one in ones if one.alone and one.kind != "unknown"]
    found = sum(one.verdict in {"named", "tie"} for one in alone)
    of_alone = f"; alone {found} of {len(alone)}" if alone else ""
    unlike = sum(bool(one.not_reproduced) for one in ones)
    of_alone += f"; not reproduced {unlike}" if unlike else ""
    claims = f"; right claim refused {refused}; wrong passed {passed} of {tried}" if tried else ""
    return f"{len(ones):3d} logs: {told}{of_alone}{claims}"


def main() -> None:
    """Judge the logs, and count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=("known", "rounded", "unknown"))
    parser.add_argument("--family", default="")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--run-printed", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    given = parser.parse_args()
    if given.table:
        lines = [line for path in given.table for line in path.read_text(encoding="utf-8").splitlines()]
        print(table(Said(**json.loads(line)) for line in lines))
        return
    presets()
    verified()
    chosen = [one for one in logs() if given.only in {None, one.kind} and given.family in one.formula]
    found = []
    for log in chosen[given.first : given.last : given.every]:
        said = judged(log, runs_printed=given.run_printed)
        found.append(said)
        if given.keep:
            with given.keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps(vars(said)) + "\n")
        is_good = (
            said.right_claim in {"", "passed"}
            and not said.passed
            and not said.not_reproduced
            and said.verdict not in {"WRONG", "FALSE"}
        )
        if given.show or not is_good:
            claims = (
                ""
                if is_good
                else f" | right claim: {said.right_claim} | passed: {', '.join(said.passed)} | {said.not_reproduced}"
            )
            print(f"{said.verdict:8s} {said.seconds:6.2f} s {said.family:66s} {said.name}{claims}", flush=True)
    print(table(found))


if __name__ == "__main__":
    main()
