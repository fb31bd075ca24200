"""The result of an audit: the formula, what else it could be, and the groups that disagree with it."""

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
    """Print the result of an audit, the answer first."""
    sheet, match = Sheet(console), facts["match"]
    plan = plan_text.plan_from_dict(match["plan"])
    if facts["claim"] is not None:
        sheet.row("claimed", _claim(facts), hang=2)
        sheet.blank()
    is_match = not match["mismatched_rows"] or _is_noise(facts)
    sheet.row("match" if is_match else "no match", [_verdict(facts), f"  {_constants(facts)}"], hang=2)
    sheet.row("formula", plan_text.describe(plan), hang=2)
    if facts["ties"]:
        more = len(facts["ties"]) - TIES
        ties = ", ".join(facts["ties"][:TIES]) + (f" and {more} more" if more > 0 else "")
        sheet.row("same here", f"{ties}: these rows cannot tell them apart", hang=2)
    sheet.blank()
    sheet.row("input", listing(clean(name) for name in facts["inputs"]))
    sheet.row("rows", f"{facts['rows']:,} in {count(facts['groups'], 'group')}; column {clean(facts['column'])}")
    sheet.row("read as", [clean(note) for note in facts["notes"]])
    for cause in facts["causes"]:
        sheet.row("cause", f"{count(cause['groups'], 'group')}: {cause['says']}", hang=2)
    judged = facts["claim"] if facts["claim"] is not None else facts
    differ = []
    for group in judged["disagreements"]:
        expected, logged = (
            "no number" if value is None else number(value, digits=6) for value in (group["expected"], group["logged"])
        )
        values = f"expected {expected}, logged {logged} ({count(group['rows'], 'row')})"
        differ.append(f"{clean(group['key'])}, {clean(group['place'])}: {values}")
    if differ:
        sheet.row("differs", differ, hang=2)
    if facts["not_tried"]:
        flags = ", ".join(f"{ROLES[role].flag} ({len(names)})" for role, names in facts["not_tried"].items())
        sheet.row("not tried", f"presets that need {flags}", hang=2)
    sheet.warnings(facts["warnings"])


def _verdict(facts: Mapping[str, Any]) -> str:
    match = facts["match"]
    names = match["preset_names"] or [f"--method {match['plan']['method']}"]
    name = names[0] if len(names) == 1 else f"{names[0]} (the same as {', '.join(names[1:TIES])})"
    name = name if match["factor"] == 1 else f"{number(match['factor'])} x {name}"
    rows = count(facts["rows"], "row")
    if not match["mismatched_rows"]:
        if not match["decisive_rows"]:
            return f"nothing to tell: every group is constant or has one row, and {name} fits as others do"
        return f"matches {name}: max abs difference {number(match['max_difference'], digits=1)} over {rows}"
    wrong = f"{match['mismatched_rows']:,} of {rows} in {count(match['mismatched_groups'], 'group')}"
    if not match["near"]:
        return f"no formula is near: the nearest, {name}, differs in {wrong}"
    if _is_noise(facts):
        return f"matches {name} as float32 computes it; {wrong} differ from the exact formula"
    return f"{wrong} differ from the nearest formula, {name}"


def _is_noise(facts: Mapping[str, Any]) -> bool:
    """Whether the noise of float32 is the cause of every difference."""
    return [cause["cause"] for cause in facts["causes"]] == ["float32 noise"]


def _constants(facts: Mapping[str, Any]) -> str:
    divisor = facts["match"]["plan"]["divisor"]
    if divisor["level"] == "none":
        return "scale none"
    constants = f"scale {divisor['level']}, epsilon {exact(divisor['epsilon'])}, ddof {divisor['ddof']}"
    return constants if divisor["of"] == "reward" else f"{constants}, std of {divisor['of']}"


def _claim(facts: Mapping[str, Any]) -> list[str]:
    claim = facts["claim"]
    if not claim["mismatched_rows"]:
        return ["every row is as claimed"]
    wrong = f"{claim['mismatched_rows']:,} of {count(facts['rows'], 'row')}"
    lines = [f"{wrong} differ from the formula that you named, by up to {number(claim['max_difference'])}"]
    for key, values in claim["differs"].items():
        words = WORDS.get(key, {})
        logged, claimed = (words.get(value, f"{key} {exact(value)}") for value in (values["logged"], values["claimed"]))
        lines.append(f"logged: {logged}; claimed: {claimed}")
    return lines
