"""Groups and rows: the order of rows and the place of a computation change no bit of the results."""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.engine import column_stats, group_stats
from grpo_cli.engine.column_stats import PIECE
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.frames import FEW_ROWS, Frames
from grpo_cli.engine.group_stats import Segments, base_quantities, group_extremes, group_means
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.presets import presets
from grpo_cli.engine.score import OF_GROUPS, OF_ROWS, Scored, score
from tests.support.drawn import examples, some
from tests.support.jobs import frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_cli.engine.moments import Vector

REWARDS = st.sampled_from([0.0, -0.0, 1.0, 0.1, -2.5, 1e9, math.nan, math.inf, None])
ROWS = st.lists(st.tuples(st.integers(0, 5), REWARDS), min_size=1, max_size=40)


def table(rows: Sequence[tuple[int, float | None]]) -> pl.DataFrame:
    """A narrow table; groups get codes in order of first appearance."""
    groups, rewards = zip(*rows, strict=True)
    distinct = [*dict.fromkeys(groups)]
    codes = [distinct.index(group) for group in groups]
    types = {"group": pl.UInt32, "batch": pl.UInt32, "reward.0": pl.Float64}
    return pl.DataFrame([codes, [0] * len(codes), rewards], schema=types)


def bits(scored: Scored) -> list[tuple[Any, ...]]:
    """Every answer of every row, numbers by their bits."""
    found = scored.frame.select(*OF_ROWS, *OF_GROUPS).cast({".status": pl.String})
    return [tuple(struct.pack("d", x) if isinstance(x, float) else x for x in row) for row in found.rows()]


# --- layouts -------------------------------------------------------------------------------------------------

# All methods whose advantages depend on nothing outside the group.
ALONE = [
    name for name, row in ESTIMATORS.items() if row.order_free and not Plan.of({"estimator.name": name}).uses_batch
]


@cache
def full(size: int, groups: int) -> pl.DataFrame:
    """A narrow table with all roles, rewards of many digits, and groups of several sizes, one after the other."""
    rng = np.random.default_rng(3)
    drawn = np.sort(rng.integers(0, groups, size))
    _, codes = np.unique(drawn, return_inverse=True)
    is_long = rng.random(size) < 0.5
    reward = np.where(is_long, rng.normal(size=size), rng.integers(0, 2, size))
    columns: dict[str, Any] = {"group": codes.astype(np.uint32), "batch": np.zeros(size, np.uint32)}
    columns["reward.0"] = reward
    columns["row"] = np.arange(size)
    for name in ("length", "input_length", "turns", "baseline"):
        columns[name] = rng.integers(1, 90, size).astype(float)
    columns["logprob"] = -rng.random(size)
    columns["references"] = rng.random((size, 2)).tolist()
    return pl.DataFrame(columns)


def advantages_by_row(plan: Plan, parts: Sequence[pl.DataFrame], piece: int = PIECE) -> bytes:
    """The bits of all advantages and of the facts of their groups, in the order of `row`, computed in pieces."""
    found = []
    for part in parts:
        codes = part["group"].cast(pl.String).cast(pl.Categorical(pl.Categories.random())).to_physical()
        numbered = part.with_columns(group=codes.cast(pl.UInt32))  # in order of first appearance, as the reading does
        needed = numbered.drop({"length", "baseline", "logprob", "references"} - {*plan.needs})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(column_stats, "PIECE", piece)
            scored = score(plan, needed).frame
        found.append(scored.select("row", ".advantage", ".mean", ".std"))
    return pl.concat(found).sort("row").drop("row").to_numpy().tobytes()


# Each plan once: several presets may be one.
PLANS = {repr(plan): plan for plan in (preset.plan for preset in presets().values() if not preset.refused)}
OF_FULL = {"length", "input_length", "turns", "baseline", "logprob", "references"}


# Not those of a batch, which has other rows here, or of columns that are not there.
OF_GROUPS_ALONE = [plan for plan in some(PLANS.values(), 3) if not plan.uses_batch and {*plan.needs} <= OF_FULL]
OF_GROUPS_ALONE += [Plan.of({"estimator.name": name}) for name in ALONE]


