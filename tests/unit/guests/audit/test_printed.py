"""What is printed gives the log: the options of the formula that is named, and of each that fits as well, are run."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import grpo_cli
from tests.support.command import adv
from tests.support.jobs import write
from tests.support.printed import not_reproduced
from tests.unit.guests.audit.test_readings import float16, standard
from tests.unit.guests.audit.test_solve import bfloat16

DRAW = np.random.default_rng(3)
GROUPS = DRAW.random((40, 8)).round(3)
BINARY = DRAW.binomial(1, DRAW.uniform(0.1, 0.9, (40, 1)), (40, 8)).astype(float)
LENGTHS = DRAW.integers(20, 900, (40, 8)).astype(float)


def centred(groups: Any) -> Any:
    return groups - groups.mean(axis=1, keepdims=True)


def by_tokens(values: Any) -> Any:
    mean = (values * LENGTHS).sum() / LENGTHS.sum()
    variance = ((values - mean) ** 2 * LENGTHS).sum() / (LENGTHS.sum() - 1)
    return (values - mean) / np.sqrt(variance + 1e-8)


def deviation(groups: Any) -> Any:
    return np.abs(centred(groups)).mean(axis=1, keepdims=True)


def frame_of(groups: Any, logged: Any, **columns: Any) -> pl.DataFrame:
    keys = [f"p{row // groups.shape[1]}" for row in range(groups.size)]
    named = {"prompt_id": keys, "reward": groups.ravel(), "advantage": logged.ravel().astype(float)}
    return pl.DataFrame({**named, **columns})


LOGS = {
    "group": frame_of(GROUPS, standard(GROUPS)),
    "group, ddof 0, an epsilon of its own": frame_of(GROUPS, standard(GROUPS, 0.037, 0)),
    "mean absolute deviation": frame_of(GROUPS, centred(GROUPS) / (deviation(GROUPS) + 1e-6)),
    "mean absolute deviation of zeros and ones, rounded": frame_of(
        BINARY, np.round(centred(BINARY) / np.maximum(deviation(BINARY), 1e-6), 3)
    ),
    "under the root": frame_of(GROUPS, centred(GROUPS) / np.sqrt(GROUPS.var(axis=1, ddof=1, keepdims=True) + 1e-5)),
    "residuals of the batch": frame_of(GROUPS, centred(GROUPS) / (centred(GROUPS).std(ddof=1) + 1e-6)),
    "whitened by tokens": frame_of(GROUPS, by_tokens(centred(GROUPS)), completion_length=LENGTHS.ravel()),
    "whitened with an epsilon": frame_of(
        GROUPS, centred(GROUPS) * 8 / 7 / ((centred(GROUPS) * 8 / 7).std(ddof=1) + 1e-4)
    ),
    "clipped": frame_of(GROUPS, centred(GROUPS).clip(-0.3, 0.25)),
    "three times": frame_of(GROUPS, 3 * centred(GROUPS)),
    "zeros and ones in float16": frame_of(BINARY, float16(standard(np.clip(BINARY + 0.0, 0, 1)))),
    "zeros and ones in bfloat16": frame_of(BINARY, bfloat16(standard(BINARY, 1e-6))),
    "two decimals of a batch": frame_of(BINARY, np.round(centred(BINARY) / (BINARY.std(ddof=1) + 1e-4), 2)),
    "two rewards": frame_of(GROUPS, standard(GROUPS + 0.2 * BINARY), other=BINARY.ravel()),
}
READ: dict[str, dict[str, Any]] = {"two rewards": {"reward": ["reward", "other"]}}


@pytest.mark.parametrize("name", LOGS)
def test_every_formula_that_is_said_to_fit_gives_the_log_if_it_is_run(name: str) -> None:
    frame, read = LOGS[name], READ.get(name, {})
    facts = grpo_cli.audit(frame, **read)
    assert facts["match"]["verdict"] == "match"
    assert facts["match"]["read_as"] in {"float64", "float32", "float16", "bfloat16", "3 decimals", "2 decimals"}
    assert not_reproduced(frame, facts, **{key: value for key, value in read.items() if key != "reward"}) == []


def test_batches_and_groups_of_a_step_are_among_the_options() -> None:
    steps = np.repeat(np.arange(4), 80)
    parts = [centred(part) / (part.std(ddof=1) + 1e-4) for part in np.split(GROUPS, 4)]
    frame = frame_of(GROUPS, np.vstack(parts), step=steps).with_columns(
        prompt_id=pl.Series([f"p{row // 8 % 10}" for row in range(320)])
    )
    facts = grpo_cli.audit(frame)
    assert facts["match"]["flags"].endswith("--scale batch --epsilon 0.0001 --group-within step --batch-by step")
    assert not_reproduced(frame, facts) == []


@pytest.mark.parametrize("treated", ["vote", "exclude"])
def test_how_masked_rows_were_treated_is_among_the_options(treated: Any) -> None:
    masked = DRAW.random(320) < 0.2
    frame = frame_of(GROUPS, GROUPS, is_masked=masked)
    given = grpo_cli.advantages(frame, epsilon=1e-4, masked_column="is_masked", masked_rows=treated)
    frame = frame.with_columns(advantage=given)
    facts = grpo_cli.audit(frame, masked_column="is_masked")
    assert f"--masked-rows {treated}" in facts["match"]["flags"]
    assert not_reproduced(frame, facts, masked_column="is_masked") == []


def test_options_that_the_first_line_does_not_say_have_a_line_of_their_own() -> None:
    write("a.jsonl", LOGS["mean absolute deviation"].to_dicts())
    text = " ".join(adv("audit a.jsonl").out.split())
    assert "computed by --method grpo --set divisor.measure=mad" in text
    assert "scale group, mean absolute deviation, epsilon" in text
    write("b.jsonl", LOGS["group"].to_dicts())
    assert "computed by" not in adv("audit b.jsonl").out


def test_the_helper_sees_options_that_give_other_numbers() -> None:
    frame = LOGS["mean absolute deviation"]
    facts = grpo_cli.audit(frame)
    without = {**facts["match"], "flags": "--method grpo"}
    (wrong,) = not_reproduced(frame, {**facts, "match": without, "ties": []})
    assert wrong.startswith("1 x --method grpo: ")
