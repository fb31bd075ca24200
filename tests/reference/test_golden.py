"""Every case of the golden tables gives, by its command, the numbers of the framework's own code."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from grpo_cli.engine.presets import presets
from tests.support.goldens import cases, commands, differences, in_memory, runs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def directory() -> Iterator[Path]:
    made = in_memory()
    yield made
    shutil.rmtree(made)


def test_every_case_has_a_command_or_the_reason_why_it_has_none() -> None:
    told = commands()["case"]
    assert {*told} == {*cases()}
    for case, one in told.items():
        assert ("args" in one) != ("refused" in one), case


@pytest.mark.parametrize("case", [case for case, one in commands()["case"].items() if "args" in one])
def test_a_case_gives_the_numbers_of_the_framework(case: str, directory: Path) -> None:
    wrong = {
        run.dataset: found[:3] for run in runs([case]) if run.case == case and (found := differences(run, directory))
    }
    assert not wrong


def test_every_preset_stands_in_a_case_or_is_refused() -> None:
    used = {
        value
        for one in commands()["case"].values()
        for flag, value in zip(one.get("args", ())[:-1], one.get("args", ())[1:], strict=True)
        if flag == "--preset"
    }
    assert {name for name, preset in presets().items() if not preset.refused} == used
