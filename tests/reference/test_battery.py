"""Every method against its plain-Python oracle, and the laws that it declares."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.plan import Plan
from tests.support.battery import (
    Row,
    advantages,
    close,
    equals_oracle,
    gives_constant_groups_0,
    keeps_to_batches,
    passes_over_missing,
    rows_of,
)
from tests.support.drawn import drawn_for, examples
from tests.support.jobs import of_plan
from tests.support.oracles import ORACLES

METHODS = [name for name in ESTIMATORS if name != "expression"]


def tolerance(method: str, usual: float = 1e-9) -> float:
    """With two rows the adaptive temperature has no finite answer: the winner's 1e12 hangs on the last bit."""
    return 1e-3 if method == "entropic-adaptive" else usual


def assume_answer(method: str, values: Sequence[float | None]) -> None:
    if method == "entropic-adaptive":
        assume(all(abs(value or 0) < 1e6 for value in values))


def episodes(rows: list[Row], method: str) -> list[Row]:
    """Methods that count rollouts get one reward per rollout, as trainers write it."""
    if method != "gigpo":
        return rows
    first: dict[tuple[str, str], float] = {}
    return [replace(row, reward=first.setdefault((row.group, row.rollout), row.reward)) for row in rows]


def test_every_method_has_an_oracle() -> None:
    assert set(ORACLES) == set(METHODS), "tests/support/oracles.py has each once more, in plain Python"


@pytest.mark.parametrize("method", METHODS)
@given(data=st.data())
@examples(10)
def test_a_method_equals_its_oracle(method: str, data: st.DataObject) -> None:
    rows = episodes(data.draw(drawn_for(method)), method)
    assume_answer(method, ORACLES[method](rows))
    equals_oracle({"estimator.name": method}, ORACLES[method], rows, tolerance(method))


OTHER_SCALES = []
for _name in sorted({*METHODS} - {"gdpo", "spo"}):
    _row = ESTIMATORS[_name]
    OTHER_SCALES += [(_name, scale) for scale in _row.scales if scale != _row.scale]


@pytest.mark.parametrize(("method", "scale"), OTHER_SCALES)
@given(data=st.data())
@examples(6)
def test_every_other_scale_equals_the_oracle(method: str, scale: str, data: st.DataObject) -> None:
    rows = episodes(data.draw(drawn_for(method)), method)
    if scale == "batch":
        assume(len({row.reward for row in rows}) > 1)
    oracle = partial(ORACLES[method], scale=scale)
    assume_answer(method, oracle(rows))
    equals_oracle({"estimator.name": method, "divisor.level": scale}, oracle, rows, tolerance(method))


PARAMETERS = """
maxrl epsilon=1e-06 nonpositive=keep
gpg f_norm=4.0
passk k=4
pkpo k=3
max-at-k k=1
max-at-k k=3
passk-or-rate k=2
opmd baseline=logavgexp tau=0.5
asymre shift=0.25
entropic beta=0.5
risk-sensitive beta=-1.0
risk-sensitive beta=0.0
quantile level=0.75
mc-grpo floor=0.1
bnpo min=-6.0 max=6.0
spo rho=0.9 prior=4.0
w-reinforce weight=0.5
a-star-po beta=2.0
ema decay=0.5 start=1.0
gigpo omega=0.5 gamma=0.5
mt-grpo omega=0.5 gamma=0.5
james-stein epsilon=0.1
conditional baseline=1.0
conditional epsilon=0.5
one-sided epsilon=0.5
clipped-pnorm floor=0.75
a-grae epsilon=0.5
maclaurin order=3
maclaurin-loo order=3
maclaurin-cross order=3
oversample-subset order=3
kalman process=0.1 noise=0.5 variance=2.0 epsilon=0.01
"""


@pytest.mark.parametrize("case", PARAMETERS.strip().splitlines())
@given(data=st.data())
@examples(7)
def test_parameters_mean_what_the_oracle_means(case: str, data: st.DataObject) -> None:
    method, *pairs = case.split()
    params = dict[str, Any]()
    for pair in pairs:
        name, value = pair.split("=")
        params[name] = value if value.isalpha() else json.loads(value)
    strategy = rows_of() if method == "bnpo" else drawn_for(method)
    rows = episodes(data.draw(strategy), method)
    settings = {"estimator.name": method, **{f"estimator.{name}": value for name, value in params.items()}}
    equals_oracle(settings, partial(ORACLES[method], **params), rows)


@given(rows=rows_of())
@examples(10)
def test_a_formula_of_ones_own_gives_grpo(rows: list[Row]) -> None:
    own = {"estimator.name": "expression", "estimator.sql": "(reward - mean) / (std + epsilon)"}
    equals_oracle(own, ORACLES["grpo"], rows)


