"""What the battery of methods does not test: odd groups, missing rewards, shapes, rollouts, the order of post operations."""

from __future__ import annotations

import json
import math
from itertools import product
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.frames import Frames
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import SMALL, score, score_each
from grpo_cli.errors import DataError, UsageError
from tests.support.battery import Row, narrow
from tests.support.drawn import drawn_for, examples, paired
from tests.support.jobs import advantages, frame, near

ROOT2 = math.sqrt(2.0)
# Two graded rows, two equal ones, and a singleton.
REWARDS = "1 3 5 5 4"
KEYS = "aabbc"


def numbers(text: str) -> list[Any]:
    return [None if word == "null" else float(word) for word in text.split()]


def about(text: str) -> list[Any]:
    """Equal to these numbers up to rounding."""
    return near(numbers(text))


def of(rewards: str, keys: str = "", **options: Any) -> list[float | None]:
    """The advantages of these rewards; each letter is the group of one."""
    return advantages(numbers(rewards), [*keys] or None, **options)


def result(rewards: str, keys: str, **options: Any) -> tuple[list[float | None], list[str], list[bool]]:
    """Also the status of each row, and whether each group was kept."""
    got = grpo_cli.compute(frame(numbers(rewards), [*keys]), **options)
    return got.advantages.to_list(), got.status.to_list(), got.groups["kept"].to_list()


def shaped(rewards: str, columns: dict[str, Any] | None = None, **options: Any) -> list[float | None]:
    """The shaped rewards themselves: `reinforce` gives back what enters the estimator."""
    data = frame(numbers(rewards), **(columns or {}))
    return list(grpo_cli.advantages(data, method="reinforce", **options))


# --- singletons --------------------------------------------------------------------------------------------


def test_each_rule_for_a_singleton() -> None:
    half = 1 / (ROOT2 + 1e-6)
    others = f"{-half} {half} 0 0"
    rules = {"zero": 0, "raw": 4, "unit": 4 / (1 + 1e-6), "nan": "nan", "null": "null", "drop": "null"}
    for rule, wanted in rules.items():
        got, statuses, kept = result(REWARDS, KEYS, singleton=rule)
        assert got == about(f"{others} {wanted}")
        assert statuses == ["scored"] * 4 + ["scored" if rule == "unit" else "singleton"]
        assert kept == [True, True, rule != "drop"]


def test_a_singleton_may_stop_the_run() -> None:
    with pytest.raises(DataError, match="row 5: the group c is a singleton"):
        of(REWARDS, KEYS, singleton="error")
    assert of("1 3 5 5", "aabb", singleton="error", scale="none") == numbers("-1 1 0 0")


def test_unit_divides_a_single_reward_as_the_scale_says() -> None:
    # The whole batch has the sum of squares 16 and ddof 1: its std is 2.
    assert of("2 2 6 6 4", KEYS, singleton="unit", scale="none")[4] == 4.0
    of_batch = of("2 2 6 6 4", KEYS, singleton="unit", scale="batch", epsilon=0.5)
    assert of_batch[4] == pytest.approx(1.6)


def test_the_std_of_a_singleton_is_what_the_plan_says() -> None:
    settings = ["alone.baseline=zero", "alone.result=keep"]
    assert of("3", set=["alone.sd=zero", *settings], epsilon=0.5) == [6.0]
    assert of("3", set=["alone.sd=one", *settings], epsilon=0.5) == [2.0]
    assert of("3", set=["alone.sd=nan", *settings], epsilon=0.5) == about("nan")


def test_a_group_with_one_scored_row_is_a_singleton_whatever_its_size() -> None:
    got, statuses, _ = result("4 null 1 3", "aabb", missing="exclude", singleton="raw", scale="none")
    assert got == numbers("4 null -1 1")
    assert statuses == ["singleton", "unscorable", "scored", "scored"]


