"""The audit names the formula that made a column, says what it cannot tell apart, and why groups disagree."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import polars as pl
import pytest

import grpo_cli
from grpo_cli.auditing.candidates import Said
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Alone, Rewards
from grpo_cli.engine.presets import presets
from grpo_cli.errors import DataError, UnknownName
from grpo_cli.formats.frame import FRAME, FrameReader
from grpo_cli.read.tables import Binding, Table
from grpo_cli.runs.audit import Job, audited, run
from grpo_cli.stats.document import document
from tests.support.command import adv
from tests.support.drawn import is_nightly, some
from tests.support.goldens import cases, commands, table
from tests.support.jobs import write

Group = list[float]
TABLE = "float_uniform8"
KEY = ("prompt_id",)  # without it, a log that no formula explains is searched once for each way to group


def stdev(group: Group) -> float:
    return float(np.std(group, ddof=1))


def pstdev(group: Group) -> float:
    return float(np.std(group))


def drawn(groups: int, size: int, seed: int = 0) -> list[Group]:
    draw = random.Random(seed)  # noqa: S311 - any numbers do
    return [[round(draw.random(), 3) for _ in range(size)] for _ in range(groups)]


GROUPS = drawn(40, 8)  # the same in most tests, because what plans give for them is cached


def rows(
    groups: Sequence[Group], advantages: Sequence[Group], stored: Any = np.float32, **columns: Sequence[Any]
) -> pl.DataFrame:
    return pl.DataFrame({
        "prompt_id": [f"p{k}" for k, group in enumerate(groups) for _ in group],
        "reward": [r for group in groups for r in group],
        "advantage": np.array([a for group in advantages for a in group]).astype(stored),
        **columns,
    })  # fmt: skip


def found(frame: pl.DataFrame, column: str | None = None, claim: Any = None, preset: str = "", **binding: Any) -> Any:
    said = Said(claim=claim, claimed=preset)
    job = Job(inputs=(), binding=Binding(**binding), column=column, said=said)
    reader = FrameReader(frame.columns, lambda names, rows: frame.select(names)[:rows], types=frame.schema)
    facts = document(audited(job, [Table(FRAME, reader)]))
    json.dumps(facts, allow_nan=False)
    return facts


def names_of_ties(facts: Any) -> list[str]:
    return [name for tie in facts["ties"] for name in tie["names"]]


def said(frame: pl.DataFrame, flags: str = "") -> str:
    """What the command prints, in one line."""
    write("a.jsonl", frame.to_dicts())
    done = adv(f"audit a.jsonl {flags}")
    assert done.status == 0, done.err
    return " ".join(done.out.split())


def standard(spread: Callable[[Group], float], epsilon: float) -> Callable[[Group], Group]:
    return lambda group: [(r - fmean(group)) / (spread(group) + epsilon) for r in group]


STANDARD = [standard(stdev, 1e-4)(group) for group in GROUPS]


@pytest.mark.parametrize(("epsilon", "ddof"), some(product([1e-6, 1e-8, 0.0], [0, 1]), 3))
def test_the_plainest_of_the_formulas_that_fit_is_the_headline(epsilon: float, ddof: int) -> None:
    """A threshold does not change zeros and ones, and a clip at 10 changes no group."""
    logged = [standard(stdev if ddof else pstdev, epsilon)(group) if pstdev(group) else [0.0] * 8 for group in MIXED]
    plan = found(rows(MIXED, logged))["match"]["plan"]
    assert (plan["method"], plan["divisor"]["level"], plan["divisor"]["ddof"]) == ("grpo", "group", ddof)
    assert (plan["shape"], plan["post"], plan["rewards"]["combine"]) == ([], [], "sum")


# With 520 groups, a sample is searched.
@pytest.mark.parametrize(("epsilon", "ddof", "size"), some(product([1e-4, 1e-6, 0.0], [1, 0], [40, 520]), 5))
def test_the_spread_and_the_epsilon_of_a_group_are_found(epsilon: float, ddof: int, size: int) -> None:
    spread = stdev if ddof else pstdev
    groups = drawn(size, 8)
    facts = found(rows(groups, [standard(spread, epsilon)(group) for group in groups]))
    divisor = facts["match"]["plan"]["divisor"]
    assert facts["match"]["mismatched_rows"] == 0
    assert facts["match"]["max_difference"] < 1e-6
    assert (divisor["level"], divisor["ddof"]) == ("group", ddof)
    assert divisor["epsilon"] == pytest.approx(epsilon, abs=1e-7)


@pytest.mark.parametrize("stored", [np.float64, np.float32])
def test_an_epsilon_under_the_root_is_found_and_its_option_named(stored: Any) -> None:
    logged = [[(r - fmean(group)) / math.sqrt(stdev(group) ** 2 + 1e-5) for r in group] for group in GROUPS]
    frame = rows(GROUPS, logged, stored)
    assert found(frame)["match"]["verdict"] == "match"
    assert "scale group, epsilon 0 (--set divisor.inside=1e-05), ddof 1" in said(frame)
    claim = "--epsilon 0 --set divisor.inside=1e-05"
    assert "every row matches the claim" in said(frame, claim)


@pytest.mark.parametrize(("stored", "verdict"), [(np.float64, {"near", "none"}), (np.float32, {"match"})])
def test_numbers_with_the_digits_of_float64_must_match_to_1e_6(stored: Any, verdict: set[str]) -> None:
    logged = np.array(STANDARD) + np.random.default_rng(0).uniform(-1.5e-5, 1.5e-5, (40, 8))
    assert found(rows(GROUPS, logged.tolist(), stored), group=KEY)["match"]["verdict"] in verdict


def test_zeros_of_solved_groups_do_not_hide_the_digits_of_float64() -> None:
    off = np.random.default_rng(0).uniform(-1.5e-5, 1.5e-5, 320)
    solved = [[1.0] * 8] * 60
    frame = rows(
        [*GROUPS, *solved], [*(np.ravel(STANDARD) + off).reshape(40, 8).tolist(), *([[0.0] * 8] * 60)], np.float64
    )
    assert found(frame, group=KEY)["match"]["verdict"] != "match"


@pytest.mark.parametrize(
    "rounded", [lambda r: round(r, 6), lambda r: round(40 * r, 4), lambda r: float(np.float32(5 + 0.3 * r))]
)
def test_rewards_that_were_rounded_in_the_log_explain_its_advantages(rounded: Callable[[float], float]) -> None:
    draw = random.Random(1)  # noqa: S311 - any numbers do
    exact = [[draw.random() for _ in range(8)] for _ in range(40)]
    frame = rows(
        [[rounded(r) for r in group] for group in exact], [standard(stdev, 0.0)(group) for group in exact], np.float64
    )
    assert found(frame)["match"]["verdict"] == "match"


@pytest.mark.parametrize(("ddof", "size"), some(product([0, 1], [40, 520]), 3))
def test_the_spread_of_a_batch_is_found(ddof: int, size: int) -> None:
    groups = drawn(size, 8)
    whole = float(np.std([r for group in groups for r in group], ddof=ddof)) + 1e-4
    facts = found(rows(groups, [[(r - fmean(group)) / whole for r in group] for group in groups]))
    divisor = facts["match"]["plan"]["divisor"]
    assert facts["match"]["mismatched_rows"] == 0
    assert (divisor["level"], divisor["of"], divisor["epsilon"]) == ("batch", "reward", 1e-4)
    assert divisor["ddof"] == ddof or size == 520  # 4,160 rows in float32 cannot tell


@pytest.mark.parametrize("key", [(), ("prompt_id", "step")])
def test_batches_by_step_are_found_without_a_flag(key: tuple[str, ...]) -> None:
    steps = [k // 14 for k in range(40)]
    whole = [stdev([r for g, at in zip(GROUPS, steps, strict=True) if at == s for r in g]) for s in range(3)]
    logged = [[(r - fmean(g)) / (whole[s] + 1e-4) for r in g] for g, s in zip(GROUPS, steps, strict=True)]
    facts = found(rows(GROUPS, logged, step=[s for s in steps for _ in range(8)]), group=key)
    assert facts["match"]["mismatched_rows"] == 0
    assert facts["notes"][-1] == ("batches by step" if key else "groups within each step, batches by step")


def test_a_key_that_returns_in_every_step_is_found_without_a_flag() -> None:
    frame = rows(GROUPS, STANDARD, step=[k // 14 for k in range(40) for _ in range(8)])
    frame = frame.with_columns(prompt_id=pl.Series([f"p{k % 14}" for k in range(40) for _ in range(8)]))
    facts = found(frame)
    assert facts["match"]["mismatched_rows"] == 0
    assert facts["groups"] == 40
    assert any("within each step" in note for note in facts["notes"])


def test_a_key_that_was_sampled_twice_is_cut_into_blocks() -> None:
    frame = rows(GROUPS, [[r - fmean(group) for r in group] for group in GROUPS])
    frame = frame.with_columns(prompt_id=pl.Series([f"p{k // 2 if k < 4 else k}" for k in range(40) for _ in range(8)]))
    facts = found(frame)
    assert facts["match"]["mismatched_rows"] == 0
    assert facts["groups"] == 40
    assert any("--group-size 8" in note for note in facts["notes"])


@pytest.mark.parametrize(("apart", "is_cut"), [(0.0, False), (0.6, True)])
@pytest.mark.parametrize(
    "blocks", [[[0.0, 1.0, 0.25, 0.5], [0.5, 0.75, 0.0, 1.0]], [[0.0, 1.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.0]]]
)
def test_keys_are_cut_into_blocks_only_where_one_reward_has_several_advantages(
    blocks: list[Group],
    apart: float,
    is_cut: bool,  # noqa: FBT001 - a case is a pair
) -> None:
    """Every other block of four rows has lower advantages; a key has two blocks, and no formula is right."""
    blocks = blocks * 5
    logged = [[math.tanh(3 * (r - apart * (at % 2)) + 1) for r in block] for at, block in enumerate(blocks)]
    frame = rows(blocks, logged).with_columns(prompt_id=pl.Series([f"p{row // 8}" for row in range(40)]))
    frame.write_parquet("logged.parquet")
    phases: list[str] = []
    run(Job(inputs=["logged.parquet"]), lambda name, *_: phases.append(name))
    assert any("blocks of 4 rows" in name for name in phases) == is_cut


def changed(groups: list[Group], logged: list[Group], which: int, values: Group) -> pl.DataFrame:
    return rows(groups, [values if k == which else group for k, group in enumerate(logged)])


def shuffled(_: Group, values: Group) -> Group:
    return values[1:] + values[:1]


def split(group: Group, _: Group) -> Group:
    return standard(stdev, 1e-4)(group[:4]) + standard(stdev, 1e-4)(group[4:])


def of_more_rows(group: Group, _: Group) -> Group:
    others = [*group, 0.9, 0.1, 0.8]
    return [(r - fmean(others)) / (stdev(others) + 1e-4) for r in group]


@pytest.mark.parametrize(
    ("cause", "logged"),
    [
        ("order", shuffled),
        ("sign", lambda _, values: [-a for a in values]),
        ("split", split),
        ("other rows", of_more_rows),
        ("unexplained", lambda _, values: [a + 0.1 * k for k, a in enumerate(values)]),
    ],
)
def test_a_group_that_disagrees_is_explained(cause: str, logged: Callable[[Group, Group], Group]) -> None:
    facts = found(changed(GROUPS, STANDARD, 7, logged(GROUPS[7], STANDARD[7])), group=KEY)
    assert [(one["cause"], one["groups"], one["rows"]) for one in facts["causes"]] == [(cause, 1, 8)]
    assert [one["key"] for one in facts["match"]["disagreements"]] == ["p7"]
    assert facts["match"]["mismatched_groups"] == 1


@pytest.mark.parametrize(("second", "others"), some([(30, [20]), (7, [])], 2))
def test_a_key_that_was_sampled_twice_is_a_cause_where_blocks_do_not_explain_every_row(
    second: int, others: list[int]
) -> None:
    odd = [[9.0 - a for a in values] if k in {12, *others} else values for k, values in enumerate(STANDARD)]
    keys = [f"p{6 if k == second else k}" for k in range(40) for _ in range(8)]
    facts = found(rows(GROUPS, odd).with_columns(prompt_id=pl.Series(keys)))
    assert [(one["cause"], one["groups"], one["rows"]) for one in facts["causes"]] == [
        ("merged", 1, 16),
        ("unexplained", 1 + len(others), 8 + 8 * len(others)),
    ]
    assert facts["groups"] == 39
    assert sorted(one["key"] for one in facts["match"]["disagreements"]) == sorted(
        ["p6", "p12", *(f"p{k}" for k in others)]
    )


def test_a_key_with_half_a_group_more_rows_is_not_called_sampled_twice() -> None:
    frame = rows([*GROUPS[:-1], GROUPS[-1][:4]], [*STANDARD[:-1], STANDARD[-1][:4]])
    keys = [f"p{6 if k == 39 else k}" for k in range(40) for _ in range(8 if k < 39 else 4)]
    facts = found(frame.with_columns(prompt_id=pl.Series(keys)))
    assert [(one["cause"], one["rows"]) for one in facts["causes"]] == [("unexplained", 12)]


@pytest.mark.parametrize(("value", "cause"), [(-0.0003, "rounding"), (-0.0008, "unexplained")])
def test_a_constant_group_may_be_as_far_from_0_as_float32_leaves_it(value: float, cause: str) -> None:
    facts = found(rows([*GROUPS, [0.35] * 8], [*STANDARD, [value] * 8]), group=KEY)
    assert [one["cause"] for one in facts["causes"]] == [cause]


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
    facts = found(noisy(case), group=KEY)
    assert preset in facts["match"]["preset_names"]
    assert facts["match"]["verdict"] == "noise"
    assert facts["match"]["mismatched_rows"] == 320
    assert [(one["cause"], one["groups"], one["rows"]) for one in facts["causes"]] == [("float32 noise", 12, 96)]


@pytest.mark.parametrize(("constant", "change"), some(product([True, False], [1.0, 0.01]), 3))
def test_noise_of_float32_is_no_cause_where_it_does_not_explain_every_row(constant: bool, change: float) -> None:  # noqa: FBT001 - a case is a pair
    frame = noisy("swift.grpo[gdpo]")
    of_group = frame.select((pl.col("reward").n_unique() == 1).over("prompt_id")).to_series()
    row = (of_group if constant else ~of_group).to_list().index(True)
    values = frame["advantage"].to_list()
    values[row] += change
    facts = found(frame.with_columns(advantage=pl.Series(values)), group=KEY)
    assert facts["match"]["mismatched_rows"]
    assert "float32 noise" not in [one["cause"] for one in facts["causes"]]


@pytest.mark.parametrize("case", ["oat.grpo", "openrlhf.group_norm"])
def test_noise_of_constant_groups_distinguishes_epsilons_that_the_other_rows_do_not(case: str) -> None:
    facts = found(noisy(case), group=KEY)
    same = {*facts["match"]["preset_names"], facts["match"]["name"]}
    epsilon = facts["match"]["plan"]["divisor"]["epsilon"]
    assert [(one["cause"], one["groups"]) for one in facts["causes"]] == [("rounding", 12)], same
    assert epsilon == (1e-8 if case == "oat.grpo" else 1e-9)


def test_values_that_stop_at_one_end_are_a_cause() -> None:
    facts = found(rows(GROUPS, [[min(a, 1.5) for a in group] for group in STANDARD]), group=KEY)
    assert [one["cause"] for one in facts["causes"]] == ["clipped"]
    assert facts["match"]["plan"]["divisor"]["epsilon"] == 1e-4


def test_one_value_beyond_the_end_of_a_log_is_no_clip() -> None:
    second, largest = sorted(a for group in STANDARD for a in group)[-2:]
    logged = [[(second + largest) / 2 if a == largest else a for a in group] for group in STANDARD]
    facts = found(rows(GROUPS, logged), group=KEY)
    assert facts["match"]["mismatched_rows"] == 1
    assert "clipped" not in [cause["cause"] for cause in facts["causes"]]


def test_a_claim_is_checked_and_its_difference_named() -> None:
    frame = rows(GROUPS, [standard(pstdev, 1e-4)(group) for group in GROUPS])
    claim = presets()["trl-grpo"].plan
    facts = found(frame, claim=claim)["claim"]
    assert facts["mismatched_rows"] > 300
    assert facts["differs"] == {"divisor.ddof": {"claimed": 1, "logged": 0}}


def test_a_list_of_one_value_a_token_is_that_value() -> None:
    frame = rows(GROUPS, STANDARD)
    masked = [[0.0, a, a, 0.0] for a in frame["advantage"].to_list()]
    assert found(frame.with_columns(advantage=pl.Series(masked)))["match"]["mismatched_rows"] == 0


def nemo_rl(path: Path, rewards: Sequence[float], advantages: Sequence[float], **lists: Sequence[float]) -> Path:
    """Records as the logger of NeMo-RL slices them (7ea279abf, nemo_rl/utils/logger.py:1071): a list of tokens in a list of one row."""
    records = [
        {"content": ["text"], "rewards": [r], "input_lengths": [4], "token_loss_mask": [[0, 1, 1, 0]], "idx": at,
         "sample_loss_mask": [1.0], "advantages": [lists.get(f"row_{at}", [0.0, a, a, 0.0])]}
        for at, (r, a) in enumerate(zip(rewards, advantages, strict=True))
    ]  # fmt: skip
    write(path, records)
    return path


def test_the_dump_of_nemo_rl_leads_back_to_its_preset() -> None:
    source, logged = table("tables", TABLE), table("expected", TABLE)["nemo_rl.grpo"].to_list()
    path = nemo_rl(Path("train_data_step5.jsonl"), source["reward"].to_list(), logged)
    done = adv(f"audit {path} --group-size 8 --json")
    assert json.loads(done.out)["match"]["preset_names"][0] == "nemo-rl-grpo"


def test_tokens_of_one_row_that_differ_are_named_in_a_dump_of_nemo_rl_as_well() -> None:
    path = nemo_rl(Path("train_data_step5.jsonl"), [0.0, 1.0] * 2, [-1.0, 1.0] * 2, row_2=[0.0, 0.5, -0.5, 0.0])
    done = adv(f"audit {path} --group-size 4")
    assert "train_data_step5.jsonl:3, rollout 1: advantages has different values for the tokens of one row" in done.err


def test_without_a_column_of_advantages_it_says_what_to_name() -> None:
    frame = pl.DataFrame({"prompt_id": [1, 1], "reward": [0.0, 1.0]})
    with pytest.raises(DataError, match="no column has advantages") as raised:
        found(frame.with_columns(text=pl.lit("x")))
    assert raised.value.hint == "name it with --column NAME (columns of numbers: prompt_id, reward)"
    with pytest.raises(UnknownName, match="adv"):
        found(frame, "adv")


def golden_presets() -> list[tuple[str, str]]:
    """Cases that are a preset without other flags: the first for each formula."""
    facts: dict[Any, tuple[str, str]] = {}
    for case, one in commands()["case"].items():
        if one.get("args", ())[:1] == ["--preset"] and len(one["args"]) == 2 and TABLE in cases()[case]["datasets"]:
            plan = presets()[one["args"][1]].plan
            facts.setdefault(str(replace(plan, rewards=Rewards(), alone=Alone())), (case, one["args"][1]))
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


def test_a_frame_is_audited_in_python() -> None:
    facts = grpo_cli.audit(rows(GROUPS, STANDARD), preset="verl-grpo")
    assert facts["match"]["preset_names"][0] == "trl-grpo"
    assert facts["claim"]["differs"] == {"divisor.epsilon": {"claimed": 1e-6, "logged": 1e-4}}


def test_the_command_prints_the_match_and_obeys_the_gate() -> None:
    text = said(rows(GROUPS, STANDARD))
    assert "matches trl-grpo" in text and "scale group, epsilon 0.0001, ddof 1" in text
    failed = adv("audit a.jsonl --ddof 0 --fail-on 'mismatched_rows > 0'")
    assert failed.status == 3 and "divisor.ddof: logged 1, claimed 0" in " ".join(failed.out.split())


def test_a_tool_whose_table_it_is_comes_first_with_its_options() -> None:
    whole = stdev([r for group in GROUPS for r in group]) + 1e-4
    frame = rows(GROUPS, [[(r - fmean(group)) / whole for r in group] for group in GROUPS])
    frame = frame.select(
        pl.lit(1).alias("step"), pl.col("prompt_id").alias("prompt"), pl.lit("text").alias("completion"),
        pl.col("reward").alias("accuracy_reward"), "advantage",
    )  # fmt: skip
    frame.write_parquet("completions_1.parquet")
    done = adv("audit completions_1.parquet")
    assert "matches trl-grpo --scale batch" in done.out


def test_the_advantages_that_a_layout_declares_are_found_without_a_name() -> None:
    """AReaL's dump of normalised rewards: `reward` is the advantage, `original_reward` the reward."""

    def normalised(group: Group) -> Group:
        return [(r - fmean(group)) / (pstdev(group) + 1e-8) for r in group]

    lines = [
        {
            "task_id": task,
            "sample_idx": k,
            "seqlen": 9,
            "head_version": 1,
            "reward": advantage,
            "original_reward": reward,
        }
        for task, group in enumerate(GROUPS)
        for k, (reward, advantage) in enumerate(zip(group, normalised(group), strict=True))
    ]
    done = adv(f"audit {write('rollout/2/4.jsonl', lines)} --json")
    found = json.loads(done.out)
    assert (found["column"], found["match"]["name"]) == ("reward", "areal-reward-normalization"), done.err


