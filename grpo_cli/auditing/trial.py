"""How well plans fit logged advantages, and whether the log has enough evidence to tell formulas apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from grpo_cli.auditing.candidates import Candidate
from grpo_cli.auditing.formulas import Formulas
from grpo_cli.engine.group_stats import AnyCodes, Mask, group_means
from grpo_cli.engine.moments import Vector
from grpo_cli.engine.plan import Plan

SAMPLE: Final = 4_096  # rows that formulas are solved on: all, or those of some groups
FLOAT32_ERROR: Final = 2e-5  # error of float32 arithmetic, relative to max(1, |A|)
FLOAT64_ERROR: Final = 1e-6  # of float64 arithmetic, on rewards that may have been rounded to float32
DIGITS: Final = 12  # numbers of float64 arithmetic have more; a logger that prints float32 writes fewer
# Error of a formula with a solved constant, relative to the largest |A|: in float64 and float32.
EXACT: Final = (1e-9, 1e-6)
COARSE: Final = 1e-3  # a larger tolerance leaves too few digits to solve a constant
Precision = Literal["float64", "float32", "float16", "bfloat16", "decimals"]
MANTISSAS: Final[Mapping[int, Precision]] = {8: "bfloat16", 11: "float16"}  # bits of the mantissa
TIED: Final = 3.0  # formulas are tied if their errors differ by at most this factor
ROUNDING: Final = 1e-12  # a smaller error is rounding
LARGE: Final = 1e-3  # smaller advantages depend too little on a constant
FAR: Final = 0.5  # a formula is not near if a larger share of the rows differs
SPARE_EQUATIONS: Final = 3  # a match needs this many more equations than solved constants
FEW_GROUPS: Final = 3  # a match needs more groups than these


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How a log was rounded: how far two equal advantages may differ, an absolute part, and a part relative to max(`least`, |A|)."""

    absolute: float = 0.0
    relative: float = FLOAT32_ERROR
    least: float = 1.0
    bits: int = 0  # of the mantissa, if it was rounded to so many: half of the last one is allowed

    @classmethod
    def of_type(cls, logged: Vector) -> Tolerance:
        """The error of the arithmetic that made these values: float32, unless most of them show all digits of float64; 0 shows nothing."""
        values = logged[np.isfinite(logged) & (logged != 0)][:SAMPLE]
        short = np.array([float(f"{value:.{DIGITS}g}") for value in values.tolist()])
        is_float64 = (values != short) & (values != values.astype(np.float32))
        return cls(relative=FLOAT64_ERROR) if len(values) and is_float64.mean() > FAR else cls()

    def of(self, logged: Vector) -> Vector:
        """The tolerance of each row."""
        allowed = self.absolute + self.relative * np.maximum(self.least, np.abs(logged))
        return allowed + np.ldexp(0.5, np.frexp(logged)[1] - self.bits) if self.bits else allowed

    @property
    def is_coarse(self) -> bool:
        """Whether values are so rounded that an epsilon could be solved from nearly any numbers."""
        return self.absolute > COARSE or self.bits > 0

    @property
    def largest(self) -> float:
        """The larger part, as one number."""
        return max(self.absolute, self.relative, 2.0**-self.bits if self.bits else 0.0)

    @property
    def words(self) -> Precision:
        """How exactly values are read, in words."""
        if self.bits:
            return MANTISSAS[self.bits]
        if self.absolute:
            return "decimals"
        return "float32" if self.relative >= FLOAT32_ERROR else "float64"

    def of_formula(self, logged: Vector, *, solved: bool) -> Tolerance:
        """The same; if a constant was solved from unrounded values, only the error of their type.

        A solved constant fits nearly any values approximately.
        """
        if not solved or self.absolute or self.bits:  # rounded values
            return self
        finite = logged[np.isfinite(logged)]
        is_float32 = bool((finite.astype(np.float32).astype(np.float64) == finite).all())
        return Tolerance(EXACT[is_float32] * float(np.abs(finite).max(initial=0.0)), 0.0)


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a plan gives the logged advantages."""

    candidate: Candidate
    mismatched: int  # rows that differ
    typical: float  # root mean square error of the other rows
    rows: int
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

        Among formulas that miss most rows, those without solved constants come first.
        """
        solved = self.candidate.constants if self.unexplained > FAR * self.rows else 0
        return solved, self.unexplained, self.typical

    def is_tied_with(self, best: Fit) -> bool:
        """Whether the rows cannot distinguish it from the best; formulas that are far off are never tied."""
        near = best.mismatched <= FAR * best.rows
        return near and self.mismatched == best.mismatched and self.typical <= TIED * best.typical + ROUNDING


@dataclass(frozen=True, slots=True)
class Evidence:
    """How many distinct equations a log has for a formula, from how many groups.

    If there are few, some formula of the library always fits, and a formula with solved constants fits nearly any numbers.
    """

    equations: int
    groups: int

    def suffices(self, tolerance: Tolerance, constants: int = 0) -> bool:
        """Whether it is enough for a formula with this many constants solved from the same rows."""
        told = self.equations // 2 if tolerance.is_coarse else self.equations  # coarse values tell half as much
        return self.groups > FEW_GROUPS and told >= constants + SPARE_EQUATIONS