@pytest.mark.parametrize("plan", OF_GROUPS_ALONE, ids=lambda plan: plan.method)
def test_few_rows_which_take_fewer_steps_have_the_bits_of_many(plan: Plan) -> None:
    together = full(FEW_ROWS + 1000, 700)
    if plan.estimator.sets.get("shape.binary.threshold") is not None:
        together = together.with_columns(pl.col("reward.0").round())
    halves = together.with_columns(half=pl.col("group") // 350)
    parts = halves.partition_by("half", include_key=False)
    assert max(map(len, parts)) <= FEW_ROWS
    assert advantages_by_row(plan, parts) == advantages_by_row(plan, [together])


@pytest.mark.parametrize("method", ALONE)
def test_rows_in_any_order_parts_and_pieces_have_the_same_bits(method: str) -> None:
    plan = Plan.of({"estimator.name": method})
    together = full(1500, 60)
    if ESTIMATORS[method].sets.get("shape.binary.threshold") is not None:
        together = together.with_columns(pl.col("reward.0").round())
    wanted = advantages_by_row(plan, [together])
    rng = np.random.default_rng(4)
    codes = together["group"].to_numpy()
    groups = rng.permutation(together["group"].n_unique())
    permuted = together[np.argsort(groups[codes], kind="stable")]
    place = together.select(pl.int_range(pl.len()).over("group")).to_series()
    interleaved = together[np.argsort(place.to_numpy(), kind="stable")]
    places = np.argsort(rng.permutation(codes), kind="stable")
    mixed = together[np.argsort(places)]  # in no order, the rows of a group in theirs
    for layout in (permuted, interleaved, mixed):
        assert advantages_by_row(plan, [layout]) == wanted
    tens = together.with_columns(tens=pl.col("group") // 10)
    assert advantages_by_row(plan, tens.partition_by("tens", include_key=False)) == wanted
    odd = together.with_columns(odd=pl.col("group") % 2)
    assert advantages_by_row(plan, odd.partition_by("odd", include_key=False)) == wanted
    assert advantages_by_row(plan, [interleaved], 97) == wanted
    assert advantages_by_row(plan, [together], 97) == wanted


SETTINGS = """
rewards.missing=exclude
rewards.missing=zero estimator.name=rloo
rewards.missing=propagate divisor.of=residual
rewards.missing=exclude groups.zero_variance=drop alone.result=null
rewards.missing=as-zero groups.min_size=2 groups.small=zero
"""


@pytest.mark.parametrize("settings", SETTINGS.strip().splitlines())
@given(rows=ROWS)
@examples(8)
@example(rows=[(0, 0.0)] * 10 + [(1, 0.0)] * 8 + [(1, -0.0)])
def test_groups_with_scattered_rows_have_the_bits_of_contiguous_groups(
    settings: str, rows: list[tuple[int, float | None]]
) -> None:
    plan = Plan.of(dict(setting.split("=") for setting in settings.split()))
    apart = table(rows)
    order = np.argsort(apart["group"].to_numpy(), kind="stable")
    scattered = bits(score(plan, apart))
    together = bits(score(plan, apart[order]))
    assert together == [scattered[at] for at in order]


SIZES = ["2 " * 300, "8 " * 90, "500 " * 3, "3001 " * 2, "5000", "4 " * 50 + "3 " + "4 " * 50, "1 " * 400, "16 " * 17]


@pytest.mark.parametrize("rows", SIZES, ids=len)
@pytest.mark.parametrize("piece", [256, 1 << 17])
def test_contiguous_groups_of_one_size_have_the_bits_of_a_plain_loop(
    rows: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_stats, "PIECE", piece)
    monkeypatch.setattr(group_stats, "PIECE", piece)
    sizes = np.array(rows.split(), np.int64)
    rng = np.random.default_rng(len(sizes))
    codes = np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)
    many = len(codes)
    rewards = rng.standard_normal(many) * 10.0 ** rng.integers(-8, 9, many)
    rewards[rng.random(many) < 0.01] = -0.0
    rewards[: many // 9 : 29] = math.nan
    chunks = pl.Series(rewards[:77]).append(pl.Series(rewards[77:]))
    found = base_quantities(codes, chunks, sizes)
    lines = np.column_stack([found[name] for name in ("min", "max", "mean_d", "squares")])
    low, high = group_extremes(codes, rewards, len(sizes))
    means = group_means(codes, rewards, len(sizes))
    for code, line in enumerate(lines):
        wanted = plain_quantities(rewards[codes == code].tolist())
        assert line.tobytes() == np.array(wanted).tobytes()
        least, most, away, _ = wanted
        shown = [low[code], high[code], means[code]]
        assert np.array_equal(shown, [least, most, least + away], equal_nan=True)


def plain_quantities(rewards: list[float]) -> list[float]:
    """Least, most, mean distance from the least and squares around it, each added up one by one."""
    if any(map(math.isnan, rewards)):
        return [math.nan] * 4
    least = min(rewards) + 0.0
    total = 0.0
    squares = 0.0
    for reward in rewards:
        total += reward - least
    mean = total / len(rewards)
    for reward in rewards:
        away = (reward - least) - mean
        squares += away * away  # a power may have another last digit
    return [least, max(rewards) + 0.0, mean, squares]


# --- frames --------------------------------------------------------------------------------------------------

TABLE = table([(0, 1.0), (0, 3.0), (1, 5.0), (1, 6.0), (1, 7.0)])
REWARD = pl.col("reward.0")


def test_what_reads_facts_alone_is_computed_once_a_group_and_read_on_every_row() -> None:
    made = Frames(TABLE)
    n = made.base(REWARD, ".")["n"]
    fact = made.let(n * 10, "fact")
    made.let(fact + REWARD, "answer")
    assert made.groups["fact"].to_list() == [20.0, 30.0]
    assert made.select(["answer"])["answer"].to_list() == [21.0, 23.0, 35.0, 36.0, 37.0]
    assert made.select(["fact"])["fact"].to_list() == [20.0, 20.0, 30.0, 30.0, 30.0]


def test_a_scan_sees_the_rows_that_have_a_value_group_by_group() -> None:
    seen = list[list[float]]()

    def noted(segments: Segments, values: Vector) -> Vector:
        seen.append(values.tolist())
        return values - values[segments.starts].repeat(segments.sizes)

    data = table([(0, 1.0), (1, 5.0), (0, None), (1, 7.0), (0, 4.0)])
    made = Frames(data)
    name = made.scan(noted, "group", REWARD).meta.output_name()
    assert made.select([name])[name].to_list() == [0.0, 0.0, None, 2.0, 3.0]
    assert seen == [[1.0, 4.0, 5.0, 7.0]]


def means_of_batches(*batches: int) -> list[float]:
    made = Frames(TABLE.with_columns(batch=pl.Series(batches, dtype=pl.UInt32)))
    made.let(made.batch(REWARD).mean + 0 * REWARD, "answer")
    return made.select(["answer"])["answer"].round(9).to_list()


def test_moments_of_a_batch_are_read_on_its_rows_even_where_a_group_spans_batches() -> None:
    assert means_of_batches(0, 0, 0, 0, 0) == [4.4] * 5
    assert means_of_batches(0, 0, 1, 1, 1) == [2, 2, 6, 6, 6]
    assert means_of_batches(0, 1, 0, 0, 1) == [4, 5, 4, 4, 5]


def test_workings_hold_every_column_on_every_row() -> None:
    scored = score(Plan.of({}), TABLE, intermediate=True)
    assert {".reward.residual", ".reward.divisor", ".reward.scaled", ".centred"} <= {*scored.rows.columns}
    assert scored.rows[".n"].to_list() == [2.0, 2.0, 3.0, 3.0, 3.0]


@pytest.mark.parametrize("method", ["reinforce", "grpo", "rloo"])
def test_no_row_gets_minus_zero(method: str) -> None:
    data = frame([-0.0, 0.0, -1.0, -1.0, -0.0], [*"aabbc"])
    found = grpo_cli.advantages(data, method=method, scale="none")
    assert "-0.0" not in str(found.to_list())
