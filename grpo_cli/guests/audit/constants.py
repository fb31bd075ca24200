"""Which constants the log solves: an epsilon or a factor lies where the intervals of all rows meet, so none is searched.

Any numbers are close to some formula with a free constant, so a constant must have few digits for the interval that is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from grpo_cli.engine.moments import Vector
from grpo_cli.guests.audit.baselines import Known, Ruled, Start, starts_of
from grpo_cli.guests.audit.candidates import EPSILONS, Candidate
from grpo_cli.guests.audit.divisors import agreeing_rules, likely_of_batch
from grpo_cli.guests.audit.trial import LARGE, Fit, Intervals

# A solved constant has so few digits that a step of the last one is this many half-widths of its interval: chance puts such
# a number into one of 250 intervals.
STEP = 500.0
# The same for values of 16 bits or two decimals, not beside the std of a batch: there the bench has a log with a constant of many digits that
# 0.9 times a batch fits with 200.
STEP_OF_COARSE = 200.0
DIGITS = 2  # of an epsilon, or of a factor beside the std of a batch: one of its many stds fits three by chance
DIFFERENT = 2  # kinds of quotients that a factor beside the mean of a batch has to explain, and one more


def with_constants(known: Known) -> list[Fit]:
    """The formulas of the rungs below with a constant that all rows share."""
    return [*known.may_be_proven(solved_constants)]


def with_constants_of_rounded(known: Known) -> list[Fit]:
    """The same for rounded values, where no rung below has computed the formulas."""
    known.starts = starts_of(known.of_groups, known.log)
    known.starts += likely_of_batch(known)
    return with_constants(known)


def solved_constants(start: Start) -> Iterator[Ruled]:
    """The formulas that begin so, each with an epsilon or a factor that the rows leave."""
    logged, coarse = start.log.logged, start.log.is_coarse
    sign = -1.0 if np.nansum(start.values * logged) < 0 else 1.0
    log = start.log.intervals(solved=True)
    log = log if sign > 0 else Intervals(-log.high, -log.low)
    undivided = [(one, None, *start.parts(None)) for one, _ in start.itself if start.plan.divisor.level != "constant"]
    for one, rule, values, spread in (*undivided, *agreeing_rules(start, log)):
        divisors, constants = log.divisors(values), one.constants + 1
        if sign > 0 and rule is not None and not coarse:
            epsilon = solved_epsilon(start, divisors, spread)
            if epsilon is not None:
                yield start.ruled(one, replace(rule, epsilon=epsilon), solved=True, constants=constants)
        if not _shows_a_factor(start, one, values, spread):
            continue
        uses_batch = start.with_rule(one.plan, rule).uses_batch
        for value in (0.0,) if rule is None else EPSILONS:
            factor = solved_factor(divisors, spread + value, coarse=coarse, uses_batch=uses_batch)
            if factor is not None and sign * factor != 1:
                divided = rule and replace(rule, epsilon=value)
                yield start.ruled(one, divided, factor=sign * factor, solved=True, constants=constants)


def solved_epsilon(start: Start, divisors: Intervals, spread: Vector) -> float | None:
    """The epsilon that all rows leave; None if it has too many digits."""
    large = np.abs(start.log.logged) > LARGE
    step = STEP if kinds(spread[large]) == 1 else 1.0  # different stds that share an epsilon are no chance
    low, high = divisors.beside(spread, squared=False).shared
    return shortest(low, high, DIGITS, step)


def solved_factor(divisors: Intervals, divisor: Vector, *, coarse: bool, uses_batch: bool) -> float | None:
    """The factor that all rows leave beside this divisor; None if it has too many digits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = Intervals(divisors.low / divisor, divisors.high / divisor).shared
    least, most = (1 / end if end else np.inf for end in (high, low))
    if coarse and uses_batch:
        return shortest(least, most, 1, STEP)
    if coarse:
        return shortest(least, most, DIGITS, STEP_OF_COARSE)
    return shortest(least, most, DIGITS if uses_batch else DIGITS + 1, STEP)


def _shows_a_factor(start: Start, one: Candidate, values: Vector, spread: Vector) -> bool:
    """Whether the rows have enough different quotients.

    Minus the mean of a batch, two rewards have two values: a factor puts them on any line through the mean.
    """
    large = np.abs(start.log.logged) > LARGE
    with np.errstate(divide="ignore", invalid="ignore"):
        quotients = np.abs(values[large] / spread[large])
    return kinds(quotients) > (DIFFERENT if one.plan.baseline_level == "batch" else 1)


def shortest(low: float, high: float, digits: int, step: float = STEP) -> float | None:
    """The number of the fewest digits in an interval that is too narrow to hold one by chance; None if there is none."""
    if not 0 < low <= high < np.inf:
        return None
    magnitude, middle = np.floor(np.log10(high)), (low + high) / 2
    for kept in range(1, digits + 1):
        number = float(f"{middle:.{kept}g}")
        last_digit = 10.0 ** (magnitude - kept + 1)
        if low <= number <= high and last_digit >= step * (high - low) / 2:
            return number
    return None


def kinds(values: Vector) -> int:
    """How many distinct numbers there are, to five digits."""
    return len({float(f"{value:.5g}") for value in values.tolist()})
