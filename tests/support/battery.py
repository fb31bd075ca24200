"""What every method is held to: an oracle in plain Python, and the laws that are declared for it.

Each law is a function of its own, which raises an AssertionError. `check` draws rows and applies all of them:

    def midrange(rows: Sequence[Row]) -> list[float]:  # plain Python; rows of any number of groups and batches
        ...

    check("lab-midrange", midrange)

The authors of a plugin may copy this file.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import score


@dataclass(frozen=True)
class Row:
    """One sample, with every column that some method needs; a reward that is NaN is missing."""

    group: str
    reward: float
    batch: str = ""
    length: int = 1
    logprob: float = 0.0
    baseline: float = 0.0
    references: tuple[float, ...] = ()
    rollout: str = ""
    step_reward: float = 0.0
    state: str = ""
    role: str = ""
    input_length: int = 0
    turns: int = 1
    rewards: tuple[float | None, ...] = ()


Rows: TypeAlias = Sequence[Row]
Oracle: TypeAlias = Callable[[Rows], Sequence[float]]
Settings: TypeAlias = Mapping[str, Any]

# Values whose sums, halves and quarters are exact floats, and values for which they are not.
REWARDS: Final = st.one_of(
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([0.0, 0.25, 0.5, 1.0, -1.0]),
    st.floats(-5, 5, allow_nan=False).map(lambda x: round(x, 4)),
)
_EXTRAS: Final[Mapping[str, st.SearchStrategy[object]]] = {
    "length": st.integers(1, 40),
    "logprob": st.floats(-3, 0).map(lambda x: round(x, 3)),
    "baseline": st.sampled_from([0.0, 0.5, 1.0]),
    "references": st.lists(st.floats(-2, 2).map(lambda x: round(x, 3)), min_size=1, max_size=4).map(tuple),
    "rollout": st.sampled_from("xyz"),
    "step_reward": st.floats(-1, 1).map(lambda x: round(x, 3)),
    "state": st.sampled_from("st"),
    "role": st.sampled_from(["solver", "critic"]),
    "input_length": st.integers(0, 9),
    "turns": st.integers(1, 3),
}
_CONSTANTS: Final = (0.1, 0.7, 0.98, 1e9 + 0.1, -2.3, 0.0, 1.0)


# --- rows and the numbers of the engine ------------------------------------------------------------------------


def rows_of(*needs: str, rewards: st.SearchStrategy[float] = REWARDS) -> st.SearchStrategy[list[Row]]:
    """One to five groups of one to six rows, shuffled; what a method needs is drawn as well."""
    row = st.tuples(rewards, *(_EXTRAS[name] for name in needs))
    groups = st.lists(st.lists(row, min_size=1, max_size=6), min_size=1, max_size=5)
    return st.builds(_mixed, groups, st.integers(0, 99), st.just(needs))


def _mixed(groups: list[list[tuple[object, ...]]], seed: int, needs: tuple[str, ...]) -> list[Row]:
    rows = []
    for name, group in zip("abcde", groups, strict=False):
        for values in group:
            facts: dict[str, Any] = dict(zip(("reward", *needs), values, strict=True))
            rows.append(Row(group=name, **facts))
    if seed:
        random.Random(seed).shuffle(rows)  # noqa: S311 - any order does
    return rows


def narrow(rows: Rows) -> pl.DataFrame:
    """The narrow table of some rows, with all roles; a plan reads those it needs."""

    def codes(*names: str) -> pl.Series:
        keys = [tuple(getattr(row, name) for name in names) for row in rows]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        return pl.Series([numbers[key] for key in keys], dtype=pl.UInt32)

    columns = {name: codes(name) for name in ("group", "batch", "state", "role")}
    columns["rollout"] = codes("group", "rollout")
    components = [row.rewards or (row.reward,) for row in rows]
    for k, rewards in enumerate(zip(*components, strict=True)):
        columns[f"reward.{k}"] = pl.Series(rewards, dtype=pl.Float64)
    for name in ("length", "logprob", "baseline", "step_reward", "input_length", "turns"):
        columns[name] = pl.Series([getattr(row, name) for row in rows], dtype=pl.Float64, strict=False)
    columns["references"] = pl.Series([list(row.references) for row in rows], dtype=pl.List(pl.Float64))
    return pl.DataFrame(columns)


def advantages(rows: Rows, settings: Settings) -> list[float | None]:
    """The engine's advantages of these rows under these settings of a plan (`estimator.name`, `divisor.level`, ...)."""
    if not rows:
        return []
    plan = Plan.of(settings)
    undeclared = {*ROLES} - {*plan.needs, *plan.may_read}  # a method that reads one of them fails
    return score(plan, narrow(rows).drop(undeclared, strict=False)).frame[".advantage"].to_list()


