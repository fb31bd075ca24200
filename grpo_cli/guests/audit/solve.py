"""Solve for the last division of a formula: A = x / d, so every row says in which interval its divisor lies.

A logged number stands for an interval, which its rounding gives. What is divided (x) is computed once for each method;
a divisor is then a claim about d: a std with an epsilon, or a constant. Its constants lie where the intervals of the rows
meet, so none is searched. Weights of groups (by their solve rate) and of several rewards are solved from the rows as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from grpo_cli.engine.group_stats import Mask, finite_means, group_extremes
from grpo_cli.engine.moments import NEAREST, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Clip, Divisor, NanToZero, Weight, Whiten
from grpo_cli.guests.audit.candidates import DDOFS, EPSILONS, LARGE_EPSILONS, Candidate, plain_method
from grpo_cli.guests.audit.trial import FAR, LARGE, ROUNDING, SPARE_EQUATIONS, Fit, Intervals, Judged, Log

ALONG = 0.05  # a weighted sum explains the values if the smallest singular value is this share of the next
NEARLY = 0.01  # error of the logarithm of a group weight, as long as the epsilon is not known
# A solved constant has so few digits that a step of the last one is this many half-widths of its interval: chance puts such
# a number into one of 250 intervals.
STEP = 500.0
STEP_OF_COARSE = 200.0  # the same for values of 16 bits or two decimals: a factor of one digit more would fit by chance
DIGITS = 2  # of an epsilon, or of a factor beside the std of a batch: one of its many stds fits three by chance
DIGITS_OF_BOUND = 6  # of a clip
INSIDE = 3  # distinct values between the bounds of a clip, at least
EQUAL = 1e-5  # relative difference of values that were clipped to the same bound
Level = Literal["group", "batch"]
CLIPS = (Clip, NanToZero)
LAST = (*CLIPS, Whiten)  # steps that cannot change places with a division
Rule = Divisor | Whiten
Ruled = tuple[Candidate, Rule | None]  # and its last division
CENTRE = {"divide": False, "ddof": 1}  # the subtraction of a whitening alone
LEVELS: Final[Sequence[Level]] = ("group", "batch")
OF: Final = ("reward", "residual")
SAME = 9  # decimals in which the values of two starts agree if they are the same
DIFFERENT = 2  # rows at a bound, distinct values, or rewards that vary, at least


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


def split(plan: Plan) -> tuple[Plan, Rule | None]:
    """The plan up to its last division, which is a whitening or by a std, and that division; None if it has none that is solved.

    After it come only clips: where a step that reads other rows, or the length, follows one, the plan stays whole.
    """
    end = len(plan.post)
    while end and isinstance(plan.post[end - 1], CLIPS):
        end -= 1
    before = plan.post[:end]
    if before and isinstance(before[-1], Whiten) and before[-1].divide:
        return replace(plan, post=before[:-1]), before[-1]
    if any(isinstance(op, LAST) for op in before):
        return plan, None
    rule = plan.divisor
    undivided = replace(plan, post=before)
    # Of several rewards each is divided; a step part is added and a weight multiplied after the division.
    is_last = plan.rewards.combine == "sum" and not plan.unit.state_weight and plan.weight.by == "none"
    is_plain = rule.of != "others" and not rule.only_positive and rule.least is None
    if rule.level == "constant" or not is_last or not is_plain:
        return undivided, None
    return replace(undivided, divisor=Divisor(level="none")), rule if rule.level in LEVELS else None


def without_constants(rule: Rule, **changed: Any) -> Rule:
    """The rule without what it adds to a spread."""
    return replace(rule, inside=0.0, floor=0.0, epsilon=0.0, **changed)


@dataclass(frozen=True, eq=False)
class Start:
    """A formula up to its last division, and the candidates that begin with it."""

    plan: Plan  # the formula without its last division
    # the candidates that begin with it, each with its last division; None: it has none that is solved
    members: Sequence[Ruled]
    log: Log  # the rows that it is computed on
    levels: Sequence[Level]  # of the rules that are tried
    # a cache: what each division divides, and the spread that it adds constants to
    _parts: dict[Rule | None, tuple[Vector, Vector]] = field(default_factory=dict)

    @cached_property
    def values(self) -> Vector:
        """What is divided."""
        return self.log.formulas.advantages(self.plan)

    @property
    def rounded(self) -> bytes:
        """The same for values that are equal up to rounding."""
        return (np.round(self.values, SAME) + 0.0).tobytes()

    def agrees(self, rule: Rule | None, log: Intervals) -> bool:
        """Whether most rows agree with those of their group about the divisor."""
        return log.divisors(self.numerator(rule)).agreeing(self.log.codes) > FAR * len(self.values)

    def with_rule(self, plan: Plan, rule: Rule | None) -> Plan:
        """The plan with another last division."""
        if isinstance(rule, Divisor):
            return replace(plan, divisor=rule)
        if rule is None:
            return plan
        before = self.plan.post
        after = plan.post[len(before) + 1 :]
        return replace(plan, post=(*before, rule, *after))

    def ruled(self, one: Candidate, rule: Rule | None, **solved: Any) -> Ruled:
        """The candidate with another last division."""
        return one.with_plan(self.with_rule(one.plan, rule), **solved), rule

    def bare(self, rule: Rule, **changed: Any) -> Plan:
        """The start with this division, without its constants."""
        return self.with_rule(self.plan, without_constants(rule, **changed))

    def numerator(self, rule: Rule | None) -> Vector:
        """What this rule divides: a whitening subtracts the mean of the batch first."""
        if not isinstance(rule, Whiten):
            return self.values
        if self.counts_every_row(rule):
            return self._of_rows(rule, self.values)[0]
        return self.log.formulas.advantages(self.bare(rule, **CENTRE))

    def parts(self, rule: Rule | None) -> tuple[Vector, Vector]:
        """What this rule divides, and what it adds its constants to.

        Where the engine says 0 or NaN whatever the constants are, that is divided.
        """
        bare = rule and without_constants(rule)
        if bare not in self._parts:
            self._parts[bare] = self._parts_of(bare)
        return self._parts[bare]

    def _parts_of(self, rule: Rule | None) -> tuple[Vector, Vector]:
        values = self.numerator(rule)
        if rule is None:
            return values, np.ones(len(values))
        if self.counts_every_row(rule):
            of_rewards = isinstance(rule, Divisor) and rule.of == "reward"
            spreading = self.log.formulas.advantages(self.rewards) if of_rewards else self.values
            _, spread = self._of_rows(rule, spreading)
            is_zero = (values == 0) | (spread < NEAREST)
            return np.where(is_zero, 0.0, values), np.where(is_zero, 0.0, spread)
        quotients = self.log.formulas.advantages(self.bare(rule))
        with np.errstate(all="ignore"):
            spread = np.abs(values / quotients)
        is_fixed = (quotients == 0) | np.isnan(quotients)
        return np.where(is_fixed, quotients, values), np.where(np.isfinite(spread), spread, 0.0)

    def counts_every_row(self, rule: Rule) -> bool:
        """Whether the spread is that of all rows of each group or batch, so that it needs no formula."""
        plan, formulas, of_batch = self.plan, self.log.formulas, rule.level != "group"
        if formulas.has_special_rows or (of_batch and not formulas.has_whole_batches):
            return False
        divides_rewards = (plan.rewards.combine, plan.weight.by, plan.post) == ("sum", "none", ())
        of_every_row = (plan.groups.statistics, plan.groups.small, plan.raw_rank) == ("all", "null", None)
        is_usual = divides_rewards and of_every_row
        return (is_usual or isinstance(rule, Whiten)) and bool(np.isfinite(self.values).all())

    @property
    def rewards(self) -> Plan:
        """The shaped rewards."""
        return replace(self.plan, method="reinforce", params={}, baseline_level="group")

    def _of_rows(self, rule: Rule, values: Vector) -> tuple[Vector, Vector]:
        """How far these values are from the mean of their group or batch, and its spread."""
        codes = self.log.codes if rule.level == "group" else self.log.table["batch"].to_numpy()
        weights = self.log.table["length"].to_numpy() if rule.level == "token" else np.ones(len(values))

        def sums(of: Vector) -> Vector:
            return np.asarray(np.bincount(codes, of)[codes])

        lowest, _ = group_extremes(codes, values, codes.max() + 1)
        away, total = values - lowest[codes], sums(weights)
        total = np.where(total, total, np.nan)  # a group may have no tokens
        centred = away - sums(weights * away) / total
        if isinstance(rule, Divisor) and rule.measure == "mad":
            return centred, sums(np.abs(centred)) / total
        variance = sums(weights * centred**2) / (total - rule.ddof)
        return centred, np.sqrt(variance)

    def divided(self, candidate: Candidate, rule: Rule | None) -> Vector:
        """The advantages of a candidate that begins with this start."""
        plan = candidate.plan
        if plan.weight != self.plan.weight:
            return candidate.factor * self.log.formulas.advantages(plan)
        values, spread = self.parts(rule)
        if rule is not None:
            variance = np.maximum(spread**2 + rule.inside, rule.floor)
            divisor = np.sqrt(variance) + rule.epsilon
            stays = (values == 0) | (self.alone & isinstance(rule, Divisor))
            with np.errstate(all="ignore"):
                values = np.where(stays, values, values / divisor)
        for op in plan.post[len(self.plan.post) :]:
            values = np.clip(values, op.lo, op.hi) if isinstance(op, Clip) else values
            values = np.nan_to_num(values, posinf=0.0, neginf=0.0) if isinstance(op, NanToZero) else values
        return candidate.factor * values

    @cached_property
    def alone(self) -> Mask:
        """The rows that are alone in their groups and get the same whatever divides the others."""
        known = np.bincount(self.log.codes, np.isfinite(self.values))
        is_alone = np.asarray(known < DIFFERENT)[self.log.codes]
        return is_alone & (self.plan.alone.result not in {"keep", "error"})

    @property
    def parts_of_rules(self) -> Iterator[Plan]:
        """The formulas that the parts of its rules are computed with."""
        for _, rule in (*self.rules(), *self.members):
            if rule is None or self.counts_every_row(rule):
                continue
            yield self.bare(rule)
            if isinstance(rule, Whiten):
                yield self.bare(rule, **CENTRE)

    def fits(self, tried: Iterable[Ruled]) -> list[Fit]:
        """How well these candidates fit the compared rows."""
        return [Judged(one, self.log, self.divided(one, rule)).fit for one, rule in tried]

    def rules(self) -> Iterator[tuple[Candidate, Rule]]:
        """The last divisions that its method may have, without constants, each with a candidate that takes it."""
        is_undivided = self.plan.divisor.level == "none" and not any(isinstance(op, LAST) for op in self.plan.post)
        for level in self.levels if is_undivided else ():
            if (named := self.named_for(level)) is not None:  # methods that begin alike may have other scales
                # Within a group the residuals have the std of the rewards.
                kinds = product(OF if level == "batch" and self.plan.baseline_level == "group" else OF[:1], DDOFS)
                rules = [Divisor(level=level, of=of, ddof=ddof, epsilon=0.0) for of, ddof in kinds]
                rules += [Divisor(level=level, measure="mad", epsilon=0.0)] if level == "group" else []
                yield from ((named, rule) for rule in rules)
        whitened = {str(rule): (one, rule) for one, rule in self.members if isinstance(rule, Whiten)}
        for one, rule in whitened.values() if "batch" in self.levels else ():
            yield from ((one, replace(rule, ddof=ddof, inside=0.0, floor=0.0, epsilon=0.0)) for ddof in DDOFS)

    @cached_property
    def unwhitened(self) -> Sequence[Candidate]:
        """The candidates that are not whitened."""
        return [one for one, rule in self.members if not isinstance(rule, Whiten)]

    @property
    def plain(self) -> Candidate | None:
        """The start itself as a candidate; None if its candidates are all whitened."""
        plain = next(iter(self.unwhitened), None)
        return plain and (self.named_for(self.plan.divisor.level) or plain.with_plan(self.plan))

    @property
    def itself(self) -> list[Ruled]:
        """The start as a candidate, if it has not been one at the level of the groups."""
        return [(self.plain, None)] if self.plain is not None and "group" in self.levels else []

    def named_for(self, level: str) -> Candidate | None:
        """The start by the name of a method that divides so, by default if there is one: grpo and dr-grpo begin alike."""
        named = [one for one in self.unwhitened if one.plan.divisor.level == level]
        named.sort(key=lambda one: one.plan.estimator.scale != level)
        return next((one.with_plan(replace(self.plan, method=one.plan.method)) for one in named), None)


def starts_of(tried: Sequence[Candidate], log: Log, level: Level = "group") -> list[Start]:
    """The formulas of these candidates, which divide at this level, up to their last division; computed together."""
    formulas, plans, members = log.formulas, dict[Any, list[Plan]](), dict[Any, list[Ruled]]()
    for candidate in tried:
        plan, rule = split(formulas.plain(candidate.plan))
        key = formulas.key(plan)
        plans.setdefault(key, []).append(plan)
        members.setdefault(key, []).append((candidate, rule))
    first = {key: next(filter(plain_method, alike), alike[0]) for key, alike in plans.items()}
    formulas.compute(first.values())
    starts = []
    for key, plan in first.items():
        levels = LEVELS if plan.uses_batch else (level,)
        starts.append(Start(plan, members[key], log, levels))
    return starts


# --- constants ---------------------------------------------------------------------------------------------


def with_known_constants(start: Start, log: Intervals | None = None) -> Iterator[Ruled]:
    """The rules of a start with the usual epsilons that most rows have in their intervals."""
    log = log or start.log.intervals()
    epsilons = (*EPSILONS, *LARGE_EPSILONS) if start.log.is_coarse else EPSILONS
    for one, rule, values, spread in _readings(start, log):
        most, divisors = int(FAR * len(spread)) + 1, log.divisors(values)
        for squared in (False, True):
            left = divisors.beside(spread, squared=squared)
            held = {value: left.holding(value) for value in epsilons}
            most = max(most, *held.values())
            best = [value for value, rows in held.items() if rows == most]
            for value in best:
                constant = replace(rule, inside=value) if squared else replace(rule, epsilon=value)
                yield start.ruled(one, constant)
            if most == len(spread):
                break


def with_solved_constants(start: Start) -> Iterator[Ruled]:
    """A start with a factor or an epsilon that all rows share, which has few digits for such narrow intervals."""
    logged, coarse = start.log.logged, start.log.is_coarse
    log, large = start.log.intervals(solved=True), np.abs(logged) > LARGE
    sign = -1.0 if np.nansum(start.values * logged) < 0 else 1.0
    log = log if sign > 0 else Intervals(-log.high, -log.low)
    undivided = [(one, None, *start.parts(None)) for one, _ in start.itself if start.plan.divisor.level != "constant"]
    for one, rule, values, spread in (*undivided, *_readings(start, log)):
        constants, divisors = {"solved": True, "constants": one.constants + 1}, log.divisors(values)
        if sign > 0 and rule is not None and not coarse:
            step = STEP if _kinds(spread[large]) == 1 else 1.0  # different stds that share an epsilon are no chance
            low, high = divisors.beside(spread, squared=False).shared
            epsilon = shortest(low, high, DIGITS, step)
            if epsilon is not None:
                yield start.ruled(one, replace(rule, epsilon=epsilon), **constants)
        # Minus the mean of a batch, two rewards have two values: a factor puts them on any line through the mean.
        with np.errstate(divide="ignore", invalid="ignore"):
            kinds = _kinds(np.abs(values[large] / spread[large]))
        if kinds <= (DIFFERENT if one.plan.baseline_level == "batch" else 1):
            continue
        uses_batch = start.with_rule(one.plan, rule).uses_batch
        digits = DIGITS if coarse or uses_batch else DIGITS + 1
        for value in (0.0,) if rule is None else EPSILONS:
            divisor = spread + value
            with np.errstate(divide="ignore", invalid="ignore"):
                low, high = Intervals(divisors.low / divisor, divisors.high / divisor).shared
            least, most = (1 / end if end else np.inf for end in (high, low))
            factor = shortest(least, most, digits, STEP_OF_COARSE if coarse else STEP)
            if factor is not None and sign * factor != 1:
                yield start.ruled(one, rule and replace(rule, epsilon=value), factor=sign * factor, **constants)


def _kinds(values: Vector) -> int:
    """How many distinct numbers there are, to five digits."""
    return len({float(f"{value:.5g}") for value in values.tolist()})


def _readings(start: Start, log: Intervals) -> Iterator[tuple[Candidate, Rule, Vector, Vector]]:
    """The rules of a start with their parts, if most rows agree with those of their group about the divisor."""
    agree = dict[str, bool]()
    for one, rule in start.rules():
        kind = rule.level if isinstance(rule, Whiten) else ""
        if kind not in agree:
            agree[kind] = start.agrees(rule, log)
        if agree[kind]:
            yield one, rule, *start.parts(rule)


def clipped(start: Start) -> Iterator[Ruled]:
    """The rules of a start, clipped at the lowest and highest logged values.

    It is a clip only if the formula goes beyond both bounds, and matches several distinct values between them.
    """
    logged, log = start.log.logged, start.log.intervals()
    allowed = start.log.allowed
    finite = logged[np.isfinite(logged)]
    ends = finite.min(initial=0.0), finite.max(initial=0.0)
    low, high = ends
    at_low, at_high = (np.abs(logged - end) <= EQUAL * abs(end) for end in (low, high))
    if not low < 0 < high or min(at_low.sum(), at_high.sum()) < DIFFERENT:
        return
    beyond_low, beyond_high = np.where(at_low, -np.inf, log.low), np.where(at_high, np.inf, log.high)
    log = Intervals(beyond_low, beyond_high)
    is_symmetric = abs(low + high) <= EQUAL * high
    least, most = (_plainest(end, logged, allowed) for end in ends)
    clip = Clip(lo=-most if is_symmetric else least, hi=most)
    inside = ~at_low & ~at_high & (np.abs(logged) > allowed)
    for one, rule in (*start.itself, *with_known_constants(start, log)):
        values = start.divided(one, rule)
        shown = inside & (np.abs(values - logged) <= allowed)
        passed = (values < low - allowed).any() and (values > high + allowed).any()
        if passed and _kinds(logged[shown]) >= INSIDE:
            constants = one.constants + (1 if is_symmetric else 2)
            plan = replace(one.plan, post=(*one.plan.post, clip))
            yield one.with_plan(plan, constants=constants), rule


def _plainest(end: float, logged: Vector, allowed: Vector) -> float:
    """The number of the fewest digits that was logged as this bound: to six if it was not rounded."""
    off = float(allowed[logged == end].min())
    digits = (float(f"{end:.{kept}g}") for kept in range(1, DIGITS_OF_BOUND))
    return next((number for number in digits if abs(number - end) <= off), float(f"{end:.{DIGITS_OF_BOUND}g}"))


# --- weights -------------------------------------------------------------------------------------------


def of_groups(start: Start) -> Iterator[Ruled]:
    """A start with a weight for each group: by its solve rate, or relative to the groups of its batch.

    The logged values of a group are those of the start times a factor: the weight over the divisor.
    """
    plan, log = start.plan, start.log
    has_more = plan.post or plan.shape or plan.uses_batch or plan.weight.by != "none" or plan.divisor.level != "none"
    if start.plain is None or "group" not in start.levels or has_more or log.is_coarse:
        return
    factors = _factors(start.values, log)
    if factors is None:
        return
    frames = log.formulas.shaped(plan).frames
    groups = frames.groups
    batch, n, squares = frames.batch_of_group, groups[".n"].to_numpy(), groups[".squares"].to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        std = np.where(squares == 0, 0.0, np.sqrt(squares / (n - 1)))
        _, largest = group_extremes(batch, np.nan_to_num(std), batch.max() + 1)
        std /= largest[batch]
    facts = {
        "batch": batch,
        "rate": groups[".mean"].clip(0.0, 1.0).to_numpy(),
        "std": std,
        "mean": finite_means(log.codes, log.table["reward.0"], len(groups)),
    }
    divided = [(start.plain.plan, np.ones(len(groups)))]
    for ddof, epsilon in product(DDOFS, EPSILONS) if "group" in plan.estimator.scales else ():
        rule = Divisor(level="group", ddof=ddof, epsilon=epsilon)
        named = (start.named_for("group") or start.plain).plan
        _, spread = group_extremes(log.codes, start.parts(rule)[1], len(groups))  # a row at the mean does not show it
        divided.append((replace(named, divisor=rule), spread + epsilon))
    for one, divisor in divided:
        for weight, constants in _weights(facts, factors * divisor, is_part=log.part_of is not None):
            weighed = replace(one, weight=weight)
            yield start.plain.with_plan(weighed, solved=constants > 0, constants=constants), None


def _factors(values: Vector, log: Log) -> Vector | None:
    """A factor for each group, NaN if all of its values are 0; None if the factors do not explain every row."""
    known = np.isfinite(values)
    if (known != np.isfinite(log.logged)).any():
        return None
    size = log.codes.max(initial=0) + 1
    codes, values, logged = log.codes[known], values[known], log.logged[known]
    along, squares = np.bincount(codes, values * logged, size), np.bincount(codes, values**2, size)
    with np.errstate(invalid="ignore", divide="ignore"):
        factors = along / squares
    weighed = np.where(values == 0, 0.0, factors[codes] * values)
    explains = (np.abs(weighed - logged) <= log.allowed[known]).all()
    return factors if explains and not (factors <= 0).any() else None


def _weights(groups: Mapping[str, Vector], factors: Vector, *, is_part: bool) -> Iterator[tuple[Weight, int]]:
    """Group weights that explain these factors, each with the number of solved constants."""
    rate = groups["rate"]
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.column_stack([np.log(factors), np.log(groups["std"]), groups["mean"]])
    known = (rate > 0) & (rate < 1) & np.isfinite(logs).all(axis=1)
    rate, batch = rate[known], groups["batch"][known]
    factor, std, mean = logs[known].T
    kinds = len(np.unique(np.round(rate, 5)))
    if kinds < 1 + SPARE_EQUATIONS:
        return

    def relative(values: Vector) -> Vector:
        """A weight relative to the batch has an unknown factor in common for all of its groups."""
        sizes = np.maximum(np.bincount(batch), 1)
        means = np.bincount(batch, values) / sizes
        return np.asarray(values - means[batch])

    off = relative(factor - std) if is_part else factor - std  # the largest std may not be in the part
    (slope,) = _solved([-relative(mean)], relative(factor))
    power, _ = _solved([np.log1p(-rate), np.ones(len(rate))], factor)
    if np.abs(off).max() < NEARLY:
        yield Weight(by="std"), 0
    if slope > 0:
        yield Weight(by="hard", temperature=float(f"{1 / slope:.3g}")), 1
    if round(power) > 0:
        yield Weight(by="pass-at-k", k=1 + round(power)), 1
    # log w = s H(p) + s log(peak) p + s log(1 - peak) (1 - p), H the entropy of p.
    entropy = -rate * np.log(rate) - (1 - rate) * np.log1p(-rate)
    sharpness, solved, failed = _solved([entropy, rate, 1 - rate], factor)
    if kinds >= 2 + SPARE_EQUATIONS and sharpness > 0:
        exact = np.exp(-np.logaddexp(0.0, (failed - solved) / sharpness))
        peak = float(f"{exact:.3g}")
        if 0 < peak < 1:
            yield Weight(by="peak", peak=peak, sharpness=float(f"{sharpness:.3g}")), 2


def _solved(columns: Sequence[Vector], values: Vector) -> list[float]:
    """The coefficients of a sum of the columns that nearly equals the values; 0 if there are none."""
    matrix = np.column_stack(columns)
    found = np.linalg.lstsq(matrix, values)[0]
    off = np.abs(matrix @ found - values)
    return found.tolist() if off.max() < NEARLY else [0.0] * len(columns)


def of_rewards(log: Log, components: int) -> Iterator[tuple[float, ...]]:
    """Weights of several rewards that may explain the rows, the likeliest first.

    In each group the logged values are proportional to the weighted sum, whatever divides it, so all groups together show the ratio of the
    weights, even if each reward is divided by its own std. The weights are scaled so that the largest or the sum is 1, or as in a formula
    without a divisor.
    """
    names = [f"reward.{at}" for at in range(components)]
    each, logged = pl.col(names), pl.col("logged")
    rows = log.table.select("group", *names, logged=pl.Series(log.logged))
    rows = rows.filter(pl.all_horizontal(pl.all().is_finite()))

    def mean(of: pl.Expr) -> pl.Expr:
        return of.mean().over("group")

    centred = rows.with_columns(each - mean(each), logged - mean(logged))
    spread = each.std(ddof=0).over("group")
    divided = centred.with_columns(pl.when(spread > ROUNDING).then(each / spread).otherwise(0.0))
    # The part of each column that is not proportional to the logged values: the weighted sum of these parts is 0.
    square = mean(logged**2)
    along = pl.when(square > 0).then(mean(each * logged) / square).otherwise(0.0)
    tried = set[tuple[float, ...]]()
    for columns in (centred, divided):
        rest, rewards = columns.select(each - along * logged).to_numpy(), columns.select(names).to_numpy()
        varied = np.ptp(rewards, axis=0) > ROUNDING
        _, sizes, directions = np.linalg.svd(rest[:, varied], full_matrices=False)
        if varied.sum() < DIFFERENT or sizes[-1] > ALONG * sizes[-2]:
            continue
        found = np.ones(components)
        found[varied] = directions[-1]
        total = rewards[:, varied] @ found[varied]
        found[varied] *= float(total @ columns["logged"].to_numpy()) / float(total @ total)
        largest, whole = np.abs(found[varied]).max(), np.abs(found[varied].sum())
        for divisor in (largest, whole, 1.0):
            weights = np.where(varied, found / divisor, 1.0)
            known_digits = tuple(float(f"{weight:.3g}") for weight in weights.tolist())
            if known_digits not in tried and len({*known_digits}) > 1:
                tried.add(known_digits)
                yield known_digits
