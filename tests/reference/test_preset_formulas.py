"""What the formulas of the frameworks give on groups of every odd kind.

The golden tables have every preset on singletons, constant groups and missing rewards, but for some that are here. What is
more: rewards that are missing in a singleton, batches of a few rows, and everything at once, for a preset of each rule.
The numbers are those of plain Python loops over each formula.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, TypeAlias

import pytest

from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import score
from grpo_cli.errors import UsageError
from grpo_cli.options.resolve import plan_of
from grpo_cli.render import plan_text
from tests.support.battery import Row, advantages, narrow
from tests.support.jobs import near, of_plan
from tests.support.oracles import ORACLES

NAN = math.nan
Values: TypeAlias = "list[float]"

# Groups of rewards; "-" is a missing one, and each row has as many tokens as its number in the batch.
WHOLE = "0 1 3, -2 0.25 0 0.25, 1 1"
SINGLE = "0 1 3, 2, 1 1, -0.5 0.25"
GAP = "0 1 -, 3 0, -0.5 -0.5"
LONE_GAP = "0 0.25 1 1, -, -2 3"
LOST = ("nan nan nan, nan nan, nan nan", "nan nan nan nan, nan, nan nan")
# What the arithmetic of the frameworks gives each of these batches. Here are those presets whose golden tables lack singletons
# or missing rewards, and one of each rule for both at once.
BATCHES = (WHOLE, SINGLE, GAP, LONE_GAP)
FORMULAS: dict[str, tuple[str, ...]] = {
    # r - mean; a group of one keeps its reward.
    "verl-agent-gigpo-episode": (
        "-1.333333333 -0.3333333333 1.666666667, -1.625 0.625 0.375 0.625, 0 0",
        "-1.333333333 -0.3333333333 1.666666667, 2, 0 0, -0.375 0.375",
        "nan nan nan, 1.5 -1.5, 0 0",
        "-0.5625 -0.3125 0.4375 0.4375, nan, -2.5 2.5",
    ),
    # r - mean; a group of one gets 0.
    "verl-agent-gigpo-step": (
        "-1.333333333 -0.3333333333 1.666666667, -1.625 0.625 0.375 0.625, 0 0",
        "-1.333333333 -0.3333333333 1.666666667, 0, 0 0, -0.375 0.375",
        "nan nan nan, 1.5 -1.5, 0 0",
        "-0.5625 -0.3125 0.4375 0.4375, nan, -2.5 2.5",
    ),
    # (r - mean)/(std + 1e-6), standardised over the tokens of the batch; a group of one is NaN, and so is its batch.
    "roll-grpo-whitened --clip -1:1": (
        "-1 -0.521242268 1, -1 0.736455334 0.3720310025 0.736455334, -0.1746054949 -0.1746054949",
        "nan nan nan, nan, nan nan, nan nan",
        *LOST,
    ),
    # (r - mean)/(std of the rewards of the batch + 1e-6)
    "roll-reinforce-group-batch": (
        "-1.012434427 -0.2531086067 1.265543033, -1.233904458 0.4745786375 0.2847471825 0.4745786375, 0 0",
        "-1.188859127 -0.2972147817 1.486073908, 0, 0 0, -0.3343666294 0.3343666294",
        *LOST,
    ),
    # (r - mean)/(std + 1e-6) where the std is above 1e-6, else 0: that of a missing reward is not.
    "roll-agentic-reward-norm": (
        "-0.8728709895 -0.2182177474 1.091088737, -1.491200902 0.5735388084 0.344123285 0.5735388084, 0 0",
        "-0.8728709895 -0.2182177474 1.091088737, 0, 0 0, -0.7071054479 0.7071054479",
        "0 0 0, 0.7071064479 -0.7071064479, 0 0",
        "-1.091408195 -0.6063378861 0.8488730406 0.8488730406, 0, -0.7071065812 0.7071065812",
    ),
    # x = r - mean of the others, over sqrt(sum x**2/(n - 1)) + 1e-5; a group of one is r/(1 + 1e-5).
    "areal-202605-loo": (
        "-0.8728677514 -0.2182169379 1.091084689, -1.491192007 0.5735353873 0.3441212324 0.5735353873, 0 0",
        "-0.8728677514 -0.2182169379 1.091084689, 1.99998, 0 0, -0.7071001146 0.7071001146",
        "nan nan nan, 0.7071051145 -0.7071051145, 0 0",
        "-1.091394431 -0.6063302392 0.8488623349 0.8488623349, nan, -0.7071057812 0.7071057812",
    ),
    # (r - mean)/(std + 1e-8) with ddof 0; a group of one gets 0.
    "areal-reward-normalization": (
        "-1.069044959 -0.2672612398 1.336306199, -1.721892046 0.6622661715 0.3973597029 0.6622661715, 0 0",
        "-1.069044959 -0.2672612398 1.336306199, 0, 0 0, -0.9999999733 0.9999999733",
        "nan nan nan, 0.9999999933 -0.9999999933, 0 0",
        "-1.260252047 -0.7001400263 0.9801960369 0.9801960369, nan, -0.999999996 0.999999996",
    ),
    # 10 (r - 0.5) within -20 to 20, against the others, standardised over the tokens with epsilon 1e-5.
    "areal-202605-gsm8k-rloo": (
        "-2.265718076 -0.4839397832 2.188727656, -2.166730393 0.604924729 0.2089739973 0.604924729, -0.1869767344 -0.1869767344",
        "-2.221507628 -0.5893795749 1.858812505, 1.314769821, -0.3173582326 -0.3173582326, -1.133422259 0.4987057941",
        *LOST,
    ),
    # Against the others, over their std + 1e-6 where that is above 0; standardised over the rows without an epsilon.
    "nemo-rl-gdpo": (
        "-0.02795646931 0.1935114513 0.9022083715, -2.583091216 0.3647907997 0.3101361669 0.3647907997, 0.237805048 0.237805048",
        "-1.118340028 -0.3195256052 2.236679011, -0.1597626755, -0.1597626755 -0.1597626755, -0.6681254446 0.3486000935",
        *LOST,
    ),
    # r - mean of x = r - mean r * 0.25 length/longest of the group
    "prime-rl-grpo-length-penalty": (
        "-1.222222222 -0.3333333333 1.555555556, -1.645089286 0.6183035714 0.3816964286 0.6450892857, 0.01388888889 -0.01388888889",
        "-1.222222222 -0.3333333333 1.555555556, 0, 0.02083333333 -0.02083333333, -0.376953125 0.376953125",
        "nan nan nan, 1.5375 -1.5375, -0.008928571429 0.008928571429",
        "-0.509765625 -0.294921875 0.419921875 0.384765625, nan, -2.491071429 2.491071429",
    ),
    # As the whitened GRPO of roll; a group of one is r/(1 + 1e-6).
    "gdpo-repo-verl": (
        "-1.561152587 -0.521242268 1.558578371, -2.54336365 0.736455334 0.3720310025 0.736455334, -0.1746054949 -0.1746054949",
        "-1.390058955 -0.611802757 0.9447096388, 2.025227113, -0.3523840243 -0.3523840243, -1.192995759 0.4882277102",
        *LOST,
    ),
}


@cache
def plan(command: str) -> Plan:
    """The plan of a preset and the flags behind it."""
    name, *flags = command.replace("--", "").split()
    return plan_of({"preset": name, **dict(zip(flags[::2], flags[1::2], strict=True))})


@pytest.mark.parametrize("command", FORMULAS)
def test_a_preset_is_the_formula_on_singletons_constant_groups_and_missing_rewards(command: str) -> None:
    for batch, wanted in zip(BATCHES, FORMULAS[command], strict=True):
        rows = list[Row]()
        for group in batch.split(", "):
            for text in group.split():
                reward = None if text == "-" else float(text)
                rows.append(Row(group, 0.0, rewards=(reward,), length=len(rows) + 1))
        table = narrow(rows).drop({"rollout", "role"} - {*plan(command).needs})
        got = score(plan(command), table).frame[".advantage"].to_list()
        numbers = [*map(float, wanted.replace(",", "").split())]
        assert got == pytest.approx(numbers, rel=1e-9, abs=1e-9, nan_ok=True)


def test_bnpo_of_groups_of_one_rate_is_nan() -> None:
    # Of three times 0.2 a sum leaves a spread.
    group = [-6.0, -6.0, -6.0, 0.0, 0.0]
    made = plan_of({"preset": "bnpo-repo-bnpo", "param": ["min=-6", "max=6"]})
    assert of_plan(made, group, group, group) == pytest.approx([NAN] * 15, nan_ok=True)


def test_bnpo_of_solve_rates_that_hardly_differ_is_a_number() -> None:
    # alpha and beta are of the order of 1e8: their Beta function is far below the smallest float.
    rewards = [0.5, 0.5, 0.5, 0.50001, 0.5, 0.50002, 0.5, 0.50003]
    rows = [Row(group, reward) for group, reward in zip("aabbccdd", rewards, strict=True)]
    wanted = ORACLES["bnpo"](rows)
    got = advantages(rows, {"estimator.name": "bnpo"})
    assert math.isfinite(sum(wanted))
    assert got == pytest.approx(wanted, rel=1e-4, abs=1e-9)


# --- runs of several rows ------------------------------------------------------------------------------------


def advantages_of_runs(made: Plan) -> list[float | None]:
    """Runs x (rewards 0 and 4), y (1) and z (3) of one prompt."""
    runs = zip("xyxz", (0.0, 1.0, 4.0, 3.0), strict=True)
    rows = [Row("q", reward, rollout=run) for run, reward in runs]
    scored = score(made, narrow(rows).drop("role"))
    return scored.frame[".advantage"].to_list()


@pytest.mark.parametrize(
    ("name", "take", "wanted"),
    [
        ("verl-agent-mas-gigpo-episode", "first", [-4 / 3, -1 / 3, -4 / 3, 5 / 3]),
        ("drmas-rloo", "first", [-2.0, -0.5, -2.0, 2.5]),
        ("drmas-grpo", "mean", [0.0, -0.999999, 0.0, 0.999999]),
    ],
)
def test_a_run_counts_once_by_its_first_row_or_by_the_mean(name: str, take: str, wanted: list[float]) -> None:
    assert plan(name).unit.take == take
    assert advantages_of_runs(plan(name)) == pytest.approx(wanted)


def test_a_preset_that_counts_every_row_does_so_beside_a_rollout_column() -> None:
    assert plan("verl-agent-gigpo-episode --rollout run").unit.take == "each"
    assert plan("verl-grpo --rollout run").unit.take == "last"
    assert plan_of({"preset": "verl-agent-grpo", "rollout": "run", "rollout_reward": "first"}).unit.take == "first"
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
    *first, below, above = of_plan(made, [1.0, None, 1.5], [0.0, 8.0])
    assert first == [0.0, None, 0.0]
    assert above == pytest.approx(4 / (math.sqrt(32) + 1e-6))
    assert below == pytest.approx(-4 / (math.sqrt(32) + 1e-6))


def test_the_least_std_is_said_and_cannot_be_negative() -> None:
    assert "A = 0 where that std is NaN or <= 1e-06" in plan_text.describe(Plan.of({"divisor.least": 1e-6}))
    undivided = Plan.of({"divisor.least": 1e-6, "divisor.level": "none"})
    assert plan_text.describe(undivided)[-1] == "without effect: divisor.least 1e-06"
    (divided,) = plan_text.missing(plan("roll-agentic-reward-norm"))
    assert divided == "a row without a finite reward makes its group 0"
    (plain,) = plan_text.missing(plan("roll-agentic-reward-norm --scale none"))
    assert plain == "a row without a finite reward makes its group NaN"
    with pytest.raises(UsageError, match=r"divisor\.least cannot be negative"):
        Plan.of({"divisor.least": -1.0})
