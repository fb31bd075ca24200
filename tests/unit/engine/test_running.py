"""Facts of groups, rows and parts: what is computed where changes no bit of what comes out."""

from __future__ import annotations

import math
import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.engine.compile import RESULTS, Scored, compile_plan, run, score
from grpo_cli.engine.estimators.terms import Program
from grpo_cli.engine.group_stats import NARROW, NEAR, OF_GROUPS, OF_ROWS, Layout, Segments, base_quantities
from grpo_cli.engine.plan import Plan
from tests.support.jobs import frame

if TYPE_CHECKING:
    from collections.abc import Sequence

REWARDS = st.sampled_from([0.0, -0.0, 1.0, 0.1, -2.5, 1e9, math.nan, math.inf, None])
ROWS = st.lists(st.tuples(st.integers(0, 5), REWARDS), min_size=1, max_size=40)


def table(rows: Sequence[tuple[int, float | None]], batches: Sequence[int] | None = None) -> pl.DataFrame:
    """A narrow table; groups get codes in order of first appearance."""
    numbers: dict[int, int] = {}
    codes = [numbers.setdefault(group, len(numbers)) for group, _ in rows]
    batch = [0] * len(rows) if batches is None else [batches[code] for code in codes]
    keys = {"group": codes, "batch": batch}
    return pl.DataFrame(keys, schema=dict.fromkeys(keys, pl.UInt32)).with_columns(
        pl.Series("reward.0", [reward for _, reward in rows], dtype=pl.Float64)
    )


def bits(scored: Scored) -> list[tuple[Any, ...]]:
    """Every answer of every row, numbers by their bits."""
    found = scored.frame.select(RESULTS).with_columns(pl.col(".status").cast(pl.String))
    return [tuple(struct.pack("d", x) if isinstance(x, float) else x for x in row) for row in found.rows()]


# --- parts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"estimator.name": "rloo", "rewards.missing": "zero"},
        {"divisor.of": "residual", "rewards.missing": "propagate"},
        {"groups.zero_variance": "drop", "alone.result": "null"},
        {"groups.min_size": 2, "groups.small": "zero", "rewards.missing": "as-zero"},
    ],
)
@given(rows=ROWS, size=st.integers(1, 9))
@example(rows=[(0, 0.0)] * 10 + [(1, 0.0)] * 8 + [(1, -0.0)], size=1)
def test_a_table_in_parts_has_the_bits_of_the_whole(
    settings: dict[str, Any], rows: list[tuple[int, float | None]], size: int
) -> None:
    plan = Plan.of({"rewards.missing": "exclude", **settings})
    together = table(sorted(rows, key=lambda row: row[0]))
    whole = score(plan, together)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("grpo_cli.engine.compile.PART", size)
        parts = score(plan, together)
    assert bits(parts) == bits(whole)
    assert parts.heads.equals(whole.heads)


@given(rows=ROWS)
def test_groups_whose_rows_are_apart_have_the_numbers_of_groups_that_stand_together(
    rows: list[tuple[int, float | None]],
) -> None:
    plan = Plan.of({"rewards.missing": "exclude"})
    apart = table(rows)
    order = np.argsort(apart["group"].to_numpy(), kind="stable")
    assert bits(score(plan, apart[order])) == [bits(score(plan, apart))[at] for at in order]


