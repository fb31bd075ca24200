"""Rows are grouped and batched as the trainer did, without a flag: by step, within a step, in blocks of a key."""

from __future__ import annotations

import json
import re
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.support.command import adv
from tests.support.drawn import some
from tests.support.jobs import write
from tests.unit.guests.audit.logs import GROUPS, STANDARD, centred, found, phases_of, rows, with_keys


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


@pytest.mark.parametrize(("unit", "same_keys"), some(product(["step", "input"], [False, True]), 3))
def test_rloo_over_a_whole_step_or_the_whole_input_is_found(unit: str, *, same_keys: bool) -> None:
    size = 64 if unit == "step" else 320
    logged = centred(GROUPS.reshape(-1, size)) * size / (size - 1)
    frame = rows(GROUPS, logged.reshape(40, 8), step=np.arange(320) // 64)
    facts = found(with_keys(frame, lambda k: k % 8) if same_keys else frame)
    assert facts["match"]["verdict"] == "match"
    assert facts["match"]["name"] == "rloo --set estimator.baseline_level=batch"
    assert ("batches by step" in facts["notes"][-1]) == (unit == "step")


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
