"""How soon the command answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.support.command import adv
from tests.support.samples import samples_in

if TYPE_CHECKING:
    from pathlib import Path


# Processor seconds, so that other work on the machine does not count.
BARS = [(["--help"], 0.25), (["compute", "--help"], 0.4), (["compute", "rewards.jsonl", "--force", "-q"], 0.8)]


@pytest.mark.parametrize(
    ("arguments", "seconds"), BARS, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_the_command_answers_at_once(arguments: list[str], seconds: float, tmp_path: Path) -> None:
    samples_in(tmp_path)

    def once() -> float:
        started = time.process_time()
        adv(*arguments, cwd=tmp_path)
        return time.process_time() - started

    assert min(once() for _ in range(7)) < seconds
