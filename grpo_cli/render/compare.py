"""A comparison of plans: one table of what they give, one of how they differ from the first, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from grpo_cli.render import plan_text
from grpo_cli.render.text import Sheet, aligned, clean, count, listing, number, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console

SHOWN: Final = 12  # lines of a table by size


def render(facts: Mapping[str, Any], console: Console) -> None:
    """Print it."""
    sheet = Sheet(console)
    sheet.row("input", listing(clean(name) for name in facts["inputs"]))
    sheet.row("rows", f"{facts['rows']:,} in {count(facts['groups'], 'group')}")
    sheet.row("read as", [clean(note) for note in facts["notes"]])
    sheet.blank()
    for plan in facts["plans"]:
        sheet.row(clean(plan["name"]), plan_text.describe(plan_text.restored(plan["plan"])), hang=2)
    sheet.blank()
    _lines(sheet, ["", "mean", "rms", "min", "max", "zero", "none"], [_advantage(plan) for plan in facts["plans"]])
    sheet.blank()
    sheet.text(f"against {clean(facts['against'])}", style="bold")
    heads = ["", "changed", "flips", "rank corr.", "scale", "mean change"]
    _lines(sheet, heads, [_difference(one) for one in facts["differences"]])
    for one in facts["differences"]:
        if one["changed"]:
            _where(sheet, facts["against"], one)
    for one in facts["differences"]:
        if one["lost"]:
            told = f"{clean(one['name'])}: {count(one['lost'], 'row')} with a number in only one of the two plans"
            sheet.row("no number", f"{told}, left out of the comparison", hang=2)
    for output in facts.get("outputs", ()):
        sheet.row("written", clean(output))
    for warning in facts["warnings"]:
        sheet.row("warning", clean(warning), style="yellow")


def _advantage(plan: Mapping[str, Any]) -> list[str]:
    seen = plan["advantage"]
    numbers = [number(seen[name], seen["rms"] or 0.0) for name in ("mean", "rms", "min", "max")]
    zero = "-" if seen["zero_share"] is None else percent(seen["zero_share"])
    return [plan["name"], *numbers, zero, f"{seen['missing']:,}"]


def _difference(one: Mapping[str, Any]) -> list[str]:
    return [one["name"], *_numbers(one, number(one["rank_correlation"]))]


def _numbers(one: Mapping[str, Any], *more: str) -> list[str]:
    scale = "-" if one["scale_ratio"] is None else f"x {number(one['scale_ratio'])}"
    return [f"{one['changed']:,}", f"{one['sign_flips']:,}", *more, scale, number(one["mean_change"])]


def _where(sheet: Sheet, first: str, one: Mapping[str, Any]) -> None:
    """Which groups the difference is in, and the rows that change most."""
    sheet.blank()
    sheet.text(f"{clean(one['name'])} against {clean(first)}", style="bold")
    heads = ["rows", "changed", "flips", "scale", "mean change"]
    tables: Sequence[tuple[str, str, Callable[[Any], str]]] = (
        ("by_solve_rate", "solve rate", str), ("by_size", "group size", lambda size: f"{size:,}"),
    )  # fmt: skip
    for key, name, spelled in tables:
        parts = one[key] or []
        if len(parts) > 1:
            label = key.removeprefix("by_")
            _lines(sheet, [name, *heads], [[spelled(p[label]), f"{p['rows']:,}", *_numbers(p)] for p in parts[:SHOWN]])
            if len(parts) > SHOWN:
                sheet.text(f"and {len(parts) - SHOWN} more sizes (--json has them)")
            sheet.blank()
    sheet.row("changes most", [_change(row) for row in one["largest"]], hang=2)


def _change(row: Mapping[str, Any]) -> str:
    values = f"{number(row['first'], digits=6)} becomes {number(row['other'], digits=6)}"
    return f"{clean(row['key'])}: reward {number(row['reward'])}, {values} ({clean(row['place'])})"


def _lines(sheet: Sheet, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    columns = [[row[i] for row in rows] for i in range(len(heads))]
    for i, line in enumerate(aligned(heads, columns, frozenset({0}))):
        sheet.text(line, style="dim" if not i else "")