def close(got: float | None, wanted: float | None, relative: float = 1e-9) -> bool:
    """Equal up to rounding; NaN equals NaN, null equals nothing."""
    if got is None or wanted is None:
        return False
    if math.isnan(wanted):
        return math.isnan(got)
    return math.isclose(got, wanted, rel_tol=relative, abs_tol=relative * max(1.0, abs(wanted)))


def _same(law: str, rows: Rows, got: Sequence[float | None], wanted: Sequence[float | None], relative: float) -> None:
    for at, (value, right) in enumerate(zip(got, wanted, strict=True)):
        said = f"{law}: row {at} has {value}, and {right} is right\nrows: {rows}\ngot: {got}\nright: {wanted}"
        assert close(value, right, relative), said


# --- laws ------------------------------------------------------------------------------------------------------


def equals_oracle(settings: Settings, oracle: Oracle, rows: Rows, relative: float = 1e-9) -> None:
    """Every advantage is that of the oracle."""
    _same("the oracle", rows, advantages(rows, settings), list(oracle(rows)), relative)


def keeps_to_groups(settings: Settings, rows: Rows, others: Rows) -> None:
    """More groups in the batch change nothing."""
    moved = [replace(row, group=row.group.upper()) for row in others]
    together = advantages([*rows, *moved], settings)[: len(rows)]
    _same("a group alone", rows, advantages(rows, settings), together, 1e-12)


def keeps_to_batches(settings: Settings, rows: Rows, others: Rows) -> None:
    """More batches change nothing, even if their rows are interleaved."""
    moved = [replace(row, group=row.group.upper(), batch="another") for row in others]
    mixed = list[Row]()
    for at in range(max(len(rows), len(moved))):
        mixed += rows[at : at + 1]
        mixed += moved[at : at + 1]
    values = advantages(mixed, settings)
    together = [value for row, value in zip(mixed, values, strict=True) if row.batch != "another"]
    _same("a batch alone", rows, advantages(rows, settings), together, 1e-12)


def ignores_order(settings: Settings, rows: Rows, order: Sequence[int]) -> None:
    """Rows in another order have the same numbers; ties in log-prob, which the order would break, are removed."""
    distinct = [replace(row, logprob=-0.01 * i) for i, row in enumerate(rows)]
    plain = advantages(distinct, settings)
    shuffled = advantages([distinct[i] for i in order], settings)
    _same("another order of rows", distinct, shuffled, [plain[i] for i in order], 1e-12)


def passes_over_missing(settings: Settings, oracle: Oracle, rows: Rows, at: int, relative: float = 1e-9) -> None:
    """With --missing exclude, a row without a reward changes nothing for the others.

    It has no advantage, unless another row of its rollout has a reward.
    """
    given = [*rows]
    given[at] = replace(rows[at], reward=math.nan)
    values = advantages(given, {**settings, "rewards.missing": "exclude"})
    siblings = [row for row in rows if row.rollout == rows[at].rollout]
    shared = len(siblings) > 1 and Plan.of(settings).unit.take != "each"
    if values[at] is not None and not shared:
        raise AssertionError(f"row {at} has no reward but has an advantage\nrows: {given}")
    # Groups keep the order of their first rows, which may be the one without a reward.
    order = [*dict.fromkeys(row.group for row in rows)]
    left = [place for place in range(len(rows)) if place != at]
    left.sort(key=lambda place: order.index(rows[place].group))
    others = [rows[place] for place in left]
    wanted = oracle(others) if others else ()
    _same("a reward that is missing", others, [values[place] for place in left], wanted, relative)


