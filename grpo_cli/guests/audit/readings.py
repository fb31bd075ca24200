"""How exactly a log can be read: a logged value stands for an interval, which its digits and its type allow.

The values are always read as exactly as their type allows. A log whose values all lie on a grid (they show few decimals, or few bits) may
have been rounded to it, so a formula may be as far away as half a step. A formula whose own values lie on the grid is never helped by that:
within half a step of a point of the grid there is no other one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from grpo_cli.engine.moments import Vector

SAMPLE: Final = 4_096  # rows that formulas are solved on: all, or those of some groups
FLOAT32_ERROR = 2e-5  # error of float32 arithmetic, relative to max(1, |A|)
FLOAT64_ERROR = 1e-6  # of float64 arithmetic, on rewards that may have been rounded to float32
DIGITS = 12  # numbers of float64 arithmetic have more; a logger that prints float32 writes fewer
MOST_VALUES = 0.5  # share of the values that have to show all digits of float64
# Error of a formula with a solved constant, relative to the largest |A|: in float64 and float32.
EXACT = (1e-9, 1e-6)
# Fewer decimals than two are no rounding: 0.5 and 1 are exact. More than four are finer than float32 arithmetic.
DECIMALS = range(2, 5)
LAST_BITS = 3e-7  # relative error that decides to which of two neighbours float32 arithmetic rounds
COARSE = 1e-3  # a larger step leaves too few digits to solve a constant
Precision = Literal["float64", "float32", "float16", "bfloat16", "decimals"]
MANTISSAS: Final[Mapping[int, Precision]] = {8: "bfloat16", 11: "float16"}  # bits of the mantissa


@dataclass(frozen=True)
class Reading:
    """How a log was rounded, and so how far a formula may be from its values."""

    arithmetic: float = FLOAT32_ERROR  # error of what computed the values, relative to max(1, |A|)
    absolute: float = 0.0  # the same for every value: for a solved constant
    decimals: int = 0  # to which values were rounded; 0: they were not
    bits: int = 0  # of the mantissa to which values were rounded; 0: they were not
    type: Literal["float64", "float32"] = "float32"  # of values that were not rounded

    @classmethod
    def of_type(cls, logged: Vector) -> Reading:
        """Float32 arithmetic, unless most values show all digits of float64; 0 shows nothing."""
        shows = np.isfinite(logged) & (logged != 0)
        values = logged[shows][:SAMPLE]
        short = np.array([float(f"{value:.{DIGITS}g}") for value in values.tolist()])
        has_all = (values != short) & (values != values.astype(np.float32))
        is_float64 = len(values) and has_all.mean() > MOST_VALUES
        return cls(FLOAT64_ERROR, type="float64") if is_float64 else cls()

    @property
    def is_rounded(self) -> bool:
        """Whether it is coarser than the type of the values."""
        return bool(self.decimals or self.bits)

    @property
    def is_coarse(self) -> bool:
        """Whether values are so rounded that an epsilon could be solved from nearly any numbers."""
        return self.bits > 0 or (self.decimals > 0 and 0.5 * 10.0**-self.decimals > COARSE)

    def of(self, logged: Vector) -> Vector:
        """How far a formula may be from each value."""
        size = np.abs(logged)
        allowed = self.absolute + self.arithmetic * np.maximum(1.0, size)
        if self.decimals:
            allowed = np.maximum(allowed, 0.5 * 10.0**-self.decimals + LAST_BITS * np.maximum(1.0, size))
        if self.bits:
            _, exponents = np.frexp(logged)
            # Beside 0 the steps of float16 are not relative, but far below the error of the arithmetic.
            allowed = np.maximum(allowed, np.ldexp(0.5, exponents - self.bits) + LAST_BITS * np.maximum(1.0, size))
        return np.asarray(allowed)

    @property
    def largest(self) -> float:
        """How far a value near 1 may be, as one number."""
        if self.decimals:
            return 0.5 * 10.0**-self.decimals
        return 2.0**-self.bits if self.bits else max(self.absolute, self.arithmetic)

    @property
    def words(self) -> Precision:
        """How exactly values are read, in a word."""
        if self.bits:
            return MANTISSAS[self.bits]
        return "decimals" if self.decimals else self.type

    @property
    def says(self) -> str:
        """The same with the number of decimals."""
        return f"{self.decimals} decimals" if self.decimals else self.words

    def of_formula(self, logged: Vector, *, solved: bool) -> Reading:
        """The same; if a constant was solved from values that were not rounded, only the error of their type.

        A solved constant fits nearly any values approximately.
        """
        if not solved or self.is_rounded:
            return self
        finite = logged[np.isfinite(logged)]
        is_float32 = bool((finite.astype(np.float32).astype(np.float64) == finite).all())
        largest = float(np.abs(finite).max(initial=0.0))
        return Reading(0.0, EXACT[is_float32] * largest, type="float32" if is_float32 else "float64")


def rounded_readings(logged: Vector) -> list[Reading]:
    """The grids coarser than the type on which all values lie, the finest first."""
    values = np.unique(np.abs(logged[np.isfinite(logged) & (logged != 0)]))
    if not len(values):
        return []
    single = values.astype(np.float32)
    stored = single if np.array_equal(single, values) else values  # a rounded number in the type of the file
    found = []
    for decimals in DECIMALS:
        if (np.round(values, decimals).astype(stored.dtype) == stored).all():
            found += [Reading(decimals=more) for more in range(decimals, DECIMALS.stop)]
            break
    mantissas, _ = np.frexp(values)
    found += [Reading(bits=bits) for bits in MANTISSAS if not (mantissas * 2.0**bits % 1).any()]
    return sorted(found, key=lambda one: float(one.of(values).mean()))


def readings_of(logged: Vector, rewards: Vector) -> tuple[Reading, ...]:
    """All readings that the values allow, the finest first.

    Rewards that were rounded to float32, or to many decimals, after advantages were computed from them explain an error of float32.
    """
    exact = Reading.of_type(logged)
    rewards = rewards[np.isfinite(rewards)]
    fine = rewards[np.round(rewards, DECIMALS.start + 1) != rewards]
    of_rewards = [Reading()] if exact != Reading() and len(fine) and Reading.of_type(fine) == Reading() else []
    return (exact, *of_rewards, *rounded_readings(logged))
