"""The formula that made a column is named, with its spread and its epsilon, and the plainest of those that fit leads."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from grpo_cli.engine.plan_parts import Alone, Rewards
from grpo_cli.engine.presets import presets
from grpo_cli.errors import DataError, UnknownName
from tests.support.command import adv
from tests.support.drawn import is_nightly, some
from tests.support.goldens import cases, commands, table
from tests.support.jobs import write
from tests.unit.guests.audit.logs import (
    GROUPS,
    KEY,
    MIXED,
    NO_FORMULA,
    STANDARD,
    centred,
    drawn,
    found,
    match_of,
    phases_of,
    rows,
    said,
    solved,
    standard,
    std,
)

TABLE = "float_uniform8"


def names_of_ties(facts: Any) -> list[str]:
    return [name for tie in facts["ties"] for name in tie["names"]]


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


def test_a_tie_shows_each_formula_once_and_none_is_left_out() -> None:
    frame = rows(MIXED, centred(MIXED))
    ties = found(frame)["ties"]
    text = said(frame)
    assert ties
    for tie in ties:
        assert tie["names"][0] in text


def test_a_formula_that_is_0_where_the_log_is_0_is_not_nearer_for_that() -> None:
    """Minus the median, one row of an odd group is 0, and passk-best gives 0 to all but one."""
    groups = drawn(40, 7)
    match = match_of(groups, groups - np.median(groups, axis=1, keepdims=True), **KEY)
    assert match["verdict"] == "none"
    assert match["plan"]["method"] in {"dr-grpo", "grpo"}
    assert match["plan"]["divisor"]["level"] == "none"


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


def test_only_rules_that_the_rows_decide_are_printed() -> None:
    text = said(rows(GROUPS, STANDARD))
    assert "matches trl-grpo" in text
    assert not re.search("group of one row|without a reward|no gradient|without effect", text)
    assert "group of one row" in said(rows([*GROUPS, [0.5]], [*STANDARD, [0.5]]))


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


def test_formulas_without_a_divisor_are_tied_once_and_without_its_options() -> None:
    groups = solved(3, 3, 3, 3, 3, 3, 5, 5, 5, 5, 5, 5)
    ties = names_of_ties(found(rows(groups, 2 * centred(groups))))
    assert [name for name in ties if "--method rloo" in name] == ["1.75 x --method rloo"]
