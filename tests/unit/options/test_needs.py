"""What the result of a command is, which decides what options may be about."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_cli.engine.plan import Plan
from grpo_cli.options.given import Given
from grpo_cli.options.needs import LINES, REWARDS, WHOLE, Asked


def asked(*, drift_by_line: bool = True, **given: Any) -> Asked:
    return Asked(Given(given).to_command("inspect"), Plan(), None, drift_by_line=drift_by_line)


@pytest.mark.parametrize("given", [{"rescored": "old.jsonl"}, {"rescored_column": "old"}])
def test_old_rewards_are_a_file_or_a_column(given: dict[str, Any]) -> None:
    assert asked(**given).shows == REWARDS


@pytest.mark.parametrize("drift", [True, False])
def test_a_table_by_value_has_advantages_only_where_policies_drift(*, drift: bool) -> None:
    lines = asked(by="step", format="csv", drift_by_line=drift)
    assert lines.shows == LINES
    assert lines.has_advantages == drift
    whole = asked(by="step", drift_by_line=drift)
    assert whole.shows == WHOLE
    assert whole.has_advantages
