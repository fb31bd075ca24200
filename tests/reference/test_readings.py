"""Files in the layouts of public tools are read as a person expects, or questioned, or refused; never wrongly in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo_cli.errors import DataError, UsageError
from tests.support.jobs import compute
from tests.support.readings import OUTCOMES, Reading, readings

READINGS = readings()


def sizes(paths: list[Path], **options: Any) -> tuple[list[int], list[str]]:
    """The sizes of the groups in order of first appearance, and the warnings; nothing is written."""
    done = compute(*paths, explain=True, **options)
    found = done.narrow.table["group"].value_counts().sort("group")["count"].to_list()
    return found, done.facts["warnings"]


def said(paths: list[Path], options: dict[str, Any]) -> str:
    """The refusal, or the warnings where there is none."""
    try:
        return "\n".join(sizes(paths, **options)[1])
    except (DataError, UsageError) as error:
        return str(error)


@pytest.mark.parametrize("name", READINGS)
def test_a_layout_is_read_as_a_person_expects(name: str, tmp_path: Path) -> None:
    one: Reading = READINGS[name]
    paths = one.write(tmp_path)
    base = dict(one.base or {})
    if one.outcome != "right":
        assert one.words in said(paths, base)
    if one.outcome != "refused":
        found, warnings = sizes(paths, **base, **(one.flags or {}))
        assert found == list(one.groups)
        assert not [warning for warning in warnings if "gradient" not in warning]


def test_each_entry_says_what_its_outcome_needs() -> None:
    for name, one in READINGS.items():
        assert one.outcome in OUTCOMES, name
        assert bool(one.words) == (one.outcome != "right"), name
        assert bool(one.flags) == (one.outcome == "asked"), name
        assert bool(one.groups) == (one.outcome != "refused"), name
