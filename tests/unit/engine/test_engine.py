"""What the battery of methods does not test: odd groups, missing rewards, shapes, rollouts, the order of post operations."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import score
from grpo_cli.errors import DataError, UsageError
from tests.support.battery import Row, narrow
from tests.support.drawn import paired
from tests.support.jobs import NAN, advantages, frame, near

ROOT2 = math.sqrt(2.0)
# Groups: two graded rows, two equal ones, and a singleton.
REWARDS, KEYS = [1.0, 3.0, 5.0, 5.0, 4.0], ["a", "a", "b", "b", "c"]
PAIRS = [0, 0, 1, 1]


def result(rewards: list[Any], groups: list[Any] | None = None, **options: Any) -> grpo_cli.Result[pl.Series]:
    return grpo_cli.compute(frame(rewards, groups), **options)


def shaped(rewards: list[float], columns: dict[str, list[Any]], **options: Any) -> list[float | None]:
    """The shaped rewards themselves: `reinforce` gives back what enters the estimator."""
    data = frame(rewards, **columns)
    return list(grpo_cli.advantages(data, method="reinforce", **options))


# --- singletons --------------------------------------------------------------------------------------------

SINGLETON = [
    ("zero", 0.0, "singleton"),
    ("raw", 4.0, "singleton"),
    ("unit", 4.0 / (1 + 1e-6), "scored"),
    ("nan", NAN, "singleton"),
    ("null", None, "singleton"),
    ("drop", None, "singleton"),
]


@pytest.mark.parametrize(("rule", "wanted", "status"), SINGLETON)
def test_each_rule_for_a_singleton(rule: str, wanted: float | None, status: str) -> None:
    got = result(REWARDS, KEYS, singleton=rule)
    assert got.advantages.to_list() == near([-1 / (ROOT2 + 1e-6), 1 / (ROOT2 + 1e-6), 0.0, 0.0, wanted])
    assert got.status.to_list() == ["scored"] * 4 + [status]
    assert got.groups["kept"].to_list() == [True, True, rule != "drop"]


def test_a_singleton_may_stop_the_run() -> None:
    with pytest.raises(DataError, match="row 5: the group c has a single scored row"):
        advantages(REWARDS, KEYS, singleton="error")
    assert advantages(REWARDS[:4], KEYS[:4], singleton="error", scale="none") == [-1.0, 1.0, 0.0, 0.0]


def test_unit_divides_a_single_reward_as_the_scale_says() -> None:
    # The whole batch has the sum of squares 16 and ddof 1: its std is 2.
    rewards = [2.0, 2.0, 6.0, 6.0, 4.0]
    assert advantages(rewards, KEYS, singleton="unit", scale="none")[4] == 4.0
    assert advantages(rewards, KEYS, singleton="unit", scale="batch")[4] == pytest.approx(4.0 / (2.0 + 1e-6))


@pytest.mark.parametrize(("sd", "wanted"), [("zero", 4.0 / 0.5), ("one", 4.0 / 1.5), ("nan", NAN)])
def test_the_std_of_a_singleton_is_what_the_plan_says(sd: str, wanted: float) -> None:
    settings = {"alone.sd": sd, "alone.baseline": "zero", "alone.result": "keep"}
    assert advantages(REWARDS, KEYS, set=settings, epsilon=0.5)[4:] == near([wanted])


def test_a_group_with_one_scored_row_is_a_singleton_whatever_its_size() -> None:
    got = result([4.0, None, 1.0, 3.0], PAIRS, missing="exclude", singleton="raw", scale="none")
    assert got.advantages.to_list() == [4.0, None, -1.0, 1.0]
    assert got.status.to_list() == ["singleton", "unscorable", "scored", "scored"]


# --- constant groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "wanted", "status"),
    [("keep", 0.0, "scored"), ("null", None, "zero-variance"), ("drop", None, "zero-variance")],
)
def test_each_rule_for_a_constant_group(rule: str, wanted: float | None, status: str) -> None:
    got = result(REWARDS, KEYS, zero_variance=rule, scale="none")
    assert got.advantages.to_list() == [-1.0, 1.0, wanted, wanted, 0.0]
    assert got.status.to_list() == ["scored", "scored", status, status, "singleton"]
    assert got.groups["kept"].to_list() == [True, rule != "drop", True]


@pytest.mark.parametrize("value", [0.1, 1e9 + 0.1, 1e-300])
def test_a_group_is_constant_when_its_extremes_are_equal(value: float) -> None:
    # 0.1 seven times has a std above 0 in plain floating point.
    assert advantages([value] * 7, zero_variance="null") == [None] * 7
    assert advantages([value] * 6 + [math.nextafter(value, 2e9)], zero_variance="null") != [None] * 7


UNDEFINED = {"expression", "bnpo"}  # without a formula, and where the whole batch is constant


@pytest.mark.parametrize(
    ("method", "rewards"),
    paired(sorted({*ESTIMATORS} - UNDEFINED), [[0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]]),
    ids=str,
)
def test_no_spread_is_too_small_for_a_number(method: str, rewards: list[int]) -> None:
    """With epsilon 0, beside groups that differ as little, not at all, and far more."""
    for spread, others in product((1e-152, 1e-162, 5e-324), ([], [0, 1.0, 1.0, 0])):
        values = [spread * one for one in (*rewards, 1, 0, 0, 0, 1, 1, 0, 0)] + others
        table = narrow([Row(group=str(at // 4), reward=value, step_reward=value) for at, value in enumerate(values)])
        for scale, post in product(ESTIMATORS[method].scales, ([], [{"op": "whiten", "epsilon": 0.0}])):
            plan = Plan.of({"estimator.name": method, "divisor.level": scale, "divisor.epsilon": 0.0, "post": post})
            found = score(plan, table.drop({"rollout", "role"} - {*plan.needs})).rows[".advantage"]
            assert found.is_finite().all(), (spread, scale, post, found.to_list())


@pytest.mark.parametrize("scale", ["group", "batch"])
def test_what_has_no_spread_to_divide_by_gets_0(scale: str) -> None:
    assert advantages([0.0, 1e-170, 0.0, 1e-180], PAIRS, epsilon=0.0, scale=scale) == [0.0] * 4
    assert advantages([0.0, 1e-140], epsilon=0.0) == near([-ROOT2 / 2, ROOT2 / 2])
    assert advantages([0.0, 1e-170], scale="none") == [-5e-171, 5e-171]


@pytest.mark.parametrize(("threshold", "constant"), [(0.0, False), (1.41, False), (ROOT2, True), (2.0, True)])
def test_a_threshold_calls_small_spreads_constant(threshold: float, *, constant: bool) -> None:
    got = result(REWARDS, KEYS, zero_variance="null", std_threshold=threshold, scale="none")
    assert got.advantages.to_list()[:2] == ([None, None] if constant else [-1.0, 1.0])
    assert got.advantages.to_list()[2:4] == [None, None]
    assert got.status.to_list()[4] == "singleton"


def test_the_threshold_is_compared_with_the_std_of_the_plans_ddof() -> None:
    options: dict[str, Any] = {"zero_variance": "null", "std_threshold": 1.2, "scale": "group"}
    assert None not in advantages([1.0, 3.0], **options)
    assert advantages([1.0, 3.0], **options, ddof=0) == [None, None]


def test_a_threshold_without_a_word_on_what_to_do_is_refused() -> None:
    with pytest.raises(UsageError, match="std_threshold says which groups zero_variance drop or null skips"):
        advantages(REWARDS, KEYS, std_threshold=100.0)


def test_constancy_is_judged_on_what_enters_the_estimator() -> None:
    assert advantages([1.0, 3.0], reward_clip="0:1", zero_variance="null") == [None, None]


@pytest.mark.parametrize(
    ("least", "most", "nearly"),
    [(1.0, 1.0, 0), (1.0, 1.0 + 5e-10, 1), (1.0, 1.0 + 1.5e-9, 0), (-2e6, -2e6 + 1e-3, 1), (0.0, 1e-12, 0), (0.0, 1e-170, 1)],
)  # fmt: skip
def test_groups_that_are_nearly_constant_are_counted(least: float, most: float, nearly: int) -> None:
    found = grpo_cli.inspect(frame([least, most, 0.0, 1.0], PAIRS))
    assert found.facts["zero_variance"]["nearly"] == nearly


# --- small groups ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule", "wanted", "kept"), [("null", None, True), ("zero", 0.0, True), ("drop", None, False)])
def test_each_rule_for_a_small_group(rule: str, wanted: float | None, *, kept: bool) -> None:
    rewards, keys = [1.0, 3.0, 0.0, 3.0, 3.0], ["a", "a", "b", "b", "b"]
    got = result(rewards, keys, min_group_size=3, set={"groups.small": rule}, scale="none")
    assert got.advantages.to_list() == [wanted, wanted, -2.0, 1.0, 1.0]
    assert got.status.to_list() == ["small-group"] * 2 + ["scored"] * 3
    assert got.groups["kept"].to_list() == [kept, True]


def test_a_small_group_is_counted_by_its_scored_rows() -> None:
    keys = ["a", "a", "a", "b", "b", "b", "c"]
    got = result(
        [1.0, 3.0, None, 2.0, 4.0, 6.0, 5.0],
        keys,
        min_group_size=3,
        missing="exclude",
        zero_variance="null",
        scale="none",
    )
    assert got.advantages.to_list() == [None, None, None, -2.0, 0.0, 2.0, None]
    assert got.status.to_list() == [
        "small-group",
        "small-group",
        "unscorable",
        "scored",
        "scored",
        "scored",
        "small-group",
    ]


@pytest.mark.parametrize(
    ("counted", "sd"),
    # All of 0, 2, 9, 9: squares 66, var 22. Only 0 and 2: var 2.
    [("all", math.sqrt(22)), ("kept", ROOT2)],
)
def test_skipped_groups_count_in_the_std_of_the_batch_by_default(counted: str, sd: float) -> None:
    got = advantages(
        [0.0, 2.0, 9.0, 9.0],
        PAIRS,
        scale="batch",
        zero_variance="drop",
        set={"groups.statistics": counted},
        epsilon=0,
    )
    assert got == near([-1 / sd, 1 / sd, None, None])


# --- poison ------------------------------------------------------------------------------------------------

POISONED, TWO = [0.0, 1.0, NAN, 1.0, 3.0], [0, 0, 0, 1, 1]
BY_GROUP: list[dict[str, Any]] = [
    {}, {"clip": "-1:1"}, {"reward_clip": "0:5"},
    {"set": "divisor.floor=0.25"}, {"set": "shape.binary.threshold=0.5"}, {"zero_variance": "null", "std_threshold": 0.1},
]  # fmt: skip


@pytest.mark.parametrize("options", BY_GROUP, ids=str)
def test_a_nan_that_may_spread_spreads_over_its_group_only(options: dict[str, Any]) -> None:
    got = advantages(POISONED, TWO, missing="propagate", **options)
    clean = advantages(POISONED[3:], TWO[3:], **options)
    assert all(value is not None and math.isnan(value) for value in got[:3])
    assert got[3:] == clean


@pytest.mark.parametrize("options", [{"scale": "batch"}, {"whiten": "sample"}, {"method": "batch-norm"}], ids=str)
def test_a_nan_spreads_over_its_batch_where_the_batch_matters(options: dict[str, Any]) -> None:
    data = frame([*POISONED, 1.0, 3.0], [*TWO, 2, 2], step=[1, 1, 1, 1, 1, 2, 2])
    got = grpo_cli.advantages(data, missing="propagate", batch_by="step", **options).to_list()
    assert all(math.isnan(value) for value in got[:5])
    assert got[5] == -got[6] != 0


def test_nan_may_become_zero_at_the_end() -> None:
    got = advantages(POISONED, TWO, missing="propagate", scale="none", set="post.nan_to_zero=true")
    assert got == [0.0, 0.0, 0.0, -1.0, 1.0]
    lone = advantages([4.0, 1.0, 3.0], [0, 1, 1], singleton="nan", scale="none", set="post.nan_to_zero=true")
    assert lone == [0.0, -1.0, 1.0]


# --- shape -------------------------------------------------------------------------------------------------

OVERLONG = {"overlong": "100:20:0.5", "length_column": "n"}
LENGTHS, ONES = {"n": [50, 80, 90, 100, 101, 140]}, [1.0] * 6
SHAPES: list[tuple[dict[str, Any], dict[str, list[Any]], list[float], list[float]]] = [
    ({"reward_shift": 1, "reward_scale": 3}, {}, [0.0, 1.0, -2.0], [3.0, 6.0, -3.0]),
    ({"reward_clip": "-1:0.5"}, {}, [0.0, 1.0, -2.0], [0.0, 0.5, -1.0]),
    ({"reward_clip": ":0.5"}, {}, [0.0, 1.0, -2.0], [0.0, 0.5, -2.0]),
    ({"kl_coef": 0.5, "kl_column": "kl"}, {"kl": [1.0, 0.0, -2.0]}, [0.0, 1.0, -2.0], [-0.5, 1.0, -1.0]),
    ({"set": "shape.truncated.factor=0.25", "truncated_column": "cut"}, {"cut": [True, False, True]}, [4.0, 4.0, -2.0], [1.0, 4.0, -0.5]),
    ({"set": "shape.binary.threshold=0.5"}, {}, [0.5, 0.6, -2.0], [0.0, 1.0, 0.0]),
    # 100 tokens at most, the last 20 of them cost up to 0.5: free to 80, half at 90, all at 100, then the three ways differ.
    (OVERLONG, LENGTHS, ONES, [1.0, 1.0, 0.75, 0.5, 0.475, -0.5]),
    ({**OVERLONG, "set": "shape.overlong.beyond=floor"}, LENGTHS, ONES, [1.0, 1.0, 0.75, 0.5, 0.5, 0.5]),
    ({**OVERLONG, "set": "shape.overlong.beyond=zero"}, LENGTHS, ONES, [1.0, 1.0, 0.75, 0.5, 0.0, 0.0]),
    ({**OVERLONG, "overlong": "100:20"}, LENGTHS, ONES, [1.0, 1.0, 0.5, 0.0, -0.05, -2.0]),
]  # fmt: skip


@pytest.mark.parametrize(("options", "columns", "rewards", "wanted"), SHAPES, ids=[str(s[0]) for s in SHAPES])
def test_each_shape_is_what_it_says(
    options: dict[str, Any], columns: dict[str, list[Any]], rewards: list[float], wanted: list[float]
) -> None:
    assert shaped(rewards, columns, **options) == near(wanted)


def test_the_length_shape_is_relative_to_the_longest_of_the_group() -> None:
    rewards = [0.0, 2.0, 4.0, 4.0]
    columns = {"groups": PAIRS, "n": [10, 20, 5, 5], "i": [4, 2, 1, 1], "t": [1, 2, 2, 4]}
    settings = {"shape.length.output": 0.5, "shape.length.input": 0.25, "shape.length.turns": 0.125}
    options: dict[str, Any] = {"set": settings, "length_column": "n"}
    got = shaped(rewards, columns, **options, input_length_column="i", turns_column="t")
    first = [0 - (0.5 * 0.5 + 0.25 + 0.125 * 0.5), 2 - (0.5 + 0.25 * 0.5 + 0.125)]
    second = [4 - 4 * (0.5 + 0.25 + 0.125 * 0.5), 4 - 4 * (0.5 + 0.25 + 0.125)]
    assert got == near([*first, *second])
    alone = shaped(rewards, columns, **options)
    assert alone == near([0 - 0.25 - 0.125, 2 - 0.5 - 0.125, 4 - 2.0 - 0.5, 4 - 2.0 - 0.5])


def test_the_rank_shape_takes_most_from_the_likeliest() -> None:
    columns = {"groups": [0.0, 0.0, 0.0, 1.0], "lp": [-1.0, -3.0, -2.0, -9.0]}
    got = shaped([1.0, 1.0, 1.0, 2.0], columns, set="shape.rank.penalty=0.6", logprob_column="lp")
    assert got == near([1 - 0.6 * 2 / 3, 1.0, 1 - 0.6 / 3, 2.0])


def test_shapes_are_applied_in_the_order_of_the_plan_and_those_of_flags_in_the_order_of_the_table() -> None:
    plan = Plan.of({"estimator.name": "reinforce", "shape": [{"op": "clip", "hi": 2}, {"op": "affine", "shift": 1}]})
    assert grpo_cli.advantages(frame([5.0]), plan).to_list() == [3.0]
    assert shaped([5.0], {}, reward_clip=":2", reward_shift=1) == [2.0]


# --- afterwards --------------------------------------------------------------------------------------------


def test_post_operations_follow_the_order_of_the_plan() -> None:
    # Centred: -1, 1, -3, 3. Clipped to +-1 they have var 4/3; whitened first, var 20/3.
    clip, whiten = {"op": "clip", "lo": -1, "hi": 1}, {"op": "whiten", "inside": 0}
    plans = [Plan.of({"estimator.name": "dr-grpo", "post": order}) for order in ([clip, whiten], [whiten, clip])]
    first, last = (grpo_cli.advantages(frame([0.0, 2.0, 0.0, 6.0], PAIRS), plan).to_list() for plan in plans)
    assert first == near([value / math.sqrt(4 / 3) for value in (-1, 1, -1, 1)])
    assert last == near([-1 / math.sqrt(20 / 3), 1 / math.sqrt(20 / 3), -1.0, 1.0])


WHITEN = [
    ({}, math.sqrt(20 / 3 + 1e-8)),
    ({"whiten_epsilon": 0.0}, math.sqrt(20 / 3)),
    ({"whiten_epsilon": 1.0}, math.sqrt(23 / 3)),
    ({"whiten_epsilon": 0.0, "set": "post.whiten.ddof=0"}, math.sqrt(5)),
    ({"whiten_epsilon": 0.0, "set": "post.whiten.epsilon=2"}, math.sqrt(20 / 3) + 2),
    ({"whiten_epsilon": 0.0, "set": "post.whiten.floor=9"}, 3.0),
    ({"set": "post.whiten.divide=false"}, 1.0),
]


@pytest.mark.parametrize(("options", "sd"), WHITEN, ids=[str(o) for o, _ in WHITEN])
def test_each_spelling_of_whitening(options: dict[str, Any], sd: float) -> None:
    got = advantages([0.0, 2.0, 0.0, 6.0], PAIRS, method="dr-grpo", whiten="sample", **options)
    assert got == near([value / sd for value in (-1, 1, -3, 3)])


def test_whitening_by_tokens_counts_a_row_as_often_as_it_is_long() -> None:
    got = shaped([0.0, 1.0], {"n": [3, 1]}, whiten="token", whiten_epsilon=0, length_column="n")
    # Tokens 0, 0, 0, 1: mean 1/4, var 1/4 with ddof 1.
    assert got == near([-0.25 / 0.5, 0.75 / 0.5])


def test_whitening_none_takes_away_what_the_method_does() -> None:
    rewards, keys = [0.0, 2.0, 0.0, 6.0, 1.0], [0, 0, 1, 1, 1]
    assert advantages(rewards, keys, method="gdpo", whiten="none") == advantages(rewards, keys, method="grpo")


# --- rollouts ----------------------------------------------------------------------------------------------

STEPS = frame([1.0, 2.0, 6.0, 4.0, 8.0], episode=["x", "x", "x", "y", "y"])
BY_EPISODE: dict[str, Any] = {"method": "dr-grpo", "rollout": "episode"}


@pytest.mark.parametrize(
    ("take", "x", "y"),
    [("first", 1.0, 4.0), ("last", 6.0, 8.0), ("mean", 3.0, 6.0)],
)
def test_a_rollout_counts_once_and_its_rows_share_the_advantage(take: Any, x: float, y: float) -> None:
    got = grpo_cli.advantages(STEPS, rollout_reward=take, **BY_EPISODE).to_list()
    mean = (x + y) / 2
    assert got == [x - mean] * 3 + [y - mean] * 2


def test_each_row_of_a_rollout_may_count() -> None:
    got = grpo_cli.advantages(STEPS, rollout_reward="each", **BY_EPISODE).to_list()
    assert got == near([value - 4.2 for value in (1, 2, 6, 4, 8)])


def test_per_step_divides_by_the_rows_of_the_rollout() -> None:
    got = grpo_cli.advantages(STEPS, rollout_reward="last", set="unit.per_step=true", **BY_EPISODE).to_list()
    assert got == near([-1 / 3] * 3 + [1 / 2] * 2)


@pytest.mark.parametrize(("take", "x", "y"), [("last", 2.0, 8.0), ("first", 1.0, 4.0), ("mean", 1.5, 6.0)])
def test_a_row_without_a_reward_does_not_represent_its_rollout(take: Any, x: float, y: float) -> None:
    data = STEPS.with_columns(reward=pl.Series([1.0, 2.0, None, 4.0, 8.0]))
    got = grpo_cli.compute(data, rollout_reward=take, missing="exclude", **BY_EPISODE)
    mean = (x + y) / 2
    assert got.advantages.to_list() == [x - mean] * 3 + [y - mean] * 2
    assert got.status.to_list() == ["scored"] * 5


@pytest.mark.parametrize("missing", ["error", "exclude", "zero", "as-zero"])
def test_a_reward_in_the_last_row_alone_is_that_of_the_whole_rollout(missing: str) -> None:
    """The usual log of episodes. A rollout without any reward is as a row without one."""
    data = STEPS.with_columns(reward=pl.Series([None, None, 3.0, None, 8.0]))
    options: dict[str, Any] = {**BY_EPISODE, "rollout_reward": "last", "missing": missing}
    assert grpo_cli.compute(data, **options).advantages.to_list() == [-2.5] * 3 + [2.5] * 2
    lost = data.with_columns(reward=pl.Series([None, None, 3.0, None, None]))
    if missing == "error":
        with pytest.raises(DataError, match=r"row 4: reward is null.*\(2 such rows\)"):
            grpo_cli.compute(lost, **options)
    else:
        wanted = {"exclude": [0, 0, 0, None, None], "zero": [0] * 5, "as-zero": [1.5] * 3 + [-1.5] * 2}[missing]
        assert grpo_cli.compute(lost, **options).advantages.to_list() == wanted


def test_a_rollout_id_may_restart_in_every_group() -> None:
    data = frame([1.0, 3.0, 10.0, 20.0], PAIRS, episode=["x", "y", "x", "y"])
    assert grpo_cli.advantages(data, **BY_EPISODE).to_list() == [-1.0, 1.0, -5.0, 5.0]


def test_the_rows_of_a_rollout_need_not_be_neighbours() -> None:
    data = frame([1.0, 4.0, 6.0, 8.0], episode=["x", "y", "x", "y"])
    got = grpo_cli.advantages(data, rollout_reward="last", **BY_EPISODE).to_list()
    assert got == [-1.0, 1.0, -1.0, 1.0]


# --- statuses and laws -------------------------------------------------------------------------------------


ROWS = st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.25, 1.0, None]))
GROUPED = st.lists(ROWS, min_size=1, max_size=20)


@given(rows=GROUPED)
def test_a_row_has_a_number_when_its_group_has_something_to_compare(rows: list[tuple[str, float | None]]) -> None:
    rewards, keys = [1.0, *(r for _, r in rows)], ["d", *(k for k, _ in rows)]
    got = result(rewards, keys, missing="exclude", singleton="null", zero_variance="null")
    for value, status, key, reward in zip(got.advantages, got.status, keys, rewards, strict=True):
        own = {r for k, r in zip(keys, rewards, strict=True) if k == key and r is not None}
        assert (value is not None) is (reward is not None and len(own) > 1) is (status == "scored")


@given(rows=GROUPED, offset=st.sampled_from([1e9, -1e6]))
def test_a_large_offset_changes_no_advantage(rows: list[tuple[str, float | None]], offset: float) -> None:
    keys, rewards = [key for key, _ in rows], [reward for _, reward in rows]
    moved = [None if reward is None else reward + offset for reward in rewards]
    options = {"missing": "exclude", "singleton": "zero"}
    assert advantages(moved, keys, **options) == near(advantages(rewards, keys, **options))
