"""Both ways of training on stored advantages run, with the released trainers and a small random model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.nightly.test_targets import decoded
from tests.support.command import adv, here
from tests.support.jobs import samples_in

__all__ = ["here"]


@pytest.fixture(autouse=True)
def samples() -> None:
    samples_in(Path())


@pytest.mark.parametrize("preset", ["trl-grpo", "verl-grpo"])
def test_trl_trains_on_exactly_the_stored_advantages(preset: str) -> None:
    assert not adv("select chats.jsonl --per-group 4 --pick random --where 'scored >= 4' -o fours.jsonl").status
    done = adv(f"export fours.jsonl --to groups --target trl --preset {preset} -o groups.jsonl")
    assert not done.status, done.err
    stored = {
        advantage
        for line in Path("groups.jsonl").read_text().splitlines()
        for advantage in json.loads(line)["advantages"]
    }
    logged = decoded("trl", "offline.py", "trl_grpo", Path("groups.jsonl"))
    assert len(logged) == 8
    for row in logged:
        assert min(abs(row["logged"] - one) for one in stored) < 1e-6


def test_a_policy_gradient_tells_good_from_bad_responses() -> None:
    assert not adv("export chats.jsonl --to groups --form turns --method rloo -o groups.jsonl").status
    (gap,) = decoded("trl", "offline.py", "policy_gradient", Path("groups.jsonl"))
    assert gap["after"] > gap["before"] + 0.05