def test_a_clip_of_the_reward_holds_for_every_formula() -> None:
    frame = rows(GROUPS, [standard(stdev, 1e-6)([min(r, 0.7) for r in group]) for group in GROUPS])
    assert "no match" in said(frame, "--group prompt_id")
    shaped = said(frame, "--reward-clip 0:0.7")
    assert "matches" in shaped and "epsilon 1e-06, ddof 1" in shaped
    assert "claimed" not in shaped


def test_twice_a_formula_is_named_as_such_and_not_as_a_batch() -> None:
    solved = [1, 3, 2, 6, 2, 5, 7, 1] * 8
    groups = [[1.0] * k + [0.0] * (8 - k) for k in solved]
    facts = found(rows(groups, [[2 * (r - fmean(group)) for r in group] for group in groups]))
    assert facts["match"]["mismatched_rows"] == 0
    assert (facts["match"]["factor"], facts["match"]["plan"]["divisor"]["level"]) == (2.0, "none")


@pytest.mark.parametrize("factor", some([1.5077, 0.90145], 2))
def test_a_factor_of_many_digits_is_no_formula(factor: float) -> None:
    """One of the many stds of a batch nearly always fits with a constant of a few digits."""
    logged = [[float(np.float32(factor * (r - fmean(group)))) for r in group] for group in GROUPS]
    assert found(rows(GROUPS, logged), group=KEY)["match"]["mismatched_rows"] > 0


