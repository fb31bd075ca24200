"""Every case of the golden tables gives, by its options, the numbers of the framework's own code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grpo_cli.engine.presets import presets
from tests.support.drawn import some
from tests.support.goldens import Run, cases, commands, computed, computed_by_command, differences, runs


def test_every_case_has_a_command_or_the_reason_why_it_has_none() -> None:
    facts = commands()["case"]
    assert {*facts} == {*cases()}
    for case, one in facts.items():
        assert ("args" in one) != ("refused" in one), case


CASES = [case for case, one in commands()["case"].items() if "args" in one]


ODD = {"singletons_mix", "zero_variance_mix", "missing_reward"}


@pytest.mark.parametrize(("case", "last"), [(case, at % 2 > 0) for at, case in enumerate(CASES)])
def test_a_case_gives_the_numbers_of_the_framework(case: str, *, last: bool) -> None:
    """On tables of odd groups and rows, and every other one of the rest, from the first or from the last one on; the nightly run takes all."""
    of_case = [run for run in runs([case]) if run.case == case]
    odd = [run for run in of_case if run.dataset in ODD]
    rest = [run for run in of_case if run.dataset not in ODD]
    if last:
        rest.reverse()
    for run in odd + some(rest, 2):
        assert differences(run, computed(run)) == [], run.dataset


def by_command() -> list[Run]:
    """Enough of the runs that each table and each flag is there: through files the arithmetic is the same."""
    chosen: dict[str, Run] = {}
    for run in runs():
        for new in (run.dataset, *run.args[::2]):
            chosen.setdefault(new, run)
    return list(dict.fromkeys(chosen.values()))


@pytest.mark.parametrize("run", by_command(), ids=lambda run: f"{run.case} on {run.dataset}")
def test_the_command_gives_the_numbers_of_the_framework(run: Run, tmp_path: Path) -> None:
    assert differences(run, computed_by_command(run, tmp_path)) == []


def test_every_preset_is_in_a_case_or_is_refused() -> None:
    lines = "\n".join(" ".join(one.get("args", ())) for one in commands()["case"].values())
    used = {*re.findall(r"--preset (\S+)", lines)}
    per_row = {name for name, preset in presets().items() if not (preset.refused or preset.plan.distill.coef)}
    assert per_row == used  # the others are in `test_distill.py`
