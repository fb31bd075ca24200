"""Presets of verl and its kin against the frameworks' formulas in plain Python, on groups of every odd kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import chain
from typing import TypeAlias

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import score
from grpo_cli.errors import UsageError
from grpo_cli.options.resolve import plan_of
from grpo_cli.render import plan_text
from grpo_cli.testing import Row, narrow
from tests.support.jobs import near

NAN = math.nan
Values: TypeAlias = "list[float]"
Groups: TypeAlias = "list[list[float]]"
Formula: TypeAlias = "Callable[[Groups, Groups], Groups]"
# In binary fractions most sums are exact: a constant group has no spread that is only rounding.
REWARDS = st.sampled_from([None, -2.0, -0.5, 0.0, 0.0, 0.25, 1.0, 1.0, 3.0])
ROWS = st.lists(st.tuples(REWARDS, st.integers(1, 6)), min_size=1, max_size=5)
GROUPS = st.lists(ROWS, min_size=1, max_size=5)


# --- the frameworks' arithmetic; a missing reward is NaN and spreads as it will ------------------------------


def mean(r: Values) -> float:
    return sum(r) / len(r)


def variance(r: Values, ddof: int) -> float:
    return sum((x - mean(r)) ** 2 for x in r) / (len(r) - ddof) if len(r) > ddof else NAN


def at_least(x: float, floor: float) -> float:
    return x if math.isnan(x) else max(x, floor)


def centred(r: Values) -> Values:
    return [x - mean(r) for x in r]


def group_norm(r: Values, ddof: int = 1, floor: float = 0.0) -> Values:
    """Centred, in units of sqrt(max(var, floor)) + 1e-6."""
    return [x / (math.sqrt(at_least(variance(r, ddof), floor)) + 1e-6) for x in centred(r)]


def others(r: Values) -> Values:
    return [x - (sum(r) - x) / (len(r) - 1) for x in r]


def only_wide(r: Values, sd: float) -> Values:
    """Divided by a std above 1e-6, else 0."""
    return [x / (sd + 1e-6) if sd > 1e-6 else 0.0 for x in centred(r)]


def maxrl(r: Values) -> Values:
    return [(x - mean(r)) / (mean(r) + 1e-6) for x in r]


def unless_singleton(formula: Callable[[Values], Values], lone: Callable[[float], float]) -> Formula:
    """Group by group; a group of one has a rule of its own."""
    return lambda groups, _: [[lone(r[0])] if len(r) == 1 else formula(r) for r in groups]


def measured_against_zero(x: float) -> float:
    return x / (1 + 1e-6)


def kept(x: float) -> float:
    return x


def nothing(x: float) -> float:
    return 0.0 * x


def not_a_number(_: float) -> float:
    return NAN


def of_batch(groups: Groups, values: Values) -> Groups:
    """A value for each row of the batch, group by group."""
    left = iter(values)
    return [[next(left) for _ in group] for group in groups]


def over_batch(function: Callable[[Values], Values]) -> Formula:
    return lambda groups, _: of_batch(groups, function([*chain(*groups)]))


def whitened(before: Formula, ddof: int = 1, inside: float = 1e-8, floor: float = 0.0, epsilon: float = 0.0) -> Formula:
    """Then standardised, each row counting as often as its response has tokens."""

    def whiten(groups: Groups, lengths: Groups) -> Groups:
        values = [*chain(*before(groups, lengths))]
        tokens = [x for x, n in zip(values, chain(*lengths), strict=True) for _ in range(int(n))]
        sd = math.sqrt(at_least(variance(tokens, ddof) + inside, floor)) + epsilon
        return of_batch(groups, [(x - mean(tokens)) / sd if x != mean(tokens) else 0.0 for x in values])

    return whiten


def clipped(before: Formula, bound: float) -> Formula:
    def clip(x: float) -> float:
        return x if math.isnan(x) else max(-bound, min(bound, x))

    return lambda groups, lengths: [[clip(x) for x in group] for group in before(groups, lengths)]


def raw(groups: Groups, _: Groups) -> Groups:
    return groups


def length_weighted(groups: Groups, lengths: Groups) -> Groups:
    def weighted(r: Values, n: Values) -> Values:
        return [x - sum(a * b for a, b in zip(r, n, strict=True)) / sum(n) for x in r]

    return [r if len(r) == 1 else weighted(r, n) for r, n in zip(groups, lengths, strict=True)]


def nonzero_rescaled(groups: Groups, lengths: Groups) -> Groups:
    rows = [*chain(*groups)]
    alpha = len(rows) / max(1, sum(x != 0 for x in rows))
    return [[alpha * x for x in group] for group in unless_singleton(centred, kept)(groups, lengths)]


def centred_over_batch_std(groups: Groups, lengths: Groups, *, residual: bool, ddof: int) -> Groups:
    left = unless_singleton(centred, nothing)(groups, lengths)
    rows = [*chain(*(left if residual else groups))]
    sd = math.sqrt(variance(rows, ddof)) + 1e-6
    return [[x / sd for x in group] for group in left]


def half_subtracted(r: Values) -> Values:
    sd = math.sqrt(variance(r, 1)) + 1e-8
    return [x / sd for x in centred(r)]


def agentic(groups: Groups, _: Groups) -> Groups:
    return [[0.0] if len(r) == 1 else only_wide(r, math.sqrt(variance(r, 1))) for r in groups]


def agentic_over_batch(groups: Groups, _: Groups) -> Groups:
    sd = math.sqrt(variance([*chain(*groups)], 1))
    return [[0.0] if len(r) == 1 else only_wide(r, sd) for r in groups]


def population(r: Values) -> Values:
    return group_norm(r, ddof=0)


FORMULAS: dict[str, Formula] = {
    "verl-grpo": unless_singleton(group_norm, measured_against_zero),
    "verl-grpo --scale none": unless_singleton(centred, kept),
    "verl-grpo-vectorized": unless_singleton(group_norm, measured_against_zero),
    "verl-202601-grpo-vectorized": unless_singleton(lambda r: group_norm(r, floor=1e-6), measured_against_zero),
    "verl-rloo": unless_singleton(others, kept),
    "verl-rloo-vectorized": unless_singleton(others, nothing),
    "verl-opo": length_weighted,
    "verl-gpg": nonzero_rescaled,
    "verl-gdpo": whitened(unless_singleton(group_norm, measured_against_zero)),
    "verl-reinforce-plus-plus": whitened(raw),
    "verl-reinforce-plus-plus-baseline": whitened(unless_singleton(centred, kept)),
    "verl-recipe-gpg": nonzero_rescaled,
    "verl-recipe-spo": over_batch(half_subtracted),
    "verl-agent-grpo": unless_singleton(group_norm, measured_against_zero),
    "verl-agent-gigpo-episode": unless_singleton(centred, kept),
    "verl-agent-gigpo-step": unless_singleton(centred, nothing),
    "skyrl-grpo": unless_singleton(group_norm, measured_against_zero),
    "skyrl-rloo": unless_singleton(others, nothing),
    "skyrl-agent-loop": unless_singleton(others, kept),
    "skyrl-maxrl": unless_singleton(maxrl, kept),
    "skyrl-reinforce-plus-plus": whitened(raw),
    "rllm-grpo": unless_singleton(population, measured_against_zero),
    "rllm-grpo --scale none": unless_singleton(centred, kept),
    "rllm-reinforce": raw,
    "rllm-rloo": unless_singleton(others, kept),
    "rllm-reinforce-plus-plus-baseline": lambda g, n: centred_over_batch_std(g, n, residual=True, ddof=0),
    "rllm-prpo": over_batch(population),
    "slime-grpo": unless_singleton(group_norm, nothing),
    "slime-grpo --scale none": unless_singleton(centred, nothing),
    "slime-grpo --whiten token": whitened(unless_singleton(group_norm, nothing)),
    "slime-grpo-unequal": over_batch(group_norm),
    "slime-reinforce-plus-plus": whitened(raw),
    "slime-reinforce-plus-plus-baseline": whitened(unless_singleton(centred, nothing)),
    "roll-grpo": unless_singleton(group_norm, not_a_number),
    "roll-grpo --clip -1:1": clipped(unless_singleton(group_norm, not_a_number), 1.0),
    "roll-grpo-whitened": whitened(unless_singleton(group_norm, not_a_number)),
    "roll-grpo-whitened --clip -1:1": clipped(whitened(unless_singleton(group_norm, not_a_number)), 1.0),
    "roll-reinforce-group-none": unless_singleton(centred, nothing),
    "roll-reinforce-group-batch": lambda g, n: centred_over_batch_std(g, n, residual=False, ddof=1),
    "roll-reinforce-batch-batch": over_batch(group_norm),
    "roll-reinforce-batch-batch --scale none": over_batch(centred),
    "roll-reinforce-running": over_batch(group_norm),
    "roll-reinforce-none": raw,
    "roll-agentic-reward-norm": agentic,
    "roll-agentic-reward-norm --scale batch": agentic_over_batch,
    "roll-agentic-reward-norm --scale none": unless_singleton(centred, nothing),
    "rlinf-grpo": unless_singleton(group_norm, not_a_number),
    "rlinf-reinpp": whitened(raw, ddof=0, inside=0.0, floor=1e-8),
    "rlinf-raw": whitened(raw, inside=0.0, epsilon=1e-5),
}


@cache
def plan(command: str) -> Plan:
    """The plan of a preset and the flags behind it."""
    name, *flags = command.split()
    return plan_of({"preset": name, **{f.removeprefix("--"): v for f, v in zip(flags[::2], flags[1::2], strict=True)}})


def computed(command: str, groups: list[list[tuple[float | None, int]]]) -> list[float | None]:
    made = plan(command)
    rows = [
        Row(group=f"q{k}", reward=0.0, rewards=(reward,), length=length)
        for k, group in enumerate(groups)
        for reward, length in group
    ]
    return score(made, narrow(rows).drop({"rollout", "role"} - {*made.needs})).frame[".advantage"].to_list()


def holds(command: str, framework: Formula, groups: list[list[tuple[float | None, int]]]) -> None:
    """The preset gives the numbers of the framework; of a single row none of them has a std of the batch."""
    assume(sum(map(len, groups)) > 1)
    rewards = [[NAN if reward is None else reward for reward, _ in group] for group in groups]
    lengths = [[float(length) for _, length in group] for group in groups]
    wanted = [*chain(*framework(rewards, lengths))]
    assert computed(command, groups) == pytest.approx(wanted, rel=1e-9, abs=1e-7, nan_ok=True), wanted


# --- runs of several rows ------------------------------------------------------------------------------------


def advantages_of_runs(made: Plan) -> list[float | None]:
    """Runs x (rewards 0 and 4), y (1) and z (3) of one prompt."""
    runs = [("x", 0.0), ("y", 1.0), ("x", 4.0), ("z", 3.0)]
    rows = [Row(group="q", rollout=run, reward=reward) for run, reward in runs]
    return score(made, narrow(rows).drop("role")).frame[".advantage"].to_list()


@pytest.mark.parametrize(
    ("name", "of_x", "wanted"),
    [
        ("verl-agent-mas-gigpo-episode", 0.0, [-4 / 3, -1 / 3, -4 / 3, 5 / 3]),
        ("drmas-rloo", 0.0, [-2.0, -0.5, -2.0, 2.5]),
        ("drmas-grpo", 2.0, [0.0, -1 / (1 + 1e-6), 0.0, 1 / (1 + 1e-6)]),
    ],
)
def test_a_run_counts_once_by_its_first_row_or_by_the_mean(name: str, of_x: float, wanted: list[float]) -> None:
    assert {"first": 0.0, "mean": 2.0}[plan(name).unit.take] == of_x
    assert advantages_of_runs(plan(name)) == pytest.approx(wanted)


def test_a_preset_that_counts_every_row_does_so_beside_a_rollout_column() -> None:
    assert plan("verl-agent-gigpo-episode --rollout run").unit.take == "each"
    assert plan("verl-grpo --rollout run").unit.take == "last"
    assert plan_of({"preset": "verl-agent-grpo", "rollout": "run", "rollout_reward": "first"}).unit.take == "first"
    assert advantages_of_runs(plan("verl-agent-gigpo-episode --rollout run")) == [-2.0, -1.0, 2.0, 1.0]


# --- a spread that is too small to divide --------------------------------------------------------------------


def plain(settings_: dict[str, object], groups: dict[str, list[float | None]]) -> list[float | None]:
    rows = [Row(group=name, reward=0.0, rewards=(reward,)) for name, group in groups.items() for reward in group]
    return score(Plan.of(settings_), narrow(rows).drop("rollout", "role")).frame[".advantage"].to_list()


def test_a_group_whose_std_is_not_above_the_least_gets_zero() -> None:
    # Stds with ddof 0: 0.5 and 2.
    groups: dict[str, list[float | None]] = {"narrow": [1.0, 2.0], "wide": [0.0, 4.0]}
    facts = {"divisor.ddof": 0, "divisor.epsilon": 0.25}
    assert plain({**facts, "divisor.least": 0.5}, groups) == near([0.0, 0.0, -2 / 2.25, 2 / 2.25])
    assert plain({**facts, "divisor.least": 0.25}, groups) == near([-0.5 / 0.75, 0.5 / 0.75, -2 / 2.25, 2 / 2.25])
    assert plain({**facts, "divisor.level": "none", "divisor.least": 9.0}, groups) == near([-0.5, 0.5, -2.0, 2.0])


def test_the_least_std_of_a_batch_is_that_of_the_batch() -> None:
    groups: dict[str, list[float | None]] = {"a": [1.0, 2.0], "b": [1.0, 2.0]}
    facts = {"divisor.level": "batch", "divisor.ddof": 0, "divisor.epsilon": 0.0}
    assert plain({**facts, "divisor.least": 0.5}, groups) == [0.0] * 4
    assert plain({**facts, "divisor.least": 0.4}, groups) == near([-1.0, 1.0, -1.0, 1.0])


def test_rows_that_are_left_out_stay_null_where_a_group_gets_zero() -> None:
    got = plain({"rewards.missing": "exclude", "divisor.least": 1.0}, {"a": [1.0, None, 1.5], "b": [0.0, 8.0]})
    assert got[:3] == [0.0, None, 0.0]
    assert got[3:] == near([-4 / (math.sqrt(32) + 1e-6), 4 / (math.sqrt(32) + 1e-6)])


def test_the_least_std_is_said_and_cannot_be_negative() -> None:
    facts = dict(plan_text.parts(Plan.of({"divisor.least": 1e-6})))
    assert "A = 0 where that std is NaN or <= 1e-06" in facts["divisor"]
    assert dict(plan_text.parts(Plan.of({"divisor.least": 1e-6, "divisor.level": "none"})))["not used"] == [
        "without effect: divisor.least 1e-06"
    ]
    assert plan_text.missing(plan("roll-agentic-reward-norm")) == ["a row without a finite reward makes its group 0"]
    assert plan_text.missing(plan("roll-agentic-reward-norm --scale none")) == [
        "a row without a finite reward makes its group NaN"
    ]
    with pytest.raises(UsageError, match=r"divisor\.least cannot be negative"):
        Plan.of({"divisor.least": -1.0})
