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
from hypothesis import assume, example, given
from hypothesis import strategies as st

from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import score
from grpo_cli.errors import UsageError
from grpo_cli.options.resolve import plan_of
from grpo_cli.render import plan_text
from tests.support.battery import Row, narrow
from tests.support.drawn import examples
from tests.support.jobs import near, of_plan
from tests.support.oracles import inverse_beta_pdf

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


def group_norm(r: Values, ddof: int = 1, floor: float = 0.0, epsilon: float = 1e-6) -> Values:
    """Centred, in units of sqrt(max(var, floor)) + epsilon."""
    return [x / (math.sqrt(at_least(variance(r, ddof), floor)) + epsilon) for x in centred(r)]


def others(r: Values) -> Values:
    return [x - (sum(r) - x) / (len(r) - 1) for x in r]


def only_wide(r: Values, sd: float) -> Values:
    """Divided by a std above 1e-6, else 0."""
    return [x / (sd + 1e-6) if sd > 1e-6 else 0.0 for x in centred(r)]


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


def agentic(groups: Groups, _: Groups, *, over_batch: bool = False) -> Groups:
    whole = [*chain(*groups)]
    sds = [math.sqrt(variance(whole if over_batch else r, 1)) for r in groups]
    return [[0.0] if len(r) == 1 else only_wide(r, sd) for r, sd in zip(groups, sds, strict=True)]


def root_of_squares(values: Values, epsilon: float = 1e-5) -> float:
    """The std about the mean that was subtracted."""
    return math.sqrt(sum(x**2 for x in values) / (len(values) - 1)) + epsilon


def areal(r: Values) -> Values:
    return [x / root_of_squares(centred(r)) for x in centred(r)]


def areal_others(r: Values) -> Values:
    return [x / root_of_squares(others(r)) for x in others(r)]


def areal_lite(groups: Groups, _: Groups) -> Groups:
    left = [centred(r) for r in groups]
    sd = root_of_squares([*chain(*left)])
    return [[x / sd for x in r] for r in left]


def areal_singleton(x: float) -> float:
    return x / (1 + 1e-5)


def scaled(before: Formula) -> Formula:
    """On rewards as the recipes scale and clip them, and standardised once more over the tokens."""

    def shaped(x: float) -> float:
        return x if math.isnan(x) else max(-20.0, min(20.0, 10 * (x - 0.5)))

    return whitened(lambda g, n: before([[shaped(x) for x in r] for r in g], n), inside=0.0, epsilon=1e-5)


def nemo(r: Values) -> Values:
    """Against the others, divided by their std where that is above 0."""

    def advantage(at: int) -> float:
        rest = r[:at] + r[at + 1 :]
        sd = math.sqrt(variance(rest, 1)) if len(rest) > 1 else 0.0
        return (r[at] - mean(rest)) / (sd + 1e-6) if sd > 0 else r[at] - mean(rest)

    return [advantage(at) for at in range(len(r))]


def by_rows(before: Formula) -> Formula:
    """Standardised over rows without any epsilon."""
    whole = whitened(before, inside=0.0)
    return lambda groups, _: whole(groups, [[1.0] * len(r) for r in groups])


def prime_length(groups: Groups, lengths: Groups) -> Groups:
    def penalised(r: Values, n: Values) -> Values:
        return centred([x - mean(r) * 0.25 * own / max(1, *n) for x, own in zip(r, n, strict=True)])

    return [[nothing(*r)] if len(r) == 1 else penalised(r, n) for r, n in zip(groups, lengths, strict=True)]


