"""Three hundred logs of advantages and what an audit should say of each: known formulas, own constants, unknown ones.

`LOGS` is the table. A log is rewards, a formula, and what the logger made of its numbers; `names` are the answers that
are right (any of them), none where no formula of the library made it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Clip
from grpo_cli.engine.score import score
from grpo_cli.formats.frame import FRAME, FrameReader
from grpo_cli.guests.audit.candidates import Said, candidates
from grpo_cli.guests.audit.run import Job, audited
from grpo_cli.read.tables import Binding, Table
from grpo_cli.stats.document import document
from tests.support.printed import not_reproduced

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Formula = Callable[[Floats], Floats]  # of rewards with a line for each group

GROUPS: Final = 60


@dataclass(frozen=True)
class Log:
    """Rewards by the name of their kind, a formula, the logger's numbers, and the names that are right."""

    kind: str
    rewards: str
    made: Plan | Formula
    names: frozenset[str]
    logger: str = "float32"
    fault: str = ""

    def table(self, seed: int) -> pl.DataFrame:
        """The file that is audited."""
        rng = np.random.default_rng(seed)
        rewards = REWARDS[self.rewards](rng)
        codes = np.repeat(np.arange(len(rewards)), rewards.shape[1])
        weighted = rewards
        if self.fault == "weights":
            other = np.round(rng.random(rewards.shape), 2)
            weighted = rewards + 0.2 * other
        lengths = rng.integers(100, 2_000, rewards.shape)
        if self.fault == "a length penalty":
            weighted = rewards - lengths / 4_000
        values = self._values(weighted, codes)
        if self.fault == "shifted by a row":
            values = np.roll(values.ravel(), 1).reshape(values.shape)
        if self.fault == "cut to half":
            codes = codes.reshape(rewards.shape)[:, ::2].ravel()
            rewards, values, lengths = rewards[:, ::2], values[:, ::2], lengths[:, ::2]
        if self.fault == "shuffled groups":
            values[3], values[17] = values[3][::-1].copy(), np.roll(values[17], 1)
        frame: dict[str, Any] = {
            "prompt_id": [f"p{code // 2 if self.fault == 'merged keys' else code}" for code in codes],
            "reward": rewards.ravel(),
            "advantage": LOGGERS[self.logger](values.ravel()),
        }
        if self.fault == "weights":
            frame["other"] = other.ravel()
        if self.fault == "a length penalty":
            frame["length"] = lengths.ravel()
        return pl.DataFrame(frame)

    def _values(self, rewards: Floats, codes: NDArray[np.int64]) -> Floats:
        if not isinstance(self.made, Plan):
            return self.made(rewards)
        table = pl.DataFrame(
            {"group": codes.astype(np.uint32), "batch": np.zeros(len(codes), np.uint32), "reward.0": rewards.ravel()}
        )
        found = score(self.made, table).frame[".advantage"].to_numpy().astype(np.float64)
        return found.reshape(rewards.shape)


REWARDS: Final[Mapping[str, Callable[[np.random.Generator], Floats]]] = {
    "zero or one": lambda rng: (rng.random((GROUPS, 8)) < rng.random((GROUPS, 1))).astype(float),
    "three decimals": lambda rng: np.round(rng.random((GROUPS, 8)), 3),
    "quarters": lambda rng: rng.integers(0, 5, (GROUPS, 8)) / 4,
    "groups of five": lambda rng: np.round(rng.normal(size=(GROUPS, 5)), 2),
}


def _bfloat16(values: Floats) -> Floats:
    """To the nearest number of eight bits."""
    bits = values.astype(np.float32).view(np.uint32)
    to_even = (bits >> 16) & 1
    rounded = (bits + 0x7FFF + to_even) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32).astype(float)


LOGGERS: Final[Mapping[str, Callable[[Floats], Any]]] = {
    "float32": lambda values: values.astype(np.float32),
    "two decimals": lambda values: np.round(values, 2),
    "three decimals": lambda values: np.round(values, 3),
    "four decimals": lambda values: np.round(values, 4),
    "float16": lambda values: values.astype(np.float16).astype(np.float32),
    "bfloat16": _bfloat16,
}


def centred(rewards: Floats) -> Any:
    """The rewards above the mean of their group."""
    return rewards - rewards.mean(axis=1, keepdims=True)


def _std(rewards: Floats) -> Any:
    return rewards.std(axis=1, keepdims=True, ddof=1)


