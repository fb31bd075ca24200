"""The audit names the formula that made a column, says what it cannot tell apart, and why groups disagree."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import grpo_cli
from grpo_cli.engine.plan_parts import Alone, Rewards
from grpo_cli.engine.presets import presets
from grpo_cli.errors import DataError, UnknownName
from grpo_cli.guests.audit.run import Job, run
from tests.support.command import adv
from tests.support.drawn import is_nightly, some
from tests.support.goldens import cases, commands, table
from tests.support.jobs import write

Groups = Any  # an array with a line for each group
TABLE = "float_uniform8"
KEY: dict[str, Any] = {
    "group": "prompt_id"
}  # without it, a log that no formula explains is searched once for each way to group


def drawn(groups: int, size: int, seed: int = 0) -> Groups:
    return np.random.default_rng(seed).random((groups, size)).round(3)


def solved(*counts: int, size: int = 8) -> Groups:
    """Groups of zeros and ones, with these numbers of ones."""
    return (np.arange(size) < np.array(counts)[:, None]).astype(float)


def mean(groups: Groups) -> Any:
    return groups.mean(axis=1, keepdims=True)


def std(groups: Groups, ddof: int = 1) -> Any:
    return groups.std(axis=1, ddof=ddof, keepdims=True)


def centred(groups: Groups) -> Groups:
    return groups - mean(groups)


def standard(groups: Groups, epsilon: float = 1e-4, ddof: int = 1) -> Groups:
    return centred(groups) / (std(groups, ddof) + epsilon)


GROUPS = drawn(40, 8)  # the same in most tests, because what plans give for them is cached
STANDARD = standard(GROUPS)
MIXED = solved(1, 3, 2, 6, 2, 5, 7, 1, 4, 4, 0, 8, 6, 3)
SECOND = drawn(40, 8, seed=1)
NO_FORMULA = {"near", "none"}  # the verdicts that name none


def rows(groups: Groups, advantages: Groups, stored: Any = np.float32, **columns: Any) -> pl.DataFrame:
    keys = [f"p{k}" for k, group in enumerate(groups) for _ in group]
    logged = np.concatenate([*advantages]).astype(stored)
    return pl.DataFrame({"prompt_id": keys, "reward": np.concatenate([*groups]), "advantage": logged, **columns})


def with_keys(frame: pl.DataFrame, group_of: Callable[[int], int]) -> pl.DataFrame:
    """Other keys for the forty groups of eight."""
    keys = [f"p{group_of(row // 8)}" for row in range(len(frame))]
    return frame.with_columns(pl.Series("prompt_id", keys))


def found(frame: pl.DataFrame, column: str | None = None, **options: Any) -> Any:
    facts = grpo_cli.audit(frame, column, **options)
    json.dumps(facts, allow_nan=False)
    return facts


def match_of(groups: Groups, logged: Groups, stored: Any = np.float32, **options: Any) -> Any:
    return found(rows(groups, logged, stored), **options)["match"]


def causes(facts: Any) -> list[str]:
    """What differs and why: of each cause its name, its groups and its rows."""
    return [f"{one['cause']}: {one['groups']}, {one['rows']}" for one in facts["causes"]]


def keys(facts: Any) -> list[str]:
    return [one["key"] for one in facts["match"]["disagreements"]]


def names_of_ties(facts: Any) -> list[str]:
    return [name for tie in facts["ties"] for name in tie["names"]]


def said(frame: pl.DataFrame, flags: str = "") -> str:
    """What the command prints, in one line."""
    write("a.jsonl", frame.to_dicts())
    done = adv(f"audit a.jsonl {flags}")
    assert done.status == 0, done.err
    return " ".join(done.out.split())


@pytest.mark.parametrize(("epsilon", "ddof"), some(product([1e-6, 1e-8, 0.0], [0, 1]), 3))
def test_the_plainest_of_the_formulas_that_fit_is_the_headline(epsilon: float, ddof: int) -> None:
    """A threshold does not change zeros and ones, and a clip at 10 changes no group."""
    divisor = np.maximum(std(MIXED, ddof) + epsilon, 1e-9)
    plan = match_of(MIXED, centred(MIXED) / divisor)["plan"]
    assert plan["method"] == "grpo"
    assert plan["divisor"]["level"] == "group"
    assert plan["divisor"]["ddof"] == ddof
    assert plan["shape"] == []
    assert plan["post"] == []
    assert plan["rewards"]["combine"] == "sum"


# With 520 groups, a sample is searched.
@pytest.mark.parametrize(("epsilon", "ddof", "size"), some(product([1e-4, 1e-6, 0.0], [1, 0], [40, 520]), 5))
def test_the_spread_and_the_epsilon_of_a_group_are_found(epsilon: float, ddof: int, size: int) -> None:
    groups = drawn(size, 8)
    match = match_of(groups, standard(groups, epsilon, ddof))
    divisor = match["plan"]["divisor"]
    assert match["mismatched_rows"] == 0
    assert match["max_difference"] < 1e-6
    assert divisor["level"] == "group"
    assert divisor["ddof"] == ddof
    assert divisor["epsilon"] == pytest.approx(epsilon, abs=1e-7)


@pytest.mark.parametrize("stored", [np.float64, np.float32])
def test_an_epsilon_under_the_root_is_found_and_its_option_named(stored: Any) -> None:
    divisor = np.sqrt(std(GROUPS) ** 2 + 1e-5)
    frame = rows(GROUPS, centred(GROUPS) / divisor, stored)
    assert found(frame)["match"]["verdict"] == "match"
    assert "scale group, epsilon 0 (--set divisor.inside=1e-05), ddof 1" in said(frame)
    claim = "--epsilon 0 --set divisor.inside=1e-05"
    assert "every row matches the claim" in said(frame, claim)


def test_numbers_with_the_digits_of_float64_must_match_to_1e_6() -> None:
    """Zeros of solved groups do not hide the digits."""
    logged = STANDARD + np.random.default_rng(0).uniform(-1.5e-5, 1.5e-5, (40, 8))
    assert match_of(GROUPS, logged, np.float32, **KEY)["verdict"] == "match"
    assert match_of(GROUPS, logged, np.float64, **KEY)["verdict"] in NO_FORMULA
    groups = np.vstack([GROUPS, np.ones((60, 8))])
    logged = np.vstack([logged, np.zeros((60, 8))])
    assert match_of(groups, logged, np.float64, **KEY)["verdict"] != "match"


def test_rewards_that_were_rounded_in_the_log_explain_its_advantages() -> None:
    exact = np.random.default_rng(1).random((40, 8))
    logged = standard(exact, 0.0)
    in_float32 = (5 + 0.3 * exact).astype(np.float32)
    for rounded in (exact.round(6), (40 * exact).round(4), in_float32.astype(float)):
        assert match_of(rounded, logged, np.float64)["verdict"] == "match"


@pytest.mark.parametrize(("ddof", "size"), some(product([0, 1], [40, 520]), 3))
def test_the_spread_of_a_batch_is_found(ddof: int, size: int) -> None:
    groups = drawn(size, 8)
    spread = groups.std(ddof=ddof) + 1e-4
    match = match_of(groups, centred(groups) / spread)
    divisor = match["plan"]["divisor"]
    assert match["mismatched_rows"] == 0
    assert divisor["level"] == "batch"
    assert divisor["of"] == "reward"
    assert divisor["epsilon"] == 1e-4
    assert divisor["ddof"] == ddof or size == 520  # 4,160 rows in float32 cannot tell


@pytest.mark.parametrize("key", [{}, {"group": ["prompt_id", "step"]}])
def test_batches_by_step_are_found_without_a_flag(key: dict[str, Any]) -> None:
    logged = [centred(step) / (step.std(ddof=1) + 1e-4) for step in (GROUPS[:14], GROUPS[14:28], GROUPS[28:])]
    facts = found(rows(GROUPS, np.vstack(logged), step=np.arange(320) // 112), **key)
    assert facts["match"]["mismatched_rows"] == 0
    assert facts["notes"][-1] == ("batches by step" if key else "groups within each step, batches by step")


def test_a_key_that_returns_in_every_step_is_found_without_a_flag() -> None:
    frame = rows(GROUPS, STANDARD, step=np.arange(320) // 112)
    facts = found(with_keys(frame, lambda k: k % 14))
    assert facts["match"]["mismatched_rows"] == 0
    assert facts["groups"] == 40
    assert "within each step" in str(facts["notes"])


def test_a_key_that_was_sampled_twice_is_cut_into_blocks() -> None:
    frame = rows(GROUPS, centred(GROUPS))
    facts = found(with_keys(frame, lambda k: k // 2 if k < 4 else k))
    assert facts["match"]["mismatched_rows"] == 0
    assert facts["groups"] == 40
    assert "--group-size 8" in str(facts["notes"])


def phases_of(frame: pl.DataFrame) -> list[str]:
    """What is said while a file is audited."""
    frame.write_parquet("logged.parquet")
    phases = []
    run(Job(inputs=["logged.parquet"]), lambda name, *_: phases.append(name))
    return list(dict.fromkeys(phases))


@pytest.mark.parametrize(
    "blocks", [[[0.0, 1.0, 0.25, 0.5], [0.5, 0.75, 0.0, 1.0]], [[0.0, 1.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.0]]]
)
def test_keys_are_cut_into_blocks_only_where_one_reward_has_several_advantages(blocks: list[list[float]]) -> None:
    """A key has two blocks of four rows, the second perhaps with lower advantages; no formula is right."""
    groups = np.array(blocks * 5)
    second = (np.arange(10) % 2)[:, None]
    for apart, is_cut in ((0.0, False), (0.6, True)):
        logged = np.tanh(3 * (groups - apart * second) + 1)
        phases = phases_of(with_keys(rows(groups, logged), lambda k: k))
        assert ("blocks of 4 rows" in str(phases)) == is_cut


def of_more_rows(groups: Groups) -> Groups:
    others = np.hstack([groups, np.full((len(groups), 3), [0.9, 0.1, 0.8])])
    return standard(others)[:, :8]


@pytest.mark.parametrize(
    ("cause", "logged"),
    [
        ("order", np.roll(STANDARD, -1, axis=1)),
        ("sign", -STANDARD),
        ("split", np.hstack([standard(GROUPS[:, :4]), standard(GROUPS[:, 4:])])),
        ("other rows", of_more_rows(GROUPS)),
        ("unexplained", STANDARD + 0.1 * np.arange(8)),
    ],
)
def test_a_group_that_disagrees_is_explained(cause: str, logged: Groups) -> None:
    advantages = STANDARD.copy()
    advantages[7] = logged[7]
    facts = found(rows(GROUPS, advantages), **KEY)
    assert causes(facts) == [f"{cause}: 1, 8"]
    assert keys(facts) == ["p7"]
    assert facts["match"]["mismatched_groups"] == 1


@pytest.mark.parametrize(("second", "others"), some([(30, [20]), (7, [])], 2))
def test_a_key_that_was_sampled_twice_is_a_cause_where_blocks_do_not_explain_every_row(
    second: int, others: list[int]
) -> None:
    advantages = STANDARD.copy()
    advantages[[12, *others]] = 9 - advantages[[12, *others]]
    facts = found(with_keys(rows(GROUPS, advantages), lambda k: 6 if k == second else k))
    odd = 1 + len(others)
    assert causes(facts) == ["merged: 1, 16", f"unexplained: {odd}, {8 * odd}"]
    assert facts["groups"] == 39
    names = ["p6", "p12", *(f"p{k}" for k in others)]
    assert sorted(keys(facts)) == sorted(names)


def test_a_key_with_half_a_group_more_rows_is_not_called_sampled_twice() -> None:
    frame = with_keys(rows(GROUPS, STANDARD), lambda k: 6 if k == 39 else k)
    assert causes(found(frame[:-4])) == ["unexplained: 1, 12"]


@pytest.mark.parametrize(("value", "cause"), [(-0.0003, "rounding"), (-0.0008, "unexplained")])
def test_a_constant_group_may_be_as_far_from_0_as_float32_leaves_it(value: float, cause: str) -> None:
    groups = [*GROUPS, [0.35] * 8]
    logged = [*STANDARD, [value] * 8]
    facts = found(rows(groups, logged), **KEY)
    assert causes(facts) == [f"{cause}: 1, 8"]


NOISY = "zero_variance_mix"  # a third of its groups are constant, at numbers that float32 does not have


def noisy(case: str) -> pl.DataFrame:
    """What a framework logged in float32, with responses of one token."""
    return table("tables", NOISY).with_columns(advantage=table("expected", NOISY)[case], length=pl.lit(1))


@pytest.mark.parametrize(
    ("case", "preset"),
    some(
        [("swift.grpo[gdpo]", "swift-gdpo"), ("trl.grpo[normalize_then_sum]", "trl-gdpo"), ("verl.gdpo", "verl-gdpo")],
        2,
    ),
)
def test_noise_of_float32_that_whitening_spread_is_the_cause(case: str, preset: str) -> None:
    facts = found(noisy(case), **KEY)
    assert preset in facts["match"]["preset_names"]
    assert facts["match"]["verdict"] == "noise"
    assert facts["match"]["mismatched_rows"] == 320
    assert causes(facts) == ["float32 noise: 12, 96"]


@pytest.mark.parametrize(("constant", "change"), some(product([True, False], [1.0, 0.01]), 3))
def test_noise_of_float32_is_no_cause_where_it_does_not_explain_every_row(*, constant: bool, change: float) -> None:
    frame = noisy("swift.grpo[gdpo]")
    is_constant = frame.select((pl.col("reward").n_unique() == 1).over("prompt_id")).to_series()
    at = is_constant.to_list().index(constant)
    frame[at, "advantage"] += change
    facts = found(frame, **KEY)
    assert facts["match"]["mismatched_rows"]
    assert "float32 noise" not in str(causes(facts))


@pytest.mark.parametrize(("case", "epsilon"), [("oat.grpo", 1e-8), ("openrlhf.group_norm", 1e-9)])
def test_noise_of_constant_groups_distinguishes_epsilons_that_the_other_rows_do_not(case: str, epsilon: float) -> None:
    facts = found(noisy(case), **KEY)
    assert causes(facts) == ["rounding: 12, 96"]
    assert facts["match"]["plan"]["divisor"]["epsilon"] == epsilon


def test_values_that_stop_at_one_end_are_a_cause_and_one_value_beyond_the_end_of_a_log_is_not() -> None:
    facts = found(rows(GROUPS, np.minimum(STANDARD, 1.5)), **KEY)
    (cause,) = causes(facts)
    assert cause.startswith("clipped: ")
    assert facts["match"]["plan"]["divisor"]["epsilon"] == 1e-4
    second, largest = np.sort(STANDARD.ravel())[-2:]
    cut = np.minimum(STANDARD, (second + largest) / 2)
    facts = found(rows(GROUPS, cut), **KEY)
    assert facts["match"]["mismatched_rows"] == 1
    assert "clipped" not in str(causes(facts))


def test_a_claim_is_checked_and_its_difference_named() -> None:
    of_population = rows(GROUPS, standard(GROUPS, ddof=0))
    claim = found(of_population, preset="trl-grpo")["claim"]
    assert claim["mismatched_rows"] > 300
    assert claim["differs"] == {"divisor.ddof": {"claimed": 1, "logged": 0}}
    facts = found(rows(GROUPS, STANDARD), preset="verl-grpo")
    assert facts["match"]["preset_names"][0] == "trl-grpo"
    assert facts["claim"]["differs"] == {"divisor.epsilon": {"claimed": 1e-6, "logged": 1e-4}}


def test_a_list_of_one_value_a_token_is_that_value() -> None:
    masked = pl.concat_list(pl.lit(0.0), "advantage", "advantage", pl.lit(0.0))
    frame = rows(GROUPS, STANDARD).with_columns(advantage=masked)
    assert found(frame)["match"]["mismatched_rows"] == 0


# A line as the logger of NeMo-RL slices it (7ea279abf, nemo_rl/utils/logger.py:1071): a list of tokens in a list of one row.
NEMO_RL = (
    '{"content": ["text"], "rewards": [%s], "input_lengths": [4], "token_loss_mask": [[0, 1, 1, 0]], "idx": 0, '
    '"sample_loss_mask": [1.0], "advantages": [[0.0, %s, %s, 0.0]]}\n'
)


def test_the_dump_of_nemo_rl_leads_back_to_its_preset() -> None:
    logged = table("expected", TABLE)["nemo_rl.grpo"]
    rewards = table("tables", TABLE)["reward"]
    lines = [NEMO_RL % (reward, a, a) for reward, a in zip(rewards, logged, strict=True)]
    Path("train_data_step5.jsonl").write_text("".join(lines))
    done = adv("audit train_data_step5.jsonl --group-size 8 --json")
    assert json.loads(done.out)["match"]["preset_names"][0] == "nemo-rl-grpo"


def test_tokens_of_one_row_that_differ_are_named_in_a_dump_of_nemo_rl_as_well() -> None:
    failed = NEMO_RL % (0, -1, -1)
    solved = NEMO_RL % (1, 1, 1)
    odd = NEMO_RL % (0, 0.5, -0.5)
    Path("train_data_step5.jsonl").write_text(failed + solved + odd + solved)
    done = adv("audit train_data_step5.jsonl --group-size 4")
    assert "train_data_step5.jsonl:3, rollout 1: advantages has different values for the tokens of one row" in done.err


def test_without_a_column_of_advantages_it_says_what_to_name() -> None:
    lines = '{"prompt_id": 1, "reward": 0.0, "text": "x"}\n{"prompt_id": 1, "reward": 1.0, "text": "x"}\n'
    Path("a.jsonl").write_text(lines)
    frame = pl.read_ndjson("a.jsonl")
    refusal = adv("audit a.jsonl").err
    assert "no column has advantages" in refusal
    assert refusal.endswith("; name it with --column NAME (columns of numbers: prompt_id, reward)\n")
    with pytest.raises(DataError, match="no column has advantages"):
        found(frame)
    with pytest.raises(UnknownName, match="adv"):
        found(frame, "adv")


def golden_presets() -> list[tuple[str, str]]:
    """Cases that are a preset without other flags: the first for each formula."""
    facts: dict[Any, tuple[str, str]] = {}
    for case, one in commands()["case"].items():
        words = one.get("args", ())
        if words[:1] == ["--preset"] and len(words) == 2 and TABLE in cases()[case]["datasets"]:
            plan = presets()[words[1]].plan
            facts.setdefault(str(replace(plan, rewards=Rewards(), alone=Alone())), (case, words[1]))
    return list(facts.values())


def one_of_each_form() -> list[tuple[str, str]]:
    """The first of the cases that differ only in the estimator."""
    forms: dict[Any, tuple[str, str]] = {}
    for case, preset in golden_presets():
        plan = presets()[preset].plan
        post = tuple(op.name for op in plan.post)
        form = plan.divisor.level, plan.divisor.of, plan.baseline_level, post, bool(plan.shape), plan.estimator.batch
        forms.setdefault(form, (case, preset))
    return list(forms.values())


@pytest.mark.parametrize(("case", "preset"), golden_presets() if is_nightly() else one_of_each_form()[::3])
def test_the_numbers_of_a_framework_lead_back_to_its_preset(case: str, preset: str) -> None:
    facts = found(table("tables", TABLE).with_columns(advantage=table("expected", TABLE)[case]))
    assert facts["match"]["mismatched_rows"] == 0
    assert preset in {*facts["match"]["preset_names"], *names_of_ties(facts)}


def test_the_command_prints_the_match_and_obeys_the_gate() -> None:
    text = said(rows(GROUPS, STANDARD))
    assert "matches trl-grpo" in text
    assert "scale group, epsilon 0.0001, ddof 1" in text
    failed = adv("audit a.jsonl --ddof 0 --fail-on 'mismatched_rows > 0'")
    assert failed.status == 3
    assert "divisor.ddof: logged 1, claimed 0" in " ".join(failed.out.split())


def test_a_tool_whose_table_it_is_comes_first_with_its_options() -> None:
    divisor = GROUPS.std(ddof=1) + 1e-4
    frame = rows(GROUPS, centred(GROUPS) / divisor)
    frame = frame.rename({"prompt_id": "prompt", "reward": "accuracy_reward"})
    completions = frame.select("prompt", "accuracy_reward", "advantage", step=1, completion=pl.lit("text"))
    completions.write_parquet("completions_1.parquet")
    assert "matches trl-grpo --scale batch" in adv("audit completions_1.parquet").out


def test_the_advantages_that_a_layout_declares_are_found_without_a_name() -> None:
    """AReaL's dump of normalised rewards: `reward` is the advantage, `original_reward` the reward."""
    normalised = standard(GROUPS, 1e-8, ddof=0)
    columns = {"task_id": np.arange(320) // 8, "sample_idx": np.arange(320) % 8, "seqlen": 9, "head_version": 1}
    Path("rollout/2").mkdir(parents=True)
    dump = pl.DataFrame({**columns, "reward": normalised.ravel(), "original_reward": GROUPS.ravel()})
    dump.write_ndjson("rollout/2/4.jsonl")
    done = adv("audit rollout/2/4.jsonl --json")
    facts = json.loads(done.out)
    assert (facts["column"], facts["match"]["name"]) == ("reward", "areal-reward-normalization"), done.err


def test_a_clip_of_the_reward_holds_for_every_formula() -> None:
    clipped = np.minimum(GROUPS, 0.7)
    frame = rows(GROUPS, standard(clipped, 1e-6))
    assert "no match" in said(frame, "--group prompt_id")
    shaped = said(frame, "--reward-clip 0:0.7")
    assert "matches" in shaped
    assert "epsilon 1e-06, ddof 1" in shaped
    assert "claimed" not in shaped


def test_twice_a_formula_is_named_as_such_and_not_as_a_batch() -> None:
    groups = solved(*[1, 3, 2, 6, 2, 5, 7, 1] * 8)
    match = match_of(groups, 2 * centred(groups))
    assert match["mismatched_rows"] == 0
    assert match["factor"] == 2.0
    assert match["plan"]["divisor"]["level"] == "none"


@pytest.mark.parametrize("factor", some([1.5077, 0.90145], 2))
def test_a_factor_of_many_digits_is_no_formula(factor: float) -> None:
    """One of the many stds of a batch nearly always fits with a constant of a few digits."""
    assert match_of(GROUPS, factor * centred(GROUPS), **KEY)["mismatched_rows"] > 0


def test_the_parts_of_the_work_are_named_while_it_lasts() -> None:
    phases = phases_of(rows(GROUPS, STANDARD, step=np.arange(320) // 112))
    assert phases == ["reading", "grouping and computing", "trying formulas on 320 rows", "looking for causes"]


def test_a_reward_that_is_shaped_by_a_column_needs_it() -> None:
    Path("a.csv").write_text("prompt_id,reward,advantage\np,0,-1\np,1,1\n")
    done = adv("audit a.csv --kl-coef 0.5")
    assert done.status == 2
    assert "name the column with --kl-column" in done.err


SHAPED_BY_COLUMNS = [
    "--overlong 40:5:1",
    "--kl-coef 0.1 --kl-column kl",
    "--kl-coef 0.1 --kl-from policy,reference --kl-estimator k1 --kl-reduce sum",
    "--set shape.length.output=0.3",
    "--set shape.truncated.factor=0.5 --truncated-column cut",
]


@pytest.mark.parametrize("flags", SHAPED_BY_COLUMNS)
def test_an_audit_of_rewards_that_a_column_shapes_says_that_no_formula_comes_close(flags: str) -> None:
    """Every formula that is tried reads the column, so none of them reads rewards alone."""
    logged = np.random.default_rng(5).normal(size=(40, 8))
    each = np.arange(320)
    lists = {"policy": [[-0.5, -0.1 * (k % 7)] for k in each], "reference": [[-0.4, -0.2]] * 320}
    frame = rows(GROUPS, logged, length=30 + each % 20, kl=each % 3, cut=each % 5 == 0, **lists)
    assert "no match no formula comes close" in said(frame, f"{flags} --group prompt_id")


def test_shifted_advantages_of_rewards_that_the_length_shapes_are_the_headline() -> None:
    length = 30 + 7 * np.arange(320) % 20
    penalized = GROUPS - np.maximum(0, (length.reshape(40, 8) - 35) / 5)
    moved = np.roll(standard(penalized).ravel(), 1).reshape(40, 8)
    frame = rows(GROUPS, moved, length=length)
    text = said(frame, "--overlong 40:5:1 --group prompt_id")
    assert "no match shifted by 1 row: every row has the advantage that trl-grpo gives 1 row further up" in text


@pytest.mark.parametrize("factor", some([0.37, 2.4], 2))
def test_a_value_for_each_reward_is_no_factor_of_a_batch(factor: float) -> None:
    """Two values with a mean of 0 are on a line through the mean of the batch for any formula."""
    match = match_of(MIXED, factor * (MIXED - MIXED.mean()), **KEY)
    assert match["factor"] == 1
    assert match["constants"] == 0
    assert match["verdict"] not in {"match", "noise"}


# --- what a log can show ----------------------------------------------------------------------------------------

ENDS = [(-0.4, 1.8), (-1.0, 1.0), (-0.13, 0.07), (0.25, 0.5)]


@pytest.mark.parametrize(("ends", "size"), some(product(ENDS, [2, 4, 8]), 7))
def test_a_value_for_each_reward_is_no_clip(ends: tuple[float, float], size: int) -> None:
    low, high = ends
    counts = [k % (size + 1) for k in range(20)]
    groups = solved(*counts, 1, 1, 1, size=size)
    logged = np.where(groups == 1, high, low)
    facts = found(rows(groups, logged), **KEY)
    assert facts["match"]["verdict"] not in {"match", "noise"}
    assert facts["match"]["constants"] == 0
    assert "clipped" not in str(causes(facts))


@pytest.mark.parametrize("seed", some(range(6), 6))
def test_a_value_of_its_own_for_each_kind_of_group_is_no_clip(seed: int) -> None:
    draw = np.random.default_rng(seed)
    low = np.round(draw.uniform(-2, 0, 9), 2)
    high = np.round(draw.uniform(0, 2, 9), 2)
    kind = MIXED.sum(axis=1, keepdims=True).astype(int)
    logged = np.where(MIXED == 1, high[kind], low[kind])
    facts = found(rows(MIXED, logged), **KEY)
    assert facts["match"]["verdict"] in NO_FORMULA
    assert facts["headline"] is None
    assert facts["match"]["constants"] == 0


@pytest.mark.parametrize(
    ("groups", "formula", "low", "high"),
    [(GROUPS, standard, -1.5, 1.5), (MIXED, centred, -0.45, 0.45), (MIXED, centred, -0.4, 0.55)],
)
def test_a_clip_that_different_values_inside_show_is_named(
    groups: Groups, formula: Callable[[Groups], Groups], low: float, high: float
) -> None:
    match = match_of(groups, formula(groups).clip(low, high))
    assert match["verdict"] == "match"
    (clip,) = match["plan"]["post"]  # no wider one of a preset before it
    assert clip == {"op": "clip", "lo": pytest.approx(low), "hi": pytest.approx(high)}
    assert match["constants"] == (1 if low == -high else 2)
    assert match["plan"]["divisor"]["epsilon"] == 1e-4 or formula is centred


def test_two_values_between_the_ends_are_no_clip() -> None:
    """Of eighths, only -1/8 and 1/8 are between -0.2 and 0.2."""
    assert match_of(MIXED, centred(MIXED).clip(-0.2, 0.2), **KEY)["verdict"] in NO_FORMULA


def test_three_groups_claim_nothing_and_the_plan_that_is_named_is_checked_all_the_same() -> None:
    facts = found(rows(GROUPS[:3], STANDARD[:3]), preset="trl-grpo")
    assert facts["match"]["verdict"] == "few"
    assert facts["claim"]["mismatched_rows"] == 0
    assert match_of(GROUPS[:4], STANDARD[:4])["verdict"] == "match"


def test_two_different_values_are_too_few_in_however_many_groups() -> None:
    pairs = solved(*[1] * 50, size=2)
    text = said(rows(pairs, centred(pairs)))
    assert "too few different values to tell: 2 distinct pairs" in text
    assert "matches" not in text


@pytest.mark.parametrize(("factor", "number", "size"), [(2.0, 6, 3), (0.4, 20, 4)])
def test_a_factor_needs_three_more_equations_than_itself(factor: float, number: int, size: int) -> None:
    one_kind = solved(*[1] * number, size=size)
    assert match_of(one_kind, factor * centred(one_kind), **KEY)["factor"] == 1


def test_zeros_show_nothing() -> None:
    text = said(rows(GROUPS, 0 * GROUPS))
    assert "nothing nothing to tell" in text
    assert "cause" not in text


@pytest.mark.parametrize("name", ["verl-grpo", "skyrl-grpo"])
def test_what_was_claimed_leads_the_presets_that_are_the_same(name: str) -> None:
    facts = found(rows(GROUPS, standard(GROUPS, 1e-6)), preset=name)
    assert facts["match"]["preset_names"][0] == name
    assert facts["claim"]["mismatched_rows"] == 0


def test_a_preset_that_the_user_gave_leads_them_and_the_plain_method() -> None:
    ours = Path("ours.toml")
    ours.write_text("[ours]\ninherits = 'verl-grpo'\n")
    text = said(rows(GROUPS, standard(GROUPS, 1e-6)), "--presets ours.toml")
    assert " matches ours" in text
    assert "(the same as " in text
    ours.write_text("[ours]\ninherits = 'verl-grpo'\nplan.divisor.level = 'none'\nplan.divisor.epsilon = 0.5\n")
    assert " matches ours" in said(rows(MIXED, centred(MIXED)), "--presets ours.toml")


@pytest.mark.parametrize(
    "steps",
    ["{op='clip', lo=-0.9, hi=0.9}, %s", "{op='whiten'}, %s", "{op='whiten', divide=false}, {op='clip', lo=-1, hi=1}"],
)
def test_a_preset_may_have_its_steps_in_any_order(steps: str) -> None:
    post = steps.replace("%s", "{op='length', max=10.0}")
    Path("ours.toml").write_text(f"[ours]\ninherits = 'verl-grpo'\nplan.post = [{post}]\n")
    frame = rows(GROUPS, GROUPS, length=np.arange(320) % 7 + 3).drop("advantage")
    write("in.jsonl", frame.to_dicts())
    flags = "--presets ours.toml --length-column length"
    read = flags if "%s" in steps else "--presets ours.toml"  # another plan reads no length
    assert adv(f"compute in.jsonl -o out.jsonl --preset ours {read}").status == 0
    assert " matches ours: " in adv(f"audit out.jsonl {flags}").out


def test_a_formula_that_is_claimed_is_named_by_its_text() -> None:
    frame = rows(GROUPS, standard(GROUPS, 1e-6))
    right = said(frame, "--expr '(reward - mean) / (std + 1e-6)'")
    assert "matches --expr '(reward - mean) / (std + 1e-6)':" in right
    assert "params.sql: logged none, claimed reward - mean" in said(frame, "--expr 'reward - mean'")
    assert "expression" not in right


def test_a_tie_shows_each_formula_once_and_none_is_left_out() -> None:
    frame = rows(MIXED, centred(MIXED))
    ties = found(frame)["ties"]
    text = said(frame)
    assert ties
    for tie in ties:
        assert tie["names"][0] in text


# --- a step further ---------------------------------------------------------------------------------------------

WEIGHTS = [(1.0, 0.2), (0.7, 0.3), (1.0, -0.5)]


@pytest.mark.parametrize(("made", "weights"), some(product([standard, centred], WEIGHTS), 5))
def test_weights_of_two_rewards_are_solved(made: Callable[[Groups], Groups], weights: tuple[float, float]) -> None:
    summed = weights[0] * GROUPS + weights[1] * SECOND
    frame = rows(GROUPS, made(summed), second=SECOND.ravel())
    match = found(frame, reward=["reward", "second"])["match"]
    assert match["verdict"] == "match"
    first = match["weights"]["reward"]
    second = match["weights"]["second"]
    assert second / first == pytest.approx(weights[1] / weights[0], rel=1e-2)
    if made is centred:
        assert (first, second) == pytest.approx(weights)


def test_two_rewards_that_were_not_added_up_have_no_weights() -> None:
    least = np.minimum(GROUPS, SECOND)
    frame = rows(GROUPS, centred(least), second=SECOND.ravel())
    assert found(frame, reward=["reward", "second"], **KEY)["match"]["verdict"] in NO_FORMULA


@pytest.mark.parametrize(("unit", "same_keys"), some(product(["step", "input"], [False, True]), 3))
def test_rloo_over_a_whole_step_or_the_whole_input_is_found(unit: str, *, same_keys: bool) -> None:
    size = 64 if unit == "step" else 320
    logged = centred(GROUPS.reshape(-1, size)) * size / (size - 1)
    frame = rows(GROUPS, logged.reshape(40, 8), step=np.arange(320) // 64)
    facts = found(with_keys(frame, lambda k: k % 8) if same_keys else frame)
    assert facts["match"]["verdict"] == "match"
    assert facts["match"]["name"] == "rloo --set estimator.baseline_level=batch"
    assert ("batches by step" in facts["notes"][-1]) == (unit == "step")


@pytest.mark.parametrize(("kind", "by"), some(product(["decimals", "zeros and ones"], [1, -1, 8]), 2))
def test_advantages_of_other_rows_are_the_headline(kind: str, by: int) -> None:
    groups, logged = (GROUPS, STANDARD) if kind == "decimals" else (MIXED, centred(MIXED))
    moved = np.roll(logged.ravel(), by)
    facts = found(rows(groups, moved.reshape(-1, 8)))
    (cause,) = causes(facts)
    assert cause.startswith("shift: ")
    assert facts["headline"].startswith(f"shifted by {abs(by)} row")


@pytest.mark.parametrize(
    ("kind", "moved"), some(product(["decimals", "zeros and ones", "rounded"], ["by 3", "by chance"]), 2)
)
def test_advantages_that_were_shuffled_within_their_groups_are_the_headline(kind: str, moved: str) -> None:
    groups = MIXED if kind == "zeros and ones" else GROUPS
    exact = standard(groups)
    logged = np.round(exact, 3) if kind == "rounded" else exact
    by_chance = np.random.default_rng(4).permuted(logged, axis=1)
    facts = found(rows(groups, np.roll(logged, 3, axis=1) if moved == "by 3" else by_chance, np.float64))
    assert facts["headline"] == (
        "shuffled within groups: each group has the advantages that trl-grpo gives it, on other rows"
    )
    assert causes(facts) == [f"order: {len(groups)}, {groups.size}"]


def test_a_shuffle_over_all_groups_is_none_within_them() -> None:
    mixed = np.random.default_rng(4).permuted(STANDARD.ravel()).reshape(40, 8)
    assert found(rows(GROUPS, mixed), **KEY)["headline"] is None


def test_a_formula_that_is_0_where_the_log_is_0_is_not_nearer_for_that() -> None:
    """Minus the median, one row of an odd group is 0, and passk-best gives 0 to all but one."""
    groups = drawn(40, 7)
    match = match_of(groups, groups - np.median(groups, axis=1, keepdims=True), **KEY)
    assert match["verdict"] == "none"
    assert match["plan"]["method"] in {"dr-grpo", "grpo"}
    assert match["plan"]["divisor"]["level"] == "none"


@pytest.mark.parametrize("files", [5, 1])
def test_advantages_of_other_rows_of_each_step_are_the_headline(files: int, tmp_path: Path) -> None:
    """The trainer shifted its columns and wrote a file for each step: the first row of a step has the advantage of another step, or none."""
    moved = np.roll(STANDARD.reshape(5, 64), 1, axis=1).reshape(40, 8)
    frame = rows(GROUPS, moved, step=np.arange(320) // 64)
    for at, part in enumerate(frame.iter_slices(320 // files)):
        write(f"step_{at}.jsonl", part.to_dicts())
    text = " ".join(adv(f"audit {tmp_path}").out.split())
    assert "no match shifted by 1 row within each file or step: every row has the advantage that trl-grpo gives" in text


@pytest.mark.parametrize(("sizes", "made"), some(product([(4, 8), (6, 16)], [centred, standard]), 3))
def test_groups_that_were_cut_are_the_headline(sizes: tuple[int, int], made: Callable[[Groups], Groups]) -> None:
    kept, whole = sizes
    draw = np.random.default_rng(3)
    groups = draw.binomial(1, draw.random((60, 1)), (60, whole))
    logged = made(groups)
    facts = found(rows(groups[:, :kept], logged[:, :kept]), **KEY)
    assert facts["headline"].startswith(f"groups were cut to {kept} of {whole}: ")


@pytest.mark.parametrize("share", some([0.5, 0.25, 0.9], 3))
def test_another_baseline_of_the_rows_that_are_here_is_no_cut(share: float) -> None:
    groups = np.vstack([MIXED, MIXED[::-1]])
    frame = rows(groups, groups - share * mean(groups))
    assert found(frame, **KEY)["headline"] is None


def test_a_length_penalty_is_the_headline_and_a_length_that_goes_with_nothing_is_none() -> None:
    draw = np.random.default_rng(5)
    groups = np.vstack([MIXED] * 3)
    lengths = draw.integers(100, 2000, groups.shape).astype(float)
    penalised = centred(groups - lengths / 3000)
    facts = found(rows(groups, penalised, completion_length=lengths.ravel()))
    assert facts["headline"] == (
        "a length penalty: in all 6 groups of equal rewards that differ, the advantages fall with the length"
    )
    noise = centred(groups) + draw.random(groups.shape)
    assert found(rows(groups, noise, completion_length=lengths.ravel()), **KEY)["headline"] is None


@pytest.mark.parametrize(("stored", "decimals"), [(np.float64, 2), (np.float32, 2), (np.float64, 4)])
def test_a_logger_that_rounds_is_understood(stored: Any, decimals: int) -> None:
    of_groups = match_of(GROUPS, np.round(STANDARD, decimals), stored)
    undivided = match_of(GROUPS, np.round(centred(GROUPS), decimals), stored)
    for match in (of_groups, undivided):
        assert match["verdict"] == "match"
        assert match["tolerance"] == pytest.approx(0.5 * 10**-decimals, rel=1e-3)
    assert of_groups["plan"]["divisor"]["level"] == "group"
    assert undivided["plan"]["divisor"]["level"] == "none"
    assert of_groups["plan"]["method"] == "grpo"
    assert undivided["plan"]["method"] in {"dr-grpo", "grpo"}


def test_a_spike_that_float32_leaves_of_equal_rewards_is_named() -> None:
    """NeMo-RL's own function gave -1852 for the 0.1, where the formula gives -0.6."""
    groups = np.vstack([MIXED, [[0.7] * 7 + [0.1]]])
    frame = rows(groups, groups).drop("advantage")
    frame = frame.with_columns(advantage=grpo_cli.advantages(frame, preset="nemo-rl-grpo"))
    assert frame[-1, "advantage"] == pytest.approx(-0.6)
    frame[-1, "advantage"] = -1852.0363
    assert causes(found(frame, **KEY)) == ["spike: 1, 8"]
    frame[-1, "advantage"] = -1.2
    assert "spike" not in str(causes(found(frame, **KEY)))


def test_a_claim_with_a_weight_of_groups_is_another_formula_than_without_it() -> None:
    frame = rows(MIXED, centred(MIXED))
    facts = found(frame, method="dr-grpo", set="weight.by=peak", **KEY)
    assert facts["match"]["preset_names"] == found(frame, **KEY)["match"]["preset_names"]
    assert facts["match"]["mismatched_rows"] == 0
    assert facts["claim"]["mismatched_rows"] == 80


def test_a_claim_whose_groups_lie_in_several_batches_is_judged() -> None:
    lines = [f'{{"prompt": {k % 24 // 4}, "step": {k // 24}, "reward": {int(k * k % 7 < 3)}}}' for k in range(48)]
    Path("in.jsonl").write_text("\n".join(lines))
    flags = "--method spo --group prompt --group-within input --batch-by step"
    assert adv(f"compute in.jsonl {flags} -o out.jsonl -q").status == 0
    done = adv(f"audit out.jsonl {flags}")
    assert done.status == 0, done.err
    assert "every row matches the claim" in done.out


# --- a weight of the group ---------------------------------------------------------------------------------------


def divergence(rate: Any, at: float) -> Any:
    return rate * np.log(np.maximum(rate, 1e-300) / at)


def peak(groups: Groups) -> Any:
    return np.exp(-2.5 * (divergence(mean(groups), 0.3) + divergence(1 - mean(groups), 0.7)))


def hard(groups: Groups) -> Any:
    weights = np.exp(-mean(groups) / 0.5)
    spread = weights[std(groups) > 0]
    return weights / spread.mean()


# The factor of each group, in plain numbers: of MGPO (another peak), RAGEN, DGPO, and the slope of pass@4.
WEIGHTS_OF: dict[str, Callable[[Groups], Any]] = {
    "weight.by=peak --set weight.peak=0.3 --set weight.sharpness=2.5": peak,
    "weight.by=std": lambda groups: std(groups) / (std(groups).max() + 1e-6),
    "weight.by=hard --set weight.temperature=0.5": hard,
    "weight.by=pass-at-k --set weight.k=4": lambda groups: 4 * (1 - mean(groups)) ** 3,
}
WEIGHTED = solved(*(k % 9 for k in range(45)))
LARGE = solved(*(k % 9 for k in range(520)))  # a sample of them is searched


@pytest.mark.parametrize(
    ("name", "kind", "made"),
    some(product(WEIGHTS_OF, ["zeros and ones", "decimals", "large"], ["grpo", "dr-grpo", "rloo"]), 11),
)
def test_a_weight_of_the_group_is_named_with_its_constants(name: str, kind: str, made: str) -> None:
    groups = {"zeros and ones": WEIGHTED, "decimals": GROUPS, "large": LARGE}[kind]
    logged = {"grpo": standard(groups), "dr-grpo": centred(groups), "rloo": centred(groups) * 8 / 7}[made]
    frame = rows(groups, WEIGHTS_OF[name](groups) * logged)
    assert f"match matches --method {made} --set {name}: " in said(frame, "--group prompt_id")
    claim = f"--method {made} --set {name}" + (" --epsilon 1e-4" if made == "grpo" else "")
    assert "every row matches the claim" in said(frame, f"--group prompt_id {claim}")


def test_a_weight_of_the_group_that_is_none_of_these_is_not_named() -> None:
    weights = (lambda p: 1.37 - p, lambda p: 1 + p * p, lambda p: 0.5 + np.sin(7 * p) / 4)
    for weight, groups in some(product(weights, (WEIGHTED, GROUPS)), 4):
        match = match_of(groups, weight(mean(groups)) * centred(groups), **KEY)
        assert match["verdict"] in NO_FORMULA
        assert match["plan"]["weight"]["by"] == "none" or match["preset_names"]


@pytest.mark.parametrize("reward", some([None, np.nan, np.inf], 3))
def test_a_row_without_a_reward_hides_no_weight_of_the_group(reward: float | None) -> None:
    frame = rows(WEIGHTED, peak(WEIGHTED) * centred(WEIGHTED))
    frame = pl.concat([frame, frame[-1:]])
    frame[-1, "reward"] = reward
    frame[-1, "advantage"] = None
    match = found(frame, missing="exclude", **KEY)["match"]
    assert match["mismatched_rows"] == 0
    assert match["plan"]["weight"]["by"] == "peak"


def test_a_group_of_equal_rewards_between_0_and_1_ends_no_search_for_a_weight() -> None:
    groups = np.vstack([WEIGHTED, [[0.5] * 8]])
    assert match_of(groups, peak(groups) * groups, **KEY)["verdict"] in {"match", "near", "none"}


def test_four_solve_rates_are_too_few_for_a_peak() -> None:
    few = solved(*(k % 5 for k in range(45)), size=4)
    assert match_of(few, peak(few) * centred(few), **KEY)["verdict"] in NO_FORMULA


# --- two references ---------------------------------------------------------------------------------------------


def test_rows_that_differ_from_a_claim_and_from_the_nearest_formula_are_listed_separately() -> None:
    """GRPO with epsilon 1e-6, moved in every third group; the claim has the epsilon 1e-4 and so differs nearly everywhere."""
    exact = standard(GROUPS, 1e-6)
    other = STANDARD
    logged = exact + 0.1 * np.arange(8) * (np.arange(40) % 3 == 0)[:, None]
    frame = rows(GROUPS, logged)
    flags = "--group prompt_id --preset trl-grpo"
    text = said(frame, flags)
    facts = json.loads(adv(f"audit a.jsonl {flags} --json").out)
    in_python = found(frame, preset="trl-grpo", **KEY)
    for judged, made in ((facts["claim"], other), (facts["match"], exact), (in_python["claim"], other)):
        for one in judged["disagreements"]:
            row = int(one["place"].replace(":", " ").split()[-1]) - 1
            assert one["expected"] == pytest.approx(made.flat[row], abs=1e-9)
    tolerance = 2e-5 * np.maximum(1, np.abs(other))
    far = np.abs(other - logged) > tolerance
    off = int(far.any(axis=1).sum())
    assert facts["claim"]["mismatched_groups"] == off
    assert facts["match"]["mismatched_groups"] == 14

    nearest, _, claim = text.partition("claim differs")
    assert f"{facts['claim']['mismatched_rows']} of 320 rows in {off} groups differ from what the claim" in text
    assert nearest.count(": nearest ") == 10
    assert nearest.count(": claimed ") == 0
    assert claim.count(": nearest ") == 0
    assert claim.count(": claimed ") == 10
    assert "and 4 more groups (28 rows)" in nearest
    assert f"and {off - 10} more groups" in claim


def test_where_the_claim_is_the_nearest_formula_its_rows_are_listed_once() -> None:
    logged = STANDARD.copy()
    logged[7] += 0.1 * np.arange(8)
    text = said(rows(GROUPS, logged), "--group prompt_id --preset trl-grpo")
    assert text.count("p7, a.jsonl:58") == 1
    assert "more group" not in text


def test_only_rules_that_the_rows_decide_are_printed() -> None:
    text = said(rows(GROUPS, STANDARD))
    assert "matches trl-grpo" in text
    assert not re.search("singletons|finite reward|zero-variance|without effect", text)
    assert "singletons" in said(rows([*GROUPS, [0.5]], [*STANDARD, [0.5]]))


@pytest.mark.parametrize(
    ("group", "options", "rule"),
    [
        ("a,0.5,1\na,0.51,1\n", "--zero-variance null --std-threshold 0.1", "groups without a gradient get null"),
        (
            "a,0,\na,1,1\na,0,1\na,1,0\n",
            "--method gdpo --component-missing zero",
            "if one of several rewards is missing, it counts as 0",
        ),
    ],
)
def test_a_rule_that_some_rows_decide_is_printed(group: str, options: str, rule: str) -> None:
    others = "".join(f"{name},0,0\n{name},0,0.5\n{name},1,0\n{name},1,0.5\n" for name in "bcdefg")
    Path("a.csv").write_text(f"prompt_id,acc,fmt\n{group}{others}")
    claim = f"--reward acc --reward fmt {options}"
    assert adv(f"compute a.csv -o b.csv {claim}").status == 0
    text = " ".join(adv(f"audit b.csv {claim}").out.split())
    assert "every row matches the claim" in text
    assert rule in text


def test_a_formula_whose_epsilon_the_rows_leave_open_is_tied_once_with_all_its_options() -> None:
    divisor = np.maximum(std(MIXED, ddof=0), 1e-9)
    facts = found(rows(MIXED, centred(MIXED) / divisor))
    (tied,) = [name for name in names_of_ties(facts) if "--method grpo" in name]
    assert tied.startswith("--method grpo --ddof 0 --epsilon 0 to ")


def test_fields_in_which_a_claim_differs_are_those_of_the_plan() -> None:
    frame = rows(GROUPS, standard(GROUPS, 1e-6, ddof=0), other=GROUPS.ravel()[::-1])
    claimed = partial(said, frame)
    clipped = claimed("--group prompt_id --clip=-1:1 --std-threshold 0.5 --zero-variance null")
    assert "post.clip.lo: logged none, claimed -1 post.clip.hi: logged none, claimed 1" in clipped
    assert "groups.std_threshold: logged none, claimed 0.5" in clipped
    passk = claimed("--group prompt_id --method passk --param k=2 --whiten sample")
    assert "method: logged grpo, claimed passk" in passk
    assert "params.k: logged none, claimed 2" in passk
    assert "post.whiten.level: logged none, claimed sample" in passk
    assert "divisor.measure: logged std, claimed mad" in claimed("--group prompt_id --set divisor.measure=mad")
    weighted = claimed("--group prompt_id --reward reward=1 --reward other=0.5")
    assert "()" not in weighted
    assert "None" not in weighted


def test_formulas_without_a_divisor_are_tied_once_and_without_its_options() -> None:
    groups = solved(3, 3, 3, 3, 3, 3, 5, 5, 5, 5, 5, 5)
    ties = names_of_ties(found(rows(groups, 2 * centred(groups))))
    assert [name for name in ties if "--method rloo" in name] == ["1.75 x --method rloo"]


def test_causes_count_all_groups_that_differ() -> None:
    groups = np.array([[0.0, 1.0, k % 5 / 8, 0.5] for k in range(1_200)])
    logged = standard(groups)
    logged[::3] = 0
    facts = found(rows(groups, logged), **KEY)
    assert [cause.partition(",")[0] for cause in causes(facts)] == ["zeroed: 400"]
    assert facts["match"]["mismatched_groups"] == 400


@pytest.mark.parametrize("option", ["--left-out-column", "--masked-column"])
def test_marked_rows_are_counted(option: str) -> None:
    frame = rows(GROUPS, STANDARD).with_columns(bad=pl.int_range(pl.len()) % 8 == 7)
    frame = frame.with_columns(advantage=pl.when(~pl.col("bad")).then("advantage"))
    write("marked.jsonl", frame.to_dicts())
    marked = int(frame["bad"].sum())
    facts = json.loads(adv(f"audit marked.jsonl {option} bad --json").out)
    assert [(line["mark"], line["rows"]) for line in facts["marks"]] == [("bad", marked)]
    assert facts["rows"] <= len(frame)
    assert re.search(
        rf"^marked +{marked} (left out of their groups|masked)",
        adv(f"audit marked.jsonl {option} bad").out,
        re.MULTILINE,
    )
    assert not json.loads(adv("audit marked.jsonl --json").out)["marks"]
