"""What an audit found: the formula, what else it could be, and the groups that disagree with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.render import plan_text
from grpo_cli.render.text import Sheet, clean, count, exact, listing, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

TIES: Final = 8
WORDS: Final[Mapping[str, Mapping[Any, str]]] = {
    "divisor.ddof": {0: "population std (ddof 0)", 1: "sample std (ddof 1)"},
    "divisor.level": {
        "none": "only centred, not divided", "group": "divided by the group's std",
        "batch": "divided by the batch's std", "constant": "divided by a constant",
    },
}  # fmt: skip


def render(facts: Mapping[str, Any], console: Console) -> None:
    """Print what was found, the answer first."""
    sheet, match = Sheet(console), facts["match"]
    plan = plan_text.restored(match["plan"])
    if facts["claim"] is not None:
        sheet.row("claimed", _claim(facts), hang=2)
        sheet.blank()
    sheet.row(
        "match" if not match["mismatched_rows"] else "no match", [_verdict(facts), f"  {_constants(facts)}"], hang=2
    )
    sheet.row("formula", plan_text.describe(plan), hang=2)
    if facts["ties"]:
        more = len(facts["ties"]) - TIES
        told = ", ".join(facts["ties"][:TIES]) + (f" and {more} more" if more > 0 else "")
        sheet.row("same here", f"{told}: these rows cannot tell them apart", hang=2)
    sheet.blank()
    sheet.row("input", listing(clean(name) for name in facts["inputs"]))
    sheet.row("rows", f"{facts['rows']:,} in {count(facts['groups'], 'group')}; column {clean(facts['column'])}")
    sheet.row("read as", [clean(note) for note in facts["notes"]])
    for cause in facts["causes"]:
        sheet.row("cause", f"{count(cause['groups'], 'group')}: {cause['says']}", hang=2)
    judged = facts["claim"] if facts["claim"] is not None else facts
    for one in judged["disagreements"]:
        told = f"expected {_value(one['expected'])}, logged {_value(one['logged'])} ({count(one['rows'], 'row')})"
        sheet.row("disagrees", f"{clean(one['key'])}, {clean(one['place'])}: {told}", hang=2)
    if facts["not_tried"]:
        flags = ", ".join(f"{ROLES[role].flag} ({len(names)})" for role, names in facts["not_tried"].items())
        sheet.row("not tried", f"presets that need {flags}", hang=2)
    for warning in facts["warnings"]:
        sheet.row("warning", clean(warning), style="yellow")


def _verdict(facts: Mapping[str, Any]) -> str:
    match = facts["match"]
    names = match["preset_names"] or [f"--method {match['name']}"]
    name = names[0] if len(names) == 1 else f"{names[0]} (the same as {', '.join(names[1:TIES])})"
    rows = count(facts["rows"], "row")
    if not match["mismatched_rows"]:
        if not match["decisive_rows"]:
            return f"nothing to tell: every group is constant or has one row, and {name} fits as others do"
        return f"matches {name}: max abs difference {number(match['max_difference'], digits=1)} over {rows}"
    wrong = f"{match['mismatched_rows']:,} of {rows} in {count(match['mismatched_groups'], 'group')}"
    if not match["near"]:
        return f"no formula is near: the nearest, {name}, differs in {wrong}"
    return f"{wrong} differ from the nearest formula, {name}"


def _constants(facts: Mapping[str, Any]) -> str:
    divisor = facts["match"]["plan"]["divisor"]
    if divisor["level"] == "none":
        return "scale none"
    told = f"scale {divisor['level']}, epsilon {exact(divisor['epsilon'])}, ddof {divisor['ddof']}"
    return told if divisor["of"] == "reward" else f"{told}, std of {divisor['of']}"


def _claim(facts: Mapping[str, Any]) -> list[str]:
    claim = facts["claim"]
    if not claim["mismatched_rows"]:
        return ["every row is as claimed"]
    wrong = f"{claim['mismatched_rows']:,} of {count(facts['rows'], 'row')}"
    lines = [f"{wrong} differ from the formula that you named, by up to {number(claim['max_difference'])}"]
    return lines + [f"logged: {_field(key, one)}" for key, one in claim["differs"].items()]


def _field(key: str, one: Mapping[str, Any]) -> str:
    words = WORDS.get(key, {})
    logged, claimed = (words.get(value, f"{key} {exact(value)}") for value in (one["logged"], one["claimed"]))
    return f"{logged}; claimed: {claimed}"


def _value(value: float | None) -> str:
    return "no number" if value is None else number(value, digits=6)
