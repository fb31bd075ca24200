"""`--explain`: what would be computed, part by part, and one real group worked out row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from grpo_cli.view import formula, summary
from grpo_cli.view.sheet import Sheet
from grpo_cli.view.words import clean, count, cut
from grpo_cli.view.worked import Worked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from grpo_cli.engine import Scored
    from grpo_cli.narrow import Narrow
    from grpo_cli.plan import Plan

KEY: Final = 60


def render(plan: Plan, facts: Mapping[str, Any], scored: Scored, narrow: Narrow, console: Console) -> None:
    """Print the columns and the grouping, the plan, and a group; nothing has been or will be written."""
    sheet = Sheet(console)
    summary.show(summary.FOUND, facts, plan, sheet)
    sheet.row("reward", clean(" + ".join(facts["reward_columns"])), hang=2)
    for role, name in facts["role_columns"].items():
        sheet.row(role.replace("_", " "), clean("every response counts the same" if name == "equal" else name), hang=2)
    sheet.blank()
    summary.show([summary.preset], facts, plan, sheet)
    sheet.row("method", f"{plan.method}: {plan.estimator.summary}", hang=2)
    for part, lines in formula.full(plan, facts["reward_columns"]):
        sheet.row(f"  {part}", lines, hang=2)
    sheet.blank()
    _group(Worked.of(plan, scored, narrow), facts, sheet)
    sheet.blank()
    for warning in facts["warnings"]:
        sheet.row("warning", clean(warning), style="yellow")
    sheet.text("nothing was written")


def _group(worked: Worked, facts: Mapping[str, Any], sheet: Sheet) -> None:
    """The group's numbers, then a table whose last lines can be checked by hand."""
    key = ", ".join(map(clean, facts["group_key"]))
    named = f"{key} = " if key else ""
    sheet.row("worked out", f"{named}{cut(clean(worked.label), KEY)} ({count(worked.rows, 'row')})", hang=2)
    sheet.row("", f"in {worked.place}", hang=2)
    for label, line in worked.numbers():
        sheet.row(label, line, hang=2)
    for title, lines in worked.tables(sheet.console.width):
        sheet.blank()
        if title:
            sheet.text(title)
        for line in lines:
            sheet.text(line)
    checks = worked.check()
    if checks:
        sheet.blank()
        sheet.row("by hand", checks, hang=2)