def obeys_shift(settings: Settings, rows: Rows, offset: float, shift: float) -> None:
    """All rewards grow by an offset: every advantage grows by `shift` times that."""
    plan = Plan.of(settings)
    absorbed = plan.baseline_level == "batch" or _whitens(plan)
    step = 0.0 if absorbed else shift * offset
    exact = [replace(row, reward=round(row.reward * 4) / 4) for row in rows]
    moved = [replace(row, reward=row.reward + offset) for row in exact]
    wanted = [None if value is None else value + step for value in advantages(exact, settings)]
    _same(f"rewards {offset:+g}", exact, advantages(moved, settings), wanted, 1e-9)


def obeys_scale(settings: Settings, rows: Rows) -> None:
    """All rewards times four: a linear method that nothing divides has four times the advantages."""
    undivided = {**settings, "divisor.level": "none"}
    factor, relative = (1.0, 1e-4) if _whitens(Plan.of(undivided)) else (4.0, 1e-9)
    grown = [replace(row, reward=row.reward * 4) for row in rows]
    wanted = [None if value is None else value * factor for value in advantages(rows, undivided)]
    _same("rewards times 4", rows, advantages(grown, undivided), wanted, relative)


def _whitens(plan: Plan) -> bool:
    return any(op.name == "whiten" for op in plan.post)


def gives_constant_groups_0(settings: Settings, value: float) -> None:
    """Equal rewards give exactly 0, whatever the other columns and groups."""
    rows = [Row("a", value, length=i + 1, rollout=str(i), state=str(i), logprob=-0.1 * i) for i in range(7)]
    rows += [Row("b", 3.0, rollout="x", state="z"), Row("b", 5.0, rollout="y", state="w")]
    got = advantages(rows, settings)[:7]
    if got != [0.0] * 7:
        raise AssertionError(f"a constant group of {value} has {got}, not exactly 0")


# --- all of them -----------------------------------------------------------------------------------------------


def check(method: str, oracle: Oracle, *, shift: float | None = 0.0, linear: bool = False) -> None:
    """Compare a method with its oracle and with what its row and these arguments declare, on drawn rows.

    Singletons, ties, constant groups and rows in any order are among them. The oracle takes finite rewards, in any
    number of groups and batches, and returns a number for each row.
    """
    row = ESTIMATORS[method]
    plain = {"estimator.name": method}
    plan = Plan.of(plain)

    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(data=st.data(), rows=rows_of(*plan.needs), others=rows_of(*plan.needs))
    def laws(data: st.DataObject, rows: list[Row], others: list[Row]) -> None:
        equals_oracle(plain, oracle, rows)
        if not plan.unit.state_weight:  # a step whose rollout has no reward is still compared with its state
            passes_over_missing(plain, oracle, rows, data.draw(st.integers(0, len(rows) - 1)))
        if not row.spans_batches:
            keeps_to_batches(plain, rows, others)
        if not plan.uses_batch:
            keeps_to_groups(plain, rows, others)
        if row.order_free:
            ignores_order(plain, rows, data.draw(st.permutations(range(len(rows)))))
        if shift is not None:
            obeys_shift(plain, rows, data.draw(st.sampled_from([0.5, -3.0, 64.0])), shift)
        if linear and "none" in row.scales:
            obeys_scale(plain, rows)

    laws()
    for value in _CONSTANTS if plan.centred and not plan.post and not plan.shape else ():
        gives_constant_groups_0(plain, value)
