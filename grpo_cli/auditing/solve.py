"""Solve for the last division of a formula: A = x / d, so every row says in which interval its divisor lies.

A logged number stands for an interval, which its rounding gives. What is divided (x) is computed once for each method;
a divisor is then a claim about d: a std with an epsilon, or a constant. Its constants lie where the intervals of the rows
meet, so none is searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from grpo_cli.auditing.candidates import DDOFS, EPSILONS, Candidate
from grpo_cli.auditing.formulas import Formulas
from grpo_cli.auditing.trial import FAR, LARGE, Fit, Tolerance, Trial, rounded
from grpo_cli.engine.extra_columns import MASKED
from grpo_cli.engine.group_stats import Mask, group_extremes
from grpo_cli.engine.moments import NEAREST, Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Clip, Divisor, NanToZero, Whiten
from grpo_cli.engine.score import SD_ALONE

ZERO: Final = 1e-12  # a smaller number is the rounding of 0
# A step of the last digit of a solved constant is this many times half its interval: chance gives one in half as many.
STEP: Final = 500.0
DIGITS: Final = 2  # of an epsilon, or of a factor beside the std of a batch: one of its many stds fits three by chance
INSIDE: Final = 3  # distinct values between the bounds of a clip, at least
EQUAL: Final = 1e-5  # relative difference of values that were clipped to the same bound
LEVELS: Final[Sequence[Literal["group", "batch"]]] = ("group", "batch")
OF: Final[Sequence[Literal["reward", "residual"]]] = ("reward", "residual")
DIFFERENT: Final = 2  # rows at a bound, or distinct values, at least


@dataclass(frozen=True, slots=True)
class Intervals:
    """A lowest and a highest number for each row; if the lowest is above the highest, there is none."""

    low: Vector
    high: Vector

    @classmethod
    def of(cls, logged: Vector, tolerance: Tolerance) -> Intervals:
        """What the logged values stand for."""
        allowed = tolerance.of(logged)
        return cls(logged - allowed, logged + allowed)

    def divisors(self, undivided: Vector) -> Intervals:
        """The positive divisors with which each undivided value is in its interval."""
        size, positive = np.abs(undivided), undivided > 0
        least, most = np.where(positive, self.low, -self.high), np.where(positive, self.high, -self.low)
        with np.errstate(all="ignore"):
            low, high = np.where(most > 0, size / most, np.inf), np.where(least > 0, size / least, np.inf)
        # A zero is zero whatever divides it, and a row without an advantage has none.
        missing = np.isnan(undivided)
        fixed = missing | (size <= ZERO) | np.isnan(self.low)
        free = fixed & np.where(missing, np.isnan(self.low), (self.low <= 0) & (self.high >= 0))
        return Intervals(
            np.where(fixed, np.where(free, 0.0, np.inf), low), np.where(fixed, np.where(free, np.inf, 0.0), high)
        )

    def beside(self, spread: Vector, *, squared: bool) -> Intervals:
        """What is added to a spread; `squared`: under the root."""
        with np.errstate(all="ignore"):
            if squared:
                return Intervals(self.low**2 - spread**2, self.high**2 - spread**2)
            return Intervals(self.low - spread, self.high - spread)

    @property
    def negative(self) -> Intervals:
        """The intervals of the opposite numbers."""
        return Intervals(-self.high, -self.low)

    def agreeing(self, codes: Index) -> int:
        """The number of rows whose group has a number that all of its rows share."""
        size = int(codes.max(initial=0)) + 1
        low, high = group_extremes(codes, self.low, size)[1], group_extremes(codes, self.high, size)[0]
        return int((low <= high)[codes].sum())

    def holding(self, value: float) -> int:
        """The number of rows whose interval has this number."""
        return int(((self.low <= value) & (value <= self.high)).sum())

    @property
    def shared(self) -> tuple[float, float]:
        """The interval that all rows share."""
        return float(self.low.max(initial=0.0)), float(self.high.min(initial=np.inf))


def shortest(low: float, high: float, digits: int, step: float = STEP) -> float | None:
    """The number of the fewest digits in an interval that is too narrow to hold one by chance; None if there is none."""
    if not 0 < low <= high < np.inf:
        return None
    magnitude = np.floor(np.log10(high))
    for kept in range(1, digits + 1):
        number = float(f"{(low + high) / 2:.{kept}g}")
        if low <= number <= high and 10.0 ** (magnitude - kept + 1) >= step * (high - low) / 2:
            return number
    return None


def undivided(plan: Plan) -> Plan:
    """The plan without its last division, which is a whitening or by a std, and without a clip after it."""
    if (at := _whitening(plan)) is not None:
        return replace(plan, post=plan.post[:at])
    rule, post = plan.divisor, tuple(op for op in plan.post if not isinstance(op, (Clip, NanToZero)))
    # Of several rewards each is divided; a step part is added and a weight multiplied after the division.
    is_last = plan.rewards.combine == "sum" and not plan.unit.state_weight and plan.weight.by == "none"
    is_plain = rule.of != "others" and not rule.only_positive and rule.least is None
    divided = rule.level in {"group", "batch"} and is_last and is_plain
    return replace(plan, post=post, divisor=Divisor(level="none") if divided else rule)


def _whitening(plan: Plan) -> int | None:
    return next((at for at, op in enumerate(plan.post) if isinstance(op, Whiten) and op.divide), None)


def rule_of(plan: Plan, start: Plan) -> Divisor | Whiten | None:
    """The last division of a plan: what it has beyond its start."""
    at = _whitening(plan)
    if at is not None:
        op = plan.post[at]
        return op if isinstance(op, Whiten) else None
    return plan.divisor if plan.divisor != start.divisor and plan.divisor.level in {"group", "batch"} else None


def _with_rule(plan: Plan, rule: Divisor | Whiten) -> Plan:
    if isinstance(rule, Divisor):
        return replace(plan, divisor=rule)
    at = _whitening(plan) or 0
    return replace(plan, post=(*plan.post[:at], rule, *plan.post[at + 1 :]))


@dataclass(frozen=True)
class Start:
    """A formula up to its last division, and the candidates that begin with it; only `rows` of the table are compared."""

    plan: Plan
    members: Sequence[Candidate]
    formulas: Formulas
    rows: Index
    log: Trial  # the compared rows
    levels: Sequence[Literal["group", "batch"]]  # of the rules that are tried
    spreads: dict[Any, Vector]  # of all starts: many divide by the std of the same rewards
    like: Start | None = None  # one with the same values

    @property
    def table(self) -> pl.DataFrame:
        """The table that is computed on."""
        return self.formulas.table

    @cached_property
    def values(self) -> Vector:
        """What is divided, of every row of the table."""
        return self.formulas.advantages(self.plan) if self.like is None else self.like.values

    def divided(self, candidate: Candidate) -> Vector:
        """The advantages of a candidate that begins with this start, of the compared rows."""
        plan, rule = candidate.plan, rule_of(candidate.plan, self.plan)
        values = self.numerator(rule)
        of_engine = plan.weight != self.plan.weight or self.formulas.has_missing
        if of_engine or (rule is not None and rule_of_batch(rule) and np.isnan(values).any()):
            return (
                candidate.factor * self.formulas.advantages(plan)[self.rows]
            )  # what a missing number does is decided there
        if rule is not None:
            divisor = np.sqrt(np.maximum(self.spread(rule) ** 2 + rule.inside, rule.floor)) + rule.epsilon
            keeps = plan.alone.result in {"keep", "error"}
            if isinstance(rule, Divisor) and (rule.level == "group" or not keeps):
                divisor = np.where(self.alone, SD_ALONE[plan.alone.sd] + rule.epsilon if keeps else 1.0, divisor)
            with np.errstate(all="ignore"):
                values = np.where(divisor < NEAREST, 0.0 * values, values / divisor)
        for op in plan.post[len(self.plan.post) :]:
            values = np.clip(values, op.lo, op.hi) if isinstance(op, Clip) else values
            values = np.nan_to_num(values, posinf=0.0, neginf=0.0) if isinstance(op, NanToZero) else values
        return candidate.factor * values

    def numerator(self, rule: Divisor | Whiten | None) -> Vector:
        """What this rule divides, of the compared rows: a whitening subtracts the mean of the batch first."""
        if not isinstance(rule, Whiten):
            return self.values[self.rows]
        return (self.values - _means(self.values, self._codes("batch"), self._counts(rule)))[self.rows]

    def spread(self, rule: Divisor | Whiten) -> Vector:
        """What this rule adds its constants to, of the compared rows."""
        same = isinstance(rule, Divisor) and rule.of == "reward"
        start = self._shaped if same else id(self.like or self)
        key = start, replace(rule, inside=0.0, floor=0.0, epsilon=0.0)
        if key not in self.spreads:
            self.spreads[key] = self._spread(rule)[self.rows]
        return self.spreads[key]

    def _spread(self, rule: Divisor | Whiten) -> Vector:
        if isinstance(rule, Whiten):
            return _stds(self.values, self._codes("batch"), self._counts(rule), rule.ddof)
        codes, values = self._codes(rule.level), self.values
        if rule.of == "reward":
            values = self._rewards
        if rule.measure == "mad":
            return _means(np.abs(values - _means(values, codes, self._share)), codes, self._share)
        return _stds(values, codes, self._share, rule.ddof)

    @property
    def _shaped(self) -> tuple[Any, ...]:
        return self.plan.rewards, self.plan.unit, self.plan.shape

    @property
    def _rewards(self) -> Vector:
        """The shaped rewards of every row of the table."""
        if self._shaped not in self.spreads:
            plan = replace(_raw(), rewards=self.plan.rewards, unit=self.plan.unit, shape=self.plan.shape)
            self.spreads[self._shaped] = self.formulas.advantages(plan)
        return self.spreads[self._shaped]

    def _codes(self, level: str) -> Index:
        return self.table[level].to_numpy().astype(np.int64)

    @cached_property
    def alone(self) -> Mask:
        """The compared rows that are alone in their groups."""
        codes, rewards = self._codes("group"), self._rewards
        return np.asarray(np.bincount(codes, self._share * np.isfinite(rewards))[codes] < DIFFERENT)[self.rows]

    @cached_property
    def _share(self) -> Vector:
        """How much a row counts: a rollout counts once."""
        if self.plan.unit.take == "each" or "rollout" not in self.table.columns:
            return np.ones(len(self.table))
        codes = self.table["rollout"].to_numpy()
        return np.asarray(1.0 / np.bincount(codes)[codes])

    def _counts(self, rule: Whiten) -> Vector:
        """How much a row counts in a whitening."""
        table = self.table
        counts = table["length"].to_numpy().astype(np.float64) if rule.level == "token" else self._share
        return counts * ~table[MASKED].to_numpy() if rule.skips_masked and MASKED in table.columns else counts

    def fits(self, tried: Iterable[Candidate]) -> list[Fit]:
        """How well these candidates fit the compared rows."""
        return [self.log.measured(one, self.divided(one)) for one in tried]

    def rules(self) -> Iterator[tuple[Candidate, Divisor | Whiten]]:
        """The last divisions that its method may have, without constants, each with a candidate that takes it."""
        if (plain := self.plain) is not None and self.plan.divisor.level == "none":
            for level in self.levels:
                named = self.named_for(level)  # methods that begin alike may have other scales
                is_known = named is not None or level in self.plan.estimator.scales
                if not is_known or (level == "group" and self.plan.baseline_level == "batch"):
                    continue
                # Within a group the residuals have the std of the rewards.
                kinds = product(OF if level == "batch" and self.plan.baseline_level == "group" else OF[:1], DDOFS)
                rules = [Divisor(level=level, of=of, ddof=ddof, epsilon=0.0) for of, ddof in kinds]
                rules += [Divisor(level=level, measure="mad", epsilon=0.0)] if level == "group" else []
                yield from ((named or plain, rule) for rule in rules)
        whitened = {
            str(rule): (one, rule)
            for one in (self.members if "batch" in self.levels else ())
            if isinstance(rule := rule_of(one.plan, self.plan), Whiten)
        }
        for one, rule in whitened.values():
            yield from ((one, replace(rule, ddof=ddof, inside=0.0, floor=0.0, epsilon=0.0)) for ddof in DDOFS)

    @property
    def plain(self) -> Candidate | None:
        """The start itself as a candidate; None if its candidates are all whitened."""
        plain = next((one for one in self.members if _whitening(one.plan) is None), None)
        return plain and (self.named_for(self.plan.divisor.level) or plain.with_plan(self.plan))

    def named_for(self, level: str) -> Candidate | None:
        """The start by the name of a method that divides so, by default if there is one: grpo and dr-grpo begin alike."""
        named = [one for one in self.members if one.plan.divisor.level == level and _whitening(one.plan) is None]
        named.sort(key=lambda one: one.plan.estimator.scale != level)
        return next((one.with_plan(replace(self.plan, method=one.plan.method)) for one in named), None)


@cache
def _raw() -> Plan:
    return Plan.of({"estimator.name": "reinforce"})


def _means(values: Vector, codes: Index, counts: Vector) -> Vector:
    """The mean in the group of each row."""
    known = np.where(np.isfinite(values), counts, 0.0)
    with np.errstate(all="ignore"):
        return (np.bincount(codes, known * np.nan_to_num(values)) / np.bincount(codes, known))[codes]


def _stds(values: Vector, codes: Index, counts: Vector, ddof: int) -> Vector:
    """The std in the group of each row."""
    away, known = values - _means(values, codes, counts), np.where(np.isfinite(values), counts, 0.0)
    with np.errstate(all="ignore"):
        squares = np.bincount(codes, known * np.nan_to_num(away) ** 2)
        return np.sqrt(squares / (np.bincount(codes, known) - ddof))[codes]


def starts_of(
    tried: Sequence[Candidate], formulas: Formulas, rows: Index, log: Trial, levels: Sequence[Literal["group", "batch"]]
) -> list[Start]:
    """The formulas of these candidates up to their last division, computed together."""
    plans, members, spreads = dict[Any, Plan](), dict[Any, list[Candidate]](), dict[Any, Vector]()
    for candidate in tried:
        plan = undivided(formulas.plain(candidate.plan))
        key = formulas.key(plan)
        plans.setdefault(key, plan)
        members.setdefault(key, []).append(candidate)
    starts = [Start(plan, members[key], formulas, rows, log, levels, spreads) for key, plan in plans.items()]
    formulas.compute(start.plan for start in starts)
    return starts


# --- constants ---------------------------------------------------------------------------------------------


def with_known_constants(start: Start, log: Intervals | None = None) -> Iterator[Candidate]:
    """The rules of a start with the usual epsilons that most rows have in their intervals."""
    log = log or Intervals.of(start.log.logged, start.log.tolerance)
    for one, rule, divisors in _rules_with_divisors(start, log):
        most = int(FAR * len(start.rows)) + 1
        for squared in (False, True):
            left = divisors.beside(start.spread(rule), squared=squared)
            held = {value: left.holding(value) for value in EPSILONS}
            most = max(most, *held.values())
            for value in (value for value, rows in held.items() if rows == most):
                constant = replace(rule, inside=value) if squared else replace(rule, epsilon=value)
                yield one.with_plan(_with_rule(one.plan, constant))
            if most == len(start.rows):
                break


def with_solved_constants(start: Start) -> Iterator[Candidate]:
    """A start with a factor or an epsilon that all rows share, which has few digits for such narrow intervals."""
    logged, coarse = start.log.logged, start.log.tolerance.is_coarse
    tolerance = start.log.tolerance.of_formula(logged, solved=True)
    log, large = Intervals.of(logged, tolerance), np.abs(logged) > LARGE
    sign = -1.0 if np.nansum(start.values[start.rows] * logged) < 0 else 1.0
    for one, rule, divisors in _rules_with_divisors(start, log if sign > 0 else log.negative, plain=True):
        spread = np.ones(len(logged)) if rule is None else start.spread(rule)
        if sign > 0 and rule is not None and not coarse:
            step = STEP if _kinds(spread[large]) == 1 else 1.0  # different stds that share an epsilon are no chance
            epsilon = shortest(*divisors.beside(spread, squared=False).shared, DIGITS, step)
            if epsilon is not None:
                plan = _with_rule(one.plan, replace(rule, epsilon=epsilon))
                yield one.with_plan(plan, solved=True, constants=one.constants + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            kinds = _kinds(np.abs(start.numerator(rule)[large] / spread[large]))
        # Minus the mean of a batch, two rewards have two values: a factor puts them on any line through the mean.
        if kinds <= (DIFFERENT if one.plan.baseline_level == "batch" else 1):
            continue
        of_batch = one.plan.uses_batch or (rule is not None and rule_of_batch(rule))
        digits = 1 if coarse else DIGITS if of_batch else DIGITS + 1
        for value in (0.0,) if rule is None else EPSILONS:
            with np.errstate(divide="ignore", invalid="ignore"):
                low, high = Intervals(divisors.low / (spread + value), divisors.high / (spread + value)).shared
            factor = shortest(1 / high if high else np.inf, 1 / low if low else np.inf, digits)
            if factor is not None and sign * factor != 1:
                plan = one.plan if rule is None else _with_rule(one.plan, replace(rule, epsilon=value))
                yield replace(one.with_plan(plan, solved=True, constants=one.constants + 1), factor=sign * factor)


def _kinds(values: Vector) -> int:
    """How many distinct numbers there are."""
    return len({rounded(value) for value in values.tolist()})


def _rules_with_divisors(
    start: Start, log: Intervals, *, plain: bool = False
) -> Iterator[tuple[Candidate, Any, Intervals]]:
    """The rules of a start with the intervals of their divisors, if most rows agree with those of their group.

    `plain`: the start itself is the first, its rule is None.
    """
    codes, known = start.table["group"].to_numpy()[start.rows].astype(np.int64), dict[Any, Intervals]()
    first = [(start.plain, None)] if plain and start.plain and start.plan.divisor.level != "constant" else []
    for one, rule in (*first, *start.rules()):
        key = rule.level if isinstance(rule, Whiten) else ""
        if key not in known:
            known[key] = log.divisors(start.numerator(rule))
        if known[key].agreeing(codes) > FAR * len(codes):
            yield one, rule, known[key]


def rule_of_batch(rule: Divisor | Whiten) -> bool:
    """Whether the rule divides by a number of the whole batch."""
    return isinstance(rule, Whiten) or rule.level == "batch"


def clipped(start: Start) -> Iterator[Candidate]:
    """The rules of a start, clipped at the lowest and highest logged values.

    It is a clip only if the formula goes beyond both bounds, and matches several distinct values between them.
    """
    logged, tolerance = start.log.logged, start.log.tolerance
    finite = logged[np.isfinite(logged)]
    low, high = (float(f"{end:.6g}") for end in (finite.min(initial=0.0), finite.max(initial=0.0)))
    ends = [np.abs(logged - end) <= EQUAL * abs(end) for end in (low, high)]
    if not low < 0 < high or min(end.sum() for end in ends) < DIFFERENT:
        return
    log, allowed = Intervals.of(logged, tolerance), tolerance.of(logged)
    log = Intervals(np.where(ends[0], -np.inf, log.low), np.where(ends[1], np.inf, log.high))
    is_symmetric = abs(low + high) <= EQUAL * high
    clip = Clip(lo=-high if is_symmetric else low, hi=high)
    inside = ~ends[0] & ~ends[1] & (np.abs(logged) > allowed)
    plain = [start.plain] if start.plain is not None else []
    for one in (*plain, *with_known_constants(start, log)):
        values = start.divided(one)
        shown = inside & (np.abs(values - logged) <= allowed)
        passed = (values < low - allowed).any() and (values > high + allowed).any()
        if passed and len({rounded(value) for value in logged[shown].tolist()}) >= INSIDE:
            constants = one.constants + (1 if is_symmetric else 2)
            yield one.with_plan(replace(one.plan, post=(*one.plan.post, clip)), constants=constants)
