"""Rounded logs: the right formula is named or among those that fit as well, its claim passes, and it is said to what it matches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest

import grpo_cli
from grpo_cli.guests.audit.readings import Reading, readings_of
from tests.support.command import adv
from tests.support.drawn import some
from tests.support.jobs import write
from tests.unit.guests.audit.test_solve import bfloat16

Groups = Any  # an array with a line for each group


def solved(*counts: int, size: int) -> Groups:
    """Groups of zeros and ones, with these numbers of ones."""
    return (np.arange(size) < np.array(counts)[:, None]).astype(float)


def standard(groups: Groups, epsilon: float = 1e-4, ddof: int = 1) -> Groups:
    mean, std = groups.mean(axis=1, keepdims=True), groups.std(axis=1, ddof=ddof, keepdims=True)
    return (groups - mean) / (std + epsilon)


def float16(values: Any) -> Any:
    return values.astype(np.float16).astype(np.float32)


LOGGERS: dict[str, Callable[[Any], Any]] = {
    "2 decimals": lambda values: np.round(values, 2),
    "3 decimals": lambda values: np.round(values, 3),
    "4 decimals": lambda values: np.round(values, 4),
    "float16": float16,
    "bfloat16": bfloat16,
    "bfloat16, then float16": lambda values: float16(bfloat16(values)),
}
FOURS = solved(1, 2, 3, 1, 2, 0, 3, 4, 2, 1, 1, 2, 3, 3, 2, 2, size=4)
GRADED = np.random.default_rng(0).random((40, 8)).round(3)


def audited(groups: Groups, logged: Groups, **options: Any) -> dict[str, Any]:
    size = groups.shape[1]
    keys = [f"p{row // size}" for row in range(groups.size)]
    columns = {"prompt_id": keys, "reward": groups.ravel().tolist(), "advantage": logged.ravel().astype(float).tolist()}
    return grpo_cli.audit(pl.DataFrame(columns), group="prompt_id", **options)


def names(facts: dict[str, Any]) -> set[str]:
    """All formulas that are said to fit."""
    return {*facts["match"]["preset_names"], *(name for tie in facts["ties"] for name in tie["names"])}


@pytest.mark.parametrize(("logger", "preset"), some(product(LOGGERS, ["trl-grpo", "verl-grpo"]), 8))
def test_three_sizes_of_an_advantage_are_enough_to_see_that_they_were_rounded(logger: str, preset: str) -> None:
    """Zeros and ones in fours: 0.5, 0.866 and 1.5. A constant can be chosen for each logger that makes them exact in float32."""
    logged = LOGGERS[logger](standard(FOURS, {"trl-grpo": 1e-4, "verl-grpo": 1e-6}[preset]))
    facts = audited(FOURS, logged)
    assert facts["match"]["verdict"] in {"match", "few"}
    assert facts["match"]["plan"]["divisor"]["inside"] == 0
    assert facts["match"]["constants"] == 0
    assert preset in names(facts)


@pytest.mark.parametrize(("logger", "kind"), some(product(LOGGERS, ["fours", "graded"]), 8))
def test_the_right_claim_passes_to_what_was_logged(logger: str, kind: str) -> None:
    groups = {"fours": FOURS, "graded": GRADED}[kind]
    claim = audited(groups, LOGGERS[logger](standard(groups)), preset="trl-grpo")["claim"]
    assert claim["mismatched_rows"] == 0
    assert claim["read_as"] == logger.partition(",")[0]


@pytest.mark.parametrize(("logger", "kind"), some(product(LOGGERS, ["fours", "graded"]), 8))
def test_a_claim_that_is_further_away_than_half_a_step_is_refused(logger: str, kind: str) -> None:
    groups = {"fours": FOURS, "graded": GRADED}[kind]
    logged = LOGGERS[logger](standard(groups))
    for claim in ({"method": "grpo", "ddof": 0}, {"method": "grpo", "epsilon": 0.02}, {"method": "rloo"}):
        assert audited(groups, logged, **claim)["claim"]["mismatched_rows"] > 0


def test_a_claim_is_refused_where_one_row_of_a_rounded_log_is_a_step_away() -> None:
    logged: Any = np.round(standard(GRADED), 3)
    logged[7, 3] += 0.001
    claim = audited(GRADED, np.round(logged, 3), preset="trl-grpo")["claim"]
    assert claim["mismatched_rows"] == 1
    assert claim["read_as"] == "3 decimals"


def test_an_exact_formula_leads_one_that_only_rounding_brings_there_and_both_are_said_to_fit() -> None:
    """The std of these rewards is 0.5002: in two decimals, nobody can tell twice the centred reward from it."""
    groups = solved(*[1, 3, 4, 6, 2, 5, 7, 3] * 8, size=8)
    centred = groups - groups.mean(axis=1, keepdims=True)
    twice = audited(groups, 2 * centred)
    assert (twice["match"]["factor"], twice["match"]["read_as"]) == (2.0, "float32")
    rounded = audited(groups, np.round(centred / (groups.std(ddof=1) + 1e-4), 2))
    assert rounded["match"]["verdict"] == "match"
    for claim in ({"scale": "batch", "std_of": "reward", "epsilon": 1e-4}, {"expr": "2 * (reward - mean)"}):
        assert audited(groups, 2 * centred, **claim)["claim"]["mismatched_rows"] == 0


def test_the_answer_says_to_what_rounded_values_match() -> None:
    frame = {
        "prompt_id": [f"p{row // 8}" for row in range(320)],
        "reward": GRADED.ravel(),
        "advantage": np.round(standard(GRADED), 4).ravel(),
    }
    lines = [dict(zip(frame, row, strict=True)) for row in zip(*frame.values(), strict=True)]
    write("a.jsonl", lines)
    text = " ".join(adv("audit a.jsonl --preset trl-grpo").out.split())
    assert "every row matches the claim to 4 decimals, as logged" in text
    assert "matches trl-grpo to 4 decimals, as logged: max abs difference" in text


def test_a_formula_that_holds_under_two_readings_is_no_tie_of_itself() -> None:
    facts = audited(FOURS, np.round(standard(FOURS), 2), preset="trl-grpo")
    assert facts["match"]["preset_names"][0] == "trl-grpo"
    assert "trl-grpo" not in names({**facts, "match": {"preset_names": []}})
    under_the_root = [name for name in names(facts) if "divisor.inside" in name]
    assert under_the_root == ["--method grpo --epsilon 0 --set divisor.inside=1e-09 to 1e-05"]


# --- which readings the values allow -------------------------------------------------------------------------

NO_REWARDS = np.array([0.0, 1.0])


def read(values: list[float]) -> list[str]:
    return [one.says for one in readings_of(np.array(values), NO_REWARDS)]


def test_values_are_read_as_their_type_and_as_each_grid_on_which_all_of_them_lie() -> None:
    assert read([0.1234567, -1.5]) == ["float32"]
    assert read([0.123456789012345, -1.523456789012345]) == ["float64"]
    assert read([0.12345, -1.5]) == ["float32"]  # five decimals are finer than float32 arithmetic
    assert read([0.1234, -1.5]) == ["float32", "4 decimals"]
    assert read([0.123, -1.5]) == ["float32", "4 decimals", "3 decimals"]
    assert read([0.12, -1.5]) == ["float32", "4 decimals", "3 decimals", "2 decimals"]
    assert read([float(np.float16(0.1)), -1.5]) == ["float32", "float16"]
    assert read([0.10009765625, -1.5, np.nan, 0.0]) == ["float32", "float16", "bfloat16"]
    assert read([0.0, np.nan]) == ["float32"]


def test_decimals_that_were_stored_in_float32_are_decimals() -> None:
    stored = np.array([0.123, -1.529]).astype(np.float32).astype(float)
    assert [one.says for one in readings_of(stored, NO_REWARDS)] == ["float32", "4 decimals", "3 decimals"]


def test_half_a_step_is_allowed_and_never_less_than_the_error_of_the_arithmetic() -> None:
    values = np.array([1.0, 1.5, 2.0, 100.0])
    assert Reading(decimals=3).of(values) == pytest.approx([5e-4, 5e-4, 5e-4, 2e-3], rel=0.07)
    assert Reading(bits=8).of(values) == pytest.approx([2**-8, 2**-8, 2**-7, 0.25], rel=1e-3)
    assert Reading(bits=11).of(np.array([1e-5])) == pytest.approx([2e-5])
    assert Reading().of(values) == pytest.approx([2e-5, 3e-5, 4e-5, 2e-3])


# --- constants of rounded logs ---------------------------------------------------------------------------------

SIXTEEN_BITS = {"float16": float16, "bfloat16": bfloat16}
CENTRED = GRADED - GRADED.mean(axis=1, keepdims=True)


@pytest.mark.parametrize(("logger", "epsilon"), [*product(SIXTEEN_BITS, [1e-3, 1e-2])])
def test_a_large_epsilon_is_named_in_sixteen_bits(logger: str, epsilon: float) -> None:
    match = audited(GRADED, SIXTEEN_BITS[logger](standard(GRADED, epsilon)))["match"]
    assert match["verdict"] == "match"
    assert match["flags"] == f"--method grpo --epsilon {epsilon:g}"


@pytest.mark.parametrize(
    ("logger", "factor"), [("float16", 1.7), ("float16", 0.25), ("bfloat16", -1.0), ("bfloat16", 3.0)]
)
def test_a_factor_of_few_digits_is_named_in_sixteen_bits(logger: str, factor: float) -> None:
    match = audited(GRADED, SIXTEEN_BITS[logger](factor * CENTRED))["match"]
    assert (match["verdict"], match["factor"], match["flags"]) == ("match", factor, "--method dr-grpo")


def test_a_factor_is_said_to_fit_where_the_std_of_a_batch_with_a_usual_epsilon_is_as_near() -> None:
    """The std of these zeros and ones is 0.4995, with 0.001 it is 0.5005; groups of seven, so that no value is exact."""
    groups = solved(*[3, 4, 2, 5, 3, 4, 1, 6, 3, 4], size=7)
    centred = groups - groups.mean(axis=1, keepdims=True)
    facts = audited(groups, bfloat16(2 * centred))
    assert facts["match"]["verdict"] == "match"
    every = {facts["match"]["name"], *names(facts)}
    assert any(name.startswith("2 x ") for name in every), every


@pytest.mark.parametrize(("logger", "factor"), [("float16", 1.7071), ("bfloat16", 2.37)])
def test_a_factor_of_more_digits_is_no_formula_in_sixteen_bits(logger: str, factor: float) -> None:
    assert audited(GRADED, SIXTEEN_BITS[logger](factor * CENTRED))["match"]["verdict"] == "none"


@pytest.mark.parametrize("logger", ["3 decimals", "float16"])
def test_a_clip_of_rounded_values_has_the_bound_with_the_fewest_digits(logger: str) -> None:
    """0.6 is 0.600098 in float16."""
    match = audited(GRADED, LOGGERS[logger](standard(GRADED).clip(-0.6, 0.6)))["match"]
    assert match["verdict"] == "match"
    assert match["flags"] == "--method grpo --epsilon 0.0001 --set post.clip.lo=-0.6 --set post.clip.hi=0.6"


def test_the_share_of_solved_samples_is_named_in_float16() -> None:
    draw = np.random.default_rng(11)
    binary = draw.binomial(1, draw.uniform(0.1, 0.9, (40, 1)), (40, 8)).astype(float)
    n, c = 8, binary.sum(axis=1, keepdims=True)
    # The mean over pairs of 1 where at least one is solved, minus that over pairs with this row.
    of_solved, of_failed = 1.0, c / (n - 1)
    with_row = np.where(binary == 1, of_solved, of_failed)
    rate = 1 - (n - c) * (n - c - 1) / (n * (n - 1))
    std = np.sqrt(rate * (1 - rate))
    logged = np.where(std > 0, (with_row - rate) / np.maximum(std, 1e-12), 0.0)
    facts = audited(binary, float16(logged))
    assert facts["match"]["plan"]["method"].startswith("passk")
    assert facts["match"]["mismatched_rows"] == 0
