"""What a log can show: three groups, two values or zeros claim nothing."""

from __future__ import annotations

from tests.unit.guests.audit.logs import GROUPS, STANDARD, centred, found, match_of, rows, said, solved


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


def test_zeros_show_nothing() -> None:
    text = said(rows(GROUPS, 0 * GROUPS))
    assert "nothing nothing to tell" in text
    assert "cause" not in text