@given(rows=ROWS, batches=st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_heads_say_where_a_group_starts_and_what_it_is(
    rows: list[tuple[int, float | None]], batches: list[int]
) -> None:
    data = table(rows, batches)
    scored = score(Plan.of({"rewards.missing": "exclude"}), data)
    codes = data["group"].to_list()
    first = [codes.index(code) for code in range(max(codes) + 1)]
    assert scored.heads["row"].to_list() == first
    assert scored.heads["size"].to_list() == [codes.count(code) for code in range(len(first))]
    for name in ("batch", ".status", ".kept"):
        assert scored.heads[name].to_list() == scored.rows[name].gather(first).to_list()


# --- facts ---------------------------------------------------------------------------------------------------

TABLE = table([(0, 1.0), (0, 3.0), (1, 5.0), (1, 6.0), (1, 7.0)])


def counted(seen: list[int], value: pl.Expr) -> pl.Expr:
    """The value, with a note of how many rows it was computed on."""

    def noted(series: pl.Series) -> pl.Series:
        seen.append(len(series))
        return series

    return value.map_batches(noted, return_dtype=pl.Float64)


def test_a_fact_is_computed_once_a_group_and_read_on_every_row() -> None:
    program, seen = Program(), list[int]()
    n = program.base("reward.0", ".")["n"]
    fact = program.fact(counted(seen, n * 10))
    program.let(fact + pl.col("reward.0"), "answer")
    (found,) = run(program, [TABLE], 1, {"answer"})
    assert found["answer"].to_list() == [21.0, 23.0, 35.0, 36.0, 37.0]
    assert seen == [2]


def test_a_fact_that_reads_rows_is_computed_on_rows() -> None:
    program, seen = Program(), list[int]()
    distance = program.base("reward.0", ".")["d"]
    program.fact(counted(seen, distance), "answer")
    (found,) = run(program, [TABLE], 1, {"answer"})
    assert found["answer"].to_list() == [0.0, 2.0, 0.0, 1.0, 2.0]
    assert seen == [5]


def test_what_reads_a_name_before_it_is_made_anew_reads_the_old_one() -> None:
    program = Program()
    n = program.base("reward.0", ".")["n"]
    program.fact(n, "x")
    program.let(pl.col("x") + pl.col("reward.0"), "before")
    program.fact(n * 100, "x")
    program.let(pl.col("x") + pl.col("reward.0"), "after")
    (found,) = run(program, [TABLE], 1, {"before", "after", "x"})
    assert found["before"].to_list() == [3.0, 5.0, 8.0, 9.0, 10.0]
    assert found["after"].to_list() == [201.0, 203.0, 305.0, 306.0, 307.0]
    assert found["x"].to_list() == [200.0, 200.0, 300.0, 300.0, 300.0]


@pytest.mark.parametrize(("batches", "wanted"), [([0, 0], [6.4] * 5), ([0, 1], [4.0, 4.0, 8.0, 8.0, 8.0])])
def test_facts_of_a_batch_are_read_by_groups_and_rows(batches: list[int], wanted: list[float]) -> None:
    program = Program()
    n = program.base("reward.0", ".")["n"]
    mean = program.batch(pl.col("reward.0")).mean
    program.let(program.fact(mean + n - n) + program.fact(mean - mean + 2.0), "answer")
    data = TABLE.with_columns(batch=pl.Series([batches[code] for code in TABLE["group"]], dtype=pl.UInt32))
    parts = [data[:2], data[2:]]
    found = pl.concat(run(program, parts, max(batches) + 1, {"answer"}))
    assert found["answer"].to_list() == pytest.approx(wanted)
    assert found.columns == ["answer"]


def test_workings_hold_every_column_on_every_row() -> None:
    plan = Plan.of({})
    scored = score(plan, TABLE, workings=True)
    program = compile_plan(plan, 1, frozenset(TABLE.columns))
    assert {*program.names} <= {*scored.rows.columns}
    assert scored.rows[".n"].to_list() == [2.0, 2.0, 3.0, 3.0, 3.0]


@pytest.mark.parametrize("method", ["reinforce", "grpo", "rloo"])
def test_no_row_gets_minus_zero(method: str) -> None:
    data = frame([-0.0, 0.0, -1.0, -1.0, -0.0], ["a", "a", "b", "b", "c"])
    found = grpo_cli.advantages(data, method=method, scale="none")
    assert [math.copysign(1.0, x) for x in found if x == 0] == [1.0] * sum(x == 0 for x in found)


def _or_sorted(codes: list[int]) -> st.SearchStrategy[list[int]]:
    return st.sampled_from([codes, sorted(codes)])


# --- layouts -------------------------------------------------------------------------------------------------


@given(codes=st.lists(st.sampled_from([0, 1, 2, 3, 7]), min_size=1, max_size=30).flatmap(_or_sorted))
def test_a_layout_puts_groups_together_and_back(codes: list[int]) -> None:
    layout = Layout.of(np.array(codes, np.uint32))
    groups = sorted({*codes})
    places = np.arange(len(codes))
    assert layout.codes.tolist() == groups
    assert layout.first.tolist() == [codes.index(code) for code in groups]
    assert layout.together(places).tolist() == sorted(places, key=lambda at: codes[at])
    assert layout.back(layout.together(places)).tolist() == places.tolist()
    assert [groups[at] for at in layout.of_row] == codes
    facts = np.array([code * 0.5 for code in groups])
    assert layout.spread(facts).tolist() == [code * 0.5 for code in codes]


@pytest.mark.parametrize("width", [1, 2, 7, NARROW, NARROW + 1, None])
def test_extremes_and_sums_of_runs_are_those_of_numpy(width: int | None) -> None:
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 9, 700) if width is None else np.full(NEAR // width + 3, width)
    ends = np.cumsum(sizes)
    segments = Segments(ends - sizes, sizes)
    values = rng.choice([0.1, 0.7, -3.0, 1e9], int(ends[-1]))
    values[5] = math.nan
    parts = [values[start:end] for start, end in pairwise([0, *ends.tolist()])]
    assert segments.width == width
    assert np.array_equal(segments.least(values), [part.min() for part in parts], equal_nan=True)
    assert np.array_equal(segments.most(values), [part.max() for part in parts], equal_nan=True)
    assert np.array_equal(segments.spread(segments.starts), np.repeat(segments.starts, sizes))
    memory = np.empty(len(values))
    assert segments.spread(ends.astype(float), memory) is memory


@given(rows=ROWS)
def test_quantities_that_nobody_reads_change_none_of_the_others(rows: list[tuple[int, float | None]]) -> None:
    data = table(rows)
    layout = Layout.of(data["group"].to_numpy())
    reward = data["reward.0"].fill_nan(None)
    facts, distances = base_quantities(layout, reward)
    assert [one.name for one in facts] == [*OF_GROUPS]
    for name, distance in zip(OF_ROWS, distances, strict=True):
        less, (only,) = base_quantities(layout, reward, [name])
        assert only.equals(distance)
        assert all(one.equals(other) for one, other in zip(less, facts, strict=True))
