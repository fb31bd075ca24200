"""A claim is checked on every row, and the fields in which it differs are named."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import adv
from tests.unit.guests.audit.logs import GROUPS, KEY, MIXED, STANDARD, centred, found, rows, said, standard


def test_a_claim_is_checked_and_its_difference_named() -> None:
    of_population = rows(GROUPS, standard(GROUPS, ddof=0))
    claim = found(of_population, preset="trl-grpo")["claim"]
    assert claim["mismatched_rows"] > 300
    assert claim["differs"] == {"divisor.ddof": {"claimed": 1, "logged": 0}}
    facts = found(rows(GROUPS, STANDARD), preset="verl-grpo")
    assert facts["match"]["preset_names"][0] == "trl-grpo"
    assert facts["claim"]["differs"] == {"divisor.epsilon": {"claimed": 1e-6, "logged": 1e-4}}


@pytest.mark.parametrize("name", ["verl-grpo", "skyrl-grpo"])
def test_what_was_claimed_leads_the_presets_that_are_the_same(name: str) -> None:
    facts = found(rows(GROUPS, standard(GROUPS, 1e-6)), preset=name)
    assert facts["match"]["preset_names"][0] == name
    assert facts["claim"]["mismatched_rows"] == 0


def test_a_formula_that_is_claimed_is_named_by_its_text() -> None:
    frame = rows(GROUPS, standard(GROUPS, 1e-6))
    right = said(frame, "--expr '(reward - mean) / (std + 1e-6)'")
    assert "matches --expr '(reward - mean) / (std + 1e-6)':" in right
    assert "params.sql: logged none, claimed reward - mean" in said(frame, "--expr 'reward - mean'")
    assert "expression" not in right


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
