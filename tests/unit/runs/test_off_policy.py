"""`inspect --token-logprobs S --old-token-logprobs O`: how far the trained policy is from the one that sampled."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from tests.support.command import adv, facts_of, ran
from tests.support.jobs import write

NEW = "--token-logprobs new --old-token-logprobs old"
KEYWORDS: Any = {"token_logprobs": "new", "old_token_logprobs": "old"}
LINES = """\
{"prompt_id": 0, "step": 0, "reward": 0.0, "policy_version": 0, "new": [-0.5, -1.0], "old": [-0.5, -1.5], "mask": [1, 1], "entropy": [0.5, 1.0]}
{"prompt_id": 0, "step": 0, "reward": 1.0, "policy_version": 1, "new": [-0.25, -3.0, -1.0], "old": [-0.5, -1.5, -1.0], "mask": [1, 0, 1], "entropy": [0.25, 1.0, 0.0]}
{"prompt_id": 1, "step": 0, "reward": 0.0, "policy_version": 2, "new": [-0.1], "old": [-1.1], "mask": [1], "entropy": [2.0]}
{"prompt_id": 1, "step": 0, "reward": 1.0, "policy_version": 0, "new": [], "old": [], "mask": [], "entropy": []}
{"prompt_id": 2, "step": 1, "reward": 0.0, "policy_version": 1, "new": [-2.0, -0.75], "old": [-1.0, -0.75], "mask": [0, 1], "entropy": [1.0, 3.0]}
{"prompt_id": 2, "step": 1, "reward": 1.0, "policy_version": 2, "new": [-0.125], "old": [-0.5], "mask": [-100], "entropy": [0.75]}
{"prompt_id": 3, "step": 1, "reward": 0.0, "policy_version": 0, "new": [-0.5, -0.5, -0.5], "old": [-0.5, -0.25, -1.5], "mask": [1, 1, 1], "entropy": [0.0, 0.0, 1.0]}
{"prompt_id": 3, "step": 1, "reward": 1.0, "policy_version": 1, "new": [-4.0], "old": [-4.5], "mask": [1], "entropy": [0.5]}
"""
ROWS = [json.loads(line) for line in LINES.splitlines()]


@pytest.fixture(autouse=True)
def _lines(here: None) -> None:
    Path("a.jsonl").write_text(LINES)


def drift(rows: Sequence[Any]) -> dict[str, float]:
    """The facts; the advantage of GRPO is positive for a reward of 1 and negative for 0."""
    log = np.concatenate([np.subtract(row["new"], row["old"]) for row in rows])
    entropy = np.concatenate([row["entropy"] for row in rows])
    is_good = np.repeat([row["reward"] == 1 for row in rows], [len(row["new"]) for row in rows])
    weights = np.exp([sum(row["new"]) - sum(row["old"]) for row in rows if row["new"]])
    ratio = np.exp(log)
    return {
        "rows": len(weights),
        "tokens": len(ratio),
        "k1": -log.mean(),
        "k2": (log**2).mean() / 2,
        "k3": (ratio - 1 - log).mean(),
        "ratio_mean": ratio.mean(),
        "ratio_above_1_2": (ratio > 1.2).mean(),
        "ratio_above_2": (ratio > 2).mean(),
        "ratio_below_0_8": (ratio < 0.8).mean(),
        "ratio_below_0_5": (ratio < 0.5).mean(),
        "clipped_above": (is_good & (ratio > 1.2)).mean(),
        "clipped_below": (~is_good & (ratio < 0.8)).mean(),
        "token_ess": ratio.sum() ** 2 / (ratio**2).sum() / len(ratio),
        "sequence_ess": weights.sum() ** 2 / (weights**2).sum() / len(weights),
        "entropy": entropy.mean(),
    }


def found(options: str = "", file: str = "a.jsonl") -> Any:
    return facts_of(f"inspect {file} {NEW} {options}")["off_policy"]


def assert_same(facts: Any, wanted: dict[str, float]) -> None:
    assert {name: facts[name] for name in wanted} == pytest.approx(wanted, rel=1e-12, abs=1e-15)


def test_the_facts_are_those_of_loops() -> None:
    facts = found("--token-entropy entropy")
    assert_same(facts["all"], drift(ROWS))
    assert facts["columns"] == {"token_logprobs": "new", "old_token_logprobs": "old", "token_entropy": "entropy"}
    assert facts["missing"] == 0


def test_a_mask_leaves_the_tokens_that_count() -> None:
    """Of the second row the token in the middle is not counted, of the fifth the first, and that of the sixth."""
    rows = [json.loads(line) for line in LINES.splitlines()]
    rows[1] |= {"new": [-0.25, -1.0], "old": [-0.5, -1.0], "entropy": [0.25, 0.0]}
    rows[4] |= {"new": [-0.75], "old": [-0.75], "entropy": [3.0]}
    rows[5] |= {"new": [], "old": [], "entropy": []}
    assert_same(found("--token-entropy entropy --mask mask")["all"], drift(rows))


def test_steps_and_versions_of_the_policy_have_lines() -> None:
    steps, versions = found("--token-entropy entropy --by step")["by"]
    assert steps["column"] == "step"
    first, second = steps["lines"]
    assert first["value"] == 0
    assert_same(first, drift(ROWS[:4]))
    assert second["value"] == 1
    assert_same(second, drift(ROWS[4:]))
    assert versions["column"] == "policy_version"
    assert [line["value"] for line in versions["lines"]] == [0, 1, 2]
    for line in versions["lines"]:
        assert_same(line, drift([row for row in ROWS if row["policy_version"] == line["value"]]))


def test_parquet_and_frames_say_the_same() -> None:
    frame = pl.read_ndjson("a.jsonl")
    frame.write_parquet("a.parquet")
    wanted = found()["all"]
    assert found(file="a.parquet")["all"] == wanted
    assert grpo_cli.inspect(frame, **KEYWORDS).facts["off_policy"]["all"] == wanted


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "jsonl"])
def test_lists_may_have_names_that_polars_takes_for_patterns(kind: str) -> None:
    names = {"new": "^a$", "old": "^b$", "mask": "^c$"}
    rows = [{names.get(name, name): value for name, value in json.loads(line).items()} for line in LINES.splitlines()]
    write(f"b.{kind}", rows)
    facts = facts_of(f"inspect b.{kind} --token-logprobs ^a$ --old-token-logprobs ^b$ --mask ^c$")["off_policy"]
    assert facts["all"] == found("--mask mask")["all"]


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=60))
def test_quantiles_are_within_a_hundredth_of_the_log_ratio(logs: list[float]) -> None:
    new = [-5 + log for log in logs]
    old = [-5.0] * len(logs)
    frame = pl.DataFrame({"prompt_id": [1], "reward": [1.0], "new": [new], "old": [old]})
    facts = grpo_cli.inspect(frame, **KEYWORDS, singleton="zero").facts["off_policy"]["all"]
    ratios = np.array(new) + 5
    for name, part in {"p1": 0.01, "p5": 0.05, "median": 0.5, "p95": 0.95, "p99": 0.99}.items():
        wanted = np.quantile(ratios, part, method="inverted_cdf")
        assert math.log(facts[f"ratio_{name}"]) == pytest.approx(wanted, rel=0.01, abs=1e-9)


def test_a_condition_names_the_quantities() -> None:
    assert adv(f"inspect a.jsonl {NEW} --fail-on 'ratio_above_2 > 0.01'").status == 3
    assert adv(f"inspect a.jsonl {NEW} --fail-on 'token_ess < 0.1'").status == 0
    lost = adv("inspect a.jsonl --fail-on 'token_ess < 0.1'")
    assert lost.status == 2
    assert "token_ess" in lost.err


def test_the_text_says_it_in_a_few_lines_and_a_page_draws_it() -> None:
    out = ran(f"inspect a.jsonl {NEW} --by step").out
    assert "off-policy     13 tokens of 7 rows: new and old" in out
    assert "a clip of 0.2 cuts" in out
    assert "policy_version" in out
    ran(f"report a.jsonl {NEW} -o r.html")
    page = Path("r.html").read_text()
    assert "Off-policy over step" in page
    assert "Off-policy over policy_version" in page


def test_a_table_for_other_programs_has_it_by_value() -> None:
    table = pl.read_csv(adv(f"inspect a.jsonl {NEW} --by step --format csv").out.encode())
    assert table["k3"].to_list() == pytest.approx([drift(ROWS[:4])["k3"], drift(ROWS[4:])["k3"]])
    assert table["rows"].to_list() == [4, 4]
    assert "k3" not in adv("inspect a.jsonl --by step --format csv").out


def test_a_file_without_log_probs_says_nothing_of_them() -> None:
    assert "off_policy" not in facts_of("inspect a.jsonl")
    assert "off-policy" not in ran("inspect a.jsonl").out


def test_rows_without_lists_are_counted() -> None:
    Path("a.jsonl").write_text(LINES.replace('"old": [-0.5, -1.5]', '"old": null', 1))
    facts = found("--token-entropy entropy")
    assert facts["missing"] == 1
    assert_same(facts["all"], drift(ROWS[1:]))


# The status, the line and a part of the error.
REFUSED = """\
2 | inspect a.jsonl --token-logprobs new | give --token-logprobs and --old-token-logprobs
2 | inspect a.jsonl --old-token-logprobs old | give --token-logprobs and --old-token-logprobs
2 | inspect a.jsonl --mask mask | --mask has no effect alone; add --per-token, --kl-from or --token-logprobs
1 | inspect a.jsonl --token-logprobs new --old-token-logprobs absent | no column 'absent'
1 | inspect a.jsonl --token-logprobs new --old-token-logprobs step | step is 0, expected a list of numbers
2 | inspect a.jsonl --token-logprobs new --old-token-logprobs old --format md | the table of groups has no log-probs; add --by COL
2 | inspect a.jsonl --token-logprobs new --old-token-logprobs old --fail-on 'entropy > 0' | entropy: this run has no off_policy.all.entropy; add --token-entropy COL
2 | export a.jsonl --to weights -o - --ratio-cap 2 | add --token-logprobs and --old-token-logprobs
2 | export a.jsonl --to weights -o - --token-logprobs new --old-token-logprobs old | add --ratio-cap
2 | export a.jsonl --to weights -o - --token-logprobs new --old-token-logprobs old --ratio-cap 0 | --ratio-cap cannot be 0
"""


@pytest.mark.parametrize("case", REFUSED.splitlines())
def test_what_does_not_fit_is_said(case: str) -> None:
    status, line, said = case.split(" | ")
    done = adv(line)
    assert done.status == int(status)
    assert said in done.err


@pytest.mark.parametrize("options", ["--rows 'failed is null'", "--left-out-column failed"])
def test_rows_that_are_left_out_are_not_counted_whatever_their_lists_are(options: str) -> None:
    broken = '{"prompt_id": 0, "step": 0, "reward": 0.0, "policy_version": 0, "new": [NaN], "old": [-1.0], "failed": "oom"}\n'
    Path("a.jsonl").write_text(LINES.replace("}", ', "failed": null}') + broken)
    facts = found(options)
    assert facts["all"]["rows"] == 7
    assert facts["all"]["tokens"] == 13
    assert facts["all"]["k3"] == pytest.approx(drift(ROWS)["k3"], rel=1e-12)
    assert facts["missing"] == 0


@pytest.mark.parametrize("gate", ["k3 > 1", "ratio_mean > 2", "token_ess <= 1"])
def test_a_gate_sees_a_divergence_beyond_all_numbers(gate: str) -> None:
    Path("a.jsonl").write_text(LINES.replace('"old": [-', '"old": [-2000'))
    assert adv(f"inspect a.jsonl {NEW} -q --fail-on", gate).status == 3


def dumped(generated: str) -> Any:
    """The facts of a dump of NeMo-RL, whose last row has these log-probs of the generation."""
    row = (
        '{"content": ["text"], "rewards": [REWARD], "input_lengths": [5], "token_ids": [[1, 2]], "token_loss_mask": [[0, 1]],'
        ' "sample_loss_mask": [1.0], "advantages": [[0.0, 0.5]], "generation_logprobs": [[0.0, -1.0]],'
        ' "prev_logprobs": [[-9.0, -0.5]], "idx": 0}\n'
    )
    wins = row.replace("REWARD", "1.0")
    loses = row.replace("REWARD", "0.0")
    last = loses.replace("[[0.0, -1.0]]", generated)
    Path("train_data_step5.jsonl").write_text(wins + loses + wins + last)
    return facts_of("inspect train_data_step5.jsonl --group-size 4")


@pytest.mark.parametrize("generated", ["[[0.0, NaN]]", "[[0.0]]"])
def test_lists_that_nobody_asked_for_do_not_stop_an_inspection(generated: str) -> None:
    facts = dumped(generated)
    assert "off_policy" not in facts
    assert "how far off-policy the rows are is not known" in " ".join(facts["warnings"])


def test_a_schema_names_the_columns() -> None:
    facts = dumped("[[0.0, -1.0]]")["off_policy"]
    assert facts["columns"]["mask"] == "token_loss_mask"
    assert facts["all"]["tokens"] == 4
    assert facts["all"]["k1"] == -0.5


def test_log_probs_that_were_not_computed_are_zeros() -> None:
    text = '{"prompt_id": 0, "reward": 0, "new": [0, 0], "old": [-1, -2]}\n{"prompt_id": 0, "reward": 1, "new": [0], "old": [-1]}\n'
    Path("a.jsonl").write_text(text)
    assert "no row has log-probs other than 0 in new" in adv(f"inspect a.jsonl {NEW}").err


def test_a_weight_is_multiplied_by_the_truncated_ratio_of_its_row_if_there_is_one() -> None:
    Path("a.jsonl").write_text(LINES.replace("}", ', "prompt": "q", "completion": "a"}'))
    command = "export a.jsonl --to weights -o -"
    plain = [row["weight"] for row in ran(command).rows]
    del plain[3]  # it has no log-probs
    capped = ran(f"{command} --ratio-cap 1.5 {NEW}")
    assert "1 row: no log-probs" in capped.err
    ratios = [row["ratio"] for row in capped.rows]
    assert ratios[0] == pytest.approx((1 + 1.5) / 2, rel=1e-12)
    assert ratios[1] == pytest.approx((math.exp(0.25) + math.exp(-1.5) + 1) / 3, rel=1e-12)
    weights = [row["weight"] for row in capped.rows]
    assert weights == pytest.approx(np.multiply(plain, ratios), rel=1e-12)
    none = adv(f"export a.jsonl --to weights -o b.jsonl --ratio-cap 2 {NEW} --where 'mean > 99'")
    assert (none.status, Path("b.jsonl").exists()) == (1, False)
    assert "no record for weights is left" in none.err
