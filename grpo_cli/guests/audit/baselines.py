"""What a formula subtracts, and what it divides: each formula up to its last division, A = x / d.

What is divided (x) is computed once for all formulas that begin alike; a divisor is then a claim about d, and every row says in which
interval its d lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, Final, Literal

import numpy as np

from grpo_cli.engine.group_stats import Mask, group_extremes
from grpo_cli.engine.moments import NEAREST, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Clip, Divisor, NanToZero, Whiten
from grpo_cli.guests.audit.candidates import DDOFS, Candidate, plain_method
from grpo_cli.guests.audit.trial import FAR, Fit, Intervals, Judged, Log

Level = Literal["group", "batch"]
CLIPS = (Clip, NanToZero)
LAST = (*CLIPS, Whiten)  # steps that cannot change places with a division
Rule = Divisor | Whiten
Ruled = tuple[Candidate, Rule | None]  # and its last division
CENTRE = {"divide": False, "ddof": 1}  # the subtraction of a whitening alone
LEVELS: Final[Sequence[Level]] = ("group", "batch")
OF: Final = ("reward", "residual")
SAME = 9  # decimals in which the values of two starts agree if they are the same
TWO = 2  # rows that have a reward, at least: one is alone


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
        is_alone = np.asarray(known < TWO)[self.log.codes]
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


@dataclass
class Known:
    """What is known of a log while the ladder is climbed: each rung is a function from this to fits."""

    log: Log  # how its values are read
    tried: Sequence[Candidate]  # the formulas
    starts: list[Start] = field(default_factory=list)  # those that were computed so far, before their last division
    fits: list[Fit] = field(default_factory=list)  # of the rungs below

    @property
    def of_groups(self) -> list[Candidate]:
        """The formulas that read only their groups."""
        return [one for one in self.tried if not one.plan.uses_batch]

    def may_be_proven(self, solve: Callable[[Start], Iterable[Ruled]]) -> Iterator[Fit]:
        """What is solved and explains every row, if there are enough equations for its constants."""
        for start in self.starts:
            for fit in start.fits(solve(start)):
                one = fit.candidate
                if not fit.mismatched and self.log.evidence(one.plan, fit.reading).suffices(one.constants):
                    yield fit
