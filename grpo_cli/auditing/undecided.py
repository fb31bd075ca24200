"""What the rows leave open: formulas that fit as well, what would tell them apart, and the interval of an epsilon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl

from grpo_cli.auditing.candidates import EPSILONS, Candidate
from grpo_cli.auditing.formulas import Formulas, formula_key
from grpo_cli.auditing.solve import rule_of, starts_of
from grpo_cli.auditing.trial import Fit, Intervals, Log, Precision, Trial
from grpo_cli.engine import presets
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Clip, Divisor

OPTIONS: Final = {
    "divisor.level": "--scale", "divisor.of": "--std-of", "divisor.ddof": "--ddof", "post.whiten.level": "--whiten",
}  # fmt: skip
EPSILON: Final = "divisor.epsilon"
TOLD: Final = 8  # formulas for which it is said what would tell them apart
ROLES: Final = ("length", "input_length", "turns")  # 1 in invented rows
# What could be logged besides ordinary groups, as groups of the lowest (0) and the highest (1) reward of the log and numbers between or beyond.
ORDINARY: Final = 6  # groups
INVENTED: Final[Mapping[str, Sequence[float]]] = {
    "one group of unequal size": [0, 1, 1],
    "a group of equal rewards": [1, 1, 1, 1],
    "rewards between the lowest and the highest": [0, 0.3, 0.6, 1],
    "a group whose rewards are nearly equal": [0.5, 0.5, 0.5, 0.501],
    "higher rewards": [0, 1, 1, 4],
    "lower rewards": [-3, 0, 0, 1],
}


@dataclass(frozen=True)
class EpsilonInterval:
    """Where the epsilon lies, how exactly the values were read, and a sentence if several usual ones lie there."""

    low: float
    high: float
    read_as: Precision
    says: str


@dataclass(frozen=True)
class Tie:
    """A formula that fits as well, by its presets or its method with options; and what to log to tell it apart, if that is known."""

    names: Sequence[str]
    told_apart_by: str


def ties_of(fits: Sequence[Fit], log: Trial) -> list[Tie]:
    """Formulas that fit the rows as well as the best."""
    best, nearest = fits[0].candidate, min(fits, key=lambda fit: fit.rank)
    tied = [fit.candidate for fit in fits[1:] if fit.is_tied_with(nearest)]
    by_preset, by_options = dict[Any, list[Candidate]](), dict[str, list[Candidate]]()
    for one in (one for one in tied if one.presets):
        by_preset.setdefault(_formula(one), []).append(one)
    for one in (one for one in tied if not one.presets):
        same = _formula(one) in by_preset or not _options(one, best, best.plan)
        if not (same and _same_method(one, best)):
            by_options.setdefault(_flags(one, best), []).append(one)
    formulas = [
        (ones[0], [f"{one.times}{name}" for one in ones for name in one.presets]) for ones in by_preset.values()
    ]
    formulas += [(ones[0], [flags + _epsilons(ones, best)]) for flags, ones in by_options.items()]
    formulas.sort(key=lambda formula: tied.index(formula[0]))
    told = _told_apart_by(best, [first for first, _ in formulas], log)
    return [Tie([*dict.fromkeys(names)], by) for (_, names), by in zip(formulas, told, strict=True)]


def _formula(one: Candidate) -> Any:
    """The factor and the formula, without the constants of a divisor that it has not."""
    plan = one.plan if one.plan.divisor.level != "none" else replace(one.plan, divisor=Divisor(level="none"))
    return one.factor, formula_key(plan, missing=False, singletons=False)


def _same_method(one: Candidate, best: Candidate) -> bool:
    plan = one.plan
    same = plan.estimator.build is best.plan.estimator.build and plan.weight == best.plan.weight
    return same and one.factor == best.factor


def _options(one: Candidate, best: Candidate, plan: Plan) -> dict[str, Any]:
    """The settings of the divisor and the whitening that the formula reads and that are not those of this plan."""
    # Within a group, the std of the residuals is that of the rewards.
    of_group = _same_method(one, best) and one.plan.divisor.level != "batch"
    unread = {*one.plan.unread, *(["divisor.of"] if of_group else [])}
    changed = presets.differences(one.plan, plan)
    return {name: changed[name][1] for name in (*OPTIONS, EPSILON) if name in changed and name not in unread}


def _flags(one: Candidate, best: Candidate) -> str:
    """The method with its options, all but its epsilon."""
    own = _options(one, best, Plan.of({"estimator.name": one.plan.method}))
    flags = (f"{OPTIONS[name]} {value}" for name, value in own.items() if name != EPSILON)
    return " ".join([f"{one.times}{one.plan.flag}", *flags])


def _epsilons(ones: Sequence[Candidate], best: Candidate) -> str:
    """The option for the epsilons of these formulas; empty if they have that of the method."""
    default = Plan.of({"estimator.name": ones[0].plan.method})
    used = {_options(one, best, default).get(EPSILON, default.divisor.epsilon) for one in ones}
    ends = dict.fromkeys(f"{end:g}" for end in (min(used), max(used)))
    return "" if used == {default.divisor.epsilon} else f" --epsilon {' to '.join(ends)}"


def _told_apart_by(best: Candidate, others: Sequence[Candidate], log: Trial) -> Iterator[str]:
    """For each of the others, what to log so that it differs from the best; empty if nothing that is tried does.

    The formulas are computed on invented groups: for each kind, ordinary groups and a group of the kind are a batch.
    """
    reward, sizes = log.table["reward.0"].to_numpy(), np.bincount(log.table["group"].to_numpy())
    lowest, highest = float(np.nanmin(reward)), float(np.nanmax(reward))
    size = int(np.bincount(sizes).argmax())
    ordinary = [[float(at <= ones % size) for at in range(size)] for ones in range(ORDINARY)]
    groups = [(kind, each) for kind, more in INVENTED.items() for each in (*ordinary, more)]
    rows = [(kind, at, lowest + (highest - lowest) * r) for at, (kind, each) in enumerate(groups) for r in each]
    table = pl.DataFrame(rows, schema=["kind", "group", "reward.0"], orient="row").with_columns(
        pl.col("group").cast(pl.UInt32),
        pl.col("kind").rank("dense").alias("batch"),
        *(pl.lit(1.0).alias(role) for role in ROLES),
    )
    formulas = Formulas(table.drop("kind"))
    told = [] if "reward.1" in log.table.columns else others[:TOLD]
    told = [one for one in told if {*best.plan.needs, *one.plan.needs} <= {*ROLES}]
    formulas.compute(one.plan for one in (*told, *([best] if told else [])))
    for one in others:
        differs = np.zeros(len(table), dtype=bool)
        if one in told:
            expected, given = (each.factor * formulas.advantages(each.plan) for each in (best, one))
            same = (np.abs(given - expected) <= log.tolerance.of(expected)) | (np.isnan(given) & np.isnan(expected))
            differs = ~same
        yield next((kind for (kind, *_), here in zip(rows, differs, strict=True) if here), "")


def epsilon_of(candidate: Candidate, log: Log) -> EpsilonInterval | None:
    """The interval of the epsilon (under the root, if it stands there) that all rows leave, and how exactly they were read.

    None if the formula has none, or does not show it.
    """
    (start,) = starts_of([candidate], log)
    rule = rule_of(candidate.plan, start.plan)
    if rule is None or candidate.plan.weight.by != "none" or any(isinstance(op, Clip) for op in candidate.plan.post):
        return None
    logged = log.part.logged
    tolerance = log.part.tolerance.of_formula(logged, solved=candidate.solved)
    values, spread = start.parts(rule)
    divisors = Intervals.of(np.abs(logged / candidate.factor), tolerance).divisors(np.abs(values))
    low, high = divisors.beside(spread, squared=rule.inside > 0).shared
    if not low <= high < np.inf:
        return None
    is_open = sum(low <= value <= high for value in EPSILONS) > 1
    says = f"epsilon {low:.2g} to {high:.2g}: {tolerance.words} cannot say more"
    return EpsilonInterval(low, high, tolerance.words, says if is_open else "")