def test_the_parts_of_the_work_are_named_while_it_lasts() -> None:
    frame = rows(GROUPS, STANDARD, step=[at // 112 for at in range(320)])
    frame.write_parquet("logged.parquet")
    phases: list[str] = []
    run(Job(inputs=["logged.parquet"]), lambda name, *_: phases.append(name))
    assert list(dict.fromkeys(phases)) == [
        "reading",
        "grouping and computing",
        "trying formulas on 320 rows",
        "looking for causes",
    ]


def test_a_reward_that_is_shaped_by_a_column_needs_it() -> None:
    path = write("a.jsonl", rows([[0, 1]], [[-1, 1]]).to_dicts())
    done = adv(f"audit {path} --kl-coef 0.5")
    assert (done.status, "name the column with --kl-column" in done.err) == (2, True)


@pytest.mark.parametrize("factor", some([0.37, 2.4], 2))
def test_a_value_for_each_reward_is_no_factor_of_a_batch(factor: float) -> None:
    """Two values with a mean of 0 are on a line through the mean of the batch for any formula."""
    groups = solved(1, 3, 2, 6, 2, 5, 7, 1, 4, 4, 0, 8, 6, 3)
    mean = fmean(r for group in groups for r in group)
    match = found(rows(groups, [[factor * (r - mean) for r in group] for group in groups]), group=KEY)["match"]
    assert (match["factor"], match["constants"]) == (1, 0)
    assert match["verdict"] not in {"match", "noise"}


# --- what a log can show ----------------------------------------------------------------------------------------


def solved(*counts: int, size: int = 8) -> list[Group]:
    """Groups of zeros and ones, with these numbers of ones."""
    return [[1.0] * count + [0.0] * (size - count) for count in counts]


def centred(group: Group) -> Group:
    return [r - fmean(group) for r in group]


def clip_of(match: Any) -> list[tuple[float, float]]:
    return [(op["lo"], op["hi"]) for op in match["plan"]["post"] if op["op"] == "clip"]


MIXED = solved(1, 3, 2, 6, 2, 5, 7, 1, 4, 4, 0, 8, 6, 3)


ENDS = [(-0.4, 1.8), (-1.0, 1.0), (-0.13, 0.07), (0.25, 0.5)]


@pytest.mark.parametrize(("ends", "size"), some(product(ENDS, [2, 4, 8]), 7))
def test_a_value_for_each_reward_is_no_clip(ends: tuple[float, float], size: int) -> None:
    low, high = ends
    groups = solved(*(k % (size + 1) for k in range(20)), 1, 1, 1, size=size)
    facts = found(rows(groups, [[high if r else low for r in group] for group in groups]), group=KEY)
    assert facts["match"]["verdict"] not in {"match", "noise"}
    assert facts["match"]["constants"] == 0
    assert "clipped" not in [one["cause"] for one in facts["causes"]]


@pytest.mark.parametrize("seed", some(range(6), 6))
def test_a_value_of_its_own_for_each_kind_of_group_is_no_clip(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - any numbers do
    values = {k: (round(draw.uniform(-2, 0), 2), round(draw.uniform(0, 2), 2)) for k in range(9)}
    logged = [[values[int(sum(group))][int(r)] for r in group] for group in MIXED]
    facts = found(rows(MIXED, logged), group=KEY)
    assert facts["match"]["verdict"] in {"near", "none"}
    assert facts["headline"] is None
    assert facts["match"]["constants"] == 0


@pytest.mark.parametrize(
    ("groups", "formula", "low", "high"),
    [
        (GROUPS, standard(stdev, 1e-4), -1.5, 1.5),
        (MIXED, centred, -0.45, 0.45),
        (MIXED, centred, -0.4, 0.55),
    ],
)
def test_a_clip_that_different_values_inside_show_is_named(
    groups: list[Group], formula: Callable[[Group], Group], low: float, high: float
) -> None:
    match = found(rows(groups, [[min(max(a, low), high) for a in formula(group)] for group in groups]))["match"]
    assert match["verdict"] == "match"
    assert clip_of(match) == [pytest.approx((low, high))]  # no wider one of a preset before it
    assert match["constants"] == (1 if low == -high else 2)
    assert match["plan"]["divisor"]["epsilon"] == 1e-4 or formula is centred


def test_two_values_between_the_ends_are_no_clip() -> None:
    """Of eighths, only -1/8 and 1/8 are between -0.2 and 0.2."""
    clipped = [[min(max(a, -0.2), 0.2) for a in centred(group)] for group in MIXED]
    assert found(rows(MIXED, clipped), group=KEY)["match"]["verdict"] in {"near", "none"}


def test_three_groups_claim_nothing_and_the_plan_that_is_named_is_checked_all_the_same() -> None:
    frame = rows(GROUPS[:3], STANDARD[:3])
    facts = found(frame, claim=presets()["trl-grpo"].plan, preset="trl-grpo")
    assert facts["match"]["verdict"] == "few"
    assert facts["claim"]["mismatched_rows"] == 0
    assert found(rows(GROUPS[:4], STANDARD[:4]))["match"]["verdict"] == "match"


def test_two_different_values_are_too_few_in_however_many_groups() -> None:
    pairs = [[0.0, 1.0]] * 50
    text = said(rows(pairs, [centred(group) for group in pairs]))
    assert "too few different values to tell: 2 distinct pairs" in text
    assert "matches" not in text


@pytest.mark.parametrize(("factor", "number", "size"), [(2.0, 6, 3), (0.4, 20, 4)])
def test_a_factor_needs_three_more_equations_than_itself(factor: float, number: int, size: int) -> None:
    one_kind = solved(*[1] * number, size=size)
    frame = rows(one_kind, [[factor * a for a in centred(group)] for group in one_kind])
    assert found(frame, group=KEY)["match"]["factor"] == 1


def test_zeros_show_nothing() -> None:
    text = said(rows(GROUPS, [[0.0] * 8] * 40))
    assert "nothing nothing to tell" in text
    assert "cause" not in text


def test_what_was_claimed_leads_the_presets_that_are_the_same() -> None:
    frame = rows(GROUPS, [standard(stdev, 1e-6)(group) for group in GROUPS])
    for name in ("verl-grpo", "skyrl-grpo"):
        facts = found(frame, claim=presets()[name].plan, preset=name)
        assert facts["match"]["preset_names"][0] == name
        assert facts["claim"]["mismatched_rows"] == 0


def test_a_preset_that_the_user_gave_leads_them_and_the_plain_method() -> None:
    ours = "[ours]\ninherits = 'verl-grpo'\n"
    undivided = "plan.divisor.level = 'none'\nplan.divisor.epsilon = 0.5\n"
    for groups, formula, more in ((GROUPS, standard(stdev, 1e-6), ""), (MIXED, centred, undivided)):
        Path("ours.toml").write_text(ours + more)
        text = said(rows(groups, [formula(group) for group in groups]), "--presets ours.toml")
        assert " matches ours" in text and ("(the same as " in text or more)


def test_a_formula_that_is_claimed_is_named_by_its_text() -> None:
    frame = rows(GROUPS, [standard(stdev, 1e-6)(group) for group in GROUPS])
    right = said(frame, "--expr '(reward - mean) / (std + 1e-6)'")
    assert "matches --expr '(reward - mean) / (std + 1e-6)':" in right
    wrong = said(frame, "--expr 'reward - mean'")
    assert "params.sql: logged none, claimed reward - mean" in wrong
    assert "expression" not in right


def test_a_tie_shows_each_formula_once_and_none_is_left_out() -> None:
    frame = rows(MIXED, [centred(group) for group in MIXED])
    facts = found(frame)
    text = said(frame)
    assert facts["ties"] and all(tie["names"][0] in text for tie in facts["ties"])


# --- a step further ---------------------------------------------------------------------------------------------


SECOND = drawn(40, 8, seed=1)


WEIGHTS = [(1.0, 0.2), (0.7, 0.3), (1.0, -0.5)]


@pytest.mark.parametrize(("method", "weights"), some(product(["standard", "centred"], WEIGHTS), 5))
def test_weights_of_two_rewards_are_solved(method: str, weights: tuple[float, float]) -> None:
    total = [
        [weights[0] * a + weights[1] * b for a, b in zip(one, other, strict=True)]
        for one, other in zip(GROUPS, SECOND, strict=True)
    ]
    made = standard(stdev, 1e-4) if method == "standard" else centred
    frame = rows(GROUPS, [made(group) for group in total], second=[r for group in SECOND for r in group])
    match = found(frame, rewards=("reward", "second"))["match"]
    assert match["verdict"] == "match"
    solved = match["weights"]
    assert solved["second"] / solved["reward"] == pytest.approx(weights[1] / weights[0], rel=1e-2)
    if method == "centred":
        assert (solved["reward"], solved["second"]) == pytest.approx(weights)


def test_two_rewards_that_were_not_added_up_have_no_weights() -> None:
    least = [[min(a, b) for a, b in zip(one, other, strict=True)] for one, other in zip(GROUPS, SECOND, strict=True)]
    frame = rows(GROUPS, [centred(group) for group in least], second=[r for group in SECOND for r in group])
    assert found(frame, rewards=("reward", "second"), group=KEY)["match"]["verdict"] in {"near", "none"}


@pytest.mark.parametrize(("unit", "same_keys"), some(product(["step", "input"], [False, True]), 3))
def test_rloo_over_a_whole_step_or_the_whole_input_is_found(unit: str, same_keys: bool) -> None:  # noqa: FBT001 - a case is a pair
    steps = [k // 8 for k in range(40)]
    whole = [steps[k] if unit == "step" else 0 for k in range(40)]
    means = {at: fmean([r for k in range(40) if whole[k] == at for r in GROUPS[k]]) for at in set(whole)}
    size = 64 if unit == "step" else 320
    logged = [[(r - means[whole[k]]) * size / (size - 1) for r in GROUPS[k]] for k in range(40)]
    frame = rows(GROUPS, logged, step=[s for s in steps for _ in range(8)])
    if same_keys:
        frame = frame.with_columns(prompt_id=pl.Series([f"p{k % 8}" for k in range(40) for _ in range(8)]))
    facts = found(frame)
    named = facts["match"]["verdict"], facts["match"]["name"]
    assert named == ("match", "rloo --set estimator.baseline_level=batch")
    assert ("batches by step" in facts["notes"][-1]) == (unit == "step")


@pytest.mark.parametrize(("kind", "by"), some(product(["decimals", "zeros and ones"], [1, -1, 8]), 2))
def test_advantages_of_other_rows_are_the_headline(kind: str, by: int) -> None:
    groups, logged = (GROUPS, STANDARD) if kind == "decimals" else (MIXED, [centred(group) for group in MIXED])
    frame = rows(groups, np.roll(np.ravel(logged), by).reshape(-1, 8).tolist())
    facts = found(frame)
    assert [one["cause"] for one in facts["causes"]] == ["shift"]
    assert facts["headline"].startswith(f"shifted by {abs(by)} row")


@pytest.mark.parametrize("files", [5, 1])
def test_advantages_of_other_rows_of_each_step_are_the_headline(files: int, tmp_path: Path) -> None:
    """The trainer shifted its columns and wrote a file for each step: the first row of a step has the advantage of another step, or none."""
    moved = np.roll(np.reshape(STANDARD, (5, 64)), 1, axis=1).reshape(40, 8).tolist()
    frame = rows(GROUPS, moved, step=[k // 8 for k in range(40) for _ in range(8)])
    for at, part in enumerate(frame.iter_slices(320 // files)):
        write(f"step_{at}.jsonl", part.to_dicts())
    text = " ".join(adv(f"audit {tmp_path}").out.split())
    assert "no match shifted by 1 row within each file or step: every row has the advantage that trl-grpo gives" in text


@pytest.mark.parametrize(("sizes", "method"), some(product([(4, 8), (6, 16)], ["centred", "standard"]), 3))
def test_groups_that_were_cut_are_the_headline(sizes: tuple[int, int], method: str) -> None:
    (kept, whole), made = sizes, centred if method == "centred" else standard(stdev, 1e-4)
    draw = random.Random(3)  # noqa: S311 - any numbers do
    groups = []
    for _ in range(60):
        rate = draw.random()
        groups.append([float(draw.random() < rate) for _ in range(whole)])
    logged = [made(group)[:kept] if stdev(group) else [0.0] * kept for group in groups]
    facts = found(rows([group[:kept] for group in groups], logged), group=KEY)
    assert facts["headline"].startswith(f"groups were cut to {kept} of {whole}: ")


@pytest.mark.parametrize("share", some([0.5, 0.25, 0.9], 3))
def test_another_baseline_of_the_rows_that_are_here_is_no_cut(share: float) -> None:
    groups = [*MIXED, *MIXED[::-1]]
    facts = found(rows(groups, [[r - share * fmean(group) for r in group] for group in groups]), group=KEY)
    assert facts["headline"] is None


def test_a_length_penalty_is_the_headline_and_a_length_that_goes_with_nothing_is_none() -> None:
    draw = random.Random(5)  # noqa: S311 - any numbers do
    lengths = [[float(draw.randint(100, 2000)) for _ in group] for group in MIXED * 3]
    shorter = [
        [r - length / 3000 for r, length in zip(*one, strict=True)] for one in zip(MIXED * 3, lengths, strict=True)
    ]
    beside = [length for group in lengths for length in group]
    facts = found(rows(MIXED * 3, [centred(group) for group in shorter], completion_length=beside))
    assert facts["headline"] == (
        "a length penalty: in all 6 groups of equal rewards that differ, the advantages fall with the length"
    )
    noise = [[a + draw.random() for a in centred(group)] for group in MIXED * 3]
    assert found(rows(MIXED * 3, noise, completion_length=beside), group=KEY)["headline"] is None


@pytest.mark.parametrize(("stored", "decimals"), [(np.float64, 2), (np.float32, 2), (np.float64, 4)])
def test_a_logger_that_rounds_is_understood(stored: Any, decimals: int) -> None:
    for made, name in ((standard(stdev, 1e-4), "grpo"), (centred, "dr-grpo")):
        frame = rows(GROUPS, [[round(a, decimals) for a in made(group)] for group in GROUPS], stored)
        match = found(frame)["match"]
        assert match["verdict"] == "match", name
        assert match["tolerance"] == pytest.approx(0.5 * 10**-decimals, rel=1e-3)
        assert match["plan"]["divisor"]["level"] == ("group" if name == "grpo" else "none")
        assert match["plan"]["method"] in {name, "grpo"}


def test_a_spike_that_float32_leaves_of_equal_rewards_is_named() -> None:
    """NeMo-RL's own function gave -1852 for the 0.1, where the formula gives -0.6."""
    groups = [*MIXED, [0.7] * 7 + [0.1]]
    frame = rows(groups, groups)
    right = grpo_cli.advantages(frame.drop("advantage"), preset="nemo-rl-grpo").to_list()
    spiked = found(frame.with_columns(advantage=pl.Series([*right[:-1], -1852.0363])), group=KEY)
    assert (right[-1], [one["cause"] for one in spiked["causes"]]) == (pytest.approx(-0.6), ["spike"])
    doubled = found(frame.with_columns(advantage=pl.Series([*right[:-1], -1.2])), group=KEY)
    assert "spike" not in [one["cause"] for one in doubled["causes"]]


def test_a_claim_with_a_weight_of_groups_is_another_formula_than_without_it() -> None:
    frame = rows(MIXED, [centred(group) for group in MIXED])
    facts = found(frame, claim=Plan.of({"estimator.name": "dr-grpo", "weight.by": "peak"}), group=KEY)
    assert facts["match"]["preset_names"] == found(frame, group=KEY)["match"]["preset_names"]
    assert (facts["match"]["mismatched_rows"], facts["claim"]["mismatched_rows"]) == (0, 80)


def test_a_claim_whose_groups_lie_in_several_batches_is_judged() -> None:
    rows_ = [{"prompt": f"p{k % 24 // 4}", "step": k // 24, "reward": float(k * k % 7 < 3)} for k in range(48)]
    write("in.jsonl", rows_)
    flags = ["--method", "spo", "--group", "prompt", "--group-within", "input", "--batch-by", "step"]
    assert adv("compute in.jsonl", *flags, "-o", "out.jsonl", "-q").status == 0
    done = adv("audit out.jsonl", *flags)
    assert done.status == 0 and "every row matches the claim" in done.out, done.err


# --- a weight of the group ---------------------------------------------------------------------------------------


def peak(group: Group) -> float:
    rate = fmean(group)
    divergence = sum(share * math.log(share / at) for share, at in ((rate, 0.3), (1 - rate, 0.7)) if share)
    return math.exp(-2.5 * divergence)


def weights_of(groups: Sequence[Group]) -> dict[str, list[float]]:
    """The factor of each group, in plain Python: of MGPO (another peak), RAGEN, DGPO, and the slope of pass@4."""
    hard = [math.exp(-(fmean(group) or 1.0) / 0.5) for group in groups]
    mean = fmean(share for share, group in zip(hard, groups, strict=True) if stdev(group))
    widest = max(map(stdev, groups)) + 1e-6
    return {
        "weight.by=peak --set weight.peak=0.3 --set weight.sharpness=2.5": [peak(group) for group in groups],
        "weight.by=std": [stdev(group) / widest for group in groups],
        "weight.by=hard --set weight.temperature=0.5": [share / mean for share in hard],
        "weight.by=pass-at-k --set weight.k=4": [4 * (1 - fmean(group)) ** 3 for group in groups],
    }


WEIGHTED = solved(*(k % 9 for k in range(45)))
LARGE = solved(*(k % 9 for k in range(520)))  # a sample of them is searched


@pytest.mark.parametrize(
    ("name", "kind", "made"),
    some(product(weights_of(WEIGHTED), ["zeros and ones", "decimals", "large"], ["grpo", "dr-grpo", "rloo"]), 11),
)
def test_a_weight_of_the_group_is_named_with_its_constants(name: str, kind: str, made: str) -> None:
    groups = {"zeros and ones": WEIGHTED, "decimals": GROUPS, "large": LARGE}[kind]
    formula = standard(stdev, 1e-4) if made == "grpo" else centred
    times = 8 / 7 if made == "rloo" else 1
    logged = [
        [times * weight * a for a in formula(group)]
        for weight, group in zip(weights_of(groups)[name], groups, strict=True)
    ]
    frame = rows(groups, logged)
    assert f"match matches --method {made} --set {name}: " in said(frame, "--group prompt_id")
    claim = f"--method {made} --set {name}" + (" --epsilon 1e-4" if made == "grpo" else "")
    assert "every row matches the claim" in said(frame, f"--group prompt_id {claim}")


def test_a_weight_of_the_group_that_is_none_of_these_is_not_named() -> None:
    weights = (lambda p: 1.37 - p, lambda p: 1 + p * p, lambda p: 0.5 + math.sin(7 * p) / 4)
    for weight, groups in some(list(product(weights, (WEIGHTED, GROUPS))), 4):
        facts = found(rows(groups, [[weight(fmean(g)) * a for a in centred(g)] for g in groups]), group=KEY)
        assert facts["match"]["verdict"] in {"near", "none"}
        assert facts["match"]["plan"]["weight"]["by"] == "none" or facts["match"]["preset_names"]


@pytest.mark.parametrize("reward", some([None, math.nan, math.inf], 3))
def test_a_row_without_a_reward_hides_no_weight_of_the_group(reward: float | None) -> None:
    logged = [[peak(group) * a for a in centred(group)] for group in WEIGHTED]
    frame = rows(WEIGHTED, logged)
    without = frame[-1:].with_columns(reward=pl.lit(reward, pl.Float64), advantage=pl.lit(None, pl.Float32))
    match = grpo_cli.audit(pl.concat([frame, without]), group="prompt_id", missing="exclude")["match"]
    assert match["mismatched_rows"] == 0
    assert match["plan"]["weight"]["by"] == "peak"


def test_a_group_of_equal_rewards_between_0_and_1_ends_no_search_for_a_weight() -> None:
    groups = [*WEIGHTED, [0.5] * 8]
    facts = found(rows(groups, [[peak(group) * r for r in group] for group in groups]), group=KEY)
    assert facts["match"]["verdict"] in {"match", "near", "none"}


def test_four_solve_rates_are_too_few_for_a_peak() -> None:
    few = solved(*(k % 5 for k in range(45)), size=4)
    facts = found(rows(few, [[peak(group) * a for a in centred(group)] for group in few]), group=KEY)
    assert facts["match"]["verdict"] in {"near", "none"}


# --- two references ---------------------------------------------------------------------------------------------


def test_rows_that_differ_from_a_claim_and_from_the_nearest_formula_are_listed_separately() -> None:
    """GRPO with epsilon 1e-6, moved in every third group; the claim has the epsilon 1e-4 and so differs nearly everywhere."""
    exact, other = standard(stdev, 1e-6), standard(stdev, 1e-4)
    logged = [
        [a + 0.1 * at * (k % 3 == 0) for at, a in enumerate(exact(group))] for k, group in enumerate(GROUPS)
    ]  # fmt: skip
    frame = rows(GROUPS, logged)
    write("a.jsonl", frame.to_dicts())
    claimed = "audit a.jsonl --group prompt_id --preset trl-grpo"
    facts = json.loads(adv(f"{claimed} --json").out)
    in_python = grpo_cli.audit(frame, group="prompt_id", preset="trl-grpo")
    for of_claim, made, facts_ in ((True, other, facts), (False, exact, facts), (True, other, in_python)):
        judged = facts_["claim" if of_claim else "match"]
        for one in judged["disagreements"]:
            row = int(one["place"].rsplit(":" if facts_ is facts else " ", 1)[1]) - 1
            assert one["expected"] == pytest.approx(made(GROUPS[row // 8])[row % 8], abs=1e-9)
    off = [
        k
        for k in range(40)
        if any(abs(a - b) > 2e-5 * max(1, abs(b)) for a, b in zip(other(GROUPS[k]), logged[k], strict=True))
    ]
    assert (facts["claim"]["mismatched_groups"], facts["match"]["mismatched_groups"]) == (len(off), 14)

    text = " ".join(adv(claimed).out.split())
    nearest, _, claim = text.partition("claim differs")
    assert f"{facts['claim']['mismatched_rows']} of 320 rows in {len(off)} groups differ from what the claim" in text
    assert (nearest.count(": nearest "), nearest.count(": claimed ")) == (10, 0)
    assert (claim.count(": nearest "), claim.count(": claimed ")) == (0, 10)
    assert "and 4 more groups (28 rows)" in nearest
    assert f"and {len(off) - 10} more groups" in claim


def test_where_the_claim_is_the_nearest_formula_its_rows_are_listed_once() -> None:
    logged = [[a + 0.1 * at * (k == 7) for at, a in enumerate(STANDARD[k])] for k in range(40)]
    text = said(rows(GROUPS, logged), "--group prompt_id --preset trl-grpo")
    assert (text.count("p7, a.jsonl:58"), "more group" in text) == (1, False)


def test_only_rules_that_the_rows_decide_are_printed() -> None:
    text = said(rows(GROUPS, STANDARD))
    assert "matches trl-grpo" in text
    assert all(word not in text for word in ("singletons", "finite reward", "zero-variance", "without effect"))
    assert "singletons" in said(rows([*GROUPS, [0.5]], [*STANDARD, [0.5]]))


@pytest.mark.parametrize(
    ("rewards", "options", "rule"),
    [
        (
            [(0.5, 1), (0.51, 1)],
            "--zero-variance null --std-threshold 0.1",
            "groups without a gradient get null",
        ),
        (
            [(0, None), (1, 1), (0, 1), (1, 0)],
            "--method gdpo --component-missing zero",
            "if one of several rewards is missing, it counts as 0",
        ),
    ],
)
def test_a_rule_that_some_rows_decide_is_printed(
    rewards: list[tuple[float, float | None]], options: str, rule: str
) -> None:
    others = [(acc, form) for acc in (0.0, 1.0) for form in (0.0, 0.5)]
    groups: dict[str, list[tuple[float, float | None]]] = {"a": rewards} | {name: [*others] for name in "bcdefg"}
    records = [
        {"prompt_id": name, "acc": acc, "fmt": form} for name, group in groups.items() for acc, form in group
    ]  # fmt: skip
    write("a.jsonl", records)
    claim = f"--reward acc --reward fmt {options}"
    assert adv(f"compute a.jsonl -o b.jsonl {claim}").status == 0
    text = " ".join(adv(f"audit b.jsonl {claim}").out.split())
    assert "every row matches the claim" in text and rule in text


def test_a_formula_whose_epsilon_the_rows_leave_open_is_tied_once_with_all_its_options() -> None:
    logged = [standard(pstdev, 0.0)(group) if pstdev(group) else [0.0] * 8 for group in MIXED]
    (tied,) = [name for name in names_of_ties(found(rows(MIXED, logged))) if "--method grpo" in name]
    assert tied.startswith("--method grpo --ddof 0 --epsilon 0 to ")


def test_fields_in_which_a_claim_differs_are_those_of_the_plan(tmp_path: Path) -> None:
    frame = rows(GROUPS, [standard(pstdev, 1e-6)(group) for group in GROUPS])
    claimed = partial(said, frame.with_columns(other=pl.col("reward").reverse()))
    clipped = claimed("--group prompt_id --clip=-1:1 --std-threshold 0.5 --zero-variance null")
    assert "post.clip.lo: logged none, claimed -1 post.clip.hi: logged none, claimed 1" in clipped
    assert "groups.std_threshold: logged none, claimed 0.5" in clipped
    passk = claimed("--group prompt_id --method passk --param k=2 --whiten sample")
    assert "method: logged grpo, claimed passk" in passk and "params.k: logged none, claimed 2" in passk
    assert "post.whiten.level: logged none, claimed sample" in passk
    assert "divisor.measure: logged std, claimed mad" in claimed("--group prompt_id --set divisor.measure=mad")
    weighted = claimed("--group prompt_id --reward reward=1 --reward other=0.5")
    assert "()" not in weighted and "None" not in weighted


def test_formulas_without_a_divisor_are_tied_once_and_without_its_options() -> None:
    groups = [[1.0] * ones + [0.0] * (8 - ones) for ones in (3, 5) for _ in range(6)]
    ties = names_of_ties(found(rows(groups, [[2 * value for value in centred(group)] for group in groups])))
    assert [name for name in ties if "--method rloo" in name] == ["1.75 x --method rloo"]


def test_causes_count_all_groups_that_differ() -> None:
    kinds = [[0.0, 1.0, k / 8, 0.5] for k in range(5)]
    values = [standard(stdev, 1e-4)(kind) for kind in kinds]
    groups = [kinds[k % 5] for k in range(1_200)]
    logged = [values[k % 5] if k % 3 else [0.0] * 4 for k in range(1_200)]
    facts = found(rows(groups, logged), group=KEY)
    assert [(cause["cause"], cause["groups"]) for cause in facts["causes"]] == [("zeroed", 400)]
    assert facts["match"]["mismatched_groups"] == 400
