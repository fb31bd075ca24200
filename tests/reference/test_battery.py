"""Every method against its plain-Python oracle, and the laws that it declares."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.plan import Plan
from tests.support.battery import (
    LINEAR,
    REWARDS,
    SHIFTS,
    Row,
    advantages,
    close,
    equals_oracle,
    gives_constant_groups_0,
    ignores_order,
    keeps_to_batches,
    keeps_to_groups,
    obeys_scale,
    obeys_shift,
    passes_over_missing,
    rows_of,
)
from tests.support.drawn import drawn_for, examples
from tests.support.oracles import ORACLES

OWN_FORMULA = "(reward - mean) / (std + epsilon)"
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
    assert set(ORACLES) == set(METHODS)


@pytest.mark.parametrize("method", METHODS)
@given(data=st.data())
@examples(10)
def test_a_method_equals_its_oracle(method: str, data: st.DataObject) -> None:
    rows = episodes(data.draw(drawn_for(method)), method)
    assume_answer(method, ORACLES[method](rows))
    equals_oracle({"estimator.name": method}, ORACLES[method], rows, tolerance(method))


@pytest.mark.parametrize(
    ("method", "scale"),
    [(m, s) for m in METHODS for s in ESTIMATORS[m].scales if s != ESTIMATORS[m].scale and m not in {"gdpo", "spo"}],
)
@given(data=st.data())
@examples(6)
def test_every_other_scale_equals_the_oracle(method: str, scale: str, data: st.DataObject) -> None:
    rows = episodes(data.draw(drawn_for(method)), method)
    if scale == "batch":
        assume(len({row.reward for row in rows}) > 1)
    oracle = partial(ORACLES[method], scale=scale)
    assume_answer(method, oracle(rows))
    equals_oracle({"estimator.name": method, "divisor.level": scale}, oracle, rows, tolerance(method))


PARAMETERS = [
    "maxrl epsilon=1e-06 nonpositive=keep",
    "gpg f_norm=4.0",
    "passk k=4",
    "pkpo k=3",
    "max-at-k k=1",
    "max-at-k k=3",
    "passk-or-rate k=2",
    "opmd baseline=logavgexp tau=0.5",
    "asymre shift=0.25",
    "entropic beta=0.5",
    "risk-sensitive beta=-1.0",
    "risk-sensitive beta=0.0",
    "quantile level=0.75",
    "mc-grpo floor=0.1",
    "bnpo min=-6.0 max=6.0",
    "spo rho=0.9 prior=4.0",
    "w-reinforce weight=0.5",
    "a-star-po beta=2.0",
    "ema decay=0.5 start=1.0",
    "gigpo omega=0.5 gamma=0.5",
    "mt-grpo omega=0.5 gamma=0.5",
    "james-stein epsilon=0.1",
    "conditional baseline=1.0",
    "conditional epsilon=0.5",
    "one-sided epsilon=0.5",
    "clipped-pnorm floor=0.75",
    "a-grae epsilon=0.5",
    "maclaurin order=3",
    "maclaurin-loo order=3",
    "maclaurin-cross order=3",
    "oversample-subset order=3",
    "kalman process=0.1 noise=0.5 variance=2.0 epsilon=0.01",
]


@pytest.mark.parametrize("case", PARAMETERS)
@given(data=st.data())
@examples(7)
def test_parameters_mean_what_the_oracle_means(case: str, data: st.DataObject) -> None:
    method, *pairs = case.split()
    params: dict[str, Any] = dict(pair.split("=") for pair in pairs)
    params = {name: value if value.isalpha() else json.loads(value) for name, value in params.items()}
    rows = episodes(data.draw(rows_of() if method == "bnpo" else drawn_for(method)), method)
    settings = {"estimator.name": method, **{f"estimator.{k}": v for k, v in params.items()}}
    equals_oracle(settings, partial(ORACLES[method], **params), rows)


@given(rows=rows_of())
@examples(10)
def test_a_formula_of_ones_own_gives_grpo(rows: list[Row]) -> None:
    own = advantages(rows, {"estimator.name": "expression", "estimator.sql": OWN_FORMULA})
    grpo = advantages(rows, {"estimator.name": "grpo"})
    assert all(close(o, g or 0.0) for o, g in zip(own, grpo, strict=True))


LOCAL = [m for m in METHODS if not Plan.of({"estimator.name": m}).uses_batch]


@pytest.mark.parametrize("method", LOCAL)
@given(data=st.data())
@examples(4)
def test_groups_do_not_leak_into_each_other(method: str, data: st.DataObject) -> None:
    rows, other = (data.draw(drawn_for(method, REWARDS)) for _ in range(2))
    keeps_to_groups({"estimator.name": method}, rows, other)


@pytest.mark.parametrize("method", [m for m in METHODS if not ESTIMATORS[m].spans_batches])
@given(data=st.data())
@examples(4)
def test_batches_do_not_leak_into_each_other(method: str, data: st.DataObject) -> None:
    rows, other = (data.draw(drawn_for(method)) for _ in range(2))
    keeps_to_batches({"estimator.name": method}, rows, other)


# A step whose rollout has no reward is still compared with the others in its state.
@pytest.mark.parametrize("method", [m for m in METHODS if m not in {"gigpo", "mt-grpo"}])
@given(data=st.data())
@examples(4)
def test_a_row_without_a_reward_changes_nothing_for_the_others(method: str, data: st.DataObject) -> None:
    rows = episodes(data.draw(drawn_for(method)), method)
    at = data.draw(st.integers(0, len(rows) - 1))
    assume_answer(method, ORACLES[method]([row for place, row in enumerate(rows) if place != at]))
    passes_over_missing({"estimator.name": method}, ORACLES[method], rows, at, tolerance(method))


@pytest.mark.parametrize("method", [m for m in METHODS if ESTIMATORS[m].order_free])
@given(data=st.data())
@examples(4)
def test_the_order_of_rows_does_not_matter(method: str, data: st.DataObject) -> None:
    rows, plan = data.draw(drawn_for(method)), {"estimator.name": method}
    assume_answer(method, advantages(rows, plan))
    ignores_order(plan, rows, data.draw(st.permutations(range(len(rows)))), tolerance(method, 1e-12))


@pytest.mark.parametrize("method", [m for m in METHODS if SHIFTS.get(m, 0.0) is not None])
@given(data=st.data(), offset=st.sampled_from([0.5, -3.0, 64.0]))
@examples(4)
def test_the_declared_shift_law_holds(method: str, data: st.DataObject, offset: float) -> None:
    rows, plan = episodes(data.draw(drawn_for(method, REWARDS)), method), {"estimator.name": method}
    assume_answer(method, advantages([replace(row, reward=round(row.reward * 4) / 4) for row in rows], plan))
    obeys_shift(plan, rows, offset, SHIFTS.get(method) or 0.0, tolerance(method))


@pytest.mark.parametrize("method", [m for m in METHODS if m in LINEAR and "none" in ESTIMATORS[m].scales])
@given(data=st.data())
@examples(4)
def test_the_declared_scale_law_holds(method: str, data: st.DataObject) -> None:
    obeys_scale({"estimator.name": method}, data.draw(drawn_for(method, REWARDS)))


PLANS = {m: Plan.of({"estimator.name": m}) for m in METHODS}
CENTRED = [m for m, plan in PLANS.items() if plan.centred and not (plan.post or plan.shape)]


@pytest.mark.parametrize("method", CENTRED)
@pytest.mark.parametrize("value", [0.1, 0.98, 1e9 + 0.1, -2.3])
def test_a_constant_group_is_exactly_zero(method: str, value: float) -> None:
    gives_constant_groups_0({"estimator.name": method}, value)


@pytest.mark.parametrize(
    "method",
    [
        "grpo",
        "rloo",
        "dr-grpo",
        "grpo-loo",
        "lite-ppo",
        "quantile",
        "mc-grpo",
        "entropic",
        "james-stein",
        "james-stein++",
    ],
)
@pytest.mark.parametrize("offset", [1e9, 1e15])
def test_a_large_offset_costs_no_digits(method: str, offset: float) -> None:
    pattern = [0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    small = [Row(group=g, reward=r) for g in "ab" for r in pattern]
    small += [Row(group="c", reward=float(at == 3)) for at in range(4)]
    large = [replace(row, reward=row.reward + offset) for row in small]
    plan = {"estimator.name": method}
    for got, wanted in zip(advantages(large, plan), advantages(small, plan), strict=True):
        assert wanted is not None and close(got, wanted, 1e-12)


# Of a group with the rewards 0, 1, 0, 1: a failure and a success; of one with 1, 0, 0, 0: the success and a failure.
HAND: dict[str, tuple[float, float, float, float]] = {
    "grpo": (-0.8660239, 0.8660239, 1.499997, -0.499999),
    "dr-grpo": (-0.5, 0.5, 0.75, -0.25),
    "rloo": (-2 / 3, 2 / 3, 1, -1 / 3),
    "grpo-loo": (-1.1546985, 1.1546985, 1, -0.5773493),
    "maxrl": (-1, 1, 3, -1),
    "reinforce": (0, 1, 1, 0),
    "psr": (0, 1, 1, 0),
    "nsr": (-1, 0, 0, -1),
    "w-reinforce": (-1, 0.1, 0.1, -1),
    "gpg": (-4 / 3, 4 / 3, 2, -2 / 3),
    "asymre": (-0.4, 0.6, 0.85, -0.15),
    "opmd": (-0.5, 0.5, 0.75, -0.25),
    "rec": (-0.5, 0.5, 0.75, -0.25),
    "batch-norm": (-0.7245676, 1.2076127, 1.2076127, -0.7245676),
    "lite-ppo": (-0.9660899, 0.9660899, 1.4491348, -0.4830449),
    "quantile": (0, 1.7320478, 1.999996, 0),
    "entropic": (-0.8099, 1.3610, 6.3891, -0.6805),
    "passk-best": (0, 0, 1.999996, 0),
    "passk": (-0.4472126, 0.4472126, 0.999998, -0.3333327),
    "pkpo": (-4 / 9, 4 / 9, 1, -1 / 3),
    "mc-grpo": (0, 2000, 4000, 0),
    "risk-sensitive": (-0.3807971, 0.3807971, 0.9224692, -0.3074897),
    "gdpo": (-0.9354143, 0.9354143, 1.6201852, -0.5400617),
    "spo": (-0.7245688, 1.2076147, 1.2076147, -0.7245688),
    "bnpo": (-0.3408522, 0.3408522, 0.5185460, -0.1728487),
    "james-stein": (-0.2500067, 0.7499987, 0.5000060, -0.4999980),
    "james-stein++": (-0.4264733, 0.6323533, 0.6911800, -0.3676467),
    "conditional": (0, 1.999996, 3.999984, 0),
    "one-sided": (-0.7071058, 0.7071058, 1.499997, -0.499999),
    "clipped-pnorm": (-0.25, 0.25, 0.75, -0.25),
    # Two of five succeed: mean 0.6, std sqrt(0.3). Then one of five and the best: mean 0.4, the same std.
    "ngrpo": (-1.0954431, 0.7302954, 1.0954431, -0.7302954),
    "vr-cond": (-0.25, 0.25, 0.75, -0.25),
    # Two of four fail: one of the six pairs does. Three of four: three pairs of six, one set of three out of four.
    "maclaurin": (-1 / 12, 1 / 4, 1 / 4, -1 / 4),
    "maclaurin-loo": (-0.05, 0.3, 29 / 60, -7 / 90),
    "maclaurin-cross": (-1 / 12, 1 / 3, 1 / 2, -1 / 6),
    "oversample-subset": (-0.25, 0.25, 0.75, -0.25),
    # w = 0.375/(2 sqrt(1/2)) + 0.625/(2 (1 - sqrt(1/2))) for half solved, 0.375 + 0.625 for a quarter; gains times 3/8.
    "a-grae": (-1.1536328, 0.4326123, 0.5624978, -0.4999980),
}
# Where it counts what came before, each row.
IN_ORDER = {
    "ema": [0, 1, -0.05, 0.9525, 0.904875, -0.14036875, -0.13335031, -0.12668280],
    # K = 0.990099, 0.497757, 0.332667, 0.250312 and P = 0.01 K; each row beside the level that has seen it.
    "kalman": [0, 7.1186060, -5.7571756, 10.0097921, 0.0995027, -7.0481255, -5.7513667, -4.9725227],
}


# With lengths 1, 3, 1, 3, log-probs -1, -2, -1, -2, a greedy reward of 0.25 and two reference rewards 0 and 1.
HAND_EXTRAS: dict[str, list[float]] = {
    "opo": [-0.75, 0.25, -0.75, 0.25],
    "remax": [-0.25, 0.75, -0.25, 0.75],
    "reference": [-0.5, 0.5, -0.5, 0.5],
    "a-star-po": [-0.7168904, 0.2831096, -0.7168904, 0.2831096],
    "reinforce++": [-1.6201852, 0.5400617, -1.6201852, 0.5400617],
    "reinforce++-baseline": [-1.6201852, 0.5400617, -1.6201852, 0.5400617],
    "length-penalty": [-0.4583333, 0.4583333, -0.4583333, 0.4583333],
    "unlikeliness": [-0.8651240, 0.9209385, -0.8651240, 0.8093096],
    "rank-penalty": [-0.8651240, 0.9209385, -0.8651240, 0.9209385],
    "entropic-adaptive": [-1.0, 2.0, -1.0, 2.0],
}


@pytest.mark.parametrize("method", HAND_EXTRAS)
def test_methods_with_more_columns_have_the_values_worked_out_by_hand(method: str) -> None:
    rows = [
        Row(group="a", reward=r, length=1 + 2 * int(r), logprob=-1.0 - r, baseline=0.25, references=(0.0, 1.0))
        for r in (0.0, 1.0, 0.0, 1.0)
    ]
    assert advantages(rows, {"estimator.name": method}) == pytest.approx(HAND_EXTRAS[method], abs=2e-6)


def test_rollouts_and_their_steps_have_the_values_worked_out_by_hand() -> None:
    # Two rollouts of two steps: the first earns 1 at its end and starts where the second starts, which earns 0.
    steps = [("x", "s", 0.0, 1.0), ("x", "t", 1.0, 1.0), ("y", "s", 0.0, 0.0), ("y", "u", 0.0, 0.0)]
    rows = [Row(group="a", rollout=o, state=state, step_reward=own, reward=r) for o, state, own, r in steps]
    assert advantages(rows, {"estimator.name": "step-wise"}) == pytest.approx(
        [0.7071058, 0.7071058, -0.7071058, -0.7071058]
    )
    # Episode part +-0.5; in state s the returns are 0.95 and 0, in t and u nobody else is.
    assert advantages(rows, {"estimator.name": "gigpo"}) == pytest.approx([0.975, 0.5, -0.975, -0.5])
    # Turns by their numbers: what is still earned is 1, 1, 0 and 0.
    turns = [replace(row, state=str(at % 2)) for at, row in enumerate(rows)]
    assert advantages(turns, {"estimator.name": "mt-grpo"}) == pytest.approx([1.0, 1.0, -1.0, -1.0])


@pytest.mark.parametrize("method", [*HAND, *IN_ORDER])
def test_the_reference_vector_has_the_values_worked_out_by_hand(method: str) -> None:
    rows = [Row(group="a", reward=r) for r in (0, 1, 0, 1)] + [Row(group="b", reward=r) for r in (1, 0, 0, 0)]
    got = advantages(rows, {"estimator.name": method})
    half = HAND.get(method, (0.0,) * 4)
    wanted = IN_ORDER.get(method) or [*half[:2], *half[:2], half[2], *half[3:] * 3]
    assert got == pytest.approx(wanted, abs=6e-5 if method == "entropic" else 1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_nan_reaches_as_far_as_the_method_says(method: str) -> None:
    rows = [
        Row(group=group, reward=r, length=i + 3, logprob=-0.1 * i, references=(0.2, 0.7), rollout=str(i), state="s")
        for group in "abc"
        for i, r in enumerate((0.0, 1.0, 1.0, 0.0, 1.0 if group == "a" else 0.25))
    ]
    rows[7] = replace(rows[7], reward=math.nan)
    settings = {"estimator.name": method, "rewards.missing": "propagate"}
    spoilt = {i for i, value in enumerate(advantages(rows, settings)) if value is None or math.isnan(value)}
    said = Plan.of(settings).nan_reach
    if said == "later":
        assert min(spoilt) == 7
        assert spoilt > {7, 8}
    else:
        assert spoilt == {"row": {7}, "group": set(range(5, 10)), "batch": set(range(15))}[said]


BITS = """
import hashlib, sys
import polars as pl
from grpo_cli.engine import column_stats
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import score
column_stats.PIECE = 1 << 14  # rows are computed in pieces
table = pl.read_parquet(sys.argv[1])
for rows in (table, table.sort("group", maintain_order=True)):
    for name in sys.argv[2:]:
        values = score(Plan.of({"estimator.name": name}), rows).frame[".advantage"].to_numpy()
        print(name, hashlib.sha256(values.tobytes()).hexdigest())
