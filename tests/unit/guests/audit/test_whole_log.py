"""What is the matter with a whole log: it was shifted, shuffled or cut, or lengths were penalised."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import adv
from tests.support.drawn import some
from tests.support.jobs import write
from tests.unit.guests.audit.logs import (
    GROUPS,
    KEY,
    MIXED,
    STANDARD,
    Groups,
    causes,
    centred,
    found,
    mean,
    rows,
    said,
    standard,
)


def test_shifted_advantages_of_rewards_that_the_length_shapes_are_the_headline() -> None:
    length = 30 + 7 * np.arange(320) % 20
    penalized = GROUPS - np.maximum(0, (length.reshape(40, 8) - 35) / 5)
    moved = np.roll(standard(penalized).ravel(), 1).reshape(40, 8)
    frame = rows(GROUPS, moved, length=length)
    text = said(frame, "--overlong 40:5:1 --group prompt_id")
    assert "no match shifted by 1 row: every row has the advantage that trl-grpo gives 1 row further up" in text


@pytest.mark.parametrize(("kind", "by"), some(product(["decimals", "zeros and ones"], [1, -1, 8]), 2))
def test_advantages_of_other_rows_are_the_headline(kind: str, by: int) -> None:
    groups, logged = (GROUPS, STANDARD) if kind == "decimals" else (MIXED, centred(MIXED))
    moved = np.roll(logged.ravel(), by)
    facts = found(rows(groups, moved.reshape(-1, 8)))
    (cause,) = causes(facts)
    assert cause.startswith("shift: ")
    assert facts["headline"].startswith(f"shifted by {abs(by)} row")


@pytest.mark.parametrize(
    ("kind", "moved"), some(product(["decimals", "zeros and ones", "rounded"], ["by 3", "by chance"]), 2)
)
def test_advantages_that_were_shuffled_within_their_groups_are_the_headline(kind: str, moved: str) -> None:
    groups = MIXED if kind == "zeros and ones" else GROUPS
    exact = standard(groups)
    logged = np.round(exact, 3) if kind == "rounded" else exact
    by_chance = np.random.default_rng(4).permuted(logged, axis=1)
    facts = found(rows(groups, np.roll(logged, 3, axis=1) if moved == "by 3" else by_chance, np.float64))
    assert facts["headline"] == (
        "shuffled within groups: each group has the advantages that trl-grpo gives it, on other rows"
    )
    assert causes(facts) == [f"order: {len(groups)}, {groups.size}"]


def test_a_shuffle_over_all_groups_is_none_within_them() -> None:
    mixed = np.random.default_rng(4).permuted(STANDARD.ravel()).reshape(40, 8)
    assert found(rows(GROUPS, mixed), **KEY)["headline"] is None


@pytest.mark.parametrize("files", [5, 1])
def test_advantages_of_other_rows_of_each_step_are_the_headline(files: int, tmp_path: Path) -> None:
    """The trainer shifted its columns and wrote a file for each step: the first row of a step has the advantage of another step, or none."""
    moved = np.roll(STANDARD.reshape(5, 64), 1, axis=1).reshape(40, 8)
    frame = rows(GROUPS, moved, step=np.arange(320) // 64)
    for at, part in enumerate(frame.iter_slices(320 // files)):
        write(f"step_{at}.jsonl", part.to_dicts())
    text = " ".join(adv(f"audit {tmp_path}").out.split())
    assert "no match shifted by 1 row within each file or step: every row has the advantage that trl-grpo gives" in text


@pytest.mark.parametrize(("sizes", "made"), some(product([(4, 8), (6, 16)], [centred, standard]), 3))
def test_groups_that_were_cut_are_the_headline(sizes: tuple[int, int], made: Callable[[Groups], Groups]) -> None:
    kept, whole = sizes
    draw = np.random.default_rng(3)
    groups = draw.binomial(1, draw.random((60, 1)), (60, whole))
    logged = made(groups)
    facts = found(rows(groups[:, :kept], logged[:, :kept]), **KEY)
    assert facts["headline"].startswith(f"groups were cut to {kept} of {whole}: ")


@pytest.mark.parametrize("share", some([0.5, 0.25, 0.9], 3))
def test_another_baseline_of_the_rows_that_are_here_is_no_cut(share: float) -> None:
    groups = np.vstack([MIXED, MIXED[::-1]])
    frame = rows(groups, groups - share * mean(groups))
    assert found(frame, **KEY)["headline"] is None


def test_a_length_penalty_is_the_headline_and_a_length_that_goes_with_nothing_is_none() -> None:
    draw = np.random.default_rng(5)
    groups = np.vstack([MIXED] * 3)
    lengths = draw.integers(100, 2000, groups.shape).astype(float)
    penalised = centred(groups - lengths / 3000)
    facts = found(rows(groups, penalised, completion_length=lengths.ravel()))
    assert facts["headline"] == (
        "a length penalty: in all 6 groups of equal rewards that differ, the advantages fall with the length"
    )
    noise = centred(groups) + draw.random(groups.shape)
    assert found(rows(groups, noise, completion_length=lengths.ravel()), **KEY)["headline"] is None
