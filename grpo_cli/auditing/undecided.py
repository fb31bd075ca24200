"""What the rows leave open: formulas that fit as well, what would tell them apart, and the interval of an epsilon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl

from grpo_cli.auditing.candidates import EPSILONS, Candidate
from grpo_cli.auditing.formulas import Formulas, formula_key
from grpo_cli.auditing.solve import LEVELS, Intervals, rule_of, starts_of
from grpo_cli.auditing.trial import Fit, Precision, Trial
from grpo_cli.engine import presets
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Clip, Divisor

OPTIONS: Final = {
    "divisor.level": "--scale", "divisor.of": "--std-of", "divisor.ddof": "--ddof", "post.whiten.level": "--whiten",
}  # fmt: skip
TOLD: Final = 8  # formulas for which it is said what would tell them apart
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


def ties_of(fits: Sequence[Fit]) -> list[tuple[list[str], Candidate]]:
    """Formulas that fit the rows as well as the best, each by all its names: presets, else its method with options."""
    best, nearest_fit = fits[0].candidate, min(fits, key=lambda fit: fit.rank)
    formulas: dict[Any, list[str]] = {}
    first: dict[Any, Candidate] = {}
    epsilons: dict[str, set[float]] = {}  # of a method with its other options
    for candidate in (fit.candidate for fit in fits[1:] if fit.is_tied_with(nearest_fit)):
        plan, times = candidate.plan, "" if candidate.factor == 1 else f"{candidate.factor:g} x "
        used = plan if plan.divisor.level != "none" else replace(plan, divisor=Divisor(level="none"))
        key = candidate.factor, formula_key(used, missing=False, singletons=False)
        if candidate.presets:
            first.setdefault(key, candidate)
            formulas.setdefault(key, []).extend(f"{times}{name}" for name in candidate.presets)
            continue
        is_same_method = plan.estimator.build is best.plan.estimator.build and candidate.factor == best.factor
        is_same_method &= plan.weight == best.plan.weight
        # Within a group, the std of the residuals is that of the rewards.
        unread = {*plan.unread, *(["divisor.of"] if is_same_method and plan.divisor.level != "batch" else [])}
        changed = {*presets.differences(plan, best.plan)} & {*OPTIONS, "divisor.epsilon"} - unread
        if is_same_method and (key in formulas or not changed):
            continue
        default = Plan.of({"estimator.name": plan.method})
        own = presets.differences(plan, default)
        options = [f"{flag} {own[part][1]}" for part, flag in OPTIONS.items() if part in own and part not in unread]
        name = " ".join([f"{times}{plan.flag}", *options])
        first.setdefault(name, candidate)
        epsilon = default if "divisor.epsilon" in unread else plan
        epsilons.setdefault(name, set()).add(epsilon.divisor.epsilon)
        ends = dict.fromkeys(f"{end(epsilons[name]):g}" for end in (min, max))
        is_default = epsilons[name] == {default.divisor.epsilon}
        formulas[name] = [name if is_default else f"{name} --epsilon {' to '.join(ends)}"]
    return [(list(dict.fromkeys(names)), first[key]) for key, names in formulas.items()]


def told_apart_by(best: Candidate, others: Sequence[Candidate], log: Trial) -> list[str]:
    """For each of the others, what to log so that it differs from the best; empty if nothing that is tried does.

    The formulas are computed on invented groups: for each kind, ordinary groups and a group of the kind are a batch.
    """
    known = {"length", "input_length", "turns"}
    told = [one for one in others[:TOLD] if {*best.plan.needs, *one.plan.needs} <= known]
    if "reward.1" in log.table.columns or not told:
        return [""] * len(others)
    reward, sizes = log.table["reward.0"].to_numpy(), np.bincount(log.table["group"].to_numpy())
    lowest, highest = float(np.nanmin(reward)), float(np.nanmax(reward))
    size = int(np.bincount(sizes).argmax())
    ordinary = [[float(at <= ones % size) for at in range(size)] for ones in range(ORDINARY)]
    groups = [[*ordinary, more] for more in INVENTED.values()]
    rows = [
        (batch, len(each) * batch + at, lowest + (highest - lowest) * r)
        for batch, each in enumerate(groups)
        for at, group in enumerate(each)
        for r in group
    ]
    kinds = {"batch": pl.UInt32, "group": pl.UInt32, "reward.0": pl.Float64}
    table = pl.DataFrame(rows, schema=kinds, orient="row")
    table = table.with_columns(pl.lit(1.0).alias(role) for role in sorted(known))
    formulas, codes = Formulas(table), table["batch"].to_numpy()
    formulas.compute(one.plan for one in (best, *told))

    def kind(one: Candidate) -> str:
        expected, given = (each.factor * formulas.advantages(each.plan) for each in (best, one))
        differs = ~(np.abs(given - expected) <= log.tolerance.of(expected)) & ~(np.isnan(given) & np.isnan(expected))
        return next((name for at, name in enumerate(INVENTED) if differs[codes == at].any()), "")

    return [kind(one) if one in told else "" for one in others]


def epsilon_of(candidate: Candidate, log: Trial) -> EpsilonInterval | None:
    """The interval of the epsilon (under the root, if it stands there) that all rows leave, and how exactly they were read.

    None if the formula has none, or does not show it.
    """
    (start,) = starts_of([candidate], log.formulas, np.arange(len(log.logged)), log, LEVELS)
    rule = rule_of(candidate.plan, start.plan)
    if rule is None or candidate.plan.weight.by != "none" or any(isinstance(op, Clip) for op in candidate.plan.post):
        return None
    tolerance = log.tolerance.of_formula(log.logged, solved=candidate.solved)
    read = Intervals.of(np.abs(log.logged / candidate.factor), tolerance)
    divisors = read.divisors(np.abs(start.numerator(rule)))
    added, several = divisors.beside(start.spread(rule), squared=rule.inside > 0), ~start.alone
    low, high = Intervals(added.low[several], added.high[several]).shared
    if not low <= high < np.inf:
        return None
    is_open = sum(low <= value <= high for value in EPSILONS) > 1
    says = f"epsilon {low:.2g} to {high:.2g}: {tolerance.words} cannot say more"
    return EpsilonInterval(low, high, tolerance.words, says if is_open else "")