"""


def test_the_bits_are_the_same_for_any_number_of_threads(tmp_path: Path) -> None:
    names = ["grpo", "rloo", "lite-ppo", "reinforce++", "opo", "gdpo", "james-stein", "grpo-loo", "mc-grpo"]
    noise, rows = np.random.default_rng(5), 60_000
    rewards = np.where(noise.random(rows) < 1 / 3, noise.normal(size=rows), noise.integers(0, 2, rows))
    _, first, groups = np.unique(noise.integers(0, 24_000, rows), return_index=True, return_inverse=True)
    table = pl.DataFrame({
        "group": pl.Series(np.argsort(np.argsort(first))[groups], dtype=pl.UInt32),
        "batch": pl.zeros(rows, dtype=pl.UInt32, eager=True),
        "reward.0": rewards,
        "length": noise.integers(1, 90, rows).astype(float),
    })  # fmt: skip
    path = tmp_path / "table.parquet"
    table.write_parquet(path)
    outputs = set[str]()
    for threads in ("1", "2", "7"):
        environment = {**os.environ, "POLARS_MAX_THREADS": threads}
        words = [sys.executable, "-c", BITS, str(path), *names]
        outputs.add(subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout)
    (output,) = outputs
    assert len({line.partition(" ")[2] for line in output.splitlines()}) == 2 * len(names)


@given(rows=rows_of(), seed=st.integers(0, 9))
@examples(10)
def test_balance_silences_the_surplus_of_failures_and_centres_the_rest(rows: list[Row], seed: int) -> None:
    plan = {"estimator.name": "rec", "estimator.drop": "balance", "estimator.seed": seed}
    values = advantages(rows, plan)
    for name in {row.group for row in rows}:
        places = [i for i, row in enumerate(rows) if row.group == name]
        rewards = [rows[i].reward for i in places]
        mean = math.fsum(rewards) / len(rewards)
        low = [i for i in places if rows[i].reward < mean - 1e-12]
        if len(low) <= len(places) - len(low):
            wanted = advantages([rows[i] for i in places], {"estimator.name": "rec"})
            assert [values[i] for i in places] == pytest.approx(wanted)
            continue
        high = [i for i in places if i not in low]
        silent = [i for i in low if values[i] == 0.0]
        stay = [i for i in places if i not in silent]
        kept_mean = math.fsum(rows[i].reward for i in stay) / len(stay)
        assert len(silent) == len(low) - len(high)
        assert [values[i] for i in stay] == pytest.approx([rows[i].reward - kept_mean for i in stay])