def evidence(plan: Plan, log: Trial) -> Evidence:
    """Count the distinct (rewards of the group, reward of the row), with the batch if the plan needs it.

    A zero in a group of equal rewards does not count: nearly every formula gives it.
    """
    table = log.table
    read = pl.col([name for name in table.columns if name.startswith("reward.") or name in plan.needs])
    numbers = read.cast(pl.Float64, strict=False)
    prompt = "key" if "key" in table.columns else "group"  # the key, if whole steps are tried as groups
    row = pl.struct(pl.when(numbers.is_finite()).then(numbers)).hash()
    batch = "batch" if plan.uses_batch else 0
    given = table.select(
        "group", row=row, prompt=prompt, batch=batch, logged=pl.Series(log.logged), count=pl.Series(log.counts)
    )
    rows = given.with_columns(
        rewards=pl.col("row").sum().over("group"),  # the same for a group's rewards in any order
        varies=(pl.col("row").min() != pl.col("row").max()).over("group"),
    )
    telling = rows.filter(pl.col("logged").is_finite() & (pl.col("varies") | (pl.col("logged") != 0)))
    equations = telling.select("rewards", "row", "batch").n_unique()
    return Evidence(equations, int(telling.unique("prompt")["count"].sum()))


@dataclass(frozen=True)
class Trial:
    """Rows that plans are tried on, what was logged for them, and how many rows of the log each stands for."""

    formulas: Formulas
    logged: Vector
    counts: Vector
    tolerance: Tolerance = Tolerance()

    @classmethod
    def of(cls, formulas: Formulas, logged: Vector, counts: Vector | None = None) -> Trial:
        """Each row stands for itself if there are no counts."""
        return cls(formulas, logged, np.ones(len(logged)) if counts is None else counts)

    @property
    def table(self) -> pl.DataFrame:
        """The rows."""
        return self.formulas.table

    @cached_property
    def size(self) -> int:
        """How many rows they stand for."""
        return int(self.counts.sum())

    def fits(self, tried: Iterable[Candidate]) -> list[Fit]:
        """Compute each plan and measure it, in their order; the same formula once."""
        known: dict[Any, Fit] = {}
        found = []
        for candidate in tried:
            formula = self.formulas.key(candidate.plan), candidate.factor, candidate.solved
            if formula not in known:
                known[formula] = self.measured(candidate, candidate.factor * self.formulas.advantages(candidate.plan))
            found.append(replace(known[formula], candidate=candidate))
        return found

    def measured(self, candidate: Candidate, computed: Vector) -> Fit:
        """The rows that differ, and the error of the others, so that a few odd rows do not decide between two epsilons."""
        tolerance = self.tolerance.of_formula(self.logged, solved=candidate.solved)
        wrong, error = differences(computed, self.logged, tolerance)
        mismatched = int(self.counts[wrong].sum())
        counted = np.isfinite(error) & (~wrong if mismatched <= FAR * self.size else True)
        counts = self.counts[counted]
        typical = float(np.sqrt(np.average(error[counted] ** 2, weights=counts))) if counts.any() else np.inf
        return Fit(candidate, mismatched, typical, self.size)

    def has_evidence_for(self, candidate: Candidate) -> bool:
        """Whether the rows have enough equations for the candidate's solved constants."""
        return evidence(candidate.plan, self).suffices(self.tolerance, candidate.constants)


def differences(computed: Vector, logged: Vector, tolerance: Tolerance) -> tuple[Mask, Vector]:
    """Which rows differ, and by how much (NaN if both are NaN)."""
    error = np.abs(computed - logged)
    both = np.isnan(computed) & np.isnan(logged)
    with np.errstate(invalid="ignore"):
        wrong = ~both & ~(error <= tolerance.of(logged))
    return wrong, error


def slopes(values: Vector, logged: Vector, codes: AnyCodes) -> tuple[Vector, Vector]:
    """The slope and the offset of the line of each group or batch through the logged values over these (least squares)."""
    known = np.isfinite(values) & np.isfinite(logged)
    size = int(codes.max(initial=0)) + 1
    at, x, y = codes[known], values[known], logged[known]
    mean_x, mean_y = group_means(at, x, size), group_means(at, y, size)
    dx, dy = x - mean_x[at], y - mean_y[at]
    square = np.bincount(at, dx * dx, size)
    slope = np.where(square > 0, np.bincount(at, dx * dy, size) / np.where(square > 0, square, 1.0), 0.0)
    return slope, mean_y - slope * mean_x


def lines(values: Vector, logged: Vector, codes: AnyCodes) -> Vector:
    """The line of each group or batch through the logged values over these, at every row."""
    slope, offset = slopes(values, logged, codes)
    return np.asarray(slope[codes] * values + offset[codes])


def rounded(error: float) -> float:
    """Five digits of a number: equal for two ways to compute the same formula."""
    return float(f"{error:.5g}")
