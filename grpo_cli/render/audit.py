"""The result of an audit: the formula, what else it could be, and the groups that disagree with it."""

from __future__ import annotations

from typing import Final

from rich.console import Console

from grpo_cli.auditing.facts import Audited, Claim, Differences
from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.presets import presets
from grpo_cli.render import plan_text
from grpo_cli.render.text import Sheet, clean, count, exact, file_list, listing, number
from grpo_cli.values.key_text import cut

KEY: Final = 60
TIES: Final = 8
LABELS: Final = {"match": "match", "noise": "match", "few": "too few", "nothing": "nothing"}


def render(facts: Audited, console: Console) -> None:
    """Print the result of an audit, the answer first."""
    sheet, match = Sheet(console), facts.match
    if facts.claim is not None:
        sheet.row("claimed", _claim(facts.claim, facts.rows))
        sheet.blank()
    verdict = match.verdict
    fits = verdict in {"match", "noise"}
    says_formula = verdict not in {"few", "nothing"} and facts.headline is None
    constants = [f"  {_constants(facts)}"] if says_formula else []
    constants += [f"  {match.epsilon.says}"] if says_formula and match.epsilon and match.epsilon.says else []
    sheet.row(LABELS.get(verdict, "no match"), [_verdict(facts), *constants])
    if says_formula:
        sheet.row("formula" if fits else "nearest", plan_text.decided(match.plan, match.without_effect))
    if facts.ties and verdict != "nothing" and facts.headline is None:
        listed = [tie.names for tie in (facts.ties if fits else facts.ties[:TIES])]
        more = len(facts.ties) - len(listed)
        names = [
            first + (f" (and {count(len(others), 'preset')} like it)" if others else "") for first, *others in listed
        ]
        names += [f"{more} more (--json names them)"] if more else []
        sheet.row("also fits", [f"{', '.join(names)}: these rows cannot tell them apart", *_told_apart(facts)])
    sheet.blank()
    sheet.row("input", file_list(facts.inputs))
    sheet.row("rows", f"{facts.rows:,} in {count(facts.groups, 'group')}; column {clean(facts.column)}")
    sheet.row("read as", [clean(note.removeprefix("read as ")) for note in facts.notes])
    for cause in facts.causes if says_formula else ():
        sheet.row("cause", f"{count(cause.groups, 'group')}: {cause.says}")
    claim = facts.claim
    # If the claim leads, the same rows would be listed twice.
    if says_formula and (claim is None or claim.disagreements != match.disagreements):
        _differing("differs", "formula" if fits else "nearest", match, sheet)
    if claim is not None:
        _differing("claim differs", "claimed", claim, sheet)
    if facts.not_tried:
        flags = ", ".join(f"{ROLES[role].flag} ({len(names)})" for role, names in facts.not_tried.items())
        sheet.row("not tried", f"presets that need {flags}")
    sheet.warnings(facts.warnings)


def _told_apart(facts: Audited) -> list[str]:
    """What to log so that the formula differs from those that fit as well."""
    names: dict[str, list[str]] = {}
    for tie in facts.ties:
        names.setdefault(tie.told_apart_by, []).append(tie.names[0])
    return [f"log {kind} to tell {listing(tied)} apart" for kind, tied in names.items() if kind]


def _differing(label: str, of: str, wrong: Differences, sheet: Sheet) -> None:
    """Groups that differ from what a formula computes, and how many more there are."""
    groups, lines = wrong.disagreements, []
    for group in groups:
        expected, logged = (
            "no number" if value is None else number(value, digits=6) for value in (group.expected, group.logged)
        )
        values = f"{of} {expected}, logged {logged} ({count(group.rows, 'row')})"
        lines.append(f"{cut(clean(group.key), KEY)}, {clean(group.place)}: {values}")
    if more := wrong.mismatched_groups - len(groups):
        rows = wrong.mismatched_rows - sum(group.rows for group in groups)
        lines.append(f"and {count(more, 'more group')} ({count(rows, 'row')})")
    sheet.row(label, lines)


def _verdict(facts: Audited) -> str:
    if facts.headline is not None:
        return str(facts.headline)
    match, rows = facts.match, count(facts.rows, "row")
    plain = [f"--method {match.plain_method}"] if match.plain_method else []
    names = sorted([*plain, *match.preset_names], key=lambda name: not presets().origin(name))
    names = names or [match.plan.flag]
    same = f"{names[0]} (the same as {listing(names[1:])})" if names[1:] else names[0]
    name = same if match.factor == 1 else f"{number(match.factor)} x {same}"
    if match.constants and match.weights:
        weights = " ".join(f"--reward {column}={weight:g}" for column, weight in match.weights.items())
        name = f"{name} with {weights}"
    wrong = f"{match.mismatched_rows:,} of {rows} in {count(match.mismatched_groups, 'group')}"
    equations = f"{count(match.equations, 'distinct pair')} of a group's rewards and an advantage"
    return {
        "match": f"matches {name}: max abs difference {number(match.max_difference, digits=1)} over {rows}",
        "noise": f"matches {name} as float32 computes it; {wrong} differ from the exact formula",
        "few": f"too few different values to tell: {equations} in {count(facts.groups, 'group')}; {name} fits, but others may too",
        "nothing": "nothing to tell: every advantage is 0, or no group has rewards that differ",
        "near": f"{wrong} differ from the nearest formula, {name}",
        "none": f"no formula comes close: the nearest, {name}, differs in {wrong}",
    }[match.verdict]


def _constants(facts: Audited) -> str:
    divisor = facts.match.plan.divisor
    if divisor.level == "none":
        return "scale none"
    root = f" (--set divisor.inside={exact(divisor.inside)})" if divisor.inside else ""
    constants = f"scale {divisor.level}, epsilon {exact(divisor.epsilon)}{root}, ddof {divisor.ddof}"
    return constants if divisor.of == "reward" else f"{constants}, std of {divisor.of}"


def _claim(claim: Claim, rows: int) -> list[str]:
    if not claim.mismatched_rows:
        return ["every row matches the claim"]
    wrong = f"{claim.mismatched_rows:,} of {count(rows, 'row')} in {count(claim.mismatched_groups, 'group')}"
    lines = [f"{wrong} differ from what the claim computes, by up to {number(claim.max_difference)}"]
    for field, values in claim.differs.items():
        logged, claimed = ("none" if value in {None, ()} else exact(value) for value in (values.logged, values.claimed))
        lines.append(f"{field}: logged {logged}, claimed {claimed}")
    return lines
