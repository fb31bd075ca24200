"""Formulas of the frameworks in plain Python, on groups of every odd kind.

The golden tables have every preset on singletons, constant groups and missing rewards, but for some that are here. What is
more: rewards that are missing in a singleton, batches of a few rows, and everything at once, for a preset of each rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import chain
from typing import Any, TypeAlias

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import score
from grpo_cli.errors import UsageError
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import plan_of
from grpo_cli.render import plan_text
from tests.support.battery import Row, narrow
from tests.support.drawn import examples
from tests.support.jobs import near, of_plan
from tests.support.oracles import ORACLES

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


def std(r: Values, ddof: int = 1) -> float:
    squares = sum((x - mean(r)) ** 2 for x in r)
    return math.sqrt(squares / (len(r) - ddof)) if len(r) > ddof else NAN


def centred(r: Values) -> Values:
    return [x - mean(r) for x in r]


def group_norm(r: Values, ddof: int = 1, epsilon: float = 1e-6) -> Values:
    below = std(r, ddof) + epsilon
    return [x / below for x in centred(r)]


def others(r: Values) -> Values:
    return [x - (sum(r) - x) / (len(r) - 1) for x in r]


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


def whitened(before: Formula, inside: float = 1e-8, epsilon: float = 0.0) -> Formula:
    """Then standardised, each row counting as often as its response has tokens."""

    def whiten(groups: Groups, lengths: Groups) -> Groups:
        values = [*chain(*before(groups, lengths))]
        tokens = list[float]()
        for x, n in zip(values, chain(*lengths), strict=True):
            tokens += [x] * int(n)
        below = math.sqrt(std(tokens) ** 2 + inside) + epsilon
        middle = mean(tokens)
        return of_batch(groups, [(x - middle) / below if x != middle else 0.0 for x in values])

    return whiten


def clipped(before: Formula, bound: float) -> Formula:
    def clip(x: float) -> float:
        return x if math.isnan(x) else max(-bound, min(bound, x))

    return lambda groups, lengths: [list(map(clip, group)) for group in before(groups, lengths)]


def centred_over_batch_std(groups: Groups, _: Groups) -> Groups:
    below = std([*chain(*groups)]) + 1e-6
    return [[x / below for x in centred(r)] for r in groups]


def only_wide(r: Values) -> Values:
    """Divided by a std above 1e-6, else 0."""
    sd = std(r)
    return [x / (sd + 1e-6) if sd > 1e-6 else 0.0 for x in centred(r)]


def root_of_squares(values: Values) -> float:
    """The std about the mean that was subtracted."""
    squares = sum(x**2 for x in values)
    return math.sqrt(squares / (len(values) - 1)) + 1e-5


def areal_others(r: Values) -> Values:
    left = others(r)
    return [x / root_of_squares(left) for x in left]


def scaled(before: Formula) -> Formula:
    """On rewards as the recipes scale and clip them, and standardised once more over the tokens."""

    def shaped(x: float) -> float:
        return x if math.isnan(x) else max(-20.0, min(20.0, 10 * (x - 0.5)))

    return whitened(lambda g, n: before([list(map(shaped, r)) for r in g], n), inside=0.0, epsilon=1e-5)


def nemo(r: Values) -> Values:
    """Against the others, divided by their std where that is above 0."""

    def advantage(at: int) -> float:
        rest = r[:at] + r[at + 1 :]
        sd = std(rest) if len(rest) > 1 else 0.0
        above = r[at] - mean(rest)
        return above / (sd + 1e-6) if sd > 0 else above

    return list(map(advantage, range(len(r))))


def by_rows(before: Formula) -> Formula:
    """Standardised over rows without any epsilon."""
    whole = whitened(before, inside=0.0)
    return lambda groups, _: whole(groups, [[1.0] * len(r) for r in groups])


def penalised(r: Values, lengths: Values) -> Values:
    longest = max(1, *lengths)
    return centred([x - mean(r) * 0.25 * own / longest for x, own in zip(r, lengths, strict=True)])


def prime_length(groups: Groups, lengths: Groups) -> Groups:
    return [[nothing(*r)] if len(r) == 1 else penalised(r, n) for r, n in zip(groups, lengths, strict=True)]


# Those whose golden tables lack singletons or missing rewards, and one of each rule for both at once.
FORMULAS: dict[str, Formula] = {
    "verl-agent-gigpo-episode": unless_singleton(centred, kept),
    "verl-agent-gigpo-step": unless_singleton(centred, nothing),
    "roll-grpo-whitened --clip -1:1": clipped(whitened(unless_singleton(group_norm, not_a_number)), 1.0),
    "roll-reinforce-group-batch": centred_over_batch_std,
    "roll-agentic-reward-norm": unless_singleton(only_wide, lambda _: 0.0),
    "areal-202605-loo": unless_singleton(areal_others, lambda x: x / (1 + 1e-5)),
    "areal-reward-normalization": unless_singleton(lambda r: group_norm(r, ddof=0, epsilon=1e-8), nothing),
    "areal-202605-gsm8k-rloo": scaled(unless_singleton(others, kept)),
    "nemo-rl-gdpo": by_rows(unless_singleton(nemo, nothing)),
    "prime-rl-grpo-length-penalty": prime_length,
    "gdpo-repo-verl": whitened(unless_singleton(group_norm, measured_against_zero)),
}


@cache
def plan(command: str) -> Plan:
    """The plan of a preset and the flags behind it."""
    name, *flags = command.replace("--", "").split()
    return plan_of(Given(zip(flags[::2], flags[1::2], strict=True), preset=name))


def computed(command: str, groups: list[list[tuple[float | None, int]]]) -> list[float | None]:
    made = plan(command)
    rows = []
    for k, group in enumerate(groups):
        for reward, length in group:
            rows.append(Row(group=f"q{k}", reward=0.0, rewards=(reward,), length=length))
    table = narrow(rows).drop({"rollout", "role"} - {*made.needs})
    return score(made, table).frame[".advantage"].to_list()


@pytest.mark.parametrize("command", FORMULAS)
@given(groups=GROUPS)
@examples(12)
def test_a_preset_is_the_formula_on_singletons_constant_groups_and_missing_rewards(
    command: str, groups: list[list[tuple[float | None, int]]]
) -> None:
    assume(sum(map(len, groups)) > 1)  # of a single row no framework has a std of the batch
    rewards = [[NAN if reward is None else reward for reward, _ in group] for group in groups]
    lengths = [[float(length) for _, length in group] for group in groups]
    wanted = [*chain(*FORMULAS[command](rewards, lengths))]
    assert computed(command, groups) == pytest.approx(wanted, rel=1e-9, abs=1e-7, nan_ok=True), wanted


def test_bnpo_of_groups_of_one_rate_is_nan() -> None:
    # Of three times 0.2 a sum leaves a spread.
    groups = [[-6.0, -6.0, -6.0, 0.0, 0.0]] * 3
    got = of_plan(plan_of(Given(preset="bnpo-repo-bnpo", param=["min=-6", "max=6"])), *groups)
    assert got == pytest.approx([NAN] * 15, nan_ok=True)


def test_bnpo_of_solve_rates_that_hardly_differ_is_a_number() -> None:
    # alpha and beta are of the order of 1e8: their Beta function is far below the smallest float.
    groups = [[0.5, 0.5 + k * 1e-5] for k in range(4)]
    got = of_plan(plan("bnpo-repo-bnpo"), *groups)
    wanted = ORACLES["bnpo"]([Row(group=f"{k}", reward=r) for k, group in enumerate(groups) for r in group])
    assert all(math.isfinite(value) for value in wanted)
    assert got == pytest.approx(wanted, rel=1e-4, abs=1e-9)


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
    assert plan_of(Given(preset="verl-agent-grpo", rollout="run", rollout_reward="first")).unit.take == "first"
    assert advantages_of_runs(plan("verl-agent-gigpo-episode --rollout run")) == [-2.0, -1.0, 2.0, 1.0]


# --- a spread that is too small to divide --------------------------------------------------------------------


# Stds with ddof 0: 0.5 in the first group of two, 2 in the second.
@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"least": 0.5}, [0.0, 0.0, -2 / 2.25, 2 / 2.25]),
        ({"least": 0.25}, [-0.5 / 0.75, 0.5 / 0.75, -2 / 2.25, 2 / 2.25]),
        ({"least": 9.0, "level": "none"}, [-0.5, 0.5, -2.0, 2.0]),
        ({"least": 1.6, "level": "batch"}, [0.0] * 4),
    ],
)
def test_what_is_divided_by_a_std_that_is_not_above_the_least_is_zero(settings: dict[str, Any], wanted: Values) -> None:
    every = {"ddof": 0, "epsilon": 0.25, **settings}
    plan = Plan.of({f"divisor.{name}": value for name, value in every.items()})
    assert of_plan(plan, [1.0, 2.0], [0.0, 4.0]) == near(wanted)


def test_rows_that_are_left_out_stay_null_where_a_group_gets_zero() -> None:
    made = Plan.of({"rewards.missing": "exclude", "divisor.least": 1.0})
    got = of_plan(made, [1.0, None, 1.5], [0.0, 8.0])
    assert got[:3] == [0.0, None, 0.0]
    assert got[3:] == near([-4 / (math.sqrt(32) + 1e-6), 4 / (math.sqrt(32) + 1e-6)])


def test_the_least_std_is_said_and_cannot_be_negative() -> None:
    facts = dict(plan_text.parts(Plan.of({"divisor.least": 1e-6})))
    assert "A = 0 where that std is NaN or <= 1e-06" in facts["divisor"]
    assert dict(plan_text.parts(Plan.of({"divisor.least": 1e-6, "divisor.level": "none"})))["not used"] == [
        "without effect: divisor.least 1e-06"
    ]
    assert plan_text.missing(plan("roll-agentic-reward-norm")) == ["a row without a reward makes its group 0"]
    assert plan_text.missing(plan("roll-agentic-reward-norm --scale none")) == [
        "a row without a reward makes its group NaN"
    ]
    with pytest.raises(UsageError, match=r"divisor\.least cannot be negative"):
        Plan.of({"divisor.least": -1.0})