UNKNOWN: Final[Mapping[str, Formula]] = {
    "tanh of the centred": lambda r: np.tanh(3 * centred(r)),
    "square of the centred": lambda r: np.sign(centred(r)) * centred(r) ** 2,
    "above the best": lambda r: r - r.max(axis=1, keepdims=True),
    "above the midrange": lambda r: r - (r.max(axis=1, keepdims=True) + r.min(axis=1, keepdims=True)) / 2,
    "divided by the range": lambda r: centred(r) / (np.ptp(r, axis=1, keepdims=True) + 0.3),
    "divided by the root of the std": lambda r: centred(r) / np.sqrt(_std(r) + 0.01),
    "half of the mean": lambda r: r - r.mean(axis=1, keepdims=True) / 2,
    "mixed with the batch": lambda r: r - 0.7 * r.mean(axis=1, keepdims=True) - 0.3 * r.mean(),
    "exponential": lambda r: np.exp(centred(r)) - 1,
    "weighed by the difficulty": lambda r: centred(r) * (1.37 - r.mean(axis=1, keepdims=True)),
    "an odd power of the std": lambda r: centred(r) / (_std(r) ** 1.5 + 0.1),
    "ranks to the third": lambda r: (r.argsort(axis=1).argsort(axis=1) / r.shape[1] - 0.5) ** 3,
    "noise": lambda r: centred(r) + np.sin(np.arange(r.size).reshape(r.shape) * 7.3) / 9,
}


def _epsilon(level: str, epsilon: float, method: str = "grpo") -> Plan:
    return Plan.of({"estimator.name": method, "divisor.level": level, "divisor.epsilon": epsilon})


def _scaled(plan: Plan, factor: float) -> Formula:
    def values(rewards: Floats) -> Floats:
        codes = np.repeat(np.arange(len(rewards)), rewards.shape[1])
        return factor * Log("", "", plan, frozenset())._values(rewards, codes)

    return values


def _two_values(low: float, high: float) -> Formula:
    return lambda rewards: np.where(rewards == 1, high, low)


def _of_the_library() -> list[Log]:
    logs = list[Log]()
    known = candidates(Said(), (), 1)
    for one in known:
        if one.presets:
            names = frozenset(one.presets)
            logs += [Log("a preset", rewards, one.plan, names) for rewards in ("three decimals", "zero or one")]
    methods = ("grpo", "dr-grpo", "rloo", "batch-norm", "maxrl")
    for one in [one for one in known if one.plan.method in methods][:40]:
        logs.append(Log("a method", "groups of five", one.plan, frozenset({*one.presets, one.plan.method})))
    return logs


def _logs() -> list[Log]:
    logs = _of_the_library()
    for epsilon, level, method in product((3e-3, 0.02, 0.05), ("group", "batch"), ("grpo", "rloo")):
        logs.append(Log("own epsilon", "three decimals", _epsilon(level, epsilon, method), frozenset({method, "grpo"})))
    for factor, method, rewards in product((0.5, 2.0, -1.0, 1.7), ("grpo", "dr-grpo"), ("quarters", "three decimals")):
        scale = "group" if method == "grpo" else "none"
        names = frozenset({f"{factor:g} x {method}"})
        logs.append(Log("a factor", rewards, _scaled(_epsilon(scale, 1e-6, method), factor), names))
    for factor in (0.25, 0.75, 1.5, 2.0, 3.0):  # the spread of a batch of zeros and ones is nearly 0.5
        names = frozenset({f"{factor:g} x dr-grpo"})
        logs.append(Log("a factor", "zero or one", _scaled(_epsilon("none", 1e-6, "dr-grpo"), factor), names))
    for epsilon, rewards in product((0.11, 0.21, 0.037), ("three decimals", "groups of five")):
        logs.append(Log("own epsilon", rewards, _epsilon("batch", epsilon), frozenset({"grpo"})))
    for factor, rewards in product((1.5077, 0.90145), ("three decimals", "zero or one", "quarters")):
        odd = _scaled(_epsilon("none", 1e-6, "dr-grpo"), factor)
        logs.append(Log("unknown: a factor of many digits", rewards, odd, frozenset()))
    for logger, method, rewards in product(
        ("three decimals", "four decimals", "float16", "bfloat16"), ("grpo", "rloo", "batch-norm"), ("three decimals", "zero or one", "quarters"),
    ):  # fmt: skip
        made = Plan.of({"estimator.name": method})
        logs.append(Log("rounded", rewards, made, frozenset({method}), logger))
    clipped = replace(_epsilon("group", 1e-4), post=(Clip(lo=-1.2, hi=1.2),))
    logs += [Log("clipped", rewards, clipped, frozenset({"grpo"})) for rewards in ("three decimals", "groups of five")]
    for (name, formula), rewards in product(UNKNOWN.items(), ("three decimals", "quarters", "zero or one")):
        logs.append(Log(f"unknown: {name}", rewards, formula, frozenset()))
    for (name, formula), logger in product(UNKNOWN.items(), ("three decimals", "float16", "bfloat16")):
        logs.append(Log(f"unknown: {name}", "three decimals", formula, frozenset(), logger))
    for fault, method in product(("shuffled groups", "merged keys"), ("grpo", "rloo", "dr-grpo")):
        made = Plan.of({"estimator.name": method})
        logs.append(Log("a fault", "three decimals", made, frozenset({method}), fault=fault))
    return [*logs, *_rounded_to_two(), *_of_whole_logs()]


