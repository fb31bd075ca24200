"""Plans that are computed together on a sample have the same numbers as separately."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import kept_advantages, score
from grpo_cli.guests.audit.baselines import starts_of
from grpo_cli.guests.audit.candidates import Candidate, Said, candidates
from grpo_cli.guests.audit.formulas import Formulas
from grpo_cli.guests.audit.trial import Log
from tests.support.drawn import some


def rewards(*, missing: bool, components: int, ordered: bool, least: int = 1) -> pl.DataFrame:
    """Groups of at most 9 rows in three batches, with what most methods read."""
    drawn = np.random.default_rng(components + 2 * missing + 4 * ordered)
    sizes = drawn.integers(least, 10, 15)
    codes = np.repeat(np.arange(15, dtype=np.uint32), sizes)
    rows = len(codes)
    columns = {f"reward.{k}": drawn.choice([0.0, 0.5, 1.0, 2.0], rows) for k in range(components)}
    if missing:
        columns["reward.0"][drawn.random(rows) < 0.1] = np.nan
    lengths = {name: drawn.integers(1, 50, rows).astype(np.float64) for name in ("length", "input_length", "turns")}
    table = pl.DataFrame({"group": codes, "batch": codes // 5, **columns, **lengths})
    if ordered:
        return table
    shuffled = table[drawn.permutation(rows)]  # codes are in order of first appearance
    first = {code: at for at, code in enumerate(shuffled["group"].unique(maintain_order=True))}
    return shuffled.with_columns(pl.col("group").replace_strict(first, return_dtype=pl.UInt32))


KINDS: list[dict[str, Any]] = [
    {"missing": False, "components": 1, "ordered": True, "least": 2},
    {"missing": True, "components": 1, "ordered": False},
    {"missing": False, "components": 2, "ordered": False},
]


def tried(kind: Any) -> list[Candidate]:
    """What is tried on these rewards, from another plan on for each kind."""
    first = KINDS.index(kind)
    every = candidates(Said(), ("length", "input_length", "turns"), kind["components"])
    return [*every[first:], *every[:first]]


@pytest.mark.parametrize("kind", KINDS)
def test_plans_that_are_computed_together_have_the_bits_of_each_alone(kind: Any) -> None:
    table = rewards(**kind)
    plans = [candidate.plan for candidate in tried(kind)]
    assert len(plans) > 200
    formulas = Formulas(table)
    together = some(plans, 9)
    formulas.compute(together)
    for plan in together:
        alone = kept_advantages(score(plan, table).frame)
        assert formulas.advantages(plan).tobytes() == np.asarray(alone).tobytes(), plan


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_division_of_a_plan_that_is_solved_for_is_the_one_of_the_engine(kind: Any) -> None:
    table = rewards(**kind)
    log = Log.of(table, np.zeros(len(table)))
    formulas = log.formulas
    divided = [(start, *member) for start in starts_of(some(tried(kind), 4), log) for member in start.members]
    formulas.compute(start.bare(rule) for start, _, rule in divided if rule is not None)
    formulas.compute([candidate.plan for _, candidate, _ in divided])
    for start, candidate, rule in divided:
        expected = formulas.advantages(candidate.plan)
        assert start.divided(candidate, rule) == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True), candidate


def test_the_spreads_of_rows_that_all_count_are_those_of_the_engine() -> None:
    table = rewards(**KINDS[0])
    log = Log.of(table, np.zeros(len(table)))
    starts = [*starts_of(tried(KINDS[0])[:30], log), *starts_of(tried(KINDS[0])[:30], log, "batch")]
    ruled = {(start, rule) for start in starts for _, rule in start.rules() if start.counts_every_row(rule)}
    assert {(type(rule).__name__, rule.level) for _, rule in ruled} == {
        ("Divisor", "group"), ("Divisor", "batch"), ("Whiten", "sample"), ("Whiten", "token"),
    }  # fmt: skip
    log.formulas.compute(start.bare(rule) for start, rule in ruled)
    for start, rule in ruled:
        values, spread = start.parts(rule)
        expected = log.formulas.advantages(start.bare(rule))
        assert values == pytest.approx(expected * spread, rel=1e-9, abs=1e-9), rule


@pytest.mark.parametrize(("roles", "claimed"), [((), []), (("length",), ["opo"])])
def test_nothing_is_claimed_where_the_plan_that_is_claimed_cannot_be_tried(
    roles: tuple[str, ...], claimed: list[str]
) -> None:
    said = Said(claim=Plan.of({"estimator.name": "opo"}))
    assert [one.plan.method for one in candidates(said, roles, 1) if one.claimed] == claimed
