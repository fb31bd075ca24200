"""How well plans fit logged advantages, and whether the log has enough evidence to tell formulas apart."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from grpo_cli.engine.extra_columns import APART
from grpo_cli.engine.group_stats import AnyCodes, Mask, group_extremes, group_means
from grpo_cli.engine.moments import Codes, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import advantages
from grpo_cli.guests.audit.candidates import Candidate
from grpo_cli.guests.audit.formulas import Formulas
from grpo_cli.guests.audit.readings import SAMPLE, Reading
from grpo_cli.read.narrow import Narrow

TIED = 3.0  # formulas are tied if their errors differ by at most this factor
ROUNDING = 1e-12  # a smaller error, or number, is rounding
LARGE = 1e-3  # smaller advantages depend too little on a constant
BETTER = 0.5  # a coarser reading has to reduce the rows that differ to this share
FAR = 0.5  # a formula is not near if a larger share of the rows differs
SPARE_EQUATIONS = 3  # a match needs this many more equations than solved constants
FEW_GROUPS = 3  # a match needs more groups than these


class Fit(NamedTuple):
    """How well a plan gives the logged advantages."""

    candidate: Candidate  # the plan and its factor
    mismatched: int  # rows that differ
    typical: float  # root mean square error of the other rows
    rows: int  # of the log, whether they differ or not
    reading: Reading = Reading()  # the finest under which it holds
    off_zero: int = 0  # rows that differ and whose logged value is not 0
    noisy: Mask | None = None  # groups whose float32 noise, spread by whitening, explains all differences

    @property
    def explains_all(self) -> bool:
        """Whether the formula explains every row, apart from float32 noise."""
        return not self.mismatched or self.noisy is not None

    @property
    def unexplained(self) -> int:
        """How many rows differ and are not explained by float32 noise."""
        return 0 if self.explains_all else self.mismatched

    @property
    def rank(self) -> tuple[int, int, float]:
        """Fewer unexplained rows first, then the smaller error.

        Among formulas that miss most rows, those without solved constants come first, and a row that is 0 in both is not near: every
        formula gives 0 somewhere.
        """
        if self.unexplained > FAR * self.rows:
            return self.candidate.constants, self.rows + self.off_zero, self.typical
        return 0, self.unexplained, self.typical

    def is_tied_with(self, best: Fit) -> bool:
        """Whether the rows cannot distinguish it from the best; formulas that are far off are never tied.

        What lies within half a step of rounded values is as likely as any other formula that does.
        """
        if self.mismatched != best.mismatched or best.mismatched > FAR * best.rows:
            return False
        is_rounded = self.reading.is_rounded or best.reading.is_rounded
        return is_rounded or self.typical <= TIED * best.typical + ROUNDING


class Evidence(NamedTuple):
    """How many distinct equations a log has for a formula, from how many groups.

    If there are few, some formula of the library always fits, and a formula with solved constants fits nearly any numbers.
    """

    equations: int  # distinct pairs of a group's rewards and a row's reward, without zeros in groups of equal rewards
    groups: int  # with such a row; groups that a part of the log stands for are counted
    is_coarse: bool  # whether the values are so rounded that an equation tells half as much

    def suffices(self, constants: int) -> bool:
        """Whether it is enough for a formula with this many constants solved from the same rows."""
        told = self.equations // 2 if self.is_coarse else self.equations  # coarse values tell half as much
        return self.groups > FEW_GROUPS and told >= constants + SPARE_EQUATIONS


@dataclass(frozen=True)
class Log:
    """Rows that plans are tried on, what was logged for them, and how many rows each stands for.

    Of a large log, `part_of`, formulas are solved on the rows of some groups; `shows_all` if every other group is like one of them.
    """

    formulas: Formulas  # the rows, and a cache of what plans compute for them
    logged: Vector  # the advantage of each row that the file has
    counts: Vector  # how many rows of the file each row stands for
    readings: tuple[Reading, ...] = (Reading(),)  # how exactly the logged values may be read, the finest first
    part_of: Log | None = None  # the log of all rows, if these are the rows of some groups; else None
    shows_all: bool = True  # whether every other group has the same rewards and logged values as one of these

    @classmethod
    def of(cls, table: pl.DataFrame, logged: Vector) -> Log:
        """All rows, each of which stands for itself."""
        return cls(Formulas(table), logged, np.ones(len(logged)))

    @classmethod
    def part(cls, narrow: Narrow, logged: Vector) -> Log:
        """The rows of some groups, or all of a small log.

        Groups are alike if they have the same rewards with the same logged values, in any order.
        """
        table, codes = narrow.table, narrow.table["group"].to_numpy()
        read = [name for name in table.columns if name.startswith("reward.") or name in APART]
        hashes = table.select(*read, pl.Series("logged", logged)).hash_rows().to_numpy()
        of_group = np.zeros(codes.max() + 1, np.uint64)
        np.add.at(of_group, codes, hashes)
        _, first, number = np.unique(of_group, return_index=True, return_counts=True)
        counts = np.zeros(len(of_group))
        # Every k-th kind of group, so that the part covers the whole file.
        of_kinds = np.bincount(codes)[first]
        stride = max(of_kinds.sum() // SAMPLE, 1)
        order = np.argsort(first)[::stride]
        counts[first[order]] = number[order]
        rows = np.flatnonzero(counts[codes])
        if len(logged) <= SAMPLE or len(rows) == len(logged):
            return cls.of(table, logged)
        whole = cls(Formulas(table, keeps=False), logged, np.ones(len(logged)))
        formulas = Formulas(narrow.at(rows).table, whole.formulas, rows)
        shows_all = stride == 1 and "rollout" not in table.columns
        return cls(formulas, logged[rows], counts[codes[rows]], whole.readings, whole, shows_all)

    @property
    def table(self) -> pl.DataFrame:
        """The rows."""
        return self.formulas.table

    @cached_property
    def codes(self) -> Codes:
        """The group of every row."""
        return self.table["group"].to_numpy()

    @cached_property
    def beyond_two_values(self) -> float:
        """The share of the rows that differs at least from every formula that gives the rows of a group two values."""
        order = np.lexsort((self.logged, self.codes))
        logged, codes = self.logged[order], self.codes[order]
        allowed = self.allowed[order]
        is_same_group = codes[1:] == codes[:-1]
        rises = is_same_group & (np.diff(logged) > allowed[1:] + allowed[:-1])
        size = codes.max(initial=0) + 1
        missed = np.maximum(np.bincount(codes[1:], rises, size) - 1, 0)
        sizes = np.bincount(codes, minlength=size)
        alike = np.bincount(self.codes, self.counts, size) / np.maximum(sizes, 1)
        return float(missed @ alike) / self.size

    def may_be_near(self, plan: Plan) -> bool:
        """Whether the formula need not differ from most rows."""
        return self.beyond_two_values <= FAR or not self.gives_two_values(plan)

    def gives_two_values(self, plan: Plan) -> bool:
        """Whether the rows of a group have one of two values: beyond a threshold a reward counts as 1."""
        return not plan.needs and self.formulas.counts_successes(plan)

    @property
    def whole(self) -> Log:
        """The log that this is a part of, or itself."""
        return self.part_of or self

    @cached_property
    def size(self) -> int:
        """How many rows they stand for."""
        return int(self.counts.sum())

    def read_as(self, *readings: Reading) -> Log:
        """The same with the values read in one of these ways, the finest first."""
        return replace(self, readings=readings, part_of=self.part_of and self.part_of.read_as(*readings))

    @cached_property
    def allowed(self) -> Vector:
        """How far a formula may be from each value under the coarsest reading."""
        return np.asarray(np.max([one.of(self.logged) for one in self.readings], axis=0))

    @property
    def is_coarse(self) -> bool:
        """Whether values may be so rounded that they tell half as much."""
        return any(one.is_coarse for one in self.readings)

    def settles(self, plan: Plan) -> bool:
        """Whether these rows show all that the whole log shows of a plan."""
        alike = not plan.needs and not plan.uses_batch and plan.estimator.order_free
        return self.part_of is None or (self.shows_all and alike)

    def intervals(self, *, solved: bool = False) -> Intervals:
        """What the logged values stand for; `solved`: read as exactly as a solved constant needs."""
        if solved and not self.readings[-1].is_rounded:
            return Intervals.of(self.logged, self.readings[0].of_formula(self.logged, solved=True).of(self.logged))
        return Intervals.of(self.logged, self.allowed)

    def evidence(self, plan: Plan, reading: Reading | None = None) -> Evidence:
        """Count the distinct (rewards of the group, reward of the row), with the batch if the plan needs it.

        A zero in a group of equal rewards does not count: nearly every formula gives it.
        """
        read = pl.col([name for name in self.table.columns if name.startswith("reward.") or name in plan.needs])
        numbers = read.cast(pl.Float64, strict=False)
        row = pl.struct(pl.when(numbers.is_finite()).then(numbers)).hash()
        batch = "batch" if plan.uses_batch else 0
        logged, count = pl.Series(self.logged), pl.Series(self.counts)
        given = self.table.select("group", row=row, batch=batch, logged=logged, count=count)
        row = pl.col("row")
        rows = given.with_columns(
            rewards=row.sum().over("group"),  # the same for a group's rewards in any order
            varies=(row.min() != row.max()).over("group"),
        )
        is_telling = pl.col("varies") | (pl.col("logged") != 0)
        telling = rows.filter(pl.col("logged").is_finite() & is_telling)
        equations = telling.select("rewards", "row", "batch").n_unique()
        groups = telling.unique("group")["count"].sum()
        is_coarse = self.is_coarse if reading is None else reading.is_coarse
        return Evidence(equations, int(groups), is_coarse)


@dataclass(frozen=True)
class Judged:
    """What a formula computes for the rows of a log, and where it differs."""

    candidate: Candidate  # the plan and its factor
    log: Log  # the rows that are compared: all, or a part that shows all of them
    computed: Vector  # the advantage of each row by the plan, times the factor; NaN if it has none

    @classmethod
    def of(cls, candidate: Candidate, log: Log) -> Judged:
        """For the rows of a part if it shows all and none differs, else for those of the whole log.

        A claim that cannot be computed is an error.
        """
        rows = log if log.settles(candidate.plan) else log.whole
        plan = candidate.plan
        computed = advantages(plan, rows.table) if candidate.claimed else rows.formulas.advantages(plan)
        judged = cls(candidate, rows, candidate.factor * computed)
        return cls.of(candidate, log.whole) if rows.part_of is not None and judged.wrong.any() else judged

    @cached_property
    def reading(self) -> Reading:
        """The finest reading under which it holds; if it holds under none, one that leaves far fewer rows than the finer ones."""
        finest, *coarser = self.log.readings
        best = finest.of_formula(self.log.logged, solved=self.candidate.solved)
        missed = self._missed(best)
        for one in coarser:
            left = self._missed(one) if missed else 0
            if left < BETTER * missed:
                best, missed = one, left
        return best

    def _missed(self, reading: Reading) -> int:
        return int(self.log.counts[~self._equal(reading)].sum())

    def _equal(self, reading: Reading) -> Mask:
        return equal(self.computed, self.log.logged, reading.of(self.log.logged))

    @cached_property
    def allowed(self) -> Vector:
        """How far each value may be."""
        return self.reading.of(self.log.logged)

    @cached_property
    def error(self) -> Vector:
        """By how much each row differs; NaN if both values are NaN."""
        return np.abs(self.computed - self.log.logged)

    @cached_property
    def wrong(self) -> Mask:
        """Which rows differ."""
        return ~self._equal(self.reading)

    @property
    def fit(self) -> Fit:
        """The rows that differ, and the error of the others, so that a few odd rows do not decide between two epsilons."""
        size, counts, error = self.log.size, self.log.counts, self.error
        mismatched = int(counts[self.wrong].sum())
        counted = np.isfinite(error)
        if mismatched <= FAR * size:
            counted &= ~self.wrong
        counts, squares = counts[counted], error[counted] ** 2
        typical = float(np.sqrt(np.average(squares, weights=counts))) if counts.any() else math.inf
        off_zero = int(self.log.counts[self.wrong & (self.log.logged != 0)].sum())
        return Fit(self.candidate, mismatched, typical, size, self.reading, off_zero)


def equal(values: Vector, logged: Vector, allowed: Vector) -> Mask:
    """Which values differ by no more than is allowed, or are NaN in both."""
    both_missing = np.isnan(values) & np.isnan(logged)
    with np.errstate(invalid="ignore"):
        return both_missing | (np.abs(values - logged) <= allowed)


def slopes(values: Vector, logged: Vector, codes: AnyCodes) -> tuple[Vector, Vector]:
    """The slope and the offset of the line of each group or batch through the logged values over these (least squares)."""
    known = np.isfinite(values) & np.isfinite(logged)
    size = codes.max(initial=0) + 1
    at, x, y = codes[known], values[known], logged[known]
    mean_x, mean_y = group_means(at, x, size), group_means(at, y, size)
    dx, dy = x - mean_x[at], y - mean_y[at]
    square = np.bincount(at, dx * dx, size)
    along = np.bincount(at, dx * dy, size)
    slope = np.where(square > 0, along / np.where(square > 0, square, 1.0), 0.0)
    return slope, mean_y - slope * mean_x


class Intervals(NamedTuple):
    """A lowest and a highest number for each row; if the lowest is above the highest, there is none."""

    low: Vector  # the lowest number that each row allows
    high: Vector  # the highest number that each row allows

    @classmethod
    def of(cls, logged: Vector, allowed: Vector) -> Intervals:
        """What the logged values stand for, if each may be so far away."""
        return cls(logged - allowed, logged + allowed)

    def divisors(self, undivided: Vector) -> Intervals:
        """The positive divisors with which each undivided value is in its interval."""
        size, positive = np.abs(undivided), undivided > 0
        least = np.where(positive, self.low, -self.high)
        most = np.where(positive, self.high, -self.low)
        with np.errstate(all="ignore"):
            low = np.where(most > 0, size / most, np.inf)
            high = np.where(least > 0, size / least, np.inf)
        # A zero is zero whatever divides it, and a row without an advantage has none.
        missing, not_logged = np.isnan(undivided), np.isnan(self.low)
        fixed = missing | (size <= ROUNDING) | not_logged
        has_zero = (self.low <= 0) & (self.high >= 0)
        free = np.where(missing, not_logged, has_zero)
        lowest, highest = np.where(free, 0.0, np.inf), np.where(free, np.inf, 0.0)
        return Intervals(np.where(fixed, lowest, low), np.where(fixed, highest, high))

    def beside(self, spread: Vector, *, squared: bool) -> Intervals:
        """What is added to a spread; `squared`: under the root."""
        with np.errstate(all="ignore"):
            if squared:
                return Intervals(self.low**2 - spread**2, self.high**2 - spread**2)
            return Intervals(self.low - spread, self.high - spread)

    def agreeing(self, codes: AnyCodes) -> int:
        """The number of rows whose group has a number that all of its rows share."""
        size = codes.max(initial=0) + 1
        _, low = group_extremes(codes, self.low, size)
        high, _ = group_extremes(codes, self.high, size)
        return int((low <= high)[codes].sum())

    def holding(self, value: float) -> int:
        """The number of rows whose interval has this number."""
        return int(((self.low <= value) & (value <= self.high)).sum())

    @property
    def shared(self) -> tuple[float, float]:
        """The interval that all rows share."""
        return float(self.low.max(initial=0.0)), float(self.high.min(initial=np.inf))
