"""Twinkle's call: its numbers, its rules, Trinity's options, and the kind of thing that goes in coming out.

Numbers named golden were returned by the code of modelscope/twinkle 1a1d8845 (its newer options: d4ec2a61) and
Trinity-RFT 9051d637.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from math import inf, nan, sqrt
from typing import Any

import numpy as np
import polars as pl
import pytest

from grpo_cli.errors import UsageError
from grpo_cli.twinkle import GRPOAdvantage, ReinforcePlusPlusAdvantage, RLOOAdvantage
from tests.unit.test_rooms import loaded_by

grpo = GRPOAdvantage()
rloo = RLOOAdvantage()
plus = ReinforcePlusPlusAdvantage()


def numbers(text: str) -> list[float]:
    return [*map(float, text.split())]


def _close(values: object, tol: float = 1e-7) -> Any:
    """These numbers, or those of a text, up to rounding."""
    values = numbers(values) if isinstance(values, str) else values
    return pytest.approx(values, rel=tol, abs=tol, nan_ok=True)


CLASSES = {"grpo": grpo, "rloo": rloo, "plus": plus}
DOCUMENTED = numbers("0.0 1.0 0.0 1.0 1.0 0.0 0.0 0.0")
CENTRED = numbers("-0.5 0.5 -0.5 0.5 0.75 -0.25 -0.25 -0.25")
SOLVED = [1.0, 1.0, 1.0, 1.0]
REFILLED: dict[str, Any] = {"duplicate_experiences": True, "return_rows": True}
# The first group of golden float_uniform8.
GRADED = numbers("0.818532 0.548711 2.092824 1.217343 1.039959 0.662216 -0.104882 0.962532")
LOGPROBS = numbers("-0.478979 -0.407358 -0.301818 -0.289416 -0.851875 -0.913543 -0.709247 -0.556355")


# --- Twinkle's numbers -------------------------------------------------------------------------------------

PAGE = """\
grpo group -0.8660254 0.8660254 -0.8660254 0.8660254 1.5 -0.5 -0.5 -0.5
grpo batch -0.966092 0.966092 -0.966092 0.966092 1.449138 -0.483046 -0.483046 -0.483046
grpo none -0.5 0.5 -0.5 0.5 0.75 -0.25 -0.25 -0.25
rloo group -1.1547005 1.1547005 -1.1547005 1.1547005 2.0 -0.6666667 -0.6666667 -0.6666667
rloo batch -1.288122 1.288122 -1.288122 1.288122 1.932184 -0.644061 -0.644061 -0.644061
rloo none -0.6666667 0.6666667 -0.6666667 0.6666667 1.0 -0.3333333 -0.3333333 -0.3333333
plus group -0.8660254 0.8660254 -0.8660254 0.8660254 1.5 -0.5 -0.5 -0.5
plus batch -1.0 1.0 -1.0 1.0 1.5 -0.5 -0.5 -0.5
plus none -0.5 0.5 -0.5 0.5 0.75 -0.25 -0.25 -0.25
plus gdpo -0.5 0.5 -0.5 0.5 0.75 -0.25 -0.25 -0.25
"""


@pytest.mark.parametrize("line", PAGE.splitlines())
def test_the_documented_rewards_give_what_the_code_gives_and_not_the_page(line: str) -> None:
    name, scale, expected = line.split(maxsplit=2)
    advantage = CLASSES[name]
    assert advantage(DOCUMENTED, num_generations=4, scale=scale) == _close(expected, 1e-6)
    if scale == "group":  # the default, so default rloo is scaled
        assert advantage(DOCUMENTED, 4) == advantage(DOCUMENTED, 4, scale)


def test_epsilon_is_1e_8_and_can_be_set() -> None:
    one = 0.5 / (sqrt(0.5) + 1e-8)
    assert grpo([0.0, 1.0], 2) == _close([-one, one], 1e-15)
    one = 0.5 / (sqrt(0.5) + 1)
    assert grpo([0.0, 1.0], 2, epsilon=1.0) == _close([-one, one], 1e-15)


def test_the_batch_std_is_that_of_the_raw_rewards() -> None:
    # Mean 5.5, squares 30.25 + 20.25 + 20.25 + 30.25 = 101; the centred rewards would have 1 in its place.
    one = 0.5 / sqrt(101 / 3)
    assert grpo([0.0, 1.0, 10.0, 11.0], 2, "batch") == _close([-one, one, -one, one])


@pytest.mark.parametrize("advantage", [grpo, rloo])
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_a_constant_group_gives_exact_zeros_where_float32_gives_noise(advantage: Any, scale: str) -> None:
    rewards = [0.1] * 8 + [0.0, 1.0] * 4
    constant = advantage(rewards, 8, scale)[:8]
    assert constant == [0.0] * 8


# --- num_generations ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "expected", "alone", "with_nan"),
    [
        ("group", "1 2 6", 3.0, "nan 2"),
        ("batch", "-0.7559289 -0.3779645 1.1338934", 0.0, "nan nan"),  # over the root of 7
        ("none", "-2 -1 3", 0.0, "nan nan"),
    ],
)
def test_one_generation_is_measured_against_the_batch_unless_the_scale_is_group(
    scale: str, expected: str, alone: float, with_nan: str
) -> None:
    rewards = [1.0, 2.0, 6.0]
    assert grpo(rewards, scale=scale) == _close(expected)
    assert grpo([3.0], scale=scale) == [alone]
    assert grpo([], 4, scale) == []
    assert grpo(rewards, 1, scale, std_threshold=0.0) == []
    assert grpo([nan, 2.0], scale=scale) == _close(with_nan)  # NaN goes as far as the baseline


def test_rloo_refuses_one_generation_and_a_length_that_does_not_divide_raises_with_the_numbers() -> None:
    with pytest.raises(ValueError, match=r"num_generations=1 has no other rows.*num_generations=2 or more"):
        rloo(DOCUMENTED)
    with pytest.raises(ValueError, match="8 rewards cannot be cut into groups of 3: 2 left over"):
        grpo(DOCUMENTED, 3)


@pytest.mark.parametrize("count", [0, -4, 2.5, "4", None])
def test_what_is_no_count_of_rows_is_refused(count: Any) -> None:
    with pytest.raises(UsageError, match="num_generations cannot be"):
        grpo(DOCUMENTED, count)


def test_a_numpy_integer_is_a_count_and_numpys_scalars_are_options_too() -> None:
    assert grpo(DOCUMENTED, np.int64(4), epsilon=np.float32(0.5)) == grpo(DOCUMENTED, 4, epsilon=0.5)


# --- missing rewards ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("advantage", [grpo, rloo])
@pytest.mark.parametrize("scale", ["group", "none"])
def test_nan_takes_its_whole_group_along_and_no_other(advantage: Any, scale: str) -> None:
    whole = advantage(DOCUMENTED, 4, scale)
    assert advantage([nan, *DOCUMENTED[1:]], 4, scale) == _close([nan] * 4 + whole[4:], 1e-15)


def test_nan_takes_the_whole_batch_along_when_the_batch_divides_and_an_infinite_reward_counts_as_nan() -> None:
    assert grpo([nan, 0.0, 0.0, 1.0], 2, "batch") == _close("nan nan nan nan")
    assert grpo([inf, 0.0, 0.0, 1.0], 2, "none") == _close("nan nan -0.5 0.5")


@pytest.mark.parametrize(
    ("rewards", "place"),
    [
        ([0.0, None], r"rewards\[1\] is None"),
        ([[1.0, 0.0], [1.0, None]], r"rewards\[1\]\[1\] is None"),
        (np.array([0.0, None], dtype=object), r"rewards\[1\] is None"),
        (["1.0", 0.0], r"rewards\[0\] is '1.0', not a number"),
        ([0.0, {"score": 1}], r"rewards\[1\] is \{'score': 1\}, not a number"),
    ],
)
def test_what_is_no_number_raises_a_type_error_that_says_where(rewards: Any, place: str) -> None:
    with pytest.raises(TypeError, match=place):
        grpo(rewards, 2)


# --- two dimensions ----------------------------------------------------------------------------------------

# Golden three_rewards_uniform8, first group: Twinkle adds the columns without weights.
THREE = """\
1.0 1.0 1.333996
0.0 0.0 -0.765334
0.0 0.5 0.072385
1.0 1.0 0.519083
1.0 1.0 0.492855
1.0 0.5 0.339783
1.0 0.0 -0.44097
1.0 0.5 -1.410441
"""
HOLES = """\
nan 1.0 1.333996
nan nan nan
0.0 0.5 0.072385
1.0 1.0 0.519083
1.0 1.0 0.492855
1.0 0.5 nan
1.0 0.0 -0.44097
1.0 0.5 -1.410441
"""


def table(text: str) -> list[list[float]]:
    return [*map(numbers, text.splitlines())]


def test_two_dimensions_are_summed_over_the_last_and_nan_in_one_column_takes_the_group_along() -> None:
    expected = "2.0038264 -2.0955036 -0.7577846 1.1889134 1.1626854 0.5096134 -0.7711396 -1.2406106"
    assert grpo(table(THREE), 8, "none") == _close(expected)
    assert grpo(np.array(table(THREE)), 8, "none").tolist() == _close(expected)
    assert grpo([[nan, 1.0], [1.0, 1.0], [0.0, 1.0], [1.0, 1.0]], 2, "none") == _close("nan nan -0.5 0.5")


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        (np.zeros((4, 0)), r"shape \(4, 0\)"),
        (np.float64(1.0), r"shape \(\)"),
        ([[1.0, 2.0], [1.0]], r"rewards\[1\] has shape \(1,\), rewards\[0\] has \(2,\)"),
    ],
)
def test_other_shapes_are_refused(rewards: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        grpo(rewards, 1)


KL: dict[str, Any] = {"kl_in_reward": True, "beta": 0.1, "kl_values": numbers("0.5 0.1 0.2 0.0 0.3 0.4 0.1 0.0")}
WEIGHTS: dict[str, Any] = {"reward_weights": [1.0, 0.5, 2.0]}
REWARDS = {"three": table(THREE), "holes": table(HOLES), "documented": DOCUMENTED, "graded": GRADED}
OPTIONS = {"-": {}, "weights": WEIGHTS, "kl": KL, "weights+kl": WEIGHTS | KL}
GOLDEN = """\
grpo three 4 gdpo - 1.2959928 -1.5401792 -0.6275324 0.8717189 0.9497163 0.310914 -0.6561685 -0.6044618
rloo three 4 gdpo weights 1.3696703 -1.4777034 -0.5618488 0.6698819 0.8752555 0.512815 -0.391084 -0.9969865
grpo holes 4 gdpo weights 1.250336 0.0 -1.5623382 0.3120022 1.3252876 0.0 -0.2994407 -1.0258469
grpo three 4 group weights 1.1159505 -1.1753807 -0.4011959 0.4606261 0.9468964 0.6451304 -0.3378001 -1.2542268
grpo holes 4 none weights 1.64276 -1.525232 -1.130462 1.012934 1.914988 0.679278 -0.452662 -2.141604
rloo three 4 batch weights 1.7997064 -1.8955501 -0.6470132 0.742857 1.1315957 0.770968 -0.4036905 -1.4988732
grpo documented 4 group kl -0.8910395 0.8574154 -0.8406033 0.8742274 1.4991105 -0.5469728 -0.486198 -0.4659398
rloo documented 4 none kl -0.7066667 0.68 -0.6666667 0.6933333 0.9866667 -0.36 -0.32 -0.3066667
plus three 4 batch weights+kl 1.3634516 -1.4467885 -0.4955314 0.5788682 0.8616948 0.5805327 -0.3042103 -1.1380172
grpo graded 8 group - -0.1375732 -0.5685894 1.8980002 0.4994936 0.2161377 -0.3872747 -1.6126487 0.0924546
rloo graded 8 group - -0.1572265 -0.6498164 2.1691431 0.5708498 0.2470145 -0.4425997 -1.8430271 0.1056624
"""


@pytest.mark.parametrize("line", GOLDEN.splitlines())
def test_graded_rewards_and_the_options_of_the_newer_files_give_the_golden_numbers(line: str) -> None:
    name, rewards, size, scale, options, expected = line.split(maxsplit=5)
    found = CLASSES[name](REWARDS[rewards], int(size), scale, **OPTIONS[options])
    assert found == _close(expected)


def test_reinforce_plus_plus_and_gdpo_give_a_group_of_one_0() -> None:
    assert plus([1.0, 2.0, 6.0], 1, "group") == [0.0] * 3
    assert plus([1.0, 2.0, 6.0], 1, "batch") == [0.0] * 3
    assert plus([3.0], 1, "none") == [0.0]
    assert grpo([[1.0, 2.0], [2.0, 1.0]], 1, "gdpo") == [0.0, 0.0]


def test_nan_goes_as_far_as_the_divisor_of_reinforce_plus_plus() -> None:
    rewards = [nan, 1.0, 0.0, 1.0]
    assert plus(rewards, 2) == _close("nan nan -0.7071068 0.7071068")
    assert plus(rewards, 2, "batch") == _close("nan nan nan nan")


def test_one_generation_keeps_its_reward_less_the_kl() -> None:
    assert grpo([1.0, 2.0], 1, kl_in_reward=True, beta=0.5, kl_values=[1.0, 2.0]) == [0.5, 1.0]


def test_a_kl_without_kl_in_reward_is_not_used_as_in_twinkle() -> None:
    assert grpo(DOCUMENTED, 4, **(KL | {"kl_in_reward": False})) == grpo(DOCUMENTED, 4)


@pytest.mark.parametrize("options", [KL, {"std_threshold": 0.0}, {"rank_penalty": 0.1, "logprobs": LOGPROBS}], ids=list)
def test_gdpo_refuses_what_twinkle_ignores_beside_it(options: dict[str, Any]) -> None:
    refused = next(iter(options))
    with pytest.raises(UsageError, match=f"scale='gdpo' does not take {refused}"):
        grpo(table(THREE), 4, "gdpo", **options)


# --- Trinity's options -------------------------------------------------------------------------------------


def test_a_threshold_leaves_out_groups_whose_std_is_at_most_as_large() -> None:
    # Stds 0.57735, 0.5 and 0.
    rewards = DOCUMENTED + SOLVED
    assert grpo(rewards, 4, std_threshold=0.0, return_rows=True)[1] == [*range(8)]
    assert grpo(rewards, 4, std_threshold=0.5, return_rows=True)[1] == [*range(4)]
    assert grpo(rewards, 4, std_threshold=0.6) == []
    # The batch std still counts the rows that are left out.
    assert grpo(rewards, 4, "batch", std_threshold=0.0) == grpo(rewards, 4, "batch")[:8]


def test_a_group_with_nan_is_not_left_out() -> None:
    assert grpo([nan, 1.0, 1.0, 1.0], 2, std_threshold=0.5) == _close("nan nan")


def test_duplicates_keep_the_number_of_groups_and_nothing_to_copy_gives_nothing() -> None:
    rewards = SOLVED + DOCUMENTED[:4] + SOLVED
    advantages, rows = grpo(rewards, 4, std_threshold=0, **REFILLED)
    assert rows == [4, 5, 6, 7] * 3
    assert advantages == grpo(DOCUMENTED[:4], 4) * 3
    assert grpo(SOLVED, 4, std_threshold=0, **REFILLED) == ([], [])


def test_the_seed_decides_which_groups_are_copied() -> None:
    rewards = (DOCUMENTED[:4] + SOLVED) * 20
    _, first = grpo(rewards, 4, std_threshold=0, seed=1, **REFILLED)
    _, again = grpo(rewards, 4, std_threshold=0, seed=1, **REFILLED)
    _, other = grpo(rewards, 4, std_threshold=0, seed=2, **REFILLED)
    assert len(first) == len(rewards)
    assert again == first
    assert other != first


def test_rank_penalty_gives_the_golden_numbers() -> None:
    expected = "0.0190849 -0.4872200 2.4102266 0.7674327 0.4345809 -0.2742338 -1.7136528 0.2892933"
    assert grpo(GRADED, 8, rank_penalty=0.2, logprobs=LOGPROBS, epsilon=1e-6) == _close(expected, 2e-6)


def test_rank_penalty_keeps_the_raw_reward_above_the_line_so_a_constant_group_is_not_zero() -> None:
    # r' = 0.7 (1, 0.95, 0.9, 0.85): mean 0.6475, std 0.0451848; A = (0.7 - 0.6475)/0.0451848.
    options: dict[str, Any] = {"rank_penalty": 0.2, "logprobs": (-4, -3, -2, -1)}
    assert grpo([0.7] * 4, 4, std_threshold=0.04, **options) == _close([1.161895] * 4, 1e-5)
    assert grpo([1.0, 3.0], 1, rank_penalty=0.5, logprobs=[-1, -2]) == grpo([1.0, 3.0], 1)


def test_the_batch_std_beside_a_rank_penalty_is_that_of_the_unpenalised_rewards() -> None:
    # Ranks 3, 2, 1, 0: r' = (0, 0.9, 0, 1), mean 0.475; the std of (0, 1, 0, 1) is 0.57735.
    advantages = grpo(DOCUMENTED[:4], 4, "batch", rank_penalty=0.2, logprobs=[-1, -2, -3, -4])
    assert advantages == _close("-0.8227241 0.9093267 -0.8227241 0.9093267")


def test_logprobs_are_no_probabilities_and_no_booleans() -> None:
    with pytest.raises(UsageError, match=r"logprobs have 0.5; a log-prob is 0 or less"):
        grpo([0.0, 1.0], 2, rank_penalty=0.1, logprobs=[-1.0, 0.5])
    for booleans in ([False, False], np.zeros(2, bool)):
        with pytest.raises(UsageError, match="logprobs are booleans"):
            grpo([0.0, 1.0], 2, rank_penalty=0.1, logprobs=booleans)
    assert grpo([0.0, 1.0], 2, rank_penalty=0.1, logprobs=[0.005, -1.0])


@pytest.mark.parametrize("logprobs", [[-1.0], [[-1.0, -2.0]]])
def test_logprobs_are_one_number_for_every_row(logprobs: Any) -> None:
    with pytest.raises(UsageError, match=r"logprobs have shape \(1,.* for 2 rewards"):
        grpo([0.0, 1.0], 2, rank_penalty=0.1, logprobs=logprobs)


def test_trinitys_name_for_the_scale_means_the_same() -> None:
    batch = grpo(DOCUMENTED, 4, "batch")
    assert grpo(DOCUMENTED, 4, std_cal_level="batch") == batch
    assert grpo(DOCUMENTED, 4, "batch", std_cal_level="batch") == batch


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilom": 1}, "no option named 'epsilom'; did you mean 'epsilon'"),
        ({"scale": "grp"}, "scale cannot be 'grp'; choose from group, batch, none, gdpo"),
        ({"scale": "gdpo"}, r"scale='gdpo' needs rewards of shape \(rows, reward columns\)"),
        ({"reward_weights": [1.0, 2.0]}, r"2 reward_weights for rewards of shape \(8,\)"),
        ({"kl_in_reward": True, "beta": 0.1}, "kl_in_reward needs kl_values"),
        ({"scale": "group", "std_cal_level": "batch"}, "contradicts std_cal_level"),
        ({"std_cal_level": "all"}, "std_cal_level cannot be 'all'; choose from group, batch"),
        ({"epsilon": "small"}, "epsilon cannot be 'small'; it takes a number"),
        ({"epsilon": -1}, "epsilon cannot be -1"),
        ({"std_threshold": -1}, "std_threshold cannot be -1"),
        ({"seed": -1}, "seed cannot be -1"),
        ({"rank_penalty": 0.1}, "rank_penalty needs logprobs"),
        ({"duplicate_experiences": True, "return_rows": True}, "duplicate_experiences needs std_threshold"),
        ({"duplicate_experiences": True, "std_threshold": 0}, "pass return_rows=True"),
    ],
)
def test_options_that_mean_nothing_are_usage_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        grpo(DOCUMENTED, 4, **options)


# --- kinds -------------------------------------------------------------------------------------------------


def test_a_list_gives_a_list_of_floats_and_a_tuple_a_tuple() -> None:
    assert grpo((False, True), 2, "none") == (-0.5, 0.5)
    for rewards in ([0, 1], [Decimal(0), Decimal(1)], [np.float32(0), np.int8(1)]):
        found = grpo(rewards, 2, "none")
        assert found == [-0.5, 0.5]
        assert {*map(type, found)} == {float}


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4"])
def test_an_array_keeps_its_float_type_and_is_not_changed(dtype: str) -> None:
    rewards = np.array(DOCUMENTED, dtype=dtype)
    advantages = grpo(rewards, 4, "none")
    assert advantages.dtype == np.dtype(dtype)
    assert advantages.tolist() == CENTRED
    advantages[:] = 7
    assert rewards.tolist() == DOCUMENTED


@pytest.mark.parametrize("dtype", ["i4", "u1", "?", "O"])
def test_an_array_of_whole_numbers_gives_float64(dtype: str) -> None:
    advantages, rows = grpo(np.array([0, 1], dtype=dtype), 2, "none", return_rows=True)
    assert advantages.dtype == np.float64
    assert advantages.tolist() == [-0.5, 0.5]
    assert rows.dtype == np.int64


def test_a_column_of_a_table_comes_back_as_an_array() -> None:
    advantages = grpo(pl.Series([0.0, 1.0, None, 1.0]), 2, "none")
    assert isinstance(advantages, np.ndarray)
    assert advantages.tolist() == _close("-0.5 0.5 nan nan")


@dataclass
class Capsule:
    """An array that supports only DLPack."""

    array: np.ndarray[Any, Any]

    def __dlpack__(self, **how: Any) -> object:
        """Hand the memory over."""
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Say where the memory is."""
        return self.array.__dlpack_device__()


def test_dlpack_comes_back_as_an_array_of_its_type() -> None:
    advantages = grpo(Capsule(np.array([0, 1], dtype=np.float32)), 2, "none")
    assert advantages.dtype == np.float32
    assert advantages.tolist() == [-0.5, 0.5]


@pytest.mark.parametrize("given", ["0.5", 1.0, None, {0: 1.0}, iter([1.0]), np.array(["a"]), np.array([1j])])
def test_anything_without_numbers_is_a_type_error(given: Any) -> None:
    with pytest.raises(TypeError, match="rewards"):
        grpo(given, 1)


# --- torch -------------------------------------------------------------------------------------------------


def test_torch_is_not_imported_for_lists_and_arrays() -> None:
    calls = "G()([0.0, 1.0], 2); G()(np.array([0.0, 1.0]), 2)"
    assert "torch" not in loaded_by(f"import numpy as np; from grpo_cli.twinkle import GRPOAdvantage as G; {calls}")
