"""Formulas of --expr beside the same formulas in plain Python, where every operand is a float."""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from tests.support.drawn import examples

Row = Mapping[str, float]

GROUPS: Final = {"a": [0.25, 0.5, 1.0, -0.75], "b": [2.0, 0.5], "c": [1.5, 0.0, -1.25]}
FRAME: Final = pl.DataFrame(
    [{"prompt_id": group, "reward": reward} for group, rewards in GROUPS.items() for reward in rewards]
)
NUMBERS: Final = (
    "0",
    "1",
    "2",
    "3",
    "7",
    "10",
    "100000",
    "2147483647",
    "9007199254740993",
    "1.0",
    "3.0",
    "0.1",
    ".5",
    "2.",
    "1e3",
)
NAMES: Final = ("reward", "reward", "mean", "n", "min", "max", "sum", "median")
FORMULAS: Final = 16  # of an example
DEPTH: Final = 4
NEAR: Final = 16  # times that a formula is tried with slightly different numbers

# What a formula may be made of, and what it means in Python.
OF_VALUES: Final[Mapping[str, Callable[..., float]]] = {
    "({} + {})": operator.add,
    "({} - {})": operator.sub,
    "({} * {})": operator.mul,
    "({} / {})": operator.truediv,
    "({} % {})": math.fmod,
    "(- {})": operator.neg,
    "POWER({}, {})": math.pow,
    "POW({}, 2)": lambda value: math.pow(value, 2),
    "MOD({}, {})": math.fmod,
    "ABS({})": abs,
    "FLOOR({})": math.floor,
    "SQRT(ABS({}))": lambda value: math.sqrt(abs(value)),
    "SIGN({})": lambda value: float(value > 0) - float(value < 0),
    "LEAST({}, {})": min,
    "GREATEST({}, {}, {})": max,
    "CASE WHEN {} > 0.5 THEN {} ELSE {} END": lambda tested, first, second: first if tested > 0.5 else second,
    "CASE WHEN NOT {} < {} OR {} IS NULL THEN {} ELSE 7 END": lambda left, right, _, value: 7.0 if left < right else value,
    "IF({} <= {}, {}, 100000)": lambda left, right, value: value if left <= right else 100000.0,
    "(({} > {}) * {})": lambda left, right, value: float(left > right) * value,
    "(({} >= {}) - TRUE)": lambda left, right: float(left >= right) - 1.0,
    "COALESCE(NULLIF({0}, {0}), {1})": lambda _, value: value,
    "ROUND({}, 3)": lambda value: round(value * 1000) / 1000,
}  # fmt: skip
OF_GROUPS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "SUM({})": math.fsum,
    "AVG({})": statistics.fmean,
    "MIN({})": min,
    "MAX({})": max,
    "MEDIAN({})": statistics.median,
    "COUNT({})": len,
    "COUNT(*)": len,
    "SUM({} > 0.3)": lambda values: sum(value > 0.3 for value in values),
}  # fmt: skip


class Formula(NamedTuple):
    """What is given to --expr, and what it is for a row of a group; the last argument gives each number of a formula or a row."""

    sql: str
    value: Callable[[Row, Sequence[Row], Callable[[float], float]], float]


def drawn(random: Random, depth: int, *, aggregates: bool = True) -> Formula:
    """A formula of at most this depth; the values of an aggregate have none of their own."""
    kind = random.choice(["number", "name", *["values"] * 5 * (depth > 0), *["group"] * (depth > 0 and aggregates)])
    if kind == "number":
        text = random.choice(NUMBERS)
        return Formula(text, lambda _row, _rows, exact: exact(float(text)))
    if kind == "name":
        name = random.choice(NAMES)
        return Formula(name, lambda row, _rows, exact: exact(row[name]))
    if kind == "group":
        written, aggregate = random.choice([*OF_GROUPS.items()])
        of = drawn(random, depth - 1, aggregates=False)
        return Formula(
            written.format(of.sql), lambda _, rows, exact: aggregate([of.value(row, rows, exact) for row in rows])
        )
    written, apply = random.choice([*OF_VALUES.items()])
    parts = [drawn(random, depth - 1, aggregates=aggregates) for _ in range(written.count("{}") or 2)]
    return Formula(
        written.format(*(part.sql for part in parts)),
        lambda row, rows, exact: apply(*(part.value(row, rows, exact) for part in parts)),
    )


def in_python(formula: Formula, exact: Callable[[float], float]) -> list[float] | None:
    """The values of all rows; None if Python has none."""
    values = list[float]()
    for rewards in GROUPS.values():
        facts: dict[str, Any] = {
            "mean": statistics.fmean(rewards), "n": float(len(rewards)), "min": min(rewards), "max": max(rewards),
            "sum": math.fsum(rewards), "median": statistics.median(rewards),
        }  # fmt: skip
        rows = [{"reward": reward, **facts} for reward in rewards]
        try:
            values += [float(formula.value(row, rows, exact)) for row in rows]
        except (ZeroDivisionError, OverflowError, ValueError):
            return None
    return values if all(map(math.isfinite, values)) else None


def steady(random: Random) -> tuple[Formula, list[float]]:
    """A formula with its values, which do not depend on the last digits of a number."""

    def near(number: float) -> float:
        return number * (1 + 1e-14 * random.uniform(-1, 1))

    while True:
        formula = drawn(random, DEPTH)
        values = in_python(formula, lambda number: number)
        if values and all(in_python(formula, near) == pytest.approx(values, rel=1e-11, abs=0) for _ in range(NEAR)):
            return formula, values


@examples(20)
@given(st.integers(0, 1 << 32))
def test_a_formula_gives_what_python_gives_for_floats(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - any formulas do
    for _ in range(FORMULAS):
        formula, values = steady(random)
        assert grpo_cli.advantages(FRAME, expr=formula.sql).to_list() == pytest.approx(values, rel=1e-9, abs=0), (
            formula.sql
        )