def _rounded_to_two() -> list[Log]:
    logs = []
    for method, rewards in product(("grpo", "rloo", "batch-norm", "dr-grpo"), REWARDS):
        if (method, rewards) != ("batch-norm", "zero or one"):  # two values tell nothing
            made = Plan.of({"estimator.name": method})
            logs.append(Log("rounded", rewards, made, frozenset({method}), "two decimals"))
    for (name, formula), rewards in product(UNKNOWN.items(), ("three decimals", "quarters", "zero or one")):
        logs.append(Log(f"unknown: {name}", rewards, formula, frozenset(), "two decimals"))
    return logs


def _of_whole_logs() -> list[Log]:
    """What is the matter with all of a log: weights, a shift, a cut, a length penalty, two values, a clip."""
    logs = []
    for method, rewards in product(("grpo", "rloo", "dr-grpo"), ("three decimals", "zero or one")):
        made = Plan.of({"estimator.name": method})
        logs.append(Log("two rewards", rewards, made, frozenset({method}), fault="weights"))
        logs.append(Log("a fault", rewards, made, frozenset({"shift"}), fault="shifted by a row"))
        logs.append(Log("a fault", "zero or one", made, frozenset({"cut"}), fault="cut to half"))
        logs.append(Log("a fault", "zero or one", made, frozenset({"length"}), fault="a length penalty"))
    for low, high in ((-0.4, 1.8), (-1.0, 1.0), (-0.13, 0.71)):
        logs.append(Log("unknown: two values", "zero or one", _two_values(low, high), frozenset()))
    for bound, method in product((0.3, 0.45, 0.7), ("dr-grpo", "rloo")):
        made = Plan.of({"estimator.name": method})
        clipped = replace(made, post=(Clip(lo=-bound, hi=bound),))
        logs.append(Log("clipped", "zero or one", clipped, frozenset({method})))
    return logs


LOGS: Final = _logs()
# The right formula is named; it is among those that are said to fit as well; no formula is said to fit; another one is.
VERDICTS: Final = ("named", "tie", "none", "wrong")
RECORDED: Final = Path(__file__).with_name("audit_verdicts.json")


def kind_of(log: Log) -> str:
    """How the table of verdicts calls it."""
    what = log.kind.partition(":")[0]
    if what in {"rounded", "unknown"} and log.logger != "float32":
        what = f"{what} to {log.logger}" if what == "rounded" else f"{what}, rounded to {log.logger}"
    return f"{what}: {log.fault}" if log.fault else what


def counted(verdicts: Sequence[str]) -> dict[str, dict[str, int]]:
    """How often each verdict was given, for each kind of log."""
    table: dict[str, dict[str, int]] = {}
    for log, one in zip(LOGS, verdicts, strict=True):
        row = table.setdefault(kind_of(log), dict.fromkeys(VERDICTS, 0))
        row[one] += 1
    return table


def seed(at: int) -> int:
    """The same random numbers whatever else is in the table."""
    log = LOGS[at]
    return zlib.crc32(f"{log.kind} {log.rewards} {sorted(log.names)} {log.logger} {log.fault}".encode())


def _spellings(plan: Mapping[str, Any]) -> set[str]:
    """The methods that a plan is: dr-grpo is grpo without a divisor."""
    row = ESTIMATORS[plan["method"]]
    level = plan["divisor"]["level"]
    return {plan["method"], *(one.name for one in ESTIMATORS.values() if one.build is row.build and one.scale == level)}


def said(at: int) -> tuple[pl.DataFrame, dict[str, Any]]:
    """A log, and what an audit says of it."""
    log = LOGS[at]
    frame = log.table(seed(at))
    binding = Binding(rewards=("reward", "other")) if log.fault == "weights" else Binding()
    columns = FrameReader(frame.columns, lambda names, rows: frame.select(names)[:rows], types=frame.schema)
    return frame, document(audited(Job(inputs=(), binding=binding), [Table(FRAME, columns)]))


def odd_when_run(at: int) -> list[str]:
    """Which of the formulas that are said to fit do not give the log if they are run."""
    frame, facts = said(at)
    fits = facts["match"]["verdict"] == "match" and facts["headline"] is None
    return not_reproduced(frame, facts, group="prompt_id") if fits else []


def verdict(at: int) -> str:
    """What an audit says of a log, one of VERDICTS."""
    log = LOGS[at]
    _, facts = said(at)
    match = facts["match"]
    fits = match["verdict"] in {"match", "noise"}
    if facts["headline"] is not None:
        return "named" if {one["cause"] for one in facts["causes"]} == log.names else "wrong"
    if log.fault == "weights" and fits and match["weights"] != {"reward": 1.0, "other": 0.2}:
        return "wrong"
    if not log.names:
        return "wrong" if fits else "none"
    if not fits and not (log.fault and match["verdict"] in {"near", "few"}):
        return "none"
    names = {match["name"], *match["preset_names"]}
    if match["factor"] == 1:
        names |= _spellings(match["plan"])
    if names & log.names:
        return "named"
    ties = {name.replace("--method ", "") for tie in facts["ties"] for name in tie["names"]}
    return "tie" if ties & log.names else "wrong"
