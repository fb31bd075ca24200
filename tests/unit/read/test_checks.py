"""The list of checks: every check that is written is in it, and when each runs follows from what it says of itself."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from grpo_cli.guests.audit.groupings import AUDITED
from grpo_cli.read import checks
from grpo_cli.read.checks import registry
from grpo_cli.read.checks.check import Check
from grpo_cli.read.checks.registry import CHECKS


def names(some: tuple[Check, ...]) -> set[str]:
    return {one.judge.__name__ for one in some}


def test_every_check_is_in_the_list_once() -> None:
    written = []
    for module in iter_modules(checks.__path__, f"{checks.__name__}."):
        here = vars(import_module(module.name)).values()
        written += [one for one in here if isinstance(one, Check) and one.judge.__module__ == module.name]
    assert len(CHECKS) == len({*CHECKS})
    assert {*CHECKS} == {*written}, "grpo_cli/read/checks/registry.py has their order"


def test_with_plan_by_each_check_runs_for_the_parts_or_for_the_input() -> None:
    divided = (registry.CHECKS_OF_INPUT, registry.CHECKS_OF_PART, registry.CHECKS_OF_ALL_PARTS)
    assert sum(map(len, divided)) == len(CHECKS)
    assert set().union(*divided) == {*CHECKS}
    assert names(registry.CHECKS_OF_ALL_PARTS) == {"only_singletons"}
    assert names(registry.CHECKS_OF_INPUT) == {
        "broken_lines", "empty_records", "unused_outcomes", "useless_marks", "unread_marks", "marks_that_leave_single_rows",
    }  # fmt: skip


def test_a_stream_leaves_out_what_needs_the_whole_input() -> None:
    left_out = names(CHECKS) - names(registry.CHECKS_OF_STREAM)
    assert left_out == {
        "nothing_left",
        "unused_outcomes",
        "useless_marks",
        "unread_marks",
        "marks_that_leave_single_rows",
    }


def test_an_audit_leaves_out_how_rollouts_count() -> None:
    assert names(CHECKS) - names(AUDITED) == {"unequal_siblings", "rows_counted", "lone_rollouts"}