# --- constant groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule", "wanted"), [("keep", "0 0"), ("null", "null null"), ("drop", "null null")])
def test_each_rule_for_a_constant_group(rule: str, wanted: str) -> None:
    got, statuses, kept = result(REWARDS, KEYS, zero_variance=rule, scale="none")
    assert got == numbers(f"-1 1 {wanted} 0")
    status = "scored" if rule == "keep" else "zero-variance"
    assert statuses == ["scored", "scored", status, status, "singleton"]
    assert kept == [True, rule != "drop", True]


@pytest.mark.parametrize("value", [0.1, 1e9 + 0.1, 1e-300])
def test_a_group_is_constant_when_its_extremes_are_equal(value: float) -> None:
    # 0.1 seven times has a std above 0 in plain floating point.
    constant = [value] * 7
    assert advantages(constant, zero_variance="null") == [None] * 7
    above = math.nextafter(value, 2e9)
    assert None not in advantages([*constant, above], zero_variance="null")


UNDEFINED = {"expression", "bnpo"}  # without a formula, and where the whole batch is constant


@pytest.mark.parametrize(
    ("method", "binary"), paired(sorted({*ESTIMATORS} - UNDEFINED), [[0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]]), ids=str
)
@pytest.mark.parametrize("spread", [1e-152, 1e-162, 5e-324])
def test_no_spread_is_too_small_for_a_number(method: str, binary: list[int], spread: float) -> None:
    """With epsilon 0, beside groups that differ as little, not at all, and far more."""
    tiny = [spread * one for one in (*binary, 1, 0, 0, 0, 1, 1, 0, 0)]
    for rewards in (tiny, [*tiny, 0.0, 1.0, 1.0, 0.0]):
        rows = [Row(str(at // 4), one, step_reward=one) for at, one in enumerate(rewards)]
        table = narrow(rows)
        for scale, post in product(ESTIMATORS[method].scales, ([], [{"op": "whiten", "epsilon": 0.0}])):
            plan = Plan.of({"estimator.name": method, "divisor.level": scale, "divisor.epsilon": 0.0, "post": post})
            unread = {"rollout", "role"} - {*plan.needs}
            found = score(plan, table.drop(unread)).rows[".advantage"]
            assert found.is_finite().all(), (scale, post)


# --- several tables together -------------------------------------------------------------------------------


@pytest.mark.parametrize("method", sorted({*ESTIMATORS} - {"bnpo"}))
@examples(4)
@given(st.data())
def test_tables_that_are_computed_together_have_the_bits_of_each_alone(method: str, data: st.DataObject) -> None:
    """With groups, batches and rollouts of the same numbers, marked rows, and a whitening over each batch."""
    sql = {"estimator.sql": "(reward - AVG(reward)) / (batch_std + MAX(reward) + 1)"} if method == "expression" else {}
    scales = sorted({*ESTIMATORS[method].scales} - {"constant"})
    tables = []
    for rows in data.draw(st.lists(drawn_for(method), min_size=2, max_size=5)):
        table = narrow(rows).drop({"rollout", "role"} - {*Plan.of({"estimator.name": method, **sql}).needs})
        if data.draw(st.booleans()):
            marked = [data.draw(st.booleans()) for _ in rows[1:]]
            table = table.with_columns(pl.Series("left_out", [False, *marked]), pl.Series("masked", [*marked, False]))
        tables.append(table)
    post = [{"op": "whiten", "level": "sample"}] if data.draw(st.booleans()) else []
    layer = {"estimator.name": method, "divisor.level": data.draw(st.sampled_from(scales)), "post": post, **sql}
    plan = Plan.of(layer, {"rewards.missing": "exclude"})
    for together, table in zip(score_each([plan] * len(tables), tables), tables, strict=True):
        alone = score(plan, table)
        assert together.rows.equals(alone.rows, null_equal=True)
        assert together.groups.equals(alone.groups, null_equal=True)


def test_small_tables_of_one_plan_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[int]()

    def counted(table: pl.DataFrame) -> Frames:
        made.append(len(table))
        return Frames(table)

    monkeypatch.setattr("grpo_cli.engine.score.Frames", counted)
    small = narrow([Row("a", 0.0), Row("a", 1.0)])
    large = pl.concat([small] * SMALL)
    of_plan = Plan.of({"estimator.name": "rloo"})
    plans = [of_plan, Plan.of({"estimator.name": "rloo"}), Plan.of({}), of_plan, of_plan]
    found = score_each(plans, [small, small, small, large, small])
    assert sorted(made) == [2, 6, len(large)]
    assert [len(one.rows) for one in found] == [2, 2, 2, len(large), 2]
    assert [one.rows[".advantage"].to_list() for one in found if len(one.rows) == 2 and one.plan == of_plan] == [
        [-1, 1]
    ] * 3


@pytest.mark.parametrize("scale", ["group", "batch"])
def test_what_has_no_spread_to_divide_by_gets_0(scale: str) -> None:
    assert of("0 1e-170 0 1e-180", "aabb", epsilon=0.0, scale=scale) == [0, 0, 0, 0]
    half = ROOT2 / 2
    assert of("0 1e-140", epsilon=0.0) == about(f"-{half} {half}")
    assert of("0 1e-170", scale="none") == [-5e-171, 5e-171]


@pytest.mark.parametrize(
    ("threshold", "first"), [(0.0, "-1 1"), (1.41, "-1 1"), (ROOT2, "null null"), (2.0, "null null")]
)
def test_a_threshold_calls_small_spreads_constant(threshold: float, first: str) -> None:
    got = of(REWARDS, KEYS, zero_variance="null", std_threshold=threshold, scale="none")
    assert got == numbers(f"{first} null null 0")


def test_the_threshold_is_compared_with_the_std_of_the_plans_ddof() -> None:
    assert None not in of("1 3", zero_variance="null", std_threshold=1.2)
    assert of("1 3", zero_variance="null", std_threshold=1.2, ddof=0) == [None, None]


def test_a_threshold_without_a_word_on_what_to_do_is_refused() -> None:
    with pytest.raises(UsageError, match="std_threshold says which groups zero_variance drop or null skips"):
        of(REWARDS, KEYS, std_threshold=100.0)


def test_constancy_is_judged_on_what_enters_the_estimator() -> None:
    assert of("1 3", reward_clip="0:1", zero_variance="null") == [None, None]


def nearly_constant(group: str) -> Any:
    rewards = numbers(f"{group} 0 1")
    found = grpo_cli.inspect(frame(rewards, [*"aabb"]))
    return found.facts["zero_variance"]["nearly"]


def test_groups_that_are_nearly_constant_are_counted() -> None:
    assert nearly_constant("1 1") == 0
    assert nearly_constant("1 1.0000000005") == 1
    assert nearly_constant("1 1.0000000015") == 0
    assert nearly_constant("-2e6 -1999999.999") == 1
    assert nearly_constant("0 1e-12") == 0
    assert nearly_constant("0 1e-170") == 1


# --- small groups ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule", "wanted"), [("null", "null"), ("zero", "0"), ("drop", "null")])
def test_each_rule_for_a_small_group(rule: str, wanted: str) -> None:
    settings = {"groups.small": rule}
    got, statuses, kept = result("1 3 0 3 3", "aabbb", min_group_size=3, scale="none", set=settings)
    assert got == numbers(f"{wanted} {wanted} -2 1 1")
    assert statuses == ["small-group", "small-group", "scored", "scored", "scored"]
    assert kept == [rule != "drop", True]


def test_a_small_group_is_counted_by_its_scored_rows() -> None:
    options: dict[str, Any] = {"min_group_size": 3, "zero_variance": "null", "scale": "none"}
    got, statuses, _ = result("1 3 null 2 4 6 5", "aaabbbc", missing="exclude", **options)
    assert got == numbers("null null null -2 0 2 null")
    assert " ".join(statuses) == "small-group small-group unscorable scored scored scored small-group"


def test_skipped_groups_count_in_the_std_of_the_batch_by_default() -> None:
    """All of 0, 2, 9, 9: squares 66, var 22. Only 0 and 2: var 2."""
    options: dict[str, Any] = {"scale": "batch", "zero_variance": "drop", "epsilon": 0}
    all_rows = math.sqrt(1 / 22)
    assert of("0 2 9 9", "aabb", **options) == about(f"-{all_rows} {all_rows} null null")
    kept = math.sqrt(1 / 2)
    assert of("0 2 9 9", "aabb", set="groups.statistics=kept", **options) == about(f"-{kept} {kept} null null")


# --- poison ------------------------------------------------------------------------------------------------


BY_GROUP = """
{}
{"clip": "-1:1"}
{"reward_clip": "0:5"}
{"set": "divisor.floor=0.25"}
{"set": "shape.binary.threshold=0.5"}
{"zero_variance": "null", "std_threshold": 0.1}
"""


@pytest.mark.parametrize("options", [*map(json.loads, BY_GROUP.strip().splitlines())], ids=str)
def test_a_nan_that_may_spread_spreads_over_its_group_only(options: dict[str, Any]) -> None:
    got = of("0 1 nan 1 3", "aaabb", missing="propagate", **options)
    assert got[:3] == about("nan nan nan")
    assert got[3:] == of("1 3", "bb", **options)


@pytest.mark.parametrize("options", [{"scale": "batch"}, {"whiten": "sample"}, {"method": "batch-norm"}], ids=str)
def test_a_nan_spreads_over_its_batch_where_the_batch_matters(options: dict[str, Any]) -> None:
    data = frame(numbers("0 1 nan 1 3 1 3"), [*"aaabbcc"], step=[*"1111122"])
    got = grpo_cli.advantages(data, missing="propagate", batch_by="step", **options).to_list()
    assert got[:5] == about("nan nan nan nan nan")
    assert got[5] == -got[6] != 0


def test_nan_may_become_zero_at_the_end() -> None:
    zero = "post.nan_to_zero=true"
    assert of("0 1 nan 1 3", "aaabb", missing="propagate", scale="none", set=zero) == numbers("0 0 0 -1 1")
    assert of("4 1 3", "abb", singleton="nan", scale="none", set=zero) == numbers("0 -1 1")


# --- shape -------------------------------------------------------------------------------------------------


def test_each_shape_is_what_it_says() -> None:
    assert shaped("0 1 -2", reward_shift=1, reward_scale=3) == about("3 6 -3")
    assert shaped("0 1 -2", reward_clip="-1:0.5") == about("0 0.5 -1")
    assert shaped("0 1 -2", reward_clip=":0.5") == about("0 0.5 -2")
    assert shaped("0 1 -2", {"kl": numbers("1 0 -2")}, kl_coef=0.5, kl_column="kl") == about("-0.5 1 -1")
    assert shaped("0.5 0.6 -2", set="shape.binary.threshold=0.5") == about("0 1 0")
    cut = {"cut": [True, False, True]}
    assert shaped("4 4 -2", cut, set="shape.truncated.factor=0.25", truncated_column="cut") == about("1 4 -0.5")


OVERLONG = """
100:20:0.5 linear 1 1 0.75 0.5 0.475 -0.5
100:20:0.5 floor  1 1 0.75 0.5 0.5 0.5
100:20:0.5 zero   1 1 0.75 0.5 0 0
100:20     linear 1 1 0.5 0 -0.05 -2
"""


@pytest.mark.parametrize("line", OVERLONG.strip().splitlines())
def test_tokens_beyond_a_length_cost_reward(line: str) -> None:
    """100 tokens at most, the last 20 of them cost up to 0.5: free to 80, half at 90, all at 100, then the three ways differ."""
    penalty, beyond, wanted = line.split(maxsplit=2)
    lengths = {"n": numbers("50 80 90 100 101 140")}
    settings = {} if beyond == "linear" else {"shape.overlong.beyond": beyond}
    assert shaped("1 1 1 1 1 1", lengths, overlong=penalty, length_column="n", set=settings) == about(wanted)


def test_the_length_shape_is_relative_to_the_longest_of_the_group() -> None:
    """Of a reward of 4, 4 times 0.5 for the length, 0.25 for the prompt and 0.125 for the turns; of 0 and 2, once."""
    columns = {"groups": [*"aabb"], "n": numbers("10 20 5 5"), "i": numbers("4 2 1 1"), "t": numbers("1 2 2 4")}
    settings = ["shape.length.output=0.5", "shape.length.input=0.25", "shape.length.turns=0.125"]
    got = shaped("0 2 4 4", columns, set=settings, length_column="n", input_length_column="i", turns_column="t")
    assert got == about("-0.5625 1.25 0.75 0.5")
    of_output = shaped("0 2 4 4", columns, set=settings, length_column="n")
    assert of_output == about("-0.375 1.375 1.5 1.5")


def test_the_rank_shape_takes_most_from_the_likeliest() -> None:
    columns = {"groups": [*"aaab"], "lp": numbers("-1 -3 -2 -9")}
    got = shaped("1 1 1 2", columns, set="shape.rank.penalty=0.6", logprob_column="lp")
    assert got == about("0.6 1 0.8 2")


def test_shapes_are_applied_in_the_order_of_the_plan_and_those_of_flags_in_the_order_of_the_table() -> None:
    plan = Plan.of({"estimator.name": "reinforce", "shape": [{"op": "clip", "hi": 2}, {"op": "affine", "shift": 1}]})
    assert grpo_cli.advantages(frame([5.0]), plan).to_list() == [3.0]
    assert shaped("5", reward_clip=":2", reward_shift=1) == [2.0]


# --- afterwards --------------------------------------------------------------------------------------------


def test_post_operations_follow_the_order_of_the_plan() -> None:
    # Centred: -1, 1, -3, 3. Clipped to +-1 they have var 4/3; whitened first, var 20/3.
    def ordered(*post: dict[str, Any]) -> list[float | None]:
        plan = Plan.of({"estimator.name": "dr-grpo", "post": [*post]})
        return list(grpo_cli.advantages(frame(numbers("0 2 0 6"), [*"aabb"]), plan))

    clip = {"op": "clip", "lo": -1, "hi": 1}
    whiten = {"op": "whiten", "inside": 0}
    one = math.sqrt(3 / 4)
    assert ordered(clip, whiten) == about(f"-{one} {one} -{one} {one}")
    one = math.sqrt(3 / 20)
    assert ordered(whiten, clip) == about(f"-{one} {one} -1 1")


def whitened(**options: Any) -> list[float | None]:
    """What whitening makes of -1, 1, -3, 3."""
    return of("0 2 0 6", "aabb", method="dr-grpo", whiten="sample", **options)


def test_each_spelling_of_whitening() -> None:
    """The variance of -1, 1, -3, 3 is 20/3, or 5 with ddof 0."""
    assert whitened() == divided(math.sqrt(20 / 3 + 1e-8))
    assert whitened(whiten_epsilon=1) == divided(math.sqrt(23 / 3))
    assert whitened(whiten_epsilon=0, set="post.whiten.ddof=0") == divided(math.sqrt(5))
    assert whitened(whiten_epsilon=0, set="post.whiten.epsilon=2") == divided(math.sqrt(20 / 3) + 2)
    assert whitened(whiten_epsilon=0, set="post.whiten.floor=9") == divided(3)
    assert whitened(set="post.whiten.divide=false") == divided(1)


def divided(by: float) -> list[Any]:
    return about(f"{-1 / by} {1 / by} {-3 / by} {3 / by}")


def test_whitening_by_tokens_counts_a_row_as_often_as_it_is_long() -> None:
    # Tokens 0, 0, 0, 1: mean 1/4, var 1/4 with ddof 1.
    got = shaped("0 1", {"n": [3, 1]}, whiten="token", whiten_epsilon=0, length_column="n")
    assert got == about("-0.5 1.5")


def test_whitening_none_takes_away_what_the_method_does() -> None:
    assert of("0 2 0 6 1", "aabbb", method="gdpo", whiten="none") == of("0 2 0 6 1", "aabbb", method="grpo")


# --- rollouts ----------------------------------------------------------------------------------------------


def of_rollouts(rewards: str, take: Any, episodes: str = "xxxyy", **options: Any) -> list[float | None]:
    data = frame(numbers(rewards), episode=[*episodes])
    return list(grpo_cli.advantages(data, method="dr-grpo", rollout="episode", rollout_reward=take, **options))


def test_a_rollout_counts_once_and_its_rows_share_the_advantage_or_each_row_counts() -> None:
    assert of_rollouts("1 2 6 4 8", "first") == numbers("-1.5 -1.5 -1.5 1.5 1.5")
    assert of_rollouts("1 2 6 4 8", "last") == numbers("-1 -1 -1 1 1")
    assert of_rollouts("1 2 6 4 8", "mean") == numbers("-1.5 -1.5 -1.5 1.5 1.5")
    assert of_rollouts("1 2 6 4 8", "each") == about("-3.2 -2.2 1.8 -0.2 3.8")
    assert of_rollouts("1 4 6 8", "last", "xyxy") == numbers("-1 1 -1 1")


def test_per_step_divides_by_the_rows_of_the_rollout() -> None:
    assert of_rollouts("0 1 5 4 8", "last", set="unit.per_step=true") == about("-0.5 -0.5 -0.5 0.75 0.75")


def test_a_row_without_a_reward_does_not_represent_its_rollout() -> None:
    assert of_rollouts("1 2 null 4 8", "last", missing="exclude") == numbers("-3 -3 -3 3 3")
    assert of_rollouts("1 2 null 4 8", "first", missing="exclude") == numbers("-1.5 -1.5 -1.5 1.5 1.5")
    assert of_rollouts("1 2 null 4 8", "mean", missing="exclude") == numbers("-2.25 -2.25 -2.25 2.25 2.25")


def test_a_reward_in_the_last_row_alone_is_that_of_the_whole_rollout() -> None:
    """The usual log of episodes. A rollout without any reward is as a row without one."""
    for missing in ("error", "exclude", "zero", "as-zero"):
        assert of_rollouts("null null 3 null 8", "last", missing=missing) == numbers("-2.5 -2.5 -2.5 2.5 2.5")
    without = "null null 3 null null"
    assert of_rollouts(without, "last", missing="exclude") == numbers("0 0 0 null null")
    assert of_rollouts(without, "last", missing="zero") == [0, 0, 0, 0, 0]
    assert of_rollouts(without, "last", missing="as-zero") == numbers("1.5 1.5 1.5 -1.5 -1.5")
    with pytest.raises(DataError, match=r"row 4: reward is null.*\(2 such rows\)"):
        of_rollouts(without, "last", missing="error")


def test_a_rollout_id_may_restart_in_every_group() -> None:
    data = frame(numbers("1 3 10 20"), [*"aabb"], episode=[*"xyxy"])
    got = grpo_cli.advantages(data, method="dr-grpo", rollout="episode")
    assert got.to_list() == [-1, 1, -5, 5]


# --- laws ------------------------------------------------------------------------------------------------


@given(
    rewards=st.lists(st.sampled_from([0.0, 0.25, 1.0, None]), min_size=20, max_size=20),
    keys=st.text("abc", min_size=20, max_size=20),
    offset=st.sampled_from([1e9, -1e6]),
)
def test_a_large_offset_changes_no_advantage(rewards: list[float | None], keys: str, offset: float) -> None:
    moved = [None if reward is None else reward + offset for reward in rewards]
    wanted = advantages(rewards, [*keys], missing="exclude", singleton="zero")
    assert advantages(moved, [*keys], missing="exclude", singleton="zero") == near(wanted)