FORMULAS: dict[str, Formula] = {
    "verl-grpo": unless_singleton(group_norm, measured_against_zero),
    "verl-202601-grpo-vectorized": unless_singleton(lambda r: group_norm(r, floor=1e-6), measured_against_zero),
    "verl-rloo": unless_singleton(others, kept),
    "verl-opo": length_weighted,
    "verl-gpg": nonzero_rescaled,
    "verl-agent-gigpo-episode": unless_singleton(centred, kept),
    "verl-agent-gigpo-step": unless_singleton(centred, nothing),
    "rllm-reinforce-plus-plus-baseline": lambda g, n: centred_over_batch_std(g, n, residual=True, ddof=0),
    "slime-grpo-unequal": over_batch(group_norm),
    "roll-grpo": unless_singleton(group_norm, not_a_number),
    "roll-grpo-whitened --clip -1:1": clipped(whitened(unless_singleton(group_norm, not_a_number)), 1.0),
    "roll-reinforce-group-batch": lambda g, n: centred_over_batch_std(g, n, residual=False, ddof=1),
    "roll-agentic-reward-norm": agentic,
    "roll-agentic-reward-norm --scale batch": lambda g, n: agentic(g, n, over_batch=True),
    "rlinf-reinpp": whitened(raw, ddof=0, inside=0.0, floor=1e-8),
    "areal-grpo --scale batch": areal_lite,
    "areal-202605-loo": unless_singleton(areal_others, areal_singleton),
    "areal-reward-normalization": unless_singleton(lambda r: group_norm(r, ddof=0, epsilon=1e-8), nothing),
    "areal-gsm8k-grpo": scaled(unless_singleton(areal, nothing)),
    "areal-202605-gsm8k-rloo": scaled(unless_singleton(others, kept)),
    "areal-gsm8k-liteppo": scaled(areal_lite),
    "nemo-rl-gdpo": by_rows(unless_singleton(nemo, nothing)),
    "nemo-rl-gdpo --method grpo": by_rows(unless_singleton(group_norm, nothing)),
    "prime-rl-grpo-length-penalty": prime_length,
    "gdpo-repo-verl": whitened(unless_singleton(group_norm, measured_against_zero)),
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


def beta_normalised(groups: Groups, low: float, high: float) -> Groups:
    """The published code: a singleton's rate is 0, and its reward is measured against it."""
    x = [[(r - low) / (high - low) for r in group] for group in groups]
    rates = [mean(group) if len(group) > 1 else 0.0 for group in x]
    # Rates that are equal have no spread; of three times 0.2 a sum leaves one.
    pm, pv = mean(rates), variance(rates, 1) if len({*rates}) > 1 else 0.0
    c = pm * (1 - pm) / pv - 1 if pv > 0 else NAN
    alpha, beta = (max(1.0, 1 + c * pm / 3), max(1.0, 1 + c * (1 - pm) / 3)) if pv > 0 else (NAN, NAN)
    weights = [inverse_beta_pdf(p, alpha, beta) if pv > 0 else NAN for p in rates]
    return [[w * (r - p) for r in group] for w, group, p in zip(weights, x, rates, strict=True)]


# Their rates are exact, so that two groups have the same one or another one.
@given(groups=st.lists(st.lists(st.sampled_from([-6.0, -1.5, 0.0, 1.5, 3.0, 6.0]), min_size=1, max_size=5), min_size=2))
@example(groups=[[-6.0, -6.0, -6.0, 0.0, 0.0]] * 3)
def test_bnpo_measures_a_singleton_against_a_rate_of_zero(groups: Groups) -> None:
    made = plan_of({"preset": "bnpo-repo-bnpo", "param": ["min=-6", "max=6"]})
    wanted = [*chain(*beta_normalised(groups, -6.0, 6.0))]
    assert of_plan(made, *groups) == pytest.approx(wanted, rel=1e-9, abs=1e-9, nan_ok=True)


def test_bnpo_of_solve_rates_that_hardly_differ_is_a_number() -> None:
    # alpha and beta are of the order of 1e8: their Beta function is far below the smallest float.
    groups = [[0.5, 0.5 + k * 1e-5] for k in range(4)]
    got = of_plan(plan("bnpo-repo-bnpo"), *groups)
    wanted = [*chain(*beta_normalised(groups, 0.0, 1.0))]
    assert all(value is not None and math.isfinite(value) for value in got)
    assert got == pytest.approx(wanted, rel=1e-4, abs=1e-9)


def test_areal_divides_leave_one_out_rewards_by_their_own_std_over_the_batch() -> None:
    groups = [[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]]
    left = [*chain(*map(others, groups))]
    wanted = [x / root_of_squares(left) for x in left]
    got = of_plan(plan("areal-loo --scale batch"), *groups)
    assert got == pytest.approx([*chain(*of_batch(groups, wanted))])


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


def divided(*groups: list[float | None], **settings: Any) -> list[float | None]:
    """By a divisor with these settings."""
    return of_plan(Plan.of({f"divisor.{name}": value for name, value in settings.items()}), *groups)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"least": 0.5}, [0.0, 0.0, -2 / 2.25, 2 / 2.25]),
        ({"least": 0.25}, [-0.5 / 0.75, 0.5 / 0.75, -2 / 2.25, 2 / 2.25]),
        ({"least": 9.0, "level": "none"}, [-0.5, 0.5, -2.0, 2.0]),
    ],
)
def test_a_group_whose_std_is_not_above_the_least_gets_zero(settings: dict[str, Any], wanted: list[float]) -> None:
    # Stds with ddof 0: 0.5 and 2.
    assert divided([1.0, 2.0], [0.0, 4.0], ddof=0, epsilon=0.25, **settings) == near(wanted)


@pytest.mark.parametrize(("least", "wanted"), [(0.5, [0.0] * 4), (0.4, [-1.0, 1.0, -1.0, 1.0])])
def test_the_least_std_of_a_batch_is_that_of_the_batch(least: float, wanted: list[float]) -> None:
    assert divided([1.0, 2.0], [1.0, 2.0], level="batch", ddof=0, epsilon=0.0, least=least) == near(wanted)


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
    assert plan_text.missing(plan("roll-agentic-reward-norm")) == ["a row without a finite reward makes its group 0"]
    assert plan_text.missing(plan("roll-agentic-reward-norm --scale none")) == [
        "a row without a finite reward makes its group NaN"
    ]
    with pytest.raises(UsageError, match=r"divisor\.least cannot be negative"):
        Plan.of({"divisor.least": -1.0})
