"""A comparison of plans: their advantages, how they differ from the first plan, and where."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from grpo_cli.render import plan_text
from grpo_cli.render.text import Sheet, clean, count, file_list, number
from grpo_cli.stats.compare import ChangedRow, Compared, ComparedPlan, Difference, OfSize, OfSolveRate
from grpo_cli.stats.facts import marked_lines
from grpo_cli.stats.verdicts import percent
from grpo_cli.values.key_text import cut

KEY = 60  # characters of the key of a row that changed
SHOWN = 12  # a table by size has at most this many lines


def render(facts: Compared, console: Console) -> None:
    """Print the comparison."""
    sheet = Sheet(console)
    sheet.row("input", file_list(facts.inputs))
    total = f"{facts.rows:,} in {count(facts.groups, 'group')}"
    sheet.row("rows", [total, *map(clean, marked_lines(facts.marks))])
    sheet.row("read as", [clean(note.removeprefix("read as ")) for note in facts.notes])
    sheet.blank()
    for plan in facts.plans:
        sheet.row(clean(plan.name), plan_text.describe(plan.plan))
    sheet.blank()
    sheet.table(["", "mean", "rms", "min", "max", "zero", "missing"], [_advantage(plan) for plan in facts.plans])
    sheet.text(f"against {clean(facts.against)}", style="bold")
    heads = ["", "changed", "flips", "rank corr.", "scale", "mean change"]
    differences = facts.differences
    sheet.table(heads, [[diff.name, *_numbers(diff, number(diff.rank_correlation))] for diff in differences])
    for difference in differences:
        if difference.changed:
            _where(sheet, facts.against, difference)
    for difference in differences:
        if difference.lost:
            has = "has" if difference.lost == 1 else "have"
            lost = f"{count(difference.lost, 'row')} {has} an advantage in only one of the two plans"
            sheet.row("not compared", f"{clean(difference.name)}: {lost}")
    for output in facts.outputs or ():
        sheet.row("written", clean(output))
    sheet.warnings(facts.warnings)
    sheet.row("verdict", map(clean, facts.verdicts))


def _advantage(plan: ComparedPlan) -> list[str]:
    values = plan.advantage
    numbers = [number(getattr(values, name), values.rms or 0.0) for name in ("mean", "rms", "min", "max")]
    zero = "-" if values.zero_share is None else percent(values.zero_share)
    return [plan.name, *numbers, zero, f"{values.missing:,}"]


def _numbers(difference: Difference | OfSize | OfSolveRate, *more: str) -> list[str]:
    ratio = difference.scale_ratio
    scale = "-" if ratio is None else f"x {number(ratio)}"
    return [
        f"{difference.changed:,}", f"{difference.sign_flips:,}", *more, scale, number(difference.mean_change),
    ]  # fmt: skip


def _where(sheet: Sheet, first: str, difference: Difference) -> None:
    """Which groups differ, and the rows that change most."""
    sheet.text(f"{clean(difference.name)} against {clean(first)}", style="bold")
    heads = ["rows", "changed", "flips", "scale", "mean change"]
    parts: Sequence[tuple[str, OfSize | OfSolveRate]]
    by_rate = [(part.solve_rate, part) for part in difference.by_solve_rate or ()]
    by_size = [(f"{part.size:,}", part) for part in difference.by_size]
    for name, parts in (("solve rate", by_rate), ("group size", by_size)):
        if len(parts) > 1:
            lines = [[label, f"{part.rows:,}", *_numbers(part)] for label, part in parts[:SHOWN]]
            sheet.table([name, *heads], lines)
            if len(parts) > SHOWN:
                sheet.text(f"and {len(parts) - SHOWN} more sizes (--json has them)")
                sheet.blank()
    sheet.row("largest change", [_change(row) for row in difference.largest])
    sheet.blank()


def _change(row: ChangedRow) -> str:
    values = f"{number(row.first, digits=6)} becomes {number(row.other, digits=6)}"
    return f"{cut(row.key, KEY)}: reward {number(row.reward)}, {values} ({clean(row.place)})"