@pytest.mark.parametrize("method", [m for m in METHODS if not ESTIMATORS[m].spans_batches])
@given(data=st.data())
@examples(4)
def test_batches_do_not_leak_into_each_other(method: str, data: st.DataObject) -> None:
    strategy = drawn_for(method)
    keeps_to_batches({"estimator.name": method}, data.draw(strategy), data.draw(strategy))


# A step whose rollout has no reward is still compared with the others in its state.
@pytest.mark.parametrize("method", sorted({*METHODS} - {"gigpo", "mt-grpo"}))
@given(data=st.data())
@examples(4)
def test_a_row_without_a_reward_changes_nothing_for_the_others(method: str, data: st.DataObject) -> None:
    rows = data.draw(drawn_for(method))
    at = data.draw(st.integers(0, len(rows) - 1))
    assume_answer(method, ORACLES[method](rows[:at] + rows[at + 1 :]))
    passes_over_missing({"estimator.name": method}, ORACLES[method], rows, at, tolerance(method))


CENTRED = []
for _name in METHODS:
    _plan = Plan.of({"estimator.name": _name})
    if _plan.centred and not (_plan.post or _plan.shape):
        CENTRED.append(_name)


@pytest.mark.parametrize("method", CENTRED)
@pytest.mark.parametrize("value", [0.1, 0.98, 1e9 + 0.1, -2.3])
def test_a_constant_group_is_exactly_zero(method: str, value: float) -> None:
    gives_constant_groups_0({"estimator.name": method}, value)


OFFSETS = "grpo rloo dr-grpo grpo-loo lite-ppo quantile mc-grpo entropic james-stein james-stein++"


@pytest.mark.parametrize("method", OFFSETS.split())
@pytest.mark.parametrize("offset", [1e9, 1e15])
def test_a_large_offset_costs_no_digits(method: str, offset: float) -> None:
    rewards = "01101001 01101001 0001"
    small = [Row(group, float(digit)) for group, word in zip("abc", rewards.split(), strict=True) for digit in word]
    large = [replace(row, reward=row.reward + offset) for row in small]
    plan = {"estimator.name": method}
    for got, wanted in zip(advantages(large, plan), advantages(small, plan), strict=True):
        assert close(got, wanted, 1e-12)


# The golden tables have the others as their frameworks compute them.
@pytest.mark.parametrize(
    ("method", "wanted"),
    [
        ("lite-ppo", [-0.8660239, 0.8660239, -0.8660239, 0.8660239]),
        ("quantile", [0, 1.7320478, 0, 1.7320478]),
        ("reference", [-0.5, 0.5, -0.5, 0.5]),
        ("rank-penalty", [-0.8651240, 0.9209385, -0.8651240, 0.9209385]),
    ],
)
def test_methods_without_a_framework_have_the_values_worked_out_by_hand(method: str, wanted: list[float]) -> None:
    failed = Row("a", 0.0, logprob=-1.0, references=(0.0, 1.0))
    solved = Row("a", 1.0, logprob=-2.0, references=(0.0, 1.0))
    got = advantages([failed, solved, failed, solved], {"estimator.name": method})
    assert got == pytest.approx(wanted, abs=2e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_nan_reaches_as_far_as_the_method_says(method: str) -> None:
    rewards = [0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, math.nan, 0.0, 0.25, 0.0, 1.0, 1.0, 0.0, 0.25]
    rows = []
    for at, reward in enumerate(rewards):
        place = at % 5
        row = Row("abc"[at // 5], reward, references=(0.2, 0.7), state="s", rollout=str(place))
        rows.append(replace(row, length=place + 3, logprob=-0.1 * place))
    settings = {"estimator.name": method, "rewards.missing": "propagate"}
    values = advantages(rows, settings)
    spoilt = {at for at, value in enumerate(values) if value is None or math.isnan(value)}
    said = Plan.of(settings).nan_reach
    if said == "later":
        assert min(spoilt) == 7
        assert spoilt > {7, 8}
    else:
        assert spoilt == {"row": {7}, "group": set(range(5, 10)), "batch": set(range(15))}[said]


def test_balance_silences_the_surplus_of_failures_and_centres_the_rest() -> None:
    silent = set[int]()
    for seed in range(5):
        plan = Plan.of({"estimator.name": "rec", "estimator.drop": "balance", "estimator.seed": seed})
        values: Any = of_plan(plan, [0.0, 0.0, 0.0, 1.0])
        assert sorted(values) == [-0.5, 0.0, 0.0, 0.5]
        assert values[3] == 0.5
        silent.update(at for at, value in enumerate(values) if value == 0.0)
        assert of_plan(plan, [0.0, 0.25, 1.0, 1.0]) == pytest.approx([-0.5625, -0.3125, 0.4375, 0.4375])
        # What is below the mean is a failure.
        graded: Any = of_plan(plan, [0.125, 0.25, 0.25, 1.0])
        assert sorted(graded)[1:3] == [0.0, 0.0]
        assert graded[3] in (0.4375, 0.375)
    assert silent == {0, 1, 2}
